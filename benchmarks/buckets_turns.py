"""What the processes of `buckets_beside.py` do in one turn: write, split buckets, or burn CPU.

A turn takes as long as what is beside the writers. Files in a folder are the signals: each writer
makes one when it is warm, and the process beside them makes the last one when it has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
from services_side import burn, read_rows, sleep_until
from side import ORDERING, Row

import pyhudi

DONE = "done"
WARM_UPS = 3
#: How long writers go on before and after what is beside them.
MARGIN_S = 0.5
_LOOK_S = 0.01


def upsert_beside(table: str, source: str, ts: int, signals: str, number: int) -> Row:
    """The same keys again and again, each time newer than `ts`: when it began and ended each."""
    rows, opened = read_rows(source), pyhudi.open_table(table)
    place, done = rows.schema.get_field_index(ORDERING), Path(signals, DONE)
    first, moments = ts, []
    while not done.exists():
        ts += 1
        opened.upsert(rows.set_column(place, ORDERING, pa.array([ts] * rows.num_rows)))
        if ts == first + WARM_UPS:
            Path(signals, str(number)).touch()
        if ts >= first + WARM_UPS:
            moments.append(time.monotonic())
    return {"moments": moments, "ts": ts}


def split_beside(table: str, signals: str, writers: int, parts: int, writes: str) -> Row:
    """Split every bucket in one call: when, on how many cores, and what became of it."""
    opened = pyhudi.open_table(table)
    # Writers make the new buckets larger, but not in so short a time as large as this.
    least = min(opened.inspect.buckets(rows=False)["bytes"].to_pylist())
    policy = pyhudi.ResizePolicy(
        target_bytes=max(4096, least * 9 // 10),
        split=Equally(parts),
        split_above=1,
        merge_below=0,
        rest_seconds=0,
        writes=writes,
    )
    made: dict[str, int] = {"inputs": 0, "plans": 0, "copies": 0}
    failed: list[str] = []

    def split() -> None:
        try:
            results = opened.services.resize(policy).results
        except pyhudi.ConflictError as error:
            failed.append(error.why)
            return
        made["plans"] = len(results)
        made["inputs"] = sum(result.inputs for result in results)
        made["copies"] = sum(result.copies for result in results)

    span = _span(split, signals, writers)
    return {**span, **made, "failed": failed}


def burn_beside(table: str, signals: str, writers: int, seconds: float, cores: float) -> Row:
    """Burn as much CPU for so long; rest if that is none."""

    def burnt() -> None:
        end = time.monotonic() + seconds
        if cores:
            burn(cores, time.monotonic(), end)
        sleep_until(end)

    return _span(burnt, signals, writers)


def _span(work: Callable[[], None], signals: str, writers: int) -> Row:
    """Work once all writers write: from when to when, and on how many cores."""
    while any(not Path(signals, str(number)).exists() for number in range(writers)):
        time.sleep(_LOOK_S)
    time.sleep(MARGIN_S)
    begin, cpu = time.monotonic(), time.process_time()
    try:
        work()
    finally:
        end, taken = time.monotonic(), time.process_time() - cpu
        time.sleep(MARGIN_S)
        Path(signals, DONE).touch()  # also after an error, or the writers would never stop
    return {"begin": begin, "end": end, "cores": taken / (end - begin)}


class Equally:
    """Cuts a bucket into so many equal parts, whatever its size is by then."""

    def __init__(self, parts: int) -> None:
        self._parts = parts

    def points(self, bucket: pyhudi.SplitBucket) -> Sequence[int]:
        parts, width = min(self._parts, bucket.parts), bucket.high - bucket.low
        return [bucket.low + width * n // parts for n in range(1, parts)]
