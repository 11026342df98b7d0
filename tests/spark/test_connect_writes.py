"""The same writes through Spark Connect, with a server of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spark.drivers.verbs import create, steps, unknown_files

pytestmark = pytest.mark.spark


def test_every_verb_leaves_the_right_rows_through_spark_connect(tmp_path: Path) -> None:
    table = tmp_path / "table"
    create(str(table), "cow")  # the other kind than on the cluster
    asked = json.dumps([[step.verb, step.source, step.options] for step in steps()])
    script = Path(__file__).with_name("connect_write.py")
    command = [sys.executable, str(script), str(table), asked]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(told) == len(steps())
    (warned,) = json.loads(done.stdout.splitlines()[-1])["warnings"]
    assert "Spark Connect" in warned
    for step, (module, rows) in zip(steps(), told, strict=True):
        assert "connect" in module
        assert len(rows) == len(step.rows), step.verb
        assert {tuple(row) for row in rows} == step.rows, step.verb
    assert not unknown_files(table)
