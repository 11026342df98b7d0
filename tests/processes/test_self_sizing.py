"""Two processes fill a table that nothing else maintains: it splits, compacts and cleans itself.

`PYHUDI_SIZED_ROWS` is how many rows they write; a million of them are part of the long runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import pyhudi
from processes.stores import TESTS

ROWS = int(os.environ.get("PYHUDI_SIZED_ROWS", "60000"))
LONG_ROWS = 1_000_000
BATCH = 5_000
WRITERS = 2
TARGET = 1 << 20
#: With the uri and the writer's number. A warning ends the process.
COMMAND = (
    "import sys; from processes.test_self_sizing import write; write(sys.argv[1], int(sys.argv[2]))"
)
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("v", pa.string())])
SIZING = pyhudi.Upkeep(
    resize=pyhudi.ResizePolicy(target_bytes=TARGET, rest_seconds=0),
    clean=pyhudi.CleanPolicy.commits(4),
)


def batch(number: int) -> pa.Table:
    """Rows of which a tenth are older ones again; their values can be compressed a little."""
    first = number * BATCH
    again = np.random.default_rng(number).integers(0, first + 1, BATCH // 10)
    ids = np.unique(np.concatenate([np.arange(first, first + BATCH), again]))
    bits = np.random.default_rng([number, 1]).bytes(len(ids) * 32).hex()
    values = [bits[n * 64 : n * 64 + 64] for n in range(len(ids))]
    return pa.table({"id": ids, "ts": np.full(len(ids), number), "v": values}, schema=SCHEMA)


def write(uri: str, writer: int) -> None:
    """Write every second batch, in a process of its own."""
    table = pyhudi.open_table(uri, progress=False)
    for number in range(writer, ROWS // BATCH, WRITERS):
        table.upsert(batch(number))


def test_two_processes_fill_a_table_that_sizes_itself(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = pyhudi.create_table(uri, SCHEMA, record_key="id", ordering="ts", upkeep=SIZING)
    writers = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", COMMAND, uri, str(n)], cwd=TESTS)
        for n in range(WRITERS)
    ]
    assert [writer.wait() for writer in writers] == [0] * WRITERS
    sizes = table.inspect.buckets(rows=False).column("bytes").to_pylist()
    began = table.inspect.timeline().column("began_as").to_pylist()
    assert max(sizes) <= 2 * TARGET
    assert sum(sizes) > TARGET * len(sizes) / 10
    # In a short run a look for what to clean may come too early, and the next one rests a minute.
    cleaned = {"clean"} if ROWS >= LONG_ROWS else set()
    assert {"compaction", "clustering"} | cleaned <= {*began}
    found = table.read(columns=["id", "ts"]).to_arrow()
    newest = {}
    for number in range(ROWS // BATCH):
        newest.update(dict.fromkeys(batch(number)["id"].to_pylist(), number))
    assert found.num_rows == len(newest) == pc.count_distinct(found["id"]).as_py()
    assert dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True)) == newest
    assert table.services.verify()
