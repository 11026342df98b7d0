"""Names of data files and markers."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_tables import NAMES, GoldenTables
from pyhudi.format.files.file_names import (
    BASE_EXTENSIONS,
    BaseFileName,
    FileGroupId,
    IoType,
    LogFileName,
    MarkerName,
    WriteToken,
    parse_data_file,
)
from pyhudi.format.timeline.instant import InstantTime

T = InstantTime("20260102030405678")
ID = "00000001-57eb-4a1c-9d38-3c5f0c9d7a11-0"


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        (f"{ID}_0-21-19_{T}.parquet", BaseFileName(ID, "0-21-19", T)),
        (f"{ID}_0-21-19_{T}.orc", BaseFileName(ID, "0-21-19", T, "orc")),
        (f"{ID}_1-0-1_{T}.lance", BaseFileName(ID, "1-0-1", T, "lance")),
        (
            f"files-0000-0_0-0-0_{'0' * 17}.hfile",
            BaseFileName("files-0000-0", "0-0-0", InstantTime("0" * 17), "hfile"),
        ),
        (
            "custom-file-id_0-1-2_20260102030405.parquet",
            BaseFileName("custom-file-id", "0-1-2", InstantTime("20260102030405")),
        ),
        (f".{ID}_{T}.log.1_0-21-19", LogFileName(ID, T, 1, "0-21-19")),
        (f".{ID}_{T}.log.12_0-21-19", LogFileName(ID, T, 12, "0-21-19")),
        (f".{ID}_{T}.log.1_0-21-19.cdc", LogFileName(ID, T, 1, "0-21-19", ".cdc")),
    ],
)
def test_data_file_name_round_trips(name: str, parsed: BaseFileName | LogFileName) -> None:
    assert parse_data_file(name) == parsed
    assert parsed.file_name == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "_",
        "_SUCCESS",
        ".hoodie",
        ".hoodie_partition_metadata",
        ".hoodie_partition_metadata_0",
        ".hoodie_partition_metadata.parquet",
        f".{ID}_0-21-19_{T}.parquet.crc",
        f"..{ID}_{T}.log.1_0-21-19.crc",
        f".{ID}_0-21-19_{T}.parquet",  # hidden: a file being written by someone else
        f"{ID}_0-21-19_{T}.parquet.tmp",
        f"{ID}_0-21-19_{T}.csv",
        f"{ID}_0-21-19_{T}",
        f"{ID}_0-21-19_{T}.",
        f"{ID}_0-21_{T}.parquet",
        f"{ID}_0-21-19-2_{T}.parquet",
        f"{ID}_0--19_{T}.parquet",
        f"{ID}_a-b-c_{T}.parquet",
        f"{ID}_{'1' * 100}-1-1_{T}.parquet",
        f"{ID}_0-21-19_{T[:-1]}.parquet",
        f"{ID}_0-21-19_x{T[1:]}.parquet",
        f"_0-21-19_{T}.parquet",
        f"a_b_0-21-19_{T}.parquet",
        f"a.b_0-21-19_{T}.parquet",
        f"p/{ID}_0-21-19_{T}.parquet",
        f"é_0-21-19_{T}.parquet",
        f"{ID}_0-21-19_{T[:-1]}٣.parquet",
        f"{ID}_{T}.log.1_0-21-19",  # a log file begins with a dot
        f".{ID}_{T}.log.1",
        f".{ID}_{T}.log._0-21-19",
        f".{ID}_{T}.log.01_0-21-19",  # would not be written back
        f".{ID}_{T}.log.x_0-21-19",
        f".{ID}_{T}.log.{'1' * 11}_0-21-19",
        f".{ID}_{T}.log.{'1' * 5000}_0-21-19",
        f".{ID}_{T}.log.1_0-21-19.crc",
        f".{ID}_{T}.log.1_0-21-19.cdc.crc",
        f".{ID}_{T}.log.1_0-21-19.",
        f".{ID}_{T}.archive.1_0-21-19",
        f"._{T}.log.1_0-21-19",
        f"..x_{T}.log.1_0-21-19",
        f".a/b_{T}.log.1_0-21-19",
    ],
)
def test_other_files_of_a_partition_are_no_data_files(name: str) -> None:
    assert parse_data_file(name) is None


def test_log_files_order_by_time_then_version_then_token_then_suffix() -> None:
    later = InstantTime("20260102030405679")
    ordered = [
        LogFileName(ID, T, 2, "9-9-9"),
        LogFileName(ID, T, 10, "10-0-0"),  # versions are numbers
        LogFileName(ID, T, 10, "9-0-0"),  # tokens are text
        LogFileName(ID, T, 10, "9-0-0", ".cdc"),
        LogFileName(ID, later, 1, "0-0-0"),
    ]
    shuffled = random.Random(7).sample(ordered, len(ordered))
    assert sorted(shuffled, key=lambda log: log.order) == ordered


@pytest.mark.parametrize("name", NAMES)
def test_every_golden_data_file_is_recognised(golden: GoldenTables, name: str) -> None:
    table = golden.path(name)
    data = [
        path.name
        for path in table.rglob("*")
        if path.is_file()
        and (".log." in path.name or path.suffix in (".parquet", ".hfile"))
        and "history" not in path.parts
        and ".temp" not in path.parts
    ]
    assert data
    for file in data:
        parsed = parse_data_file(file)
        assert parsed is not None, file
        assert parsed.file_name == file
    rest = {p.name for p in table.rglob("*") if p.is_file()} - set(data)
    assert [file for file in rest if parse_data_file(file)] == []


tokens = st.builds("{}-{}-{}".format, *[st.integers(0, 2**31 - 1)] * 3)
file_ids = st.text(alphabet="abcdef0123456789-", min_size=1, max_size=40)
times = st.integers(0, 10**17 - 1).map(lambda n: InstantTime(f"{n:017d}"))


@settings(deadline=None)
@given(st.builds(BaseFileName, file_ids, tokens, times, st.sampled_from(sorted(BASE_EXTENSIONS))))
def test_any_base_file_name_round_trips(name: BaseFileName) -> None:
    assert parse_data_file(name.file_name) == name


versions = st.integers(0, 2**31 - 1)


@settings(deadline=None)
@given(st.builds(LogFileName, file_ids, times, versions, tokens, st.sampled_from(["", ".cdc"])))
def test_any_log_file_name_round_trips(name: LogFileName) -> None:
    assert parse_data_file(name.file_name) == name


@settings(deadline=None)
@given(st.text(alphabet="a1-_.logcdparquet/é", max_size=40), st.text(alphabet="0-_.1", max_size=9))
def test_a_name_that_parses_is_written_back_as_it_was(head: str, tail: str) -> None:
    for name in (
        head,
        f"{head}_0-1-2_{T}.parquet",
        f".{head}_{T}.log.{tail}",
        f".x_{T}.log.{head}",
    ):
        parsed = parse_data_file(name)
        assert parsed is None or parsed.file_name == name


def test_a_large_listing_parses_in_a_moment() -> None:
    names = [f".{i:08d}-0000-0000-0000-000000000000-0_{T}.log.1_{i}-8-16" for i in range(50_000)]
    names += [f"{i:08d}-7eb0-4651-99d9-f2c14baa1d6c-0_{i}-2-4_{T}.parquet" for i in range(50_000)]
    begin = time.process_time()
    for name in names:
        parse_data_file(name)
    assert time.process_time() - begin < 2.0  # a fifth of a second on an idle machine


@pytest.mark.parametrize(
    ("text", "token"), [("0-21-19", WriteToken(0, 21, 19)), ("1-0-1", WriteToken(1, 0, 1))]
)
def test_write_token_round_trips(text: str, token: WriteToken) -> None:
    assert WriteToken.parse(text) == token
    assert token.text == text


@pytest.mark.parametrize("text", ["", "1-2", "1-2-3-4", "-1-2", "a-b-c", "1-2-٣", "1" * 5000])
def test_other_texts_are_no_write_tokens(text: str) -> None:
    assert WriteToken.parse(text) is None


@pytest.mark.parametrize(
    ("path", "marker", "group"),
    [
        (
            f"p=1/q=2/{ID}_0-1-2_{T}.parquet.marker.MERGE",
            MarkerName(f"p=1/q=2/{ID}_0-1-2_{T}.parquet", IoType.MERGE),
            FileGroupId("p=1/q=2", ID),
        ),
        (
            f"p/.{ID}_{T}.log.1_0-1-2.marker.CREATE",
            MarkerName(f"p/.{ID}_{T}.log.1_0-1-2", IoType.CREATE),
            FileGroupId("p", ID),
        ),
        (
            f".{ID}_{T}.log.1_0-1-2.marker.APPEND",  # no partition
            MarkerName(f".{ID}_{T}.log.1_0-1-2", IoType.APPEND),
            FileGroupId("", ID),
        ),
        (
            f"x.marker.y/{ID}_0-1-2_{T}.parquet.marker.CREATE",
            MarkerName(f"x.marker.y/{ID}_0-1-2_{T}.parquet", IoType.CREATE),
            FileGroupId("x.marker.y", ID),
        ),
    ],
)
def test_marker_path_round_trips(path: str, marker: MarkerName, group: FileGroupId) -> None:
    assert MarkerName.parse(path) == marker
    assert marker.path == path
    assert marker.file_group == group


@pytest.mark.parametrize(
    "path",
    [
        "",
        "MARKERS.type",
        "MARKERS0",
        f"p/{ID}_0-1-2_{T}.parquet",
        f"p/{ID}_0-1-2_{T}.parquet.marker.",
        f"p/{ID}_0-1-2_{T}.parquet.marker.create",
        f"p/{ID}_0-1-2_{T}.parquet.marker.CREATE.crc",
        "p/notes.txt.marker.CREATE",
        "p/.marker.CREATE",
    ],
)
def test_other_files_of_a_marker_folder_are_no_markers(path: str) -> None:
    assert MarkerName.parse(path) is None
