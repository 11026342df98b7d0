"""Loading a table, whole or refreshed: storage in, `TableState` out.

Opening lists the timeline folder and the data files once. A refresh lists the timeline only from
where something can be new (the oldest instant that was pending, or a little before the newest one,
for clocks that disagree) and then only the partitions that new instants touched. If anything is new
there, the older part is listed too: instants of any age are archived, and savepoints of any age are
made and removed. Instants that undo others (rollback, restore) make it load everything again; they
are rare.

The timeline is read before the files: files that appear in between belong to instants the timeline
does not have yet, and stay invisible. Then the end of the timeline is listed once more. Together
the two listings give a cut, the state as of one completion time, however many writes complete and
however many files are removed meanwhile (`timeline.cut`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TypeAlias

from pyhudi.errors import (
    CorruptTableError,
    TableNotFoundError,
    UnavailableError,
    UnsupportedTableError,
)
from pyhudi.format.paths import file_name, table_folder
from pyhudi.format.table.properties import (
    PROPERTIES_BYTES_MAX,
    decode_table_properties,
    recovered_properties,
)
from pyhudi.format.table.table_config import TableConfig, unsupported_features
from pyhudi.format.timeline.commit_metadata import CommitMetadata
from pyhudi.format.timeline.instant import Action, Instant, State, is_timeline_file
from pyhudi.format.timeline.service_metadata import CLEAN
from pyhudi.plan.retention import CleanBound, preserves_state
from pyhudi.read.archive import History, as_instant
from pyhudi.read.clean_bounds import load_clean_bound
from pyhudi.read.empty_table import is_begun_now
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.storage.objects.timeline_listing import is_torn_by_archiving, list_whole_timeline
from pyhudi.storage.protocol import ObjectStat, Storage
from pyhudi.table.committed_files import CommittedFile, committed_files
from pyhudi.table.file_group import FileGroupFiles
from pyhudi.table.file_slices import grouped_files, with_files
from pyhudi.table.state import TableState
from pyhudi.timeline.cut import (
    at_cut,
    cleans_beyond,
    cut_time,
    is_archived_since,
    is_rolled_back,
    shared_writes,
)
from pyhudi.timeline.timeline import WRITE_ACTIONS, Timeline, without_orphaned_inflights

HOODIE = ".hoodie"
PROPERTIES = f"{HOODIE}/hoodie.properties"
PROPERTIES_BACKUP = f"{HOODIE}/hoodie.properties.backup"

#: How far back in time a new instant may be requested: clocks differ, and a timeline in local time
#: repeats an hour in autumn.
CLOCK_DIFFERENCE = timedelta(hours=2)
#: How many cuts of a table cleans or restores may remove before that is an error.
LOAD_ATTEMPTS_MAX = 10

Replaced: TypeAlias = Mapping[tuple[str, str], frozenset[str]]

#: Metadata of completed instants that one table caches, so that it can stay open for months.
METADATA_KEPT_MAX = 1_000

#: Instants whose completion only changes files in the partitions that their metadata names.
_LOCAL_ACTIONS = WRITE_ACTIONS | {Action.CLEAN}
#: Instants that leave data files as they are.
_HARMLESS_ACTIONS = frozenset({Action.SAVEPOINT, Action.INDEXING, Action.SCHEMACOMMIT})


def is_table(storage: Storage) -> bool:
    return any(storage.stat(path) is not None for path in (PROPERTIES, PROPERTIES_BACKUP))


def load_config(storage: Storage) -> TableConfig:
    """Return the table's properties, or raise if it cannot be read."""
    main, backup = _read_or_none(storage, PROPERTIES), None
    if main is None:
        backup = _read_or_none(storage, PROPERTIES_BACKUP)
        if backup is None:  # perhaps a rewrite was finished between the two reads
            main = _read_or_none(storage, PROPERTIES)
    if main is None and backup is None:
        raise TableNotFoundError(
            f"there is no Hudi table at {storage.uri}",
            why=f"{PROPERTIES} does not exist there",
            next_step="Check the path, or create the table first",
        )
    try:
        data = recovered_properties(main, backup)
    except CorruptTableError:
        # A writer that is rewriting the file leaves the backup beside it.
        data = recovered_properties(main, _read_or_none(storage, PROPERTIES_BACKUP))
    config = TableConfig.of(decode_table_properties(data, PROPERTIES))
    if reasons := unsupported_features(config):
        raise UnsupportedTableError(
            f"the table at {storage.uri} cannot be read",
            why="; ".join(reasons),
            next_step="Read it with Apache Hudi; docs/format.md lists what pyhudi supports",
        )
    return config


def _read_or_none(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path, 0, PROPERTIES_BYTES_MAX + 1)
    except FileNotFoundError:
        return None


class TableLoader:
    """Loads one table's state; caches what never changes, the metadata of completed instants."""

    def __init__(self, storage: Storage, config: TableConfig) -> None:
        self.storage = storage
        self.config = config
        self._metadata: dict[str, CommitMetadata] = {}
        self._committed: dict[str, tuple[CommittedFile, ...]] = {}
        #: The bounds of the cleans on the active timeline, which the readers of this table share.
        self.clean_bounds: dict[Instant, CleanBound | None] = {}
        self.history = History(storage, self.history_folder)
        #: False if no listing of the timeline has shown an archive.
        self.may_have_archive = False

    @property
    def timeline_folder(self) -> str:
        return f"{HOODIE}/{self.config.timeline_folder}"

    @property
    def history_folder(self) -> str:
        return f"{self.timeline_folder}/{self.config.history_folder}"

    # -- load

    def load(self) -> TableState:
        for _ in range(LOAD_ATTEMPTS_MAX):
            if (timeline := self._listed()) is None:
                continue
            partitions = _partitions(list_data_files(self.storage))
            if not timeline.instants and not self._is_new(partitions):
                continue
            if (state := self._at_cut(timeline, partitions)) is not None:
                return state
        raise UnavailableError(
            f"the table at {self.storage.uri} changes faster than it can be listed",
            why=f"in each of {LOAD_ATTEMPTS_MAX} rounds a clean removed the state that was being"
            " listed, or a restore removed it",
            next_step="Read again, and retain more commits when cleaning",
        )

    def _listed(self) -> Timeline | None:
        """Return the timeline; None if an archived write may be beyond the cut: then list again.

        A write that was pending when the listing began may have completed and been archived. Then
        it counts like everything that is archived, which is right only if it completed up to the
        cut.
        """
        listed = list_whole_timeline(self.storage, self.timeline_folder)
        self.may_have_archive |= listed.may_have_archive
        timeline = Timeline.of(listed.instants)
        done = self.history.completion_times(listed.doubtful)
        return None if any(time > cut_time(timeline) for time in done.values()) else timeline

    def _is_new(self, partitions: Mapping[str, tuple[FileGroupFiles, ...]]) -> bool:
        """True if a table without an instant has no rows yet.

        Raise if it was removed since it was opened, or has lost its timeline.
        """
        groups = [group for found in partitions.values() for group in found]
        if not groups:
            load_config(self.storage)
        return not is_begun_now(self.storage, self.timeline_folder, groups)

    def _at_cut(
        self,
        first: Timeline,
        partitions: Mapping[str, tuple[FileGroupFiles, ...]],
        known: TableState | None = None,
    ) -> TableState | None:
        """Return the state as of the cut of a listing, with files that were listed after it.

        None if that state is gone: then a newer cut has to be taken. `known` is an older state.
        """
        start = _refresh_point(first)
        if start is None:
            return self._state(first, partitions, known)
        second = self._recent(start)
        if is_rolled_back(first, second):
            return None
        archived: tuple[Instant, ...] = ()
        if is_archived_since(first, second, start):
            if not shared_writes(first, second):
                return None
            archived = self._archived_since(first, start)
        state = self._state(at_cut(first, second, archived), partitions, known)
        late = state.timeline.pending_writes - second.pending_writes
        cleans = cleans_beyond(first, second)
        return state if all(self._spares(clean, state, late) for clean in cleans) else None

    def _state(
        self,
        timeline: Timeline,
        partitions: Mapping[str, tuple[FileGroupFiles, ...]],
        known: TableState | None,
    ) -> TableState:
        before: Replaced = {} if known is None else known.replaced
        seen = frozenset(() if known is None else known.timeline.instants)
        new = (instant for instant in timeline.instants if instant not in seen)
        return TableState(self.config, timeline, partitions, self._replaced(new, before))

    def _archived_since(self, first: Timeline, start: str) -> tuple[Instant, ...]:
        """Return archived writes that completed up to the cut and that the listing missed."""
        found = self.history.writes(start, cut_time(first))
        missed = {write.requested for write in found} - first.completion_times.keys()
        return tuple(map(as_instant, self.history.recorded(frozenset(missed)).values()))

    def _spares(self, clean: Instant, state: TableState, late: Iterable[str]) -> bool:
        """True if the files that the state needs stay."""
        try:
            bound = load_clean_bound(self.storage, self.timeline_folder, clean)
        except UnavailableError:
            return False  # archived or rolled back since the timeline was listed
        return bound is not None and preserves_state(bound, state, late)

    def _recent(self, start: str) -> Timeline:
        """Return the timeline from a requested time on."""
        after = f"{self.timeline_folder}/{start}"
        paths = (stat.path for stat in self.storage.list(self.timeline_folder, after=after))
        instants = _instants(path for path in paths if self._is_timeline_file(path))
        return Timeline.of(without_orphaned_inflights(instants))

    def _replaced(self, instants: Iterable[Instant], known: Replaced) -> Replaced:
        """Return the replaced file groups, those of `known` included."""
        replaced = dict(known)
        for instant in instants:
            if instant.action is not Action.REPLACECOMMIT or instant.completed is None:
                continue
            for partition, file_ids in self.metadata(instant).replaced_file_ids.items():
                for group in ((partition, file_id) for file_id in file_ids):
                    replaced[group] = replaced.get(group, frozenset()) | {instant.requested}
        return replaced

    def metadata(self, instant: Instant, known: CommitMetadata | None = None) -> CommitMetadata:
        """Return the metadata of a completed write; it may have been archived meanwhile.

        A caller that has it already passes it as `known`, which saves the request.
        """
        name = instant.file_name
        if name not in self._metadata:
            metadata = known or self.history.write_metadata(self.timeline_folder, instant)
            if len(self._metadata) >= METADATA_KEPT_MAX:
                oldest = next(iter(self._metadata))  # the one read longest ago
                del self._metadata[oldest]
                self._committed.pop(oldest, None)
            self._metadata[name] = metadata
        return self._metadata[name]

    def committed_files(self, instant: Instant) -> tuple[CommittedFile, ...]:
        """Return the files that a completed write names."""
        name = instant.file_name
        if name not in self._committed:
            self._committed[name] = committed_files(instant.requested, self.metadata(instant))
        return self._committed[name]

    def known_files(self, timeline: Timeline) -> list[CommittedFile]:
        """Return the files of those writes whose metadata is cached; makes no request."""
        known = (i for i in timeline.writes if i.file_name in self._metadata)
        return [file for instant in known for file in self.committed_files(instant)]

    # -- refresh

    def reread_properties(self) -> None:
        """Take the properties as they are now, for what shows them.

        Reads need not: whatever changed the properties has also written, and a refresh sees that.
        """
        self.config = load_config(self.storage)

    def refresh(self, state: TableState, *, is_whole: bool = False) -> TableState:
        """Return the state now, at the cost of what is new; the same object if nothing is.

        With `is_whole` the old part of the timeline is read even if its end is the same.
        """
        timeline = self._timeline_since(state.timeline, is_whole=is_whole)
        if timeline is None:
            return self.load()
        known, now = set(state.timeline.instants), set(timeline.instants)
        if known == now:
            return state
        config = load_config(self.storage)
        if config != self.config:  # upgraded, for example; the program that did it has also written
            self.config = config
            return self.load()
        left = {i for i in known - now if _may_leave(i, timeline)}
        if left and _are_all_archived(state.timeline, timeline):
            return self.load()
        touched = self._touched(now - known) if self._only_grew(known - left, now) else None
        if touched is None:
            return self.load()
        partitions = self._listed_again(state, touched)
        if any(instant.completed is not None for instant in now - known):
            refreshed = self._at_cut(timeline, partitions, state)
        else:
            refreshed = self._state(timeline, partitions, state)
        # Partitions of completions that the first listing missed were not listed.
        if refreshed is None or len(refreshed.timeline.writes) > len(timeline.writes):
            return self.load()
        return self.load() if left and _shows_aborted_file(state.timeline, refreshed) else refreshed

    def advanced(
        self, state: TableState, completed: Iterable[Instant], *, is_told: bool
    ) -> TableState:
        """Return the state with the writes that completed since, for a caller that knows them all.

        It makes no request for the timeline, and the file groups that these writes did not touch
        stay the same objects. With `is_told` the writes name all their files, as pyhudi's do, and
        no folder is listed: the cost of that would grow with the files of old slices.
        """
        new = set(completed)
        if is_told:
            partitions = self._told(state, new)
        else:
            touched = self._touched(new)
            assert touched is not None, "these are writes"
            partitions = self._listed_again(state, touched)
        timeline = state.timeline.advanced(new)
        return TableState(self.config, timeline, partitions, self._replaced(new, state.replaced))

    def _listed_again(
        self, state: TableState, touched: Iterable[str]
    ) -> dict[str, tuple[FileGroupFiles, ...]]:
        partitions = dict(state.partitions)
        for partition in sorted(touched):
            objects = self.storage.list_folder(partition).objects
            partitions[partition] = grouped_files(partition, ((o.path, o.size) for o in objects))
        return partitions

    def _told(
        self, state: TableState, writes: Iterable[Instant]
    ) -> dict[str, tuple[FileGroupFiles, ...]]:
        """Return the partitions with the files that the writes name."""
        named: dict[str, list[tuple[str, int]]] = {}
        for instant in sorted(writes, key=lambda instant: instant.requested):
            for stats in self.metadata(instant).write_stats.values():
                for stat in stats:
                    path, size = stat.data_path, stat.file_size_in_bytes or 0
                    named.setdefault(path.rpartition("/")[0], []).append((path, size))
        partitions = dict(state.partitions)
        for partition, found in named.items():
            partitions[partition] = with_files(partition, partitions.get(partition, ()), found)
        return partitions

    def _timeline_since(self, known: Timeline, *, is_whole: bool) -> Timeline | None:
        """Return the timeline now; its old part as it was known, unless it may have changed.

        None if the known timeline is of no use.
        """
        start = _refresh_point(known)
        if start is None:
            return None
        recent = self._recent(start)
        last = {instant for instant in known.instants if instant.requested >= start}
        older = tuple(instant for instant in known.instants if instant.requested < start)
        is_same = last == set(recent.instants)
        if not is_whole and is_same:
            return known
        if older or not last <= set(recent.instants) or self._is_archived_from(recent):
            return self._listed()
        return known if is_same else recent

    def _is_archived_from(self, recent: Timeline) -> bool:
        """True if the listing may show an instant and miss that it has completed."""
        return is_torn_by_archiving(self.storage, self.timeline_folder, recent)

    def _is_timeline_file(self, path: str) -> bool:
        return path.rpartition("/")[0] == self.timeline_folder

    @staticmethod
    def _only_grew(known: set[Instant], now: set[Instant]) -> bool:
        """True if every instant is still there, in the same state or a later one.

        A listing of instants that are being archived may miss the last state of one.
        """
        there = {(i.requested, i.action.completed_as) for i in now}
        return all(
            (i.requested, i.action.completed_as) in there if i.completed is None else i in now
            for i in known
        )

    def _touched(self, new: set[Instant]) -> set[str] | None:
        """Return the partitions whose files new instants may have changed; None when it may be
        any."""
        touched: set[str] = set()
        for instant in sorted(new, key=lambda instant: instant.requested):
            if instant.state is not State.COMPLETED or instant.action in _HARMLESS_ACTIONS:
                continue
            if instant.action not in _LOCAL_ACTIONS:
                return None
            if instant.action is Action.CLEAN:
                path = f"{self.timeline_folder}/{instant.file_name}"
                try:
                    data = load_timeline_file(self.storage, path)
                except UnavailableError:
                    return None  # archived since the timeline was listed
                cleaned = CLEAN.decode_or_none(data, path)
                if cleaned is None:
                    return None  # its writer died before it recorded them
                touched.update(cleaned.partition_metadata)
            else:
                metadata = self.metadata(instant)
                touched.update(metadata.write_stats, metadata.replaced_file_ids)
        return touched


def _may_leave(instant: Instant, timeline: Timeline) -> bool:
    """True if an instant may be missing: it was archived, or it is a savepoint that was removed."""
    if instant.completed is None:
        return False
    is_older = instant.requested < (timeline.first_active or "")
    return is_older or instant.action is Action.SAVEPOINT


def _are_all_archived(before: Timeline, after: Timeline) -> bool:
    """True if every write we knew has been archived.

    Writes that completed since may have been archived too, so a refresh could miss them.
    """
    newest = max(before.completion_times, default="")
    return newest < (after.first_active or "")


def _shows_aborted_file(before: Timeline, state: TableState) -> bool:
    """True if a file now looks archived, hence committed, although its write was never committed.

    It belongs to an aborted write. The archiver has removed such files, and the timeline does not
    show that.
    """
    times = {file.name.requested for group in state.groups() for file in group.files}
    after = state.timeline
    return any(after.is_archived(time) and not before.is_committed(time) for time in times)


def _instants(paths: Iterable[str]) -> Iterable[Instant]:
    """Yield instants of the timeline folder; other files of Hudi and file systems are skipped."""
    for path in paths:
        name = file_name(path)
        if is_timeline_file(name):
            yield Instant.parse(name)


def _refresh_point(timeline: Timeline) -> str | None:
    """Return the requested time from which the timeline may have changed; None when it is empty."""
    if not timeline.instants:
        return None
    newest = timeline.instants[-1].requested
    try:
        moment = datetime.strptime(newest[:14], "%Y%m%d%H%M%S") - CLOCK_DIFFERENCE
    except (ValueError, OverflowError):  # a synthetic time
        return None
    margin = moment.strftime("%Y%m%d%H%M%S").rjust(14, "0") + "000"
    return min([margin, *(instant.requested for instant in timeline.pending)])


def list_data_files(storage: Storage) -> Iterator[ObjectStat]:
    """Yield every file of the table outside its .hoodie folder."""
    root = storage.list_folder("")
    yield from root.objects
    for folder in root.folders:
        if folder != HOODIE:
            yield from storage.list(folder)


def _partitions(files: Iterable[ObjectStat]) -> dict[str, tuple[FileGroupFiles, ...]]:
    by_folder: dict[str, list[tuple[str, int]]] = {}
    for stat in files:
        by_folder.setdefault(stat.path.rpartition("/")[0], []).append((stat.path, stat.size))
    grouped = ((folder, grouped_files(folder, found)) for folder, found in by_folder.items())
    # A listing returns names as they are; a folder that holds rows must have a usable one.
    return {table_folder(folder): groups for folder, groups in sorted(grouped) if groups}
