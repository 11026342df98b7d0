"""A table whose names are real and whose rows are small: what makes a schedule cost milliseconds.

Timeline files, markers, file names, write stats and slicing are those of production. A data file
alone is not: its bytes are a few rows in JSON. So everything that decides whether rows are seen is
tested, and nothing is spent on encoding them.

Eight keys lie in two partitions of two buckets each. A base file keeps the deletes too, with their
ordering values, so that what a key has become does not depend on when somebody rewrote the base.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from pyhudi.engine.load import TableLoader
from pyhudi.engine.write_files import WRITE_TOKEN, WriteSpec, create_marker, data_path, file_stat
from pyhudi.format.commit_metadata import CommitMetadata, WriteStat
from pyhudi.format.file_names import BaseFileName, FileGroupId, IoType, LogFileName
from pyhudi.format.instant import InstantTime
from pyhudi.format.properties import decode_table_properties, encode_properties, table_checksum
from pyhudi.format.table_config import TableConfig, TableType
from pyhudi.index.simple_bucket import file_id
from pyhudi.plan.changes import CompletedWrite, in_range, written_files
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import FileSlice
from pyhudi.table.snapshot import latest_slice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import (
    CompletionTimes,
    Visibility,
    visible_at_completion,
    visible_now,
)
from pyhudi.timeline.ledger import BEFORE_ALL

KEYS = tuple(f"k{number}" for number in range(8))
_PARTITIONS = ("p0", "p1")
_BUCKETS = 2
PROPERTIES = ".hoodie/hoodie.properties"


class Row(NamedTuple):
    """One change of one key. `version` is unique in the whole simulation."""

    key: str
    ordering: int
    version: str
    is_deleted: bool
    requested: str = ""  # of the write that brought it


@cache
def group_of(key: str) -> FileGroupId:
    number = KEYS.index(key)
    bucket = number // len(_PARTITIONS) % _BUCKETS
    return FileGroupId(_PARTITIONS[number % len(_PARTITIONS)], file_id(bucket))


@dataclass(frozen=True, slots=True)
class TableKind:
    """What all writers of a light table agree on."""

    table_type: TableType
    by_event_time: bool

    def later(self, one: Row, other: Row) -> Row:
        """Which of two rows of a key stays, `other` being the later one to be read."""
        return one if self.by_event_time and one.ordering > other.ordering else other


@cache
def _properties(kind: TableKind) -> bytes:
    mode = "EVENT_TIME_ORDERING" if kind.by_event_time else "COMMIT_TIME_ORDERING"
    keys = {
        "hoodie.table.name": "light",
        "hoodie.table.type": kind.table_type.value,
        "hoodie.table.version": "9",
        "hoodie.timeline.layout.version": "2",
        "hoodie.table.recordkey.fields": "key",
        "hoodie.table.partition.fields": "partition",
        "hoodie.table.keygenerator.type": "SIMPLE",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.record.merge.mode": mode,
        "hoodie.table.checksum": table_checksum("light"),
        **({"hoodie.table.ordering.fields": "ordering"} if kind.by_event_time else {}),
    }
    return encode_properties(keys)


@cache
def table_config(kind: TableKind) -> TableConfig:
    return TableConfig.of(decode_table_properties(_properties(kind), PROPERTIES))


def create_light_table(storage: Storage, kind: TableKind) -> None:
    storage.create(PROPERTIES, _properties(kind))


# -- data files


def encode_rows(rows: Iterable[Row]) -> bytes:
    return json.dumps([list(row) for row in rows], separators=(",", ":")).encode()


def decode_rows(data: bytes) -> list[Row]:
    return [Row(*fields) for fields in json.loads(data)]


class DataFile(NamedTuple):
    """A data file that a task has to write, marker first."""

    requested: InstantTime
    group: FileGroupId
    file_name: str
    io_type: IoType
    rows: tuple[Row, ...]

    @property
    def path(self) -> str:
        return data_path(self.group.partition, self.file_name)


def log_files(requested: str, rows: Sequence[Row]) -> list[DataFile]:
    """One log file for each group that the rows touch."""
    time = InstantTime(requested)
    return [
        DataFile(time, group, _log_name(group, time), IoType.CREATE, _stamped(its, time))
        for group, its in _by_group(rows).items()
    ]


def base_files(
    requested: str,
    rows: Sequence[Row],
    before: Mapping[FileGroupId, Mapping[str, Row]],
    kind: TableKind,
) -> list[DataFile]:
    """A new base file for each group that the rows touch, on top of what was in it before."""
    time = InstantTime(requested)
    files = []
    for group, its in _by_group(rows).items():
        merged = dict(before.get(group, {}))
        for row in _stamped(its, time):
            merged[row.key] = kind.later(merged.get(row.key, row), row)
        kept = tuple(merged[key] for key in sorted(merged))
        files.append(DataFile(time, group, _base_name(group, time), IoType.MERGE, kept))
    return files


def seed_files(requested: str) -> list[DataFile]:
    """An empty base file for every group: the one write that comes before all others."""
    time = InstantTime(requested)
    groups = sorted({group_of(key) for key in KEYS})
    return [DataFile(time, group, _base_name(group, time), IoType.CREATE, ()) for group in groups]


def _log_name(group: FileGroupId, time: InstantTime) -> str:
    return LogFileName(group.file_id, time, 1, WRITE_TOKEN).file_name


def _base_name(group: FileGroupId, time: InstantTime) -> str:
    return BaseFileName(group.file_id, WRITE_TOKEN, time).file_name


def _by_group(rows: Sequence[Row]) -> dict[FileGroupId, list[Row]]:
    grouped: dict[FileGroupId, list[Row]] = {}
    for row in rows:
        grouped.setdefault(group_of(row.key), []).append(row)
    return dict(sorted(grouped.items()))


def _stamped(rows: Iterable[Row], requested: str) -> tuple[Row, ...]:
    return tuple(row._replace(requested=requested) for row in rows)


def write_data_file(storage: Storage, file: DataFile) -> WriteStat:
    """What a task does; another attempt of it does the same, and meets it on one name."""
    create_marker(storage, WriteSpec(file.requested, ""), file.path, file.io_type)
    data = encode_rows(file.rows)
    storage.create(file.path, data)
    deletes = sum(row.is_deleted for row in file.rows)
    writes = len(file.rows) - deletes
    stat = file_stat(file.group, file.file_name, len(data), writes=writes, deletes=deletes)
    is_log = file.file_name.startswith(".")
    return replace(stat, log_files=(file.file_name,)) if is_log else stat


def commit_metadata(stats: Sequence[WriteStat]) -> CommitMetadata:
    by_partition: dict[str, list[WriteStat]] = {}
    for stat in stats:
        by_partition.setdefault(stat.partition_path or "", []).append(stat)
    return CommitMetadata(
        partition_to_write_stats={key: tuple(value) for key, value in by_partition.items()},
        extra_metadata={"schema": '"string"'},
        operation_type="UPSERT",
    )


# -- reading


class Changes(NamedTuple):
    """What an incremental read found: the rows of the writes, and up to which completion time."""

    rows: tuple[Row, ...]
    until: str


class LightReader:
    """Reads a light table with the loader and the slicing of production."""

    def __init__(self, storage: Storage, kind: TableKind) -> None:
        self._storage = storage
        self._kind = kind
        self._loader = TableLoader(storage, table_config(kind))
        self._state: TableState | None = None

    def load(self) -> TableState:
        """The table now, by a refresh where something was loaded before."""
        loader = self._loader
        self._state = loader.load() if self._state is None else loader.refresh(self._state)
        return self._state

    def snapshot(self, state: TableState) -> dict[str, Row]:
        """Key → its row, of all keys that ever were: a deleted one is marked."""
        return self._merged(state, visible_now(state.timeline))

    def at(self, state: TableState, time: str) -> dict[str, Row]:
        """The same as of a completion time."""
        return self._merged(state, visible_at_completion(CompletionTimes(state.timeline), time))

    def groups(self, state: TableState) -> dict[FileGroupId, dict[str, Row]]:
        """The snapshot, group by group: what a writer of base files starts from."""
        merged: dict[FileGroupId, dict[str, Row]] = {}
        for key, row in self.snapshot(state).items():
            merged.setdefault(group_of(key), {})[key] = row
        return merged

    def changes(self, state: TableState, since: str) -> Changes:
        """The rows that writes brought which completed after the time."""
        done = state.timeline.completion_times
        wanted = in_range(done.items(), since, None)
        until = max((done[requested] for requested in wanted), default=since)
        instants = [i for i in state.timeline.writes if i.requested in wanted]
        writes = [
            CompletedWrite(i.requested, i.completed or "", self._loader.metadata(i))
            for i in instants
        ]
        rows: list[Row] = []
        for write in writes:
            for paths in written_files([write]).values():
                found = (row for path in sorted(paths) for row in self._rows(path))
                # A base file carries rows of earlier writes along.
                rows += [row for row in found if row.requested == write.requested]
        return Changes(tuple(rows), until)

    def _merged(self, state: TableState, visibility: Visibility) -> dict[str, Row]:
        merged: dict[str, Row] = {}
        for row in self._visible(state, visibility):
            known = merged.get(row.key)
            merged[row.key] = row if known is None else self._kind.later(known, row)
        return merged

    def _visible(self, state: TableState, visibility: Visibility) -> Iterator[Row]:
        times = CompletionTimes(state.timeline)
        for group in state.groups():
            slice_ = latest_slice(group, times, visibility)
            for path in () if slice_ is None else slice_paths(slice_):
                yield from self._rows(path)

    def _rows(self, path: str) -> list[Row]:
        return decode_rows(self._storage.read(path))


def slice_paths(slice_: FileSlice) -> Iterator[str]:
    """The slice's files in the order in which they are merged."""
    if slice_.base is not None:
        yield slice_.base.path
    yield from (log.path for log in slice_.logs)


def latest_completion(state: TableState) -> str:
    """What a snapshot is as of."""
    return max(state.timeline.completion_times.values(), default=BEFORE_ALL)
