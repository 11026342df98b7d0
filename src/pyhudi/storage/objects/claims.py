"""Claims: at most one write at a time checks a file group and announces its file there.

A claim is an object that is created if it is absent, and names the write and the file that it is
about to announce. It stays as long as the markers of its write. The names of claims are digests, as
a partition and a file group may have any name. A claim that cannot be read has no owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Final, Self

from pyhudi.errors import InvalidRequestError, UnavailableError
from pyhudi.format.files.file_names import MarkerName
from pyhudi.format.timeline.instant import is_instant_time
from pyhudi.storage.protocol import Storage

CLAIM_FOLDER: Final = ".hoodie/.pyhudi/early/claims"
#: Of one claim; markers have the lengths of paths.
CLAIM_BYTES_MAX: Final = 8_192
#: How often a claim is tried that changes each time. Then the markers alone have to do.
_ATTEMPTS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class Claim:
    """A write, and the file that it announces."""

    requested: str
    marker: MarkerName

    def encode(self) -> bytes:
        return f"{self.requested}\n{self.marker.path}\n".encode()

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """Return the claim; None if the bytes are none."""
        parts = data.decode("utf-8", "replace").split("\n")
        marker = MarkerName.parse(parts[1]) if len(parts) == 3 else None
        if len(data) > CLAIM_BYTES_MAX or marker is None or not is_instant_time(parts[0]):
            return None
        return cls(parts[0], marker)


class Place(StrEnum):
    """What a claim that is found means to another write."""

    AHEAD = "ahead"  # the other write yields
    BESIDE = "beside"  # both go on
    OVER = "over"  # its write has ended, or comes behind: the other one takes it over


def claim_path(place: tuple[str, str]) -> str:
    """Return the claim of a place, which is a partition and its file group or bucket.

    >>> claim_path(("a/b", "3")) == claim_path(("a", "b/3"))
    False
    """
    partition, name = place
    key = f"{len(partition)}:{partition}/{name}".encode("utf-8", "surrogatepass")
    return f"{CLAIM_FOLDER}/{blake2b(key, digest_size=16).hexdigest()}"


def taken(
    storage: Storage, path: str, own: Claim, judge: Callable[[Claim, int], Place]
) -> Claim | None:
    """Take the claim; return the one that is ahead, because of which our write yields.

    `judge` gets a claim and when it was made, by the store's clock. The result is None, too, if the
    claim changes all the time.
    """
    for _ in range(_ATTEMPTS_MAX):
        if _is_created(storage, path, own):
            return None
        stat = storage.stat(path)
        if stat is None:
            continue
        found = load_claim(storage, path)
        if found is not None:
            if found.requested == own.requested:
                return None
            place = judge(found, stat.modified_ms)
            if place is not Place.OVER:
                return found if place is Place.AHEAD else None
        if _is_replaced(storage, path, own, stat.etag):
            return None
    return None


def _is_created(storage: Storage, path: str, own: Claim) -> bool:
    try:
        return storage.create(path, own.encode())
    except UnavailableError:  # S3's answer when two create at once, and the outcome is open
        return False


def _is_replaced(storage: Storage, path: str, own: Claim, etag: str | None) -> bool:
    try:
        return etag is not None and storage.replace(path, own.encode(), etag=etag) is not None
    except UnavailableError:
        return False  # the next attempt shows it
    except InvalidRequestError:  # a store that cannot replace: the last writer has it
        storage.write(path, own.encode())
        return True


def load_claim(storage: Storage, path: str) -> Claim | None:
    """Return the claim; None if there is none, or none that can be read."""
    try:
        return Claim.decode(storage.read(path, 0, CLAIM_BYTES_MAX + 1))
    except FileNotFoundError:
        return None


def clear_claims(storage: Storage, requested: str, places: Iterable[tuple[str, str]]) -> None:
    """Remove the claims that the write still has of these places."""
    paths = sorted({claim_path(place) for place in places})
    claims = ((path, load_claim(storage, path)) for path in paths)
    own = [path for path, claim in claims if claim is not None and claim.requested == requested]
    if own:
        storage.delete_all(own)
