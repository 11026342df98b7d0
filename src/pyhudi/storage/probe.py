"""The atomicity check: does a store let exactly one of several writers win? A race finds out.

Everything that concurrent writers do relies on `create`, and the storage lock on `replace`. Some
servers answer both correctly for one request after another, and let several writers win when
requests come at once: they look whether the object exists, and then put it. Only a race shows that.
So this is, beside `pyhudi.world`, the one module that starts threads; its result is about the store
alone, and no simulated run comes here.

A round is a race for one object. It speaks for the store if one writer won and its bytes are there,
and against it if more than one won, if the bytes are not the winner's, or if all were refused. It
says nothing if no writer won but an answer was lost, and one more is run. (No writer wins, too,
when a client repeats by itself the request whose answer was lost: the bytes show that.)

**Local disk and memory need no check**: `link` and a dictionary behind a lock decide there, in our
own code, which the tests race.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyhudi.errors import HudiError, UnavailableError, UnsupportedTableError
from pyhudi.storage.protocol import Storage
from pyhudi.world import World, new_uuid

PROBE_FOLDER = ".hoodie/.pyhudi/probe"

_THREADS = 32
_ROUNDS = 10
_BODY_BYTES = 16 << 10  # a longer body keeps the gap of a non-atomic store open for longer

_START_S = 60  # for the threads to start; if one were missing, the others would wait for ever

_ATOMIC_BY_CONSTRUCTION = frozenset({"file", "memory"})

#: Prepares a race for the path, and returns what each of the racers does with its bytes.
_Preparation = Callable[[Storage, str], Callable[[bytes], bool]]


@dataclass(frozen=True, slots=True)
class RaceResult:
    """The winners of each decided round, and whether the bytes were always theirs."""

    winners: tuple[int, ...]
    bodies_are_the_winners: bool

    @property
    def is_true(self) -> bool:
        return self.bodies_are_the_winners and set(self.winners) == {1}


_found_true: set[tuple[str, str]] = set()  # what was raced for, and the bucket


def verify_atomic_create(storage: Storage, world: World) -> None:
    """Raise UnsupportedTableError if the store lets several writers create one object.

    Checked once per bucket and process. A refusal is not remembered: the store may be repaired.
    """
    _require("create", creation, storage, world)


def verify_atomic_replace(storage: Storage, world: World) -> None:
    """Check as `verify_atomic_create` does, for replacing a version; the storage lock needs it."""
    _require("replace", replacement, storage, world)


def is_atomic_by_construction(storage: Storage) -> bool:
    """True if conditional writes of the storage are our own code."""
    return storage.uri.partition(":")[0] in _ATOMIC_BY_CONSTRUCTION


def _require(operation: str, prepare: _Preparation, storage: Storage, world: World) -> None:
    bucket = "/".join(storage.uri.split("/")[:3])  # scheme, nothing, and host or bucket
    if is_atomic_by_construction(storage) or (operation, bucket) in _found_true:
        return
    result = raced(storage, world, prepare, threads=_THREADS, rounds=_ROUNDS)
    if not result.is_true:
        raise _lie(operation, bucket, result)
    _found_true.add((operation, bucket))


def _lie(operation: str, bucket: str, result: RaceResult) -> UnsupportedTableError:
    most = max(result.winners)
    if most > 1:
        found = f"up to {most} of {_THREADS} writers that raced for one object won by its answers"
    elif result.bodies_are_the_winners:
        found = f"none of {_THREADS} writers that raced for one object won"
    else:
        found = "after a race for one object it did not hold the winner's bytes"
    return UnsupportedTableError(
        f"{bucket} cannot hold a table with several writers",
        why=f"the store does not keep its promise of a conditional {operation}: {found}",
        next_step="Use a store that enforces conditional writes, or update this one",
    )


def creation(storage: Storage, path: str) -> Callable[[bytes], bool]:
    return lambda body: storage.create(path, body)


def replacement(storage: Storage, path: str) -> Callable[[bytes], bool]:
    etag = storage.write(path, b"the version to replace")
    return lambda body: storage.replace(path, body, etag=etag) is not None


def raced(
    storage: Storage, world: World, prepare: _Preparation, *, threads: int, rounds: int
) -> RaceResult:
    """Return that many decided rounds, out of at most twice as many."""
    winners: list[int] = []
    are_theirs = True
    with ThreadPoolExecutor(threads) as pool, _scratch_folder(storage, world) as folder:
        for number in range(2 * rounds):
            path = f"{folder}/{number}"
            bodies = [_body(number, racer) for racer in range(threads)]
            answers = _answers(pool, prepare(storage, path), bodies)
            won = [body for body, answer in zip(bodies, answers, strict=True) if answer]
            stored = _stored(storage, path)
            if won or (None not in answers and stored not in bodies):
                winners.append(len(won))
                are_theirs &= not won or stored in won
            if len(winners) == rounds:
                return RaceResult(tuple(winners), are_theirs)
    raise UnavailableError(
        f"{storage.uri} could not be checked for conditional writes",
        why=f"only {len(winners)} of {2 * rounds} races had an answer",
        next_step="Repeat the call when the store answers again",
    )


def _body(number: int, racer: int) -> bytes:
    return f"round {number}, racer {racer}\n".encode().ljust(_BODY_BYTES, b".")


def _answers(
    pool: ThreadPoolExecutor, act: Callable[[bytes], bool], bodies: Sequence[bytes]
) -> Sequence[bool | None]:
    """Return the answer to each racer, all started together; None for a lost answer."""
    start = threading.Barrier(len(bodies), timeout=_START_S)

    def race(body: bytes) -> bool | None:
        with contextlib.suppress(UnavailableError, threading.BrokenBarrierError):
            start.wait()
            return act(body)
        return None

    return list(pool.map(race, bodies))


def _stored(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path)
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _scratch_folder(storage: Storage, world: World) -> Iterator[str]:
    folder = f"{PROBE_FOLDER}/{new_uuid(world)}"
    try:
        yield folder
    finally:
        with contextlib.suppress(HudiError):  # a few small objects, which no process reads
            for stat in list(storage.list(folder)):
                storage.delete(stat.path)
