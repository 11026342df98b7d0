"""Reads and polls beside eight writers that are killed, and a service that never rests: none fails.

`PYHUDI_READS` says how many there are of both together.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pytest

import pyhudi
from processes.fleet import Fleet
from processes.journal import History, load_history
from processes.test_services import Service
from processes.worker import Orders
from processes.workload import SETTINGS, Kind, create_table

KIND = Kind.NON_BLOCKING
WRITERS = 8
READS = int(os.environ.get("PYHUDI_READS", "100"))
#: More commits are kept than complete while a busy machine reads the table once.
_POLICY = (
    f"--every 1s --heartbeat-interval {SETTINGS.heartbeat_interval_ms}ms --compact-after 1"
    " --keep-commits 100 --archive-keep 110 130 --archive-grace 10s --archive-aborted-grace 10s"
)
_ROW = ["id", "day", "version"]


class Readings:
    """Reads of the table, by a process that has it open or opens it anew, and polls of changes."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._open = pyhudi.open_table(uri)
        self._since: str | None = None
        self.done = 0
        self.seen: set[tuple[str, str, str]] = set()
        self.failed: list[str] = []

    def run(self) -> None:
        while self.done < READS and len(self.failed) < 3:
            try:
                self.once()
            except Exception as error:
                self.failed.append(f"{type(error).__name__}: {error}")
            self.done += 2

    def once(self) -> None:
        table = self._open if self.done % 4 else pyhudi.open_table(self._uri)
        rows = table.read(columns=_ROW).to_arrow()
        keys = rows.select(["id", "day"]).to_pylist()
        if len({tuple(key.values()) for key in keys}) < len(keys):
            self.failed.append("a key was there twice")
        polled = table.changes(since=self._since, columns=_ROW)
        self.seen |= _rows(polled.to_arrow())
        self._since = polled.until

    def missed(self, history: History) -> set[tuple[str, str, str]]:
        """Rows of the table as of the last poll that no poll brought, though nothing beat them.

        A row that a delete or another row beats by event time may be there all the same: a
        compaction forgets deletes. A poll that covers both shows what won.
        """
        beaten = _beaten(history)
        read = _rows(self._open.read(as_of=self._since, columns=_ROW).to_arrow())
        return {row for row in read - self.seen if (row[0], row[2]) not in beaten}


def _rows(table: object) -> set[tuple[str, str, str]]:
    return {(row["id"], row["day"], row["version"]) for row in table.to_pylist()}  # type: ignore[attr-defined]


def _beaten(history: History) -> set[tuple[str, str]]:
    """Keys and versions that are older by event time than another write of the key."""
    times: dict[int, list[tuple[int, str]]] = {}
    for write in history.writes.values():
        for key, at in write.batch.times.items():
            times.setdefault(key, []).append((int(at), write.batch.version))
    return {
        (f"k{key}", version)
        for key, found in times.items()
        for at, version in found
        if at < max(found)[0]
    }


@pytest.mark.timeout(1_200 + 10 * READS)
def test_no_read_and_no_poll_fails_because_others_write_and_are_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("PYHUDI_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"seed {seed}")
    uri = str(tmp_path / "table")
    create_table(uri, KIND, None).services.repair()  # probes the store once, for all
    journals = [tmp_path / f"{KIND}-{number}.jsonl" for number in range(WRITERS)]
    orders = [
        Orders(uri=uri, options=None, kind=KIND, writer=n, seed=seed, journal=str(journal))
        for n, journal in enumerate(journals)
    ]
    readings = Readings(uri)
    thread = threading.Thread(target=readings.run)
    service = Service(uri, tmp_path, 0, _POLICY)
    try:
        with Fleet(orders, tmp_path, seed) as fleet:
            _await_writes(journals)
            thread.start()
            fleet.trouble(lambda: not thread.is_alive())
    finally:
        service.kill()
        readings.done = READS
        if thread.ident is not None:
            thread.join()
    assert not readings.failed, readings.failed
    assert not fleet.complaints, fleet.complaints
    assert fleet.deeds.kills >= 3
    assert all(kind in service.said() for kind in ("compaction", "clean", "archiv")), service.said()
    history = load_history(journals)
    assert not history.surprises
    assert len(readings.seen) > READS
    assert not readings.missed(history)


def _await_writes(journals: list[Path]) -> None:
    """Eight processes start in some seconds; reads of an idle table would prove nothing."""
    deadline = time.monotonic() + 120
    while not all(journal.exists() and journal.stat().st_size > 500 for journal in journals):
        assert time.monotonic() < deadline, "the writers did not start"
        time.sleep(0.1)
