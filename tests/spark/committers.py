"""Spark drivers that commit to one table at the same time, as a test starts and hears them.

Each is a process of its own with a session of its own (`drivers/committer.py`). It is given a table
and commits, and answers after each of them.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark.cluster import DRIVERS, START_S, Process

Message = dict[str, Any]

#: For `committer.py`: files that it makes or waits for at a driver's first commit.
Signals = Mapping[str, Any]

SESSION_S = 400  # until the last of four drivers that start at once is there
SESSION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    # To compile code for a dozen rows takes longer than everything else.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class SparkDriver:
    """A driver program that runs, and the thread that listens to it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._heard: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        settings = {**SESSION, "spark.local.dir": str(folder)}  # nothing of a killed one stays
        self._process = Process(
            [sys.executable, str(DRIVERS / "committer.py"), name, json.dumps(settings)],
            folder / f"{name}.log",
            os.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.is_idle = False

    def _listen(self) -> None:
        assert self._process.popen.stdout is not None
        for line in self._process.popen.stdout:
            self._heard.put(json.loads(line))
        self._heard.put(None)

    def await_session(self) -> None:
        self._known(self._heard.get(timeout=SESSION_S))
        self.is_idle = True

    def begin(self, table: Path, commits: Sequence[Message], settings: Message) -> None:
        """Have it make the commits, with these write settings."""
        task = {"table": str(table), "settings": settings, "commits": commits}
        self.is_idle = False
        assert self._process.popen.stdin is not None
        self._process.popen.stdin.write(json.dumps(task) + "\n")
        self._process.popen.stdin.flush()

    def heard(self) -> Iterator[Message]:
        """Its answers since the last time."""
        while not self._heard.empty():
            yield from self._answer(self._known(self._heard.get()))

    def ends(self) -> list[Message]:
        """Its answers until it is idle."""
        answers: list[Message] = []
        while not self.is_idle:
            answers += self._answer(self._known(self._heard.get(timeout=SESSION_S)))
        return answers

    def _answer(self, heard: Message) -> Iterable[Message]:
        if "done" not in heard:
            return [heard]
        self.is_idle = True
        return []

    def _known(self, heard: Message | None) -> Message:
        if heard is None:
            pytest.fail(f"driver {self.name} ended: {self._process.log}")
        return heard

    def kill(self) -> None:
        """With its JVM, which may be in the midst of something."""
        if self._process.is_running():
            os.killpg(self._process.popen.pid, signal.SIGKILL)
        self._listener.join(START_S)
        self._process.kill()


@contextmanager
def running_drivers(folder: Path, names: Iterable[str]) -> Iterator[list[SparkDriver]]:
    """Drivers of these names, all of which start at once; killed at the end."""
    with ExitStack() as stack:
        drivers = []
        for name in names:
            drivers.append(SparkDriver(name, folder))
            stack.callback(drivers[-1].kill)
        for driver in drivers:
            driver.await_session()
        yield drivers


def overtaken(folder: Path) -> list[Signals]:
    """The first driver begins first, and the second one completes before it."""
    begun, done = str(folder / "begun"), str(folder / "done")
    return [
        {"begun": begun, "completes_after": [done]},
        {"begins_after": [begun], "done": done},
    ]
