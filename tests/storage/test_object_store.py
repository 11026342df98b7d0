"""What only object stores have: vendors, folder markers, and many ways to fail.

S3 is played by a server that keeps objects (`conftest`). GCS and Azure share its code path but for
opening the store and for what names a version; those two are shown here with a server that only
records what it is asked and answers as it is told.
"""

from __future__ import annotations

import mmap
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.errors import (
    CorruptTableError,
    HudiError,
    InvalidRequestError,
    UnavailableError,
)
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import ObjectStat, Storage
from pyhudi.storage.stores import object_store
from pyhudi.storage.stores.folder_markers import in_order
from pyhudi.storage.stores.object_store import ObstoreStorage

VERBS = ("GET", "PUT", "HEAD", "POST", "DELETE")


@dataclass
class Vendor:
    """A server of any vendor's kind: it keeps the headers of requests, and answers alike."""

    url: str
    status: int = 200
    body: bytes = b""
    delay: threading.Event | None = None
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def options(self, scheme: str) -> dict[str, str]:
        addressed: dict[str, dict[str, str]] = {
            "s3": {
                "aws_endpoint": self.url,
                "aws_access_key_id": "nobody",
                "aws_secret_access_key": "nothing",
            },
            "gs": {"google_base_url": self.url, "google_bearer_token": "nothing"},
            "az": {
                "azure_storage_endpoint": self.url,
                "azure_storage_account_name": "nobody",
                "azure_storage_account_key": "bm90aGluZw==",
            },
        }
        return addressed[scheme] | {"allow_http": "true", "max_retries": "0", "timeout": "5s"}


@pytest.fixture(scope="module")
def started_vendor() -> Iterator[Vendor]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.rfile.read(int(request.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in request.headers.items()}
        state.requests.append((request.command, headers))
        if state.delay is not None:
            state.delay.wait(10)
        request.close_connection = True
        request.send_response(state.status)
        request.send_header("ETag", '"an-etag"')
        request.send_header("x-goog-generation", "77")
        request.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
        request.send_header("Content-Length", str(len(state.body)))
        request.send_header("Connection", "close")
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(state.body)

    members: dict[str, object] = {f"do_{verb}": answer for verb in VERBS}
    members |= {"protocol_version": "HTTP/1.1", "log_message": lambda *_: None}
    answering = type("Answering", (BaseHTTPRequestHandler,), members)
    server = ThreadingHTTPServer(("127.0.0.1", 0), answering)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that left
    state = Vendor(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def vendor(started_vendor: Vendor) -> Vendor:
    """The server as if it had just been started."""
    started_vendor.status, started_vendor.body, started_vendor.delay = 200, b"", None
    started_vendor.requests.clear()
    return started_vendor


VERSIONS = {"s3": '"an-etag"', "az": '"an-etag"', "gs": "77"}


@pytest.mark.parametrize(
    ("scheme", "header", "absent", "current"),
    [
        ("s3", "if-none-match", "*", None),
        ("az", "if-none-match", "*", None),
        ("gs", "x-goog-if-generation-match", "0", None),
        ("s3", "if-match", None, '"an-etag"'),
        ("az", "if-match", None, '"an-etag"'),
        ("gs", "x-goog-if-generation-match", None, "77"),
    ],
)
def test_condition_is_sent_as_the_vendor_reads_it(
    vendor: Vendor, scheme: str, header: str, absent: str | None, current: str | None
) -> None:
    storage = open_storage(f"{scheme}://bucket/table", vendor.options(scheme))
    if absent is not None:
        assert storage.create("a", b"1")
    else:
        assert current is not None
        assert storage.replace("a", b"1", etag=current) == current
    ((method, headers),) = vendor.requests
    assert (method, headers[header]) == ("PUT", absent or current)


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_etag_is_what_the_vendor_compares(vendor: Vendor, scheme: str) -> None:
    storage = open_storage(f"{scheme}://bucket/table", vendor.options(scheme))
    stat = storage.stat("a")
    assert stat == ObjectStat("a", 0, VERSIONS[scheme], 1_445_412_480_000)
    assert storage.write("a", b"1") == VERSIONS[scheme]


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, b"", InvalidRequestError),
        (403, b"", InvalidRequestError),
        (400, b"", UnavailableError),
        (429, b"", UnavailableError),
        (500, b"", UnavailableError),
        (503, b"<Error><Code>SlowDown</Code></Error>", UnavailableError),
    ],
)
@pytest.mark.parametrize(
    "operation",
    [
        lambda storage: storage.create("a", b"1"),
        lambda storage: storage.replace("a", b"1", etag='"x"'),
        lambda storage: storage.write("a", b"1"),
        lambda storage: storage.read("a"),
        lambda storage: storage.read("a", 0, 1),
        lambda storage: storage.stat("a"),
        lambda storage: storage.open("a"),
        lambda storage: list(storage.list("")),
        lambda storage: storage.list_folder(""),
    ],
)
def test_refusal_of_the_store_has_a_kind(
    vendor: Vendor,
    scheme: str,
    status: int,
    body: bytes,
    error: type[HudiError],
    operation: Callable[[Storage], object],
) -> None:
    vendor.status, vendor.body = status, body
    storage = open_storage(f"{scheme}://bucket/table", vendor.options(scheme))
    with pytest.raises(error, match=r"failed: .*\. .+\.$") as caught:
        operation(storage)
    assert caught.value.__context__ is None, "the vendor's own error may show a secret"


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_undecided_race_is_not_taken_for_a_lost_one(vendor: Vendor, code: str) -> None:
    vendor.status, vendor.body = 409, f"<Error><Code>{code}</Code></Error>".encode()
    storage = open_storage("s3://bucket/table", vendor.options("s3"))
    with pytest.raises(UnavailableError, match=code):
        storage.create("a", b"1")
    with pytest.raises(UnavailableError, match=code):
        storage.replace("a", b"1", etag='"x"')


def test_azure_says_taken_in_its_own_way(vendor: Vendor) -> None:
    vendor.status, vendor.body = 409, b"<Error><Code>BlobAlreadyExists</Code></Error>"
    storage = open_storage("az://bucket/table", vendor.options("az"))
    assert not storage.create("a", b"1")


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
@pytest.mark.parametrize("status", [404, 412])
def test_changed_or_missing_object_is_not_replaced(
    vendor: Vendor, scheme: str, status: int
) -> None:
    vendor.status = status
    storage = open_storage(f"{scheme}://bucket/table", vendor.options(scheme))
    assert storage.replace("a", b"1", etag='"x"') is None


def test_store_that_does_not_answer_in_time_is_unavailable(vendor: Vendor) -> None:
    vendor.delay = threading.Event()
    options = vendor.options("s3") | {"timeout": "200ms"}
    storage = open_storage("s3://bucket/table", options)
    with pytest.raises(UnavailableError):
        storage.create("a", b"1")
    vendor.delay.set()


def test_store_that_is_not_there_is_unavailable() -> None:
    options = Vendor("http://127.0.0.1:1").options("s3")
    storage = open_storage("s3://bucket/table", options)
    with pytest.raises(UnavailableError, match="Repeat the call"):
        storage.create("a", b"1")


@pytest.mark.parametrize("scheme", ["s3", "az"])  # Google's client takes http without asking
@pytest.mark.parametrize(
    "operation",
    [
        lambda storage: storage.create("a", b"1"),
        lambda storage: storage.read("a"),
        lambda storage: list(storage.list("")),
    ],
)
def test_plain_http_that_is_not_allowed_is_the_callers_to_mend(
    scheme: str, operation: Callable[[Storage], object]
) -> None:
    options = Vendor("http://127.0.0.1:1").options(scheme) | {"allow_http": "false"}
    storage = open_storage(f"{scheme}://bucket/table", options)
    with pytest.raises(InvalidRequestError, match=r"plain http.* Give allow_http='true'"):
        operation(storage)


@pytest.mark.parametrize(
    "operation",
    [
        lambda storage: storage.create("a", b"1"),
        lambda storage: storage.write("a", b"1"),
        lambda storage: list(storage.list("")),
        lambda storage: storage.list_folder("a"),
    ],
)
def test_missing_bucket_is_named(
    s3_options: dict[str, str], operation: Callable[[Storage], object]
) -> None:
    storage = open_storage("s3://no-such-bucket/table", s3_options)
    with pytest.raises(InvalidRequestError, match=r"no-such-bucket.*Create the bucket"):
        operation(storage)
    assert storage.stat("a") is None


def test_store_told_to_make_no_conditional_writes_is_refused(vendor: Vendor) -> None:
    options = vendor.options("s3") | {"aws_conditional_put": "disabled"}
    storage = open_storage("s3://bucket/table", options)
    with pytest.raises(InvalidRequestError, match="conditional"):
        storage.create("a", b"1")
    assert vendor.requests == [], "an unconditional write must not slip through"


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("s3://bucket/table", {"aws_region": "eu-west-1", "aws_session_token": "t"}),
        ("s3a://bucket/table", {"region": "eu-west-1", "conditional_put": "etag"}),
        ("s3://bucket--use1-az4--x-s3/table", {"aws_s3_express": "true"}),
        ("gs://bucket/table", {"google_skip_signature": "true"}),
        ("gcs://bucket/table", {"google_bearer_token": "t", "timeout": "5s"}),
        ("az://container/table", {"account_name": "me", "account_key": "bm90aGluZw=="}),
        ("az://container/table", {"azure_storage_account_name": "me", "sas_key": "sv=1&sig=2"}),
        ("abfs://container@me.dfs.core.windows.net/table", {"azure_skip_signature": "true"}),
        ("abfss://container@me.dfs.core.windows.net/table", {"account_name": "me"}),
        ("abfss://container@me.dfs.fabric.microsoft.com/table", {"token": "t"}),
    ],
)
def test_options_of_every_vendor_open_a_store(uri: str, options: dict[str, str]) -> None:
    """No request is made: GCS and Azure share all further code with S3."""
    storage = open_storage(uri, options)
    assert isinstance(storage, ObstoreStorage)
    assert storage.uri == uri
    copy = pickle.loads(pickle.dumps(storage))
    assert isinstance(copy, ObstoreStorage)
    assert copy.uri == uri


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"aws_regoin": "x"}, "aws_regoin"),
        ({"timeout": "soon"}, "soon"),
        ({"max_retries": "many"}, "many"),
        ({"aws_endpoint": "127.0.0.1:9000"}, "aws_endpoint"),
        ({"endpoint": "http://host:99999"}, "endpoint"),
        ({"AWS_ENDPOINT_URL": "http://"}, "AWS_ENDPOINT_URL"),
        ({"proxy_url": "not an address"}, "builder error"),
        ({"aws_access_key_id": "only half"}, "Missing SecretAccessKey"),
    ],
)
def test_wrong_option_is_named(options: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"{why}.*Correct the storage options"):
        open_storage("s3://bucket/table", options)


def test_pickled_storage_reads_the_same_table(s3: Storage) -> None:
    s3.create("a", b"1")
    assert pickle.loads(pickle.dumps(s3)).read("a") == b"1"


def test_long_stream_is_sent_from_disk(s3: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[type] = []
    create = ObstoreStorage._create

    def spy(self: ObstoreStorage, path: str, data: Any, size: int) -> bool:
        sent.append(type(data))
        return create(self, path, data, size)

    monkeypatch.setattr(ObstoreStorage, "_create", spy)
    monkeypatch.setattr(object_store, "_SPOOL_BYTES", 1_000)
    assert s3.create_from("short", [b"x" * 500] * 2) == 1_000
    assert s3.create_from("long", [b"x" * 500] * 3) == 1_500
    assert sent == [bytes, mmap.mmap]
    assert s3.read("long") == b"x" * 1_500


def test_stream_no_request_can_carry_is_refused(
    s3: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "CREATE_BYTES_MAX", 1_000)
    with pytest.raises(InvalidRequestError, match="longer than 1000 bytes"):
        s3.create_from("a", iter([b"x" * 600] * 2))
    assert s3.stat("a") is None


Put = Callable[[Storage, str], None]


def test_folder_markers_are_not_listed(s3: Storage, s3_put: Put) -> None:
    for key in ["m/", "m/d-1", "m/d/", "m/d/x", "m/e/", "m/e/f/", "m/e/f/y", "m/z"]:
        s3_put(s3, key)
    assert [stat.path for stat in s3.list("m")] == ["m/d-1", "m/d/x", "m/e/f/y", "m/z"]
    assert [stat.path for stat in s3.list("", after="m/d")] == [
        *["m/d-1", "m/d/x", "m/e/f/y", "m/z"]
    ]
    level = s3.list_folder("m")
    assert level.folders == ("m/d", "m/e")
    assert [stat.path for stat in level.objects] == ["m/d-1", "m/z"]
    assert [stat.path for stat in s3.list_folder("m/d").objects] == ["m/d/x"]


def test_marker_of_an_empty_folder_does_not_break_the_order(s3: Storage, s3_put: Put) -> None:
    for key in ["m/d-1", "m/d/", "m/e/", "m/f"]:
        s3_put(s3, key)
    assert [stat.path for stat in s3.list("m")] == ["m/d-1", "m/e", "m/f"]
    assert s3.list_folder("m").folders == ("m/d", "m/e")


def test_listing_without_order_is_put_in_order() -> None:
    names = ["d", "b/c/d", "d/x", "b", "b/c", "d-1", "a"]
    sizes = {"d": 0, "b": 0, "b/c": 0, "a": 0}
    found = [ObjectStat(name, sizes.get(name, 1), None, 0) for name in names]
    assert [stat.path for stat in in_order(found)] == ["a", "b/c/d", "d-1", "d/x"]


@pytest.mark.parametrize("key", ["a//b", "a/../b", "a/./b"])
def test_impossible_name_in_a_bucket_is_reported(s3: Storage, s3_put: Put, key: str) -> None:
    s3_put(s3, key)
    with pytest.raises(CorruptTableError, match="Move the object"):
        list(s3.list(""))


def test_error_in_the_middle_of_a_parquet_file_keeps_its_kind(
    s3: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3.open(_parquet(s3)) as file, pq.ParquetFile(file) as parquet:

        def fail(*_: object) -> bytes:
            raise UnavailableError("x", why="y", next_step="z")

        monkeypatch.setattr(ObstoreStorage, "read_ranges", fail)
        with pytest.raises(UnavailableError):
            parquet.read()


def _parquet(storage: Storage) -> str:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": list(range(100_000))}), sink)
    storage.create("f.parquet", sink.getvalue().to_pybytes())
    return "f.parquet"
