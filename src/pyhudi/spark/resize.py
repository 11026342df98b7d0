"""A resize as one Spark job: splits and merges in, each made where it runs, write stats out.

Splits and merges are independent, so each is a task, the largest first. A task may run twice,
because its files have the same names in every attempt. What completes meanwhile is copied by the
driver, because it is little and its order counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.services.compaction.merge_slice import CompactionSpec
from pyhudi.services.resizing.child_bases import Rewrite, write_children
from pyhudi.services.resizing.run import children_spec
from pyhudi.session.session import TableSession
from pyhudi.spark.write import collected_stats
from pyhudi.spark.write_task import Task
from pyhudi.storage.objects.write_fence import remove_fence
from pyhudi.storage.protocol import Storage


class SparkChildren:
    """Writes the children's base files in Spark's tasks; used instead of `LocalChildren`."""

    def __init__(self, session: TableSession, spark: SparkSession) -> None:
        self._session = session
        self._spark = spark

    def __call__(self, requested: str, schema: str, rewrites: Sequence[Rewrite]) -> list[WriteStat]:
        storage = self._session.storage
        spec = children_spec(self._session, requested, schema, rewrites)
        largest_first = tuple(sorted(rewrites, key=lambda each: each.megabytes, reverse=True))
        task = ChildrenTask(storage, spec, largest_first)
        numbers = self._spark.range(0, len(rewrites), 1, len(rewrites))
        try:
            return collected_stats(numbers, requested, task, what="the resize")
        finally:
            # A task that fails raises the fence, which stops only writes.
            remove_fence(storage, requested)


class ChildrenTask(Task):
    """Makes children: numbers of splits and merges in."""

    def __init__(
        self, storage: Storage, spec: CompactionSpec, rewrites: tuple[Rewrite, ...]
    ) -> None:
        super().__init__(storage, spec.requested, reports=False)
        self._spec = spec
        self._rewrites = rewrites

    def stats(self, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from write_children(self._storage, self._spec, self._rewrites[number])
