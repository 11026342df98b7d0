"""The table's properties as typed values: what the table is, and whether we can read it.

`TableConfig.of` turns text into values once, at the edge; a malformed value is a CorruptTableError
that names its key. `unsupported_features` then names all that this engine cannot honour, so that
a table is refused before any row is read and never half understood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from enum import StrEnum
from typing import Final, Self

from pyhudi.format.lock.lock_address import LockAddress, recorded_lock_address
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.bucket_migration import TableBuckets, table_buckets
from pyhudi.format.table.concurrency_mode import ConcurrencyMode, concurrency_of
from pyhudi.format.table.conflict_strategy import CONFLICT_STRATEGY, Strategy, parse_strategy
from pyhudi.format.table.merge_rules import (
    LEGACY_PAYLOAD_CLASS,
    PARTIAL_UPDATE_MODE,
    MergeMode,
    MergeRules,
    PartialUpdateMode,
    merge_rules,
)
from pyhudi.format.table.properties import (
    DATABASE_NAME,
    TABLE_NAME,
    TABLE_TYPE,
    TABLE_VERSION,
    TableProperties,
)

INITIAL_VERSION: Final = "hoodie.table.initial.version"
LAYOUT_VERSION: Final = "hoodie.timeline.layout.version"
TIMELINE_FOLDER: Final = "hoodie.timeline.path"
HISTORY_FOLDER: Final = "hoodie.timeline.history.path"
TIMELINE_TIMEZONE: Final = "hoodie.table.timeline.timezone"
TABLE_FORMAT: Final = "hoodie.table.format"
BASE_FILE_FORMAT: Final = "hoodie.table.base.file.format"
MULTIPLE_BASE_FILE_FORMATS: Final = "hoodie.table.multiple.base.file.formats.enable"
RECORD_KEY_FIELDS: Final = "hoodie.table.recordkey.fields"
PARTITION_FIELDS: Final = "hoodie.table.partition.fields"
KEY_GENERATOR_TYPE: Final = "hoodie.table.keygenerator.type"
KEY_GENERATOR_CLASS: Final = "hoodie.table.keygenerator.class"
POPULATE_META_FIELDS: Final = "hoodie.populate.meta.fields"
HIVE_STYLE: Final = "hoodie.datasource.write.hive_style_partitioning"
URL_ENCODE: Final = "hoodie.datasource.write.partitionpath.urlencode"
DROP_PARTITION_COLUMNS: Final = "hoodie.datasource.write.drop.partition.columns"
CDC_ENABLED: Final = "hoodie.table.cdc.enabled"
CDC_LOGGING_MODE: Final = "hoodie.table.cdc.supplemental.logging.mode"
CREATE_SCHEMA: Final = "hoodie.table.create.schema"
METADATA_PARTITIONS: Final = "hoodie.table.metadata.partitions"
METADATA_PARTITIONS_INFLIGHT: Final = "hoodie.table.metadata.partitions.inflight"
METADATA_TABLE_ENABLED: Final = "hoodie.metadata.enable"  # a writer's option; a table may record it
BOOTSTRAP_BASE_PATH: Final = "hoodie.bootstrap.base.path"
CLOCK_SKEW: Final = "hoodie.time.generator.max_expected_clock_skew_ms"
LOCK_KIND: Final = "pyhudi.lock"  # ours: Hudi keeps keys that it does not know

READABLE_VERSIONS: Final = frozenset({8, 9})
READABLE_LAYOUT: Final = 2
NATIVE_FORMAT: Final = "native"
CLOCK_SKEW_DEFAULT_MS: Final = 200
#: A commit waits for twice the skew and holds the table's lock meanwhile.
CLOCK_SKEW_MAX_MS: Final = 60_000


class TableType(StrEnum):
    COPY_ON_WRITE = "COPY_ON_WRITE"
    MERGE_ON_READ = "MERGE_ON_READ"


class BaseFileFormat(StrEnum):
    PARQUET = "PARQUET"
    ORC = "ORC"
    HFILE = "HFILE"
    LANCE = "LANCE"


class TimelineTimezone(StrEnum):
    """The zone of instant times; LOCAL is the zone of whichever machine wrote."""

    LOCAL = "LOCAL"
    UTC = "UTC"


class CdcLoggingMode(StrEnum):
    OP_KEY_ONLY = "OP_KEY_ONLY"
    DATA_BEFORE = "DATA_BEFORE"
    DATA_BEFORE_AFTER = "DATA_BEFORE_AFTER"


class KeyGenerator(StrEnum):
    """How record keys and partition paths are made from columns. Hudi's `_AVRO` twins of these
    make the same text and count as the same."""

    SIMPLE = "SIMPLE"
    COMPLEX = "COMPLEX"
    TIMESTAMP = "TIMESTAMP"
    CUSTOM = "CUSTOM"
    NON_PARTITION = "NON_PARTITION"
    GLOBAL_DELETE = "GLOBAL_DELETE"
    AUTO_RECORD = "AUTO_RECORD"
    HOODIE_TABLE_METADATA = "HOODIE_TABLE_METADATA"
    SPARK_SQL = "SPARK_SQL"
    SPARK_SQL_UUID = "SPARK_SQL_UUID"
    SPARK_SQL_MERGE_INTO = "SPARK_SQL_MERGE_INTO"
    USER_PROVIDED = "USER_PROVIDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConfig:
    """The typed view of a table's properties, with Hudi's defaults filled in."""

    properties: TableProperties
    name: str
    database: str
    table_type: TableType
    version: int
    layout_version: int
    timeline_folder: str  # below .hoodie
    history_folder: str  # below the timeline folder
    timezone: TimelineTimezone
    table_format: str
    base_file_format: BaseFileFormat
    multiple_base_file_formats: bool
    record_key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    partition_kinds: tuple[str | None, ...]  # SIMPLE or TIMESTAMP per field, in CUSTOM tables
    key_generator: KeyGenerator
    merge: MergeRules
    populate_meta_fields: bool
    hive_style: bool
    url_encode: bool
    drop_partition_columns: bool
    cdc_enabled: bool
    cdc_logging_mode: CdcLoggingMode
    create_schema: str | None  # Avro JSON
    metadata_partitions: tuple[str, ...]
    metadata_partitions_inflight: tuple[str, ...]
    bootstrap_base_path: str | None
    legacy_payload_class: str | None
    buckets: TableBuckets | None  # with every hashed column named; None if the table records none
    concurrency: ConcurrencyMode | None
    lock: LockKind
    lock_address: LockAddress | None  # of a lock that is in a service; None if none is recorded

    @classmethod
    def of(cls, properties: TableProperties) -> Self:
        """Parse the properties.

        CorruptTableError for the first value that its key does not allow.
        """
        properties.verify()
        version = properties.number(TABLE_VERSION)
        table_type = properties.choice(TABLE_TYPE, TableType)
        assert version is not None, "verified"
        assert table_type is not None, "verified"
        layout_version = properties.number(LAYOUT_VERSION)
        record_key = properties.names(RECORD_KEY_FIELDS)
        partitions = [part.partition(":") for part in properties.names(PARTITION_FIELDS)]
        return cls(
            properties=properties,
            name=properties.values[TABLE_NAME],
            database=properties.text(DATABASE_NAME) or "",
            table_type=table_type,
            version=version,
            layout_version=READABLE_LAYOUT if layout_version is None else layout_version,
            timeline_folder=properties.folder(TIMELINE_FOLDER, "timeline"),
            history_folder=properties.folder(HISTORY_FOLDER, "history"),
            timezone=properties.choice(TIMELINE_TIMEZONE, TimelineTimezone)
            or TimelineTimezone.LOCAL,
            table_format=properties.text(TABLE_FORMAT) or NATIVE_FORMAT,
            base_file_format=properties.choice(BASE_FILE_FORMAT, BaseFileFormat)
            or BaseFileFormat.PARQUET,
            multiple_base_file_formats=properties.flag(MULTIPLE_BASE_FILE_FORMATS, default=False),
            record_key_fields=record_key,
            partition_fields=tuple(name for name, _, _ in partitions),
            partition_kinds=tuple(kind.upper() or None for _, _, kind in partitions),
            key_generator=_key_generator(properties),
            merge=merge_rules(properties, version),
            populate_meta_fields=properties.flag(POPULATE_META_FIELDS, default=True),
            hive_style=properties.flag(HIVE_STYLE, default=False),
            url_encode=properties.flag(URL_ENCODE, default=False),
            drop_partition_columns=properties.flag(DROP_PARTITION_COLUMNS, default=False),
            cdc_enabled=properties.flag(CDC_ENABLED, default=False),
            cdc_logging_mode=properties.choice(CDC_LOGGING_MODE, CdcLoggingMode)
            or CdcLoggingMode.DATA_BEFORE_AFTER,
            create_schema=properties.text(CREATE_SCHEMA),
            metadata_partitions=properties.names(METADATA_PARTITIONS),
            metadata_partitions_inflight=properties.names(METADATA_PARTITIONS_INFLIGHT),
            bootstrap_base_path=properties.text(BOOTSTRAP_BASE_PATH),
            legacy_payload_class=properties.text(LEGACY_PAYLOAD_CLASS),
            buckets=table_buckets(properties, record_key),
            concurrency=concurrency_of(properties),
            lock=_lock_kind(properties),
            lock_address=recorded_lock_address(_lock_kind(properties), properties),
        )

    @property
    def zone(self) -> tzinfo | None:
        """The zone of the timeline's times; None for this machine's own."""
        return UTC if self.timezone is TimelineTimezone.UTC else None

    @property
    def merge_mode(self) -> MergeMode:
        return self.merge.mode

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        return self.merge.ordering_fields

    @property
    def conflict_strategy(self) -> Strategy:
        """The table's strategy, for writers only. Consistent buckets have no numbers to compare.

        UnsupportedTableError if it is one that pyhudi does not have.
        """
        found = parse_strategy(self.properties.text(CONFLICT_STRATEGY))
        is_numbered = self.buckets is None or isinstance(self.buckets, SimpleBuckets)
        return found if is_numbered or found is not Strategy.BUCKET else Strategy.SIMPLE

    @property
    def clock_skew_ms(self) -> int:
        """How far the clocks of engines that share the table may differ; for writers only.

        CorruptTableError for more than a writer should wait with the lock held.
        """
        skew_ms = self.properties.number(CLOCK_SKEW) or CLOCK_SKEW_DEFAULT_MS
        if skew_ms > CLOCK_SKEW_MAX_MS:
            raise self.properties.malformed(
                CLOCK_SKEW, f"a number of milliseconds up to {CLOCK_SKEW_MAX_MS}"
            )
        return skew_ms

    @property
    def partial_update_mode(self) -> PartialUpdateMode | None:
        return self.merge.partial_update_mode


def _lock_kind(properties: TableProperties) -> LockKind:
    text = (properties.text(LOCK_KIND) or LockKind.NONE).strip()
    found = {kind.value.upper(): kind for kind in LockKind}.get(text.upper())
    if found is None:
        raise properties.malformed(LOCK_KIND, f"one of {', '.join(LockKind)}")
    return found


def _key_generator(properties: TableProperties) -> KeyGenerator:
    """Return the type, else what the class name says, else the choice Hudi makes for its users."""
    if text := properties.text(KEY_GENERATOR_TYPE):
        found = _KEY_GENERATORS.get(text.strip().upper().removesuffix("_AVRO"))
        if found is None:
            raise properties.malformed(KEY_GENERATOR_TYPE, f"one of {', '.join(KeyGenerator)}")
        return found
    if class_name := properties.text(KEY_GENERATOR_CLASS):
        return _KEY_GENERATOR_CLASSES.get(class_name, KeyGenerator.USER_PROVIDED)
    partitions = properties.names(PARTITION_FIELDS)
    return plain_key_generator(properties.names(RECORD_KEY_FIELDS), partitions)


def plain_key_generator(record_key: Sequence[str], partition_by: Sequence[str]) -> KeyGenerator:
    """Return the key generator that Hudi takes for these columns when its user names none."""
    if not partition_by:
        return KeyGenerator.NON_PARTITION
    one_each = len(partition_by) == 1 and len(record_key) == 1
    return KeyGenerator.SIMPLE if one_each else KeyGenerator.COMPLEX


_KEY_GENERATORS = {generator.value: generator for generator in KeyGenerator}
_KEY_GENERATOR_CLASSES = {
    f"org.apache.hudi.keygen.{name}{engine}KeyGenerator": generator
    for engine in ("", "Avro")
    for name, generator in {
        "Simple": KeyGenerator.SIMPLE,
        "Complex": KeyGenerator.COMPLEX,
        "TimestampBased": KeyGenerator.TIMESTAMP,
        "Custom": KeyGenerator.CUSTOM,
        "Nonpartitioned": KeyGenerator.NON_PARTITION,
        "GlobalDelete": KeyGenerator.GLOBAL_DELETE,
    }.items()
}


def unsupported_features(config: TableConfig) -> tuple[str, ...]:
    """Return why a reader must refuse the table before any row, one phrase per reason.

    () if it may read. Tables that drop their partition columns, and those of the TIMESTAMP and
    CUSTOM key generators, are not named here. They can be read as long as the value of each
    partition column is known, from the data or from the path, and only the scan knows that.
    """
    found = {
        f"table version {config.version}": config.version not in READABLE_VERSIONS,
        f"timeline layout {config.layout_version}": config.layout_version != READABLE_LAYOUT,
        f"table format {config.table_format!r}": config.table_format != NATIVE_FORMAT,
        f"base file format {config.base_file_format}": config.base_file_format
        is not BaseFileFormat.PARQUET,
        "several base file formats": config.multiple_base_file_formats,
        "bootstrapped data outside the table": config.bootstrap_base_path is not None,
        f"virtual keys ({POPULATE_META_FIELDS}=false)": not config.populate_meta_fields,
        f"partial update mode {config.properties.text(PARTIAL_UPDATE_MODE)}": (
            config.partial_update_mode is PartialUpdateMode.UNKNOWN
        ),
    }
    return (*(reason for reason, applies in found.items() if applies), *config.merge.unsupported)
