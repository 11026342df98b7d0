"""Which file group does each bucket of a partition have, while simple buckets become rings?

A partition whose ring is in force has ring nodes. One with simple file groups has simple buckets
still. One with neither is new, and gets its first ring. It may get one because no simple file group
can be committed there any more: every process that completes a write knows of the migration by then
(`format.table.bucket_migration`).

The ring is asked first. It is there before the commit is visible that replaces the simple file
groups, so a partition whose ring is missing had its simple buckets at that moment. A partition is
looked at once, and again when one of its file groups was replaced, or instants were archived since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import replace

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.transaction import MigratingError
from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_migration import MigratingBuckets
from pyhudi.format.table.ring_file import Ring
from pyhudi.format.table.table_config import TableConfig
from pyhudi.index.layout import BucketLayout
from pyhudi.index.routing import Routing
from pyhudi.read.load import TableLoader
from pyhudi.session.live_groups import committed_groups, live_slices
from pyhudi.session.replaced_groups import ReplacedGroups, SeenGroups, seen_groups
from pyhudi.session.ring_groups import RingGroups, RingsOfWrite
from pyhudi.session.simple_groups import SimpleGroups
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import FileSlice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes


class MigratingGroups:
    """The layouts of partitions with simple buckets, and of those with rings."""

    count = None
    #: Whether a partition has simple file groups can only be looked up.
    names_are_known = False

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        loader: TableLoader,
        log: DecisionLog,
        replaced: ReplacedGroups,
    ) -> None:
        assert isinstance(config.buckets, MigratingBuckets)
        self._storage = storage
        self._log = log
        self._replaced = replaced
        self._is_announced = config.buckets.is_announced
        before = replace(config, buckets=config.buckets.before)
        after = replace(config, buckets=config.buckets.after)
        self._simple = SimpleGroups(storage, before, log, replaced, knows_migration=True)
        self._rings = RingGroups(storage, after, loader, log, replaced)
        self._are_simple: set[str] = set()
        self._seen = SeenGroups()

    # -- which kind

    def is_simple(self, partition: str) -> bool:
        """True if the partition has simple buckets; False if it has a ring, or is new."""
        self._forget_migrated()
        if partition in self._are_simple:
            return True
        if self._rings.ring(partition) is not None:
            return False
        groups = committed_groups(self._storage, self._log, self._replaced, partition)
        if next(iter(groups), None) is None:
            return False
        self._are_simple.add(partition)
        return True

    def _forget_migrated(self) -> None:
        """Forget partitions in which a file group was replaced since the last look."""
        seen = seen_groups(self._log, self._replaced)
        changed = seen.changed_since(self._seen)
        if changed is None:  # any partition may be a migrated one
            self._are_simple.clear()
            self._simple.forget()
        self._are_simple -= changed or frozenset()
        self._seen = seen

    def _sort_out(self, partitions: Set[str]) -> None:
        """Find out which of these partitions, all of which have file groups, have no ring."""
        unknown = partitions - self._are_simple
        if unknown - self._rings.pinned().keys():
            self._are_simple |= unknown - self._rings.pinned(anew=True).keys()

    def _of(self, partition: str) -> SimpleGroups | RingGroups:
        return self._simple if self.is_simple(partition) else self._rings

    def _split(self, partitions: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return the partitions with simple buckets, and the others."""
        given = list(partitions)
        simple = [partition for partition in given if self.is_simple(partition)]
        return simple, [partition for partition in given if partition not in self._are_simple]

    def _require_begun(self, partition: str) -> None:
        if self._is_announced and self._rings.ring(partition) is None:
            raise MigratingError(
                f"partition {partition!r} cannot be laid out yet",
                why="the migration of the table's buckets has just been announced",
                next_step="Repeat the call",
            )

    # -- what writes ask

    def prepare(self, sizes: Mapping[str, float]) -> None:
        _, others = self._split(sizes)
        for partition in others:
            self.layout(partition, sizes[partition])

    def load(self, partitions: Collection[str]) -> list[str]:
        simple, others = self._split(partitions)
        for partition in others:
            self._require_begun(partition)
        return [*self._simple.load(simple), *self._rings.load(others)]

    def layout(self, partition: str, size: float = 0) -> BucketLayout:
        if self.is_simple(partition):
            return self._simple.layout(partition)
        self._require_begun(partition)
        return self._rings.layout(partition, size)

    def existing(self, partition: str) -> BucketLayout:
        """Return the layout of a partition; where it has none, one that is not stored."""
        if self.is_simple(partition):
            return self._simple.layout(partition)
        return self._rings.existing(partition)

    def layouts(self, partitions: Iterable[str]) -> Mapping[str, BucketLayout]:
        simple, others = self._split(partitions)
        return {**self._simple.layouts(simple), **self._rings.layouts(others)}

    def routing(self, partitions: Iterable[str]) -> Routing:
        simple, others = self._split(partitions)
        layouts = self._simple.routing(simple).layouts
        return Routing(
            RingsOfWrite(self, creates=True), {**layouts, **self._rings.routing(others).layouts}
        )

    def routing_beside(
        self, groups: Iterable[FileGroupId], *, is_sent: bool, creates: bool
    ) -> Routing:
        """Return where rows go. A partition of these groups has a ring, or simple buckets."""
        given = list(groups)
        self._forget_migrated()
        self._sort_out({group.partition for group in given})
        taken: dict[str, list[str]] = {}
        for group in given:
            if group.partition in self._are_simple:
                taken.setdefault(group.partition, []).append(group.file_id)
        rule = self._simple.rule
        layouts = {partition: rule.layout_of(partition, ids) for partition, ids in taken.items()}
        if not is_sent:
            return Routing(RingsOfWrite(self, creates=creates), layouts)
        routing = self._rings.routing_beside((), is_sent=True, creates=creates)
        return replace(routing, layouts={**routing.layouts, **layouts})

    def gathering(self, partitions: Iterable[str]) -> BucketLayout:
        simple, others = self._split(partitions)
        if not simple:
            return self._rings.gathering(others)
        return self._rings.gathering(()) if others else self._simple.gathering(simple)

    def ring(self, partition: str) -> Ring | None:
        return None if self.is_simple(partition) else self._rings.ring(partition)

    def node(self, group: FileGroupId) -> int | None:
        return self._rings.node(group)

    def found(self, partition: str) -> dict[int, str]:
        return self._of(partition).found(partition)

    def keep(self, partition: str, found: Mapping[int, str]) -> None:
        self._of(partition).keep(partition, found)

    def latest_slices(
        self, state: TableState, times: CompletionTimes
    ) -> dict[FileGroupId, FileSlice]:
        return live_slices(state, times)

    def has_replaced_bucket(self, groups: Iterable[FileGroupId], *, opens_all: bool) -> bool:
        given = sorted(set(groups))
        simple, _ = self._split(sorted({group.partition for group in given}))
        of_simple = [group for group in given if group.partition in simple]
        of_rings = [group for group in given if group.partition not in simple]
        return self._simple.has_replaced_bucket(
            of_simple, opens_all=opens_all
        ) or self._rings.has_replaced_bucket(of_rings, opens_all=opens_all)

    def error_of_replaced(self, groups: Collection[FileGroupId]) -> HudiError:
        return self._of(min(groups).partition).error_of_replaced(groups)
