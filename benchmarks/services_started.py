"""The processes that the parts of `services.py` ask: pyhudi's local engine, its Spark, and Hudi."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import ProcessTree

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from conformance.client import JAVA_NEWEST, JudgeClient

ANSWER_S = 900.0

HERE = Path(__file__).parent
WITH_SPARK = str(HERE.parent / "scripts" / "with_spark.sh")
PYHUDI_SIDE = str(HERE / "services_side.py")
HUDI_SIDE = str(HERE / "services_hudi.py")
LOCAL, SPARK, HUDI = "local", "Spark", "Hudi"
PROGRAMS: dict[str, tuple[str, ...]] = {
    LOCAL: (sys.executable, PYHUDI_SIDE, "local"),
    SPARK: (WITH_SPARK, ".venv", "99", "python", PYHUDI_SIDE, "spark"),
    HUDI: (WITH_SPARK, ".venv-judge", JAVA_NEWEST, "python", HUDI_SIDE),
}


@dataclass
class Side:
    """A process that works when it is asked to."""

    name: str
    client: JudgeClient
    tree: ProcessTree
    versions: str

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        return self.client.ask(command, timeout_s=ANSWER_S, **arguments)[0]


@contextlib.contextmanager
def started(name: str, folder: Path) -> Iterator[Side]:
    """JudgeMissingError if it is Hudi, and cannot be had here."""
    with JudgeClient(PROGRAMS[name], folder, folder / f"{name}.log") as client:
        hello = client.start()
        versions = ", ".join(f"{what} {v}" for what, v in hello.items() if what != "pid")
        yield Side(name, client, ProcessTree(hello["pid"]), versions)


def at_least(what: str, ratio: float, limit: float) -> bool:
    """Print one line; True when the ratio reaches the limit."""
    met = ratio >= limit
    print(f"  {what}: {ratio:.2f} (at least {limit:g}) {'ok' if met else 'MISSED'}")
    return met


def progress(text: str) -> None:
    if sys.stderr.isatty():  # a run takes minutes
        print(f"  ... {text}", file=sys.stderr)
