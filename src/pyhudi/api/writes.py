"""The verbs that write, for rows from any source.

Each verb is an intent (`write.intent`) and the rows it is for. Spark frames run as a Spark job,
everything else runs in this process; the table and the result are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from pyhudi.api.inputs import is_spark_frame, record_batches
from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.column_owners import is_joined
from pyhudi.format.table.table_config import TableConfig
from pyhudi.plan.predicate.parser import Where, is_expression
from pyhudi.plan.predicate.tree import Predicate
from pyhudi.progress import Listener, ProgressBoard
from pyhudi.services.resizing.before_write import finish_before_write
from pyhudi.session.open import OpenTable
from pyhudi.session.session import TableSession
from pyhudi.settings import SchemaMode
from pyhudi.table.rows.named_partitions import named_partitions
from pyhudi.table.rows.schema_mode import parse_schema_mode
from pyhudi.table.schema import META_COLUMNS
from pyhudi.write.begin import data_schema, ready
from pyhudi.write.column_owners import OwnedColumns, owned_columns, ranked, refuse_joined
from pyhudi.write.executor import Executor
from pyhudi.write.intent import (
    Found,
    Keys,
    NewValues,
    PartialRows,
    PartitionScope,
    Reads,
    WholeRows,
    WriteIntent,
)
from pyhudi.write.local import LocalExecutor
from pyhudi.write.plan import refuse_bad_predicate
from pyhudi.write.result import WriteResult
from pyhudi.write.schemas import row_schema
from pyhudi.write.write import write
from pyhudi.write.write_id import finished

OVERWRITE_ALL, OVERWRITE_TOUCHED = "all", "touched"

#: The source of a write without rows.
_NO_ROWS = object()


class Writing:
    """Writes of one table."""

    def __init__(
        self,
        table: OpenTable,
        listener: Listener | None,
        after: Callable[[WriteResult, Any], None] | None = None,
    ) -> None:
        """`after` is called after each write, with its result and its Spark session, if any."""
        self._table = table
        self._listener = listener
        self._after = after

    # -- rows

    def upsert(
        self,
        rows: Any,
        write_id: str | None,
        owner: str | None = None,
        schema_mode: str | None = None,
    ) -> WriteResult:
        source, mode = source_of(rows), self._mode(schema_mode)
        refuse_owned_mode(owner, schema_mode)
        with self._opened() as opened:
            if owner is not None:
                result = self._upsert_parts(opened, source, write_id, owner)
            else:
                result = opened.write(upsert_intent(opened.session, write_id), source, mode)
        return self._followed(result, _spark_of(source))

    def _upsert_parts(
        self, opened: _Opened, source: Any, write_id: str | None, owner: str
    ) -> WriteResult:
        # Owners that use one write id still write different things. And a write that completed
        # before its owner released the columns has completed.
        if isinstance(owner, str) and isinstance(write_id, str) and write_id:
            write_id = json.dumps([owner, write_id])
            earlier = WriteIntent(operation="UPSERT", write_id=write_id)
            if (done := finished(opened.session, earlier)) is not None:
                return done
        intent, source = part_intent(opened.session, source, owner, write_id)
        return opened.write(intent, source)

    def append(
        self,
        rows: Any,
        write_id: str | None,
        *,
        require_new_keys: bool,
        schema_mode: str | None = None,
    ) -> WriteResult:
        source, mode = source_of(rows), self._mode(schema_mode)
        intent = WriteIntent(
            operation="INSERT",
            change=WholeRows(loads=True),
            reads=Reads.KEYS if require_new_keys else Reads.NOTHING,
            write_id=write_id,
        )
        with self._opened() as opened:
            refuse_joined(opened.config, "append")
            result = opened.write(intent, source, mode)
        return self._followed(result, _spark_of(source))

    def update(self, rows: Any, columns: Sequence[str], write_id: str | None) -> WriteResult:
        source = source_of(rows)
        with self._opened() as opened:
            intent = update_intent(opened.session, columns, write_id)
            result = opened.write(intent, source)
        return self._followed(result, _spark_of(source))

    # -- deletes

    def delete(
        self, what: Any, write_id: str | None, *, unconditional: bool, spark: Any
    ) -> WriteResult:
        if isinstance(what, str | Predicate) or is_expression(what):
            return self._delete_found(what, write_id, unconditional=unconditional, spark=spark)
        source, names = _source_and_names(what)
        given = frozenset(name for name in names if name not in META_COLUMNS)
        with self._opened() as opened:
            # All rows of a joined table have one rank: a delete removes whatever was written before
            # it.
            is_all = unconditional or is_joined(opened.config)
            # The caller names the keys, so other writes do not change what is deleted. On a joined
            # table an owner's part must not come behind a delete that the owner has not seen.
            intent = WriteIntent(
                operation="DELETE",
                change=Keys(given, is_all),
                reads=Reads.ROWS if is_joined(opened.config) else Reads.LOCATIONS,
                write_id=write_id,
            )
            result = opened.write(intent, source)
        return self._followed(result, _spark_of(source))

    def _delete_found(
        self, where: Where, write_id: str | None, *, unconditional: bool, spark: Any
    ) -> WriteResult:
        with self._opened() as opened:
            is_all = unconditional or is_joined(opened.config)
            found = Found(where, is_all)
            refuse_bad_predicate(opened.session, found)
            # Which rows a predicate finds depends on other writes.
            intent = WriteIntent(
                operation="DELETE", change=found, reads=Reads.ROWS, write_id=write_id
            )
            result = opened.write(intent, iter(()) if spark is None else spark)
        return self._followed(result, spark)

    # -- partitions

    def overwrite(
        self, rows: Any, partitions: Any, write_id: str | None, schema_mode: str | None = None
    ) -> WriteResult:
        source, mode = source_of(rows), self._mode(schema_mode)
        with self._opened() as opened:
            intent, source = overwrite_intent(opened.session, source, partitions, write_id)
            result = opened.write(intent, source, mode)
        return self._followed(result, _spark_of(source))

    def delete_partitions(self, partitions: Any, write_id: str | None) -> WriteResult:
        with self._opened() as opened:
            named = named_partitions(partitions, opened.config, opened.schema)
            intent = WriteIntent(
                operation="DELETE_PARTITION", replaces=PartitionScope(named), write_id=write_id
            )
            result = opened.write(intent, _NO_ROWS)
        return self._followed(result, None)

    # -- around each verb

    def _mode(self, given: str | None) -> SchemaMode:
        return self._table.settings.schema_mode if given is None else parse_schema_mode(given)

    @contextmanager
    def _opened(self) -> Iterator[_Opened]:
        """Open the table for one write, alone among the threads that share it."""
        table = self._table
        with table.exclusive, ProgressBoard(self._listener, table.world) as board:
            yield _Opened(table, ready(table), board)

    def _followed(self, result: WriteResult, spark: Any) -> WriteResult:
        """Run the services that follow a write. Other threads may write meanwhile."""
        if self._after is not None:
            self._after(result, spark)
        return result


@dataclass(frozen=True, slots=True)
class _Opened:
    """A table that is open for one write."""

    table: OpenTable
    session: TableSession
    board: ProgressBoard

    @property
    def config(self) -> TableConfig:
        return self.session.config

    @property
    def schema(self) -> pa.Schema:
        """The table's columns as the last completed write left them, without meta columns."""
        return data_schema(self.session)

    def write(
        self, intent: WriteIntent, source: Any, mode: SchemaMode = SchemaMode.STRICT
    ) -> WriteResult:
        """Write batches of rows, a Spark frame, or what a Spark session finds by a predicate.

        `mode` is for whole rows.
        """
        try:
            intent, executor = self._prepared(intent, source, mode)
        except InvalidRequestError:
            # A repeated call brings the rows that it brought, and the columns may have changed.
            if (done := finished(self.session, intent)) is None:
                raise
            return done
        return write(self.table, self.session, intent, executor, self.board, finish_before_write)

    def _prepared(
        self, intent: WriteIntent, source: Any, mode: SchemaMode
    ) -> tuple[WriteIntent, Executor]:
        """Return the intent with the schema of the rows, and what writes them."""
        intent, source = with_row_schema(self.session, intent, source, mode)
        if source is _NO_ROWS or isinstance(source, Iterator):
            source = iter(()) if source is _NO_ROWS else source
            return intent, LocalExecutor(self.session, intent, source, self.board)
        from pyhudi.spark.write import SparkExecutor  # optional: it needs PySpark

        frame, spark = (source, _spark_of(source)) if is_spark_frame(source) else (None, source)
        return intent, SparkExecutor(self.session, intent, spark, frame, self.board)


# ---- what verbs mean, also to a preview (`api.previews`)


def upsert_intent(session: TableSession, write_id: str | None = None) -> WriteIntent:
    refuse_joined(session.config, "upsert of whole rows")
    return WriteIntent(operation="UPSERT", write_id=write_id)


def part_intent(
    session: TableSession, source: Any, owner: str, write_id: str | None = None
) -> tuple[WriteIntent, Any]:
    """Return the intent of an upsert by one owner, and the source, whose columns are checked."""
    owned = owned_columns(session.storage, session.config, data_schema(session), owner)
    intent = WriteIntent(
        operation="UPSERT",
        change=PartialRows(owned.part),
        owned=owned.relied_on,
        write_id=write_id,
    )
    if is_spark_frame(source):
        owned.refuse_other_columns(source.columns)
        return intent, source
    return intent, _checked(source, owned)


def update_intent(
    session: TableSession, columns: Sequence[str], write_id: str | None = None
) -> WriteIntent:
    refuse_joined(session.config, "update")
    _refuse_unfit_columns(columns, session.config, data_schema(session))
    return WriteIntent(
        operation="UPSERT",
        change=NewValues(frozenset(columns)),
        reads=Reads.ROWS,
        write_id=write_id,
    )


def overwrite_intent(
    session: TableSession, source: Any, partitions: Any, write_id: str | None = None
) -> tuple[WriteIntent, Any]:
    """Return the intent of an overwrite, and the source, with the rank of rows of joined tables."""
    is_all = partitions == OVERWRITE_ALL
    intent = WriteIntent(
        operation="INSERT_OVERWRITE_TABLE" if is_all else "INSERT_OVERWRITE",
        replaces=PartitionScope(_named(partitions, session), is_whole_table=is_all),
        write_id=write_id,
    )
    return intent, _with_rank(source) if is_joined(session.config) else source


def with_row_schema(
    session: TableSession, intent: WriteIntent, source: Any, mode: SchemaMode
) -> tuple[WriteIntent, Any]:
    """Return the intent with the schema of the rows, and the source, of which all is left."""
    rows = None
    if isinstance(intent.change, WholeRows) and source is not _NO_ROWS:
        rows, source = _with_schema(source)
    return replace(intent, rows=row_schema(session, rows, mode)), source


# ---- sources of rows


def source_of(rows: Any) -> Any:
    """Return a Spark frame as it is, and anything else as an iterator of batches."""
    return rows if is_spark_frame(rows) else record_batches(rows)


def _with_schema(source: Any) -> tuple[pa.Schema, Any]:
    """Return the Arrow schema of the rows, and the source, of which nothing was used up."""
    if is_spark_frame(source):
        from pyhudi.spark.types import empty_batch  # optional: it needs PySpark

        return empty_batch(source.schema).schema, source
    first = next(source)
    return first.schema, chain([first], source)


def _spark_of(source: Any) -> Any:
    return source.sparkSession if is_spark_frame(source) else None


def _source_and_names(rows: Any) -> tuple[Any, Sequence[str]]:
    """Return the source, and the names of its columns."""
    if is_spark_frame(rows):
        return rows, rows.columns
    batches = record_batches(rows)
    first = next(batches)
    return chain([first], batches), first.schema.names


def refuse_owned_mode(owner: str | None, schema_mode: str | None) -> None:
    """Raise InvalidRequestError if an owner's rows are to evolve the schema."""
    if owner is not None and schema_mode not in (None, SchemaMode.STRICT):
        raise InvalidRequestError(
            f"schema_mode={schema_mode!r} cannot be used with owner={owner!r}",
            why="the rows of an owner have exactly the columns that it owns",
            next_step="Add columns with table.update_schema(), then declare their owner with"
            " table.alter.own_columns",
        )


def _with_rank(source: Any) -> Any:
    if not is_spark_frame(source):
        return map(ranked, source)
    from pyhudi.spark.write import ranked as ranked_frame  # optional: it needs PySpark

    return ranked_frame(source)


def _refuse_unfit_columns(columns: Any, config: TableConfig, schema: pa.Schema) -> None:
    """Raise InvalidRequestError unless these columns can be updated."""
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
        raise InvalidRequestError(
            f"columns={columns!r:.100} cannot be updated",
            why="they are not a list of names",
            next_step="Write columns=['a', 'b']",
        )
    finding = {*config.record_key_fields, *config.partition_fields}
    problems = {
        "the table has no such column": [n for n in columns if n not in schema.names],
        "record key and partition identify the row": [n for n in columns if n in finding],
    }
    for why, names in problems.items():
        if names:
            raise InvalidRequestError(
                f"column {names[0]!r} cannot be updated",
                why=why,
                next_step="Name other columns, or delete the row and upsert the new one",
            )
    if not columns:
        raise InvalidRequestError(
            "there is nothing to update",
            why="columns is empty",
            next_step="Name the columns whose values are new",
        )


def _named(partitions: Any, session: TableSession) -> frozenset[str] | None:
    if isinstance(partitions, str):
        if partitions in (OVERWRITE_ALL, OVERWRITE_TOUCHED):
            return None
        raise InvalidRequestError(
            f"partitions={partitions!r} is not known",
            why="it is 'all', 'touched' or a list of partitions",
            next_step=f"Write partitions=[{partitions!r}] for one partition",
        )
    return named_partitions(partitions, session.config, data_schema(session))


def _checked(batches: Iterator[pa.RecordBatch], owned: OwnedColumns) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        owned.refuse_other_columns(batch.schema.names)
        yield batch
