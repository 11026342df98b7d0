"""The result of a compaction: its files, the metadata of its commit, and what its caller gets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyhudi.format.timeline.commit_metadata import (
    SCHEMA_KEY,
    CommitMetadata,
    WriteStat,
    stats_by_partition,
)
from pyhudi.format.timeline.instant import Instant
from pyhudi.format.timeline.writer_identity import WRITER_KEY, WriterIdentity
from pyhudi.plan.compaction.preview import NOTHING, CompactionPreview
from pyhudi.services.plans_done import PlansDone
from pyhudi.storage.protocol import Storage
from pyhudi.wording import counted, readable

#: If more files of one partition than this are to be checked, the partition is listed.
LOOKED_FOR_MAX = 8


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """A compaction that is visible."""

    instant: str  # requested time
    completed: str
    file_groups: int
    log_files: int
    rows: int  # in the new base files
    bytes: int
    seconds: float
    is_ours: bool = True  # False if another process completed it meanwhile

    def __str__(self) -> str:
        if not self.is_ours:
            return f"compaction {self.instant} was completed by another process"
        return (
            f"compaction {self.instant}: {counted(self.log_files, 'log file')} merged into"
            f" {counted(self.file_groups, 'base file')}, {counted(self.rows, 'row')},"
            f" {readable(self.bytes, 'B')}, {self.seconds:.1f} s"
        )


@dataclass(frozen=True, slots=True)
class Compacted(PlansDone[CompactionPreview, CompactionResult]):
    """What a call of `compact` did, or would do."""

    @property
    def _preview_words(self) -> str:
        return "no compaction is due" if self.preview is NOTHING else str(self.preview)


def compaction_metadata(
    stats: Iterable[WriteStat], schema: str, writer: WriterIdentity
) -> CommitMetadata:
    """Return the metadata of the completed file, as Hudi writes it, with the writer's identity."""
    return CommitMetadata(
        stats_by_partition(stats),
        compacted=True,
        extra_metadata={SCHEMA_KEY: schema, WRITER_KEY: writer.text},
        operation_type="COMPACT",
    )


def compaction_result(
    done: Instant, metadata: CommitMetadata, seconds: float, *, is_ours: bool
) -> CompactionResult:
    stats = metadata.stats
    assert done.completed is not None
    return CompactionResult(
        done.requested,
        done.completed,
        file_groups=len(stats),
        log_files=sum(stat.total_log_files_compacted or 0 for stat in stats),
        rows=sum(stat.num_writes or 0 for stat in stats),
        bytes=sum(stat.total_write_bytes or 0 for stat in stats),
        seconds=seconds,
        is_ours=is_ours,
    )


def data_paths(metadata: CommitMetadata) -> dict[str, set[str]]:
    """Return the paths of the files by partition."""
    stats = metadata.write_stats.items()
    return {partition: {stat.data_path for stat in found} for partition, found in stats}


def missing_file(storage: Storage, metadata: CommitMetadata) -> str | None:
    """Return a file that does not exist, or None.

    Other writers wait for the lock meanwhile, so many files are checked with one listing.
    """
    checked: list[str] = []
    for partition, paths in data_paths(metadata).items():
        if len(paths) <= LOOKED_FOR_MAX:
            checked += sorted(paths)
            continue
        there = {stat.path for stat in storage.list_folder(partition).objects}
        if missing := paths - there:
            return min(missing)
    found = storage.stat_all(checked)
    return next((path for path, stat in zip(checked, found, strict=True) if stat is None), None)


def doubles(ours: CommitMetadata, theirs: CommitMetadata) -> Iterator[tuple[str, str]]:
    """Yield (our file, their file) for every file group in which the other engine committed a
    different base file."""
    named = {group: stat.data_path for group, stat in theirs.group_stats}
    for group, stat in ours.group_stats:
        other = named.get(group, stat.data_path)
        if other != stat.data_path:
            yield stat.data_path, other
