"""`make bench`: every benchmark, or those named. Ends with 1 when a limit is missed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import buckets
import commits
import early
import imports
import merge
import planning
import schemas
import spark_paths
import verify
import writes

import many_writers
import services

BENCHMARKS: dict[str, Callable[[], bool]] = {
    "buckets": buckets.main,
    "commits": commits.main,
    "early": early.main,
    "imports": imports.main,
    "many_writers": many_writers.main,
    "merge": merge.main,
    "planning": planning.main,
    "schemas": schemas.main,
    "services": services.main,
    "spark_paths": spark_paths.main,
    "verify": verify.main,
    "writes": writes.main,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", help=f"any of {', '.join(BENCHMARKS)}")
    parser.add_argument("--rows", type=int, default=writes.ROWS, help="of the table of `writes`")
    parser.add_argument(
        "--mib",
        type=int,
        default=buckets.MIB,
        help="of the bucket that `buckets` splits into eight",
    )
    parser.add_argument(
        "--part",
        action="append",
        choices=[*buckets.PARTS, *early.PARTS],
        help="of `buckets` or `early`, which otherwise run all",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="`buckets`, `early`, `many_writers` and `services` smaller, to try them",
    )
    asked = parser.parse_args()
    if unknown := ", ".join(sorted(set(asked.name) - set(BENCHMARKS))):
        parser.error(f"no benchmark {unknown}; there are {', '.join(BENCHMARKS)}")
    parts = [part for part in asked.part or () if part in buckets.PARTS] or tuple(buckets.PARTS)
    BENCHMARKS["buckets"] = partial(buckets.main, is_quick=asked.quick, mib=asked.mib, parts=parts)
    parts = [part for part in asked.part or () if part in early.PARTS] or tuple(early.PARTS)
    BENCHMARKS["early"] = partial(early.main, is_quick=asked.quick, parts=parts)
    BENCHMARKS["writes"] = partial(writes.main, asked.rows)
    BENCHMARKS["many_writers"] = partial(many_writers.main, is_quick=asked.quick)
    BENCHMARKS["services"] = partial(services.main, is_quick=asked.quick)
    met = [BENCHMARKS[name]() for name in asked.name or BENCHMARKS]  # all, whatever the first says
    sys.exit(0 if all(met) else 1)
