"""An S3 server on loopback that answers as late as S3 does, and counts what it is asked.

    slow_s3.py SCALE

moto answers, after a request has waited for the median latency of its kind that one region's
servers have, give or take a fifth, times the scale. Waits of several requests pass at once. It
prints its port, and ends with its standard input. `GET /count` returns how many requests there were
of each kind since it was asked last, as JSON.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from true_moto import start_true_moto

BUCKET = "markers"
#: Milliseconds.
LATENCIES = {"PUT": 61, "POST": 50, "GET": 22, "LIST": 35, "HEAD": 20, "DELETE": 30}


class _Late:
    """A server's application, behind the latencies."""

    def __init__(self, application: Callable[..., Iterable[bytes]], scale: float) -> None:
        self._application = application
        self._scale = scale
        self._counts: Counter[str] = Counter()
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        kind = environ["REQUEST_METHOD"]
        if kind == "GET" and environ["PATH_INFO"] == "/count":
            with self._turn:
                body, self._counts = json.dumps(self._counts).encode(), Counter()
            start_response("200 OK", [("Content-Length", str(len(body)))])
            return [body]
        if kind == "GET" and "list-type" in environ["QUERY_STRING"]:
            kind = "LIST"
        with self._turn:
            self._counts[kind] += 1
        time.sleep(LATENCIES[kind] / 1000 * self._scale * random.uniform(0.8, 1.2))
        return self._application(environ, start_response)


def main(scale: float) -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = start_true_moto()
    host, port = server.get_host_and_port()
    with urlopen(Request(f"http://{host}:{port}/{BUCKET}", method="PUT", data=b"")) as answer:
        assert answer.status == 200
    running: Any = server._server
    running.app = _Late(running.app, scale)
    print(port, flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main(float(sys.argv[1]))
