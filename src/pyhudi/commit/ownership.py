"""May an owner's write still complete?

Ownership is read when the write starts, and again at every attempt to complete it. All declarations
in between count, since a column may have been given away and back. That is enough: another owner of
one of the columns begins its first write after it was declared, and a begin makes every write that
has not completed look once more. So of two owners, the one that lost the column completes before
the other begins, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.column_owners import ColumnOwners
from pyhudi.storage.objects.column_owners import owners_after
from pyhudi.storage.protocol import Storage


@dataclass(frozen=True, slots=True)
class OwnedPart:
    """The columns that a write relies on, by the declaration with that number."""

    owner: str
    columns: tuple[str, ...]
    declared_at: int


def ownership_lost(storage: Storage, part: OwnedPart) -> InvalidRequestError | None:
    """Return why the owner may no longer complete a write of these columns; None if it may."""
    since = list(owners_after(storage, part.declared_at))
    own = set(part.columns)
    if any(set(then.columns.get(part.owner, ())) != own for then in since):
        return _no_longer(part.owner, part.columns, since[-1])
    return None


def _no_longer(owner: str, own: Iterable[str], now: ColumnOwners) -> InvalidRequestError:
    takers = {name: now.owner_of(name) for name in own if now.owner_of(name) not in (None, owner)}
    moved = [f"{name!r} belongs to owner {taker!r}" for name, taker in takers.items()]
    return InvalidRequestError(
        f"owner {owner!r} may not complete this write",
        why="; ".join(moved) or "its columns were released or declared again since it began",
        next_step="Write again with the columns that the owner has now; nothing of this write is"
        " visible",
    )
