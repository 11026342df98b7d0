"""`make walk` must see a call upwards, whichever way it takes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from counted_storage import CountedStorage
from pyhudi.storage.stores.memory import MemoryStorage

SCRIPT = Path(__file__).parents[1] / "scripts/walk.py"


def loaded_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("walk", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for a class's annotations
    spec.loader.exec_module(module)
    return module


walk = loaded_script()


def planted(file: str, text: str) -> dict[str, Any]:
    """Run a source as if it stood in that file of the package."""
    names: dict[str, Any] = {}
    exec(compile(text, walk.SOURCE + file, "exec"), names)
    return names


COMMIT = planted(
    "commit/a.py",
    """
def run(callback, *args):
    return callback(*args)

def run_for_each(callback):
    return [callback(each) for each in (1, 2)]

def run_by_key(callback):
    return sorted((1, 2), key=callback)

def pull(batches):
    return list(batches)

def within(block):
    with block:
        pass
""",
)
WRITE = planted(
    "write/a.py",
    """
import contextlib

def step(*args):
    return 0

class Step:
    def __call__(self):
        return step()

def batches():
    yield 1
    yield 2

@contextlib.contextmanager
def block():
    yield
""",
)
SPEC = planted("write/files/spec.py", "def run(callback):\n    return callback()\n")
TASKS = planted("write/tasks.py", "def step():\n    return 0\n")


def walked(call: Callable[[], object]) -> Any:
    return walk.walk(call, CountedStorage(MemoryStorage(lambda: 0)))


STEP = ("write/a.py", "step")
UPWARD = {
    "a callback": (partial(COMMIT["run"], WRITE["step"]), ("commit/a.py", "run"), STEP, 1),
    "a callback of a callback": (
        partial(COMMIT["run"], partial(WRITE["step"], 1), 2),
        ("commit/a.py", "run"),
        STEP,
        1,
    ),
    "a call from a comprehension": (
        partial(COMMIT["run_for_each"], WRITE["step"]),
        ("commit/a.py", "run_for_each"),
        STEP,
        2,
    ),
    "a call from C": (
        partial(COMMIT["run_by_key"], WRITE["step"]),
        ("commit/a.py", "run_by_key"),
        STEP,
        2,
    ),
    "an object that can be called": (
        partial(COMMIT["run"], WRITE["Step"]()),
        ("commit/a.py", "run"),
        ("write/a.py", "Step.__call__"),
        1,
    ),
    "a block from above": (
        lambda: COMMIT["within"](WRITE["block"]()),
        ("commit/a.py", "within"),
        ("write/a.py", "block"),
        2,
    ),
    "a module of the same folder that imports the caller": (
        partial(SPEC["run"], TASKS["step"]),
        ("write/files/spec.py", "run"),
        ("write/tasks.py", "step"),
        1,
    ),
}


@pytest.mark.parametrize(("call", "caller", "callee", "times"), UPWARD.values(), ids=UPWARD)
def test_a_call_upwards_is_seen(
    call: Callable[[], object], caller: tuple[str, str], callee: tuple[str, str], times: int
) -> None:
    seen = walked(call)
    assert dict(seen.upward(seen.calls)) == {(caller, callee): times}
    assert f"{times} {' '.join(caller)} → {' '.join(callee)}" in walk.call_list(seen)


def test_a_call_downwards_is_none_upwards() -> None:
    seen = walked(partial(planted("write/b.py", "def f(g): return g(int)")["f"], COMMIT["run"]))
    assert seen.calls.total() == 1
    assert not seen.upward(seen.calls)


def test_rows_that_are_pulled_are_told_apart_from_calls() -> None:
    seen = walked(lambda: COMMIT["pull"](WRITE["batches"]()))
    assert not seen.calls
    pulled = {(("commit/a.py", "pull"), ("write/a.py", "batches")): 3}  # two, and the end
    assert dict(seen.upward(seen.pulls)) == pulled


def test_the_widest_module_is_the_one_that_most_ways_lead_through() -> None:
    wide = planted("write/wide.py", "def f(a, b):\n    a(int)\n    b()\n")["f"]
    often = planted("format/often.py", "def f():\n    return 0\n")["f"]
    many = planted("api/many.py", "def f(wide, a, b):\n    for _ in range(3): wide(a, b)\n")["f"]
    seen = walked(lambda: many(wide, COMMIT["run"], often))
    assert (seen.widest(), seen.entries()["write/wide.py"]) == ("write/wide.py", 3)


def test_requests_are_counted_by_verb() -> None:
    storage = CountedStorage(MemoryStorage(lambda: 0))
    seen = walk.walk(lambda: storage.create("a", b"") and storage.delete_all(["a", "b"]), storage)
    assert dict(seen.requests) == {"create": 1, "delete_all": 1}


def test_two_processes_print_the_same() -> None:
    printed = {
        subprocess.check_output(
            [sys.executable, SCRIPT, "--calls"], env={**os.environ, "PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    lines = printed.pop().decode().splitlines()
    assert {"upsert", "upsert, fenced", "read"} <= set(lines)
