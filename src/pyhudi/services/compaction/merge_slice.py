"""Merging one slice into the next base file of its file group, in Arrow batches.

The base file holds what a reader of the slice would show. Rows keep their meta columns, except for
the name of the file, so that changes can still be found by commit. Memory holds the logs of one
slice, one batch of its base file and one row group of the new one.

The file's name depends only on the instant and the file group (`write.files`). So it is made once,
whichever process executes the plan, and however often: an executor that finds the file uses it as
it is.

A plan may have been made by another engine. Every file that it names is checked before it is
opened: a plan may only name older files of the file group that it is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.errors import CorruptTableError, UnsupportedTableError
from pyhudi.format.files.file_names import BaseFileName, FileGroupId, LogFileName, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.plan_files import CompactionOperation
from pyhudi.plan.scan import CommitFolders, ReadSpec, SliceRead, Split
from pyhudi.read.slice import Tally, read_split
from pyhudi.storage.protocol import Storage
from pyhudi.table.committed_files import LostFile, lost_file_error
from pyhudi.table.file_group import BaseFile, FileSlice, LogFile
from pyhudi.table.merge import MergeRule
from pyhudi.table.schema import with_meta_columns
from pyhudi.timeline.completion import Visibility
from pyhudi.write.files.base_file import base_stat, write_base
from pyhudi.write.files.spec import WriteSpec, data_path


@dataclass(frozen=True, slots=True)
class CompactionSpec:
    """What each task of a compaction needs besides its operations."""

    requested: InstantTime
    avro_schema: str  # the table's, without meta columns
    rule: MergeRule
    visibility: Visibility  # of log blocks
    commits: CommitFolders
    sizes: Mapping[str, int] = field(default_factory=dict)  # path → bytes by its commit
    #: Columns whose values the new files may lack; None if no column can have been lost.
    may_lack: frozenset[str] | None = None

    @property
    def write(self) -> WriteSpec:
        return WriteSpec(self.requested, self.avro_schema)


def compact_slice(
    storage: Storage, spec: CompactionSpec, operation: CompactionOperation
) -> WriteStat:
    """Execute one operation of the plan. It may be repeated, and by several processes at once."""
    group = operation_group(operation, spec.requested)
    slice_ = _slice(storage, group, operation, spec)
    stat, tally = _found(storage, spec, slice_), Tally()
    if stat is None:
        rows = merged_rows(storage, spec, slice_, tally)
        stat = write_base(storage, spec.write, group, rows, previous=slice_.base)
    fresh, updates = (0, 0) if tally.logs is None else (tally.logs.fresh(), tally.logs.updates())
    gone = max(0, tally.base_rows + fresh - (stat.num_writes or 0)) if tally.logs else 0
    return replace(
        stat,
        num_inserts=fresh,
        num_update_writes=updates,
        num_deletes=gone,
        total_log_records=tally.records,
        total_updated_records_compacted=0 if tally.logs is None else len(tally.logs.keys),
        total_log_blocks=tally.blocks,
        total_corrupt_log_block=tally.corrupt_blocks,
        total_rollback_blocks=tally.rollback_blocks,
        total_log_files_compacted=len(slice_.logs),
        total_log_size_compacted=tally.block_bytes or sum(log.size for log in slice_.logs),
    )


def merged_rows(
    storage: Storage, spec: CompactionSpec, slice_: FileSlice, tally: Tally | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a reader of the slice would show, with meta columns."""
    schema = with_meta_columns(spec.write.layout.data)
    read = ReadSpec(
        schema,
        schema,
        schema,
        spec.rule,
        spec.visibility,
        commits=spec.commits,
        may_lack=spec.may_lack,
    )
    return read_split(storage, read, Split((SliceRead(slice_),)), tally)


def _found(storage: Storage, spec: CompactionSpec, slice_: FileSlice) -> WriteStat | None:
    """Return the stat of the file that an earlier attempt left, or None.

    Storage shows a file whole or not at all.
    """
    group = FileGroupId(slice_.partition, slice_.file_id)
    name = new_base_name(group, spec.requested)
    path = data_path(group.partition, name)
    found = storage.stat(path)
    if found is None:
        return None
    try:
        with storage.open(path) as source:
            rows = pq.read_metadata(source).num_rows
    except FileNotFoundError:
        return None  # cancelled, or deleted by another engine before its own attempt
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _half_made(spec.requested, path, error) from None
    return base_stat(group, name, rows, found.size, slice_.base)


def _half_made(requested: str, path: str, error: Exception) -> CorruptTableError:
    """Return the error of a base file that is not whole.

    Hudi's Java client may use the same name, and a local disk shows what is written so far.
    """
    return CorruptTableError(
        f"the compaction {requested} cannot be executed",
        why=f"the base file that an earlier attempt left is not sound parquet ({error})",
        next_step="Wait if another engine is executing the plan. If not, cancel it with"
        " cancel_compaction, which removes the file and loses no row",
        path=path,
    )


# ---- what plans name


def new_base_name(group: FileGroupId, requested: str) -> str:
    token = WriteSpec(InstantTime(requested), "").write_token
    return BaseFileName(group.file_id, token, InstantTime(requested)).file_name


def operation_group(operation: CompactionOperation, requested: str) -> FileGroupId:
    """Return the file group of an operation; raise CorruptTableError if it is not a file group."""
    group = operation.file_group
    name = new_base_name(group, requested)
    parsed = parse_data_file(name)
    if parsed is None or parsed.file_id != group.file_id:
        raise broken_plan(requested, f"{group.file_id[:100]!r} is not a file id")
    if operation.bootstrap_file_path:
        raise UnsupportedTableError(
            f"the compaction {requested} cannot be executed",
            why=f"{group.file_id!r} has rows in a file outside the table, as a bootstrapped table"
            " does",
            next_step="Execute it with Apache Hudi",
        )
    return group


def checked_groups(
    operations: Iterable[CompactionOperation], requested: str
) -> dict[FileGroupId, CompactionOperation]:
    """Return the operations by file group; raise CorruptTableError if one is invalid or double."""
    found: dict[FileGroupId, CompactionOperation] = {}
    for operation in operations:
        group = operation_group(operation, requested)
        if group in found:
            raise broken_plan(requested, f"it has the file group {group.file_id!r} twice")
        _names(group, operation, requested)
        found[group] = operation
    return found


def _names(
    group: FileGroupId, operation: CompactionOperation, requested: str
) -> tuple[list[tuple[str, BaseFileName]], list[tuple[str, LogFileName]]]:
    """Return paths and names of the operation's base and log files.

    Raise CorruptTableError unless each is an older file of the group.
    """
    base = operation.base_file_path
    paths = [*([base] if base else []), *operation.log_file_paths]
    bases: list[tuple[str, BaseFileName]] = []
    logs: list[tuple[str, LogFileName]] = []
    for path in paths:
        name = parse_data_file(file_name(path))
        kind = BaseFileName if path == base else LogFileName
        if not isinstance(name, kind) or name.file_id != group.file_id:
            raise broken_plan(requested, f"{path!r} is not such a file of the file group")
        if name.requested >= requested:
            raise broken_plan(requested, f"{path!r} is not older than the plan")
        if isinstance(name, BaseFileName):
            bases.append((path, name))
        elif not name.suffix:  # rows of change capture are not merged
            logs.append((path, name))
    if not bases and not logs:
        raise broken_plan(requested, f"it names no file of the file group {group.file_id!r}")
    return bases, logs


def planned_slice(operation: CompactionOperation) -> FileSlice:
    """Return the slice that the plan names, without its files."""
    paths = (*operation.log_file_paths, operation.base_file_path or "")
    names = (parse_data_file(file_name(path)) for path in paths)
    first = min((name.requested for name in names if name is not None), default="")
    group = operation.partition_path or "", operation.file_id or ""
    return FileSlice(*group, min(operation.base_instant_time or first, first), None, ())


def _slice(
    storage: Storage, group: FileGroupId, operation: CompactionOperation, spec: CompactionSpec
) -> FileSlice:
    """Return the slice that the plan names, as a listing would show it."""
    bases, logs = _names(group, operation, spec.requested)
    sizes = _sizes(storage, [path for path, _ in (*bases, *logs)], spec.requested)
    commits = {**{p: n.requested for p, n in bases}, **{p: n.requested for p, n in logs}}
    for path, found_bytes in sizes.items():
        if found_bytes < (size := spec.sizes.get(path, 0)):
            lost = LostFile(path, commits[path], size, found_bytes)
            raise lost_file_error(lost, f"the compaction {spec.requested} cannot be executed")
    found = [LogFile(path, sizes[path], name) for path, name in logs]
    base = next((BaseFile(path, sizes[path], name) for path, name in bases), None)
    instant = operation.base_instant_time or spec.requested
    ordered = tuple(sorted(found, key=lambda log: log.name.order))
    return FileSlice(group.partition, group.file_id, instant, base, ordered)


def _sizes(storage: Storage, paths: Sequence[str], requested: str) -> dict[str, int]:
    sizes = {}
    for path in paths:
        stat = storage.stat(path)
        if stat is None:
            raise CorruptTableError(
                f"the compaction {requested} cannot be executed",
                why=f"{path!r}, which its plan names, is gone",
                next_step="Restore the file, because committed rows are lost with it. Or cancel the"
                " plan with cancel_compaction, which loses no other rows",
            )
        sizes[path] = stat.size
    return sizes


def broken_plan(requested: str, why: str, service: str = "compaction") -> CorruptTableError:
    return CorruptTableError(
        f"the {service} {requested} cannot be executed",
        why=f"its plan is not valid: {why}",
        next_step=f"Find out which program wrote the plan, and cancel it with cancel_{service}",
    )
