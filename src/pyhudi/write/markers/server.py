"""The marker service of one write: HTTP in the driver's process, for as long as the tasks run.

Anything on the network may connect, and none of that may delay a task. So all connections are on
one event loop, and none waits in a thread; each has a deadline for its request, and one request.
Of connections that have not shown the write's token only so many are held. Another one ends the
oldest, so that a peer that opens many keeps no task out.

Refusals are logged, with the peer's address and without a byte that it sent.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pyhudi.conflict.announced import Met
from pyhudi.conflict.file_groups import Footprint
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.marker_requests import (
    CLOSED,
    HEAD_BYTES_MAX,
    UNDERSTOOD,
    Answer,
    MarkerVerdict,
    Refused,
    ServedWrite,
    encode_reply,
    parse_announced,
    parse_head,
)
from pyhudi.settings import MarkerService
from pyhudi.storage.protocol import Storage
from pyhudi.world import World, event_loop
from pyhudi.write.markers.batches import MarkerBatches
from pyhudi.write.markers.client import ServedMarkers, ServiceAddress, encode_met

_LOGGER = logging.getLogger("pyhudi.markers")

#: A whole request must have arrived by then.
REQUEST_SECONDS: Final = 10
#: Connections that have not shown the token.
STRANGERS_MAX: Final = 256
#: Refusals that are logged one by one; the others are only counted.
LOGGED_MAX: Final = 20
#: Connections that the system may keep for the service until it accepts them.
_BACKLOG = 1_024
_TOKEN_BYTES = 32


class MarkerServer:
    """Stores the markers that the tasks of one write announce, and tells them when to stop."""

    def __init__(
        self, storage: Storage, requested: InstantTime, world: World, settings: MarkerService
    ) -> None:
        self._write = ServedWrite(requested, world.random_bytes(_TOKEN_BYTES).hex())
        self._batches = MarkerBatches(storage, requested, world.elapsed_ms, settings)
        self._threads = settings.threads + 1  # one of them looks whether the write is over
        self._strangers: dict[asyncio.StreamWriter, None] = {}
        self._replying: set[asyncio.Task[None]] = set()
        self._refused = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end_loop: Callable[[], None] | None = None
        self._server: asyncio.Server | None = None

    # -- its life

    def start(self, bind: str, port: int, host: str) -> ServedMarkers:
        """Listen on this address; return how tasks announce files, which find it by this host.

        Port 0 is a free one. OSError if the address cannot be had.
        """
        listening = _listening(bind, port)
        self._loop, self._end_loop = event_loop(self._threads)
        opening = asyncio.start_server(
            self._connected, sock=listening, limit=HEAD_BYTES_MAX, backlog=_BACKLOG
        )
        self._server = asyncio.run_coroutine_threadsafe(opening, self._loop).result()
        return ServedMarkers(ServiceAddress(host, listening.getsockname()[1], self._write))

    def close(self) -> None:
        """Let no task create a file any more, wait for what is being stored, and end."""
        self._batches.stop(CLOSED)
        if self._loop is None or self._end_loop is None:
            return
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._end_loop()
        self._loop = self._end_loop = None
        if self._refused > LOGGED_MAX:
            _LOGGER.warning(
                "the marker service of %s refused %d requests in all",
                self._write.requested,
                self._refused,
            )

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._batches.end()
        if self._replying:
            await asyncio.wait(self._replying, timeout=1)
        for task in [*self._replying]:
            task.cancel()
        if self._replying:
            await asyncio.wait(self._replying)

    # -- what the driver asks of it

    def stop(self, met: Met | None = None) -> None:
        """Let no task create a file any more, because the write is over or yields to a rival.

        The service goes on telling them.
        """
        verdict = CLOSED if met is None else MarkerVerdict(Answer.CONFLICT, encode_met(met))
        self._batches.stop(verdict)

    def announced(self) -> Footprint:
        """Return where tasks have announced files, whether or not the markers are stored yet."""
        return self._batches.announced()

    # -- one connection

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._replying.add(task)
        self._strangers[writer] = None
        if len(self._strangers) > STRANGERS_MAX:
            self._drop_oldest_stranger()
        try:
            reply = await self._reply(reader, writer)
            if isinstance(reply, Refused):
                self._log(writer, reply.why)
            writer.write(encode_reply(reply))
            async with asyncio.timeout(REQUEST_SECONDS):
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()  # the client left, or the service ends
        finally:
            self._strangers.pop(writer, None)
            self._replying.discard(task)
            with suppress(OSError):
                writer.close()

    async def _reply(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> MarkerVerdict | Refused:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                except asyncio.LimitOverrunError:
                    return Refused(431, f"its head has more than {HEAD_BYTES_MAX:,} bytes")
                length = parse_head(head, self._write)
                if isinstance(length, Refused):
                    return length
                self._strangers.pop(writer, None)
                writer.write(UNDERSTOOD)
                body = await reader.readexactly(length)
        except TimeoutError:
            return Refused(408, f"it did not arrive within {REQUEST_SECONDS} seconds")
        markers = parse_announced(body, self._write.requested)
        return markers if isinstance(markers, Refused) else await self._batches.announce(markers)

    def _drop_oldest_stranger(self) -> None:
        oldest = next(iter(self._strangers))
        del self._strangers[oldest]
        self._log(oldest, "it has not shown its token, and there are too many like it")
        oldest.transport.abort()

    def _log(self, writer: asyncio.StreamWriter, why: str) -> None:
        self._refused += 1
        if self._refused <= LOGGED_MAX:
            peer = writer.get_extra_info("peername") or ("a peer that left",)
            _LOGGER.warning(
                "the marker service of %s refused a request of %s: %s",
                self._write.requested,
                peer[0],
                why,
            )


def _listening(bind: str, port: int) -> socket.socket:
    """Return a socket that listens on one of the name's addresses.

    With a free port, several addresses would have several ports.
    """
    found = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)
    family, *_, address = min(found, key=lambda each: each[0] is not socket.AF_INET)
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
