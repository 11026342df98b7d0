"""S3, Google Cloud Storage and Azure, through obstore.

The three differ in how a bucket is opened and in what names a version of an object; all else is one
code path. S3 and Azure compare etags, GCS compares generations: here, the etag is whichever of the
two the store compares.

**Streaming create.** obstore sends a conditional write as one request (its multipart upload always
overwrites, as GCS's own does), and one request needs all bytes at hand. So `create_from` spools to
a temporary file on local disk and sends that file memory-mapped: memory stays bounded, and
exactly one of several writers wins. What a single request may carry, `CREATE_BYTES_MAX`, is the
limit; a longer stream is refused, because there is no other way to send it that keeps the promise.
"""

from __future__ import annotations

import functools
import mmap
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore, S3Store

from pyhudi.errors import HudiError, InvalidRequestError, UnavailableError
from pyhudi.storage.paths import Location, table_folder, table_path
from pyhudi.storage.protocol import Folder, ObjectStat
from pyhudi.storage.redaction import secret_values
from pyhudi.storage.stores.folder_markers import in_order, without_markers
from pyhudi.storage.stores.object_store_errors import (
    check_addresses,
    invalid_options,
    is_undecided,
    translated,
)
from pyhudi.storage.stores.ranges import RangeReader, coalesced, cut

CREATE_BYTES_MAX = 5_000 << 20  # Azure's limit for one request, the smallest; S3 takes 5 GiB

_SPOOL_BYTES = 8 << 20  # a stream up to this long never touches the disk
_LIST_CHUNK = 1000  # objects; what one request gives
_DELETE_CHUNK = 1000  # objects; what one request takes
_AT_ONCE = 32  # requests under way for one call

_TIMEOUT_S = 60  # the commit protocol relies on a request ending by then
_UPLOAD_BYTES_PER_S = 1 << 20  # the slowest link that the timeout of a long upload allows for
_RETRY_TIMEOUT = timedelta(seconds=60)
_MAX_RETRIES = "10"

_FAILURES = (BaseError, OSError, NotImplementedError)
_Store = S3Store | GCSStore | AzureStore
_T = TypeVar("_T")


class ObstoreStorage:
    """A table's root in a bucket of S3 (s3, s3a), GCS (gs, gcs) or Azure (az, abfs, abfss).

    Options are obstore's own names for the store and its client, all as text
    (`aws_access_key_id`, `allow_http`, `timeout`, …), and `max_retries`. Environment variables
    apply where an option is not given.
    """

    def __init__(self, uri: str, options: Mapping[str, str] | None = None) -> None:
        self._location = Location.parse(uri)
        self._options = dict(options or {})
        self._secrets = secret_values(self._options)
        self._store = self._opened(_TIMEOUT_S)
        self._version = "version" if self._location.scheme in ("gs", "gcs") else "e_tag"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.uri, self._options)

    def __repr__(self) -> str:
        return f"ObstoreStorage({self.uri!r})"

    @property
    def uri(self) -> str:
        return self._location.uri

    def create(self, path: str, data: bytes) -> bool:
        return self._create(table_path(path), data, len(data))

    def create_from(self, path: str, chunks: Iterable[bytes]) -> int | None:
        table_path(path)
        with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as spool:
            size = _spooled(chunks, spool, path)
            if size <= _SPOOL_BYTES:
                spool.seek(0)
                created = self._create(path, spool.read(), size)
            else:
                # Never closed explicitly: after a failed request its sender may still hold it.
                mapped = mmap.mmap(spool.fileno(), 0, access=mmap.ACCESS_READ)
                created = self._create(path, mapped, size)
        return size if created else None

    def _create(self, path: str, data: bytes | mmap.mmap, size: int) -> bool:
        store = self._store_for(size)
        try:
            store.put(path, data, mode="create")
        except AlreadyExistsError as error:
            if not is_undecided(error):
                return False
            failure = self._translated(error, "create", path)
        except _FAILURES as error:
            failure = self._translated(error, "create", path)
        else:
            return True
        raise failure

    def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
        store = self._store_for(len(data))
        version: Any = {self._version: etag}  # GCS takes no etag and the others no version
        try:
            return self._etag_of(store.put(table_path(path), data, mode=version))
        except (PreconditionError, FileNotFoundError):
            return None
        except _FAILURES as error:
            failure = self._translated(error, "replace", path)
        raise failure

    def write(self, path: str, data: bytes) -> str:
        store = self._store_for(len(data))
        put = self._asking(
            "write", table_path(path), lambda: store.put(path, data, use_multipart=False)
        )
        return self._etag_of(put)

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        assert 0 <= start <= (start if end is None else end)
        table_path(path)
        if start == 0 and end is None:
            whole = self._asking("read", path, lambda: self._store.get(path).bytes())
            return whole.to_bytes()
        stop = max(start, self._size(path)) if end is None else end
        return self.read_ranges(path, [(start, stop)])[0]

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        assert all(0 <= start <= end for start, end in ranges)
        table_path(path)
        try:
            return self._read_spans(path, ranges)
        except UnavailableError as error:
            failure = error
        # To the store a range that begins past the end is an error, so only existing bytes are
        # requested.
        size = self._size(path)
        within = [(min(start, size), min(end, size)) for start, end in ranges]
        if within == list(ranges):
            raise failure
        return self._read_spans(path, within)

    def _read_spans(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        spans = coalesced(ranges)
        if not spans:
            self._size(path)  # nothing to read, but the object must be there
            return [b""] * len(ranges)
        starts, ends = [start for start, _ in spans], [end for _, end in spans]
        # Coalescing is ours, because obstore's own does not survive a range past the end.
        found = self._asking(
            "read",
            path,
            lambda: self._store.get_ranges(path, starts=starts, ends=ends, coalesce=0),
        )
        pieces = [(start, piece.to_bytes()) for start, piece in zip(starts, found, strict=True)]
        return [cut(pieces, start, end) for start, end in ranges]

    def _size(self, path: str) -> int:
        stat = self.stat(path)
        if stat is None:
            raise FileNotFoundError(path)
        return stat.size

    def stat(self, path: str) -> ObjectStat | None:
        try:
            found = self._asking("stat", table_path(path), lambda: self._store.head(path))
        except FileNotFoundError:
            return None
        return self._stat_of(found)

    def stat_all(self, paths: Sequence[str]) -> Sequence[ObjectStat | None]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self.stat, paths))

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
        bound = max(table_folder(prefix), table_folder(after or ""))
        found = self._listed(prefix, after)
        return without_markers(found if self._lists_in_order else in_order(found), bound)

    @property
    def _lists_in_order(self) -> bool:
        """False for Azure and the directory buckets of S3, which promise no order."""
        location = self._location
        if location.scheme in ("s3", "s3a"):
            return not location.authority.endswith("--x-s3")
        return location.scheme in ("gs", "gcs")

    def _listed(self, prefix: str, after: str | None) -> Iterator[ObjectStat]:
        stream = self._store.list(prefix or None, offset=after, chunk_size=_LIST_CHUNK)
        while chunk := self._asking("list", prefix, lambda: next(stream, None)):
            yield from map(self._stat_of, chunk)

    def list_folder(self, prefix: str) -> Folder:
        found = self._asking(
            "list", table_folder(prefix), lambda: self._store.list_with_delimiter(prefix or None)
        )
        folders = sorted(found["common_prefixes"])
        markers = {prefix, *folders}
        objects = map(self._stat_of, found["objects"])
        return Folder(tuple(folders), tuple(in_order(o for o in objects if o.path not in markers)))

    def delete(self, path: str) -> None:
        try:
            self._asking("delete", table_path(path), lambda: self._store.delete(path))
        except FileNotFoundError:
            return

    def delete_all(self, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), _DELETE_CHUNK):
            some = [table_path(path) for path in paths[start : start + _DELETE_CHUNK]]
            try:
                self._asking("delete", some[0], functools.partial(self._store.delete, some))
            except FileNotFoundError:  # not all stores accept that one is missing, or say which
                for path in some:
                    self.delete(path)

    def open(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(RangeReader(path, self._size(path), self.read), mode="r")

    def _stat_of(self, meta: Any) -> ObjectStat:
        modified_ms = round(meta["last_modified"].timestamp() * 1000)
        return ObjectStat(meta["path"], meta["size"], meta[self._version], modified_ms)

    def _etag_of(self, put: Any) -> str:
        etag = put[self._version]
        assert isinstance(etag, str), "every store we open returns the version it wrote"
        return etag

    def _asking(self, operation: str, path: str, call: Callable[[], _T]) -> _T:
        """Return the call's answer. Its error is raised bare: its cause may show a secret."""
        try:
            return call()
        except _FAILURES as error:
            failure = self._translated(error, operation, path)
        raise failure

    def _translated(self, error: Exception, operation: str, path: str) -> HudiError | OSError:
        return translated(error, operation, path, uri=self.uri, secrets=self._secrets)

    def _store_for(self, size: int) -> _Store:
        """Return the store, or for a long upload one with a timeout that allows for it."""
        if size <= _SPOOL_BYTES:
            return self._store
        return self._opened(_TIMEOUT_S + size // _UPLOAD_BYTES_PER_S)

    def _opened(self, timeout_s: int) -> _Store:
        options = dict(self._options)
        check_addresses(options, uri=self.uri)
        try:
            retry = {
                "max_retries": int(options.pop("max_retries", _MAX_RETRIES)),
                "retry_timeout": _RETRY_TIMEOUT,
            }
            return _open_store(self._location, {"timeout": f"{timeout_s}s"} | options, retry)
        except (BaseError, ValueError, TypeError) as error:
            failure = invalid_options(error, uri=self.uri, secrets=self._secrets)
        raise failure


def _open_store(location: Location, options: Mapping[str, str], retry: Any) -> _Store:
    arguments: Any = {"prefix": location.prefix or None, "retry_config": retry}
    match location.scheme:
        case "s3" | "s3a":
            config = _with_defaults(options, aws_conditional_put="etag")
            return S3Store(location.authority, config=config, **arguments)
        case "gs" | "gcs":
            return GCSStore(location.authority, config=_with_defaults(options), **arguments)
        case "az" | "abfs" | "abfss":
            container, _, host = location.authority.partition("@")
            config = _with_defaults(options, **_account(host))
            return AzureStore(container, config=config, **arguments)
    raise AssertionError(f"no object store has the scheme {location.scheme}")


def _account(host: str) -> dict[str, str]:
    """Return the options that the host in abfss:

    container@host says about the account.
    """
    account = {"azure_storage_account_name": host.partition(".")[0]} if host else {}
    if host.endswith(".fabric.microsoft.com"):
        account["azure_use_fabric_endpoint"] = "true"
    return account


def _with_defaults(options: Mapping[str, str], **defaults: str) -> Any:
    """Return the options and those defaults that none of them names, with or without its vendor."""
    given = {name.lower() for name in options}
    missing = {
        name: value
        for name, value in defaults.items()
        if not any(option == name or name.endswith(f"_{option}") for option in given)
    }
    return missing | dict(options)


def _spooled(chunks: Iterable[bytes], spool: Any, path: str) -> int:
    """Write the chunks to the spool and return their total length."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > CREATE_BYTES_MAX:
            raise InvalidRequestError(
                f"{path!r} cannot be created",
                why=f"it is longer than {CREATE_BYTES_MAX} bytes, which one request may carry",
                next_step="Write smaller files",
            )
        try:
            spool.write(chunk)
        except OSError as error:
            raise UnavailableError(
                f"{path!r} could not be prepared on local disk",
                why=f"the folder for temporary files answers: {error.strerror}",
                next_step="Make room there or set TMPDIR to another folder, and repeat the call",
            ) from error
    spool.flush()
    return size
