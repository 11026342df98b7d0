"""Compaction of a toy table, by the class of production: only the merge of rows is simplified.

A plan may stay pending for long, be executed by several processes at once, or be cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    InvalidRequestError,
    UnavailableError,
)
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.plan_files import CompactionOperation
from pyhudi.plan.compaction.policy import CompactionOrder, CompactionPolicy
from pyhudi.read.lost_files import CommitRecords
from pyhudi.services.compaction.execute import Compactions
from pyhudi.simulate.choices import drawn
from pyhudi.simulate.simulation import Process
from pyhudi.simulate.table.actors.service_actor import ServiceActor
from pyhudi.simulate.table.rows import Row, happens
from pyhudi.simulate.table.stage import Stage
from pyhudi.simulate.table.table import (
    GoneError,
    ToyReader,
    avro_schema,
    base_file,
    projected,
    rows_that_count,
    write_data_file,
)

#: One file group for each plan, so that several are pending at once; or all that have logs.
_POLICIES = (
    CompactionPolicy(order=CompactionOrder.AGE, io_bytes_max=1),
    CompactionPolicy(order=CompactionOrder.DELTA_COMMITS),
)


class Compactor(ServiceActor):
    """Plans compactions and executes them."""

    harmless = (UnavailableError, ConflictError, InvalidRequestError)  # other processes were faster

    def __init__(
        self, stage: Stage, name: str, *, rounds: int, rests: tuple[int, ...] = ()
    ) -> None:
        super().__init__(stage, name, rounds=rounds, pauses=(1, 20, 300, 3_000, *rests))
        self._zeal = (0.2, 0.8, 0.8)[drawn(self._chance, 3)]  # how likely it executes a plan

    def _begun(self, process: Process) -> Callable[[], object]:
        return partial(self._go_on, compactions(self._stage, process))

    def _go_on(self, work: Compactions) -> None:
        chance, pending = self._chance, work.pending()
        if not pending or happens(chance, 0.3):
            work.schedule(_POLICIES[drawn(chance, len(_POLICIES))])
            return
        plan = pending[drawn(chance, len(pending))].requested
        if happens(chance, 0.07):
            work.cancel(plan)
        elif happens(chance, self._zeal):
            work.execute(plan, is_forced=happens(chance, 0.3))


def compactions(stage: Stage, process: Process) -> Compactions:
    """Return the compactions of one process."""
    kind, session = stage.kind, stage.session(process)
    log, reader = session.log, ToyReader(process.storage, kind)
    return Compactions(
        log,
        FailedWriteRecovery(log, stage.settings),
        stage.settings,
        load=reader.load,
        load_whole=reader.load,
        advance=reader.loader.advanced,
        times=reader.times,
        records=CommitRecords(reader.loader),
        merge=ToyMerge(stage, process),
        schema=session.schema.avro_at if kind.evolves else lambda _: avro_schema(kind),
    )


class ToyMerge:
    """Makes the base files of a plan."""

    def __init__(self, stage: Stage, process: Process) -> None:
        self._kind = stage.kind
        self._storage = process.storage

    def __call__(
        self, requested: str, schema: str, operations: Sequence[CompactionOperation]
    ) -> Iterator[WriteStat]:
        for operation in operations:
            base = operation.base_file_path
            paths = (*([base] if base else []), *operation.log_file_paths)
            rows = [row for path in paths for row in self._rows(path)]
            if self._kind.evolves:
                rows = list(projected(rows, schema))
            group = operation.file_group
            file = base_file(requested, group, rows, self._kind)
            stat = write_data_file(self._storage, file)
            yield replace(stat, total_log_files_compacted=len(operation.log_file_paths))

    def _rows(self, path: str) -> list[Row]:
        """Return the rows. Files of a pending plan are never removed: as in production, that is
        corruption."""
        try:
            return rows_that_count(self._storage, self._kind, path)
        except GoneError as error:
            raise CorruptTableError(error.what, why=error.why, next_step="Find why") from None


def compact_all(stage: Stage, process: Process) -> None:
    """Execute everything that is pending, whichever process also does."""
    work = compactions(stage, process)
    for plan in work.pending():
        work.execute(plan.requested, is_forced=True)
