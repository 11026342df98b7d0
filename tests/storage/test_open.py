from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pyhudi.errors import InvalidRequestError
from pyhudi.storage.open import SCHEMES, open_storage
from pyhudi.storage.stores.local_disk import LocalStorage
from pyhudi.storage.stores.object_store import ObstoreStorage


@pytest.mark.parametrize("scheme", ["", "file://", "file:", "FILE://", "file://localhost"])
def test_path_names_a_folder_on_local_disk(tmp_path: Path, scheme: str) -> None:
    storage = open_storage(f"{scheme}{tmp_path}/a table%20/")
    assert isinstance(storage, LocalStorage)
    assert storage.create("f", b"1")
    assert (tmp_path / "a table%20/f").read_bytes() == b"1", "a percent sequence is literal"
    assert storage.uri == f"file://{tmp_path}/a table%20"
    copy = pickle.loads(pickle.dumps(storage))
    assert copy.read("f") == b"1"


def test_relative_path_is_made_absolute_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = open_storage("here/../table")
    monkeypatch.chdir("/")
    assert storage.uri == f"file://{tmp_path}/table"
    assert storage.create("f", b"1")
    assert (tmp_path / "table/f").exists()


@pytest.mark.parametrize(
    ("uri", "canonical"),
    [
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3a://bucket/a", "s3a://bucket/a"),
        ("S3://bucket/a%20b", "s3://bucket/a%20b"),
        ("s3://bucket", "s3://bucket"),
        ("gs://bucket/day=1/t", "gs://bucket/day=1/t"),
        ("abfss://c@me.dfs.core.windows.net/t", "abfss://c@me.dfs.core.windows.net/t"),
    ],
)
def test_address_in_an_object_store_is_kept(uri: str, canonical: str) -> None:
    storage = open_storage(uri, {"skip_signature": "true"})
    assert isinstance(storage, ObstoreStorage)
    assert storage.uri == canonical
    assert repr(storage) == f"ObstoreStorage({canonical!r})"


def test_memory_is_one_storage_per_name() -> None:
    first, again = open_storage("memory://one/t"), open_storage("memory://one/t/")
    other = open_storage("memory://two/t")
    first.create("a", b"1")
    assert again is first
    assert other.stat("a") is None
    stat = first.stat("a")
    assert stat is not None
    assert stat.modified_ms > 1_700_000_000_000
    assert first.uri == "memory://one/t"


@pytest.mark.parametrize("uri", ["hdfs://host/t", "http://host/t", "dbfs:/t", "wasb://c@a/t"])
def test_unknown_scheme_is_refused_with_the_known_ones(uri: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        open_storage(uri)
    assert all(scheme in caught.value.next_step for scheme in SCHEMES)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "\0",
        "file://",
        "file://elsewhere/t",
        "s3://",
        "s3:///t",
        "s3:/bucket/t",
        "s3://bucket/a/../b",
        "s3://bucket/a//b",
        "s3://bucket/a?versionId=1",
        "s3://bucket/a\\b",
        "s3://bucket:80/t",
        "s3://me@bucket/t",
        "s3://me:secret@bucket/t",
        "gs://buck et/t",
        "memory://",
    ],
)
def test_address_of_no_table_is_refused(uri: str) -> None:
    with pytest.raises(InvalidRequestError):
        open_storage(uri)


@pytest.mark.parametrize("uri", ["relative", "file:///t", "memory://m"])
def test_options_that_nobody_would_read_are_refused(uri: str) -> None:
    with pytest.raises(InvalidRequestError, match="allow_http"):
        open_storage(uri, {"allow_http": "true"})
