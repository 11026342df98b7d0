"""Clocks that are wrong, engines that do not belong here, and locks that do not fit.

Each is an error that names the cause, or has no effect; nothing is ever lost.
"""

from __future__ import annotations

from typing import Any

import pytest

from many_writers.scene import (
    CHECKED,
    COW,
    KINDS,
    NBCC,
    ORDERS,
    SCHEMA,
    SHARED,
    ForeignWriter,
    HeldWrite,
    Scene,
    begun_scene,
    no_row_is_lost,
    rows,
    upsert,
)
from memory_tables import TIMELINE
from opened_tables import table_on
from pyhudi.api.table import Table
from pyhudi.commit.foreign_writers import RECENT_AGAIN_MS
from pyhudi.errors import ConflictError, InvalidRequestError, UnavailableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.commit_metadata import encode_commit_metadata
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import (
    CompactionPlan,
    InstantName,
    RollbackPlan,
    encode_compaction_plan,
    encode_rollback_plan,
)
from pyhudi.format.timeline.service_metadata import encode_rollback_metadata
from pyhudi.index.simple_bucket import file_id
from pyhudi.plan.rollback import rollback_metadata
from pyhudi.read.load import PROPERTIES
from pyhudi.settings import WriteSettings
from pyhudi.storage.locks.storage_lock import StorageLock
from pyhudi.write.begin import write_spec
from pyhudi.write.files.base_file import write_base
from pyhudi.write.result import commit_metadata
from written_tables import keyed

TEN_MINUTES_MS = 600_000
TIMEOUT_MS = WriteSettings().heartbeat_timeout_ms


def skewed(**definition: Any) -> Scene:
    """One writer's clock is ten minutes ahead, the other's ten minutes behind."""
    scene = Scene(**definition)
    scene.skews_ms = {"1": TEN_MINUTES_MS, "2": -TEN_MINUTES_MS}
    scene.table("first").upsert(rows("first", "k"))
    return scene


def times(scene: Scene) -> tuple[list[str], list[str]]:
    done = [name.partition(".")[0].split("_") for name in scene.completed()]
    return [requested for requested, _ in done], [completed for _, completed in done]


# -- clocks ten minutes apart


@pytest.mark.parametrize("order", ORDERS[1:5])
@pytest.mark.parametrize(
    ("kind", "lock"), [*((kind, LockKind.NONE) for kind in KINDS), ("nbcc", LockKind.FILE)]
)
def test_clocks_ten_minutes_apart_change_no_order_and_lose_no_row(
    kind: str, order: str, lock: LockKind
) -> None:
    scene = skewed(**KINDS[kind], lock=lock)
    consumer = scene.table("consumer")
    checkpoint = consumer.changes().until
    held: dict[str, HeldWrite] = {}
    ended, received = [], []
    for event in order.split():
        by = event[0]
        if event == by:
            held[by] = scene.hold(by, upsert(rows(by, "k", f"of {by}", ts=5)))
        else:
            ended.append(held[by].finish().completed)
            feed = consumer.changes(since=checkpoint, columns=["id"])
            received += feed.to_arrow()["id"].to_pylist()
            checkpoint = feed.until
    assert ended == sorted(ended), "completion times are the order in which writes ended"
    assert sorted(received) == ["k", "k", "of 1", "of 2"]
    assert scene.content().keys() == {"k", "of 1", "of 2"}
    requested, completed = times(scene)
    assert len({*requested, *completed}) == 2 * len(requested), "every time is there once"
    assert all(r < c for r, c in zip(requested, completed, strict=True))


@pytest.mark.parametrize("kind", CHECKED)
def test_a_clock_that_is_behind_does_not_hide_a_conflict(kind: str) -> None:
    for order in ORDERS[1:5]:
        scene = skewed(**CHECKED[kind])
        held: dict[str, HeldWrite] = {}
        outcomes = []
        for event in order.split():
            by = event[0]
            if event == by:
                held[by] = scene.hold(by, upsert(rows(by, "k", ts=5)), conflict_retries=0)
                continue
            try:
                held[by].finish()
                outcomes.append(by)
            except ConflictError:
                pass
        first = next(event[0] for event in order.split() if event.endswith("-"))
        assert outcomes == [first], order
        assert scene.writers() == {"k": first}


@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_that_is_ahead_takes_no_live_writer_for_dead(kind: str) -> None:
    """Ten minutes are five times what a heartbeat may be old; the store's clock decides."""
    scene = skewed(**KINDS[kind])
    scene.table("first").upsert(rows("first", "t", day="tu"))
    slow = scene.hold("slow", upsert(rows("slow", "t", ts=5, day="tu")))
    for label in ("1", "2"):
        scene.table(label).upsert(rows(label, "k", ts=6))
    slow.finish()
    assert scene.completed("rollback") == []
    assert scene.writers()["t"] == "slow"


@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_that_is_behind_finds_the_dead_as_soon_as_the_store_tells_the_time(
    kind: str,
) -> None:
    """By its own clock the dead writer's last beat lies in the future. The first write shows it
    what the store's clock says, the second one rolls back."""
    scene = skewed(**KINDS[kind])
    scene.hold("dead", upsert(rows("dead", "k", ts=9)))
    scene.clock.sleep(TIMEOUT_MS + 1_000)
    for _ in range(2):
        scene.table("2").upsert(rows("2", "other"))
    assert len(scene.completed("rollback")) == 1
    assert scene.writers() == {"k": "first", "other": "2"}


def test_a_past_snapshot_is_the_same_whichever_clock_asks() -> None:
    scene = skewed(**NBCC)
    seen = {}
    for turn in range(6):
        by = "12"[turn % 2]
        done = scene.table(by).upsert(rows(by, f"k{turn}", ts=turn))
        seen[done.completed] = scene.content()
    assert list(seen) == sorted(seen)
    for completed, content in seen.items():
        assert scene.content(as_of=completed) == content


@pytest.mark.parametrize("skew_ms", [-TEN_MINUTES_MS, TEN_MINUTES_MS])
@pytest.mark.parametrize("lock", [LockKind.FILE, LockKind.STORAGE])
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_clock_here_puts_nothing_before_what_hudi_writes_next(
    kind: str, lock: LockKind, skew_ms: int
) -> None:
    """Hudi reads its own clock, which is right. The store's is, too."""
    scene = begun_scene(rows("first", "k"), **KINDS[kind], lock=lock)
    scene.skews_ms = {"wrong": skew_ms}
    scene.table("wrong").upsert(rows("wrong", "a"))
    consumer = scene.table("consumer")
    feed = consumer.changes(columns=["id"])
    assert sorted(feed.to_arrow()["id"].to_pylist()) == ["a", "k"]

    foreign_rewrite(scene, "theirs")
    later = consumer.changes(since=feed.until, columns=["id"])
    assert "theirs" in later.to_arrow()["id"].to_pylist()
    scene.table("wrong").upsert(rows("wrong", "b"))
    last = consumer.changes(since=later.until, columns=["id"])
    assert "b" in last.to_arrow()["id"].to_pylist()
    assert scene.content().keys() == {"k", "a", "theirs", "b"}


def foreign_rewrite(scene: Scene, key: str) -> None:
    """Another engine makes a new base file of the one bucket, with a row of its own."""
    is_cow = scene.session("kind").config.table_type is TableType.COPY_ON_WRITE
    action = "commit" if is_cow else "deltacommit"
    foreign = ForeignWriter(scene)
    requested = foreign.begin(action)
    spec = write_spec(scene.session("spec"), requested)
    content = scene.content(where="day = 'mo'").items()
    there = [{"id": k, "day": "mo", "ts": ts, "by": by} for k, (ts, by) in content]
    written = keyed(there + rows("hudi", key).to_pylist(), SCHEMA)
    stat = write_base(scene.storage, spec, FileGroupId("mo", file_id(0)), [written])
    data = encode_commit_metadata(commit_metadata([stat], "UPSERT"), bytes(16))
    foreign.complete(requested, data, action)


def test_a_wrong_clock_here_takes_no_storage_lock_from_a_living_owner() -> None:
    scene = begun_scene(rows("first", "k"), **COW, lock=LockKind.STORAGE)
    java = StorageLock(scene.storage, scene.world("java")).acquire(0)
    scene.skews_ms = {"ahead": TEN_MINUTES_MS}
    with no_row_is_lost(scene), pytest.raises(UnavailableError, match="could not be taken"):
        scene.table("ahead", lock_wait_ms=1_000).upsert(rows("ahead", "a"))
    assert java.is_held()


# -- an engine that does not heed the log


@pytest.mark.parametrize("states", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_foreign_instant_on_a_table_without_a_lock_is_refused_by_name(
    kind: str, states: int
) -> None:
    """Whether it was requested, inflight or completed."""
    scene = begun_scene(rows("first", "k"), **KINDS[kind])
    requested = foreign_instant(scene, states)
    with no_row_is_lost(scene), pytest.raises(InvalidRequestError, match=requested) as error:
        scene.table("ours").upsert(rows("ours", "k", ts=5))
    assert "another engine" in error.value.why
    assert "Call table.alter.use_lock(...) once" in error.value.next_step
    assert [name for name in scene.names() if name.startswith(requested)], "it is left alone"


@pytest.mark.parametrize("states", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_what_the_refusal_advises_makes_the_table_writable_beside_the_other_engine(
    kind: str, states: int
) -> None:
    scene = begun_scene(rows("first", "k"), **KINDS[kind])
    requested = foreign_instant(scene, states)
    table = scene.table("ours")
    with pytest.raises(InvalidRequestError, match="use_lock"):
        table.upsert(rows("ours", "mine"))
    scene.table("another").alter.use_lock("file")
    table.upsert(rows("ours", "mine"))
    scene.table("ours too").upsert(rows("ours too", "too"))
    assert scene.writers() == {"k": "first", "mine": "ours", "too": "ours too"}
    assert [name for name in scene.names() if name.startswith(requested)], "it is left alone"


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_under_way_when_the_table_gets_a_lock_is_done_again_with_it(kind: str) -> None:
    scene = begun_scene(rows("first", "k"), **KINDS[kind])
    held = scene.hold("ours", upsert(rows("ours", "mine")))
    began = held.requested
    scene.table("another").alter.use_lock("file")
    result = held.finish()
    assert (result.retries, result.instant > began) == (1, True)
    assert scene.writers() == {"k": "first", "mine": "ours"}
    scene.clock.sleep(TIMEOUT_MS)  # its first attempt is found, and undone
    scene.table("next").upsert(rows("next", "next"))
    assert len(scene.completed("rollback")) == 1
    assert scene.leftovers() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_under_way_that_may_not_be_repeated_is_told_that_the_table_got_a_lock(
    kind: str,
) -> None:
    scene = begun_scene(rows("first", "k"), **KINDS[kind])
    held = scene.hold("ours", upsert(rows("ours", "mine")), conflict_retries=0)
    scene.table("another").alter.use_lock("file")
    with no_row_is_lost(scene), pytest.raises(ConflictError, match="another lock") as error:
        held.finish()
    assert "'file', and not 'none'" in error.value.why
    assert "nothing of it is visible" in error.value.next_step
    scene.clock.sleep(TIMEOUT_MS)
    scene.table("ours").upsert(rows("ours", "mine"))
    assert scene.writers() == {"k": "first", "mine": "ours"}
    assert scene.leftovers() == []


def foreign_instant(scene: Scene, states: int) -> str:
    foreign = ForeignWriter(scene)
    requested = foreign.begin()
    if states == 1:
        scene.storage.delete(f"{TIMELINE}/{requested}.deltacommit.inflight")
    if states == 3:
        data = encode_commit_metadata(commit_metadata([], "UPSERT"), bytes(16))
        foreign.complete(requested, data)
    return requested


@pytest.mark.parametrize("kind", KINDS)
def test_a_foreign_instant_that_comes_during_a_write_is_found_by_its_end(kind: str) -> None:
    """Unless it comes in the last second, for who looked just now does not look again."""
    scene = begun_scene(rows("first", "k"), **KINDS[kind])
    held = scene.hold("ours", upsert(rows("ours", "mine")))
    requested = foreign_instant(scene, 2)
    scene.clock.sleep(RECENT_AGAIN_MS + 1)
    with no_row_is_lost(scene), pytest.raises(InvalidRequestError, match=requested):
        held.finish()
    for state in ("requested", "inflight"):
        scene.storage.delete(f"{TIMELINE}/{requested}.deltacommit.{state}")
    scene.clock.sleep(TIMEOUT_MS)  # what is left of our write is found, and undone
    scene.table("again").upsert(rows("again", "mine"))
    assert scene.writers() == {"k": "first", "mine": "again"}
    assert scene.leftovers() == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_instant_on_a_table_with_a_lock_is_welcome(kind: str) -> None:
    scene = begun_scene(rows("first", "k"), **KINDS[kind], **SHARED)
    held = scene.hold("ours", upsert(rows("ours", "mine")))
    requested = ForeignWriter(scene).begin()
    held.finish()
    assert scene.writers() == {"k": "first", "mine": "ours"}
    assert [name for name in scene.names() if name.startswith(requested)], "its heartbeat is fresh"


# -- a compaction that Hudi begins anew


@pytest.mark.parametrize("is_over", [False, True])
def test_a_plan_that_hudi_begins_anew_is_left_alone_with_its_files(is_over: bool) -> None:
    """Hudi rolls back what a failed run left, keeps the plan, and uses its instant once more."""
    scene = begun_scene(rows("first", "k"), **NBCC, **SHARED)
    hudi = ForeignWriter(scene)
    plan = hudi.begin("compaction", encode_compaction_plan(CompactionPlan(()), bytes(16)))
    undoing = RollbackPlan(InstantName(plan, "compaction"), ())
    rollback = hudi.begin("rollback", encode_rollback_plan(undoing, bytes(16)))
    if is_over:
        target = Instant(InstantTime(plan), Action.COMPACTION, State.REQUESTED)
        done = rollback_metadata(rollback, target, (), scene.storage.uri, 1)
        hudi.complete(rollback, encode_rollback_metadata(done, bytes(16)), "rollback")
    written = f"mo/00000000-0000-0000-0000-000000000000-0_7-21-9_{plan}.parquet"
    scene.storage.write(f".hoodie/.temp/{plan}/{written}.marker.MERGE", b"")
    scene.storage.write(written, b"under way")
    scene.clock.sleep(TIMEOUT_MS)
    scene.table("writer").upsert(rows("writer", "z"))
    scene.table("sweeper").services.repair(grace_minutes=0)
    assert scene.storage.stat(written) is not None
    assert f"{plan}.compaction.requested" in scene.names()
    rollbacks = [name for name in scene.names() if "rollback" in name and "_" in name]
    assert len(rollbacks) == is_over, "what Hudi has under way is Hudi's to end"


# -- a writer with another lock


def told(scene: Scene, lock: LockKind) -> Table:
    """The table as a process opens it that was told this lock."""
    return table_on(scene.storage, scene.world("told"), WriteSettings(), lock=lock)


@pytest.mark.parametrize("kept", [LockKind.NONE, LockKind.FILE, LockKind.STORAGE])
@pytest.mark.parametrize("given", [LockKind.NONE, LockKind.FILE, LockKind.STORAGE])
def test_a_writer_with_another_kind_of_lock_than_the_table_is_refused(
    kept: LockKind, given: LockKind
) -> None:
    scene = begun_scene(rows("first", "k"), **NBCC, lock=kept)
    table = told(scene, given)
    if given is kept:
        table.upsert(rows("told", "mine"))
        assert scene.writers() == {"k": "first", "mine": "told"}
        return
    with no_row_is_lost(scene), pytest.raises(InvalidRequestError, match="lock") as error:
        table.upsert(rows("told", "mine"))
    assert given.value in error.value.what
    assert kept.value in error.value.why


@pytest.mark.parametrize("second", [LockKind.NONE, LockKind.FILE, LockKind.STORAGE])
@pytest.mark.parametrize("first", [LockKind.FILE, LockKind.STORAGE])
def test_on_a_table_that_hudi_made_the_first_lock_of_a_writer_is_everybodys(
    first: LockKind, second: LockKind
) -> None:
    scene = begun_scene(rows("first", "k"), **NBCC)
    lines = scene.storage.read(PROPERTIES).splitlines(keepends=True)
    scene.storage.write(PROPERTIES, b"".join(line for line in lines if b"lock" not in line))
    told(scene, first).upsert(rows(first.value, first.value))
    scene.table("untold").upsert(rows("untold", "untold"))
    if second is not first:
        with no_row_is_lost(scene), pytest.raises(InvalidRequestError, match="lock") as error:
            told(scene, second).upsert(rows("second", "second"))
        assert first.value in error.value.why
    assert scene.writers() == {"k": "first", first.value: first.value, "untold": "untold"}


def test_a_lock_that_somebody_else_holds_keeps_the_write_out_and_nothing_is_lost() -> None:
    scene = begun_scene(rows("first", "k"), **NBCC, **SHARED)
    held = scene.hold("ours", upsert(rows("ours", "mine")), lock_wait_ms=5_000)
    scene.storage.write(".hoodie/lock", b"")  # as Hudi's writers leave it: without a name
    with no_row_is_lost(scene), pytest.raises(UnavailableError):
        held.finish()
    scene.storage.delete(".hoodie/lock")
    scene.clock.sleep(TIMEOUT_MS + 1_000)
    scene.table("again").upsert(rows("again", "mine", ts=2))
    assert scene.writers() == {"k": "first", "mine": "again"}
    assert scene.leftovers() == []
