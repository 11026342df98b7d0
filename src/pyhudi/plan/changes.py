"""Incremental reads: the rows that the writes of a time range left.

A range is (since, until] over completion times, so a consumer that passes each read's `until` as
the next `since` sees every write once: a write that completes later has a later completion time,
whenever it was requested.

As in Hudi, the files that those writes wrote are sliced on their own and merged, and of their rows
those count whose commit time is in the range. A compaction in the range contains older rows; they
are dropped before the merge, so that a late row of the range is shown as it would be without the
compaction. Deletes leave no row. Files that a later write of the range replaced are not needed. A
needed file that is missing, or shorter than its write says, is an error, never fewer rows: it was
cleaned, or it is lost, and the caller finds out which. A file that a pending clean names counts as
gone: it may go between the plan and the read.

Rows of partial-update blocks are not whole without what came before the range; for them the plan
has the whole slice, too.

While a virtual resize is pending, a write has the same rows twice: in logs of the new buckets, and
by reference in the old ones. As of the end of the range one of the two counts (`by_reference`).

In a joined table a row has one commit time and many writers, and the one that the commit time names
need not be the one that the range holds. So there the keys in the files of the range's writes say
which rows have changed, and a compaction, which adds no keys, is skipped. So is a resize; but the
rows are in its new buckets, so what changed in a bucket that it replaced is looked up in those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

import pyarrow as pa

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import FileGroupId, LogFileName, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat
from pyhudi.format.timeline.resize_plan import ResizePlan
from pyhudi.plan.scan import ReadSpec, ScanPlan, SliceRead, may_hold_matches, refuse_unordered
from pyhudi.table.committed_files import LostFile
from pyhudi.table.file_group import BaseFile, FileGroupFiles, FileSlice, LogFile
from pyhudi.table.file_slices import grouped_files, latest_slice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes

#: What helps a consumer whose changes are removed. Changes show no deletes, so it cannot continue
#: from what it has.
READ_AGAIN = (
    "Read the table as of the newest completion time in table.inspect.timeline(), replace what was"
    " built from changes by the result, and read changes since that time"
)


#: File group that a resize replaced → those that have its rows now.
HandedOver: TypeAlias = Mapping[FileGroupId, frozenset[FileGroupId]]


@dataclass(frozen=True, slots=True)
class CompletedWrite:
    """A completed write and what it says of itself."""

    requested: str
    completed: str
    metadata: CommitMetadata

    @property
    def brings_rows(self) -> bool:
        """False for log compaction, which gives the rows it carries its own commit time."""
        return self.metadata.operation_type != "LOG_COMPACT"

    @property
    def is_compaction(self) -> bool:
        return self.metadata.operation_type == "COMPACT" or bool(self.metadata.compacted)

    @property
    def is_clustering(self) -> bool:
        """True for a clustering, which a resize is: its rows are in other file groups now."""
        return self.metadata.operation_type == "CLUSTER"


def in_range(writes: Iterable[tuple[str, str]], since: str, until: str | None) -> frozenset[str]:
    """Return the requested times of pairs (requested, completed) completed in (since, until]."""
    return frozenset(
        requested
        for requested, completed in writes
        if since < completed and (until is None or completed <= until)
    )


def written_files(
    writes: Sequence[CompletedWrite],
    replaced: Mapping[tuple[str, str], frozenset[str]] = MappingProxyType({}),
    passed: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> dict[str, dict[str, int]]:
    """Return partition path → paths of the data files that the writes recorded → their bytes.

    Files are left out in file groups that were `replaced` by what the write had `passed`.
    """
    files: dict[str, dict[str, int]] = {}
    for write in writes:
        hiding = passed.get(write.requested, frozenset())
        for partition, stats in write.metadata.write_stats.items():
            paths = files.setdefault(partition, {})
            for stat in stats:
                if not stat.path:  # a write may record a file group in which nothing was left
                    continue
                if hiding and hiding & replaced.get((partition, stat.file_id or ""), frozenset()):
                    continue
                paths[_data_path(stat, partition)] = stat.file_size_in_bytes or 0
    return files


def passed_resizes(
    writes: Sequence[CompletedWrite], times: CompletionTimes
) -> dict[str, frozenset[str]]:
    """Return write → the resizes that completed before it, and that name logs of it.

    It has written twice: into file groups that such a resize replaced, and into its children. By
    the time it completed its rows were those of the children.
    """
    found = {}
    for write in writes:
        names = (parse_data_file(file_name(stat.data_path)) for stat in write.metadata.stats)
        named = {str(name.requested) for name in names if isinstance(name, LogFileName)}
        done = ((resize, times.of(resize)) for resize in named - {write.requested})
        passed = frozenset(r for r, completed in done if completed and completed < write.completed)
        if passed:
            found[write.requested] = passed
    return found


def _data_path(stat: WriteStat, partition: str) -> str:
    path = stat.data_path
    if path.rpartition("/")[0] != partition:
        raise CorruptTableError(
            "a write stat names a file outside of its partition",
            why=f"{path!r} is not in {partition!r}",
            next_step="Restore the timeline file it is in from a copy of the table",
        )
    return path


@dataclass(frozen=True, slots=True)
class Referred:
    """The files that writes of a range have by its end, where some refer to logs in others."""

    writes: tuple[CompletedWrite, ...]
    through: Mapping[str, int]  # paths of logs that are read through those, and their bytes


def references_in(writes: Iterable[CompletedWrite]) -> list[tuple[CompletedWrite, WriteStat]]:
    """Return the logs that refer to others, in file groups that the writes have not replaced.

    Those of replaced ones count no more: the rows are read where they are.
    """
    writes = list(writes)
    replaced = _replaced(writes)
    return [
        (write, stat)
        for write in writes
        for group, stat in write.metadata.group_stats
        if stat.is_reference and (group.partition, group.file_id) not in replaced
    ]


def by_reference(writes: Iterable[CompletedWrite], named: Mapping[str, frozenset[str]]) -> Referred:
    """Leave out what the writes have twice: a log, and the log that refers to it.

    `named` has the paths of the logs that are referred to, by the path of the referring one, of
    `references_in` the writes. By the end of the range these are read by reference.
    """
    through: dict[str, int] = {}
    kept = []
    for write in writes:
        if not any(stat.is_reference for stat in write.metadata.stats):
            kept.append(write)
            continue
        paths = {path for stat in write.metadata.stats for path in named.get(stat.path or "", ())}
        stats: dict[str, tuple[WriteStat, ...]] = {}
        for partition, files in write.metadata.write_stats.items():
            whole = [s for s in files if not s.is_reference or s.path in named]
            through |= {s.path: s.file_size_in_bytes or 0 for s in whole if s.path in paths}
            stats[partition] = tuple(s for s in whole if s.path not in paths)
        metadata = replace(write.metadata, partition_to_write_stats=stats)
        kept.append(replace(write, metadata=metadata))
    return Referred(tuple(kept), through)


def lost_referred(state: TableState, through: Mapping[str, int]) -> LostFile | None:
    """Return a log that is read by reference, and is not listed as long as its write says."""
    if not through:
        return None
    sizes = {file.path: file.size for group in state.groups() for file in group.files}
    for path, size in through.items():
        if (found := sizes.get(path)) is None or found < size:
            name = parse_data_file(file_name(path))
            return LostFile(path, "" if name is None else name.requested, size or None, found)
    return None


def handed_over(metadata: CommitMetadata, plan: ResizePlan | None) -> HandedOver:
    """Return where a clustering has put the rows of each file group that it replaced.

    Without its plan, in any of the file groups that it wrote in the same partition.
    """
    if plan is not None:
        return {group: frozenset(change.made) for change in plan.groups for group in change.inputs}
    found: dict[FileGroupId, frozenset[FileGroupId]] = {}
    for partition, file_ids in metadata.replaced_file_ids.items():
        stats = metadata.write_stats.get(partition, ())
        made = frozenset(FileGroupId(partition, s.file_id) for s in stats if s.file_id)
        found.update((FileGroupId(partition, file_id), made) for file_id in file_ids)
    return found


def plan_changes(
    state: TableState,
    writes: Sequence[CompletedWrite],
    times: CompletionTimes,
    schema: pa.Schema,
    spec: ReadSpec,
    *,
    doomed: Set[str] = frozenset(),
    handed: HandedOver = MappingProxyType({}),
    prune: bool = True,
) -> ScanPlan | LostFile:
    """Return the slices made of the files that these writes wrote, or a file that is not whole.

    Files whose names are `doomed` are about to be removed. Rows of file groups that are `handed`
    over are read where they are by the end of the range. With `prune` a predicate skips partitions
    by the values that their paths stand for.
    """
    replaced = _replaced(writes)
    heirs = frozenset(heir for into in handed.values() for heir in into)
    reads: list[SliceRead] = []
    passed = passed_resizes(writes, times)
    visibility = spec.visibility.with_instants(frozenset[str]().union(*passed.values()))
    written = written_files(writes, state.replaced, passed)
    for partition, files in sorted(written.items()):
        if prune and not may_hold_matches(partition, schema, state.config, spec):
            continue
        listed = {group.file_id: group for group in state.partitions.get(partition, ())}
        # The listing knows how large a file is; the size that a write records is not trusted.
        sizes = {file.path: file.size for group in listed.values() for file in group.files}
        keys_in: dict[FileGroupId, list[FileSlice]] = {}
        for group in grouped_files(partition, [(p, sizes.get(p, 0)) for p in sorted(files)]):
            slice_ = latest_slice(group, times, visibility, may_lack_base=True)
            if slice_ is None or (partition, group.file_id) in replaced:
                continue
            there = listed.get(group.file_id)
            if (lost := _lost(slice_, sizes, files, doomed)) is not None:
                return lost
            here = FileGroupId(partition, group.file_id)
            if here in handed or here in heirs:
                for heir in _heirs(here, handed):
                    keys_in.setdefault(heir, []).append(slice_)
                continue
            reads.append(SliceRead(slice_, whole=_whole(there, slice_, times, spec)))
        for heir, slices in sorted(keys_in.items()):
            if (partition, heir.file_id) not in replaced:
                there, seen = listed.get(heir.file_id), spec.whole_visibility
                rows = there and seen and latest_slice(there, times, seen)
                if rows:
                    reads.append(SliceRead(rows, keys_in=tuple(slices)))
    refuse_unordered(spec, reads)
    return ScanPlan(spec, tuple(reads), schema, state.config)


def _heirs(group: FileGroupId, handed: HandedOver) -> frozenset[FileGroupId]:
    """Return the file groups that have the group's rows after all resizes of the range."""
    if group not in handed:
        return frozenset([group])
    return frozenset(heir for into in handed[group] for heir in _heirs(into, handed))


def _whole(
    group: FileGroupFiles | None, slice_: FileSlice, times: CompletionTimes, spec: ReadSpec
) -> FileSlice | None:
    """Return the slice with its past. Only logs can hold rows that are not whole."""
    if group is None or not slice_.logs or spec.whole_visibility is None:
        return None
    return latest_slice(group, times, spec.whole_visibility)


def _replaced(writes: Sequence[CompletedWrite]) -> set[tuple[str, str]]:
    return {
        (partition, file_id)
        for write in writes
        for partition, file_ids in write.metadata.replaced_file_ids.items()
        for file_id in file_ids
    }


def _lost(
    slice_: FileSlice, sizes: Mapping[str, int], written: Mapping[str, int], doomed: Set[str]
) -> LostFile | None:
    """Return a file of the slice that is not listed, about to go, or too short.

    It is too short if its write recorded more bytes.
    """
    files: list[BaseFile | LogFile] = [*slice_.logs, *([slice_.base] if slice_.base else [])]
    for file in files:
        is_doomed = file_name(file.path) in doomed
        size, found = written[file.path], None if is_doomed else sizes.get(file.path)
        if found is None or found < size:
            return LostFile(file.path, file.name.requested, size or None, found)
    return None
