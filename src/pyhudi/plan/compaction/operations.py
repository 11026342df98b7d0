"""What a compaction's plan says of a slice, and whether it still names all of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyhudi.format.files.file_names import FileGroupId, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.plan_files import CompactionOperation
from pyhudi.plan.compaction.policy import MB
from pyhudi.table.file_group import BaseFile, FileGroupFiles, FileSlice, LogFile
from pyhudi.table.file_slices import is_replaced, latest_slice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import (
    CompletionTimes,
    just_before,
    visible_at_completion,
    visible_now,
)

#: How large Hudi takes the first base file of a file group to become.
NEW_BASE_BYTES = 120 * MB


def log_bytes(slice_: FileSlice) -> int:
    return sum(log.size for log in slice_.logs)


def operation_of(slice_: FileSlice) -> CompactionOperation:
    return CompactionOperation(
        base_instant_time=slice_.base_instant,
        delta_file_paths=tuple(log.name.file_name for log in slice_.logs),
        data_file_path=slice_.base.name.file_name if slice_.base else None,
        file_id=slice_.file_id,
        partition_path=slice_.partition,
        metrics=metrics_of(slice_),
    )


def metrics_of(slice_: FileSlice) -> dict[str, float]:
    """Return what Hudi's plans say of an operation."""
    read = slice_.bytes // MB
    written = (NEW_BASE_BYTES if slice_.base is None else slice_.base.size) // MB
    return {
        "TOTAL_LOG_FILES": float(len(slice_.logs)),
        "TOTAL_IO_READ_MB": float(read),
        "TOTAL_LOG_FILES_SIZE": float(log_bytes(slice_)),
        "TOTAL_IO_WRITE_MB": float(written),
        "TOTAL_IO_MB": float(read + written),
    }


def input_bytes(state: TableState, operations: Mapping[FileGroupId, CompactionOperation]) -> int:
    """Return the bytes of the files that a plan names, as far as they are there."""
    return sum(
        file.size
        for group, operation in _planned(state, operations)
        for file in group.files
        if file.name.file_name in _names_in(operation)
    )


def unnamed_files(
    state: TableState, operations: Mapping[FileGroupId, CompactionOperation], requested: str
) -> Iterable[BaseFile | LogFile]:
    """Yield files in the plan's file groups that it does not name.

    They may be older than the plan.
    """
    for group, operation in _planned(state, operations):
        named = _names_in(operation)
        for file in group.files:
            if file.name.requested < requested and file.name.file_name not in named:
                yield file


def omitted_file(
    state: TableState,
    times: CompletionTimes,
    operations: Mapping[FileGroupId, CompactionOperation],
    requested: str,
) -> str | None:
    """Return a file that the plan leaves out of a slice as it was right before the plan's time.

    The new base file would hide its rows. `times` need those of the archived `unnamed_files`. What
    completed later is rightly left out: it belongs to the slice that the plan starts.
    """
    then = visible_at_completion(times, just_before(requested))
    for group, operation in _planned(state, operations):
        found = latest_slice(group, times, then)
        if found is None:
            continue
        named = _names_in(operation)
        if found.base is not None and not _has_base(operation, found):
            return found.base.path
        for log in found.logs:
            if log.name.file_name not in named:
                return log.path
    return None


def _planned(
    state: TableState, operations: Mapping[FileGroupId, CompactionOperation]
) -> Iterable[tuple[FileGroupFiles, CompactionOperation]]:
    """Yield the file groups of the plan that readers still see."""
    now = visible_now(state.timeline)
    for partition in {group.partition for group in operations}:
        for group in state.partitions.get(partition, ()):
            operation = operations.get(FileGroupId(partition, group.file_id))
            if operation is not None and not is_replaced(group, state.replaced, now):
                yield group, operation


def _names_in(operation: CompactionOperation) -> set[str]:
    base = operation.base_file_path
    paths = (*([base] if base else []), *operation.log_file_paths)
    return {file_name(path) for path in paths}


def _has_base(operation: CompactionOperation, slice_: FileSlice) -> bool:
    """True if the plan names a base file of that instant; of two attempts, either will do."""
    name = parse_data_file(file_name(operation.base_file_path or ""))
    return name is not None and name.requested == slice_.base_instant
