"""What counts as a conflict between writes, under the names by which a table records it.

All writers of a table must agree, a clustering job most of all: with `prefer_writer` the clustering
yields to writes, with the others writes yield to it, and where two jobs differ both go on and rows
are lost. So it is recorded in the table, under Hudi's own key, where Hudi's Spark writers find it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pyhudi.errors import UnsupportedTableError
from pyhudi.format.lock.lock_kind import LockKind

CONFLICT_STRATEGY: Final = "hoodie.write.lock.conflict.resolution.strategy"


class Strategy(StrEnum):
    """What two writes must share to conflict, and which of them yields."""

    BUCKET = "bucket"
    SIMPLE = "simple"
    PREFER_WRITER = "prefer_writer"

    @property
    def class_name(self) -> str:
        """The name by which Hudi knows it."""
        return f"{_PACKAGE}{_CLASSES[self]}ConflictResolutionStrategy"


def ring_strategy(lock: LockKind) -> Strategy:
    """Return what a table of consistent buckets records.

    Hudi's writers lose to a pending resize by every strategy but one, although they write twice.
    """
    return Strategy.PREFER_WRITER if lock.is_shared else Strategy.SIMPLE


_PACKAGE = "org.apache.hudi.client.transaction."
_CLASSES = {
    Strategy.BUCKET: "BucketIndexConcurrentFileWrites",
    Strategy.SIMPLE: "SimpleConcurrentFileWrites",
    Strategy.PREFER_WRITER: "PreferWriter",
}


def parse_strategy(class_name: str | None) -> Strategy:
    """Return the strategy of a table; it is `bucket` unless the table records another.

    >>> parse_strategy(None).value
    'bucket'
    >>> parse_strategy("org.apache.hudi.client.transaction.PreferWriterConflictResolutionStrategy")
    <Strategy.PREFER_WRITER: 'prefer_writer'>
    """
    if not class_name:
        return Strategy.BUCKET
    for strategy in Strategy:
        if strategy.class_name == class_name.strip():
            return strategy
    raise UnsupportedTableError(
        "the table cannot be written",
        why=f"its conflicts are judged by {class_name[:200]!r}, which pyhudi does not have",
        next_step=f"Write it with Apache Hudi, or change {CONFLICT_STRATEGY} for all its writers",
    )
