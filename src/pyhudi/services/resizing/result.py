"""The result of a resize, and what a call of `resize` did."""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.format.timeline.commit_metadata import CommitMetadata
from pyhudi.format.timeline.instant import Instant
from pyhudi.plan.resizing.changes import ResizePreview
from pyhudi.services.plans_done import PlansDone
from pyhudi.wording import counted, readable


@dataclass(frozen=True, slots=True)
class ResizeResult:
    """A resize that is visible."""

    instant: str  # requested time
    completed: str
    partitions: int
    inputs: int  # buckets that were replaced
    children: int  # buckets that took their place
    rows: int  # in the children's base files
    copies: int  # logs of writes that completed meanwhile
    bytes: int
    seconds: float
    is_ours: bool = True  # False if another process completed it meanwhile

    def __str__(self) -> str:
        if not self.is_ours:
            return f"resize {self.instant} was completed by another process"
        return (
            f"resize {self.instant}: {counted(self.inputs, 'bucket')} became {self.children},"
            f" {counted(self.rows, 'row')}, {counted(self.copies, 'log file')} copied,"
            f" {readable(self.bytes, 'B')}, {self.seconds:.1f} s"
        )


@dataclass(frozen=True, slots=True)
class Resized(PlansDone[ResizePreview, ResizeResult]):
    """What a call of `resize` did, or would do."""


def resize_result(
    done: Instant, metadata: CommitMetadata, seconds: float, *, is_ours: bool
) -> ResizeResult:
    stats = metadata.stats
    bases = [stat for stat in stats if stat.log_files is None]
    assert done.completed is not None
    return ResizeResult(
        done.requested,
        done.completed,
        partitions=len(metadata.replaced_file_ids),
        inputs=sum(map(len, metadata.replaced_file_ids.values())),
        children=len(bases),
        rows=sum(stat.num_writes or 0 for stat in bases),
        copies=len(stats) - len(bases),
        bytes=sum(stat.total_write_bytes or 0 for stat in stats),
        seconds=seconds,
        is_ours=is_ours,
    )
