"""Whether merging the logs of a slice into one log would pay: the figures of decision 11.

    python benchmarks/log_compaction.py [--quick]

One file group with a base file and logs of random rows of it. Read in three shapes: as they are,
with one log of the same rows, which is what a log compaction would leave, and compacted. Beside the
CPU of reads of all columns it shows how often each asks storage, and what it costs to get there:
the compaction, and writing the one log, which stands for a log compaction without its reading.
Nothing is judged here, so it is not among what `make bench` runs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from measure import best_of, cost_of

import pyhudi
from pyhudi.read.load import TableLoader, load_config
from pyhudi.session.open import OpenTable, Overrides
from pyhudi.storage.open import open_storage
from pyhudi.world import real_world

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from faulty_storage import FaultyStorage

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("ts", pa.int64()),
        ("a", pa.string()),
        ("b", pa.float64()),
    ]
)
TURNS = 5


@dataclass(frozen=True)
class Shape:
    """A base file's rows, and the logs on it."""

    base_rows: int
    logs: int
    log_rows: int


FULL = (
    Shape(400_000, 50, 200),
    Shape(400_000, 10, 10_000),
    Shape(2_000_000, 50, 200),
    Shape(2_000_000, 10, 10_000),
)
QUICK = (Shape(20_000, 5, 100),)


def rows(keys: np.ndarray, ts: int, seed: int) -> pa.Table:
    chance, count = np.random.default_rng(seed), len(keys)
    columns = {
        "id": [f"key-{key:09d}" for key in keys],
        "ts": np.full(count, ts),
        "a": pa.array(chance.integers(0, 1000, count)).cast(pa.string()),
        "b": chance.random(count),
    }
    return pa.table(columns, schema=SCHEMA)


def upserts(shape: Shape) -> list[pa.Table]:
    chance = np.random.default_rng(1)
    return [
        rows(chance.choice(shape.base_rows, shape.log_rows, replace=False), 2 + turn, turn)
        for turn in range(shape.logs)
    ]


def merged(parts: list[pa.Table]) -> pa.Table:
    """The newest row of each key."""
    newest_first = pa.concat_tables(reversed(parts))
    _, first = np.unique(newest_first["id"].to_numpy(), return_index=True)
    return newest_first.take(first).combine_chunks()


def based(folder: str, shape: Shape) -> pyhudi.Table:
    table = pyhudi.create_table(
        folder,
        SCHEMA,
        record_key="id",
        ordering="ts",
        buckets=pyhudi.SimpleBuckets(1),
        upkeep=False,
    )
    table.append(rows(np.arange(shape.base_rows), 1, 0))
    table.services.compact()
    return table


def read(folder: str) -> None:
    pyhudi.open_table(folder).read(meta=True).to_arrow()


def requests(folder: str) -> int:
    """Calls of storage that open and read the table."""
    storage = FaultyStorage(open_storage(folder))
    opening = OpenTable(storage, real_world(), pyhudi.WriteSettings(), Overrides())
    pyhudi.Table(TableLoader(storage, load_config(storage)), opening).read().to_arrow()
    return len(storage.trace)


def cpu_ms(work: Callable[[], object]) -> float:
    return cost_of(work).cpu_s * 1000


def measure(shape: Shape) -> None:
    parts = upserts(shape)
    with tempfile.TemporaryDirectory() as name:
        many, one = f"{name}/many", f"{name}/one"
        table = based(many, shape)
        for part in parts:
            table.upsert(part)
        whole, single = merged(parts), based(one, shape)
        log_ms = cpu_ms(lambda: single.upsert(whole))
        shapes = {"as they are": many, "as one log": one}
        best = best_of(TURNS, {what: partial(read, folder) for what, folder in shapes.items()})
        asked = {what: requests(folder) for what, folder in shapes.items()}
        compaction_ms = cpu_ms(table.services.compact)
        best |= best_of(TURNS, {"compacted": partial(read, many)})
        asked["compacted"] = requests(many)
    print(f"  {shape.logs} logs of {shape.log_rows:,} rows on a base of {shape.base_rows:,} rows")
    for what, cost in best.items():
        print(f"    {what}: {cost.cpu_s * 1000:.0f} CPU ms, {asked[what]} requests")
    print(f"    the compaction {compaction_ms:.0f} CPU ms, writing the one log {log_ms:.0f} CPU ms")


def main(*, is_quick: bool = False) -> None:
    print("log compaction: a read of all columns, best of", TURNS)
    for shape in QUICK if is_quick else FULL:
        measure(shape)


if __name__ == "__main__":
    main(is_quick="--quick" in sys.argv)
