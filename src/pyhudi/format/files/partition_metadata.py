"""`.hoodie_partition_metadata`: the file that makes a folder a partition.

Hudi's Spark reader shows no row of a folder that lacks it, and raises no error. Nothing in it
changes after it was first written.
"""

from __future__ import annotations

from typing import Final

from pyhudi.format.table.properties import encode_properties
from pyhudi.format.timeline.instant import InstantTime

PARTITION_METADATA_FILE: Final = ".hoodie_partition_metadata"


def partition_depth(partition: str) -> int:
    """Return levels of the partition path; 0 for the root of a table without partitions.

    >>> partition_depth("year=2026/month=01"), partition_depth("")
    (2, 0)
    """
    return partition.count("/") + 1 if partition else 0


def partition_metadata(partition: str, created: InstantTime) -> bytes:
    """Return the file's bytes: as Hudi writes it, but without a comment that has the date."""
    pairs = {"commitTime": created, "partitionDepth": str(partition_depth(partition))}
    return encode_properties(pairs, comments=["partition metadata"])
