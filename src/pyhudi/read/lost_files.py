"""Whether the files that a read, a write or a service needs are all there, by their commits.

*Reads and writes* compare with those commits that were read anyway: a refresh reads each new one,
and every plan the one that has the schema. They make no request for this, unless a file is lost.

*Services* that rewrite or remove files would make a loss permanent. They read every commit that has
files in the slices concerned, also from the archive where a slice is that old.

Files that were removed rightly do not count as lost. A state is listed after its timeline, and
loaded again if another process began to remove files in between (`load`). Cleans retain what the
latest slices need. A restore takes its writes off the timeline, and while it is pending the error
says so. A resize may be archived before a write that it copied, since that one was requested later:
then the archive says that the write's file groups were replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyhudi.errors import CorruptTableError, HudiError, UnavailableError
from pyhudi.format.files.file_names import FileGroupId, group_of_path, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.archive import ArchivedInstant
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.format.timeline.plan_files import CLEANER_PLAN
from pyhudi.format.timeline.service_metadata import CLEAN
from pyhudi.plan.changes import CompletedWrite
from pyhudi.plan.clean_records import planned_paths
from pyhudi.read.load import TableLoader
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.storage.protocol import Storage
from pyhudi.table.committed_files import (
    CommittedFile,
    LostFile,
    committed_files,
    lost_file_error,
    lost_files,
)
from pyhudi.table.file_group import FileSlice
from pyhudi.table.file_slices import is_replaced, latest_slice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes, visible_now
from pyhudi.timeline.timeline import Timeline

_END_OF_TIME = "9" * 17


@dataclass(frozen=True, slots=True)
class Committed:
    """The files that the commits of some file groups name."""

    files: tuple[CommittedFile, ...]
    archived: Mapping[str, str]  # of archived ones, requested time → completion time

    @property
    def sizes(self) -> dict[str, int]:
        """Path → bytes, of files whose write records it."""
        return {file.path: file.size for file in self.files if file.size is not None}


class CommitRecords:
    """Loads what commits record of their files, for services that rewrite or remove."""

    def __init__(self, loader: TableLoader) -> None:
        self._loader = loader

    def load(self, state: TableState, slices: Collection[FileSlice]) -> Committed:
        """Return the files of the slices' file groups, named by writes completed since the slices
        began."""
        groups = {(slice_.partition, slice_.file_id) for slice_ in slices}
        since = min((slice_.base_instant for slice_ in slices), default=_END_OF_TIME)
        writes = (i for i in state.timeline.writes if (i.completed or "") >= since)
        named = (file for instant in writes for file in self._of_active(instant))
        active = [file for file in named if file.group in groups]
        archived: list[tuple[CommittedFile, str]] = []
        if any(_reaches_archive(slice_, state.timeline) for slice_ in slices):

            def taken(write: CompletedWrite) -> Iterator[tuple[CommittedFile, str]]:
                for file in committed_files(write.requested, write.metadata):
                    if file.group in groups:
                        yield file, write.completed

            archived = self._loader.history.from_writes(since, _END_OF_TIME, taken)
        return Committed(
            (*active, *(file for file, _ in archived)),
            {file.commit: completed for file, completed in archived},
        )

    def _of_active(self, instant: Instant) -> tuple[CommittedFile, ...]:
        """Return the files of a write; none if it was rolled back since the timeline was listed."""
        try:
            return self._loader.committed_files(instant)
        except UnavailableError:
            path = f"{self._loader.timeline_folder}/{instant.file_name}"
            if self._loader.storage.stat(path) is not None:
                raise
            return ()

    def refuse_lost(
        self,
        state: TableState,
        times: CompletionTimes,
        groups: Collection[tuple[str, str]],
        what: str,
    ) -> None:
        """Raise CorruptTableError if a file is lost that the latest slice of one of the groups
        needs."""
        now = visible_now(state.timeline)
        listed = (g for g in state.groups() if (g.partition, g.file_id) in groups)
        live = (g for g in listed if not is_replaced(g, state.replaced, now))
        found = (latest_slice(group, times, now) for group in live)
        lost = self.lost(state, times, [slice_ for slice_ in found if slice_ is not None])
        if lost:
            raise loss_error(self._loader.storage, state.timeline, lost[0], what)

    def lost(
        self, state: TableState, times: CompletionTimes, slices: Collection[FileSlice]
    ) -> list[LostFile]:
        """Return files that the latest slices of these slices' groups need and the listing
        lacks."""
        committed = self.load(state, slices)
        return _lost_now(self._loader, state, times, committed)


def _reaches_archive(slice_: FileSlice, timeline: Timeline) -> bool:
    """True if an archived write may have files in the slice."""
    times = (slice_.base_instant, *(log.name.requested for log in slice_.logs))
    return any(map(timeline.is_archived, times))


# ---- what is refused


def refuse_known_losses(loader: TableLoader, state: TableState, times: CompletionTimes) -> None:
    """Raise CorruptTableError if a file of a latest slice, to be rewritten, is known as lost."""
    if lost := known_losses(loader, state, times):
        what = f"the table at {loader.storage.uri} cannot be written"
        raise loss_error(loader.storage, state.timeline, lost[0], what)


def known_losses(loader: TableLoader, state: TableState, times: CompletionTimes) -> list[LostFile]:
    """Return files that a latest slice needs and the listing lacks, by the commits known."""
    files = loader.known_files(state.timeline)
    return _lost_now(loader, state, times, Committed(tuple(files), {}))


def _lost_now(
    loader: TableLoader, state: TableState, times: CompletionTimes, committed: Committed
) -> list[LostFile]:
    now = visible_now(state.timeline)
    times = CompletionTimes(times.timeline, {**times.archived, **committed.archived})
    found = lost_files(state, committed.files, now, lambda group: latest_slice(group, times, now))
    return not_replaced(loader, state, found)


def not_replaced(
    loader: TableLoader,
    state: TableState,
    lost: Sequence[LostFile],
    sees: Callable[[CompletedWrite], bool] = lambda write: True,
) -> list[LostFile]:
    """Return the files whose file groups no archived write replaced that the read sees.

    It looks into the archive only if a file is missing.
    """
    if not lost:
        return []
    completed = state.timeline.completion_times
    since = min(completed.get(file.commit, "") for file in lost)

    def taken(write: CompletedWrite) -> Iterator[FileGroupId]:
        if sees(write):
            for partition, ids in write.metadata.replaced_file_ids.items():
                yield from (FileGroupId(partition, file_id) for file_id in ids)

    replaced = frozenset(loader.history.from_writes(since, _END_OF_TIME, taken))
    return [file for file in lost if group_of_path(file.path) not in replaced]


def loss_error(storage: Storage, timeline: Timeline, lost: LostFile, what: str) -> HudiError:
    """Return the error for a lost file; another one if the loss is not certain."""
    restore = next((i for i in timeline.pending if i.action is Action.RESTORE), None)
    if restore is not None:
        return UnavailableError(
            what,
            why=f"the restore {restore.requested} is pending, and removes files",
            next_step="Repeat the call when it is over",
        )
    found = storage.stat(lost.path)
    if found is not None and found.size >= (lost.size or 1):
        return UnavailableError(
            what,
            why=f"{lost.path!r} was not listed, and is there",
            next_step="Repeat the call",
        )
    return lost_file_error(lost, what)


# ---- what cleans remove


def doomed_files(loader: TableLoader, timeline: Timeline) -> frozenset[str]:
    """Return the names of the files that pending cleans are about to remove.

    Makes one request for each pending clean, and none without.
    """
    pending = [instant for instant in timeline.pending if instant.action is Action.CLEAN]
    return frozenset(name for clean in pending for name in _doomed(loader, clean))


def _doomed(loader: TableLoader, clean: Instant) -> set[str]:
    try:
        return _removed(loader, clean)
    except UnavailableError:  # without a plan, or completed since the timeline was listed
        archived = loader.history.instant(clean.requested)
        return set() if archived is None else _removed_by_archived(loader, archived)


def removing_clean(loader: TableLoader, timeline: Timeline, path: str) -> str | None:
    """Return the requested time of the clean that removed a file, or is about to; else None.

    For errors: it reads one clean after the other, the newest first, back to the file's write.
    """
    name = file_name(path)
    parsed = parse_data_file(name)
    written = "" if parsed is None else parsed.requested
    for requested, names in _cleans(loader, timeline):
        if requested < written:
            return None
        if name in names:
            return requested
    return None


def _cleans(loader: TableLoader, timeline: Timeline) -> Iterator[tuple[str, set[str]]]:
    """Yield requested times of cleans, and the names of the files that each removes."""
    active = [instant for instant in timeline.instants if instant.action is Action.CLEAN]
    for clean in reversed(active):
        try:
            yield clean.requested, _removed(loader, clean)
        except UnavailableError:
            continue  # archived since: it comes with the archived ones
    for archived in loader.history.cleans():
        yield archived.requested, _removed_by_archived(loader, archived)


def _removed_by_archived(loader: TableLoader, clean: ArchivedInstant) -> set[str]:
    origin = f"{loader.history_folder} ({clean.requested})"
    return _names(loader.storage.uri, clean.metadata or b"", clean.plan or b"", origin)


def _removed(loader: TableLoader, clean: Instant) -> set[str]:
    folder = loader.timeline_folder
    plan = clean.in_state(State.REQUESTED)
    done = b""
    if clean.completed is not None:
        done = load_timeline_file(loader.storage, f"{folder}/{clean.file_name}")
    planned = b"" if done else load_timeline_file(loader.storage, f"{folder}/{plan.file_name}")
    return _names(loader.storage.uri, done, planned, f"{folder}/{clean.file_name}")


def _names(uri: str, done: bytes, planned: bytes, origin: str) -> set[str]:
    cleaned = CLEAN.decode_or_none(done, origin)
    if cleaned is not None:
        partitions = cleaned.partition_metadata.values()
        # A clean that was executed twice finds its files gone, and records that as a failure.
        files = ((*p.success_delete_files, *p.failed_delete_files) for p in partitions)
        return {file_name(name) for names in files for name in names}
    plan = CLEANER_PLAN.decode_or_none(planned, origin)
    paths: Iterable[Sequence[str]] = ()
    if plan is not None:
        try:
            paths = planned_paths(plan, uri, origin).values()
        except CorruptTableError:
            return set()  # such a plan is never executed
    return {file_name(path) for found in paths for path in found}
