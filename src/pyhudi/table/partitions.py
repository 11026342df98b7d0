"""Partition paths: what they say about the rows in them.

A partition path is the partition fields' values joined by slashes, each as `field=value` in hive
style, with special characters as %XX when the table encodes them. Where a path can be taken apart
without doubt it bounds its rows, and a predicate may skip the partition. Where it cannot (a value
with a bare slash, a key generator that formats times, a type whose text is not unique), nothing is
said and nothing is skipped.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from pyhudi.format.table_config import TableConfig

#: Stands for null and for the empty text alike.
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

#: Key generators whose paths hold the field's own value.
_PLAIN_GENERATORS = frozenset({"SIMPLE", "SIMPLE_AVRO", "COMPLEX", "COMPLEX_AVRO"})


def partition_texts(path: str, config: TableConfig) -> dict[str, str] | None:
    """Partition field → its value as text; None when the path does not tell them apart."""
    fields = config.partition_fields
    segments = path.split("/") if path else []
    if len(segments) != len(fields):
        return None
    texts = {}
    for field, segment in zip(fields, segments, strict=True):
        value = segment
        if config.hive_style:
            name, equals, value = segment.partition("=")
            if not equals or name != field:
                return None
        texts[field] = unquote(value) if config.url_encode else value
    return texts


def path_texts(path: str, config: TableConfig) -> dict[str, str] | None:
    """Like `partition_texts`, with %XX left as it stands in the path."""
    fields = config.partition_fields
    segments = path.split("/") if path else []
    if len(segments) != len(fields):
        return None
    prefix = len if config.hive_style else None
    return {
        field: segment[prefix(field) + 1 :] if prefix else segment
        for field, segment in zip(fields, segments, strict=True)
    }


_PARSERS: Mapping[pa.DataType, Callable[[str], Any]] = {
    pa.string(): str,
    pa.int32(): int,
    pa.int64(): int,
    pa.date32(): dt.date.fromisoformat,
    pa.bool_(): lambda text: {"true": True, "false": False}[text.lower()],
}


def partition_values(path: str, schema: pa.Schema, config: TableConfig) -> dict[str, Any]:
    """Column → the one value that all rows of the partition have, where that is certain."""
    if str(config.key_generator).upper() not in _PLAIN_GENERATORS:
        return {}
    values: dict[str, Any] = {}
    for field, text in (partition_texts(path, config) or {}).items():
        index = schema.get_field_index(field)
        parse = _PARSERS.get(schema.field(index).type) if index >= 0 else None
        if parse is None or text in (DEFAULT_PARTITION, ""):
            continue
        try:
            values[field] = parse(text)
        except (ValueError, KeyError):
            continue
    return values
