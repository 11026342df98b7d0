"""The same DataFrame operations through Spark Connect, with a server of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from golden_tables import GoldenTables

pytestmark = pytest.mark.spark


def test_a_scan_reads_the_same_rows_through_spark_connect(golden: GoldenTables) -> None:
    script = Path(__file__).with_name("connect_read.py")
    command = [sys.executable, str(script), str(golden.path("mor_all_types"))]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    module, keys, local = json.loads(done.stdout.splitlines()[-1])
    assert "connect" in module
    assert keys == local
    assert keys
