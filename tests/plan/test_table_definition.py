"""What can be asked of a new table, the properties it gets, and how tables differ."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_tables import GoldenTables, load_description
from pyhudi.errors import InvalidRequestError
from pyhudi.format.lock.lock_address import (
    DynamodbAddress,
    LockAddress,
    ZookeeperAddress,
    address_properties,
)
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import ConsistentBuckets, SimpleBuckets
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.merge_rules import MergeMode
from pyhudi.format.table.properties import decode_table_properties, encode_properties
from pyhudi.format.table.table_config import (
    KeyGenerator,
    TableConfig,
    TableType,
    TimelineTimezone,
    unsupported_features,
)
from pyhudi.plan.new_table import table_properties
from pyhudi.plan.table_definition import TableDefinition, legal_table_name
from pyhudi.plan.table_differences import definition_differences, schema_differences

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("day", pa.date32()),
        ("region", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("number", pa.int64()),
        ("real", pa.float64()),
        ("small_real", pa.float32()),
        ("price", pa.decimal128(10, 2)),
        ("big_price", pa.decimal128(38, 2)),
        ("flag", pa.bool_()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("place", pa.struct([("x", pa.int32())])),
        ("labels", pa.map_(pa.string(), pa.field("value", pa.int32()))),
    ]
)
MOR, COW = TableType.MERGE_ON_READ, TableType.COPY_ON_WRITE
EVENT, COMMIT = MergeMode.EVENT_TIME_ORDERING, MergeMode.COMMIT_TIME_ORDERING
NON_BLOCKING, OPTIMISTIC = ConcurrencyMode.NON_BLOCKING, ConcurrencyMode.OPTIMISTIC


ADDRESSES: dict[LockKind, LockAddress] = {
    LockKind.ZOOKEEPER: ZookeeperAddress(url="zk:2181", base_path="/locks", lock_key="t"),
    LockKind.DYNAMODB: DynamodbAddress(table="locks", partition_key="t", region="eu-west-1"),
}


def definition(**changes: Any) -> TableDefinition:
    asked: dict[str, Any] = {
        "name": "orders",
        "schema": SCHEMA,
        "record_key": "id",
        "buckets": SimpleBuckets(8),
    }
    return TableDefinition.of(**(asked | changes))


def config_of(asked: TableDefinition) -> TableConfig:
    """The configuration that a reader finds in the table's bytes."""
    return TableConfig.of(decode_table_properties(encode_properties(table_properties(asked))))


# -- defaults


@pytest.mark.parametrize(
    ("asked", "merge_mode", "concurrency"),
    [
        ({"ordering": "at"}, EVENT, NON_BLOCKING),
        ({}, COMMIT, OPTIMISTIC),
        ({"ordering": "at", "merge_mode": COMMIT}, COMMIT, OPTIMISTIC),
        ({"ordering": "at", "concurrency": OPTIMISTIC}, EVENT, OPTIMISTIC),
        ({"concurrency": NON_BLOCKING}, COMMIT, NON_BLOCKING),
        ({"table_type": COW, "ordering": "at"}, EVENT, OPTIMISTIC),
        ({"table_type": COW}, COMMIT, OPTIMISTIC),
    ],
)
def test_an_ordering_decides_how_records_merge_and_whether_writers_wait(
    asked: dict[str, Any], merge_mode: MergeMode, concurrency: ConcurrencyMode
) -> None:
    made = definition(**asked)
    assert (made.merge_mode, made.concurrency) == (merge_mode, concurrency)


def test_a_table_is_merge_on_read_of_version_9_in_utc_without_a_lock_unless_asked_otherwise() -> (
    None
):
    found = config_of(definition())
    assert (found.table_type, found.version, found.lock) == (MOR, 9, LockKind.NONE)
    assert found.timezone is TimelineTimezone.UTC
    assert not found.hive_style
    assert not found.url_encode


@pytest.mark.parametrize(
    ("record_key", "partition_by", "generator"),
    [
        ("id", (), KeyGenerator.NON_PARTITION),
        (("id", "number"), (), KeyGenerator.NON_PARTITION),
        ("id", "day", KeyGenerator.SIMPLE),
        ("id", ("day", "region"), KeyGenerator.COMPLEX),
        (["id", "number"], "day", KeyGenerator.COMPLEX),
        ("id", "id", KeyGenerator.SIMPLE),  # a key column may be a partition column too
    ],
)
def test_key_generator_is_the_one_that_hudi_would_choose(
    record_key: Any, partition_by: Any, generator: KeyGenerator
) -> None:
    asked = definition(record_key=record_key, partition_by=partition_by)
    assert config_of(asked).key_generator is asked.key_generator is generator


# -- refusals


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": ""}, "name of a table"),
        ({"name": "my-orders"}, "such as 'my_orders'"),
        ({"name": "2026"}, "such as '_2026'"),
        ({"name": "a.b"}, "name of a table"),
        ({"name": "o" * 129}, "name of a table"),
        ({"name": "orders\n"}, "name of a table"),
        ({"database": "a b"}, "name of a database"),
        ({"schema": pa.schema([])}, "no columns"),
        ({"schema": pa.schema([("id", pa.string()), ("id", pa.string())])}, "several columns"),
        (
            {"schema": pa.schema([("id", pa.string()), ("a b", pa.string())])},
            "'a b' cannot be the name",
        ),
        (
            {"schema": pa.schema([("id", pa.string()), ("_hoodie_record_key", pa.string())])},
            "Hudi itself adds",
        ),
        ({"record_key": ()}, "the record key is missing"),
        ({"record_key": "absent"}, "record key column 'absent' does not exist"),
        ({"record_key": "place.x"}, "fields inside structs"),
        ({"record_key": ("id", "id")}, "names 'id' twice"),
        ({"record_key": "real"}, "double: equal numbers may have different texts"),
        ({"record_key": "small_real"}, "float: equal numbers may have different texts"),
        ({"record_key": "raw"}, "'raw' cannot be used as record key"),
        ({"record_key": "tags"}, "'tags' cannot be used as record key"),
        ({"record_key": "place"}, "'place' cannot be used as record key"),
        ({"record_key": "labels"}, "'labels' cannot be used as record key"),
        ({"partition_by": "absent"}, "partition column 'absent' does not exist"),
        ({"partition_by": ("day", "day")}, "names 'day' twice"),
        ({"partition_by": "tags"}, "'tags' cannot be used as partition"),
        ({"partition_by": "real"}, "'real' cannot be used as partition"),
        ({"partition_by": "raw"}, "'raw' cannot be used as partition"),
        ({"partition_by": "at"}, "Hudi reads null"),
        ({"ordering": "absent"}, "ordering column 'absent' does not exist"),
        ({"ordering": ("at", "at")}, "names 'at' twice"),
        ({"ordering": "tags"}, "'tags' cannot be used as ordering"),
        ({"ordering": "raw"}, "no order that all engines agree on"),
        ({"ordering": "big_price"}, "15 digits before the point"),
        ({"merge_mode": EVENT}, "the ordering is missing"),
        ({"merge_mode": MergeMode.CUSTOM}, "Java code"),
        ({"version": 7}, "version 7 cannot be created"),
        ({"version": "9"}, "version '9' cannot be created"),
        ({"table_type": COW, "concurrency": NON_BLOCKING}, "copy-on-write"),
        ({"buckets": None, "table_type": COW}, "number of buckets is missing"),
        ({"buckets": None, "lock": LockKind.FILE}, "number of buckets is missing"),
        ({"buckets": ConsistentBuckets(), "table_type": COW}, "cannot have consistent buckets"),
        ({"buckets": 8}, "8 is given"),
        ({"buckets": SimpleBuckets(8, ("region",))}, "region is not in the record key"),
        (
            {"record_key": ("number", "id"), "buckets": SimpleBuckets(8, ("number",))},
            "a colon in 'id'.*loop for ever",
        ),
    ],
)
def test_what_no_table_can_have_is_refused_with_the_reason(
    changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        definition(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        *({"record_key": name} for name in ("id", "number", "flag", "price", "day", "at")),
        *({"partition_by": name} for name in ("region", "number", "flag", "price", "day")),
        *({"ordering": name} for name in ("at", "number", "real", "small_real", "price", "day")),
        {"ordering": ("at", "number")},
        {"record_key": ("id", "number"), "buckets": SimpleBuckets(8, ("id",))},  # no colon there
        {"record_key": ("number", "id"), "buckets": SimpleBuckets(8, ("id",))},
        {"record_key": ("number", "id"), "buckets": SimpleBuckets(8, ("id", "number"))},
        {"partition_by": ("day", "region"), "hive_style": True, "url_encode": True},
        *({"lock": kind, "lock_address": ADDRESSES.get(kind)} for kind in LockKind),
    ],
)
def test_what_a_table_can_have_is_found_in_its_properties(changes: dict[str, Any]) -> None:
    asked = definition(**changes)
    found = config_of(asked)
    assert definition_differences(asked, found) == ()
    assert unsupported_features(found) == ()


def test_a_schema_beyond_the_limits_of_readers_is_refused() -> None:
    wide = pa.schema([("id", pa.string()), *((f"c{i}", pa.int32()) for i in range(10_001))])
    with pytest.raises(InvalidRequestError, match="schema is too large"):
        definition(schema=wide)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("orders", "orders"),
        ("my-orders v2", "my_orders_v2"),
        ("2026", "_2026"),
        ("", "_"),
        ("größe", "gr__e"),
        ("x" * 200, "x" * 128),
        ("1" * 200, "_" + "1" * 127),
    ],
)
def test_a_legal_name_is_near_the_text(text: str, name: str) -> None:
    assert legal_table_name(text) == name
    assert definition(name=name).name == name


# -- the properties


GOLDEN_SCHEMA = pa.schema([("id", pa.string()), ("ver", pa.int64()), ("part", pa.string())])
# Names, times and what Hudi's users leave to Hive differ from table to table.
NOT_COMPARED = {
    "hoodie.table.checksum",
    "hoodie.table.timeline.timezone",
    "hoodie.table.partition_extractor_class",
}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mor_nbcc", {"ordering": "ver", "partition_by": "part"}),
        ("mor_commit_time_ordering", {"partition_by": "part"}),
        ("mor_simple_bucket_v8", {"ordering": "ver", "partition_by": "part", "version": 8}),
        ("cow_part_v9", {"ordering": "ver", "partition_by": "part", "table_type": COW}),
        ("cow_nonpart_v9", {"ordering": "ver", "table_type": COW}),
        (
            "cow_hive_style_v8",
            {
                "ordering": "ver",
                "partition_by": "part",
                "table_type": COW,
                "version": 8,
                "hive_style": True,
                "url_encode": True,
            },
        ),
    ],
)
def test_properties_are_those_that_hudi_wrote_for_such_a_table(
    name: str, changes: dict[str, Any]
) -> None:
    ours = table_properties(definition(name=name, schema=GOLDEN_SCHEMA, **changes))
    theirs = load_description(name)["properties"]
    assert {key: ours.get(key) for key in theirs.keys() - NOT_COMPARED} == {
        key: theirs[key] for key in theirs.keys() - NOT_COMPARED
    }
    assert ours.keys() - theirs.keys() == {
        "hoodie.table.create.schema",
        "hoodie.index.type",
        "hoodie.index.bucket.engine",
        "hoodie.bucket.index.num.buckets",
        "hoodie.bucket.index.hash.field",
        "hoodie.datasource.write.recordkey.field",
        "hoodie.write.concurrency.mode",
        "hoodie.metadata.enable",
        "pyhudi.lock",
    }


def test_the_schema_is_kept_as_hudis_sql_keeps_it(golden: GoldenTables) -> None:
    columns = [("id", pa.string()), ("ver", pa.int64()), ("name", pa.string())]
    schema = pa.schema([*columns, ("amount", pa.float64()), ("part", pa.string())])
    asked = definition(name="mor_partial_update", schema=schema)
    data = (golden.path("mor_partial_update") / ".hoodie/hoodie.properties").read_bytes()
    theirs = TableConfig.of(decode_table_properties(data)).create_schema
    assert theirs == asked.schema_json


@pytest.mark.parametrize(
    ("merge_mode", "strategy", "payload"),
    [
        (EVENT, "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5", "DefaultHoodieRecordPayload"),
        (COMMIT, "ce9acb64-bde0-424c-9b91-f6ebba25356d", "OverwriteWithLatestAvroPayload"),
    ],
)
def test_version_8_also_names_strategy_and_payload(
    merge_mode: MergeMode, strategy: str, payload: str
) -> None:
    asked = definition(version=8, ordering="at", merge_mode=merge_mode)
    properties = table_properties(asked)
    assert properties["hoodie.record.merge.strategy.id"] == strategy
    assert properties["hoodie.compaction.payload.class"].endswith(f".{payload}")


@pytest.mark.parametrize(
    ("lock", "provider"),
    [
        (LockKind.NONE, None),
        (LockKind.IN_PROCESS, None),
        (LockKind.FILE, "FileSystemBasedLockProvider"),
        (LockKind.STORAGE, "StorageBasedLockProvider"),
        (LockKind.ZOOKEEPER, "ZookeeperBasedLockProvider"),
        (LockKind.DYNAMODB, "DynamoDBBasedLockProvider"),
    ],
)
def test_spark_writers_find_the_lock_that_they_must_take(
    lock: LockKind, provider: str | None
) -> None:
    properties = table_properties(definition(lock=lock, lock_address=ADDRESSES.get(lock)))
    found = properties.get("hoodie.write.lock.provider")
    assert (found and found.rpartition(".")[2]) == provider
    assert address_properties(ADDRESSES.get(lock)).items() <= properties.items()


def test_the_checksum_covers_database_and_name() -> None:
    properties = table_properties(definition(name="morpart", database="default"))
    assert properties["hoodie.table.checksum"] == "4152988650"
    assert table_properties(definition(name="mor1"))["hoodie.table.checksum"] == "2126765813"


@settings(deadline=None, max_examples=60)
@given(
    record_key=st.permutations(["id", "number", "day"]).map(lambda names: tuple(names[:2])),
    partition_by=st.lists(st.sampled_from(["region", "day", "flag"]), unique=True),
    ordering=st.lists(st.sampled_from(["at", "number", "price"]), unique=True),
    table_type=st.sampled_from(TableType),
    version=st.sampled_from([8, 9]),
    flags=st.tuples(st.booleans(), st.booleans()),
    count=st.integers(1, 10_000),
    lock=st.sampled_from(LockKind),
    database=st.sampled_from(["", "default"]),
)
def test_every_definition_is_read_back_as_it_was_asked(
    flags: tuple[bool, bool], count: int, **changes: Any
) -> None:
    hive_style, url_encode = flags
    asked = definition(
        hive_style=hive_style,
        url_encode=url_encode,
        buckets=SimpleBuckets(count),
        lock_address=ADDRESSES.get(changes["lock"]),
        **changes,
    )
    found = config_of(asked)
    assert definition_differences(asked, found) == ()
    assert found.buckets == SimpleBuckets(count, asked.record_key)


# -- differences


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"database": "sales"}, "database: not stated in the table, sales requested"),
        ({"table_type": COW}, "table type: MERGE_ON_READ in the table, COPY_ON_WRITE requested"),
        ({"version": 8}, "table version: 9 in the table, 8 requested"),
        ({"record_key": "number"}, "record key: id in the table, number requested"),
        ({"partition_by": "day"}, "partition columns: none in the table, day requested"),
        ({"ordering": "number"}, "ordering: at in the table, number requested"),
        (
            {"merge_mode": COMMIT},
            "merge mode: EVENT_TIME_ORDERING in the table, COMMIT_TIME_ORDERING requested",
        ),
        ({"hive_style": True}, "hive style partitions: False in the table, True requested"),
        ({"url_encode": True}, "URL encoded partitions: False in the table, True requested"),
        ({"buckets": SimpleBuckets(9)}, "buckets: 8 by id in the table, 9 by id requested"),
        ({"concurrency": OPTIMISTIC}, "concurrency mode: NON_BLOCKING_CONCURRENCY_CONTROL in the"),
        ({"lock": LockKind.FILE}, "lock: none in the table, file requested"),
        (
            {"lock": LockKind.ZOOKEEPER, "lock_address": ADDRESSES[LockKind.ZOOKEEPER]},
            "address of the lock: not stated in the table, /locks/t at zk:2181 requested",
        ),
    ],
)
def test_each_difference_is_named(changes: dict[str, Any], difference: str) -> None:
    found = config_of(definition(ordering="at"))
    asked = definition(**({"ordering": "at"} | changes))
    assert any(difference in phrase for phrase in definition_differences(asked, found))


def test_a_table_that_was_moved_is_still_the_same() -> None:
    assert definition_differences(definition(name="new"), config_of(definition(name="old"))) == ()


@pytest.mark.parametrize(
    ("asked", "found", "phrases"),
    [
        ([("a", pa.int32()), ("b", pa.int32())], [("b", pa.int32()), ("a", pa.int32())], ()),
        ([("a", pa.int32())], [("a", pa.int64())], ("column 'a' is int64, not int32",)),
        ([("a", pa.int32())], [], ("column 'a' is not in the table",)),
        ([], [("a", pa.int32())], ("column 'a' is in the table, and was not requested",)),
        (
            [pa.field("a", pa.int32(), nullable=False)],
            [("a", pa.int32())],
            ("column 'a' may be null",),
        ),
        (
            [("a", pa.int32())],
            [pa.field("a", pa.int32(), nullable=False)],
            ("column 'a' may not be null",),
        ),
    ],
)
def test_each_column_that_differs_is_named(
    asked: list[Any], found: list[Any], phrases: tuple[str, ...]
) -> None:
    assert schema_differences(pa.schema(asked), pa.schema(found)) == phrases


def test_nulls_matter_only_if_they_are_asked_about() -> None:
    strict = pa.schema([pa.field("a", pa.int32(), nullable=False)])
    assert schema_differences(strict, pa.schema([("a", pa.int32())]), nulls=False) == ()


def test_an_error_about_another_schema_stays_short() -> None:
    asked = pa.schema([(f"c{i}", pa.int32()) for i in range(50)])
    phrases = schema_differences(asked, pa.schema([]))
    assert len(phrases) == 6
    assert phrases[-1] == "45 more columns differ"
