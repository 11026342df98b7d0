"""A table service that dies at any operation is finished, or cancelled, by the next process.

Each service is run once for each of its storage operations and each way to die; then another
process does what a process of that kind does, and the table is judged. Then the same with a second
death inside of the recovery. Twins, two processes that do the same at once, do what one would do.

On a shared table another engine has written before, and writes while the service dies.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import pytest

from light_scenarios import (
    NBCC,
    OCC,
    RINGS,
    VIRTUAL,
    OpenWrite,
    judged,
    judged_after_repair,
    recover,
    stage_of,
)
from pyhudi.errors import ConflictError, InvalidRequestError, UnavailableError
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.instant import Action
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.services.resizing.run import resize_planning
from pyhudi.simulate.faults import Effect, Fault, FixedFaults
from pyhudi.simulate.simulation import Process, Simulation
from pyhudi.simulate.table.actors.archiver import GRACE_MS, archiver
from pyhudi.simulate.table.actors.cleaner import cleanings
from pyhudi.simulate.table.actors.compactor import compactions
from pyhudi.simulate.table.actors.java_writer import JavaWriter
from pyhudi.simulate.table.actors.resizer import ToyResizes, policy_of, toy_resizes
from pyhudi.simulate.table.checks.archive import archived_now, half_archived, unlisted_files
from pyhudi.simulate.table.checks.evidence import TIMELINE_FOLDER, Evidence, Violation
from pyhudi.simulate.table.history import Outcome
from pyhudi.simulate.table.rows import Row, TableKind
from pyhudi.simulate.table.stage import Stage
from pyhudi.simulate.table.toy_rings import rows_are_toys
from pyhudi.write.resizing.help import finish_resize

#: Of pairs of crashes; 1 tries them all, and looks more closely.
STRIDE = int(os.environ.get("PYHUDI_CRASH_STRIDE", "197"))
POLICY = CleanPolicy.versions(1)
Work = Callable[[Stage, Process], None]
SHARED_RINGS = replace(RINGS, by_event_time=True)


@pytest.fixture(autouse=True)
def _resizes_copy_toy_rows() -> Iterator[None]:
    with rows_are_toys():
        yield


def prepared(stage: Stage) -> None:
    """Make some writes, the last but one of which died; long enough ago for every timeout."""
    for number, keys in enumerate((("k0", "k1"), ("k0", "k2"), ("k0", "k1"))):
        OpenWrite(stage, f"writer{number}", keys).complete()
    OpenWrite(stage, "dead", ("k0", "k3")).fall_silent()
    recover(stage, stage.simulation.process("rescuer"))
    OpenWrite(stage, "writer", ("k1",)).complete()
    stage.simulation.scheduler.now_ms += GRACE_MS


def with_a_compaction(stage: Stage) -> None:
    """Do the same, and add what a clean finds something to do in."""
    prepared(stage)
    if stage.kind.table_type is TableType.MERGE_ON_READ:
        compact(stage, stage.simulation.process("compactor"))


def with_work_begun(stage: Stage) -> None:
    """Do the same, and add a compaction that a process has begun to execute, and left."""
    prepared(stage)
    work = compactions(stage, stage.simulation.process("planner"))
    plan = work.schedule()
    assert plan is not None
    work._make_inflight(plan)


def with_a_resize(stage: Stage) -> None:
    """Do the same, and add a resize that is planned, and a write in one of its inputs.

    Beside a virtual one, a write that began before it is there to be copied, too.
    """
    prepared(stage)
    late = OpenWrite(stage, "late", ("k0", "k2")) if stage.kind.is_virtual else None
    session = stage.session(stage.simulation.process("planner"))
    preview, plan = resize_planning(session).schedule(policy_of(stage.kind))
    assert plan is not None, preview
    OpenWrite(stage, "copied", ("k0", "k1", "k3")).complete()
    if late is not None:
        late.complete()


def with_a_closed_resize(stage: Stage) -> None:
    """Do the same, and let the process that closed it die, with something left to copy."""
    with_a_resize(stage)
    work = toy_resizes(stage, stage.simulation.process("executor"))
    (plan,) = work.pending()
    work.nap, work.closes = partial(_die, work, plan.requested), True
    with pytest.raises(_DeadError):
        work.execute(plan.requested)
    assert plan.requested in stage.decision_log(stage.simulation.process("looker")).refresh().closed


class _DeadError(Exception):
    """A process is no more."""


def _die(work: ToyResizes, requested: str) -> None:
    if requested in work._log.refresh().closed:
        raise _DeadError


def java(stage: Stage, name: str, writes: int = 0) -> JavaWriter:
    return JavaWriter(stage, name, writes=writes, base_rate=0.0, faulty=False)


def beside_java(before: Callable[[Stage], None], stage: Stage) -> None:
    """Do the same on a table into which another engine has written, too."""
    row = Row("", 1, "java.1", is_deleted=False)
    java(stage, "java")._write((row._replace(key="k0"), row._replace(key="k2")), is_base=False)
    before(stage)
    stage.simulation.scheduler.now_ms += 60_000  # so that nothing grows old by waiting for the lock


def with_a_shared_resize(stage: Stage) -> None:
    """Do the same, and add a resize that Hudi can execute, and what it wrote twice beside that."""
    prepared(stage)
    session = stage.session(stage.simulation.process("planner"))
    preview, plan = resize_planning(session).schedule(policy_of(stage.kind))
    assert plan is not None, preview
    row = Row("", 9, "java.twice", is_deleted=False)
    rows = tuple(row._replace(key=key) for key in ("k0", "k1", "k3"))
    java(stage, "java twice")._write(rows, is_base=False)


def compact(stage: Stage, process: Process) -> None:
    work = compactions(stage, process)
    if not work.pending():
        work.schedule()
    for plan in work.pending():
        work.execute(plan.requested)


def cancel(stage: Stage, process: Process) -> None:
    work = compactions(stage, process)
    for plan in work.pending():
        work.cancel(plan.requested)
    recover(stage, process)


def resize(stage: Stage, process: Process) -> None:
    work = toy_resizes(stage, process)
    for plan in work.pending():
        work.execute(plan.requested)


def close_and_resize(stage: Stage, process: Process) -> None:
    work = toy_resizes(stage, process)
    work.closes = True
    for plan in work.pending():
        work.execute(plan.requested)


def cancel_resizes(stage: Stage, process: Process) -> None:
    work = toy_resizes(stage, process)
    for plan in work.pending():
        work.cancel(plan.requested)
    recover(stage, process)


def help_to_resize(stage: Stage, process: Process) -> None:
    """Do what a writer does about a closed resize; one that is not closed is none of its work."""
    session = stage.session(process)
    for requested in sorted(session.log.refresh().closed):
        finish_resize(session, requested)
    recover(stage, process)


def clean(stage: Stage, process: Process) -> None:
    cleanings(stage, process).run(POLICY)


def archive(stage: Stage, process: Process) -> None:
    archiver(stage, process).run()


@dataclass(frozen=True)
class Scene:
    """A service on a table that has work for it."""

    kind: TableKind
    before: Callable[[Stage], None]
    work: Work
    archives: bool = False
    shared: bool = False

    def looks_closely(self, crashes: int) -> bool:
        """True if I10 is checked at every step, which costs the more the longer the history is."""
        return not self.archives or crashes < (2 if STRIDE == 1 else 1)

    @property
    def stride(self) -> int:
        """The stride of the pairs of crashes; shared tables and resizes have many more of them."""
        has_many = self.shared or self.kind.has_rings
        return STRIDE * 3 if has_many and STRIDE > 1 else STRIDE

    def stage(self, simulation: Simulation) -> Stage:
        """Return the table, as the service finds it."""
        stage = stage_of(simulation, self.kind, shared=self.shared)
        self.before(stage)
        return stage


SCENES: dict[str, Scene] = {
    "compaction": Scene(NBCC, prepared, compact),
    "cancelled compaction": Scene(NBCC, with_work_begun, cancel),
    "resize": Scene(RINGS, with_a_resize, resize),
    "closed resize": Scene(RINGS, with_a_resize, close_and_resize),
    "cancelled resize": Scene(RINGS, with_a_resize, cancel_resizes),
    "cancelled closed resize": Scene(RINGS, with_a_closed_resize, cancel_resizes),
    "resize that a writer ends": Scene(RINGS, with_a_closed_resize, help_to_resize),
    "virtual resize": Scene(VIRTUAL, with_a_resize, resize),
    "closed virtual resize": Scene(VIRTUAL, with_a_resize, close_and_resize),
    "virtual resize that a writer ends": Scene(VIRTUAL, with_a_closed_resize, help_to_resize),
    "clean": Scene(OCC, with_a_compaction, clean),
    "clean of logs": Scene(NBCC, with_a_compaction, clean),
    "archive": Scene(OCC, with_a_compaction, archive, archives=True),
    "archive of logs": Scene(NBCC, with_a_compaction, archive, archives=True),
    "shared compaction": Scene(NBCC, partial(beside_java, prepared), compact, shared=True),
    "cancelled shared compaction": Scene(
        NBCC, partial(beside_java, with_work_begun), cancel, shared=True
    ),
    "shared resize": Scene(
        SHARED_RINGS, partial(beside_java, with_a_shared_resize), resize, shared=True
    ),
    "cancelled shared resize": Scene(
        SHARED_RINGS, partial(beside_java, with_a_shared_resize), cancel_resizes, shared=True
    ),
    "shared clean": Scene(NBCC, partial(beside_java, with_a_compaction), clean, shared=True),
    "shared archive": Scene(
        NBCC, partial(beside_java, with_a_compaction), archive, archives=True, shared=True
    ),
}


def run_with_crashes(name: str, *crashes: Fault) -> tuple[list[Violation], list[int]]:
    """Return the violations, and how many operations the service and its successor made."""
    scene = SCENES[name]
    with Simulation(1, faults=FixedFaults(crashes), tick_ms=1) as simulation:
        stage = scene.stage(simulation)
        counted = []
        if scene.shared:
            other = java(stage, "java beside", writes=2)
            other.process.start(other.run)
        for process in (simulation.process("first"), simulation.process("second")):
            process.start(scene.work, stage, process)
            simulation.run()
            simulation.scheduler.now_ms += 2 * stage.settings.heartbeat_timeout_ms
            counted.append(process.operations)
        broken: list[Violation] = []
        if "second" not in {crash.process for crash in crashes}:
            assert left_pending(stage) == []
            broken = judged(stage, repaired=False, clean_policy=POLICY) if scene.archives else []
            assert left_half_archived(stage) == []
        if scene.shared and not crashes and not scene.kind.has_rings:
            known = copy(stage.history).writes
            theirs = [e.outcome for e in known if e.invoke.process == other.process.name]
            assert theirs == [Outcome.OK, Outcome.OK]
        if scene.archives:
            go_on_archiving(stage)
        closely = scene.looks_closely(len(crashes))
        broken += judged_after_repair(stage, clean_policy=POLICY, closely=closely)
        return broken, counted


def go_on_archiving(stage: Stage) -> None:
    """Let the grace pass, add more to archive, and archive: no orphaned file is left."""
    for number in range(3):
        OpenWrite(stage, f"later{number}", ("k0",)).complete()
    stage.simulation.scheduler.now_ms += 2 * GRACE_MS
    before = len(archived_now(stage.storage))
    archive(stage, stage.simulation.process("third", faulty=False))
    assert len(archived_now(stage.storage)) > before
    assert left_half_archived(stage) == []
    assert list(unlisted_files(Evidence(stage.storage, stage.kind))) == []


def left_pending(stage: Stage) -> list[str]:
    """Return what a successor that lived has neither finished nor cancelled."""
    log = stage.decision_log(stage.simulation.process("onlooker"))
    return sorted(log.refresh().pending)


def left_half_archived(stage: Stage) -> list[str]:
    """Return what is archived and on the active timeline too, or in no current manifest."""
    return list(half_archived(Evidence(stage.storage, stage.kind)))


def crashes_of(process: str, operations: int) -> Iterator[Fault]:
    """Yield a crash before each operation, which is after the one before it; and after the last."""
    for nth in range(1, operations + 1):
        yield Fault(process, nth, Effect.CRASH_BEFORE)
    yield Fault(process, operations, Effect.CRASH_AFTER)


@pytest.mark.parametrize("name", SCENES)
def test_a_service_that_dies_at_any_operation_is_finished_or_cancelled(name: str) -> None:
    """Also if its successor dies, at any operation, by the one after that."""
    broken, (operations, _) = run_with_crashes(name)
    assert not broken, broken
    assert operations > 10
    tried = 0
    for first in crashes_of("first", operations):
        broken, (_, more) = run_with_crashes(name, first)
        assert not broken, (first, broken)
        for second in crashes_of("second", more):
            tried += 1
            if tried % SCENES[name].stride == 0:
                broken, _ = run_with_crashes(name, first, second)
                assert not broken, (first, second, broken)
    assert tried > 100


# -- twice


class Account(NamedTuple):
    """The state of a table, so far as a second service could add to it or remove from it."""

    completed: Counter[Action]  # instants, ever
    begun: int  # instants, ever
    archived: list[int]  # which of these, oldest request first, as often as the archive has each
    active: int  # completed instants of the timeline
    data_files: int


def account(stage: Stage) -> Account:
    evidence = Evidence(stage.storage, stage.kind)
    paths = [stat.path for stat in stage.storage.list("")]
    begun = sorted({str(instant.requested) for instant, _ in evidence.timeline})
    return Account(
        Counter(published.instant.action for published in evidence.published),
        len(begun),
        [begun.index(requested) for requested in archived_now(stage.storage)],
        sum("_" in stat.path for stat in stage.storage.list_folder(TIMELINE_FOLDER).objects),
        sum(not path.startswith(".hoodie/") for path in paths),
    )


def accounts_of_one(scene: Scene) -> tuple[Account, Account]:
    """Return the accounts before and after one process did it, with no other beside it."""
    with Simulation(1, tick_ms=1) as simulation:
        stage = scene.stage(simulation)
        before = account(stage)
        scene.work(stage, simulation.process("first"))
        return before, account(stage)


@pytest.mark.parametrize("name", SCENES)
def test_a_service_that_is_started_again_finds_nothing_to_do(name: str) -> None:
    scene = SCENES[name]
    with Simulation(1, tick_ms=1) as simulation:
        stage = scene.stage(simulation)
        scene.work(stage, simulation.process("first"))
        before = account(stage)
        scene.work(stage, simulation.process("second"))
        assert account(stage) == before
        assert not judged_after_repair(
            stage, archives=scene.archives, clean_policy=POLICY, closely=True
        )


TWINS = 30


@pytest.mark.parametrize("name", SCENES)
def test_two_that_do_it_at_once_do_what_one_would_do(name: str) -> None:
    scene = SCENES[name]
    before, alone = accounts_of_one(scene)
    assert alone != before
    for seed in range(TWINS):
        with Simulation(seed, tick_ms=1) as simulation:
            stage = scene.stage(simulation)
            assert account(stage) == before
            for process in (simulation.process("first"), simulation.process("second")):
                process.start(partial(willing, scene.work), stage, process)
            simulation.run()
            assert account(stage) == alone, seed
            broken = judged(
                stage, repaired=False, clean_policy=POLICY, closely=scene.looks_closely(1)
            )
            assert not broken, (seed, broken)


def willing(work: Work, stage: Stage, process: Process) -> None:
    """Do the work as far as the other process leaves something to do."""
    try:
        work(stage, process)
    except (UnavailableError, ConflictError, InvalidRequestError):
        return
