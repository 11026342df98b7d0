"""Tables in memory that are archived, and what must be true of them before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from memory_tables import TIMELINE
from opened_tables import opening_on
from pyhudi.api.table import Table
from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import parse_data_file
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.archive import (
    VERSION_FILE,
    ArchivedInstant,
    decode_archived_instants,
    decode_manifest,
    manifest_name,
    parse_manifest_name,
)
from pyhudi.format.timeline.instant import Action, Instant, is_timeline_file
from pyhudi.plan.archiving.choose import ArchivePlan
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.plan.table_definition import TableDefinition
from pyhudi.read.load import TableLoader, load_config
from pyhudi.services.archiving.result import ArchiveResult
from pyhudi.services.archiving.run import archive
from pyhudi.session.create import create_table_files
from pyhudi.session.open import OpenTable
from pyhudi.session.session import TableSession
from pyhudi.settings import WriteSettings
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from worlds import Clock, still_world

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
HISTORY = f"{TIMELINE}/history"
SETTINGS = WriteSettings(lock_wait_ms=5_000)
#: Small enough for several files, levels and manifests in one run.
POLICY = ArchivePolicy(
    keep_min=2,
    keep_max=4,
    delta_commits=0,
    file_instants=3,
    merge_files=2,
    grace_ms=1_000,
    aborted_grace_ms=1_000,
)
DAY_MS = 24 * 3_600_000
WAYS = ("as of", "since")


def rows(ts: int, *ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "ts": [ts] * len(ids)}, schema=SCHEMA)


class Bench:
    """A table in memory, processes that write it, and one that archives it."""

    def __init__(self, table_type: TableType = TableType.MERGE_ON_READ, **asked: Any) -> None:
        self.clock = Clock()
        self.storage = MemoryStorage(lambda: self.clock.ms)
        definition = TableDefinition.of(
            "t",
            SCHEMA,
            record_key="id",
            ordering="ts",
            buckets=SimpleBuckets(1),
            table_type=table_type,
            **asked,
        )
        world = still_world(self.clock)
        create_table_files(self.storage, definition, world, exist_ok=False)

    @classmethod
    def of(cls, objects: tuple[tuple[str, bytes, int], ...]) -> Bench:
        bench = cls.__new__(cls)
        bench.clock = Clock()
        bench.storage = MemoryStorage(lambda: bench.clock.ms)
        for path, data, modified in objects:
            bench.clock.ms = modified
            bench.storage.write(path, data)
        bench.clock.ms = max(modified for _, _, modified in objects) + 10_000
        return bench

    def objects(self) -> tuple[tuple[str, bytes, int], ...]:
        stats = self.storage.list("")
        return tuple((s.path, self.storage.read(s.path), s.modified_ms) for s in stats)

    def opening(self, label: str = "archiver", storage: Storage | None = None) -> OpenTable:
        world = still_world(self.clock, label, seed=self.clock.ms)
        return opening_on(storage or self.storage, world, SETTINGS)

    def session(self, label: str = "archiver", storage: Storage | None = None) -> TableSession:
        return self.opening(label, storage).session()

    def table(self, label: str = "a", storage: Storage | None = None) -> Table:
        storage = storage or self.storage
        return Table(TableLoader(storage, load_config(storage)), self.opening(label, storage))

    def write(self, *numbers: int) -> None:
        for n in numbers:
            self.table("writer").upsert(rows(n, "x", f"k{n % 5}"), write_id=f"w{n}")

    def die(self, ts: int) -> str:
        """A writer dies when its files are written; its instant."""
        before = {path for path, _, _ in self.objects()}
        stuck = Fault(Effect.FAIL, operation="create", path="*/log/*", nth=2, times=None)
        with pytest.raises(HudiError):
            self.table("dead", FaultyStorage(self.storage, [stuck])).upsert(rows(ts, "x", "dead"))
        files = [s.path for s in self.storage.list("") if s.path not in before]
        names = (parse_data_file(path.rpartition("/")[2]) for path in files)
        return next(name.requested for name in names if name is not None)

    def archive(
        self, policy: ArchivePolicy = POLICY, storage: Storage | None = None, **how: Any
    ) -> ArchiveResult:
        done = archive(self.session("archiver", storage), policy, **how)
        assert isinstance(done, ArchiveResult)
        return done

    def preview(self, policy: ArchivePolicy = POLICY, **how: Any) -> ArchivePlan:
        plan = archive(self.session(), policy, dry_run=True, **how)
        assert isinstance(plan, ArchivePlan)
        return plan

    # -- what is there

    def active(self) -> list[Instant]:
        names = (s.path.rpartition("/")[2] for s in self.storage.list_folder(TIMELINE).objects)
        return [Instant.parse(name) for name in names if is_timeline_file(name)]

    def completed(self) -> list[str]:
        return [i.requested for i in self.active() if i.completed]

    def archived(self) -> list[ArchivedInstant]:
        """Every row of every file of the current snapshot."""
        version = int(self.storage.read(f"{HISTORY}/{VERSION_FILE}"))
        data = self.storage.read(f"{HISTORY}/{manifest_name(version)}")
        found: list[ArchivedInstant] = []
        for entry in decode_manifest(data, "").entries:
            content = self.storage.read(f"{HISTORY}/{entry.file.file_name}")
            assert len(content) == entry.size
            instants = decode_archived_instants(content, "")
            assert [i.requested for i in instants] == sorted(i.requested for i in instants)
            assert entry.file.least == instants[0].requested
            assert entry.file.greatest == instants[-1].requested
            found += instants
        return found


def content(scan: Any) -> dict[str, int]:
    found = scan.to_arrow()
    pairs = dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True))
    assert len(pairs) == found.num_rows, "a key is there twice"
    return pairs


def settled_reads(bench: Bench, times: Sequence[str]) -> dict[str, Any]:
    table = bench.table("reader")
    found: dict[str, Any] = {"now": content(table.read())}
    for time in times:
        found[f"as of {time}"] = content(table.read(as_of=time))
        found[f"since {time}"] = content(table.changes(since=time))
    return found


@cache
def written(table_type: TableType = TableType.MERGE_ON_READ) -> tuple[Any, ...]:
    """A table with eight writes and, after the fourth, one that was given up."""
    bench = Bench(table_type)
    bench.write(1, 2, 3, 4)
    bench.die(99)
    bench.clock.sleep(SETTINGS.heartbeat_timeout_ms + 1)
    bench.write(5, 6, 7, 8)
    times = [i.completed for i in bench.active() if i.completed and i.action is not Action.ROLLBACK]
    return bench.objects(), settled_reads(bench, times), times


def check_whole(bench: Bench) -> None:
    """No instant is archived twice, none is active too, and the archive's last step is done."""
    found = Counter(i.requested for i in bench.archived())
    assert max(found.values()) == 1, "an instant is archived twice"
    assert not {i.requested for i in bench.active()} & found.keys()
    names = (stat.path.rpartition("/")[2] for stat in bench.storage.list(HISTORY))
    numbers = [n for n in map(parse_manifest_name, names) if n is not None]
    assert max(numbers) == int(bench.storage.read(f"{HISTORY}/{VERSION_FILE}"))


def some(reads: dict[str, Any], times: list[str]) -> dict[str, Any]:
    return {key: reads[key] for key in ("now", *(f"{w} {t}" for w in WAYS for t in times))}


def rubbish(bench: Bench) -> list[str]:
    """Archive files that no manifest lists."""
    listed = set()
    names = [stat.path.rpartition("/")[2] for stat in bench.storage.list(HISTORY)]
    for name in names:
        if parse_manifest_name(name) is not None:
            manifest = decode_manifest(bench.storage.read(f"{HISTORY}/{name}"), "")
            listed |= {entry.file.file_name for entry in manifest.entries}
    return [name for name in names if name.endswith(".parquet") and name not in listed]
