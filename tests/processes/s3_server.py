"""S3 as moto plays it, with one bucket, as a process of its own that all writers share.

    cd tests && python -m processes.s3_server

Prints its port, and ends when its standard input does: with whoever started it.
"""

from __future__ import annotations

import logging
import sys
from urllib.request import Request, urlopen

from processes.stores import BUCKET
from true_moto import start_true_moto


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = start_true_moto()
    host, port = server.get_host_and_port()
    with urlopen(Request(f"http://{host}:{port}/{BUCKET}", method="PUT", data=b"")) as answer:
        assert answer.status == 200
    print(port, flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
