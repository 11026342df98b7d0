"""A table whose schema changes by commits without rows, made by hand as no release makes them yet.

Its rows follow from their numbers, like all others here, but its columns are few and may be added,
widened, dropped and made optional.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa

import pyhudi
from conformance.client import JudgeClient
from conformance.combinations import Combination, MergeMode, TableKind
from conformance.rivals import Shared, hudi_write
from conformance.rows import assert_same_rows, spark_columns
from conformance.sample_rows import ORDERING, Row
from conformance.scenes import Scene
from conformance.writing import ExpectedTable
from golden_reads import hudi_options
from opened_tables import session_on
from pyhudi.commit.transaction import Transaction
from pyhudi.conflict.gone_columns import DROPPED_KEY
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    decode_commit_metadata,
    encode_commit_metadata,
)
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.writer_identity import WRITER_KEY
from pyhudi.index.simple_bucket import bucket_ids
from pyhudi.settings import WriteSettings
from pyhudi.storage.open import open_storage
from pyhudi.timeline.instant_time import clock_time, following_time
from pyhudi.world import real_world

ALTER_SCHEMA = "ALTER_SCHEMA"
WIDE = 1 << 40

Change = Callable[[pa.Schema], pa.Schema]

FIRST = pa.schema(
    [
        ("id", pa.string()),
        (ORDERING, pa.int64()),
        ("size", pa.int32()),
        ("gone", pa.string()),
        pa.field("must", pa.string(), nullable=False),
        ("note", pa.string()),
    ]
)
#: Nothing in it is required, which to a Hudi writer would be a change of its own.
PLAIN = FIRST.remove(FIRST.get_field_index("must"))


def added(schema: pa.Schema, name: str = "extra") -> pa.Schema:
    return schema.append(pa.field(name, pa.string()))


def widened(schema: pa.Schema) -> pa.Schema:
    return _with(schema, pa.field("size", pa.int64()))


def dropped(schema: pa.Schema) -> pa.Schema:
    return schema.remove(schema.get_field_index("gone"))


def made_optional(schema: pa.Schema) -> pa.Schema:
    return _with(schema, pa.field("must", pa.string()))


def _with(schema: pa.Schema, field: pa.Field) -> pa.Schema:
    return schema.set(schema.get_field_index(field.name), field)


class Pending(StrEnum):
    """What is left of an instant's time before it completed."""

    BARE = "empty files"
    INTRODUCED = "the files of a pyhudi write"
    AS_HUDI = "the files that Hudi's own change of a schema leaves"
    REQUESTED = "an empty requested file"
    NONE = "no file"


@dataclass(slots=True)
class ChangingRows:
    """Rows of the columns that there are now."""

    schema: pa.Schema
    identity: tuple[str, ...] = ("id",)

    def row(self, number: int, *, written: int, seen_at: int) -> Row:
        values = {name: f"{name} {number} by {written}" for name in self.schema.names}
        is_wide = self.schema.field("size").type == pa.int64()
        size = WIDE + number if is_wide else number
        return {**values, "id": f"k{number:03}", ORDERING: seen_at, "size": size}

    def table(self, rows: Iterable[Row]) -> pa.Table:
        """The rows with nulls where they have no value, and without columns that are gone."""
        return pa.Table.from_pylist(list(rows), self.schema)

    def partition(self, _: Row) -> tuple[Any, ...]:
        return ()


class Evolving(Scene):
    """The table, which pyhudi made and both engines write."""

    sample: ChangingRows  # type: ignore[assignment]

    def __init__(
        self, path: Path, combination: Combination, buckets: int = 1, first: pa.Schema = FIRST
    ) -> None:
        self.shared = Shared(str(path), combination, buckets)
        self.path = path
        self.sample = ChangingRows(first)
        self.expected = ExpectedTable(combination, self.sample)  # type: ignore[arg-type]
        pyhudi.create_table(
            path,
            first,
            record_key="id",
            ordering=ORDERING if combination.merge is MergeMode.EVENT_TIME else (),
            table_type=combination.kind,
            buckets=pyhudi.SimpleBuckets(buckets),
            lock="file",
            upkeep=False,
        )
        self.upsert(self.rows(range(4), written=0))

    @property
    def is_mor(self) -> bool:
        return self.shared.combination.kind is TableKind.MOR

    @property
    def action(self) -> Action:
        return Action.DELTACOMMIT if self.is_mor else Action.COMMIT

    # -- writes

    def evolve(self, change: Change, pending: Pending = Pending.BARE) -> str:
        """Commit the change without rows; the instant's requested time."""
        self.sample.schema = change(self.sample.schema)
        if pending is Pending.INTRODUCED:
            return self._evolve_by_transaction()
        requested = new_time()
        self.complete(requested, self.change(), pending)
        return requested

    def complete(self, requested: str, metadata: CommitMetadata, pending: Pending) -> None:
        """Put all files of an instant on the timeline."""
        self.begin(requested, pending)
        completed = InstantTime(following_time(requested))
        done = Instant(InstantTime(requested), self.action, State.COMPLETED, completed)
        (self.timeline / done.file_name).write_bytes(encoded(metadata))

    def begin(self, requested: str, pending: Pending) -> None:
        """Put the files of a pending instant on the timeline."""
        for state, data in _PENDING_FILES[pending]().items():
            instant = Instant(InstantTime(requested), self.action, state)
            (self.timeline / instant.file_name).write_bytes(data)

    def _evolve_by_transaction(self) -> str:
        session = session_on(open_storage(str(self.path), None), real_world())
        transaction = Transaction.begin(session.log, WriteSettings(), self.action, session.recovery)
        transaction.complete(self.change()).or_raise()
        return transaction.requested

    def change(self) -> CommitMetadata:
        """What a change to the present columns records."""
        avro = json.dumps(avro_record_schema(self.sample.schema, self.path.name))
        gone = {name: "" for name in FIRST.names if name not in self.sample.schema.names}
        drops = {DROPPED_KEY: json.dumps(gone)} if gone else {}
        return empty_commit({"schema": avro, WRITER_KEY: "{}", **drops})

    def hudi_write_frame(self, judge: JudgeClient, frame: pa.Table, **options: str) -> None:
        """Hudi writes rows of any columns."""
        hudi_write(judge, self.shared, frame, options=options)
        self.expected.upsert(frame.to_pylist())

    # -- what there is

    def agree(self, judge: JudgeClient, *, by_rs: bool = True) -> None:
        """All readers give the expected rows in the columns that there are now."""
        ours = self.shared.open().read(meta=True).to_arrow()
        assert spark_columns(ours.schema) == spark_columns(self.sample.schema)
        assert judge.hudi_schema(self.path) == spark_columns(self.sample.schema)
        assert_same_rows(ours, self.expected.rows, meta=False)
        assert_same_rows(ours, judge.hudi_rows(self.path))
        if by_rs:
            assert_same_rows(ours, judge.rs_rows(self.path))

    def agree_on(self, judge: JudgeClient, **how: str) -> pa.Table:
        """Hudi and pyhudi give the same for a read that Hudi's options describe."""
        ours = self.shared.open().read_with_hudi_options(hudi_options(how)).to_arrow()
        assert_same_rows(ours, judge.hudi_rows(self.path, **how))
        return ours

    def recorded_columns(self) -> dict[str, list[str]]:
        """The columns of each completed write, by its requested time, the last one last."""
        found = {}
        for instant in self.instants():
            if instant.action is self.action and instant.state is State.COMPLETED:
                data = (self.timeline / instant.file_name).read_bytes()
                avro = decode_commit_metadata(data, instant.file_name).schema_json
                assert avro is not None
                found[str(instant.requested)] = [f["name"] for f in json.loads(avro)["fields"]]
        return found

    @property
    def timeline(self) -> Path:
        return self.path / ".hoodie" / "timeline"


def one_in_each_bucket() -> list[int]:
    """A number for the first bucket of two, and one for the second."""
    keys = pa.array([f"k{number:03}" for number in range(100)])
    buckets = bucket_ids(keys, ["id"], 2).to_pylist()
    return [buckets.index(bucket) for bucket in (0, 1)]


def empty_commit(extra: Mapping[str, str] | None) -> CommitMetadata:
    """A change of the schema: Hudi reads no commit whose statistics are null instead of empty."""
    return CommitMetadata({}, compacted=False, extra_metadata=extra, operation_type=ALTER_SCHEMA)


def encoded(metadata: CommitMetadata) -> bytes:
    return encode_commit_metadata(metadata, os.urandom(16))


def new_time() -> str:
    """A time that no other instant has."""
    time.sleep(0.002)
    return clock_time(int(time.time() * 1000), UTC)


_PENDING_FILES: Mapping[Pending, Callable[[], dict[State, bytes]]] = {
    Pending.BARE: lambda: {State.REQUESTED: b"", State.INFLIGHT: b""},
    Pending.AS_HUDI: lambda: {State.REQUESTED: b"", State.INFLIGHT: encoded(empty_commit({}))},
    Pending.REQUESTED: lambda: {State.REQUESTED: b""},
    Pending.NONE: dict,
}
