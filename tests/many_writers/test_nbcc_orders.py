"""Two writers of one bucket that do not wait for each other, and a compaction that waits for none.

Whatever the order of begins, ends and compaction, readers see the writes that have completed,
merged by ordering value. Of equal ordering values the log that comes later by (instant, version,
token) wins, and a log wins over a base file. A snapshot that was seen once is the same for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import Effect, Fault, FaultyStorage
from handmade import HandmadeTable, at
from many_writers.compaction_by_hand import PlannedCompaction, found_compaction, plan_compaction
from many_writers.scene import (
    NBCC,
    ORDERS,
    SCHEMA,
    Act,
    Content,
    HeldWrite,
    Scene,
    Stop,
    begun_scene,
    rows,
    rows_of,
    upsert,
)
from pyhudi.errors import ConflictError, OutcomeUnknownError
from pyhudi.settings import WriteSettings
from pyhudi.storage.open import open_storage

#: What was there before, and what the two writers write: key → ordering value.
BEFORE = {"untouched": 1, "first wins": 1, "second wins": 1, "tie": 1, "late": 9}
WRITES = {
    "1": {"first wins": 5, "second wins": 4, "tie": 5, "late": 3, "only first": 1},
    "2": {"first wins": 4, "second wins": 5, "tie": 5, "late": 4, "only second": 1},
}


def merged(*writes: str) -> Content:
    """The rows after these writes, in the order in which readers meet them."""
    content = {key: (ts, "before") for key, ts in BEFORE.items()}
    for by in writes:
        for key, ts in WRITES[by].items():
            if key not in content or ts >= content[key][0]:
                content[key] = (ts, by)
    return content


@dataclass
class Play:
    """The scene, what has happened so far, and what a reader must see of it."""

    scene: Scene
    held: dict[str, HeldWrite] = field(default_factory=dict)
    completed: list[str] = field(default_factory=list)
    planned: PlannedCompaction | None = None
    in_plan: list[str] = field(default_factory=list)
    in_base: list[str] = field(default_factory=list)
    seen: dict[str, Content] = field(default_factory=dict)  # completion time → rows

    def happen(self, event: str) -> None:
        by = event[0]
        if event == by:
            self.held[by] = self.scene.hold(by, upsert(rows_of(by, WRITES[by])))
            return
        done = self.held[by].finish()
        assert done.retries == 0
        self.completed.append(by)
        self.look(done.completed)

    def plan(self) -> None:
        self.planned = plan_compaction(self.scene.session("compactor"))
        assert self.planned is not None
        self.in_plan = list(self.completed)
        own = {write.requested for write in self.held.values()}
        assert self.planned.log_instants & own == set(map(self._instant, self.in_plan))

    def compact(self) -> None:
        assert self.planned is not None
        self.planned.run()
        self.check()  # the base file is there, and does not count yet
        completed = self.planned.complete()
        self.in_base = self.in_plan
        self.look(completed)

    def expected(self) -> Content:
        """Compacted writes come first, each part in the order of the instants."""
        parts = (self.in_base, [by for by in self.completed if by not in self.in_base])
        return merged(*(by for part in parts for by in sorted(part, key=self._instant)))

    def _instant(self, by: str) -> str:
        return self.held[by].requested

    def check(self) -> None:
        assert self.scene.content() == self.expected()

    def look(self, completed: str) -> None:
        self.check()
        self.seen[completed] = self.expected()

    def check_the_past(self) -> None:
        """Every snapshot that was seen is still the same."""
        reader = self.scene.table("of the past")
        for completed, content in self.seen.items():
            assert self.scene.content(reader, as_of=completed) == content, completed


def begun() -> Play:
    scene = begun_scene(rows_of("before", BEFORE), **NBCC)
    first = scene.completed()[-1][18:35]
    return Play(scene, seen={first: merged()})


#: A compaction is planned before the nth event, and completed at once, at the end or never.
GAPS = [(0, 4), (1, 1), (1, 4), (2, 2), (2, 4), (2, None), (3, 3), (4, 4)]


@pytest.mark.parametrize(("planned", "compacted"), GAPS)
@pytest.mark.parametrize("order", ORDERS)
def test_rows_are_merged_by_ordering_value_in_every_order(
    order: str, planned: int, compacted: int | None
) -> None:
    play = begun()
    events = order.split()
    for place in range(len(events) + 1):
        if place == planned:
            play.plan()
        if place == compacted:
            play.compact()
        if place < len(events):
            play.happen(events[place])
    play.check_the_past()


@pytest.mark.parametrize("planned", [1, 2, 3])
@pytest.mark.parametrize("order", ORDERS)
def test_a_delete_is_merged_by_its_ordering_value_like_a_row(order: str, planned: int) -> None:
    """The row is older than the delete of one key, and newer than that of another.

    A base file has no place for deletes. So a row that completes when an even newer delete of its
    key has been compacted away finds nothing it could lose to, in Hudi as here.
    """
    stamps = pa.array([5, 3], pa.int64())
    keys = pa.table({"id": ["gone", "stays"], "day": ["mo"] * 2, "ts": stamps})
    acts: dict[str, Act] = {
        "1": upsert(rows("1", "gone", "stays", ts=4)),
        "2": lambda table: table.delete(keys),
    }
    scene = begun_scene(rows("before", "gone", "stays", ts=1), **NBCC)
    held: dict[str, HeldWrite] = {}
    events = order.split()
    for place, event in enumerate(events):
        if place == planned and (compaction := plan_compaction(scene.session("compactor"))):
            compaction.run().complete()
        if event in acts:
            held[event] = scene.hold(event, acts[event])
        else:
            held[event[0]].finish()
    is_forgotten = events.index("2-") < planned <= events.index("1-")
    forgotten = {"gone": (4, "1")} if is_forgotten else {}
    assert scene.content() == {"stays": (4, "1"), **forgotten}


# -- ties


def test_of_two_overlapping_writes_with_equal_ordering_values_the_later_begun_wins() -> None:
    for order in ORDERS[1:5]:
        play = begun()
        for event in order.split():
            play.happen(event)
        later = max(play.held, key=lambda by: play.held[by].requested)
        assert play.scene.writers()["tie"] == later


def test_of_equal_ordering_values_a_log_wins_over_what_was_compacted() -> None:
    """The one case in which a compaction shows: the writes overlapped, neither came first."""
    play = begun()
    play.happen("1")
    play.happen("2")
    play.happen("2-")
    play.plan()
    play.happen("1-")
    assert play.scene.writers()["tie"] == "2"
    play.compact()
    assert play.scene.writers()["tie"] == "1"
    play.check_the_past()


def test_of_equal_ordering_values_in_one_write_the_later_version_wins() -> None:
    scene = Scene(**NBCC)
    batches = [rows(f"v{n}", "k", ts=7).to_batches()[0] for n in range(6)]
    table = scene.table("streaming", buffer_bytes_max=1)
    result = table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, iter(batches)))
    assert result.files > 1
    assert scene.content() == {"k": (7, "v5")}


@pytest.mark.parametrize("tokens", [("0-1-0", "1-1-0"), ("1-1-0", "0-1-0"), ("0-1-0", "0-10-0")])
def test_of_equal_ordering_values_and_versions_the_greater_token_wins(
    tokens: tuple[str, str],
) -> None:
    """Tokens compare as text, as in Hudi."""
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("by", pa.string())])
    name = "-vs-".join(tokens)
    made = HandmadeTable(open_storage(f"memory://tokens-{name}"), schema, ordering="ts")
    made.begin(1)
    paths = [
        made.log(1, made.rows_block(1, [{"id": "k", "ts": 7, "by": token}]), token=token)
        for token in tokens
    ]
    made.complete(1, 2, paths)
    found = pyhudi.open_table(made.storage.uri).read().to_arrow()
    assert found["by"].to_pylist() == [max(tokens)]


# -- pending writers


def test_scenario_15_a_pending_log_of_an_older_write_hides_nothing() -> None:
    """Logs a [10, pending] and b [20, 30] in a file group without a base file."""
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64())])
    made = HandmadeTable(open_storage("memory://scenario15"), schema, ordering="ts")
    made.begin(1)
    made.complete(1, 2)
    made.begin(10)
    made.log(10, made.rows_block(10, [{"id": "a", "ts": 1}]))
    made.begin(20)
    made.complete(20, 30, [made.log(20, made.rows_block(20, [{"id": "b", "ts": 1}]))])
    table = pyhudi.open_table(made.storage.uri)
    assert table.read().to_arrow()["id"].to_pylist() == ["b"]
    [slice_] = table.inspect.file_slices().to_pylist()
    assert slice_["base_instant"] == at(20)


def test_scenario_15_the_first_writers_of_a_bucket_hide_nothing_from_each_other() -> None:
    """The same by real writers: a base file without rows comes before the first log."""
    scene = Scene(**NBCC)
    pending = scene.hold("pending", upsert(rows("pending", "a")))
    scene.table("quick").upsert(rows("quick", "b"))
    assert scene.writers() == {"b": "quick"}
    [slice_] = [s for s in scene.table().inspect.file_slices().to_pylist() if s["latest"]]
    assert slice_["base_file"] is not None
    pending.finish()
    assert scene.writers() == {"a": "pending", "b": "quick"}


def test_a_writer_that_is_older_than_a_whole_compaction_loses_nothing() -> None:
    scene = begun_scene(rows("before", "a", "b", ts=1), **NBCC)
    slow = scene.hold("slow", upsert(rows("slow", "a", "new", ts=5)))
    planned = plan_compaction(scene.session("compactor"))
    assert planned is not None
    assert slow.requested < planned.requested
    assert slow.requested not in planned.log_instants
    planned.run().complete()
    scene.table("later").upsert(rows("later", "b", ts=5))
    again = plan_compaction(scene.session("compactor"))
    assert again is not None
    slow.finish()
    assert scene.writers() == {"a": "slow", "new": "slow", "b": "later"}
    again.run().complete()
    assert scene.writers() == {"a": "slow", "new": "slow", "b": "later"}


@pytest.mark.parametrize("compacts", [True, False])
def test_a_writer_that_was_rolled_back_starts_again_beside_the_others(compacts: bool) -> None:
    scene = begun_scene(rows("before", "a", "b", ts=1), **NBCC)
    dead = scene.hold("dead", upsert(rows("dead", "a", "b", ts=7)), conflict_retries=0)
    scene.table("other").upsert(rows("other", "a", ts=5))
    planned = plan_compaction(scene.session("compactor")) if compacts else None
    assert scene.completed("rollback") == [], "its heartbeat is fresh"
    scene.clock.sleep(2 * WriteSettings().heartbeat_timeout_ms)
    scene.table("other").upsert(rows("other", "c", ts=5))
    assert len(scene.completed("rollback")) == 1
    if planned is not None:
        planned.run().complete()
    assert scene.writers() == {"a": "other", "b": "before", "c": "other"}
    again = scene.table("restarted").upsert(rows("restarted", "a", "b", ts=7))
    assert again.instant != dead.requested
    assert scene.writers() == {"a": "restarted", "b": "restarted", "c": "other"}
    with pytest.raises(ConflictError, match="rolled it back"):
        dead.finish()
    assert scene.writers() == {"a": "restarted", "b": "restarted", "c": "other"}
    assert scene.leftovers() == []


# -- readers


class Watched(FaultyStorage):
    """Somebody reads the table before and after each call that changes it."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.storage)
        self._scene = scene
        self.seen: list[Content] = []

    def _run(self, name: str, path: str, perform):  # type: ignore[no-untyped-def]
        changes = name in ("create", "create_from", "write", "delete")
        if changes:
            self.seen.append(self._scene.content())
        answer = super()._run(name, path, perform)
        if changes:
            self.seen.append(self._scene.content())
        return answer


def test_a_reader_sees_no_difference_at_any_moment_of_a_compaction() -> None:
    scene = begun_scene(rows("before", "a", "b", "c", ts=1), **NBCC)
    scene.table("log").upsert(rows("log", "a", ts=2))
    scene.table("log").delete(pa.table({"id": ["b"]}))
    before = scene.content()
    assert before == {"a": (2, "log"), "c": (1, "before")}
    watched = Watched(scene)
    planned = plan_compaction(scene.session("compactor", watched))
    assert planned is not None
    planned.run().complete()
    assert len(watched.seen) > 10
    assert [content for content in watched.seen if content != before] == []


def test_a_reader_that_began_before_a_compaction_completed_reads_on() -> None:
    scene = begun_scene(rows("before", "a", ts=1), **NBCC)
    scene.table("log").upsert(rows("log", "a", ts=2))
    scan = scene.table("reader").read(columns=["id", "by"])
    planned = plan_compaction(scene.session("compactor"))
    assert planned is not None
    planned.run().complete()
    scene.table("later").upsert(rows("later", "a", ts=3))
    assert scan.to_arrow().to_pylist() == [{"id": "a", "by": "log"}]


def test_a_compaction_may_be_finished_by_another_process() -> None:
    scene = begun_scene(rows("before", "a", ts=1), **NBCC)
    died = plan_compaction(scene.session("compactor"))
    assert died is not None
    died.run()  # and dies
    scene.table("later").upsert(rows("later", "b", ts=1))
    found_compaction(scene.session("another"), died.requested).run().complete()
    assert scene.writers() == {"a": "before", "b": "later"}
    slices = scene.table().inspect.file_slices().to_pylist()
    latest = next(s for s in slices if s["latest"])
    assert latest["base_instant"] == died.requested
    assert len(latest["log_files"]) == 1


def test_a_writer_whose_outcome_is_unknown_is_seen_whole_or_not_at_all() -> None:
    """It dies while it is being completed; the next writer finishes what was decided."""
    for nth in (1, 2):
        scene = begun_scene(rows("before", "a", "b", ts=1), **NBCC)
        lost = Fault(Effect.FAIL, "create", ".hoodie/timeline/*_*", nth=nth, times=None)
        storage = FaultyStorage(scene.storage, [lost])
        dying = scene.hold("dying", upsert(rows("dying", "a", "b", ts=2)), storage=storage)
        beside = scene.hold("beside", upsert(rows("beside", "a", ts=3)))
        try:
            dying.finish()
        except OutcomeUnknownError:
            assert scene.writers() == {"a": "before", "b": "before"}
        beside.finish()
        assert scene.writers() == {"a": "beside", "b": "dying"}


def interleavings(ones: int, twos: int) -> Iterator[str]:
    """Every order of so many steps of two writers."""
    if not ones or not twos:
        yield "1" * ones + "2" * twos
        return
    yield from (f"1{rest}" for rest in interleavings(ones - 1, twos))
    yield from (f"2{rest}" for rest in interleavings(ones, twos - 1))


@pytest.mark.parametrize("order", [f"1{rest}" for rest in interleavings(2, 3)])
def test_writers_that_open_a_bucket_together_lose_nothing(order: str) -> None:
    """Their steps are the begin, which seeds the bucket, the log files, and the completion."""
    scene = Scene(**NBCC)
    steps = {by: iter((Stop.BEGUN, Stop.WRITTEN, Stop.NEVER)) for by in "12"}
    held: dict[str, HeldWrite] = {}
    for by in order:
        stop = next(steps[by])
        if by not in held:
            held[by] = scene.hold(by, upsert(rows_of(by, WRITES[by])), stop)
        else:
            held[by].run_to(stop)
    assert held["1"].finish().retries == held["2"].finish().retries == 0
    found = scene.writers()
    assert found.keys() == {*WRITES["1"], *WRITES["2"]}
    assert found["first wins"] == "1"
    assert found["second wins"] == "2"
