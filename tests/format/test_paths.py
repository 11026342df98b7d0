from __future__ import annotations

import posixpath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptTableError
from pyhudi.format.paths import PATH_BYTES_MAX, table_folder, table_path


@pytest.mark.parametrize(
    "path",
    [
        "a",
        ".hoodie/timeline/20260101000000000.commit.requested",
        "day=2026-01-01/.f-0_20260101000000000.log.1_0-1-0",
        "a/%2e%2e/b",
        "p=..%2F..%2Fx",
        "...",
        "..a/b..",
        "a:b",
        "ts=2026-01-01 00:00:00",
        'name=it\'s "quoted" & more?#*{}|<>^`~+',
        "país=España/e\u0301",
        "\U0001f600/\uffff",
        "x" * PATH_BYTES_MAX,
    ],
)
def test_path_of_plain_segments_is_itself(path: str) -> None:
    assert table_path(path) == path
    assert table_folder(path) == path


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "empty"),
        ("/", "absolute"),
        ("/etc/passwd", "absolute"),
        ("//host/share", "absolute"),
        ("..", "'..'"),
        ("../x", "'..'"),
        ("a/..", "'..'"),
        ("a/../../x", "'..'"),
        (".", "'.'"),
        ("./x", "'.'"),
        ("a/./b", "'.'"),
        ("a//b", "empty segment"),
        ("a/", "empty segment"),
        ("a\\..\\b", "backslash"),
        ("a\0b", "control"),
        ("a\nb", "control"),
        ("a\n", "control"),
        ("a\x7f", "control"),
        ("a\x85b", "control"),
        ("file:/etc/passwd", "scheme"),
        ("s3://bucket/x", "scheme"),
        ("S3A://bucket/x", "scheme"),
        ("a\ud800b", "UTF-8"),
        ("x" * (PATH_BYTES_MAX + 1), "longer"),
        ("é" * (PATH_BYTES_MAX // 2 + 1), "longer"),
    ],
)
def test_path_that_could_leave_the_table_is_refused(path: str, why: str) -> None:
    with pytest.raises(CorruptTableError, match=why) as caught:
        table_path(path)
    assert len(str(caught.value)) < 1000, "a long path must not flood the log"


def test_empty_folder_is_the_root() -> None:
    assert table_folder("") == ""


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet=st.sampled_from("ab./\\:%\0\n é"), max_size=12) | st.text(max_size=20))
def test_accepted_path_stays_below_any_root(path: str) -> None:
    try:
        table_path(path)
    except CorruptTableError:
        return
    joined = posixpath.join("/base/table", path)
    assert posixpath.normpath(joined) == joined
    assert joined.startswith("/base/table/")
    assert path.encode().decode() == path
