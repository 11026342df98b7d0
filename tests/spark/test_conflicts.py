"""Spark writes that meet another write on a table where writers conflict.

The other write happens on the driver, between the tasks of the Spark write and its completion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import pyhudi
from pyhudi.errors import ConflictError

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.string())])
COLUMNS = "id string, day string, v string"


def create(path: Path, table_type: str = "mor") -> pyhudi.Table:
    """No ordering: the last commit wins, and writers of one bucket conflict."""
    return pyhudi.create_table(
        path,
        SCHEMA,
        record_key="id",
        partition_by="day",
        buckets=pyhudi.SimpleBuckets(2),
        table_type=table_type,
        upkeep=False,
    )


def arrow(v: str, *ids: str) -> pa.Table:
    rows = [{"id": id_, "day": f"d{int(id_[1:]) % 2}", "v": v} for id_ in ids]
    return pa.Table.from_pylist(rows, SCHEMA)


def content(table: pyhudi.Table) -> dict[str, str]:
    found = pyhudi.open_table(table.uri).read(columns=["id", "v"]).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key is there twice"
    return {row["id"]: row["v"] for row in found}


def counted(spark: SparkSession, note: Path, rows: pa.Table) -> DataFrame:
    """The rows as a frame that notes each evaluation of its one partition."""
    name = str(note)

    def evaluated(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with open(name, "a") as file:
            file.write("once\n")
        yield from batches

    frame = spark.createDataFrame(rows.to_pandas(), COLUMNS).coalesce(1)
    return frame.mapInArrow(evaluated, COLUMNS)


def test_rows_that_met_a_later_write_are_written_anew_and_the_input_is_evaluated_once(
    spark: SparkSession, tmp_path: Path, between: Callable[[Callable[[], object]], None]
) -> None:
    table = create(tmp_path / "t")
    ids = [f"k{n}" for n in range(40)]
    table.upsert(arrow("0", *ids))
    other = pyhudi.open_table(tmp_path / "t")
    between(lambda: other.upsert(arrow("other", "k1", "k2", "k99")))
    result = table.upsert(counted(spark, tmp_path / "note", arrow("spark", *ids)))
    assert (tmp_path / "note").read_text() == "once\n"
    assert (result.retries, result.rows) == (1, 40)
    assert content(table) == {**dict.fromkeys(ids, "spark"), "k99": "other"}
    lost = other.inspect.conflicts().to_pylist()
    assert [(row["rule"], row["retry"], row["rows"]) for row in lost] == [
        ("same_file_group", "write", 40)
    ]
    states = other.inspect.timeline().to_pylist()
    assert all(row["completed"] for row in states)  # the attempt that lost is rolled back


def test_a_write_that_may_not_be_repeated_tells_what_it_lost(
    spark: SparkSession, tmp_path: Path, between: Callable[[Callable[[], object]], None]
) -> None:
    settings = pyhudi.WriteSettings(conflict_retries=0, job="hourly")
    create(tmp_path / "t").upsert(arrow("0", "k1"))
    table = pyhudi.open_table(tmp_path / "t", write_settings=settings)
    other = pyhudi.open_table(tmp_path / "t", write_settings=pyhudi.WriteSettings(job="backfill"))
    between(lambda: other.upsert(arrow("other", "k1")))
    with pytest.raises(ConflictError) as caught:
        table.upsert(spark.createDataFrame(arrow("spark", "k1", "k3").to_pandas(), COLUMNS))
    facts = caught.value.facts
    assert (facts["ours"]["job"], facts["theirs"]["job"]) == ("hourly", "backfill")
    assert facts["keys"] == ["k1"]
    assert facts["lost"]["rows"] == 2
    assert content(table) == {"k1": "other"}


def test_base_files_that_hold_rows_of_others_are_never_written_anew(
    spark: SparkSession, tmp_path: Path, between: Callable[[Callable[[], object]], None]
) -> None:
    """On a copy-on-write table the files of a write hold old rows, which others have changed."""
    table = create(tmp_path / "t", "cow")
    table.upsert(arrow("0", "k1", "k3", "k5"))
    other = pyhudi.open_table(tmp_path / "t")
    between(lambda: other.upsert(arrow("other", "k3")))
    with pytest.raises(ConflictError) as caught:
        table.upsert(spark.createDataFrame(arrow("spark", "k1").to_pandas(), COLUMNS))
    assert caught.value.facts["lost"]["rows"] == 1
    assert content(table) == {"k1": "0", "k3": "other", "k5": "0"}


@pytest.mark.parametrize("table_type", ["mor", "cow"])
def test_keys_that_must_be_new_are_never_written_over_a_row_that_came_meanwhile(
    spark: SparkSession,
    tmp_path: Path,
    between: Callable[[Callable[[], object]], None],
    table_type: str,
) -> None:
    table = create(tmp_path / "t", table_type)
    table.upsert(arrow("0", "k1"))
    other = pyhudi.open_table(tmp_path / "t")
    between(lambda: other.upsert(arrow("other", "k3")))
    frame = spark.createDataFrame(arrow("spark", "k3", "k5").to_pandas(), COLUMNS)
    with pytest.raises(ConflictError):
        table.append(frame, require_new_keys=True)
    assert content(table) == {"k1": "0", "k3": "other"}
