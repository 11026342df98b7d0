"""Migrating a toy table by the classes of production: partition by partition, simple buckets become
rings.

The migration has begun when the table is made, since properties of a toy table never change. A
first ring may stay pending for long, be executed by several processes at once, be closed and left,
or be cancelled; resizers split and merge what has one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyhudi.errors import ConflictError, InvalidRequestError, UnavailableError
from pyhudi.plan.resizing.policy import ResizePolicy
from pyhudi.services.migration.plan import first_ring_planning, simple_partitions
from pyhudi.session.session import TableSession
from pyhudi.simulate.choices import drawn
from pyhudi.simulate.simulation import Process
from pyhudi.simulate.table.actors.resizer import toy_resizes
from pyhudi.simulate.table.actors.service_actor import ServiceActor
from pyhudi.simulate.table.rows import happens
from pyhudi.simulate.table.stage import Stage

_NAPS_MS = (0, 100, 1_000, 5_000, 70_000)


class Migrator(ServiceActor):
    """Plans the first rings of partitions, and executes them."""

    harmless = (UnavailableError, ConflictError, InvalidRequestError)  # other processes were faster

    def __init__(
        self, stage: Stage, name: str, *, rounds: int, rests: tuple[int, ...] = ()
    ) -> None:
        super().__init__(stage, name, rounds=rounds, pauses=(1, 20, 300, 3_000, *rests))

    def _begun(self, process: Process) -> Callable[[], object]:
        return partial(self._go_on, process, self._stage.session(process))

    def _go_on(self, process: Process, session: TableSession) -> None:
        chance, work = self._chance, toy_resizes(self._stage, process, session)
        partitions = simple_partitions(session)
        if partitions and (not work.pending() or happens(chance, 0.3)):
            partition = partitions[drawn(chance, len(partitions))]
            first_ring_planning(session, partition).schedule(ResizePolicy())
            if happens(chance, 0.2):
                return
        if not (pending := work.pending()):
            return
        plan = pending[drawn(chance, len(pending))].requested
        if happens(chance, 0.1):
            work.cancel(plan, is_forced=happens(chance, 0.3))
        else:
            work.nap = partial(self._nap, process) if happens(chance, 0.6) else None
            work.closes = happens(chance, 0.4)
            work.execute(plan, is_forced=happens(chance, 0.3))

    def _nap(self, process: Process) -> None:
        process.world.sleep_ms(_NAPS_MS[drawn(self._chance, len(_NAPS_MS))])
