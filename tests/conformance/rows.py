"""Rows of Arrow tables as the judges write them, and what differs between the two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from golden_reads import encoded, lines
from pyhudi.table.schema import META_COLUMNS

Row = dict[str, Any]


SHOWN = 3


def assert_same_rows(
    ours: pa.Table, theirs: Iterable[Mapping[str, Any]], *, meta: bool = True
) -> None:
    """Compare every value and its type, in the judges' encoding, whatever the order of rows.

    Without `meta` the meta columns of both sides are left out.
    """
    keep = dict if meta else data_row
    got = [keep(row) for row in encoded_rows(ours)]
    want = [keep(row) for row in theirs]
    if lines(got) != lines(want):
        raise AssertionError(row_difference(got, want))


def row_difference(ours: Sequence[Row], theirs: Sequence[Row]) -> str:
    """The rows that only one side has, nearest ones beside each other and cut to what differs.

    >>> print(row_difference([{"id": 1, "v": 2}], [{"id": 1, "v": 2.0}]))
    we read 1 rows, the judge 1
      ours {'v': 2} theirs {'v': 2.0} in {'id': 1, 'v': 2}
    """
    left = _only_first(ours, theirs)
    right = _only_first(theirs, ours)
    text = [f"we read {len(ours)} rows, the judge {len(theirs)}"]
    for row in left[:SHOWN]:
        nearest = min(right, key=lambda other: len(_cut(row, other)), default={})
        text.append(f"  ours {_cut(row, nearest)} theirs {_cut(nearest, row)} in {row}")
    if not left:
        text += [f"  only the judge has {row}" for row in right[:SHOWN]]
    return "\n".join(text)


def _only_first(rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    left = Counter(lines(others))
    only = []
    for row in rows:
        [line] = lines([row])
        left[line] -= 1
        if left[line] < 0:
            only.append(row)
    return only


def _cut(row: Row, other: Row) -> Row:
    """The columns in which the row differs from the other."""
    return {
        n: v for n, v in row.items() if n not in other or lines([{n: v}]) != lines([{n: other[n]}])
    }


def data_row(row: Mapping[str, Any]) -> Row:
    return {name: value for name, value in row.items() if name not in META_COLUMNS}


def encoded_rows(table: pa.Table) -> list[Row]:
    """The rows as a judge takes them for writing."""
    rows: list[Row] = encoded(table.to_pylist(maps_as_pydicts="strict"))
    return rows


def spark_columns(schema: pa.Schema) -> str:
    """The schema's data columns as Spark writes them in SQL.

    >>> spark_columns(pa.schema({"id": pa.string(), "tags": pa.list_(pa.int32())}))
    '`id` string, `tags` array<int>'
    """
    fields = (field for field in schema if field.name not in META_COLUMNS)
    return ", ".join(f"`{field.name}` {_spark_type(field.type)}" for field in fields)


_SPARK_TYPES = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
}


def _spark_type(kind: pa.DataType) -> str:
    if kind in _SPARK_TYPES:
        return _SPARK_TYPES[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_map(kind):
        return f"map<{_spark_type(kind.key_type)},{_spark_type(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{_spark_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{f.name}:{_spark_type(f.type)}' for f in kind)}>"
    raise TypeError(f"no Spark type is known for {kind}")
