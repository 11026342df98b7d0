"""Two service processes beside two writer processes, and now and then one of them is killed.

The writers are left in peace: they are there to be disturbed by nothing. What services do while
writers are killed is the simulation's business.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import pyhudi
from processes.evidence import TIMELINE_FOLDER
from processes.fleet import STOP_S, Writer
from processes.journal import Event, History, load_history
from processes.stores import TESTS
from processes.worker import Orders, Worker
from processes.workload import SETTINGS, Kind, create_table, partition_of, payload_of
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.timeline.timeline import WRITE_ACTIONS

KIND = Kind.NON_BLOCKING
WRITERS = 2
KILLS = 5
#: On an idle machine the first figure is the one that counts.
SECONDS, SECONDS_MAX = 10, 200
LATER_WRITES = 5
ACKNOWLEDGED = 60  # more than stay active
KEEP_COMMITS, ARCHIVE_KEEP = 20, (25, 30)
_BETWEEN_S = (0.3, 2.0)  # from one kill to the next
#: Longer than a process of a busy machine takes from one request to the next.
GRACE_MS = 10_000
_GRACES = f"--archive-grace {GRACE_MS}ms --archive-aborted-grace {GRACE_MS}ms"
_BEATS = f"--heartbeat-interval {SETTINGS.heartbeat_interval_ms}ms"
_ROUNDS = f"--every 100ms {_BEATS} --compact-after 3"
_LIMITS = " ".join(map(str, ARCHIVE_KEEP))
_POLICY = f"{_ROUNDS} --keep-commits {KEEP_COMMITS} {_GRACES} --archive-keep {_LIMITS}"
_ROW = ["id", "day", "ts", "version", "payload"]


class Service:
    """One service, in one process after another."""

    def __init__(self, uri: str, folder: Path, number: int, policy: str = _POLICY) -> None:
        options = [*policy.split(), "--job", f"service{number}"]
        self._command = [sys.executable, "-m", "pyhudi.service", uri, *options]
        self._stdout = folder / f"service{number}.stdout.txt"
        self._stderr = folder / f"service{number}.stderr.txt"
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._stdout.open("ab") as stdout, self._stderr.open("ab") as stderr:
            return subprocess.Popen(self._command, cwd=TESTS, stdout=stdout, stderr=stderr)

    def said(self) -> str:
        return self._stdout.read_text("utf-8") + self._stderr.read_text("utf-8")

    def kill(self) -> None:
        """Whatever it is doing."""
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self._process = self._started()

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait(STOP_S)


@pytest.mark.timeout(1_200)
def test_services_that_are_killed_keep_a_table_in_order_beside_its_writers(tmp_path: Path) -> None:
    seed = int(os.environ.get("PYHUDI_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"seed {seed}")
    path = tmp_path / "table"
    table = create_table(str(path), KIND, None)
    table.services.repair()  # probes the store, so that not all do it at once
    journals = [tmp_path / f"{KIND}-{number}.jsonl" for number in range(WRITERS + 1)]
    orders = [
        Orders(uri=str(path), options=None, kind=KIND, writer=n, seed=seed, journal=str(journal))
        for n, journal in enumerate(journals)
    ]
    services: list[Service] = []
    writers: list[Writer] = []
    try:
        services += [Service(str(path), tmp_path, number) for number in range(2)]
        writers += [Writer(each, tmp_path) for each in orders[:WRITERS]]
        kills = trouble(services, journals, random.Random(f"{seed}/services"))
        for writer in writers:
            writer.ask_to_stop()
        ends = [writer.await_end(time.monotonic() + STOP_S) for writer in writers]
        assert not await_end(lambda: pending(path), SECONDS_MAX)
        # Archiving may stand still until more is written. A plan that was taken over is old and
        # completed last, and so it stays, and what is younger stays behind it. And a log that is
        # older than its base file waits for a compaction, which is due after some more writes.
        later = Worker(orders[WRITERS])
        for _ in range(LATER_WRITES):
            later.write_next()
            if not await_end(lambda: pending(path) or surplus(path), SECONDS_MAX / LATER_WRITES):
                break
        assert not pending(path)
        assert not surplus(path), held_by(path)
        codes = [service.stop() for service in services]
    finally:
        for writer in writers:
            writer.kill()
        for service in services:
            service.kill()
    said = "\n".join(service.said() for service in services)
    assert ends == [None, None]
    assert kills >= KILLS
    assert codes == [0, 0], said
    assert "compaction" in said
    assert [i for i in active(path) if i.completed and i.action is Action.CLEAN]
    assert list((path / TIMELINE_FOLDER / "history").glob("manifest_*"))
    assert "Traceback" not in said, said
    history = load_history(journals)
    assert not history.surprises
    assert len(history.with_outcome(Event.OK)) >= ACKNOWLEDGED
    assert not history.with_outcome(Event.UNKNOWN)
    judge_rows(str(path), history)


def trouble(services: list[Service], journals: list[Path], chance: random.Random) -> int:
    """Kill and start them at random until enough was written; how often."""
    started = time.monotonic()
    kills = 0
    while time.monotonic() - started < SECONDS_MAX:
        time.sleep(chance.uniform(*_BETWEEN_S))
        history = load_history(journals)
        is_enough = len(history.with_outcome(Event.OK)) >= ACKNOWLEDGED and history.reads
        if kills >= KILLS and is_enough and time.monotonic() - started >= SECONDS:
            break
        if any("compaction" in service.said() for service in services):  # they are at work
            chance.choice(services).restart()
            kills += 1
    return kills


def await_end(faults: Callable[[], list[str]], seconds: float) -> list[str]:
    """Wait until there are none, and return those that are left when the time is over."""
    deadline = time.monotonic() + seconds
    while (found := faults()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def pending(table: Path) -> list[str]:
    instants = active(table)
    done = {i.requested for i in instants if i.state is State.COMPLETED}
    return [f"{i.file_name} is pending" for i in instants if i.requested not in done]


def surplus(table: Path) -> list[str]:
    """More writes than archiving leaves."""
    writes = [i for i in active(table) if i.completed and i.action in WRITE_ACTIONS]
    return [f"{len(writes)} writes are active"] if len(writes) > ARCHIVE_KEEP[1] else []


def held_by(table: Path) -> str:
    """Why archiving leaves them, without the cleaning that `run` archives by."""
    policy = pyhudi.ArchivePolicy(
        keep_min=ARCHIVE_KEEP[0],
        keep_max=ARCHIVE_KEEP[1],
        grace_ms=GRACE_MS,
        aborted_grace_ms=GRACE_MS,
    )
    return str(pyhudi.open_table(str(table)).services.archive(policy, dry_run=True))


def active(table: Path) -> list[Instant]:
    files = (path for path in (table / TIMELINE_FOLDER).iterdir() if path.is_file())
    return [Instant.parse(path.name) for path in files]


def judge_rows(uri: str, history: History) -> None:
    """Each row is there once, as the last of its writes left it, now and at moments before."""
    table = pyhudi.open_table(uri)
    judge_scan(table.read(columns=_ROW), history, "9" * 17)
    times = sorted(write.completed or "" for write in history.with_outcome(Event.OK))
    for time_ in times[-KEEP_COMMITS // 2 :]:
        judge_scan(table.read(as_of=time_, columns=_ROW), history, time_)
    assert history.reads
    for read in history.reads:
        judge_versions(read.versions, history, read.as_of)


def judge_scan(scan: Any, history: History, until: str) -> None:
    rows = scan.to_arrow().to_pylist()
    versions = {row["id"]: row["version"] for row in rows}
    assert len(versions) == len(rows), "a key is there twice"
    judge_versions(versions, history, until)
    batches = {write.batch.version: write.batch for write in history.with_outcome(Event.OK)}
    for row in rows:
        key, version = int(row["id"][1:]), row["version"]
        at, payload = batches[version].times[key], payload_of(version, key)
        expected = (partition_of(KIND, key), at, payload)
        assert (row["day"], row["ts"], row["payload"]) == expected


def judge_versions(found: Mapping[str, str], history: History, until: str) -> None:
    """Event times decide among all writes that had completed by then.

    But a compaction forgets deletes: a row that is older by its event time, and completes after the
    compaction that merged its delete, is there again.
    """
    expected, revived = fold(history, until)
    assert {key: found.get(key) for key in expected} == expected, until
    others = {key: version for key, version in found.items() if key not in expected}
    assert all(version in revived.get(key, ()) for key, version in others.items()), until


def fold(history: History, until: str) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Versions of the rows that must be there, and of those that may be, though deleted."""
    writes = [w for w in history.with_outcome(Event.OK) if (w.completed or "") <= until]
    by_key: dict[int, list[Any]] = {}
    for write in writes:
        for key in write.batch.times:
            by_key.setdefault(key, []).append(write)
    expected: dict[str, str] = {}
    revived: dict[str, set[str]] = {}
    for key, found in by_key.items():
        last = max(found, key=lambda write: int(write.batch.times[key]))
        if not last.batch.is_delete:
            expected[f"k{key}"] = last.batch.version
            continue
        later = (w for w in found if (w.completed or "") > (last.completed or ""))
        revived[f"k{key}"] = {w.batch.version for w in later if not w.batch.is_delete}
    return expected, revived
