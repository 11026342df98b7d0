"""Marking the rings of resizes that are about to leave the active timeline.

A mark beside a ring's file says that its resize completed. The executor of a resize sets it, and
may die before that. Without the mark pyhudi asks timeline and archive; Apache Hudi asks the active
timeline alone, and then guesses by base files (HUDI-6047).
"""

from __future__ import annotations

from collections.abc import Iterable

from pyhudi.format.table.ring_file import RingFileName, ring_path
from pyhudi.format.timeline.archive import ArchivedInstant
from pyhudi.format.timeline.commit_metadata import decode_commit_metadata
from pyhudi.format.timeline.instant import Action, InstantTime
from pyhudi.storage.objects.rings import write_mark
from pyhudi.storage.protocol import Storage


def mark_rings(storage: Storage, instants: Iterable[ArchivedInstant]) -> None:
    """Mark the rings of these instants, where one is a resize. A ring that was cleaned stays so."""
    for instant in instants:
        if instant.action != Action.REPLACECOMMIT.value or not instant.metadata:
            continue
        metadata = decode_commit_metadata(instant.metadata, f"{instant.requested}.replacecommit")
        if metadata.operation_type != "CLUSTER":
            continue
        requested, partitions = InstantTime(instant.requested), sorted(metadata.replaced_file_ids)
        names = (RingFileName(requested), RingFileName(requested, is_commit_mark=True))
        paths = [ring_path(partition, name) for partition in partitions for name in names]
        found = [stat is not None for stat in storage.stat_all(paths)]
        for partition, ring, mark in zip(partitions, found[::2], found[1::2], strict=True):
            if ring and not mark:
                write_mark(storage, partition, requested, is_complete=False)
