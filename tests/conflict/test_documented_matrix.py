"""The tables of docs/concurrency.md are true: every pair of operations, run on one bucket.

The operation of a column is stopped in the midst of its work, the one of a row completes, and the
first one goes on. Where it matters who began first, both orders are run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from as_by_spark import written_as_by_spark
from faulty_storage import FaultyStorage
from many_writers.scene import COW, NBCC, OCC, SHARED, Scene, Stop, rows
from many_writers.services_by_hand import (
    BegunService,
    begin_service,
    clean,
    plan_clustering,
    replacement,
)
from pyhudi.api.table import Table
from pyhudi.errors import ConflictError, UnavailableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import ConsistentBuckets
from pyhudi.format.table.column_owners import ColumnOwners
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat, encode_commit_metadata
from pyhudi.format.timeline.instant import Action
from pyhudi.format.timeline.plan_files import (
    CompactionOperation,
    CompactionPlan,
    encode_compaction_plan,
)
from pyhudi.index.simple_bucket import file_id
from pyhudi.services.resizing.run import resizes
from pyhudi.session.session import TableSession
from pyhudi.storage.objects.column_owners import declare_owners
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.write import local, tasks
from pyhudi.write.begin import ready
from pyhudi.write.intent import Reads, WholeRows, WriteIntent
from pyhudi.write.result import WriteResult
from pyhudi.write.seeds import seed_missing
from resize_tables import begin_resize, splits
from worlds import Clock

DOCUMENT = Path(__file__).parents[2] / "docs" / "concurrency.md"
OWNERS = {"own": ("by",), "other": ("ts",)}
#: Kinds of tables; all but the last have a section in the document.
KINDS: dict[str, dict[str, Any]] = {
    "Non-blocking": NBCC,
    "Optimistic": OCC,
    "Joined": {"owners": OWNERS},
    "Copy on write": COW,
}
SECTIONS = ("Non-blocking", "Optimistic", "Joined")

DAY = "mo"
GROUP = FileGroupId(DAY, file_id(0))
SYNC = bytes(16)


# -- the document


class Cell(StrEnum):
    BOTH = "both"
    CONFLICT = "conflict"
    IF_LATER = "if later"
    AGAIN = "again"
    NEVER = "never"


@cache
def documented() -> dict[tuple[str, str, str], Cell]:
    """Section, own operation and other operation → what the document says of the two."""
    found: dict[tuple[str, str, str], Cell] = {}
    text = DOCUMENT.read_text()
    for section in SECTIONS:
        body = text.partition(f"### {section}\n")[2].partition("\n#")[0]
        header, _, *lines = [line for line in body.splitlines() if line.startswith("|")]
        own = [_operations(cell) for cell in _cells(header)[1:]]
        for line in lines:
            others, *cells = _cells(line)
            for group, cell in zip(own, cells, strict=True):
                for pair in ((o, p) for o in group for p in _operations(others)):
                    assert (section, *pair) not in found, f"{pair} is there twice"
                    found[section, *pair] = Cell(cell)
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def _operations(cell: str) -> list[str]:
    return [name.strip() for name in cell.replace("`", "").split(",")]


# -- operations that write


def _logged(table: Table, given: pa.Table) -> WriteResult:
    """As Spark writes logs: the buckets are opened once the rows are written."""
    with _loads(is_load=False):
        return written_as_by_spark(table, given, _INTENT)


def _upserted(table: Table, given: pa.Table) -> WriteResult:
    with _loads(is_load=False):
        return table.upsert(given)


def _appended(table: Table, given: pa.Table) -> WriteResult:
    with _loads(is_load=False):
        return table.append(given)


def _loaded(table: Table, given: pa.Table) -> WriteResult:
    """As Spark loads an empty bucket."""
    with _loads(is_load=True):
        return written_as_by_spark(table, given, replace(_INTENT, change=WholeRows(loads=True)))


_of_thread = threading.local()


@contextmanager
def _loads(*, is_load: bool) -> Iterator[None]:
    """Let any number of rows become a base file, or none, in writes of this thread."""
    before = getattr(_of_thread, "is_load", False)
    _of_thread.is_load = is_load
    try:
        yield
    finally:
        _of_thread.is_load = before


@pytest.fixture(autouse=True)
def loads_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tasks, local):
        monkeypatch.setattr(module, "is_load", lambda _: getattr(_of_thread, "is_load", False))


_INTENT = WriteIntent(operation="INSERT", reads=Reads.LOCATIONS)


def _parts(table: Table, id_: str) -> WriteResult:
    """Of the owner that the process is named after."""
    owner = table._opening.world.label
    owner = owner if owner in OWNERS else "other"
    part = rows(owner, id_, ts=2).select(["id", "day", *OWNERS[owner]])
    return table.upsert(part, owner=owner)


Write = Callable[[Table], WriteResult]
NEW = rows("new", "a", ts=2)
WRITES: dict[str, Write] = {
    "upsert": lambda table: _upserted(table, NEW),
    "append to logs": lambda table: _appended(table, NEW),
    "append to base files": lambda table: _loaded(table, NEW),
    "update": lambda table: table.update(NEW.drop_columns(["ts"]), columns=["by"]),
    "delete by keys": lambda table: table.delete(NEW.drop_columns(["by"])),
    "delete by predicate": lambda table: table.delete("id = 'a'"),
    "overwrite": lambda table: table.overwrite(NEW),
    "delete_partitions": lambda table: table.delete_partitions([DAY]),
    "upsert of known keys": lambda table: _parts(table, "a"),
    "upsert of new keys": lambda table: _parts(table, "n"),
}
#: Those that write nothing where there are no rows.
OF_ROWS = ("update", "delete by predicate")
SERVICES = (
    *("compaction pending", "compaction completed"),
    *("log compaction pending", "log compaction completed"),
    *("clustering pending", "clustering completed"),
)
RESIZES = ("resize pending", "resize completed")
ALWAYS = (*SERVICES, *RESIZES, "clean", "rollback")
WHOLE_ROWS = tuple(WRITES)[:8]
OF_OWNERS = tuple(WRITES)[4:]


def own_operations(section: str) -> tuple[str, ...]:
    return OF_OWNERS if section == "Joined" else (*WHOLE_ROWS, "seed")


def other_operations(section: str) -> tuple[str, ...]:
    return (*own_operations(section), *ALWAYS)


# -- a bucket, and two that meet there


class Meddled(FaultyStorage):
    """Somebody else acts once, before the first data file of this process is created."""

    def __init__(self, inner: Storage, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._act = act
        self.met = False
        self.rollbacks = 0  # that this process began

    def _meet(self, path: str) -> None:
        self.rollbacks += path.endswith(".rollback.requested")
        if ".hoodie" not in path and not self.met:
            self.met = True
            self._act()

    def create(self, path: str, data: bytes) -> bool:
        self._meet(path)
        return super().create(path, data)

    def create_from(self, path: str, chunks: Any) -> int | None:
        self._meet(path)
        return super().create_from(path, chunks)


class State(StrEnum):
    UNOPENED = "it has no file"
    EMPTY = "it was opened, and has no rows"
    FILLED = "it has rows"


@cache
def prepared(kind: str, state: State, other: str) -> Scene:
    """A table with the bucket in that state, to be copied."""
    given = SHARED if other == SERVICES[0] else {"buckets": ConsistentBuckets(initial=1)}
    scene = Scene(**KINDS[kind], **(given if other else {}))
    if kind == "Joined":
        declare_owners(scene.storage, ColumnOwners(OWNERS))
        _parts(scene.table("before"), "a")
    elif state is State.FILLED:
        scene.table("before").upsert(rows("before", "a", "b"))
    else:
        scene.table("before").upsert(rows("before", "a", day="tu"))
    if state is State.EMPTY:
        seed(scene)
    return scene


def seed(scene: Scene) -> None:
    seed_missing(ready(scene.opening("seeding")), [DAY])


class Bucket(Scene):
    """One bucket, in the state in which both operations have something to do there."""

    def __init__(self, kind: str, own: str, other: str) -> None:
        state = State.FILLED
        if "seed" in (own, other):
            state = State.UNOPENED
        elif "append to base files" in (own, other):
            state = State.EMPTY
        self.is_filled = state is State.FILLED
        self.is_joined = kind == "Joined"
        alike = {**dict.fromkeys(SERVICES, SERVICES[0]), **dict.fromkeys(RESIZES, RESIZES[0])}
        scene = prepared(kind, state, alike.get(other, ""))
        self.clock = Clock(scene.clock.ms)
        self.storage = MemoryStorage(lambda: self.clock.ms)
        self.skews_ms = {}
        for stat in scene.storage.list(""):
            self.storage.create(stat.path, scene.storage.read(stat.path))

    # -- the other

    def begin(self, other: str) -> Callable[[], object]:
        """Begin the other operation; what is given back completes it."""
        if other in WRITES:
            held = self.hold("other", WRITES[other], Stop.BEGUN)
            return held.finish
        if other in SERVICES:
            kind, _, state = other.rpartition(" ")
            begins = {
                "compaction": self._compaction,
                "log compaction": self._log_compaction,
                "clustering": self._clustering,
            }
            service, result = begins[kind]()
            return (lambda: None) if state == "pending" else partial(service.complete, result)
        if other in RESIZES:
            ids = (f"{number:08d}-0000-0000-0000-child" for number in range(2))
            changes_of = partial(splits, parts=2, new_id=lambda: next(ids))
            requested = begin_resize(self._service_writer(), [DAY], changes_of)
            if other == "resize pending":
                return lambda: None
            return lambda: resizes(self._service_writer()).execute(requested)
        raise NotImplementedError(f"{other} has one moment only")

    def run(self, other: str) -> None:
        """The other operation from begin to end."""
        if other == "seed":
            seed(self)
        elif other == "clean":
            clean(self._service_writer(), [], "")
        elif other == "rollback":
            self._fail()
        elif other in (*SERVICES, *RESIZES):
            self.begin(other)()
        else:
            table = self.table("other")
            if other in OF_ROWS and not self.is_filled:
                table.upsert(NEW)  # or it would have nothing to do here
            WRITES[other](table)

    def _compaction(self) -> tuple[BegunService, bytes]:
        service = self._planned(Action.COMPACTION)
        name = f"{DAY}/{GROUP.file_id}_0-0-0_{service.requested}.parquet"
        stat = WriteStat(file_id=GROUP.file_id, path=name, partition_path=DAY)
        return service, encode_commit_metadata(CommitMetadata({DAY: (stat,)}), SYNC)

    def _log_compaction(self) -> tuple[BegunService, bytes]:
        """Only Hudi does it: one log instead of many."""
        service = self._planned(Action.LOGCOMPACTION)
        name = f".{GROUP.file_id}_{service.requested}.log.1_0-0-0"
        stat = WriteStat(
            file_id=GROUP.file_id, path=f"{DAY}/{name}", partition_path=DAY, log_files=(name,)
        )
        metadata = CommitMetadata({DAY: (stat,)}, operation_type="LOG_COMPACT")
        return service, encode_commit_metadata(metadata, SYNC)

    def _planned(self, action: Action) -> BegunService:
        operation = CompactionOperation("0" * 17, (), None, GROUP.file_id, DAY)
        plan = encode_compaction_plan(CompactionPlan((operation,)), SYNC)
        return begin_service(self._service_writer(), action, plan)

    def _clustering(self) -> tuple[BegunService, bytes]:
        writer = self._service_writer()
        service = plan_clustering(writer, [GROUP])
        return service, replacement([GROUP], writer.schema.avro(), "CLUSTER")

    def _service_writer(self) -> TableSession:
        return self.session("service")

    def _fail(self) -> None:
        """A write of the bucket that fails when its files are there, and is rolled back."""
        error = UnavailableError("it fails", why="it must", next_step="Nothing")
        table = self.table("failing")
        with patch("pyhudi.write.write.finish", side_effect=error), pytest.raises(type(error)):
            _parts(table, "a") if self.is_joined else _logged(table, NEW)
        assert self.completed("rollback")

    # -- own

    def outcome(self, own: str, other: str, meanwhile: Callable[[], object]) -> Cell:
        """What becomes of our operation if something happens while it is at work."""
        if own == "seed":
            return self._seeded(meanwhile)
        # One retry, for without any a write is not committed behind another one either.
        retries = 0 if other in (*SERVICES, *RESIZES) else 1
        act = WRITES[own]
        if other == "seed" and own in ("upsert", "append to logs"):
            act = partial(_logged, given=NEW)  # the other way opens the bucket before it begins
        try:
            if not self.is_filled and own in (*OF_ROWS, "delete by keys", "delete_partitions"):
                held = self.hold("own", act, Stop.BEGUN, conflict_retries=retries)
                meanwhile()
                result = held.finish()
            else:
                storage = Meddled(self.storage, meanwhile)
                result = act(self.table("own", storage, conflict_retries=retries))
                assert storage.met
        except ConflictError:
            return Cell.CONFLICT
        return Cell.CONFLICT if result.retries else Cell.BOTH

    def _seeded(self, meanwhile: Callable[[], object]) -> Cell:
        storage = Meddled(self.storage, meanwhile)
        seed_missing(ready(self.opening("own", storage)), [DAY])
        assert storage.met
        return Cell.AGAIN if storage.rollbacks else Cell.BOTH


def later(kind: str, own: str, other: str) -> Cell:
    """The other one begins and completes while ours is at work."""
    bucket = Bucket(kind, own, other)
    return bucket.outcome(own, other, lambda: bucket.run(other))


def earlier(kind: str, own: str, other: str) -> Cell:
    """The other one has begun before ours, and completes while ours is at work."""
    bucket = Bucket(kind, own, other)
    return bucket.outcome(own, other, bucket.begin(other))


def has_two_orders(own: str, other: str) -> bool:
    """Whether the other one can be begun before ours in a bucket where both have work to do."""
    if own == "seed" or other not in (*WRITES, *SERVICES, *RESIZES):
        return False
    return not (other in OF_ROWS and own == "append to base files")


# -- tests

#: On a copy-on-write table there are no logs, and an append is an upsert.
REWRITES = [name for name in WHOLE_ROWS if not name.startswith("append")]
PAIRS = [
    pytest.param(section, own, other, id=f"{section}: {own}, {other}")
    for section in SECTIONS
    for own in own_operations(section)
    for other in other_operations(section)
]


def test_the_document_says_something_of_every_pair() -> None:
    assert documented().keys() == {param.values for param in PAIRS}


@pytest.mark.parametrize(("section", "own", "other"), PAIRS)
def test_two_operations_meet_as_documented(section: str, own: str, other: str) -> None:
    cell = documented()[section, own, other]
    if cell is Cell.NEVER:
        assert own == "seed"
        needy = (*OF_ROWS, "delete_partitions", *SERVICES, *RESIZES)
        assert other in needy, "they need a file to be there"
        return
    is_order = cell is Cell.IF_LATER
    assert later(section, own, other) is (Cell.CONFLICT if is_order else cell)
    if has_two_orders(own, other):
        assert earlier(section, own, other) is (Cell.BOTH if is_order else cell)


@pytest.mark.parametrize("own", REWRITES)
@pytest.mark.parametrize("other", REWRITES)
def test_on_a_copy_on_write_table_all_writes_of_a_bucket_conflict(own: str, other: str) -> None:
    assert later("Copy on write", own, other) is Cell.CONFLICT


@pytest.mark.parametrize("kind", [NBCC, OCC], ids=["nbcc", "occ"])
def test_a_write_that_was_rolled_back_meanwhile_does_not_complete(kind: dict[str, Any]) -> None:
    scene = Scene(**kind)
    held = scene.hold("own", WRITES["upsert"], Stop.WRITTEN, conflict_retries=0)
    scene.clock.sleep(10 * 60_000)
    scene.table("other").upsert(rows("other", "b"))
    with pytest.raises(ConflictError, match="rolled it back"):
        held.finish()
    assert scene.writers() == {"b": "other"}


@pytest.mark.parametrize("kind", [NBCC, OCC], ids=["nbcc", "occ"])
def test_a_row_that_is_added_where_a_predicate_found_nothing_stays(kind: dict[str, Any]) -> None:
    scene = Scene(**kind)
    scene.table("before").upsert(rows("before", "a"))
    held = scene.hold("own", lambda table: table.delete("ts > 0"), Stop.WRITTEN, conflict_retries=0)
    scene.table("other").upsert(rows("other", "b", day="tu"))
    held.finish()
    assert scene.writers() == {"b": "other"}
