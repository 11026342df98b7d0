"""What completed writes say of their files, and what a listing has of them.

A write stat names a file and its length. The listing must have every such file that a slice needs,
and each at least as long: rows would be missing otherwise, and nothing in the other files shows it.

Most missing files were cleaned. So a file that is not listed is added to its file group for the
check, and the group is sliced again. Only if a slice that is needed then has the file, it is lost.
Files of a replaced file group, and of writes that do not count, are not checked. Files
that no write stat names, such as those of a task that Hudi ran twice, are not judged at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import BaseFileName, LogFileName, parse_data_file
from pyhudi.format.files.log_reference import is_virtual_child
from pyhudi.format.timeline.commit_metadata import CommitMetadata
from pyhudi.table.file_group import FileGroupFiles, FileSlice
from pyhudi.table.file_slices import file_slices, is_replaced, with_files
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes, Visibility


class CommittedFile(NamedTuple):
    """A base or log file that the write stats of a completed write name."""

    partition: str
    path: str
    size: int | None  # None if the write does not say it
    name: BaseFileName | LogFileName
    commit: str  # the write's requested time

    @property
    def group(self) -> tuple[str, str]:
        return self.partition, self.name.file_id


@dataclass(frozen=True, slots=True)
class LostFile:
    """A file that a slice needs and that is missing, or too short."""

    path: str
    commit: str  # the requested time of the write that made it
    size: int | None  # that the write says
    found: int | None  # bytes; None if there is no such file

    @property
    def why(self) -> str:
        named = f"the file, which the write {self.commit} committed,"
        if self.found is None:
            return f"{named} is gone"
        if not self.found:
            return f"{named} is empty"
        return f"{named} has {self.found} bytes, and {self.size} were written"


def committed_files(commit: str, metadata: CommitMetadata) -> tuple[CommittedFile, ...]:
    """Return the base and log files that a completed write names.

    Change-capture logs are not part of a slice, and a write may record a file group in which
    nothing was left.
    """
    found = []
    for stats in metadata.write_stats.values():
        for stat in stats:
            if not stat.path:
                continue
            partition, _, text = stat.data_path.rpartition("/")
            name = parse_data_file(text)
            if name is None or (isinstance(name, LogFileName) and name.suffix):
                continue
            size = stat.file_size_in_bytes or None
            found.append(CommittedFile(partition, stat.data_path, size, name, commit))
    return tuple(found)


SliceOf = Callable[[FileGroupFiles], FileSlice | None]


def lost_files(
    state: TableState, committed: Iterable[CommittedFile], visibility: Visibility, slice_of: SliceOf
) -> list[LostFile]:
    """Return the committed files that `slice_of` needs and that the listing lacks."""
    groups: dict[str, Mapping[str, FileGroupFiles]] = {}
    wanting: dict[tuple[str, str], list[CommittedFile]] = {}
    for file in committed:
        if not visibility.sees(file.commit):
            continue
        if file.partition not in groups:
            listed = state.partitions.get(file.partition, ())
            groups[file.partition] = {group.file_id: group for group in listed}
        found = listed_size(groups[file.partition].get(file.name.file_id), file)
        if found is None or found < (file.size or 0):
            wanting.setdefault(file.group, []).append(file)
    return [
        lost
        for (partition, file_id), files in wanting.items()
        for lost in _lost_of(state, groups[partition].get(file_id), files, visibility, slice_of)
    ]


def _lost_of(
    state: TableState,
    group: FileGroupFiles | None,
    files: list[CommittedFile],
    visibility: Visibility,
    slice_of: SliceOf,
) -> Iterator[LostFile]:
    known = () if group is None else (group,)
    named = ((file.path, file.size or 0) for file in files)
    [whole] = with_files(files[0].partition, known, named)
    if is_replaced(whole, state.replaced, visibility):
        return
    slice_ = slice_of(whole)
    needed = set() if slice_ is None else slice_paths(slice_)
    for file in files:
        if file.path in needed:
            yield LostFile(file.path, file.commit, file.size, listed_size(group, file))


def listed_size(group: FileGroupFiles | None, file: CommittedFile) -> int | None:
    """Return the size of the file by the listing; None if it is not listed."""
    if group is None:
        return None
    if isinstance(file.name, BaseFileName):
        return next((base.size for base in group.bases if base.path == file.path), None)
    at = bisect_left(group.logs, file.name.order, key=lambda log: log.name.order)
    is_there = at < len(group.logs) and group.logs[at].path == file.path
    return group.logs[at].size if is_there else None


def slice_paths(slice_: FileSlice) -> set[str]:
    base = () if slice_.base is None else (slice_.base.path,)
    return {*base, *(log.path for log in slice_.logs)}


def referred_paths(group: FileGroupFiles) -> set[str]:
    """Return the files of a group without a slice that are needed: logs that are read by reference,
    because the virtual resize that makes the group has not completed."""
    return {log.path for log in group.logs} if is_virtual_child(group.file_id) else set()


def slices_since(
    group: FileGroupFiles, times: CompletionTimes, visibility: Visibility, since: str
) -> tuple[FileSlice, ...]:
    """Return the slices that some state from the completion time on needs, the newest first.

    A slice has been the latest since its base file completed. Older slices than the last base file
    that had completed by then are not needed any more.
    """
    found: list[FileSlice] = []
    for slice_ in file_slices(group, times, visibility):
        found.append(slice_)
        if slice_.base is not None and (times.of(slice_.base_instant) or "") <= since:
            break
    return tuple(found)


def is_superseded(
    group: FileGroupFiles, file: CommittedFile, completed: str, times: CompletionTimes, since: str
) -> bool:
    """True if a listed base file replaces the file in every state from the time on.

    Cheaper than slicing the group: most missing files were cleaned.
    """
    own = file.commit if isinstance(file.name, BaseFileName) else completed
    return any(
        base.name.requested > own and (times.of(base.name.requested) or "9") <= since
        for base in group.bases
    )


def with_committed(state: TableState, committed: Iterable[CommittedFile]) -> TableState:
    """Return the table with the committed files that are not listed, as if they were listed."""
    missing: dict[str, list[tuple[str, int]]] = {}
    listed = {(g.partition, g.file_id): g for g in state.groups()}
    for file in committed:
        if listed_size(listed.get(file.group), file) is None:
            missing.setdefault(file.partition, []).append((file.path, file.size or 0))
    partitions = dict(state.partitions)
    for partition, files in missing.items():
        partitions[partition] = with_files(partition, partitions.get(partition, ()), files)
    return TableState(state.config, state.timeline, partitions, state.replaced)


def lost_file_error(lost: LostFile, what: str) -> CorruptTableError:
    """Return the error of a caller that needs the file; `what` is what cannot be done."""
    return CorruptTableError(
        what,
        why=f"{lost.why}; its rows are missing",
        next_step="Restore the file from a copy, or from versions that the store keeps. Before that"
        " do not compact or clean the table, with another engine either: that would make the loss"
        " permanent. table.services.verify() lists all that is damaged",
        path=lost.path,
    )
