"""The copies of one resize, as far as this process has made them or found them.

A resize completes only if every write that completed since its plan, and has files in an input, was
copied by the process that asks for its completion. So a process starts with what others have left:
of the last writes of which it finds copies it makes them again, because some may be missing, and
those of all writes before are whole (`plan.resizing.copies`). Processes that copy at the same time
make the files of a portion each in an order of its own, so that they divide the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import (
    FileGroupId,
    IoType,
    LogFileName,
    MarkerName,
    parse_data_file,
)
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    decode_commit_metadata,
)
from pyhudi.format.timeline.instant import Instant
from pyhudi.format.timeline.made_files import MadeFile
from pyhudi.format.timeline.markers import encode_marker_list, marker_list_path
from pyhudi.plan.resizing.copies import (
    FoundCopies,
    OwedCopy,
    first_uncertain,
    found_copies,
    next_portion,
    owed_copy,
)
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.live import LiveTimeline, NumberedWrite
from pyhudi.write.files.copied_log import Sources, copied_logs, copy_stat, log_stat
from pyhudi.write.files.copy_name import CopyName
from pyhudi.write.files.spec import data_path
from pyhudi.write.resizing.work import ResizeWork

_CREATE = IoType.CREATE


class ResizeCopies:
    """The copies of one resize."""

    def __init__(self, log: DecisionLog, work: ResizeWork) -> None:
        self._log = log
        self._storage = log.storage
        self._work = work
        self._copied = 0  # the last write up to which nothing is owed
        self._stats: list[WriteStat] = []
        self._owed: dict[int, OwedCopy | None] = {}
        self._salt = log.world.random_bytes(8)

    @property
    def stats(self) -> tuple[WriteStat, ...]:
        """The stats of all copies so far."""
        return tuple(self._stats)

    def find(self, made: Mapping[str, MadeFile]) -> None:
        """Take what other processes have copied; `made` is what was noted of it.

        A listing of a local folder may show a file and miss one that was created before it, while
        it runs. A second listing shows all that had been created when the first one ended. The
        caller holds what guards the log.
        """
        found = load_copies(self._storage, self._work)
        if not (last := found.last):
            return
        writes = self._log.completions_since(self._work.requested)
        if last > len(writes):
            raise _unknown_copy(found.paths[last][0][0])
        owed = (self._owed_of(write) for write in reversed(writes[:last]))
        first = first_uncertain(filter(None, owed)) or last
        whole = load_copies(self._storage, self._work).before(first)
        for number, files in whole.items():
            requested = writes[number - 1].instant.requested
            for path, size in files:
                stat = _found_stat(self._storage, path, size, requested, made.get(path))
                self._stats.append(stat)
        self._copied = first - 1

    # -- what is owed

    def owed(self, live: LiveTimeline) -> list[OwedCopy]:
        """Return what completed since and is not copied, oldest first.

        It may read the commits of writes, so the caller holds what guards the log.
        """
        writes = live.writes_since(self._work.requested)
        return [owed for write in writes[self._copied :] if (owed := self._owed_of(write))]

    def _owed_of(self, write: NumberedWrite) -> OwedCopy | None:
        if write.number not in self._owed:
            metadata = _load_metadata(self._log, write.instant)
            requested = write.instant.requested
            work = self._work
            resize = work.requested if work.plan.is_dual else None
            owed = owed_copy(work.plan, write.number, requested, metadata, resize)
            self._owed[write.number] = owed
        return self._owed[write.number]

    # -- copying

    def copy(self, owed: Sequence[OwedCopy]) -> None:
        """Copy these writes, the oldest that are owed, in their order."""
        while owed:
            portion = next_portion(owed)
            together = self._log.world.together
            together(self._announce, portion)
            sources = [each for write in portion for each in self._sources(write)]
            self._stats += copied_logs(self._storage, sources, together, self._salt)
            self._copied = portion[-1].number
            owed = owed[len(portion) :]

    def _announce(self, owed: OwedCopy) -> None:
        """Create the list of markers of all copies that one write may have."""
        markers = [
            MarkerName(data_path(group.partition, sources.name.of(group, piece).file_name), _CREATE)
            for sources, change in zip(self._sources(owed), owed.logs, strict=True)
            for group in self._work.children[change].groups
            for piece in range(sources.announced)
        ]
        path = marker_list_path(self._work.requested, owed.number)
        self._storage.create(path, encode_marker_list(markers))

    def _sources(self, owed: OwedCopy) -> list[Sources]:
        name = CopyName.of_copy(self._work.requested, owed.number)
        return [
            Sources(name, logs, self._work.children[change], announced=len(logs))
            for change, logs in owed.logs.items()
        ]


def _load_metadata(log: DecisionLog, instant: Instant) -> CommitMetadata:
    if (known := log.metadata(instant.requested)) is not None:
        return known
    path = log.path(instant)
    return decode_commit_metadata(load_timeline_file(log.storage, path), path)


def load_copies(storage: Storage, work: ResizeWork) -> FoundCopies:
    """Return the copies that are there, as a listing shows them."""
    files = (
        (stat.path, stat.size)
        for partition in work.partitions
        for stat in storage.list_folder(partition).objects
    )
    return found_copies(work.requested, work.plan.groups, files)


def _found_stat(
    storage: Storage, path: str, size: int, write: str, noted: MadeFile | None
) -> WriteStat:
    name, partition = parse_data_file(file_name(path)), path.rpartition("/")[0]
    assert isinstance(name, LogFileName), path
    if noted is not None and noted.size == size:
        return noted.counted(log_stat(FileGroupId(partition, name.file_id), name, size))
    return copy_stat(storage, partition, name, size, write)


def _unknown_copy(path: str) -> CorruptTableError:
    return CorruptTableError(
        "a resize has a copy of no write",
        why="its name counts more completed writes than the timeline has since the plan",
        next_step="Cancel the resize with cancel_resize, which loses no row",
        path=path,
    )
