"""The shared storage as one simulated process sees it: a yield point, perhaps a fault, the call.

A request that is in transit when its caller fails or crashes is an actor of its own. It arrives
when chosen, whatever has happened to the process that sent it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from pyhudi.errors import UnavailableError
from pyhudi.simulate.faults import CHANGES, WRITES, Effect, Fault
from pyhudi.simulate.trace import content_text, outcome_text
from pyhudi.storage.protocol import Folder, ObjectStat
from pyhudi.storage.stores.memory import MemoryStorage, listing, one_level

if TYPE_CHECKING:
    from pyhudi.simulate.simulation import Process

_T = TypeVar("_T")
#: A call of the real storage, which may have to know what fault strikes it.
_Perform = Callable[[Fault | None], _T]


class SharedObjects:
    """The objects of a simulation, and what a listing showed before the newest change."""

    def __init__(self, storage: MemoryStorage, *, may_be_stale: bool) -> None:
        self.storage = storage
        self.earlier: Sequence[ObjectStat] = ()
        self._may_be_stale = may_be_stale

    def about_to_change(self) -> None:
        if self._may_be_stale:
            self.earlier = tuple(self.storage.list(""))


class SimulatedStorage:
    """A `Storage` for one process; all processes share the objects."""

    def __init__(self, process: Process, shared: SharedObjects) -> None:
        self._process = process
        self._scheduler = process.scheduler
        self._shared = shared
        self._inner = shared.storage
        self._full_until_ms = 0
        self._out_until_ms = 0

    @property
    def uri(self) -> str:
        return self._inner.uri

    def create(self, path: str, data: bytes) -> bool:
        return self._put("create", path, data, lambda kept: self._inner.create(path, kept))

    def create_from(self, path: str, chunks: Iterable[bytes]) -> int | None:
        # Making the chunks may itself call storage; those calls come before this one.
        data = b"".join(chunks)
        return self._put(
            "create_from", path, data, lambda kept: self._inner.create_from(path, [kept])
        )

    def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
        return self._put(
            "replace", path, data, lambda kept: self._inner.replace(path, kept, etag=etag)
        )

    def write(self, path: str, data: bytes) -> str:
        return self._put("write", path, data, lambda kept: self._inner.write(path, kept))

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        return self._run("read", path, lambda _: self._inner.read(path, start, end))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        return self._run("read_ranges", path, lambda _: self._inner.read_ranges(path, ranges))

    def stat(self, path: str) -> ObjectStat | None:
        return self._run("stat", path, lambda _: self._inner.stat(path))

    def stat_all(self, paths: Sequence[str]) -> Sequence[ObjectStat | None]:
        return [self.stat(path) for path in paths]

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
        def perform(fault: Fault | None) -> Sequence[ObjectStat]:
            return self._listing(prefix, after, fault)

        return iter(self._run("list", prefix, perform, after=after or ""))

    def list_folder(self, prefix: str) -> Folder:
        def perform(fault: Fault | None) -> Folder:
            return one_level(self._listing(prefix, None, fault), prefix)

        return self._run("list_folder", prefix, perform)

    def delete(self, path: str) -> None:
        self._run("delete", path, lambda _: self._inner.delete(path))

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def open(self, path: str) -> pa.NativeFile:
        return self._run("open", path, lambda _: self._inner.open(path))

    def _put(self, operation: str, path: str, data: bytes, put: Callable[[bytes], _T]) -> _T:
        def perform(fault: Fault | None) -> _T:
            torn = fault is not None and fault.effect is Effect.TEAR
            return put(data[: len(data) // 2] if torn else data)

        return self._run(operation, path, perform, data=data)

    def _listing(self, prefix: str, after: str | None, fault: Fault | None) -> Sequence[ObjectStat]:
        if fault is not None and fault.effect is Effect.STALE:
            return listing(self._shared.earlier, prefix, after)
        found = tuple(self._inner.list(prefix, after=after))
        if fault is not None and fault.effect is Effect.SPLIT and len(found) > 1:
            page = found[: len(found) // 2]
            self._scheduler.again()
            return (*page, *self._inner.list(prefix, after=page[-1].path))
        return found

    def _run(
        self,
        operation: str,
        path: str,
        perform: _Perform[_T],
        *,
        after: str = "",
        data: bytes | None = None,
    ) -> _T:
        self._scheduler.before(self._process.life, operation, path, after)
        fault = self._process.fault_at(operation)

        def performed() -> _T:
            return self._performed(operation, path, lambda: perform(fault), data)

        if fault is not None:
            self._scheduler.record(operation, path, f"fault: {fault.effect} {fault.ms}")
            self._before(fault, operation, path, performed)
        self._check_reachable(operation, path)
        answer = performed()
        if fault is not None:
            self._afterwards(fault, operation, path)
        return answer

    def _performed(
        self, operation: str, path: str, perform: Callable[[], _T], data: bytes | None
    ) -> _T:
        if operation in CHANGES:
            self._shared.about_to_change()
        try:
            answer = perform()
        except Exception as error:
            self._scheduler.record(operation, path, type(error).__name__)
            raise
        text = outcome_text(answer)
        self._scheduler.record(
            operation, path, text if data is None else f"{text}, {content_text(data)}"
        )
        return answer

    def _before(
        self, fault: Fault, operation: str, path: str, performed: Callable[[], object]
    ) -> None:
        """Apply what the fault does instead of the operation, or ahead of it."""
        process, now_ms = self._process, self._scheduler.now_ms
        match fault.effect:
            case Effect.CRASH_BEFORE:
                process.crash()
            case Effect.CRASH_DURING:
                process.send_late(operation, path, performed, fault.ms)
                process.crash()
            case Effect.LATE:
                process.send_late(operation, path, performed, fault.ms)
                raise _failure(operation, path, fault)
            case Effect.FREEZE:
                process.freeze(fault.ms)
            case Effect.DELAY:
                self._scheduler.sleep(process.life, fault.ms, operation, path)
            case Effect.CLOCK_STEP:
                process.step_clock(fault.ms)
            case Effect.FULL:
                self._full_until_ms = now_ms + fault.ms
            case Effect.OUTAGE:
                self._out_until_ms = now_ms + fault.ms
            case Effect.REPEAT:
                performed()
                self._scheduler.again()
        if fault.effect in _FAILS or self._fails_torn(fault):
            raise _failure(operation, path, fault)

    def _fails_torn(self, fault: Fault) -> bool:
        return fault.effect is Effect.TEAR and not self._process.keeps_torn

    def _afterwards(self, fault: Fault, operation: str, path: str) -> None:
        if fault.effect is Effect.CRASH_AFTER:
            self._process.crash()
        if fault.effect in (Effect.LOSE_REPLY, Effect.TEAR):
            raise _failure(operation, path, fault)

    def _check_reachable(self, operation: str, path: str) -> None:
        now_ms = self._scheduler.now_ms
        if now_ms < self._out_until_ms:
            raise _unavailable(operation, path, "the store does not answer for a while")
        if now_ms < self._full_until_ms and operation in WRITES:
            raise _unavailable(operation, path, "there is no space left for a while")


_FAILS = frozenset({Effect.FAIL, Effect.FULL, Effect.OUTAGE})


def _failure(operation: str, path: str, fault: Fault) -> UnavailableError:
    return _unavailable(operation, path, f"a fault was injected ({fault.effect})")


def _unavailable(operation: str, path: str, why: str) -> UnavailableError:
    return UnavailableError(f"{operation} of {path!r} failed", why=why, next_step="Repeat the call")
