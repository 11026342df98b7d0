"""Verifying a table on a local disk: megabytes of its files per second of CPU."""

from __future__ import annotations

import sys
import tempfile

import numpy as np
import pyarrow as pa
from measure import best_of, peak_memory_mb, verdict

import pyhudi

ROWS = 4_000_000
WRITES = 8
TURNS = 3
#: 100 MB a second and core, as seconds for 100 MB.
CPU_S_FOR_100_MB_MAX = 1.0


def main() -> bool:
    with tempfile.TemporaryDirectory(prefix="pyhudi-verify-") as folder:
        table = _table(f"{folder}/table")
        result = table.services.verify().or_raise()
        best = best_of(TURNS, {"verify": table.services.verify})["verify"]
    megabytes = result.bytes / 1e6
    print(f"verify: {result}")
    rates = [megabytes / seconds for seconds in (best.cpu_s, best.wall_s)]
    print(f"  {rates[0]:.0f} MB a CPU second, {rates[1]:.0f} MB a second")
    print(f"  {peak_memory_mb():.0f} MB of memory at most, writing the table included")
    used = best.cpu_s / megabytes * 100
    return verdict("verify, CPU s for 100 MB", used, CPU_S_FOR_100_MB_MAX)


def _table(uri: str) -> pyhudi.Table:
    """Half of it in base files, and half in logs on top."""
    table = pyhudi.create_table(
        uri,
        _rows(0, 1).schema,
        record_key="id",
        ordering="at",
        buckets=pyhudi.SimpleBuckets(8),
        progress=False,
        upkeep=False,
    )
    step = ROWS // WRITES
    for number in range(WRITES):
        table.upsert(_rows(number * step, (number + 1) * step))
    table.services.compact()
    for number in range(WRITES // 2):
        table.upsert(_rows(number * step, (number + 1) * step))
    table.services.clean(pyhudi.CleanPolicy.versions(1))
    return table


def _rows(begin: int, end: int) -> pa.Table:
    chance, count = np.random.default_rng(begin), end - begin
    columns: dict[str, object] = {
        "id": np.arange(begin, end),
        "at": chance.integers(0, 1 << 40, count),
        "city": pa.array(chance.integers(0, 1_000, count)).cast(pa.string()),
    }
    for number in range(8):
        columns[f"amount_{number}"] = chance.random(count)
    return pa.table(columns)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
