"""The rows of a toy table: small, each with a version that no other write has, and their merge.

Eight keys are in two partitions of two buckets each; on a table of rings, of as many as their ring
has at the time. On a table whose columns have owners a row is
partial: it has the columns of its owner alone, and the merge joins partial rows. A null in a column
is not the same as a missing column.

On a table that evolves, rows also have numbers in columns that writers add, widen and drop.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.table_config import TableType
from pyhudi.index.simple_bucket import file_id
from pyhudi.simulate.choices import drawn

KEYS = tuple(f"k{number}" for number in range(8))
#: The owners and the columns that each may own, on a table whose columns have owners.
OWNERS: Mapping[str, tuple[str, ...]] = {
    "orders": ("customer", "amount"),
    "payments": ("paid",),
    "refunds": ("refunded",),
    "billing": ("paid",),
    "returns": ("refunded",),
}
FOUNDERS = ("orders", "payments", "refunds")  # the owners from the beginning
COLUMNS = tuple(column for owner in FOUNDERS for column in OWNERS[owner])

PARTITIONS = ("p0", "p1")
BUCKETS = 2
_ROWS_MAX = 5
_ORDERINGS = 4  # few, so that ties are common

Cells = Mapping[str, str | None]
Numbers = Mapping[str, int]


class Row(NamedTuple):
    """One change of one key. `version` is unique in the whole simulation."""

    key: str
    ordering: int
    version: str
    is_deleted: bool
    requested: str = ""  # of the write that brought it
    cells: Cells | None = None  # the columns that a partial row has; None: the row is whole
    # of a partial row: its writer took the key for new, and put a placeholder first
    is_fresh: bool = False
    more: Numbers | None = None  # the values in columns that were added, on a table that evolves

    @property
    def shown(self) -> str:
        """Return what a reader sees of the row."""
        return self.version if self.cells is None else json.dumps(self.cells, sort_keys=True)


#: Returns the file group that a key belongs to, as one process has it at one moment.
Placing = Callable[[str], FileGroupId]


@cache
def partition_of(key: str) -> str:
    return PARTITIONS[KEYS.index(key) % len(PARTITIONS)]


@cache
def group_of(key: str) -> FileGroupId:
    """Return the file group of a key on a table of simple buckets, which is always the same."""
    bucket = KEYS.index(key) // len(PARTITIONS) % BUCKETS
    return FileGroupId(partition_of(key), file_id(bucket))


@dataclass(frozen=True, slots=True)
class TableKind:
    """What all writers of a toy table agree on."""

    table_type: TableType
    by_event_time: bool
    has_owners: bool = False
    evolves: bool = False  # columns are added, widened and dropped
    nodes: int = 0  # with which the ring of each partition begins; 0: simple buckets
    is_migrating: bool = False  # partitions begin with simple buckets, and get rings
    is_virtual: bool = False  # its resizes are

    @property
    def has_rings(self) -> bool:
        return self.nodes > 0

    def merged(self, one: Row | None, other: Row) -> Row:
        """Return the merge of two rows of a key, `other` being the later one to be read."""
        if one is None:
            return other
        if self.by_event_time and one.ordering > other.ordering:
            return one
        if one.cells is None or other.cells is None:  # deletes have no columns to give
            return other
        return other._replace(cells={**one.cells, **other.cells})

    def folded(self, rows: Iterable[Row]) -> dict[str, Row]:
        """Return key → the merge of its rows, in the order in which they are read."""
        found: dict[str, Row] = {}
        for row in rows:
            found[row.key] = self.merged(found.get(row.key), row)
        return found


def happens(chance: random.Random, rate: float) -> bool:
    return chance.random() < rate


def drawn_rows(chance: random.Random, version: str, owner: str | None = None) -> tuple[Row, ...]:
    """Draw upserts and deletes of a few keys; by an owner, of its columns."""
    count = 1 + drawn(chance, _ROWS_MAX)
    keys = sorted({KEYS[drawn(chance, len(KEYS))] for _ in range(count)})
    if owner is not None:
        return _drawn_parts(chance, keys, version, OWNERS[owner])
    return tuple(
        drawn_row(chance, key, version)._replace(is_deleted=happens(chance, 0.25)) for key in keys
    )


def drawn_row(chance: random.Random, key: str, version: str) -> Row:
    return Row(key, 1 + drawn(chance, _ORDERINGS), version, is_deleted=False)


def _drawn_parts(
    chance: random.Random, keys: Sequence[str], version: str, columns: Sequence[str]
) -> tuple[Row, ...]:
    """Draw partial rows, or deletes: a write of a table with owners has one or the other."""
    if happens(chance, 0.2):
        return tuple(Row(key, 0, version, is_deleted=True) for key in keys)
    cells = {column: None if happens(chance, 0.3) else version for column in columns}
    return tuple(Row(key, 0, version, is_deleted=False, cells=cells) for key in keys)


def encode_rows(rows: Iterable[Row]) -> bytes:
    return json.dumps([_fields(row) for row in rows], separators=(",", ":")).encode()


def _fields(row: Row) -> list[Any]:
    return list(row if row.more is not None else row[:-1])


def decode_rows(data: bytes) -> list[Row]:
    """Return the rows of one or several encodings, one after the other; none of a reference."""
    if data.startswith(b"{"):
        return []
    return [Row(*fields) for fields in json.loads(data.replace(b"][", b","))]


def encode_reference(names: Sequence[str]) -> bytes:
    """Return a log that refers to others by their bare names."""
    return json.dumps({"logs": names}).encode()


def decode_reference(data: bytes) -> list[str]:
    """Return the names that a log refers to; none if it holds rows."""
    return list(json.loads(data)["logs"]) if data.startswith(b"{") else []
