"""An actor that cancels pending compactions and cleans, also while a process executes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from pyhudi.errors import ConflictError, InvalidRequestError, UnavailableError
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.services.cleaning.execute import Cleanings
from pyhudi.services.compaction.execute import Compactions
from pyhudi.simulate.choices import drawn
from pyhudi.simulate.simulation import Process
from pyhudi.simulate.table.actors.cleaner import cleanings
from pyhudi.simulate.table.actors.compactor import compactions
from pyhudi.simulate.table.actors.service_actor import ServiceActor
from pyhudi.simulate.table.rows import happens
from pyhudi.simulate.table.stage import Stage

_PAUSES_MS = (1, 20, 300, 3_000)


class _Plan(NamedTuple):
    """A plan, how to cancel it and how to execute it."""

    cancel: Callable[[], object]
    execute: Callable[[Process], object]


class PlanCanceller(ServiceActor):
    """Looks for plans from time to time, and cancels one; one process after the other.

    A plan is cancelled because it is tried again and again. So sometimes another process begins to
    execute the plan at the same moment. Where the table is cleaned, it plans as well.
    """

    #: Another process executes it, or was faster.
    harmless = (UnavailableError, ConflictError, InvalidRequestError)

    def __init__(
        self,
        stage: Stage,
        name: str,
        *,
        rounds: int,
        cleans: CleanPolicy | None,
        rests: tuple[int, ...] = (),
    ) -> None:
        super().__init__(stage, name, rounds=rounds, pauses=(*_PAUSES_MS, *rests))
        self._policy = cleans
        self._executors = 0

    def _begun(self, process: Process) -> Callable[[], object]:
        works = compactions(self._stage, process), cleanings(self._stage, process)
        return partial(self._go_on, *works)

    def _go_on(self, compacting: Compactions, cleaning: Cleanings) -> None:
        found = [*self._compactions(compacting), *self._cleans(cleaning)]
        if not found:
            return
        plan = found[drawn(self._chance, len(found))]
        if happens(self._chance, 0.7):
            self._executors += 1
            executor = self._stage.simulation.process(f"{self._name}-rival{self._executors}")
            executor.start(self._round, executor, partial(plan.execute, executor))
        plan.cancel()

    def _compactions(self, work: Compactions) -> list[_Plan]:
        is_forced = happens(self._chance, 0.3)

        def execute(plan: str, process: Process) -> None:
            compactions(self._stage, process).execute(plan)

        plans = [instant.requested for instant in work.pending()]
        return [
            _Plan(partial(work.cancel, plan, is_forced=is_forced), partial(execute, plan))
            for plan in plans
        ]

    def _cleans(self, work: Cleanings) -> list[_Plan]:
        def execute(plan: str, process: Process) -> None:
            cleanings(self._stage, process).execute(plan)

        plans: list[str] = [instant.requested for instant in work.pending()]
        if not plans and self._policy is not None:
            planned = work.schedule(self._policy)
            plans = [] if planned is None else [planned]
        return [_Plan(partial(work.cancel, plan), partial(execute, plan)) for plan in plans]
