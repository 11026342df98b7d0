"""One of several processes that want a lock: lock_racer.py ORDERS

`race`: takes the lock time and again, and in it creates a file that must not be there. `hold`:
takes the lock, says so, and tells at each line of its input whether it believes to have it still.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from pyhudi.errors import UnavailableError
from pyhudi.format.lock.lock_address import parse_lock_address
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.storage.locks.lock import Lock
from pyhudi.storage.locks.open_lock import open_lock
from pyhudi.storage.open import open_storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.world import real_world

WAIT_MS = 120_000


class Racer:
    """Such a process, from the side of a test."""

    def __init__(self, **orders: Any) -> None:
        environment = {**os.environ, "AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "n"}
        self.process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(orders, default=str)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> Any:
        """What it says next."""
        text = _pipe(self.process.stdout).readline()
        assert text, _pipe(self.process.stderr).read()
        return json.loads(text)

    def asked(self) -> Any:
        """What it says of the lock it holds."""
        stdin = _pipe(self.process.stdin)
        stdin.write("\n")
        stdin.flush()
        return self.line()

    def finish(self) -> None:
        """Let it give the lock back, and end."""
        _, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, errors

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None, "Popen was told to make it"
    return stream


def opened(
    kind: str,
    options: Mapping[str, object],
    uri: str = "",
    storage_options: Mapping[str, str] | None = None,
) -> Lock:
    """The lock of a table at the address, if it is one that lies in the table."""
    address = parse_lock_address(LockKind(kind), options, "orders")
    storage = open_storage(uri, storage_options) if uri else MemoryStorage(lambda: 0)
    lock = open_lock(LockKind(kind), storage, real_world(), address=address)
    assert lock is not None
    return lock


def race(lock: Lock, witness: str, rounds: int, hold_ms: int) -> None:
    for _ in range(rounds):
        held = lock.acquire(WAIT_MS)
        os.close(os.open(witness, os.O_CREAT | os.O_EXCL))  # fails if another is inside
        with Path(f"{witness}.order").open("a") as order:
            order.write("P")
        time.sleep(hold_ms / 1000)
        assert held.is_held()
        Path(witness).unlink()
        held.release()


def hold(lock: Lock) -> None:
    began = time.monotonic()
    held = lock.acquire(WAIT_MS)
    say({"waited_ms": int((time.monotonic() - began) * 1000)})
    for _ in sys.stdin:
        remaining_ms = held.remaining_ms()  # first, for it asks nobody
        try:
            is_held: bool | None = held.is_held()
        except UnavailableError:
            is_held = None
        say({"remaining_ms": remaining_ms, "is_held": is_held})
    held.release()


def say(what: Mapping[str, object]) -> None:
    print(json.dumps(what), flush=True)


def main(orders: dict[str, Any]) -> None:
    deed = orders.pop("deed")
    place = [orders.pop(name, None) for name in ("uri", "storage_options")]
    lock = opened(orders.pop("kind"), orders.pop("options"), *place)
    if deed == "hold":
        return hold(lock)
    race(lock, **orders)
    say({"entered": orders["rounds"]})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
