"""Bytes of a file to be, while several files are made in one pass: in memory, then on local disk.

A storage takes a file as one stream. To make files of several file groups in one pass over their
rows, the bytes of each wait here until the pass is over.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import Self

#: What a spool holds in memory. The rest lies in a temporary file without a name.
MEMORY_BYTES = 1 << 20
CHUNK_BYTES = 1 << 20


class Spool:
    """The bytes of one file, written once and read once."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the bytes."""
        self._file.close()

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self.size += len(data)

    def chunks(self) -> Iterator[bytes]:
        """Yield all bytes."""
        self._file.seek(0)
        while data := self._file.read(CHUNK_BYTES):
            yield data
