"""An upsert of 100 rows by the local engine on local disk, on a young table and on an old one.

The old table has 10,000 commits, none of them archived. What they would have left is put into the
folders directly: entries of the decision log, timeline files and (empty) log files. A commit must
not be slower for it, and must ask storage no more than the protocol counts.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
from measure import verdict

import pyhudi
from pyhudi.api.table import Table
from pyhudi.format.timeline.decision_entry import (
    Entry,
    EntryKind,
    creation,
    encode_entry,
    entry_path,
)
from pyhudi.format.timeline.instant import Action
from pyhudi.read.load import TableLoader, load_config
from pyhudi.session.open import OpenTable, Overrides
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.decision_log import last_entries, load_entry
from pyhudi.storage.open import open_storage
from pyhudi.timeline.instant_time import following_time
from pyhudi.world import real_world

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from faulty_storage import FaultyStorage

ROWS = 100
BUCKETS = 4
COMMITS = 10_000
UPSERT_MS_MAX = 50.0
SLOWER_MAX = 1.25
#: Section 11 of the protocol: Hudi's own files and the log's, without the heartbeat's write.
CREATES_MAX = 5
LOOKS_MAX = 6  # lists and gets
TURNS = 40

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])


def rows(turn: int) -> pa.Table:
    ids = [f"key {number}" for number in range(ROWS)]
    columns = {"id": ids, "ts": [turn] * ROWS, "v": [float(n) for n in range(ROWS)]}
    return pa.table(columns, schema=SCHEMA)


def new_table(folder: str) -> Table:
    return pyhudi.create_table(
        folder,
        SCHEMA,
        record_key="id",
        ordering="ts",
        buckets=pyhudi.SimpleBuckets(BUCKETS),
        upkeep=False,
    )


def upsert_ms(tables: dict[str, Table]) -> dict[str, float]:
    """The median upsert of each table, after a few that fill caches. They take turns."""
    taken: dict[str, list[float]] = {name: [] for name in tables}
    for turn in range(TURNS + 5):
        for name, table in tables.items():
            batch = rows(turn)
            start = time.perf_counter()
            table.upsert(batch)
            taken[name].append((time.perf_counter() - start) * 1000)
    return {name: statistics.median(times[5:]) for name, times in taken.items()}


def grow_old(folder: Path, commits: int) -> None:
    """What so many commits leave: two entries, three timeline files and a log for each bucket."""
    storage = open_storage(str(folder))
    tail = load_entry(storage, last_entries(storage)[-1][0])
    assert tail is not None
    assert tail.creates is not None
    assert tail.time is not None
    metadata = storage.read(f".hoodie/timeline/{tail.creates.name}")
    timeline, previous, last = folder / ".hoodie/timeline", tail, tail.time
    logs = [path.name for path in folder.glob(f".*_{tail.instant}.log.1_*")]
    assert len(logs) == BUCKETS
    for _ in range(commits):
        requested, completed = following_time(last), following_time(following_time(last))
        name = f"{requested}_{completed}.deltacommit"
        begin = _entry(
            previous,
            EntryKind.BEGIN,
            requested,
            requested,
            b"",
            f"{requested}.deltacommit.requested",
        )
        previous = _entry(begin, EntryKind.COMPLETE, completed, requested, metadata, name)
        for entry in (begin, previous):
            path = folder / entry_path(entry.n)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode_entry(entry))
        (timeline / f"{requested}.deltacommit.requested").touch()
        (timeline / f"{requested}.deltacommit.inflight").touch()
        (timeline / name).write_bytes(metadata)
        for log in logs:
            (folder / log.replace(tail.instant or "", requested)).touch()
        last = completed


def _entry(
    previous: Entry, kind: EntryKind, time: str, instant: str, data: bytes, name: str
) -> Entry:
    return Entry(
        n=previous.n + 1,
        id=f"entry {previous.n + 1}",
        prev=previous.id,
        kind=kind,
        time=time,
        instant=instant,
        action=Action.DELTACOMMIT,
        begin=previous.n if kind is EntryKind.COMPLETE else None,
        creates=creation(name, data),
    )


def print_listing(timeline: Path) -> None:
    """What each commit would pay, several times over, if it listed the whole timeline."""
    start = time.perf_counter()
    count = len(os.listdir(timeline))
    taken = (time.perf_counter() - start) * 1000
    print(f"  listing the {count:,} names of its timeline: {taken:.0f} ms")


def operations(folder: str) -> Counter[str]:
    """What one more commit asks of the log and the timeline."""
    storage = FaultyStorage(open_storage(folder))
    opening = OpenTable(storage, real_world(), WriteSettings(), Overrides())
    table = Table(TableLoader(storage, load_config(storage)), opening)
    table.upsert(rows(0))
    before = len(storage.trace)
    table.upsert(rows(1))
    commit = (
        o.name
        for o in storage.trace[before:]
        if o.path.startswith((".hoodie/timeline", ".hoodie/.pyhudi"))
    )
    return Counter("look" if name in ("list", "read", "stat") else name for name in commit)


def main() -> bool:
    print(f"commits: upserts of {ROWS} rows into {BUCKETS} buckets, on local disk")
    with tempfile.TemporaryDirectory() as folder:
        young, old = new_table(f"{folder}/young"), new_table(f"{folder}/old")
        for turn in range(10):
            young.upsert(rows(turn))
            old.upsert(rows(turn))
        grow_old(Path(folder) / "old", COMMITS)
        print_listing(Path(folder) / "old/.hoodie/timeline")
        start = time.perf_counter()
        old = pyhudi.open_table(f"{folder}/old")
        old.upsert(rows(0))
        first = (time.perf_counter() - start) * 1000
        print(f"  first upsert of a process after {COMMITS:,} commits: {first:.0f} ms")
        taken = upsert_ms({"10 commits": young, f"{COMMITS:,} commits": old})
        for name, ms in taken.items():
            print(f"  upsert after {name}: {ms:.1f} ms")
        asked = operations(f"{folder}/old")
        print(f"  operations of a commit on log and timeline: {dict(asked)}")
        after_few, after_many = taken.values()
        return all(
            [
                verdict("milliseconds", max(after_few, after_many), UPSERT_MS_MAX),
                verdict("old table to young", after_many / after_few, SLOWER_MAX),
                verdict("creates", asked["create"], CREATES_MAX),
                verdict("lists and gets", asked["look"], LOOKS_MAX),
            ]
        )
