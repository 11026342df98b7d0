"""The choices for a new table, checked.

A `TableDefinition` is a table that can exist: whatever could not be written, or would be read
otherwise by Hudi, is refused when the definition is made, before anything is on storage.

Defaults: merge on read. With an ordering, records merge by it, and then writers need not wait for
each other (non-blocking). Without one the later write wins, and since Hudi's bytes order such
writes by when they were requested, overlapping writers have to start over (optimistic).

With owners it is a joined table: `column_owners` says why it has one column more, and why it is
always merged by that column.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import pyarrow as pa

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.avro.schema import avro_record_schema, decode_arrow_schema
from pyhudi.format.lock.lock_address import LockAddress, require_fitting_address
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import Buckets, ConsistentBuckets
from pyhudi.format.table.column_owners import (
    RANK_COLUMN,
    ColumnOwners,
    checked_owners,
    refuse_required_columns,
    refuse_unownable,
)
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.conflict_strategy import Strategy, ring_strategy
from pyhudi.format.table.merge_rules import MergeMode
from pyhudi.format.table.properties import PROPERTIES_BYTES_MAX
from pyhudi.format.table.table_config import (
    READABLE_VERSIONS,
    KeyGenerator,
    TableType,
    plain_key_generator,
)

NAME_CHARACTERS_MAX: Final = 128

_SCHEMA_BYTES_MAX = PROPERTIES_BYTES_MAX // 4  # it grows by escapes, and is not alone in the file
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_META_COLUMNS = frozenset(
    f"_hoodie_{name}"
    for name in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
)
_ORDERING_DECIMAL_DIGITS = 15  # before the point and behind it: what Hudi stores with a delete

Columns = str | Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """A table that is to be created. `TableDefinition.of` fills in the defaults.

    The schema holds types that a table stores, and no meta columns.
    """

    name: str
    schema: pa.Schema
    record_key: tuple[str, ...]
    partition_by: tuple[str, ...]
    ordering: tuple[str, ...]
    merge_mode: MergeMode
    table_type: TableType
    version: int
    hive_style: bool
    url_encode: bool
    buckets: Buckets  # ends up with every hashed column named
    concurrency: ConcurrencyMode
    lock: LockKind
    database: str = ""
    owners: ColumnOwners | None = None  # of a joined table; perhaps none yet
    lock_address: LockAddress | None = None  # of a lock that is in a service
    conflict_strategy: Strategy = Strategy.BUCKET
    upkeep: str | None = None  # the maintenance policy as it is recorded; None records nothing

    @classmethod
    def of(
        cls,
        name: str,
        schema: pa.Schema,
        *,
        record_key: Columns,
        buckets: Buckets | None = None,
        partition_by: Columns = (),
        ordering: Columns = (),
        merge_mode: MergeMode | None = None,
        table_type: TableType = TableType.MERGE_ON_READ,
        version: int = 9,
        hive_style: bool = False,
        url_encode: bool = False,
        concurrency: ConcurrencyMode | None = None,
        lock: LockKind = LockKind.NONE,
        database: str = "",
        owners: Mapping[str, Sequence[str]] | None = None,
        lock_address: LockAddress | None = None,
        conflict_strategy: Strategy = Strategy.BUCKET,
        upkeep: str | None = None,
    ) -> Self:
        """Check the arguments; InvalidRequestError for the first one that no table can have."""
        order = _columns(ordering)
        if owners is not None:
            _refuse_unjoinable(schema, order, merge_mode, table_type, concurrency)
            schema, order = schema.append(pa.field(RANK_COLUMN, pa.int32())), (RANK_COLUMN,)
        merge_mode = merge_mode or _default_merge_mode(order)
        if buckets is None:
            buckets = _default_buckets(table_type, lock)
        return cls(
            name=name,
            schema=schema,
            record_key=_columns(record_key),
            partition_by=_columns(partition_by),
            ordering=order,
            merge_mode=merge_mode,
            table_type=table_type,
            version=version,
            hive_style=hive_style,
            url_encode=url_encode,
            buckets=buckets,
            concurrency=concurrency or _default_concurrency(table_type, merge_mode),
            lock=lock,
            database=database,
            owners=None if owners is None else _declared(owners),
            lock_address=lock_address,
            conflict_strategy=conflict_strategy,
            upkeep=upkeep,
        )

    def __post_init__(self) -> None:
        if not isinstance(self.buckets, Buckets):
            raise _refused(
                f"{self.buckets!r:.100} is given for buckets",
                "it is neither a SimpleBuckets nor a ConsistentBuckets",
                "Write buckets=8, or buckets=pyhudi.ConsistentBuckets()",
            )
        _check_names(self)
        _check_modes(self)
        _check_schema(self.schema)
        _check_columns(self.schema, "record key", self.record_key, _why_no_key)
        _check_columns(self.schema, "partition", self.partition_by, _why_no_partition)
        _check_columns(self.schema, "ordering", self.ordering, _why_no_ordering)
        object.__setattr__(self, "buckets", self.buckets.resolved(self.record_key))
        _check_buckets(self)
        _check_owners(self)
        require_fitting_address(self.lock, self.lock_address)
        _check_size(self.schema_json)

    @property
    def judged_by(self) -> Strategy:
        """The conflict strategy; that of buckets needs file ids with numbers."""
        is_numbered = not isinstance(self.buckets, ConsistentBuckets)
        asked = self.conflict_strategy
        if is_numbered or asked is not Strategy.BUCKET:
            return asked
        return ring_strategy(self.lock)

    def is_judged_by(self, found: Strategy) -> bool:
        """True if a table that has this strategy is as it is asked for."""
        if self.judged_by is found:
            return True
        is_open = isinstance(self.buckets, ConsistentBuckets) and (
            self.conflict_strategy is Strategy.BUCKET
        )
        return is_open and found in (Strategy.SIMPLE, Strategy.PREFER_WRITER)

    @property
    def key_generator(self) -> KeyGenerator:
        return plain_key_generator(self.record_key, self.partition_by)

    @property
    def schema_json(self) -> str:
        """The schema as Hudi stores it in the properties."""
        return json.dumps(avro_record_schema(self.schema, self.name), separators=(",", ":"))


def legal_table_name(text: str) -> str:
    """Return the text, or the most similar one that can be a table's name.

    >>> legal_table_name("2026-orders")
    '_2026_orders'
    """
    legal = re.sub(r"[^A-Za-z0-9_]", "_", text)[:NAME_CHARACTERS_MAX]
    return legal if _NAME.match(legal) else f"_{legal}"[:NAME_CHARACTERS_MAX]


def _columns(names: Columns) -> tuple[str, ...]:
    if not isinstance(names, str | Sequence) or not all(isinstance(n, str) for n in names):
        raise _refused(
            f"{names!r:.100} is given for columns",
            "columns are a name, or a list of names",
            "Name the columns",
        )
    return (names,) if isinstance(names, str) else tuple(names)


def _default_merge_mode(ordering: tuple[str, ...]) -> MergeMode:
    return MergeMode.EVENT_TIME_ORDERING if ordering else MergeMode.COMMIT_TIME_ORDERING


def _default_concurrency(table_type: TableType, merge_mode: MergeMode) -> ConcurrencyMode:
    by_event = merge_mode is MergeMode.EVENT_TIME_ORDERING
    if by_event and table_type is TableType.MERGE_ON_READ:
        return ConcurrencyMode.NON_BLOCKING
    return ConcurrencyMode.OPTIMISTIC


def _default_buckets(table_type: TableType, lock: LockKind) -> ConsistentBuckets:
    why = None
    if table_type is TableType.COPY_ON_WRITE:
        why = "buckets that split and merge by themselves need logs, and a copy-on-write table has"
        why += " none"
    elif lock.is_shared:
        why = "the table's lock is for writers of Apache Hudi beside pyhudi's, which must all have"
        why += " the same buckets"
    if why is not None:
        raise _refused(
            "the number of buckets is missing",
            why,
            "Give buckets=8, or as many as the largest partition will need",
        )
    return ConsistentBuckets()


# -- what no table can have


def _check_names(definition: TableDefinition) -> None:
    named = {"table": definition.name, "database": definition.database or "_"}
    for what, name in named.items():
        # The table's name becomes part of Avro names, which the readers' parsers check.
        if not isinstance(name, str) or not _NAME.match(name) or len(name) > NAME_CHARACTERS_MAX:
            name = str(name)
            raise _refused(
                f"{name[:NAME_CHARACTERS_MAX]!r} cannot be the name of a {what}",
                f"a name has up to {NAME_CHARACTERS_MAX} letters from a to z, digits and "
                "underscores, and begins with no digit",
                f"Choose another name, such as {legal_table_name(name)!r}",
            )


def _check_schema(schema: pa.Schema) -> None:
    counts = Counter(schema.names)
    wrong = "" if counts else "it has no columns"
    for name, count in counts.items():
        if not _NAME.match(name):
            wrong = f"{name[:NAME_CHARACTERS_MAX]!r} cannot be the name of a column in Avro"
        elif count > 1:
            wrong = f"it has several columns named {name!r}"
        elif name in _META_COLUMNS:
            wrong = f"Hudi itself adds the column {name!r}"
    if wrong:
        raise _refused("the schema cannot be that of a table", wrong, "Change the schema")


def _check_columns(
    schema: pa.Schema,
    role: str,
    names: tuple[str, ...],
    why_not: Callable[[pa.DataType], str | None],
) -> None:
    for name in names:
        if names.count(name) > 1:
            raise _refused(f"the {role} names {name!r} twice", "once is enough", "Name it once")
        if name not in schema.names:
            raise _refused(
                f"the {role} column {name!r} does not exist",
                f"the schema has {', '.join(schema.names[:20])}",
                "Name a column of the schema; fields inside structs are not supported",
            )
        if why := why_not(schema.field(name).type):
            raise _refused(
                f"column {name!r} cannot be used as {role} column",
                f"its type is {schema.field(name).type}: {why}",
                "Choose another column, or another type for it",
            )


def _why_no_key(type_: pa.DataType) -> str | None:
    if pa.types.is_floating(type_):
        return "equal numbers may have different texts, and the text is the key"
    if not _has_one_text(type_):
        return "its values have no text that all engines agree on, and the text is the key"
    return None


def _why_no_partition(type_: pa.DataType) -> str | None:
    if pa.types.is_floating(type_):
        return "equal numbers may have different texts, and the text names the folder"
    if not _has_one_text(type_):
        return "its values have no text that could name a folder"
    if pa.types.is_timestamp(type_):
        return "Hudi reads null where the folder's name stands for a timestamp"
    return None


def _why_no_ordering(type_: pa.DataType) -> str | None:
    if pa.types.is_decimal128(type_):
        digits = type_.precision - type_.scale
        if max(digits, type_.scale) > _ORDERING_DECIMAL_DIGITS:
            return (
                f"Hudi stores {_ORDERING_DECIMAL_DIGITS} digits before the point and as many "
                "behind it with a delete"
            )
    elif not (_has_one_text(type_) or pa.types.is_floating(type_)):
        return "its values have no order that all engines agree on"
    return None


def _has_one_text(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_signed_integer(type_)
        or pa.types.is_decimal128(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_timestamp(type_)
    )


def _check_modes(definition: TableDefinition) -> None:
    if definition.version not in READABLE_VERSIONS:
        raise _refused(
            f"a table of version {definition.version!r} cannot be created",
            f"pyhudi writes versions {', '.join(map(str, sorted(READABLE_VERSIONS)))}",
            "Leave the version out for the newest",
        )
    if not definition.record_key:
        raise _refused(
            "the record key is missing",
            "rows are found, merged and put into buckets by their key",
            "Name one or more columns that identify a row",
        )
    if definition.merge_mode is MergeMode.CUSTOM:
        raise _refused(
            "custom merging cannot be used", "it is Java code", "Merge by event or commit time"
        )
    if definition.merge_mode is MergeMode.EVENT_TIME_ORDERING and not definition.ordering:
        raise _refused(
            "the ordering is missing",
            "merging by event time compares the values of a column",
            "Name the column that says which version of a row is newer",
        )
    non_blocking = definition.concurrency is ConcurrencyMode.NON_BLOCKING
    if non_blocking and definition.table_type is TableType.COPY_ON_WRITE:
        raise _refused(
            "a copy-on-write table cannot be written without blocking",
            "each write replaces files, so two writers of one file must not both complete",
            "Use merge on read, or optimistic concurrency",
        )


def _check_buckets(definition: TableDefinition) -> None:
    is_cow = definition.table_type is TableType.COPY_ON_WRITE
    if isinstance(definition.buckets, ConsistentBuckets) and is_cow:
        raise _refused(
            "a copy-on-write table cannot have consistent buckets",
            "rows that are written while a bucket is split wait in logs, and it has none",
            "Use merge on read, or buckets=pyhudi.SimpleBuckets(...)",
        )
    hashed, last = definition.buckets.hash_fields, definition.record_key[-1]
    if last not in hashed and pa.types.is_string(definition.schema.field(last).type):
        raise _refused(
            f"buckets cannot be chosen by {', '.join(hashed)} alone",
            f"a colon in {last!r}, the last column of the record key, makes Hudi's writers loop "
            "for ever when that column is not hashed",
            f"Hash {last!r} too, or name it earlier in the record key",
        )


def _refuse_unjoinable(
    schema: pa.Schema,
    ordering: tuple[str, ...],
    merge_mode: MergeMode | None,
    table_type: TableType,
    concurrency: ConcurrencyMode | None,
) -> None:
    """Raise for what a caller may not choose for a joined table."""
    what = "a table with owners cannot "
    if table_type is TableType.COPY_ON_WRITE:
        raise _refused(
            f"{what}be copy on write",
            "owners write parts of rows, and base files hold whole ones",
            "Leave table_type out, for merge on read",
        )
    if ordering or merge_mode is MergeMode.EVENT_TIME_ORDERING:
        raise _refused(
            f"{what}be merged by event time",
            "a late part of a row is dropped if the row was compacted before, and kept if not, so"
            " the joined row would depend on when compaction ran",
            "Leave ordering and merge_mode out; keep the time in a column of each owner",
        )
    if merge_mode is not None:
        raise _refused(
            f"{what}be merged by commit time",
            "Hudi cannot read a row of which only one owner has written its part, unless a whole"
            " row comes before it, and by commit time a whole row takes the place of all parts",
            "Leave merge_mode out: parts of the same owner are taken in the order of their writes",
        )
    if concurrency is ConcurrencyMode.OPTIMISTIC:
        raise _refused(
            f"{what}have optimistic concurrency",
            "owners write the same file groups at the same time, and each would conflict with all",
            "Leave concurrency out",
        )
    if RANK_COLUMN in schema.names:
        raise _refused(
            f"{what}have a column {RANK_COLUMN!r} of its own",
            "pyhudi adds it, to distinguish partial rows from their placeholders",
            "Leave it out, or give it another name",
        )


def _declared(given: Mapping[str, Sequence[str]]) -> ColumnOwners:
    owners = ColumnOwners()
    for name, columns in checked_owners(given).items():
        owners = owners.with_owner(name, columns)
    return owners


def _check_owners(definition: TableDefinition) -> None:
    if definition.owners is None:
        return
    identity = (*definition.record_key, *definition.partition_by)
    refuse_required_columns(definition.schema, identity)
    for owner, columns in definition.owners.columns.items():
        refuse_unownable(definition.schema, identity, owner, columns)


def _check_size(schema_json: str) -> None:
    """Raise if the schema is larger than readers accept."""
    wrong = ""
    if len(schema_json) > _SCHEMA_BYTES_MAX:
        wrong = f"its Avro text has more than {_SCHEMA_BYTES_MAX} bytes"
    try:
        decode_arrow_schema(schema_json, "the definition")
    except CorruptTableError as error:
        wrong = error.why
    if wrong:
        raise _refused("the schema is too large", wrong, "Use fewer columns, or a map")


def _refused(what: str, why: str, next_step: str) -> InvalidRequestError:
    return InvalidRequestError(what, why=why, next_step=next_step)
