"""The processes that the parts of `early.py` ask: pyhudi's local engine, and its Spark."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from measure import ProcessTree
from services_started import WITH_SPARK, Side

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from conformance.client import JudgeClient

EARLY_SIDE = str(Path(__file__).with_name("early_side.py"))
LOCAL, SPARK = "local", "Spark"
PROGRAMS: dict[str, tuple[str, ...]] = {
    LOCAL: (sys.executable, EARLY_SIDE, "local"),
    SPARK: (WITH_SPARK, ".venv", "99", "python", EARLY_SIDE, "spark"),
}


@contextlib.contextmanager
def started(folder: Path, engine: str = LOCAL, name: str = "") -> Iterator[Side]:
    log = folder / f"{engine}{name}.log"
    with JudgeClient(PROGRAMS[engine], folder, log) as client:
        hello = client.start()
        versions = ", ".join(f"{what} {v}" for what, v in hello.items() if what != "pid")
        yield Side(engine, client, ProcessTree(hello["pid"]), versions)
