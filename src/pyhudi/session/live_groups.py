"""Which file groups of a table are live: they have a committed file, and were not replaced."""

from __future__ import annotations

from collections.abc import Iterator

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.errors import UnsupportedTableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.session.replaced_groups import ReplacedGroups
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import FileSlice
from pyhudi.table.file_slices import grouped_files, is_replaced, latest_slice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes, visible_now


def committed_groups(
    storage: Storage, log: DecisionLog, replaced: ReplacedGroups, partition: str
) -> Iterator[str]:
    """List the partition; yield the file ids of its live groups."""
    objects = storage.list_folder(partition).objects
    files = ((stat.path, stat.size) for stat in objects)
    live, hidden = log.live, replaced.load()
    for group in grouped_files(partition, files):
        if FileGroupId(partition, group.file_id) in hidden:
            continue
        if any(live.is_committed(file.name.requested) for file in group.files):
            yield group.file_id


def live_slices(state: TableState, times: CompletionTimes) -> dict[FileGroupId, FileSlice]:
    """Return the latest slice of each live group of the state."""
    now = visible_now(state.timeline)
    slices: dict[FileGroupId, FileSlice] = {}
    for group in state.groups():
        if is_replaced(group, state.replaced, now):
            continue
        found = latest_slice(group, times, now)
        if found is not None:
            slices[FileGroupId(group.partition, group.file_id)] = found
    return slices


def replaced_for_good(group: FileGroupId) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"bucket {group.file_id[:8]} of partition {group.partition!r} cannot be written",
        why="another engine replaced its file group, and Hudi's readers hide what is added to one",
        next_step="Write this partition with the engine that overwrote it",
    )
