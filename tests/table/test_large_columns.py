"""Columns of over 2 GiB, which Arrow's usual types cannot hold in one piece."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pyhudi
from pyhudi.table import large_columns
from pyhudi.table.large_columns import large_type, of_type, one_array, one_batch
from pyhudi.table.merge import LogRows, MergeRule, fold_logs, merge_slice

SCHEMA = pa.schema([("_hoodie_record_key", pa.string()), ("at", pa.int64()), ("text", pa.string())])
MIB = "x" * (1 << 20)


def test_a_slice_whose_logs_have_over_2_gib_of_text_is_merged() -> None:
    texts = pa.array([MIB] * 64)  # one buffer for all blocks, until they are put together
    blocks = []
    for at in range(33):
        keys = pa.array([f"{at}-{n}" for n in range(64)])
        batch = pa.RecordBatch.from_arrays([keys, pa.repeat(at, 64), texts], schema=SCHEMA)
        blocks.append(LogRows(batch, pa.repeat(False, 64)))
    rule = MergeRule(ordering=("at",))
    sizes = []
    for batch in merge_slice([], fold_logs(blocks, SCHEMA, rule), rule):
        assert batch.schema == SCHEMA
        assert pc.all(pc.equal(pc.binary_length(batch["text"]), 1 << 20)).as_py()
        sizes.append(batch.num_rows)
    assert sum(sizes) == 33 * 64
    assert max(sizes) <= 64, "a batch has some MB, not 2 GiB"


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["a", None, "ccc"]),
    (pa.binary(), [b"a", None, b"ccc"]),
    (pa.list_(pa.string()), [["a"], None, ["c", None]]),
    (pa.struct({"s": pa.string(), "n": pa.int32()}), [{"s": "a", "n": 1}, None, {"s": "", "n": 0}]),
    (pa.map_(pa.string(), pa.binary()), [[("a", b"1")], None, [("c", None)]]),
    (pa.int64(), [1, None, 3]),
]


@pytest.mark.parametrize(("type_", "values"), VALUES, ids=lambda value: str(value)[:40])
def test_values_are_the_same_in_the_larger_type_and_back(
    type_: pa.DataType, values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, asked = large_columns._combined, []

    def too_large_at_first(column: pa.ChunkedArray) -> pa.Array | None:
        asked.append(column.type)
        return plain(column) if len(asked) > 1 else None

    monkeypatch.setattr(large_columns, "_combined", too_large_at_first)
    column = pa.chunked_array([pa.array(values, type_), pa.array(values[::-1], type_)])
    whole = one_array(column)
    assert whole.type == large_type(type_)
    picked = of_type(whole.take(pa.array([5, 0, 2])), type_)
    assert picked.type == type_
    assert picked.to_pylist() == [values[0], values[0], values[2]]


def test_partial_rows_are_joined_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyhudi.table.merge._OUTPUT_BYTES", 200)
    keys = [f"k{n}" for n in range(20)]
    base = pa.RecordBatch.from_arrays(
        [pa.array(keys), pa.array(np.zeros(20, np.int64)), pa.array(["old"] * 20)], schema=SCHEMA
    )
    part = pa.RecordBatch.from_arrays(
        [pa.array(keys), pa.array(np.arange(20)), pa.nulls(20, pa.string())], schema=SCHEMA
    )
    columns = frozenset({"_hoodie_record_key", "at"})
    logs = fold_logs([LogRows(part, pa.repeat(False, 20), columns)], SCHEMA, MergeRule())
    found = [b for b in merge_slice([base], logs, MergeRule()) if b.num_rows]
    assert len(found) > 1
    joined = pa.Table.from_batches(found).sort_by("at").to_pylist()
    assert [row["at"] for row in joined] == [*range(20)]
    assert {row["text"] for row in joined} == {"old"}


def test_rows_of_one_bucket_that_are_too_many_for_one_write_are_refused() -> None:
    texts = pa.array([MIB] * 1024)
    batch = pa.RecordBatch.from_arrays([texts], names=["text"])
    with pytest.raises(pyhudi.InvalidRequestError, match="'text' have over 2 GiB"):
        one_batch([batch, batch])
