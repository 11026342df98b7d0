"""The files of one group: logs in pieces, base files as a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.table_config import TableConfig, TableType
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.index.routing import Routing
from pyhudi.plan.scan import merge_rule
from pyhudi.read.lookup import GroupView
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import BaseFile
from pyhudi.table.file_slices import grouped_files
from pyhudi.table.log_blocks import deleting_rows
from pyhudi.world import Together, one_by_one
from pyhudi.write.files.announcing import DIRECT
from pyhudi.write.files.base_file import write_base
from pyhudi.write.files.group_log import GroupLog, PlainLog, VirtualInput, VirtualLog
from pyhudi.write.files.merged_base import rewrite_base
from pyhudi.write.files.spec import (
    DeleteRows,
    KeyedRows,
    WriteSpec,
    create_partition_metadata,
)
from pyhudi.write.sorted_groups import joined_rows

#: After this many bytes, a large group continues in another log file: what a task holds at a time.
PIECE_BYTES = 64 << 20
_BASE = ".parquet"


@dataclass(frozen=True, slots=True)
class Files:
    """How a task writes files of a group."""

    storage: Storage
    spec: WriteSpec
    config: TableConfig
    routing: Routing
    bases: Mapping[FileGroupId, BaseFile] = field(default_factory=dict)  # those that are replaced
    existing: GroupView | None = None  # the existing keys, for partial rows
    virtual: Mapping[FileGroupId, VirtualInput] = field(default_factory=dict)
    with_metadata: set[str] = field(default_factory=set)  # partitions known to have their file
    together: Together = one_by_one

    @property
    def is_mor(self) -> bool:
        return self.config.table_type is TableType.MERGE_ON_READ

    @property
    def at_once(self) -> Together:
        """How files are created that do not depend on each other.

        Looks at other writes keep what they saw, and are taken one after the other.
        """
        return self.together if self.spec.announcing == DIRECT else one_by_one

    def existing_keys(self, group: FileGroupId) -> pa.Array | None:
        """Return the keys that a group has, if the write needs them."""
        return None if self.existing is None else self.existing.keys(self.storage, group)

    def logs(self, group: FileGroupId, rows: Iterable[KeyedRows]) -> Iterator[WriteStat]:
        """Write one log file, or several if the rows are more than a task should hold."""
        existing_keys, log = self.existing_keys(group), self.log(group)
        is_begun = False
        pieces = _pieces(rows, PIECE_BYTES)
        piece = next(pieces, None)
        while piece is not None:
            following = next(pieces, None)
            more = following is not None
            if more or is_begun:
                piece = _in_order(piece)
            stats = log.write(rows=piece, existing_keys=existing_keys, more=more)
            is_begun = is_begun or bool(stats)
            yield from stats
            piece = following
        yield from log.end()

    def log(self, group: FileGroupId) -> GroupLog:
        """Return the log of a group, to be written in one call or several."""
        replaced = self.virtual.get(group)
        if replaced is None:
            return PlainLog(self.storage, self.spec, group)
        return VirtualLog(self.storage, self.spec, group, replaced, self.at_once)

    def base(self, group: FileGroupId, rows: Iterable[KeyedRows]) -> WriteStat:
        """Write a base file of these rows alone, whatever the group holds.

        A row that is marked as deleted is left out, because readers show every row of a base file.
        """
        if group.partition not in self.with_metadata:
            create_partition_metadata(self.storage, group.partition, self.spec.requested)
            self.with_metadata.add(group.partition)
        previous = self.bases.get(group)
        return write_base(self.storage, self.spec, group, self._undeleted(rows), previous=previous)

    def _undeleted(self, rows: Iterable[KeyedRows]) -> Iterator[KeyedRows]:
        rule = merge_rule(self.config)
        for part in rows:
            deletes = deleting_rows(part.rows, rule)
            if deletes.true_count:
                left = pc.invert(deletes)
                part = KeyedRows(part.rows.filter(left), part.keys.filter(left))
            if part.rows.num_rows:
                yield part

    def merged_base(self, group: FileGroupId, rows: Iterator[KeyedRows]) -> Iterator[WriteStat]:
        """Write the previous base file with the rows merged in; without one, the rows alone."""
        if group not in self.bases:
            yield self.base(group, rows)
            return
        buffered = list(rows)
        if buffered:
            yield self._rewritten(group, rows=joined_rows(buffered))

    def deletes(self, group: FileGroupId, deletes: DeleteRows) -> Iterator[WriteStat]:
        """Write a log of deletes, or the base file without these rows, if there is a base file."""
        if self.is_mor:
            log = self.log(group)
            yield from log.write(deletes=deletes)
            yield from log.end()
        elif group in self.bases:
            yield self._rewritten(group, deletes=deletes)

    def _rewritten(
        self,
        group: FileGroupId,
        *,
        rows: KeyedRows | None = None,
        deletes: DeleteRows | None = None,
    ) -> WriteStat:
        return rewrite_base(
            self.storage,
            self.spec,
            group,
            self.bases[group],
            rows=rows,
            deletes=deletes,
            rule=merge_rule(self.config),
        )


def _in_order(rows: KeyedRows) -> KeyedRows:
    """Return the rows sorted by their keys.

    If there are several files, every attempt must create the same ones, and rows whose keys have
    one hash arrive in any order.
    """
    order = pc.sort_indices(rows.keys)
    return KeyedRows(rows.rows.take(order), rows.keys.take(order))


def _pieces(rows: Iterable[KeyedRows], bytes_max: int) -> Iterator[KeyedRows]:
    buffered: list[KeyedRows] = []
    size = 0
    for part in rows:
        buffered.append(part)
        size += part.rows.nbytes
        if size >= bytes_max:
            yield joined_rows(buffered)
            buffered, size = [], 0
    if buffered:
        yield joined_rows(buffered)


class EmptyBuckets:
    """Which buckets had no row before this write; each partition is listed once.

    Called after the instant began: what completes from then on is found at the end, by the check
    for conflicts. Files of this instant were created by another attempt, whose choice holds for
    all. A base file without rows is a seed.
    """

    def __init__(self, storage: Storage, requested: str) -> None:
        self._storage = storage
        self._requested = requested
        # partition → file id → paths and requested times
        self._known: dict[str, dict[str, list[tuple[str, str]]]] = {}

    def has(self, group: FileGroupId) -> bool:
        if group.partition not in self._known:
            self._known[group.partition] = self._listed(group.partition)
        found = self._known[group.partition].get(group.file_id, [])
        own = [path for path, requested in found if requested == self._requested]
        if own:  # another attempt has chosen
            return any(path.endswith(_BASE) for path in own)
        return not found or (len(found) == 1 and self._is_seed(found[0][0]))

    def _listed(self, partition: str) -> dict[str, list[tuple[str, str]]]:
        objects = self._storage.list_folder(partition).objects
        return {
            group.file_id: [(file.path, file.name.requested) for file in group.files]
            for group in grouped_files(partition, ((stat.path, stat.size) for stat in objects))
        }

    def _is_seed(self, path: str) -> bool:
        if not path.endswith(_BASE):
            return False
        try:
            with self._storage.open(path) as source:
                return bool(pq.read_metadata(source).num_rows == 0)
        except (pa.ArrowException, OSError, ValueError):
            return False  # not known to be empty
