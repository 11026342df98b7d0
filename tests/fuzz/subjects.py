"""Tables to damage, in memory, with what was ever written to them.

Golden tables bring what Hudi itself writes; handmade ones bring every kind of block in one slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import pyhudi
from handmade import HandmadeTable, at
from pyhudi.format.log_file import BlockType, HeaderKey, LogBlock, decode_blocks
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.table.log_blocks import PlacedBlock, decode_log_block
from pyhudi.table.merge import LogRows
from pyhudi.table.schema import conform

_numbers = count()
_SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])


class Subject:
    """One table, its sound bytes, and a time in the middle of its life."""

    def __init__(self, name: str, storage: Storage) -> None:
        self.name = name
        self.storage = storage
        self.files = {stat.path: storage.read(stat.path) for stat in storage.list("")}
        table = pyhudi.open_table(storage.uri)
        completed = [time for time in table.inspect.timeline()["completed"].to_pylist() if time]
        self.time = sorted(completed)[len(completed) // 2]
        self.rows = _rows(table.read().to_arrow())
        self.written = frozenset(_written(self))

    @property
    def logs(self) -> list[str]:
        """The log files of the data, whichever slice they are in."""
        return [path for path in self.data_files if ".log." in path]

    @property
    def data_files(self) -> list[str]:
        return [p for p in self.files if not p.startswith(".hoodie/") and not p.endswith(".cdc")]

    def put(self, path: str, data: bytes) -> None:
        self.storage.write(path, data)

    def restore(self, path: str) -> None:
        if path in self.files:
            self.storage.write(path, self.files[path])
        else:
            self.storage.delete(path)


def golden_subject(name: str, folder: Path) -> Subject:
    storage = new_memory()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            storage.write(path.relative_to(folder).as_posix(), path.read_bytes())
    return Subject(name, storage)


def new_memory() -> Storage:
    return open_storage(f"memory://fuzz-{next(_numbers)}")


# ---- handmade tables


def event_time_subject() -> Subject:
    """One slice with a base file, row blocks of both kinds, deletes and a rollback."""
    storage = new_memory()
    made = HandmadeTable(storage, _SCHEMA, ordering="ts")
    _every_kind_of_block(made)
    return Subject("handmade by event time", storage)


def commit_time_subject() -> Subject:
    storage = new_memory()
    _every_kind_of_block(HandmadeTable(storage, _SCHEMA))
    return Subject("handmade by commit time", storage)


def _every_kind_of_block(made: HandmadeTable) -> None:
    _commit(made, 1, made.base(1, [_row(key, 1, "base") for key in "abcdefgh"]))
    parquet = made.rows_block(3, [_row("a", 3, "log"), _row("i", 3, "log")])
    avro = made.rows_block(3, [_row("b", 3, "log"), _row("j", 3, "log")], avro=True)
    _commit(made, 3, made.log(3, parquet, avro))
    gone = made.rows_block(5, [_row("c", 5, "rolled back")])
    _commit(made, 5, made.log(5, gone))
    rollback = made.rollback_block(7, 5)
    deletes = made.deletes_block(7, ["d", "i"], pa.array([9, 9], pa.int64()))
    newer = made.rows_block(7, [_row("e", 7, "newest"), _row("a", 2, "late")], avro=True)
    _commit(made, 7, made.log(7, rollback, deletes, newer))
    compacted = made.rows_block(
        9, [_row("f", 9, "compacted")], header={HeaderKey.COMPACTED_BLOCK_TIMES: at(3)}
    )
    _commit(made, 9, made.log(9, compacted))


def _commit(made: HandmadeTable, requested: int, path: str) -> None:
    made.begin(requested)
    made.complete(requested, requested + 1, [path])


def _row(key: str, ts: int, value: str) -> dict[str, object]:
    return {"id": key, "ts": ts, "v": f"{value} of {key}"}


# ---- versions


def _rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def _written(subject: Subject) -> Iterator[str]:
    """Every version of every row in the table's files, seen or not, in today's columns."""
    spec = pyhudi.open_table(subject.storage.uri).read().plan.spec
    for path in subject.data_files:
        data = subject.files[path]
        if path.endswith(".parquet"):
            for batch in pq.ParquetFile(pa.BufferReader(data)).iter_batches():
                yield from _texts(conform(batch, spec.output, path))
        elif ".log." in path:
            blocks = decode_blocks(lambda a, b, data=data: data[a:b], len(data), path)  # type: ignore[misc]
            for block in blocks:
                assert isinstance(block, LogBlock), "the sound table is sound"
                if block.type is BlockType.COMMAND:
                    continue
                content = data[block.content_start : block.content_end]
                placed = PlacedBlock(path, block)
                decoded = decode_log_block(placed, content, spec.merged, spec.rule)
                if isinstance(decoded, LogRows):
                    yield from _texts(decoded.rows.select(spec.output.names))


def _texts(batch: pa.RecordBatch) -> list[str]:
    return [repr(row) for row in batch.to_pylist()]
