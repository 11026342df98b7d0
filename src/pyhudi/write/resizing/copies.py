"""The copies of one resize, as far as this process has made them or found them.

A resize completes only if every write that completed since its plan, and has files in an input, was
copied by the process that asks for its completion. So a process starts with what others have left:
of the last write of which it finds a copy it makes the copies again, because some may be missing,
and those of all writes before are whole (`plan.resizing.copies`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import FileGroupId, LogFileName, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    decode_commit_metadata,
)
from pyhudi.format.timeline.instant import Instant
from pyhudi.format.timeline.made_files import MadeFile
from pyhudi.plan.resizing.copies import FoundCopies, OwedCopy, found_copies, owed_copy
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.live import LiveTimeline, NumberedWrite
from pyhudi.world import one_by_one
from pyhudi.write.files.copied_log import CopyName, copied_logs, copy_stat, log_stat
from pyhudi.write.resizing.work import ResizeWork


class ResizeCopies:
    """The copies of one resize."""

    def __init__(self, log: DecisionLog, work: ResizeWork) -> None:
        self._log = log
        self._storage = log.storage
        self._work = work
        self._copied = 0  # the last write up to which nothing is owed
        self._stats: list[WriteStat] = []
        self._owed: dict[int, OwedCopy | None] = {}

    @property
    def stats(self) -> tuple[WriteStat, ...]:
        """The stats of all copies so far."""
        return tuple(self._stats)

    def find(self, made: Mapping[str, MadeFile]) -> None:
        """Take what other processes have copied; `made` is what was noted of it.

        A listing of a local folder may show a file and miss one that was created before it, while
        it runs. A second listing shows all that had been created when the first one ended.
        """
        last = _found(self._storage, self._work).last
        if not last:
            return
        whole = _found(self._storage, self._work).before(last)
        writes = self._log.completions_since(self._work.requested)
        requested = {write.number: write.instant.requested for write in writes}
        for number, files in whole.items():
            if number not in requested:
                raise _unknown_copy(files[0][0])
            for path, size in files:
                stat = _found_stat(self._storage, path, size, requested[number], made.get(path))
                self._stats.append(stat)
        self._copied = last - 1

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
            owed = owed_copy(self._work.plan, write.number, requested, metadata)
            self._owed[write.number] = owed
        return self._owed[write.number]

    # -- copying

    def copy(self, owed: Iterable[OwedCopy]) -> None:
        """Copy these writes, the oldest that are owed, in their order."""
        for each in owed:
            self._stats += self._copies_of(each)
            self._copied = each.number

    def _copies_of(self, owed: OwedCopy) -> list[WriteStat]:
        """Make the copies of one write, several at once: no order among them counts."""
        name = CopyName.of_copy(self._work.requested, owed.number)
        children, together = self._work.children, self._log.world.together
        changes = list(owed.logs)
        is_wide = len(changes) > max(len(children[change].groups) for change in changes)

        def copied(change: int) -> list[WriteStat]:
            within = one_by_one if is_wide else together
            return copied_logs(self._storage, name, owed.logs[change], children[change], within)

        made = together(copied, changes) if is_wide else one_by_one(copied, changes)
        return [stat for stats in made for stat in stats]


def _load_metadata(log: DecisionLog, instant: Instant) -> CommitMetadata:
    if (known := log.metadata(instant.requested)) is not None:
        return known
    path = log.path(instant)
    return decode_commit_metadata(load_timeline_file(log.storage, path), path)


def _found(storage: Storage, work: ResizeWork) -> FoundCopies:
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
