"""The buckets of a table that does not record them, inferred from a few of its keys.

`index.bucket_inference` says what keys can show. Here the keys are chosen and read. Any keys will
do, so those that cost least are taken: the first rows of base files, and of a slice without them
the smallest log files. It begins with the largest slice of a few buckets, which is sure to have
rows, and takes more until one number of buckets is left, or enough was read to see that none will
be.

Rings of consistent buckets are there to be read. What they do not tell is which columns are hashed;
that, too, a few keys show.

If a number is not certain, the caller has to pass it. Writers that disagree on it would put one key
into two file groups, and nothing could detect that later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final

import pyarrow as pa

from pyhudi.errors import CorruptTableError, InvalidRequestError, UnsupportedTableError
from pyhudi.format.avro.container import CONTAINER_BYTES_MAX
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import (
    BUCKET_COUNT,
    Buckets,
    ConsistentBuckets,
    SimpleBuckets,
)
from pyhudi.format.table.ring_file import RING_ROOT, Ring
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.format.timeline.plan_files import decode_requested_replace
from pyhudi.index.bucket_inference import NoSimpleBuckets, PossibleCounts, possible_counts
from pyhudi.index.ring_layout import RingLayout
from pyhudi.index.simple_bucket import bucket_number
from pyhudi.plan.scan import ReadSpec, ScanPlan, SliceRead, Split
from pyhudi.read.load import TableLoader
from pyhudi.read.plan import Now, Question, Reader
from pyhudi.read.rings import Rings, known_by
from pyhudi.read.slice import read_split
from pyhudi.storage.objects.rings import load_all_ring_files
from pyhudi.storage.protocol import Storage
from pyhudi.table.schema import RECORD_KEY
from pyhudi.table.state import TableState

BUCKET_INDEX: Final = ".hoodie/.bucket_index"
#: The folder there of an index with a number of buckets for each partition.
_BY_PARTITION: Final = f"{BUCKET_INDEX}/partition_bucket_index_meta"

#: Slices whose keys are read before their first evaluation; then as many again.
SLICES_FIRST = 4
SLICES_MAX = 64
KEYS_PER_SLICE = 512
#: A larger number of buckets is not inferred from a few keys: each bucket is a file to write.
COUNT_MAX = 100_000
#: If a record key has more fields, not every choice of them is tried.
_FIELDS_MAX = 5
_SHOWN_MAX = 5

_USE_HUDI = "Write it with Apache Hudi; pyhudi can read it as before"

_Keys = Mapping[FileGroupId, pa.Array]


def found_buckets(loader: TableLoader) -> Buckets:
    """Return the table's buckets, with every hashed column named.

    UnsupportedTableError if it has no buckets that pyhudi writes, InvalidRequestError if their
    number is not certain.
    """
    name = loader.config.name
    has_rings = is_laid_out_by_rings(loader.storage, name)
    state = loader.load()
    plan = Reader(loader).plan_snapshot(state, Now(), Question((RECORD_KEY,)))
    if has_rings:
        return _consistent_buckets(loader, state, plan)
    groups = [_group(read) for read in plan.reads]
    fits = _fits(name, groups, {}, loader.config.record_key_fields)  # names alone may rule them out
    has_keys = False
    for keys in _samples(loader.storage, plan):
        fits = _fits(name, groups, keys, loader.config.record_key_fields)
        has_keys = any(map(len, keys.values()))
        if (settled := _settled(fits)) is not None:
            return settled
    raise _asking(name, fits, has_keys=has_keys)


def is_laid_out_by_rings(storage: Storage, name: str) -> bool:
    """True if partitions of the table have rings; raise if they have other counts of buckets."""
    folders = storage.list_folder(BUCKET_INDEX).folders
    if _BY_PARTITION in folders:
        raise UnsupportedTableError(
            f"the table {name!r} cannot be written",
            why="its partitions have different numbers of buckets, by rules that Hudi keeps for"
            " each of them",
            next_step=_USE_HUDI,
        )
    return RING_ROOT in folders


def refuse_other_kind(loader: TableLoader, given: Buckets) -> None:
    """Raise InvalidRequestError if a table that records no buckets has those of the other kind."""
    config, storage = loader.config, loader.storage
    has_rings = is_laid_out_by_rings(storage, config.name)
    asks_rings = isinstance(given, ConsistentBuckets)
    if has_rings == asks_rings or (asks_rings and not any(loader.load().groups())):
        return
    there = "consistent" if has_rings else "simple"
    raise InvalidRequestError(
        f"buckets={given!r:.100} cannot be used with this table",
        why=f"the table {config.name!r} has {there} buckets: its partitions"
        f" {'have' if has_rings else 'have no'} rings",
        next_step="Leave buckets out",
    )


# ---- rings


def _consistent_buckets(
    loader: TableLoader, state: TableState, plan: ScanPlan
) -> ConsistentBuckets:
    """Return consistent buckets that fit: rings tell their first number, keys what is hashed."""
    name = loader.config.name
    for one in state.timeline.pending:
        if one.action is Action.CLUSTERING:
            _refuse_unreadable(loader, one.in_state(State.REQUESTED))
    rings = Rings(loader.storage, loader.history, known_by(state))
    loaded = {p: rings.load(p) for p in load_all_ring_files(loader.storage)}
    by_partition = {p: found.ring for p, found in loaded.items() if found is not None}
    counts = {ring.first_bucket_count for ring in by_partition.values()}
    choices = list(_hash_field_choices(loader.config.record_key_fields))
    for keys in _samples(loader.storage, plan):
        choices = [some for some in choices if _all_fit(keys, by_partition, some)]
        if not choices:
            raise UnsupportedTableError(
                f"the table {name!r} cannot be written",
                why="keys of it are not where its rings put them",
                next_step=_USE_HUDI,
            )
        if len(choices) == 1 and any(map(len, keys.values())):
            break
    if len(choices) > 1 and len(loader.config.record_key_fields) > 1:
        raise InvalidRequestError(
            f"the table {name!r} cannot be written yet",
            why=f"its keys fit {len(choices)} choices of columns to hash",
            next_step="Open it with buckets=pyhudi.ConsistentBuckets(hash_fields=(...)), exactly as"
            " its writers have them",
        )
    initial = max(counts, default=0)
    if not initial:
        return ConsistentBuckets(hash_fields=choices[0])
    return ConsistentBuckets(initial, max=max(4096, initial), hash_fields=choices[0])


def _refuse_unreadable(loader: TableLoader, plan: Instant) -> None:
    """Raise CorruptTableError if the plan of a pending clustering cannot be read."""
    path = f"{loader.timeline_folder}/{plan.file_name}"
    try:
        data = loader.storage.read(path, 0, CONTAINER_BYTES_MAX + 1)
        decode_requested_replace(data, path)
    except FileNotFoundError:
        return
    except CorruptTableError as error:
        raise _unknown_planner(loader.config.name, plan, error) from None


def _unknown_planner(name: str, plan: Instant, error: CorruptTableError) -> CorruptTableError:
    return CorruptTableError(
        f"the table {name!r} cannot be written yet, because of the pending clustering"
        f" {plan.requested}",
        why="its plan cannot be read, so it is not known whether Apache Hudi is resizing buckets:"
        f" {error.why}",
        next_step="If Hudi planned it, let Hudi cancel it. If pyhudi did, open the table with"
        " buckets=pyhudi.ConsistentBuckets(...), as its writers have them, and call"
        f" table.services.cancel_resize({plan.requested!r})",
        path=error.path,
    )


def _all_fit(keys: _Keys, rings: Mapping[str, Ring], some: Sequence[str]) -> bool:
    """True if all keys lie with their owner if these columns are hashed."""
    for group, found in keys.items():
        ring = rings.get(group.partition)
        layout = None if ring is None else RingLayout(ring, tuple(some))
        ordinal = None if layout is None else layout.ordinal(group.file_id)
        if layout is None or ordinal is None:
            return False
        if (layout.assign(found.drop_null()) != ordinal).any():
            return False
    return True


# ---- keys


def _group(read: SliceRead) -> FileGroupId:
    return FileGroupId(read.slice.partition, read.slice.file_id)


def _samples(storage: Storage, plan: ScanPlan) -> Iterator[dict[FileGroupId, pa.Array]]:
    """Yield the keys of a few slices, then of more and more."""
    keys: dict[FileGroupId, pa.Array] = {}
    chosen = _chosen(plan.reads)
    size = SLICES_FIRST
    while len(keys) < len(chosen):
        for read in chosen[len(keys) : size]:
            keys[_group(read)] = _some_keys(storage, plan.spec, read)
        yield keys
        size *= 2


def _chosen(reads: Sequence[SliceRead]) -> list[SliceRead]:
    """Return the largest slice of every bucket, then the second largest, up to the limit."""
    seen: dict[int | None, int] = {}
    ranked = []
    for read in sorted(reads, key=lambda read: -read.slice.bytes):
        bucket = bucket_number(read.slice.file_id)
        seen[bucket] = seen.get(bucket, 0) + 1
        ranked.append((seen[bucket], read))
    ranked.sort(key=lambda pair: pair[0])
    return [read for _, read in ranked[:SLICES_MAX]]


def _some_keys(storage: Storage, spec: ReadSpec, read: SliceRead) -> pa.Array:
    """Return keys of the slice's first file that has some; a later log may delete them."""
    slice_ = read.slice
    logs = sorted(slice_.logs, key=lambda log: log.size)
    parts = [slice_._replace(logs=())] if slice_.base else []
    parts += [slice_._replace(base=None, logs=(log,)) for log in logs]
    for part in parts:
        for batch in read_split(storage, spec, Split((replace(read, slice=part),))):
            return batch.column(RECORD_KEY)[:KEYS_PER_SLICE]
    return pa.array([], pa.string())


# ---- answers


def _fits(
    name: str, groups: Sequence[FileGroupId], keys: _Keys, fields: Sequence[str]
) -> dict[tuple[str, ...], PossibleCounts]:
    """Return hash fields → the possible numbers of buckets. Hudi's default, the whole key, is
    first.

    UnsupportedTableError with the reason for the whole key if nothing fits.
    """
    found = {some: possible_counts(groups, keys, some) for some in _hash_field_choices(fields)}
    fits = {some: counts for some, counts in found.items() if isinstance(counts, PossibleCounts)}
    whole = found[tuple(fields)]
    if not fits and isinstance(whole, NoSimpleBuckets):
        kind = "it has no simple buckets" if whole.is_numbered else "it is not a bucket table"
        raise UnsupportedTableError(
            f"the table {name!r} cannot be written",
            why=f"{kind}: {whole.why}",
            next_step=_USE_HUDI,
        )
    return fits


def _hash_field_choices(fields: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the choices of fields: a writer may hash fewer fields than the whole key."""
    yield tuple(fields)
    if len(fields) <= _FIELDS_MAX:
        for size in range(len(fields) - 1, 0, -1):
            yield from combinations(fields, size)


def _settled(fits: Mapping[tuple[str, ...], PossibleCounts]) -> SimpleBuckets | None:
    """Return the answer, if there is only one. With one bucket, what is hashed does not matter."""
    some, found = next(iter(fits.items()))
    is_one = all(counts.only == 1 for counts in fits.values())
    if found.only is None or found.only > COUNT_MAX or (len(fits) > 1 and not is_one):
        return None
    return SimpleBuckets(found.only, some)


def _asking(
    name: str, fits: Mapping[tuple[str, ...], PossibleCounts], *, has_keys: bool
) -> InvalidRequestError:
    if not has_keys:
        doubt = "no rows from which to infer it"
    elif len(fits) == 1:
        (found,) = fits.values()
        doubt = f"its keys fit {_shown(found)}"
    else:
        shown = [f"{_shown(found)} by {', '.join(some)}" for some, found in fits.items()]
        doubt = f"its keys fit {'; '.join(shown[:_SHOWN_MAX])}"
    given = "n" if len(fits) == 1 else "n, hash_fields=(...)"
    return InvalidRequestError(
        f"the table {name!r} cannot be written yet",
        why=f"its number of buckets is not recorded, and {doubt}",
        next_step=f"Open it with buckets=pyhudi.SimpleBuckets({given}), exactly as its writers have"
        f" it ({BUCKET_COUNT}): with another number, keys would be there twice",
    )


def _shown(found: PossibleCounts) -> str:
    if found.counts is None:
        return f"any number from {found.least} on"
    shown = [str(count) for count in found.counts[:_SHOWN_MAX]]
    if len(found.counts) > _SHOWN_MAX:
        shown.append(f"{len(found.counts) - _SHOWN_MAX} other numbers")
    return " or ".join(shown)
