"""Consistent buckets (RFC-42): what they cost, and what a resize costs and is worth.

Parts, each in a file of its own that says what is measured and how: `buckets_owners.py`,
`buckets_upserts.py`, `buckets_bloom.py`, `buckets_resize.py`, `buckets_beside.py`,
`buckets_ways.py`, `buckets_held.py` and `buckets_growth.py`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import buckets_beside
import buckets_bloom
import buckets_growth
import buckets_held
import buckets_owners
import buckets_resize
import buckets_upserts
import buckets_ways

MIB = 64
PARTS: dict[str, Callable[..., bool]] = {
    "owners": buckets_owners.main,
    "upserts": buckets_upserts.main,
    "bloom": buckets_bloom.main,
    "resize": buckets_resize.main,
    "beside": buckets_beside.main,
    "ways": buckets_ways.main,
    "held": buckets_held.main,
    "growth": buckets_growth.main,
}


def main(*, is_quick: bool = False, mib: int = MIB, parts: Sequence[str] = tuple(PARTS)) -> bool:
    """`mib` is the size of the bucket that is split into eight."""
    warnings.filterwarnings("ignore", "target_bytes")  # smaller than users should have them
    print("buckets: consistent and simple ones, and resizes", flush=True)
    PARTS["resize"] = partial(buckets_resize.main, mib=mib)
    met = [PARTS[part](is_quick=is_quick) for part in parts]  # all, whatever the first says
    return all(met)


if __name__ == "__main__":
    named = [name for name in sys.argv[1:] if name in PARTS]
    sys.exit(0 if main(is_quick="--quick" in sys.argv, parts=named or tuple(PARTS)) else 1)
