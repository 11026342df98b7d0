"""One process that adds columns with rows, at the same time as others do.

    cd tests && python -m processes.evolver TABLE FOLDER WRITER MODE

In each round every process brings rows with columns that only it knows. No process brings its last
row before all have called, so none begins with what another adds in that round. With the schema
mode "add" there is one round, for later rows would lack what others have added; with "merge" there
is one for each column. A process that was killed and is started again makes its calls again, with
the same `write_id`, and what had completed is not written twice.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

import pyhudi

WRITERS = 4
COLUMNS = 5  # of each writer
WAIT_S = 60.0  # for the others to call
_PARENT = os.getppid()  # without it nothing waits for this process
SETTINGS = pyhudi.WriteSettings(heartbeat_interval_ms=1_000)
FIRST = pa.schema([pa.field("id", pa.string(), nullable=False), ("ts", pa.int64())])


Batches: TypeAlias = Iterator[pa.RecordBatch]
#: Schema mode → the columns that each round adds.
ROUNDS: dict[str, list[tuple[int, ...]]] = {
    "add": [tuple(range(COLUMNS))],
    "merge": [(number,) for number in range(COLUMNS)],
}


def column_of(writer: int, number: int) -> str:
    return f"c{writer}_{number}"


def rows_of(writer: int, columns: tuple[int, ...]) -> pa.Table:
    """A row of its own, and one that all write: there the last one counts."""
    names = {column_of(writer, number): number for number in columns}
    schema = pa.schema([*FIRST, *((name, pa.int32()) for name in names)])
    own = {"id": f"{writer}-{columns[0]}", "ts": 1, **names}
    shared = {"id": "all", "ts": 1 + columns[0] * WRITERS + writer, **names}
    return pa.Table.from_pylist([own, shared], schema)


def called_mark(folder: Path, writer: int, number: int) -> Path:
    return folder / f"called-{writer}-{number}"


def _once_all_have_called(rows: pa.Table, folder: Path, writer: int, turn: int) -> Batches:
    first, last = rows.slice(0, 1), rows.slice(1)
    yield from first.to_batches()
    called_mark(folder, writer, turn).touch()
    deadline = time.monotonic() + WAIT_S
    while not all(called_mark(folder, other, turn).exists() for other in range(WRITERS)):
        if time.monotonic() > deadline or os.getppid() != _PARENT:
            raise TimeoutError(f"the others have not called in round {turn}")
        time.sleep(0.002)
    yield from last.to_batches()


def main(uri: str, folder: str, writer: int, mode: str) -> None:
    table = pyhudi.open_table(uri, write_settings=SETTINGS)
    for turn, columns in enumerate(ROUNDS[mode]):
        rows, is_done = rows_of(writer, columns), False
        while not is_done:
            batches = _once_all_have_called(rows, Path(folder), writer, turn)
            reader = pa.RecordBatchReader.from_batches(rows.schema, batches)
            try:
                table.upsert(reader, schema_mode=mode, write_id=f"{writer} {turn}")
            except pyhudi.ConflictError as error:
                if isinstance(error, pyhudi.ConcurrentSchemaEvolutionError):
                    raise  # no two of the columns contradict
            else:
                is_done = True


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
