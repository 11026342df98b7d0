"""`scripts/written_bytes.py` must print the same for the same code, and not for other bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "scripts/written_bytes.py"
#: Runs the script in a process whose Parquet files are compressed otherwise.
OTHER_BYTES = """
import runpy, sys
import pyarrow.parquet as pq
made = pq.ParquetWriter.__init__
pq.ParquetWriter.__init__ = lambda *a, **k: made(*a, **{**k, "compression": "zstd"})
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def digests(*command: str, seed: str) -> dict[tuple[str, str], str]:
    """Return what the script prints of the smallest table: digests by path and length."""
    printed = subprocess.check_output(
        [sys.executable, *command, str(SCRIPT), "--only", "joined"],
        env={**os.environ, "PYTHONHASHSEED": seed},
        text=True,
    )
    lines = [line.split("\t") for line in printed.splitlines()]
    assert {name for name, *_ in lines} == {"joined"}
    return {(path, length): digest for _, path, length, digest in lines}


def test_other_bytes_are_shown_and_the_same_are_not() -> None:
    first = digests(seed="1")
    actions = {path.rpartition(".")[2] for path, _ in first if "/timeline/" in path}
    assert {"deltacommit", "commit", "clean", "rollback"} <= actions
    assert any("/history/" in path for path, _ in first), "nothing was archived"
    assert digests(seed="2") == first
    other = digests("-c", OTHER_BYTES, seed="1")
    changed = {path for path, _ in first.items() ^ other.items()}
    assert any(path.endswith(".parquet") for path, _ in changed)
    assert not any(path.endswith("hoodie.properties") for path, _ in changed)
