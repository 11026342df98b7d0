"""From files to file slices: what a read of the table must open.

RFC-66 slices a file group by completion time. Each committed base file is a barrier at its
requested time. A log file belongs to the newest barrier that is not later than the log's
completion: a writer that began before a compaction was planned and completed after it is not in
the compacted base file, so its log has to be read on top of it. Hudi compares with "not later
than" where the RFC writes "earlier than"; with unique times the two agree, and on equal times we
follow Hudi, whose compactions leave such a log out.

Files of writes that the read may not see are dropped *before* slicing. Hudi slices first and drops
later, so that a pending log can start a slice under its own uncommitted time and hide committed
logs behind it (`docs/differences.md`).

A pending compaction is a barrier too, without a base file. Readers join the slices on both of its
sides, which is the same as not having the barrier; only callers that need the slices themselves
(planning, inspection) pass one.

A file group that a virtual resize makes (`format.files.log_reference`) gets logs of completed
writes before its base file completes, with the resize. Until then they are read through the file
groups that are replaced. So in such a group a log without a base file below it opens no slice.

Log files of archived instants need the archive for their completion time, but only where a barrier
lies behind their request: `archive_needed` says which, so that most reads never open it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

from pyhudi.format.files.file_names import BaseFileName, LogFileName, parse_data_file
from pyhudi.format.files.log_reference import is_virtual_child
from pyhudi.table.file_group import BaseFile, FileGroupFiles, FileSlice, LogFile
from pyhudi.timeline.completion import CompletionTimes, Visibility
from pyhudi.timeline.timeline import Timeline


def grouped_files(partition: str, files: Iterable[tuple[str, int]]) -> tuple[FileGroupFiles, ...]:
    """Sort a partition's (path, size) listing into file groups; other files are left out.

    Change-capture logs (`.cdc`) lie beside the data and are never part of a slice.
    """
    bases: dict[str, list[BaseFile]] = {}
    logs: dict[str, list[LogFile]] = {}
    prefix = len(partition) + 1 if partition else 0
    for path, size in files:
        name = parse_data_file(path[prefix:])
        if isinstance(name, BaseFileName):
            bases.setdefault(name.file_id, []).append(BaseFile(path, size, name))
        elif isinstance(name, LogFileName) and not name.suffix:
            logs.setdefault(name.file_id, []).append(LogFile(path, size, name))
    for group in logs.values():
        if len(group) > 1:
            group.sort(key=_log_order)
    for base_group in bases.values():
        if len(base_group) > 1:
            base_group.sort(key=_base_order)
    return tuple(
        FileGroupFiles(partition, id_, tuple(bases.get(id_, ())), tuple(logs.get(id_, ())))
        for id_ in sorted({*bases, *logs})
    )


def with_files(
    partition: str, groups: tuple[FileGroupFiles, ...], files: Iterable[tuple[str, int]]
) -> tuple[FileGroupFiles, ...]:
    """Return a partition's file groups with files of writes that completed since.

    These writes name all of their files. A group without new files stays the same object.
    """
    joined = {group.file_id: group for group in groups}
    for new in grouped_files(partition, files):
        old = joined.get(new.file_id)
        joined[new.file_id] = new if old is None else _joined(old, new)
    return tuple(joined[id_] for id_ in sorted(joined))


def _joined(old: FileGroupFiles, new: FileGroupFiles) -> FileGroupFiles:
    """Return the group with the new files.

    A file may be in both, because it was listed before its write completed. A listed file that the
    write does not name is left out: it is of an attempt that died, and is removed, or about to be.
    """
    named = {base.name.requested for base in new.bases}
    bases = [*(base for base in old.bases if base.name.requested not in named), *new.bases]
    logs = list(old.logs)
    for log in new.logs:  # few, to a group that may have a thousand
        index = bisect_left(logs, _log_order(log), key=_log_order)
        is_known = index < len(logs) and logs[index].name == log.name
        logs[index : index + is_known] = [log]
    ordered = tuple(sorted(bases, key=_base_order))
    return FileGroupFiles(old.partition, old.file_id, ordered, tuple(logs))


def _log_order(log: LogFile) -> tuple[str, int, str, str]:
    return log.name.order


def _base_order(base: BaseFile) -> tuple[str, str]:
    return base.name.requested, base.name.write_token


def file_slices(
    group: FileGroupFiles,
    times: CompletionTimes,
    visibility: Visibility,
    *,
    pending_compaction: str | None = None,
    may_lack_base: bool = False,
) -> tuple[FileSlice, ...]:
    """Return the group's slices as the visible writes left them, newest first.

    Set `may_lack_base` if the files are only those of some writes, whose logs are known to count.
    """
    sees = visibility.sees
    bases: dict[str, BaseFile] = {
        base.name.requested: base for base in group.bases if sees(base.name.requested)
    }
    barriers = sorted({*bases, pending_compaction} if pending_compaction else bases)
    logs: dict[str, list[LogFile]] = {}
    for log in group.logs:
        if not sees(log.name.requested):
            continue
        barrier = _barrier(log, barriers, times)
        if barrier is None:
            if not may_lack_base and is_virtual_child(group.file_id):
                continue
            barrier = log.name.requested
            barriers.insert(bisect_right(barriers, barrier), barrier)
        logs.setdefault(barrier, []).append(log)
    return tuple(
        FileSlice(group.partition, group.file_id, key, bases.get(key), tuple(logs.get(key, ())))
        for key in reversed(barriers)
    )


def _barrier(log: LogFile, barriers: list[str], times: CompletionTimes) -> str | None:
    """Return the newest barrier that the log came after; None if it came before all of them."""
    if not barriers:
        return None
    completed = times.of(log.name.requested)
    if completed is None:
        # Archived beyond the archive's own memory: Hudi reads such a log with the newest slice.
        return barriers[-1]
    if len(completed) != len(barriers[-1]):
        # Times of a second (14 digits) and of a millisecond do not compare as text.
        completed = log.name.requested
    position = bisect_right(barriers, completed)
    return barriers[position - 1] if position else None


def latest_slice(
    group: FileGroupFiles,
    times: CompletionTimes,
    visibility: Visibility,
    *,
    may_lack_base: bool = False,
) -> FileSlice | None:
    """Return what a snapshot read of the group opens; None if nothing of it is visible."""
    if not group.logs and len(group.bases) == 1:  # the common case, worth a short way
        base = group.bases[0]
        requested = base.name.requested
        if not visibility.sees(requested):
            return None
        return FileSlice(group.partition, group.file_id, requested, base, ())
    slices = file_slices(group, times, visibility, may_lack_base=may_lack_base)
    return slices[0] if slices else None


def slice_at_request(
    group: FileGroupFiles, times: CompletionTimes, now: Visibility, at: Visibility, time: str
) -> FileSlice | None:
    """Return the slice that Hudi's time travel opens, which compares requested times.

    Slices are those of today (`now`); the newest one not later than the time is taken, and of its
    logs those that were requested by then (`at`).
    """
    for slice_ in file_slices(group, times, now):
        if slice_.base_instant <= time:
            logs = tuple(log for log in slice_.logs if at.sees(log.name.requested))
            if slice_.base is None and not logs:
                return None
            return slice_._replace(logs=logs)
    return None


def archive_needed(groups: Iterable[FileGroupFiles], timeline: Timeline) -> frozenset[str]:
    """Return archived instants whose completion time decides where a log belongs."""
    needed = set()
    for group in groups:
        if not group.logs or not group.bases:
            continue
        newest_barrier = group.bases[-1].name.requested
        for log in group.logs:
            requested = log.name.requested
            if requested < newest_barrier and timeline.is_archived(requested):
                needed.add(requested)
    return frozenset(needed)


def is_replaced(
    group: FileGroupFiles, replaced: Mapping[tuple[str, str], frozenset[str]], at: Visibility
) -> bool:
    """True if a visible overwrite or clustering removed the whole group from the table.

    It stays out, whatever is written to it later: that is how Hudi reads the same bytes.
    """
    instants = replaced.get((group.partition, group.file_id))
    return instants is not None and any(at.sees(instant) for instant in instants)
