"""Which file groups has a partition, and which keys does each take?

A *layout* is a value that numbers the file groups of one partition. A group's number is its
*ordinal*, and `assign` gives each record key the ordinal of the group that takes it. Of simple
buckets the ordinal is the bucket; of a ring (`index.ring_layout`) it is the node.

Partitions of one table may have different layouts. A key is nevertheless hashed once for all of
them (`hashes`), and each layout finds the owner of a hash (`place`). Layouts of one `assignment`
agree about the owners, too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import SIMPLE, SimpleBuckets
from pyhudi.index.simple_bucket import bucket_number, bucket_of_file, file_id, key_hashes


class BucketLayout(Protocol):
    """The file groups of one partition, and the keys that each takes."""

    @property
    def partition(self) -> str: ...

    @property
    def size(self) -> int:
        """The number of file groups; their ordinals count from 0."""
        ...

    @property
    def assignment(self) -> Hashable:
        """Equal for two layouts if `assign` gives the same ordinals for all keys."""
        ...

    @property
    def hashing(self) -> Hashable:
        """Equal for two layouts if `hashes` gives the same hashes for all keys."""
        ...

    def hashes(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        """Return the hash of each record key."""
        ...

    def place(self, hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the ordinal of the group that takes each hash."""
        ...

    def assign(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        """Return the ordinal of the group that takes each record key."""
        ...

    def group(self, ordinal: int) -> FileGroupId: ...

    def ordinal(self, file_id: str) -> int | None:
        """Return the ordinal of a group, or of the one that stood in its place or will.

        None if no group of the layout takes its place.
        """
        ...

    def has(self, group: FileGroupId) -> bool:
        """True if it is one of the groups."""
        ...


class LayoutRule(Protocol):
    """How partitions are laid out of which nothing else is known."""

    @property
    def shared(self) -> BucketLayout | None:
        """A layout that assigns keys as those of all partitions do; None if they may differ."""
        ...

    def layout(self, partition: str, size: float = 0) -> BucketLayout:
        """Return the layout of a partition. If it has none yet, it gets one for `size` bytes."""
        ...


@dataclass(frozen=True, slots=True)
class SimpleLayout:
    """Simple buckets: one file group for each.

    Every writer of ours gives a bucket the same file id. `others` are the buckets whose first file
    Apache Hudi made, with an id of its own.

    >>> layout = SimpleLayout("d", SimpleBuckets(2, ("id",)), {1: "00000001-57eb-4d0f-a1b2-0"})
    >>> [layout.group(ordinal).file_id for ordinal in range(layout.size)]
    ['00000000-0000-0000-0000-000000000000-0', '00000001-57eb-4d0f-a1b2-0']
    """

    partition: str
    buckets: SimpleBuckets  # with every hash field named
    others: Mapping[int, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.buckets.count

    @property
    def assignment(self) -> SimpleBuckets:
        return self.buckets

    @property
    def hashing(self) -> tuple[str, ...]:
        return SIMPLE, *self.buckets.hash_fields

    def hashes(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        return key_hashes(keys, self.buckets.hash_fields)

    def place(self, hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        return hashes % np.int32(self.buckets.count)

    def assign(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        return self.place(self.hashes(keys))

    def group(self, ordinal: int) -> FileGroupId:
        return FileGroupId(self.partition, self.others.get(ordinal) or file_id(ordinal))

    def ordinal(self, file_id: str) -> int:
        return bucket_of_file(file_id)

    def has(self, group: FileGroupId) -> bool:
        bucket = bucket_number(group.file_id)
        return bucket is not None and bucket < self.size and self.group(bucket) == group


@dataclass(frozen=True, slots=True)
class SimpleRule:
    """Simple buckets in every partition, as many in each."""

    buckets: SimpleBuckets

    @property
    def shared(self) -> SimpleLayout:
        return SimpleLayout("", self.buckets)

    def layout(self, partition: str, size: float = 0) -> SimpleLayout:
        return SimpleLayout(partition, self.buckets)

    def layout_of(self, partition: str, file_ids: Iterable[str]) -> SimpleLayout:
        """Return the layout of a partition in which these file ids are taken."""
        found = ((bucket_of_file(id_), id_) for id_ in file_ids)
        others = {bucket: id_ for bucket, id_ in found if id_ != file_id(bucket)}
        return SimpleLayout(partition, self.buckets, others)

    def layouts_of(self, groups: Iterable[FileGroupId]) -> dict[str, BucketLayout]:
        """Return the layouts of the partitions in which these file groups make a difference."""
        taken: dict[str, list[str]] = {}
        for group in groups:
            taken.setdefault(group.partition, []).append(group.file_id)
        layouts = (self.layout_of(partition, ids) for partition, ids in taken.items())
        return {layout.partition: layout for layout in layouts if layout.others}
