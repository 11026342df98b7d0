"""Which of the rings that a partition has on storage is in force?

Each resize leaves a ring's file under its own instant, and the file may be there before the resize
completes, or although it never did. A *mark* beside it says that it is known to have completed. In
force is the newest file that is the first ring, is marked, or is of an instant that completed. What
the timeline and the archive no longer tell, the files do: a resize that completed left base files
of nodes that no older ring has. Apache Hudi decides by the same rule, but counts any node of the
ring, so that it may take a resize for completed that was rolled back and left some nodes alone.

A file of an instant that was rolled back, or is pending, is no ring. That of one that was rolled
back and is marked all the same is an error: another engine may already write by it. So is a mark
without its file, unless a newer ring is marked: cleaning removes old rings, each before its mark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from pyhudi.errors import CorruptTableError
from pyhudi.format.table.ring_file import FIRST_INSTANT, RingFileName, RingFiles, ring_path
from pyhudi.format.timeline.instant import InstantTime


class Fate(Enum):
    """What became of the instant of a resize."""

    COMPLETED = "completed"
    PENDING = "pending"
    ROLLED_BACK = "rolled back"
    FORGOTTEN = "in neither timeline nor archive"


@dataclass(frozen=True, slots=True)
class InForce:
    """The instant of the ring in force, and whether its mark says that every node has files."""

    instant: InstantTime
    is_complete: bool = False


def ring_in_force(
    files: RingFiles,
    fate: Callable[[InstantTime], Fate],
    left_base_files: Callable[[InstantTime], bool],
    is_known_undone: Callable[[InstantTime], bool],
) -> InForce | None:
    """Return the ring in force; None if the partition has none yet.

    `fate` is asked of rings without a mark, newest first, until one is in force. `left_base_files`
    is asked of a forgotten one: is there a base file of a node that the ring has, and the ring
    before it lacks? `is_known_undone` is asked of the newest mark, for what costs no request.
    CorruptTableError for a mark without its file, and for a marked ring whose resize was rolled
    back.
    """
    newest = max(files.marks.intersection(files.instants), default=FIRST_INSTANT)
    lost = [mark for mark in files.marks.difference(files.instants) if mark >= newest]
    if lost:
        raise _contradiction(files.partition, max(lost), "its mark is there without it")
    for instant in reversed(files.instants):
        if instant in files.marks:
            if instant != FIRST_INSTANT and is_known_undone(instant):
                why = "it is marked as completed, and its resize was rolled back"
                raise _contradiction(files.partition, instant, why)
            return InForce(instant, instant in files.complete)
        if instant == FIRST_INSTANT:
            return InForce(instant)
        found = fate(instant)
        if found is Fate.COMPLETED:
            return InForce(instant)
        if found is Fate.FORGOTTEN and left_base_files(instant):
            return InForce(instant)
    return None


def _contradiction(partition: str, instant: InstantTime, why: str) -> CorruptTableError:
    path = ring_path(partition, RingFileName(instant))
    return CorruptTableError(
        f"the ring of partition {partition!r} is not known",
        why=f"{path}: {why}",
        next_step="Restore the partition's files of hashing metadata from a copy of the table; a"
        " row that is written by a wrong ring may be there twice",
        path=path,
    )
