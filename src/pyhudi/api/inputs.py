"""What a caller may pass: rows, addresses, schemas and settings, in all their forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime, tzinfo
from enum import StrEnum
from itertools import chain
from os import PathLike, fspath
from typing import Any, TypeVar

import pyarrow as pa

from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.bucket_config import Buckets, SimpleBuckets
from pyhudi.plan.table_definition import legal_table_name
from pyhudi.plan.upkeep import Upkeep
from pyhudi.settings import WriteSettings
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.table.schema import META_COLUMNS
from pyhudi.timeline.instant_time import timeline_time
from pyhudi.wording import with_article
from pyhudi.write.result import WriteResult

#: A point of the timeline; for a write, its completion.
Time = str | date | datetime | WriteResult

#: Arrow's name for the index of a pandas frame, if it has no name.
_INDEX = "__index_level_"
#: Arrow passes no schema with more between libraries.
_LEVELS_MAX = 62
_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)


def is_spark_frame(rows: Any) -> bool:
    """True if the rows are a Spark frame, classic or Connect. Spark is not imported for this."""
    kinds = ((kind.__module__, kind.__name__) for kind in type(rows).__mro__)
    return any(module.startswith("pyspark.sql") and name == "DataFrame" for module, name in kinds)


def record_batches(rows: Any) -> Iterator[pa.RecordBatch]:
    """Return the batches of anything that has Arrow's stream protocol."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if not hasattr(rows, "__arrow_c_stream__"):
        raise InvalidRequestError(
            f"{with_article(type(rows).__name__)} cannot be written",
            why="it has no __arrow_c_stream__, by which rows are passed",
            next_step="Give an Arrow table, a Spark, pandas or Polars frame, or a DuckDB relation",
        )
    return _read(rows)


def _read(rows: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(schema := getattr(rows, "schema", None), pa.Schema):
        _refuse_deep(schema)
    try:
        reader = pa.RecordBatchReader.from_stream(rows)
        # A frame without rows may have no batch at all. Its columns are checked all the same.
        first = next(reader, None)
        head = _without_rows(reader.schema) if first is None else first
        for batch in chain([head], reader):
            # What pandas stores of a frame's index is not a column of the user's.
            index = [name for name in batch.schema.names if name.startswith(_INDEX)]
            yield batch.drop_columns(index) if index else batch
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _unreadable(rows, "rows", error) from error


def _refuse_deep(schema: pa.Schema) -> None:
    """Raise InvalidRequestError for a column that Arrow would refuse without its name."""
    for column in schema:
        types, levels = [column.type], 0
        while types := [type_.field(n).type for type_ in types for n in range(type_.num_fields)]:
            levels += 1
            if levels > _LEVELS_MAX:
                raise InvalidRequestError(
                    f"column {column.name!r} cannot be stored",
                    why=f"it is more than {_LEVELS_MAX} levels deep",
                    next_step="Flatten it",
                )


def _unreadable(frame: Any, what: str, error: Exception) -> InvalidRequestError:
    return InvalidRequestError(
        f"the {what} of {with_article(type(frame).__name__)} cannot be read",
        why=(str(error).strip().splitlines() or ["no reason given"])[0].rstrip("."),
        next_step="Give every column one type, and rows that can be converted to Arrow",
    )


def _without_rows(schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.nulls(0, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def storage_at(uri: Any, options: Any) -> Storage:
    if options is not None and not isinstance(options, Mapping):
        raise InvalidRequestError(
            "storage_options cannot be used",
            why=f"it is {with_article(type(options).__name__)}, not a mapping of names to values",
            next_step="Give a dictionary",
        )
    return open_storage(table_address(uri), options)


def table_address(uri: Any) -> str:
    if isinstance(uri, PathLike):
        uri = fspath(uri)
    if not isinstance(uri, str):
        raise InvalidRequestError(
            f"{uri!r:.100} is not the address of a table",
            why="it is neither text nor a path",
            next_step="Give a path or a URI",
        )
    return uri


def table_name(uri: Any) -> str:
    """Return the last part of the address, made a legal table name."""
    return legal_table_name(table_address(uri).rstrip("/").rpartition("/")[2])


def parse_schema(given: Any) -> pa.Schema:
    """Return the user's columns of a schema or a frame. No rows of a frame are read."""
    found = _schema_of(given)
    # As in rows that are written: without a frame's unnamed index and Hudi's five columns.
    dropped = {name for name in found.names if name.startswith(_INDEX)} | {*META_COLUMNS}
    return pa.schema([field for field in found if field.name not in dropped])


def _schema_of(given: Any) -> pa.Schema:
    if isinstance(given, pa.Schema):
        return given
    if isinstance(getattr(given, "schema", None), pa.Schema):  # Arrow's own, and a scan
        return given.schema
    if hasattr(given, "__arrow_c_schema__"):
        return pa.schema(given)
    if is_spark_frame(given):
        given = given.schema
    if type(given).__module__ == "pyspark.sql.types" and type(given).__name__ == "StructType":
        from pyhudi.spark.types import arrow_schema  # optional: it needs PySpark

        return arrow_schema(given)
    if hasattr(given, "__arrow_c_stream__"):
        return _frame_schema(given)
    raise InvalidRequestError(
        f"{with_article(type(given).__name__)} is not a schema",
        why="it has neither __arrow_c_schema__ nor __arrow_c_stream__",
        next_step="Give a pyarrow.Schema, or a frame of Arrow, pandas, Polars or Spark",
    )


def _frame_schema(frame: Any) -> pa.Schema:
    try:
        if type(frame).__module__.startswith("pandas."):
            # Pandas columns of Python objects have the type of their objects.
            return pa.Schema.from_pandas(frame)
        if type(frame).__module__.startswith("polars."):
            frame = frame.head(0)
        return pa.RecordBatchReader.from_stream(frame).schema
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _unreadable(frame, "columns", error) from error


def parse_buckets(given: int | Buckets | None) -> Buckets | None:
    """Return the buckets; a number means `SimpleBuckets` of that number."""
    if given is None or isinstance(given, Buckets):
        return given
    if isinstance(given, bool) or not isinstance(given, int):
        raise InvalidRequestError(
            f"buckets={given!r:.100} cannot be used",
            why="it is neither a whole number nor a SimpleBuckets or ConsistentBuckets",
            next_step="Write buckets=8, or buckets=pyhudi.ConsistentBuckets()",
        )
    return SimpleBuckets(given)


def checked_limit(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise InvalidRequestError(
            f"limit={limit!r:.100} cannot be used",
            why="it is not a number of rows",
            next_step="Give a whole number, 0 or more, of any size",
        )
    return limit


def parse_settings(given: WriteSettings | None) -> WriteSettings:
    if given is not None and not isinstance(given, WriteSettings):
        raise InvalidRequestError(
            f"write_settings={given!r:.100} cannot be used",
            why="it is not a WriteSettings",
            next_step="Write write_settings=pyhudi.WriteSettings(...)",
        )
    return given or WriteSettings()


def parse_upkeep(given: Upkeep | None) -> Upkeep | None:
    if given is not None and not isinstance(given, Upkeep):
        raise InvalidRequestError(
            f"upkeep={given!r:.100} cannot be used",
            why="it is not an Upkeep, which has the policies of all table services",
            next_step="Write upkeep=pyhudi.Upkeep(), or leave it out for the policy that the table"
            " records",
        )
    return given


def parse_upkeep_choice(given: Upkeep | bool | None) -> Upkeep | bool | None:
    """Return the policy, False for none, or None for the one that is recorded or usual."""
    if isinstance(given, bool):
        return None if given else False
    return parse_upkeep(given)


def parse_time(given: Time, zone: tzinfo | None) -> str:
    """Return the time as the timeline writes it. `zone` is the timeline's."""
    return given.completed if isinstance(given, WriteResult) else timeline_time(given, zone)


def optional_word(what: str, given: str | None, words: Mapping[str, _T]) -> _T | None:
    return None if given is None else chosen_word(what, given, words)


def chosen_word(what: str, given: str, words: Mapping[str, _T]) -> _T:
    if not isinstance(given, str) or given not in words:
        raise InvalidRequestError(
            f"{what}={given!r} is not known",
            why=f"it is one of {', '.join(map(repr, words))}",
            next_step=f"Change {what}",
        )
    return words[given]


def chosen_enum(what: str, given: str, choices: type[_E]) -> _E:
    return chosen_word(what, given, {choice.value: choice for choice in choices})
