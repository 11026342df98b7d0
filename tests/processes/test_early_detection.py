"""Processes that write the same buckets at once, with each of RFC-56's strategies.

Of two or five writers each gets as far as it can before the first one completes. Pairs of all
choices are covered; `PYHUDI_EARLY_CASES=all` runs every combination.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pyhudi
from processes.stores import TESTS
from processes.yielder import SCHEMA
from pyhudi.commit.early_evidence import EVIDENCE_FOLDER
from pyhudi.settings import EARLY_STRATEGIES

BUCKETS = 8
KEYS = [f"k{n}" for n in range(64)]
WRITERS_MAX = 5


class Case(NamedTuple):
    strategy: str
    writers: int
    overlap: str
    table_type: str
    markers: str


CHOICES = (
    EARLY_STRATEGIES,
    (2, 5),
    ("full", "partial", "none"),
    ("cow", "mor"),
    ("direct", "server"),
)
EVERY = [Case(*chosen) for chosen in product(*CHOICES)]


def pairs(case: Case) -> set[tuple[tuple[int, Any], ...]]:
    return set(combinations(enumerate(case), 2))


def pairwise() -> list[Case]:
    """Cases in which each pair of choices occurs."""
    left = set().union(*map(pairs, EVERY))
    found = []
    while left:
        found.append(max(EVERY, key=lambda case: len(pairs(case) & left)))
        left -= pairs(found[-1])
    return found


CASES = EVERY if os.environ.get("PYHUDI_EARLY_CASES") == "all" else pairwise()


class Writer:
    """A process that writes when it is told to."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "error", "-m", "processes.yielder"]
        self._process = subprocess.Popen(
            command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, told: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(told), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        with self._process as ended:
            ended.kill()


@pytest.fixture(scope="module")
def writers() -> Iterator[list[Writer]]:
    made = [Writer() for _ in range(WRITERS_MAX)]
    yield made
    for writer in made:
        writer.end()


def made(path: Path, table_type: str) -> list[list[str]]:
    """Make the table; return the keys of each bucket."""
    table = pyhudi.create_table(
        path,
        SCHEMA,
        record_key="id",
        buckets=pyhudi.SimpleBuckets(BUCKETS),
        table_type=table_type,
        upkeep=False,
    )
    rows = SCHEMA.empty_table().from_pylist([{"id": key, "v": "0"} for key in KEYS], SCHEMA)
    table.upsert(rows)
    found: dict[str, list[str]] = {}
    for row in table.read(meta=True).to_arrow().to_pylist():
        found.setdefault(row["_hoodie_file_name"].lstrip(".")[:8], []).append(row["id"])
    return [found[bucket] for bucket in sorted(found)]


def buckets_of(case: Case, writer: int) -> list[int]:
    """Which buckets a writer has. With partial overlap each has one of the first writer's."""
    if case.overlap == "full":
        return list(range(BUCKETS))
    own = [1 + writer] if case.overlap == "none" or writer == 0 else [0, 1 + writer]
    return [0, *own] if writer == 0 else own


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_writers_that_overlap_one_ahead_of_them_yield(
    case: Case, writers: list[Writer], tmp_path: Path
) -> None:
    by_bucket = made(tmp_path / "t", case.table_type)
    keys = [[k for b in buckets_of(case, n) for k in by_bucket[b]] for n in range(case.writers)]
    verb = "update" if case.table_type == "mor" else "upsert"
    told = {"uri": str(tmp_path / "t"), "verb": verb}
    told |= {"strategy": case.strategy, "markers": case.markers}
    got = [writers[n].ask({**told, "keys": keys[n], "v": f"w{n}"}) for n in range(case.writers)]
    assert got[0] == "written"
    for facts in got[1:]:
        if case.overlap == "none":
            assert facts == "written"
            continue
        assert (facts["kind"], facts["strategy"]) == ("EarlyConflictError", case.strategy)
        assert facts["theirs"]["job"] == "w0"
    ended = [n for n, answer in enumerate(got) if answer == "written"]
    assert [writers[n].ask("finish") for n in reversed(ended)] == ["completed"] * len(ended)
    table = pyhudi.open_table(tmp_path / "t")
    expected = dict.fromkeys(KEYS, "0")
    for n in ended:
        expected |= dict.fromkeys(keys[n], f"w{n}")
    found = table.read(columns=["id", "v"]).to_arrow()
    assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected
    evidence = tmp_path / "t" / EVIDENCE_FOLDER
    assert [path for path in evidence.rglob("*") if path.is_file()] == []
