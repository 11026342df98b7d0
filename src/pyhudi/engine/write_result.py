"""What a write did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WriteResult:
    """A write that is visible. It counts what was written, and does not guess what was new."""

    instant: str  # requested time, which the rows bear as _hoodie_commit_time
    completed: str  # completion time: reads as of it, and changes until it, include the write
    rows: int  # written; of rows with one key, one for each time memory was full
    deletes: int
    files: int
    bytes: int
    retries: int  # times the whole write was repeated after a conflict
    seconds: float
