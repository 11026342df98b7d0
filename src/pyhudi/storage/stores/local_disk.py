"""Local disk, where creating and replacing a file must survive other processes and a crash.

**Create** writes a temporary file, makes it durable, and links it to its name: `link` fails if the
name is taken, and until it succeeds nothing has the name. A rename would overwrite. Where the
system has files without any name, it is one of those.

**Replace** must not let two writers that saw the same version both win, and a file system has no
such primitive. So a process that replaces, overwrites or deletes a file first locks it (`flock`),
makes sure that the name still belongs to the file it locked, and only then compares and renames a
new file over it. A process that waited finds that the name belongs to another file, and starts over
with that one. The lock is on the file itself, so it leaves nothing behind, and the kernel drops it
with its process. Readers take no lock: a rename shows them the old bytes or the new.

**Etags** are inode, time and size. An inode number is reused soon after its file is removed, and
the kernel's clock ticks in milliseconds, so we set the time of each new file, in nanoseconds, and
later than that of the file it replaces.

**Temporary files** that have a name lie in a folder of their own, which no listing shows, since
Hudi lists all others. Their writer holds them locked, so a temporary file that can be locked has no
writer any more, and the next writer removes it.

**Folders** of markers are removed with their last file, or each write would leave some for ever. A
process that makes a file there at that moment makes the folder again. All other folders stay.

**Symbolic links** below the root are refused: they lead out of the table, or make a file count
twice. This protects from links planted in a table, not from a process that swaps them during a
call.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.timeline.markers import MARKER_ROOT
from pyhudi.storage.paths import table_folder, table_path
from pyhudi.storage.protocol import Folder, ObjectStat
from pyhudi.storage.stores.local_files import (
    READ_FLAGS,
    TemporaryFile,
    held,
    make_folder,
    regular_file,
    remove_empty_folders,
    reporting,
    sweep,
    translated,
    version,
)

#: A delete waits no longer for a process that replaces the file. That process may be frozen, and a
#: rollback of what it left must not wait until it wakes.
_DELETE_PATIENCE_S = 1.0

TEMPORARY_FOLDER = ".hoodie/.pyhudi/tmp"


class LocalStorage:
    """A table's root in a folder; the folder need not exist before something is created."""

    def __init__(self, root: str) -> None:
        self._given = os.path.abspath(root)
        self._root = os.path.realpath(root)
        self._has_swept = False

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._given,)

    def __repr__(self) -> str:
        return f"LocalStorage({self._given!r})"

    @property
    def uri(self) -> str:
        return f"file://{self._given}"

    def create(self, path: str, data: bytes) -> bool:
        return self.create_from(path, (data,)) is not None

    def create_from(self, path: str, chunks: Iterable[bytes]) -> int | None:
        absolute_path = self._locate(path)
        if os.path.lexists(absolute_path):
            return None  # saves the loser of a race two waits for the disk
        with self._temporary(path, is_named=False) as temporary:
            size = temporary.fill(chunks)
            with reporting("create", path, self.uri):
                return size if temporary.link(absolute_path) else None

    def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
        absolute_path = self._locate(path)
        with reporting("replace", path, self.uri), held(absolute_path) as current:
            if current is None or version(current) != etag:
                return None
            return self._overwrite(path, data, current)

    def write(self, path: str, data: bytes) -> str:
        absolute_path = self._locate(path)
        while True:
            with reporting("write", path, self.uri), held(absolute_path) as current:
                if current is not None:
                    return self._overwrite(path, data, current)
            with self._temporary(path, is_named=False) as temporary:
                temporary.fill((data,))
                with reporting("write", path, self.uri):
                    if temporary.link(absolute_path):
                        return temporary.etag
            if os.path.lexists(absolute_path) and not os.path.isfile(absolute_path):
                raise InvalidRequestError(
                    f"{path!r} cannot be written",
                    why="something that is not a file has that name",
                    next_step="Move it out of the table",
                )

    def _overwrite(self, path: str, data: bytes, current: os.stat_result) -> str:
        with self._temporary(path) as temporary:
            temporary.fill((data,), after_ns=current.st_mtime_ns)
            temporary.rename(self._locate(path))
            return temporary.etag

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        return self.read_ranges(path, [(start, (1 << 63) if end is None else end)])[0]

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        assert all(0 <= start <= end for start, end in ranges)
        with reporting("read", path, self.uri), open(self._open_file(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            return [_read_at(file, start, min(end, size)) for start, end in ranges]

    def _open_file(self, path: str) -> int:
        descriptor = os.open(self._locate(path), READ_FLAGS)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise FileNotFoundError(path)

    def stat(self, path: str) -> ObjectStat | None:
        absolute_path = self._locate(path)
        with reporting("stat", path, self.uri):
            found = regular_file(absolute_path)
        return None if found is None else _object_stat(path, found)

    def stat_all(self, paths: Sequence[str]) -> Sequence[ObjectStat | None]:
        return [self.stat(path) for path in paths]

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
        absolute_path, beginning = self._locate_folder(prefix)
        return _walk(self.uri, absolute_path, beginning, table_folder(after or ""))

    def list_folder(self, prefix: str) -> Folder:
        absolute_path, beginning = self._locate_folder(prefix)
        folders, objects = [], []
        for path, entry in _entries(self.uri, absolute_path, beginning):
            if path.endswith("/"):
                folders.append(path[:-1])
            elif found := _entry_stat(self.uri, path, entry):
                objects.append(_object_stat(path, found))
        return Folder(tuple(sorted(folders)), tuple(objects))

    def delete(self, path: str) -> None:
        # Not forced to disk: a journal keeps the order of changes, so what is created later
        # does not survive a crash that reverts this.
        absolute_path = self._locate(path)
        with (
            reporting("delete", path, self.uri),
            held(absolute_path, _DELETE_PATIENCE_S) as current,
        ):
            if current is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(absolute_path)
                if path.startswith(f"{MARKER_ROOT}/"):
                    root = os.path.join(self._root, MARKER_ROOT)
                    remove_empty_folders(os.path.dirname(absolute_path), root)

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def open(self, path: str) -> pa.NativeFile:
        # Not memory-mapped: were the file cut short meanwhile, the process would die.
        if self.stat(path) is None:
            raise FileNotFoundError(path)
        with reporting("open", path, self.uri):
            return pa.OSFile(self._locate(path))

    def _locate(self, path: str) -> str:
        absolute_path = os.path.join(self._root, table_path(path))
        if os.path.realpath(absolute_path) != absolute_path:
            raise _symbolic_link(path)
        return absolute_path

    def _locate_folder(self, prefix: str) -> tuple[str, str]:
        """Return the absolute path of the folder, and the prefix of the paths in it."""
        return (self._locate(prefix), f"{prefix}/") if prefix else (self._root, "")

    @contextlib.contextmanager
    def _temporary(self, path: str, *, is_named: bool = True) -> Iterator[TemporaryFile]:
        with reporting("write", path, self.uri):
            folder = os.path.join(self._root, TEMPORARY_FOLDER)
            make_folder(folder)
            if not self._has_swept:
                sweep(folder)
                self._has_swept = True
            temporary = TemporaryFile(folder, path, self.uri, is_named=is_named)
        try:
            yield temporary
        finally:
            temporary.close()


def _walk(uri: str, absolute_path: str, beginning: str, after: str) -> Iterator[ObjectStat]:
    """Yield the files below the folder whose paths are greater than `after`, in byte order.

    Reading folders and asking each file for its size, as here, takes about two thirds of the time
    of obstore's listing of the same hundred thousand files, which is also in no order.
    """
    folders = [
        iter(_entries(uri, absolute_path, beginning, after))
    ]  # a stack: a tree may be deeper than ours
    while folders:
        for path, entry in folders[-1]:
            if path.endswith("/"):
                if path > after or after.startswith(path):
                    folders.append(iter(_entries(uri, entry.path, path, after)))
                    break
            elif path > after and (found := _entry_stat(uri, path, entry)):
                yield _object_stat(path, found)
        else:
            folders.pop()


def _entries(
    uri: str, absolute_path: str, beginning: str, after: str = ""
) -> Sequence[tuple[str, os.DirEntry[str]]]:
    """Return paths of files, and of folders with a slash behind, in byte order.

    Names before `after` are not examined: a log is read at its end, again and again.
    """
    if beginning == f"{TEMPORARY_FOLDER}/":
        return ()
    found = []
    try:
        with reporting("list", beginning, uri), os.scandir(absolute_path) as entries:
            for entry in entries:
                path = beginning + entry.name
                if path < after and not after.startswith(path):
                    continue
                if entry.is_symlink():
                    raise _symbolic_link(path)
                if entry.is_dir(follow_symlinks=False):
                    if path != TEMPORARY_FOLDER:
                        found.append((f"{path}/", entry))
                elif entry.is_file(follow_symlinks=False):
                    found.append((path, entry))
    except FileNotFoundError:
        return ()
    found.sort(key=lambda placed: placed[0])
    return found


def _entry_stat(uri: str, path: str, entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None  # deleted since the folder was read
    except OSError as error:
        raise translated(error, "list", path, uri) from error


def _object_stat(path: str, found: os.stat_result) -> ObjectStat:
    return ObjectStat(path, found.st_size, version(found), found.st_mtime_ns // 1_000_000)


def _read_at(file: io.BufferedReader, start: int, end: int) -> bytes:
    if start >= end:
        return b""
    file.seek(start)
    return file.read(end - start)


def _symbolic_link(path: str) -> CorruptTableError:
    return CorruptTableError(
        "a symbolic link lies in the table",
        why="it leads out of the table, or to a file that would then count twice",
        next_step="Replace it by what it points to",
        path=path,
    )
