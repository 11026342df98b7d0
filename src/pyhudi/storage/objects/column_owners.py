"""Where a table stores the owners of its columns: numbered objects, each of them the whole list.

A process that changes the list creates the object with the next number. Of two that do so at once,
one finds the number taken, loads the other's list, and checks again whether its change is still
possible. So the objects are one history that all processes agree on, and no clock or lock is
involved.

Whether a lost reply, or a repeated request, was this process's own change does not matter: every
change says what is to hold afterwards, and does nothing where it holds already.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from pyhudi.errors import ConflictError, UnavailableError
from pyhudi.format.table.column_owners import (
    OWNERS_BYTES_MAX,
    ColumnOwners,
    decode_owners,
    encode_owners,
)
from pyhudi.storage.protocol import Storage

OWNERS_FOLDER: Final = ".hoodie/.pyhudi/owners"
ROUNDS_MAX: Final = 100

_NAME = re.compile(rf"{re.escape(OWNERS_FOLDER)}/([1-9][0-9]{{0,8}})\.json")


def owners_path(number: int) -> str:
    return f"{OWNERS_FOLDER}/{number}.json"


def load_owners(storage: Storage) -> ColumnOwners:
    """Return the owners as they are now."""
    return load_numbered_owners(storage)[1]


def load_numbered_owners(storage: Storage) -> tuple[int, ColumnOwners]:
    """Return the last number, 0 if there is none, and its owners."""
    number = max(_numbers(storage), default=0)
    return number, _load(storage, number) if number else ColumnOwners()


def owners_after(storage: Storage, number: int) -> Iterator[ColumnOwners]:
    """Yield the owners as they have been since that number, one list after the other."""
    for later in sorted(_numbers(storage)):
        if later > number:
            yield _load(storage, later)


def declare_owners(storage: Storage, owners: ColumnOwners) -> ColumnOwners:
    """Declare all these owners in one object, or none. Existing owners stay."""

    def changed(now: ColumnOwners) -> ColumnOwners:
        for name, columns in owners.columns.items():
            now = now.with_owner(name, columns)
        return now

    return change_owners(storage, changed)


def change_owners(storage: Storage, change: Callable[[ColumnOwners], ColumnOwners]) -> ColumnOwners:
    """Change the owners, although others may change them at the same time.

    `change` is called again whenever another change came first. What it raises is raised.
    """
    for _ in range(ROUNDS_MAX):
        number, owners = load_numbered_owners(storage)
        changed = change(owners)
        if changed == owners or storage.create(owners_path(number + 1), encode_owners(changed)):
            return changed
    raise ConflictError(
        "the owners of the table's columns could not be changed",
        why=f"others changed them first, {ROUNDS_MAX} times in a row",
        next_step="Declare them again",
    )


def _numbers(storage: Storage) -> Iterator[int]:
    names = (_NAME.fullmatch(stat.path) for stat in storage.list(OWNERS_FOLDER))
    return (int(name[1]) for name in names if name)


def _load(storage: Storage, number: int) -> ColumnOwners:
    path = owners_path(number)
    try:
        return decode_owners(storage.read(path, 0, OWNERS_BYTES_MAX + 1), path)
    except FileNotFoundError:
        raise UnavailableError(
            "the owners of the table's columns cannot be read",
            why=f"{path!r} was listed and is gone; no program removes it",
            next_step="Try again",
        ) from None
