"""A read as of a time that is archived has the columns of that time."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import FaultyStorage
from handmade import TIMELINE, HandmadeTable, at
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.format.timeline import archive as archive_format
from pyhudi.format.timeline.archive import (
    VERSION_FILE,
    ArchivedInstant,
    Manifest,
    ManifestEntry,
    archive_file_name,
    encode_archive_file,
    encode_archive_version,
    encode_manifest,
    manifest_name,
)
from pyhudi.format.timeline.commit_metadata import CommitMetadata, encode_commit_metadata
from pyhudi.format.timeline.instant import instant_time
from pyhudi.read.archive import History
from pyhudi.read.load import TableLoader, load_config
from pyhudi.read.plan import AtCompletion, AtRequest, Now, Point, Question, Reader
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.completion import visible_at_request

ONE = pa.schema([("id", pa.string()), ("a", pa.int32())])
TWO = pa.schema([*ONE, ("b", pa.string())])
THREE = pa.schema([("id", pa.string()), ("a", pa.int64()), ("b", pa.string())])
HISTORY = f"{TIMELINE}/history"

Archived = tuple[int, int, pa.Schema | None, str]  # requested, completed, schema, operation


def write(made: HandmadeTable, requested: int, completed: int, schema: pa.Schema) -> None:
    made.begin(requested)
    row = dict.fromkeys(schema.names) | {"id": str(requested)}
    path = made.log(requested, made.rows_block(requested, [row], schema=schema))
    made.complete(requested, completed, [path], schema=schema)


def archive(storage: Storage, *files: list[Archived]) -> None:
    """Make an archive of these writes, each list a file, and take them from the timeline."""
    entries = []
    for instants in files:
        rows = [_archived(storage, *each) for each in sorted(instants, key=lambda each: each[0])]
        data, name = encode_archive_file(rows), archive_file_name(rows)
        storage.write(f"{HISTORY}/{name.file_name}", data)
        entries.append(ManifestEntry(name, len(data)))
    storage.write(f"{HISTORY}/{manifest_name(1)}", encode_manifest(Manifest(tuple(entries))))
    storage.write(f"{HISTORY}/{VERSION_FILE}", encode_archive_version(1))


def _archived(
    storage: Storage, requested: int, completed: int, schema: pa.Schema | None, operation: str
) -> ArchivedInstant:
    for name in (s.path for s in list(storage.list(TIMELINE)) if f"/{at(requested)}" in s.path):
        storage.delete(name)
    extra = {} if schema is None else {"schema": json.dumps(avro_record_schema(schema, "t"))}
    metadata = CommitMetadata({}, extra_metadata=extra, operation_type=operation)
    times = instant_time(at(requested)), instant_time(at(completed))
    action = "commit" if operation == "COMPACT" else "deltacommit"
    return ArchivedInstant(*times, action, encode_commit_metadata(metadata, bytes(16)))


def columns(made: HandmadeTable, point: Point, storage: Storage | None = None) -> pa.Schema:
    storage = storage or made.storage
    loader = TableLoader(storage, load_config(storage))
    return Reader(loader).plan_snapshot(loader.load(), point, Question()).spec.output


@pytest.fixture
def made(memory: Storage) -> HandmadeTable:
    """Writes with one, two and three schemas; only the last is not archived."""
    table = HandmadeTable(memory, ONE)
    for requested, schema in ((1, ONE), (3, TWO), (10, THREE)):
        write(table, requested, requested + 1, schema)
    archive(memory, [(1, 2, ONE, "UPSERT"), (3, 4, TWO, "UPSERT"), (5, 6, THREE, "ALTER_SCHEMA")])
    return table


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        (AtCompletion(at(2)), ONE),
        (AtCompletion(at(3)), ONE),
        (AtCompletion(at(4)), TWO),
        (AtCompletion(at(5)), TWO),
        (AtCompletion(at(6)), THREE),
        (AtCompletion(at(11)), THREE),
        (AtRequest(at(1)), ONE),
        (AtRequest(at(3)), TWO),
        (AtRequest(at(4)), TWO),
        (AtRequest(at(5)), THREE),
        (Now(), THREE),
    ],
    ids=repr,
)
def test_an_archived_time_has_the_columns_of_its_last_write(
    made: HandmadeTable, point: Point, expected: pa.Schema
) -> None:
    assert columns(made, point).equals(expected)


def test_rows_of_an_archived_time_have_its_columns(made: HandmadeTable) -> None:
    table = pyhudi.open_table(made.storage.uri)
    assert table.read(as_of=at(2)).to_arrow().to_pylist() == [{"id": "1", "a": None}]
    later = table.read(as_of=at(6)).to_arrow()
    assert later.schema.equals(THREE)
    assert later["id"].to_pylist() == ["1", "3"]


@pytest.mark.parametrize(
    ("archived", "point", "expected"),
    [
        # Requested and completed in different orders.
        ([(1, 6, ONE, "UPSERT"), (2, 4, TWO, "UPSERT")], AtCompletion(at(7)), ONE),
        ([(1, 6, ONE, "UPSERT"), (2, 4, TWO, "UPSERT")], AtCompletion(at(5)), TWO),
        ([(1, 6, ONE, "UPSERT"), (2, 4, TWO, "UPSERT")], AtRequest(at(7)), TWO),
        # One without a schema does not change it.
        ([(1, 2, ONE, "UPSERT"), (3, 4, None, "DELETE")], AtCompletion(at(5)), ONE),
        # A table service does not bring one, unless no write has.
        ([(1, 2, TWO, "UPSERT"), (3, 4, ONE, "COMPACT")], AtCompletion(at(5)), TWO),
        ([(1, 2, None, "UPSERT"), (3, 4, ONE, "CLUSTER")], AtCompletion(at(5)), ONE),
        # Several that completed at once.
        ([(1, 4, ONE, "UPSERT"), (2, 4, TWO, "UPSERT")], AtCompletion(at(4)), TWO),
        ([(1, 4, ONE, "UPSERT"), (2, 4, None, "UPSERT")], AtCompletion(at(4)), ONE),
    ],
)
@pytest.mark.parametrize("one_each", [False, True], ids=["one file", "a file each"])
def test_archived_writes_count_by_the_rules_of_the_timeline(
    memory: Storage,
    archived: list[Archived],
    point: Point,
    expected: pa.Schema,
    one_each: bool,
) -> None:
    made = HandmadeTable(memory, THREE)
    write(made, 10, 11, THREE)
    archive(memory, *([[each] for each in archived] if one_each else [archived]))
    assert columns(made, point).equals(expected)


def test_a_table_whose_active_writes_recorded_nothing_has_the_schema_of_the_archive(
    memory: Storage,
) -> None:
    made = HandmadeTable(memory, ONE)
    made.begin(10)
    metadata = encode_commit_metadata(CommitMetadata({}, operation_type="DELETE"), bytes(16))
    memory.write(f"{TIMELINE}/{at(10)}_{at(11)}.deltacommit", metadata)
    archive(memory, [(1, 2, ONE, "UPSERT"), (3, 9, TWO, "UPSERT")])
    assert columns(made, Now()).equals(TWO)


def test_a_base_file_has_the_schema_where_the_archive_has_none(memory: Storage) -> None:
    made = HandmadeTable(memory, THREE)
    made.begin(1)
    made.base(1, [{"id": "x", "a": 1, "b": ""}], schema=TWO)
    write(made, 10, 11, THREE)
    archive(memory, [(1, 2, None, "UPSERT")])
    assert columns(made, AtCompletion(at(5))).equals(TWO)


def test_a_damaged_schema_in_the_archive_names_its_write(memory: Storage) -> None:
    made = HandmadeTable(memory, ONE)
    write(made, 10, 11, ONE)
    archive(memory, [(1, 2, ONE, "UPSERT")])
    name = next(s.path for s in memory.list(HISTORY) if s.path.endswith(".parquet"))
    metadata = CommitMetadata({}, extra_metadata={"schema": "{no json"}, operation_type="UPSERT")
    instant = ArchivedInstant(
        instant_time(at(1)),
        instant_time(at(2)),
        "deltacommit",
        encode_commit_metadata(metadata, bytes(16)),
    )
    memory.write(name, encode_archive_file([instant]))
    with pytest.raises(pyhudi.CorruptTableError, match=f"{at(1)}_{at(2)}.deltacommit"):
        columns(made, AtCompletion(at(5)))


# ---- what it costs


@pytest.mark.parametrize("point", [Now(), AtRequest(at(10))], ids=repr)
def test_a_schema_of_the_active_timeline_does_not_open_the_archive(
    made: HandmadeTable, point: Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(History, "latest_writes", lambda *args, **more: asked.append(args))
    assert columns(made, point).equals(THREE)
    assert asked == []


def test_a_table_without_an_archive_is_not_asked_for_one(memory: Storage) -> None:
    made = HandmadeTable(memory, ONE)
    write(made, 10, 11, TWO)

    storage = FaultyStorage(memory)
    loader = TableLoader(storage, load_config(storage))
    state = loader.load()
    before = len(storage.trace)
    visible = visible_at_request(state.timeline, at(5))
    Reader(loader).schema_at(state, visible, AtRequest(at(5)))
    assert [op.path for op in storage.trace[before:]] == [
        f"{TIMELINE}/{at(10)}_{at(11)}.deltacommit"
    ]


def test_a_search_reads_no_more_of_a_long_archive_than_it_needs(
    memory: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_format, "ROW_GROUP_INSTANTS", 2)
    monkeypatch.setattr(archive_format, "_PIECE_INSTANTS", 2)
    writes: list[Archived] = [(n, n + 1, ONE, "UPSERT") for n in range(1, 400, 2)]
    archive(memory, writes[:100], writes[100:])
    history = History(memory, HISTORY)
    found = history.latest_writes(at(301))
    assert [next(found)[0].requested for _ in range(3)] == [at(299), at(297), at(295)]
    assert history._kept <= 8
    assert len([*history.latest_writes(at(301))]) == 150
    assert len([*history.latest_writes()]) == 200
