"""The file groups that take the keys of some others, and of no more than those.

A resize gives the keys of its inputs to its children. A key that no child owns lies in a file group
that does not own it. It must not be given away: its rows would come into a file group in which no
reader that looks for them by key would look, or be lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.index.layout import BucketLayout


class KeyOwners(Protocol):
    """File groups, and the keys that each takes. Every layout is one."""

    def assign(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        """Return the ordinal of the group that takes each record key."""
        ...

    def group(self, ordinal: int) -> FileGroupId: ...


@dataclass(frozen=True)
class Children:
    """Some file groups of a layout, in its order; their ordinals count from 0."""

    layout: BucketLayout
    groups: tuple[FileGroupId, ...]

    @property
    def partition(self) -> str:
        return self.layout.partition

    def group(self, ordinal: int) -> FileGroupId:
        return self.groups[ordinal]

    def assign(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        """Return which child takes each key; CorruptTableError if none takes one of them."""
        found = self._ordinals[self.layout.assign(keys)]
        outside = np.flatnonzero(found < 0)
        if len(outside):
            raise _outside(self.partition, str(keys[int(outside[0])]), self.groups)
        return found

    @cached_property
    def _ordinals(self) -> npt.NDArray[np.int32]:
        """The ordinal among the children of each ordinal of the layout; -1 for the others."""
        numbers = {group: number for number, group in enumerate(self.groups)}
        size = self.layout.size
        found = (numbers.get(self.layout.group(ordinal), -1) for ordinal in range(size))
        return np.fromiter(found, np.int32, size)

    def __reduce__(self) -> tuple[type[Children], tuple[BucketLayout, tuple[FileGroupId, ...]]]:
        """Travel without what can be computed again."""
        return Children, (self.layout, self.groups)


def _outside(partition: str, key: str, groups: tuple[FileGroupId, ...]) -> CorruptTableError:
    names = ", ".join(group.file_id for group in groups[:3])
    return CorruptTableError(
        f"a bucket of partition {partition!r} cannot be resized",
        why=f"it holds the key {key:.100}, whose hash belongs to another bucket than those that"
        f" take its place ({names})",
        next_step="Find out which program wrote the row there; table.services.verify() names more."
        " Nothing was changed",
    )
