"""The item that holds a lock in DynamoDB, as Amazon's lock client for Java writes it.

All attributes are texts, the numbers too. An owner gives each renewal a new record version, which
says nothing by itself: a waiting writer watches whether it changes. A released lock is deleted, or
marked as released; both occur.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyhudi.errors import CorruptTableError

KEY: Final = "key"
OWNER: Final = "ownerName"
LEASE_MS: Final = "leaseDuration"
VERSION: Final = "recordVersionNumber"
RELEASED: Final = "isReleased"
RELEASED_TEXT: Final = "1"

_LEASE_DIGITS_MAX = 18
_TEXT_CHARACTERS_MAX = 10_000

#: Attributes as DynamoDB has them: to each name the letter of its type and the value.
Attributes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class LockItem:
    """A lock that is held, or was released without being deleted."""

    owner: str
    lease_ms: int  # from the last change of the version
    version: str
    is_released: bool = False


def encode_lock_item(key: str, item: LockItem) -> dict[str, dict[str, str]]:
    texts = {
        KEY: key,
        OWNER: item.owner,
        LEASE_MS: str(item.lease_ms),
        VERSION: item.version,
        **({RELEASED: RELEASED_TEXT} if item.is_released else {}),
    }
    return {name: {"S": text} for name, text in texts.items()}


def decode_lock_item(attributes: Attributes) -> LockItem:
    """Return the lock in the item; CorruptTableError if there is none.

    Attributes that other clients add are ignored.
    """
    lease = _text(attributes, LEASE_MS)
    if not (lease.isascii() and lease.isdigit() and len(lease) <= _LEASE_DIGITS_MAX):
        raise _malformed(LEASE_MS, f"is {lease[:80]!r}, no number of milliseconds")
    return LockItem(
        owner=_text(attributes, OWNER),
        lease_ms=int(lease),
        version=_text(attributes, VERSION),
        is_released=RELEASED in attributes,
    )


def _text(attributes: Attributes, name: str) -> str:
    value = attributes.get(name)
    text = value.get("S") if isinstance(value, Mapping) else None
    if not isinstance(text, str) or len(text) > _TEXT_CHARACTERS_MAX:
        raise _malformed(name, "is missing, too long, or not text")
    return text


def _malformed(name: str, why: str) -> CorruptTableError:
    return CorruptTableError(
        "the lock's item in DynamoDB is not a lock",
        why=f"its {name} {why}",
        next_step="Find the writer of this item; delete it when no writer of the table runs",
    )
