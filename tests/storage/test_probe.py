"""Stores that let exactly one writer win, and stores that only say so."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from locking_world import START_MS, Universe
from pyhudi.errors import InvalidRequestError, UnavailableError, UnsupportedTableError
from pyhudi.storage.probe import (
    PROBE_FOLDER,
    RaceResult,
    creation,
    raced,
    replacement,
    verify_atomic_create,
    verify_atomic_replace,
)
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.world import World

THREADS = 4
GAP_S = 10  # a racer that is alone in the gap would wait for ever

Require = Callable[[Storage, World], None]


@pytest.fixture
def world() -> World:
    return Universe().world()


class LyingStorage(MemoryStorage):
    """A server that looks, and puts after a gap in which all others look too."""

    def __init__(self, *lies: str, racers: int = THREADS) -> None:
        super().__init__(lambda: START_MS, uri=f"s3://liar-{uuid.uuid4().hex}/table")
        self._lies = lies
        self._gap = threading.Barrier(racers, timeout=GAP_S)
        self.requests = 0

    def create(self, path: str, data: bytes) -> bool:
        self.requests += 1
        if "create" not in self._lies:
            return super().create(path, data)
        is_free = self.stat(path) is None
        self._gap.wait()
        return is_free and bool(self.write(path, data))

    def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
        self.requests += 1
        if "replace" not in self._lies:
            return super().replace(path, data, etag=etag)
        found = self.stat(path)
        self._gap.wait()
        return self.write(path, data) if found is not None and found.etag == etag else None


class MisplacingStorage(LyingStorage):
    """A server that names one winner, and lets a loser's bytes replace the winner's."""

    def create(self, path: str, data: bytes) -> bool:
        won = super().create(path, data)
        if not won:
            self.write(path, data)
        return won


class RefusingStorage(LyingStorage):
    """A server that lets nobody win."""

    def create(self, path: str, data: bytes) -> bool:
        return False


class ForgetfulStorage(LyingStorage):
    """A server whose winner never hears of it: its client repeats the request and loses to it."""

    def __init__(self, *, every_time: bool = True) -> None:
        super().__init__()
        self._every_time = every_time
        self._rounds: set[str] = set()

    def create(self, path: str, data: bytes) -> bool:
        won = super().create(path, data)
        is_first = not self._rounds
        self._rounds.add(path)
        return won and not (self._every_time or is_first)


def left_behind(storage: Storage) -> list[str]:
    return [stat.path for stat in storage.list(PROBE_FOLDER)]


@pytest.mark.parametrize(("threads", "rounds"), [(2, 1), (8, 3)])
def test_true_store_lets_one_win_each_round(
    storage: Storage, world: World, threads: int, rounds: int
) -> None:
    for prepare in (creation, replacement):
        result = raced(storage, world, prepare, threads=threads, rounds=rounds)
        assert result == RaceResult((1,) * rounds, True)
        assert result.is_true
    assert left_behind(storage) == []


@pytest.mark.parametrize(
    ("lies", "creates_ok", "replaces_ok"),
    [
        ((), True, True),
        (("create",), False, True),
        (("replace",), True, False),
        (("create", "replace"), False, False),
    ],
)
def test_race_finds_out_what_one_request_after_another_does_not(
    world: World, lies: tuple[str, ...], creates_ok: bool, replaces_ok: bool
) -> None:
    alone = LyingStorage(*lies, racers=1)
    assert alone.create("a", b"1")
    assert not alone.create("a", b"2")
    etag = alone.write("b", b"1")
    assert alone.replace("b", b"2", etag=etag)
    assert not alone.replace("b", b"3", etag=etag)

    liar = LyingStorage(*lies)
    creates = raced(liar, world, creation, threads=THREADS, rounds=3)
    replaces = raced(liar, world, replacement, threads=THREADS, rounds=3)
    assert (creates.is_true, replaces.is_true) == (creates_ok, replaces_ok)
    assert creates.winners == (1 if creates_ok else THREADS,) * 3
    assert replaces.winners == (1 if replaces_ok else THREADS,) * 3
    assert left_behind(liar) == []


def test_winner_whose_bytes_are_gone_is_a_lie(world: World) -> None:
    result = raced(MisplacingStorage(), world, creation, threads=THREADS, rounds=3)
    assert result == RaceResult((1, 1, 1), False)
    assert not result.is_true


def test_store_that_lets_nobody_win_is_not_true(world: World) -> None:
    result = raced(RefusingStorage(), world, creation, threads=THREADS, rounds=2)
    assert result.winners == (0, 0)
    assert not result.is_true


def test_round_without_an_answer_is_run_again(world: World) -> None:
    result = raced(ForgetfulStorage(every_time=False), world, creation, threads=THREADS, rounds=3)
    assert result == RaceResult((1, 1, 1), True)


def test_store_that_never_tells_the_winner_is_not_judged(world: World) -> None:
    storage = ForgetfulStorage()
    with pytest.raises(UnavailableError, match="only 0 of 6 races had an answer"):
        raced(storage, world, creation, threads=THREADS, rounds=3)
    assert left_behind(storage) == []


@pytest.mark.parametrize("effect", [Effect.FAIL, Effect.LOSE_REPLY])
def test_store_that_does_not_answer_is_not_judged(world: World, effect: Effect) -> None:
    memory = MemoryStorage(lambda: START_MS)
    storage = FaultyStorage(memory, [Fault(effect, "create", times=None)])
    with pytest.raises(UnavailableError, match="only 0 of 4 races"):
        raced(storage, world, creation, threads=1, rounds=2)
    assert left_behind(memory) == []


def test_refusal_of_the_store_is_passed_on(world: World) -> None:
    class Forbidding(LyingStorage):
        def create(self, path: str, data: bytes) -> bool:
            raise InvalidRequestError("no", why="forbidden", next_step="Ask for permission")

    with pytest.raises(InvalidRequestError, match="forbidden"):
        raced(Forbidding(), world, creation, threads=THREADS, rounds=2)


def test_scratch_objects_that_cannot_be_deleted_do_not_spoil_the_verdict(world: World) -> None:
    memory = MemoryStorage(lambda: START_MS)
    storage = FaultyStorage(memory, [Fault(Effect.FAIL, "delete", times=None)])
    assert raced(storage, world, creation, threads=1, rounds=1).is_true
    assert all(path.startswith(".hoodie/.pyhudi/probe/") for path in left_behind(memory))


@pytest.mark.parametrize("require", [verify_atomic_create, verify_atomic_replace])
def test_true_store_is_asked_once_per_bucket(world: World, require: Require) -> None:
    storage = LyingStorage()
    require(storage, world)
    asked = storage.requests
    assert asked >= 320
    require(storage, world)
    assert storage.requests == asked
    require(LyingStorage(), world)
    neighbour = LyingStorage()
    neighbour._uri = f"{storage.uri}/of/another/name"
    require(neighbour, world)
    assert neighbour.requests == 0


@pytest.mark.parametrize(
    ("require", "lie"), [(verify_atomic_create, "create"), (verify_atomic_replace, "replace")]
)
def test_liar_is_refused_by_name_each_time_until_it_is_repaired(
    world: World, require: Require, lie: str
) -> None:
    storage = LyingStorage(lie, racers=32)
    bucket = storage.uri.removesuffix("/table")
    for _ in range(2):
        with pytest.raises(UnsupportedTableError) as caught:
            require(storage, world)
        assert caught.value.what == f"{bucket} cannot hold a table with several writers"
        assert f"a conditional {lie}: up to 32 of 32 writers" in caught.value.why
        assert caught.value.next_step.startswith("Use a store that enforces conditional writes")
    storage._lies = ()
    require(storage, world)


@pytest.mark.parametrize(
    ("storage", "why"),
    [
        (MisplacingStorage(), "it did not hold the winner's bytes"),
        (RefusingStorage(), "none of 32 writers that raced for one object won"),
    ],
)
def test_other_lies_are_told_apart(world: World, storage: Storage, why: str) -> None:
    with pytest.raises(UnsupportedTableError, match=why):
        verify_atomic_create(storage, world)


def test_store_that_lies_about_replacing_may_be_used_for_creating(world: World) -> None:
    verify_atomic_create(LyingStorage("replace", racers=32), world)


@pytest.mark.parametrize("uri", ["file:///tables/a", "memory://a"])
@pytest.mark.parametrize("require", [verify_atomic_create, verify_atomic_replace])
def test_local_disk_and_memory_need_no_probe(world: World, uri: str, require: Require) -> None:
    storage = FaultyStorage(MemoryStorage(lambda: START_MS, uri=uri))
    require(storage, world)
    assert storage.trace == []


def test_moto_passes_as_the_probe_would_ask_a_real_store(s3: Storage, world: World) -> None:
    verify_atomic_create(s3, world)
    assert left_behind(s3) == []
