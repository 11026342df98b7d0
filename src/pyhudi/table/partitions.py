"""Partition paths: what they say about the rows in them.

A partition path is the partition fields' values joined by slashes, each as `field=value` in hive
style, with special characters as %XX when the table encodes them. Where a path can be taken apart
without doubt it bounds its rows, and a predicate may skip the partition. Where it cannot (a value
with a bare slash, a key generator that formats times, a type whose text is not unique), nothing is
skipped.

A table may leave its partition columns out of its files. Then the path is their only source, and no
schema has their type: they are text, as in Hudi.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from pyhudi.format.table.table_config import KeyGenerator, TableConfig

#: Stands for null and for the empty text alike.
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

#: Key generators whose paths hold every field's own value.
_PLAIN_GENERATORS = frozenset({KeyGenerator.SIMPLE, KeyGenerator.COMPLEX})


def partition_texts(
    path: str, config: TableConfig, *, decoded: bool = True
) -> dict[str, str] | None:
    """Return partition field → its value as text; None if the path does not separate the values.

    A single field has the whole path, slashes included. `decoded` is without %XX.
    """
    fields = config.partition_fields
    segments = path.split("/") if len(fields) > 1 else [path]
    if not path or len(segments) != len(fields):
        return None
    texts = {}
    for field, segment in zip(fields, segments, strict=True):
        value = segment
        if config.hive_style:
            name, equals, value = segment.partition("=")
            if not equals or name != field:
                return None
        texts[field] = unquote(value) if config.url_encode and decoded else value
    return texts


def plain_fields(config: TableConfig) -> tuple[str, ...]:
    """Return the partition fields whose own value, unformatted, is in the path."""
    if config.key_generator in _PLAIN_GENERATORS:
        return config.partition_fields
    kinds = zip(config.partition_fields, config.partition_kinds, strict=True)
    return tuple(field for field, kind in kinds if kind == "SIMPLE")


def with_dropped_columns(schema: pa.Schema, config: TableConfig) -> pa.Schema:
    """Return the schema of a read.

    Partition columns that are not in the files come last, as text.
    """
    if not config.drop_partition_columns:
        return schema
    dropped = [name for name in config.partition_fields if name not in schema.names]
    return pa.schema([*schema, *(pa.field(name, pa.string()) for name in dropped)])


_PARSERS: Mapping[pa.DataType, Callable[[str], Any]] = {
    pa.string(): str,
    pa.int32(): int,
    pa.int64(): int,
    pa.date32(): dt.date.fromisoformat,
    pa.bool_(): lambda text: {"true": True, "false": False}[text.lower()],
}


def partition_values(path: str, schema: pa.Schema, config: TableConfig) -> dict[str, Any]:
    """Return column → the one value that all rows of the partition have, where that is certain."""
    values: dict[str, Any] = {}
    plain = plain_fields(config)
    for field, text in (partition_texts(path, config) or {}).items():
        if field not in plain:
            continue
        index = schema.get_field_index(field)
        parse = _PARSERS.get(schema.field(index).type) if index >= 0 else None
        if parse is None or text in (DEFAULT_PARTITION, ""):
            continue
        try:
            values[field] = parse(text)
        except (ValueError, KeyError):
            continue
    return values
