"""Hudi's own option names for writes, as values: the operation, the table and the settings.

`WRITE_CLASSES` says how each option is treated. What is absent is left open here, and then the
existing table decides, or pyhudi's default for a new one (merge on read, where Hudi's is copy on
write). Only the operation has a default of its own, which is Hudi's: upsert.

**How rows may change the schema** (`schema_mode`) is by Hudi's habit, too: a save adds the columns
that the table lacks, and refuses rows that lack some of the table's, which Hudi's options fill with
null. `mergeSchema` is pyhudi's own, for users of other formats: true is "merge". Who says false
wants the table's columns enforced, so it is "strict", unlike its absence.

One thing may have several names. If two of them are set, they must agree. What an option says of an
existing table must be true of it, because Hudi would otherwise write what other writers do not
expect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from pyhudi.errors import InvalidRequestError, TableNotFoundError
from pyhudi.format.lock.lock_address import OPTION_PREFIXES, LockAddress, parse_lock_address
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import (
    AUTO,
    CONSISTENT,
    ENGINES,
    SIMPLE,
    Buckets,
    ConsistentBuckets,
    SimpleBuckets,
)
from pyhudi.format.table.bucket_migration import MigratingBuckets, TableBuckets
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.merge_rules import COMMIT_TIME_STRATEGY, EVENT_TIME_STRATEGY, MergeMode
from pyhudi.format.table.merge_rules import MERGE_MODE as KEPT_MERGE_MODE
from pyhudi.format.table.table_config import (
    LOCK_KIND,
    READABLE_VERSIONS,
    KeyGenerator,
    TableConfig,
    TableType,
    plain_key_generator,
)
from pyhudi.hudi_options import write_table as names
from pyhudi.hudi_options.classes import refused_option, require_known
from pyhudi.hudi_options.early_options import parse_early_options
from pyhudi.hudi_options.option_texts import agreed, flag, number
from pyhudi.hudi_options.resize_options import parse_resize_options
from pyhudi.settings import FailedWrites, LogBlockFormat, SchemaMode, WriteSettings

#: How a save chooses a schema mode, for advice.
MODE_WORDS: Final[Mapping[SchemaMode, str]] = {
    SchemaMode.STRICT: f'option("{names.MERGE_SCHEMA}", "false")',
    SchemaMode.ADD: f'A save without option("{names.MERGE_SCHEMA}", "false")',
    SchemaMode.MERGE: f'option("{names.MERGE_SCHEMA}", "true")',
}


class Operation(StrEnum):
    """What a write does, in pyhudi's words."""

    UPSERT = "upsert"
    APPEND = "append"
    DELETE = "delete"  # of the rows' keys


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTable:
    """What the options say of the table; None where they leave it open."""

    name: str | None = None
    database: str | None = None
    table_type: TableType | None = None
    version: int | None = None
    record_key: tuple[str, ...] | None = None
    partition_by: tuple[str, ...] | None = None
    ordering: tuple[str, ...] | None = None
    bucket_engine: str | None = None
    bucket_count: int | None = None
    bucket_min: int | None = None
    bucket_max: int | None = None
    hash_fields: tuple[str, ...] | None = None
    hive_style: bool | None = None
    url_encode: bool | None = None
    merge_mode: MergeMode | None = None
    concurrency: ConcurrencyMode | None = None
    lock: LockKind | None = None
    key_generator: KeyGenerator | None = None
    lock_options: Mapping[str, str] | None = None  # where the lock is, for `parse_lock_address`

    @property
    def buckets(self) -> Buckets | None:
        """For `create_table`, or for a table that does not record them; None if left open."""
        hash_fields = self.hash_fields or ()
        if self.bucket_engine == CONSISTENT:
            initial, default = self.bucket_count, ConsistentBuckets()
            return ConsistentBuckets(
                AUTO if initial is None else initial,
                default.min if self.bucket_min is None else self.bucket_min,
                max(default.max, initial or 0) if self.bucket_max is None else self.bucket_max,
                hash_fields,
            )
        if self.bucket_count is None:
            return None
        return SimpleBuckets(self.bucket_count, hash_fields)

    def lock_address(self, kind: LockKind, table_name: str) -> LockAddress | None:
        """Return where a lock of this kind is; Hudi ignores the options of other kinds."""
        prefix, options = OPTION_PREFIXES.get(kind), self.lock_options or {}
        chosen = {n: text for n, text in options.items() if prefix and n.startswith(prefix)}
        return parse_lock_address(kind, chosen or None, table_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class HudiWrite:
    """A write as Hudi's options describe it."""

    operation: Operation = Operation.UPSERT
    table: AskedTable = field(default_factory=AskedTable)
    settings: WriteSettings = field(
        default_factory=lambda: WriteSettings(schema_mode=SchemaMode.ADD)
    )
    resizing: Mapping[str, Any] = field(default_factory=dict)  # settings of `ResizePolicy`
    given: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def left_services(self) -> frozenset[str]:
        """The table services that the options leave to other processes."""
        off = {name for name, value in self.given.items() if value.strip().lower() == "false"}
        switches = names.SERVICE_SWITCHES
        return frozenset(service for name in off & switches.keys() for service in switches[name])


def parse_write_options(options: Mapping[str, str]) -> HudiWrite:
    """Parse the options; InvalidRequestError for the first that is unknown or cannot be honoured.

    Options without effect here cause a warning each.
    """
    given = {_known(name): _text(value) for name, value in options.items()}
    require_known(given, names.WRITE_CLASSES, "write")
    write = HudiWrite(
        operation=_OPERATIONS[given.get(names.OPERATION, "upsert").strip().lower()],
        table=_asked_table(given),
        settings=_settings(given),
        resizing=parse_resize_options(given),
        given=given,
    )
    _refuse_eager_company(write)
    return write


def refuse_contradictions(write: HudiWrite, config: TableConfig) -> None:
    """Raise InvalidRequestError for the first option that contradicts the existing table."""
    found = _found_table(config)
    for part, spellings in _SPELLINGS.items():
        asked, there = getattr(write.table, part), found.get(part)
        if asked is None or there is None or _is_same(part, asked, there, config):
            continue
        option = _spelling(write.given, spellings)
        raise InvalidRequestError(
            f"option {option}={write.given[option]!r} contradicts the table {config.name!r}",
            why=f"there it is {_shown(there)}, and all writers of a table must agree",
            next_step="Leave the option out, or write to another table",
        )


def refuse_incomplete_table(write: HudiWrite) -> None:
    """Raise TableNotFoundError if the options do not describe a new table. Call it before
    creating."""
    asked = write.table
    has_default = asked.table_type is not TableType.COPY_ON_WRITE and asked.lock is None
    for option, value, why in (
        (names.RECORD_KEY[0], asked.record_key, "rows are found and merged by their key"),
        (
            names.BUCKET_COUNT[0],
            asked.buckets or has_default,
            "the number of buckets of such a table cannot change later",
        ),
    ):
        if not value:
            raise TableNotFoundError(
                "there is no table yet, and the options do not describe one",
                why=f"{option} is not set, and {why}",
                next_step=f"Set {option}, or create the table with pyhudi.create_table",
            )
    plain = plain_key_generator(asked.record_key or (), asked.partition_by or ())
    if asked.key_generator not in (None, plain):
        option = _spelling(write.given, _SPELLINGS["key_generator"])
        why = f"for these key and partition columns the key generator is {plain}"
        raise refused_option(option, write.given[option], why)


# ---- the table


_OPERATIONS = {
    "upsert": Operation.UPSERT,
    "insert": Operation.APPEND,
    "bulk_insert": Operation.APPEND,
    "delete": Operation.DELETE,
}
_MERGE_MODES = {
    **{mode.value.lower(): mode for mode in MergeMode},
    EVENT_TIME_STRATEGY: MergeMode.EVENT_TIME_ORDERING,
    COMMIT_TIME_STRATEGY: MergeMode.COMMIT_TIME_ORDERING,
    **{name.lower(): MergeMode.EVENT_TIME_ORDERING for name in names.EVENT_TIME_PAYLOADS},
    **{name.lower(): MergeMode.COMMIT_TIME_ORDERING for name in names.COMMIT_TIME_PAYLOADS},
}
#: SINGLE_WRITER leaves it open.
_CONCURRENCY_MODES = {mode.value.lower(): mode for mode in ConcurrencyMode}
#: The other providers are without effect.
_LOCKS = {
    names.FILE_LOCK.lower(): LockKind.FILE,
    names.STORAGE_LOCK.lower(): LockKind.STORAGE,
    names.ZOOKEEPER_LOCK.lower(): LockKind.ZOOKEEPER,
    names.DYNAMODB_LOCK.lower(): LockKind.DYNAMODB,
}
_KEY_GENERATORS = {
    name.lower(): KeyGenerator(word) for name, word in names.KEY_GENERATOR_CLASSES.items()
}

#: The names of each part of the table.
_SPELLINGS: dict[str, tuple[str, ...]] = {
    "name": names.NAME,
    "database": names.DATABASE,
    "table_type": names.TYPE,
    "version": names.VERSION,
    "record_key": names.RECORD_KEY,
    "partition_by": names.PARTITION_BY,
    "ordering": names.ORDERING,
    "bucket_engine": names.BUCKET_ENGINE,
    "bucket_count": names.BUCKET_COUNT,
    "bucket_min": names.BUCKET_MIN,
    "bucket_max": names.BUCKET_MAX,
    "hash_fields": names.HASH_FIELDS,
    "hive_style": names.HIVE_STYLE,
    "url_encode": names.URL_ENCODE,
    "merge_mode": (*names.MERGE_MODE, *names.MERGE_STRATEGY, *names.PAYLOAD_CLASS),
    "concurrency": names.CONCURRENCY,
    "lock": names.LOCK_PROVIDER,
    "key_generator": (*names.KEY_GENERATOR_CLASS, *names.KEY_GENERATOR_TYPE),
}


def _asked_table(given: Mapping[str, str]) -> AskedTable:
    parsers: dict[str, Callable[[str, str], Any]] = {
        "name": _word,
        "database": _word,
        "table_type": _table_type,
        "version": _version,
        "record_key": _columns,
        "partition_by": _columns,
        "ordering": _columns,
        "bucket_engine": _bucket_engine,
        "bucket_count": number,
        "bucket_min": number,
        "bucket_max": number,
        "hash_fields": _columns,
        "hive_style": flag,
        "url_encode": flag,
        "merge_mode": lambda _, text: _MERGE_MODES[text.lower()],
        "concurrency": lambda _, text: _CONCURRENCY_MODES.get(text.lower()),
        "lock": lambda _, text: _LOCKS.get(text.lower()),
        "key_generator": _key_generator,
    }
    asked = AskedTable(
        **{part: agreed(given, _SPELLINGS[part], parse) for part, parse in parsers.items()},
        lock_options={name: given[name] for name in names.LOCK_ADDRESS if name in given} or None,
    )
    try:
        _ = asked.buckets
    except InvalidRequestError as error:
        parts = ("bucket_count", "bucket_min", "bucket_max")
        part = next(part for part in parts if getattr(asked, part) is not None)
        raise refused_option(_SPELLINGS[part][0], str(getattr(asked, part)), error.why) from None
    return asked


def _found_table(config: TableConfig) -> dict[str, Any]:
    """Return the parts of an existing table; None for what it does not record."""
    buckets = config.buckets
    return {
        "name": config.name,
        "database": config.database or None,
        "table_type": config.table_type,
        "version": config.version,
        "record_key": config.record_key_fields,
        "partition_by": config.partition_fields,
        "ordering": config.ordering_fields,
        **_found_buckets(buckets),
        "hash_fields": buckets.hash_fields if buckets else None,
        "hive_style": config.hive_style,
        "url_encode": config.url_encode,
        "merge_mode": config.merge_mode,
        "concurrency": config.concurrency,
        "lock": config.lock if LOCK_KIND in config.properties.values else None,
        "key_generator": config.key_generator,
    }


def _found_buckets(buckets: TableBuckets | None) -> dict[str, Any]:
    match buckets:
        case MigratingBuckets():
            return {}  # a job may say what they were, or what they become
        case SimpleBuckets(count):
            return {"bucket_engine": SIMPLE, "bucket_count": count}
        case ConsistentBuckets(initial, least, most):
            first = None if initial == AUTO else initial
            limits = {"bucket_min": least, "bucket_max": most}
            return {"bucket_engine": CONSISTENT, "bucket_count": first, **limits}
    return {}


def _is_same(part: str, asked: Any, there: Any, config: TableConfig) -> bool:
    match part:
        case "hash_fields":  # their order does not matter, and none are all
            return set(asked or config.record_key_fields) == set(there)
        case "merge_mode":  # event time without an ordering counts as commit time
            return asked in (there, config.properties.choice(KEPT_MERGE_MODE, MergeMode))
    return bool(asked == there)


def _spelling(given: Mapping[str, str], spellings: Sequence[str]) -> str:
    """Return the name that the user used."""
    return next(name for name in spellings if name in given)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return repr(",".join(value)) if value else "none"
    return repr(str(value).lower() if isinstance(value, bool) else str(value))


# ---- the write


def _settings(given: Mapping[str, str]) -> WriteSettings:
    chosen: dict[str, Any] = {
        "log_block_format": agreed(
            given, names.BLOCK_FORMAT, lambda _, text: LogBlockFormat(text.lower())
        ),
        "failed_writes": agreed(
            given, names.FAILED_WRITES, lambda _, text: FailedWrites(text.lower())
        ),
        "schema_mode": _schema_mode(given),
        **parse_early_options(given),
    }
    numbers = {
        "log_file_bytes_max": names.LOG_BYTES_MAX,
        "heartbeat_interval_ms": names.HEARTBEAT_INTERVAL,
        "heartbeat_misses": names.HEARTBEAT_MISSES,
        "conflict_retries": names.CONFLICT_RETRIES,
        "lock_wait_ms": names.LOCK_WAIT,
    }
    for setting, spellings in numbers.items():
        value = agreed(given, spellings, number)
        if value is not None:
            _check_setting(setting, value, spellings[0])
            chosen[setting] = value
    return WriteSettings(**{name: value for name, value in chosen.items() if value is not None})


def _schema_mode(given: Mapping[str, str]) -> SchemaMode:
    """Return what rows may change; see the head of this module."""
    merge = names.MERGE_SCHEMA
    filling = [n for n in names.FILL_MISSING if n in given and flag(n, given[n].strip())]
    if merge not in given:
        return SchemaMode.MERGE if filling else SchemaMode.ADD
    if flag(merge, given[merge].strip()):
        return SchemaMode.MERGE
    if filling:
        raise InvalidRequestError(
            f"options {merge}={given[merge]!r} and {filling[0]}={given[filling[0]]!r} contradict",
            why="rows that lack columns are either refused or filled with null",
            next_step="Leave one out",
        )
    return SchemaMode.STRICT


def _check_setting(setting: str, value: int, option: str) -> None:
    """Check the setting's own limits; the error names the option that the user knows."""
    only: dict[str, Any] = {setting: value}
    try:
        WriteSettings(**only)
    except InvalidRequestError as error:
        raise refused_option(option, str(value), error.why) from None


def _refuse_eager_company(write: HudiWrite) -> None:
    if write.settings.failed_writes is FailedWrites.EAGER and write.table.concurrency is not None:
        option = _spelling(write.given, names.FAILED_WRITES)
        why = (
            f"with {names.CONCURRENCY[0]}={write.table.concurrency} it would roll back live writers"
        )
        raise refused_option(option, write.given[option], why)


# ---- texts


def _known(name: str) -> str:
    """Return the name as it is listed. Spark passes options in lower case, as all of Hudi's are."""
    return names.MERGE_SCHEMA if name.lower() == names.MERGE_SCHEMA.lower() else name


def _text(value: object) -> str:
    """Return the value as text; Python's own true, false and numbers are accepted."""
    return str(value)


def _word(option: str, text: str) -> str:
    if not text:
        raise refused_option(option, text, "it is empty")
    return text


def _columns(option: str, text: str) -> tuple[str, ...]:
    columns = tuple(name.strip() for name in text.split(",")) if text else ()
    if not all(columns) or len(set(columns)) < len(columns):
        raise refused_option(option, text, "it is a list of different columns, by commas")
    for column in columns:
        if ":" in column or "." in column:
            raise refused_option(option, text, f"{column!r} is not a column of its own")
    return columns


def _bucket_engine(_: str, text: str) -> str:
    return ENGINES[text.upper()]


def _table_type(option: str, text: str) -> TableType:
    try:
        return TableType(text.upper())
    except ValueError:
        raise refused_option(option, text, f"it is {' or '.join(TableType)}") from None


def _version(option: str, text: str) -> int:
    version = number(option, text)
    if version not in READABLE_VERSIONS:
        raise refused_option(option, text, "pyhudi writes tables of versions 8 and 9")
    return version


def _key_generator(_: str, text: str) -> KeyGenerator:
    by_class = _KEY_GENERATORS.get(text.lower())
    return by_class or KeyGenerator(text.upper().removesuffix("_AVRO"))
