"""How a task announces its files to the marker service of its write.

One request has one connection. The service says at once that it understood, so a task knows within
two seconds whether it can be reached, and then waits for storage as long as storage takes. What
replies something else than a verdict counts as out of reach: something else may listen there now.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from http.client import HTTPConnection, HTTPException
from typing import Final

from pyhudi.conflict.announced import Met
from pyhudi.format.files.file_names import MarkerName
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.marker_requests import (
    REPLY_BYTES_MAX,
    Answer,
    MarkerVerdict,
    ServedWrite,
    decode_verdict,
    request_head,
)
from pyhudi.format.timeline.markers import encode_marker_list
from pyhudi.storage.protocol import Storage
from pyhudi.write.files.announcing import DIRECT, Stored, Verdict
from pyhudi.write.markers.kind import warn_of_direct

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


# ---- how tasks announce


@dataclass(frozen=True, slots=True)
class ServedMarkers:
    """Announce files to the service, or directly where it cannot be reached."""

    address: ServiceAddress

    def announce(self, storage: Storage, requested: InstantTime, marker: MarkerName, /) -> Verdict:
        address = self.address
        if requested != address.write.requested or address in _out_of_reach:
            return DIRECT.announce(storage, requested, marker)
        replied = ask(address, [marker])
        if isinstance(replied, MarkerVerdict):
            if replied.answer is not Answer.CONFLICT:
                return Stored(is_open=replied.answer is Answer.STORED)
            with suppress(ValueError):
                return decode_met(replied.conflict)
            replied = NoVerdict.UNREACHABLE
        if replied is NoVerdict.UNREACHABLE:
            _note(address)
        return DIRECT.announce(storage, requested, marker)


#: Services that tasks of this process could not reach. Those of a worker come one after the other,
#: and need not find that out again.
_out_of_reach: set[ServiceAddress] = set()
_OUT_OF_REACH_MAX = 256


def _note(address: ServiceAddress) -> None:
    if len(_out_of_reach) >= _OUT_OF_REACH_MAX:
        _out_of_reach.clear()
    _out_of_reach.add(address)
    warn_of_direct(
        f"the marker service of the write {address.write.requested} at {address.host}:"
        f"{address.port} cannot be reached from this process. If it stays so, make that host and a"
        " fixed MarkerService(port=...) known to the executors, or use direct markers"
    )


def encode_met(met: Met) -> str:
    return json.dumps(met.facts)


def decode_met(text: str) -> Met:
    """Return the conflict that the service reports; ValueError if it is none."""
    facts = json.loads(text)
    if not isinstance(facts, dict):
        raise ValueError("not the facts of a conflict")
    return Met.of(facts)
