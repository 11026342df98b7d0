"""Locks that services keep, raced for real: processes of pyhudi, and Java on the other side.

ZooKeeper is a real server, and Java's side is Hudi's own lock provider. For DynamoDB it is moto's
server and Amazon's lock client, which Hudi's provider wraps.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer

import pyhudi
from conformance.client import ENVIRONMENT, SERVE, TESTS, JudgeClient, JudgeMissingError
from lock_racer import Racer, opened
from pyhudi.errors import UnavailableError
from pyhudi.format.lock.lock_address import address_properties, parse_lock_address
from pyhudi.format.lock.lock_kind import LockKind
from true_moto import start_true_moto
from true_zookeeper import SESSION_MAX_MS, TICK_MS, TrueZookeeper, ZookeeperMissingError

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

SESSION_MS = 6 * TICK_MS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrueZookeeper]:
    server = TrueZookeeper(tmp_path_factory.mktemp("zookeeper"))
    try:
        server.start()
    except ZookeeperMissingError as missing:
        pytest.skip(str(missing))
    yield server
    server.kill()


@pytest.fixture
def place(server: TrueZookeeper) -> dict[str, Any]:
    """Where the lock of a test is; no two tests share one."""
    return {
        "url": server.url,
        "base_path": "/hudi/locks",
        "lock_key": uuid.uuid4().hex,
        "session_timeout_ms": SESSION_MS,
        "connection_timeout_ms": 2_000,
    }


@pytest.fixture
def racers() -> Iterator[Callable[..., Racer]]:
    """Starts processes, and ends those that a test left."""
    started: list[Racer] = []

    def start(**orders: Any) -> Racer:
        started.append(Racer(**orders))
        return started[-1]

    yield start
    for racer in started:
        racer.kill()


Start = Callable[..., Racer]


def patient(place: dict[str, Any]) -> dict[str, Any]:
    """With a session that a busy machine does not cost anybody."""
    return {**place, "session_timeout_ms": SESSION_MAX_MS}


def java_options(kind: LockKind, options: dict[str, Any]) -> dict[str, str]:
    address = parse_lock_address(kind, options, "orders")
    return {**address_properties(address), "hoodie.write.lock.wait_time_ms_between_retry": "100"}


# -- ZooKeeper, pyhudi alone


@pytest.mark.parametrize("processes", [4, pytest.param(8, marks=pytest.mark.long)])
def test_processes_are_never_inside_together(
    place: dict[str, Any], racers: Start, tmp_path: Path, processes: int
) -> None:
    orders = {"deed": "race", "kind": "zookeeper", "options": patient(place), "hold_ms": 2}
    started = [racers(**orders, witness=tmp_path / "inside", rounds=5) for _ in range(processes)]
    assert [racer.line() for racer in started] == [{"entered": 5}] * processes


def test_frozen_process_loses_the_lock_with_its_session_and_knows_when_it_wakes(
    place: dict[str, Any], racers: Start
) -> None:
    frozen = racers(deed="hold", kind="zookeeper", options=place)
    frozen.line()
    before = frozen.asked()
    assert before["is_held"] is True
    assert 0 < before["remaining_ms"] < SESSION_MS
    frozen.process.send_signal(signal.SIGSTOP)
    held = opened("zookeeper", place).acquire(20_000)  # waits for the end of the session
    frozen.process.send_signal(signal.SIGCONT)
    assert frozen.asked() == {"remaining_ms": 0, "is_held": False}
    assert held.is_held()
    frozen.finish()  # its release takes nothing from the new owner
    assert held.is_held()
    held.release()


@pytest.mark.long
def test_killed_process_leaves_the_lock_to_the_next(place: dict[str, Any], racers: Start) -> None:
    dying = racers(deed="hold", kind="zookeeper", options=place)
    dying.line()
    dying.kill()
    opened("zookeeper", place).acquire(20_000).release()


@pytest.mark.long
def test_owner_counts_by_what_the_server_grants_and_not_by_what_it_asked(
    place: dict[str, Any],
) -> None:
    held = opened("zookeeper", {**place, "session_timeout_ms": 60_000}).acquire(5_000)
    remaining_ms = held.remaining_ms()
    assert remaining_ms is not None
    assert SESSION_MAX_MS // 2 < remaining_ms < SESSION_MAX_MS
    held.release()


def test_server_that_is_killed_while_the_lock_is_held_is_noticed_and_comes_back(
    tmp_path: Path,
) -> None:
    server = TrueZookeeper(tmp_path).start()
    place = {
        "url": server.url,
        "base_path": "/locks",
        "session_timeout_ms": SESSION_MS,
        "connection_timeout_ms": 2_000,
    }
    try:
        held = opened("zookeeper", place).acquire(5_000)
        server.kill()
        with pytest.raises(UnavailableError, match="ZooKeeper does not answer about the lock"):
            held.is_held()
        with pytest.raises(UnavailableError, match="ZooKeeper does not answer about the lock"):
            opened("zookeeper", place).acquire(500)
        until(lambda: held.remaining_ms() == 0, SESSION_MS)
        server.start()
        assert not held.is_held()  # for good, though the server may still know the session
        held.release()
        opened("zookeeper", place).acquire(20_000).release()
    finally:
        server.kill()


def until(is_so: Callable[[], bool], within_ms: int) -> None:
    deadline = time.monotonic() + within_ms / 1000
    while not is_so():
        assert time.monotonic() < deadline, "it never became so"
        time.sleep(0.02)


def test_path_that_is_closed_to_us_is_refused_by_name(server: TrueZookeeper) -> None:
    from kazoo.client import KazooClient
    from kazoo.security import make_acl

    path = f"/closed-{uuid.uuid4().hex}"
    client = KazooClient(hosts=server.url)
    client.start()
    client.create(path, acl=[make_acl("world", "anyone", read=True)])
    client.stop()
    client.close()
    with pytest.raises(pyhudi.InvalidRequestError, match="ZooKeeper refuses the lock"):
        opened("zookeeper", {"url": server.url, "base_path": path}).acquire(1_000)


# -- ZooKeeper, with Hudi


def raced_with_java(
    java: JudgeClient, kind: LockKind, options: dict[str, Any], start: Callable[[Path], list[Racer]]
) -> str:
    """Who was inside, in their order: P for each process of pyhudi, J for Java."""
    folder = Path(tempfile.mkdtemp())
    witness, stop = folder / "inside", folder / "stop"
    told = Path(f"{witness}.order")
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(
            java.ask,
            "lock-race",
            options=java_options(kind, options),
            witness=witness,
            stop=stop,
            timeout_s=300,
        )
        try:
            until(lambda: asked.done() or told.exists(), 120_000)  # Java is slow the first time
            for racer in start(witness):
                racer.line()
        finally:
            stop.touch()
        (said,) = asked.result()
    order = told.read_text()
    assert said == {"entered": order.count("J"), "clashes": 0}
    shutil.rmtree(folder)
    return order


def test_hudi_and_pyhudi_are_never_inside_together(
    judge: JudgeClient, place: dict[str, Any], racers: Start
) -> None:
    orders = {"deed": "race", "kind": "zookeeper", "options": patient(place), "hold_ms": 20}
    order = raced_with_java(
        judge,
        LockKind.ZOOKEEPER,
        patient(place),
        lambda witness: [racers(**orders, witness=witness, rounds=30) for _ in range(4)],
    )
    assert order.count("P") == 120
    assert order.count("JP") > 2  # they did take turns


def test_hudi_waits_for_us_and_we_for_hudi(judge: JudgeClient, place: dict[str, Any]) -> None:
    place = patient(place)
    options = java_options(LockKind.ZOOKEEPER, place)
    lock = opened("zookeeper", place)
    held = lock.acquire(5_000)
    assert judge.ask("lock", options=options, wait_ms=300) == [{"taken": False}]
    assert held.is_held()
    held.release()
    assert judge.ask("lock", options=options, wait_ms=5_000) == [{"taken": True}]
    with pytest.raises(UnavailableError, match=r"'application_id=.*' has it, in the queue since"):
        lock.acquire(300)
    judge.ask("unlock")
    lock.acquire(5_000).release()


@pytest.mark.long
def test_frozen_jvm_loses_the_lock_with_its_session(
    judge: JudgeClient, place: dict[str, Any]
) -> None:
    options = java_options(LockKind.ZOOKEEPER, place)
    assert judge.ask("lock", options=options, wait_ms=5_000) == [{"taken": True}]
    with judge.frozen():
        held = opened("zookeeper", place).acquire(20_000)
    assert held.is_held()
    judge.ask("unlock")
    assert held.is_held()  # Hudi's late release takes nothing from us
    held.release()


def test_hudi_writer_takes_the_lock_that_the_table_names(
    judge: JudgeClient, place: dict[str, Any], tmp_path: Path
) -> None:
    path, place = tmp_path / "orders", patient(place)
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64())])
    table = pyhudi.create_table(
        path,
        schema,
        record_key="id",
        ordering="ts",
        buckets=pyhudi.SimpleBuckets(1),
        lock="zookeeper",
        lock_options=place,
        upkeep=False,
    )
    table.upsert(pa.table({"id": ["ours"], "ts": [1]}, schema=schema))
    held = opened("zookeeper", place).acquire(5_000)
    with ThreadPoolExecutor(1) as thread:
        # Nothing is said of the lock: the table says it.
        written = thread.submit(
            judge.hudi_write,
            path,
            [{"id": "theirs", "ts": 1}],
            "id string, ts long",
            {
                "hoodie.table.name": "orders",
                "hoodie.clean.failed.writes.policy": "LAZY",
                "hoodie.datasource.write.recordkey.field": "id",
                "hoodie.datasource.write.precombine.field": "ts",
            },
        )
        session = opened_session(place)
        until(lambda: len(session.get_children(lock_path(place))) == 2, 60_000)
        assert not written.done()
        assert [row["id"] for row in judged_ids(table)] == ["ours"]
        held.release()
        assert len(written.result()) == 1
        session.stop()
        session.close()
    table.upsert(pa.table({"id": ["ours too"], "ts": [1]}, schema=schema))
    expected = ["ours", "ours too", "theirs"]
    assert sorted(row["id"] for row in judged_ids(table)) == expected
    assert sorted(row["id"] for row in judge.hudi_rows(path, meta=False)) == expected


def lock_path(place: dict[str, Any]) -> str:
    return f"{place['base_path']}/{place['lock_key']}"


def opened_session(place: dict[str, Any]) -> Any:
    from kazoo.client import KazooClient

    client = KazooClient(hosts=place["url"])
    client.start()
    return client


def judged_ids(table: pyhudi.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.read().to_arrow().select(["id"]).to_pylist()
    return rows


# -- DynamoDB, with Amazon's client

AMAZON_JARS = "dynamodb"  # a set of requirements/jars.toml


@pytest.fixture(scope="module")
def amazon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeClient]:
    """A JVM with Amazon's lock client beside Hudi."""
    if not (TESTS.parent / ENVIRONMENT / ".ready").exists():
        pytest.skip(f"there is no {ENVIRONMENT}; `make test-conformance` makes it")
    command = ("env", f"JUDGE_MORE_JARS={AMAZON_JARS}", *SERVE)
    log = tmp_path_factory.mktemp("amazon") / "stderr.txt"
    with JudgeClient(command, TESTS, log) as client:
        try:
            client.start()
        except JudgeMissingError as missing:
            pytest.skip(str(missing))
        yield client


@pytest.fixture(scope="module")
def moto() -> Iterator[ThreadedMotoServer]:
    server = start_true_moto()
    yield server
    server.stop()


@pytest.fixture
def item(moto: ThreadedMotoServer, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "nobody")
    host, port = moto.get_host_and_port()
    where = {"table": "locks", "region": "us-east-1", "endpoint_url": f"http://{host}:{port}"}
    found = {**where, "partition_key": uuid.uuid4().hex}
    client: Any = boto3.client(
        "dynamodb", region_name="us-east-1", endpoint_url=where["endpoint_url"]
    )
    if "locks" not in client.list_tables()["TableNames"]:
        opened("dynamodb", found).acquire(10_000).release()  # makes the table
    return found


def test_amazons_client_and_pyhudi_are_never_inside_together(
    amazon: JudgeClient, item: dict[str, Any], racers: Start
) -> None:
    orders = {"deed": "race", "kind": "dynamodb", "options": item, "hold_ms": 20}
    order = raced_with_java(
        amazon,
        LockKind.DYNAMODB,
        item,
        lambda witness: [racers(**orders, witness=witness, rounds=2) for _ in range(3)],
    )
    assert order.count("P") == 6
    assert "JP" in order  # this lock has no queue, so whoever asks more often gets it more often


@pytest.mark.long
def test_lock_of_amazons_client_is_waited_for_and_named(
    amazon: JudgeClient, item: dict[str, Any]
) -> None:
    options = java_options(LockKind.DYNAMODB, item)
    lock = opened("dynamodb", item)
    assert amazon.ask("lock", options=options, wait_ms=5_000) == [{"taken": True}]
    with pytest.raises(UnavailableError, match=r"has it since .* it may keep it for 60000 ms"):
        lock.acquire(300)
    amazon.ask("unlock")
    held = lock.acquire(5_000)
    assert held.is_held()
    held.release()


def test_lease_of_a_frozen_jvm_is_taken_over_and_its_late_release_is_harmless(
    amazon: JudgeClient, item: dict[str, Any]
) -> None:
    options = {**java_options(LockKind.DYNAMODB, item), "hoodie.write.lock.wait_time_ms": "3000"}
    assert amazon.ask("lock", options=options, wait_ms=5_000) == [{"taken": True}]
    with amazon.frozen():
        held = opened("dynamodb", item).acquire(20_000)
    assert held.is_held()
    amazon.ask("unlock")
    assert held.is_held()
    held.release()
