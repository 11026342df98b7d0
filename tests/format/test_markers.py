"""Marker folders."""

from __future__ import annotations

import pytest

from golden_tables import GoldenTables
from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import IoType, MarkerName, parse_data_file
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.markers import (
    decode_marker_list,
    decode_marker_type,
    encode_marker_list,
    is_marker_list,
    marker_folder,
    marker_path,
)

T = InstantTime("20260102030405678")
BASE = MarkerName(f"p/a-0_0-1-2_{T}.parquet", IoType.MERGE)
LOG = MarkerName(f"größe=1/.b-0_{T}.log.1_0-1-2", IoType.CREATE)


def test_marker_list_round_trips() -> None:
    data = encode_marker_list([BASE, LOG])
    assert data.count(b"\n") == 2
    assert decode_marker_list(data) == (BASE, LOG)


@pytest.mark.parametrize("data", [b"", b"\n\n", b" \r\n"])
def test_blank_lines_list_no_marker(data: bytes) -> None:
    assert decode_marker_list(data) == ()


def test_windows_line_ends_and_a_missing_last_one_are_accepted() -> None:
    data = f"{BASE.path}\r\n{LOG.path}".encode()
    assert decode_marker_list(data) == (BASE, LOG)


@pytest.mark.parametrize("data", [b"\xff\xfe", b"p/a-0_0-1", b"p/a.txt.marker.CREATE\n"])
def test_a_marker_list_with_a_broken_line_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match="MARKERS3") as caught:
        decode_marker_list(encode_marker_list([BASE]) + data, path="MARKERS3")
    assert caught.value.path == "MARKERS3"


def test_marker_types_are_known() -> None:
    assert decode_marker_type(b"TIMELINE_SERVER_BASED\n") == "TIMELINE_SERVER_BASED"
    assert decode_marker_type(b"DIRECT") == "DIRECT"


@pytest.mark.parametrize("data", [b"", b"direct", b"\xff", b"TIMELINE"])
def test_other_marker_types_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match="is not a type of markers"):
        decode_marker_type(data)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("MARKERS0", True),
        ("MARKERS19", True),
        ("MARKERS", False),
        ("MARKERS.type", False),
        ("MARKERS٣", False),
        ("0", False),
    ],
)
def test_marker_lists_are_numbered(name: str, answer: bool) -> None:
    assert is_marker_list(name) is answer


def test_direct_markers_lie_where_hudi_left_them(golden: GoldenTables) -> None:
    table = golden.path("mor_with_rollback")
    paths = [str(p.relative_to(table)) for p in table.glob(".hoodie/.temp/*/*/*") if p.is_file()]
    assert paths
    for path in paths:
        requested = InstantTime(path.split("/")[2])
        marker = MarkerName.parse(path.removeprefix(f"{marker_folder(requested)}/"))
        assert marker is not None
        assert marker_path(requested, marker) == path
        file = parse_data_file(marker.data_file.split("/")[-1])
        assert file is not None
        assert file.requested == requested
