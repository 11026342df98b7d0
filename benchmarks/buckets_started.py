"""The processes that the parts of `buckets.py` ask."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from measure import ProcessTree
from services_started import LOCAL, Side

from conformance.client import JudgeClient

PROGRAM = str(Path(__file__).parent / "buckets_side.py")


@contextlib.contextmanager
def started(folder: Path, engine: str = LOCAL) -> Iterator[Side]:
    """A process in the environment of this one, which `make bench` made for Spark."""
    command = (sys.executable, PROGRAM, engine.lower())
    with JudgeClient(command, folder, folder / f"{engine}.log") as client:
        hello = client.start()
        yield Side(engine, client, ProcessTree(hello["pid"]), "")
