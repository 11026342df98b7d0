"""File groups of buckets, and the seed that opens each.

A table of logs and no base file has a weak spot in Hudi's readers: the oldest log opens the slice,
and while that log is pending the slice is invisible, committed logs and all. So before the first
write to a partition becomes visible, a *seed* does: a small commit of its own with an empty base
file for every bucket. From then on a pending log, however old, joins a slice that is visible.

Nothing may open a slice behind logs that were committed before it, or they would be hidden. Hence
a seed is written only for buckets that have no committed file, as seen *after* the seed's instant
began, and it completes only if no write to them completed since. Of two that race, one loses.

Which file group each bucket has is kept in an object beside the log, written once when the
partition is known to be complete; that spares every later write the listing of the partition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from pyhudi.commit.transaction import Transaction, preparing
from pyhudi.commit.validation import Checks
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    UnsupportedTableError,
)
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import BUCKET_COUNT
from pyhudi.format.table.table_config import TableConfig
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat
from pyhudi.index.layout import BucketLayout, SimpleLayout, SimpleRule
from pyhudi.index.routing import Routing
from pyhudi.index.simple_bucket import bucket_of_file
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import FileSlice
from pyhudi.table.snapshot import grouped_files, is_replaced, latest_slice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes, visible_now
from pyhudi.timeline.live import LiveTimeline
from pyhudi.write.files.base_file import write_seed
from pyhudi.write.files.spec import WriteSpec, create_partition_metadata

BUCKETS_FOLDER: Final = ".hoodie/.pyhudi/buckets"
SEED_OPERATION: Final = "BULK_INSERT"
#: Seeds lost to other seeds before something else must be wrong.
SEED_ATTEMPTS_MAX = 10
_GROUPS_BYTES_MAX = 64 << 20
_FILE_ID = re.compile(r"\d{8}-[0-9A-Za-z\-]+")

BeginSeed = Callable[[], Transaction]


class BucketGroups:
    """The layouts of partitions in which every bucket has a file group; seeded on demand."""

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        replaced: Callable[[LiveTimeline], frozenset[FileGroupId]],
    ) -> None:
        assert config.buckets is not None
        self._storage = storage
        self._rule = SimpleRule(config.buckets)
        self._count = config.buckets.count
        self._is_kept = BUCKET_COUNT in config.properties.values
        self._replaced = replaced
        self._known: dict[str, SimpleLayout] = {}

    def routing(self, partitions: Iterable[str]) -> Routing:
        """Return where rows of these partitions go, all of which were prepared."""
        return Routing(self._rule, {p: self._known[p] for p in partitions})

    def layouts(self, partitions: Iterable[str]) -> dict[str, BucketLayout]:
        """Return the layouts of those partitions that are known to be complete."""
        return {p: self._known[p] for p in partitions if p in self._known}

    def prepare(
        self,
        partitions: Iterable[str],
        live: Callable[[], LiveTimeline],
        begin: BeginSeed,
        spec: Callable[[str], WriteSpec],
        opened: Collection[FileGroupId] = (),
    ) -> None:
        """Make sure that every bucket of the partitions has a committed file group.

        Those of `opened` get their first base file from the caller's own write: a seed there
        would hide it.
        """
        wanted = list(dict.fromkeys(partitions))
        for partition in wanted:
            if partition not in self._known:
                self._load(partition)
        self._forget_replaced(live())
        unknown = [partition for partition in wanted if partition not in self._known]
        for _ in range(SEED_ATTEMPTS_MAX):
            found = {partition: self._found(partition, live()) for partition in unknown}
            missing = self._missing(found, opened)
            if not missing:
                break
            try:
                self._seed(missing, live, begin(), spec)
            except ConflictError:
                continue  # somebody else seeded one of them
        else:
            raise ConflictError(
                f"the partitions {', '.join(map(repr, unknown[:3]))} could not be prepared",
                why=f"other writers got in the way {SEED_ATTEMPTS_MAX} times",
                next_step="Write again",
            )
        for partition, groups in found.items():
            if len(groups) == self._count:
                self._keep(partition, groups)

    def _missing(
        self, found: Mapping[str, Mapping[int, str]], opened: Collection[FileGroupId]
    ) -> dict[str, list[int]]:
        """Partition → ordinals that have no committed file and get none from the caller."""
        missing: dict[str, list[int]] = {}
        for partition, groups in found.items():
            layout = self._rule.layout(partition)
            own = {layout.ordinal(g.file_id) for g in opened if g.partition == partition}
            lacking = [n for n in range(layout.size) if n not in groups and n not in own]
            if lacking:
                missing[partition] = lacking
        return missing

    def _seed(
        self,
        wanted: Mapping[str, Sequence[int]],
        live: Callable[[], LiveTimeline],
        transaction: Transaction,
        spec: Callable[[str], WriteSpec],
    ) -> None:
        try:
            write = spec(transaction.requested)
            metadata = self._seeds(wanted, live, write)
            with preparing(f"the partitions {', '.join(map(repr, list(wanted)[:3]))}"):
                transaction.complete(metadata, Checks(is_checked=True)).or_raise()
        except BaseException:
            transaction.abandon()
            raise

    def _seeds(
        self, wanted: Mapping[str, Sequence[int]], live: Callable[[], LiveTimeline], spec: WriteSpec
    ) -> CommitMetadata:
        """Write the empty base files that are missing."""
        stats: dict[str, tuple[WriteStat, ...]] = {}
        for partition, ordinals in wanted.items():
            found = self._found(partition, live())
            layout = self._rule.layout(partition)
            groups = [layout.group(ordinal) for ordinal in ordinals if ordinal not in found]
            if not groups:
                continue
            if hidden := self._replaced(live()).intersection(groups):
                raise replaced_for_good(hidden)
            create_partition_metadata(self._storage, partition, spec.requested)
            stats[partition] = tuple(write_seed(self._storage, spec, group) for group in groups)
        return CommitMetadata(
            partition_to_write_stats=stats,
            extra_metadata={"schema": spec.avro_schema, "pyhudi.seed": "true"},
            operation_type=SEED_OPERATION,
        )

    def _forget_replaced(self, live: LiveTimeline) -> None:
        """Another engine may have overwritten a partition: rows in a replaced group are hidden."""
        for group in self._replaced(live):
            layout = self._known.get(group.partition)
            if layout is not None and layout.has(group):
                del self._known[group.partition]
                self._storage.delete(_groups_path(group.partition))

    def _found(self, partition: str, live: LiveTimeline) -> dict[int, str]:
        """Ordinal → file id of the groups that have a committed file."""
        objects = self._storage.list_folder(partition).objects
        files = ((stat.path, stat.size) for stat in objects)
        replaced = self._replaced(live)
        layout = self._rule.layout(partition)
        found: dict[int, str] = {}
        for group in grouped_files(partition, files):
            if FileGroupId(partition, group.file_id) in replaced:
                continue
            if not any(live.is_committed(file.name.requested) for file in group.files):
                continue
            ordinal = layout.ordinal(group.file_id)
            if ordinal >= layout.size or found.setdefault(ordinal, group.file_id) != group.file_id:
                raise out_of_place(partition, group.file_id, layout.size)
        return found

    def are_closed(
        self, groups: Iterable[FileGroupId], live: LiveTimeline, *, opens_all: bool
    ) -> bool:
        """True if one of the buckets is without a file group for good (`replaced_for_good`).

        A write of logs `opens_all` buckets of its partitions, so there any of them counts.
        """
        wanted: dict[str, set[int]] = {}
        for group in groups:
            ordinal = self._rule.layout(group.partition).ordinal(group.file_id)
            wanted.setdefault(group.partition, set()).add(ordinal)
        replaced = self._replaced(live)
        for partition, own in wanted.items():
            layout = self._rule.layout(partition)
            ordinals = range(layout.size) if opens_all else own
            closed = {n for n in ordinals if layout.group(n) in replaced}
            if closed and closed - self._found(partition, live).keys():
                return True
        return False

    # -- the object that remembers

    def _load(self, partition: str) -> None:
        path = _groups_path(partition)
        try:
            data = self._storage.read(path, 0, _GROUPS_BYTES_MAX)
        except FileNotFoundError:
            return
        ids = _decode_groups(data, path)
        if len(ids) != self._count:
            raise self._other_count(len(ids), path)
        self._known[partition] = self._rule.layout_of(partition, ids)

    def _other_count(self, written: int, path: str) -> CorruptTableError:
        """With another number of buckets, known keys would get second rows in other buckets."""
        asked = f"{self._count} bucket{'s' if self._count > 1 else ''}"
        source = "hoodie.properties says" if self._is_kept else "this writer was opened with"
        back = f"Set {BUCKET_COUNT} back to" if self._is_kept else "Open the table with"
        return CorruptTableError(
            "the table has another number of buckets than it was written with",
            why=f"{source} {asked}, and the table was written with {written}",
            next_step=f"{back} {written}, and delete nothing: with another number, keys would be"
            " there twice. The number of buckets of a table cannot be changed",
            path=path,
        )

    def _keep(self, partition: str, groups: dict[int, str]) -> None:
        ids = tuple(groups[ordinal] for ordinal in range(self._count))
        self._known[partition] = self._rule.layout_of(partition, ids)
        self._storage.create(_groups_path(partition), json.dumps({"groups": ids}).encode())


def latest_slices(
    state: TableState, times: CompletionTimes, rule: SimpleRule
) -> dict[FileGroupId, FileSlice]:
    """Return each group's latest slice; CorruptTableError if two file groups share a bucket."""
    now = visible_now(state.timeline)
    slices: dict[FileGroupId, FileSlice] = {}
    taken: set[tuple[str, int]] = set()
    for group in state.groups():
        if is_replaced(group, state.replaced, now):
            continue
        found = latest_slice(group, times, now)
        if found is None:
            continue
        layout = rule.layout(group.partition)
        ordinal = layout.ordinal(group.file_id)
        if (group.partition, ordinal) in taken or ordinal >= layout.size:
            raise out_of_place(group.partition, group.file_id, layout.size)
        taken.add((group.partition, ordinal))
        slices[FileGroupId(group.partition, group.file_id)] = found
    return slices


def out_of_place(partition: str, file_id: str, count: int) -> CorruptTableError:
    return CorruptTableError(
        f"the file group {file_id} of partition {partition!r} is out of place",
        why=f"hoodie.properties, or this writer's buckets=, says {count} buckets, with one file"
        " group each",
        next_step=f"If that number was changed, set it back ({BUCKET_COUNT}). If it was not, find"
        " the writer that has another number, roll its write back with Apache Hudi, and write its"
        " rows again with this number",
    )


def replaced_for_good(groups: Iterable[FileGroupId]) -> UnsupportedTableError:
    group = min(groups)
    return UnsupportedTableError(
        f"bucket {group.file_id[:8]} of partition {group.partition!r} cannot be written",
        why="another engine replaced its file group, and Hudi's readers hide what is added to one",
        next_step="Write this partition with the engine that overwrote it",
    )


def _groups_path(partition: str) -> str:
    return (
        f"{BUCKETS_FOLDER}/{partition}/groups.json"
        if partition
        else (f"{BUCKETS_FOLDER}/groups.json")
    )


def _decode_groups(data: bytes, path: str) -> tuple[str, ...]:
    """The file id of each bucket, in order."""
    try:
        ids = tuple(json.loads(data)["groups"])
        if not all(isinstance(id_, str) and _FILE_ID.fullmatch(id_) for id_ in ids):
            raise ValueError("it names what is no file id")
        if not ids or [bucket_of_file(id_) for id_ in ids] != list(range(len(ids))):
            raise ValueError("it does not name buckets in order")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptTableError(
            "the file groups of a partition cannot be read",
            why=str(error),
            next_step="Restore the object from a copy of the table. Without one, make sure that"
            f" {BUCKET_COUNT} is the number with which the table was created, and delete the"
            " object: the next write makes it again",
            path=path,
        ) from None
    return ids
