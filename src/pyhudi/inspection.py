"""What a table is made of, as Arrow tables: for people who look and for tools that check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from pyhudi.engine.load import TableLoader
from pyhudi.engine.read import Reader
from pyhudi.engine.timeline_files import load_timeline_file
from pyhudi.format.instant import Action
from pyhudi.format.plan_files import COMPACTION_PLAN
from pyhudi.table.file_group import FileSlice
from pyhudi.table.snapshot import file_slices, is_replaced
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import visible_now

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
