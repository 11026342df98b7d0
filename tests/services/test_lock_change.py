"""Leaving a lock that is another one only by its address, cannot be here, or never answers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import FaultyStorage
from locking_world import Universe
from opened_tables import table_on
from played_zookeeper import PlayedSession, PlayedZookeeper
from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequestError, UnavailableError
from pyhudi.format.lock.lock_address import ZookeeperAddress
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.properties import decode_properties, encode_properties
from pyhudi.plan.table_definition import TableDefinition
from pyhudi.read.load import PROPERTIES
from pyhudi.session.create import create_table_files
from pyhudi.settings import WriteSettings
from pyhudi.storage.locks import zookeeper_lock
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
ONE, ALL, OTHERS = "zk1:2181", "zk1:2181,zk2:2181", "new:2181"


def rows(*ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "ts": [1] * len(ids)}, schema=SCHEMA)


def options(url: str) -> dict[str, str]:
    return {"url": url, "base_path": "/hudi"}


def kept(storage: Storage) -> dict[str, str]:
    return decode_properties(storage.read(PROPERTIES))


def written(
    storage: Storage, universe: Universe, lock: LockKind, address: ZookeeperAddress | None = None
) -> Table:
    asked = TableDefinition.of(
        "t",
        SCHEMA,
        record_key="id",
        ordering="ts",
        buckets=SimpleBuckets(1),
        lock=lock,
        lock_address=address,
    )
    create_table_files(storage, asked, universe.world(), exist_ok=False)
    return opened(storage, universe)


def opened(storage: Storage, universe: Universe) -> Table:
    return table_on(storage, universe.world(), WriteSettings(lock_wait_ms=60_000))


class Bench:
    """A table whose lock is in one ZooKeeper, which has two hosts; there is another one, too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.universe = Universe()
        self.first, self.second = (PlayedZookeeper(self.universe) for _ in range(2))
        monkeypatch.setattr(zookeeper_lock, "require_kazoo", lambda: None)
        monkeypatch.setattr(zookeeper_lock, "KazooSession", self.connect)
        self.storage = self.universe.memory()
        address = ZookeeperAddress(url=ONE, base_path="/hudi", lock_key="t")
        self.table = written(self.storage, self.universe, LockKind.ZOOKEEPER, address)
        self.table.upsert(rows("a"))

    def connect(self, address: ZookeeperAddress) -> PlayedSession:
        service = self.second if address.url == OTHERS else self.first
        service.sessions.append(PlayedSession(service, "a writer", address.session_timeout_ms))
        return service.sessions[-1]

    def change(self, url: str) -> int:
        """Give the table the lock by these hosts; how long that took."""
        before_ms = self.universe.now_ms
        self.table.alter.use_lock("zookeeper", lock_options=options(url))
        return self.universe.now_ms - before_ms

    def url(self) -> str:
        return kept(self.storage)["hoodie.write.lock.zookeeper.url"]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


# -- one lock by two addresses


def test_the_hosts_of_the_same_zookeeper_can_be_named_otherwise(bench: Bench) -> None:
    assert bench.change(ALL) < 10_000
    assert bench.url() == ALL
    bench.table.upsert(rows("b"))
    assert bench.first.nodes == {}, "all is given back"
    assert bench.change(ONE) < 10_000


def test_a_lost_answer_does_not_make_two_locks_of_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(PlayedSession):
        is_first = True

        def exists(self, path: str) -> bool:
            found = super().exists(path)
            if Forgetful.is_first:
                Forgetful.is_first = False
                raise UnavailableError("no answer", why="it is played so", next_step="Repeat it")
            return found

    def forgetful(address: ZookeeperAddress) -> PlayedSession:
        if address.url == ALL:
            return bench.connect(address)
        bench.first.sessions.append(Forgetful(bench.first, "a writer", 30_000))
        return bench.first.sessions[-1]

    monkeypatch.setattr(zookeeper_lock, "KazooSession", forgetful)
    assert bench.change(ALL) < 10_000
    assert not Forgetful.is_first


def test_another_zookeeper_is_another_lock_and_both_are_taken(bench: Bench) -> None:
    held: list[tuple[int, int]] = []

    class Watched(FaultyStorage):
        def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
            if path == PROPERTIES:
                held.append((len(bench.first.nodes), len(bench.second.nodes)))
            return super().replace(path, data, etag=etag)

    bench.table = opened(Watched(bench.storage), bench.universe)
    bench.change(OTHERS)
    assert held == [(1, 1)]


def test_a_writer_that_has_the_old_lock_is_named_and_waited_for(bench: Bench) -> None:
    address = ZookeeperAddress(url=ONE, base_path="/hudi", lock_key="t")
    rival = bench.first.lock("a rival", address).acquire(0)
    with pytest.raises(UnavailableError, match="'a rival' has it") as caught:
        bench.change(OTHERS)
    assert "stop all writers" not in str(caught.value)
    rival.release()
    bench.change(OTHERS)
    assert bench.url() == OTHERS


# -- a lock that cannot be here


@pytest.mark.parametrize("new", ["file", "none", "in_process"])
def test_a_table_that_was_copied_to_disk_leaves_the_lock_of_an_object_store(
    new: str, tmp_path: Path
) -> None:
    pyhudi.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=SimpleBuckets(1)
    ).upsert(rows("a"))
    file = tmp_path / "t" / PROPERTIES
    file.write_text(file.read_text().replace("pyhudi.lock=none", "pyhudi.lock=storage"))
    table = pyhudi.open_table(tmp_path / "t")
    with pytest.raises(InvalidRequestError, match="cannot guard") as caught:
        table.upsert(rows("b"))
    assert "table.alter.use_lock('file')" in caught.value.next_step
    with pytest.raises(InvalidRequestError, match="cannot guard"):
        table.alter.use_lock("storage")
    with pytest.raises(InvalidRequestError, match="cannot guard"):
        table.upsert(rows("b"))  # what failed has changed nothing
    table.alter.use_lock(new)
    table.upsert(rows("b"))
    assert pyhudi.open_table(tmp_path / "t", lock=new).read().to_arrow().num_rows == 2


@pytest.mark.parametrize("new", ["storage", "none"])
def test_a_table_that_was_copied_to_an_object_store_leaves_the_lock_of_a_disk(new: str) -> None:
    universe = Universe()
    storage = MemoryStorage(lambda: universe.now_ms, uri="s3://bucket/t")
    written(storage, universe, LockKind.NONE).upsert(rows("a"))
    storage.write(PROPERTIES, encode_properties({**kept(storage), "pyhudi.lock": "file"}))
    table = opened(storage, universe)
    with pytest.raises(InvalidRequestError, match="cannot guard"):
        table.upsert(rows("b"))
    table.alter.use_lock(new)
    table.upsert(rows("b"))
    assert kept(storage)["pyhudi.lock"] == new


def test_a_live_metadata_table_does_not_keep_a_table_at_the_lock_of_its_old_home() -> None:
    universe = Universe()
    storage = MemoryStorage(lambda: universe.now_ms, uri="s3://bucket/t")
    written(storage, universe, LockKind.NONE).upsert(rows("a"))
    copied = {"pyhudi.lock": "file", "hoodie.table.metadata.partitions": "files"}
    storage.write(PROPERTIES, encode_properties({**kept(storage), **copied}))
    table = opened(storage, universe)
    table.alter.disable_metadata_table()
    table.alter.use_lock("storage")
    table.upsert(rows("b"))


# -- a lock whose service is gone


def test_a_service_that_is_gone_is_left_as_the_error_says(bench: Bench) -> None:
    bench.first.is_down = True
    for lock, given in (("none", None), ("file", None), ("zookeeper", options(OTHERS))):
        with pytest.raises(UnavailableError, match=r"/hudi/t at zk1:2181.*not answer") as caught:
            bench.table.alter.use_lock(lock, lock_options=given)
        assert "pyhudi.lock=none" in caught.value.next_step
        assert "hoodie.write.lock.*" in caught.value.next_step
        assert bench.second.nodes == {}, "all is given back"
    rest = {k: v for k, v in kept(bench.storage).items() if "hoodie.write.lock." not in k}
    bench.storage.write(PROPERTIES, encode_properties({**rest, "pyhudi.lock": "none"}))
    bench.change(OTHERS)
    bench.table.upsert(rows("b"))
    assert bench.table.read().to_arrow().num_rows == 2
