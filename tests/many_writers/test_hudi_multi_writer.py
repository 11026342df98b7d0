"""The scenarios of Hudi's own multi-writer tests, with our writers.

From `TestHoodieClientMultiWriter`: optimistic writers of which one commits, writers that do not
meet, failed ones that are rolled back lazily, and table services beside them. Early conflict
detection, which may only spare work, is not among them: the check at completion is the guard.
From `TestSparkNonBlockingConcurrencyControl`: merging by event time, and loads of base files.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from as_by_spark import written_as_by_spark
from many_writers.compaction_by_hand import plan_compaction
from many_writers.scene import (
    CHECKED,
    COW,
    KINDS,
    NBCC,
    OCC,
    ORDERS,
    SCHEMA,
    Act,
    HeldWrite,
    Scene,
    Stop,
    append,
    begun_scene,
    rows,
    upsert,
)
from many_writers.services_by_hand import clean, plan_clustering
from pyhudi.api.table import Table
from pyhudi.errors import ConflictError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.conflict_strategy import Strategy
from pyhudi.index.simple_bucket import bucket_ids, file_id
from pyhudi.settings import WriteSettings
from pyhudi.write import tasks as group_jobs
from pyhudi.write.intent import Reads, WholeRows, WriteIntent
from pyhudi.write.result import WriteResult

LOCKS = (LockKind.NONE, LockKind.IN_PROCESS, LockKind.FILE, LockKind.STORAGE)
OVERLAPPING = ORDERS[1:5]
HEARTBEAT_TIMEOUT_MS = WriteSettings().heartbeat_timeout_ms


def is_committed(held: HeldWrite) -> bool:
    try:
        held.finish()
    except ConflictError:
        return False
    return True


def played(
    scene: Scene,
    order: str,
    acts: dict[str, Act],
    stops: dict[str, Stop] | None = None,
    **settings: Any,
) -> dict[str, bool]:
    """Let two writes begin and end in this order; which of them committed."""
    held: dict[str, HeldWrite] = {}
    committed = {}
    for event in order.split():
        by = event[0]
        if event == by:
            stop = (stops or {}).get(by, Stop.WRITTEN)
            held[by] = scene.hold(by, acts[by], stop, **settings)
        else:
            committed[by] = is_committed(held[by])
    return committed


# -- optimistic writers


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("kind", CHECKED)
def test_of_two_overlapping_writers_of_one_file_group_exactly_one_commits(
    kind: str, lock: LockKind
) -> None:
    for order in OVERLAPPING if lock is LockKind.NONE else OVERLAPPING[:2]:
        scene = begun_scene(rows("first", "k", "old"), **CHECKED[kind], lock=lock)
        acts = {by: upsert(rows(by, "k", ts=5)) for by in "12"}
        committed = played(scene, order, acts, conflict_retries=0)
        first = next(event[0] for event in order.split() if event.endswith("-"))
        assert committed == {first: True, "12".replace(first, ""): False}, order
        assert scene.writers() == {"k": first, "old": "first"}, order
        assert scene.leftovers() == [], order


@pytest.mark.parametrize("kind", CHECKED)
def test_with_repetition_both_of_them_commit_and_both_rows_are_there(kind: str) -> None:
    for order in ORDERS:
        scene = begun_scene(rows("first", "k", "old"), **CHECKED[kind])
        acts = {by: upsert(rows(by, "k", f"only {by}", ts=5)) for by in "12"}
        assert played(scene, order, acts) == {"1": True, "2": True}, order
        last = order.split()[-1][0]
        expected = {"k": last, "old": "first", "only 1": "1", "only 2": "2"}
        assert scene.writers() == expected, order
        assert scene.leftovers() == [], order


@pytest.mark.parametrize("kind", KINDS)
def test_five_inserts_into_partitions_of_their_own_all_commit(kind: str) -> None:
    days = ("mo", "tu", "we", "th", "fr")
    for ends in ((4, 3, 2, 1, 0), (2, 0, 4, 1, 3)):
        scene = Scene(**KINDS[kind])
        held = [
            scene.hold(day, append(rows(day, day, day=day)), conflict_retries=0) for day in days
        ]
        results = [held[place].finish() for place in ends]
        assert [result.retries for result in results] == [0] * 5
        assert scene.writers() == {day: day for day in days}
        completions = [result.completed for result in results]
        assert completions == sorted(completions), "in the order in which they ended"


@pytest.mark.parametrize("kind", CHECKED)
def test_three_writers_that_all_met_commit_one_after_the_other(kind: str) -> None:
    for ends in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        scene = begun_scene(rows("first", "k"), **CHECKED[kind])
        held = [scene.hold(f"w{n}", upsert(rows(f"w{n}", "k", f"k{n}", ts=5))) for n in range(3)]
        first, *others = [held[place].finish() for place in ends]
        assert first.retries + first.recommits == 0
        assert all(result.retries + result.recommits for result in others)
        assert scene.writers() == {"k": f"w{ends[-1]}", **{f"k{n}": f"w{n}" for n in range(3)}}


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("kind", CHECKED)
def test_whatever_the_strategy_exactly_one_of_them_commits(kind: str, strategy: Strategy) -> None:
    for order in OVERLAPPING[:2]:
        scene = begun_scene(rows("first", "k", "old"), **CHECKED[kind], strategy=strategy)
        acts = {by: upsert(rows(by, "k", ts=5)) for by in "12"}
        committed = played(scene, order, acts, conflict_retries=0)
        assert sorted(committed.values()) == [False, True], order


def test_a_write_whose_logs_are_in_their_place_is_committed_again_and_not_written_again() -> None:
    """It began after the one that came first, so that readers have it behind that one anyway."""
    scene = begun_scene(rows("first", "k"), **OCC)
    early = scene.hold("early", upsert(rows("early", "k", ts=5)))
    late = scene.hold("late", upsert(rows("late", "k", ts=5)))
    early.finish()
    result = late.finish()
    assert (result.retries, result.recommits) == (0, 1)
    assert result.instant == late.requested
    assert scene.writers() == {"k": "late"}


def test_rows_of_a_stream_that_lost_are_written_again_from_its_own_files() -> None:
    """The stream is read once. Of rows with one key and equal ordering values the last counts."""
    scene = begun_scene(rows("first", "k"), **OCC)
    given = [rows(f"part {n}", "k", f"k{n}", ts=5).to_batches()[0] for n in range(6)]

    def stream(table: Table) -> WriteResult:
        return table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, iter(given)))

    held = scene.hold("stream", stream, buffer_bytes_max=1)
    scene.table("quick").upsert(rows("quick", "k", "q", ts=5))
    result = held.finish()
    assert result.retries == 1
    assert scene.writers() == {
        "k": "part 5",
        "q": "quick",
        **{f"k{n}": f"part {n}" for n in range(6)},
    }
    assert scene.leftovers() == []


@pytest.mark.parametrize("act", ["delete where", "update", "overwrite"])
def test_a_write_that_read_the_table_is_never_committed_again_as_it_is(act: str) -> None:
    """It rests on what the other one changed."""
    new = rows("new", "k", ts=7)
    acts: dict[str, Act] = {
        "delete where": lambda table: table.delete("by = 'first'"),
        "update": lambda table: table.update(new.select(["id", "day", "by"]), columns=["by"]),
        "overwrite": lambda table: table.overwrite(new),
    }
    expected = {
        "delete where": {"k": (5, "early")},
        "update": {"k": (5, "new")},
        "overwrite": {"k": (7, "new")},
    }
    scene = begun_scene(rows("first", "k"), **OCC)
    early = scene.hold("early", upsert(rows("early", "k", ts=5)))
    late = scene.hold("late", acts[act])
    early.finish()
    result = late.finish()
    assert (result.retries, result.recommits) == (1, 0)
    assert scene.content() == expected[act]


# -- failed writers


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_write_is_rolled_back_lazily_once_its_heartbeat_is_old(kind: str) -> None:
    scene = begun_scene(rows("first", "a", "b"), **KINDS[kind])
    failed = scene.hold("failed", upsert(rows("failed", "a", ts=9)), conflict_retries=0)
    scene.table("second").upsert(rows("second", "b", ts=2))
    assert scene.completed("rollback") == []
    assert [name[:17] for name in scene.pending()] == [failed.requested] * 2
    scene.clock.sleep(HEARTBEAT_TIMEOUT_MS + 1_000)
    scene.table("third").upsert(rows("third", "c"))
    assert len(scene.completed("rollback")) == 1
    assert scene.leftovers() == []
    assert scene.writers() == {"a": "first", "b": "second", "c": "third"}
    with pytest.raises(ConflictError):
        failed.finish()
    assert scene.leftovers() == []
    assert len(scene.completed("rollback")) == 1


@pytest.mark.parametrize("kind", CHECKED)
def test_a_failed_write_does_not_stand_in_the_way_of_those_that_met_it(kind: str) -> None:
    scene = begun_scene(rows("first", "a"), **CHECKED[kind])
    scene.hold("failed", upsert(rows("failed", "a", ts=9)))
    result = scene.table("second", conflict_retries=0).upsert(rows("second", "a", ts=2))
    assert result.retries == 0


# -- table services beside them


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when", ["before it began", "after it began"])
def test_a_clustering_that_is_pending_stops_writes_of_its_file_groups(kind: str, when: str) -> None:
    scene = begun_scene(rows("first", "k", day="mo"), rows("first", "t", day="tu"), **KINDS[kind])
    monday = FileGroupId("mo", file_id(0))
    if when == "before it began":
        plan_clustering(scene.session("clusterer"), [monday])
    here = scene.hold("here", upsert(rows("w", "k", ts=5, day="mo")), conflict_retries=0)
    there = scene.hold("there", upsert(rows("w", "t", ts=5, day="tu")), conflict_retries=0)
    if when == "after it began":
        plan_clustering(scene.session("clusterer"), [monday])
    with pytest.raises(ConflictError, match="clustering"):
        here.finish()
    there.finish()
    assert scene.writers() == {"k": "first", "t": "w"}


@pytest.mark.parametrize("kind", KINDS)
def test_where_writers_are_preferred_a_clustering_stops_none_of_them(kind: str) -> None:
    """Then it is the clustering that has to yield."""
    strategy = Strategy.PREFER_WRITER
    scene = begun_scene(rows("first", "k"), **KINDS[kind], strategy=strategy)
    plan_clustering(scene.session("clusterer"), [FileGroupId("mo", file_id(0))])
    held = scene.hold("held", upsert(rows("held", "k", ts=5)), conflict_retries=0)
    held.finish()
    assert scene.writers() == {"k": "held"}


@pytest.mark.parametrize("kind", ["nbcc", "mor"])
def test_compactions_beside_two_writers_change_nothing_for_them(kind: str) -> None:
    for order in ORDERS[1:4]:
        scene = begun_scene(
            rows("first", "a", "b", ts=1, day="mo"),
            rows("first", "t", ts=1, day="tu"),
            **KINDS[kind],
        )
        held: dict[str, HeldWrite] = {}
        for event in order.split():
            if planned := plan_compaction(scene.session("compactor")):
                planned.run().complete()
            by = event[0]
            if event == by:
                day, key = ("mo", "a") if by == "1" else ("tu", "t")
                act = upsert(rows(by, key, ts=5, day=day))
                held[by] = scene.hold(by, act, conflict_retries=0)
            else:
                held[by].finish()
        assert scene.writers() == {"a": "1", "b": "first", "t": "2"}, order


def test_a_base_file_that_is_cleaned_under_a_writer_costs_a_repetition_and_no_row() -> None:
    """Aggressive cleaning: another write replaces the base file that ours is about to merge, and a
    cleaner that keeps one version removes it."""
    scene = Scene(**COW)
    first = scene.table("first").upsert(rows("first", "a", "b"))
    [old] = [s.path for s in scene.storage.list("mo") if s.path.endswith(".parquet")]
    held = scene.hold("held", upsert(rows("held", "b", ts=5)), Stop.BEGUN)
    second = scene.table("second").upsert(rows("second", "a", ts=5))
    clean(scene.session("cleaner"), [old], second.instant)
    assert first.instant < held.requested < second.instant
    held.finish()
    assert scene.writers() == {"a": "second", "b": "held"}
    assert scene.leftovers() == []


# -- non-blocking writers


@pytest.mark.parametrize("order", ORDERS)
def test_rows_of_both_writers_are_merged_by_event_time(order: str) -> None:
    scene = Scene(**NBCC)
    acts = {
        "1": upsert(rows("1", "a", "b", "c", ts=1)),
        "2": upsert(pa.concat_tables([rows("2", "a", ts=2), rows("2", "b", ts=0)])),
    }
    assert played(scene, order, acts) == {"1": True, "2": True}
    assert scene.content() == {"a": (2, "2"), "b": (1, "1"), "c": (1, "1")}
    planned = plan_compaction(scene.session("compactor"))
    assert planned is not None
    planned.run().complete()
    assert scene.content() == {"a": (2, "2"), "b": (1, "1"), "c": (1, "1")}
    assert scene.table().read(read_optimized=True).to_arrow().num_rows == 3


def test_a_log_that_completes_later_is_not_swallowed_by_an_earlier_compaction() -> None:
    """As in RFC-66: [t1, t3] and [t2, t5], with a compaction that is planned at t4."""
    scene = Scene(**NBCC)
    first = scene.hold("first", upsert(rows("first", "a", ts=1)))
    second = scene.hold("second", upsert(rows("second", "b", ts=1)))
    first.finish()
    planned = plan_compaction(scene.session("compactor"))
    assert planned is not None
    second.finish()
    planned.run().complete()
    assert scene.writers() == {"a": "first", "b": "second"}
    latest = next(s for s in scene.table().inspect.file_slices().to_pylist() if s["latest"])
    assert latest["base_instant"] == planned.requested
    assert [name.split("_")[1][:17] for name in latest["log_files"]] == [second.requested]
    optimized = scene.table().read(read_optimized=True).to_arrow()
    assert optimized["id"].to_pylist() == ["a"]


# -- loads of base files

BUCKETS = SimpleBuckets(2)


def key_of_bucket(bucket: int, name: str) -> str:
    """A key that begins with the name and lies in the bucket."""
    names = [f"{name}{number}" for number in range(20)]
    found: list[int] = bucket_ids(pa.array(names), ["id"], BUCKETS.count).to_pylist()
    return names[found.index(bucket)]


INSERTED, LOADED, ELSEWHERE = (
    key_of_bucket(0, "inserted"),
    key_of_bucket(0, "loaded"),
    key_of_bucket(1, "elsewhere"),
)


def load(table: Table) -> WriteResult:
    """An append as a large one runs: empty buckets get base files."""
    given = rows("load", LOADED, ts=1)
    intent = WriteIntent(operation="INSERT", change=WholeRows(loads=True), reads=Reads.LOCATIONS)
    return written_as_by_spark(table, given, intent)


@pytest.fixture
def small_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of rows is a large load."""
    monkeypatch.setattr(group_jobs, "LOAD_BYTES_MIN", 1)


#: 1 inserts rows as a log, which it has not written yet when 2 loads a base file. Only where the
#: insert completed while the load was under way may the load not commit: it would hide the log.
LOADS = {
    "1 1- 2 2-": True,
    "1 2 1- 2-": False,
    "2 1 1- 2-": False,
    "1 2 2- 1-": True,
    "2 1 2- 1-": True,
    "2 2- 1 1-": True,
}


@pytest.mark.usefixtures("small_loads")
@pytest.mark.parametrize("order", LOADS)
@pytest.mark.parametrize("kind", ["nbcc", "mor"])
def test_a_load_is_refused_if_a_write_it_overlaps_committed_before_it(
    kind: str, order: str
) -> None:
    scene = begun_scene(
        rows("first", ELSEWHERE), **KINDS[kind], buckets=BUCKETS
    )  # both buckets have their seed
    acts: dict[str, Act] = {"1": upsert(rows("insert", INSERTED, ts=1)), "2": load}
    committed = played(scene, order, acts, {"1": Stop.BEGUN}, conflict_retries=0)
    assert committed["2"] == LOADS[order]
    # Under optimistic control the insert, too, loses to a load that completed before it.
    lost = kind == "mor" and order in ("1 2 2- 1-", "2 1 2- 1-")
    assert committed["1"] == (not lost)
    expected = {ELSEWHERE: "first"}
    expected |= {INSERTED: "insert"} if committed["1"] else {}
    expected |= {LOADED: "load"} if committed["2"] else {}
    assert scene.writers() == expected
    assert scene.leftovers() == []


@pytest.mark.usefixtures("small_loads")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("kind", ["nbcc", "mor"])
def test_a_load_that_may_be_repeated_loses_no_row_in_any_order(
    kind: str, seeded: bool, order: str
) -> None:
    scene = Scene(**KINDS[kind], buckets=BUCKETS)
    if seeded:
        scene.table("first").upsert(rows("first", ELSEWHERE))
    acts: dict[str, Act] = {"1": upsert(rows("insert", INSERTED, ts=1)), "2": load}
    assert played(scene, order, acts) == {"1": True, "2": True}
    expected = {INSERTED: "insert", LOADED: "load"} | ({ELSEWHERE: "first"} if seeded else {})
    assert scene.writers() == expected
    assert scene.leftovers() == []


@pytest.mark.usefixtures("small_loads")
def test_a_load_that_finds_the_log_of_a_pending_write_becomes_a_log_itself() -> None:
    scene = begun_scene(rows("first", ELSEWHERE), **NBCC, buckets=BUCKETS)
    acts: dict[str, Act] = {"1": upsert(rows("insert", INSERTED, ts=1)), "2": load}
    assert played(scene, "1 2 1- 2-", acts, conflict_retries=0) == {"1": True, "2": True}
    assert scene.writers() == {ELSEWHERE: "first", INSERTED: "insert", LOADED: "load"}


@pytest.mark.usefixtures("small_loads")
def test_two_loads_of_one_empty_bucket_do_not_both_open_it() -> None:
    for order in OVERLAPPING:
        scene = begun_scene(rows("first", ELSEWHERE), **OCC, buckets=BUCKETS)
        committed = played(scene, order, {"1": load, "2": load}, conflict_retries=0)
        assert sorted(committed.values()) == [False, True], order
        assert scene.writers() == {ELSEWHERE: "first", LOADED: "load"}, order
