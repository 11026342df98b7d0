"""The executor of this process: plain Arrow, and no Spark.

Its tasks are those that Spark's executors run (`write.tasks`). Here they run one after the other,
with rows that are buffered in memory. Only small logs of a write that reads nothing are created
together: most of their time is that of storage, and such a write is not watched. If the rows arrive
as a stream and memory cannot hold them, half of the buffer is spilled to log files whenever it is
full.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa

from pyhudi.commit.transaction import Lost
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.progress import ProgressBoard
from pyhudi.session.session import TableSession
from pyhudi.write.buffer import RowBuffer
from pyhudi.write.deletes import are_located
from pyhudi.write.files.announcing import MetRivalError
from pyhudi.write.files.spec import KeyedRows
from pyhudi.write.intent import Keys, Reads, WholeRows, WriteIntent
from pyhudi.write.markers.kind import are_listed
from pyhudi.write.markers.lists import ListedMarkers
from pyhudi.write.plan import WritePlan, with_markers
from pyhudi.write.rebase import rebased_logs
from pyhudi.write.row_shape import row_shape
from pyhudi.write.spill import spilled_logs
from pyhudi.write.tasks import FoundDeletesTask, RowsTask, is_load
from pyhudi.write.watch import Watch

#: What the rows of logs that are created together have at most, unless it is one log.
_AT_ONCE_BYTES: Final = 8 << 20


class LocalExecutor:
    """Writes rows that this process holds, or reads from a stream."""

    is_fenced = False

    def __init__(
        self,
        session: TableSession,
        intent: WriteIntent,
        batches: Iterator[pa.RecordBatch],
        board: ProgressBoard,
    ) -> None:
        """Read the batches: all of them, or as many as fit in memory if the rest can be spilled."""
        self._intent = intent
        self._board = board
        self._settings = session.settings
        bytes_max = session.settings.buffer_bytes_max
        assert intent.rows is not None
        self._shape = row_shape(intent.change, intent.rows, session.config)
        self._rows = RowBuffer(self._shape)
        self._batches = board.counting(batches)
        gets_logs = session.is_mor and intent.adds_rows
        may_stream = gets_logs and intent.reads is Reads.NOTHING
        is_whole = self._rows.fill(self._batches, bytes_max if may_stream else None)
        self.can_repeat = is_whole
        self.can_rebase = not is_whole
        self._gets_logs = is_whole and (
            (gets_logs and not self._may_load(session)) or self._has_located_keys(session)
        )

    def _may_load(self, session: TableSession) -> bool:
        """True if the rows of a bucket may become its first base file, which needs no seed."""
        change = self._intent.change
        if not isinstance(change, WholeRows) or not is_load(self._rows.bytes):
            return False
        return change.loads or session.config.concurrency is not ConcurrencyMode.NON_BLOCKING

    def _has_located_keys(self, session: TableSession) -> bool:
        """True if deletes go to logs of partitions that the caller named."""
        change, config = self._intent.change, session.config
        if not isinstance(change, Keys) or not session.is_mor:
            return False
        return are_located(change.columns, config, unconditional=change.unconditional)

    @property
    def buffered(self) -> RowBuffer | None:
        return self._rows if self.can_repeat else None

    @property
    def partitions(self) -> Collection[str]:
        return self._rows.partitions() if self._gets_logs else ()

    @property
    def sizes(self) -> Mapping[str, float]:
        return self._rows.sizes

    def run(self, plan: WritePlan, watch: Watch) -> list[WriteStat] | Lost:
        plan = self._listed(plan)
        if not self.can_repeat:
            bytes_max = self._settings.buffer_bytes_max
            logs = spilled_logs(plan.files, self._rows, self._batches, bytes_max)
            return list(self._noted(logs))
        if not isinstance(plan.task, FoundDeletesTask):
            self._rows.route(plan.routing)
        written = self._written(plan)
        # Whatever it finds of the rows, it writes a file for each group of new rows.
        coming = self._rows.groups() if isinstance(plan.task, RowsTask) else frozenset()
        stats: list[WriteStat] = []
        try:
            for stat in self._noted(written):
                stats.append(stat)
                if (lost := watch.look(stats, coming)) is not None:
                    return lost
        except MetRivalError as error:
            return watch.yielded(error.met, stats)
        return stats

    def _written(self, plan: WritePlan) -> Iterator[WriteStat]:
        task = plan.task
        if isinstance(task, FoundDeletesTask):
            for read in task.scan.reads:
                yield from task.write(read)
            return
        if not (isinstance(task, RowsTask) and task.is_blind):
            for group, rows in self._rows.buffered():
                yield from task.write(group, iter([rows]))
            return
        for portion in _portions(self._rows.buffered()):
            for stats in plan.files.at_once(partial(_stats, task), portion):
                yield from stats

    def rebase(self, plan: WritePlan, stats: Sequence[WriteStat]) -> list[WriteStat]:
        plan = self._listed(plan)
        return list(self._noted(rebased_logs(plan, stats, self._settings.buffer_bytes_max)))

    def _listed(self, plan: WritePlan) -> WritePlan:
        if are_listed(self._settings, plan.files.config):
            return with_markers(plan, ListedMarkers())
        return plan

    def _noted(self, stats: Iterable[WriteStat]) -> Iterator[WriteStat]:
        for stat in stats:
            self._board.add(rows=stat.rows_written, bytes=stat.total_write_bytes or 0, files=1)
            yield stat


def _portions(
    groups: Iterable[tuple[FileGroupId, KeyedRows]],
) -> Iterator[Sequence[tuple[FileGroupId, KeyedRows]]]:
    """Yield the file groups whose logs are created at once: some small ones, or a large one."""
    portion: list[tuple[FileGroupId, KeyedRows]] = []
    size = 0
    for group, rows in groups:
        size += rows.rows.nbytes
        if portion and size > _AT_ONCE_BYTES:
            yield portion
            portion, size = [], rows.rows.nbytes
        portion.append((group, rows))
    if portion:
        yield portion


def _stats(task: RowsTask, given: tuple[FileGroupId, KeyedRows]) -> list[WriteStat]:
    group, rows = given
    return list(task.write(group, iter([rows])))
