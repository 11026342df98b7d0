"""Storage on which something happens in the middle of a write."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from faulty_storage import FaultyStorage
from pyhudi.storage.protocol import Storage


class Meddled(FaultyStorage):
    """Storage on which something happens once, just before a file with such a path is created."""

    def __init__(self, storage: Storage, mark: str, act: Callable[[], object]) -> None:
        super().__init__(storage)
        self._mark, self._act = mark, act
        self.is_done = False

    def create(self, path: str, data: bytes) -> bool:
        if not self.is_done and self._mark in path:
            self.is_done = True
            self._act()
        return super().create(path, data)

    def create_from(self, path: str, chunks: Iterable[bytes]) -> int | None:
        if not self.is_done and self._mark in path:
            self.is_done = True
            self._act()
        return super().create_from(path, chunks)
