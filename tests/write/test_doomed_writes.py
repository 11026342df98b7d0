"""A write that is certain to be refused stops while it runs; one that might complete goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import Effect, Fault, FaultyStorage
from memory_tables import MemoryTable
from opened_tables import table_on
from pyhudi.api.table import Table
from pyhudi.errors import UnavailableError
from pyhudi.format.paths import file_name
from pyhudi.format.table.table_config import TableType
from pyhudi.settings import EarlyDetection, WriteSettings
from pyhudi.storage.protocol import ObjectStat

BUCKETS = 8
KEYS = [f"k{n}" for n in range(64)]
SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("v", pa.string())])
ORDERED = SCHEMA.append(pa.field("ts", pa.int64()))
COW, OPTIMISTIC, NON_BLOCKING = "copy on write", "merge on read", "non-blocking"
RINGS = "consistent buckets"
PERIOD_MS = 5_000


def rows(table: MemoryTable, v: str, keys: list[str] = KEYS) -> pa.Table:
    schema = table.table().schema.arrow
    given = {"id": keys, "v": [v] * len(keys), "ts": [1] * len(keys)}
    return pa.table({name: given[name] for name in schema.names}, schema=schema)


def made(kind: str) -> MemoryTable:
    definition: dict[str, Any] = {"buckets": pyhudi.SimpleBuckets(BUCKETS)}
    if kind == COW:
        definition["table_type"] = TableType.COPY_ON_WRITE
    if kind == RINGS:
        definition["buckets"] = pyhudi.ConsistentBuckets(initial=BUCKETS)
    if kind == NON_BLOCKING:
        definition["ordering"] = "ts"
    table = MemoryTable(ORDERED if kind == NON_BLOCKING else SCHEMA, **definition)
    table.table().upsert(rows(table, "0"))
    return table


class Slow(FaultyStorage):
    """Something happens before the first data file, and each file takes its time."""

    def __init__(self, table: MemoryTable, meddle: Callable[[], object]) -> None:
        super().__init__(table.storage)
        self._clock = table.clock
        self._meddle: Callable[[], object] | None = meddle
        self.files: list[str] = []
        self.looks = 0

    def _create(self, path: str) -> None:
        if path.startswith(".hoodie"):
            return
        meddle, self._meddle = self._meddle, None
        if meddle is not None:
            meddle()
        self._clock.sleep(PERIOD_MS)
        self.files.append(file_name(path))

    def create(self, path: str, data: bytes) -> bool:
        self._create(path)
        return super().create(path, data)

    def create_from(self, path: str, chunks: Any) -> int | None:
        self._create(path)
        return super().create_from(path, chunks)


def written(
    table: MemoryTable,
    write: Callable[[Table], object],
    meanwhile: Callable[[Table], object],
    *,
    through: type[Slow] = Slow,
    **settings: Any,
) -> tuple[Slow, pyhudi.ConflictError | None]:
    storage = through(table, lambda: meanwhile(table.table("rival")))
    given = {"conflict_retries": 0, **settings}
    writer = table_on(storage, table.world("ours"), WriteSettings(**given))
    try:
        write(writer)
    except pyhudi.ConflictError as error:
        return storage, error
    return storage, None


def upserts(table: MemoryTable) -> Callable[[Table], object]:
    return lambda ours: VERBS["upsert"](table, ours)


def meets(table: MemoryTable) -> Callable[[Table], object]:
    return lambda rival: VERBS["upsert of one key"](table, rival)


@dataclass(frozen=True)
class Case:
    kind: str
    write: str
    rival: str
    is_stopped: bool
    is_refused: bool = True


VERBS: dict[str, Callable[[MemoryTable, Table], object]] = {
    "upsert": lambda made, table: table.upsert(rows(made, "ours")),
    "update": lambda made, table: table.update(
        rows(made, "ours").select(["id", "v"]), columns=["v"]
    ),
    "delete by predicate": lambda made, table: table.delete("v = '0'"),
    "overwrite": lambda made, table: table.overwrite(rows(made, "ours")),
    "upsert of one key": lambda made, table: table.upsert(rows(made, "theirs", KEYS[:1])),
    "compaction": lambda made, table: table.services.compact(
        pyhudi.CompactionPolicy(trigger_delta_commits=1)
    ),
}

CASES = [
    Case(COW, "upsert", "upsert of one key", is_stopped=True),
    Case(COW, "update", "upsert of one key", is_stopped=True),
    Case(COW, "delete by predicate", "upsert of one key", is_stopped=True),
    Case(COW, "overwrite", "upsert of one key", is_stopped=True),
    Case(OPTIMISTIC, "update", "upsert of one key", is_stopped=True),
    Case(OPTIMISTIC, "delete by predicate", "upsert of one key", is_stopped=True),
    Case(OPTIMISTIC, "overwrite", "upsert of one key", is_stopped=True),
    # Its logs are refused without retries. With them they would be written once more, and no file
    # of it is stopped for that.
    Case(OPTIMISTIC, "upsert", "upsert of one key", is_stopped=False),
    Case(NON_BLOCKING, "update", "upsert of one key", is_stopped=True),
    Case(NON_BLOCKING, "overwrite", "upsert of one key", is_stopped=True),
    Case(NON_BLOCKING, "upsert", "upsert of one key", is_stopped=False, is_refused=False),
    Case(NON_BLOCKING, "upsert", "compaction", is_stopped=False, is_refused=False),
    Case(NON_BLOCKING, "update", "compaction", is_stopped=False, is_refused=False),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_write_stops_exactly_if_it_is_certain_to_be_refused(case: Case) -> None:
    table = made(case.kind)
    storage, error = written(
        table, lambda ours: VERBS[case.write](table, ours), lambda r: VERBS[case.rival](table, r)
    )
    assert (error is not None) == case.is_refused
    assert (len(storage.files) < BUCKETS) == case.is_stopped
    if case.is_stopped:
        assert error is not None
        assert error.facts["found"] == "early"
        assert error.facts["lost"]["files"] == len(storage.files)
    elif error is not None:
        assert error.facts["found"] == "end"


@pytest.mark.parametrize("case", [case for case in CASES if case.is_stopped], ids=str)
def test_what_was_stopped_would_have_been_refused_at_its_end(case: Case) -> None:
    table = made(case.kind)
    storage, error = written(
        table,
        lambda ours: VERBS[case.write](table, ours),
        lambda rival: VERBS[case.rival](table, rival),
        early_detection=EarlyDetection(check_commits=False),
    )
    assert len(storage.files) == BUCKETS
    assert error is not None
    assert error.facts["found"] == "end"


def test_the_error_of_a_stopped_write_names_the_rival_and_when_it_was_found() -> None:
    table = made(COW)
    _, error = written(table, upserts(table), meets(table), job="nightly")
    assert error is not None
    facts = error.facts
    assert facts["ours"]["job"] == "nightly"
    assert facts["rule"] == "same_file_group"
    assert facts["theirs"]["completed"] is not None
    assert PERIOD_MS <= facts["found_after_ms"] < 3 * PERIOD_MS
    noted = table.table().inspect.conflicts().to_pylist()
    assert [(row["found"], row["job"]) for row in noted] == [("early", "nightly")]


def test_no_file_heartbeat_or_fence_of_a_stopped_write_stays() -> None:
    table = made(COW)
    _, error = written(table, upserts(table), meets(table))
    assert error is not None
    instant = error.facts["ours"]["instant"]
    left = [stat.path for stat in table.storage.list("") if instant in stat.path]
    # Markers stay after every rollback, for a sweep of what a frozen process may still create.
    left = [path for path in left if not path.startswith(".hoodie/.temp/")]
    assert left == [f".hoodie/.pyhudi/conflicts/{instant}.json"]
    assert table.pending() == []


def test_a_stopped_write_is_repeated_at_once_where_it_may_be() -> None:
    table = made(COW)
    results = []
    storage, error = written(
        table,
        lambda ours: results.append(ours.upsert(rows(table, "ours"))),
        meets(table),
        conflict_retries=3,
    )
    assert error is None
    assert [result.retries for result in results] == [1]
    assert BUCKETS < len(storage.files) < 2 * BUCKETS
    assert set(table.table().read(columns=["v"]).to_arrow()["v"].to_pylist()) == {"ours"}


def test_a_rival_in_buckets_that_the_write_does_not_touch_stops_nothing() -> None:
    table = made(COW)
    buckets, only = buckets_of(table), KEYS[:1]
    others = [key for key in KEYS if buckets[key] != buckets[only[0]]]
    storage, error = written(
        table,
        lambda ours: ours.upsert(rows(table, "ours", others)),
        lambda rival: rival.upsert(rows(table, "theirs", only)),
    )
    assert error is None
    assert len(storage.files) == BUCKETS - 1


def buckets_of(table: MemoryTable) -> dict[str, str]:
    """Return key → the first digits of its file, which are the number of its bucket."""
    read = table.table().read(meta=True).to_arrow().to_pylist()
    return {row["id"]: row["_hoodie_file_name"][:8] for row in read}


class Blind(Slow):
    """The first look fails."""

    has_failed = False

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
        if self.files and not self.has_failed:
            self.has_failed = True
            raise UnavailableError("no listing", why="a test", next_step="look again")
        return super().list(prefix, after=after)


def test_after_a_look_that_failed_the_next_one_finds_it() -> None:
    table = made(COW)
    seeing, _ = written(table, upserts(table), meets(table))
    blind, error = written(table, upserts(table), meets(table), through=Blind)
    assert isinstance(blind, Blind)
    assert blind.has_failed
    assert error is not None
    assert error.facts["found"] == "early"
    assert len(blind.files) == len(seeing.files) + 1


def test_a_write_that_was_rolled_back_stops_at_its_next_look() -> None:
    table = made(COW)

    def roll_back(rival: Table) -> None:
        table.clock.sleep(10 * 60_000)  # the heartbeat of ours is never renewed here
        rival.upsert(rows(table, "theirs", ["another"]))

    storage, error = written(table, upserts(table), roll_back)
    assert error is not None
    assert "rolled it back" in str(error)
    assert len(storage.files) < BUCKETS


def test_a_look_at_a_plan_that_is_decided_and_not_published_does_not_hide_it_at_the_end() -> None:
    """Else the overwrite would complete in buckets of which a resize goes on to copy the rows."""
    table = made(RINGS)
    dies = Fault(Effect.FAIL, operation="create", path="*.clustering.requested", times=None)

    def plan(_: Table) -> None:
        dying = table_on(FaultyStorage(table.storage, [dies]), table.world("dying"))
        with pytest.raises(UnavailableError):
            dying.services.resize(pyhudi.ResizePolicy(rest_seconds=0), plan_only=True)

    _, error = written(table, lambda ours: VERBS["overwrite"](table, ours), plan)
    assert error is None
    assert table.pending() == [], "an overwrite cancels a resize of its buckets"


def test_before_the_first_period_has_passed_a_write_does_not_look() -> None:
    table = made(COW)
    calls = []
    for early in (EarlyDetection(), EarlyDetection(check_commits=False)):
        storage = FaultyStorage(table.storage)
        writer = table_on(storage, table.world("ours"), WriteSettings(early_detection=early))
        writer.upsert(rows(table, "ours"))
        calls.append(Counter(call.name for call in storage.trace))
    assert calls[0] == calls[1]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"period_ms": 0}, "period_ms=0"),
        ({"initial_delay_ms": -1}, "initial_delay_ms=-1"),
        ({"period_ms": "5"}, "period_ms='5'"),
        ({"check_commits": 1}, "check_commits=1"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(pyhudi.InvalidRequestError, match=named):
        EarlyDetection(**given)


def test_early_detection_is_given_as_an_object() -> None:
    with pytest.raises(pyhudi.InvalidRequestError, match="early_detection=True"):
        WriteSettings(early_detection=True)  # type: ignore[arg-type]
