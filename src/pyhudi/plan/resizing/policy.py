"""When a bucket is too large or too small, and where a large one is cut.

A split policy sees one bucket at a time, with a sample of where its rows lie, and returns the
places to cut it at. `"middle"` cuts the range into parts of equal width, as RFC-42 begins with. It
reads little into the sample, so skewed buckets take several rounds. `"even"` cuts where the sample
says that equally many rows lie on both sides, so one round is usually enough.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from operator import index
from typing import Any, Final, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from pyhudi.errors import InvalidRequestError
from pyhudi.index.ring_changes import Arc, equal_points
from pyhudi.plan.policy_checks import require_number, require_whole, unusable, word_of

MIB: Final = 1 << 20
TARGET_BYTES_LEAST: Final = 4096
_TARGET_BYTES_SENSIBLE = MIB


@dataclass(frozen=True, slots=True, eq=False)
class SplitBucket:
    """A bucket that is to be split.

    It owns the places above `low`, up to and including `high`. Places are positions on the ring;
    of the first bucket of a ring that does not end at 2^31 - 1, those below zero stand for the
    positions 2^31 higher.
    """

    partition: str
    file_id: str
    low: int
    high: int
    bytes: int
    parts: int  # how many buckets it may become, at most
    places: npt.NDArray[np.int64]  # of a sample of its rows, ascending; may be empty


@runtime_checkable
class SplitPolicy(Protocol):
    """Where to cut a bucket."""

    def points(self, bucket: SplitBucket) -> Sequence[int]:
        """Return the last place of each new bucket but the one that ends at `high`.

        Each lies above `low` and below `high`, none comes twice, and there are fewer than `parts`.
        Without points the bucket stays as it is.
        """
        ...


class SplitAt(StrEnum):
    """The split policies that have a name."""

    MIDDLE = "middle"
    EVEN = "even"


class ResizeWrites(StrEnum):
    """What becomes of writes to a bucket while it is resized."""

    COPIED = "copied"  # the resize copies what completed, and later writers move their rows
    VIRTUAL = "virtual"  # writes that begin later put their rows into the new buckets at once


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizePolicy:
    """Which buckets to split and to merge, and how much at once."""

    target_bytes: int = 120 * MIB  # how large a bucket should be
    split_above: float = 2.0  # times the target
    merge_below: float = 0.2  # times the target
    split: str | SplitPolicy = SplitAt.MIDDLE
    bytes_max: int = 2048 * MIB  # of the buckets that one plan replaces; one change is always in
    buckets_max: int = 256  # that one plan replaces
    partitions_max: int = 16
    rest_seconds: float = 600  # between two resizes of one partition
    writes: str = ResizeWrites.COPIED
    #: What one plan reads at most. What is larger by itself is left to another process.
    input_bytes_max: int | None = None

    def __post_init__(self) -> None:
        self._check()
        if self.target_bytes < _TARGET_BYTES_SENSIBLE:
            warnings.warn(
                f"target_bytes={self.target_bytes} makes buckets smaller than 1 MiB: reading many"
                " small files costs more than their rows",
                stacklevel=3,
            )

    def _check(self) -> None:
        for name, least in _WHOLE.items():
            require_whole(name, getattr(self, name), least, _ADVICE)
        for name, (low, high) in _NUMBERS.items():
            require_number(name, getattr(self, name), low, high, _ADVICE)
        if isinstance(self.split, str):
            object.__setattr__(self, "split", word_of("split", self.split, SplitAt, _ADVICE))
        elif isinstance(self.split, type) or not isinstance(self.split, SplitPolicy):
            why = "a split policy has a method points(bucket)"
            raise unusable("split", self.split, why, _ADVICE)
        object.__setattr__(self, "writes", word_of("writes", self.writes, ResizeWrites, _ADVICE))
        if self.input_bytes_max is not None:
            require_whole("input_bytes_max", self.input_bytes_max, 0, _ADVICE)

    @classmethod
    def recorded(cls, values: Mapping[str, Any]) -> Self:
        """Return the policy of these settings. Who chose them has been warned of small buckets."""
        policy = cls.__new__(cls)
        policy._take(values)
        return policy

    def _take(self, values: Mapping[str, Any]) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, values.get(each.name, each.default))
        self._check()

    def within(self, input_bytes_max: int) -> Self:
        """Return the policy of a process that reads no more than this for one plan."""
        bounds = (n for n in (self.input_bytes_max, input_bytes_max) if n is not None)
        return self._with(input_bytes_max=min(bounds))

    def half_of(self, partitions: int, buckets: int) -> Self:
        """Return the policy of plans half as large as one of so many partitions and buckets.

        A partition rests after a resize, so its buckets stay together as long as they can.
        """
        if partitions > 1:
            return self._with(partitions_max=partitions // 2)
        return self._with(buckets_max=max(1, buckets // 2))

    def _with(self, **changed: int) -> Self:
        known = {each.name: getattr(self, each.name) for each in fields(self)}
        return self.recorded({**known, **changed})

    @property
    def split_bytes(self) -> float:
        """A bucket larger than this is split."""
        return self.target_bytes * self.split_above

    @property
    def merge_bytes(self) -> float:
        """A bucket smaller than this is merged with neighbours."""
        return self.target_bytes * self.merge_below


_ADVICE = "Change the resize policy"
#: The least value of each whole number, and the bounds of the others.
_WHOLE = {"target_bytes": TARGET_BYTES_LEAST, "bytes_max": 1, "buckets_max": 1, "partitions_max": 1}
_NUMBERS = {
    "split_above": (1, math.inf),
    "merge_below": (0, 1),
    "rest_seconds": (0, math.inf),
}


def split_points(split: str | SplitPolicy, bucket: SplitBucket) -> tuple[int, ...]:
    """Return where the policy cuts the bucket, in order.

    InvalidRequestError if a caller's policy returns places at which it cannot be cut.
    """
    arc = Arc(bucket.low, bucket.high)
    if split == SplitAt.EVEN and len(bucket.places):
        return _even_points(bucket.places, bucket.parts)
    if isinstance(split, str):
        return equal_points(arc, bucket.parts)
    returned = split.points(bucket)
    try:
        points = sorted(map(index, returned))
    except TypeError:
        raise _bad_points(bucket, returned, "they are not whole numbers") from None
    if any(not arc.low < point < arc.high for point in points):
        raise _bad_points(bucket, points, f"they must lie above {arc.low} and below {arc.high}")
    if len(set(points)) < len(points):
        raise _bad_points(bucket, points, "one comes twice")
    if len(points) >= bucket.parts:
        raise _bad_points(bucket, points, f"the bucket may become {bucket.parts} buckets at most")
    return tuple(points)


def _even_points(places: npt.NDArray[np.int64], parts: int) -> tuple[int, ...]:
    """Return the cuts that are nearest to equal shares of the sampled rows.

    A cut lies half-way between two sampled places. A place that many rows share is cut off on both
    sides, if its share is large enough.
    """
    values, counts = np.unique(places, return_counts=True)
    below = np.cumsum(counts)[:-1]  # rows up to each place at which a cut is possible
    if not len(below):
        return ()
    wanted = len(places) * np.arange(1, parts) / parts
    above = np.searchsorted(below, wanted)
    right, left = np.minimum(above, len(below) - 1), np.maximum(above - 1, 0)
    nearest = np.where(wanted - below[left] <= below[right] - wanted, left, right)
    cuts = np.unique(nearest)
    return tuple(((values[cuts] + values[cuts + 1]) // 2).tolist())


def _bad_points(bucket: SplitBucket, points: object, why: str) -> InvalidRequestError:
    shown = str(points)
    return InvalidRequestError(
        f"the split policy's points {shown[:200]} of bucket {bucket.file_id} in partition"
        f" {bucket.partition!r} cannot be used",
        why=why,
        next_step='Correct the split policy, or use "middle" or "even"',
    )
