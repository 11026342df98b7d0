"""Locks by the front door: what a table keeps of its lock, and who may write it with what."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from pyhudi.errors import InvalidRequestError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.properties import decode_properties

ZOOKEEPER = {"url": "127.0.0.1:1", "base_path": "/locks"}
DYNAMODB = {"table": "locks", "region": "us-east-1", "endpoint_url": "http://127.0.0.1:1"}
OPTIONS: dict[str, dict[str, Any] | None] = {
    **dict.fromkeys(LockKind),
    LockKind.ZOOKEEPER: ZOOKEEPER,
    LockKind.DYNAMODB: DYNAMODB,
}
OPTION_KINDS = [LockKind.ZOOKEEPER, LockKind.DYNAMODB]
ON_DISK = [kind for kind in LockKind if kind is not LockKind.STORAGE]


def create(path: Path, **changes: Any) -> pyhudi.Table:
    schema = pa.schema([("id", pa.string())])
    buckets = pyhudi.SimpleBuckets(1)
    return pyhudi.create_table(path, schema, record_key="id", buckets=buckets, **changes)


def properties(path: Path) -> dict[str, str]:
    return decode_properties((path / ".hoodie/hoodie.properties").read_bytes())


@pytest.mark.parametrize("kind", ON_DISK)
def test_table_tells_its_lock_so_that_nobody_has_to(kind: LockKind, tmp_path: Path) -> None:
    create(tmp_path / "orders", lock=kind.value, lock_options=OPTIONS[kind])
    kept = properties(tmp_path / "orders")
    assert kept["pyhudi.lock"] == kind.value
    again = create(tmp_path / "orders", lock=kind, lock_options=OPTIONS[kind], exist_ok=True)
    assert again.uri == pyhudi.open_table(tmp_path / "orders").uri


def test_spark_writer_of_hudi_finds_the_address_under_its_own_names(tmp_path: Path) -> None:
    create(tmp_path / "orders", lock="zookeeper", lock_options=ZOOKEEPER)
    kept = properties(tmp_path / "orders")
    assert {name: text for name, text in kept.items() if ".lock." in name} == {
        "hoodie.write.lock.provider": (
            "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"
        ),
        "hoodie.write.lock.zookeeper.url": "127.0.0.1:1",
        "hoodie.write.lock.zookeeper.base_path": "/locks",
        "hoodie.write.lock.zookeeper.lock_key": "orders",
    }


@pytest.mark.parametrize(
    ("kept", "told"),
    [(kept, told) for kept, told in itertools.product(ON_DISK, ON_DISK) if kept is not told],
)
def test_writer_with_another_lock_than_the_tables_is_refused(
    kept: LockKind, told: LockKind, tmp_path: Path
) -> None:
    create(tmp_path / "t", lock=kept.value, lock_options=OPTIONS[kept])
    table = pyhudi.open_table(tmp_path / "t", lock=told.value, lock_options=OPTIONS[told])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidRequestError, match=f"the table itself says '{kept.value}'"):
        table.upsert(pa.table({"id": ["a"]}))
    assert sorted(tmp_path.rglob("*")) == before
    assert table.read().to_arrow().num_rows == 0  # reading needs no lock


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("zookeeper", {"base_path": "/other"}),
        ("zookeeper", {"lock_key": "other"}),
        ("zookeeper", {"url": "elsewhere:2181"}),
        ("dynamodb", {"table": "other"}),
        ("dynamodb", {"partition_key": "other"}),
        ("dynamodb", {"region": "eu-west-1"}),
        ("dynamodb", {"endpoint_url": "http://127.0.0.1:2"}),
    ],
)
def test_writer_with_another_place_of_the_lock_is_refused(
    kind: str, changes: dict[str, str], tmp_path: Path
) -> None:
    options = {"zookeeper": ZOOKEEPER, "dynamodb": DYNAMODB}[kind]
    create(tmp_path / "t", lock=kind, lock_options=options)
    table = pyhudi.open_table(tmp_path / "t", lock_options={**options, **changes})
    with pytest.raises(InvalidRequestError, match="all its writers must agree"):
        table.upsert(pa.table({"id": ["a"]}))
    with pytest.raises(InvalidRequestError, match="address of the lock"):
        create(tmp_path / "t", lock=kind, lock_options={**options, **changes}, exist_ok=True)


@pytest.mark.parametrize(("kind", "options"), [("zookeeper", ZOOKEEPER), ("dynamodb", DYNAMODB)])
def test_lock_service_that_cannot_be_reached_is_named_and_nothing_is_written(
    kind: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "nobody")
    create(tmp_path / "t", lock=kind, lock_options=options)
    settings = pyhudi.WriteSettings(lock_wait_ms=100)
    table = pyhudi.open_table(tmp_path / "t", write_settings=settings)
    with pytest.raises(pyhudi.UnavailableError, match="does not answer about the lock") as caught:
        table.upsert(pa.table({"id": ["a"]}))
    assert "nobody" not in str(caught.value)
    timeline = tmp_path / "t/.hoodie/timeline"
    assert [path.name for path in timeline.iterdir()] == ["history"]
    assert table.read().to_arrow().num_rows == 0


# -- a table that gets its lock later


@pytest.mark.parametrize("kind", [kind for kind in ON_DISK if kind not in OPTION_KINDS])
def test_table_without_a_lock_is_given_one(kind: LockKind, tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    table.alter.use_lock(kind.value)
    assert properties(tmp_path / "t")["pyhudi.lock"] == kind.value
    table.upsert(pa.table({"id": ["a"]}))
    pyhudi.open_table(tmp_path / "t", lock=kind.value).upsert(pa.table({"id": ["b"]}))
    assert pyhudi.open_table(tmp_path / "t").read().to_arrow().num_rows == 2


def test_job_that_creates_its_table_if_it_must_goes_on_when_the_table_got_a_lock(
    tmp_path: Path,
) -> None:
    create(tmp_path / "t").alter.use_lock("file")
    create(tmp_path / "t", exist_ok=True).upsert(pa.table({"id": ["a"]}))
    create(tmp_path / "t", lock="file", exist_ok=True).upsert(pa.table({"id": ["b"]}))
    with pytest.raises(InvalidRequestError, match="lock: file in the table, none requested"):
        create(tmp_path / "t", lock="none", exist_ok=True)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("zookeeper",), "lock_options"),
        (("file", {"url": "zk:2181"}), "takes no lock_options"),
        (("zookeeper", {**ZOOKEEPER, "password": "hush"}), "there is no option 'password'"),
        (("storage",), "cannot guard"),
        (("tea",), "lock='tea' is not known"),
        ((None,), "lock=None is not known"),
    ],
)
def test_lock_that_the_table_cannot_have_is_refused_and_nothing_changes(
    given: tuple[Any, ...], told: str, tmp_path: Path
) -> None:
    table = create(tmp_path / "t")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidRequestError, match=told) as caught:
        table.alter.use_lock(given[0], lock_options=given[1] if given[1:] else None)
    assert "hush" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before
    assert properties(tmp_path / "t")["pyhudi.lock"] == "none"


@pytest.mark.parametrize("kind", OPTION_KINDS)
def test_lock_whose_service_does_not_answer_is_not_given_to_a_table(
    kind: LockKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "nobody")
    settings = pyhudi.WriteSettings(lock_wait_ms=100)
    table = create(tmp_path / "t", write_settings=settings)
    with pytest.raises(pyhudi.UnavailableError, match="does not answer about the lock"):
        table.alter.use_lock(kind.value, lock_options=OPTIONS[kind])
    table.upsert(pa.table({"id": ["a"]}))
    assert properties(tmp_path / "t")["pyhudi.lock"] == "none"
