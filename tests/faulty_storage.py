"""Storage that fails on purpose, for tests of everything that stands on storage.

A plan is a tuple of faults, and each fault says which calls it strikes: the nth, among those that
match an operation and a path, and how many from there on. Nothing is left to chance or to
threads, so the same calls meet the same faults.

A crash needs no fault of its own. To the world a process that dies before its nth operation is
one whose every operation from the nth fails: `Fault(FAIL, nth=n, times=None)`. One that dies after
it also loses that reply: `Fault(LOSE_REPLY, nth=n)` beside the former with `nth=n + 1`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TypeVar

import pyarrow as pa

from pyhudi.errors import UnavailableError
from pyhudi.storage.protocol import Folder, ObjectStat, Storage
from pyhudi.storage.stores.memory import listing, one_level

_T = TypeVar("_T")


class Effect(StrEnum):
    """What a fault does to a call."""

    FAIL = "fail"  # raises and does nothing
    LOSE_REPLY = "lose reply"  # does it, then raises
    TEAR = "tear"  # writes a prefix of the data, then raises
    DELAY = "delay"  # sleeps first
    STALE = "stale"  # lists without the newest changes
    LIE = "lie"  # a conditional write that overwrites, and says it won


_CONDITIONAL = frozenset({"create", "create_from", "replace"})
_STRIKES = {
    Effect.TEAR: _CONDITIONAL | {"write"},
    Effect.STALE: frozenset({"list", "list_folder"}),
    Effect.LIE: _CONDITIONAL,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One effect, and the calls it strikes."""

    effect: Effect
    operation: str | None = None  # a method of Storage; None is any the effect makes sense for
    path: str = "*"  # a pattern, in which * also matches slashes
    nth: int = 1  # among the calls that match, counted from 1
    times: int | None = 1  # calls struck, from the nth on; None is for ever
    keep_bytes: int = 0  # TEAR: length of the prefix
    delay_ms: int = 0  # DELAY
    behind: int = 1  # STALE: newest changes the listing does not know

    def matches(self, operation: str, path: str) -> bool:
        return (
            self.operation in (None, operation)
            and operation in _STRIKES.get(self.effect, {operation})
            and fnmatchcase(path, self.path)
        )

    def strikes(self, match: int) -> bool:
        """Whether the call that matches for this many times, itself counted, is struck."""
        return self.nth <= match and (self.times is None or match < self.nth + self.times)


@dataclass(frozen=True, slots=True)
class Operation:
    """A call that reached storage: the method's name, and the path or prefix."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Change:
    """What a call changed: the object as it was before, None if there was none."""

    path: str
    before: ObjectStat | None


Changes = list[Change]


class FaultyStorage:
    """Another storage, with faults.

    `trace` holds every call made through it. `changes` is what stale listings are behind by:
    give several wrappers of one storage the same list, and each can miss the others' changes.
    """

    def __init__(
        self,
        inner: Storage,
        plan: Sequence[Fault] = (),
        *,
        sleep_ms: Callable[[int], None] = lambda _: None,
        changes: Changes | None = None,
    ) -> None:
        self.trace: list[Operation] = []
        self.changes: Changes = [] if changes is None else changes
        self._inner = inner
        self._plan = tuple(plan)
        self._matches = [0] * len(self._plan)
        self._sleep_ms = sleep_ms

    @property
    def uri(self) -> str:
        return self._inner.uri

    def create(self, path: str, data: bytes) -> bool:
        def perform(struck: _Struck) -> bool:
            kept = struck.torn(data)
            if Effect.LIE in struck:
                return bool(self._inner.write(path, kept))
            return self._inner.create(path, kept)

        return self._run("create", path, perform)

    def create_from(self, path: str, chunks: Iterable[bytes]) -> int | None:
        def perform(struck: _Struck) -> int | None:
            if not struck.keys() & {Effect.TEAR, Effect.LIE}:
                return self._inner.create_from(path, chunks)
            data = struck.torn(b"".join(chunks))
            if Effect.LIE in struck:
                self._inner.write(path, data)
                return len(data)
            return self._inner.create_from(path, (data,))

        return self._run("create_from", path, perform)

    def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
        def perform(struck: _Struck) -> str | None:
            kept = struck.torn(data)
            if Effect.LIE in struck:
                return self._inner.write(path, kept)
            return self._inner.replace(path, kept, etag=etag)

        return self._run("replace", path, perform)

    def write(self, path: str, data: bytes) -> str:
        return self._run("write", path, lambda struck: self._inner.write(path, struck.torn(data)))

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        return self._run("read", path, lambda _: self._inner.read(path, start, end))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        return self._run("read_ranges", path, lambda _: self._inner.read_ranges(path, ranges))

    def stat(self, path: str) -> ObjectStat | None:
        return self._run("stat", path, lambda _: self._inner.stat(path))

    def stat_all(self, paths: Sequence[str]) -> Sequence[ObjectStat | None]:
        return [self.stat(path) for path in paths]

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
        def perform(struck: _Struck) -> Iterator[ObjectStat]:
            if stale := struck.get(Effect.STALE):
                return iter(self._stale_listing(prefix, after, stale.behind))
            return self._inner.list(prefix, after=after)

        return self._run("list", prefix, perform)

    def list_folder(self, prefix: str) -> Folder:
        def perform(struck: _Struck) -> Folder:
            if stale := struck.get(Effect.STALE):
                return one_level(self._stale_listing(prefix, None, stale.behind), prefix)
            return self._inner.list_folder(prefix)

        return self._run("list_folder", prefix, perform)

    def delete(self, path: str) -> None:
        self._run("delete", path, lambda _: self._inner.delete(path))

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def open(self, path: str) -> pa.NativeFile:
        return self._run("open", path, lambda _: self._inner.open(path))

    def _run(self, name: str, path: str, perform: Callable[[_Struck], _T]) -> _T:
        self.trace.append(Operation(name, path))
        struck = self._struck(name, path)
        if delay := struck.get(Effect.DELAY):
            self._sleep_ms(delay.delay_ms)
        if Effect.FAIL in struck:
            raise _failure(name, path, Effect.FAIL)
        with self._recording(name, path):
            answer = perform(struck)
        for effect in (Effect.TEAR, Effect.LOSE_REPLY):
            if effect in struck:
                raise _failure(name, path, effect)
        return answer

    def _struck(self, name: str, path: str) -> _Struck:
        struck = _Struck()
        for place, fault in enumerate(self._plan):
            if fault.matches(name, path):
                self._matches[place] += 1
                if fault.strikes(self._matches[place]):
                    struck[fault.effect] = fault
        return struck

    @contextlib.contextmanager
    def _recording(self, name: str, path: str) -> Iterator[None]:
        if name not in _CONDITIONAL | {"write", "delete"}:
            yield
            return
        before = self._inner.stat(path)
        yield
        if self._inner.stat(path) != before:
            self.changes.append(Change(path, before))

    def _stale_listing(self, prefix: str, after: str | None, behind: int) -> Sequence[ObjectStat]:
        known: dict[str, ObjectStat | None] = {s.path: s for s in self._inner.list("")}
        newest = self.changes[max(0, len(self.changes) - behind) :]
        for change in reversed(newest):
            known[change.path] = change.before
        return listing((found for found in known.values() if found), prefix, after)


class _Struck(dict[Effect, Fault]):
    """The faults that strike one call, by effect."""

    def torn(self, data: bytes) -> bytes:
        return data[: self[Effect.TEAR].keep_bytes] if Effect.TEAR in self else data


def _failure(name: str, path: str, effect: Effect) -> UnavailableError:
    return UnavailableError(
        f"{name} of {path!r} failed",
        why=f"a fault was injected ({effect})",
        next_step="Repeat the call",
    )
