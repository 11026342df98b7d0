"""Bloom filters of what a write has announced: may there be a marker of this place?

Each task of a write keeps filters of its own, and puts a place into one before it stores the
marker. A task that begins again finds the filter of its first attempt and adds to it. Filters lie
outside the folder of markers, where Hudi reads every name.

**A filter only saves reading markers.** A place that it may have is looked for among the markers. A
filter that is missing, damaged or too long says nothing, so the markers are read. And since a
filter may deny what is there, the markers are read at every so many looks whatever it says.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from itertools import islice
from typing import Final, TypeAlias

import pyarrow as pa

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.files.bloom_filter import (
    BloomFilter,
    decode_bloom_filter,
    encode_bloom_filter,
)
from pyhudi.format.timeline.instant import is_instant_time
from pyhudi.storage.protocol import ObjectStat, Storage

FILTER_FOLDER: Final = ".hoodie/.pyhudi/early/filters"
#: Of one filter; those that are written have 1 KB.
FILTER_BYTES_MAX: Final = 1 << 16
FILTERS_MAX: Final = 1_000  # of one write; from there on the markers are read
#: At every such number of looks the markers are read, whatever the filters say.
TRUSTED_LOOKS: Final = 6

_PLACES_MAX: Final = 512  # in one filter; then the next one begins
_FPP: Final = 1e-3
_ATTEMPTS_MAX: Final = 4

_Version: TypeAlias = tuple[str | None, int, int]
#: A partition and a bucket or file group, or a partition alone.
Place: TypeAlias = tuple[str, str]


def filter_folder(requested: str) -> str:
    assert is_instant_time(requested)
    return f"{FILTER_FOLDER}/{requested}"


def _keys(places: Collection[Place]) -> pa.Array:
    return pa.array([f"{name}/{partition}" for partition, name in places], pa.string())


class MarkerFilters:
    """The filters that one task keeps of what it announces."""

    def __init__(self) -> None:
        self._added: set[Place] = set()
        self._path = ""
        self._etag: str | None = None  # of the filter as this task stored it last
        self._filter = BloomFilter.sized(0, _FPP)
        self._room = 0

    def add(self, storage: Storage, requested: str, place: Place) -> None:
        """Put a place into a filter, in storage. Its partition alone is put in with it."""
        new = [each for each in (place, (place[0], "")) if each not in self._added]
        if not new:
            return
        if self._room < len(new):
            name = blake2b("/".join(place).encode(), digest_size=8).hexdigest()
            self._path = f"{filter_folder(requested)}/{name}"
            self._filter, self._room = BloomFilter.sized(_PLACES_MAX, _FPP), _PLACES_MAX
            self._etag = None
        self._filter = self._filter.with_keys(_keys(new))
        self._store(storage)
        self._added.update(new)
        self._room -= len(new)

    def _store(self, storage: Storage) -> None:
        """Store the filter, with what another attempt of the task has put into it."""
        for _ in range(_ATTEMPTS_MAX):
            if self._etag is None:
                if storage.create(self._path, encode_bloom_filter(self._filter)):
                    return
                stat = storage.stat(self._path)
                if stat is None or stat.etag is None:
                    continue
                joined = self._filter.joined(_load(storage, stat))
                if joined is None:
                    break
                self._filter, self._etag = joined, stat.etag
            data = encode_bloom_filter(self._filter)
            try:
                self._etag = storage.replace(self._path, data, etag=self._etag)
            except InvalidRequestError:  # a store that cannot replace
                break
            if self._etag is not None:
                return
        # It is damaged, or attempts replace each other's filter all the time. An empty one says
        # nothing, and stays.
        storage.write(self._path, b"")


class RivalFilters:
    """The filters of other writes, each read again only if it has changed."""

    def __init__(self) -> None:
        self._filters: dict[str, tuple[_Version, BloomFilter | None]] = {}
        self._looks: dict[str, int] = {}

    def deny(self, storage: Storage, requested: str, places: Collection[Place]) -> bool:
        """True if the write's filters say that it has announced nothing in these places."""
        looks = self._looks[requested] = self._looks.get(requested, 0) + 1
        if looks % TRUSTED_LOOKS == 0:
            return False
        stats = list(islice(storage.list(filter_folder(requested)), FILTERS_MAX + 1))
        if not stats or len(stats) > FILTERS_MAX:
            return False
        keys = _keys(places)
        for stat in stats:
            found = self._loaded(storage, stat)
            if found is None or found.may_have_any(keys):
                return False
        return True

    def _loaded(self, storage: Storage, stat: ObjectStat) -> BloomFilter | None:
        version = stat.etag, stat.size, stat.modified_ms
        known = self._filters.get(stat.path)
        if known is None or known[0] != version:
            known = self._filters[stat.path] = version, _load(storage, stat)
        return known[1]


def _load(storage: Storage, stat: ObjectStat) -> BloomFilter | None:
    """Return a filter; None if it says nothing."""
    if not 0 < stat.size <= FILTER_BYTES_MAX:
        return None
    try:
        data = storage.read(stat.path, 0, FILTER_BYTES_MAX + 1)
        return decode_bloom_filter(data, stat.path, bytes_max=FILTER_BYTES_MAX)
    except (CorruptTableError, FileNotFoundError):
        return None


def clear_filters(storage: Storage, requested: str) -> None:
    """Remove the filters of a write."""
    paths = [stat.path for stat in storage.list(filter_folder(requested))]
    if paths:
        storage.delete_all(paths)
