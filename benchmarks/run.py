"""`make bench`: every benchmark, or those named. Ends with 1 when a limit is missed."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import commits
import merge
import planning
import spark_paths

BENCHMARKS = {
    "commits": commits.main,
    "merge": merge.main,
    "planning": planning.main,
    "spark_paths": spark_paths.main,
}

if __name__ == "__main__":
    chosen = sys.argv[1:] or list(BENCHMARKS)
    met = [BENCHMARKS[name]() for name in chosen]  # all of them, whatever the first one says
    sys.exit(0 if all(met) else 1)
