"""Which completed writes must a resize copy, and which of their logs?

Writers go on while a resize is pending, and write to its inputs. A resize may complete only if
everything that completed since its plan is in the children. The slices that the plan names are in
their base files. Every write that completed later, with files in an input, is *owed*: its logs are
copied, under names that its number among the completed writes gives.

Beside a resize that Hudi can execute, writes have written twice: what a write has put into the
children itself is not owed. Only a writer that does not keep to that leaves a copy to make.

A write that opened a base file in an input, or replaced one, cannot be copied. No pyhudi write
completes so beside a pending resize, because it cancels the resize first. Where another program
did, the resize must be cancelled.

Copies are made in *portions*: so many writes at once, in the order in which they completed, that
their copies are at most 128 files of 8 MiB, or one write. A portion begins when the one before it
is whole. So if there is a copy of a write, the writes that no portion can have together with it are
whole, whichever process made their copies. The process that continues makes the others again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import FileGroupId, LogFileName, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat
from pyhudi.format.timeline.resize_plan import GroupChange, ResizePlan
from pyhudi.table.file_group import LogFile

#: Versions that the copies of one write have in a child, the first of them its number times this.
VERSIONS_A_WRITE = 1_000
#: What a portion has at most, unless it is one write. An executor that continues takes all that one
#: portion may hold for incomplete, so these may become less, and never more.
PORTION_BYTES: Final = 8 << 20
PORTION_FILES: Final = 128
#: The write token of all copies: no task of Spark has it.
COPY_TOKEN = "0-0-0"


@dataclass(frozen=True, slots=True)
class OwedCopy:
    """What one write has in the inputs of a resize."""

    number: int  # of the writes that completed since the plan, counted from 1
    requested: str
    logs: Mapping[int, tuple[LogFile, ...]]  # by the number of the change in the plan, in order
    files: int  # that its copies are at most: each log makes one in each child

    @property
    def bytes(self) -> int:
        return sum(log.size for logs in self.logs.values() for log in logs)


def owed_copy(
    plan: ResizePlan,
    number: int,
    requested: str,
    metadata: CommitMetadata,
    resize: str | None = None,
) -> OwedCopy | None:
    """Return what must be copied of a completed write; None if it has nothing in an input.

    CorruptTableError if it did what cannot be copied. `resize` is the requested time of a resize
    beside which writers write twice.
    """
    places = _places(plan, set() if resize is None else _written_twice(resize, metadata))
    for partition, ids in metadata.replaced_file_ids.items():
        if replaced := places.keys() & {FileGroupId(partition, id_) for id_ in ids}:
            raise _cannot_copy(requested, min(replaced), "it replaced the file group")
    found: dict[int, list[tuple[tuple[int, int, str], LogFile]]] = {}
    for group, stat in metadata.group_stats:
        if group not in places or stat.is_reference:  # its rows are in the children
            continue
        log = _log(requested, group, stat)
        if log is not None:
            change, place = places[group]
            order = (place, log.name.version, log.name.write_token)
            found.setdefault(change, []).append((order, log))
    logs = {change: tuple(log for _, log in sorted(found[change])) for change in sorted(found)}
    files = sum(len(logs[change]) * len(plan.groups[change].made) for change in logs)
    return OwedCopy(number, requested, logs, files) if logs else None


def _places(plan: ResizePlan, written: Set[FileGroupId]) -> dict[FileGroupId, tuple[int, int]]:
    """Return the change in the plan of each input, and its place there.

    Changes are left out in whose children the write has `written` by itself.
    """
    return {
        group: (number, place)
        for number, change in enumerate(plan.groups)
        if written.isdisjoint(change.made)
        for place, group in enumerate(change.inputs)
    }


def _written_twice(resize: str, metadata: CommitMetadata) -> set[FileGroupId]:
    """Return the file groups in which the write has logs that the resize names."""
    found = set()
    for group, stat in metadata.group_stats:
        name = parse_data_file(file_name(stat.data_path))
        if isinstance(name, LogFileName) and name.requested == resize:
            found.add(group)
    return found


def _log(requested: str, group: FileGroupId, stat: WriteStat) -> LogFile | None:
    """Return the log that a stat is about; None for row images of change capture."""
    name = parse_data_file(file_name(stat.data_path))
    if not isinstance(name, LogFileName) or name.requested != requested:
        raise _cannot_copy(requested, group, f"it wrote {stat.data_path!r} there, which is no log")
    if name.suffix:
        return None
    size = stat.file_size_in_bytes
    if size is None or len(stat.log_files or (name.file_name,)) > 1:
        raise _cannot_copy(requested, group, "its commit does not say how long its logs are")
    return LogFile(stat.data_path, size, name)


def _cannot_copy(requested: str, group: FileGroupId, why: str) -> CorruptTableError:
    return CorruptTableError(
        f"the write {requested} in {group.file_id!r} cannot be copied",
        why=f"{why}, beside a resize that is pending",
        next_step="Nothing is lost: the resize is cancelled. Plan it again",
    )


# ---- what is copied at once


def next_portion(owed: Sequence[OwedCopy]) -> Sequence[OwedCopy]:
    """Return the first of these whose copies are made at once."""
    count, size, files = 0, 0, 0
    for each in owed:
        size, files = size + each.bytes, files + each.files
        if count and (size > PORTION_BYTES or files > PORTION_FILES):
            break
        count += 1
    return owed[:count]


def first_uncertain(newest_first: Iterable[OwedCopy]) -> int | None:
    """Return the first write that may lack copies; the newest of these is the last that has one.

    All before it are whole: no portion has them together with the newest.
    """
    first, size, files = None, 0, 0
    for each in newest_first:
        size, files = size + each.bytes, files + each.files
        if first is not None and (size > PORTION_BYTES or files > PORTION_FILES):
            break
        first = each.number
    return first


# ---- what is there


@dataclass(frozen=True, slots=True)
class FoundCopies:
    """Copies that executors of a resize have made so far."""

    paths: Mapping[int, tuple[tuple[str, int], ...]]  # by the number of the write: path and bytes

    @property
    def last(self) -> int:
        """The last write of which there is a copy; 0 if there is none."""
        return max(self.paths, default=0)

    def before(self, number: int) -> Mapping[int, tuple[tuple[str, int], ...]]:
        """Return the copies of the writes before this one."""
        return {found: files for found, files in self.paths.items() if found < number}


def found_copies(
    requested: str, changes: Iterable[GroupChange], files: Iterable[tuple[str, int]]
) -> FoundCopies:
    """Return which copies are among these files, each a path and its bytes.

    Logs that writers put there themselves have other tokens.
    """
    children = {group for change in changes for group in change.made}
    found: dict[int, list[tuple[int, str, int]]] = {}
    for path, size in files:
        partition, _, bare = path.rpartition("/")
        name = parse_data_file(bare)
        if not isinstance(name, LogFileName) or name.requested != requested:
            continue
        if name.write_token != COPY_TOKEN or name.version < VERSIONS_A_WRITE:
            continue
        if FileGroupId(partition, name.file_id) in children:
            number = name.version // VERSIONS_A_WRITE
            found.setdefault(number, []).append((name.version, path, size))
    return FoundCopies(
        {
            number: tuple((path, size) for _, path, size in sorted(found[number]))
            for number in sorted(found)
        }
    )
