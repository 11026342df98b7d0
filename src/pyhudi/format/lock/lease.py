"""The lease of Hudi's storage lock, one JSON object of the table.

Hudi reads three fields, all of them required, and skips any other. The bytes written here are
those that Hudi writes, in its order of fields and without blanks. A lease that cannot be read
blocks every writer, ours and Hudi's, until it is deleted, so the error names the file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyhudi.errors import CorruptTableError

LEASE_PATH = ".hoodie/.locks/table_lock.json"
LEASE_BYTES_MAX = 64 << 10  # a lease has about a hundred; longer bytes are not one

_LONG_MAX = (1 << 63) - 1  # the field is a long in Hudi


@dataclass(frozen=True, slots=True)
class Lease:
    """The lock's owner, the end of the lease by the owner's clock, and whether it was released."""

    expired: bool
    valid_until_ms: int
    owner: str


def encode_lease(lease: Lease) -> bytes:
    """Return the bytes that Hudi writes for the lease.

    >>> encode_lease(Lease(False, 1700000000123, "d0f1c3e8-4a67-4a7e-9d0c-0f8f6f0e2b11"))
    b'{"expired":false,"validUntil":1700000000123,"owner":"d0f1c3e8-4a67-4a7e-9d0c-0f8f6f0e2b11"}'
    """
    fields = {"expired": lease.expired, "validUntil": lease.valid_until_ms, "owner": lease.owner}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_lease(data: bytes) -> Lease:
    if len(data) > LEASE_BYTES_MAX:
        raise _corrupt(f"it is longer than {LEASE_BYTES_MAX} bytes")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise _corrupt("it is not JSON") from None
    match fields:
        case {"expired": bool(expired), "validUntil": int(until), "owner": str(owner)}:
            if not isinstance(until, bool) and -_LONG_MAX <= until <= _LONG_MAX:
                return Lease(expired, until, owner)
    raise _corrupt("it must have the fields expired (boolean), validUntil (long) and owner (text)")


def _corrupt(why: str) -> CorruptTableError:
    return CorruptTableError(
        "the lock of the table cannot be read",
        why=why,
        next_step=f"Make sure that no writer is at work, then delete {LEASE_PATH!r}",
        path=LEASE_PATH,
    )
