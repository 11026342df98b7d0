"""What Spark calls in its Python workers to write: sorted batches in, write stats out.

A row that cannot be written would fail every attempt of its task. So a task does not raise then,
but hands the refusal back as a result, and closes the write's fence, at which the other tasks
stop. What a new attempt may cure, such as storage that does not answer, is raised.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
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
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.index.routing import Place
from pyhudi.index.simple_bucket import bucket_ids
from pyhudi.plan.scan import ReadSpec, SliceRead, Split
from pyhudi.read.slice import read_split
from pyhudi.spark.scan import refuse_other_release
from pyhudi.spark.worker_setup import spare_modules
from pyhudi.storage.objects.progress import TaskProgress
from pyhudi.storage.objects.write_fence import raise_fence
from pyhudi.storage.protocol import Storage
from pyhudi.version import __version__
from pyhudi.world import real_world
from pyhudi.write.deletes import gathered_deletes
from pyhudi.write.files.spec import KeyedRows, WriteOverError
from pyhudi.write.group_files import Files
from pyhudi.write.rebase import written_rows
from pyhudi.write.sorted_groups import Arrived, grouped, in_place, joined_rows
from pyhudi.write.tasks import GroupJob

#: Columns that tell a task where a row belongs.
BUCKET: Final = "__pyhudi_bucket"
PLACE: Final = "__pyhudi_place"
#: In the place of a bucket: the JVM cannot tell.
NO_BUCKET: Final = -1
#: Rows of a batch whose buckets are looked at once more.
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
        WriteOverError,
    )
}


class Task:
    """What tasks of a write have in common. `stats` is what each does."""

    def __init__(self, storage: Storage, requested: str, *, reports: bool) -> None:
        """With `reports`, tasks leave word of how far they are, for the driver to find."""
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
            if not isinstance(error, WriteOverError):
                with suppress(HudiError):  # the others would only have stopped earlier
                    raise_fence(self._storage, self._requested)
            yield _results(refusals=[_encode_refusal(error)])

    def _progress(self) -> TaskProgress | Unwatched:
        task = TaskContext.get()
        if not self._reports or task is None:
            return Unwatched()
        name, clock = str(task.partitionId()), real_world().elapsed_ms
        return TaskProgress(self._storage, self._requested, name, clock)


class WriteTask(Task):
    """Writes the groups of the rows that it is given: sorted by place, or few and without one."""

    def __init__(
        self, storage: Storage, requested: str, job: GroupJob, *, reports: bool = False
    ) -> None:
        super().__init__(storage, requested, reports=reports)
        self._job = job

    def stats(self, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
        first = next(batches, None)
        if first is None:
            return
        batches = chain([first], batches)
        arrived: Iterable[Arrived] = map(self._arrived, batches)
        if PLACE not in first.schema.names:
            arrived = [self._placed(list(batches))]
        for place, rows in grouped(arrived, self._job.ordering):
            yield from self._job.write(place, rows)

    def _placed(self, batches: list[pa.RecordBatch]) -> Arrived:
        """All rows at once, with the place that Spark would have given them, more or less."""
        parts = [self._job.shaped(batch) for batch in batches]
        rows = joined_rows([KeyedRows(part.rows, part.keys) for part in parts])
        paths = parts[0].paths
        if len(parts) > 1:
            texts = [part.paths.dictionary_decode() for part in parts]
            paths = pa.concat_arrays(texts).dictionary_encode()
        buckets = self._job.files.config.buckets
        assert buckets is not None
        return in_place(rows, paths, buckets)

    def _arrived(self, batch: pa.RecordBatch) -> Arrived:
        buckets = np.asarray(batch.column(BUCKET))
        places = np.asarray(batch.column(PLACE))
        shaped = self._job.shaped(batch.drop_columns([BUCKET, PLACE]))
        if (odd := buckets == NO_BUCKET).any():
            _refuse_odd_keys(shaped.keys.filter(pa.array(odd)))
        self._refuse_other_buckets(shaped.keys, buckets)
        return Arrived(shaped.rows, shaped.keys, shaped.paths, buckets, places)

    def _refuse_other_buckets(self, keys: pa.StringArray, buckets: npt.NDArray[np.int32]) -> None:
        """A row in the wrong bucket would be there twice one day: some rows of each batch are
        hashed again."""
        known = self._job.files.config.buckets
        assert known is not None
        some = np.linspace(0, len(keys) - 1, min(len(keys), _CHECKED_ROWS), dtype=np.int64)
        again = bucket_ids(keys.take(pa.array(some)), known.hash_fields, known.count)
        if (np.asarray(again) != buckets[some]).any():
            raise InvalidRequestError(
                "rows cannot be placed by Spark",
                why="it puts some keys into other buckets than pyhudi does",
                next_step="Report this with the types of the record key; rows as Arrow can be"
                " written",
            )


class RewriteTask(Task):
    """Writes rows anew that lie in files of the same write: numbers of places in."""

    def __init__(
        self,
        storage: Storage,
        requested: str,
        job: GroupJob,
        files: Mapping[Place, tuple[str, ...]],
        *,
        reports: bool,
    ) -> None:
        super().__init__(storage, requested, reports=reports)
        self._job = job
        self._files = tuple(files.items())

    def stats(self, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
        layout = self._job.files.spec.layout
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        for number in numbers:
            place, paths = self._files[number]
            yield from self._job.write(place, written_rows(self._storage, layout, paths))


class DeleteWhereTask(Task):
    """Deletes what a read finds: numbers of splits in, each of whole file slices."""

    def __init__(
        self,
        storage: Storage,
        requested: str,
        files: Files,
        read: tuple[ReadSpec, tuple[Split, ...]],
        *,
        unconditional: bool,
        reports: bool,
    ) -> None:
        super().__init__(storage, requested, reports=reports)
        self._files = files
        self._spec, self._splits = read
        self._unconditional = unconditional

    def stats(self, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        for number in numbers:
            for read in self._splits[number].reads:
                yield from self._deleted(read)

    def _deleted(self, read: SliceRead) -> Iterator[WriteStat]:
        found = list(read_split(self._storage, self._spec, Split((read,))))
        if not found:
            return
        keys, config = pa.Table.from_batches(found), self._files.config
        groups = gathered_deletes(keys, config, unconditional=self._unconditional).groups
        for place in sorted(groups):
            yield from self._files.deletes(place, groups[place])


class Unwatched:
    """In the place of a task's progress, where nobody wants to know it."""

    def add(self, *, rows: int = 0, bytes: int = 0, files: int = 0) -> None:
        """Nothing is counted."""

    def end(self) -> None:
        """Nothing is told."""


def _refuse_odd_keys(keys: pa.StringArray) -> None:
    raise InvalidRequestError(
        f"{len(keys)} rows have a record key that cannot be placed by Spark",
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
    return json.dumps({"kind": type(error).__name__, **parts})


def decode_refusal(text: str) -> HudiError:
    parts = json.loads(text)
    kind = KINDS.get(parts.pop("kind"), InvalidRequestError)
    return kind(parts.pop("what"), **parts)
