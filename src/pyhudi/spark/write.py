"""A write whose rows come from Spark: one job, evaluated once, whose results are write stats.

The job runs between begin and completion of the instant, as the local executor's work does. If it
fails or is cancelled, the instant is abandoned at once. Tasks that still run find the fence raised
or the heartbeat gone. The files they wrote are removed by the rollback, or swept later.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from types import MappingProxyType

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from pyhudi.commit.transaction import Lost
from pyhudi.conflict.announced import Met
from pyhudi.errors import ConflictError, HudiError, UnavailableError
from pyhudi.format.table.column_owners import RANK_COLUMN, ROW_RANK
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.progress import ProgressBoard
from pyhudi.session.session import TableSession
from pyhudi.spark.job_tag import cancel_tagged, tagged
from pyhudi.spark.marker_server import ServedPlan, serving
from pyhudi.spark.scan import split_bytes
from pyhudi.spark.shuffle import quoted, routed
from pyhudi.spark.types import empty_batch
from pyhudi.spark.worker_setup import worker_python
from pyhudi.spark.write_task import (
    KINDS,
    REFUSAL,
    RESULT_SCHEMA,
    STAT,
    DeleteFoundTask,
    RebaseTask,
    Task,
    WriteTask,
    decode_refusal,
    decode_stat,
)
from pyhudi.storage.objects.progress import JobProgress, clear_progress
from pyhudi.storage.objects.write_fence import load_reason, raise_fence
from pyhudi.version import __version__
from pyhudi.write.files.announcing import MetRivalError
from pyhudi.write.files.spec import WriteOverError, WriteSpec
from pyhudi.write.intent import Reads, WriteIntent
from pyhudi.write.plan import WritePlan
from pyhudi.write.rebase import files_by_group, rebased_logs
from pyhudi.write.row_shape import KeyShape, row_shape
from pyhudi.write.tasks import FoundDeletesTask
from pyhudi.write.watch import Watch

_CANCELLED = re.compile(r"SPARK_JOB_CANCELLED|OPERATION_CANCELED|OPERATION_CANCELLED")
_RAISED = re.compile(r"^(?:pyhudi\.errors\.)(\w+): (.+)$", re.MULTILINE)
_NOT_THERE = re.compile(
    r"No module named 'pyhudi|module 'pyhudi\S* has no attribute|"
    r"Can't get attribute '\w+' on <module 'pyhudi"
)


#: Rebased rows need no shuffle, so each task has some of the buckets.
REBASE_TASKS_MAX = 200


class SparkExecutor:
    """Runs write plans as Spark jobs."""

    is_fenced = True
    can_repeat = False  # computing the input again could give other rows
    buffered = None  # the rows are computed once, in the tasks
    partitions = ()
    sizes: Mapping[str, float] = MappingProxyType({})

    def __init__(
        self,
        session: TableSession,
        intent: WriteIntent,
        spark: SparkSession,
        frame: DataFrame | None,
        board: ProgressBoard,
    ) -> None:
        """Take the frame of the write's rows, if it has any.

        Raise InvalidRequestError if the frame's columns are not those that the write needs.
        """
        self._intent = intent
        self._board = board
        self._storage, self._config = session.storage, session.config
        self._settings, self._world = session.settings, session.world
        assert intent.rows is not None
        # On a table without logs, a base file holds more rows than this write's.
        brings_all = intent.adds_rows and intent.reads is Reads.NOTHING
        self.can_rebase = session.is_mor and brings_all
        self._spark = spark
        self._shape = row_shape(intent.change, intent.rows, session.config)
        self._frame = frame
        if frame is not None:
            columns = self._shape.columns(frame.columns)
            if len(columns) < len(frame.columns):
                self._frame = frame = frame.selectExpr(*map(quoted, columns))
            self._shape.prepare(empty_batch(frame.schema))

    def run(self, plan: WritePlan, watch: Watch) -> list[WriteStat] | Lost:
        """Run the tasks as a job; stop it if the write is lost, or refused by a task."""
        storage, requested = self._storage, plan.spec.requested

        def stop_tasks(met: Met | None) -> None:
            served.stop(met)
            with suppress(HudiError):  # the jobs end all the same, some files later
                raise_fence(storage, requested)
            cancel_tagged(self._spark, job_tag(requested))

        with self._serving(plan) as served, watch.beside(stop_tasks, served.announced) as lost:
            try:
                return self._run(served.plan)
            except Exception as error:
                if (found := lost()) is not None:
                    return found
                if (refusal := self._refusal(requested)) is not None:
                    raise refusal from error
                raise

    def _serving(self, plan: WritePlan) -> AbstractContextManager[ServedPlan]:
        return serving(plan, self._settings, self._spark, self._world)

    def _refusal(self, requested: str) -> HudiError | None:
        """Return why a task refused its rows, if the job was stopped because of that."""
        try:
            reason = load_reason(self._storage, requested)
            refusal = decode_refusal(reason.decode()) if reason else None
            if isinstance(refusal, MetRivalError):
                _ = refusal.met  # what is in storage may be anything
            return refusal
        except (HudiError, ValueError, KeyError, TypeError, AttributeError):
            return None  # the job's own error is reported

    def _run(self, plan: WritePlan) -> list[WriteStat]:
        spec, task = plan.spec, plan.task
        reports = self._board.is_watched
        if isinstance(task, FoundDeletesTask):
            splits = task.scan.splits(split_bytes(task.scan))
            if not splits:
                return []
            numbers = self._spark.range(0, len(splits), 1, len(splits))
            return self._results(numbers, spec, DeleteFoundTask(task, splits, reports=reports))
        assert self._frame is not None
        rows = routed(
            self._frame,
            self._config,
            spec.whole_layout.data,
            plan.routing,
            salt=spec.requested,
            by_partition=not isinstance(self._shape, KeyShape) or self._shape.by_partition,
        )
        return self._results(rows, spec, WriteTask(task, reports=reports))

    def rebase(self, plan: WritePlan, stats: Sequence[WriteStat]) -> list[WriteStat]:
        assert not isinstance(plan.task, FoundDeletesTask)
        routing, written = plan.routing, files_by_group(stats)
        # Where a partition was resized meanwhile, rows of one file group belong to several by now.
        # The driver places them: its names are those of a task that has the whole partition.
        resized = {g.partition for g in written if not routing.has_successor(g)}
        placed = [stat for stat in stats if (stat.partition_path or "") in resized]
        results = list(self._placed(plan, placed))
        kept = ((g, paths) for g, paths in written.items() if g.partition not in resized)
        files = {routing.successor(group): paths for group, paths in kept}
        if not files:
            return results
        numbers = self._spark.range(0, len(files), 1, min(len(files), REBASE_TASKS_MAX))
        with self._serving(plan) as served:
            assert not isinstance(served.plan.task, FoundDeletesTask)
            task = RebaseTask(served.plan.task, files, reports=self._board.is_watched)
            return results + self._results(numbers, plan.spec, task)

    def _placed(self, plan: WritePlan, stats: Sequence[WriteStat]) -> Iterator[WriteStat]:
        if stats:
            for stat in rebased_logs(plan, stats, self._settings.buffer_bytes_max):
                size = stat.total_write_bytes or 0
                self._board.add(rows=stat.rows_written, bytes=size, files=1)
                yield stat

    def _results(self, rows: DataFrame, spec: WriteSpec, task: Task) -> list[WriteStat]:
        storage, board = self._storage, self._board
        board.follow(JobProgress(storage, spec.requested).load)
        try:
            return collected_stats(rows, spec.requested, task)
        finally:
            if board.is_watched:
                with suppress(HudiError):  # what remains is swept
                    clear_progress(storage, spec.requested)


def ranked(frame: DataFrame) -> DataFrame:
    """Return whole rows of a joined table, with the rank that all rows have."""
    return frame.withColumn(RANK_COLUMN, F.lit(ROW_RANK))


def job_tag(requested: str) -> str:
    return f"pyhudi-{requested}"


def collected_stats(
    rows: DataFrame, requested: str, task: Task, what: str = "the write"
) -> list[WriteStat]:
    """Run a job; return the stats of the files that its tasks created, or raise a task's error."""
    try:
        with tagged(rows.sparkSession, job_tag(requested)):
            results = rows.mapInArrow(task, RESULT_SCHEMA).collect()
    except Exception as error:  # a cancelled job raises an error that may not even be PySpark's
        if (reported := _task_error(error, what, rows.sparkSession)) is error:
            raise
        raise reported from error
    if refusals := [decode_refusal(row[REFUSAL]) for row in results if row[REFUSAL]]:
        raise _first(refusals)
    return [decode_stat(row[STAT]) for row in results]


def _first(refusals: list[HudiError]) -> HudiError:
    """Return the reason, rather than the error of a task that stopped because of it."""
    reasons = [error for error in refusals if not isinstance(error, WriteOverError)]
    if reasons:
        return reasons[0]
    return ConflictError(
        "this write was rolled back by another writer",
        why="its driver has not renewed its heartbeat for too long, or a later write has its"
        " write_id",
        next_step="Write again; nothing of it is visible",
    )


def _task_error(error: Exception, what: str, session: SparkSession) -> Exception:
    """Return the error of a task of ours as the task raised it, and any other error as it is."""
    text = str(error)
    if _NOT_THERE.search(text):
        return UnavailableError(
            "the executors do not have this pyhudi",
            why=f"their Python, {worker_python(session)}, cannot load it, or has another release;"
            f" this process runs {sys.executable} with pyhudi {__version__}",
            next_step="Set PYSPARK_PYTHON to a Python that has this release on every executor, in"
            " local mode to this process's own, or install it there",
        )
    if _CANCELLED.search(text):
        return UnavailableError(
            f"{what} was cancelled",
            why="its Spark job was cancelled",
            next_step="Repeat it if that was not intended; nothing of it is visible",
        )
    raised = _RAISED.search(text)
    if raised is None:
        return error
    kind = KINDS.get(raised[1], UnavailableError)
    return kind(
        f"tasks of {what} failed in every attempt",
        why=raised[2].strip().rstrip("."),
        next_step="Repeat it when the cause is gone; nothing of it is visible",
    )
