"""Markers that a service stores in lists, beside direct ones, and the check of all of them.

The store is an S3 server with S3's latencies (`slow_s3.py`).

- One worker announces 100 files, one after the other: directly, and through the service.
- 200 workers announce 10,000 files at once through the service. What these take directly, one after
  the other, is reckoned from fewer of them, since each takes as long as any other. Workers that
  store direct markers at once share that time among them; the requests remain.
- A writer compares what it has announced with all that a rival has, which it reads from lists.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.request import urlopen

from measure import best_of, verdict
from services_started import at_least

from pyhudi.commit.validation import Checks
from pyhudi.conflict.early_strategies import STRATEGIES
from pyhudi.conflict.rules import WriteKind
from pyhudi.format.files.file_names import IoType, MarkerName
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.markers import encode_marker_list, marker_list_path
from pyhudi.settings import MarkerService, WriteSettings
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.objects.markers import direct_markers, load_markers, marker_stats
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.world import real_world
from pyhudi.write.early.check import EarlyCheck, Seen, Stance
from pyhudi.write.early.rivals import Rival
from pyhudi.write.files.announcing import DIRECT, Announcing
from pyhudi.write.files.spec import WriteSpec, create_marker
from pyhudi.write.markers.client import ServedMarkers, ask
from pyhudi.write.markers.server import MarkerServer

OURS, THEIRS = InstantTime("20260102030405678"), InstantTime("20260102030405000")
FEW, MANY, WORKERS, PROCESSES = 100, 10_000, 200, 4
TURNS = 3
#: Files that are announced directly to know what all of them take.
SAMPLE = 500
FASTER_MIN = 3.0
REQUESTS_MAX = 0.1
SLOWER_MAX = 1.0
#: Announced files, and the seconds that a check of them may take.
CHECKS = {1_500: 0.05, 100_000: 2.0}
LISTS = 20


def main(*, is_quick: bool = False) -> bool:
    files, sample, turns = (1_000, 50, 1) if is_quick else (MANY, SAMPLE, TURNS)
    with S3.started() as s3:
        met = [_few(s3, turns), _many(s3, files, sample)]
    return all([*met, *(_check(count, limit) for count, limit in CHECKS.items())])


# ---- the store


@dataclass(frozen=True)
class S3:
    """The server with S3's latencies."""

    port: int

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[S3]:
        program = str(Path(__file__).with_name("slow_s3.py"))
        command = [sys.executable, program, "1"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            try:
                yield cls(int(server.stdout.readline()))
            finally:
                server.stdin.close()

    def table(self) -> Table:
        """A table of its own, in which the write is alive."""
        table = Table(self.port, f"s3://markers/{uuid.uuid4()}")
        table.storage.create(heartbeat_path(OURS), b"")
        self.requests()
        return table

    def requests(self) -> int:
        """How many there were since the last call."""
        with urlopen(f"http://127.0.0.1:{self.port}/count") as answer:
            return sum(json.load(answer).values())


@dataclass(frozen=True)
class Table:
    """The address of a table, to be sent to workers."""

    port: int
    uri: str

    @property
    def storage(self) -> Storage:
        options = {
            "aws_endpoint": f"http://127.0.0.1:{self.port}",
            "aws_access_key_id": "nobody",
            "aws_secret_access_key": "nothing",
            "aws_region": "us-east-1",
            "aws_conditional_put": "etag",
            "allow_http": "true",
        }
        return open_storage(self.uri, options)


# ---- announcing


def _marker(number: int, requested: InstantTime = OURS) -> MarkerName:
    file_id = f"{number:08}-0000-0000-0000-000000000000-0"
    return MarkerName(f"day={number % 50}/{file_id}_0-0-0_{requested}.parquet", IoType.CREATE)


def announce(storage: Storage, announcing: Announcing, numbers: Sequence[int]) -> float:
    """Announce these files one after the other, as a task does; return the longest wait."""
    spec, longest_s = WriteSpec(OURS, "", is_fenced=True, announcing=announcing), 0.0
    for number in numbers:
        began = time.perf_counter()
        create_marker(storage, spec, _marker(number).data_file, IoType.CREATE)
        longest_s = max(longest_s, time.perf_counter() - began)
    return longest_s


def announce_at_once(
    table: Table, announcing: Announcing, shares: Sequence[Sequence[int]]
) -> float:
    """Announce shares of the files in as many threads; return the longest wait."""
    storage = table.storage
    with ThreadPoolExecutor(len(shares)) as workers:
        return max(workers.map(partial(announce, storage, announcing), shares))


@contextmanager
def _served(table: Table) -> Iterator[ServedMarkers]:
    server = MarkerServer(table.storage, OURS, real_world(), MarkerService())
    markers = server.start("127.0.0.1", 0, "127.0.0.1")
    try:
        yield markers
    finally:
        server.close()


def _few(s3: S3, turns: int) -> bool:
    took: dict[str, list[float]] = {"direct": [], "served": []}
    asked = dict.fromkeys(took, 0)
    for _ in range(turns):
        for kind, seconds in took.items():
            table = s3.table()
            began = time.perf_counter()
            if kind == "direct":
                announce(table.storage, DIRECT, range(FEW))
            else:
                with _served(table) as markers:
                    announce(table.storage, markers, range(FEW))
            seconds.append(time.perf_counter() - began)
            asked[kind] = s3.requests()
    medians = {kind: statistics.median(seconds) for kind, seconds in took.items()}
    shown = ", ".join(f"{k} {medians[k]:.1f} s, {asked[k]} requests" for k in took)
    print(f"  {FEW} files, one worker: {shown}", flush=True)
    return verdict("served to direct", medians["served"] / medians["direct"], SLOWER_MAX)


def _many(s3: S3, files: int, sample: int) -> bool:
    table = s3.table()
    began = time.perf_counter()
    announce(table.storage, DIRECT, range(sample))
    direct_s = (time.perf_counter() - began) * files / sample
    direct_asked = s3.requests() * files // sample

    table, shares = s3.table(), [range(n, files, WORKERS) for n in range(WORKERS)]
    spawned = multiprocessing.get_context("spawn")
    with _served(table) as markers, ProcessPoolExecutor(PROCESSES, spawned) as processes:
        list(processes.map(time.sleep, [1] * PROCESSES))  # until all of them run
        began = time.perf_counter()
        portions = [shares[n::PROCESSES] for n in range(PROCESSES)]
        longest_s = max(processes.map(announce_at_once, *_shared(table, markers, portions)))
        served_s = time.perf_counter() - began
    asked = s3.requests()
    storage = table.storage
    assert len(load_markers(storage, OURS)) == files
    late = direct_markers(marker_stats(storage, OURS), OURS)
    print(
        f"  {files:,} files: direct one after the other {direct_s:.0f} s, {direct_asked:,}"
        f" requests; {WORKERS} workers at once, served, {served_s:.1f} s, {asked:,} requests,"
        f" the longest wait {longest_s:.2f} s, {len(late)} workers' files direct after all",
        flush=True,
    )
    met = at_least("times faster", direct_s / served_s, FASTER_MIN)
    met = verdict("of the requests", asked / direct_asked, REQUESTS_MAX) and met
    return verdict("files that a worker announced directly", len(late), 0) and met


def _shared(
    table: Table, announcing: Announcing, portions: Sequence[Sequence[Sequence[int]]]
) -> tuple[list[Table], list[Announcing], Sequence[Sequence[Sequence[int]]]]:
    count = len(portions)
    return [table] * count, [announcing] * count, portions


# ---- checking


def _check(count: int, limit_s: float) -> bool:
    """Compare all that a write has announced with as much of a rival, of other file groups."""
    with tempfile.TemporaryDirectory() as folder:
        storage = open_storage(folder)
        storage.create(heartbeat_path(OURS), b"")
        each = -(-count // LISTS)
        for number in range(LISTS):
            theirs = range(count + number * each, count + min(count, (number + 1) * each))
            data = encode_marker_list(_marker(n, THEIRS) for n in theirs)
            storage.create(marker_list_path(THEIRS, number), data)
        server = MarkerServer(storage, OURS, real_world(), MarkerService(batch_ms=1))
        address = server.start("127.0.0.1", 0, "127.0.0.1").address
        for first in range(0, count, 5_000):
            ask(address, [_marker(n) for n in range(first, min(count, first + 5_000))])
        stance = Stance(OURS, Checks(), None, WriteSettings(), is_mor=False, is_blind=False)
        rivals = (Rival(THEIRS, WriteKind.WRITE, "none"),)
        looks, seen = STRATEGIES["async_server"], Seen(stance)
        known = EarlyCheck(looks, stance, rivals, 120_000, real_world, seen)

        def look(check: EarlyCheck) -> None:
            made = server.announced()
            assert len(made.groups) == count
            assert check.met(storage, made) is None

        works = {
            "first": lambda: look(known.elsewhere(real_world)),  # reads every list
            "again": lambda: look(known),
        }
        costs = best_of(TURNS, works)
        server.close()
    shown = ", ".join(f"{name} {1000 * cost.wall_s:.0f} ms" for name, cost in costs.items())
    print(f"  a check of {count:,} markers against as many: {shown}", flush=True)
    return verdict("seconds of the first", costs["first"].wall_s, limit_s)


if __name__ == "__main__":
    sys.exit(0 if main(is_quick="--quick" in sys.argv) else 1)
