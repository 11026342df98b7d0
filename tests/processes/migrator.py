"""Processes of a table that is migrated: a writer, and a migrating process that kills itself.

    cd tests && python -m processes.migrator write  TABLE NUMBER SEED JOURNAL STOP
    cd tests && python -m processes.migrator migrate TABLE CHANGES

A writer upserts small batches until the file STOP is there, into more and more partitions. Its
journal has a line for each batch once it is acknowledged. A migrating process dies when it has made
so many changes to storage; with 0 it lives.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import pyhudi
from opened_tables import opening_on
from processes.workload import SETTINGS
from pyhudi.services.migration.run import migrate_buckets
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.world import real_world

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("day", pa.string()),
        ("ts", pa.int64()),
        ("version", pa.string()),
    ]
)
RINGS = pyhudi.ConsistentBuckets(2)
KEYS_A_DAY = 6
DAYS_FIRST = 8
_NEW_DAY_EVERY = 12  # batches of a writer
_PAUSE_S = 0.02
_CHANGES = {"create", "create_from", "write", "replace", "delete"}


def day_of(key: int) -> str:
    return f"d{key // KEYS_A_DAY}"


def batch_of(number: int, count: int, chance: random.Random) -> dict[int, int]:
    """The event time of each key: unique, and out of order among writers."""
    days = DAYS_FIRST + count // _NEW_DAY_EVERY
    keys = chance.sample(range(days * KEYS_A_DAY), 5)
    return {key: (count * 7 + chance.randrange(40)) * 10 + number for key in keys}


def rows_of(times: dict[int, int], version: str) -> pa.Table:
    rows = [
        {"id": f"k{key}", "day": day_of(key), "ts": ts, "version": version}
        for key, ts in times.items()
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def write(uri: str, number: int, seed: str, journal: Path, stop: Path) -> None:
    chance, count = random.Random(f"{seed}/{number}"), 0
    table = pyhudi.open_table(uri, write_settings=SETTINGS)
    with journal.open("a") as notes:
        while not stop.exists():
            times, version = batch_of(number, count, chance), f"w{number}-{count}"
            result = table.upsert(rows_of(times, version))
            line = {"version": version, "times": [*times.items()], "moved": result.moved}
            notes.write(json.dumps({**line, "retries": result.retries}) + "\n")
            notes.flush()
            count += 1
            time.sleep(_PAUSE_S)


class Dying:
    """A storage whose process dies when it has changed something so often."""

    def __init__(self, inner: Storage, changes: int) -> None:
        self._inner = inner
        self._left = changes

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in _CHANGES:
            return found

        def counted(*given: Any, **named: Any) -> Any:
            result = found(*given, **named)
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counted


def migrate(uri: str, changes: int) -> None:
    opening = opening_on(Dying(open_storage(uri), changes), real_world(), SETTINGS)
    while True:
        try:
            if migrate_buckets(opening, RINGS).is_done:
                return
        except pyhudi.ConflictError:  # one that died is taken for alive a little longer
            time.sleep(0.1)
        except pyhudi.InvalidRequestError as error:
            if "consistent buckets already" not in str(error):
                raise
            return


def main(role: str, uri: str, *given: str) -> None:
    if role == "write":
        number, seed, journal, stop = given
        write(uri, int(number), seed, Path(journal), Path(stop))
    else:
        migrate(uri, int(given[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
