"""Reading parts of an object: which requests to send, and a file object on top of them."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Sequence

_COALESCE_BYTES = 1 << 20  # reading so many unneeded bytes is cheaper than another request


def coalesced(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the fewest spans worth a request each that hold every byte of the ranges, in order.

    >>> coalesced([(50, 60), (0, 10), (5, 5), (9, 12), (9 << 20, 10 << 20)])
    [(0, 60), (9437184, 10485760)]
    """
    spans: list[tuple[int, int]] = []
    for start, end in sorted(set(ranges)):
        if start == end:
            continue
        if spans and start - spans[-1][1] <= _COALESCE_BYTES:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


def cut(pieces: Sequence[tuple[int, bytes]], start: int, end: int) -> bytes:
    """Return bytes [start, end), or as many as exist, out of pieces with their offsets."""
    if start == end:
        return b""
    origin, piece = pieces[bisect_right(pieces, start, key=lambda placed: placed[0]) - 1]
    return piece[start - origin : end - origin]


class RangeReader(io.RawIOBase):
    """A file object whose every read is one ranged request, for readers that know what to read."""

    def __init__(self, path: str, size: int, read: Callable[[str, int, int], bytes]) -> None:
        self._path = path
        self._size = size
        self._read = read
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        wanted = self._size if size is None or size < 0 else self._position + size
        end = min(wanted, self._size)
        if end <= self._position:
            return b""
        data = self._read(self._path, self._position, end)
        self._position += len(data)
        return data
