"""Keys → owners on rings of 10 to 10,000 nodes, and lookups of keys by the number of buckets.

Hashing and searching run on one core, in CPU seconds, with the keys already in memory. A lookup
reads the rows of ten keys of a table of so many buckets: it opens the buckets of these keys.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from measure import best_of
from services_started import at_least
from writes import key_column

import pyhudi
from pyhudi.format.table.ring_file import initial_ring
from pyhudi.index.ring_layout import RingLayout
from pyhudi.index.simple_bucket import bucket_ids

KEYS = 1_000_000
NODES = (10, 100, 1_000, 10_000)
GOAL_MILLIONS = 5.0
TURNS = 5
LOOKED_UP = 10
#: Rows of the table and its numbers of buckets.
LOOKUPS, LOOKUPS_QUICK = (400_000, (4, 32, 256)), (20_000, (4, 32))


def main(*, is_quick: bool = False) -> bool:
    keys = key_column(np.arange(KEYS // 10 if is_quick else KEYS))
    layouts = {count: RingLayout(initial_ring("p", count), ("id",)) for count in NODES}
    works = {f"{count:,} nodes": partial(each.assign, keys) for count, each in layouts.items()}
    costs = best_of(TURNS, {**works, "simple": partial(bucket_ids, keys, ("id",), 10_000)})
    rates = {name: len(keys) / cost.cpu_s / 1e6 for name, cost in costs.items()}
    print("  million keys of 36 characters a CPU second, hash and owner:")
    print("    " + ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items()))
    met = at_least("million keys a second, 10,000 nodes", rates["10,000 nodes"], GOAL_MILLIONS)
    _lookups(*(LOOKUPS_QUICK if is_quick else LOOKUPS))
    return met


def _lookups(rows: int, counts: tuple[int, ...]) -> None:
    numbers = np.arange(rows)
    source = pa.table({"id": key_column(numbers), "ts": numbers, "v": numbers * 7})
    chosen = np.random.default_rng(3).choice(rows, LOOKED_UP, replace=False)
    wanted = source["id"].take(pa.array(chosen)).to_pylist()
    print(f"  {LOOKED_UP} keys of {rows:,} looked up, with opening it, CPU ms (wall ms):")
    for count in counts:
        cells = []
        for name, buckets in (
            ("consistent", pyhudi.ConsistentBuckets(initial=count)),
            ("simple", pyhudi.SimpleBuckets(count)),
        ):
            with tempfile.TemporaryDirectory() as folder:
                uri = str(Path(folder) / "t")
                table = pyhudi.create_table(
                    uri, source.schema, record_key="id", ordering="ts", buckets=buckets
                )
                table.append(source)
                table.services.compact()
                cost = best_of(TURNS, {name: partial(_looked_up, uri, wanted)})[name]
            cells.append(f"{name} {1000 * cost.cpu_s:.1f} ({1000 * cost.wall_s:.1f})")
        print(f"    {count} buckets: {', '.join(cells)}", flush=True)


def _looked_up(uri: str, keys: list[str]) -> None:
    found = pyhudi.open_table(uri).read(where=pc.field("id").isin(keys)).to_arrow()
    assert found.num_rows == len(keys)
