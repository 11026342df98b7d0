"""Tables to damage, in memory, with what was ever written to them.

Golden tables bring what Hudi itself writes; handmade ones bring every kind of block in one slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq

import pyhudi
from golden_tables import GoldenTables
from handmade import HandmadeTable, at
from pyhudi.format.files.log_file import BlockType, HeaderKey, LogBlock, decode_blocks
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.table.log_blocks import LocatedBlock, decode_log_block
from pyhudi.table.merge import LogRows
from pyhudi.table.schema import conform

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])

_numbers = count()


def new_memory() -> Storage:
    return open_storage(f"memory://fuzz-{next(_numbers)}")


class Subject:
    """One table, its sound bytes, and a time in the middle of its life."""

    def __init__(self, name: str, storage: Storage) -> None:
        self.name = name
        self.storage = storage
        self.files = {stat.path: storage.read(stat.path) for stat in storage.list("")}
        table = pyhudi.open_table(storage.uri)
        completed = [time for time in table.inspect.timeline()["completed"].to_pylist() if time]
        self.time = sorted(completed)[len(completed) // 2]
        sound = table.read(meta=True)
        self.schema = sound.schema
        self.rows = row_texts(sound.to_arrow())
        self.written = frozenset(self._written(table))

    @property
    def uri(self) -> str:
        return self.storage.uri

    @property
    def logs(self) -> list[str]:
        return [path for path in self.files if _is_data(path) and ".log." in path]

    @property
    def bases(self) -> list[str]:
        return [path for path in self.files if _is_data(path) and path.endswith(".parquet")]

    def restore(self, path: str) -> None:
        if path in self.files:
            self.storage.write(path, self.files[path])
        else:
            self.storage.delete(path)

    def _written(self, table: pyhudi.Table) -> Iterator[str]:
        """Every version of every row in the table's files, seen or not, in today's columns."""
        spec = table.read(meta=True).plan.spec
        for path in self.bases:
            for batch in pq.ParquetFile(pa.BufferReader(self.files[path])).iter_batches():
                yield from row_texts(conform(batch, self.schema, path))
        for path in self.logs:
            for placed, content in _blocks(path, self.files[path]):
                rows = decode_log_block(placed, content, spec.merged, spec.rule)
                if isinstance(rows, LogRows):
                    yield from row_texts(rows.rows.select(self.schema.names))


def _is_data(path: str) -> bool:
    return not path.startswith(".hoodie/") and not path.endswith(".cdc")


def _blocks(path: str, data: bytes) -> Iterator[tuple[LocatedBlock, bytes]]:
    for block in decode_blocks(lambda start, end: data[start:end], len(data), path):
        assert isinstance(block, LogBlock), "a sound table has no corrupt spans"
        if block.type is not BlockType.COMMAND:
            yield LocatedBlock(path, block), data[block.content_start : block.content_end]


def row_texts(rows: pa.Table | pa.RecordBatch) -> list[str]:
    """Rows as texts: values of every type that can be compared and put into sets."""
    return sorted(map(repr, rows.to_pylist()))


class Subjects:
    """Makes each subject when it is first asked for."""

    def __init__(self, golden: GoldenTables) -> None:
        self._golden = golden
        self._made: dict[str, Subject] = {}

    def __getitem__(self, name: str) -> Subject:
        if name not in self._made:
            self._made[name] = Subject(name, self._storage(name))
        return self._made[name]

    def _storage(self, name: str) -> Storage:
        storage = new_memory()
        if name.startswith("handmade"):
            ordering = "ts" if name == "handmade by event time" else ""
            make_every_kind_of_block(HandmadeTable(storage, SCHEMA, ordering=ordering))
            return storage
        folder = self._golden.path(name)
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            storage.write(path.relative_to(folder).as_posix(), path.read_bytes())
        return storage


def make_every_kind_of_block(made: HandmadeTable) -> None:
    """One slice: a base file, row blocks of both kinds, deletes, a rollback, a compacted block."""
    commit(made, 1, made.base(1, [row(key, 1, "base") for key in "abcdefgh"]))
    parquet = made.rows_block(3, [row("a", 3, "log"), row("i", 3, "log")])
    avro = made.rows_block(3, [row("b", 3, "log"), row("j", 3, "log")], avro=True)
    commit(made, 3, made.log(3, parquet, avro))
    commit(made, 5, made.log(5, made.rows_block(5, [row("c", 5, "rolled back")], avro=True)))
    rollback = made.rollback_block(7, 5)
    deletes = made.deletes_block(7, ["d", "i"], pa.array([9, 9], pa.int64()))
    newer = made.rows_block(7, [row("e", 7, "newest"), row("a", 2, "late")], avro=True)
    commit(made, 7, made.log(7, rollback, deletes, newer))
    replaced = {HeaderKey.COMPACTED_BLOCK_TIMES: at(3)}
    commit(made, 9, made.log(9, made.rows_block(9, [row("f", 9, "new")], header=replaced)))


def commit(made: HandmadeTable, requested: int, path: str) -> None:
    made.begin(requested)
    made.complete(requested, requested + 1, [path])


def row(key: str, ts: int, value: str) -> dict[str, object]:
    return {"id": key, "ts": ts, "v": f"{value} of {key}"}
