"""Storage in this process's memory: for tests, simulations and tables that need not last."""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pyhudi.storage.paths import table_folder, table_path
from pyhudi.storage.protocol import Folder, ObjectStat


@dataclass(frozen=True, slots=True)
class _Stored:
    data: bytes
    stat: ObjectStat


class MemoryStorage:
    """Objects in a dictionary; safe to share among threads.

    Deterministic: etags count up from 1 and times come from the clock that is passed in, so the
    same calls give the same answers.
    """

    def __init__(self, now_ms: Callable[[], int], *, uri: str = "memory://") -> None:
        self._now_ms = now_ms
        self._uri = uri
        self._objects: dict[str, _Stored] = {}
        self._paths: list[str] = []  # of all objects, in order
        self._etags = itertools.count(1)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"MemoryStorage({self._uri!r})"

    @property
    def uri(self) -> str:
        return self._uri

    def create(self, path: str, data: bytes) -> bool:
        with self._lock:
            if table_path(path) in self._objects:
                return False
            self._put(path, data)
            return True

    def create_from(self, path: str, chunks: Iterable[bytes]) -> int | None:
        table_path(path)
        data = b"".join(chunks)
        return len(data) if self.create(path, data) else None

    def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
        with self._lock:
            stored = self._objects.get(table_path(path))
            if stored is None or stored.stat.etag != etag:
                return None
            return self._put(path, data)

    def write(self, path: str, data: bytes) -> str:
        with self._lock:
            return self._put(table_path(path), data)

    def _put(self, path: str, data: bytes) -> str:
        etag = str(next(self._etags))
        stat = ObjectStat(path, len(data), etag, self._now_ms())
        if path not in self._objects:
            insort(self._paths, path)
        self._objects[path] = _Stored(bytes(data), stat)
        return etag

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        assert 0 <= start <= (start if end is None else end)
        return self._stored(path).data[start:end]

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        return [self.read(path, start, end) for start, end in ranges]

    def _stored(self, path: str) -> _Stored:
        with self._lock:
            stored = self._objects.get(table_path(path))
        if stored is None:
            raise FileNotFoundError(path)
        return stored

    def stat(self, path: str) -> ObjectStat | None:
        with self._lock:
            stored = self._objects.get(table_path(path))
        return None if stored is None else stored.stat

    def stat_all(self, paths: Sequence[str]) -> Sequence[ObjectStat | None]:
        return [self.stat(path) for path in paths]

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
        beginning = f"{prefix}/" if table_folder(prefix) else ""
        bound = table_folder(after or "")
        found = []
        with self._lock:
            first = bisect_right(self._paths, max(beginning, bound))
            for path in itertools.islice(self._paths, first, None):
                if not path.startswith(beginning):
                    break
                found.append(self._objects[path].stat)
        return iter(found)

    def list_folder(self, prefix: str) -> Folder:
        return one_level(self.list(prefix), prefix)

    def delete(self, path: str) -> None:
        with self._lock:
            if self._objects.pop(table_path(path), None) is not None:
                del self._paths[bisect_left(self._paths, path)]

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self._stored(path).data)


def listing(stats: Iterable[ObjectStat], prefix: str, after: str | None) -> Sequence[ObjectStat]:
    """Return the answer of `Storage.list`, from all objects in any order.

    Sorting text sorts bytes: UTF-8 keeps the order of code points.
    """
    beginning = f"{prefix}/" if table_folder(prefix) else ""
    bound = table_folder(after or "")
    found = (stat for stat in stats if stat.path.startswith(beginning) and stat.path > bound)
    return sorted(found, key=lambda stat: stat.path)


def one_level(stats: Iterable[ObjectStat], prefix: str) -> Folder:
    """Return the answer of `Storage.list_folder`, from the whole listing under the prefix."""
    beginning = f"{prefix}/" if prefix else ""
    folders: dict[str, None] = {}
    objects = []
    for stat in stats:
        name, slash, _ = stat.path[len(beginning) :].partition("/")
        if slash:
            folders[beginning + name] = None
        else:
            objects.append(stat)
    return Folder(tuple(sorted(folders)), tuple(objects))
