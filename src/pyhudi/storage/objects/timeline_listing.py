"""Listing the active timeline while another process may be archiving the oldest part of it.

A listing is not atomic. While one runs, an archiver may remove instants, and the listing may have
seen the requested file of one and missed its completed file, or have seen the first instant and
missed the second. Then an instant that was committed long ago would look pending, or like garbage.
Archivers remove what is pending first, and completed files in the order of their requests. So if
the oldest instant that the listing showed is still there, nothing behind it was removed. If it is
missing, the timeline is listed again. The oldest write that both listings show was there all the
time, and so was everything behind it: that part of the first listing is whole. What lay before it
is archived, except for what both listings show. No listing has to agree with another one, so a
reader does not fail because an archiver is running.

On a local disk a listing of a large folder may also show a file that was made meanwhile and miss
one that was made before it: the inflight file of a write that has just begun, without the requested
one. It would look like an orphan, so the requested file of each orphaned inflight file is looked up
by its name.

A table without an archive costs no extra request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyhudi.errors import UnavailableError
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.instant import Action, Instant, State, is_timeline_file
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.cut import unsaved_writes
from pyhudi.timeline.timeline import (
    WRITE_ACTIONS,
    Timeline,
    orphaned_inflights,
    without_orphaned_inflights,
)

#: Listings from which instants keep disappearing, before the call fails.
LIST_ATTEMPTS_MAX = 5


@dataclass(frozen=True, slots=True)
class Listed:
    """The state files of a timeline, but for what is archived.

    `doubtful` are writes that were pending when the listing began and are archived or rolled back
    now. Without a folder beside the state files nothing was ever archived.
    """

    instants: tuple[Instant, ...]
    doubtful: frozenset[str] = frozenset()
    may_have_archive: bool = True


def list_timeline(
    storage: Storage, folder: str, *, is_guarded: bool = False, with_orphans: bool = False
) -> tuple[Instant, ...]:
    """Return the state files in a timeline's folder.

    `is_guarded` is True if no process can be archiving now. `with_orphans` is for callers that
    remove orphaned inflight files.
    """
    listed = list_whole_timeline(storage, folder, is_guarded=is_guarded, with_orphans=with_orphans)
    return listed.instants


def list_whole_timeline(
    storage: Storage, folder: str, *, is_guarded: bool = False, with_orphans: bool = False
) -> Listed:
    """Return the state files and the writes of which the listing leaves the state open.

    The listing does not say whether these have completed.
    """
    before: tuple[Instant, ...] | None = None
    for _ in range(LIST_ATTEMPTS_MAX):
        listing = storage.list_folder(folder)
        names = (file_name(stat.path) for stat in listing.objects)
        instants = tuple(Instant.parse(name) for name in names if is_timeline_file(name))
        instants = (*instants, *_missed(storage, folder, instants))
        instants = instants if with_orphans else without_orphaned_inflights(instants)
        if is_guarded or not listing.folders:
            return Listed(instants, may_have_archive=bool(listing.folders))
        if before is not None and (whole := _whole_part(before, instants)) is not None:
            return whole
        timeline = Timeline.of(instants)
        if (
            before is None
            and _leading_pending(timeline) is None
            and is_whole(storage, folder, timeline)
        ):
            return Listed(instants)
        before = instants
    raise UnavailableError(
        f"the timeline of the table at {storage.uri} changes faster than it can be listed",
        why=f"all of its writes were archived during each of {LIST_ATTEMPTS_MAX} listings",
        next_step="Repeat the call, and keep more instants when archiving",
    )


def _whole_part(before: tuple[Instant, ...], now: tuple[Instant, ...]) -> Listed | None:
    """Return the part of a listing that no archiver can have torn.

    It is judged by another listing that was begun after it. None if both have no write in common,
    except for savepointed ones, which archiving skips.
    """
    both = frozenset(before).intersection(now)
    oldest = min(unsaved_writes(Timeline.of(both)), default=None)
    if oldest is None:
        return None
    whole = tuple(i for i in before if i.requested >= oldest or i in both)
    left_out = Timeline.of(before).pending_writes - Timeline.of(whole).pending_writes
    return Listed(whole, left_out)


def removable_orphans(storage: Storage, folder: str, listed: Iterable[Instant]) -> list[Instant]:
    """Return orphaned inflight files that a second listing shows too.

    These may be removed.
    """
    found = orphaned_inflights(listed)
    if not found:
        return []
    again = orphaned_inflights(list_timeline(storage, folder, is_guarded=True, with_orphans=True))
    return [orphan for orphan in found if orphan in again]


def _missed(storage: Storage, folder: str, instants: Iterable[Instant]) -> Iterator[Instant]:
    """Yield requested files that exist although the listing has only what came after them."""
    for orphan in orphaned_inflights(instants):
        for action in (a for a in Action if a.completed_as is orphan.action.completed_as):
            requested = Instant(orphan.requested, action, State.REQUESTED)
            if storage.stat(f"{folder}/{requested.file_name}") is not None:
                yield requested


def is_whole(storage: Storage, folder: str, timeline: Timeline) -> bool:
    """True if nothing was archived since the timeline was listed."""
    first = timeline.first_active
    for instant in timeline.instants:
        if instant.requested == first and instant.action.completed_as in WRITE_ACTIONS:
            return storage.stat(f"{folder}/{instant.file_name}") is not None
    return True


def is_torn_by_archiving(storage: Storage, folder: str, timeline: Timeline) -> bool:
    """True if instants were archived while the timeline, or its end, was listed.

    A pending instant in front of all writes may be half of a service that was archived meanwhile.
    """
    leading = _leading_pending(timeline)
    if leading is not None and storage.stat(f"{folder}/{leading.file_name}") is None:
        return True
    return not is_whole(storage, folder, timeline)


def _leading_pending(timeline: Timeline) -> Instant | None:
    """Return a pending instant before all writes.

    Archiving leaves none, so it may be half removed.
    """
    first = timeline.first_active or ""
    oldest = timeline.pending[0] if timeline.pending else None
    return oldest if oldest is not None and oldest.requested < first else None


def times_after(storage: Storage, folder: str, since: str) -> set[str]:
    """Return the times on the timeline now of instants requested after that time."""
    objects = storage.list(folder, after=f"{folder}/{since}")
    names = (stat.path[len(folder) + 1 :] for stat in objects)
    found = [Instant.parse(name) for name in names if is_timeline_file(name) and "/" not in name]
    times = {i.requested for i in found} | {i.completed for i in found if i.completed}
    return {time for time in times if time > since}
