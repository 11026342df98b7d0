"""What holds for every record of the timeline alike: golden files, round trips, refusals."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_tables import NAMES, GoldenTables
from pyhudi.errors import CorruptTableError
from pyhudi.format.avro import types as avro_types
from pyhudi.format.avro.container import decode_container, encode_container
from pyhudi.format.avro.types import linked_type
from pyhudi.format.timeline import commit_metadata, plan_files, service_metadata
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.format.timeline.timeline_record import TimelineRecord

SYNC = b"0123456789abcdef"
PATH = "a timeline file"
Record = TimelineRecord[Any]

RECORDS: dict[str, Record] = {
    record.schema["name"]: record
    for module in (commit_metadata, plan_files, service_metadata)
    for record in vars(module).values()
    if isinstance(record, TimelineRecord)
}
COMPLETED: Mapping[Action, Record] = {
    Action.COMMIT: commit_metadata.COMMIT,
    Action.DELTACOMMIT: commit_metadata.COMMIT,
    Action.REPLACECOMMIT: commit_metadata.REPLACE_COMMIT,
    Action.CLEAN: service_metadata.CLEAN,
    Action.ROLLBACK: service_metadata.ROLLBACK,
}
REQUESTED: Mapping[Action, Record] = {
    Action.REPLACECOMMIT: plan_files.REQUESTED_REPLACE,
    Action.CLUSTERING: plan_files.REQUESTED_REPLACE,
    Action.COMPACTION: plan_files.COMPACTION_PLAN,
    Action.CLEAN: plan_files.CLEANER_PLAN,
    Action.ROLLBACK: plan_files.ROLLBACK_PLAN,
}
MAY_BE_EMPTY = {(State.REQUESTED, Action.COMMIT), (State.REQUESTED, Action.DELTACOMMIT)}


def record_of(instant: Instant) -> Record:
    match instant.state:
        case State.REQUESTED:
            return REQUESTED[instant.action]
        case State.INFLIGHT:
            return commit_metadata.COMMIT
        case _:
            return COMPLETED[instant.action]


def timeline_files(golden: GoldenTables, name: str) -> Iterator[tuple[Instant, bytes]]:
    hoodie = golden.path(name) / ".hoodie"
    for folder in (hoodie, hoodie / "metadata" / ".hoodie"):
        for path in sorted(folder.glob("timeline/*")):
            if path.is_file():
                yield Instant.parse(path.name), path.read_bytes()


def assert_same_bytes(record: Record, data: bytes) -> None:
    """Decoding to values and encoding them gives the file again, under the header it had."""
    container = decode_container(data, PATH)
    body = decode_container(record.encode(record.decode(data, PATH), container.sync), PATH).body
    assert encode_container(replace(container, body=body)) == data


@pytest.mark.parametrize("name", NAMES)
def test_golden_timeline_file_decodes_and_encodes_to_the_same_bytes(
    golden: GoldenTables, name: str
) -> None:
    files = list(timeline_files(golden, name))
    assert files
    for instant, data in files:
        if data:
            assert_same_bytes(record_of(instant), data)
        else:
            empty = (instant.state, instant.action)
            assert instant.state is State.INFLIGHT or empty in MAY_BE_EMPTY


def test_archived_metadata_and_plans_decode_and_encode_to_the_same_bytes(
    golden: GoldenTables,
) -> None:
    plans: dict[str, Record] = {
        "commit": plan_files.COMPACTION_PLAN,
        "clean": plan_files.CLEANER_PLAN,
    }
    rows = [
        row
        for path in golden.path("mor_archived").glob(".hoodie/timeline/history/*.parquet")
        for row in pq.read_table(path).to_pylist()
    ]
    assert {row["action"] for row in rows} == {"deltacommit", "commit", "clean"}
    for row in rows:
        assert_same_bytes(COMPLETED[Action(row["action"])], row["metadata"])
        if row["plan"] is not None:
            assert_same_bytes(plans[row["action"]], row["plan"])


def values_of(linked: avro_types.Type, record: Record) -> st.SearchStrategy[Any]:
    """Any value that the schema allows, of the class that stands for it."""
    match linked:
        case avro_types.Primitive("string"):
            return st.text(max_size=8)
        case avro_types.Primitive("long"):
            return st.integers(-(2**63), 2**63 - 1)
        case avro_types.Primitive("int"):
            return st.integers(-(2**31), 2**31 - 1)
        case avro_types.Primitive("boolean"):
            return st.booleans()
        case avro_types.Primitive("double"):
            return st.floats(allow_nan=False)
        case avro_types.Primitive("null"):
            return st.none()
        case avro_types.Array(items):
            return st.lists(values_of(items, record), max_size=2).map(tuple)
        case avro_types.Map(values):
            return st.dictionaries(st.text(max_size=5), values_of(values, record), max_size=2)
        case avro_types.Union(branches):
            return st.one_of(*(values_of(branch, record) for branch in branches))
        case avro_types.Record():
            parts = st.tuples(*(values_of(field.type, record) for field in linked.fields))
            return parts.map(lambda values: record.classes[linked.name](*values))
    raise AssertionError(linked)


def as_fastavro(value: Any, linked: avro_types.Type) -> Any:
    """The value in dicts and lists, under the names of the schema."""
    match linked:
        case avro_types.Array(items):
            return [as_fastavro(item, items) for item in value]
        case avro_types.Map(values):
            return {key: as_fastavro(item, values) for key, item in value.items()}
        case avro_types.Union((avro_types.Primitive("null"), other)):
            return None if value is None else as_fastavro(value, other)
        case avro_types.Record(_, parts):
            names = [field.name for field in fields(value)]
            return {
                part.name: as_fastavro(getattr(value, name), part.type)
                for part, name in zip(parts, names, strict=False)
            }
        case _:
            return value


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_value_round_trips_and_fastavro_agrees(name: str) -> None:
    record = RECORDS[name]
    linked = linked_type(record.schema)

    @given(values_of(linked, record))
    @settings(deadline=None, max_examples=25)
    def check(value: Any) -> None:
        data = record.encode(value, SYNC)
        assert record.decode(data, PATH) == value
        assert list(fastavro.reader(io.BytesIO(data))) == [as_fastavro(value, linked)]

    check()


def snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


RENAMED = {
    "indexPartitionInfos": "index_partitions",
    "hoodieRestoreMetadata": "rollbacks",
    "restoreInstantInfo": "restored_instants",
}


def records_inside(linked: avro_types.Type) -> Iterator[avro_types.Record]:
    match linked:
        case avro_types.Array(inner) | avro_types.Map(inner):
            yield from records_inside(inner)
        case avro_types.Union(branches):
            for branch in branches:
                yield from records_inside(branch)
        case avro_types.Record():
            yield linked
            for field in linked.fields:
                yield from records_inside(field.type)


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_fields_of_values_are_those_of_the_record_in_order(name: str) -> None:
    record = RECORDS[name]
    for inside in records_inside(linked_type(record.schema)):
        ours = [field.name for field in fields(record.classes[inside.name])]
        theirs = [RENAMED.get(field.name) or snake(field.name) for field in inside.fields]
        assert ours[: len(theirs)] == theirs
        assert ours[len(theirs) :] in ([], ["partition_to_replace_file_ids"])


# Other writers' schemas --------------------------------------------------------------------------


def written_by_fastavro(schema: Any, record: Any, codec: str = "null") -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(schema), [record], codec=codec)
    return sink.getvalue()


STRANGE = {
    "type": "record",
    "name": "HoodieCommitMetadata",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "future", "type": ["null", "long", {"type": "enum", "name": "E", "symbols": ["A"]},
            {"type": "fixed", "name": "F", "size": 3}]},
        {"name": "operationType", "type": "string"},
        {"name": "version", "type": "int"},
        {"name": "partitionToWriteStats", "type": {"type": "map", "values": {
            "type": "array", "items": {"type": "record", "name": "HoodieWriteStat", "fields": [
                {"name": "path", "type": ["string", "null"]},
                {"name": "numWrites", "type": "int"},
                {"name": "added", "type": {"type": "record", "name": "Added", "fields": [
                    {"name": "x", "type": "double"}]}},
                {"name": "fileId", "type": ["null", "string"]},
            ]}}}},
    ],
}  # fmt: skip
STRANGE_RECORD = {
    "future": "A",
    "operationType": "UPSERT",
    "version": 3,
    "partitionToWriteStats": {
        "p": [{"path": "p/a", "numWrites": 5, "added": {"x": 1.0}, "fileId": None}]
    },
}


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_other_schema_resolves_with_defaults_and_drops_what_is_unknown(codec: str) -> None:
    data = written_by_fastavro(STRANGE, STRANGE_RECORD, codec)
    stat = commit_metadata.WriteStat(path="p/a", num_writes=5)
    assert commit_metadata.decode_commit_metadata(data, PATH) == commit_metadata.CommitMetadata(
        partition_to_write_stats={"p": (stat,)}, version=3, operation_type="UPSERT"
    )


def test_version_left_out_takes_the_default_of_the_schema() -> None:
    slim = {
        "type": "record",
        "name": "HoodieRollbackPlan",
        "fields": [{"name": "instantToRollback", "type": ["null", "string"]}],
    }
    plan = plan_files.decode_rollback_plan(
        written_by_fastavro(slim, {"instantToRollback": None}), PATH
    )
    assert plan == plan_files.RollbackPlan(None, None, 1)
    fields_ = [{"name": "x", "type": "int"}]
    restore = {"type": "record", "name": "HoodieRestorePlan", "fields": fields_}
    assert plan_files.RESTORE_PLAN.decode(
        written_by_fastavro(restore, {"x": 1}), PATH
    ) == plan_files.RestorePlan((), 2, None)


def with_type(kind: Any, name: str = "HoodieCommitMetadata") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "operationType", "type": kind}]}


@pytest.mark.parametrize(
    ("schema", "record", "why"),
    [
        (with_type("long"), {"operationType": 1}, "long is stored where"),
        (with_type(["null", "long"]), {"operationType": 1}, "long is stored where"),
        (with_type({"type": "array", "items": "string"}), {"operationType": []}, "kind array"),
        (with_type({"type": "map", "values": "string"}), {"operationType": {}}, "kind map"),
        (
            with_type(with_type("string", "Inner")),
            {"operationType": {"operationType": ""}},
            "Inner",
        ),
    ],
)
def test_schema_that_does_not_resolve_is_refused(schema: Any, record: Any, why: str) -> None:
    with pytest.raises(CorruptTableError, match=why):
        commit_metadata.decode_commit_metadata(written_by_fastavro(schema, record), PATH)


def test_branch_that_does_not_resolve_matters_only_when_used() -> None:
    data = written_by_fastavro(with_type(["null", "long"]), {"operationType": None})
    assert commit_metadata.decode_commit_metadata(data, PATH).operation is None


def test_missing_field_without_a_default_is_refused() -> None:
    schema = with_type("string", "HoodieCleanMetadata")
    data = written_by_fastavro(schema, {"operationType": "x"})
    with pytest.raises(CorruptTableError, match=r"leaves out HoodieCleanMetadata\.startCleanTime"):
        service_metadata.decode_clean_metadata(data, PATH)


# Refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(RECORDS) - {"HoodieRequestedReplaceMetadata"}))
def test_empty_file_is_refused_where_a_record_must_be(name: str) -> None:
    with pytest.raises(CorruptTableError, match=f"empty in 'x': it must hold one {name} record"):
        RECORDS[name].decode(b"", "x")


def test_empty_file_is_none_where_the_format_allows_it() -> None:
    assert commit_metadata.decode_inflight_commit(b"", PATH) is None
    assert plan_files.decode_requested_replace(b"", PATH) is None


def one_golden_file_of_each_record(golden: GoldenTables) -> dict[str, tuple[Record, bytes]]:
    found = {}
    for name in ("mor_archived", "mor_with_rollback", "cow_clustered", "cow_insert_overwrite"):
        for instant, data in timeline_files(golden, name):
            if data:
                record = record_of(instant)
                found[record.schema["name"]] = (record, data)
    return found


def test_a_record_of_another_kind_does_not_pass_for_an_empty_one(golden: GoldenTables) -> None:
    files = one_golden_file_of_each_record(golden)
    commits = {"HoodieCommitMetadata", "HoodieReplaceCommitMetadata"}  # one reads the other
    for name, (record, _) in files.items():
        for other, (_, data) in files.items():
            if name != other and {name, other} != commits:
                with pytest.raises(CorruptTableError, match=f"does not hold a {name} record"):
                    record.decode(data, PATH)


def test_file_cut_anywhere_is_refused(golden: GoldenTables) -> None:
    files = one_golden_file_of_each_record(golden)
    assert len(files) == 8
    for record, data in files.values():
        for size in (*range(1, len(data), 50), len(data) - 1):
            begun = time.process_time()
            with pytest.raises(CorruptTableError):
                record.decode(data[:size], PATH)
            assert time.process_time() - begun < 1


def test_changed_byte_gives_another_value_or_a_refusal(golden: GoldenTables) -> None:
    files = list(one_golden_file_of_each_record(golden).values())

    @given(st.sampled_from(files), st.data())
    @settings(deadline=None, max_examples=200)
    def check(file: tuple[Record, bytes], draw: st.DataObject) -> None:
        record, data = file
        place = draw.draw(st.integers(0, len(data) - 1))
        changed = bytearray(data)
        changed[place] ^= draw.draw(st.integers(1, 255))
        try:
            value = record.decode(bytes(changed), PATH)
        except CorruptTableError:
            return
        assert type(value) is record.classes[record.schema["name"]]

    check()


def test_few_bytes_cannot_stand_for_very_many_values() -> None:
    """One byte a stat in the writer's schema, 31 fields each in ours: refused by its size."""
    stat = {"type": "record", "name": "HoodieWriteStat", "fields": [
        {"name": "path", "type": ["null", "string"]}]}  # fmt: skip
    stats = {"type": "map", "values": {"type": "array", "items": stat}}
    fields_ = [{"name": "partitionToWriteStats", "type": stats}]
    schema = {"type": "record", "name": "HoodieCommitMetadata", "fields": fields_}
    small = decode_container(written_by_fastavro(schema, {"partitionToWriteStats": {}}), PATH)
    begun = time.process_time()
    with pytest.raises(CorruptTableError, match="may stand for more than"):
        commit_metadata.decode_commit_metadata(
            encode_container(replace(small, body=bytes(18_000_000))), PATH
        )
    assert time.process_time() - begun < 1


def test_long_schema_is_compiled_but_not_kept() -> None:
    long = {**STRANGE, "doc": "x" * 100_000}
    data = written_by_fastavro(long, STRANGE_RECORD)
    assert len(decode_container(data, PATH).schema_json) > 64 * 1024
    assert commit_metadata.decode_commit_metadata(data, PATH).operation == "UPSERT"
