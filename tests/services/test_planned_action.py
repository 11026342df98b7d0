"""The life of a plan, on a service that has nothing of its own: its work is to write one file."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from archived_tables import SETTINGS, Bench
from memory_tables import TIMELINE
from pyhudi.commit.proposals import Begin, Decided, Refused, Rule
from pyhudi.errors import HudiError, InvalidRequestError, UnavailableError
from pyhudi.format.timeline.instant import Action, Instant
from pyhudi.services.planned_action import WORK_ATTEMPTS_MAX, Execution, PlannedAction
from pyhudi.storage.objects.heartbeats import Heartbeat, heartbeat_path


class Ended(NamedTuple):
    completed: str | None
    is_ours: bool


class Copying(PlannedAction[str, str, Ended]):
    """Writes a file of the name that its plan has. `meanwhile` happens when it is written."""

    action = Action.CLUSTERING

    def __init__(
        self, bench: Bench, label: str, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        session = bench.session(label)
        super().__init__(session.log, SETTINGS, session.exclusive)
        self._meanwhile = meanwhile
        self.works = 0

    def schedule(self) -> str:
        outcome = self._log.append(Begin(self.action, b"copy"))
        assert isinstance(outcome, Decided)
        return str(outcome.entry.instant)

    def _load_plan(self, requested: str) -> str:
        self._pending(requested)
        return f"copies/{requested}"

    def _work(self, run: Execution[str]) -> str:
        self.works += 1
        self._storage.create(run.plan, b"")
        self._meanwhile()
        return run.plan

    def _encoded(self, run: Execution[str], work: str) -> bytes:
        return work.encode()

    def _objection(self, run: Execution[str], work: str) -> Refused | None:
        return None if self._storage.stat(work) else Refused(Rule.DENIED, run.requested)

    def _result(self, run: Execution[str], work: str, done: Instant, *, is_ours: bool) -> Ended:
        return Ended(done.completed, is_ours)

    def _ended_before(self, requested: str, ended: Instant, started_ms: int) -> Ended:
        return Ended(ended.completed, is_ours=False)

    def _refusal(self, refused: Refused, run: Execution[str], work: str) -> HudiError:
        return UnavailableError("refused", why=refused.rule, next_step="none")


def planned() -> tuple[Bench, str]:
    bench = Bench()
    bench.write(1)
    return bench, Copying(bench, "planner").schedule()


def timeline(bench: Bench, requested: str) -> list[str]:
    names = (stat.path.removeprefix(f"{TIMELINE}/") for stat in bench.storage.list(TIMELINE))
    return [name for name in names if name.startswith(requested)]


def test_a_plan_is_pending_until_a_process_executes_it() -> None:
    bench, requested = planned()
    service = Copying(bench, "one")
    assert [plan.requested for plan in service.pending()] == [requested]
    done = service.execute(requested)
    assert done is not None
    assert done.is_ours
    assert f"{requested}_{done.completed}.replacecommit" in timeline(bench, requested)
    assert service.pending() == []
    assert bench.storage.stat(heartbeat_path(requested)) is None
    assert service.execute(requested) == Ended(done.completed, is_ours=False)
    assert service.works == 1


def test_two_executors_end_in_one_result() -> None:
    bench, requested = planned()
    others: list[Ended | None] = []
    other = Copying(bench, "other")
    service = Copying(bench, "one", lambda: others.append(other.execute(requested, is_forced=True)))
    done = service.execute(requested)
    assert done is not None
    assert others == [Ended(done.completed, is_ours=True)]
    assert not done.is_ours


def test_a_plan_with_a_live_heartbeat_is_left_to_its_executor_until_that_is_silent() -> None:
    bench, requested = planned()
    service = Copying(bench, "one")
    assert not service.is_being_executed(requested)
    bench.storage.write(heartbeat_path(requested), b"other")
    assert service.is_being_executed(requested)
    assert service.execute(requested) is None
    bench.clock.ms += SETTINGS.heartbeat_timeout_ms + 1
    assert not service.is_being_executed(requested)
    assert service.execute(requested) is not None


def test_an_executor_that_fails_leaves_the_plan_to_the_next_one() -> None:
    bench, requested = planned()

    def fail() -> None:
        raise UnavailableError("the disk is full", why="", next_step="")

    with pytest.raises(UnavailableError, match="disk is full"):
        Copying(bench, "one", fail).execute(requested)
    done = Copying(bench, "two").execute(requested)
    assert done is not None
    assert done.is_ours


def test_an_executor_that_fails_when_another_has_completed_the_plan_does_not_say_so() -> None:
    bench, requested = planned()

    def fail() -> None:
        Copying(bench, "other").execute(requested, is_forced=True)
        raise UnavailableError("a file is gone", why="", next_step="")

    done = Copying(bench, "one", fail).execute(requested)
    assert done is not None
    assert not done.is_ours


def test_no_inflight_file_is_made_for_a_plan_that_is_gone() -> None:
    bench, requested = planned()
    service = Copying(bench, "one")
    claimed = Heartbeat.claim

    def slow(*arguments: object) -> bool:
        bench.storage.delete(f"{TIMELINE}/{requested}.clustering.requested")
        return claimed(*arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Heartbeat, "claim", slow)
        assert service.execute(requested) == Ended(None, is_ours=False)
    assert timeline(bench, requested) == []
    assert service.works == 0


def test_work_that_is_undone_is_repeated_for_some_times() -> None:
    bench, requested = planned()
    service = Copying(bench, "one", lambda: bench.storage.delete(f"copies/{requested}"))
    with pytest.raises(UnavailableError, match="undid its work"):
        service.execute(requested)
    assert service.works == WORK_ATTEMPTS_MAX
    assert [plan.requested for plan in service.pending()] == [requested]


def test_what_is_no_plan_of_the_action_is_not_executed() -> None:
    bench, _ = planned()
    with pytest.raises(InvalidRequestError, match="no pending clustering"):
        Copying(bench, "one").execute("20990101000000000")
