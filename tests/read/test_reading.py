"""Reads of handmade tables through the front door: what is visible, when, and at what cost."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from handmade import HandmadeTable, at
from memory_tables import MemoryTable
from pyhudi.format.files.log_file import HeaderKey
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.storage.protocol import Storage

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])


def row(id_: str, ts: int, v: str) -> dict[str, Any]:
    return {"id": id_, "ts": ts, "v": v}


def values(scan: pyhudi.Scan) -> dict[str, str]:
    """Record → its value, and no record twice."""
    rows = scan.to_arrow().select(["id", "v"]).to_pylist()
    assert len({r["id"] for r in rows}) == len(rows)
    return {r["id"]: r["v"] for r in rows}


def make(memory: Storage, **options: Any) -> HandmadeTable:
    options.setdefault("ordering", "ts")
    return HandmadeTable(memory, SCHEMA, **options)


def committed_base(table: HandmadeTable, requested: int, completed: int, *rows: Any) -> None:
    table.begin(requested)
    table.complete(requested, completed, [table.base(requested, rows)])


def committed_log(table: HandmadeTable, requested: int, completed: int, *rows: Any) -> str:
    table.begin(requested)
    path = table.log(requested, table.rows_block(requested, rows))
    table.complete(requested, completed, [path])
    return path


# ---- visibility


def test_a_pending_write_is_invisible_until_it_completes(memory: Storage) -> None:
    made = make(memory)
    committed_base(made, 1, 2, row("a", 1, "base"))
    made.begin(3)
    path = made.log(3, made.rows_block(3, [row("a", 2, "log")]))
    table = pyhudi.open_table(memory.uri)
    assert values(table.read()) == {"a": "base"}
    made.complete(3, 4, [path])
    assert values(table.read()) == {"a": "log"}


def test_a_committed_log_is_visible_beside_an_older_pending_one(memory: Storage) -> None:
    # Hudi 1.2.0 returns no row here: the pending log opens the slice and hides what follows.
    made = make(memory)
    made.begin(1)
    made.complete(1, 2)
    made.begin(10)
    made.log(10, made.rows_block(10, [row("a", 9, "pending")]))
    committed_log(made, 20, 30, row("b", 1, "seen"))
    assert values(pyhudi.open_table(memory.uri).read()) == {"b": "seen"}


def test_a_block_counts_by_its_own_instant_and_not_by_its_files_name(memory: Storage) -> None:
    made = make(memory)
    committed_base(made, 1, 2, row("a", 1, "base"))
    made.begin(3)
    made.begin(5)
    path = made.log(
        3,
        made.rows_block(3, [row("a", 2, "committed")]),
        made.rows_block(5, [row("a", 9, "pending block in a committed file")]),
    )
    made.complete(3, 4, [path])
    assert values(pyhudi.open_table(memory.uri).read()) == {"a": "committed"}


def test_a_rollback_block_takes_back_the_blocks_of_its_target(memory: Storage) -> None:
    made = make(memory)
    committed_base(made, 1, 2, row("a", 1, "base"))
    committed_log(made, 3, 4, row("a", 2, "taken back"))
    made.begin(5)
    made.complete(5, 6, [made.log(5, made.rollback_block(5, 3))])
    assert values(pyhudi.open_table(memory.uri).read()) == {"a": "base"}


def test_a_log_compacted_block_stands_in_the_place_of_the_newest_it_replaces(
    memory: Storage,
) -> None:
    made = make(memory, ordering="")  # commit time: the order of logs decides
    committed_base(made, 1, 2, row("a", 0, "base"))
    committed_log(made, 3, 4, row("a", 0, "third"))
    committed_log(made, 5, 6, row("a", 0, "fifth"))
    committed_log(made, 7, 8, row("a", 0, "seventh"), row("b", 0, "seventh"))
    made.begin(9, "logcompaction")
    header = {HeaderKey.COMPACTED_BLOCK_TIMES: f"{at(3)},{at(5)}"}
    block = made.rows_block(9, [row("a", 0, "fifth"), row("c", 0, "compacted")], header=header)
    made.complete(9, 10, [made.log(9, block)])
    expected = {"a": "seventh", "b": "seventh", "c": "compacted"}
    assert values(pyhudi.open_table(memory.uri).read()) == expected


def test_a_log_that_completes_after_a_compaction_was_planned_is_read_on_top_of_it(
    memory: Storage,
) -> None:
    made = make(memory)
    committed_log(made, 1, 2, row("a", 1, "first"))
    made.begin(3)
    late = made.log(3, made.rows_block(3, [row("b", 1, "late")]))
    made.begin(5, "compaction")
    base = made.base(5, [row("a", 1, "first")])
    made.complete(3, 7, [late])
    made.complete(5, 9, [base], action="commit")
    assert values(pyhudi.open_table(memory.uri).read()) == {"a": "first", "b": "late"}


def test_replaced_groups_are_hidden_from_the_replacing_write_on(memory: Storage) -> None:
    made = make(memory)
    committed_base(made, 1, 2, row("a", 1, "old"))
    made.begin(3, "replacecommit")
    new = made.base(3, [row("b", 1, "new")], file_id="g-0")
    made.complete(3, 4, [new], "replacecommit", replaced={"": ("f-0",)})
    table = pyhudi.open_table(memory.uri)
    assert values(table.read()) == {"b": "new"}
    assert values(table.read(as_of=at(3))) == {"a": "old"}


# ---- time


def overlapping(memory: Storage) -> pyhudi.Table:
    """Two writers: one requested first completes last."""
    made = make(memory)
    committed_base(made, 1, 2, row("a", 0, "base"))
    made.begin(10)
    made.begin(20)
    slow = made.log(10, made.rows_block(10, [row("a", 2, "slow")]))
    made.complete(20, 30, [made.log(20, made.rows_block(20, [row("a", 1, "fast")]))])
    made.complete(10, 40, [slow])
    return pyhudi.open_table(memory.uri)


AS_OF = [(1, None), (2, "base"), (29, "base"), (30, "fast"), (39, "fast"), (40, "slow")]


@pytest.mark.parametrize(("time", "value"), AS_OF)
def test_time_travel_is_by_completion_time_inclusive(
    memory: Storage, time: int, value: str | None
) -> None:
    expected = {} if value is None else {"a": value}
    assert values(overlapping(memory).read(as_of=at(time))) == expected


@pytest.mark.parametrize(("time", "value"), [(1, "base"), (10, "slow"), (19, "slow"), (20, "slow")])
def test_requested_time_gives_hudis_meaning(memory: Storage, time: int, value: str) -> None:
    scan = overlapping(memory).read(as_of=pyhudi.RequestedTime(at(time)))
    assert values(scan) == {"a": value}


def test_a_time_without_a_zone_is_in_utc(memory: Storage) -> None:
    table = overlapping(memory)
    moment = dt.datetime(2026, 1, 1, 0, 0, 0, 30_000, tzinfo=dt.UTC)
    for time in (moment, moment.replace(tzinfo=None), "2026-01-01 00:00:00.030"):
        assert values(table.read(as_of=time)) == {"a": "fast"}
    assert values(table.read(as_of="2026-01-01T01:00:00.030+01:00")) == {"a": "fast"}


def test_a_date_is_its_first_moment_in_utc(memory: Storage) -> None:
    table = overlapping(memory)  # all of which happened within the first second of the year
    for day in ("2026-01-02", dt.date(2026, 1, 2)):
        assert values(table.read(as_of=day)) == {"a": "slow"}
    for day in ("2026-01-01", dt.date(2026, 1, 1)):
        assert values(table.read(as_of=day)) == {}
    assert values(table.changes(since=dt.date(2026, 1, 1))) == {"a": "slow"}


def test_a_consumer_that_polls_sees_every_write_once_although_writers_overlap(
    memory: Storage,
) -> None:
    made = make(memory)
    committed_base(made, 1, 2, row("a", 0, "base"))
    table = pyhudi.open_table(memory.uri)
    seen: list[dict[str, str]] = []
    since = None

    def poll() -> None:
        nonlocal since
        feed = table.changes(since=since)
        seen.append(values(feed))
        since = feed.until

    poll()
    made.begin(10)
    made.begin(20)
    slow = made.log(10, made.rows_block(10, [row("s", 1, "slow")]))
    made.complete(20, 30, [made.log(20, made.rows_block(20, [row("f", 1, "fast")]))])
    poll()
    poll()
    made.complete(10, 40, [slow])
    poll()
    assert seen == [{"a": "base"}, {"f": "fast"}, {}, {"s": "slow"}]


def test_changes_of_partial_updates_are_whole_rows(memory: Storage) -> None:
    # Hudi 1.2.0 fails on such a range.
    made = make(memory)
    committed_base(made, 1, 2, row("a", 1, "base"), row("b", 1, "other"))
    made.begin(3)
    block = made.rows_block(3, [row("a", 5, "ignored")], columns=["ts"])
    made.complete(3, 4, [made.log(3, block)])
    feed = pyhudi.open_table(memory.uri).changes(since=at(2))
    assert feed.to_arrow().select(["id", "ts", "v"]).to_pylist() == [row("a", 5, "base")]


def test_a_range_whose_files_were_cleaned_is_an_error_and_never_fewer_rows(
    memory: Storage,
) -> None:
    made = make(memory)
    committed_base(made, 1, 2, row("a", 1, "first"))
    committed_base(made, 3, 4, row("a", 2, "second"))
    committed_base(made, 5, 6, row("a", 3, "third"))
    gone = f"f-0_0-1-0_{at(3)}.parquet"
    memory.delete(gone)
    table = pyhudi.open_table(memory.uri)
    with pytest.raises(pyhudi.CorruptTableError, match=f"{at(3)} committed, is gone"):
        table.changes(since=at(2), until=at(4))
    made.clean(7, 8, earliest=at(5), removed=[gone])
    with pytest.raises(pyhudi.InvalidRequestError, match=f"the clean {at(7)} removes"):
        table.changes(since=at(2), until=at(4))
    assert values(table.changes(since=at(2))) == {"a": "third"}


def test_a_scan_is_pinned_when_it_is_made(memory: Storage) -> None:
    made = make(memory)
    committed_base(made, 1, 2, row("a", 1, "then"))
    table = pyhudi.open_table(memory.uri)
    scan = table.read()
    committed_log(made, 3, 4, row("a", 2, "now"))
    assert values(scan) == {"a": "then"}
    assert values(table.read()) == {"a": "now"}


# ---- columns, results


def test_columns_come_in_the_order_asked_for_also_over_logs(memory: Storage) -> None:
    made = make(memory)
    committed_base(made, 1, 2, row("a", 1, "x"))
    committed_log(made, 3, 4, row("a", 2, "y"))
    scan = pyhudi.open_table(memory.uri).read(columns=["v", "id"])
    assert scan.schema.names == ["v", "id"]
    assert scan.to_arrow().to_pylist() == [{"v": "y", "id": "a"}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["nope"], "no column 'nope'"),
        ([], "no column is requested"),
        ("v", "is a string"),
        (["v", "v"], "twice"),
    ],
)
def test_columns_that_cannot_be_given_are_refused(
    memory: Storage, columns: Any, message: str
) -> None:
    made = make(memory)
    committed_base(made, 1, 2, row("a", 1, "x"))
    with pytest.raises(pyhudi.InvalidRequestError, match=message):
        pyhudi.open_table(memory.uri).read(columns=columns)


def test_a_scan_is_an_arrow_stream_for_everyone(memory: Storage) -> None:
    import polars as pl

    made = make(memory)
    committed_base(made, 1, 2, row("a", 1, "x"))
    scan = pyhudi.open_table(memory.uri).read(columns=["id", "ts"])
    expected = {"id": ["a"], "ts": [1]}
    assert pa.table(scan).to_pydict() == expected
    assert scan.to_polars().to_dict(as_series=False) == expected
    assert pl.DataFrame(scan).to_dict(as_series=False) == expected
    assert scan.to_pandas().to_dict("list") == expected
    assert [batch.num_rows for batch in scan.to_batches()] == [1]


def test_an_empty_table_has_no_rows_and_the_schema_it_was_created_with(memory: Storage) -> None:
    avro = '{"type":"record","name":"r","fields":[{"name":"id","type":"string"}]}'
    make(memory, properties={"hoodie.table.create.schema": avro})
    table = pyhudi.open_table(memory.uri)
    assert table.schema.data_columns == ["id"]
    assert table.read().to_arrow().num_rows == 0
    assert table.changes().to_arrow().num_rows == 0


def test_a_column_added_later_is_null_in_older_files_and_may_be_read_alone(
    memory: Storage,
) -> None:
    made = make(memory)
    committed_base(made, 1, 2, row("a", 1, "x"))
    wider = pa.schema([*SCHEMA, ("n", pa.int32())])
    made.begin(3)
    made.complete(3, 4, schema=wider)
    table = pyhudi.open_table(memory.uri)
    assert table.read(columns=["n"]).to_arrow().to_pylist() == [{"n": None}]
    assert table.read(as_of=at(2)).schema.names[-1] == "v"


# ---- opening


def test_a_path_without_a_table_is_refused_by_name(memory: Storage) -> None:
    assert not pyhudi.is_table(memory.uri)
    with pytest.raises(pyhudi.TableNotFoundError, match="no Hudi table"):
        pyhudi.open_table(memory.uri)


def test_a_table_whose_properties_are_being_rewritten_is_read_by_the_backup(
    memory: Storage,
) -> None:
    made = make(memory)
    committed_base(made, 1, 2, row("a", 1, "x"))
    data = memory.read(".hoodie/hoodie.properties")
    memory.write(".hoodie/hoodie.properties.backup", data)
    memory.delete(".hoodie/hoodie.properties")
    assert pyhudi.is_table(memory.uri)
    assert values(pyhudi.open_table(memory.uri).read()) == {"a": "x"}
    memory.write(".hoodie/hoodie.properties", data[: len(data) // 2])  # torn
    assert values(pyhudi.open_table(memory.uri).read()) == {"a": "x"}


def test_a_file_that_vanishes_between_planning_and_reading_is_an_error(memory: Storage) -> None:
    made = make(memory)
    committed_base(made, 1, 2, row("a", 1, "x"))
    path = committed_log(made, 3, 4, row("a", 2, "y"))
    scan = pyhudi.open_table(memory.uri).read()
    memory.delete(path)
    with pytest.raises(pyhudi.UnavailableError, match="is gone"):
        scan.to_arrow()


def test_a_time_to_come_hides_no_change_from_who_goes_on_from_there() -> None:
    """A mistyped year, or the clock of another machine."""
    memory = MemoryTable(
        pa.schema([("id", pa.string()), ("at", pa.int64())]),
        ordering="at",
        buckets=SimpleBuckets(1),
    )
    table = memory.table()
    first = table.upsert(pa.table({"id": ["a"], "at": [1]}))
    ahead = table.changes(since="2099-01-01T00:00:00Z")
    assert ahead.to_arrow().num_rows == 0
    assert ahead.until == first.completed
    table.upsert(pa.table({"id": ["a"], "at": [2]}))
    assert table.changes(since=ahead.until).to_arrow().column("at").to_pylist() == [2]
