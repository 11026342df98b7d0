"""What callers hand over: every shape that is welcome, and a clear word about the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import pyhudi
from pyhudi.api.inputs import (
    is_spark_frame,
    parse_buckets,
    parse_schema,
    parse_settings,
    record_batches,
    storage_at,
    table_address,
)
from pyhudi.api.schema_update import SchemaUpdate
from pyhudi.errors import InvalidRequestError
from pyhudi.table.rows.storable_types import storable_schema

TABLE = pa.table({"id": ["a", "b"], "n": [1, 2]})


class DataFrame:
    """Named as Spark's, and somebody else's."""


def spark_like(module: str) -> Any:
    """A frame of a class that a library made from Spark's."""
    base = type("DataFrame", (), {"__module__": module})
    return type("Wrapped", (base,), {"__module__": "elsewhere"})()


@pytest.mark.parametrize(
    "module", ["pyspark.sql.dataframe", "pyspark.sql.connect.dataframe", "pyspark.sql.classic.x"]
)
def test_frames_of_spark_are_known_without_spark(module: str) -> None:
    assert is_spark_frame(spark_like(module))


@pytest.mark.parametrize(
    "other",
    [
        TABLE,
        TABLE.to_pandas(),
        DataFrame(),
        DataFrame,
        None,
        "id = 'a'",
        spark_like("pyspark.pandas.frame"),
    ],
    ids=lambda other: type(other).__name__,
)
def test_other_things_are_no_frames_of_spark(other: Any) -> None:
    assert not is_spark_frame(other)


class Stream:
    """Nothing but the protocol."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return TABLE.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "rows",
    [
        TABLE,
        TABLE.to_batches()[0],
        pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches()),
        pd.DataFrame(TABLE.to_pydict(), index=[7, 9]),
        pl.DataFrame(TABLE.to_pydict()),
        Stream(),
    ],
    ids=lambda rows: f"{type(rows).__module__}.{type(rows).__name__}",
)
def test_rows_come_from_anything_that_speaks_arrow(rows: Any) -> None:
    found = pa.Table.from_batches(list(record_batches(rows)))
    assert found.column_names == ["id", "n"]
    assert found.to_pylist() == TABLE.to_pylist()


@pytest.mark.parametrize("rows", [None, 5, "id", [{"id": "a"}], {"id": ["a"]}, object()], ids=str)
def test_rows_without_arrow_are_refused(rows: Any) -> None:
    with pytest.raises(InvalidRequestError, match=rf"an? {type(rows).__name__} cannot be written"):
        record_batches(rows)


def test_an_error_names_what_it_was_given_with_the_right_article() -> None:
    with pytest.raises(InvalidRequestError, match=r"^an object cannot be written"):
        record_batches(object())
    with pytest.raises(InvalidRequestError, match=r"^an int is not a schema"):
        parse_schema(5)


class Columns:
    """What has a schema by the Arrow interface alone."""

    def __arrow_c_schema__(self) -> Any:
        return TABLE.schema.__arrow_c_schema__()


@pytest.mark.parametrize(
    "given",
    [
        Columns(),
        pa.schema([*TABLE.schema, ("_hoodie_commit_time", pa.string())]),
        TABLE,
        pd.DataFrame(TABLE.to_pydict(), index=[7, 9]),
        pl.DataFrame(TABLE.to_pydict()),
        Stream(),
    ],
    ids=lambda given: f"{type(given).__module__}.{type(given).__name__}",
)
def test_a_union_takes_the_columns_of_anything_that_has_a_schema(given: Any) -> None:
    change = SchemaUpdate(pa.schema([("id", pa.string()), ("n", pa.int32())]))
    assert change.union_by_name(given).schema == TABLE.schema
    assert repr(change).endswith("move_before, move_after>")


def test_a_union_with_what_has_no_schema_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"^a list is not a schema"):
        SchemaUpdate(pa.schema([])).union_by_name([("x", "int")])


def test_columns_of_several_types_are_refused() -> None:
    mixed = pd.DataFrame({"id": ["a", "b"], "n": [1, "x"]})
    with pytest.raises(InvalidRequestError, match="rows of a DataFrame cannot be read"):
        list(record_batches(mixed))


@pytest.mark.parametrize("uri", [None, 5, b"/data", ["/data"]], ids=str)
def test_what_is_no_address_is_refused(uri: Any) -> None:
    with pytest.raises(InvalidRequestError, match="is not the address of a table"):
        table_address(uri)


def test_a_path_is_an_address() -> None:
    assert table_address(Path("/data/t")) == "/data/t"
    assert table_address("s3://bucket/t") == "s3://bucket/t"


def test_storage_options_are_names_with_values(tmp_path: Path) -> None:
    assert storage_at(tmp_path, None).uri.endswith(tmp_path.name)
    with pytest.raises(InvalidRequestError, match="it is a list"):
        storage_at(tmp_path, [("region", "eu")])


def test_a_schema_comes_from_anything_that_has_one() -> None:
    class Exported:
        def __arrow_c_schema__(self) -> Any:
            return TABLE.schema.__arrow_c_schema__()

    assert parse_schema(TABLE.schema) == TABLE.schema
    assert parse_schema(Exported()) == TABLE.schema
    for other in (None, "id string", {"id": "string"}):
        with pytest.raises(InvalidRequestError, match="is not a schema"):
            parse_schema(other)


FRAMES = {
    "Arrow's table": TABLE,
    "a batch": TABLE.to_batches()[0],
    "pandas": pd.DataFrame(TABLE.to_pydict()),
    "pandas with an index": pd.DataFrame(TABLE.to_pydict(), index=[7, 9]),
    "pandas with a named index": pd.DataFrame({"n": [1, 2]}, index=pd.Index(["a", "b"], name="id")),
    "Polars": pl.DataFrame(TABLE.to_pydict()),
    "a stream": Stream(),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_frame_gives_the_columns_that_its_rows_are_written_with(frame: Any) -> None:
    found = storable_schema(parse_schema(frame))
    assert found.field("id").type == pa.string()
    assert found.field("n").type == pa.int64()
    [batch] = record_batches(frame)
    assert batch.schema.names == found.names


def test_a_reader_gives_its_columns_and_keeps_its_rows() -> None:
    reader = pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches())
    assert parse_schema(reader) == TABLE.schema
    assert reader.read_all() == TABLE


def test_hudis_own_columns_are_left_out_of_a_schema_as_they_are_of_rows() -> None:
    rows = TABLE.append_column("_hoodie_commit_time", pa.array(["1", "2"]))
    assert parse_schema(rows) == parse_schema(rows.schema) == TABLE.schema


def test_a_frame_whose_columns_have_no_one_type_is_refused() -> None:
    mixed = pd.DataFrame({"id": ["a", "b"], "n": [1, "x"]})
    with pytest.raises(InvalidRequestError, match="columns of a DataFrame cannot be read"):
        parse_schema(mixed)


def test_a_number_of_buckets_stands_for_simple_buckets() -> None:
    named = pyhudi.SimpleBuckets(8, ("id",))
    assert parse_buckets(4) == pyhudi.SimpleBuckets(4)
    assert parse_buckets(named) is named
    assert parse_buckets(None) is None


@pytest.mark.parametrize("given", [True, False, 1.0, "4", (4,)], ids=str)
def test_what_is_no_number_of_buckets_is_refused(given: Any) -> None:
    with pytest.raises(InvalidRequestError, match="neither a whole number nor a SimpleBuckets"):
        parse_buckets(given)


def test_settings_are_settings() -> None:
    settings = pyhudi.WriteSettings(conflict_retries=7)
    assert parse_settings(settings) is settings
    assert parse_settings(None) == pyhudi.WriteSettings()
    with pytest.raises(InvalidRequestError, match="it is not a WriteSettings"):
        parse_settings({"conflict_retries": 7})  # type: ignore[arg-type]
