"""Partial updates: what Hudi does with them before and after compaction, and the join of them.

The first half shows the ground that joined tables stand on, with partial blocks written by hand
into tables of both merge modes. The second half has three owners join their rows in every order,
with compactions of Hudi's between, and all readers agree with a plain model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from conformance.client import JudgeClient
from conformance.rows import assert_same_rows
from conformance.writing import QUIET
from opened_tables import opening_on
from pyhudi.conflict.schema_to_record import WriteSchemas
from pyhudi.format.files.file_names import IoType, LogFileName
from pyhudi.format.files.row_blocks import encode_rows_block
from pyhudi.format.table.column_owners import RANK_COLUMN
from pyhudi.storage.open import open_storage
from pyhudi.table.rows.row_layout import RowOrigin, row_layout, stored_rows
from pyhudi.world import real_world
from pyhudi.write.begin import begun, make_beginning, ready, write_spec
from pyhudi.write.complete import complete
from pyhudi.write.files.spec import create_marker, data_path, file_stat
from pyhudi.write.intent import Reads, WriteIntent
from pyhudi.write.plan import Prepared, plan_write
from pyhudi.write.schemas import row_schema
from pyhudi.write.seeds import seed_missing

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

Row = dict[str, Any]
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("a", pa.int32()),
        ("b", pa.string()),
        ("ts", pa.int64()),
    ]
)


def write_block(path: Path, rows: Sequence[Row], *, is_partial: bool) -> None:
    """Commit one log file of one block; a partial one has the columns of its rows alone."""
    session = ready(opening_on(open_storage(str(path)), real_world()))
    make_beginning(session)
    seed_missing(session, [""])
    with begun(session) as transaction:
        spec = write_spec(session, transaction.requested)
        group = session.groups.routing([""]).layout("").group(0)
        avro = json.loads(spec.avro_schema)
        avro["fields"] = [field for field in avro["fields"] if field["name"] in rows[0]]
        layout = row_layout(json.dumps(avro))
        batch = pa.RecordBatch.from_pylist([*rows], layout.data)
        origin = RowOrigin(spec.requested, group, group.file_id)
        stored = stored_rows(layout, batch, batch.column("id"), origin, 0)
        data = encode_rows_block(
            stored, layout.avro_json, spec.requested, spec.block_format, is_partial=is_partial
        )
        name = LogFileName(group.file_id, spec.requested, 1, spec.write_token).file_name
        create_marker(session.storage, spec, data_path("", name), IoType.CREATE)
        assert session.storage.create(data_path("", name), data)
        stat = file_stat(group, name, len(data), writes=len(rows), deletes=0)
        stat = replace(stat, num_update_writes=len(rows), base_file="", log_files=(name,))
        schemas = WriteSchemas(session.schema.now(), None)
        intent = WriteIntent(operation="UPSERT", reads=Reads.LOCATIONS, rows=row_schema(session))
        plan = plan_write(session, intent, spec, schemas, Prepared())
        complete(session, transaction, plan, [stat]).outcome.or_raise()


def create_table(path: Path, schema: pa.Schema, **options: Any) -> pyhudi.Table:
    """With a lock, for Hudi compacts beside us."""
    given = {"record_key": "id", "buckets": pyhudi.SimpleBuckets(1), "lock": "file", **options}
    return pyhudi.create_table(
        path,
        schema,
        **given,
        upkeep=False,
    )


def compact(judge: JudgeClient, path: Path) -> None:
    given = {
        **QUIET,
        "hoodie.metadata.enable": "false",
        "hoodie.compact.inline.max.delta.commits": "1",
    }
    options = ",".join(f"{key}={value}" for key, value in given.items())
    judge.hudi_call("compaction", path, op="scheduleAndExecute", options=options)


# ---- what partial blocks do

EVENT, COMMIT = "event_time", "commit_time"

#: For each key, the partial updates of its base row a=1, b=x, ts=10: first of column a, then of b,
#: each with a value and a ts. Then the row (a, b, ts) by event time, the same if a compaction comes
#: between the two, and the row by commit time, where compaction never matters.
Update = tuple[Any, int]
Values = tuple[Any, Any, int]
STORIES: dict[str, tuple[Update, Update | None, Values, Values, Values]] = {
    "late": ((2, 5), None, (1, "x", 10), (1, "x", 10), (2, "x", 5)),
    "equal": ((2, 10), None, (2, "x", 10), (2, "x", 10), (2, "x", 10)),
    "early": ((2, 20), None, (2, "x", 20), (2, "x", 20), (2, "x", 20)),
    "two": ((2, 20), ("y", 30), (2, "y", 30), (2, "y", 30), (2, "y", 30)),
    "two equal": ((2, 20), ("y", 20), (2, "y", 20), (2, "y", 20), (2, "y", 20)),
    "two, late": ((2, 20), ("y", 15), (2, "y", 20), (2, "x", 20), (2, "y", 15)),
    "null": ((None, 30), None, (None, "x", 30), (None, "x", 30), (None, "x", 30)),
}


@pytest.mark.parametrize(
    ("mode", "compacted"),
    [
        (EVENT, False),
        (EVENT, True),
        (COMMIT, True),
        pytest.param(COMMIT, False, marks=pytest.mark.long),
    ],
)
def test_what_partial_blocks_do_by_mode_and_compaction(
    judge: JudgeClient, tmp_path: Path, mode: str, compacted: bool
) -> None:
    path = tmp_path / "table"
    create_table(path, SCHEMA, ordering="ts", merge_mode=mode, concurrency="non_blocking")
    base = [{"id": key, "a": 1, "b": "x", "ts": 10} for key in STORIES]
    write_block(path, base, is_partial=False)
    pyhudi.open_table(path).services.compact()
    first = [{"id": key, "a": story[0][0], "ts": story[0][1]} for key, story in STORIES.items()]
    write_block(path, first, is_partial=True)
    if compacted:
        compact(judge, path)
    second = [(key, story[1]) for key, story in STORIES.items() if story[1] is not None]
    write_block(path, [{"id": k, "b": u[0], "ts": u[1]} for k, u in second], is_partial=True)
    column = 4 if mode == COMMIT else 3 if compacted else 2
    expected = [
        {"id": key, **dict(zip(("a", "b", "ts"), story[column], strict=True))}  # type: ignore[arg-type]
        for key, story in STORIES.items()
    ]
    for is_last in (False, True):
        if is_last:
            compact(judge, path)
        ours = pyhudi.open_table(path).read(columns=SCHEMA.names).to_arrow()
        assert sorted(ours.to_pylist(), key=_key) == sorted(expected, key=_key)
        assert_same_rows(ours, judge.hudi_rows(path), meta=False)
        assert_same_rows(ours, judge.rs_rows(path), meta=False)


def _key(row: Row) -> str:
    return str(row["id"])


def test_hudi_reads_nonsense_where_a_record_has_partial_rows_alone(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """Why joined tables have stand-ins. A compaction would even write the nonsense down."""
    schema = pa.schema([SCHEMA.field("id"), ("a", pa.int32()), ("c", pa.int64())])
    path = tmp_path / "table"
    create_table(path, schema)
    write_block(path, [{"id": "k", "a": 1}], is_partial=True)
    ours = pyhudi.open_table(path).read(columns=schema.names).to_arrow()
    assert ours.to_pylist() == [{"id": "k", "a": 1, "c": None}]
    assert_same_rows(ours, judge.rs_rows(path), meta=False)
    [theirs] = judge.hudi_rows(path, meta=False)
    assert theirs["c"] is not None, "what lies in memory behind the row"


# ---- the join

WIDE = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("day", pa.string()),
        ("customer", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("method", pa.string()),
        ("paid_at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("note", pa.string()),  # nobody's
    ]
)
OWNERS = {"orders": ["customer", "amount"], "payments": ["method", "paid_at"], "tags": ["tags"]}


class JoinedStory:
    """A joined table, and the model of it: the last value of each column, whoever wrote it."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.rows: dict[str, Row] = {}
        buckets = pyhudi.SimpleBuckets(2)
        create_table(path, WIDE, partition_by="day", buckets=buckets, owners=OWNERS, **options)

    def part(self, owner: str, keys: Sequence[str], version: int) -> pa.Table:
        """Rows of an owner, some of their values null."""
        values: dict[str, Callable[[int], Any]] = {
            "customer": lambda n: None if n % 5 == version else f"c{n}.{version}",
            "amount": lambda n: None if n % 7 == version else n * 100 + version,
            "method": lambda n: None if n % 3 == version else f"m{n}.{version}",
            "paid_at": lambda n: None if n % 4 == version else n * 1_000_000 + version,
            "tags": lambda n: None if n % 6 == version else ["t"] * (n % 3) + [str(version)],
        }
        numbers = range(len(keys))
        columns: dict[str, list[Any]] = {"id": [*keys], "day": [_day(key) for key in keys]}
        columns |= {name: [values[name](n) for n in numbers] for name in OWNERS[owner]}
        return pa.table(columns, pa.schema([WIDE.field(name) for name in columns]))

    def upsert(
        self,
        owner: str,
        rows: pa.Table,
        meanwhile: Callable[[], object] | None = None,
    ) -> pyhudi.WriteResult:
        """Write an owner's rows; something else may happen between begin and completion."""

        def batches() -> Iterator[pa.RecordBatch]:
            yield from rows.to_batches()
            if meanwhile is not None:
                meanwhile()

        settings = pyhudi.WriteSettings(buffer_bytes_max=1 if meanwhile else 1 << 20)
        table = pyhudi.open_table(self.path, write_settings=settings)
        reader = pa.RecordBatchReader.from_batches(rows.schema, batches())
        result = table.upsert(reader, owner=owner)
        self.wrote(rows)
        return result

    def wrote(self, rows: pa.Table) -> None:
        for row in rows.to_pylist():
            self.rows[row["id"]] = {
                **self.rows.get(row["id"], dict.fromkeys(WIDE.names)),
                **row,
            }

    def delete(self, keys: Sequence[str]) -> None:
        pyhudi.open_table(self.path).delete(pa.table({"id": [*keys]}))
        for key in keys:
            self.rows.pop(key, None)

    def agree(self, judge: JudgeClient) -> None:
        """The model, pyhudi and both judges have the same rows."""
        table = pyhudi.open_table(self.path)
        ours = table.read(columns=WIDE.names).to_arrow()
        assert sorted(ours.to_pylist(), key=_key) == sorted(self.rows.values(), key=_key)
        whole = table.read(meta=True).to_arrow()
        assert whole[RANK_COLUMN].unique().to_pylist() == [2]
        assert_same_rows(whole, judge.hudi_rows(self.path), meta=False)
        assert_same_rows(whole, judge.rs_rows(self.path), meta=False)


def _day(key: str) -> str:
    return f"d{len(key) % 2}"


ORDERS = list(permutations(OWNERS))


def keys_of(order: int) -> list[str]:
    """Keys whose owners come in this order, in both partitions."""
    return [f"o{order}k{number}" for number in range(6, 14)]


@pytest.mark.parametrize(
    ("compacted", "options"),
    [
        pytest.param(True, {}, id="compacted"),
        pytest.param(False, {}, id="never compacted", marks=pytest.mark.long),
        pytest.param(True, {"version": 8}, id="version 8", marks=pytest.mark.long),
    ],
)
def test_three_owners_join_in_every_order_and_all_readers_agree(
    judge: JudgeClient, tmp_path: Path, compacted: bool, options: dict[str, Any]
) -> None:
    story = JoinedStory(tmp_path / "table", **options)
    for turn in range(len(OWNERS)):
        first, second, third = (
            (owner, story.part(owner, _keys_in_turn(owner, turn), turn)) for owner in OWNERS
        )
        # All three are under way at once, and complete in the reverse order of their beginning.
        inner = partial(story.upsert, *third)
        story.upsert(*first, partial(story.upsert, *second, inner))
        story.agree(judge)
        if compacted:
            compact(judge, story.path)
            story.agree(judge)


def _keys_in_turn(owner: str, turn: int) -> list[str]:
    """The keys for which it is this owner's turn."""
    return [key for n, order in enumerate(ORDERS) if order[turn] == owner for key in keys_of(n)]


@pytest.mark.parametrize(
    "compacted", [pytest.param(False, marks=pytest.mark.long, id="never"), True]
)
def test_rows_start_afresh_after_deletes_and_overwrites(
    judge: JudgeClient, tmp_path: Path, compacted: bool
) -> None:
    story = JoinedStory(tmp_path / "table")
    keys = [f"k{number}" for number in range(6, 14)]

    def rest() -> None:
        if compacted:
            compact(judge, story.path)

    story.upsert("orders", story.part("orders", keys, 0))
    story.upsert("payments", story.part("payments", keys[:6], 0))
    rest()
    story.delete(keys[2:5])
    story.agree(judge)
    rest()
    story.upsert("tags", story.part("tags", keys[3:], 1))
    story.agree(judge)
    rest()
    whole = [{**story.rows[key], "note": "kept"} for key in keys[-4:] if _day(key) == "d1"]
    pyhudi.open_table(story.path).overwrite(pa.Table.from_pylist(whole, WIDE), partitions=["d1"])
    story.rows = {key: row for key, row in story.rows.items() if row["day"] != "d1"}
    story.rows |= {row["id"]: row for row in whole}
    story.upsert("payments", story.part("payments", keys[1:], 2))
    story.agree(judge)
    compact(judge, story.path)
    story.agree(judge)


def test_a_new_key_of_two_owners_with_a_compaction_between_is_written_again(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """The first owner found the key to be new. When it completes, Hudi has compacted the row of the
    second, and a stand-in would wipe that out."""
    story = JoinedStory(tmp_path / "table")
    story.upsert("orders", story.part("orders", ["k6"], 0))

    def meanwhile() -> None:
        story.upsert("payments", story.part("payments", ["k8", "k9"], 0))
        compact(judge, story.path)

    result = story.upsert("orders", story.part("orders", ["k7", "k8"], 1), meanwhile)
    assert result.retries == 1
    story.agree(judge)
    compact(judge, story.path)
    story.agree(judge)


def test_a_consumer_sees_every_part_once_whatever_hudi_compacts_between(
    judge: JudgeClient, tmp_path: Path
) -> None:
    story = JoinedStory(tmp_path / "table")
    story.upsert("orders", story.part("orders", ["k6", "k7"], 0))
    table = pyhudi.open_table(story.path)
    until = table.changes().until
    payments = story.part("payments", ["k6"], 1)
    tags = story.part("tags", ["k6"], 1)

    def meanwhile() -> None:
        nonlocal until
        story.upsert("tags", tags)
        until = table.changes(since=until).until

    story.upsert("payments", payments, meanwhile)
    compact(judge, story.path)
    # Requested before the tags and completed after them: the row's commit time is that of the tags.
    late = table.changes(since=until, columns=WIDE.names)
    assert late.to_arrow().to_pylist() == [story.rows["k6"]]
    assert table.changes(since=late.until).to_arrow().num_rows == 0
