"""`make model` must fail when the model stops saying what the protocol's document says."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts/check_model.py"


def loaded_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_model", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for a class's annotations
    spec.loader.exec_module(module)
    return module


check_model = loaded_script()
MODEL = check_model.MODEL

HOLDS = """Model checking completed. No error has been found.
612950 states generated, 226031 distinct states found, 0 states left on queue.
"""
BREAKS_TIMES = """Error: Invariant R1_Times is violated.
Error: The behavior up to this point is:
909 states generated, 389 distinct states found, 141 states left on queue.
"""
BREAKS_GROWTH = "Error: Action property FoldGrows is violated.\n"
NEVER_ENDS_WELL = "Error: Temporal properties were violated.\n"
STOPPED = """1261 states generated, 558 distinct states found, 171 states left on queue.
Error: The constant parameter Fold is not assigned a value by the configuration file.
"""


@pytest.mark.parametrize(
    ("row", "output", "fault"),
    [
        ({"states": 226031}, HOLDS, None),
        ({"states": 226030}, HOLDS, "226,031 distinct states, where the table says 226,030"),
        ({"states": 226031}, BREAKS_TIMES, "R1_Times: violated"),
        ({"states": 226031}, BREAKS_GROWTH, "FoldGrows: violated"),
        ({"states": 226031}, NEVER_ENDS_WELL, "temporal: violated"),
        ({"states": 558}, STOPPED, "TLC: error"),
        ({"states": 226031}, "", "TLC: error"),
        ({"violated": "R1_Times"}, BREAKS_TIMES, None),
        ({"violated": "temporal"}, NEVER_ENDS_WELL, None),
        ({"violated": "R1_Times"}, HOLDS, "R1_Times was not violated: the model is too weak"),
        ({"violated": "R1_Times"}, STOPPED, "expected a violation of R1_Times, got an error"),
        ({"violated": "R2_Occ"}, BREAKS_TIMES, "expected a violation of R2_Occ, got R1_Times"),
    ],
)
def test_a_run_is_as_expected_only_if_tlc_says_what_the_table_says(
    row: dict[str, int | str], output: str, fault: str | None
) -> None:
    expected = check_model.Expected("some_run", seconds=1, **row)
    found = check_model.complaint(expected, check_model.parsed_outcome(output))
    assert (found is None) if fault is None else found.startswith(fault)


@pytest.mark.parametrize(
    ("table", "names", "fault"),
    [
        ({"log_a": {"states": 1}}, ["log_a", "log_b"], "differ in: log_b"),
        ({"log_a": {"states": 1}, "log_b": {"states": 1}}, ["log_a"], "differ in: log_b"),
        ({"weak_a": {"states": 1}}, ["weak_a"], "weak_a must fail"),
        ({"witness_a": {"states": 1}}, ["witness_a"], "witness_a must fail"),
        ({"log_a": {"violated": "R1_Times"}}, ["log_a"], "log_a must hold"),
        ({"log_a": {}}, ["log_a"], "log_a must hold"),
    ],
)
def test_a_table_that_misses_a_run_or_expects_the_wrong_thing_of_it_is_refused(
    table: dict[str, dict[str, int | str]], names: list[str], fault: str
) -> None:
    text = json.dumps({name: {"seconds": 1, **row} for name, row in table.items()})
    with pytest.raises(SystemExit, match=fault):
        check_model.loaded_table(text, names)


def loaded_rows() -> tuple[Any, ...]:
    names = [path.stem for path in MODEL.glob("*.cfg")]
    rows = tuple(check_model.loaded_table((MODEL / "expected.json").read_text(), names))
    assert {row.name for row in rows} == set(names)
    return rows


def test_the_table_has_a_row_for_every_configuration() -> None:
    assert any(row.is_quick for row in loaded_rows())


def test_the_quick_runs_take_minutes_not_hours() -> None:
    assert sum(row.seconds for row in loaded_rows() if row.is_quick) <= 8 * 60


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("log_occ", "protocol"),
        ("weak_prune_no_chain", "prune"),
        ("schema_longer", "schema"),
        ("resize_merge", "resize"),
        ("weak_resize_stays", "resize"),
        ("witness_resize_moved", "resize"),
    ],
)
def test_a_configuration_goes_with_the_module_in_its_name(name: str, module: str) -> None:
    row = next(row for row in loaded_rows() if row.name == name)
    assert row.module == module
    assert (MODEL / f"{row.module}.tla").is_file()


def test_a_configuration_names_only_what_its_module_defines() -> None:
    for row in loaded_rows():
        module = (MODEL / f"{row.module}.tla").read_text()
        lines = (MODEL / f"{row.name}.cfg").read_text().splitlines()
        named = {line.split()[1] for line in lines if line.startswith(("INVARIANT", "PROPERTY"))}
        assert named, f"{row.name} checks nothing"
        for promise in named:
            assert re.search(rf"^{promise} *==", module, re.M), f"{row.name}: {promise}"
        if row.violated not in (None, "temporal"):
            assert row.violated in named, f"{row.name} cannot violate {row.violated}"


def test_each_rule_that_the_model_of_resizes_can_leave_out_is_left_out_by_a_weak_run() -> None:
    known = set(re.findall(r'"([^"]+)" \\(?:not)?in Weak', (MODEL / "resize.tla").read_text()))
    left_out: set[str] = set()
    for path in MODEL.glob("*resize*.cfg"):
        weak = re.search(r"^  Weak = {(.*)}$", path.read_text(), re.M)
        assert weak is not None
        rules = set(re.findall(r'"([^"]+)"', weak[1]))
        assert bool(rules) == path.name.startswith("weak_"), path.name
        left_out |= rules
    assert left_out == known
