"""Partitions as a caller names them → partition paths.

A partition is named by its path, `2026-01-01` or `region=eu/day=2026-01-01`, or by its values: a
mapping of all partition columns, or for several columns a tuple in their order. A path is taken as
it is; it must have a segment for each partition column, spell a date or a whole number as paths do,
and must not lead out of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.paths import table_path
from pyhudi.format.table.table_config import TableConfig
from pyhudi.table.partitions import (
    DEFAULT_PARTITION,
    partition_texts,
    partition_values,
    plain_fields,
)
from pyhudi.table.rows.input_rows import conformed
from pyhudi.table.rows.partition_paths import RESERVED_FOLDER, partition_paths

#: Types of which each value has one spelling in a path, which is Python's.
_SPELLED = (pa.int32(), pa.int64(), pa.date32())


def named_partitions(named: Any, config: TableConfig, schema: pa.Schema) -> frozenset[str]:
    """Return the paths of the partitions; InvalidRequestError for what names none."""
    if not config.partition_fields:
        raise InvalidRequestError(
            "partitions cannot be named",
            why="the table is not partitioned",
            next_step="Delete some of its rows with delete(where); overwrite(rows,"
            " partitions='all') replaces every row of the table",
        )
    if isinstance(named, str | bytes | Mapping) or not isinstance(named, Iterable):
        raise _refusal(named, "it is not a list of partitions", "Put it in a list")
    paths = frozenset(_path(one, config, schema) for one in named)
    if not paths:
        raise _refusal(named, "it names none", "Name at least one partition")
    return paths


def _path(one: Any, config: TableConfig, schema: pa.Schema) -> str:
    fields = config.partition_fields
    if isinstance(one, str):
        return _checked_path(one, config, schema)
    if isinstance(one, tuple) and len(one) == len(fields):
        one = dict(zip(fields, one, strict=True))
    elif not isinstance(one, Mapping) and len(fields) == 1:
        one = {fields[0]: one}
    if not isinstance(one, Mapping) or set(one) != set(fields):
        raise _refusal(
            one, f"the partition columns are {', '.join(fields)}", "Give a value for each of them"
        )
    try:  # by the rules for rows: a value that is not the column's is refused, never rounded
        given = pa.RecordBatch.from_pydict({name: [one[name]] for name in fields})
        row = conformed(given, pa.schema([schema.field(name) for name in fields]))
    except InvalidRequestError as error:
        raise _refusal(one, error.why, error.next_step) from None
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _refusal(one, str(error), "Give values of the columns' types") from None
    return str(partition_paths(row, config).dictionary[0].as_py())


def _checked_path(path: str, config: TableConfig, schema: pa.Schema) -> str:
    fields = config.partition_fields
    segments = path.split("/")
    if len(segments) != len(fields):
        raise _refusal(
            path,
            f"it has {len(segments)} parts, and the table {len(fields)} partition columns",
            "Give its path as the table has it",
        )
    if segments[0] == RESERVED_FOLDER:
        raise _refusal(path, "that folder is Hudi's own", "Give its path as the table has it")
    if config.hive_style:
        for segment, name in zip(segments, fields, strict=True):
            if not segment.startswith(f"{name}="):
                raise _refusal(path, f"{segment!r} is not {name}=…", "Give it as in the table")
    try:
        inside = table_path(path)
    except (CorruptTableError, ValueError) as error:
        raise _refusal(path, str(error), "Give its path as the table has it") from None
    _refuse_other_types(path, config, schema)
    return inside


def _refuse_other_types(path: str, config: TableConfig, schema: pa.Schema) -> None:
    """Raise for a path that no value of the columns makes.

    It names nothing, and accepting it would look like a success.
    """
    plain, values = plain_fields(config), partition_values(path, schema, config)
    for name, text in (partition_texts(path, config) or {}).items():
        index = schema.get_field_index(name)
        if name not in plain or index < 0 or text == DEFAULT_PARTITION:
            continue
        type_ = schema.field(index).type
        if type_ in _SPELLED and (name not in values or str(values[name]) != text):
            raise _refusal(
                path,
                f"{text!r} is not a value of type {type_} for the column {name!r}, as paths spell"
                " it",
                "Give its path as the table has it, or the column's value itself",
            )


def _refusal(named: Any, why: str, next_step: str) -> InvalidRequestError:
    return InvalidRequestError(f"{named!r:.100} names no partition", why=why, next_step=next_step)
