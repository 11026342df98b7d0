"""What tasks that write data files share: Arrow rows in, files and write stats out.

These functions know a storage, a spec and a file group. They know nothing of Spark or of the
process they run in; the local engine and Spark's tasks call the same ones.

**All attempts use one name.** A task may run twice: Spark repeats what failed and speculates on
what is slow, and a client repeats a call whose reply was lost. Readers show every log file of a
committed instant, whether or not a write stat names it, so two attempts must never leave two files.
Therefore the write token is fixed, and a file's name depends only on the instant, the file group
and the file's number. One attempt creates the file, and the others return the stats of that file,
which they read. So every function here may be called again, at any time.

**A marker comes first,** one for each file, so that a rollback knows which files may exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.conflict.announced import Met
from pyhudi.errors import ConflictError, CorruptTableError, InvalidRequestError
from pyhudi.format.files.file_names import FileGroupId, IoType, MarkerName, WriteToken
from pyhudi.format.files.partition_metadata import PARTITION_METADATA_FILE, partition_metadata
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.settings import LogBlockFormat
from pyhudi.storage.objects.write_fence import may_create_file
from pyhudi.storage.protocol import Storage
from pyhudi.table.rows.row_layout import RowLayout, partial_layout, row_layout
from pyhudi.write.files.announcing import DIRECT, Announcing, MetRivalError

#: The same for every attempt. Hudi, too, uses this token where it knows no task.
WRITE_TOKEN: Final = WriteToken(0, 0, 0).text


@dataclass(frozen=True, slots=True)
class Part:
    """The columns of a joined table that the partial rows of one owner have."""

    identity: tuple[str, ...]  # record key and partition
    own: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteSpec:
    """What each task of a write has to know besides its rows. It is small, because it is sent with
    them."""

    requested: InstantTime
    avro_schema: str  # the table's, as commit metadata has it: JSON without meta columns
    block_format: LogBlockFormat = LogBlockFormat.PARQUET
    log_file_bytes_max: int = 1 << 30  # a larger log continues in another file
    write_token: str = WRITE_TOKEN
    is_fenced: bool = False  # True if attempts may outlive the write; then each checks the fence
    part: Part | None = None  # set if rows are partial
    announcing: Announcing = DIRECT  # how the markers of its files get into storage

    @property
    def task(self) -> int:
        """The number of the task, if several write to one file group, each with its own token."""
        return int(self.write_token.partition("-")[0])

    @property
    def place(self) -> int:
        """The place of the input whose rows a log has in a child of a virtual resize, from 1; 0 for
        any other log."""
        return int(self.write_token.split("-")[1])

    def for_input(self, place: int) -> WriteSpec:
        """Return how logs of a child are written that have the rows of this input alone."""
        return replace(self, write_token=WriteToken(self.task, place, 0).text)

    @property
    def layout(self) -> RowLayout:
        """The schema of the files. Rows to write have exactly the columns `layout.data`."""
        return rows_layout(self.avro_schema, self.part)

    @property
    def whole_layout(self) -> RowLayout:
        return row_layout(self.avro_schema)


def rows_layout(avro_schema: str, part: Part | None) -> RowLayout:
    """Return the layout of files with rows of a table: whole rows, or a part of each."""
    if part is None:
        return row_layout(avro_schema)
    return partial_layout(avro_schema, (*part.identity, *part.own))


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """New rows, in the table's own columns, and the record key of each."""

    rows: pa.RecordBatch
    keys: pa.Array  # text


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Deletes by record key.

    A delete with an ordering value loses against a row that is newer. Without one, or where it is
    null, it is a commit-time delete and beats whatever came before. Several ordering fields are a
    struct, whose fields are all null or none.
    """

    keys: pa.Array  # text
    ordering: pa.Array | None = None

    def by_kind(self) -> Iterator[DeleteRows]:
        """Yield the deletes with an ordering value, then those without."""
        given = None if self.ordering is None else _has_value(self.ordering)
        if given is None or given.true_count == len(given):
            yield self
            return
        assert self.ordering is not None
        if given.true_count:
            yield DeleteRows(self.keys.filter(given), self.ordering.filter(given))
        yield DeleteRows(self.keys.filter(pc.invert(given)))


def _has_value(ordering: pa.Array) -> pa.BooleanArray:
    """Return where there is an ordering value, or of several fields at least one."""
    if not pa.types.is_struct(ordering.type):
        return ordering.is_valid()
    given = pa.repeat(False, len(ordering))
    for part in ordering.flatten():
        given = pc.or_(given, part.is_valid())
    return given


def create_partition_metadata(storage: Storage, partition: str, requested: InstantTime) -> None:
    """Make the folder a partition, before its first data file. An existing partition file stays.

    Without this file Hudi's Spark reader shows no row of the partition, and no error.
    """
    data = partition_metadata(partition, requested)
    storage.create(data_path(partition, PARTITION_METADATA_FILE), data)


class WriteOverError(ConflictError):
    """The write that a task belongs to has been completed or rolled back without the task."""


def create_marker(storage: Storage, spec: WriteSpec, path: str, io_type: IoType) -> None:
    """Announce a data file. An earlier attempt may have done so, which does no harm.

    Raise MetRivalError if the write yields to another one, and WriteOverError if it is over.
    """
    verdict = spec.announcing.announce(storage, spec.requested, MarkerName(path, io_type))
    if isinstance(verdict, Met):
        raise MetRivalError.of(verdict)
    is_open = verdict.is_open
    if is_open is None:
        is_open = not spec.is_fenced or may_create_file(storage, spec.requested)
    if not is_open:
        raise WriteOverError(
            f"a task of the write {spec.requested} stops",
            why="the write has been completed or rolled back without it",
            next_step="Do nothing. The rows of this task are not lost: another attempt wrote them,"
            " or the write has reported to its caller that it failed",
        )


def data_path(partition: str, file_name: str) -> str:
    """Return the path relative to the table."""
    return f"{partition}/{file_name}" if partition else file_name


def file_stat(
    group: FileGroupId, file_name: str, size: int, *, writes: int, deletes: int
) -> WriteStat:
    """Return a write stat with zeros where Hudi has them, because readers add them up."""
    return WriteStat(
        file_id=group.file_id,
        path=data_path(group.partition, file_name),
        num_writes=writes,
        num_deletes=deletes,
        num_update_writes=0,
        total_write_bytes=size,
        total_write_errors=0,
        partition_path=group.partition,
        total_log_records=0,
        total_updated_records_compacted=0,
        num_inserts=0,
        total_log_blocks=0,
        total_corrupt_log_block=0,
        total_rollback_blocks=0,
        file_size_in_bytes=size,
        total_log_files_compacted=0,
        total_log_read_time_ms=0,
        total_log_size_compacted=0,
        num_updates=0,
    )


# ---- the file of an earlier attempt


def refuse_unknown(files: Sequence[str]) -> None:
    """Raise InvalidRequestError if a marker names a file that no attempt which counts wrote."""
    if files:
        raise attempts_disagree(files[0], "no attempt that counts wrote it")


def attempts_disagree(path: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"two attempts of one task disagree about {path!r}",
        why=f"{why}; the input gave other rows, or another order, when it was computed again",
        next_step="Store or cache the input, so that computing it twice gives the same, and write"
        " it again",
    )


def not_whole(path: str, why: str) -> CorruptTableError:
    return CorruptTableError(
        "an earlier attempt left a file that is not whole",
        why=f"{why}; the storage showed a write before it was complete",
        next_step="Write again: this instant is rolled back, and the file with it. Then check that"
        " the storage creates files all or nothing",
        path=path,
    )


def taken_away(path: str) -> ConflictError:
    return ConflictError(
        f"{path!r} is gone",
        why="another attempt had created it, and the write was rolled back since",
        next_step="Begin the write again",
    )
