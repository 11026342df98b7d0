"""A planned read as a Spark DataFrame.

Slices without logs are read by Spark's own parquet scan, the fastest way, if it gives the same
rows: Spark can open the scheme, every file has the types of the read, and the files are not so many
that naming them one by one costs more than it saves. All other slices are read by pyhudi's tasks,
one for each split, which stream Arrow batches. Only public DataFrame operations are used, so this
runs on classic Spark, on a cluster and through Spark Connect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from pyhudi.errors import InvalidRequestError
from pyhudi.plan.scan import SPLIT_BYTES, ReadSpec, ScanPlan, SliceRead, Split
from pyhudi.read.slice import read_split
from pyhudi.spark.types import spark_schema
from pyhudi.spark.worker_setup import spare_modules
from pyhudi.storage.protocol import Storage
from pyhudi.table.schema import needs_promotion
from pyhudi.version import __version__

#: Above this many files Spark's listing of explicit paths costs more than our tasks
#: (`make bench ARGS=spark_paths` prints the measurement).
NATIVE_FILES_MAX = 250
#: How many footers are read to find out whether files have the types of the read.
_FOOTERS_MAX = 64

#: Enough splits for a busy cluster, none so small that starting a task costs more than its work.
_SPLITS_WANTED = 32
_SPLIT_BYTES_MIN = 24 * 1024 * 1024

#: The names of our schemes in Hadoop's file systems.
_HADOOP_SCHEMES = {"s3": "s3a", "gcs": "gs"}
#: Spark reads a path as a pattern if it contains one of these.
_PATTERN_CHARACTERS = frozenset("*?[]{}\\")


def spark_frame(
    storage: Storage,
    plan: ScanPlan,
    spark: SparkSession | None,
    native_schemes: Collection[str] = ("file",),
) -> DataFrame:
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise InvalidRequestError(
            "there is no Spark session",
            why="no session was passed and none is active",
            next_step="Pass one: scan.to_spark(spark)",
        )
    native, other = _divided(storage, plan, native_schemes)
    if not native:
        return _task_frame(session, storage, other)
    frame = _native_frame(session, storage, plan.spec, native)
    return frame.unionByName(_task_frame(session, storage, other)) if other.reads else frame


def _divided(
    storage: Storage, plan: ScanPlan, native_schemes: Collection[str]
) -> tuple[tuple[SliceRead, ...], ScanPlan]:
    """Return the reads for Spark's parquet scan, and the plan of the others."""
    able = storage.uri.partition(":")[0] in native_schemes and plan.spec.row_instants is None
    if not able or not _PATTERN_CHARACTERS.isdisjoint(storage.uri):
        return (), plan
    plain = [read for read in plan.reads if _is_plain(read)]
    instants = {read.slice.base_instant: read for read in plain}
    if len(plain) > NATIVE_FILES_MAX or len(instants) > _FOOTERS_MAX:
        return (), plan
    # All base files of an instant were written with one schema, so one footer is enough.
    same = {i for i, read in instants.items() if _has_types(storage, read, plan.spec)}
    native = tuple(read for read in plain if read.slice.base_instant in same)
    chosen = set(map(id, native))
    others = tuple(read for read in plan.reads if id(read) not in chosen)
    return native, replace(plan, reads=others)


def _is_plain(read: SliceRead) -> bool:
    base = read.slice.base
    if base is None or read.slice.logs or read.constants:
        return False
    return _PATTERN_CHARACTERS.isdisjoint(base.path)


def _has_types(storage: Storage, read: SliceRead, spec: ReadSpec) -> bool:
    assert read.slice.base is not None
    try:
        with storage.open(read.slice.base.path) as source:
            return not needs_promotion(pq.read_schema(source), spec.plain)
    except (pa.ArrowException, OSError, ValueError):
        return False  # the file is broken or gone; the task that reads it reports this


def _native_frame(
    session: SparkSession, storage: Storage, spec: ReadSpec, reads: tuple[SliceRead, ...]
) -> DataFrame:
    scheme, _, root = storage.uri.partition(":")
    prefix = f"{_HADOOP_SCHEMES.get(scheme, scheme)}:{root.rstrip('/')}"
    paths = [f"{prefix}/{read.slice.base.path}" for read in reads if read.slice.base is not None]
    # Dates are of the proleptic calendar. Without this option Spark raises when it finds old ones.
    reader = session.read.option("datetimeRebaseMode", "CORRECTED")
    frame = reader.schema(spark_schema(spec.plain)).parquet(*paths)
    if spec.predicate is not None:
        frame = frame.filter(spec.predicate.to_sql())
    return frame.select(*(f"`{name.replace('`', '``')}`" for name in spec.output.names))


def _task_frame(session: SparkSession, storage: Storage, plan: ScanPlan) -> DataFrame:
    splits = plan.splits(split_bytes(plan))
    schema = spark_schema(plan.spec.output)
    if not splits:
        return session.createDataFrame([], schema)
    numbers = session.range(0, len(splits), 1, len(splits))
    return numbers.mapInArrow(ReadTask(storage, plan.spec, splits), schema)


def split_bytes(plan: ScanPlan) -> int:
    """Return how large the splits of a plan should be, so that there are enough tasks."""
    total = sum(read.cost for read in plan.reads)
    return min(SPLIT_BYTES, max(_SPLIT_BYTES_MIN, total // _SPLITS_WANTED))


class ReadTask:
    """What Spark calls in its Python workers: numbers of splits in, their rows out."""

    def __init__(self, storage: Storage, spec: ReadSpec, splits: tuple[Split, ...]) -> None:
        self._storage = storage
        self._spec = spec
        self._splits = splits
        self._release = __version__

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        refuse_other_release(self._release)
        spare_modules()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_split(self._storage, self._spec, self._splits[number])


def refuse_other_release(driver: str) -> None:
    """Raise InvalidRequestError if driver and executor have different releases.

    Tasks and plans of two releases may not fit, and could give wrong rows.
    """
    if driver != __version__:
        raise InvalidRequestError(
            "an executor has another pyhudi than the driver",
            why=f"the executor has {__version__} and the driver has {driver}",
            next_step="Install the same release everywhere",
        )
