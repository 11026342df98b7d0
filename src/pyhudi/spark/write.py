"""A write whose rows come from Spark: one job, evaluated once, whose results are write stats.

The job runs between begin and completion of the instant, as the local engine's work does. If it
fails or is cancelled, the instant is given up at once; tasks that still run find the fence closed
or the heartbeat gone, and what they wrote is removed with the rollback or swept up later.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from pyhudi.errors import ConflictError, HudiError, UnavailableError
from pyhudi.format.table.column_owners import RANK_COLUMN, ROW_RANK
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.plan.scan import ScanPlan
from pyhudi.spark.scan import split_bytes
from pyhudi.spark.shuffle import quoted, routed
from pyhudi.spark.types import empty_batch
from pyhudi.spark.worker_setup import worker_python
from pyhudi.spark.write_task import (
    KINDS,
    REFUSAL,
    RESULT_SCHEMA,
    STAT,
    DeleteWhereTask,
    RewriteTask,
    Task,
    WriteTask,
    decode_refusal,
    decode_stat,
)
from pyhudi.storage.objects.progress import JobProgress, clear_progress
from pyhudi.table.rows.input_rows import conformed
from pyhudi.table.schema import META_COLUMNS
from pyhudi.version import __version__
from pyhudi.write.files.spec import WriteOverError, WriteSpec
from pyhudi.write.intent import WriteIntent
from pyhudi.write.plan import MakePlan, WritePlans
from pyhudi.write.rebase import files_by_group
from pyhudi.write.result import WriteResult
from pyhudi.write.retry import Work
from pyhudi.write.writer import TableWriter

_CANCELLED = re.compile(r"SPARK_JOB_CANCELLED|OPERATION_CANCELED|OPERATION_CANCELLED")
_RAISED = re.compile(r"^(?:pyhudi\.errors\.)(\w+): (.+)$", re.MULTILINE)
_NOT_THERE = re.compile(
    r"No module named 'pyhudi|module 'pyhudi\S* has no attribute|"
    r"Can't get attribute '\w+' on <module 'pyhudi"
)


#: Rows that are written once more need no shuffle, so each task has some of the buckets.
REWRITE_TASKS_MAX = 200


class SparkWrites:
    """Runs write plans as Spark jobs."""

    def __init__(self, writer: TableWriter) -> None:
        self._writer = writer

    def rows(self, frame: DataFrame, intent: WriteIntent, make_plan: MakePlan) -> WriteResult:
        """Write whole rows: the table's columns, and Hudi's own, which are left out."""
        given = frame.schema
        conformed(empty_batch(given), self._writer.schema)
        if not set(META_COLUMNS).isdisjoint(given.names):
            frame = frame.drop(*META_COLUMNS)
        return self._write(frame, intent, make_plan)

    def columns(
        self,
        frame: DataFrame,
        schema: pa.Schema,
        intent: WriteIntent,
        make_plan: MakePlan,
        *,
        by_partition: bool = True,
    ) -> WriteResult:
        """Write what these columns say; the others are left alone."""
        frame = frame.selectExpr(*(quoted(n) for n in frame.columns if n in schema.names))
        conformed(empty_batch(frame.schema), schema)
        return self._write(frame, intent, make_plan, by_partition=by_partition)

    @staticmethod
    def ranked(frame: DataFrame) -> DataFrame:
        """Whole rows of a joined table, with the rank that all rows have."""
        return frame.withColumn(RANK_COLUMN, F.lit(ROW_RANK))

    def delete_where(
        self,
        session: SparkSession,
        plan_read: Callable[[], ScanPlan],
        plans: WritePlans,
        intent: WriteIntent,
        *,
        unconditional: bool,
    ) -> WriteResult:
        """Delete what a read finds, once the instant has begun, each slice where it is read."""

        def write(spec: WriteSpec) -> list[WriteStat]:
            plan = plan_read()
            splits = plan.splits(split_bytes(plan))
            task = DeleteWhereTask(
                self._writer.storage,
                spec.requested,
                plans.files(spec),
                (plan.spec, splits),
                unconditional=unconditional,
                reports=self._writer.board.is_watched,
            )
            if not splits:
                return []
            numbers = session.range(0, len(splits), 1, len(splits))
            return plans.opened(self._results(numbers, spec, task))

        def commit() -> WriteResult:
            self._writer.ready()
            return self._writer.commit(Work(intent, write, is_fenced=True))

        return self._writer.in_turn(commit, session)

    def _write(
        self,
        frame: DataFrame,
        intent: WriteIntent,
        make_plan: MakePlan,
        *,
        by_partition: bool = True,
    ) -> WriteResult:
        writer = self._writer
        brings_rows = intent.reads_nothing or intent.owned is not None

        def commit() -> WriteResult:
            config = writer.ready()
            now = writer.spec("")
            schema = now.layout.data

            def write(spec: WriteSpec) -> list[WriteStat]:
                plan = make_plan(spec)
                routing, salt = plan.job.files.routing, spec.requested
                rows = routed(frame, config, schema, routing, salt=salt, by_partition=by_partition)
                task = WriteTask(
                    writer.storage, spec.requested, plan.job, reports=writer.board.is_watched
                )
                return plan.finish(self._results(rows, spec, task))

            def rewrite(spec: WriteSpec, stats: Sequence[WriteStat]) -> list[WriteStat]:
                plan = make_plan(spec)
                routing, written = plan.job.files.routing, files_by_group(stats).items()
                files = {routing.successor(group): paths for group, paths in written}
                reports = writer.board.is_watched
                task = RewriteTask(writer.storage, spec.requested, plan.job, files, reports=reports)
                tasks = min(len(files), REWRITE_TASKS_MAX)
                numbers = frame.sparkSession.range(0, len(files), 1, max(tasks, 1))
                return plan.finish(self._results(numbers, spec, task))

            # Computing the input once more could give other rows: it is not for us to repeat.
            work = Work(
                intent,
                write,
                is_repeatable=False,
                is_fenced=True,
                schema=now.avro_schema,
                # A base file of a table without logs holds more rows than this write's.
                rewrite=rewrite if writer.is_mor and brings_rows else None,
            )
            return writer.commit(work)

        return writer.in_turn(commit, frame.sparkSession)

    def _results(self, rows: DataFrame, spec: WriteSpec, task: Task) -> list[WriteStat]:
        storage, board = self._writer.storage, self._writer.board
        board.follow(JobProgress(storage, spec.requested).load)
        try:
            return collected_stats(rows, spec.requested, task)
        finally:
            if board.is_watched:
                with suppress(HudiError):  # what stays is swept up
                    clear_progress(storage, spec.requested)


def collected_stats(
    rows: DataFrame, requested: str, task: Task, what: str = "the write"
) -> list[WriteStat]:
    """What the tasks of a job tell of the files they made; the error of one that could not."""
    try:
        with _cancelled_on_error(rows.sparkSession, f"pyhudi-{requested}"):
            results = rows.mapInArrow(task, RESULT_SCHEMA).collect()
    except Exception as error:  # cancelled, it is not even PySpark's
        if (told := _told(error, what, rows.sparkSession)) is error:
            raise
        raise told from error
    if refusals := [decode_refusal(row[REFUSAL]) for row in results if row[REFUSAL]]:
        raise _first(refusals)
    return [decode_stat(row[STAT]) for row in results]


@contextmanager
def _cancelled_on_error(session: SparkSession, tag: str) -> Iterator[None]:
    """Around a job: whatever ends it early, an interrupt of the caller's too, stops its tasks."""
    try:
        session.addTag(tag)
    except (AttributeError, RuntimeError, PySparkException):  # 3.5 has tags in Connect alone
        yield
        return
    try:
        yield
    except BaseException:
        with suppress(Exception):  # a session that is gone has no tasks
            session.interruptTag(tag)
        raise
    finally:
        with suppress(Exception):
            session.removeTag(tag)


def _first(refusals: list[HudiError]) -> HudiError:
    """The reason, rather than that other tasks stopped because of it."""
    reasons = [error for error in refusals if not isinstance(error, WriteOverError)]
    if reasons:
        return reasons[0]
    return ConflictError(
        "this write was given up by another writer",
        why="its driver gave no sign of life for too long, or a later write has its write_id",
        next_step="Write again, for nothing of it is visible",
    )


def _told(error: Exception, what: str, session: SparkSession) -> Exception:
    """What failed in a task of ours, in its own words; what failed elsewhere, as Spark says it."""
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
            why="its Spark job was",
            next_step="Nothing of it is visible; repeat it if that was not meant",
        )
    raised = _RAISED.search(text)
    if raised is None:
        return error
    kind = KINDS.get(raised[1], UnavailableError)
    return kind(
        f"tasks of {what} failed, and so did their repetitions",
        why=raised[2].strip().rstrip("."),
        next_step="Nothing of it is visible; repeat it when the cause is gone",
    )
