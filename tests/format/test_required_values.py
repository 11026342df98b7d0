"""Columns with required fields: filled where they mean nothing, refused where they are null."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.errors import InvalidRequestError
from pyhudi.format.files.required_values import stored_column

INNER = pa.struct([pa.field("n", pa.int32(), nullable=False), ("t", pa.string())])
LOOSE = pa.struct([("n", pa.int32()), ("t", pa.string())])
OUTER = pa.struct([pa.field("s", INNER, nullable=False), ("n", pa.int64())])
LOOSE_OUTER = pa.struct([("s", LOOSE), ("n", pa.int64())])

VALUE = {"n": 1, "t": "x"}
COLUMNS: list[tuple[pa.DataType, pa.DataType, list[Any]]] = [
    (LOOSE, INNER, [VALUE, None, {"n": 2, "t": None}]),
    (LOOSE, INNER, [None, None]),
    (LOOSE, INNER, []),
    (LOOSE_OUTER, OUTER, [{"s": VALUE, "n": None}, None]),
    (pa.list_(LOOSE), pa.list_(INNER), [[VALUE, None], None, []]),
    (pa.map_(pa.string(), LOOSE), pa.map_(pa.string(), INNER), [[("a", VALUE)], None, []]),
    (INNER, LOOSE, [VALUE, None]),
    (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int32()), [[("a", None)], None]),
]


@pytest.mark.parametrize(("given", "wanted", "values"), COLUMNS)
def test_nulls_that_mean_nothing_can_be_stored(
    given: pa.DataType, wanted: pa.DataType, values: list[Any]
) -> None:
    array = pa.array([None, *values, None], given)[1:-1]
    # Taking nulls puts nulls into the fields of a null struct, as data from elsewhere has them.
    array = array.take(
        pa.array([n if array[n].is_valid else None for n in range(len(array))], pa.int64())
    )
    column = stored_column(array, pa.field("c", wanted))
    assert column.type == wanted
    assert column.to_pylist() == values
    sink = io.BytesIO()
    pq.write_table(pa.table([column], pa.schema([pa.field("c", wanted)])), sink)
    assert pq.read_table(sink).column(0).to_pylist() == values


@pytest.mark.parametrize(
    ("given", "field", "values", "why"),
    [
        (pa.int32(), pa.field("c", pa.int32(), nullable=False), [1, None], "holds a null, and"),
        (LOOSE, pa.field("c", INNER), [{"n": None, "t": "x"}], "a null in the field 'n'"),
        (LOOSE_OUTER, pa.field("c", OUTER), [{"s": None, "n": 1}], "a null in the field 's'"),
        (pa.list_(LOOSE), pa.field("c", pa.list_(INNER)), [[{"n": None}]], "in the field 'n'"),
        (LOOSE, pa.field("c", LOOSE, nullable=False), [None], "holds a null, and"),
    ],
)
def test_nulls_that_mean_something_are_refused_by_column(
    given: pa.DataType, field: pa.Field, values: list[Any], why: str
) -> None:
    with pytest.raises(InvalidRequestError, match=f"column 'c' cannot be written: it .*{why}"):
        stored_column(pa.array(values, given), field)
