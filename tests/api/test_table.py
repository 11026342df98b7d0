"""The verbs with arguments that make no sense: told at once, in our words, and nothing is left."""

from __future__ import annotations

import itertools
import pydoc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import pyhudi
from pyhudi import InvalidRequestError, SimpleBuckets, WriteSettings
from pyhudi.storage.open import open_storage
from pyhudi.table.schema import META_COLUMNS

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("ts", pa.int64())])
_numbers = itertools.count()


def rows(*ids: str) -> pa.Table:
    count = len(ids)
    return pa.table({"id": list(ids), "day": ["mo"] * count, "ts": [1] * count}, schema=SCHEMA)


def create(**options: Any) -> pyhudi.Table:
    given = {
        "uri": f"memory://api-{next(_numbers)}",
        "schema": SCHEMA,
        "record_key": "id",
        "buckets": SimpleBuckets(1),
        **options,
    }
    return pyhudi.create_table(given.pop("uri"), given.pop("schema"), **given)


@pytest.fixture
def table() -> pyhudi.Table:
    table = create(partition_by="day", ordering="ts")
    table.upsert(rows("a"))
    return table


def ids(table: pyhudi.Table) -> list[str]:
    return sorted(table.read().to_arrow()["id"].to_pylist())


def states(table: pyhudi.Table) -> list[str]:
    return [row["state"] for row in table.inspect.timeline().to_pylist()]


# -- creating


class NoSchema:
    names = ("id",)


COLUMNS: list[Any] = [None, 5, [None], ["id", None], {"id": 1}, b"id", object()]
UNUSABLE: dict[str, list[Any]] = {
    "record_key": [*COLUMNS, [], ("id", "id")],
    "partition_by": COLUMNS,
    "ordering": COLUMNS,
    "schema": [
        None,
        5,
        {"id": pa.string()},
        [("id", pa.string())],
        NoSchema(),
        pd.DataFrame({"id": ["a", 1]}),
        pa.schema([]),
    ],
    "buckets": [0, "8", 1.5, True],
    "version": [None, "9", 7, 10, 8.5],
    "table_type": [None, "", "MOR", ["mor"], {}],
    "merge_mode": ["", "latest", ["event_time"]],
    "concurrency": ["", "occ", []],
    "lock": ["", [], {}, "FILE", "zoo", "zookeeper", "dynamodb"],
    "lock_options": [5, "zk:2181", {"url": "zk:2181", "base_path": "/locks"}],
    "write_settings": [5, {"commit_rounds": 5}, "fast", WriteSettings],
    "name": ["a b"],
}


@pytest.mark.parametrize(
    ("argument", "value"),
    [(argument, value) for argument, values in UNUSABLE.items() for value in values],
    ids=lambda given: repr(given)[:40],
)
def test_an_argument_that_makes_no_sense_is_refused_and_no_table_is_made(
    argument: str, value: Any
) -> None:
    uri = f"memory://api-{next(_numbers)}"
    with pytest.raises(InvalidRequestError):
        create(**{"uri": uri, argument: value})
    assert list(open_storage(uri).list("")) == []


@pytest.mark.parametrize(
    ("argument", "value"),
    [("name", 5), ("uri", None), ("uri", 5), ("uri", b"bytes"), ("storage_options", 5)],
)
def test_a_name_or_an_address_of_another_type_is_refused(argument: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError):
        create(**{argument: value})


@pytest.mark.parametrize("count", [-1, 0, 1.5, "2", None, True, 2**40])
def test_a_number_of_buckets_is_a_whole_number_in_range(count: Any) -> None:
    with pytest.raises(InvalidRequestError, match="whole number from 1"):
        create(buckets=SimpleBuckets(count))


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"id": ["a", "b"], "n": [1, 2]}),
        pl.DataFrame({"id": ["a", "b"], "n": [1, 2]}),
        pa.table({"id": ["a", "b"], "n": [1, 2]}),
    ],
    ids=["pandas", "Polars", "Arrow"],
)
def test_a_table_is_made_for_a_frame_and_takes_its_rows(tmp_path: Path, frame: Any) -> None:
    table = pyhudi.create_table(tmp_path / "t", frame, record_key="id", buckets=2)
    assert table.read().to_arrow().num_rows == 0
    table.upsert(frame)
    found = pyhudi.open_table(tmp_path / "t", buckets=2).read().to_arrow().sort_by("id")
    assert found.to_pylist() == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]
    copy = pyhudi.create_table(tmp_path / "copy", table.read(meta=True), record_key="id", buckets=1)
    assert copy.schema.arrow == table.schema.arrow


@pytest.mark.parametrize(
    ("uri", "lock", "better"),
    [("{tmp}/table", "storage", "'file'"), ("s3://bucket/table", "file", "'storage'")],
)
def test_a_lock_that_the_storage_cannot_have_is_refused_before_the_table_is_there(
    uri: str, lock: str, better: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequestError, match=f"{lock!r} cannot guard.*Use {better}"):
        create(uri=uri.format(tmp=tmp_path), lock=lock)
    assert list(tmp_path.iterdir()) == []


# -- opening


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("write_settings", 5),
        ("write_settings", {"commit_rounds": 5}),
        ("buckets", "4"),
        ("buckets", True),
        ("lock", []),
        ("lock", "zoo"),
        ("lock_options", {"url": "zk:2181", "base_path": "/locks"}),
    ],
)
def test_opening_with_an_argument_that_makes_no_sense_is_refused(
    table: pyhudi.Table, argument: str, value: Any
) -> None:
    with pytest.raises(InvalidRequestError, match=argument):
        pyhudi.open_table(table.uri, **{argument: value})


@pytest.mark.parametrize("buckets", [4, SimpleBuckets(4)])
def test_buckets_that_are_not_the_tables_are_refused_by_the_first_write(
    table: pyhudi.Table, buckets: Any
) -> None:
    other = pyhudi.open_table(table.uri, buckets=buckets)
    with pytest.raises(InvalidRequestError, match="buckets="):
        other.upsert(rows("b"))
    assert ids(table) == ["a"]


# -- rows


class Failing:
    """Speaks Arrow's protocol, and gives what is no stream."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return 5


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"id": ["b"], "day": ["mo"], "ts": [1], **columns})


def test_the_index_of_a_filtered_frame_is_no_column(table: pyhudi.Table) -> None:
    filtered = pd.concat([frame(id=["x"]), frame(id=["y"]), frame(id=["b"])]).iloc[[2]]
    assert "__index_level_0__" in pa.Table.from_pandas(filtered).column_names
    table.upsert(filtered)
    assert ids(table) == ["a", "b"]


def test_an_index_with_the_name_of_a_column_is_that_column(table: pyhudi.Table) -> None:
    table.upsert(frame().set_index("id"))
    assert ids(table) == ["a", "b"]


ROWS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "a list": lambda: [1],
    "a dictionary": lambda: {"id": ["b"]},
    "an array": lambda: pa.array([{"id": "b"}]),
    "a chunked array of text": lambda: pa.chunked_array([["b"]]),
    "a frame with another index": lambda: frame().set_index(pd.Index([7], name="zz")),
    "a frame of mixed types": lambda: pd.concat([frame(), frame(id=[5])]),
    "a frame of objects": lambda: frame(day=[object()]),
    "no stream": Failing,
    "a column twice": lambda: pa.table([pa.array(["b"])] * 2, names=["id", "id"]),
}


@pytest.mark.parametrize("verb", ["upsert", "append", "delete"])
@pytest.mark.parametrize("given", ROWS.values(), ids=ROWS)
def test_rows_that_cannot_be_read_are_refused_before_anything_begins(
    table: pyhudi.Table, given: Callable[[], Any], verb: str
) -> None:
    before = states(table)
    with pytest.raises(InvalidRequestError):
        getattr(table, verb)(given())
    assert ids(table) == ["a"]
    assert states(table) == before


@pytest.mark.parametrize("table_type", ["mor", "cow"])
@pytest.mark.parametrize("buffer_bytes_max", [1, 1 << 20], ids=["begun", "not begun"])
def test_a_stream_that_fails_in_the_middle_leaves_nothing(
    buffer_bytes_max: int, table_type: str
) -> None:
    settings = WriteSettings(buffer_bytes_max=buffer_bytes_max)
    table = create(ordering="ts", table_type=table_type, write_settings=settings)
    table.upsert(rows("a"))
    threads = threading.active_count()

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows("b", "c").to_batches()
        yield from rows("d").to_batches()
        raise ValueError("the source has gone away")

    with pytest.raises(InvalidRequestError, match="the source has gone away"):
        table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, batches()))
    assert ids(table) == ["a"]
    assert {*states(table)} == {"completed"}
    assert threading.active_count() == threads, "no heartbeat goes on"
    table.upsert(rows("b"))
    assert ids(table) == ["a", "b"]


# -- services


@pytest.mark.parametrize("grace", [None, "1", -1, -0.5, float("nan"), float("inf"), 10**9, [1]])
def test_a_grace_is_a_number_of_minutes(table: pyhudi.Table, grace: Any) -> None:
    with pytest.raises(InvalidRequestError, match="grace_minutes"):
        table.services.repair(grace_minutes=grace)


@pytest.mark.parametrize("grace", [0, 0.5, 60])
def test_a_sound_table_may_be_repaired_with_any_grace(table: pyhudi.Table, grace: float) -> None:
    done = table.services.repair(grace_minutes=grace)
    assert done.rolled_back == ()
    assert ids(table) == ["a"]


# -- how far a write is, and how things look


def test_a_function_is_told_of_a_write_and_nothing_is_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told: list[pyhudi.Progress] = []
    table = pyhudi.create_table(
        tmp_path / "t",
        pa.schema([("id", pa.string()), ("n", pa.int64())]),
        record_key="id",
        buckets=SimpleBuckets(2),
        progress=told.append,
    )
    result = table.upsert(pa.table({"id": ["a", "b"], "n": [1, 2]}))
    assert [(progress.rows, progress.files, progress.last) for progress in told[-1:]] == [
        (2, result.files, True)
    ]
    assert capfd.readouterr() == ("", "")


def test_the_time_of_a_slow_input_counts_and_is_shown(tmp_path: Path) -> None:
    told: list[pyhudi.Progress] = []
    table = pyhudi.create_table(
        tmp_path / "t",
        SCHEMA,
        record_key="id",
        ordering="ts",
        buckets=SimpleBuckets(1),
        progress=told.append,
    )

    def slow() -> Iterator[pa.RecordBatch]:
        yield from rows("a", "b").to_batches()
        time.sleep(1.2)
        yield from rows("c").to_batches()

    result = table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, slow()))
    assert result.seconds >= 1.2
    assert [(each.read, each.rows) for each in told][:1] == [(2, 0)], "while it waits for more"
    assert [(each.read, each.rows, each.last) for each in told][-1] == (3, 3, True)


def test_a_compaction_and_a_read_report_their_progress(tmp_path: Path) -> None:
    told: list[pyhudi.Progress] = []
    create(uri=tmp_path, ordering="ts").upsert(rows("a", "b"))
    table = pyhudi.open_table(tmp_path, progress=told.append)
    table.services.compact()
    assert [(each.rows, each.files, each.last) for each in told] == [(2, 1, True)]
    told.clear()
    assert table.read(columns=["id"]).to_arrow().num_rows == 2
    assert [(each.read, each.last) for each in told] == [(2, True)]
    told.clear()
    table.delete("id = 'a'")
    assert [each.last for each in told] == [True], "the read inside a delete is part of it"
    told.clear()
    assert list(table.read(columns=["id"]).to_batches())
    assert told == [], "a caller that takes batches sees for itself"


def test_each_group_of_verbs_is_found_and_shows_what_it_offers(table: pyhudi.Table) -> None:
    services, inspect = repr(table.services), repr(table.inspect)
    assert services.startswith(f"<services of {table.uri}: ")
    assert {"run,", "compact,", "clean,"} <= set(services.split())
    assert inspect.startswith(f"<inspect of {table.uri}: ")
    assert {"timeline,", "writers,"} <= set(inspect.replace(">", ",").split())
    assert repr(table.consumers) == f"<consumers of {table.uri}: register, advance, release>"
    alter = "use_lock, upkeep, own_columns, release_columns, disable_metadata_table"
    assert repr(table.alter) == f"<alter of {table.uri}: {alter}>"
    shown = pydoc.plain(pydoc.render_doc(pyhudi.Table))
    for group in ("services", "consumers", "alter", "inspect"):
        assert f"table.{group}" in shown


def test_a_table_is_created_with_the_schema_of_another(table: pyhudi.Table) -> None:
    whole = table.read(columns=[*META_COLUMNS, *SCHEMA.names])
    for schema in (table.schema, whole.schema):
        other = create(schema=schema, partition_by="day", ordering="ts")
        other.upsert(whole)
        assert other.schema.data_columns == SCHEMA.names
        assert ids(other) == ["a"]


def test_a_notebook_shows_tables_and_results(table: pyhudi.Table) -> None:
    shown = table._repr_html_()
    assert table.name in shown
    assert "merge on read" in shown
    result = table.upsert(table.read().to_arrow())
    assert result.instant in result._repr_html_()
    table.read()
    assert all(name in table._repr_html_() for name in table.schema.data_columns)
