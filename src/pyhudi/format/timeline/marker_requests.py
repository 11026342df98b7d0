"""What a task may ask of the marker service of its write, and what the service may reply.

    POST /markers/<requested> HTTP/1.1          HTTP/1.1 200 OK
    Authorization: Bearer <token>               Content-Length: …
    Content-Length: …
                                                {"verdict": "stored"}
    <marker path>
    <marker path>

Each connection has one request. Its body is what a list of markers is: a path on each line
(`format.timeline.markers`). The service may be reached by anything on its network, so nothing of a
request is believed: a head is short, the token is compared before anything else of it, the body
has a length that is known and bounded, and a marker names a data file of this instant in the table.
A rollback deletes what markers name.

A refusal says nothing that the request did. So no log can have a token, right or wrong.
"""

from __future__ import annotations

import hmac
import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import MarkerName, parse_data_file
from pyhudi.format.paths import file_name, table_path
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.markers import decode_marker_list, marker_path

HEAD_BYTES_MAX: Final = 8 << 10
BODY_BYTES_MAX: Final = 1 << 20
REPLY_BYTES_MAX: Final = 1 << 20

_METADATA_FOLDER = ".hoodie/"
_LENGTH = re.compile(r"[0-9]{1,18}")
#: Each character can be matched in one way only, so that no header takes long to refuse.
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}):([\t\x20-\x7e]*)")


@dataclass(frozen=True, slots=True)
class ServedWrite:
    """The write that a service serves, and the secret that its tasks know."""

    requested: InstantTime
    token: str = field(repr=False)

    @property
    def target(self) -> str:
        return f"/markers/{self.requested}"


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a request gets no verdict, and its status in HTTP."""

    status: int
    why: str


class Answer(StrEnum):
    """What becomes of the files that were announced."""

    STORED = "stored"  # the task may create them
    CLOSED = "closed"  # the write has ended, or is about to
    CONFLICT = "conflict"  # the write is to stop


@dataclass(frozen=True, slots=True)
class MarkerVerdict:
    """The reply to a request that was understood."""

    answer: Answer
    conflict: str = ""  # the error, as `Answer.CONFLICT` brings it to the task


STORED: Final = MarkerVerdict(Answer.STORED)
CLOSED: Final = MarkerVerdict(Answer.CLOSED)


# ---- the request


def request_head(write: ServedWrite, length: int) -> dict[str, str]:
    """Return the headers of a task's request."""
    return {
        "Authorization": f"Bearer {write.token}",
        "Content-Length": str(length),
        "Content-Type": "text/plain; charset=utf-8",
        "Connection": "close",
    }


def parse_head(data: bytes, write: ServedWrite) -> int | Refused:
    """Return the length of the body that follows the head of a request."""
    if not data.isascii():
        return Refused(400, "it is no HTTP")
    line, *rest = data.decode().removesuffix("\r\n\r\n").split("\r\n")
    method, _, target_and_version = line.partition(" ")
    target, _, version = target_and_version.partition(" ")
    if version != "HTTP/1.1":
        return Refused(400, "it is no HTTP")
    headers: dict[str, str] = {}
    for given in rest:
        header = _HEADER.fullmatch(given)
        if header is None or header[1].lower() in headers:
            return Refused(400, "its headers are no HTTP, or one is there twice")
        headers[header[1].lower()] = header[2].strip(" \t")
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme != "Bearer" or not token:
        return Refused(401, "it has no token")
    if not hmac.compare_digest(token.encode(), write.token.encode()):
        return Refused(401, "its token is not that of this write")
    if target != write.target:
        return Refused(404, "it is about another write, or nothing that is served here")
    if method != "POST":
        return Refused(405, "markers are announced by POST")
    return _length(headers)


def _length(headers: dict[str, str]) -> int | Refused:
    if "transfer-encoding" in headers:
        return Refused(411, "its body has no length")
    text = headers.get("content-length", "")
    if not _LENGTH.fullmatch(text):
        return Refused(411, "its body has no length")
    length = int(text)
    if length > BODY_BYTES_MAX:
        return Refused(413, f"its body has more than {BODY_BYTES_MAX:,} bytes")
    return length


def parse_announced(data: bytes, requested: InstantTime) -> tuple[MarkerName, ...] | Refused:
    """Return the markers that the body of a request lists, each once."""
    if len(data) > BODY_BYTES_MAX:
        return Refused(413, f"its body has more than {BODY_BYTES_MAX:,} bytes")
    try:
        markers = tuple(dict.fromkeys(decode_marker_list(data)))
    except CorruptTableError:
        return Refused(400, "its body has a line that names no data file")
    if not markers:
        return Refused(400, "it announces nothing")
    for marker in markers:
        if (why := _why_not(marker, requested)) is not None:
            return Refused(400, why)
    return markers


def _why_not(marker: MarkerName, requested: InstantTime) -> str | None:
    """Return why the write cannot have such a file; None if it can."""
    try:
        # A list has no such object, but a direct marker in its place has: its name is the longest.
        table_path(marker_path(requested, marker))
        table_path(marker.data_file)
    except CorruptTableError:
        return "a marker's path does not lie inside the table, or is too long"
    if marker.data_file.startswith(_METADATA_FOLDER):
        return "a marker names a file among the table's metadata"
    name = parse_data_file(file_name(marker.data_file))
    if name is None or name.requested != requested:
        return "a marker names a file of another instant"
    return None


# ---- the reply

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    411: "Length Required",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}

#: Sent once a request is understood: its client knows that the service is there, and waits longer.
UNDERSTOOD: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


def encode_reply(reply: MarkerVerdict | Refused) -> bytes:
    """Return the whole response."""
    if isinstance(reply, Refused):
        status, content = reply.status, {"refused": reply.why}
    else:
        status, content = 200, {"verdict": reply.answer.value}
        if reply.conflict:
            content["conflict"] = reply.conflict
    body = json.dumps(content).encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def decode_verdict(status: int, body: bytes) -> MarkerVerdict | None:
    """Return the verdict of a response; None if it has none."""
    if status != 200 or len(body) > REPLY_BYTES_MAX:
        return None
    try:
        content = json.loads(body)
        answer, conflict = Answer(content["verdict"]), content.get("conflict", "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not isinstance(conflict, str) or bool(conflict) is not (answer is Answer.CONFLICT):
        return None
    return MarkerVerdict(answer, conflict)
