"""Which file group does each bucket of a partition have, on a table of simple buckets?

The answer is kept in an object beside the decision log, written once when the partition is known
to be complete. That spares every later write the listing of the partition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.transaction import MigratingError
from pyhudi.errors import CorruptTableError, HudiError, UnsupportedTableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import BUCKET_COUNT, SimpleBuckets
from pyhudi.format.table.bucket_migration import is_outdated
from pyhudi.format.table.table_config import TableConfig
from pyhudi.index.layout import BucketLayout, SimpleLayout, SimpleRule
from pyhudi.index.routing import Routing
from pyhudi.index.simple_bucket import bucket_of_file
from pyhudi.read.load import load_config
from pyhudi.session.live_groups import committed_groups, live_slices, replaced_for_good
from pyhudi.session.replaced_groups import ReplacedGroups
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import FileSlice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes

BUCKETS_FOLDER: Final = ".hoodie/.pyhudi/buckets"
_GROUPS_BYTES_MAX = 64 << 20
_FILE_ID = re.compile(r"\d{8}-[0-9A-Za-z\-]+")


class SimpleGroups:
    """The layouts of partitions in which every bucket has a file group."""

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        log: DecisionLog,
        replaced: ReplacedGroups,
        *,
        knows_migration: bool = False,
    ) -> None:
        """`knows_migration`: partitions that have a ring by now are none of its concern."""
        self._storage = storage
        self._config = config
        self._log = log
        self._replaced = replaced
        self._known: dict[str, SimpleLayout] = {}
        self._looks_again = not knows_migration

    @property
    def rule(self) -> SimpleRule:
        """How partitions are laid out of which nothing else is known."""
        assert isinstance(self._config.buckets, SimpleBuckets)
        return SimpleRule(self._config.buckets)

    @property
    def count(self) -> int:
        return self.rule.buckets.count

    @property
    def names_are_known(self) -> bool:
        """Without other engines, every bucket has the file id that our writers give it."""
        is_recorded = BUCKET_COUNT in self._config.properties.values
        return is_recorded and not self._config.lock.is_shared

    def prepare(self, sizes: Mapping[str, float]) -> None:
        """Do nothing: the number of buckets does not depend on the rows."""

    def layout(self, partition: str) -> SimpleLayout:
        return self.rule.layout(partition)

    def routing_beside(
        self, groups: Iterable[FileGroupId], *, is_sent: bool, creates: bool
    ) -> Routing:
        return Routing(self.rule, self.rule.layouts_of(groups))

    def gathering(self, partitions: Iterable[str]) -> SimpleLayout:
        return self.rule.shared

    def ring(self, partition: str) -> None:
        return None

    def node(self, group: FileGroupId) -> None:
        return None

    def routing(self, partitions: Iterable[str]) -> Routing:
        """Return where rows of these partitions go, all of which are known to be complete."""
        return Routing(self.rule, {p: self._known[p] for p in partitions})

    def layouts(self, partitions: Iterable[str]) -> dict[str, BucketLayout]:
        """Return the layouts of those partitions that are known to be complete."""
        return {p: self._known[p] for p in partitions if p in self._known}

    def load(self, partitions: Collection[str]) -> list[str]:
        """Load what the table remembers; return the partitions that it does not know."""
        for partition in partitions:
            if partition not in self._known:
                self._load(partition)
        self._forget_replaced()
        return [partition for partition in partitions if partition not in self._known]

    def forget(self) -> None:
        """Forget the partitions that were loaded: what replaced their groups may be archived."""
        self._known.clear()

    def _load(self, partition: str) -> None:
        path = _groups_path(partition)
        try:
            data = self._storage.read(path, 0, _GROUPS_BYTES_MAX)
        except FileNotFoundError:
            return
        ids = _decode_groups(data, path)
        if len(ids) != self.rule.buckets.count:
            raise self._other_count(len(ids), path)
        self._known[partition] = self.rule.layout_of(partition, ids)

    def _forget_replaced(self) -> None:
        """Another engine may have overwritten a partition: rows in a replaced group are hidden."""
        for group in self._replaced.load():
            layout = self._known.get(group.partition)
            if layout is not None and layout.has(group):
                del self._known[group.partition]
                self._storage.delete(_groups_path(group.partition))

    def found(self, partition: str) -> dict[int, str]:
        """List the partition: ordinal → file id of the groups that have a committed file."""
        layout = self.rule.layout(partition)
        found: dict[int, str] = {}
        for file_id in committed_groups(self._storage, self._log, self._replaced, partition):
            ordinal = self._ordinal(layout, file_id)
            if ordinal >= layout.size or found.setdefault(ordinal, file_id) != file_id:
                raise out_of_place(partition, file_id, layout.size)
        return found

    def keep(self, partition: str, found: Mapping[int, str]) -> None:
        """Remember the file groups of a partition in which every bucket has one."""
        if len(found) < self.rule.buckets.count:
            return
        ids = tuple(found[ordinal] for ordinal in range(self.rule.buckets.count))
        self._known[partition] = self.rule.layout_of(partition, ids)
        self._storage.create(_groups_path(partition), json.dumps({"groups": ids}).encode())

    def has_replaced_bucket(self, groups: Iterable[FileGroupId], *, opens_all: bool) -> bool:
        """True if one of the buckets is without a file group for good (`replaced_for_good`).

        A write of logs `opens_all` buckets of its partitions, so there any of them counts.
        """
        wanted: dict[str, set[int]] = {}
        for group in groups:
            ordinal = self.rule.layout(group.partition).ordinal(group.file_id)
            wanted.setdefault(group.partition, set()).add(ordinal)
        hidden = self._replaced.load()
        for partition, own in wanted.items():
            layout = self.rule.layout(partition)
            ordinals = range(layout.size) if opens_all else own
            closed = {n for n in ordinals if layout.group(n) in hidden}
            if closed and closed - self.found(partition).keys():
                return True
        return False

    def latest_slices(
        self, state: TableState, times: CompletionTimes
    ) -> dict[FileGroupId, FileSlice]:
        """Return each group's latest slice.

        CorruptTableError if two file groups share a bucket.
        """
        slices = live_slices(state, times)
        taken: set[tuple[str, int]] = set()
        for group in slices:
            layout = self.rule.layout(group.partition)
            ordinal = self._ordinal(layout, group.file_id)
            if (group.partition, ordinal) in taken or ordinal >= layout.size:
                raise out_of_place(group.partition, group.file_id, layout.size)
            taken.add((group.partition, ordinal))
        return slices

    def _ordinal(self, layout: SimpleLayout, file_id: str) -> int:
        """Return the bucket of a file group; MigratingError if the partition has a ring by now."""
        try:
            return layout.ordinal(file_id)
        except UnsupportedTableError as error:
            raise self._migrated() or error from None

    def error_of_replaced(self, groups: Collection[FileGroupId]) -> HudiError:
        return self._migrated() or replaced_for_good(min(groups))

    def _migrated(self) -> MigratingError | None:
        """Return an error if the table is being migrated since it was opened."""
        if not self._looks_again:
            return None
        now = load_config(self._storage)
        if not is_outdated(self._config.buckets, now.buckets):
            return None
        return MigratingError(
            f"the table {now.name!r} has to be opened again",
            why="its buckets are being migrated since this process opened it",
            next_step="Write again",
        )

    def _other_count(self, written: int, path: str) -> CorruptTableError:
        """With another number of buckets, known keys would get second rows in other buckets."""
        count = self.rule.buckets.count
        is_recorded = BUCKET_COUNT in self._config.properties.values
        asked = f"{count} bucket{'s' if count > 1 else ''}"
        source = "hoodie.properties says" if is_recorded else "this writer was opened with"
        back = f"Set {BUCKET_COUNT} back to" if is_recorded else "Open the table with"
        return CorruptTableError(
            "the table has another number of buckets than it was written with",
            why=f"{source} {asked}, and the table was written with {written}",
            next_step=f"{back} {written}, and delete nothing: with another number, keys would be"
            " there twice. The number of buckets of a table cannot be changed",
            path=path,
        )


def out_of_place(partition: str, file_id: str, count: int) -> CorruptTableError:
    return CorruptTableError(
        f"the file group {file_id} of partition {partition!r} is out of place",
        why=f"hoodie.properties, or this writer's buckets=, says {count} buckets, with one file"
        " group each",
        next_step=f"If that number was changed, set it back ({BUCKET_COUNT}). If it was not, find"
        " the writer that has another number, roll its write back with Apache Hudi, and write its"
        " rows again with this number",
    )


def _groups_path(partition: str) -> str:
    folder = f"{BUCKETS_FOLDER}/{partition}" if partition else BUCKETS_FOLDER
    return f"{folder}/groups.json"


def _decode_groups(data: bytes, path: str) -> tuple[str, ...]:
    """Return the file id of each bucket, in order."""
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
