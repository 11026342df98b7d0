"""Writing through Spark 4's Python Data Source: log files, one for each task and file group.

Spark passes the partitions of the frame as they are. So a frame of many tasks makes many small
files. `table.upsert(df)`, which shuffles the rows of a bucket to one task, is faster; the commit
warns of this if there are many files. Operations that need all rows of a bucket, or of the table,
in one task are refused here, and the error names the verb for them.

Spark creates the writer once for each save, after it has computed what the frame depends on and
before it starts the tasks that write. The instant begins there. Spark then calls `write` in each
task, and at the end `commit` or `abort`, or both, if the commit fails.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource as api
from pyspark.sql.types import StructType

from pyhudi.conflict.early_strategies import by_tasks_alone, looks_of
from pyhudi.errors import ConflictError, HudiError, InvalidRequestError, UnavailableError
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.hudi_options.write_options import (
    MODE_WORDS,
    HudiWrite,
    Operation,
    parse_write_options,
)
from pyhudi.hudi_options.write_table import HEARTBEAT_INTERVAL
from pyhudi.services.compaction.run import LocalMerge
from pyhudi.services.inline import InlineUpkeep
from pyhudi.services.resizing.run import LocalChildren
from pyhudi.session.session import TableSession
from pyhudi.settings import Markers, WriteSettings
from pyhudi.spark.scan import refuse_other_release
from pyhudi.spark.types import empty_batch
from pyhudi.storage.objects.write_fence import raise_fence
from pyhudi.table.schema import META_COLUMNS
from pyhudi.version import __version__
from pyhudi.world import World, real_world
from pyhudi.write.begin import ready
from pyhudi.write.deletes import are_located
from pyhudi.write.detached import (
    DetachedWrite,
    abandon,
    begin,
    complete,
    renewing_heartbeat,
    run_task,
    stopped,
)
from pyhudi.write.files.spec import WriteOverError
from pyhudi.write.intent import Change, Keys, Reads, WholeRows, WriteIntent
from pyhudi.write.result import WriteResult
from pyhudi.write.row_shape import row_shape
from pyhudi.write.schemas import RowSchema, row_schema
from pyhudi.write.write_id import finished
from pyspark_pyhudi.address import parse_address
from pyspark_pyhudi.target import opened_table

#: pyhudi's own option: makes it safe to repeat a save.
WRITE_ID = "write_id"
#: pyhudi's own option: `false` leaves the services that are due to other processes.
UPKEEP = "upkeep"
#: More files than this for each file group, or in all, cause a warning.
_FILES_PER_GROUP = 4
_FILES = 1_000

_NO_PATH = (
    "Spark does not pass the location of a table of its catalog to a writer",
    "Write .save(path); in SQL, INSERT INTO ... WITH (path = 'path') ..., or insert into a"
    " temporary view USING pyhudi OPTIONS (path 'path')",
)

_OPERATIONS = {
    Operation.UPSERT: "UPSERT",
    Operation.APPEND: "INSERT",
    Operation.DELETE: "DELETE",
}


@dataclass(frozen=True)
class Written(api.WriterCommitMessage):
    """The result of a task: its files, or why its rows cannot be written."""

    stats: tuple[WriteStat, ...] = ()
    refusal: HudiError | None = None


class PyhudiWriter(api.DataSourceArrowWriter):
    """One save. It is sent to the tasks, and to the process that commits."""

    def __init__(self, options: dict[str, str], schema: StructType, *, overwrite: bool) -> None:
        address, others = parse_address(options, unless=_NO_PATH)
        write_id, upkeep = others.pop(WRITE_ID, None), _upkeep(others.pop(UPKEEP, None))
        save = parse_write_options(others)
        if overwrite:
            _refuse_overwriting(address.uri)
        _warn_of_what_needs_a_driver(save.settings)
        session = ready(opened_table(address, save, schema, real_world()))
        intent = _intent(save.operation, schema, write_id)
        # A repeated save brings the rows that it brought, and the columns may have changed.
        begun: DetachedWrite | WriteResult | None = finished(session, intent)
        if begun is None:
            intent = replace(intent, rows=_row_schema(session, save, schema))
            _refuse_unfit(session, intent, schema, address.uri)
            begun = begin(session, intent)
        self._uri = address.uri
        self._has_upkeep, self._left = upkeep, save.left_services
        self._release = __version__
        # None if an earlier save with this write id has completed.
        self._write = begun if isinstance(begun, DetachedWrite) else None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> api.WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None
        return self.written(iterator, task.partitionId(), real_world())

    def written(self, batches: Iterator[pa.RecordBatch], task: int, world: World) -> Written:
        """Write the rows of a task. As in `WriteTask`, a refusal is a result and not raised."""
        if self._write is None:
            return Written()
        write = self._write
        try:
            refuse_other_release(self._release)
            with renewing_heartbeat(write, world):
                return Written(tuple(run_task(write, task, batches)))
        except UnavailableError:
            raise
        except HudiError as error:
            if not isinstance(error, WriteOverError):
                raise_fence(write.storage, write.requested)
            return Written(refusal=error)

    def commit(self, messages: Sequence[api.WriterCommitMessage | None]) -> None:
        if self._write is None:
            return
        results = [message for message in messages if isinstance(message, Written)]
        if refusal := _first_refusal(results):
            raise stopped(self._write, real_world(), refusal)
        stats = [stat for result in results for stat in result.stats]
        table = self._write.table(real_world())
        written = complete(self._write, table, stats)
        _warn_of_many_files(stats, self._uri)
        if self._has_upkeep:
            InlineUpkeep(table, left=self._left).follow(written, LocalMerge, LocalChildren)

    def abort(self, messages: Sequence[api.WriterCommitMessage | None]) -> None:
        if self._write is not None:
            abandon(self._write, real_world())


def _upkeep(given: str | None) -> bool:
    """Return whether services that are due follow the save."""
    text = (given or "true").strip().lower()
    if text not in ("true", "false"):
        raise InvalidRequestError(
            f"{UPKEEP}={given!r:.100} is not known",
            why="it is 'true' or 'false'",
            next_step="Leave it out, or write 'false' to leave services to other processes. The"
            " policy is changed with table.alter.upkeep(...)",
        )
    return text == "true"


def _warn_of_what_needs_a_driver(settings: WriteSettings) -> None:
    """Warn once that only tasks can look, since the driver runs no pyhudi code beside a save."""
    looks = looks_of(settings.early_detection.strategy)
    others = [] if settings.markers is Markers.DIRECT else ["its markers are direct"]
    if looks is not None and not looks.by_task:
        others.append(f"its tasks look for other writes, by {by_tasks_alone(looks).name!r}")
    if others:
        warnings.warn(
            f"no process runs beside the tasks of a save, so {' and '.join(others)}", stacklevel=3
        )


def _first_refusal(results: Sequence[Written]) -> HudiError | None:
    """Return the reason, rather than the error of a task that stopped because of it."""
    refusals = [result.refusal for result in results if result.refusal is not None]
    reasons = [error for error in refusals if not isinstance(error, WriteOverError)]
    if refusals and not reasons:
        return ConflictError(
            "this save was rolled back by another writer",
            why="its tasks have not renewed its heartbeat for too long, or a later save has its"
            " write_id",
            next_step="Save again; nothing of it is visible. If tasks wait long for free cores of"
            f" the cluster, give all writers of the table a larger {HEARTBEAT_INTERVAL[0]}",
        )
    return next(iter(reasons), None)


def _warn_of_many_files(stats: Sequence[WriteStat], uri: str) -> None:
    files = len(stats)
    groups = len({(stat.partition_path, stat.file_id) for stat in stats})
    if files > _FILES_PER_GROUP * groups or (files > _FILES and files > groups):
        warnings.warn(
            f"this save wrote {files} log files for {groups} file groups, as each task writes its"
            " own, and every read merges them until they are compacted;"
            f" pyhudi.open_table({uri!r}).upsert(df) makes few files and is faster",
            stacklevel=2,
        )


# ---- what cannot be done this way


def _refuse_overwriting(uri: str) -> None:
    why = "it concerns rows that no task of this write sees"
    raise _refused('mode("overwrite")', why, uri, "table.overwrite(df, partitions='all')")


def _intent(operation: Operation, schema: StructType, write_id: str | None) -> WriteIntent:
    change: Change = WholeRows()
    reads = Reads.NOTHING
    if operation is Operation.DELETE:
        change = Keys(frozenset(n for n in schema.names if n not in META_COLUMNS))
        reads = Reads.LOCATIONS
    return WriteIntent(
        operation=_OPERATIONS[operation], change=change, reads=reads, write_id=write_id
    )


def _row_schema(session: TableSession, save: HudiWrite, schema: StructType) -> RowSchema:
    """Return the schema of the rows, by the mode that the options of the save choose."""
    if save.operation is Operation.DELETE:
        return row_schema(session)
    rows = empty_batch(schema).schema
    return row_schema(session, rows, save.settings.schema_mode, MODE_WORDS)


def _refuse_unfit(session: TableSession, intent: WriteIntent, schema: StructType, uri: str) -> None:
    """Refuse before the write begins what every task would refuse."""
    config, change = session.config, intent.change
    if not session.is_mor:
        verb = "table.delete(df)" if isinstance(change, Keys) else "table.upsert(df)"
        why = "on a copy-on-write table all rows of a bucket must be in one task"
        raise _refused("a copy-on-write table", why, uri, verb)
    assert intent.rows is not None
    row_shape(change, intent.rows, config).prepare(empty_batch(schema))
    if isinstance(change, Keys) and not are_located(change.columns, config, unconditional=False):
        why = "the frame lacks columns of the partition or the ordering, which must be looked up"
        raise _refused("this delete", why, uri, "table.delete(df)")


def _refused(what: str, why: str, uri: str, verb: str) -> InvalidRequestError:
    return InvalidRequestError(
        f'{what} cannot be written by df.write.format("pyhudi")',
        why=why,
        next_step=f"Write table = pyhudi.open_table({uri!r}) and {verb}",
    )
