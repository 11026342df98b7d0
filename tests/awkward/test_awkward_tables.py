"""Awkward tables: read exactly as Apache Hudi reads them, or refused by name before any row.

Where pyhudi means to differ, the difference stands in `DIFFERENT` below and in docs/differences.md.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

import pyhudi
from golden_reads import differences, encoded, hudi_options

pytestmark = pytest.mark.conformance

FOLDER = Path(__file__).parent
DESCRIPTIONS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_bytes()) for path in sorted(FOLDER.glob("*.json"))
}
READABLE = [name for name, about in DESCRIPTIONS.items() if "refused" not in about]
REFUSED = [name for name, about in DESCRIPTIONS.items() if "refused" in about]

Row = dict[str, Any]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with all tables, unpacked."""
    folder = tmp_path_factory.mktemp("awkward")
    for description in DESCRIPTIONS.values():
        with tarfile.open(FOLDER / description["archive"]) as archive:
            archive.extractall(folder, filter="data")
    return folder


def recorded(name: str, *, failed: bool = False) -> dict[str, dict[str, Any]]:
    reads = DESCRIPTIONS[name]["reads_hudi_fails" if failed else "reads"]
    return {read["name"]: read for read in reads}


def rows_of(table: pyhudi.Table, how: Mapping[str, str]) -> list[Row]:
    scan = table.read_with_hudi_options(hudi_options(how))
    found = scan.to_arrow().to_pylist(maps_as_pydicts="strict")
    return [encoded(row) for row in found]


def data_columns(rows: Iterable[Row]) -> list[Row]:
    return [{k: v for k, v in row.items() if not k.startswith("_hoodie_")} for row in rows]


# ---- where pyhudi differs


def stored_number(row: Row, read: str) -> Row | None:
    """Hudi gives a column that the path formats as text; pyhudi as the number it is."""
    return {**row, "at": int(row["at"])}


def stored_time(row: Row, read: str) -> Row | None:
    """Hudi takes partition columns from the path, and reads no timestamp there: null."""
    times = {"a": "2026-01-31T12:00:00.500000Z", "b": "1969-12-31T23:59:59.000000Z"}
    return {**row, "w": times[row["id"]]}


def stored_empty_text(row: Row, read: str) -> Row | None:
    """Hudi takes partition columns from the path, where an empty text is null."""
    return row if read.startswith("incremental") or row["sub"] != 2 else {**row, "q": ""}


def heeded_marker(row: Row, read: str) -> Row | None:
    """Hudi heeds the table's delete marker only when a read option repeats it."""
    return None if row["op"] == "gone" else row


def one_number_per_key(row: Row, read: str) -> Row | None:
    """Hudi merges by position, so each of a key's rows meets a log row of its own."""
    return {k: v for k, v in row.items() if k != "_hoodie_commit_seqno"}


def first_commit_time(row: Row, read: str) -> Row | None:
    """Hudi gives rows that a log compaction carried along its commit time."""
    return data_columns([row])[0] if read in ("incremental_all", "incremental_open") else row


#: What makes pyhudi's row of Hudi's; None where pyhudi has no row. Columns that are not there
#: afterwards are not compared.
DIFFERENT: dict[str, Callable[[Row, str], Row | None]] = {
    "cow_timestamp_keys": stored_number,
    "mor_timestamp_keys": stored_number,
    "cow_typed_partitions": stored_time,
    "mor_typed_partitions": stored_time,
    "mor_odd_partitions": stored_empty_text,
    "mor_delete_marker_in_rows": heeded_marker,
    "mor_duplicates_by_position": one_number_per_key,
    "mor_log_compacted_event_time": first_commit_time,
    "mor_log_compacted_commit_time": first_commit_time,
}

#: Reads of files that were cleaned: Hudi leaves out rows, pyhudi raises.
INCOMPLETE = [
    ("mor_cleaned_by_commits", "incremental_2"),
    *(("cow_cleaned_by_versions", f"as_of_{n}") for n in (1, 2, 3)),
    *(("cow_cleaned_by_versions", f"incremental_{n}") for n in (2, 3)),
    *(("mor_cleaned_by_versions", f"as_of_{n}") for n in (1, 2, 3, 4, 5)),
    *(("mor_cleaned_by_versions", f"incremental_{n}") for n in (2, 3, 4, 5)),
]

#: Reads on which Hudi itself fails, and the rows that pyhudi gives.
HUDI_FAILS: dict[str, dict[str, list[Row]]] = {
    "cow_custom_keys": {
        read: [
            {"id": "a", "ts": 1, "v": "a1", "at": 1767268800000, "zone": "eu"},
            {"id": "b", "ts": 2, "v": "b2", "at": 1767355200002, "zone": "us"},
        ]
        for read in ("snapshot", "as_of_2", "incremental_all")
    },
    # Null is below every other ordering value.
    "mor_ordering_long_null": {
        read: [
            {"id": "null before", "ts": 1, "v": "log"},
            {"id": "null after", "ts": 1, "v": "base"},
        ]
        for read in ("snapshot", "as_of_2", "incremental_all")
    },
    # A row after a delete starts afresh.
    "mor_partial_reinserted": {
        read: [
            {"id": "deleted", "ts": 15, "a": "a15", "b": None, "c": "c15"},
            {"id": "kept", "ts": 10, "a": "a10", "b": 10, "c": "c10"},
        ]
        for read in ("snapshot", "as_of_4", "incremental_all")
    },
}


# ---- reads


@pytest.mark.parametrize("name", READABLE)
def test_recorded_reads_give_hudis_rows(tables: Path, name: str) -> None:
    table = pyhudi.open_table(tables / name)
    change = DIFFERENT.get(name)
    wrong = {}
    for title, read in recorded(name).items():
        if (name, title) in INCOMPLETE or "options" in read["how"]:
            continue
        want, got = read["rows"], rows_of(table, read["how"])
        if change is not None:
            want = [new for row in want if (new := change(row, title)) is not None]
            compared = {column for row in want for column in row}
            got = [{k: v for k, v in row.items() if k in compared} for row in got]
        if difference := differences(want, got):
            wrong[title] = difference
    assert not wrong


@pytest.mark.parametrize("name", DIFFERENT)
def test_every_listed_difference_is_one(tables: Path, name: str) -> None:
    table = pyhudi.open_table(tables / name)
    reads = [read for read in recorded(name).values() if "options" not in read["how"]]
    assert any(differences(read["rows"], rows_of(table, read["how"])) for read in reads)


@pytest.mark.parametrize(("name", "title"), INCOMPLETE)
def test_reads_that_would_miss_cleaned_files_are_refused(
    tables: Path, name: str, title: str
) -> None:
    table = pyhudi.open_table(tables / name)
    with pytest.raises(pyhudi.InvalidRequestError, match=r"no longer|cleaned"):
        rows_of(table, recorded(name)[title]["how"])


@pytest.mark.parametrize("name", [name for name in READABLE if "cleaned" in name])
def test_times_that_hudi_calls_cleaned_are_refused(tables: Path, name: str) -> None:
    table = pyhudi.open_table(tables / name)
    for read in recorded(name, failed=True).values():
        assert "Cleaner cleaned up" in read["error"]
        with pytest.raises(pyhudi.InvalidRequestError, match="can no longer be read"):
            rows_of(table, read["how"])


@pytest.mark.parametrize("name", HUDI_FAILS)
def test_reads_on_which_hudi_fails_have_an_answer(tables: Path, name: str) -> None:
    table = pyhudi.open_table(tables / name)
    for title, rows in HUDI_FAILS[name].items():
        found = rows_of(table, recorded(name, failed=True)[title]["how"])
        assert not differences(rows, data_columns(found)), title


def test_a_delete_marker_counts_as_it_does_in_hudi_with_a_read_option(tables: Path) -> None:
    name = "mor_delete_marker_in_rows"
    want = recorded(name)["snapshot_with_options"]["rows"]
    assert not differences(want, rows_of(pyhudi.open_table(tables / name), {}))


@pytest.mark.parametrize("name", REFUSED)
def test_tables_with_features_pyhudi_lacks_are_refused_by_name(tables: Path, name: str) -> None:
    with pytest.raises(pyhudi.UnsupportedTableError) as refusal:
        pyhudi.open_table(tables / name)
    assert DESCRIPTIONS[name]["refused"] in str(refusal.value)


# ---- the schema of partition columns that are not in the files


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("cow_dropped_int", ["part"]),
        ("cow_dropped_two", ["n", "s"]),
        ("mor_dropped", ["n", "d", "s"]),
    ],
)
def test_dropped_partition_columns_are_texts_at_the_end(
    tables: Path, name: str, columns: list[str]
) -> None:
    schema = pyhudi.open_table(tables / name).schema.arrow
    assert schema.names[-len(columns) :] == columns
    assert {str(schema.field(column).type) for column in columns} == {"string"}


def test_dropped_partition_columns_can_be_chosen_and_filtered(tables: Path) -> None:
    table = pyhudi.open_table(tables / "cow_dropped_two")
    rows = table.read(columns=["s", "id"], where="n = '1' or s is null").to_arrow().to_pylist()
    assert sorted(rows, key=str) == [
        {"s": "x/y", "id": "a"},
        {"s": None, "id": "b"},
        {"s": None, "id": "c"},
    ]


def test_a_predicate_on_a_path_text_filters_what_is_shown(tables: Path) -> None:
    table = pyhudi.open_table(tables / "cow_odd_partitions")
    how = hudi_options(recorded("cow_odd_partitions")["incremental_all"]["how"])
    shown = table.read_with_hudi_options(how).to_arrow().to_pylist()
    assert "a%2Fb" in {row["p"] for row in shown}
    for row in shown:
        chosen = table.read_with_hudi_options({**how, "where": f"p = '{row['p']}'"})
        assert chosen.to_arrow().to_pylist() == [row]


# ---- the recordings


def test_every_archive_is_small_and_has_a_description() -> None:
    archives = {path.name: path.stat().st_size for path in FOLDER.glob("*.tar.gz")}
    assert sorted(archives) == sorted(d["archive"] for d in DESCRIPTIONS.values())
    assert max(archives.values()) < 15_000
