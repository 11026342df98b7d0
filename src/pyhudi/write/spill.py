"""Logs of more rows than memory holds, in no order: half of them go out whenever it is full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.index.routing import Place
from pyhudi.write.buffer import GatheredRows
from pyhudi.write.deletes import gathered_deletes
from pyhudi.write.files.log_file import write_log
from pyhudi.write.files.spec import DeleteRows, KeyedRows
from pyhudi.write.group_files import Files

#: Keys of the table that a task holds, to tell new ones, before it forgets those of other buckets.
LIVE_BYTES = 256 << 20


def streamed_logs(
    files: Files, rows: GatheredRows, batches: Iterable[pa.RecordBatch], bytes_max: int
) -> Iterator[WriteStat]:
    """Write the gathered rows, and those of the batches that follow."""
    logs = Logs(files)
    following = iter(batches)
    is_whole = False
    while not is_whole:
        batch = next(following, None)  # looked for first: the last file of a group says so
        is_whole = batch is None
        for place, taken in rows.taken(0 if is_whole else bytes_max // 2):
            yield from logs.add(place, rows=taken, more=not is_whole)
        if batch is not None:
            rows.fill(iter([batch]), None)
            rows.fill(following, bytes_max)


class Logs:
    """The log files of one task, one after the other for each file group."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._counts: dict[Place, int] = {}
        self._live: dict[Place, pa.Array | None] = {}

    def add(
        self,
        place: Place,
        *,
        rows: KeyedRows | None = None,
        deletes: DeleteRows | None = None,
        more: bool,
    ) -> Sequence[WriteStat]:
        files, count = self._files, self._counts.get(place, 0)
        if place not in self._live:
            if sum(0 if keys is None else keys.nbytes for keys in self._live.values()) > LIVE_BYTES:
                self._live.clear()  # they are the same when read again
            self._live[place] = files.live_keys(place)
        stats = write_log(
            files.storage,
            files.spec,
            files.file_ids(*place),
            rows=rows,
            deletes=deletes,
            live=self._live[place],
            ordinal=count,
            more=more,
        )
        self._counts[place] = count + len(stats)
        return stats

    def add_deletes(self, keys: pa.Table, *, more: bool) -> Iterator[WriteStat]:
        groups = gathered_deletes(keys, self._files.config, unconditional=False).groups
        for place in sorted(groups):
            yield from self.add(place, deletes=groups[place], more=more)
