"""Files that appear whole or not at all, and are replaced under a lock.

The primitives of `local_disk`, which explains what they are for. They take absolute paths and raise
the system's own errors, which `reporting` turns into ours.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
import uuid
from collections.abc import Iterable, Iterator
from functools import lru_cache

from pyhudi.errors import HudiError, InvalidRequestError, UnavailableError

# O_NONBLOCK, or opening a named pipe would wait for its other end.
READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_UNNAMED_FLAGS = os.O_WRONLY | os.O_CLOEXEC | getattr(os, "O_TMPFILE", 0)
_DESCRIPTORS = "/proc/self/fd"
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

_RETRY_S = 0.01
#: How often a folder may be removed while a file is being made in it.
_REMOVED_MAX = 20
_READS = frozenset({"read", "list", "open"})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_HARD_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})


class TemporaryFile:
    """A new file that no listing shows yet, on its way to a name.

    For a rename it needs a name from the start, and is locked until it is closed. Otherwise it has
    none where the system allows that: it costs half as much, and a crash leaves nothing.
    """

    def __init__(self, folder: str, path: str, uri: str, *, is_named: bool = True) -> None:
        self._path, self._uri = path, uri  # for errors: what it will be called, in which table
        self._folder = folder
        self._absolute_path: str | None = None
        descriptor = None if is_named else _unnamed_file(folder)
        if descriptor is None:
            self._absolute_path, descriptor = _new_locked_file(folder)
        self._descriptor = descriptor

    def fill(self, chunks: Iterable[bytes], *, after_ns: int = 0) -> int:
        """Write the chunks, make them durable and return their total length."""
        size = 0
        for chunk in chunks:  # whose own errors are left as they are
            with reporting("write", self._path, self._uri):
                # Not through a buffer: closing it would write again, and fail unreported.
                rest = memoryview(chunk)
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
                size += len(chunk)
        with reporting("write", self._path, self._uri):
            now_ns = max(time.time_ns(), after_ns + 1)
            os.utime(self._descriptor, ns=(now_ns, now_ns))
            if size:  # of an empty file the name is all there is to keep, and its folder has it
                os.fsync(self._descriptor)
        return size

    @property
    def etag(self) -> str:
        return version(os.fstat(self._descriptor))

    def link(self, absolute_path: str) -> bool:
        """Give the file its name; False if the name is taken."""
        regular_file(absolute_path)  # raises if the name is too long, before a folder is made
        for _ in range(_REMOVED_MAX):
            with contextlib.suppress(FileNotFoundError):  # its last file was removed
                return self._linked(absolute_path)
        return self._linked(absolute_path)

    def _linked(self, absolute_path: str) -> bool:
        folder = os.path.dirname(absolute_path)
        make_folder(folder)
        try:
            if self._absolute_path is None:
                self._link_unnamed(absolute_path)
            else:
                os.link(self._absolute_path, absolute_path)
        except FileExistsError:
            return False
        # From now on the lock would keep others from deleting a file that is no longer ours alone.
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        with contextlib.suppress(FileNotFoundError):  # another process has deleted the file again
            _sync_folder(folder)
        return True

    def _link_unnamed(self, absolute_path: str) -> None:
        source = f"{_DESCRIPTORS}/{self._descriptor}"
        # With a folder's descriptor, which an absolute path does not need, Python asks for the link
        # in the way that follows the one in /proc.
        os.link(source, absolute_path, src_dir_fd=self._descriptor)

    def rename(self, absolute_path: str) -> None:
        """Give the file the name of another, which must be locked."""
        assert self._absolute_path is not None, "only a file with a name can be renamed"
        os.rename(self._absolute_path, absolute_path)
        _sync_folder(os.path.dirname(absolute_path))

    def close(self) -> None:
        if self._absolute_path is not None:
            with contextlib.suppress(FileNotFoundError):  # a rename took the name away
                os.unlink(self._absolute_path)
        _unlock(self._descriptor)


def _unnamed_file(folder: str) -> int | None:
    """Return a file without a name in the folder's file system; None if it has no such files."""
    if not _has_unnamed_files(os.stat(folder).st_dev, folder):
        return None
    return os.open(folder, _UNNAMED_FLAGS, 0o666)


@lru_cache(maxsize=64)
def _has_unnamed_files(device: int, folder: str) -> bool:
    """True if a file may get its name when it is whole.

    It is tried, since systems differ in what they lack.
    """
    absolute_path = os.path.join(folder, uuid.uuid4().hex)
    try:
        descriptor = os.open(folder, _UNNAMED_FLAGS, 0o666)
    except OSError:
        return False
    try:
        os.link(f"{_DESCRIPTORS}/{descriptor}", absolute_path, src_dir_fd=descriptor)
        os.unlink(absolute_path)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _new_locked_file(folder: str) -> tuple[str, int]:
    while True:
        absolute_path = os.path.join(folder, uuid.uuid4().hex)
        descriptor = os.open(absolute_path, _CREATE_FLAGS, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return absolute_path, descriptor
        _unlock(descriptor)  # a sweep came between creating and locking


def sweep(folder: str) -> None:
    """Remove the temporary files of processes that ended before they could."""
    with os.scandir(folder) as entries:
        absolute_paths = [entry.path for entry in entries if entry.is_file(follow_symlinks=False)]
    for absolute_path in absolute_paths:
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # another process is using it
            descriptor = os.open(absolute_path, READ_FLAGS)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(absolute_path)
            finally:
                _unlock(descriptor)


@contextlib.contextmanager
def held(absolute_path: str, patience_s: float | None = None) -> Iterator[os.stat_result | None]:
    """Keep others from replacing or deleting the file; None if there is no such file.

    With a patience, a process that holds it for longer counts as frozen and is not waited for any
    more.
    """
    while True:
        try:
            descriptor = os.open(absolute_path, READ_FLAGS)
        except (FileNotFoundError, NotADirectoryError):
            yield None
            return
        try:
            _lock(descriptor, patience_s)
            locked, named = os.fstat(descriptor), regular_file(absolute_path)
            if named is None or os.path.samestat(locked, named):
                yield named
                return
        finally:
            _unlock(descriptor)


def _lock(descriptor: int, patience_s: float | None) -> None:
    if patience_s is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return
        time.sleep(_RETRY_S)


def _unlock(descriptor: int) -> None:
    """Close the file and unlock it.

    Closing alone would leave it locked if a forked child has it open too.
    """
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def regular_file(absolute_path: str) -> os.stat_result | None:
    try:
        found = os.lstat(absolute_path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def version(found: os.stat_result) -> str:
    """Return the etag of the stat."""
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"


def make_folder(folder: str) -> None:
    """Make the folder and those above it, durably."""
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.mkdir(each)
        _sync_folder(os.path.dirname(each))


def remove_empty_folders(folder: str, root: str) -> None:
    """Remove the folder if nothing is in it, and then those above it, up to a root that stays."""
    with contextlib.suppress(OSError):  # it is not empty, or another process was faster
        while folder != root:
            os.rmdir(folder)
            folder = os.path.dirname(folder)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def reporting(operation: str, path: str, uri: str) -> Iterator[None]:
    """Turn the system's errors into ours, which name the table.

    Only reading may raise FileNotFoundError.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        if operation in _READS:
            raise FileNotFoundError(path) from error
        raise translated(error, operation, path, uri) from error
    except OSError as error:
        raise translated(error, operation, path, uri) from error


def translated(error: OSError, operation: str, path: str, uri: str) -> HudiError:
    what = f"{operation} of {path!r} in {uri} failed"
    why = error.strerror or type(error).__name__
    match error.errno:
        case errno.EACCES | errno.EROFS:
            return InvalidRequestError(
                what, why=why, next_step="Give this user the permission, or choose another path"
            )
        case errno.ENOTDIR | errno.EISDIR | errno.ENAMETOOLONG:
            return InvalidRequestError(what, why=why, next_step="Choose another path")
    if operation in ("create", "write") and error.errno in _NO_HARD_LINKS:
        return InvalidRequestError(
            what,
            why=f"creating a file if there is none needs hard links, but: {why}",
            next_step="Keep the table on one file system that has them",
        )
    cure = "Free space on the disk" if error.errno in _FULL else "Check the disk"
    return UnavailableError(what, why=why, next_step=f"{cure} and repeat the call")
