"""Logs of more rows than memory holds, in no order: when it is full, half of it is spilled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.write.buffer import RowBuffer
from pyhudi.write.deletes import LocatedDeletes
from pyhudi.write.files.group_log import GroupLog
from pyhudi.write.files.spec import DeleteRows, KeyedRows
from pyhudi.write.group_files import Files
from pyhudi.write.row_shape import RowShape

#: Bytes of existing keys that a task caches to find new ones; at this size it drops the cache.
EXISTING_KEYS_BYTES = 256 << 20


def spilled_logs(
    files: Files, rows: RowBuffer, batches: Iterable[pa.RecordBatch], bytes_max: int
) -> Iterator[WriteStat]:
    """Write the buffered rows, and those of the batches that follow."""
    logs = SpillingLogWriter(files)
    rows.route(files.routing)
    following = iter(batches)
    is_whole = False
    while not is_whole:
        batch = next(following, None)  # read first, because the last file has more=False
        is_whole = batch is None
        for group, taken in rows.taken(0 if is_whole else bytes_max // 2):
            yield from logs.add(group, rows=taken, more=not is_whole)
        if batch is not None:
            rows.fill(iter([batch]), None)
            rows.fill(following, bytes_max)
    yield from logs.end()


def spilled_deletes(
    files: Files, shape: RowShape, batches: Iterable[pa.RecordBatch], bytes_max: int
) -> Iterator[WriteStat]:
    """Write deletes of the keys, which come with all columns that a delete needs."""
    logs = SpillingLogWriter(files)
    buffered: list[pa.RecordBatch] = []
    for batch in batches:
        buffered.append(shape.prepare(batch).rows)
        if sum(keys.nbytes for keys in buffered) >= bytes_max:
            yield from logs.add_deletes(pa.Table.from_batches(buffered), more=True)
            buffered = []
    if buffered:
        yield from logs.add_deletes(pa.Table.from_batches(buffered), more=False)
    yield from logs.end()


class SpillingLogWriter:
    """Writes the log files of one task, one after the other for each file group."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._logs: dict[FileGroupId, GroupLog] = {}
        self._existing_keys: dict[FileGroupId, pa.Array | None] = {}

    def add(
        self,
        group: FileGroupId,
        *,
        rows: KeyedRows | None = None,
        deletes: DeleteRows | None = None,
        more: bool,
    ) -> Sequence[WriteStat]:
        files = self._files
        if group not in self._existing_keys:
            cached = (keys for keys in self._existing_keys.values() if keys is not None)
            if sum(keys.nbytes for keys in cached) > EXISTING_KEYS_BYTES:
                self._existing_keys.clear()  # they are the same when read again
            self._existing_keys[group] = files.existing_keys(group)
        if group not in self._logs:
            self._logs[group] = files.log(group)
        existing_keys = self._existing_keys[group]
        log = self._logs[group]
        return log.write(rows=rows, deletes=deletes, existing_keys=existing_keys, more=more)

    def end(self) -> Iterator[WriteStat]:
        """Write what comes after the last rows of each file group."""
        for group in sorted(self._logs):
            yield from self._logs[group].end()

    def add_deletes(self, keys: pa.Table, *, more: bool) -> Iterator[WriteStat]:
        located = LocatedDeletes(keys, unconditional=False)
        deletes = located.split(self._files.config, self._files.routing)
        for group in sorted(deletes):
            yield from self.add(group, deletes=deletes[group], more=more)
