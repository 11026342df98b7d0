"""Count what one write and one read pass through: walk.py [--calls].

Three calls on a merge-on-read table in memory, each warm: the process has written and read the
table before. An upsert from Arrow, an upsert whose task runs elsewhere and so has a fence, a read.

calls upwards      from a module into one that stands above it: in a folder above its own by
                   `tests/folder_order.py`, or in its own folder if that module imports it. A
                   callback counts, for it is the lower module that calls it. The caller is the
                   nearest function of pyhudi on the stack, so that a call through `functools` or
                   a kernel of Arrow is found too. Each pair of functions counts once; in brackets
                   is how often they were called.
pulls upwards      batches that a lower module takes from a generator of a higher one. An iterator
                   is an argument, so these are no calls; they are shown to be complete.
widest module      of those above `storage`, the one that the most ways lead through: how often
                   others call into it, times how many others it calls into.
functions, files   those of pyhudi that ran. Functions that Python generates are not counted, nor
                   comprehensions.
requests           calls of `Storage`; one about many paths is one request.

The same code gives the same numbers: clock and chance are those of the tests.
"""

from __future__ import annotations

import argparse
import ast
import gc
import inspect
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import pyarrow as pa

import pyhudi
from counted_storage import CountedStorage
from folder_order import part_of, stands_above
from memory_tables import MemoryTable
from played_spark import spark_frame
from pyhudi.format.table.bucket_config import SimpleBuckets

SOURCE = str(Path(pyhudi.__file__).parent) + "/"
GROUPS = 4
#: What may be called upwards, and how often others may enter the widest module.
UPWARD_GOAL, ENTRIES_GOAL = 2, 8

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("note", pa.string())])


class Function(NamedTuple):
    """A function of pyhudi, by its file below the package and its name there."""

    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file} {self.name}"


Call = tuple[Function, Function]


@dataclass
class Walk:
    """What one call of the public API passes through."""

    functions: set[Function] = field(default_factory=set)
    calls: Counter[Call] = field(default_factory=Counter)  # between files
    pulls: Counter[Call] = field(default_factory=Counter)  # of generators, between files
    requests: Counter[str] = field(default_factory=Counter)

    @property
    def files(self) -> set[str]:
        return {function.file for function in self.functions}

    def upward(self, calls: Counter[Call]) -> Counter[Call]:
        """Return those of the calls that go from a lower part to a higher one."""
        return Counter({call: count for call, count in calls.items() if _is_upward(call)})

    def widest(self) -> str:
        """Return the file that the most ways lead through, in and out."""
        reached: defaultdict[str, set[str]] = defaultdict(set)
        for caller, callee in self.calls:
            reached[caller.file].add(callee.file)
        entries = self.entries()
        return max(
            sorted(file for file in entries if stands_above(part_of(file), "storage")),
            key=lambda file: entries[file] * len(reached[file]),
        )

    def entries(self) -> Counter[str]:
        """Return how often each file is entered from others."""
        counts: Counter[str] = Counter()
        for (_, callee), count in self.calls.items():
            counts[callee.file] += count
        return counts

    def see(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call; for `sys.setprofile`."""
        if event != "call" or (callee := _function(frame.f_code)) is None:
            return
        caller, is_direct = _caller(frame)
        if not callee.name.endswith("<genexpr>"):
            self.functions.add(callee)
        if caller is not None and caller.file != callee.file:
            # A generator that `contextlib` moves is a `with` block, and its entry a call.
            is_pull = frame.f_code.co_flags & inspect.CO_GENERATOR and is_direct
            (self.pulls if is_pull else self.calls)[caller, callee] += 1


def _is_upward(call: Call) -> bool:
    caller, callee = (function.file for function in call)
    lower, upper = part_of(caller), part_of(callee)
    return stands_above(upper, lower) if lower != upper else caller in _imported(callee)


@cache
def _imported(file: str) -> frozenset[str]:
    """Return the modules of its folder that a module imports, and those that these import."""
    found: set[str] = set()
    left = [file]
    while left:
        news = _imports(left.pop()) - found
        found |= news
        left += news
    return frozenset(found - {file})


@cache
def _imports(file: str) -> set[str]:
    """Return the modules of its folder that the module itself imports."""
    named = [
        f"{node.module}.{alias.name}".split(".")
        for node in ast.walk(ast.parse(Path(SOURCE, file).read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    ]
    candidates = {"/".join(names[1:end]) + ".py" for names in named for end in (-1, None)}
    part = part_of(file)
    return {path for path in candidates if part_of(path) == part and Path(SOURCE, path).is_file()}


_INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")  # frames of their own until Python 3.11


def _function(code: CodeType) -> Function | None:
    if not code.co_filename.startswith(SOURCE) or code.co_name in _INLINED:
        return None
    return Function(code.co_filename[len(SOURCE) :], code.co_qualname.replace(".<locals>", ""))


def _caller(frame: FrameType) -> tuple[Function | None, bool]:
    """Return the nearest function of pyhudi that called, and whether no Python was between."""
    is_direct, above = True, frame.f_back
    while above is not None:
        if (function := _function(above.f_code)) is not None:
            return function, is_direct
        is_direct = is_direct and above.f_code.co_name in _INLINED
        above = above.f_back
    return None, is_direct


def walk(call: Callable[[], object], storage: CountedStorage) -> Walk:
    """Make the call and follow it."""
    seen = Walk()
    gc.collect()
    gc.disable()  # what is finalized meanwhile is no part of the walk
    try:
        with storage.counting() as requests:
            sys.setprofile(seen.see)
            try:
                call()
            finally:
                sys.setprofile(None)
    finally:
        gc.enable()
    seen.requests.update(requests)
    return seen


def rows(note: str) -> pa.Table:
    """Return some rows, enough for every file group to have one."""
    keys = range(10 * GROUPS)
    return pa.Table.from_pylist([{"id": f"k{k}", "ts": k, "note": note} for k in keys], SCHEMA)


def walks() -> dict[str, Walk]:
    """Walk through each of the calls once, on a table that was written and read before."""
    memory = MemoryTable(SCHEMA, buckets=SimpleBuckets(GROUPS), ordering="ts")
    storage = CountedStorage(memory.storage)
    table = memory.table("walk", storage.as_storage())
    for turn in range(2):
        table.upsert(rows(f"warm {turn}"))
        table.upsert(spark_frame(rows(f"warm {turn}")))
        table.read().to_arrow()
    return {
        "upsert": walk(lambda: table.upsert(rows("walked")), storage),
        "upsert, fenced": walk(lambda: table.upsert(spark_frame(rows("walked"))), storage),
        "read": walk(lambda: table.read().to_arrow(), storage),
    }


def report(found: Mapping[str, Walk]) -> str:
    """Return the numbers of all walks as a table."""
    cells: dict[str, Callable[[Walk], object]] = {
        f"calls upwards (goal {UPWARD_GOAL})": lambda seen: _times(seen.upward(seen.calls)),
        "pulls upwards": lambda seen: _times(seen.upward(seen.pulls)),
        "widest module": lambda seen: seen.widest(),
        f"entries into it (goal {ENTRIES_GOAL})": lambda seen: seen.entries()[seen.widest()],
        "functions": lambda seen: len(seen.functions),
        "files": lambda seen: len(seen.files),
        "calls between files": lambda seen: seen.calls.total(),
        f"requests, {GROUPS} file groups": lambda seen: seen.requests.total(),
    }
    for verb in sorted({verb for seen in found.values() for verb in seen.requests}):
        cells[f"  {verb}"] = lambda seen, verb=verb: seen.requests[verb] or ""
    lines = [("", list(found))]
    lines += [(name, [cell(seen) for seen in found.values()]) for name, cell in cells.items()]
    return "\n".join(f"{name:<28}" + "".join(f"{c!s:>20}" for c in row) for name, row in lines)


def _times(calls: Counter[Call]) -> str:
    return f"{len(calls)} ({calls.total()})"


def call_list(found: Walk) -> str:
    """Return each call and pull upwards with its count, and which modules enter the widest one."""
    lines = [f"{n:5} {a} → {b}" for (a, b), n in sorted(found.upward(found.calls).items())]
    lines += [f"{n:5} {a} ← pulls {b}" for (a, b), n in sorted(found.upward(found.pulls).items())]
    file = found.widest()
    into: Counter[tuple[str, str]] = Counter()
    for (caller, callee), count in found.calls.items():
        if callee.file == file:
            into[caller.file, callee.name] += count
    lines += [f"{n:5} {a} enters {file} {name}" for (a, name), n in sorted(into.items())]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Count what a write and a read pass through.")
    parser.add_argument("--calls", action="store_true", help="name every call upwards")
    asked = parser.parse_args(arguments)
    found = walks()
    print(report(found))
    if asked.calls:
        for name, seen in found.items():
            print(f"\n{name}\n{call_list(seen)}")


if __name__ == "__main__":
    main()
