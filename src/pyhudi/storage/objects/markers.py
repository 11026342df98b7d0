"""The markers of an instant, read from storage: which data files it may have left.

They name files of that instant, and the logs that it has put into children of a pending resize:
such a log is named by the resize (`storage.objects.dual_logs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import LogFileName, MarkerName, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.markers import (
    MARKER_TYPE_FILE,
    decode_marker_list,
    is_marker_list,
    marker_folder,
)
from pyhudi.storage.protocol import ObjectStat, Storage

MARKER_LIST_BYTES_MAX = 64 << 20


def load_markers(
    storage: Storage, requested: str, listed: Iterable[ObjectStat] | None = None
) -> tuple[MarkerName, ...]:
    """Return the markers of the instant, in whichever way its writer wrote them.

    A base file that one of them names is of that instant; a log may be named by another one.
    `listed` is the listing of its marker folder, if known.
    """
    stats = marker_stats(storage, requested) if listed is None else listed
    found: set[MarkerName] = set()
    for stat in stats:
        with suppress(FileNotFoundError):  # removed since, because the instant has ended
            found.update(_markers_in(storage, requested, stat))
    return tuple(sorted(found, key=lambda marker: marker.path))


@dataclass(frozen=True, slots=True)
class Announced:
    """What an instant has announced, as far as that can be read."""

    since_ms: Mapping[MarkerName, int]  # by the store's clock; of a list, when it was last written
    damage: CorruptTableError | None = None  # of some of it

    @property
    def is_empty(self) -> bool:
        return not self.since_ms and self.damage is None


def load_announced(storage: Storage, requested: str) -> Announced:
    """Return the markers of the instant for a look that decides nothing.

    A list that is damaged or half-written hides only what it lists itself. A rollback refuses it
    (`load_markers`).
    """
    since_ms: dict[MarkerName, int] = {}
    damage = None
    for stat in marker_stats(storage, requested):
        try:
            found = _markers_in(storage, requested, stat)
        except FileNotFoundError:
            continue  # the instant has ended since
        except CorruptTableError as error:
            damage = damage or error
            continue
        for marker in found:
            since_ms[marker] = min(since_ms.get(marker, stat.modified_ms), stat.modified_ms)
    return Announced(since_ms, damage)


def _markers_in(storage: Storage, requested: str, stat: ObjectStat) -> tuple[MarkerName, ...]:
    """Return the marker that an object of the marker folder is, or those that it lists."""
    relative = stat.path[len(marker_folder(InstantTime(requested))) + 1 :]
    if is_marker_list(relative):
        if stat.size > MARKER_LIST_BYTES_MAX:
            raise CorruptTableError(
                f"a list of markers of {requested} cannot be read",
                why=f"it has {stat.size:,} bytes, and at most {MARKER_LIST_BYTES_MAX:,} are read",
                next_step="Let the engine that wrote it end that write",
                path=stat.path,
            )
        data = storage.read(stat.path, 0, MARKER_LIST_BYTES_MAX)
        found = decode_marker_list(data, stat.path)
    elif relative != MARKER_TYPE_FILE and (marker := MarkerName.parse(relative)):
        found = (marker,)
    else:
        found = ()
    for marker in found:
        _check_instant(marker, requested)
    return found


def direct_markers(listed: Iterable[ObjectStat], requested: str) -> tuple[MarkerName, ...]:
    """Return the markers that are objects of a listing of the instant's marker folder."""
    start = len(marker_folder(InstantTime(requested))) + 1
    return tuple(filter(None, (MarkerName.parse(stat.path[start:]) for stat in listed)))


def marker_objects(storage: Storage, requested: str) -> list[str]:
    """Return the paths of everything in the instant's marker folder."""
    return [stat.path for stat in marker_stats(storage, requested)]


def marker_stats(storage: Storage, requested: str) -> list[ObjectStat]:
    """Return everything in the instant's marker folder, as the listing shows it."""
    return list(storage.list(marker_folder(InstantTime(requested))))


def _check_instant(marker: MarkerName, requested: str) -> None:
    """Raise if the marker names another instant's base file. A rollback deletes what markers
    name."""
    name = parse_data_file(file_name(marker.data_file))
    if name is None or (name.requested != requested and not isinstance(name, LogFileName)):
        raise CorruptTableError(
            f"a marker of {requested} names a file of another instant",
            why=f"{marker.path!r} lies in its folder",
            next_step="Remove that marker after finding out which program wrote it",
        )
