"""The marker service of a write: many tasks, hostile peers, and its end."""

from __future__ import annotations

import logging
import pickle
import random
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from counted_storage import CountedStorage
from faulty_storage import Effect, Fault, FaultyStorage
from pyhudi.conflict.announced import Met
from pyhudi.conflict.file_groups import Footprint
from pyhudi.conflict.rules import ConflictRule, WriteKind
from pyhudi.errors import InvalidRequestError, UnavailableError
from pyhudi.format.files.file_names import FileGroupId, IoType, MarkerName
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.marker_requests import (
    BODY_BYTES_MAX,
    HEAD_BYTES_MAX,
    STORED,
    ServedWrite,
)
from pyhudi.format.timeline.markers import (
    encode_marker_list,
    is_marker_list,
    marker_folder,
    marker_list_path,
    marker_path,
)
from pyhudi.plan.marker_batches import LIST_BYTES
from pyhudi.settings import MarkerService
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.objects.markers import load_markers
from pyhudi.storage.objects.write_fence import raise_fence
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.world import real_world
from pyhudi.write.files.announcing import Stored
from pyhudi.write.files.spec import WriteOverError, WriteSpec, create_marker
from pyhudi.write.markers import batches, client, server
from pyhudi.write.markers.client import ServedMarkers, ServiceAddress
from pyhudi.write.markers.kind import MarkerServiceWarning
from pyhudi.write.markers.lists import ListedMarkers
from pyhudi.write.markers.server import MarkerServer

T = InstantTime("20260102030405678")
TYPE = f"{marker_folder(T)}/MARKERS.type"
OPEN, OVER = Stored(is_open=True), Stored(is_open=False)
FAST = MarkerService(threads=20, batch_ms=2)
MET = Met(
    "20260102030405600",
    WriteKind.WRITE,
    ConflictRule.SAME_FILE_GROUP,
    FileGroupId("p", "a-0"),
    strategy="async_server",
)


def marker(number: int, partition: str = "p") -> MarkerName:
    return MarkerName(f"{partition}/{number:08}-0_0-0-0_{T}.parquet", IoType.CREATE)


@pytest.fixture
def memory() -> MemoryStorage:
    storage = MemoryStorage(real_world().now_ms)
    storage.create(heartbeat_path(T), b"")
    return storage


@contextmanager
def serving(
    storage: Storage, settings: MarkerService = FAST
) -> Iterator[tuple[MarkerServer, ServedMarkers]]:
    service = MarkerServer(storage, T, real_world(), settings)
    announcing = service.start("127.0.0.1", 0, "127.0.0.1")
    try:
        yield service, announcing
    finally:
        service.close()


def names(storage: Storage) -> list[str]:
    folder = marker_folder(T)
    return [stat.path.removeprefix(f"{folder}/") for stat in storage.list(folder)]


def direct_markers(storage: Storage) -> list[str]:
    return [n for n in names(storage) if not is_marker_list(n) and n != "MARKERS.type"]


class SlowStorage(MemoryStorage):
    """Storage that takes as long as it is told to for each change."""

    def __init__(self, seconds: float) -> None:
        super().__init__(real_world().now_ms)
        self.create(heartbeat_path(T), b"")
        self._seconds = seconds

    def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
        time.sleep(self._seconds)
        return super().replace(path, data, etag=etag)


# ---- what tasks get


def test_a_file_may_be_created_once_its_marker_is_stored(memory: MemoryStorage) -> None:
    with serving(memory) as (_, announcing):
        for number in range(3):
            assert announcing.announce(memory, T, marker(number)) == OPEN
            assert load_markers(memory, T) == tuple(map(marker, range(number + 1)))
    assert names(memory) == ["MARKERS.type", "MARKERS0"]
    assert memory.read(TYPE) == b"TIMELINE_SERVER_BASED"


def test_a_marker_that_is_stored_is_not_stored_again(memory: MemoryStorage) -> None:
    storage = CountedStorage(memory)
    with serving(storage.as_storage()) as (_, announcing):
        announcing.announce(memory, T, marker(1))
        with storage.counting() as counts:
            assert announcing.announce(memory, T, marker(1)) == OPEN
        assert not counts


def test_two_hundred_workers_at_once_all_get_their_verdict() -> None:
    storage = CountedStorage(SlowStorage(0.02))
    started = threading.Barrier(200)

    def work(worker: int) -> list[Any]:
        started.wait()
        mine = [marker(n, f"w={worker}") for n in range(4)]
        return [announcing.announce(storage.as_storage(), T, each) for each in mine]

    with (
        serving(storage.as_storage(), MarkerService()) as (service, announcing),
        ThreadPoolExecutor(200) as workers,
    ):
        verdicts = [each for found in workers.map(work, range(200)) for each in found]
        assert verdicts == [OPEN] * 800
        assert len(service.announced().groups) == 800
    assert len(storage.requests) <= 80
    assert len(load_markers(storage.as_storage(), T)) == 800
    assert not direct_markers(storage.as_storage())


def test_a_list_that_has_become_large_is_followed_by_another(memory: MemoryStorage) -> None:
    many = LIST_BYTES // len(encode_marker_list([marker(0)])) // 2 + 1
    with serving(memory) as (_, announcing):
        for first in (0, many, 2 * many):
            some = [marker(first + n) for n in range(many)]
            assert client.ask(announcing.address, some) == STORED
    assert names(memory) == ["MARKERS.type", "MARKERS0", "MARKERS1"]
    assert len(load_markers(memory, T)) == 3 * many


def test_what_tasks_announced_is_known_in_the_driver_at_once() -> None:
    storage = SlowStorage(0.2)
    with serving(storage) as (service, announcing), ThreadPoolExecutor(1) as worker:
        announcing.announce(storage, T, marker(1))
        on_its_way = worker.submit(announcing.announce, storage, T, marker(2))
        while len(service.announced().groups) < 2 and not on_its_way.done():
            time.sleep(0.001)
        assert not on_its_way.done()
        groups = frozenset([marker(1).file_group, marker(2).file_group])
        assert service.announced() == Footprint(groups, groups)
        assert on_its_way.result() == OPEN


def test_a_conflict_that_was_found_reaches_every_task_and_nothing_more_is_stored(
    memory: MemoryStorage,
) -> None:
    with serving(memory) as (service, announcing):
        announcing.announce(memory, T, marker(1))
        service.stop(MET)
        service.stop(replace(MET, rival="20260102030405601"))
        assert announcing.announce(memory, T, marker(2)) == MET
        assert announcing.announce(memory, T, marker(1)) == MET
    assert load_markers(memory, T) == (marker(1),)


# ---- the end of the write


class HeldStorage(MemoryStorage):
    """Storage in which creating a list waits until it is let go."""

    def __init__(self) -> None:
        super().__init__(real_world().now_ms)
        self.is_asked, self.may_go_on = threading.Event(), threading.Event()

    def create(self, path: str, data: bytes) -> bool:
        if path == marker_list_path(T, 0):
            self.is_asked.set()
            assert self.may_go_on.wait(20)
        return super().create(path, data)


def test_a_marker_stored_while_the_write_is_closed_allows_no_file() -> None:
    storage = HeldStorage()
    with serving(storage) as (service, announcing), ThreadPoolExecutor(2) as others:
        late = others.submit(announcing.announce, storage, T, marker(1))
        assert storage.is_asked.wait(20)
        closing = others.submit(service.close)
        while closing.running() and announcing_still_open(service):
            time.sleep(0.001)
        assert not closing.done(), "it waits for what is being stored"
        storage.may_go_on.set()
        assert late.result() == OVER
        closing.result()
    assert load_markers(storage, T) == (marker(1),)


def announcing_still_open(service: MarkerServer) -> bool:
    return service._batches._verdict == STORED


def test_what_waits_when_the_write_is_closed_is_not_stored(memory: MemoryStorage) -> None:
    with (
        serving(memory, MarkerService(batch_ms=60_000)) as (service, announcing),
        ThreadPoolExecutor(1) as other,
    ):
        waits = other.submit(announcing.announce, memory, T, marker(1))
        while not service.announced().groups:
            time.sleep(0.001)
        service.close()
        assert waits.result() == OVER
    assert names(memory) == []


def test_the_driver_can_close_the_write_before_the_service_ends(memory: MemoryStorage) -> None:
    with serving(memory) as (service, announcing):
        service.stop()
        assert announcing.announce(memory, T, marker(1)) == OVER
    assert names(memory) == []


@pytest.mark.parametrize(
    "end",
    [
        lambda storage: raise_fence(storage, T),
        lambda storage: storage.delete(heartbeat_path(T)),
    ],
    ids=["a task refuses", "rolled back by another process"],
)
def test_a_write_that_is_over_in_storage_is_over_for_all_tasks(
    memory: MemoryStorage, end: Callable[[Storage], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "LOOK_MS", 0)
    with serving(memory) as (_, announcing):
        assert announcing.announce(memory, T, marker(1)) == OPEN
        end(memory)
        verdicts = [announcing.announce(memory, T, marker(n)) for n in range(2, 5)]
    assert OVER in verdicts
    assert verdicts[-1] == OVER


def test_a_look_that_fails_closes_nothing(
    memory: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "LOOK_MS", 0)
    storage = FaultyStorage(memory, [Fault(Effect.FAIL, "stat", "*/closed/*", times=None)])
    with serving(storage) as (_, announcing):
        assert [announcing.announce(storage, T, marker(n)) for n in range(3)] == [OPEN] * 3


def test_a_task_of_a_write_that_is_over_stops_before_its_file(memory: MemoryStorage) -> None:
    with serving(memory) as (service, announcing):
        spec = WriteSpec(T, "", is_fenced=True, announcing=announcing)
        create_marker(memory, spec, marker(1).data_file, IoType.CREATE)
        service.stop()
        with pytest.raises(WriteOverError, match="a task of the write"):
            create_marker(memory, spec, marker(2).data_file, IoType.CREATE)


# ---- storage that fails


class WithoutReplace(FaultyStorage):
    """A store that cannot replace."""

    def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
        raise InvalidRequestError("no", why="it cannot", next_step="Leave it")


LISTS = f"{marker_folder(T)}/MARKERS?"


@pytest.mark.parametrize("effect", [Effect.FAIL, Effect.LOSE_REPLY])
@pytest.mark.parametrize("operation", ["create", "replace"])
def test_a_batch_that_storage_does_not_take_is_announced_directly(
    memory: MemoryStorage, effect: Effect, operation: str
) -> None:
    storage = FaultyStorage(memory, [Fault(effect, operation, LISTS)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with serving(storage) as (_, announcing):
            verdicts = [announcing.announce(storage, T, marker(n)) for n in range(4)]
    failed = 0 if operation == "create" else 1
    assert verdicts == [Stored() if n == failed else OPEN for n in range(4)]
    assert direct_markers(memory) == [marker(failed).path]
    assert load_markers(memory, T) == tuple(map(marker, range(4)))


def test_in_a_store_that_cannot_replace_the_service_writes_each_list_once(
    memory: MemoryStorage,
) -> None:
    storage = WithoutReplace(memory)
    with serving(storage) as (_, announcing):
        assert [announcing.announce(storage, T, marker(n)) for n in range(3)] == [OPEN] * 3
    assert direct_markers(memory) == []
    assert load_markers(memory, T) == tuple(map(marker, range(3)))


def test_a_list_that_another_process_changed_is_left_as_it_is(memory: MemoryStorage) -> None:
    with serving(memory) as (_, announcing):
        assert announcing.announce(memory, T, marker(0)) == OPEN
        memory.write(marker_list_path(T, 0), encode_marker_list([marker(0), marker(9)]))
        memory.create(marker_list_path(T, 1), encode_marker_list([marker(8)]))
        assert announcing.announce(memory, T, marker(1)) == OPEN
        memory.delete(marker_list_path(T, 2))
        assert announcing.announce(memory, T, marker(2)) == OPEN
    assert load_markers(memory, T) == tuple(map(marker, (0, 2, 8, 9)))


def test_no_order_of_failures_loses_a_marker_of_a_file_that_may_be_created() -> None:
    for seed in range(40):
        chance = random.Random(seed)
        memory = MemoryStorage(real_world().now_ms)
        memory.create(heartbeat_path(T), b"")
        effects = [
            Fault(effect, None, LISTS, nth=chance.randint(1, 12))
            for effect in (Effect.FAIL, Effect.LOSE_REPLY, Effect.LOSE_REPLY)
        ]
        storage = FaultyStorage(memory, effects)
        allowed = []
        with serving(storage, MarkerService(batch_ms=1)) as (_, announcing):
            for number in range(8):
                verdict = announcing.announce(storage, T, marker(number))
                allowed += [marker(number)] if verdict in (OPEN, Stored()) else []
                assert set(allowed) <= set(load_markers(memory, T)), seed
        assert len(allowed) == 8


# ---- without a service


def test_tasks_of_a_process_that_cannot_reach_it_store_markers_and_warn_once(
    memory: MemoryStorage,
) -> None:
    with serving(memory) as (service, announcing):
        assert announcing.announce(memory, T, marker(0)) == OPEN
        service.close()  # as if the driver's port was gone
        with pytest.warns(MarkerServiceWarning, match="cannot be reached") as caught:
            verdicts = [announcing.announce(memory, T, marker(n)) for n in (1, 2, 3)]
    assert len(caught) == 1
    assert announcing.address.write.token not in str(caught[0].message)
    assert verdicts == [Stored()] * 3, "whether the write is open, the task asks itself"
    assert direct_markers(memory) == [marker(n).path for n in (1, 2, 3)]
    assert load_markers(memory, T) == tuple(map(marker, range(4)))


def deaf(peer: socket.socket) -> None:
    """Say nothing."""


def garbage(peer: socket.socket) -> None:
    peer.sendall(b"\x00\x01 what?\r\n\r\n")


def stranger(peer: socket.socket) -> None:
    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")


def endless(peer: socket.socket) -> None:
    peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (2 << 20))


def impostor(peer: socket.socket) -> None:
    body = b'{"verdict": "conflict", "conflict": "[1]"}'
    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def hangs_up(peer: socket.socket) -> None:
    peer.close()


@pytest.mark.parametrize("answer", [deaf, garbage, stranger, endless, impostor, hangs_up])
def test_what_is_no_marker_service_is_not_believed(
    memory: MemoryStorage, answer: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "REACHED_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as peers:

        def serve() -> None:
            peer = peers.enter_context(listening.accept()[0])
            if answer is not hangs_up:
                peer.recv(1 << 16)
            try:
                answer(peer)
                if answer is endless:
                    peer.close()
            except OSError:
                return  # the client has left

        thread = threading.Thread(target=serve)
        thread.start()
        write = ServedWrite(T, "a" * 64)
        announcing = ServedMarkers(ServiceAddress("127.0.0.1", listening.getsockname()[1], write))
        with pytest.warns(MarkerServiceWarning):
            assert announcing.announce(memory, T, marker(1)) == Stored()
        thread.join()
    assert load_markers(memory, T) == (marker(1),)


def test_the_service_of_another_write_is_not_asked_twice(memory: MemoryStorage) -> None:
    with serving(memory) as (_, announcing):
        address = announcing.address
        other = ServedWrite(T, "b" * 64)
        mistaken = ServedMarkers(ServiceAddress(address.host, address.port, other))
        with pytest.warns(MarkerServiceWarning):
            assert mistaken.announce(memory, T, marker(1)) == Stored()
        assert mistaken.announce(memory, T, marker(2)) == Stored()
    assert direct_markers(memory) == [marker(1).path, marker(2).path]


def test_files_of_another_instant_are_announced_directly(memory: MemoryStorage) -> None:
    later = InstantTime("20260102030405999")
    with serving(memory) as (_, announcing):
        assert announcing.announce(memory, later, marker(1)) == Stored()
    assert memory.stat(marker_path(later, marker(1))) is not None
    assert names(memory) == []


def test_how_to_announce_can_be_sent_and_hides_its_token(memory: MemoryStorage) -> None:
    with serving(memory) as (_, announcing):
        sent = pickle.loads(pickle.dumps(WriteSpec(T, "", announcing=announcing)))
        assert sent.announcing == announcing
        assert announcing.address.write.token not in repr(sent)
        assert sent.announcing.announce(memory, T, marker(1)) == OPEN


def test_a_port_that_is_taken_is_an_error_of_the_system(memory: MemoryStorage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        service = MarkerServer(memory, T, real_world(), FAST)
        with pytest.raises(OSError, match="already in use"):
            service.start("127.0.0.1", taken.getsockname()[1], "127.0.0.1")
        service.close()


# ---- hostile peers


def request(
    address: ServiceAddress, body: bytes, *, token: str | None = None, length: int | None = None
) -> bytes:
    given = address.write.token if token is None else token
    return (
        f"POST /markers/{T} HTTP/1.1\r\nAuthorization: Bearer {given}\r\n"
        f"Content-Length: {len(body) if length is None else length}\r\n\r\n"
    ).encode() + body


Bytes = Callable[[ServiceAddress], bytes]
GOOD = encode_marker_list([marker(1)])
HOSTILE: dict[str, tuple[Bytes, int]] = {
    "no token": (lambda a: b"POST /markers/%s HTTP/1.1\r\n\r\n" % T.encode(), 401),
    "a wrong token": (lambda a: request(a, GOOD, token="b" * 64), 401),
    "a long token": (lambda a: request(a, GOOD, token="b" * 4_000), 401),
    "another write": (lambda a: request(a, GOOD).replace(T.encode(), b"2" * 17, 1), 404),
    "path traversal": (lambda a: request(a, b"../../x/" + GOOD), 400),
    "a long name": (lambda a: request(a, b"p" * 5_000 + b"/" + GOOD), 400),
    "a gigabyte": (lambda a: request(a, b"", length=1 << 30), 413),
    "a gigabyte of a stranger": (lambda a: request(a, b"", token="x", length=1 << 30), 401),
    "more than a body may have": (lambda a: request(a, b"", length=BODY_BYTES_MAX + 1), 413),
    "a head without an end": (lambda a: b"A" * (HEAD_BYTES_MAX + 10), 431),
    "many headers": (lambda a: b"POST / HTTP/1.1\r\n" + b"A: b\r\n" * 4_000, 431),
    "TLS": (lambda a: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "garbage": (lambda a: random.Random(1).randbytes(200) + b"\r\n\r\n", 400),
    "garbage in the body": (lambda a: request(a, random.Random(2).randbytes(200)), 400),
    "another method": (lambda a: request(a, GOOD).replace(b"POST", b"PUT", 1), 405),
}


def answered(address: ServiceAddress, data: bytes) -> bytes:
    with socket.create_connection((address.host, address.port), timeout=20) as peer:
        peer.sendall(data)
        found = b""
        try:
            while more := peer.recv(1 << 16):
                found += more
        except ConnectionResetError:
            pass  # it did not read all that was sent
        return found


@pytest.mark.parametrize("name", HOSTILE)
def test_a_bad_request_is_refused_and_logged_without_a_byte_of_it(
    memory: MemoryStorage, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    data, status = HOSTILE[name]
    with serving(memory) as (_, announcing):
        found = answered(announcing.address, data(announcing.address))
        *_, last = found.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n").split(b"HTTP/1.1 ", 1)
        assert last[:3] == str(status).encode()
        assert announcing.announce(memory, T, marker(7)) == OPEN
        token = announcing.address.write.token
    assert load_markers(memory, T) == (marker(7),)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "127.0.0.1" in caplog.text
    for secret in (token, "b" * 20, "../"):
        assert secret not in caplog.text


def test_a_peer_that_leaves_in_the_middle_is_forgotten(memory: MemoryStorage) -> None:
    with serving(memory) as (_, announcing):
        whole = request(announcing.address, GOOD)
        for cut in range(0, len(whole), 7):
            with socket.create_connection((announcing.address.host, announcing.address.port)) as p:
                p.sendall(whole[:cut])
        assert announcing.announce(memory, T, marker(7)) == OPEN
    assert load_markers(memory, T) == (marker(7),)


def test_a_peer_that_sends_slowly_is_refused_in_time(
    memory: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.2)
    with serving(memory) as (_, announcing):
        address = announcing.address
        for data in (b"POST", request(address, GOOD[:5], length=len(GOOD))):
            found = answered(address, data)
            assert b"HTTP/1.1 408 " in found


def test_peers_that_send_nothing_keep_no_task_waiting(memory: MemoryStorage) -> None:
    with serving(memory) as (_, announcing), ExitStack() as peers:
        address = announcing.address
        slow: Sequence[socket.socket] = [
            peers.enter_context(socket.create_connection((address.host, address.port)))
            for _ in range(server.STRANGERS_MAX + 50)
        ]
        for peer in slow[: len(slow) // 2]:
            try:
                peer.sendall(b"POST")
            except OSError:
                continue  # it was one of the oldest
        began = time.monotonic()
        for number in range(5):
            assert announcing.announce(memory, T, marker(number)) == OPEN
        assert time.monotonic() - began < 2


def test_a_flood_of_refusals_is_counted_and_not_logged_one_by_one(
    memory: MemoryStorage, caplog: pytest.LogCaptureFixture
) -> None:
    many = server.LOGGED_MAX + 15
    with serving(memory) as (_, announcing):
        for _ in range(many):
            answered(announcing.address, b"what?\r\n\r\n")
    assert len(caplog.records) == server.LOGGED_MAX + 1
    assert f"refused {many} requests" in caplog.text


# ---- without tasks elsewhere


def test_a_writer_in_one_process_keeps_lists_without_a_service(memory: MemoryStorage) -> None:
    announcing = ListedMarkers()
    for number in range(5):
        assert announcing.announce(memory, T, marker(number)) == Stored()
        if number == 2:
            memory.delete(marker_list_path(T, 0))
            memory.create(marker_list_path(T, 1), encode_marker_list(map(marker, range(3))))
    assert names(memory) == ["MARKERS.type", "MARKERS1", "MARKERS2"]
    assert load_markers(memory, T) == tuple(map(marker, range(5)))


def test_a_list_of_a_writer_in_one_process_stays_small(memory: MemoryStorage) -> None:
    announcing, long = ListedMarkers(), "/".join(["p" * 200] * 5)
    for number in range(300):
        announcing.announce(memory, T, marker(number, long))
    sizes = [stat.size for stat in memory.list(marker_folder(T))]
    assert len(sizes) >= 4
    assert max(sizes) < LIST_BYTES + 2_000
    assert len(load_markers(memory, T)) == 300


def test_in_a_store_that_cannot_replace_each_list_is_written_once(memory: MemoryStorage) -> None:
    storage, announcing = WithoutReplace(memory), ListedMarkers()
    for number in range(3):
        assert announcing.announce(storage, T, marker(number)) == Stored()
    assert names(memory) == ["MARKERS.type", "MARKERS0", "MARKERS1", "MARKERS2"]
    assert load_markers(memory, T) == tuple(map(marker, range(3)))


def test_a_writer_in_one_process_reports_storage_that_fails(memory: MemoryStorage) -> None:
    storage = FaultyStorage(memory, [Fault(Effect.FAIL, "create", LISTS)])
    with pytest.raises(UnavailableError):
        ListedMarkers().announce(storage, T, marker(1))
