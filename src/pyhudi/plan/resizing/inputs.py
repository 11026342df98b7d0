"""The slices that the plan of a resize names: what its execution reads, before copies."""

from __future__ import annotations

from pyhudi.format.files.file_names import BaseFileName, LogFileName, parse_data_file
from pyhudi.format.timeline.resize_plan import GroupChange, InputSlice
from pyhudi.format.timeline.stored_paths import path_in_partition
from pyhudi.table.file_group import BaseFile, FileSlice, LogFile


def input_slices(change: GroupChange) -> tuple[FileSlice, ...]:
    """Return the slices of one split or merge; a bucket that was never written has none.

    Sizes are not known.
    """
    found = (_slice(change.partition, part) for part in change.slices)
    return tuple(slice_ for slice_ in found if slice_ is not None)


def _slice(partition: str, part: InputSlice) -> FileSlice | None:
    base: BaseFile | None = None
    logs: list[LogFile] = []
    for bare in part.files:
        name, path = parse_data_file(bare), path_in_partition(partition, bare)
        if isinstance(name, BaseFileName):
            base = BaseFile(path, 0, name)
        elif isinstance(name, LogFileName) and not name.suffix:
            logs.append(LogFile(path, 0, name))
    if base is None and not logs:
        return None
    first = base.name.requested if base else min(log.name.requested for log in logs)
    ordered = tuple(sorted(logs, key=lambda log: log.name.order))
    return FileSlice(partition, part.file_id, first, base, ordered)
