"""Which owner writes which columns of a joined table, and the rules that make the join unambiguous.

A joined table is one wide table that several owners write at once, each its own columns. An owner's
row holds the record key, the partition and the owner's columns; it is stored as a partial update,
and readers put the row together from what all owners wrote.

Two facts about Hudi decide how (docs/partial_updates.md shows both):

- A partial row that is later in order but lower in ordering value is dropped when it meets a base
  file's row, and kept when it meets a log's. So with an ordering of the user's, the joined row
  depends on when compaction ran. Here all partial rows have the same ordering value, so none is
  ever late.
- Hudi reads nonsense where a record has partial rows alone. So before the first one of a new key
  stands a *placeholder row*, a whole row with nulls. Two owners may write one at once, and the
  second placeholder must not win over the first partial row. So its ordering value is lower than
  that of all partial rows.

Both need an ordering column that holds nothing but this rank, and a joined table has one.

Where the key exists already, a placeholder would be wrong: Hudi joins the logs before they meet the
base file, and placeholder and partial row are then a whole row that replaces the base row. So a
writer looks up the existing keys once it has begun, and `conflict.rules` makes it write again where
a delete, an overwrite or a compaction may have changed that meanwhile.

Ownership is declared, and stored in the table as one small object for each declaration, numbered;
the object with the highest number counts (`storage.objects.column_owners`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.table.table_config import TableConfig

#: The ordering column of a joined table. An int: Hudi cannot compare other types with its default.
RANK_COLUMN: Final = "_pyhudi_rank"
PLACEHOLDER_RANK: Final = 1  # not 0, which means "no value" in a delete
ROW_RANK: Final = 2

#: Columns by which a row marks itself as a delete.
DELETING_COLUMNS: Final = ("_hoodie_is_deleted", "_hoodie_operation")
OWNERS_MAX: Final = 1_000
NAME_CHARACTERS_MAX: Final = 128
OWNERS_BYTES_MAX: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class ColumnOwners:
    """All owners of a table and their columns."""

    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def with_owner(self, owner: str, columns: Iterable[str]) -> ColumnOwners:
        """Return the owners with one more.

        The same declaration again changes nothing; one that overlaps is refused.
        """
        asked = tuple(columns)
        known = self.columns.get(owner)
        if known is not None and set(known) == set(asked):
            return self
        if known is not None:
            raise _refused(
                f"owner {owner!r} is declared already",
                f"it owns {_listed(known)}, and {_listed(asked)} is requested",
                f"Declare the same columns, or call table.alter.release_columns({owner!r})"
                " first, when none of its writers runs",
            )
        for name in asked:
            if (other := self.owner_of(name)) is not None:
                raise _refused(
                    f"owner {owner!r} cannot have the column {name!r}",
                    f"owner {other!r} has it, and a column has one owner",
                    "Leave it out, or let its owner release it first",
                )
        if len(self.columns) >= OWNERS_MAX:
            raise _refused(
                f"owner {owner!r} cannot be added",
                f"the table has {OWNERS_MAX} owners, and that is the limit",
                "Release the columns of owners that write no more",
            )
        return ColumnOwners({**self.columns, owner: asked})

    def without(self, owner: str) -> ColumnOwners:
        """Return the owners without this one, if it is among them."""
        return ColumnOwners({name: own for name, own in self.columns.items() if name != owner})

    def owner_of(self, column: str) -> str | None:
        return next((owner for owner, own in self.columns.items() if column in own), None)


# ---- what may be declared


def checked_owners(given: Any) -> dict[str, tuple[str, ...]]:
    """Return the caller's owners; InvalidRequestError if they are something else."""
    if not isinstance(given, Mapping):
        raise _refused(
            f"owners={given!r:.100} cannot be used",
            "it is not a dictionary of owners and their columns",
            "Write owners={'orders': ['customer', 'amount'], 'payments': ['method']}",
        )
    return {checked_name(name): checked_columns(name, own) for name, own in given.items()}


def checked_name(name: Any) -> str:
    """Return an owner's name, a short text that can be shown."""
    if isinstance(name, str) and 0 < len(name) <= NAME_CHARACTERS_MAX and name.isprintable():
        return name
    raise _refused(
        f"{name!r:.100} cannot be the name of an owner",
        f"a name has 1 to {NAME_CHARACTERS_MAX} characters, all of which can be shown",
        "Choose another name",
    )


def checked_columns(owner: str, columns: Any) -> tuple[str, ...]:
    """Return the columns as the caller names them."""
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise _refused(
            f"the columns of owner {owner!r} cannot be used",
            f"{columns!r:.100} is not a list of names",
            "Write columns=['a', 'b']",
        )
    names = tuple(columns)
    if not names or not all(isinstance(name, str) for name in names):
        raise _refused(
            f"the columns of owner {owner!r} cannot be used",
            "the list is empty" if not names else f"{names!r:.100} are not all names",
            "Name at least one column",
        )
    if twice := [name for name in names if names.count(name) > 1]:
        raise _refused(
            f"owner {owner!r} names the column {twice[0]!r} twice", "once is enough", "Name it once"
        )
    return names


def refuse_unownable(
    schema: pa.Schema, identity: Iterable[str], owner: str, columns: Iterable[str]
) -> None:
    """Raise InvalidRequestError if the owner cannot have one of the columns.

    The identity is what every owner's rows have: record key and partition.
    """
    shared = {*identity}
    for name in columns:
        if name not in schema.names:
            why = f"the table has {_listed(schema.names)}"
            raise _refused(
                f"owner {owner!r} cannot have the column {name!r}", why, "Name columns of the table"
            )
        if name in shared or name == RANK_COLUMN:
            why = "it says which row is meant, and all owners write it"
            if name == RANK_COLUMN:
                why = "pyhudi itself fills it in"
            raise _refused(f"owner {owner!r} cannot have the column {name!r}", why, "Leave it out")


def refuse_required_columns(schema: pa.Schema, identity: Iterable[str]) -> None:
    """Raise InvalidRequestError if a column must have a value that some owner does not write."""
    shared = {*identity, RANK_COLUMN}
    for name in DELETING_COLUMNS:
        if name in schema.names:
            raise _refused(
                f"a joined table cannot have the column {name!r}",
                "one owner's part of a row would delete all of it",
                "Leave it out, and call table.delete",
            )
    for column in schema:
        if not column.nullable and column.name not in shared:
            raise _refused(
                f"column {column.name!r} of a joined table must be nullable",
                "a row that only other owners have written has no value there",
                "Declare it nullable",
            )


def is_joined(config: TableConfig) -> bool:
    """True if the table was made for owners."""
    return config.ordering_fields == (RANK_COLUMN,)


# ---- as it is stored


def encode_owners(owners: ColumnOwners) -> bytes:
    """Return the bytes. The same owners always give the same ones.

    >>> encode_owners(ColumnOwners({"orders": ("amount",)}))
    b'{"owners": {"orders": ["amount"]}}'
    """
    return json.dumps({"owners": {n: [*own] for n, own in sorted(owners.columns.items())}}).encode()


def decode_owners(data: bytes, path: str) -> ColumnOwners:
    """Return the owners; CorruptTableError if the bytes are not what `encode_owners` makes."""
    try:
        value = json.loads(data) if len(data) <= OWNERS_BYTES_MAX else None
    except (ValueError, RecursionError):
        value = None
    match value:
        case {"owners": dict() as found} if all(map(_is_owner, found.values())):
            owners = {name: tuple(own) for name, own in found.items()}
            if len(set(_all_columns(owners))) == len(_all_columns(owners)):
                return ColumnOwners(owners)
    raise CorruptTableError(
        "the owners of the table's columns cannot be read",
        why="the object is not a list of owners, each with columns of its own",
        next_step="Restore the object from a copy of the table. Without one, stop the writers of"
        " all owners and delete it: the owners before it hold again, and those that changed since"
        " must be declared again",
        path=path,
    )


def _is_owner(own: Any) -> bool:
    return isinstance(own, list) and bool(own) and all(isinstance(name, str) for name in own)


def _all_columns(owners: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [name for own in owners.values() for name in own]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in [*names][:20]) or "nothing"


def _refused(what: str, why: str, next_step: str) -> InvalidRequestError:
    return InvalidRequestError(what, why=why, next_step=next_step)
