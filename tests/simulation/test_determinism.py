"""The same seed gives the same trace: in one process, and in another one that hashes otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pyhudi.simulate.table.schedules import MODES, Mode, run_schedule

SEEDS = range(int(os.environ.get("PYHUDI_DETERMINISM_SEEDS", "8")))
_PROGRAM = """
import sys
from pyhudi.simulate.table.schedules import run_schedule
for seed in range(int(sys.argv[2])):
    print(run_schedule(seed, mode=sys.argv[1]).digest)
"""


def digests(mode: Mode) -> list[str]:
    return [run_schedule(seed, mode=mode).digest for seed in SEEDS]


@pytest.mark.parametrize("mode", MODES)
def test_a_seed_gives_the_same_trace_again(mode: Mode) -> None:
    assert digests(mode) == digests(mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_seed_gives_the_same_trace_in_another_process(mode: Mode, hash_seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, mode, str(len(SEEDS))],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == digests(mode)


def test_different_seeds_give_different_traces() -> None:
    found = digests("occ")
    assert len(set(found)) == len(found)
