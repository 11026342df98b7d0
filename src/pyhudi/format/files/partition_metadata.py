"""`.hoodie_partition_metadata`: the file that makes a folder a partition.

Hudi's Spark reader shows no row of a folder that lacks it, and raises no error. Nothing in it
changes after it was first written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyhudi.errors import CorruptTableError
from pyhudi.format.table.properties import decode_properties, encode_properties
from pyhudi.format.timeline.instant import InstantTime, instant_time

PARTITION_METADATA_FILE: Final = ".hoodie_partition_metadata"

_COMMIT_TIME = "commitTime"
_DEPTH = "partitionDepth"
_DEPTH_DIGITS_MAX = 4


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Who created the partition, and how many folders lie between it and the table."""

    created: InstantTime
    depth: int


def partition_depth(partition: str) -> int:
    """Levels of the partition path; 0 for the root of a table without partitions.

    >>> partition_depth("year=2026/month=01"), partition_depth("")
    (2, 0)
    """
    return partition.count("/") + 1 if partition else 0


def decode_partition_metadata(data: bytes, path: str | None = None) -> PartitionMetadata:
    pairs = decode_properties(data, path)
    try:
        depth = pairs[_DEPTH].strip()
        if not (depth.isascii() and depth.isdigit() and len(depth) <= _DEPTH_DIGITS_MAX):
            raise ValueError(f"{_DEPTH} is {depth[:20]!r}")
        return PartitionMetadata(instant_time(pairs[_COMMIT_TIME].strip()), int(depth))
    except (KeyError, ValueError) as error:
        raise CorruptTableError(
            "Partition metadata cannot be used",
            why=f"{_COMMIT_TIME} or {_DEPTH} is missing or malformed ({error})",
            next_step="Replace it with a copy from another partition of the same depth",
            path=path,
        ) from error


def encode_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """As Hudi writes it, but for a comment with the date, so that equal values give equal bytes."""
    pairs = {_COMMIT_TIME: metadata.created, _DEPTH: str(metadata.depth)}
    return encode_properties(pairs, comments=["partition metadata"])
