"""What a write did: as its completed file says it, and as its caller gets it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyhudi.commit.write_ids import WRITE_ID_KEY
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat, stats_by_partition
from pyhudi.notebook import result_html
from pyhudi.write.files.spec import WriteSpec


@dataclass(frozen=True, slots=True)
class WriteResult:
    """A write that is visible.

    Its counts say what the write put into files, not what became of it: whether a row was new,
    changed one that was there or lost to a later one is found when rows are merged.
    """

    instant: str  # requested time, which the rows bear as _hoodie_commit_time
    completed: str  # completion time: reads as of it, and changes until it, include the write
    #: Rows written. In a log a row counts that loses by its ordering; in a base file, those that
    #: won. Of rows with one key in one write one counts, or one for each time that memory was full.
    rows: int
    #: Deletes written. In a log a delete counts whose row is newer, or was never there; in a base
    #: file, rows taken out.
    deletes: int
    files: int
    bytes: int
    retries: int  # times the whole write was repeated after a conflict
    seconds: float
    recommits: int = 0  # conflicts that were settled by committing the same files behind the other
    #: True if an earlier write has this write_id: it is the result, and nothing was written now.
    repeated: bool = False

    @property
    def requested(self) -> str:
        """The requested time: `instant`, by the name that `inspect.timeline()` has for it.

        The write became visible later, when it `completed`. A read as of the requested time shows
        the table before it.
        """
        return self.instant

    def _repr_html_(self) -> str:
        return result_html(self)


def commit_metadata(
    stats: Iterable[WriteStat], spec: WriteSpec, operation: str, write_id: str | None = None
) -> CommitMetadata:
    """What the completed file of a write says."""
    extra = {"schema": spec.avro_schema}
    if write_id is not None:
        extra[WRITE_ID_KEY] = write_id
    return CommitMetadata(
        partition_to_write_stats=stats_by_partition(stats),
        compacted=False,
        extra_metadata=extra,
        operation_type=operation,
    )


def write_result(
    requested: str,
    completed: str,
    stats: Sequence[WriteStat],
    retries: int,
    seconds: float,
    *,
    repeated: bool = False,
) -> WriteResult:
    """What a write of these files did."""
    return WriteResult(
        instant=requested,
        completed=completed,
        rows=sum(stat.rows_written for stat in stats),
        deletes=sum(stat.num_deletes or 0 for stat in stats),
        files=len(stats),
        bytes=sum(stat.total_write_bytes or 0 for stat in stats),
        retries=retries,
        seconds=seconds,
        repeated=repeated,
    )
