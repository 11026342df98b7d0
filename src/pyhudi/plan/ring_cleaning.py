"""Which rings go with the file groups that they name.

A resize leaves the ring before its own on storage. It is needed as long as the file groups that the
resize replaced: a table that is restored to a time before the resize is written by that ring again,
and a write that began before the resize may still be reading it. So it goes with them, in a clean
that retains nothing of before the resize. The newest marked ring stays, and what is newer than it.

A ring's file goes before its mark. What a clean that died leaves is a mark older than a marked
ring, which says nothing; a file without its mark would be looked up in timeline and archive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pyhudi.format.table.ring_file import RingFileName, RingFiles, ring_path
from pyhudi.format.timeline.instant import InstantTime


def outlived_rings(
    files: RingFiles, is_retained_before: Callable[[InstantTime], bool]
) -> tuple[InstantTime, ...]:
    """Return the rings that no retained state has, and leftovers older than those in force.

    `is_retained_before` is asked of the resize that brought the next ring: is a state retained in
    which it had not completed?
    """
    marked = sorted(files.marks.intersection(files.instants))
    return tuple(
        instant
        for instant in sorted(files.marks.union(files.instants))
        if (later := [mark for mark in marked if mark > instant])
        and not is_retained_before(later[0])
    )


def ring_objects(partition: str, instants: Iterable[InstantTime]) -> Iterator[str]:
    """Yield the objects of these rings in the order in which they have to go."""
    names = [RingFileName(instant) for instant in instants]
    yield from (ring_path(partition, name) for name in names)
    yield from (ring_path(partition, name.commit_mark) for name in names)
