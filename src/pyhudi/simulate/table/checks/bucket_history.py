"""Which file group does a key have, as of which time, and what took the place of a file group?

On a table of simple buckets a key has one file group for ever. On a table of rings, each resize
that completed gives the keys of some file groups to others. Both follow from the rings alone, and
by the times at which their resizes completed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.ring_file import Ring
from pyhudi.format.timeline.resize_plan import ResizePlan
from pyhudi.simulate.table.rows import KEYS, group_of, partition_of
from pyhudi.simulate.table.toy_rings import group_on


@dataclass(frozen=True, slots=True)
class DoneResize:
    """A resize that completed."""

    requested: str
    completed: str
    plan: ResizePlan
    rings: Mapping[str, Ring]  # by partition


@dataclass(frozen=True, slots=True)
class Stay:
    """A key's stay in one file group, and the resize that gave it the key; empty: none did."""

    group: FileGroupId
    requested: str = ""
    completed: str = ""


class BucketHistory:
    """The file groups of every key, and those that were replaced."""

    def __init__(self, first: Iterable[Ring], resizes: Iterable[DoneResize]) -> None:
        rings = {ring.partition: ring for ring in first}
        self.resizes = sorted(resizes, key=lambda resize: resize.completed)
        self._stays = {key: [_first_stay(key, rings)] for key in KEYS}
        #: Replaced file group → when its resize completed.
        self.replaced: dict[FileGroupId, str] = {}
        for resize in self.resizes:
            self.replaced.update(dict.fromkeys(resize.plan.inputs, resize.completed))
            for key, stays in self._stays.items():
                ring = resize.rings.get(partition_of(key))
                group = stays[-1].group if ring is None else group_on(ring, key)
                if group != stays[-1].group:
                    stays.append(Stay(group, resize.requested, resize.completed))

    def stay(self, key: str, time: str) -> Stay:
        """Return where a key is as of a completion time."""
        return next(s for s in reversed(self._stays[key]) if s.completed <= time)

    def groups(self, key: str) -> frozenset[FileGroupId]:
        """Return all file groups that a key ever had."""
        return frozenset(stay.group for stay in self._stays[key])

    def is_replaced(self, group: FileGroupId, time: str) -> bool:
        """True if the file group is out of the table as of the time."""
        done = self.replaced.get(group)
        return done is not None and done <= time

    def through(self, groups: frozenset[FileGroupId], until: str) -> frozenset[FileGroupId]:
        """Return the groups, and all that took rows of theirs by then."""
        for resize in self.resizes:
            for change in resize.plan.groups if resize.completed <= until else ():
                if not groups.isdisjoint(change.inputs):
                    groups = groups.union(change.made)
        return groups


def _first_stay(key: str, rings: Mapping[str, Ring]) -> Stay:
    ring = rings.get(partition_of(key))
    return Stay(group_of(key) if ring is None else group_on(ring, key))
