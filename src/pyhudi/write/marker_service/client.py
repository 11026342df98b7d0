"""How a task announces its files to the marker service of its write.

One request has one connection. The service says at once that it understood, so a task knows within
two seconds whether it can be reached, and then waits for storage as long as storage takes. What
replies something else than a verdict counts as out of reach: something else may listen there now.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from http.client import HTTPConnection, HTTPException
from typing import Final

from pyhudi.format.files.file_names import MarkerName
from pyhudi.format.timeline.marker_requests import (
    REPLY_BYTES_MAX,
    MarkerVerdict,
    ServedWrite,
    decode_verdict,
    request_head,
)
from pyhudi.format.timeline.markers import encode_marker_list

#: Within these, the service must have been reached, and have understood.
REACHED_SECONDS: Final = 2.0
#: Within these, it must have a verdict.
VERDICT_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Where the tasks of a write find its marker service. It is sent with them."""

    host: str
    port: int
    write: ServedWrite


class NoVerdict(Enum):
    """Why a service gave no verdict."""

    UNREACHABLE = "it cannot be reached"
    NOT_STORED = "it did not store the markers"


def ask(address: ServiceAddress, markers: Sequence[MarkerName]) -> MarkerVerdict | NoVerdict:
    """Announce the markers; return the verdict once they are stored."""
    body = encode_marker_list(markers)
    connection = HTTPConnection(address.host, address.port, timeout=REACHED_SECONDS)
    try:
        head = request_head(address.write, len(body))
        connection.request("POST", address.write.target, body, head)
        connection.sock.recv(1, socket.MSG_PEEK)
        connection.sock.settimeout(VERDICT_SECONDS)
        response = connection.getresponse()
        status, content = response.status, response.read(REPLY_BYTES_MAX + 1)
    except (OSError, HTTPException, ValueError):
        return NoVerdict.UNREACHABLE
    finally:
        connection.close()
    if status == 503:
        return NoVerdict.NOT_STORED
    return decode_verdict(status, content) or NoVerdict.UNREACHABLE
