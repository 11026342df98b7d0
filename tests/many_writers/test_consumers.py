"""Consumers: readers that poll for changes while writers overlap, and readers of the past.

A consumer passes the `until` of each read as the next `since`. Whatever the order in which writers
begin and end, each write is seen once: in the first poll after its completion. A range of which
files were cleaned away is an error, never fewer rows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa
import pytest

import pyhudi
from handmade import HandmadeTable, at
from many_writers.compaction_by_hand import plan_compaction
from many_writers.scene import (
    COW,
    KINDS,
    NBCC,
    ORDERS,
    Act,
    Content,
    HeldWrite,
    Scene,
    begun_scene,
    rows,
    upsert,
)
from many_writers.services_by_hand import archive, clean
from memory_tables import TIMELINE
from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequestError
from pyhudi.storage.open import open_storage

_names = count()


@dataclass
class Consumer:
    """Polls, and keeps nothing but its checkpoint."""

    table: Table
    checkpoint: str | None = None
    received: list[str] = field(default_factory=list)

    def poll(self) -> list[str]:
        """The keys that changed since the last poll, in order."""
        feed = self.table.changes(since=self.checkpoint, columns=["id"])
        found: list[str] = sorted(feed.to_arrow()["id"].to_pylist())
        assert self.checkpoint is None or feed.until >= self.checkpoint
        self.checkpoint = feed.until
        self.received += found
        return found


def bases(scene: Scene) -> list[str]:
    return sorted(s.path for s in scene.storage.list("mo") if s.path.endswith(".parquet"))


def logs(scene: Scene) -> list[str]:
    return sorted(s.path for s in scene.storage.list("mo") if ".log." in s.path)


def compacted(scene: Scene) -> str:
    """Compact all there is; the compaction's requested time."""
    planned = plan_compaction(scene.session("compactor"))
    assert planned is not None
    planned.run().complete()
    return planned.requested


# -- polling while writers overlap


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_sees_each_write_once_and_at_once_in_every_order(kind: str, order: str) -> None:
    """HUDI-5176 and HUDI-6157: a checkpoint by requested times passes a write that is pending."""
    scene = begun_scene(rows("first", "before"), **KINDS[kind])
    often, seldom = Consumer(scene.table("often")), Consumer(scene.table("seldom"))
    assert often.poll() == ["before"]
    held: dict[str, HeldWrite] = {}
    for event in order.split():
        by = event[0]
        if event == by:
            held[by] = scene.hold(by, upsert(rows(by, f"of {by}", ts=5)))
            assert often.poll() == []
        else:
            held[by].finish()
            assert often.poll() == [f"of {by}"]
    assert often.poll() == []
    assert seldom.poll() == ["before", "of 1", "of 2"]
    assert sorted(often.received) == seldom.received


@pytest.mark.parametrize("order", ORDERS[1:5])
@pytest.mark.parametrize("planned", [1, 2, 3])
def test_a_compaction_brings_no_change_and_hides_none(order: str, planned: int) -> None:
    """HUDI-5990: a compaction that is pending in the range, and one that completes in it."""
    scene = begun_scene(rows("first", "before", "k", ts=1), **NBCC)
    often, seldom = Consumer(scene.table("often")), Consumer(scene.table("seldom"))
    often.poll()
    seldom.poll()
    held: dict[str, HeldWrite] = {}
    compaction = None
    for place, event in enumerate(order.split()):
        if place == planned:
            compaction = plan_compaction(scene.session("compactor"))
            assert often.poll() == []
        by = event[0]
        if event == by:
            held[by] = scene.hold(by, upsert(rows(by, f"of {by}", "k", ts=5)))
        else:
            held[by].finish()
            assert often.poll() == ["k", f"of {by}"]
    assert compaction is not None
    compaction.run()
    assert often.poll() == []
    compaction.complete()
    assert often.poll() == []
    scene.table("last").upsert(rows("last", "after"))
    assert often.poll() == ["after"]
    assert seldom.poll() == ["after", "k", "of 1", "of 2"]


def test_a_change_is_shown_although_it_lost_against_a_row_before_the_range() -> None:
    """As Hudi does it: the rows of the range are merged among themselves."""
    scene = begun_scene(rows("first", "k", ts=9), **NBCC)
    consumer = Consumer(scene.table("consumer"))
    consumer.poll()
    scene.table("late").upsert(rows("late", "k", ts=1))
    assert consumer.poll() == ["k"]
    compacted(scene)
    assert consumer.poll() == []


@pytest.mark.parametrize("kind", KINDS)
def test_twelve_writers_that_overlap_are_all_seen_once(kind: str) -> None:
    """Each begins before the one before it has ended, and ends after the next has begun."""
    scene = Scene(**KINDS[kind])
    days = ("mo", "tu", "we", "th")
    consumers = {every: Consumer(scene.table(f"every {every}")) for every in (1, 2, 5)}
    held: list[HeldWrite] = []
    for number in range(12):
        day = days[number % len(days)]
        held.append(scene.hold(f"w{number}", upsert(rows("w", f"k{number}", day=day))))
        if len(held) == 3:
            held.pop(1 if number % 2 else 0).finish()
        for every, consumer in consumers.items():
            if not number % every:
                consumer.poll()
    for write in held:
        write.finish()
    for consumer in consumers.values():
        consumer.poll()
        assert Counter(consumer.received) == Counter(f"k{number}" for number in range(12))


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_write_is_never_seen_whenever_it_is_rolled_back(kind: str) -> None:
    scene = begun_scene(rows("first", "a"), **KINDS[kind])
    consumer = Consumer(scene.table("consumer"))
    scene.hold("dead", upsert(rows("dead", "of the dead")))
    scene.table("second").upsert(rows("second", "b"))
    assert consumer.poll() == ["a", "b"]
    scene.clock.sleep(3_600_000)
    scene.table("third").upsert(rows("third", "c"))
    assert consumer.poll() == ["c"]
    assert len(scene.completed("rollback")) == 1


def test_overwrites_and_deletes_are_changes_of_their_own() -> None:
    scene = begun_scene(rows("first", "a", "b"), **NBCC)
    consumer = Consumer(scene.table("consumer"))
    consumer.poll()
    scene.table("over").overwrite(rows("over", "b", "c"))
    assert consumer.poll() == ["b", "c"]
    scene.table("deleter").delete(pa.table({"id": ["b"]}))
    assert consumer.poll() == [], "deletes leave no row"
    assert scene.writers() == {"c": "over"}


# -- logs without a base file (issue 13820)


def log_only_table(writes: int) -> HandmadeTable:
    """As Hudi's non-blocking writers leave it: one log after the other, and no base file."""
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64())])
    storage = open_storage(f"memory://consumers{next(_names)}")
    made = HandmadeTable(storage, schema, ordering="ts")
    for number in range(1, writes + 1):
        log_commit(made, 10 * number, 10 * number + 5, f"k{number}")
    return made


def log_commit(made: HandmadeTable, requested: int, completed: int, *ids: str) -> None:
    made.begin(requested)
    block = made.rows_block(requested, [{"id": id_, "ts": 1} for id_ in ids])
    made.complete(requested, completed, [made.log(requested, block)])


def test_issue_13820_each_write_of_a_bucket_of_logs_alone_is_seen() -> None:
    """The slice bears the time of the first log, which lies before the range of the later ones."""
    made = log_only_table(4)
    table = pyhudi.open_table(made.storage.uri)
    for number in range(1, 5):
        feed = table.changes(since=at(10 * number - 5), until=at(10 * number + 5))
        assert feed.to_arrow()["id"].to_pylist() == [f"k{number}"]
    assert len(table.changes(since=at(15)).to_arrow()) == 3


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_issue_13820_compacting_and_cleaning_such_a_bucket_repeats_and_hides_nothing(
    is_cleaned: bool,
) -> None:
    made = log_only_table(3)
    consumer = Consumer(pyhudi.open_table(made.storage.uri))
    assert consumer.poll() == ["k1", "k2", "k3"]
    made.begin(40)  # a writer that outlives the compaction
    logs = [s.path for s in made.storage.list("") if ".log." in s.path]
    made.begin(41, "compaction")
    rows = [{"id": f"k{n}", "ts": 1, "_hoodie_commit_time": at(10 * n)} for n in (1, 2, 3)]
    made.complete(41, 42, [made.base(41, rows)], action="commit")
    if is_cleaned:
        made.clean(43, 44, earliest=at(41), removed=logs)
        for path in logs:
            made.storage.delete(path)
    assert consumer.poll() == []
    block = made.rows_block(40, [{"id": "late", "ts": 1}])
    made.complete(40, 50, [made.log(40, block)])
    assert consumer.poll() == ["late"]
    log_commit(made, 60, 61, "k4")
    assert consumer.poll() == ["k4"]
    assert sorted(consumer.table.read().to_arrow()["id"].to_pylist()) == [
        *("k1", "k2", "k3", "k4"),
        "late",
    ]


# -- time travel


@pytest.mark.parametrize("kind", KINDS)
def test_a_past_snapshot_gives_the_same_rows_for_ever(kind: str) -> None:
    """While writers overlap, after compaction, and after archiving."""
    scene = Scene(**KINDS[kind])
    acts: dict[str, Act] = {
        "1": upsert(rows("1", "a", "b", ts=5)),
        "2": lambda table: table.delete(pa.table({"id": ["b"]})),
        "3": upsert(rows("3", "b", "c", ts=7)),
    }
    seen: dict[str, Content] = {}
    first = scene.table("first").upsert(rows("first", "a", "b", ts=1))
    seen[first.completed] = scene.content()
    held: dict[str, HeldWrite] = {}
    for event in ["1", "2", "3", "2-", "3-", "1-"]:
        by = event[0]
        if event == by:
            held[by] = scene.hold(by, acts[by])
        else:
            done = held[by].finish()
            seen[done.completed] = scene.content()
    if kind != "cow":
        compacted(scene)
        scene.table("late").upsert(rows("late", "d"))
        compacted(scene)
    last = scene.table("last").upsert(rows("last", "e"))
    for time, content in seen.items():
        assert scene.content(as_of=time) == content
    archive(scene.storage, TIMELINE, last.instant)
    for time, content in seen.items():
        assert scene.content(as_of=time) == content, f"archived, {time}"
    assert len({str(content) for content in seen.values()}) > 2


def test_time_travel_is_by_completion_and_not_by_request() -> None:
    scene = begun_scene(rows("first", "k", ts=1), **NBCC)
    slow = scene.hold("slow", upsert(rows("slow", "s")))
    quick = scene.table("quick").upsert(rows("quick", "q"))
    done = slow.finish()
    assert slow.requested < quick.instant
    assert scene.writers(as_of=quick.completed) == {"k": "first", "q": "quick"}
    assert scene.writers(as_of=done.completed) == {"k": "first", "q": "quick", "s": "slow"}


# -- what was cleaned


def test_a_past_that_was_cleaned_is_a_typed_error() -> None:
    scene = Scene(**COW)
    first = scene.table("w").upsert(rows("first", "a"))
    second = scene.table("w").upsert(rows("second", "b"))
    clean(scene.session("cleaner"), bases(scene)[:1], second.instant)
    with pytest.raises(InvalidRequestError, match="can no longer be read") as error:
        scene.content(as_of=first.completed)
    assert "clean" in error.value.why
    assert error.value.next_step
    assert scene.writers(as_of=second.completed) == {"a": "first", "b": "second"}


@pytest.mark.parametrize("is_archived", [False, True])
def test_a_range_of_changes_that_was_cleaned_is_a_typed_error(is_archived: bool) -> None:
    """The consumer slept while its changes were compacted and cleaned; what it asks up to a time
    before the compaction is gone."""
    scene = Scene(**NBCC)
    first = scene.table("w").upsert(rows("first", "a"))
    second = scene.table("w").upsert(rows("second", "b"))
    compaction = compacted(scene)
    clean(scene.session("cleaner"), [*logs(scene), bases(scene)[0]], compaction)
    last = scene.table("w").upsert(rows("last", "c"))
    if is_archived:
        archive(scene.storage, TIMELINE, last.instant)
    table = scene.table("consumer")
    with pytest.raises(InvalidRequestError, match="no longer complete") as error:
        table.changes(since=first, until=second)
    assert "the clean" in error.value.why
    with pytest.raises(InvalidRequestError, match="no longer be read"):
        table.read(as_of=first)
    assert sorted(table.changes(since=second).to_arrow()["id"].to_pylist()) == ["c"]


def test_a_range_whose_files_a_compaction_in_it_stands_for_is_whole_after_cleaning() -> None:
    scene = Scene(**NBCC)
    first = scene.table("w").upsert(rows("first", "a"))
    scene.table("w").upsert(rows("second", "b"))
    compaction = compacted(scene)
    clean(scene.session("cleaner"), [*logs(scene), bases(scene)[0]], compaction)
    changed = scene.table("consumer").changes(since=first).to_arrow()
    assert changed["id"].to_pylist() == ["b"]


# -- the archive


@pytest.mark.parametrize("order", ORDERS[1:5])
@pytest.mark.parametrize("kind", ["nbcc", "cow"])
def test_a_consumer_crosses_the_archive_by_completion_times(kind: str, order: str) -> None:
    """It slept so long that what it has not seen lies in the archive, in part or as a whole."""
    scene = begun_scene(rows("first", "before"), **KINDS[kind])
    consumer = Consumer(scene.table("consumer"))
    consumer.poll()
    held: dict[str, HeldWrite] = {}
    middle, ends = "", 0
    for event in order.split():
        by = event[0]
        if event == by:
            held[by] = scene.hold(by, upsert(rows(by, f"of {by}", ts=5)))
        else:
            done = held[by].finish()
            ends += 1
            middle = done.completed if ends == 1 else middle
    last = scene.table("last").upsert(rows("last", "last"))
    start = consumer.checkpoint
    for before in (min(write.requested for write in held.values()), last.instant):
        archive(scene.storage, TIMELINE, before)
        table = scene.table("another consumer")
        whole = table.changes(since=start, columns=["id"]).to_arrow()["id"].to_pylist()
        assert sorted(whole) == ["last", "of 1", "of 2"]
        halves = [
            *table.changes(since=start, until=middle).to_arrow()["id"].to_pylist(),
            *table.changes(since=middle).to_arrow()["id"].to_pylist(),
        ]
        assert sorted(halves) == ["last", "of 1", "of 2"]
    assert consumer.poll() == ["last", "of 1", "of 2"]
    assert consumer.poll() == []
