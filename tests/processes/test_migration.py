"""Three writers beside a migration that is killed at twenty moments; new partitions meanwhile.

A failure names its seed, which `PYHUDI_SEED` repeats as far as chance is ours.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pyhudi
from processes.migrator import DAYS_FIRST, KEYS_A_DAY, RINGS, SCHEMA, day_of, rows_of
from processes.stores import TESTS
from pyhudi.read.load import load_config
from pyhudi.storage.objects.rings import load_all_ring_files
from pyhudi.storage.open import open_storage

WRITERS = 3
KILLS = 20
#: How many changes a migrating process makes at least, and at most, before it kills itself. All of
#: them together are too few to migrate the partitions that there are at first.
CHANGES = (2, 10)
_FINISHED_S = 300


def started(*words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "processes.migrator", *words]
    return subprocess.Popen(command, cwd=TESTS, stdin=subprocess.DEVNULL)


@pytest.mark.timeout(1_200)
def test_three_writers_lose_nothing_to_a_migration_that_is_killed_at_twenty_moments(
    tmp_path: Path,
) -> None:
    seed = os.environ.get("PYHUDI_SEED") or str(random.SystemRandom().randrange(1_000_000))
    print(f"seed {seed}")
    chance, uri, stop = random.Random(seed), str(tmp_path / "table"), tmp_path / "stop"
    table = pyhudi.create_table(
        uri, SCHEMA, record_key="id", partition_by="day", ordering="ts", buckets=3
    )
    first = dict.fromkeys(range(DAYS_FIRST * KEYS_A_DAY), 0)
    table.upsert(rows_of(first, "first"))
    journals = [tmp_path / f"writer-{number}.jsonl" for number in range(WRITERS)]
    writers = [
        started("write", uri, str(number), seed, str(journal), str(stop))
        for number, journal in enumerate(journals)
    ]
    try:
        await_lines(journals, 3, writers)
        killed = 0
        for _ in range(KILLS):
            migrating = started("migrate", uri, str(chance.randint(*CHANGES)))
            ended = migrating.wait(_FINISHED_S)
            assert ended in (0, -signal.SIGKILL)
            killed += ended == -signal.SIGKILL
        assert started("migrate", uri, "0").wait(_FINISHED_S) == 0
        await_lines(journals, 3, writers)
    finally:
        stop.touch()
        ends = [writer.wait(_FINISHED_S) for writer in writers]
    assert ends == [0] * WRITERS
    notes = [json.loads(line) for path in journals for line in path.read_text().splitlines()]
    print(
        f"{killed} kills, {len(notes)} writes, {sum(n['moved'] > 0 for n in notes)} moved,"
        f" {sum(n['retries'] > 0 for n in notes)} repeated"
    )
    expected = {f"k{key}": (0, "first") for key in first}
    for note in notes:
        for key, ts in note["times"]:
            expected[f"k{key}"] = max(expected.get(f"k{key}", (-1, "")), (ts, note["version"]))
    found = table.read().to_arrow().to_pylist()
    assert {row["id"]: (row["ts"], row["version"]) for row in found} == expected
    assert len(found) == len(expected)
    assert all(row["day"] == day_of(int(row["id"][1:])) for row in found)
    table.services.repair(grace_minutes=0)
    assert table.services.verify().findings == ()
    storage = open_storage(uri)
    assert load_config(storage).buckets == RINGS.resolved(("id",))
    assert load_all_ring_files(storage).keys() == {row["day"] for row in found}
    assert len({row["day"] for row in found}) > DAYS_FIRST
    assert killed == KILLS


def await_lines(journals: list[Path], more: int, writers: list[subprocess.Popen[bytes]]) -> None:
    """Wait until each writer was answered so often once more."""
    wanted = [lines_of(journal) + more for journal in journals]
    deadline = time.monotonic() + _FINISHED_S
    while any(lines_of(j) < n for j, n in zip(journals, wanted, strict=True)):
        assert time.monotonic() < deadline
        assert all(writer.poll() is None for writer in writers)
        time.sleep(0.05)


def lines_of(journal: Path) -> int:
    return len(journal.read_text().splitlines()) if journal.exists() else 0
