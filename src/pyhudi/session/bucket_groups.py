"""Which file group does each bucket of a partition have?

Two kinds of tables answer it differently, and everything that writes asks through this interface:
simple buckets name their file groups by number (`simple_groups`), consistent ones by the
partition's ring (`ring_groups`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.ring_file import Ring
from pyhudi.index.layout import BucketLayout
from pyhudi.index.routing import Routing
from pyhudi.table.file_group import FileSlice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes


class BucketGroups(Protocol):
    """The layouts of a table's partitions, as far as this process knows them.

    A partition is *complete* when every bucket of it has a committed file group.
    """

    @property
    def count(self) -> int | None:
        """The number of buckets of each partition; None on a table of rings."""
        ...

    @property
    def names_are_known(self) -> bool:
        """True if file ids follow from the layout, so that a write need not look at the table."""
        ...

    def prepare(self, sizes: Mapping[str, float]) -> None:
        """Lay out these partitions for a write that brings so many bytes to each."""
        ...

    def load(self, partitions: Collection[str]) -> list[str]:
        """Load what the table remembers; return the partitions not known to be complete."""
        ...

    def layout(self, partition: str) -> BucketLayout:
        """Return the layout of a partition, of which nothing else need be known."""
        ...

    def layouts(self, partitions: Iterable[str]) -> Mapping[str, BucketLayout]:
        """Return the layouts of those partitions that are known to be complete."""
        ...

    def routing(self, partitions: Iterable[str]) -> Routing:
        """Return where rows of these partitions go, all of which are known to be complete."""
        ...

    def routing_beside(
        self, groups: Iterable[FileGroupId], *, is_sent: bool, creates: bool
    ) -> Routing:
        """Return where rows go on a table that has these file groups.

        It `is_sent` if other processes use it. With `creates`, partitions that are new are laid
        out.
        """
        ...

    def gathering(self, partitions: Iterable[str]) -> BucketLayout:
        """Return a layout for keys whose partition is not known: one of these, or several.

        The keys of one file group, of whichever partition, are all in one group of this layout. No
        file is written by it.
        """
        ...

    def ring(self, partition: str) -> Ring | None:
        """Return the partition's ring; None if it has none yet, or the buckets are simple ones."""
        ...

    def node(self, group: FileGroupId) -> int | None:
        """Return the position of the group's node; None if it has none, or it is not known."""
        ...

    def found(self, partition: str) -> dict[int, str]:
        """List the partition: ordinal → file id of the groups that have a committed file."""
        ...

    def keep(self, partition: str, found: Mapping[int, str]) -> None:
        """Remember the file groups of a partition in which every bucket has one."""
        ...

    def latest_slices(
        self, state: TableState, times: CompletionTimes
    ) -> dict[FileGroupId, FileSlice]:
        """Return each group's latest slice, as far as writes may add to it."""
        ...

    def has_replaced_bucket(self, groups: Iterable[FileGroupId], *, opens_all: bool) -> bool:
        """True if one of the buckets is without a file group for good.

        A write of logs `opens_all` buckets of its partitions, so there any of them counts.
        """
        ...

    def error_of_replaced(self, groups: Collection[FileGroupId]) -> HudiError:
        """Return the error of a write into file groups that were replaced."""
        ...
