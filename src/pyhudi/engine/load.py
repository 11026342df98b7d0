"""Loading a table, whole and again: storage in, `TableState` out.

Opening lists the timeline folder and the data files once. A refresh lists the timeline only from
where something can be new (the oldest instant that was pending, or a little before the newest one,
for clocks that disagree) and then only the partitions that new instants touched. Instants that
undo others (rollback, restore) make it load everything again; they are rare.

The timeline is read before the files: files that appear in between belong to instants the timeline
does not have yet, and stay invisible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from pyhudi.engine.timeline_files import load_timeline_file
from pyhudi.errors import CorruptTableError, InvalidRequestError, UnsupportedTableError
from pyhudi.format.commit_metadata import CommitMetadata, decode_commit_metadata
from pyhudi.format.instant import Action, Instant, State
from pyhudi.format.paths import table_folder
from pyhudi.format.properties import (
    PROPERTIES_BYTES_MAX,
    decode_table_properties,
    recovered_properties,
)
from pyhudi.format.service_metadata import CLEAN
from pyhudi.format.table_config import TableConfig, unsupported_features
from pyhudi.storage.protocol import ObjectStat, Storage
from pyhudi.table.file_group import FileGroupFiles
from pyhudi.table.snapshot import grouped_files
from pyhudi.table.state import TableState
from pyhudi.timeline.timeline import WRITE_ACTIONS, Timeline

HOODIE = ".hoodie"
PROPERTIES = f"{HOODIE}/hoodie.properties"
PROPERTIES_BACKUP = f"{HOODIE}/hoodie.properties.backup"

#: How far the clocks of two writers may differ before a refresh could miss an instant.
CLOCK_DIFFERENCE = timedelta(minutes=10)

#: Metadata of completed instants that one table keeps in memory, so that it can live for months.
METADATA_KEPT_MAX = 1_000

#: Instants whose completion only changes files in the partitions that their metadata names.
_LOCAL_ACTIONS = WRITE_ACTIONS | {Action.CLEAN}
#: Instants that leave data files as they are.
_HARMLESS_ACTIONS = frozenset({Action.SAVEPOINT, Action.INDEXING, Action.SCHEMACOMMIT})


def is_table(storage: Storage) -> bool:
    return any(storage.stat(path) is not None for path in (PROPERTIES, PROPERTIES_BACKUP))


def load_config(storage: Storage) -> TableConfig:
    """The table's properties, or why it cannot be read."""
    main, backup = _read_or_none(storage, PROPERTIES), None
    if main is None:
        backup = _read_or_none(storage, PROPERTIES_BACKUP)
    if main is None and backup is None:
        raise InvalidRequestError(
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
    """Loads one table's state; keeps what never changes, the metadata of completed instants."""

    def __init__(self, storage: Storage, config: TableConfig) -> None:
        self.storage = storage
        self.config = config
        self._metadata: dict[str, CommitMetadata] = {}

    @property
    def timeline_folder(self) -> str:
        return f"{HOODIE}/{self.config.timeline_folder}"

    @property
    def history_folder(self) -> str:
        return f"{self.timeline_folder}/{self.config.history_folder}"

    # -- whole

    def load(self) -> TableState:
        names = (stat.path for stat in self.storage.list_folder(self.timeline_folder).objects)
        timeline = Timeline.of(_instants(names))
        return self._state(timeline, _partitions(_data_files(self.storage)))

    def _state(
        self, timeline: Timeline, partitions: Mapping[str, tuple[FileGroupFiles, ...]]
    ) -> TableState:
        return TableState(self.config, timeline, partitions, self._replaced(timeline))

    def _replaced(self, timeline: Timeline) -> dict[tuple[str, str], frozenset[str]]:
        replaced: dict[tuple[str, str], set[str]] = {}
        for instant in timeline.completed(Action.REPLACECOMMIT):
            for partition, file_ids in self.metadata(instant).replaced_file_ids.items():
                for file_id in file_ids:
                    replaced.setdefault((partition, file_id), set()).add(instant.requested)
        return {group: frozenset(instants) for group, instants in replaced.items()}

    def metadata(self, instant: Instant) -> CommitMetadata:
        """What a completed write of the active timeline says of itself."""
        name = instant.file_name
        if name not in self._metadata:
            path = f"{self.timeline_folder}/{name}"
            data = load_timeline_file(self.storage, path)
            if len(self._metadata) >= METADATA_KEPT_MAX:
                del self._metadata[next(iter(self._metadata))]  # the one read longest ago
            self._metadata[name] = decode_commit_metadata(data, path)
        return self._metadata[name]

    # -- again

    def refresh(self, state: TableState) -> TableState:
        """The state now, at the cost of what is new; the same object if nothing is."""
        start = _refresh_point(state.timeline)
        if start is None:
            return self.load()
        after = f"{self.timeline_folder}/{start}"
        names = [stat.path for stat in self.storage.list(self.timeline_folder, after=after)]
        recent = Timeline.of(_instants(name for name in names if self._is_timeline_file(name)))
        known = {i for i in state.timeline.instants if i.requested >= start}
        now = set(recent.instants)
        if known == now:
            return state
        touched = self._touched(now - known) if self._only_grew(known, now) else None
        if touched is None:
            return self.load()
        older = tuple(i for i in state.timeline.instants if i.requested < start)
        timeline = Timeline(older + recent.instants, {**state.timeline.began_as, **recent.began_as})
        partitions = dict(state.partitions)
        for partition in sorted(touched):
            objects = self.storage.list_folder(partition).objects
            partitions[partition] = grouped_files(partition, ((o.path, o.size) for o in objects))
        return self._state(timeline, partitions)

    def _is_timeline_file(self, path: str) -> bool:
        return path.rpartition("/")[0] == self.timeline_folder

    @staticmethod
    def _only_grew(known: set[Instant], now: set[Instant]) -> bool:
        """Whether every instant is still there, in the same state or a later one."""
        there = {(i.requested, i.action.completed_as) for i in now}
        return all((i.requested, i.action.completed_as) in there for i in known)

    def _touched(self, new: set[Instant]) -> set[str] | None:
        """Partitions whose files new instants may have changed; None when it may be any."""
        touched: set[str] = set()
        for instant in new:
            if instant.state is not State.COMPLETED or instant.action in _HARMLESS_ACTIONS:
                continue
            if instant.action not in _LOCAL_ACTIONS:
                return None
            if instant.action is Action.CLEAN:
                path = f"{self.timeline_folder}/{instant.file_name}"
                cleaned = CLEAN.decode(load_timeline_file(self.storage, path), path)
                touched.update(cleaned.partition_metadata)
            else:
                metadata = self.metadata(instant)
                touched.update(metadata.write_stats, metadata.replaced_file_ids)
        return touched


def _instants(paths: Iterable[str]) -> Iterable[Instant]:
    """Instants of the timeline folder; what Hudi and file systems leave beside them is skipped."""
    for path in paths:
        name = path.rpartition("/")[2]
        if name[:1].isdigit():
            yield Instant.parse(name)


def _refresh_point(timeline: Timeline) -> str | None:
    """The requested time from which the timeline may have changed; None when it is empty."""
    if not timeline.instants:
        return None
    newest = timeline.instants[-1].requested
    try:
        moment = datetime.strptime(newest[:14], "%Y%m%d%H%M%S") - CLOCK_DIFFERENCE
    except (ValueError, OverflowError):  # a synthetic time
        return None
    margin = moment.strftime("%Y%m%d%H%M%S").rjust(14, "0") + "000"
    return min([margin, *(instant.requested for instant in timeline.pending)])


def _data_files(storage: Storage) -> Iterable[ObjectStat]:
    """Every file of the table outside its .hoodie folder."""
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
    # A listing gives names as they are found; a folder that holds rows must have a usable one.
    return {table_folder(folder): groups for folder, groups in sorted(grouped) if groups}
