"""What Spark calls in its Python workers to write: sorted batches in, write stats out.

A row that cannot be written would fail every attempt of its task. So the task does not raise, but
returns the refusal as a result, and raises the write's fence, at which the other tasks stop. Errors
that a new attempt may solve, such as storage that does not answer, are raised.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext

from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    HudiError,
    InvalidRequestError,
    UnavailableError,
    UnsupportedTableError,
)
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.index.routing import PreparedBatch, Targets
from pyhudi.plan.scan import Split
from pyhudi.spark.scan import refuse_other_release
from pyhudi.spark.worker_setup import spare_modules
from pyhudi.storage.objects.progress import TaskProgress
from pyhudi.storage.objects.write_fence import raise_fence
from pyhudi.storage.protocol import Storage
from pyhudi.version import __version__
from pyhudi.world import real_world
from pyhudi.write.files.announcing import MetRivalError
from pyhudi.write.files.spec import KeyedRows, WriteOverError
from pyhudi.write.rebase import rebased_rows
from pyhudi.write.sorted_groups import KeyedBatch, grouped, joined_rows, sorted_by_group
from pyhudi.write.tasks import FoundDeletesTask, GroupTask

#: Columns that the shuffle adds to a row: its bucket, which is the ordinal in a simple layout, and
#: the number by which the rows of a task are sorted.
BUCKET: Final = "__pyhudi_bucket"
SORT_KEY: Final = "__pyhudi_sort_key"
#: Instead of a bucket, if the JVM cannot compute it.
NO_BUCKET: Final = -1
#: The number of rows of a batch whose buckets are computed again.
_CHECKED_ROWS = 32

STAT: Final = "stat"
REFUSAL: Final = "refusal"
RESULT_SCHEMA: Final = f"{STAT} string, {REFUSAL} string"
_ARROW_SCHEMA = pa.schema([(STAT, pa.string()), (REFUSAL, pa.string())])
KINDS: dict[str, type[HudiError]] = {
    kind.__name__: kind
    for kind in (
        InvalidRequestError,
        UnsupportedTableError,
        CorruptTableError,
        ConflictError,
        MetRivalError,
        WriteOverError,
    )
}


class Task:
    """What tasks of a write have in common. Each implements `stats`."""

    def __init__(self, storage: Storage, requested: str, *, reports: bool) -> None:
        """With `reports`, tasks store their progress for the driver to read."""
        self._reports = reports
        self._storage = storage
        self._requested = requested
        self._release = __version__

    def stats(self, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
        raise NotImplementedError

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            refuse_other_release(self._release)
            spare_modules()
            progress = self._progress()
            for stat in self.stats(batches):
                yield _results(stats=[_encode_stat(stat)])
                size = stat.total_write_bytes or 0
                progress.add(rows=stat.rows_written, bytes=size, files=1)
            progress.end()
        except UnavailableError:
            raise
        except HudiError as error:
            refusal = _encode_refusal(error)
            if not isinstance(error, WriteOverError):
                # The driver ends the job, and finds the refusal here if that ends this task, too.
                with suppress(HudiError):  # without the fence, the other tasks only stop later
                    raise_fence(self._storage, self._requested, refusal.encode())
            yield _results(refusals=[refusal])

    def _progress(self) -> TaskProgress | Unwatched:
        task = TaskContext.get()
        if not self._reports or task is None:
            return Unwatched()
        name, clock = str(task.partitionId()), real_world().elapsed_ms
        return TaskProgress(self._storage, self._requested, name, clock)


class WriteTask(Task):
    """Writes the groups of its rows, which are sorted by sort key, or are few and have none."""

    def __init__(self, task: GroupTask, *, reports: bool = False) -> None:
        super().__init__(task.files.storage, task.files.spec.requested, reports=reports)
        self._task = task

    def stats(self, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
        first = next(batches, None)
        if first is None:
            return
        batches = chain([first], batches)
        keyed: Iterable[KeyedBatch] = map(self._keyed, batches)
        if SORT_KEY not in first.schema.names:
            keyed = [self._sorted(list(batches))]
        for group, rows in grouped(keyed, self._task.shape.ordering):
            yield from self._task.write(group, rows)

    def _sorted(self, batches: list[pa.RecordBatch]) -> KeyedBatch:
        """Return all rows at once, in about the order that Spark would have given them."""
        parts = [self._task.shape.prepare(batch) for batch in batches]
        rows = joined_rows([KeyedRows(part.rows, part.keys) for part in parts])
        paths = parts[0].paths
        if len(parts) > 1:
            texts = [part.paths.dictionary_decode() for part in parts]
            paths = pa.concat_arrays(texts).dictionary_encode()
        batch = PreparedBatch(rows.rows, rows.keys, paths)
        return sorted_by_group(batch, self._task.files.routing)

    def _keyed(self, batch: pa.RecordBatch) -> KeyedBatch:
        ordinals = np.asarray(batch.column(BUCKET))
        sort_keys = np.asarray(batch.column(SORT_KEY))
        prepared = self._task.shape.prepare(batch.drop_columns([BUCKET, SORT_KEY]))
        if (odd := ordinals == NO_BUCKET).any():
            _refuse_odd_keys(prepared.keys.filter(pa.array(odd)))
        self._refuse_other_ordinals(prepared, ordinals)
        targets = Targets(self._task.files.routing, prepared.paths, ordinals)
        return KeyedBatch(KeyedRows(prepared.rows, prepared.keys), targets, sort_keys)

    def _refuse_other_ordinals(self, batch: PreparedBatch, ordinals: npt.NDArray[np.int32]) -> None:
        """Raise if Spark's SQL and the routing disagree about some rows, which are hashed again.

        A row in the wrong bucket could be in the table twice later.
        """
        count = len(ordinals)
        some = np.linspace(0, count - 1, min(count, _CHECKED_ROWS), dtype=np.int64)
        again = self._task.files.routing.ordinals(batch.take(pa.array(some)))
        if (again != ordinals[some]).any():
            raise InvalidRequestError(
                "rows cannot be shuffled by Spark",
                why="it puts some keys into other buckets than pyhudi does",
                next_step="Write the rows as Arrow, and report this with the types of the record"
                " key",
            )


class RebaseTask(Task):
    """Rebases rows from files of the same write: numbers of file groups in."""

    def __init__(
        self, task: GroupTask, files: Mapping[FileGroupId, tuple[str, ...]], *, reports: bool
    ) -> None:
        super().__init__(task.files.storage, task.files.spec.requested, reports=reports)
        self._task = task
        self._files = tuple(files.items())

    def stats(self, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
        layout = self._task.files.spec.layout
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        for number in numbers:
            group, paths = self._files[number]
            yield from self._task.write(group, rebased_rows(self._storage, layout, paths))


class DeleteFoundTask(Task):
    """Deletes the rows that a read finds: numbers of splits in, each of whole file slices."""

    def __init__(self, task: FoundDeletesTask, splits: Sequence[Split], *, reports: bool) -> None:
        super().__init__(task.files.storage, task.files.spec.requested, reports=reports)
        self._task = task
        self._splits = splits

    def stats(self, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        for number in numbers:
            for read in self._splits[number].reads:
                yield from self._task.write(read)


class Unwatched:
    """Used instead of a task's progress if no caller watches it."""

    def add(self, *, rows: int = 0, bytes: int = 0, files: int = 0) -> None:
        """Count nothing."""

    def end(self) -> None:
        """Store nothing."""


def _refuse_odd_keys(keys: pa.StringArray) -> None:
    raise InvalidRequestError(
        f"{len(keys)} rows have a record key that Spark cannot route",
        why=f"{keys[0].as_py()!r:.100} looks like a key of several fields, and Hudi would hash its"
        " parts",
        next_step="Write these rows as Arrow or pandas, without Spark",
    )


def _results(stats: Iterable[str] = (), refusals: Iterable[str] = ()) -> pa.RecordBatch:
    rows = [(stat, None) for stat in stats] + [(None, refusal) for refusal in refusals]
    columns = [pa.array([row[n] for row in rows], pa.string()) for n in range(2)]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)


def _encode_stat(stat: WriteStat) -> str:
    return json.dumps({name: value for name, value in asdict(stat).items() if value is not None})


def decode_stat(text: str) -> WriteStat:
    values = json.loads(text)
    if "log_files" in values:
        values["log_files"] = tuple(values["log_files"])
    return WriteStat(**values)


def _encode_refusal(error: HudiError) -> str:
    parts = {"what": error.what, "why": error.why, "next_step": error.next_step}
    facts = {"facts": error.facts} if isinstance(error, ConflictError) else {}
    return json.dumps({"kind": type(error).__name__, **parts, **facts})


def decode_refusal(text: str) -> HudiError:
    parts = json.loads(text)
    kind = KINDS.get(parts.pop("kind"), InvalidRequestError)
    return kind(parts.pop("what"), **parts)
