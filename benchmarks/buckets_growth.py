"""A table that grows tenfold under steady upserts: its largest bucket, consistent and simple.

Both tables begin with the same rows in as many buckets, each as large as the target. Nine times as
many new rows come in batches with updates between them. After each batch both tables are compacted,
and the consistent one is resized once, if it is due.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from measure import cost_of, verdict
from writes import rows_of

import pyhudi

GROWTH = 10
BATCHES = 18
BUCKETS = 2
ROWS, ROWS_QUICK = 100_000, 10_000
LARGEST_MAX = 2.0


def main(*, is_quick: bool = False) -> bool:
    first = ROWS_QUICK if is_quick else ROWS
    kinds = {
        "consistent": pyhudi.ConsistentBuckets(initial=BUCKETS),
        "simple": pyhudi.SimpleBuckets(BUCKETS),
    }
    found: dict[str, int] = {}
    print(f"  from {first:,} rows to {GROWTH * first:,} in {BATCHES} upserts")
    with tempfile.TemporaryDirectory() as folder:
        for kind, buckets in kinds.items():
            batch = rows_of(np.arange(first), 1)
            table = pyhudi.create_table(
                str(Path(folder) / kind),
                batch.schema,
                record_key="id",
                ordering="ts",
                buckets=buckets,
            )
            table.append(batch)
            table.services.compact()
            target = largest(table)
            cost = cost_of(partial(_grow, table, first, target))
            found[kind] = largest(table)
            assert table.read(columns=["id"]).to_arrow().num_rows == GROWTH * first
            count = table.inspect.buckets(rows=False).num_rows
            print(
                f"    {kind}: {count} buckets, the largest {found[kind] / target:.2f} times the"
                f" target; {cost.cpu_s:.1f} CPU s",
                flush=True,
            )
    return verdict(
        "largest of the consistent ones to the target", found["consistent"] / target, LARGEST_MAX
    )


def _grow(table: pyhudi.Table, first: int, target: int) -> None:
    is_resized = table.inspect.buckets(rows=False)["range"].null_count == 0
    policy = pyhudi.ResizePolicy(target_bytes=target, split_above=1.5, rest_seconds=0)
    added = (GROWTH - 1) * first // BATCHES
    for turn in range(BATCHES):
        begin = first + turn * added
        updates = np.random.default_rng(turn).choice(begin, added // 4, replace=False)
        table.upsert(rows_of(np.concatenate([np.arange(begin, begin + added), updates]), 2 + turn))
        if is_resized:
            table.services.resize(policy)
        table.services.compact()


def largest(table: pyhudi.Table) -> int:
    sizes: pa.ChunkedArray = table.inspect.buckets(rows=False)["bytes"]
    return int(max(sizes.to_pylist()))
