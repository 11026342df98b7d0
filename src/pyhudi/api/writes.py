"""The verbs that write, for rows from anywhere.

Each verb is a plan (`write.plan`) and the rows it is for. Spark frames run as a Spark job,
everything else runs in this process; the table and its answer are the same.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from traceback import format_exc
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyhudi.api.inputs import is_spark_frame, record_batches
from pyhudi.api.scan import Scan
from pyhudi.api.services import Services
from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.column_owners import is_joined
from pyhudi.format.table.table_config import TableConfig
from pyhudi.plan.predicate.parser import is_expression
from pyhudi.plan.predicate.tree import Predicate
from pyhudi.services.maintenance import Upkeep
from pyhudi.table.rows.named_partitions import named_partitions
from pyhudi.table.schema import META_COLUMNS, PARTITION_PATH
from pyhudi.write.column_owners import Owned, owned_columns, ranked, refuse_joined
from pyhudi.write.deletes import (
    LocatedDeletes,
    given_keys,
    is_located,
    keyed_rows,
    looked_up,
    lookup_columns,
)
from pyhudi.write.intent import PartitionScope, Reads, WriteIntent
from pyhudi.write.local import LocalWriter
from pyhudi.write.plan import MakePlan, WritePlans
from pyhudi.write.result import WriteResult

if TYPE_CHECKING:
    from pyhudi.spark.write import SparkWrites

OVERWRITE_ALL, OVERWRITE_TOUCHED = "all", "touched"


class UpkeepWarning(UserWarning):
    """A table service that was to follow a write failed; the write did not."""


class Writing:
    """Writes of one table."""

    def __init__(self, writer: LocalWriter, read: Callable[..., Scan]) -> None:
        self._writer = writer
        self._read = read
        self._plans = WritePlans(writer)

    # -- rows

    def upsert(self, rows: Any, write_id: str | None, owner: str | None = None) -> WriteResult:
        if owner is not None:
            return self._upsert_parts(rows, write_id, owner)
        refuse_joined(self._writer.config, "upsert of whole rows")
        intent = WriteIntent(operation="UPSERT", write_id=write_id)
        if is_spark_frame(rows):
            return self._spark.rows(rows, intent, self._plans.upsert)
        return self._writer.write(record_batches(rows), intent)

    def _upsert_parts(self, rows: Any, write_id: str | None, owner: str) -> WriteResult:
        writer = self._writer
        # Owners that name their writes alike still write different things. And what was done
        # before its owner released the columns was done.
        if isinstance(owner, str) and isinstance(write_id, str) and write_id:
            write_id = json.dumps([owner, write_id])
            done = writer.finished(WriteIntent(operation="UPSERT", write_id=write_id))
            if done is not None:
                return done
        owned = owned_columns(writer.storage, writer.config, writer.schema, owner)
        intent = WriteIntent(operation="UPSERT", owned=owned.relied_on, write_id=write_id)
        if is_spark_frame(rows):
            owned.refuse_other_columns(rows.columns)
            make_plan: MakePlan = partial(self._plans.upsert_part, part=owned.part)
            return self._spark.columns(rows, owned.schema, intent, make_plan)
        return writer.write(_checked(record_batches(rows), owned), intent, owned.part)

    def append(self, rows: Any, write_id: str | None, *, require_new_keys: bool) -> WriteResult:
        refuse_joined(self._writer.config, "append")
        reads = Reads.KEYS if require_new_keys else Reads.NOTHING
        intent = WriteIntent(operation="INSERT", reads=reads, write_id=write_id)
        if is_spark_frame(rows):
            make_plan = self._plans.append_new if require_new_keys else self._plans.append
            return self._spark.rows(rows, intent, make_plan)
        batches = record_batches(rows)
        if require_new_keys:
            return self._writer.append_new(batches, intent)
        return self._writer.write(batches, intent)

    def update(self, rows: Any, columns: Sequence[str], write_id: str | None) -> WriteResult:
        refuse_joined(self._writer.config, "update")
        schema = self._update_schema(columns)
        make_plan: MakePlan = partial(self._plans.update, columns=frozenset(columns))
        intent = WriteIntent(operation="UPSERT", reads=Reads.ROWS, write_id=write_id)
        if is_spark_frame(rows):
            return self._spark.columns(rows, schema, intent, make_plan)
        batches = (_chosen(batch, schema) for batch in record_batches(rows))
        return self._writer.write_plan(batches, schema.names, intent, make_plan)

    def _update_schema(self, columns: Sequence[str]) -> pa.Schema:
        """The columns that an update must have: those that find the row, and the new values."""
        if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
            raise InvalidRequestError(
                f"columns={columns!r:.100} cannot be updated",
                why="they are not a list of names",
                next_step="Write columns=['a', 'b']",
            )
        config, schema = self._writer.config, self._writer.schema
        finding = {*config.record_key_fields, *config.partition_fields}
        problems = {
            "the table has no such column": [n for n in columns if n not in schema.names],
            "record key and partition say which row it is": [n for n in columns if n in finding],
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
                "nothing is to be updated",
                why="columns is empty",
                next_step="Name the columns whose values are new",
            )
        return pa.schema([f for f in schema if f.name in finding or f.name in columns])

    # -- deletes

    def delete(
        self, what: Any, write_id: str | None, *, unconditional: bool, spark: Any
    ) -> WriteResult:
        config = self._writer.config
        # All rows of a joined table have one rank: what a delete finds was there before it.
        unconditional = unconditional or is_joined(config)
        if is_spark_frame(what):
            return self._delete_frame(what, config, write_id, unconditional=unconditional)
        if isinstance(what, str | Predicate) or is_expression(what):
            keys = None
            self._read(where=what)  # an error in the predicate is told before anything begins
            if spark is not None:
                return self._spark.delete_where(
                    spark,
                    lambda: self._read(columns=lookup_columns(config), where=what).plan,
                    self._plans,
                    WriteIntent(operation="DELETE", reads=Reads.ROWS, write_id=write_id),
                    unconditional=unconditional,
                )
        else:
            keys = given_keys(record_batches(what), self._writer.schema, config)

        def find() -> LocatedDeletes:
            if keys is None:
                scan = self._read(columns=lookup_columns(config), where=what)
                found = scan.to_reader().read_all()  # `to_arrow` would show a progress of its own
            elif is_located(keys, config, unconditional=unconditional):
                found = keys
            else:
                rows = self._read(columns=lookup_columns(config)).to_batches()
                found = looked_up(keys, rows, config)
            return LocatedDeletes(found, unconditional)

        # What a predicate finds depends on what others write; keys are the caller's own. On a
        # joined table an owner's part must not come behind a delete that it does not know of.
        reads = Reads.ROWS if keys is None or is_joined(config) else Reads.PLACES
        intent = WriteIntent(operation="DELETE", reads=reads, write_id=write_id)
        return self._writer.delete(find, intent)

    def _delete_frame(
        self, frame: Any, config: TableConfig, write_id: str | None, *, unconditional: bool
    ) -> WriteResult:
        schema = self._writer.schema
        given = [name for name in frame.columns if name not in META_COLUMNS]
        located = keyed_rows(_empty(schema, given), schema, config)
        by_partition = PARTITION_PATH in located.column_names
        make_plan: MakePlan = partial(
            self._plans.delete,
            given=frozenset(given),
            is_located=is_located(located, config, unconditional=unconditional),
            unconditional=unconditional,
        )
        wanted = pa.schema([field for field in schema if field.name in given])
        reads = Reads.ROWS if is_joined(config) else Reads.PLACES
        intent = WriteIntent(operation="DELETE", reads=reads, write_id=write_id)
        return self._spark.columns(frame, wanted, intent, make_plan, by_partition=by_partition)

    # -- partitions

    def overwrite(self, rows: Any, partitions: Any, write_id: str | None) -> WriteResult:
        is_all = partitions == OVERWRITE_ALL
        replaces = PartitionScope(self._named(partitions), is_whole_table=is_all)
        intent = WriteIntent(
            operation="INSERT_OVERWRITE_TABLE" if is_all else "INSERT_OVERWRITE",
            replaces=replaces,
            write_id=write_id,
        )
        make_plan: MakePlan = partial(self._plans.overwrite, replaces=replaces)
        with_rank = is_joined(self._writer.config)
        if is_spark_frame(rows):
            if with_rank:
                rows = self._spark.ranked(rows)
            return self._spark.rows(rows, intent, make_plan)
        batches = record_batches(rows)
        if with_rank:
            batches = map(ranked, batches)
        return self._writer.write_plan(batches, None, intent, make_plan)

    def delete_partitions(self, partitions: Any, write_id: str | None) -> WriteResult:
        named = named_partitions(partitions, self._writer.config, self._writer.schema)
        replaces = PartitionScope(named)
        intent = WriteIntent(operation="DELETE_PARTITION", replaces=replaces, write_id=write_id)
        make_plan: MakePlan = partial(self._plans.overwrite, replaces=replaces)
        return self._writer.write_plan(iter(()), None, intent, make_plan)

    def _named(self, partitions: Any) -> frozenset[str] | None:
        if isinstance(partitions, str):
            if partitions in (OVERWRITE_ALL, OVERWRITE_TOUCHED):
                return None
            raise InvalidRequestError(
                f"partitions={partitions!r} is not known",
                why="it is 'all', 'touched' or a list of partitions",
                next_step=f"Write partitions=[{partitions!r}] for one partition",
            )
        return named_partitions(partitions, self._writer.config, self._writer.schema)

    @property
    def _spark(self) -> SparkWrites:
        from pyhudi.spark.write import SparkWrites  # optional: it needs PySpark

        return SparkWrites(self._writer)


def run_services_after(
    services: Services, upkeep: Upkeep, written: WriteResult, spark: Any = None
) -> None:
    """Run the table services that are due after a write. Their errors are warnings, because the
    write has succeeded.

    A caller that has warnings raised gets one in the place of the write's result, so each names
    the write.
    """
    after = f"after the write {written.instant}, which completed at {written.completed}"
    try:
        errors = services.run(upkeep, keep_going=True, spark=spark).errors
    except Exception:  # a fault of pyhudi's, reported in full
        warnings.warn(f"upkeep failed {after}: {format_exc()}", UpkeepWarning, stacklevel=2)
        return
    for name, error in errors:
        warnings.warn(f"{name} failed {after}: {error}", UpkeepWarning, stacklevel=2)


def _checked(batches: Iterator[pa.RecordBatch], owned: Owned) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        owned.refuse_other_columns(batch.schema.names)
        yield batch


def _chosen(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch without columns that the update leaves alone."""
    return batch.select([name for name in batch.schema.names if name in schema.names])


def _empty(schema: pa.Schema, names: Collection[str]) -> pa.RecordBatch:
    """No row of these columns; one that the table does not have is refused by who looks."""
    fields = [
        schema.field(name) if name in schema.names else pa.field(name, pa.null()) for name in names
    ]
    return pa.RecordBatch.from_pylist([], pa.schema(fields))
