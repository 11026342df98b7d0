"""Heartbeats that are claimed: one owner at a time, and only the owner ends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from pyhudi.errors import InvalidRequestError, UnavailableError
from pyhudi.storage.objects.heartbeats import Heartbeat, heartbeat_path
from pyhudi.storage.objects.store_clock import StoreClock
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.world import World
from worlds import Clock, still_world

INSTANT = "20260101000000000"
PATH = heartbeat_path(INSTANT)
TIMEOUT_MS = 120_000


class Same(FaultyStorage):
    """As S3 has it: the same bytes are the same version."""

    def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
        found = self.stat(path)
        if found is None or found.etag != etag:
            return None
        return self.write(path, data)

    def write(self, path: str, data: bytes) -> str:
        super().write(path, data)
        return repr(data)

    def stat(self, path: str) -> Any:
        found = super().stat(path)
        return None if found is None else replace(found, etag=repr(self.read(path)))


class Unconditional(FaultyStorage):
    """A store that cannot replace."""

    def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
        raise InvalidRequestError("replace failed", why="not supported", next_step="")


class Owner:
    """A process that wants the heartbeat."""

    def __init__(self, storage: Storage, clock: Clock, label: str) -> None:
        self._storage = storage
        self._clock = StoreClock(storage, still_world(clock, label))
        self.beat: Callable[[], None] = lambda: None
        self.heartbeat = Heartbeat(storage, INSTANT)
        self._world = replace(still_world(clock, label), every=self._every)

    def _every(self, interval_ms: int, call: Callable[[], None]) -> Callable[[], None]:
        self.beat = call
        return lambda: setattr(self, "beat", lambda: None)

    @property
    def world(self) -> World:
        return self._world

    def claim(self, timeout_ms: int | None = TIMEOUT_MS) -> bool:
        return self.heartbeat.claim(self._clock, self._world, 60_000, timeout_ms)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=[FaultyStorage, Same, Unconditional])
def storage(request: pytest.FixtureRequest, clock: Clock) -> FaultyStorage:
    made: FaultyStorage = request.param(MemoryStorage(lambda: clock.ms))
    return made


def modified(storage: Storage) -> int:
    found = storage.stat(PATH)
    assert found is not None
    return found.modified_ms


def test_one_of_two_who_claim_gets_it_and_keeps_it_up(storage: FaultyStorage, clock: Clock) -> None:
    one, two = Owner(storage, clock, "one"), Owner(storage, clock, "two")
    assert one.claim()
    assert not two.claim()
    for _ in range(3):
        clock.sleep(TIMEOUT_MS)
        one.beat()
        assert modified(storage) == clock.ms
        assert not two.claim()
    one.heartbeat.end()
    assert storage.stat(PATH) is None
    one.beat()
    assert storage.stat(PATH) is None
    assert two.claim()


def test_a_silent_owner_has_a_successor_and_takes_nothing_from_him(
    storage: FaultyStorage, clock: Clock
) -> None:
    one, two = Owner(storage, clock, "one"), Owner(storage, clock, "two")
    assert one.claim()
    clock.sleep(TIMEOUT_MS + 1)
    assert two.claim()
    taken_over = modified(storage)
    clock.sleep(1_000)
    one.beat()  # it wakes up
    one.beat()
    one.heartbeat.end()
    assert modified(storage) == taken_over
    two.beat()
    assert modified(storage) == clock.ms
    two.heartbeat.end()
    assert storage.stat(PATH) is None


def test_of_two_who_find_an_old_one_at_once_one_takes_it_over(clock: Clock) -> None:
    inner = MemoryStorage(lambda: clock.ms)
    inner.write(PATH, b"")  # as Hudi leaves it
    clock.sleep(TIMEOUT_MS + 1)
    two = Owner(Same(inner), clock, "two")
    answers: list[bool] = []

    class Slow(Same):
        def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
            answers.append(two.claim())
            return super().replace(path, data, etag=etag)

    assert not Owner(Slow(inner), clock, "one").claim()
    assert answers == [True]


def test_who_is_told_to_goes_on_beside_another_and_is_the_owner_then(
    storage: FaultyStorage, clock: Clock
) -> None:
    one, two = Owner(storage, clock, "one"), Owner(storage, clock, "two")
    assert one.claim()
    assert two.claim(timeout_ms=None)
    one.heartbeat.end()
    assert storage.stat(PATH) is not None


@pytest.mark.parametrize("operation", ["create", "replace"])
def test_a_claim_whose_reply_is_lost_is_still_a_claim(clock: Clock, operation: str) -> None:
    """The client repeats the request by itself, and finds its own first try."""
    inner = MemoryStorage(lambda: clock.ms)
    if operation == "replace":
        inner.write(PATH, b"")
        clock.sleep(TIMEOUT_MS + 1)

    class Repeating(FaultyStorage):
        def create(self, path: str, data: bytes) -> bool:
            return super().create(path, data) and operation != "create"

        def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
            super().replace(path, data, etag=etag)
            return None

    one = Owner(Repeating(inner), clock, "one")
    assert one.claim()
    assert not Owner(inner, clock, "two").claim()


def test_a_create_that_nobody_knows_the_end_of_is_looked_up(clock: Clock) -> None:
    """As S3 answers one of two who create at once."""
    inner = MemoryStorage(lambda: clock.ms)
    assert Owner(inner, clock, "one").claim()
    failing = FaultyStorage(inner, [Fault(Effect.FAIL, "create")])
    assert not Owner(failing, clock, "two").claim()
    inner.delete(PATH)
    failing = FaultyStorage(inner, [Fault(Effect.FAIL, "create")])
    with pytest.raises(UnavailableError):
        Owner(failing, clock, "three").claim()


def test_the_heartbeat_of_a_write_is_empty_and_anybody_of_the_write_ends_it(
    storage: FaultyStorage, clock: Clock
) -> None:
    """A detached write is completed by another process than the one that beat."""
    one = Owner(storage, clock, "one")
    one.heartbeat.start(one.world, 60_000)
    assert storage.read(PATH) == b""
    clock.sleep(1_000)
    one.beat()
    assert modified(storage) == clock.ms
    Heartbeat(storage, INSTANT).end()
    assert storage.stat(PATH) is None
