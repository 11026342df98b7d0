"""A write of an owner's columns: which columns and rows may it write?"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pyhudi.commit.ownership import OwnedPart
from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.column_owners import (
    RANK_COLUMN,
    ROW_RANK,
    ColumnOwners,
    checked_columns,
    checked_name,
    is_joined,
    refuse_required_columns,
    refuse_unownable,
)
from pyhudi.format.table.table_config import TableConfig
from pyhudi.storage.objects.column_owners import change_owners, load_numbered_owners
from pyhudi.storage.protocol import Storage
from pyhudi.table.schema import META_COLUMNS
from pyhudi.write.files.spec import Part


@dataclass(frozen=True, slots=True)
class OwnedColumns:
    """What one owner may write."""

    owner: str
    part: Part
    schema: pa.Schema  # of its rows
    others: ColumnOwners  # all owners, for errors
    declared_at: int  # number of the declaration that it relies on

    @property
    def relied_on(self) -> OwnedPart:
        """Return what must still hold when the write completes."""
        return OwnedPart(self.owner, self.part.own, self.declared_at)

    def refuse_other_columns(self, names: Collection[str]) -> None:
        """Raise InvalidRequestError unless the rows have exactly the owner's columns.

        A missing column could mean that the value stays, or that it is null. We do not guess.
        """
        given = [name for name in names if name not in META_COLUMNS]
        missing = [name for name in self.schema.names if name not in given]
        foreign = [name for name in given if name not in self.schema.names]
        whys = [f"missing {_listed(missing)}"] if missing else []
        whys += [f"{name!r} {self._whose(name)}" for name in foreign[:10]]
        if whys:
            raise InvalidRequestError(
                f"the rows do not have the columns of owner {self.owner!r}",
                why="; ".join(whys),
                next_step=f"Give {_listed(self.schema.names)}, and null where there is no value",
            )

    def _whose(self, name: str) -> str:
        other = self.others.owner_of(name)
        return "has no owner" if other is None else f"belongs to owner {other!r}"


def owned_columns(
    storage: Storage, config: TableConfig, schema: pa.Schema, owner: Any
) -> OwnedColumns:
    """Return what the owner may write now; InvalidRequestError if there is no such owner."""
    _require_joined(config)
    number, owners = load_numbered_owners(storage)
    own = owners.columns.get(checked_name(owner))
    if own is None:
        raise InvalidRequestError(
            f"{owner!r} owns no columns of the table {config.name!r}",
            why=f"its owners are {_listed(owners.columns)}",
            next_step=f"Call table.alter.own_columns({owner!r}, columns) once",
        )
    identity = _identity(config)
    refuse_gone_columns(schema.names, owner, own)
    refuse_unownable(schema, identity, owner, own)
    rows = pa.schema([f for f in schema if f.name in own or f.name in identity])
    return OwnedColumns(owner, Part(identity, tuple(own)), rows, owners, number)


def refuse_gone_columns(names: Collection[str], owner: str, own: Iterable[str]) -> None:
    """Raise InvalidRequestError if the table, which has these columns, lacks one of the owner's.

    A column keeps its owner when it is dropped, and a part of a row has all columns of its owner.
    """
    gone = [name for name in own if name not in names]
    if gone:
        raise InvalidRequestError(
            f"owner {owner!r} cannot write its column {gone[0]!r}",
            why="the table has it no longer: it was dropped after the owner declared it"
            " (table.inspect.schema_history() says by which write)",
            next_step=f"Call table.alter.release_columns({owner!r}) while none of that owner's"
            " writers runs, declare the columns that are left with table.alter.own_columns, and"
            " write those; nothing of this write is visible",
        )


# ---- declaring


def own_columns(
    storage: Storage, config: TableConfig, schema: pa.Schema, owner: Any, columns: Any
) -> ColumnOwners:
    """Declare an owner. If two ask for one column, one gets it, and the other is refused."""
    _require_joined(config)
    name, wanted = checked_name(owner), checked_columns(owner, columns)
    identity = _identity(config)
    refuse_required_columns(schema, identity)
    refuse_unownable(schema, identity, name, wanted)
    return change_owners(storage, lambda now: now.with_owner(name, wanted))


def release_columns(storage: Storage, config: TableConfig, owner: Any) -> ColumnOwners:
    """Release an owner's columns. Its writes that have not completed are refused from now on."""
    _require_joined(config)
    name = checked_name(owner)
    return change_owners(storage, lambda now: now.without(name))


# ---- what differs on a joined table


def refuse_joined(config: TableConfig, verb: str) -> None:
    """Raise InvalidRequestError on a joined table: whole rows would overwrite owners' parts."""
    if is_joined(config):
        raise InvalidRequestError(
            f"{verb} is not possible on the table {config.name!r}",
            why="its columns have owners, and whole rows would overwrite what the others wrote",
            next_step="Call table.upsert(rows, owner=...) with the columns of one owner",
        )


def ranked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return whole rows of a joined table, with the rank that all rows have."""
    rank = pa.repeat(pa.scalar(ROW_RANK, pa.int32()), batch.num_rows)
    index = batch.schema.get_field_index(RANK_COLUMN)
    if index < 0:
        return batch.append_column(RANK_COLUMN, rank)
    return batch.set_column(index, RANK_COLUMN, rank)


def _require_joined(config: TableConfig) -> None:
    if not is_joined(config):
        raise InvalidRequestError(
            f"the table {config.name!r} has no owners of columns",
            why="it was not created with owners, and its rows are merged whole",
            next_step="Create a table with owners={...}, or write whole rows",
        )


def _identity(config: TableConfig) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*config.record_key_fields, *config.partition_fields)))


def _listed(names: Iterable[str]) -> str:
    shown: Sequence[str] = [repr(name) for name in names]
    return ", ".join(shown[:20]) or "none"
