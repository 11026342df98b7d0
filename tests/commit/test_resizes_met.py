"""A write that completes beside a resize: the verdict is drawn for the number that it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from counted_storage import CountedStorage
from many_writers.resizes_by_hand import HandmadeResize, plan_resize
from many_writers.scene import NBCC, OCC, SHARED, Scene, begun_scene, rows
from many_writers.services_by_hand import plan_clustering
from pyhudi.commit.conflict_notes import CONFLICT_FOLDER
from pyhudi.commit.proposals import Decided
from pyhudi.commit.transaction import Completed, Held, Lost, Transaction
from pyhudi.commit.validation import Checks
from pyhudi.conflict.resizes import (
    MeetsClosed,
    MustCancel,
    MustForget,
    MustMove,
    MustWriteTwice,
)
from pyhudi.conflict.rules import Retry
from pyhudi.errors import ConflictError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat, stats_by_partition
from pyhudi.index.simple_bucket import file_id
from pyhudi.session.session import TableSession

DAY = "mo"
GROUP = FileGroupId(DAY, file_id(0))
ELSEWHERE = FileGroupId("tu", file_id(0))
CHILDREN = (FileGroupId(DAY, f"{1:08d}-left-0"), FileGroupId(DAY, f"{2:08d}-right-0"))
MODES = {"nbcc": NBCC, "occ": OCC}


@pytest.fixture(params=MODES)
def scene(request: pytest.FixtureRequest) -> Scene:
    return begun_scene(rows("before", "a", "b"), **MODES[request.param])


def begin(session: TableSession) -> Transaction:
    session.log.refresh()
    return Transaction.begin(session.log, session.settings, session.action, session.recovery)


def resize(scene: Scene) -> HandmadeResize:
    return plan_resize(scene.session("executor"), {GROUP: CHILDREN})


def stat(group: FileGroupId, requested: str, *, is_base: bool = False) -> WriteStat:
    base = f"{group.file_id}_0-0-0_{requested}.parquet"
    log = f".{group.file_id}_{requested}.log.1_0-0-0"
    path = f"{group.partition}/{base if is_base else log}"
    made = WriteStat(
        file_id=group.file_id, path=path, partition_path=group.partition, num_inserts=1
    )
    return made if is_base else replace(made, log_files=(log,))


def complete(
    write: Transaction,
    *groups: FileGroupId,
    bases: tuple[FileGroupId, ...] = (),
    moved: tuple[FileGroupId, ...] = (),
    checks: Checks | None = None,
) -> Completed | Lost | Held:
    """Complete a write that has logs in these groups, and base files in those."""
    stats = [stat(group, write.requested, is_base=group in bases) for group in (*groups, *bases)]
    before = tuple(stat(group, write.requested) for group in moved)
    checks = replace(checks or Checks(), moved=before)
    return write.complete(CommitMetadata(stats_by_partition(stats)), checks)


def closed(scene: Scene) -> HandmadeResize:
    made = resize(scene)
    assert isinstance(made.close(), Decided)
    return made


def test_a_write_completes_beside_a_pending_resize(scene: Scene) -> None:
    resize(scene)
    assert isinstance(complete(begin(scene.session("a")), GROUP), Completed)


def test_a_write_that_meets_a_closed_resize_stays_pending(scene: Scene) -> None:
    session = scene.session("a")
    write = begin(session)
    met = closed(scene)
    assert complete(write, GROUP) == Held(MeetsClosed(met.requested))
    live = session.log.refresh()
    assert write.requested in live.pending
    assert scene.session("other").recover() == (), "its heartbeat goes on"


def test_a_write_elsewhere_does_not_meet_a_closed_resize(scene: Scene) -> None:
    closed(scene)
    assert isinstance(complete(begin(scene.session("a")), ELSEWHERE), Completed)


def test_a_held_write_completes_once_the_resize_was_cancelled(scene: Scene) -> None:
    session = scene.session("a")
    write, met = begin(session), closed(scene)
    assert isinstance(complete(write, GROUP), Held)
    session.recovery.abort(session.log.live.pending[met.requested])
    assert isinstance(complete(write, GROUP), Completed)


def test_a_close_that_takes_the_number_first_is_seen(scene: Scene) -> None:
    """The write was judged, and found nothing in its way, when another process appends."""
    met = resize(scene)
    session = scene.session("a")
    write = begin(session)
    create = session.log._create
    closing: list[Callable[[], object]] = [met.close]

    def late(entry: object) -> bool:
        if closing:
            closing.pop()()
        return create(entry)  # type: ignore[arg-type]

    session.log._create = late  # type: ignore[method-assign]
    assert complete(write, GROUP) == Held(MeetsClosed(met.requested))


def test_a_base_file_in_an_input_cancels_the_resize(scene: Scene) -> None:
    met = resize(scene)
    write = begin(scene.session("a"))
    assert complete(write, bases=(GROUP,)) == Held(MustCancel(met.requested))


def test_a_write_that_began_after_the_plan_moves(scene: Scene) -> None:
    met = resize(scene)
    write = begin(scene.session("a"))
    met.complete()
    assert complete(write, GROUP) == Held(MustMove(met.requested))
    ended = complete(write, CHILDREN[0], ELSEWHERE, moved=(GROUP,))
    assert isinstance(ended, Completed)


def test_a_write_that_looked_at_the_new_ring_completes(scene: Scene) -> None:
    met = resize(scene)
    write = begin(scene.session("a"))
    met.complete()
    assert isinstance(complete(write, *CHILDREN), Completed)


@pytest.mark.parametrize("group", [GROUP, CHILDREN[1]], ids=["input", "child"])
def test_a_write_that_began_before_the_plan_is_lost_without_being_counted(
    scene: Scene, group: FileGroupId
) -> None:
    write = begin(scene.session("a"))
    met = resize(scene)
    met.complete()
    lost = complete(write, group)
    assert isinstance(lost, Lost)
    assert (lost.retry, lost.is_counted) == (Retry.WRITE, False)
    assert isinstance(lost.error, ConflictError)
    assert met.requested in lost.error.why
    facts = lost.error.facts
    assert (facts["rule"], facts["theirs"]["kind"]) == ("resized", "resize")
    assert facts["file_group"] == group.file_id
    assert len(list(scene.storage.list(CONFLICT_FOLDER))) == 1


def test_a_base_file_in_a_group_that_was_resized_is_written_again(scene: Scene) -> None:
    met = resize(scene)
    write = begin(scene.session("a"))
    met.complete()
    lost = complete(write, bases=(GROUP,))
    assert isinstance(lost, Lost)
    assert not lost.is_counted


def test_a_write_beside_a_plain_clustering_conflicts_as_ever(scene: Scene) -> None:
    write = begin(scene.session("a"))
    plan_clustering(scene.session("service"), [GROUP])
    lost = complete(write, GROUP)
    assert isinstance(lost, Lost)
    assert (lost.retry, lost.is_counted) == (Retry.LATER, True)


def test_on_a_shared_table_a_write_completes_beside_a_resize_that_hudi_can_execute_if_twice() -> (
    None
):
    """Hudi copies nothing. What pyhudi alone can execute is copied there, too."""
    scene = begun_scene(rows("before", "a", "b"), **NBCC, **SHARED)
    write = begin(scene.session("a"))
    planned = plan_resize(scene.session("executor"), {GROUP: CHILDREN}, is_dual=True)
    older = complete(write, GROUP)
    assert isinstance(older, Lost)
    assert (older.retry, older.is_counted) == (Retry.WRITE, False)
    write = begin(scene.session("a"))
    assert complete(write, GROUP) == Held(MustWriteTwice(planned.requested))
    twice = Checks(twice=frozenset([planned.requested]))
    assert isinstance(complete(write, GROUP, checks=twice), Completed)


def test_a_write_forgets_what_it_wrote_twice_for_a_resize_that_was_cancelled() -> None:
    scene = begun_scene(rows("before", "a", "b"), **NBCC)
    session = scene.session("a")
    planned = plan_resize(scene.session("executor"), {GROUP: CHILDREN}, is_dual=True)
    write = begin(session)
    assert isinstance(complete(write, GROUP), Held)
    session.recovery.abort(session.log.live.pending[planned.requested])
    twice = Checks(twice=frozenset([planned.requested]))
    assert complete(write, GROUP, checks=twice) == Held(MustForget(planned.requested))
    assert isinstance(complete(write, GROUP), Completed)


def test_an_optimistic_write_that_moved_conflicts_with_one_that_was_copied() -> None:
    scene = begun_scene(rows("before", "a", "b"), **OCC)
    met = resize(scene)
    moving, copied = begin(scene.session("a")), begin(scene.session("b"))
    assert isinstance(complete(copied, GROUP, checks=Checks(is_checked=True)), Completed)
    met.complete()
    checks = Checks(is_checked=True)
    lost = complete(moving, CHILDREN[0], moved=(GROUP,), checks=checks)
    assert isinstance(lost, Lost)
    assert lost.is_counted, "it lost to the other write, not to the resize"


def test_new_keys_of_a_part_may_be_in_a_resize_planned_since(scene: Scene) -> None:
    write = begin(scene.session("a"))
    resize(scene)
    lost = complete(write, GROUP, checks=Checks(is_part=True))
    assert isinstance(lost, Lost)
    assert isinstance(lost.error, ConflictError)
    assert lost.error.facts["rule"] == "keys_taken_for_new"
    assert not lost.is_counted


def test_a_resize_costs_a_write_its_plan_and_one_beside_none_nothing(scene: Scene) -> None:
    def cost(group: FileGroupId) -> int:
        storage = CountedStorage(scene.storage)
        write = begin(scene.session("counted", storage.as_storage()))
        with storage.counting() as counts:
            assert isinstance(complete(write, group), Completed)
        return counts.total()

    alone = cost(GROUP)
    resize(scene)
    assert cost(GROUP) == alone + 1
