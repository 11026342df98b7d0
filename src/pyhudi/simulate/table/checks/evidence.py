"""What the changes of the store prove about the timeline, the decision log and the data files.

Facts are taken from every change of the store, and from nothing that a writer claims: files that
are gone by the end, and log entries that were pruned, still count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pyhudi.conflict.file_groups import references_of, touched_groups
from pyhudi.format.files.file_names import (
    FileGroupId,
    LogFileName,
    MarkerName,
    parse_data_file,
)
from pyhudi.format.paths import file_name
from pyhudi.format.table.ring_file import (
    FIRST_INSTANT,
    RING_ROOT,
    Ring,
    RingFileName,
    decode_ring,
)
from pyhudi.format.timeline.commit_metadata import CommitMetadata, decode_commit_metadata
from pyhudi.format.timeline.decision_entry import Entry, EntryKind, decode_entry, parse_entry_path
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.format.timeline.markers import MARKER_ROOT, decode_marker_list, is_marker_list
from pyhudi.format.timeline.plan_files import (
    CompactionPlan,
    decode_cleaner_plan,
    decode_compaction_plan,
    decode_rollback_plan,
)
from pyhudi.format.timeline.resize_plan import ResizePlan, decode_resize_plan
from pyhudi.plan.resizing.copies import COPY_TOKEN
from pyhudi.simulate.table.checks.bucket_history import BucketHistory, DoneResize
from pyhudi.simulate.table.checks.change_log import Change, ChangeLogStorage
from pyhudi.simulate.table.rows import TableKind, decode_rows
from pyhudi.timeline.timeline import WRITE_ACTIONS

TIMELINE_FOLDER = ".hoodie/timeline"
HISTORY_FOLDER = f"{TIMELINE_FOLDER}/history"


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken, and by which instants."""

    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


@dataclass(frozen=True)
class Published:
    """A completed file appeared."""

    instant: Instant
    change: Change

    @property
    def requested(self) -> str:
        return self.instant.requested

    @property
    def completed(self) -> str:
        assert self.instant.completed is not None
        return self.instant.completed

    @cached_property
    def metadata(self) -> CommitMetadata:
        assert self.change.data is not None
        return decode_commit_metadata(self.change.data, self.change.path)

    @cached_property
    def groups(self) -> frozenset[FileGroupId]:
        return touched_groups(self.metadata)

    @cached_property
    def opened(self) -> frozenset[FileGroupId]:
        """The file groups of which it wrote a base file."""
        names = ((path, file_name(path)) for path in self.paths)
        return frozenset(group_of_path(path) for path, name in names if not name.startswith("."))

    @property
    def is_compaction(self) -> bool:
        return self.metadata.operation_type == "COMPACT"

    @property
    def is_resize(self) -> bool:
        return self.metadata.operation_type == "CLUSTER"

    @property
    def is_service(self) -> bool:
        """True if it brings neither rows nor a schema."""
        return self.is_compaction or self.is_resize

    @cached_property
    def paths(self) -> frozenset[str]:
        return frozenset(stat.data_path for stat in self.metadata.stats)

    @cached_property
    def row_paths(self) -> frozenset[str]:
        """The files with rows, and not those that refer to others."""
        stats = (stat for stat in self.metadata.stats if not stat.is_reference)
        return frozenset(stat.data_path for stat in stats)

    @cached_property
    def row_groups(self) -> frozenset[FileGroupId]:
        """What it touched, but for where it only refers to rows elsewhere."""
        return self.groups - references_of(self.metadata)


class Logged(NamedTuple):
    """An entry of the decision log appeared. A dead one took a number that had been pruned."""

    entry: Entry
    change: Change
    is_dead: bool


class Planned(NamedTuple):
    """A rollback of the target was planned on the timeline."""

    rollback: str
    target: str
    change: Change


class PlannedClean(NamedTuple):
    """A clean was planned on the timeline, and these files are to be removed."""

    requested: str
    paths: frozenset[str]
    place: int


class PlannedCompaction(NamedTuple):
    """A compaction was planned on the timeline."""

    requested: str
    plan: CompactionPlan
    place: int

    @property
    def paths(self) -> frozenset[str]:
        """The files that it reads."""
        operations = self.plan.operations or ()
        bases = {o.base_file_path for o in operations if o.base_file_path is not None}
        return frozenset(bases).union(*(o.log_file_paths for o in operations))

    @property
    def groups(self) -> frozenset[FileGroupId]:
        return frozenset(map(group_of_path, self.paths))


class PlannedResize(NamedTuple):
    """A resize was planned on the timeline."""

    requested: str
    plan: ResizePlan
    place: int

    @property
    def paths(self) -> frozenset[str]:
        """The files that it reads, but for those that it copies."""
        return frozenset(path for change in self.plan.groups for path in change.paths)

    @property
    def partitions(self) -> frozenset[str]:
        return frozenset(change.partition for change in self.plan.groups)


class RingPut(NamedTuple):
    """A ring appeared."""

    ring: Ring
    change: Change


class WrittenTwice(NamedTuple):
    """A log that a write has put into a child of a pending resize."""

    write: str
    name: LogFileName

    @property
    def resize(self) -> str:
        return self.name.requested


class Evidence:
    """The facts of one simulation."""

    def __init__(self, storage: ChangeLogStorage, kind: TableKind) -> None:
        self.storage = storage
        self.kind = kind
        self.changes: Sequence[Change] = storage.changes

    def created(self, folder: str) -> Iterator[Change]:
        """Yield objects of the folder that were put, each time they were."""
        start = f"{folder}/"
        for change in self.changes:
            if change.data is not None and change.path.startswith(start):
                yield change

    @cached_property
    def timeline(self) -> list[tuple[Instant, Change]]:
        """Timeline files in the order in which they appeared."""
        return [
            (Instant.parse(change.path[len(TIMELINE_FOLDER) + 1 :]), change)
            for change in self.created(TIMELINE_FOLDER)
            if not change.path.startswith(HISTORY_FOLDER)
        ]

    @cached_property
    def published(self) -> list[Published]:
        return [Published(i, c) for i, c in self.timeline if i.state is State.COMPLETED]

    @cached_property
    def writes(self) -> dict[str, Published]:
        """Requested time → the write that completed."""
        return {p.requested: p for p in self.published if p.instant.action in WRITE_ACTIONS}

    @cached_property
    def rollbacks(self) -> dict[str, Published]:
        """The rollback's own time → its completed file."""
        return {p.requested: p for p in self.published if p.instant.action is Action.ROLLBACK}

    @cached_property
    def plans(self) -> list[Planned]:
        found = []
        for instant, change in self.timeline:
            if instant.action is Action.ROLLBACK and instant.state is State.REQUESTED:
                assert change.data is not None
                named = decode_rollback_plan(change.data, change.path).instant_to_rollback
                assert named is not None
                found.append(Planned(instant.requested, named.commit_time, change))
        return found

    @cached_property
    def cleans(self) -> list[PlannedClean]:
        found = []
        for instant, change in self.timeline:
            if instant.action is Action.CLEAN and instant.state is State.REQUESTED:
                assert change.data is not None
                plan = decode_cleaner_plan(change.data, change.path)
                named = (plan.file_paths_to_be_deleted_per_partition or {}).values()
                start = len(self.storage.uri) + 1
                paths = frozenset((f.file_path or "")[start:] for files in named for f in files)
                found.append(PlannedClean(instant.requested, paths, change.place))
        return found

    @cached_property
    def compactions(self) -> list[PlannedCompaction]:
        """Each once: a cancelled one may be created again by a process that slept."""
        found: dict[str, PlannedCompaction] = {}
        for instant, change in self.timeline:
            is_plan = instant.action is Action.COMPACTION and instant.state is State.REQUESTED
            if is_plan and instant.requested not in found:
                assert change.data is not None
                plan = decode_compaction_plan(change.data, change.path)
                found[instant.requested] = PlannedCompaction(instant.requested, plan, change.place)
        return list(found.values())

    @cached_property
    def resizes(self) -> dict[str, PlannedResize]:
        """Requested time → the resize, whatever became of it."""
        found: dict[str, PlannedResize] = {}
        for instant, change in self.timeline:
            is_plan = instant.action is Action.CLUSTERING and instant.state is State.REQUESTED
            if is_plan and instant.requested not in found:
                assert change.data is not None
                plan = decode_resize_plan(change.data, change.path)
                assert plan is not None, "no actor clusters rows"
                found[instant.requested] = PlannedResize(instant.requested, plan, change.place)
        return found

    @cached_property
    def rings(self) -> list[RingPut]:
        """The rings in the order in which they appeared."""
        found = []
        for change in self.created(RING_ROOT):
            name = RingFileName.parse(file_name(change.path))
            if name is not None and not name.is_commit_mark:
                assert change.data is not None
                found.append(RingPut(decode_ring(change.data, change.path), change))
        return found

    @cached_property
    def buckets(self) -> BucketHistory:
        """Which file group each key had, as of which time."""
        rings: dict[str, dict[str, Ring]] = {}
        for put in self.rings:
            rings.setdefault(put.ring.instant, {})[put.ring.partition] = put.ring
        done = (
            DoneResize(r, self.writes[r].completed, resize.plan, rings.get(r, {}))
            for r, resize in self.resizes.items()
            if r in self.writes
        )
        return BucketHistory(rings.get(FIRST_INSTANT, {}).values(), done)

    def is_left(self, path: str, requested: str) -> bool:
        """True if a write that completed moved the rows of this file: its file group is gone."""
        group = group_of_path(path)
        return requested in self.writes and group in self.buckets.replaced

    def is_cleaned(self, path: str, place: int) -> bool:
        """True if a clean that was planned before that change names the file."""
        return any(clean.place < place and path in clean.paths for clean in self.cleans)

    @cached_property
    def log(self) -> list[Logged]:
        found = []
        highest = 0
        for change in self.changes:
            number = parse_entry_path(change.path)
            if number is None or change.data is None:
                continue
            entry = decode_entry(change.data, change.path)
            found.append(Logged(entry, change, is_dead=number <= highest))
            highest = max(highest, number)
        return found

    @cached_property
    def begun(self) -> dict[str, Logged]:
        """Instants that the log began and did not void, rollbacks left out."""
        live = [logged for logged in self.log if not logged.is_dead]
        voided = {logged.entry.voids for logged in live}
        return {
            logged.entry.instant or "": logged
            for logged in live
            if logged.entry.kind is EntryKind.BEGIN and logged.entry.n not in voided
        }

    @cached_property
    def decided(self) -> dict[str, int]:
        """Instant → the change at which its end was appended, either way."""
        found: dict[str, int] = {}
        for logged in self.log:
            entry = logged.entry
            if logged.is_dead or entry.kind not in (EntryKind.COMPLETE, EntryKind.ABORT):
                continue
            ended = entry.target.instant if entry.target is not None else entry.instant
            found.setdefault(ended or "", logged.change.place)
        return found

    @cached_property
    def undone_by_others(self) -> frozenset[str]:
        """Targets of rollbacks that a foreign engine planned or finished; it drops markers."""
        live = [logged.entry for logged in self.log if not logged.is_dead]
        times = {entry.time for entry in live}
        foreign = {r for r, done in self.rollbacks.items() if done.completed not in times}
        foreign |= {plan.rollback for plan in self.plans if plan.rollback not in times}
        return frozenset(plan.target for plan in self.plans if plan.rollback in foreign)

    @cached_property
    def data_files(self) -> list[tuple[str, Change]]:
        """(requested time of the instant that made it, change) of data files that were put or
        removed."""
        found = []
        for change in self.changes:
            if not change.path.startswith(".hoodie/"):
                name = parse_data_file(file_name(change.path))
                assert name is not None, change.path
                twice = self.twice.get(change.path)
                found.append((str(name.requested) if twice is None else twice.write, change))
        return found

    @cached_property
    def twice(self) -> dict[str, WrittenTwice]:
        """Path → the write that put its rows into a child of a pending resize, which names the
        file."""
        found = {}
        dual = {r for r, resize in self.resizes.items() if resize.plan.is_dual}
        for change in self.changes if dual else ():
            name = parse_data_file(file_name(change.path))
            if change.data is None or not isinstance(name, LogFileName):
                continue
            if name.requested in dual and name.write_token != COPY_TOKEN:
                [write] = {row.requested for row in decode_rows(change.data)}
                found[change.path] = WrittenTwice(write, name)
        return found

    @cached_property
    def markers(self) -> dict[str, list[tuple[int, MarkerName]]]:
        """Instant → its markers, objects of their own and those in lists, with their places."""
        found: dict[str, list[tuple[int, MarkerName]]] = {}
        for change in self.created(MARKER_ROOT):
            requested, _, path = change.path[len(MARKER_ROOT) + 1 :].partition("/")
            if is_marker_list(path):
                named = decode_marker_list(change.data or b"", change.path)
            else:
                named = tuple(filter(None, [MarkerName.parse(path)]))
            found.setdefault(requested, []).extend((change.place, marker) for marker in named)
        return found

    def announced(self, requested: str, place: int) -> frozenset[FileGroupId]:
        """Return the file groups of which the instant had announced a file before that change."""
        markers = self.markers.get(requested, ())
        return frozenset(marker.file_group for since, marker in markers if since < place)

    def paths_at(self, place: int, requested: str) -> set[str]:
        """Return data files of the instant that were there just before that change."""
        there: set[str] = set()
        for owner, change in self.data_files:
            if change.place >= place:
                break
            if owner == requested:
                (there.discard if change.data is None else there.add)(change.path)
        return there


def group_of_path(path: str) -> FileGroupId:
    """Return the file group that a data file belongs to."""
    partition, _, name = path.rpartition("/")
    parsed = parse_data_file(name)
    assert parsed is not None, path
    return FileGroupId(partition, parsed.file_id)
