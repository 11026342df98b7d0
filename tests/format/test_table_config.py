"""The typed view of a table's properties."""

from __future__ import annotations

import pickle

import pytest

from golden_tables import NAMES, GoldenTables
from pyhudi.errors import CorruptTableError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.merge_rules import MergeMode, PartialUpdateMode
from pyhudi.format.table.properties import TableProperties, decode_table_properties
from pyhudi.format.table.table_config import (
    CLOCK_SKEW,
    BaseFileFormat,
    CdcLoggingMode,
    KeyGenerator,
    TableConfig,
    TableType,
    TimelineTimezone,
    unsupported_features,
)

MINIMAL = {
    "hoodie.table.name": "orders",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "9",
    "hoodie.timeline.layout.version": "2",
}


def config(**changes: str) -> TableConfig:
    """A minimal table with changes; `__` stands for the dots of a key."""
    values = {key.replace("__", "."): value for key, value in changes.items()}
    return TableConfig.of(TableProperties({**MINIMAL, **values}))


def test_defaults_are_those_of_hudi() -> None:
    table = config()
    assert (table.name, table.database, table.version) == ("orders", "", 9)
    assert table.table_type is TableType.MERGE_ON_READ
    assert (table.timeline_folder, table.history_folder) == ("timeline", "history")
    assert table.timezone is TimelineTimezone.LOCAL
    assert table.base_file_format is BaseFileFormat.PARQUET
    assert table.key_generator is KeyGenerator.NON_PARTITION
    assert table.merge_mode is MergeMode.COMMIT_TIME_ORDERING
    assert table.populate_meta_fields
    assert not any([table.hive_style, table.url_encode, table.drop_partition_columns])
    assert not any([table.cdc_enabled, table.multiple_base_file_formats])
    assert table.cdc_logging_mode is CdcLoggingMode.DATA_BEFORE_AFTER
    assert (table.record_key_fields, table.partition_fields, table.ordering_fields) == ((), (), ())
    assert (table.metadata_partitions, table.create_schema) == ((), None)
    assert (table.bootstrap_base_path, table.legacy_payload_class) == (None, None)
    assert (table.buckets, table.concurrency, table.lock) == (None, None, LockKind.NONE)


def test_every_value_is_read() -> None:
    table = config(
        hoodie__database__name="sales",
        hoodie__table__type="COPY_ON_WRITE",
        hoodie__table__version="8",
        hoodie__timeline__path="t/l",
        hoodie__timeline__history__path="h",
        hoodie__table__timeline__timezone="UTC",
        hoodie__table__recordkey__fields="a,b",
        hoodie__table__partition__fields="x,y",
        hoodie__table__ordering__fields="ts",
        hoodie__table__partial__update__mode="IGNORE_DEFAULTS",
        hoodie__record__merge__property__some__key="v",
        hoodie__datasource__write__hive_style_partitioning="true",
        hoodie__datasource__write__partitionpath__urlencode="true",
        hoodie__datasource__write__drop__partition__columns="true",
        hoodie__table__cdc__enabled="true",
        hoodie__table__cdc__supplemental__logging__mode="op_key_only",
        hoodie__table__create__schema="{}",
        hoodie__table__metadata__partitions="files,column_stats",
        hoodie__table__metadata__partitions__inflight="record_index",
        hoodie__table__legacy__payload__class="x.Y",
        hoodie__index__type="BUCKET",
        hoodie__index__bucket__engine="SIMPLE",
        hoodie__bucket__index__num__buckets="8",
        hoodie__write__concurrency__mode="OPTIMISTIC_CONCURRENCY_CONTROL",
        pyhudi__lock="FILE",
    )
    assert (table.database, table.version) == ("sales", 8)
    assert table.table_type is TableType.COPY_ON_WRITE
    assert (table.timeline_folder, table.history_folder) == ("t/l", "h")
    assert table.timezone is TimelineTimezone.UTC
    assert (table.record_key_fields, table.partition_fields) == (("a", "b"), ("x", "y"))
    assert table.partition_kinds == (None, None)
    assert table.key_generator is KeyGenerator.COMPLEX
    assert (table.merge_mode, table.ordering_fields) == (MergeMode.CUSTOM, ("ts",))
    assert table.partial_update_mode is PartialUpdateMode.IGNORE_DEFAULTS
    assert table.merge.properties == {"some.key": "v"}
    assert table.hive_style
    assert table.url_encode
    assert table.drop_partition_columns
    assert table.cdc_enabled
    assert table.cdc_logging_mode is CdcLoggingMode.OP_KEY_ONLY
    assert table.create_schema == "{}"
    assert table.metadata_partitions == ("files", "column_stats")
    assert table.metadata_partitions_inflight == ("record_index",)
    assert table.legacy_payload_class == "x.Y"
    assert table.buckets == SimpleBuckets(8, ("a", "b"))
    assert table.concurrency is ConcurrencyMode.OPTIMISTIC
    assert table.lock is LockKind.FILE


def test_custom_key_generators_tell_the_kind_of_each_partition_field() -> None:
    table = config(
        hoodie__table__keygenerator__type="CUSTOM",
        hoodie__table__partition__fields="region:simple,ts:TIMESTAMP,bare",
    )
    assert table.partition_fields == ("region", "ts", "bare")
    assert table.partition_kinds == ("SIMPLE", "TIMESTAMP", None)


@pytest.mark.parametrize(
    ("values", "generator"),
    [
        ({"type": "SIMPLE"}, KeyGenerator.SIMPLE),
        ({"type": "COMPLEX_AVRO"}, KeyGenerator.COMPLEX),
        ({"type": "timestamp"}, KeyGenerator.TIMESTAMP),
        ({"type": "SIMPLE", "class": "x.Y"}, KeyGenerator.SIMPLE),
        ({"class": "org.apache.hudi.keygen.CustomKeyGenerator"}, KeyGenerator.CUSTOM),
        (
            {"class": "org.apache.hudi.keygen.NonpartitionedAvroKeyGenerator"},
            KeyGenerator.NON_PARTITION,
        ),
        ({"class": "x.Y"}, KeyGenerator.USER_PROVIDED),
    ],
)
def test_key_generator_is_known_by_type_or_class(
    values: dict[str, str], generator: KeyGenerator
) -> None:
    changes = {f"hoodie__table__keygenerator__{key}": value for key, value in values.items()}
    assert config(**changes).key_generator is generator


@pytest.mark.parametrize(
    ("keys", "partitions", "generator"),
    [
        ("a", "", KeyGenerator.NON_PARTITION),
        ("a,b", "", KeyGenerator.NON_PARTITION),
        ("a", "x", KeyGenerator.SIMPLE),
        ("a,b", "x", KeyGenerator.COMPLEX),
        ("a", "x,y", KeyGenerator.COMPLEX),
    ],
)
def test_key_generator_is_inferred_as_hudi_chooses_it(
    keys: str, partitions: str, generator: KeyGenerator
) -> None:
    table = config(
        hoodie__table__recordkey__fields=keys, hoodie__table__partition__fields=partitions
    )
    assert table.key_generator is generator


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.table.version", "nine"),
        ("hoodie.table.type", "COPY"),
        ("hoodie.timeline.layout.version", "two"),
        ("hoodie.timeline.path", "../elsewhere"),
        ("hoodie.timeline.history.path", "/root"),
        ("hoodie.table.timeline.timezone", "CET"),
        ("hoodie.table.base.file.format", "CSV"),
        ("hoodie.table.keygenerator.type", "RANDOM"),
        ("hoodie.record.merge.mode", "NEWEST"),
        ("hoodie.populate.meta.fields", "perhaps"),
        ("hoodie.table.cdc.enabled", "2"),
        ("hoodie.table.cdc.supplemental.logging.mode", "ALL"),
        ("hoodie.bucket.index.num.buckets", "many"),
        ("hoodie.write.concurrency.mode", "HOPE"),
        ("pyhudi.lock", "PADLOCK"),
    ],
)
def test_a_malformed_value_is_refused_by_key(key: str, value: str) -> None:
    with pytest.raises(CorruptTableError, match=key) as caught:
        TableConfig.of(TableProperties({**MINIMAL, key: value}))
    assert caught.value.path == ".hoodie/hoodie.properties"


@pytest.mark.parametrize("key", ["hoodie.table.name", "hoodie.table.type", "hoodie.table.version"])
def test_a_missing_mandatory_value_is_refused_by_key(key: str) -> None:
    with pytest.raises(CorruptTableError, match=key):
        TableConfig.of(TableProperties({k: v for k, v in MINIMAL.items() if k != key}))


@pytest.mark.parametrize(("kept", "ms"), [(None, 200), ("0", 200), ("1", 1), ("60000", 60_000)])
def test_clocks_may_differ_by_what_the_table_says(kept: str | None, ms: int) -> None:
    properties = {} if kept is None else {CLOCK_SKEW: kept}
    assert TableConfig.of(TableProperties({**MINIMAL, **properties})).clock_skew_ms == ms


@pytest.mark.parametrize("kept", ["60001", "9999999999", "-1", "soon"])
def test_a_difference_of_clocks_that_nobody_should_wait_for_is_refused_by_name(kept: str) -> None:
    table = TableConfig.of(TableProperties({**MINIMAL, CLOCK_SKEW: kept}))  # readers do not care
    with pytest.raises(CorruptTableError, match=f"{CLOCK_SKEW} is '{kept}', not a .*number"):
        _ = table.clock_skew_ms


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("hoodie.table.version", "6", "table version 6"),
        ("hoodie.table.version", "10", "table version 10"),
        ("hoodie.timeline.layout.version", "1", "timeline layout 1"),
        ("hoodie.table.format", "iceberg", "table format 'iceberg'"),
        ("hoodie.table.base.file.format", "ORC", "base file format ORC"),
        ("hoodie.table.multiple.base.file.formats.enable", "true", "several base file formats"),
        ("hoodie.bootstrap.base.path", "s3://x", "bootstrapped data outside the table"),
        ("hoodie.populate.meta.fields", "false", "virtual keys"),
        ("hoodie.table.partial.update.mode", "KEEP_VALUES", "partial update mode KEEP_VALUES"),
        ("hoodie.compaction.payload.class", "x.Y", "custom merge with payload class x.Y"),
        ("hoodie.record.merge.strategy.id", "abc", "custom merge strategy abc"),
    ],
)
def test_what_a_reader_cannot_honour_is_named(key: str, value: str, reason: str) -> None:
    (found,) = unsupported_features(TableConfig.of(TableProperties({**MINIMAL, key: value})))
    assert found.startswith(reason)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.table.version", "8"),
        ("hoodie.datasource.write.drop.partition.columns", "true"),
        ("hoodie.table.keygenerator.type", "TIMESTAMP"),
        ("hoodie.table.keygenerator.type", "CUSTOM"),
        ("hoodie.table.keygenerator.class", "x.Y"),
        ("hoodie.table.partial.update.mode", "FILL_UNAVAILABLE"),
        ("hoodie.table.cdc.enabled", "true"),
        ("some.other.key", "is read past"),
    ],
)
def test_what_a_reader_can_honour_is_not_named(key: str, value: str) -> None:
    assert unsupported_features(TableConfig.of(TableProperties({**MINIMAL, key: value}))) == ()


def test_all_reasons_are_given_at_once() -> None:
    table = config(hoodie__table__version="6", hoodie__populate__meta__fields="false")
    assert len(unsupported_features(table)) == 2


@pytest.mark.parametrize("name", NAMES)
def test_golden_tables_can_be_read_and_their_metadata_tables_cannot(
    golden: GoldenTables, name: str
) -> None:
    for path in golden.path(name).rglob("hoodie.properties"):
        table = TableConfig.of(decode_table_properties(path.read_bytes()))
        is_metadata_table = "metadata" in path.parts
        assert bool(unsupported_features(table)) is is_metadata_table
        assert pickle.loads(pickle.dumps(table)) == table  # plans travel with it
