"""Reading parts of an archive file: by bounds, a few instants at a time, and never too much."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from golden_tables import GoldenTables
from pyhudi.errors import CorruptTableError
from pyhudi.format.timeline.archive import (
    ARCHIVE_SCHEMA,
    CONTENTS,
    ROW_GROUP_BYTES,
    ROW_GROUP_INSTANTS,
    TIMES,
    ArchivedInstant,
    encode_archive_file,
)
from pyhudi.format.timeline.archive_index import (
    BATCH_INSTANTS,
    ArchiveIndex,
    decode_archive_index,
    decode_contents,
    decode_times,
)
from pyhudi.format.timeline.instant import InstantTime


def at(n: int) -> InstantTime:
    return InstantTime(f"{n:017}")


def source_of(count: int, size: int = 10) -> pa.BufferReader:
    """Instants 0, 10, 20, ...; each completes five later, and every 500th is a clean."""
    instants = [
        ArchivedInstant(
            at(10 * n), at(10 * n + 5), "deltacommit" if n % 500 else "clean", bytes(size)
        )
        for n in range(count)
    ]
    return pa.BufferReader(encode_archive_file(instants))


def index_of(count: int) -> ArchiveIndex:
    return decode_archive_index(source_of(count), "")


def test_row_groups_hold_so_many_instants_or_bytes() -> None:
    assert [group.rows for group in index_of(2 * ROW_GROUP_INSTANTS + 5).groups] == [
        ROW_GROUP_INSTANTS,
        ROW_GROUP_INSTANTS,
        5,
    ]
    large = decode_archive_index(source_of(300, size=ROW_GROUP_BYTES // 150), "")
    assert max(group.rows for group in large.groups) < 300
    assert sum(group.rows for group in large.groups) == 300


@pytest.mark.parametrize(
    ("times", "expected"),
    [([0], [0]), ([9_990], [0]), ([10_000], [1]), ([5, 25_000], [0, 2]), ([9_995], []),
     ([99_999], []), ([], []), ([9_990, 10_000], [0, 1])],
)  # fmt: skip
def test_only_row_groups_that_may_hold_a_requested_time_are_read(
    times: list[int], expected: list[int]
) -> None:
    assert index_of(3_000).with_requested([at(n) for n in times]) == expected


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [(0, 4, []), (0, 5, [0]), (9_995, 10_004, []), (9_994, 10_005, [0, 1]), (29_995, 99_999, [])],
)
def test_only_row_groups_of_a_range_of_completions_are_read(
    since: int, until: int, expected: list[int]
) -> None:
    assert index_of(3_000).with_completed(at(since), at(until)) == expected


def test_only_row_groups_with_an_action_are_read() -> None:
    index = decode_archive_index(source_of(1_200), "")
    assert index.with_action("clean") == [0, 1]
    assert index.with_action("rollback") == []


def test_times_and_contents_are_those_of_the_row_groups() -> None:
    source = source_of(2_500)
    index = decode_archive_index(source, "")
    [times] = decode_times(source, "", index, [1])
    assert times["instantTime"].to_pylist() == [at(10 * n) for n in range(1_000, 2_000)]
    tables = list(decode_contents(source, "", index, [0, 2], (*TIMES, *CONTENTS)))
    assert max(table.num_rows for table in tables) <= BATCH_INSTANTS
    found = [time for table in tables for time in table["instantTime"].to_pylist()]
    assert found == [at(10 * n) for n in (*range(1_000), *range(2_000, 2_500))]


def test_hudis_own_files_have_bounds(golden: GoldenTables) -> None:
    folder: Path = golden.path("mor_archived") / ".hoodie/timeline/history"
    for path in folder.glob("*.parquet"):
        index = decode_archive_index(pa.BufferReader(path.read_bytes()), str(path))
        least, greatest, _ = path.name.split("_")
        assert [group.requested for group in index.groups] == [(least, greatest)]
        assert all(group.completed and group.actions for group in index.groups)


def test_an_instant_without_a_completion_time_counts_from_its_request_and_is_not_passed_over() -> (
    None
):
    rows = {
        "instantTime": [at(1), at(2)],
        "completionTime": [at(9), None],
        "action": ["commit"] * 2,
        "metadata": [None] * 2,
        "plan": [None] * 2,
        "version": [1] * 2,
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(rows, schema=ARCHIVE_SCHEMA), sink)
    source = pa.BufferReader(sink.getvalue())
    index = decode_archive_index(source, "")
    assert index.with_completed(at(1), at(2)) == [0]
    [times] = decode_times(source, "", index, [0])
    assert times["completionTime"].to_pylist() == [at(9), at(2)]


@pytest.mark.parametrize("cut", [0, 5, 100, -1, -10])
def test_a_damaged_file_is_told(cut: int) -> None:
    data = source_of(50).read()
    with pytest.raises(CorruptTableError, match="archive file"):
        decode_archive_index(pa.BufferReader(data[:cut]), "history/x")


def test_a_file_with_other_columns_is_told() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"instantTime": [at(1)], "x": [1]}), sink)
    source = pa.BufferReader(sink.getvalue())
    index = decode_archive_index(source, "")
    with pytest.raises(CorruptTableError, match="cannot be decoded"):
        list(decode_times(source, "", index, [0]))


def test_a_claim_out_of_proportion_is_refused() -> None:
    sink = pa.BufferOutputStream()
    rows = 3_000_000
    table = pa.table(
        [
            pa.array([at(1)] * rows),
            pa.array([at(2)] * rows),
            pa.array(["commit"] * rows),
            pa.nulls(rows, pa.binary()),
            pa.nulls(rows, pa.binary()),
            pa.array([1] * rows, pa.int32()),
        ],
        schema=ARCHIVE_SCHEMA,
    )
    pq.write_table(table, sink, use_dictionary=False, compression="zstd")
    source = pa.BufferReader(sink.getvalue())
    index = decode_archive_index(source, "")
    with pytest.raises(CorruptTableError, match="claimed"):
        list(decode_times(source, "", index, list(range(len(index.groups)))))
