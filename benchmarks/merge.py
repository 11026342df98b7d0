"""Merging one file slice: 500,000 base rows of 11 columns, five logs of 25,000 rows.

Compared with reading the same base file with pyarrow alone, in CPU seconds. The memory of either is
measured in a process of its own: ours must follow the row groups and the logs, not the base file.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import best_of, peak_memory_mb, verdict

import pyhudi
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.format.files.log_file import BlockType, HeaderKey, encode_block
from pyhudi.storage.open import open_storage

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from handmade import HandmadeTable, at

BASE_ROWS = 500_000
LOG_ROWS = 25_000
LOGS = 5
ROW_GROUP_ROWS = 50_000
RATIO_MAX = 2.5

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        *((f"n{i}", pa.int64()) for i in range(3)),
        *((f"d{i}", pa.float64()) for i in range(3)),
        *((f"s{i}", pa.string()) for i in range(3)),
    ]
)


def key_column(numbers: np.ndarray) -> pa.Array:
    """Keys of 36 characters that look like uuids and do not sort as the numbers do."""
    mixed = (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) & np.uint64(2**64 - 1)
    text = np.char.mod("%016x", mixed)
    return pa.array([f"{t[:8]}-{t[8:12]}-{t[12:]}-{t[:4]}-{t[:12]}" for t in text])


def columns(numbers: np.ndarray, instant: str, ts: int) -> pa.Table:
    count = len(numbers)
    random = np.random.default_rng(ts)
    keys = key_column(numbers)
    repeated = [instant, f"{instant}_0_0", None, "", "f-0"]
    meta = [keys if v is None else pa.repeat(pa.scalar(v), count) for v in repeated]
    data = [
        keys,
        pa.array(np.full(count, ts)),
        *(pa.array(random.integers(0, 1 << 40, count)) for _ in range(3)),
        *(pa.array(random.random(count)) for _ in range(3)),
        *(
            pa.array(np.char.mod("text number %d", random.integers(0, 9999, count)))
            for _ in range(3)
        ),
    ]
    names = [
        f"_hoodie_{n}"
        for n in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
    ]
    return pa.table([*meta, *data], names=[*names, *SCHEMA.names])


def build(folder: Path, base_rows: int = BASE_ROWS) -> Path:
    """The table; half of each log updates rows of the base file, half is new."""
    made = HandmadeTable(open_storage(str(folder / "table")), SCHEMA, ordering="ts")
    random = np.random.default_rng(7)
    base = folder / "table" / f"f-0_0-1-0_{at(1)}.parquet"
    made.begin(1)
    rows = columns(np.arange(base_rows), at(1), 1)
    pq.write_table(rows, base, compression="snappy", row_group_size=ROW_GROUP_ROWS)
    made.complete(1, 2, [base.name])
    for number in range(LOGS):
        time = 10 + 2 * number
        updates = random.choice(base_rows, LOG_ROWS // 2, replace=False)
        inserts = base_rows + number * LOG_ROWS + np.arange(LOG_ROWS - LOG_ROWS // 2)
        table = columns(np.concatenate([updates, inserts]), at(time), time)
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="snappy")
        header = {
            HeaderKey.INSTANT_TIME: at(time),
            HeaderKey.SCHEMA: json.dumps(avro_record_schema(table.schema, "handmade")),
        }
        made.begin(time)
        block = encode_block(BlockType.PARQUET_DATA, header, sink.getvalue())
        made.complete(time, time + 1, [made.log(time, block)])
    return base


def merged_rows(table: str) -> int:
    return sum(batch.num_rows for batch in pyhudi.open_table(table).read(meta=True).to_batches())


def plain_rows(base: str) -> int:
    return pq.read_table(base).num_rows


def main() -> bool:
    print(f"merge: {BASE_ROWS:,} base rows, {LOGS} logs of {LOG_ROWS:,} rows, snappy")
    with tempfile.TemporaryDirectory() as folder:
        base = build(Path(folder))
        table = str(Path(folder) / "table")
        rows = merged_rows(table)
        assert rows == BASE_ROWS + LOGS * (LOG_ROWS - LOG_ROWS // 2), rows
        best = best_of(
            7,
            {
                "pyarrow reads the base file": lambda: plain_rows(str(base)),
                "pyhudi merges the slice": lambda: merged_rows(table),
            },
        )
        for name, cost in best.items():
            print(f"  {name}: {cost.cpu_s:.2f} CPU s, {cost.wall_s:.2f} s")
        plain, merged = best.values()
        memory = {
            name: _memory(name, argument)
            for name, argument in (("idle", ""), ("plain", str(base)), ("merged", table))
        }
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), 4 * BASE_ROWS)
        memory["merged, base file 4 times as large"] = _memory("merged", f"{folder}/table")
    print("  peak memory, MB: " + ", ".join(f"{k} {v:.0f}" for k, v in memory.items()))
    grown = memory["merged, base file 4 times as large"] / memory["merged"]
    met = verdict("CPU ratio", merged.cpu_s / plain.cpu_s, RATIO_MAX)
    return met & verdict("memory with the larger base file", grown, 1.25)


def _memory(what: str, argument: str) -> float:
    command = [sys.executable, __file__, "--memory", what, argument]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        what, argument = sys.argv[2:]
        {"idle": len, "plain": plain_rows, "merged": merged_rows}[what](argument)
        print(peak_memory_mb())
    else:
        sys.exit(0 if main() else 1)
