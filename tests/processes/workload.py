"""What the writers write: small batches on a pool of keys, each with a version of its own.

A version is the batch's `write_id`, so every row that is ever read tells which batch it came from,
and its payload follows from version and key, so a row made of two would be noticed.

Two kinds of table. On the one without blocking, event times are unique and out of order, so its
rows are the fold of all batches by event time. On the optimistic one few keys lie in few buckets,
so writers do get in each other's way, and its rows are the fold in order of completion.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

import pyarrow as pa

import pyhudi
from pyhudi.index.simple_bucket import bucket_ids
from pyhudi.write.result import WriteResult

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.string()),
        ("ts", pa.int64()),
        ("version", pa.string()),
        ("payload", pa.string()),
    ]
)
#: As short as Hudi allows, so that a frozen writer is soon found silent.
SETTINGS = pyhudi.WriteSettings(heartbeat_interval_ms=1_000)
HEARTBEAT_TIMEOUT_S = SETTINGS.heartbeat_timeout_ms / 1000

_DELETES = 0.2  # of the batches
_DISORDER = 6  # batches by which event times go back and forth


class Kind(StrEnum):
    """How writers of one table live together."""

    NON_BLOCKING = "non_blocking"
    OPTIMISTIC = "optimistic"


@dataclass(frozen=True, slots=True)
class Shape:
    """How many there are of each."""

    keys: int
    partitions: int
    buckets: int
    rows_max: int


SHAPES = {
    Kind.NON_BLOCKING: Shape(keys=48, partitions=3, buckets=4, rows_max=6),
    Kind.OPTIMISTIC: Shape(keys=8, partitions=2, buckets=2, rows_max=2),
}


@dataclass(frozen=True, slots=True)
class Batch:
    """One call of `upsert` or `delete`: its version, and the event time of each key."""

    version: str
    is_delete: bool
    times: Mapping[int, int]

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "is_delete": self.is_delete,
            "times": list(self.times.items()),
        }

    @classmethod
    def of_json(cls, record: Mapping[str, Any]) -> Batch:
        return cls(record["version"], record["is_delete"], dict(record["times"]))


def next_batch(kind: Kind, writer: int, number: int, chance: random.Random) -> Batch:
    """The writer's batch of this number."""
    shape = SHAPES[kind]
    keys = chance.sample(range(shape.keys), chance.randint(1, shape.rows_max))
    about = number + chance.randint(0, _DISORDER)
    # No two batches share an event time: with equal times either row might win.
    time = (about << 40) + (writer << 32) + number
    is_delete = chance.random() < _DELETES
    return Batch(f"{writer}-{number}", is_delete, dict.fromkeys(keys, time))


def partition_of(kind: Kind, key: int) -> str:
    return f"d{key % SHAPES[kind].partitions}"


@cache
def bucket_of(kind: Kind, key: int) -> int:
    """Where the table's index puts the key within its partition."""
    bucket: int = bucket_ids(pa.array([f"k{key}"]), ("id",), SHAPES[kind].buckets)[0].as_py()
    return bucket


def payload_of(version: str, key: int) -> str:
    return hashlib.sha256(f"{version}/{key}".encode()).hexdigest()


def rows_of(kind: Kind, batch: Batch) -> pa.Table:
    """The batch as it is handed to `upsert`."""
    keys = list(batch.times)
    columns = {
        "id": [f"k{key}" for key in keys],
        "day": [partition_of(kind, key) for key in keys],
        "ts": list(batch.times.values()),
        "version": [batch.version] * len(keys),
        "payload": [payload_of(batch.version, key) for key in keys],
    }
    return pa.table(columns, SCHEMA)


def create_table(
    uri: str,
    kind: Kind,
    options: Mapping[str, str] | None,
    buckets: pyhudi.SimpleBuckets | pyhudi.ConsistentBuckets | None = None,
) -> pyhudi.Table:
    is_optimistic = kind is Kind.OPTIMISTIC
    return pyhudi.create_table(
        uri,
        SCHEMA,
        record_key="id",
        partition_by="day",
        ordering=() if is_optimistic else "ts",
        buckets=buckets or pyhudi.SimpleBuckets(SHAPES[kind].buckets),
        table_type="cow" if is_optimistic else "mor",
        storage_options=options,
        write_settings=SETTINGS,
        exist_ok=True,
        upkeep=False,
    )


def open_table(uri: str, options: Mapping[str, str] | None) -> pyhudi.Table:
    return pyhudi.open_table(uri, storage_options=options, write_settings=SETTINGS)


def write(table: pyhudi.Table, kind: Kind, batch: Batch) -> WriteResult:
    rows = rows_of(kind, batch)
    if not batch.is_delete:
        return table.upsert(rows, write_id=batch.version)
    columns = ["id", "day"] if kind is Kind.OPTIMISTIC else ["id", "day", "ts"]
    return table.delete(rows.select(columns), write_id=batch.version)
