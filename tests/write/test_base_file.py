"""Base files that tasks write: what is in them, seeds, and what a second attempt does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from column_types import SCHEMA as ALL_TYPES
from column_types import any_rows, empty_row, full_row
from faulty_storage import Effect, Fault, FaultyStorage
from footers import bloom_filter, possible_keys, read_footer
from handmade import at
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    InvalidRequestError,
    UnavailableError,
    UnsupportedTableError,
)
from pyhudi.format.files.base_file import BaseFileFooter
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.write.files import base_file as base_writer
from pyhudi.write.files.base_file import write_base, write_seed
from pyhudi.write.files.log_file import write_log
from pyhudi.write.files.spec import KeyedRows
from written_tables import GROUP, WrittenTable, base_file, keyed

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
BASE = f"{GROUP.file_id}_0-0-0_{at(1)}.parquet"


def row(id_: str, ts: int = 1, v: str = "v") -> dict[str, Any]:
    return {"id": id_, "ts": ts, "v": v}


def made(storage: Storage, schema: pa.Schema = SCHEMA) -> WrittenTable:
    table = WrittenTable(storage, schema, ordering="ts")
    table.begin(1)
    return table


def footer_of(storage: Storage, path: str) -> BaseFileFooter:
    return read_footer(pq.read_metadata(storage.open(path)).metadata)


def stat_of(table: WrittenTable, **changes: Any) -> WriteStat:
    """What every write stat of a base file has."""
    found = table.storage.stat(changes["path"])
    assert found is not None
    fixed = {
        "file_id": GROUP.file_id,
        "partition_path": "",
        "total_write_bytes": found.size,
        "file_size_in_bytes": found.size,
        "num_deletes": 0,
        "num_update_writes": 0,
        "total_write_errors": 0,
        "total_log_records": 0,
        "total_updated_records_compacted": 0,
        "total_log_blocks": 0,
        "total_corrupt_log_block": 0,
        "total_rollback_blocks": 0,
        "total_log_files_compacted": 0,
        "total_log_read_time_ms": 0,
        "total_log_size_compacted": 0,
        "num_updates": 0,
    }
    return WriteStat(**{**fixed, **changes})


# ---- what is in them


def test_rows_of_every_type_are_read_back_equal(memory: Storage) -> None:
    table = made(memory, ALL_TYPES)
    rows = [full_row("a"), empty_row("b"), full_row("c")]
    table.commit(1, [write_base(memory, table.spec(1), GROUP, [table.keyed(rows)])])
    assert table.rows() == rows


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=any_rows(5))
def test_any_rows_are_read_back_equal(rows: list[dict[str, Any]]) -> None:
    storage = open_storage("memory://any-base-rows")
    for stat in list(storage.list("")):
        storage.delete(stat.path)
    table = made(storage, ALL_TYPES)
    table.commit(1, [write_base(storage, table.spec(1), GROUP, [table.keyed(rows)])])
    assert table.rows() == sorted(rows, key=lambda found: found["id"])


def test_rows_carry_the_meta_columns_of_a_base_file(memory: Storage) -> None:
    table = made(memory)
    group = FileGroupId("day=1", GROUP.file_id)
    batches = [table.keyed([row("a"), row("b")]), table.keyed([row("c")])]
    table.commit(1, [write_base(memory, table.spec(1), group, batches)])
    assert set(table.meta("_hoodie_commit_time").values()) == {at(1)}
    assert set(table.meta("_hoodie_partition_path").values()) == {"day=1"}
    assert set(table.meta("_hoodie_file_name").values()) == {BASE}
    assert table.meta("_hoodie_record_key") == {id_: id_ for id_ in "abc"}
    assert len(set(table.meta("_hoodie_commit_seqno").values())) == 3


def test_rows_that_have_meta_columns_keep_them_but_for_the_file_name(memory: Storage) -> None:
    table = made(memory)
    old = table.batch(0, [row("a"), row("b")], "p", "the old name")
    table.commit(1, [write_base(memory, table.spec(1), GROUP, [old])])
    assert table.meta("_hoodie_commit_time") == {"a": at(0), "b": at(0)}
    assert table.meta("_hoodie_commit_seqno") == {"a": f"{at(0)}_0_0", "b": f"{at(0)}_0_1"}
    assert table.meta("_hoodie_file_name") == {"a": BASE, "b": BASE}


def test_the_footer_serves_hudis_bloom_index(memory: Storage) -> None:
    table = made(memory)
    batches = [table.keyed([row("m"), row("z")]), table.keyed([row("a")])]
    write_base(memory, table.spec(1), GROUP, batches)
    footer = footer_of(memory, BASE)
    assert (footer.min_key, footer.max_key) == ("a", "z")
    assert footer.avro_schema == table.spec(1).layout.avro_json
    assert possible_keys(bloom_filter(footer), ["m", "z", "a", "b", "c"]) == ["m", "z", "a"]


def test_the_stat_of_a_new_file_group(memory: Storage) -> None:
    table = made(memory)
    stat = write_base(memory, table.spec(1), GROUP, [table.keyed([row("a"), row("b")])])
    assert stat == stat_of(table, path=BASE, num_writes=2, num_inserts=2, prev_commit="null")


def test_the_stat_of_a_base_file_that_replaces_another(memory: Storage) -> None:
    table = made(memory)
    first = write_base(memory, table.spec(1), GROUP, [table.keyed([row("a")])])
    table.commit(1, [first])
    table.begin(5)
    second = write_base(
        memory, table.spec(5), GROUP, [table.keyed([row("b")])], previous=base_file(first)
    )
    path = BASE.replace(at(1), at(5))
    expected = {"num_writes": 1, "num_inserts": 1, "prev_commit": at(1), "prev_base_file": BASE}
    assert second == stat_of(table, path=path, **expected)
    table.commit(5, [second])
    assert table.rows() == [row("b")]


@pytest.mark.parametrize(("replaces", "io_type"), [(False, "CREATE"), (True, "MERGE")])
def test_a_marker_announces_the_file_before_it_is_there(
    memory: Storage, replaces: bool, io_type: str
) -> None:
    table = made(memory)
    old = write_base(memory, table.spec(0), GROUP, [table.keyed([row("a")])])
    storage = FaultyStorage(memory)
    previous = base_file(old) if replaces else None
    write_base(storage, table.spec(1), GROUP, [table.keyed([row("a")])], previous=previous)
    marker = f".hoodie/.temp/{at(1)}/{BASE}.marker.{io_type}"
    assert [(done.name, done.path) for done in storage.trace] == [
        ("create", marker),
        ("create_from", BASE),
    ]


def test_a_file_goes_to_storage_as_its_rows_come(
    memory: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_writer, "ROW_GROUP_ROWS", 10)
    table = made(memory)
    produced: list[int] = []

    def batches() -> Iterator[KeyedRows]:
        for start in range(0, 40, 4):
            produced.append(start)
            yield table.keyed([row(f"{n:02d}") for n in range(start, start + 4)])

    seen: list[tuple[int, int]] = []

    class Watching(FaultyStorage):
        def create_from(self, path: str, chunks: Any) -> int | None:
            def watched() -> Iterator[bytes]:
                for chunk in chunks:
                    seen.append((len(produced), len(chunk)))
                    yield chunk

            return super().create_from(path, watched())

    stat = write_base(Watching(memory), table.spec(1), GROUP, batches())
    assert [count for count, _ in seen] == [3, 6, 9, 10, 10]
    assert all(size > 0 for _, size in seen)
    assert pq.read_metadata(memory.open(BASE)).num_row_groups == 4
    table.commit(1, [stat])
    assert len(table.rows()) == 40


def test_a_large_batch_becomes_several_row_groups(
    memory: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_writer, "ROW_GROUP_BYTES", 4_000)
    table = made(memory)
    rows = [row(f"{n:03d}") for n in range(100)]
    stat = write_base(memory, table.spec(1), GROUP, [table.keyed(rows)])
    assert pq.read_metadata(memory.open(BASE)).num_row_groups > 2
    footer = footer_of(memory, BASE)
    assert (footer.bloom_type, footer.min_key, footer.max_key) == ("DYNAMIC_V0", "000", "099")
    keys = [r["id"] for r in rows]
    assert possible_keys(bloom_filter(footer), keys) == keys
    table.commit(1, [stat])
    assert table.rows() == rows


# ---- seeds


def test_a_seed_is_a_base_file_without_rows(memory: Storage) -> None:
    table = made(memory, ALL_TYPES)
    stat = write_seed(memory, table.spec(1), GROUP)
    assert stat == stat_of(table, path=BASE, num_writes=0, num_inserts=0, prev_commit="null")
    assert memory.stat(f".hoodie/.temp/{at(1)}/{BASE}.marker.CREATE") is not None
    footer = footer_of(memory, BASE)
    assert not possible_keys(bloom_filter(footer), ["a"])
    assert (footer.min_key, footer.max_key) == (None, None)
    assert footer.avro_schema == table.spec(1).layout.avro_json
    table.commit(1, [stat])
    assert table.rows() == []


def test_rows_logged_to_a_seeded_group_are_read(memory: Storage) -> None:
    table = made(memory)
    table.commit(1, [write_seed(memory, table.spec(1), GROUP)])
    table.begin(5)
    table.commit(5, write_log(memory, table.spec(5), GROUP, rows=table.keyed([row("a")])))
    assert table.rows() == [row("a")]


def test_all_seeds_of_a_schema_are_the_same_bytes(memory: Storage) -> None:
    table = made(memory)
    other = FileGroupId("p", "00000002-0000-0000-0000-000000000000-0")
    first = write_seed(memory, table.spec(1), GROUP)
    second = write_seed(memory, table.spec(7), other)
    empty = write_base(MemoryStorage(lambda: 0), table.spec(1), GROUP, [])
    assert memory.read(first.data_path) == memory.read(second.data_path)
    assert empty == first


# ---- several attempts


def test_a_second_attempt_changes_nothing_and_says_the_same(memory: Storage) -> None:
    table = made(memory)
    rows = table.keyed([row("a"), row("b")])
    first = write_base(memory, table.spec(1), GROUP, [rows])
    before = memory.read(BASE)
    assert write_base(memory, table.spec(1), GROUP, [rows]) == first
    assert memory.read(BASE) == before


def test_the_loser_returns_the_stat_of_the_winners_file(memory: Storage) -> None:
    table = made(memory)
    won = write_base(memory, table.spec(1), GROUP, [table.keyed([row("a"), row("b")])])
    other = table.keyed([row("b", v="x" * 999), row("a")])
    assert write_base(memory, table.spec(1), GROUP, [other]) == won


class _Impatient(MemoryStorage):
    """Answers that the name is taken without a look at the bytes."""

    def create_from(self, path: str, chunks: Any) -> int | None:
        return None if self.stat(path) else super().create_from(path, chunks)


def test_the_loser_may_be_told_before_it_has_encoded_its_file() -> None:
    storage = _Impatient(lambda: 0)
    table = made(storage)
    rows = table.keyed([row("a"), row("b")])
    first = write_base(storage, table.spec(1), GROUP, [rows])
    assert write_base(storage, table.spec(1), GROUP, [rows]) == first


def test_seeds_of_two_attempts_are_one(memory: Storage) -> None:
    table = made(memory)
    assert write_seed(memory, table.spec(1), GROUP) == write_seed(memory, table.spec(1), GROUP)


def test_attempts_with_different_numbers_of_rows_are_refused(memory: Storage) -> None:
    table = made(memory)
    write_base(memory, table.spec(1), GROUP, [table.keyed([row("a"), row("b")])])
    with pytest.raises(InvalidRequestError, match="the file has 2 rows, and this attempt has 1"):
        write_base(memory, table.spec(1), GROUP, [table.keyed([row("a")])])
    with pytest.raises(InvalidRequestError, match="the file has 2 rows, and this attempt has 0"):
        write_seed(memory, table.spec(1), GROUP)


@pytest.mark.parametrize("seed", [True, False])
@pytest.mark.parametrize("effect", [Effect.FAIL, Effect.LOSE_REPLY])
@pytest.mark.parametrize("operation", [1, 2])
def test_a_call_that_failed_anywhere_succeeds_when_it_is_repeated(
    memory: Storage, seed: bool, effect: Effect, operation: int
) -> None:
    table = made(memory)
    rows = [] if seed else [row("a"), row("b")]

    def attempt(storage: Storage) -> WriteStat:
        if seed:
            return write_seed(storage, table.spec(1), GROUP)
        return write_base(storage, table.spec(1), GROUP, [table.keyed(rows)])

    faulty = FaultyStorage(memory, [Fault(effect, nth=operation)])
    with pytest.raises(UnavailableError):
        attempt(faulty)
    stat = attempt(faulty)
    assert stat == attempt(MemoryStorage(lambda: 0))
    table.commit(1, [stat])
    assert table.rows() == rows


@pytest.mark.parametrize("keep", [0, 3, 500])
def test_a_torn_file_is_neither_visible_nor_accepted(memory: Storage, keep: int) -> None:
    table = made(memory)
    table.commit(1, [write_base(memory, table.spec(1), GROUP, [table.keyed([row("a")])])])
    table.begin(5)
    rows = [table.keyed([row("a"), row("b")])]
    torn = FaultyStorage(memory, [Fault(Effect.TEAR, "create_from", keep_bytes=keep)])
    with pytest.raises(UnavailableError):
        write_base(torn, table.spec(5), GROUP, rows)
    assert table.rows() == [row("a")]
    with pytest.raises(CorruptTableError, match="not whole"):
        write_base(memory, table.spec(5), GROUP, rows)


def test_a_file_that_a_rollback_took_away_ends_the_attempt(memory: Storage) -> None:
    class Vanishing(FaultyStorage):
        def create_from(self, path: str, chunks: Any) -> int | None:
            super().create_from(path, chunks)
            self.delete(path)
            return None

    table = made(memory)
    with pytest.raises(ConflictError, match="rolled back"):
        write_base(Vanishing(memory), table.spec(1), GROUP, [table.keyed([row("a")])])


@pytest.mark.parametrize("nth", [1, 2])
def test_rows_that_break_off_leave_no_file(memory: Storage, nth: int) -> None:
    table = made(memory)
    wrong = keyed([{"id": "a", "ts": "x"}], pa.schema([("id", pa.string()), ("ts", pa.string())]))
    batches = [table.keyed([row("a")])] * (nth - 1) + [wrong]
    with pytest.raises(UnsupportedTableError, match="'ts'"):
        write_base(memory, table.spec(1), GROUP, batches)
    assert memory.stat(BASE) is None
