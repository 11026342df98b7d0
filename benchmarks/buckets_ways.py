"""Writers beside a resize in the other two ways: virtual, and written twice.

The benchmark is that of `buckets_beside.py`. There the resize copies what completes beside it.
Beside a virtual resize a write puts each row into the new buckets at once, and only what began
before the plan is copied. On a table that Hudi shares, which has one of its locks, writers write
each row twice. What that costs is reported.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from buckets_beside import BUCKETS, FULL, PARTS, QUICK, RESIZE, WRITERS, Beside, Size, beside
from measure import verdict
from services_started import at_least
from writes import PARTITIONS

VIRTUAL_GOAL = 0.95
#: Logs that writes have had under way when the resize was planned, in the new buckets.
COPIES_MAX = WRITERS * PARTITIONS * BUCKETS * PARTS


def main(*, is_quick: bool = False) -> bool:
    size = QUICK if is_quick else FULL
    print(f"  {WRITERS} writers of {size.upsert_rows:,} rows beside a virtual resize", flush=True)
    virtual, met = _measured(size, writes="virtual")
    met &= at_least("writers beside it to their share of CPU", virtual.ratio, VIRTUAL_GOAL)
    copies = max(turn.did["copies"] for turn in virtual.turns[RESIZE])
    met &= verdict("logs that it copied, of writes from before it", copies, COPIES_MAX)
    print("  the same of a table that Hudi shares: they write twice, and take a lock", flush=True)
    dual, is_whole = _measured(size, lock="file")
    print(f"  writers beside it to their share of CPU: {dual.ratio:.2f}")
    return met and is_whole


def _measured(size: Size, *, writes: str = "copied", lock: str = "none") -> tuple[Beside, bool]:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        found = beside(stack, Path(name), size, writes=writes, lock=lock)
        return found, found.report()
