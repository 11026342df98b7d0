"""A writer of `many_writers.py` in a process of its own: Apache Hudi, in the judges' environment.

The table and its options are those of `hudi_side.py`, and the lock is Hudi's for local disk. All
that waits, polls and gives up keeps Hudi's default, but for the retries after a conflict: by
default there are none.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial

from hudi_side import OPERATION, OPTIONS, SETTINGS, hudi_version
from side import Row, own_stdout, serve, source_frame, start_session

SESSION = {"spark.master": "local[1]", "spark.driver.memory": "1g"}
MODES = {
    "non_blocking": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "optimistic": "OPTIMISTIC_CONCURRENCY_CONTROL",
}
SHARED = {
    "hoodie.table.type": "MERGE_ON_READ",  # the datasource's own option does not reach the check
    "hoodie.write.lock.provider": (
        "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    ),
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.num.retries.on.conflict.failures": "3",  # as many as pyhudi makes
}
#: Whole calls that may fail before the workload does.
CALLS_MAX = 10


def main(buckets: str) -> None:
    sink = own_stdout()
    session = start_session({**SETTINGS, **SESSION})
    options = {**OPTIONS, **SHARED, "hoodie.bucket.index.num.buckets": buckets}

    def hello() -> Row:
        return {"pid": os.getpid(), "hudi": hudi_version(session), "spark": session.version}

    def write(table: str, mode: str, source: str) -> None:
        frame = source_frame(session, source)
        writer = frame.write.format("hudi").options(**options).option(OPERATION, "upsert")
        writer.option("hoodie.write.concurrency.mode", MODES[mode]).mode("append").save(table)

    def create(table: str, mode: str, lock: str, buckets: int, source: str) -> Row:
        write(table, mode, source)
        return {}

    def upsert(table: str, mode: str, sources: list[str]) -> Row:
        failures: list[str] = []
        started = time.perf_counter()
        for source in sources:
            failures += _failures_until_written(partial(write, table, mode, source))
        seconds = time.perf_counter() - started
        return {"writes": len(sources), "failures": failures, "seconds": seconds}

    serve(sink, {"hello": hello, "create": create, "upsert": upsert})
    session.stop()


def _failures_until_written(call: Callable[[], None]) -> list[str]:
    """Call until it succeeds; how the calls before that ended."""
    failures: list[str] = []
    for _ in range(CALLS_MAX):
        try:
            call()
        except Exception as error:  # the bundle raises Java's, and conflicts come as several
            failures.append(str(error)[:300])
        else:
            return failures
    raise RuntimeError(f"{CALLS_MAX} calls of one upsert have failed: {failures[-1]}")


if __name__ == "__main__":
    main(sys.argv[1])
