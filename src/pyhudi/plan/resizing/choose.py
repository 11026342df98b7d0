"""Which buckets a resize splits and merges, and what it leaves alone.

Sizes decide. A bucket larger than `split_bytes` is split into as many as bring each near the
target. Neighbours that are all smaller than `merge_bytes` are merged, as long as they fit into the
target together, and never across the end of the ring. A merged bucket is therefore never so large
that it is split again, and since only what is above the target is split, nor are the buckets of a
split ever merged back as they were.

**What no split helps.** All rows of one hash value stay together. If what else a bucket holds is
less than a bucket that would be merged, cutting it off is of no use: the bucket is named and left
alone. Where rows lie is known from a sample, which is read only of buckets that are about to be
split. So planning is repeated: `plan_resize` says of which buckets it needs a sample
(`ResizePreview.unsampled`), and a bucket that turns out to be of one hash value makes room for
another.

**The limits of one plan** are those of RFC-42: by bytes first, then by buckets, then by partitions.
The largest buckets come first, and merges behind all splits. One change is always in, however
large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.ring_file import Ring
from pyhudi.index.ring_changes import RING_SIZE, Arc, arc_of
from pyhudi.plan.pending_plans import PendingPlans
from pyhudi.plan.resizing.changes import LeftAlone, ResizeChange, ResizePreview, all_left
from pyhudi.plan.resizing.policy import ResizePolicy, SplitBucket, split_points
from pyhudi.table.file_group import FileSlice
from pyhudi.timeline.instant_time import milliseconds_between, shifted_time
from pyhudi.wording import counted

#: Buckets that one bucket becomes at once. A resize holds one row group of each in memory, and each
#: write that completes beside it costs a file in each, which writers may have to wait for.
PARTS_MAX = 16

_FITS = "its size is within bounds"


class RingLimits(NamedTuple):
    """How few and how many buckets a partition may have."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class SizedPartition:
    """What planning knows of one partition."""

    ring: Ring
    slices: Mapping[str, FileSlice]  # the latest, by file id
    resized: str | None = None  # when its last resize completed


@dataclass(frozen=True)
class ResizeFacts:
    """What a resize is planned from."""

    partitions: Mapping[str, SizedPartition]
    plans: PendingPlans
    clusterings: Mapping[str, str]  # partition → the pending clustering or resize that is in it
    now: str  # by the timeline's clock
    broken: Mapping[FileGroupId, str] = field(default_factory=dict)  # what cannot be read, and why

    @cached_property
    def holder(self) -> Callable[[FileGroupId], str | None]:
        """Says which pending plan has a file group, or may have it."""
        return self.plans.holders()


#: Where a sample of the rows of some buckets lies: positions on the ring.
Samples = Mapping[FileGroupId, npt.NDArray[np.int64]]


def worst_partitions(sizes: Mapping[str, Iterable[int]], policy: ResizePolicy) -> list[str]:
    """Return the partitions whose buckets, by their sizes, may have to change, the worst first.

    Only there the ring is needed. Those with buckets to split come first, by the largest bucket,
    then those with most buckets to merge.
    """
    ranks: dict[str, tuple[int, int, str]] = {}
    for partition, found in sizes.items():
        small = largest = 0
        for size in found:
            small += size < policy.merge_bytes
            largest = max(largest, size)
        if largest > policy.split_bytes:
            ranks[partition] = 0, -largest, partition
        elif small > 1:
            ranks[partition] = 1, -small, partition
    return sorted(ranks, key=ranks.__getitem__)


def plan_resize(
    facts: ResizeFacts, policy: ResizePolicy, limits: RingLimits, samples: Samples
) -> ResizePreview:
    """Return what to split and merge, as far as the samples go."""
    options = (options_of(path, facts, policy, limits, samples) for path in facts.partitions)
    return chosen_of(options, policy)


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """What might be changed in one partition, and the buckets that cannot be."""

    changes: tuple[ResizeChange, ...]
    left: tuple[LeftAlone, ...]


def options_of(
    partition: str,
    facts: ResizeFacts,
    policy: ResizePolicy,
    limits: RingLimits,
    samples: Samples,
) -> PartitionOptions:
    """Return what the sizes call for in a partition, whatever else the plan has."""
    found = facts.partitions[partition]
    buckets = [_bucket(found, number) for number in range(len(found.ring.nodes))]
    why = _standstill(found, facts, policy)
    for bucket in buckets:
        if policy.merge_bytes <= bucket.bytes <= policy.split_bytes:
            bucket.stays(_FITS)
        elif why is not None:
            bucket.stays(why)
        elif (held := facts.holder(bucket.group)) is not None:
            bucket.stays(held)
        else:
            bucket.stays(facts.broken.get(bucket.group))
    splits = tuple(_splits(found, buckets, policy, limits, samples))
    grown = len(buckets) + sum(change.parts - 1 for change in splits)
    merges = _merges(found, buckets, policy, limits.least, spare=grown - limits.least)
    changes = (*splits, *merges)  # which also notes why buckets stay
    return PartitionOptions(
        changes,
        tuple(LeftAlone(b.group, b.bytes, b.why) for b in buckets if b.why is not None),
    )


def chosen_of(options: Iterable[PartitionOptions], policy: ResizePolicy) -> ResizePreview:
    """Return as much of the options as one plan may hold, the worst first."""
    given = list(options)
    changes = sorted((change for each in given for change in each.changes), key=_worst_first)
    chosen, beyond = _within(changes, policy)
    left = (alone for each in given for alone in each.left)
    return ResizePreview(tuple(chosen), (*left, *beyond))


@dataclass(slots=True)
class _Bucket:
    """A bucket while its partition is planned; `why` it stays, once that is known."""

    number: int
    group: FileGroupId
    bytes: int
    slice: FileSlice | None
    why: str | None = None

    def stays(self, why: str | None) -> bool:
        """Note why it stays, unless that is None; return whether it does."""
        self.why = why
        return why is not None


def _bucket(found: SizedPartition, number: int) -> _Bucket:
    file_id = found.ring.nodes[number].file_id
    slice_ = found.slices.get(file_id)
    size = 0 if slice_ is None else slice_.bytes
    return _Bucket(number, FileGroupId(found.ring.partition, file_id), size, slice_)


def _standstill(found: SizedPartition, facts: ResizeFacts, policy: ResizePolicy) -> str | None:
    """Return why no bucket of the partition may change now; None if they may.

    The ring that a resize leaves says that each of its buckets has a file, so each must have one.
    """
    if plan := facts.clusterings.get(found.ring.partition):
        return in_partition(plan)
    bare = (node.file_id for node in found.ring.nodes if node.file_id not in found.slices)
    if (first := next(bare, None)) is not None:
        return f"bucket {first} of its partition has no file yet; the next write makes one"
    if found.resized is None:
        return None
    rest_ms = math.ceil(policy.rest_seconds * 1000)
    if milliseconds_between(found.resized, facts.now) >= rest_ms:
        return None
    until = shifted_time(found.resized, rest_ms)
    return f"its partition was resized at {found.resized}, and rests until {until}"


def in_partition(plan: str) -> str:
    return f"the pending plan {plan} is in its partition"


def _splits(
    found: SizedPartition,
    buckets: Iterable[_Bucket],
    policy: ResizePolicy,
    limits: RingLimits,
    samples: Samples,
) -> Iterator[ResizeChange]:
    """Yield the splits of a partition, as many as the ring has room for, the largest first."""
    large = [b for b in buckets if b.why is None and b.bytes > policy.split_bytes]
    room = limits.most - len(found.ring.nodes)
    for bucket in sorted(large, key=lambda bucket: -bucket.bytes):
        arc = arc_of(found.ring, bucket.number)
        sample = samples.get(bucket.group)
        places = None if sample is None else places_on(arc, sample)
        why = _indivisible(bucket, arc, places, policy)
        if why is None and room < 1:
            why = f"its partition may have {counted(limits.most, 'bucket')} at most"
        if bucket.stays(why):
            continue
        parts = min(math.ceil(bucket.bytes / policy.target_bytes), PARTS_MAX, room + 1, arc.width)
        assert bucket.slice is not None
        numbers = range(bucket.number, bucket.number + 1)
        change = ResizeChange(found.ring, numbers, (bucket.slice,), parts, None)
        if places is not None:
            change = _cut(change, arc, places, policy)
        if change.points == ():
            bucket.stays("its split policy returns no point")
            continue
        room -= change.parts - 1
        yield change


def _cut(
    change: ResizeChange, arc: Arc, places: npt.NDArray[np.int64], policy: ResizePolicy
) -> ResizeChange:
    """Return the split with its points."""
    group = change.inputs[0]
    points = split_points(
        policy.split,
        SplitBucket(
            change.partition, group.file_id, *arc, change.bytes, change.parts, np.sort(places)
        ),
    )
    return replace(change, points=points, parts=len(points) + 1)


def places_on(arc: Arc, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return positions as places on an arc; those that are not on it are left out.

    >>> places_on(Arc(-8, 4), np.array([3, 2**31 - 2, 100])).tolist()
    [3, -2]
    """
    places = np.where(positions > arc.high, positions - RING_SIZE, positions)
    return places[places > arc.low]


def _indivisible(
    bucket: _Bucket, arc: Arc, places: npt.NDArray[np.int64] | None, policy: ResizePolicy
) -> str | None:
    """Return why no split would help; None if one would, or that is not known yet."""
    if arc.width == 1:
        return f"its range is too narrow: it is the one hash value {arc.high}"
    if places is None or not len(places):
        return None
    values, counts = np.unique(places, return_counts=True)
    most = int(np.argmax(counts))
    hot = int(values[most]) % RING_SIZE
    if len(values) == 1:
        return f"its rows have one hash value, {hot}"
    rest = 1 - float(counts[most]) / len(places)
    if bucket.bytes * rest < policy.merge_bytes:
        return f"nearly all of its rows have one hash value, {hot}"
    return None


def _merges(
    found: SizedPartition,
    buckets: Sequence[_Bucket],
    policy: ResizePolicy,
    least: int,
    spare: int,
) -> Iterator[ResizeChange]:
    """Yield the merges of a partition, as many as leave it enough buckets."""
    for run in _small_runs(buckets, policy):
        if len(run) == 1:
            run[0].stays("no small neighbour fits into one bucket with it")
            continue
        if policy.buckets_max < 2:
            _leave(run, f"buckets_max={policy.buckets_max} lets no two buckets merge")
            continue
        if spare < 1:
            _leave(run, f"its partition has {counted(least, 'bucket')} at least")
            continue
        size = min(len(run), spare + 1, policy.buckets_max)
        chosen, rest = run[:size], run[size:]
        _leave(rest, "it is left to the next plan")
        spare -= size - 1
        numbers = range(chosen[0].number, chosen[-1].number + 1)
        slices = tuple(b.slice for b in chosen if b.slice is not None)
        yield ResizeChange(found.ring, numbers, slices, 1)


def _leave(buckets: Iterable[_Bucket], why: str) -> None:
    for bucket in buckets:
        bucket.stays(why)


def _small_runs(buckets: Iterable[_Bucket], policy: ResizePolicy) -> Iterator[list[_Bucket]]:
    """Yield runs of small neighbours, each as long as it fits into the target."""
    run: list[_Bucket] = []
    total = 0
    for bucket in buckets:
        is_small = bucket.why is None and bucket.bytes < policy.merge_bytes
        if run and (not is_small or total + bucket.bytes > policy.target_bytes):
            yield run
            run, total = [], 0
        if is_small:
            run.append(bucket)
            total += bucket.bytes
    if run:
        yield run


def _worst_first(change: ResizeChange) -> tuple[bool, int, int, str, int]:
    """Return the sort key: splits by size, then merges by how many buckets they save."""
    by = -change.bytes if change.is_split else change.bytes
    return not change.is_split, -len(change.nodes), by, change.partition, change.nodes.start


def _within(
    changes: Iterable[ResizeChange], policy: ResizePolicy
) -> tuple[list[ResizeChange], list[LeftAlone]]:
    """Return the changes that one plan may hold, and the buckets of the others."""
    chosen: list[ResizeChange] = []
    left: list[LeftAlone] = []
    rewritten = buckets = 0
    partitions: set[str] = set()
    for change in changes:
        is_new = change.partition not in partitions
        bound = policy.input_bytes_max
        if bound is not None and rewritten + change.bytes > bound:
            why = f"with it the plan reads more than input_bytes_max={bound:,}"
            left += all_left(change, why, is_too_much=change.bytes > bound)
        elif chosen and rewritten + change.bytes > policy.bytes_max:
            left += all_left(change, f"with it the plan exceeds bytes_max={policy.bytes_max:,}")
        elif buckets + len(change.nodes) > policy.buckets_max:
            left += all_left(change, f"with it the plan exceeds buckets_max={policy.buckets_max}")
        elif is_new and len(partitions) == policy.partitions_max:
            why = f"the plan has partitions_max={policy.partitions_max} other partitions"
            left += all_left(change, why)
        else:
            is_huge = change.bytes > policy.bytes_max
            note = f"; bytes_max={policy.bytes_max:,} cannot be kept" if is_huge else ""
            chosen.append(replace(change, note=note))
            rewritten += change.bytes
            buckets += len(change.nodes)
            partitions.add(change.partition)
    return chosen, left
