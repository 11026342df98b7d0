"""The result of a resize, and what a call of `resize` did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pyhudi.errors import HudiError, first_of
from pyhudi.format.timeline.commit_metadata import CommitMetadata
from pyhudi.format.timeline.instant import Instant
from pyhudi.plan.resizing.changes import ResizePreview
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
class Resized:
    """What a call of `resize` did, or would do."""

    preview: ResizePreview  # of the plan that it made, or would make
    planned: str | None = None  # requested time of that plan
    pending: tuple[str, ...] = ()  # plans that are pending, of this call or of others
    results: tuple[ResizeResult, ...] = ()
    errors: tuple[HudiError, ...] = ()  # why a plan was not made, or not executed

    def or_raise(self) -> Self:
        """Return this result, or raise the first error if something failed."""
        if self.errors:
            raise first_of(self.errors, self.results)
        return self

    def __str__(self) -> str:
        lines = [str(self.preview)]
        if self.planned:
            lines.append(f"planned as {self.planned}")
        lines += [str(result) for result in self.results]
        lines += [f"plan {requested} is pending" for requested in self.pending]
        return "\n".join(lines)


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
