"""What tasks and the marker service of their write say to each other."""

from __future__ import annotations

import json
import random
from time import perf_counter

import pytest

from pyhudi.format.files.file_names import IoType, MarkerName, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.marker_requests import (
    BODY_BYTES_MAX,
    CLOSED,
    STORED,
    Answer,
    MarkerVerdict,
    Refused,
    ServedWrite,
    decode_verdict,
    encode_reply,
    parse_announced,
    parse_head,
    request_head,
)
from pyhudi.format.timeline.markers import encode_marker_list

T = InstantTime("20260102030405678")
OTHER = InstantTime("20260102030405679")
WRITE = ServedWrite(T, "a" * 64)
BASE = MarkerName(f"größe=1/a-0_0-1-2_{T}.parquet", IoType.MERGE)
LOG = MarkerName(f".b-0_{T}.log.1_0-1-2", IoType.CREATE)


def head(
    line: str = f"POST /markers/{T} HTTP/1.1",
    token: str | None = f"Bearer {WRITE.token}",
    length: str | None = "10",
    *more: str,
) -> bytes:
    lines = [line, "Host: driver:4040"]
    lines += [] if token is None else [f"Authorization: {token}"]
    lines += [] if length is None else [f"Content-Length: {length}"]
    return "\r\n".join([*lines, *more, "", ""]).encode("latin-1")


def test_a_task_s_own_head_is_understood() -> None:
    lines = [f"POST {WRITE.target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in request_head(WRITE, 321).items()]
    assert parse_head("\r\n".join([*lines, "", ""]).encode(), WRITE) == 321


REFUSED_HEADS = [
    (head(token=None), 401),
    (head(token="Bearer "), 401),
    (head(token=f"Basic {WRITE.token}"), 401),
    (head(token=f"Bearer {'b' * 64}"), 401),
    (head(token=f"Bearer {WRITE.token}a"), 401),
    (head(token=f"Bearer {WRITE.token[1:]}"), 401),
    (head(f"POST /markers/{OTHER} HTTP/1.1"), 404),
    (head(f"POST /markers/../markers/{T} HTTP/1.1"), 404),
    (head(f"POST /markers/{T}/ HTTP/1.1"), 404),
    (head(f"POST /markers/{T}?x=1 HTTP/1.1"), 404),
    (head(f"POST http://driver/markers/{T} HTTP/1.1"), 404),
    (head("POST / HTTP/1.1"), 404),
    (head(f"GET /markers/{T} HTTP/1.1"), 405),
    (head(f"DELETE /markers/{T} HTTP/1.1"), 405),
    (head(f"POST /markers/{T} HTTP/1.0"), 400),
    (head(f"POST /markers/{T} HTTP/2"), 400),
    (head(f"POST /markers/{T}"), 400),
    (head(""), 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    (b"\xff\xfe\r\n\r\n", 400),
    (b"\r\n\r\n", 400),
    (head(length=None), 411),
    (head(length=""), 411),
    (head(length="-1"), 411),
    (head(length="+1"), 411),
    (head(length="1e3"), 411),
    (head(length="1, 1"), 411),
    (head(length="10000000000"), 413),
    (head(length="9" * 19), 411),
    (head(length=str(BODY_BYTES_MAX + 1)), 413),
    (head(f"POST /markers/{T} HTTP/1.1", f"Bearer {WRITE.token}", None, "Content-Length"), 400),
    (head(WRITE.target, None, None), 400),
]
REFUSED_HEADS += [
    (head(f"POST /markers/{T} HTTP/1.1", f"Bearer {WRITE.token}", "10", more), status)
    for more, status in [
        ("Transfer-Encoding: chunked", 411),
        ("Content-Length: 11", 400),
        (f"authorization: Bearer {WRITE.token}", 400),
        (" continued", 400),
        ("no colon", 400),
        (": nameless", 400),
        ("Bad Name: x", 400),
        ("X: a\rb", 400),
    ]
]


@pytest.mark.parametrize(("data", "status"), REFUSED_HEADS)
def test_other_heads_are_refused(data: bytes, status: int) -> None:
    found = parse_head(data, WRITE)
    assert isinstance(found, Refused)
    assert found.status == status
    assert "aaaa" not in found.why
    assert "bbbb" not in found.why


@pytest.mark.parametrize("end", ["", "\x01", "x\x01"])
def test_no_head_takes_long_to_refuse(end: str) -> None:
    """All tasks wait on the same event loop, and the driver's heartbeat for the interpreter."""
    data = head(f"POST /markers/{T} HTTP/1.1", None, None, f"X:{' ' * 2_000}{end}")
    began = perf_counter()
    assert isinstance(parse_head(data, WRITE), Refused)
    assert perf_counter() - began < 1


def test_the_token_is_looked_at_before_anything_else_of_a_request() -> None:
    found = parse_head(head(f"GET /markers/{OTHER} HTTP/1.1", "Bearer x", None), WRITE)
    assert isinstance(found, Refused)
    assert found.status == 401


def test_no_text_of_the_write_shows_its_token() -> None:
    assert WRITE.token not in repr(WRITE)
    assert WRITE.token not in str(WRITE)


def test_a_body_lists_markers_each_once() -> None:
    assert parse_announced(encode_marker_list([BASE, LOG, BASE]), T) == (BASE, LOG)


LONG = "p" * 240
REFUSED_BODIES = [
    b"",
    b"\n\n",
    b"\xff\xfe",
    b"\x00" * 100,
    b"garbage",
    b"{}",
    b"../../etc/passwd\n",
    f"../a-0_0-1-2_{T}.parquet.marker.CREATE\n".encode(),
    f"p/../../a-0_0-1-2_{T}.parquet.marker.CREATE\n".encode(),
    f"/a-0_0-1-2_{T}.parquet.marker.CREATE\n".encode(),
    f"s3://other/a-0_0-1-2_{T}.parquet.marker.CREATE\n".encode(),
    f"p//a-0_0-1-2_{T}.parquet.marker.CREATE\n".encode(),
    f"p\\q/a-0_0-1-2_{T}.parquet.marker.CREATE\n".encode(),
    f"p\x07/a-0_0-1-2_{T}.parquet.marker.CREATE\n".encode(),
    f".hoodie/a-0_0-1-2_{T}.parquet.marker.CREATE\n".encode(),
    f".hoodie/metadata/p/a-0_0-1-2_{T}.parquet.marker.CREATE\n".encode(),
    f"p/a-0_0-1-2_{OTHER}.parquet.marker.CREATE\n".encode(),
    f"p/.b-0_{OTHER}.log.1_0-1-2.marker.CREATE\n".encode(),
    f"p/a-0_0-1-2_{T}.parquet.marker.DELETE\n".encode(),
    f"p/a-0_0-1-2_{T}.exe.marker.CREATE\n".encode(),
    f"{'/'.join([LONG] * 20)}/a-0_0-1-2_{T}.parquet.marker.CREATE\n".encode(),
    BASE.path.encode() + b"\nhoodie.properties\n",
]


@pytest.mark.parametrize("data", REFUSED_BODIES)
def test_other_bodies_are_refused_whole(data: bytes) -> None:
    found = parse_announced(data, T)
    assert isinstance(found, Refused)
    assert found.status == 400


def test_a_body_that_is_too_long_is_refused() -> None:
    found = parse_announced(b"\n" * (BODY_BYTES_MAX + 1), T)
    assert isinstance(found, Refused)
    assert found.status == 413


def test_a_path_that_a_direct_marker_could_not_have_is_refused() -> None:
    near = "/".join([LONG] * 17)[: 4096 - len(f"/a-0_0-1-2_{T}.parquet")]
    marker = MarkerName(f"{near}/a-0_0-1-2_{T}.parquet", IoType.CREATE)
    assert isinstance(parse_announced(encode_marker_list([marker]), T), Refused)


@pytest.mark.parametrize(
    "verdict", [STORED, CLOSED, MarkerVerdict(Answer.CONFLICT, '{"rival": "größer"}')]
)
def test_verdicts_round_trip(verdict: MarkerVerdict) -> None:
    head_, _, body = encode_reply(verdict).partition(b"\r\n\r\n")
    assert head_.startswith(b"HTTP/1.1 200 OK\r\n")
    assert f"Content-Length: {len(body)}".encode() in head_
    assert decode_verdict(200, body) == verdict


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b""),
        (200, b"<html>"),
        (200, b"\xff"),
        (200, b"[]"),
        (200, b"3"),
        (200, b"{}"),
        (200, b'{"verdict": "yes"}'),
        (200, b'{"verdict": ["stored"]}'),
        (200, b'{"verdict": "conflict"}'),
        (200, b'{"verdict": "conflict", "conflict": 3}'),
        (200, b'{"verdict": "stored", "conflict": "x"}'),
        (200, b"[" * 100_000),
        (200, json.dumps({"verdict": "stored", "x": "y" * (1 << 20)}).encode()),
        (204, b'{"verdict": "stored"}'),
        (401, b'{"refused": "no token"}'),
    ],
)
def test_other_replies_are_no_verdict(status: int, body: bytes) -> None:
    assert decode_verdict(status, body) is None


@pytest.mark.parametrize("status", [400, 401, 404, 405, 408, 411, 413, 431, 503])
def test_a_refusal_is_a_reply_without_a_verdict(status: int) -> None:
    head_, _, body = encode_reply(Refused(status, "why")).partition(b"\r\n\r\n")
    assert head_.startswith(f"HTTP/1.1 {status} ".encode())
    assert json.loads(body) == {"refused": "why"}
    assert decode_verdict(status, body) is None


def test_changed_bytes_are_a_request_or_a_refusal_and_never_an_error() -> None:
    whole, body = head(), encode_marker_list([BASE, LOG])
    for seed in range(2_000):
        chance = random.Random(seed)
        at, byte = chance.randrange(len(whole)), chance.randrange(256)
        changed = whole[:at] + bytes([byte]) + whole[at + chance.randrange(3) :]
        found = parse_head(changed, WRITE)
        if not isinstance(found, Refused):
            assert WRITE.token.encode() in changed
            assert WRITE.target.encode() in changed
            assert 0 <= found <= BODY_BYTES_MAX
        at = chance.randrange(len(body))
        markers = parse_announced(body[:at] + bytes([byte]) + body[at + chance.randrange(3) :], T)
        for marker in () if isinstance(markers, Refused) else markers:
            name = parse_data_file(file_name(marker.data_file))
            assert name is not None
            assert name.requested == T
            assert ".." not in marker.data_file.split("/")
