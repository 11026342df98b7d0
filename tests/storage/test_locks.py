"""What every kind of lock promises, asked of each on each storage."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import boto3
import pytest

from faulty_storage import FaultyStorage
from lock_racer import Racer
from locking_world import START_MS, Universe
from played_zookeeper import ADDRESS, PlayedZookeeper
from pyhudi.errors import InvalidRequestError, UnavailableError
from pyhudi.format.lock.lock_address import DynamodbAddress, LockAddress
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.storage.locks.dynamodb_lock import DynamodbLock
from pyhudi.storage.locks.file_lock import FileLock
from pyhudi.storage.locks.lock import POLL_MS, HeldLock, Lock, moment
from pyhudi.storage.locks.open_lock import open_lock
from pyhudi.storage.locks.process_lock import InProcessLock
from pyhudi.storage.locks.storage_lock import StorageLock
from pyhudi.storage.locks.zookeeper_lock import LOOK_MS, ZookeeperLock
from pyhudi.storage.protocol import ObjectStat, Storage
from pyhudi.storage.stores.memory import MemoryStorage

THREADS = 8

T = TypeVar("T")
LockOf = Callable[[str], Lock]

KINDS: dict[str, tuple[Callable[..., Lock], str]] = {
    "file on local disk": (FileLock, "local"),
    "file in memory": (FileLock, "memory"),
    "storage on S3": (StorageLock, "s3"),
    "storage in memory": (StorageLock, "memory"),
    "storage on local disk": (StorageLock, "local"),
    "in process": (InProcessLock, "memory"),
    "ZooKeeper, played": (ZookeeperLock, "zookeeper"),
    "DynamoDB, of moto": (DynamodbLock, "dynamodb"),
}


@pytest.fixture
def universe() -> Universe:
    # Local disk and S3 tell this machine's time, so the universe begins there too.
    universe = Universe()
    universe.now_ms = int(time.time() * 1000)
    return universe


@pytest.fixture(params=KINDS)
def lock_of(request: pytest.FixtureRequest, universe: Universe) -> LockOf:
    """The table's lock as a writer of this name sees it."""
    return lock_maker(request, universe, request.param)


def lock_maker(request: pytest.FixtureRequest, universe: Universe, kind: str) -> LockOf:
    make, place = KINDS[kind]
    if place == "zookeeper":
        return PlayedZookeeper(universe).lock
    if place == "dynamodb":
        return dynamodb_lock_maker(request.getfixturevalue("s3_options"), universe)
    if place == "memory":
        storage: Storage = universe.memory()
    else:
        storage = Dated(request.getfixturevalue(place), universe)
    return lambda label: make(storage, universe.world(label))


class Dated(FaultyStorage):
    """A real storage that has the universe's clock: there, minutes pass in no time."""

    def __init__(self, inner: Storage, universe: Universe) -> None:
        super().__init__(inner)
        self._universe = universe
        self._times: dict[str, int] = {}

    def create(self, path: str, data: bytes) -> bool:
        is_made = super().create(path, data)
        return is_made and self._dated(path)

    def write(self, path: str, data: bytes) -> str:
        etag = super().write(path, data)
        self._dated(path)
        return etag

    def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
        found = super().replace(path, data, etag=etag)
        if found is not None:
            self._dated(path)
        return found

    def stat(self, path: str) -> ObjectStat | None:
        found = super().stat(path)
        if found is None:
            return None
        return replace(found, modified_ms=self._times.get(path, found.modified_ms))

    def _dated(self, path: str) -> bool:
        self._times[path] = self._universe.now_ms
        return True


def dynamodb_lock_maker(options: dict[str, str], universe: Universe) -> LockOf:
    key, table, region = "key", f"locks-{uuid.uuid4().hex}", options["aws_region"]
    client: Any = boto3.client(
        "dynamodb",
        region_name=region,
        endpoint_url=options["aws_endpoint"],
        aws_access_key_id="nobody",
        aws_secret_access_key="nothing",
    )
    client.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    address = DynamodbAddress(table=table, partition_key="orders", region=region)
    storage = universe.memory()
    return lambda label: DynamodbLock(storage, universe.world(label), address, client=client)


def is_free(lock: Lock) -> bool:
    try:
        lock.acquire(0).release()
    except UnavailableError:
        return False
    return True


def test_second_writer_is_refused_until_the_first_lets_go(lock_of: LockOf) -> None:
    held = lock_of("alice").acquire(0)
    with pytest.raises(UnavailableError, match="could not be taken within 0 ms"):
        lock_of("bob").acquire(0)
    assert held.is_held()
    held.release()
    assert is_free(lock_of("bob"))


def test_released_lock_is_not_held(lock_of: LockOf) -> None:
    held = lock_of("alice").acquire(0)
    assert held.remaining_ms() is None or held.remaining_ms() > 20_000  # type: ignore[operator]
    held.release()
    assert not held.is_held()
    assert held.remaining_ms() == 0


def test_releasing_again_does_not_free_the_next_owner(lock_of: LockOf) -> None:
    first = lock_of("alice").acquire(0)
    first.release()
    second = lock_of("bob").acquire(0)
    first.release()
    assert second.is_held()
    assert not first.is_held()
    assert not is_free(lock_of("carol"))


def test_one_lock_can_be_taken_many_times(lock_of: LockOf) -> None:
    lock = lock_of("alice")
    for _ in range(5):
        held = lock.acquire(0)
        assert held.is_held()
        held.release()
    assert is_free(lock_of("bob"))


def test_two_acquisitions_of_one_writer_exclude_each_other(lock_of: LockOf) -> None:
    lock = lock_of("alice")
    held = lock.acquire(0)
    assert not is_free(lock)
    held.release()


def test_waiting_ends_when_the_lock_is_free(lock_of: LockOf, universe: Universe) -> None:
    held = lock_of("alice").acquire(0)
    universe.at(3_500, held.release)
    began_ms = universe.now_ms
    assert lock_of("bob").acquire(60_000).is_held()
    assert 3_500 <= universe.now_ms - began_ms <= 3_500 + POLL_MS


@pytest.mark.parametrize("wait_ms", [0, 1, 999, 60_000])
def test_waiting_is_bounded(lock_of: LockOf, universe: Universe, wait_ms: int) -> None:
    lock_of("alice").acquire(0)
    began_ms = universe.now_ms
    with pytest.raises(UnavailableError, match=f"within {wait_ms} ms"):
        lock_of("bob").acquire(wait_ms)
    assert universe.now_ms - began_ms == wait_ms
    assert all(0 < nap <= POLL_MS for nap in universe.naps_ms)


def test_rivals_do_not_poll_in_step(lock_of: LockOf, universe: Universe) -> None:
    lock_of("alice").acquire(0)
    with pytest.raises(UnavailableError):
        lock_of("bob").acquire(20_000)
    assert len(set(universe.naps_ms)) > 5
    longest_ms = LOOK_MS if lock_of("carol").kind is LockKind.ZOOKEEPER else POLL_MS
    assert min(universe.naps_ms[:-1]) >= longest_ms // 2


def test_time_out_says_since_when_and_what_next(lock_of: LockOf, universe: Universe) -> None:
    lock_of("alice").acquire(0)
    with pytest.raises(UnavailableError) as caught:
        lock_of("bob").acquire(5_000)
    since = re.search(r"since (\d{4}-\d\d-\d\dT[\d:.]+\+00:00)", caught.value.why)
    assert since is not None
    assert moment(universe.now_ms - 120_000) < since[1] < moment(universe.now_ms + 120_000)
    assert caught.value.next_step.startswith("Repeat the call when that writer is done")


def at_once(action: Callable[[int], T]) -> list[T]:
    barrier = threading.Barrier(THREADS)

    def act(me: int) -> T:
        barrier.wait()
        return action(me)

    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(act, range(THREADS)))


def test_exactly_one_of_many_threads_wins(lock_of: LockOf) -> None:
    def tried(me: int) -> HeldLock | None:
        try:
            return lock_of(str(me)).acquire(0)
        except UnavailableError:
            return None

    for _ in range(4):
        (winner,) = [held for held in at_once(tried) if held is not None]
        assert winner.is_held()
        winner.release()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not re.search("S3|moto", kind)])
def test_threads_that_wait_for_the_lock_are_never_inside_together(
    request: pytest.FixtureRequest, universe: Universe, kind: str
) -> None:
    lock_of = lock_maker(request, universe, kind)
    inside: list[int] = []
    most: list[int] = []

    def work(me: int) -> None:
        lock = lock_of(str(me))
        for _ in range(3):
            held = lock.acquire(1 << 40)
            inside.append(me)
            most.append(len(inside))
            assert held.is_held()
            inside.remove(me)
            held.release()

    at_once(work)
    assert most == [1] * (3 * THREADS)


@pytest.mark.parametrize(("kind", "store"), [("file", "local"), ("storage", "s3")])
def test_processes_are_never_inside_together(
    kind: str, store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Of a lock that lies in the table."""
    there: Storage = request.getfixturevalue(store)
    options = request.getfixturevalue("s3_options") if store == "s3" else None
    place: dict[str, Any] = {
        "kind": kind,
        "options": {},
        "uri": there.uri,
        "storage_options": options,
    }
    orders = {"deed": "race", **place, "witness": tmp_path / "inside", "rounds": 3, "hold_ms": 1}
    racers = [Racer(**orders) for _ in range(4)]
    try:
        assert [racer.line() for racer in racers] == [{"entered": 3}] * 4
    finally:
        for racer in racers:
            racer.kill()
    assert Path(f"{tmp_path / 'inside'}.order").read_text() == "P" * 12


ADDRESSES: dict[LockKind, LockAddress] = {
    LockKind.ZOOKEEPER: ADDRESS,
    LockKind.DYNAMODB: DynamodbAddress(table="locks", partition_key="a", region="us-east-1"),
}


def storage_at(uri: str) -> Storage:
    return MemoryStorage(lambda: START_MS, uri=uri)


@pytest.mark.parametrize(
    ("kind", "uri", "expected"),
    [
        (LockKind.FILE, "file:///tables/a", FileLock),
        (LockKind.FILE, "memory://a", FileLock),
        (LockKind.STORAGE, "s3://bucket/a", StorageLock),
        (LockKind.STORAGE, "s3a://bucket/a", StorageLock),
        (LockKind.STORAGE, "gs://bucket/a", StorageLock),
        (LockKind.STORAGE, "abfss://box@account.dfs.core.windows.net/a", StorageLock),
        (LockKind.STORAGE, "memory://a", StorageLock),
        (LockKind.IN_PROCESS, "file:///tables/a", InProcessLock),
        (LockKind.IN_PROCESS, "s3://bucket/a", InProcessLock),
        *((LockKind.ZOOKEEPER, f"{scheme}://a", ZookeeperLock) for scheme in ("file", "s3", "gs")),
        *((LockKind.DYNAMODB, f"{scheme}://a", DynamodbLock) for scheme in ("file", "s3", "gs")),
    ],
)
def test_kind_and_place_choose_the_lock(kind: LockKind, uri: str, expected: type) -> None:
    lock = open_lock(kind, storage_at(uri), Universe().world(), address=ADDRESSES.get(kind))
    assert type(lock) is expected
    assert lock is not None
    assert lock.kind is kind


@pytest.mark.parametrize("kind", LockKind)
def test_lock_without_the_address_it_needs_is_refused_and_so_is_one_it_does_not(
    kind: LockKind,
) -> None:
    wrong = {None, *ADDRESSES.values()} - {ADDRESSES.get(kind)}
    for address in wrong:
        with pytest.raises(InvalidRequestError, match=f"lock '{kind.value}' has no fitting"):
            open_lock(kind, storage_at("memory://a"), Universe().world(), address=address)


def test_no_kind_is_no_lock() -> None:
    assert open_lock(LockKind.NONE, storage_at("file:///a"), Universe().world()) is None


@pytest.mark.parametrize(
    ("kind", "uri", "better"),
    [
        (LockKind.STORAGE, "file:///tables/a", "Use 'file'"),
        (LockKind.FILE, "s3://bucket/a", "Use 'storage'"),
        (LockKind.FILE, "gs://bucket/a", "Use 'storage'"),
        (LockKind.FILE, "az://box/a", "Use 'storage'"),
    ],
)
def test_lock_that_hudi_refuses_there_is_refused(kind: LockKind, uri: str, better: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"cannot guard {uri}.*{better}"):
        open_lock(kind, storage_at(uri), Universe().world())


def test_in_process_lock_is_per_table_and_names_the_other_writer() -> None:
    universe = Universe()
    alice, bob = universe.world("alice"), universe.world("bob")
    held = InProcessLock(storage_at("memory://here"), alice).acquire(0)
    elsewhere = InProcessLock(storage_at("memory://there"), bob).acquire(0)
    with pytest.raises(UnavailableError, match=r"\(alice\) has it since 2023-11-14T22:13:20"):
        InProcessLock(storage_at("memory://here"), bob).acquire(0)
    held.release()
    elsewhere.release()
