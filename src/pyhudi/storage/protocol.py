"""What the engine needs of storage, and what it may rely on.

Local disk, S3, GCS and Azure can all keep every promise below. There is no rename and no copy:
object stores either lack them or make them neither atomic nor conditional. Concurrent writers rely
on `create`, which lets exactly one of them win, and on `replace`, which lets exactly one of those
that saw the same version win.

An `UnavailableError` from a call that changes something leaves open whether the change was made,
since perhaps only the reply was lost. The client of an object store also repeats a request by
itself, so `create` may answer False, and `replace` None, because of the caller's own first try. A
caller that must know reads the object and looks for its own bytes.

Paths are relative to the table's root, and each call checks them (`table_path`). A listing gives
names as they are found, good or bad; a bad one is refused where it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """An object as a listing shows it.

    The etag names this version of the object and is good for `replace`. A listing may lack it
    (GCS); `stat` has it always.
    """

    path: str
    size: int
    etag: str | None
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Folder:
    """One level of a listing; paths are full, and in byte order."""

    folders: tuple[str, ...]
    objects: tuple[ObjectStat, ...]


class Storage(Protocol):
    """All the engine needs of a file system or object store; paths are relative to the root."""

    @property
    def uri(self) -> str:
        """The root's address, free of secrets."""

    def create(self, path: str, data: bytes) -> bool:
        """Write a new object, all or nothing; False, and no change, if the path is taken."""

    def create_from(self, path: str, chunks: Iterable[bytes]) -> int | None:
        """Create an object as `create` does, from a stream of any length in bounded memory.

        Return the number of bytes written, or None, and no change, if the path is taken. If the
        stream raises, nothing becomes visible.
        """

    def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
        """Overwrite the object if it still is the version named, and return the new version's etag.

        None, and no change, if the object is another version or gone. To S3 the same bytes are the
        same version, so a caller that relies on this never writes the same bytes twice.
        """

    def write(self, path: str, data: bytes) -> str:
        """Write the object, all or nothing, over any other, and return its etag."""

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return bytes [start, end) of the object, or as many as exist.

        FileNotFoundError if there is no object.
        """

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        """Return what `read` does for each range, in as few requests as pay off."""

    def stat(self, path: str) -> ObjectStat | None:
        """Return the object's size and version; None if there is no object."""

    def stat_all(self, paths: Sequence[str]) -> Sequence[ObjectStat | None]:
        """Return what `stat` does for each path, in this order, with many requests at once."""

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
        """Yield all objects under the folder, however deep, in byte order of their paths.

        With `after`, only those whose path is greater: a refresh costs what is new. The empty
        prefix is the root.
        """

    def list_folder(self, prefix: str) -> Folder:
        """Return what lies in the folder itself: its objects and its folders."""

    def delete(self, path: str) -> None:
        """Remove the object. A missing object is not an error, so retries are safe."""

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove each as `delete` does, in no order and in as few requests as possible."""

    def open(self, path: str) -> pa.NativeFile:
        """Return the object for random reads; FileNotFoundError if there is none."""
