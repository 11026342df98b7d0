"""What a table is made of, as Arrow tables: for people who look and for tools that check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa

from pyhudi.engine.conflict_notes import load_conflicts
from pyhudi.engine.load import TableLoader
from pyhudi.engine.read import Reader
from pyhudi.engine.timeline_files import load_timeline_file
from pyhudi.engine.write_result import stat_rows
from pyhudi.errors import UnavailableError
from pyhudi.format.commit_metadata import CommitMetadata, decode_inflight_commit
from pyhudi.format.instant import Action, Instant, State
from pyhudi.format.plan_files import COMPACTION_PLAN
from pyhudi.format.writer_identity import WriterIdentity, parse_writer
from pyhudi.storage.heartbeats import heartbeat_path
from pyhudi.table.file_group import FileSlice
from pyhudi.table.snapshot import file_slices, is_replaced
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import visible_now
from pyhudi.timeline.timeline import WRITE_ACTIONS

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
_IDENTITY = [
    ("job", pa.string()),
    ("host", pa.string()),
    ("user", pa.string()),
    ("process", pa.int64()),
    ("priority", pa.int64()),
]
_WRITERS = pa.schema(
    [
        ("instant", pa.string()),
        ("completed", pa.string()),
        ("action", pa.string()),
        ("operation", pa.string()),
        *_IDENTITY,
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("last_sign", pa.timestamp("ms", "UTC")),
    ]
)
_CONFLICTS = pa.schema(
    [
        ("instant", pa.string()),
        ("job", pa.string()),
        ("host", pa.string()),
        ("user", pa.string()),
        ("lost_to", pa.string()),
        ("their_job", pa.string()),
        ("their_host", pa.string()),
        ("their_user", pa.string()),
        ("rule", pa.string()),
        ("retry", pa.string()),
        ("partition", pa.string()),
        ("file_group", pa.string()),
        ("bucket", pa.int64()),
        ("keys", pa.list_(pa.string())),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("seconds", pa.float64()),
    ]
)


class Inspection:
    """`table.inspect`: each method loads what is new and gives one Arrow table."""

    def __init__(
        self, loader: TableLoader, reader: Reader, state: Callable[[], TableState]
    ) -> None:
        self._loader = loader
        self._reader = reader
        self._state = state

    def timeline(self) -> pa.Table:
        """Every instant of the active timeline, oldest request first."""
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
        """Every committed slice of every file group, the latest first.

        A pending compaction opens a slice of its own, as it does for those who plan by slices;
        a read joins it with the one before.
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

    def writers(self, *, limit: int = 100) -> pa.Table:
        """Who writes: writes under way first, then completed ones, the latest first.

        `last_sign` is when storage last heard of a write under way. What other engines do not tell
        is null.
        """
        timeline = self._state().timeline
        writes = [i for i in timeline.instants if i.action in WRITE_ACTIONS]
        pending = [i for i in writes if i.completed is None]
        done = sorted((i for i in writes if i.completed), key=lambda i: i.completed or "")
        chosen = [*reversed(pending), *reversed(done)][: max(limit, 0)]
        return _table(_WRITERS, map(self._writer_row, chosen))

    def _writer_row(self, instant: Instant) -> dict[str, Any]:
        storage, is_done = self._loader.storage, instant.completed is not None
        metadata = self._said(instant)
        sign = None if is_done else storage.stat(heartbeat_path(instant.requested))
        stats = [stat for stats in metadata.write_stats.values() for stat in stats]
        return {
            "instant": instant.requested,
            "completed": instant.completed,
            "action": instant.action.value,
            "operation": metadata.operation,
            **_identity_row(metadata),
            "rows": sum(map(stat_rows, stats)) if is_done else None,
            "bytes": sum(stat.total_write_bytes or 0 for stat in stats) if is_done else None,
            "last_sign": None if sign is None else sign.modified_ms,
        }

    def _said(self, instant: Instant) -> CommitMetadata:
        """What the instant's completed or inflight file says, if there is one."""
        state = State.COMPLETED if instant.completed else State.INFLIGHT
        name = replace(instant, state=state).file_name
        path = f"{self._loader.timeline_folder}/{name}"
        try:
            data = load_timeline_file(self._loader.storage, path)
        except UnavailableError:
            return CommitMetadata()
        return decode_inflight_commit(data, path) or CommitMetadata()

    def conflicts(self, *, limit: int = 100) -> pa.Table:
        """Who lost to whom, the latest first: one row for each write that met a conflict."""
        found = load_conflicts(self._loader.storage, max(limit, 0))
        return _table(_CONFLICTS, map(_conflict_row, found))

    def _pending_compactions(self, state: TableState) -> Mapping[tuple[str, str], str]:
        """(partition, file id) → the pending compaction that will write its next base file."""
        found = {}
        for instant in state.timeline.pending:
            if instant.action is not Action.COMPACTION:
                continue
            path = f"{self._loader.timeline_folder}/{instant.requested}.compaction.requested"
            plan = COMPACTION_PLAN.decode(load_timeline_file(self._loader.storage, path), path)
            for operation in plan.operations or ():
                found[operation.partition_path or "", operation.file_id or ""] = instant.requested
        return found


def _identity_row(metadata: CommitMetadata) -> dict[str, Any]:
    writer = parse_writer(metadata.extra_metadata)
    if writer == WriterIdentity():
        return {}
    return asdict(writer)


def _conflict_row(facts: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a note, in which a value of another kind than it should be counts as missing."""
    ours, theirs, lost = (_part(facts, name) for name in ("ours", "theirs", "lost"))
    keys = facts.get("keys")
    return {
        **{name: _text(ours, name) for name in ("instant", "job", "host", "user")},
        "lost_to": _text(theirs, "instant"),
        **{f"their_{name}": _text(theirs, name) for name in ("job", "host", "user")},
        **{name: _text(facts, name) for name in ("rule", "retry", "partition", "file_group")},
        "bucket": _whole(facts, "bucket"),
        "keys": [_storable(str(key)) for key in keys] if isinstance(keys, list) else None,
        "rows": _whole(lost, "rows"),
        "bytes": _whole(lost, "bytes"),
        "seconds": float(lost["seconds"]) if isinstance(lost.get("seconds"), float) else None,
    }


def _part(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = facts.get(name)
    return found if isinstance(found, dict) else {}


def _text(facts: Mapping[str, Any], name: str) -> str | None:
    found = facts.get(name)
    return _storable(found) if isinstance(found, str) else None


def _storable(text: str) -> str:
    """JSON may hold half of a character."""
    return text.encode("utf-8", "replace").decode()


def _whole(facts: Mapping[str, Any], name: str) -> int | None:
    found = facts.get(name)
    if not isinstance(found, int) or isinstance(found, bool):
        return None
    return found if -(2**63) <= found < 2**63 else None


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
