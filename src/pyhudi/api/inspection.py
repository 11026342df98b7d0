"""What a table consists of, as Arrow tables: for users and for tools that check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pyhudi.api.inputs import checked_limit
from pyhudi.api.inspected_buckets import (
    BUCKETS,
    LOAD_ATTEMPTS_MAX,
    RESIZE,
    PlansInTheWay,
    bucket_rows,
    is_behind,
    load_rings,
    unclear_plan,
)
from pyhudi.api.inspected_markers import MARKERS, marker_rows
from pyhudi.api.inspected_services import CONSUMERS, UPKEEP, consumer_row, policy_text, run_row
from pyhudi.api.inspected_writes import (
    CONFLICTS,
    HISTORY,
    SCHEMA_HISTORY,
    WRITERS,
    conflict_row,
    history_row,
    identity_row,
    schema_row,
)
from pyhudi.api.ring_pictures.load import RingPictures
from pyhudi.api.ring_pictures.picture import RingPicture
from pyhudi.commit.conflict_notes import load_conflicts
from pyhudi.commit.pending_plans import ServicePlan, load_plan_file
from pyhudi.errors import CorruptTableError, UnavailableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_migration import ring_settings
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.commit_metadata import CommitMetadata, decode_inflight_commit
from pyhudi.format.timeline.decision_entry import closed_path
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.format.timeline.writer_identity import WRITER_KEY
from pyhudi.plan.due import DueFacts, due_services
from pyhudi.plan.pending_plans import SERVICES as SERVICE_ACTIONS
from pyhudi.plan.resizing.changes import ResizePreview
from pyhudi.plan.upkeep import SERVICES, recorded_upkeep
from pyhudi.read.load import TableLoader, load_config
from pyhudi.read.plan import Reader
from pyhudi.read.schema_history import schema_changes
from pyhudi.services.resizing.result import Resized
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.consumers import load_consumers
from pyhudi.storage.objects.heartbeats import heartbeat_path, load_owner
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.storage.objects.upkeep_record import load_upkeep_record
from pyhudi.table.file_group import FileSlice
from pyhudi.table.file_slices import file_slices, is_replaced, latest_slice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import visible_now
from pyhudi.timeline.instant_time import clock_time
from pyhudi.timeline.timeline import WRITE_ACTIONS, Timeline
from pyhudi.wording import public_methods
from pyhudi.world import World, real_world

#: Table services that a process executes after they were planned.
_PLANS = frozenset({Action.COMPACTION, Action.LOGCOMPACTION, Action.CLUSTERING, Action.CLEAN})
_TIMELINE = pa.schema(
    [
        ("requested", pa.string()),
        ("completed", pa.string()),
        ("action", pa.string()),
        ("state", pa.string()),
        ("began_as", pa.string()),
    ]
)
_SLICES = pa.schema(
    [
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("base_instant", pa.string()),
        ("base_file", pa.string()),
        ("log_files", pa.list_(pa.string())),
        ("bytes", pa.int64()),
        ("latest", pa.bool_()),
    ]
)


class Inspection:
    """`table.inspect`: each method loads what is new, and returns an Arrow table or a picture."""

    def __init__(
        self,
        loader: TableLoader,
        reader: Reader,
        state: Callable[[], TableState],
        world: World | None = None,
        settings: WriteSettings | None = None,
    ) -> None:
        self._loader = loader
        self._world = world or real_world()
        self._settings = settings or WriteSettings()
        self._reader = reader
        self._state = state

    def __repr__(self) -> str:
        methods = ", ".join(public_methods(type(self)))
        return f"<inspect of {self._loader.storage.uri}: {methods}>"

    def timeline(self) -> pa.Table:
        """Return every instant of the active timeline, oldest request first."""
        timeline = self._state().timeline
        return _table(
            _TIMELINE,
            (
                {
                    "requested": instant.requested,
                    "completed": instant.completed,
                    "action": instant.action.value,
                    "state": instant.state.value,
                    "began_as": timeline.began_as.get(instant.requested, instant.action).value,
                }
                for instant in timeline.instants
            ),
        )

    def file_slices(self) -> pa.Table:
        """Return every committed slice of every file group, the latest first.

        A pending compaction opens a slice of its own, as it does for table services, which plan by
        slices. A read joins that slice with the one before. So does this method, if the plan cannot
        be read.
        """
        state = self._state()
        times = self._reader.completion_times(state)
        visibility = visible_now(state.timeline)
        pending = self._pending_compactions(state)
        rows: list[dict[str, Any]] = []
        for group in state.groups():
            if is_replaced(group, state.replaced, visibility):
                continue
            compaction = pending.get((group.partition, group.file_id))
            slices = file_slices(group, times, visibility, pending_compaction=compaction)
            rows += (_slice_row(slice_, latest=n == 0) for n, slice_ in enumerate(slices))
        return _table(_SLICES, rows)

    def buckets(self, *, rows: bool = True) -> pa.Table:
        """Return every bucket of every partition, with its size and how even the sizes are.

        `bucket` counts from 0 in its partition, `range` has the hash values that a consistent
        bucket takes (two ranges if they cross the end of the ring), and `share` is its part of the
        partition's bytes. `state` is "normal", "empty" if it has no file yet, or the pending plan
        that has it, and whether that is closed. It also names a damaged file of the bucket, if one
        was found: files that commits name and that are gone or cut off, and those that rows cannot
        be counted in. Rows are counted as `table.read().count()` counts them; they are null where
        they cannot be. Without `rows` no data file is opened, and the column is null.
        """
        self._loader.reread_properties()
        for _ in range(LOAD_ATTEMPTS_MAX):
            state = self._state()
            rings = load_rings(self._loader, state)
            if not is_behind(state, rings):
                break
        pending = self._pending_plans(state)
        found = bucket_rows(self._loader, self._reader, state, rings, pending, counts_rows=rows)
        return _table(BUCKETS, found)

    def ring(
        self, partition: str = "", *, resize: ResizePreview | Resized | str | None = None
    ) -> RingPicture:
        """Return a picture of the consistent buckets of a partition, given by its path.

        A notebook shows the ring, coloured by bytes; `svg` is its text. With `resize` it is the
        ring before and after: of what `services.resize(dry_run=True)` returns, or of a resize that
        has completed or is pending, by its requested time. No data file is opened.
        """
        self._loader.reread_properties()
        rings = RingPictures(self._loader, self._reader, self._state, self._pending_plans)
        return rings.picture(partition, resize)

    def writers(self, *, limit: int = 100) -> pa.Table:
        """Return what is pending, then completed writes, the latest first, each with its writer.

        Pending plans of table services are included, with the process that executes them.
        `last_sign` is when storage last saw a heartbeat; if it is null, no process executes the
        plan. What other engines do not record is null.
        """
        count = checked_limit(limit)
        timeline = self._state().timeline
        return self._writers([*self._pending(timeline), *reversed(timeline.writes)][:count])

    def pending_writers(self) -> pa.Table:
        """Return the rows of `writers` that are of pending writes and plans."""
        return self._writers(self._pending(self._state().timeline))

    def _pending(self, timeline: Timeline) -> list[Instant]:
        pending = [i for i in timeline.pending if i.action in WRITE_ACTIONS | _PLANS]
        return pending[::-1]

    def _writers(self, instants: Sequence[Instant]) -> pa.Table:
        return _table(WRITERS, map(self._known_row, instants))

    def history(self, *, limit: int = 100) -> pa.Table:
        """Return the writes and compactions of the table, the latest first: see `Table.history`."""
        count, zone = checked_limit(limit), self._loader.config.zone
        chosen = [*reversed(self._state().timeline.writes)][:count]
        return _table(HISTORY, (history_row(i, self._metadata_of(i), zone) for i in chosen))

    def schema_history(self) -> pa.Table:
        """Return the writes that changed the table's columns, the oldest first.

        `change` has what each changed: the path of a column, what kind of change it was, and the
        types, or what else it concerns, before and after. It is null where a schema cannot be read.
        The first write brought all columns. Archived writes are included, so the cost grows with
        the number of all writes.
        """
        timeline, zone = self._state().timeline, self._loader.config.zone
        found = schema_changes(self._loader, timeline)
        return _table(SCHEMA_HISTORY, (schema_row(change, zone) for change in found))

    def _known_row(self, instant: Instant) -> dict[str, Any]:
        return self._plan_row(instant) if instant.action in _PLANS else self._writer_row(instant)

    def _plan_row(self, instant: Instant) -> dict[str, Any]:
        storage = self._loader.storage
        sign = storage.stat(heartbeat_path(instant.requested))
        owner = "" if sign is None else load_owner(storage, instant.requested)
        return {
            "instant": instant.requested,
            "action": instant.action.value,
            **identity_row({WRITER_KEY: owner}),
            "last_sign": None if sign is None else sign.modified_ms,
        }

    def _writer_row(self, instant: Instant) -> dict[str, Any]:
        storage, is_done = self._loader.storage, instant.completed is not None
        metadata = self._metadata_of(instant)
        sign = None if is_done else storage.stat(heartbeat_path(instant.requested))
        stats = metadata.stats
        return {
            "instant": instant.requested,
            "completed": instant.completed,
            "action": instant.action.value,
            "operation": metadata.operation,
            **identity_row(metadata.extra_metadata),
            "rows": sum(stat.rows_written for stat in stats) if is_done else None,
            "bytes": sum(stat.total_write_bytes or 0 for stat in stats) if is_done else None,
            "last_sign": None if sign is None else sign.modified_ms,
        }

    def _metadata_of(self, instant: Instant) -> CommitMetadata:
        """Return the contents of the instant's completed or inflight file, if there is one."""
        state = State.COMPLETED if instant.completed else State.INFLIGHT
        name = replace(instant, state=state).file_name
        path = f"{self._loader.timeline_folder}/{name}"
        try:
            data = load_timeline_file(self._loader.storage, path)
            return decode_inflight_commit(data, path) or CommitMetadata()
        except (UnavailableError, CorruptTableError):  # a damaged table can be inspected, too
            return CommitMetadata()

    def conflicts(self, *, limit: int = 100) -> pa.Table:
        """Return each write that met a conflict, and the one it lost to, the latest first."""
        found = load_conflicts(self._loader.storage, checked_limit(limit))
        return _table(CONFLICTS, map(conflict_row, found))

    def markers(self) -> pa.Table:
        """Return each file that a pending write or plan has announced by a marker.

        `file` is "base" or "log". `announced` is when the store got the marker, or the list that
        has it. `bucket` is the number of a simple bucket, `node` the position of a consistent one;
        it is null for a bucket that is not on the partition's ring. `last_sign` is when the store
        last heard of the process, by its heartbeat or its begin; it is null for a plan that no
        process executes. `alive` is by the timeout of this table's settings, and by this machine's
        clock where the store's is not known. Markers that cannot be read are one row, with the
        `problem`.
        """
        state = self._state()
        timeout_ms = self._settings.heartbeat_timeout_ms
        pending = self._pending(state.timeline)
        rows = marker_rows(self._loader, state, pending, self._known_row, self._world, timeout_ms)
        return _table(MARKERS, rows)

    def consumers(self) -> pa.Table:
        """Return the consumers of changes, and up to when each has read.

        A clean retains the rest for those that hold. How long one has been silent is by this
        machine's clock.
        """
        now_ms = self._world.now_ms()
        found = load_consumers(self._loader.storage)
        return _table(CONSUMERS, (consumer_row(each, now_ms) for each in found))

    def upkeep(self) -> pa.Table:
        """Return each service, its recorded policy, whether it is due, and what its last run did.

        `policy` is null for a service that the table leaves to others, and `due` is as a writer
        judges it after a commit. `last_run`, `did` and `error` are of the last run that did
        something or failed, by whichever process. Of one that failed, or found nothing to do,
        `next_try` is when a writer tries it again.
        """
        storage, config = self._loader.storage, load_config(self._loader.storage)
        recorded, last = recorded_upkeep(config), load_upkeep_record(storage)
        policy, unknown = recorded.policy, dict(recorded.unknown)
        now = clock_time(self._world.now_ms(), config.zone)
        is_mor = config.table_type is TableType.MERGE_ON_READ
        state = self._state()
        facts = DueFacts(state.timeline, is_mor, now, largest_bucket=self._largest(state))
        due = frozenset() if policy is None else due_services(policy, facts)
        return _table(
            UPKEEP,
            (
                {
                    "service": name,
                    "policy": unknown.get(name) or policy_text(policy, name),
                    "due": name in due,
                    **run_row(last.services.get(name)),
                }
                for name in (*SERVICES, *(name for name in unknown if name not in SERVICES))
            ),
        )

    def _largest(self, state: TableState) -> int | None:
        """Return the size of the largest bucket; None if buckets cannot be resized."""
        config = self._loader.config
        if ring_settings(config.buckets) is None or config.lock.is_shared:
            return None
        times, now = self._reader.completion_times(state), visible_now(state.timeline)
        groups = (g for g in state.groups() if not is_replaced(g, state.replaced, now))
        slices = (latest_slice(group, times, now) for group in groups)
        return max((slice_.bytes for slice_ in slices if slice_ is not None), default=0)

    def _pending_compactions(self, state: TableState) -> Mapping[tuple[str, str], str]:
        """Return (partition, file id) → pending compaction that will write its next base file."""
        found = {}
        for instant in state.timeline.pending:
            if instant.action is Action.COMPACTION:
                for group in self._plan(instant).groups or ():
                    found[group.partition, group.file_id] = instant.requested
        return found

    def _pending_plans(self, state: TableState) -> PlansInTheWay:
        """Return what pending plan rewrites which file group."""
        named: dict[FileGroupId, str] = {}
        unclear = None
        resizes = []
        has_rings = ring_settings(self._loader.config.buckets) is not None
        for instant in state.timeline.pending:
            if instant.action not in SERVICE_ACTIONS:
                continue
            plan, name = self._plan(instant), instant.action.value
            is_damaged = plan.damage is not None and instant.action is Action.CLUSTERING
            if plan.resize is not None or (is_damaged and has_rings):
                name = RESIZE
            if plan.resize is not None:
                resizes.append(plan.resize)
            if plan.damage is not None:
                unclear = unclear or unclear_plan(name, instant.requested, plan.damage)
            what = f"in {name} {instant.requested}"
            if plan.groups and name == RESIZE and self._is_closed(instant):
                what += ", closed"
            named.update(dict.fromkeys(plan.groups or (), what))
        return PlansInTheWay(named, unclear, tuple(resizes))

    def _is_closed(self, resize: Instant) -> bool:
        """True if writes to the resize's buckets wait for it, or finish it."""
        return self._loader.storage.stat(closed_path(resize.requested)) is not None

    def _plan(self, instant: Instant) -> ServicePlan:
        name = instant.in_state(State.REQUESTED).file_name
        path = f"{self._loader.timeline_folder}/{name}"
        return load_plan_file(self._loader.storage, instant.action, path)


def _slice_row(slice_: FileSlice, *, latest: bool) -> dict[str, Any]:
    return {
        "partition": slice_.partition,
        "file_id": slice_.file_id,
        "base_instant": slice_.base_instant,
        "base_file": slice_.base.name.file_name if slice_.base else None,
        "log_files": [log.name.file_name for log in slice_.logs],
        "bytes": slice_.bytes,
        "latest": latest,
    }


def _table(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema)
