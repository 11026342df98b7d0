"""A parquet file that is taken in pieces while it is written, so that memory stays bounded."""

from __future__ import annotations


class PieceSink:
    """The file that pyarrow writes to. Its bytes are taken out between row groups."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing, as no bytes are held back."""

    def taken(self) -> bytes:
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data
