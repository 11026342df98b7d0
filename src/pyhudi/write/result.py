"""What a write did: as its completed file records it, and as its caller gets it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyhudi.commit.write_ids import WRITE_ID_KEY
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat, stats_by_partition
from pyhudi.notebook import result_html


@dataclass(frozen=True, slots=True)
class WriteResult:
    """A write that is visible.

    Its counts are of what the write put into files. Whether a row was new, changed an existing one
    or lost to a later one is found only when rows are merged.
    """

    instant: str  # requested time, which the rows have as _hoodie_commit_time
    completed: str  # completion time: reads as of it, and changes until it, include the write
    #: Rows written. In a log, rows that lose by their ordering count too; in a base file, only
    #: those that won. Of rows with one key in one write one counts, or one for each time that
    #: memory was full.
    rows: int
    #: Deletes written. In a log, deletes count too whose row is newer or never existed; in a base
    #: file, rows that were removed.
    deletes: int
    files: int
    bytes: int
    retries: int  # times the whole write was repeated after a conflict
    seconds: float
    # conflicts that were solved by committing the same files behind the other write
    recommits: int = 0
    #: Rows and deletes that were moved, since a resize that was planned before the write began put
    #: their buckets elsewhere meanwhile.
    moved: int = 0
    #: True if an earlier write has this write_id. This is its result, and nothing was written now.
    repeated: bool = False

    @property
    def requested(self) -> str:
        """The requested time: `instant`, by its name in `inspect.timeline()`.

        The write became visible later, when it `completed`. A read as of the requested time shows
        the table before it.
        """
        return self.instant

    def _repr_html_(self) -> str:
        return result_html(self)


def commit_metadata(
    stats: Iterable[WriteStat], operation: str, write_id: str | None = None
) -> CommitMetadata:
    """Return the contents of a write's completed file, without the schema.

    Which schema the write records is decided when it is validated.
    """
    extra = {} if write_id is None else {WRITE_ID_KEY: write_id}
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
    """Return the result of a write that created these files."""
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
