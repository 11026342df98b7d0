from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptTableError
from pyhudi.format.timeline.stored_paths import path_in_partition, relative_to_table, required_path


@pytest.mark.parametrize(
    ("path", "base_uri", "relative"),
    [
        ("/data/t/p/a", "/data/t", "p/a"),
        ("/data/t/p/a", "file:///data/t", "p/a"),
        ("file:/data/t/p/a", "/data/t/", "p/a"),
        ("file:///data/t/a", "file:/data/t", "a"),
        ("s3a://b/t/p/a", "s3://b/t", "p/a"),
        ("s3://b/t/p/a", "s3a://b/t/", "p/a"),
        ("S3://b/t/a", "s3://b/t", "a"),
        ("gs://b/a", "gs://b/", "a"),
        ("gs://b/a", "gs://b", "a"),
        ("abfss://c@x.dfs.core.windows.net/t/a", "abfss://c@x.dfs.core.windows.net/t", "a"),
        ("/t/p/a", "s3://b/t", "p/a"),  # printed without its scheme
        ("p/a", "s3://b/t", "p/a"),  # relative already
        ("/data/t/a%2Fb/x y", "/data/t", "a%2Fb/x y"),
        ("/data/t/day=1:2/a", "/data/t", "day=1:2/a"),
    ],
)
def test_stored_path_becomes_relative(path: str, base_uri: str, relative: str) -> None:
    assert relative_to_table(path, base_uri) == relative


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/data",
        "/data/t",
        "/data/t/",
        "/data/tt/a",
        "/data/t/../u/a",
        "/data/t//a",
        "/data/t/./a",
        "/data/t/a\n",
        "//data/t/a",
        "../a",
        "p/../../a",
        "file://host/data/t/a",
        "s3://data/t/a",
        "http://data/t/a",
        "file:data/t/a\0",
        "a\\b",
    ],
)
def test_path_outside_the_table_is_refused(path: str) -> None:
    with pytest.raises(CorruptTableError):
        relative_to_table(path, "/data/t")


@given(st.text(max_size=60), st.sampled_from(["/data/t", "s3://b/t", "file:///t"]))
@settings(deadline=None, max_examples=200)
def test_any_path_is_below_the_table_or_refused(path: str, base_uri: str) -> None:
    for stored in (path, f"{base_uri}/{path}"):
        try:
            relative = relative_to_table(stored, base_uri)
        except CorruptTableError:
            continue
        assert relative == path or stored.endswith("/" + relative)
        assert not {"", ".", ".."} & {*relative.split("/")}


def test_bare_name_joins_its_partition() -> None:
    assert path_in_partition(None, "a") == path_in_partition("", "a") == "a"
    assert path_in_partition("x=1/y=2", "a") == "x=1/y=2/a"


@pytest.mark.parametrize(
    ("partition", "name"), [("p", ".."), ("..", "a"), ("p", "q/a"), ("/p", "a"), ("p/", "a")]
)
def test_bare_name_that_leaves_its_partition_is_refused(partition: str, name: str) -> None:
    with pytest.raises(CorruptTableError):
        path_in_partition(partition, name)


def test_missing_path_says_whose() -> None:
    with pytest.raises(CorruptTableError, match="a write stat names no file"):
        required_path(None, "a write stat")
