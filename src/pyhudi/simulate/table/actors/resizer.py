"""Resizing of a toy table by the classes of production: only the rows are simplified.

A plan may stay pending for long, be executed by several processes at once, be closed and left, or
be cancelled. Buckets are so small that every one that has rows may be split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from pyhudi.commit.proposals import AlreadyDone, Outcome
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    HudiError,
    InvalidRequestError,
    UnavailableError,
)
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import Instant
from pyhudi.plan.resizing import pace
from pyhudi.plan.resizing.pace import Pace
from pyhudi.plan.resizing.policy import ResizePolicy, ResizeWrites, SplitBucket
from pyhudi.read.lost_files import CommitRecords
from pyhudi.services.planned_action import Execution
from pyhudi.services.resizing.child_bases import Rewrite
from pyhudi.services.resizing.execute import Resizes
from pyhudi.services.resizing.result import ResizeResult
from pyhudi.services.resizing.run import resize_planning
from pyhudi.services.resizing.schedule import ResizePlanning
from pyhudi.session.session import TableSession
from pyhudi.simulate.choices import drawn
from pyhudi.simulate.simulation import Process
from pyhudi.simulate.table.actors.service_actor import ServiceActor
from pyhudi.simulate.table.rows import Row, TableKind, happens
from pyhudi.simulate.table.stage import Stage
from pyhudi.simulate.table.table import (
    GoneError,
    avro_schema,
    base_file,
    projected,
    rows_that_count,
    write_data_file,
)
from pyhudi.write.resizing.finish import ResizeEnd
from pyhudi.write.resizing.work import layout_before

#: How long an executor sleeps before it closes or completes a resize.
_NAPS_MS = (0, 100, 1_000, 5_000, 70_000)


class _ToyPolicy(ResizePolicy):
    """A policy for buckets of a few bytes, which production refuses."""

    def __post_init__(self) -> None:
        return


class _BetweenKeys:
    """Cuts a bucket between two of its rows."""

    def points(self, bucket: SplitBucket) -> Sequence[int]:
        places = sorted(set(bucket.places.tolist()))
        inner = [place for place in places[:-1] if bucket.low < place < bucket.high]
        step = max(1, -(-len(inner) // max(1, bucket.parts - 1)))
        return inner[step // 2 :: step][: bucket.parts - 1]


#: Splits whatever has rows; splits what has many; merges what it can.
SPLIT_ALL = _ToyPolicy(target_bytes=60, split_above=1, split=_BetweenKeys(), rest_seconds=0)
POLICIES = (
    SPLIT_ALL,
    replace(SPLIT_ALL, partitions_max=1),
    replace(SPLIT_ALL, target_bytes=1 << 20, merge_below=1.0),
    replace(SPLIT_ALL, target_bytes=1 << 20, merge_below=1.0, partitions_max=1),
)


def policy_of(kind: TableKind, number: int = 0) -> ResizePolicy:
    """Return one of the policies, as the table resizes."""
    writes = ResizeWrites.VIRTUAL if kind.is_virtual else ResizeWrites.COPIED
    return replace(POLICIES[number], writes=writes)


class ToyResizes(Resizes):
    """The resizes of one process, which may close them although no writer is faster."""

    #: What it does before it completes a resize or closes it, and between the two.
    nap: Callable[[], None] | None = None
    #: What it does between the completion and the marks: it may end there.
    end: Callable[[], None] | None = None
    closes: bool = False  # although no write was faster
    copies_nothing: bool = False  # as Hudi, where it can execute the plan

    def _completion(self, run: Execution[Any], work: Any) -> Outcome:
        if self.nap is not None:
            self.nap()
        if self.closes:
            try:
                self._close(self._end(run, work))
            except HudiError as error:
                if (done := self._completed_meanwhile(run.requested, error)) is None:
                    raise
                return AlreadyDone(done)
            if self.nap is not None:
                self.nap()
        return super()._completion(run, work)

    def _result(
        self, run: Execution[Any], work: Any, done: Instant, *, is_ours: bool
    ) -> ResizeResult:
        if self.end is not None:
            self.end()
        return super()._result(run, work, done, is_ours=is_ours)

    def _end(self, run: Execution[Any], made: Any) -> ResizeEnd:
        if self.copies_nothing and run.plan.work.plan.is_dual:
            made.copies.owed = lambda live: []
        return super()._end(run, made)

    def _close(self, end: ResizeEnd) -> None:
        """Copy what is owed, and close the resize as if writers had been faster."""
        end._copies.copy(end._copies.owed(self._log.refresh()))
        outrun = Pace(0, 0, is_outrun=True, refusals=pace.REFUSALS_MAX)
        end._is_closed(outrun, end._copies.owed(self._log.refresh()))


class ToyChildren:
    """Makes the base files of the children."""

    def __init__(self, stage: Stage, process: Process) -> None:
        self._kind = stage.kind
        self._storage = process.storage

    def __call__(
        self, requested: str, schema: str, rewrites: Sequence[Rewrite]
    ) -> Iterator[WriteStat]:
        for rewrite in rewrites:
            children = rewrite.children
            found: list[list[Row]] = [[] for _ in children.groups]
            for row in (row for path in rewrite.paths for row in self._rows(path)):
                found[int(children.assign(pa.array([row.key]))[0])].append(row)
            for group, rows in zip(children.groups, found, strict=True):
                if self._kind.evolves:
                    rows = list(projected(rows, schema))
                file = base_file(requested, group, rows, self._kind)
                yield write_data_file(self._storage, file)

    def _rows(self, path: str) -> list[Row]:
        """Return the rows. Files of a pending plan are never removed: as in production, that is
        corruption."""
        try:
            return rows_that_count(self._storage, self._kind, path)
        except GoneError as error:
            raise CorruptTableError(error.what, why=error.why, next_step="Find why") from None


def toy_resizes(stage: Stage, process: Process, session: TableSession | None = None) -> ToyResizes:
    """Return the resizes of one process."""
    session = session or stage.session(process)
    return ToyResizes(
        session.log,
        session.recovery,
        session.settings,
        load=session.current.load,
        records=CommitRecords(session.loader),
        layout_of=partial(layout_before, session),
        merge=ToyChildren(stage, process),
        schema=session.schema.avro_at if stage.kind.evolves else lambda _: avro_schema(stage.kind),
        exclusive=session.exclusive,
    )


class Resizer(ServiceActor):
    """Plans resizes and executes them."""

    harmless = (UnavailableError, ConflictError, InvalidRequestError)  # other processes were faster

    def __init__(
        self, stage: Stage, name: str, *, rounds: int, rests: tuple[int, ...] = ()
    ) -> None:
        super().__init__(stage, name, rounds=rounds, pauses=(1, 20, 300, 3_000, *rests))
        self._zeal = (0.4, 0.9, 0.9)[drawn(self._chance, 3)]  # how likely it executes a plan

    def _begun(self, process: Process) -> Callable[[], object]:
        session = self._stage.session(process)
        planning = resize_planning(session)
        work = toy_resizes(self._stage, process, session)
        return partial(self._go_on, process, planning, work)

    def _go_on(self, process: Process, planning: ResizePlanning, work: ToyResizes) -> None:
        chance, pending = self._chance, work.pending()
        if not pending or happens(chance, 0.15):
            planning.schedule(policy_of(self._stage.kind, drawn(chance, len(POLICIES))))
            if happens(chance, 0.3):
                return
            pending = work.pending()
        if not pending:
            return
        plan = pending[drawn(chance, len(pending))].requested
        if happens(chance, 0.1):
            work.cancel(plan, is_forced=happens(chance, 0.3))
        elif happens(chance, self._zeal):
            work.nap = partial(self._nap, process) if happens(chance, 0.6) else None
            work.end = process.crash if happens(chance, 0.1) else None
            work.closes = happens(chance, 0.4) and self._stage.lock is None
            work.copies_nothing = self._stage.lock is not None and happens(chance, 0.5)
            work.execute(plan, is_forced=happens(chance, 0.3))

    def _nap(self, process: Process) -> None:
        process.world.sleep_ms(_NAPS_MS[drawn(self._chance, len(_NAPS_MS))])


def resize_all(stage: Stage, process: Process) -> None:
    """Execute every resize that is pending, whichever process also does."""
    work = toy_resizes(stage, process)
    for plan in work.pending():
        work.execute(plan.requested, is_forced=True)
