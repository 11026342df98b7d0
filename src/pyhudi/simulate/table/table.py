"""A toy table: real names and small rows, so that a schedule costs milliseconds.

Timeline files, markers, file names, write stats, slicing and the plans of reads are those of
production. Only data files are not: their bytes are a few rows in JSON. So everything that decides
whether rows are seen is tested, and nothing is spent on encoding them.

A base file has the deletes too, with their ordering values, so that the state of a key does not
depend on when the base file was rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import pyarrow as pa

from pyhudi.commit.validation import KnownLayout
from pyhudi.errors import UnavailableError
from pyhudi.format.avro.schema import decode_arrow_schema
from pyhudi.format.files.file_names import (
    BaseFileName,
    FileGroupId,
    IoType,
    LogFileName,
    parse_data_file,
)
from pyhudi.format.paths import file_name
from pyhudi.format.table.bucket_config import (
    ConsistentBuckets,
    SimpleBuckets,
    bucket_properties,
)
from pyhudi.format.table.bucket_migration import (
    MigratingBuckets,
    announced_properties,
    begun_properties,
)
from pyhudi.format.table.column_owners import RANK_COLUMN
from pyhudi.format.table.properties import (
    decode_table_properties,
    encode_properties,
    table_checksum,
)
from pyhudi.format.table.ring_file import Ring, initial_ring
from pyhudi.format.table.table_config import TableConfig
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat, stats_by_partition
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.index.simple_bucket import file_id
from pyhudi.plan.retention import Retention
from pyhudi.plan.scan import SliceRead
from pyhudi.read.load import TableLoader
from pyhudi.read.plan import AtCompletion, Now, Point, Question, Reader
from pyhudi.simulate.table.rows import (
    BUCKETS,
    COLUMNS,
    KEYS,
    PARTITIONS,
    Placing,
    Row,
    TableKind,
    decode_reference,
    decode_rows,
    encode_reference,
    encode_rows,
    group_of,
)
from pyhudi.storage.objects.rings import create_first_ring
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import FileSlice
from pyhudi.table.file_slices import is_replaced, latest_slice
from pyhudi.table.schema import table_schema
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import (
    CompletionTimes,
    Visibility,
    visible_at_completion,
    visible_at_request,
    visible_now,
)
from pyhudi.timeline.live import BEFORE_ALL
from pyhudi.write.files.announcing import DIRECT, Announcing
from pyhudi.write.files.group_log import VirtualInput
from pyhudi.write.files.spec import WRITE_TOKEN, WriteSpec, create_marker, data_path, file_stat

PROPERTIES = ".hoodie/hoodie.properties"
_NOW = Now()


@cache
def avro_schema(kind: TableKind) -> str:
    """Return the table's columns, as commit metadata has them."""
    columns: list[Any] = [{"name": name, "type": "string"} for name in ("key", "partition")]
    if kind.has_owners:
        columns += [{"name": RANK_COLUMN, "type": "int"}]
        columns += [{"name": name, "type": ["null", "string"]} for name in COLUMNS]
    else:
        columns += [{"name": "ordering", "type": "long"}, {"name": "version", "type": "string"}]
    return json.dumps({"type": "record", "name": "light", "fields": columns})


@cache
def _read_schema(kind: TableKind) -> pa.Schema:
    return table_schema(avro_schema(kind), PROPERTIES)


@cache
def arrow_schema(kind: TableKind) -> pa.Schema:
    return decode_arrow_schema(avro_schema(kind), PROPERTIES)


RECORD_KEY = ("key",)
#: The buckets that each partition has at most, on a table of rings.
NODES_MAX = 4


def toy_buckets(kind: TableKind) -> ConsistentBuckets:
    return ConsistentBuckets(initial=kind.nodes, max=NODES_MAX).resolved(RECORD_KEY)


@cache
def first_rings(kind: TableKind) -> tuple[Ring, ...]:
    """Return the ring that each partition begins with; none where it has simple buckets then."""
    if not kind.has_rings or kind.is_migrating:
        return ()
    return tuple(initial_ring(partition, kind.nodes) for partition in PARTITIONS)


@cache
def _properties(kind: TableKind) -> bytes:
    ordering = RANK_COLUMN if kind.has_owners else "ordering" if kind.by_event_time else ""
    mode = "EVENT_TIME_ORDERING" if ordering else "COMMIT_TIME_ORDERING"
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
        **({"hoodie.table.ordering.fields": ordering} if ordering else {}),
        **(bucket_properties(toy_buckets(kind), RECORD_KEY) if kind.has_rings else {}),
    }
    return encode_properties(_migrating(keys, kind) if kind.is_migrating else keys)


def _migrating(keys: dict[str, str], kind: TableKind) -> dict[str, str]:
    before = SimpleBuckets(BUCKETS).resolved(RECORD_KEY)
    migration = MigratingBuckets(before, toy_buckets(kind))
    return begun_properties(announced_properties(keys, migration, RECORD_KEY))


@cache
def table_config(kind: TableKind) -> TableConfig:
    return TableConfig.of(decode_table_properties(_properties(kind), PROPERTIES))


@cache
def bucket_layout(*, has_rings: bool = False) -> KnownLayout:
    """Return what every write of a shared table checks: that others keep to the buckets."""
    if has_rings:
        return KnownLayout(None, {})
    ids = tuple(file_id(bucket) for bucket in range(BUCKETS))
    return KnownLayout(BUCKETS, dict.fromkeys(PARTITIONS, ids))


def create_toy_table(storage: Storage, kind: TableKind) -> None:
    storage.create(PROPERTIES, _properties(kind))
    for ring in first_rings(kind):
        create_first_ring(storage, ring)


# -- data files


class DataFile(NamedTuple):
    """A data file that a task has to write, marker first."""

    requested: InstantTime
    group: FileGroupId
    file_name: str
    io_type: IoType
    rows: tuple[Row, ...]
    is_fenced: bool = False  # its task checks the fence
    refers: tuple[str, ...] = ()  # to these logs, in place of rows
    announcing: Announcing = DIRECT  # how its marker gets into storage

    @property
    def path(self) -> str:
        return data_path(self.group.partition, self.file_name)


def log_files(requested: str, rows: Sequence[Row], placing: Placing = group_of) -> list[DataFile]:
    """Return one log file for each group that the rows touch."""
    time = InstantTime(requested)
    return [
        DataFile(time, group, _log_name(group, time), IoType.CREATE, stamped(its, time))
        for group, its in _by_group(rows, placing).items()
    ]


def virtual_log_files(
    requested: str,
    rows: Sequence[Row],
    placing: Placing,
    virtual: Mapping[FileGroupId, VirtualInput],
) -> list[DataFile]:
    """Return what a write has beside virtual resizes: logs with rows in their children, and in the
    groups that they replace logs that refer to them."""
    time = InstantTime(requested)
    held: dict[tuple[FileGroupId, int], list[Row]] = {}  # child, place of the input → rows
    names: dict[FileGroupId, set[str]] = {}
    for row in rows:
        replaced = virtual.get(placing(row.key))
        if replaced is None:
            continue
        children = replaced.children
        child = children.group(int(children.assign(pa.array([row.key]))[0]))
        held.setdefault((child, replaced.place), []).append(row)
        name = _log_name(child, time, replaced.place)
        names.setdefault(placing(row.key), set()).add(name)
    made = [
        DataFile(time, child, _log_name(child, time, place), IoType.CREATE, stamped(its, time))
        for (child, place), its in sorted(held.items())
    ]
    referring = [
        DataFile(time, group, _log_name(group, time), IoType.CREATE, (), refers=tuple(sorted(its)))
        for group, its in sorted(names.items())
    ]
    plain = [row for row in rows if placing(row.key) not in virtual]
    return [*log_files(requested, plain, placing), *made, *referring]


def base_files(
    requested: str,
    rows: Sequence[Row],
    before: Mapping[FileGroupId, Mapping[str, Row]],
    kind: TableKind,
    placing: Placing = group_of,
) -> list[DataFile]:
    """Return a new base file for each group that the rows touch, on top of what was in it
    before."""
    return [
        base_file(
            requested, group, (*before.get(group, {}).values(), *stamped(its, requested)), kind
        )
        for group, its in _by_group(rows, placing).items()
    ]


def base_file(requested: str, group: FileGroupId, rows: Iterable[Row], kind: TableKind) -> DataFile:
    """Return a base file of the merge of the rows in their order."""
    time = InstantTime(requested)
    merged = kind.folded(rows)
    kept = tuple(merged[key] for key in sorted(merged))
    return DataFile(time, group, _base_name(group, time), IoType.MERGE, kept)


def seed_files(requested: str, groups: Iterable[FileGroupId] | None = None) -> list[DataFile]:
    """Return an empty base file for every group, or these: the one write before all others."""
    time = InstantTime(requested)
    if groups is None:
        groups = sorted({group_of(key) for key in KEYS})
    return [DataFile(time, group, _base_name(group, time), IoType.CREATE, ()) for group in groups]


def _log_name(group: FileGroupId, time: InstantTime, place: int = 0) -> str:
    token = WriteSpec(time, "").for_input(place).write_token
    return LogFileName(group.file_id, time, 1, token).file_name


def _base_name(group: FileGroupId, time: InstantTime) -> str:
    return BaseFileName(group.file_id, WRITE_TOKEN, time).file_name


def _by_group(rows: Sequence[Row], placing: Placing) -> dict[FileGroupId, list[Row]]:
    grouped: dict[FileGroupId, list[Row]] = {}
    for row in rows:
        grouped.setdefault(placing(row.key), []).append(row)
    return dict(sorted(grouped.items()))


def projected(rows: Iterable[Row], schema: str) -> Iterator[Row]:
    """Yield the rows with the columns of the schema: a file holds no others."""
    columns = set(decode_arrow_schema(schema, PROPERTIES).names)
    for row in rows:
        if row.more is None:
            yield row
        else:
            kept = {name: value for name, value in row.more.items() if name in columns}
            yield row._replace(more=kept)


def stamped(rows: Iterable[Row], requested: str) -> tuple[Row, ...]:
    return tuple(row._replace(requested=requested) for row in rows)


def write_data_file(storage: Storage, file: DataFile) -> WriteStat:
    """Write the file as a task does; another attempt of the task meets it on one name."""
    spec = WriteSpec(file.requested, "", is_fenced=file.is_fenced, announcing=file.announcing)
    create_marker(storage, spec, file.path, file.io_type)
    data = encode_reference(file.refers) if file.refers else encode_rows(file.rows)
    storage.create(file.path, data)
    deletes = sum(row.is_deleted for row in file.rows)
    writes = len(file.rows) - deletes
    stat = file_stat(file.group, file.file_name, len(data), writes=writes, deletes=deletes)
    stat = replace(stat, num_inserts=sum(row.is_fresh for row in file.rows))
    is_log = file.file_name.startswith(".")
    return replace(stat, log_files=(file.file_name,)) if is_log else stat


def commit_metadata(
    stats: Sequence[WriteStat], kind: TableKind, operation: str = "UPSERT", schema: str = ""
) -> CommitMetadata:
    """Return the metadata of a commit; on a table that evolves, the schema is added later."""
    schema = schema or ("" if kind.evolves else avro_schema(kind))
    return CommitMetadata(
        partition_to_write_stats=stats_by_partition(stats),
        extra_metadata={"schema": schema} if schema else None,
        operation_type=operation,
    )


# -- reading


class Changes(NamedTuple):
    """What an incremental read found: the rows of the writes, and up to which completion time."""

    rows: tuple[Row, ...]
    until: str


class GoneError(UnavailableError):
    """A file that was to be read is gone; `path` names it."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path!r} is gone",
            why="it was cleaned, or its write rolled back, after this read was planned",
            next_step="Read again",
        )
        self.path = path


def load_rows(storage: Storage, path: str) -> list[Row]:
    """Return the rows of a data file, or of those that it refers to.

    Raise production's error if a file is gone.
    """
    try:
        data = storage.read(path)
    except FileNotFoundError:
        raise GoneError(path) from None
    referred = (f"{path.rpartition('/')[0]}/{name}" for name in decode_reference(data))
    return [*decode_rows(data), *(row for other in referred for row in load_rows(storage, other))]


def rows_that_count(storage: Storage, kind: TableKind, path: str) -> list[Row]:
    """Return the rows of a data file that a base file takes: those of completed writes.

    A log that another instant names may hold others, which production tells by their blocks.
    """
    rows, name = load_rows(storage, path), parse_data_file(file_name(path))
    if not isinstance(name, LogFileName) or all(r.requested == name.requested for r in rows):
        return rows
    sees = visible_now(TableLoader(storage, table_config(kind)).load().timeline).sees
    return [row for row in rows if sees(row.requested)]


class _Plans(Reader):
    """Plans reads; where all writes have one schema, it is not looked up each time."""

    def __init__(self, loader: TableLoader, kind: TableKind) -> None:
        super().__init__(loader)
        self._kind = kind

    def schema_at(
        self, state: TableState, visibility: Visibility, point: Point = _NOW
    ) -> pa.Schema:
        if self._kind.evolves:
            return super().schema_at(state, visibility, point)
        return _read_schema(self._kind)

    def refuse_cleaned(self, state: TableState, time: str) -> None:
        """Raise InvalidRequestError if a completion time can no longer be read."""
        self._refuse_cleaned(state, AtCompletion(time))


class ToyReader:
    """Reads a toy table with the loader, the plans and the slicing of production."""

    def __init__(self, storage: Storage, kind: TableKind) -> None:
        self._storage = storage
        self._kind = kind
        self.loader = TableLoader(storage, table_config(kind))
        self._plans = _Plans(self.loader, kind)
        self._state: TableState | None = None

    def load(self, *, is_whole: bool = False) -> TableState:
        """Return the table now, by a refresh where something was loaded before."""
        loader, state = self.loader, self._state
        self._state = loader.load() if state is None else loader.refresh(state, is_whole=is_whole)
        return self._state

    def times(self, state: TableState, time: str | None = None) -> CompletionTimes:
        """Return completion times, with those of the archive that a read, now or at a time, needs.

        An empty time means everything that is known of the files that are there.
        """
        point: tuple[Point, ...] = () if time is None else (AtCompletion(time),)
        return self._plans.completion_times(state, *point)

    def retention(self, state: TableState) -> Retention:
        """Return from when on the table can be read."""
        return self._plans.retention(state)

    def snapshot(self, state: TableState) -> dict[str, Row]:
        """Return key → its row, of all keys that ever were: a deleted one is marked."""
        times, visibility = self.times(state), visible_now(state.timeline)
        self._refuse_losses(state, Now(), times, visibility)
        return self._merged(state, times, visibility)

    def _refuse_losses(
        self, state: TableState, point: Point, times: CompletionTimes, visibility: Visibility
    ) -> None:
        """Raise if a file that a commit names is missing: in a simulation, none ever is."""
        slice_of = partial(latest_slice, times=times, visibility=visibility)
        self._plans.refuse_losses(state, point, slice_of, visibility)

    def at(self, state: TableState, time: str) -> dict[str, Row]:
        """Return the same as of a completion time; InvalidRequestError if that has been cleaned."""
        self._plans.refuse_cleaned(state, time)
        times = self.times(state, time)
        visibility = visible_at_completion(times, time)
        self._refuse_losses(state, AtCompletion(time), times, visibility)
        return self._merged(state, times, visibility)

    def as_of(self, state: TableState, time: str) -> dict[str, Row]:
        """Return the same of a time that is known to be retained."""
        times = self.times(state, time)
        return self._merged(state, times, visible_at_completion(times, time))

    def schema_as_of(self, state: TableState, time: str) -> pa.Schema:
        """Return the columns as of a time that is known to be retained."""
        visibility = visible_at_completion(self.times(state, time), time)
        return self._plans.schema_at(state, visibility, AtCompletion(time))

    def before(self, state: TableState, requested: str) -> dict[str, Row]:
        """Return the same of writes that have completed and are below one with that requested
        time."""
        visible = visible_at_request(state.timeline, requested)
        return self._merged(state, self.times(state), visible)

    def groups(
        self, state: TableState, placing: Placing = group_of
    ) -> dict[FileGroupId, dict[str, Row]]:
        """Return the snapshot, group by group: what a writer of base files starts from."""
        merged: dict[FileGroupId, dict[str, Row]] = {}
        for key, row in self.snapshot(state).items():
            merged.setdefault(placing(key), {})[key] = row
        return merged

    def places(self, state: TableState) -> list[FileGroupId]:
        """Return the file groups that exist: what a write that replaces a partition starts from."""
        slices = _slices(state, self.times(state), visible_now(state.timeline))
        return [FileGroupId(slice_.partition, slice_.file_id) for slice_ in slices]

    def changes(self, state: TableState, since: str) -> Changes:
        """Return what the writes that completed after the time left; deletes are shown, too."""
        plan, until = self._plans.plan_changes(state, since, None, Question())
        instants = plan.spec.row_instants or frozenset()
        rows = (row for read in plan.reads for row in self._changed(read, instants))
        return Changes(tuple(rows), until)

    def _changed(self, read: SliceRead, instants: frozenset[str]) -> Iterable[Row]:
        """Return the rows of the instants in a slice; for partial rows, the merged rows."""
        if read.keys_in:
            rows = (row for slice_ in read.keys_in for row in self.rows_of(slice_))
            changed = {row.key for row in rows if row.requested in instants}
            whole = self._kind.folded(self.rows_of(read.slice))
            return [row for row in whole.values() if row.key in changed]
        # A base file carries rows of earlier writes along.
        found = [row for row in self.rows_of(read.slice) if row.requested in instants]
        if read.whole is None or not any(row.cells for row in found):
            return self._kind.folded(found).values()
        changed = {row.key for row in found}
        whole = self._kind.folded(self.rows_of(read.whole))
        return [row for row in whole.values() if row.key in changed]

    def slices(self, state: TableState, time: str) -> Iterator[FileSlice]:
        """Yield the slices as of a completion time."""
        times = self.times(state, time)
        yield from _slices(state, times, visible_at_completion(times, time))

    def _merged(
        self, state: TableState, times: CompletionTimes, visibility: Visibility
    ) -> dict[str, Row]:
        slices, sees = _slices(state, times, visibility), visibility.sees
        return self._kind.folded(row for slice_ in slices for row in self.rows_of(slice_, sees))

    def rows_of(
        self, slice_: FileSlice, sees: Callable[[str], bool] | None = None
    ) -> Iterator[Row]:
        """Yield the rows of the slice's files, in the order in which they are merged.

        Of a log that another instant names those of writes that the read `sees`, as production asks
        it of each block.
        """
        if slice_.base is not None:
            yield from load_rows(self._storage, slice_.base.path)
        for log in slice_.logs:
            for row in load_rows(self._storage, log.path):
                if sees is None or row.requested == log.name.requested or sees(row.requested):
                    yield row


def _slices(
    state: TableState, times: CompletionTimes, visibility: Visibility
) -> Iterator[FileSlice]:
    groups = (g for g in state.groups() if not is_replaced(g, state.replaced, visibility))
    found = (latest_slice(group, times, visibility) for group in groups)
    yield from (slice_ for slice_ in found if slice_ is not None)


def latest_completion(state: TableState) -> str:
    """Return the completion time that a snapshot is as of."""
    return max(state.timeline.completion_times.values(), default=BEFORE_ALL)
