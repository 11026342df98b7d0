"""A compaction plan as one Spark job: operations in, each merged where it runs, write stats out.

Operations are independent, so each is a task, the largest first. So no long task starts when all
others are done. In plans of very many file groups, operations share tasks of balanced sizes. A task
may run twice, because its file has the same name in every attempt.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from math import isfinite

import pyarrow as pa
from pyspark.sql import SparkSession

from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.plan_files import CompactionOperation
from pyhudi.services.compaction.merge_slice import CompactionSpec, compact_slice
from pyhudi.services.compaction.run import compaction_spec
from pyhudi.session.session import TableSession
from pyhudi.spark.write import collected_stats
from pyhudi.spark.write_task import Task
from pyhudi.storage.objects.write_fence import remove_fence
from pyhudi.storage.protocol import Storage

#: More tasks than this cost the driver more than they help the cluster.
TASKS_MAX = 2_000
_MB = 1 << 20


class SparkMerge:
    """Writes the base files of a plan in Spark's tasks; used instead of `LocalMerge`."""

    def __init__(self, session: TableSession, spark: SparkSession) -> None:
        self._session = session
        self._spark = spark

    def __call__(
        self, requested: str, schema: str, operations: Sequence[CompactionOperation]
    ) -> list[WriteStat]:
        if not operations:
            return []
        storage = self._session.storage
        work = balanced(operations, TASKS_MAX)
        spec = compaction_spec(self._session, requested, schema, operations)
        task = CompactionTask(storage, spec, work)
        numbers = self._spark.range(0, len(work), 1, len(work))
        try:
            return collected_stats(numbers, requested, task, what="the compaction")
        finally:
            # A task that fails raises the fence, which stops only writes.
            remove_fence(storage, requested)


class CompactionTask(Task):
    """Executes operations: numbers of shares of the work in."""

    def __init__(
        self,
        storage: Storage,
        spec: CompactionSpec,
        work: tuple[tuple[CompactionOperation, ...], ...],
    ) -> None:
        super().__init__(storage, spec.requested, reports=False)
        self._spec = spec
        self._work = work

    def stats(self, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        for number in numbers:
            for operation in self._work[number]:
                yield compact_slice(self._storage, self._spec, operation)


def balanced(
    operations: Sequence[CompactionOperation], tasks_max: int
) -> tuple[tuple[CompactionOperation, ...], ...]:
    """Return at most `tasks_max` shares of the operations, of balanced sizes, largest first."""
    largest_first = sorted(operations, key=operation_bytes, reverse=True)
    shares: list[tuple[int, int, list[CompactionOperation]]] = [
        (0, number, []) for number in range(min(tasks_max, len(operations)))
    ]
    for operation in largest_first:
        size, number, share = heapq.heappop(shares)
        share.append(operation)
        heapq.heappush(shares, (size + operation_bytes(operation) + 1, number, share))
    shares.sort(key=lambda share: (-share[0], share[1]))
    return tuple(tuple(share) for _, _, share in shares)


def operation_bytes(operation: CompactionOperation) -> int:
    """Return about how many bytes it reads and writes, by the plan's own metrics."""
    metrics = operation.metrics or {}
    sizes = (metrics.get(name, 0.0) for name in ("TOTAL_LOG_FILES_SIZE", "TOTAL_IO_MB"))
    # Any engine may have written the plan. A value that cannot be a size counts as 0.
    logs, read_and_written = (int(s) if isfinite(s) and s >= 0 else 0 for s in sizes)
    return logs + _MB * read_and_written
