"""The client of the judges, against programs that stand in for them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from conformance.client import JudgeClient, JudgeError, JudgeMissingError
from conformance.outcome import outcome_in_ci
from conformance.rows import assert_same_rows

ECHO = """
import json, os, sys
for line in sys.stdin:
    row = {"asked": json.loads(line), "process": os.getpid()}
    print(json.dumps({"ok": True, "rows": [row]}), flush=True)
"""
REFUSE = """
import sys
for line in sys.stdin:
    print("java.lang.Stack at trace", file=sys.stderr, flush=True)
    print('{"ok": false, "error": "TableNotFoundException: no table"}', flush=True)
"""
SILENT = "import sys; [None for line in sys.stdin]; import time; time.sleep(60)"
CRASH = "import sys; sys.stdin.readline(); print('out of memory', file=sys.stderr); sys.exit(3)"


def client(folder: Path, program: str) -> JudgeClient:
    return JudgeClient([sys.executable, "-c", program], folder, folder / "stderr.txt")


def test_questions_go_to_one_process(tmp_path: Path) -> None:
    with client(tmp_path, ECHO) as judge:
        first = judge.hudi_rows(tmp_path / "table", as_of="2026", meta=False)[0]
        second = judge.hudi_call("clean", "table", retain=3)[0]
    asked = {"cmd": "read", "path": str(tmp_path / "table"), "as_of": "2026", "meta": False}
    assert first["asked"] == asked
    assert second["asked"]["arguments"] == {"retain": 3}
    assert first["process"] == second["process"]


def test_nothing_runs_after_the_client_is_closed(tmp_path: Path) -> None:
    with client(tmp_path, ECHO) as judge:
        process = judge.ask("hello")[0]["process"]
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_refusal_shows_the_error_and_the_stderr(tmp_path: Path) -> None:
    with client(tmp_path, REFUSE) as judge, pytest.raises(JudgeError) as refusal:
        judge.rs_rows("nowhere")
    assert "TableNotFoundException" in str(refusal.value)
    assert "Stack at trace" in str(refusal.value)


def test_a_crash_shows_the_stderr(tmp_path: Path) -> None:
    with client(tmp_path, CRASH) as judge, pytest.raises(JudgeError, match="out of memory"):
        judge.hudi_slices("table")


def test_a_question_without_answer_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conformance.client.STOP_S", 0.1)
    began = time.monotonic()
    with client(tmp_path, SILENT) as judge, pytest.raises(JudgeError, match="seconds have passed"):
        judge.ask("read", timeout_s=0.1)
    assert time.monotonic() - began < 30


OFFLINE = "Host maven.example not found. url=...\\nhudi-bundle.jar could not be fetched. Set"
NO_JAVA = "This Spark needs Java 17 to 21, and none was found. Install one"


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [(OFFLINE, "the network is out of reach"), (NO_JAVA, "there is no Java")],
)
def test_what_this_machine_lacks_is_named(tmp_path: Path, stderr: str, reason: str) -> None:
    program = f"import sys; print({stderr!r}, file=sys.stderr); sys.exit(1)"
    with client(tmp_path, program) as judge, pytest.raises(JudgeMissingError, match=reason):
        judge.start()


@pytest.mark.parametrize(
    "stderr",
    [
        "Host maven.example not found, but it was not needed. NoClassDefFoundError",
        "module not found: org.apache.hudi#no-such-bundle\nno-such-bundle.jar could not be fetched",
    ],
)
def test_another_failure_to_start_is_a_fault(tmp_path: Path, stderr: str) -> None:
    program = f"import sys; print({stderr!r}, file=sys.stderr); sys.exit(1)"
    with client(tmp_path, program) as judge, pytest.raises(JudgeError):
        judge.start()


def report(outcome: Literal["passed", "failed", "skipped"]) -> pytest.TestReport:
    location = ("test_x.py", 1, "test_x")
    reason = ("test_x.py", 1, "Skipped: no Java")
    return pytest.TestReport("test_x", location, {}, outcome, reason, "setup")


def test_a_skip_is_a_failure_in_ci() -> None:
    judged = outcome_in_ci(report("skipped"))
    assert judged.failed
    assert "no Java" in judged.longreprtext


def test_other_outcomes_stay_as_they_are_in_ci() -> None:
    assert outcome_in_ci(report("passed")).passed
    assert outcome_in_ci(report("failed")).failed
    expected = report("skipped")
    expected.wasxfail = "a known gap"
    assert outcome_in_ci(expected).skipped


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"v": 1}, {"v": 1.0}),
        ({"v": 1}, {"v": True}),
        ({"v": None}, {}),
        ({"v": "x"}, {"v": "y"}),
    ],
)
def test_rows_of_another_type_are_other_rows(
    ours: dict[str, object], theirs: dict[str, object]
) -> None:
    assert_same_rows(pa.Table.from_pylist([ours]), [ours])
    with pytest.raises(AssertionError, match="we read 1 rows, the judge 1"):
        assert_same_rows(pa.Table.from_pylist([ours]), [theirs])


def test_a_row_that_comes_twice_is_not_the_same_as_once() -> None:
    once, twice = [{"v": 1}], [{"v": 1}, {"v": 1}]
    with pytest.raises(AssertionError, match="only the judge has"):
        assert_same_rows(pa.Table.from_pylist(once), twice)
    with pytest.raises(AssertionError, match="ours"):
        assert_same_rows(pa.Table.from_pylist(twice), once)
