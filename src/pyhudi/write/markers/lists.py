"""The marker lists of one write in storage: `MARKERS0` and so on, beside `MARKERS.type`.

A list is created, and then replaced by what it was and more, only where it still is the version
that was written last. So a request that arrives late cannot put an older list over a newer one, and
what a list once had stays in it. Where that cannot be told, since a reply was lost or another
process removed the list, it is left alone: its markers are good, and the next ones go into another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyhudi.errors import InvalidRequestError
from pyhudi.format.files.file_names import MarkerName
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.markers import (
    MARKER_TYPE_FILE,
    TIMELINE_SERVER_TYPE,
    encode_marker_list,
    marker_folder,
    marker_list_path,
)
from pyhudi.plan.marker_batches import LIST_BYTES
from pyhudi.storage.protocol import Storage
from pyhudi.write.files.announcing import Stored, Verdict


@dataclass(frozen=True, slots=True)
class MarkerList:
    """A list as it was written last, by its number."""

    number: int
    data: bytes = b""
    etag: str | None = None


def create_marker_type(storage: Storage, requested: InstantTime) -> None:
    """Say that the instant's markers are in lists. Readers of Hudi's kind look for this file."""
    path = f"{marker_folder(requested)}/{MARKER_TYPE_FILE}"
    storage.create(path, TIMELINE_SERVER_TYPE.encode())


def with_markers(
    storage: Storage, requested: InstantTime, known: MarkerList, markers: Sequence[MarkerName]
) -> MarkerList | None:
    """Store the list with these markers, too; None if it is not what it was any more."""
    path = marker_list_path(requested, known.number)
    data = known.data + encode_marker_list(markers)
    if not known.data:
        return replace(known, data=data) if storage.create(path, data) else None
    etag = known.etag
    if etag is None:
        found = storage.stat(path)
        if found is None or found.etag is None or found.size != len(known.data):
            return None
        etag = found.etag
    try:
        new = storage.replace(path, data, etag=etag)
    except InvalidRequestError:  # a store that cannot replace: each list is written once
        return None
    return None if new is None else MarkerList(known.number, data, new)


class ListedMarkers:
    """Announces the files of a writer in this process, in lists and without a service.

    It is not sent to other processes, and used by one thread at a time.
    """

    def __init__(self) -> None:
        self._list: MarkerList | None = None

    def announce(self, storage: Storage, requested: InstantTime, marker: MarkerName, /) -> Verdict:
        known = self._list
        if known is None:
            create_marker_type(storage, requested)
            known = MarkerList(0)
        while (stored := with_markers(storage, requested, known, [marker])) is None:
            known = MarkerList(known.number + 1)
        is_large = len(stored.data) >= LIST_BYTES
        self._list = MarkerList(stored.number + 1) if is_large else stored
        return Stored()
