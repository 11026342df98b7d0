"""moto's S3 server, made to keep its promise.

moto checks a condition and stores an object in two steps, so under load two writers can both be
told that they created it: `pyhudi.storage.probe` finds it out, as it should. Here one request at
a time reaches moto, and what remains is an S3 server whose conditional writes are true.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.server import ThreadedMotoServer

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


class _OneAtATime:
    def __init__(self, application: Application) -> None:
        self._application = application
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if length := int(environ.get("CONTENT_LENGTH") or 0):
            # Before its turn: a client that freezes while it sends must not stop the others.
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        with self._turn:
            return list(self._application(environ, start_response))


def start_true_moto() -> ThreadedMotoServer:
    """A running server on a free port of this machine."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    server.get_host_and_port()  # waits until it runs
    running: Any = server._server
    running.app = _OneAtATime(running.app)
    return server
