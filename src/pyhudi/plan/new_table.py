"""The properties of a new table: the text of its `hoodie.properties`, key by key.

The keys and values are those that Hudi 1.2.0 writes for such a table. Beside them stand the schema,
as Hudi's own SQL writes it, and what all writers must agree on: buckets, concurrency mode, lock. A
Spark writer takes options that its caller leaves out from here, and refuses other values. That is
also why the metadata table is switched off here: Spark would begin one, and pyhudi does not
maintain it.
"""

from __future__ import annotations

from typing import Final

from pyhudi.format.lock.lock_properties import lock_properties
from pyhudi.format.table import table_config as keys
from pyhudi.format.table.bucket_config import bucket_properties
from pyhudi.format.table.concurrency_mode import CONCURRENCY_MODE
from pyhudi.format.table.conflict_strategy import CONFLICT_STRATEGY, Strategy
from pyhudi.format.table.merge_rules import (
    COMMIT_TIME_STRATEGY,
    EVENT_TIME_STRATEGY,
    MERGE_MODE,
    MERGE_STRATEGY_ID,
    ORDERING_FIELDS,
    PAYLOAD_CLASS,
    MergeMode,
)
from pyhudi.format.table.properties import (
    DATABASE_NAME,
    TABLE_CHECKSUM,
    TABLE_NAME,
    TABLE_TYPE,
    TABLE_VERSION,
    table_checksum,
)
from pyhudi.plan.table_definition import TableDefinition
from pyhudi.plan.upkeep import UPKEEP

ARCHIVE_FOLDER: Final = "hoodie.archivelog.folder"  # of older layouts; Hudi writes it still
PARTITION_FILE_FORMAT: Final = "hoodie.partition.metafile.use.base.format"
PARTITION_EXTRACTOR: Final = "hoodie.table.partition_extractor_class"

_MODEL_PACKAGE = "org.apache.hudi.common.model."
_VERSION_8_MERGING = {
    MergeMode.EVENT_TIME_ORDERING: {
        MERGE_STRATEGY_ID: EVENT_TIME_STRATEGY,
        PAYLOAD_CLASS: f"{_MODEL_PACKAGE}DefaultHoodieRecordPayload",
    },
    MergeMode.COMMIT_TIME_ORDERING: {
        MERGE_STRATEGY_ID: COMMIT_TIME_STRATEGY,
        PAYLOAD_CLASS: f"{_MODEL_PACKAGE}OverwriteWithLatestAvroPayload",
    },
}


def table_properties(definition: TableDefinition) -> dict[str, str]:
    """Return everything that `hoodie.properties` of the new table says."""
    return {
        **_identity(definition),
        **_layout(definition),
        **_merging(definition),
        keys.CREATE_SCHEMA: definition.schema_json,
        **bucket_properties(definition.buckets, definition.record_key),
        CONCURRENCY_MODE: definition.concurrency.value,
        **lock_properties(definition.lock, definition.lock_address),
        **_conflict_strategy(definition.judged_by),
        **({} if definition.upkeep is None else {UPKEEP: definition.upkeep}),
        keys.METADATA_TABLE_ENABLED: "false",
    }


def _identity(definition: TableDefinition) -> dict[str, str]:
    database = {DATABASE_NAME: definition.database} if definition.database else {}
    return {
        TABLE_NAME: definition.name,
        **database,
        TABLE_CHECKSUM: table_checksum(definition.name, definition.database),
        TABLE_TYPE: definition.table_type.value,
        TABLE_VERSION: str(definition.version),
        keys.INITIAL_VERSION: str(definition.version),
    }


def _layout(definition: TableDefinition) -> dict[str, str]:
    return {
        keys.LAYOUT_VERSION: str(keys.READABLE_LAYOUT),
        keys.TIMELINE_FOLDER: "timeline",
        keys.HISTORY_FOLDER: "history",
        ARCHIVE_FOLDER: "history",
        keys.TIMELINE_TIMEZONE: keys.TimelineTimezone.UTC.value,
        keys.TABLE_FORMAT: keys.NATIVE_FORMAT,
        keys.BASE_FILE_FORMAT: keys.BaseFileFormat.PARQUET.value,
        keys.MULTIPLE_BASE_FILE_FORMATS: "false",
        PARTITION_FILE_FORMAT: "false",
        keys.RECORD_KEY_FIELDS: ",".join(definition.record_key),
        keys.PARTITION_FIELDS: ",".join(definition.partition_by),
        keys.KEY_GENERATOR_TYPE: definition.key_generator.value,
        PARTITION_EXTRACTOR: _partition_extractor(definition),
        keys.POPULATE_META_FIELDS: "true",
        keys.HIVE_STYLE: _flag(definition.hive_style),
        keys.URL_ENCODE: _flag(definition.url_encode),
        keys.DROP_PARTITION_COLUMNS: "false",
        keys.CDC_ENABLED: "false",
    }


def _merging(definition: TableDefinition) -> dict[str, str]:
    ordering = {ORDERING_FIELDS: ",".join(definition.ordering)} if definition.ordering else {}
    older = _VERSION_8_MERGING[definition.merge_mode] if definition.version == 8 else {}
    return {MERGE_MODE: definition.merge_mode.value, **ordering, **older}


def _partition_extractor(definition: TableDefinition) -> str:
    """Return the class that Hive alone reads, as Hudi chooses it."""
    name = "MultiPartKeysValueExtractor"
    if not definition.partition_by:
        name = "NonPartitionedExtractor"
    elif len(definition.partition_by) == 1:
        kind = "HiveStyle" if definition.hive_style else "SinglePart"
        name = f"{kind}PartitionValueExtractor"
    return f"org.apache.hudi.hive.{name}"


def _conflict_strategy(strategy: Strategy) -> dict[str, str]:
    """Return the property that records the strategy; none for `bucket`, Hudi's own default."""
    is_usual = strategy is Strategy.BUCKET
    return {} if is_usual else {CONFLICT_STRATEGY: strategy.class_name}


def _flag(value: bool) -> str:
    return "true" if value else "false"
