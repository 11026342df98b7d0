"""A write of an owner's columns: may it, and may it still when it completes?

Ownership is looked up when the write starts, and again at every try to complete it: all of what was
declared in between, for a column may have been given away and back. That is enough: another owner
of one of the columns begins its first write after it was declared, and a begin makes every write
that has not completed look once more. So of two owners, the one that lost the column completes
before the other begins, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

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
from pyhudi.storage.objects.column_owners import change_owners, load_numbered_owners, owners_after
from pyhudi.table.schema import META_COLUMNS
from pyhudi.write.files.spec import Part
from pyhudi.write.writer import TableWriter

Recheck: TypeAlias = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Owned:
    """What one owner may write."""

    owner: str
    part: Part
    schema: pa.Schema  # of its rows
    others: ColumnOwners  # all owners, for errors
    recheck: Recheck

    def refuse_other_columns(self, names: Collection[str]) -> None:
        """InvalidRequestError unless the rows have exactly the owner's columns.

        One that is missing could mean that it stays as it is, or that it is null: nobody guesses.
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
        return "belongs to nobody" if other is None else f"belongs to owner {other!r}"


def owned_columns(writer: TableWriter, owner: Any) -> Owned:
    """What the owner may write now; InvalidRequestError if there is no such owner."""
    config = _joined_config(writer)
    number, owners = load_numbered_owners(writer.storage)
    own = owners.columns.get(checked_name(owner))
    if own is None:
        raise InvalidRequestError(
            f"{owner!r} owns no columns of the table {config.name!r}",
            why=f"its owners are {_listed(owners.columns)}",
            next_step=f"Call table.alter.own_columns({owner!r}, columns) once",
        )
    identity = _identity(config)
    schema = writer.schema
    refuse_unownable(schema, identity, owner, own)
    rows = pa.schema([f for f in schema if f.name in own or f.name in identity])

    def recheck() -> None:
        since = list(owners_after(writer.storage, number))
        if any(set(then.columns.get(owner, ())) != set(own) for then in since):
            raise _no_longer(owner, own, since[-1])

    return Owned(owner, Part(identity, tuple(own)), rows, owners, recheck)


def _no_longer(owner: str, own: Iterable[str], now: ColumnOwners) -> InvalidRequestError:
    takers = {name: now.owner_of(name) for name in own if now.owner_of(name) not in (None, owner)}
    moved = [f"{name!r} belongs to owner {taker!r}" for name, taker in takers.items()]
    return InvalidRequestError(
        f"owner {owner!r} may not complete this write",
        why="; ".join(moved) or "its columns were released, or declared anew, since it began",
        next_step="Nothing of it is visible; write again with the columns that the owner has now",
    )


# ---- declaring


def own_columns(writer: TableWriter, owner: Any, columns: Any) -> ColumnOwners:
    """Declare an owner. Of two that ask for one column, one gets it, and the other is refused."""
    config = _joined_config(writer)
    name, asked = checked_name(owner), checked_columns(owner, columns)
    identity, schema = _identity(config), writer.schema
    refuse_required_columns(schema, identity)
    refuse_unownable(schema, identity, name, asked)
    return change_owners(writer.storage, lambda now: now.with_owner(name, asked))


def release_columns(writer: TableWriter, owner: Any) -> ColumnOwners:
    """Let an owner go; its writes that have not completed are refused from here on."""
    _joined_config(writer)
    name = checked_name(owner)
    return change_owners(writer.storage, lambda now: now.without(name))


# ---- what else is different on a joined table


def refuse_joined(config: TableConfig, verb: str) -> None:
    """InvalidRequestError where whole rows would be written beside those of owners."""
    if is_joined(config):
        raise InvalidRequestError(
            f"{verb} is not possible on the table {config.name!r}",
            why="its columns have owners, and whole rows would overwrite what the others wrote",
            next_step="Call table.upsert(rows, owner=...) with the columns of one owner",
        )


def ranked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Whole rows of a joined table, with the rank that all rows have."""
    rank = pa.repeat(pa.scalar(ROW_RANK, pa.int32()), batch.num_rows)
    place = batch.schema.get_field_index(RANK_COLUMN)
    if place < 0:
        return batch.append_column(RANK_COLUMN, rank)
    return batch.set_column(place, RANK_COLUMN, rank)


def _joined_config(writer: TableWriter) -> TableConfig:
    config = writer.config
    if not is_joined(config):
        raise InvalidRequestError(
            f"the table {config.name!r} has no owners of columns",
            why="it was not created with owners, and its rows are merged whole",
            next_step="Create a table with owners={...}, or write whole rows",
        )
    return config


def _identity(config: TableConfig) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*config.record_key_fields, *config.partition_fields)))


def _listed(names: Iterable[str]) -> str:
    shown: Sequence[str] = [repr(name) for name in names]
    return ", ".join(shown[:20]) or "none"
