from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi.errors import InvalidRequestError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import ConsistentBuckets, SimpleBuckets
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.merge_rules import MergeMode
from pyhudi.format.table.properties import TableProperties
from pyhudi.format.table.table_config import KeyGenerator, TableConfig, TableType
from pyhudi.hudi_options.classes import (
    ByValue,
    Honoured,
    OptionClasses,
    Refused,
    Verdict,
    WithoutEffect,
    refused_on,
    require_known,
)
from pyhudi.hudi_options.read_options import READ_CLASSES
from pyhudi.hudi_options.write_options import (
    AskedTable,
    HudiWrite,
    Operation,
    parse_write_options,
    refuse_contradictions,
    refuse_incomplete_table,
)
from pyhudi.hudi_options.write_table import WRITE_CLASSES
from pyhudi.plan.new_table import table_properties
from pyhudi.plan.table_definition import TableDefinition
from pyhudi.settings import FailedWrites, LogBlockFormat, SchemaMode, WriteSettings

PAGE = Path(__file__).parents[2] / "docs" / "hudi_options.md"
MODEL = "org.apache.hudi.common.model."
LOCKS = "org.apache.hudi.client.transaction.lock."
ZOOKEEPER = {
    "hoodie.write.lock.zookeeper.url": "zk:2181",
    "hoodie.write.lock.zookeeper.base_path": "/locks",
}
DYNAMODB = {
    "hoodie.write.lock.dynamodb.table": "locks",
    "hoodie.write.lock.dynamodb.region": "eu-west-1",
}
KEYGEN = "org.apache.hudi.keygen."
OPERATION = "hoodie.datasource.write.operation"
KEY = "hoodie.datasource.write.recordkey.field"
PARTITION = "hoodie.datasource.write.partitionpath.field"
ORDERING = "hoodie.datasource.write.precombine.field"
COUNT = "hoodie.bucket.index.num.buckets"
ENGINE = "hoodie.index.bucket.engine"
INDEX = "hoodie.bucket.index"
GENERATOR = "hoodie.datasource.write.keygenerator.class"
TO_DELETE = "hoodie.datasource.write.partitions.to.delete"
EAGER = {"hoodie.clean.failed.writes.policy": "EAGER"}


@pytest.fixture(autouse=True)
def warnings_are_errors() -> object:
    """So that each test also claims which options are silent."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_without_options_a_write_is_an_upsert_that_adds_columns_and_all_else_is_open() -> None:
    assert parse_write_options({"path": "x"}) == HudiWrite(
        operation=Operation.UPSERT,
        table=AskedTable(),
        settings=WriteSettings(schema_mode=SchemaMode.ADD),
    )


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, set()),
        ({"hoodie.compact.inline": "false"}, {"compaction"}),
        (
            {"hoodie.clean.automatic": " FALSE", "hoodie.archive.automatic": "false"},
            {"clean", "archive"},
        ),
        ({"hoodie.table.services.enabled": "false"}, {"compaction", "resize", "clean", "archive"}),
    ],
)
def test_a_service_that_is_switched_off_does_not_follow_the_save(
    options: dict[str, str], left: set[str]
) -> None:
    assert parse_write_options(options).left_services == left


RECONCILE = "hoodie.datasource.write.reconcile.schema"
FILL = "hoodie.write.set.null.for.missing.columns"

#: What the options say of the schema → what rows may change.
SCHEMA_MODES: list[tuple[dict[str, str], SchemaMode]] = [
    ({RECONCILE: "true"}, SchemaMode.MERGE),
    ({FILL: " TRUE"}, SchemaMode.MERGE),
    ({RECONCILE: "false", FILL: "true"}, SchemaMode.MERGE),
    ({RECONCILE: "false", FILL: "false"}, SchemaMode.ADD),
    ({"hoodie.avro.schema.validate": "true"}, SchemaMode.ADD),
    ({"hoodie.write.concurrency.schema.conflict.resolution.enable": "true"}, SchemaMode.ADD),
    ({"hoodie.schema.on.read.enable": "false"}, SchemaMode.ADD),
    ({"mergeSchema": "true"}, SchemaMode.MERGE),
    ({"mergeschema": "True"}, SchemaMode.MERGE),  # as Spark passes it on
    ({"MERGESCHEMA": "true", RECONCILE: "true"}, SchemaMode.MERGE),
    ({"mergeSchema": "true", FILL: "false"}, SchemaMode.MERGE),
    ({"mergeSchema": "false"}, SchemaMode.STRICT),
    ({"mergeSchema": "false", RECONCILE: "false"}, SchemaMode.STRICT),
]


@pytest.mark.parametrize(("options", "mode"), SCHEMA_MODES)
def test_options_say_how_rows_may_change_the_schema(
    options: dict[str, str], mode: SchemaMode
) -> None:
    assert parse_write_options(options).settings.schema_mode is mode


@pytest.mark.parametrize(
    ("word", "operation"),
    [
        ("upsert", Operation.UPSERT),
        ("INSERT", Operation.APPEND),
        ("bulk_insert", Operation.APPEND),
        ("delete", Operation.DELETE),
    ],
)
def test_hudis_operations_have_verbs_here(word: str, operation: Operation) -> None:
    assert parse_write_options({OPERATION: word}).operation is operation


QUICKSTART = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    KEY: "uuid, line",
    PARTITION: "city",
    ORDERING: "ts",
    OPERATION: "upsert",
    GENERATOR: f"{KEYGEN}ComplexKeyGenerator",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.datasource.write.partitionpath.urlencode": "false",
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "SIMPLE",
    COUNT: "8",
    "hoodie.bucket.index.hash.field": "uuid",
    "hoodie.write.table.version": "8",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": f"{LOCKS}FileSystemBasedLockProvider",
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.metadata.enable": "false",
    "hoodie.compact.inline": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.datasource.hive_sync.enable": "false",
    "hoodie.combine.before.upsert": "true",
    "hoodie.parquet.compression.codec": "zstd",
}


def test_options_describe_a_table_without_a_warning() -> None:
    write = parse_write_options(QUICKSTART)
    refuse_incomplete_table(write)
    assert write.table == AskedTable(
        name="trips",
        table_type=TableType.MERGE_ON_READ,
        version=8,
        record_key=("uuid", "line"),
        partition_by=("city",),
        ordering=("ts",),
        bucket_engine="SIMPLE",
        bucket_count=8,
        hash_fields=("uuid",),
        hive_style=True,
        url_encode=False,
        merge_mode=MergeMode.EVENT_TIME_ORDERING,
        concurrency=ConcurrencyMode.OPTIMISTIC,
        lock=LockKind.FILE,
        key_generator=KeyGenerator.COMPLEX,
    )
    assert write.table.buckets == SimpleBuckets(8, ("uuid",))


@pytest.mark.parametrize(
    ("options", "buckets"),
    [
        ({}, ConsistentBuckets()),
        ({COUNT: "8"}, ConsistentBuckets(8)),
        ({COUNT: "9000"}, ConsistentBuckets(9000, max=9000)),
        (
            {f"{INDEX}.min.num.buckets": "2", f"{INDEX}.max.num.buckets": "64"},
            ConsistentBuckets(min=2, max=64),
        ),
        ({f"{INDEX}.hash.field": "id"}, ConsistentBuckets(hash_fields=("id",))),
    ],
)
def test_options_describe_consistent_buckets(
    options: dict[str, str], buckets: ConsistentBuckets
) -> None:
    write = parse_write_options({ENGINE: "CONSISTENT_HASHING", **options})
    assert write.table.buckets == buckets


def test_the_engine_has_the_name_of_the_rfc_too() -> None:
    assert parse_write_options({ENGINE: "SIMPLE_HASHING", COUNT: "4"}).table.buckets == (
        SimpleBuckets(4)
    )


def test_options_set_how_this_process_writes() -> None:
    options = {
        "hoodie.logfile.data.block.format": "avro",
        "hoodie.logfile.max.size": "1048576",
        "hoodie.client.heartbeat.interval_in_ms": "5000",
        "hoodie.client.heartbeat.tolerable.misses": "3",
        "hoodie.cleaner.policy.failed.writes": "EAGER",
        "hoodie.write.num.retries.on.conflict.failures": "0",
        "hoodie.write.lock.wait_time_ms": "1000",
    }
    assert parse_write_options(options).settings == WriteSettings(
        log_block_format=LogBlockFormat.AVRO,
        log_file_bytes_max=1 << 20,
        heartbeat_interval_ms=5_000,
        heartbeat_misses=3,
        failed_writes=FailedWrites.EAGER,
        conflict_retries=0,
        lock_wait_ms=1_000,
        schema_mode=SchemaMode.ADD,
    )


SAME = [
    ({"hoodie.table.recordkey.fields": "a,b"}, AskedTable(record_key=("a", "b"))),
    ({"hoodie.table.partition.fields": ""}, AskedTable(partition_by=())),
    ({"hoodie.table.ordering.fields": "ts"}, AskedTable(ordering=("ts",))),
    ({"hoodie.table.precombine.field": "ts", ORDERING: "ts"}, AskedTable(ordering=("ts",))),
    ({"hoodie.table.type": "copy_on_write"}, AskedTable(table_type=TableType.COPY_ON_WRITE)),
    ({"hoodie.database.name": "db"}, AskedTable(database="db")),
    ({"hoodie.write.concurrency.mode": "SINGLE_WRITER"}, AskedTable()),
    (
        {"hoodie.write.lock.provider": f"{LOCKS}StorageBasedLockProvider"},
        AskedTable(lock=LockKind.STORAGE),
    ),
    (
        {"hoodie.write.lock.provider": f"{LOCKS}ZookeeperBasedLockProvider", **ZOOKEEPER},
        AskedTable(lock=LockKind.ZOOKEEPER, lock_options=ZOOKEEPER),
    ),
    (
        {"hoodie.datasource.write.payload.class": f"{MODEL}DefaultHoodieRecordPayload"},
        AskedTable(merge_mode=MergeMode.EVENT_TIME_ORDERING),
    ),
    (
        {
            "hoodie.compaction.payload.class": f"{MODEL}OverwriteWithLatestAvroPayload",
            "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
            "hoodie.record.merge.strategy.id": "ce9acb64-bde0-424c-9b91-f6ebba25356d",
        },
        AskedTable(merge_mode=MergeMode.COMMIT_TIME_ORDERING),
    ),
    (
        {"hoodie.datasource.write.keygenerator.type": "NON_PARTITION_AVRO"},
        AskedTable(key_generator=KeyGenerator.NON_PARTITION),
    ),
]


@pytest.mark.parametrize(("options", "table"), SAME)
def test_other_names_say_the_same(options: dict[str, str], table: AskedTable) -> None:
    assert parse_write_options(options).table == table


def test_pythons_own_values_are_taken_for_their_texts() -> None:
    options: dict[str, object] = {COUNT: 4, "hoodie.metadata.enable": False}
    assert parse_write_options(options).table.bucket_count == 4  # type: ignore[arg-type]


REFUSED = [
    ({OPERATION: "bootstrap"}, "no such write"),
    ({OPERATION: "insert_overwrite"}, "table.overwrite(df)"),
    ({OPERATION: "insert_overwrite_table"}, "table.overwrite(df, partitions='all')"),
    ({OPERATION: "delete_partition"}, "table.delete_partitions"),
    ({TO_DELETE: "day=1"}, "table.delete_partitions"),
    ({"hoodie.metadata.enable": "true"}, "does not maintain the metadata table"),
    ({"hoodie.metadata.enable": "yes"}, "true or false"),
    ({"hoodie.index.type": "BLOOM"}, "bucket index"),
    ({ENGINE: "EXTENDIBLE_HASHING"}, "no engine can split such buckets yet"),
    ({ENGINE: "LINEAR_HASHING"}, "it is simple, or consistent_hashing"),
    ({ENGINE: "CONSISTENT_HASHING", COUNT: "4", f"{INDEX}.max.num.buckets": "2"}, "initial"),
    ({ENGINE: "CONSISTENT_HASHING", f"{INDEX}.min.num.buckets": "0"}, "from 1 to"),
    ({COUNT: "0"}, "from 1 to"),
    ({COUNT: "many"}, "whole number"),
    ({"hoodie.write.table.version": "6"}, "versions 8 and 9"),
    ({"hoodie.datasource.write.table.type": "mor"}, "COPY_ON_WRITE or MERGE_ON_READ"),
    ({"hoodie.datasource.write.hive_style_partitioning": "1"}, "true or false"),
    ({"hoodie.compact.inline": "true"}, "the policy that the table records"),
    ({"hoodie.datasource.clustering.inline.enable": "true"}, "does not cluster after a write"),
    ({"hoodie.datasource.hive_sync.enable": "true"}, "syncs no catalog"),
    ({"hoodie.combine.before.insert": "false"}, "always combined"),
    ({"hoodie.datasource.insert.dup.policy": "drop"}, "is merged"),
    ({"hoodie.populate.meta.fields": "false"}, "meta columns"),
    ({"hoodie.logfile.data.block.format": "hfile"}, "parquet and avro"),
    ({"hoodie.clean.failed.writes.policy": "NEVER"}, "stays pending"),
    ({"hoodie.client.heartbeat.interval_in_ms": "10"}, "at least 1000"),
    ({"hoodie.datasource.write.payload.class": f"{MODEL}AWSDmsAvroPayload"}, "Java code"),
    ({"hoodie.write.record.merge.mode": "CUSTOM"}, "Java code"),
    ({GENERATOR: f"{KEYGEN}TimestampBasedKeyGenerator"}, "SIMPLE, COMPLEX and NON_PARTITION"),
    ({"hoodie.keygen.timebased.timestamp.type": "UNIX"}, "record keys or partition paths"),
    ({"hoodie.write.lock.provider": f"{LOCKS}HiveMetastoreBasedLockProvider"}, "no other"),
    (
        {"hoodie.write.lock.provider": f"{LOCKS}ZookeeperBasedImplicitBasePathLockProvider"},
        "how each engine spells the table's address",
    ),
    ({"hoodie.write.lock.zookeeper.hosts": "zk"}, "no write option"),
    ({PARTITION: "a:SIMPLE"}, "not a column of its own"),
    ({KEY: "a,,b"}, "different columns"),
    ({ORDERING: "a", "hoodie.table.ordering.fields": "b"}, "contradict"),
    ({"mergeSchema": "1"}, "true or false"),
    ({"mergeSchema": "false", RECONCILE: "true"}, "filled with null"),
    ({FILL: "true", "mergeschema": "FALSE"}, "mergeSchema='FALSE' and hoodie.write.set.null"),
    (
        {"hoodie.write.concurrency.schema.conflict.resolution.enable": "false"},
        "drop columns that other writers add",
    ),
    (
        {"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true"},
        "`table.update_schema()` does",
    ),
    ({"hoodie.schema.on.read.enable": "true"}, "schema-on-read history is not written"),
    ({**EAGER, "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}, "live writers"),
    ({"hoodie.upsert.shufle.parallelism": "1"}, "'hoodie.upsert.shuffle.parallelism'"),
    ({"hoodie.datasource.write.recordkey.fields": "a"}, f"Did you mean '{KEY}'"),
    ({"nonsense": "1"}, "no write option 'nonsense'"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_options_that_would_change_the_meaning_are_refused(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(message)):
        parse_write_options(options)


IDLE = [
    ({"hoodie.upsert.shuffle.parallelism": "200"}, "sizes its own tasks"),
    ({"hoodie.clean.automatic": "true"}, "the policy that the table records"),
    ({"hoodie.cleaner.commits.retained": "10"}, "the policy that the table records"),
    ({"hoodie.archive.automatic": "true"}, "the policy that the table records"),
    ({"hoodie.parquet.compression.codec": "gzip"}, "compresses with zstd"),
    ({"hoodie.datasource.hive_sync.password": "secret"}, "syncs no catalog"),
    ({"hoodie.write.lock.provider": f"{LOCKS}InProcessLockProvider"}, "need no lock"),
    ({"hoodie.metadata.index.column.stats.enable": "true"}, "does not maintain the metadata table"),
    ({"hoodie.avro.schema.validate": "false"}, "is refused, always"),
    (
        {"hoodie.clustering.plan.strategy.class": "x.Y"},
        "plans and executes resizes of buckets itself",
    ),
    ({"hoodie.clustering.updates.strategy": "x.Y"}, "writes twice beside those of Hudi"),
]


@pytest.mark.parametrize(("options", "message"), IDLE)
def test_an_option_without_effect_is_told_with_the_reason(
    options: dict[str, str], message: str
) -> None:
    with pytest.warns(UserWarning, match=message) as told:
        write = parse_write_options(options)
    assert write == HudiWrite()
    assert len(told) == 1
    assert "secret" not in str(told[0].message)


def described(classes: OptionClasses) -> Iterator[tuple[str, str, str, str]]:
    """Yield each option, a value (if it matters), its class, and what happens."""
    no_flag = refused_on("").otherwise
    for name, option_class in classes.items():
        if not isinstance(option_class, ByValue):
            yield name, "", *_words(option_class)
            continue
        for value, verdict in option_class.verdicts.items():
            yield name, value, *_words(verdict)
        if option_class.otherwise != no_flag:
            yield name, "…", *_words(option_class.otherwise)


def _words(verdict: Verdict) -> tuple[str, str]:
    match verdict:
        case Honoured(what):
            return "honoured", what
        case WithoutEffect(why):
            return "without effect", why
        case Refused(why):
            return "refused", why


@pytest.mark.parametrize("classes", [WRITE_CLASSES, READ_CLASSES], ids=["writes", "reads"])
def test_every_option_meets_the_class_it_is_listed_in(classes: OptionClasses) -> None:
    for name, value, kind, _ in described(classes):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                require_known({name.replace("*", "any"): value}, classes, "")
                met = "without effect" if told else "honoured"
            except InvalidRequestError:
                met = "refused"
        assert met == kind, f"{name}={value}"


# ---- an existing table


def existing(**changes: object) -> TableConfig:
    asked: dict[str, object] = {
        "record_key": ("id", "line"),
        "partition_by": "day",
        "ordering": "ts",
        "buckets": SimpleBuckets(4),
        "lock": LockKind.FILE,
        **changes,
    }
    schema = pa.schema([(name, pa.int64()) for name in ("id", "line", "day", "ts")])
    definition = TableDefinition.of("orders", schema, **asked)  # type: ignore[arg-type]
    return TableConfig.of(TableProperties(table_properties(definition)))


FITTING: list[Mapping[str, str]] = [
    {},
    {KEY: "id,line", PARTITION: "day", ORDERING: "ts", COUNT: "4"},
    {"hoodie.bucket.index.hash.field": "line,id"},
    {"hoodie.table.name": "orders", "hoodie.database.name": "any"},
    {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"},
    {"hoodie.write.concurrency.mode": "SINGLE_WRITER"},
    {"hoodie.write.lock.provider": f"{LOCKS}FileSystemBasedLockProvider"},
    {GENERATOR: f"{KEYGEN}ComplexKeyGenerator"},
    {"hoodie.datasource.write.payload.class": f"{MODEL}DefaultHoodieRecordPayload"},
]


@pytest.mark.parametrize("options", FITTING)
def test_options_that_agree_with_the_table_pass(options: Mapping[str, str]) -> None:
    refuse_contradictions(parse_write_options(options), existing())


CONTRADICTING = [
    ({"hoodie.table.name": "others"}, "'orders'"),
    ({"hoodie.datasource.write.table.type": "COPY_ON_WRITE"}, "'MERGE_ON_READ'"),
    ({"hoodie.write.table.version": "8"}, "'9'"),
    ({"hoodie.table.recordkey.fields": "id"}, "'id,line'"),
    ({PARTITION: ""}, "'day'"),
    ({"hoodie.payload.ordering.field": "line"}, "'ts'"),
    ({COUNT: "8"}, "'4'"),
    ({"hoodie.bucket.index.hash.field": "id"}, "'id,line'"),
    ({"hoodie.datasource.write.hive_style_partitioning": "true"}, "'false'"),
    ({"hoodie.datasource.write.partitionpath.urlencode": "true"}, "'false'"),
    ({"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}, "'EVENT_TIME_ORDERING'"),
    (
        {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"},
        "'NON_BLOCKING_CONCURRENCY_CONTROL'",
    ),
    ({"hoodie.write.lock.provider": f"{LOCKS}StorageBasedLockProvider"}, "'file'"),
    ({GENERATOR: f"{KEYGEN}SimpleKeyGenerator"}, "'COMPLEX'"),
]


@pytest.mark.parametrize(
    ("options", "there"),
    [
        ({ENGINE: "SIMPLE"}, "'CONSISTENT_HASHING'"),
        ({COUNT: "8"}, "'4'"),
        ({f"{INDEX}.max.num.buckets": "8"}, "'4096'"),
        ({f"{INDEX}.min.num.buckets": "8"}, "'2'"),
    ],
)
def test_options_that_contradict_the_rings_of_a_table_are_refused(
    options: dict[str, str], there: str
) -> None:
    rings = existing(buckets=ConsistentBuckets(4, min=2))
    refuse_contradictions(parse_write_options({COUNT: "4"}), rings)
    refuse_contradictions(parse_write_options({COUNT: "9"}), existing(buckets=ConsistentBuckets()))
    with pytest.raises(InvalidRequestError, match=f"there it is {there}"):
        refuse_contradictions(parse_write_options(options), rings)


@pytest.mark.parametrize(("options", "there"), CONTRADICTING)
def test_options_that_contradict_the_table_are_refused_by_name(
    options: dict[str, str], there: str
) -> None:
    write = parse_write_options(options)
    with pytest.raises(InvalidRequestError) as refusal:
        refuse_contradictions(write, existing())
    (option,) = options
    assert option in refusal.value.what
    assert f"there it is {there}," in refusal.value.why


def test_what_a_table_does_not_tell_cannot_be_contradicted() -> None:
    told = existing().properties.values
    kept = {
        name: value
        for name, value in told.items()
        if not name.startswith(("hoodie.bucket.index", "hoodie.write", "pyhudi."))
    }
    options = {
        COUNT: "8",
        "hoodie.write.lock.provider": f"{LOCKS}StorageBasedLockProvider",
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    }
    refuse_contradictions(parse_write_options(options), TableConfig.of(TableProperties(kept)))


INCOMPLETE = [
    ({COUNT: "4"}, KEY),
    ({KEY: "id", "hoodie.datasource.write.table.type": "COPY_ON_WRITE"}, COUNT),
    ({KEY: "id", "hoodie.write.lock.provider": f"{LOCKS}FileSystemBasedLockProvider"}, COUNT),
    ({KEY: "id", COUNT: "4", GENERATOR: f"{KEYGEN}SimpleKeyGenerator"}, "NON_PARTITION"),
]


@pytest.mark.parametrize(("options", "message"), INCOMPLETE)
def test_a_new_table_needs_its_key_and_its_buckets(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(message)):
        refuse_incomplete_table(parse_write_options(options))


# ---- the page


def documented(classes: OptionClasses) -> list[str]:
    """The rows of the page's table: options that fare alike share one."""
    rows: dict[tuple[str, str], dict[tuple[str, ...], list[str]]] = {}
    for (kind, what), values in _values(classes).items():
        for name, known in values.items():
            rows.setdefault((kind, what), {}).setdefault(tuple(known), []).append(f"`{name}`")
    return [
        f"| {'; '.join(_cell(*cell) for cell in cells.items())} | {kind} | {what} |"
        for (kind, what), cells in rows.items()
    ]


def _values(classes: OptionClasses) -> dict[tuple[str, str], dict[str, list[str]]]:
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for name, value, kind, what in described(classes):
        values = found.setdefault((kind, what), {}).setdefault(name, [])
        values += [f"`{value}`"] if value else []
    return found


def _cell(values: tuple[str, ...], names: list[str]) -> str:
    return ", ".join(names) + (f" = {', '.join(values)}" if values else "")


@pytest.mark.parametrize("classes", [WRITE_CLASSES, READ_CLASSES], ids=["writes", "reads"])
def test_the_page_tells_what_becomes_of_each_option(classes: OptionClasses) -> None:
    rows = documented(classes)
    assert "\n".join(rows) in PAGE.read_text("utf-8"), "the table should be:\n" + "\n".join(rows)


# -- the address of the lock


def test_lock_is_where_the_options_of_its_kind_say_and_others_are_passed_over() -> None:
    asked = parse_write_options({**ZOOKEEPER, **DYNAMODB}).table
    there = asked.lock_address(LockKind.ZOOKEEPER, "orders")
    assert str(there) == "/locks/orders at zk:2181"
    item = asked.lock_address(LockKind.DYNAMODB, "orders")
    assert str(item) == "item 'orders' of the DynamoDB table locks in eu-west-1"
    assert asked.lock_address(LockKind.FILE, "orders") is None
    assert AskedTable().lock_address(LockKind.ZOOKEEPER, "orders") is None
