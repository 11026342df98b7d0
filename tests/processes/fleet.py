"""Writers as processes of this machine, and the trouble that is made for them.

A kill ends a writer between any two instructions; a freeze lets it sleep past its heartbeat's
timeout, so that others give its write up, and then wakes it in the belief that it is alive. Whom
it meets, and when, comes from a seed; what the machine makes of it does not.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from processes.companion import CompanionOrders
from processes.stores import TESTS
from processes.worker import Orders
from processes.workload import HEARTBEAT_TIMEOUT_S

STOP_S = 240  # for a process to finish the batch it is at, on a machine that has much to do
_BETWEEN_S = (0.2, 1.2)  # from one deed to the next, at least
_BETWEEN_BYTES = 1_500  # of the journals: some writes should get through between two deeds
_BETWEEN_MAX_S = 4.0  # but none may be waited for, when all hang on a frozen one
_FROZEN_S = (1.3 * HEARTBEAT_TIMEOUT_S, 2.0 * HEARTBEAT_TIMEOUT_S)  # then others go past it
_FROZEN_BYTES = 1_000  # of their journals, which tells that they did
_FROZEN_MAX_S = 20.0  # but it wakes in any case
_FROZEN_MAX = 2  # of the writers at once: the others are to go on meanwhile
_FREEZES = 0.45  # of the deeds; the others are kills
_LEFT_MIN = 2  # writers of a table that stay at work: starting takes long on a busy machine
_TICK_S = 0.05
_STDERR_SHOWN = 4_000
_STACK_S = 2.0  # for a process to tell where it is


@dataclass(slots=True)
class Sleep:
    """How long a frozen writer sleeps."""

    timed_out_at: float  # by then its heartbeat looks dead
    noted: int | None = None  # bytes of the others' journals at that moment


class Writer:
    """One writer or its companion, in one process after another."""

    def __init__(
        self,
        orders: Orders | CompanionOrders,
        folder: Path,
        module: str = "processes.worker",
        *,
        dies: bool = False,
    ) -> None:
        """`dies` if it may kill itself."""
        self._module = module
        self._ends = {-signal.SIGKILL} if dies else set[int]()
        self.name = Path(orders.journal).stem
        self.table = orders.uri
        self._journal = Path(orders.journal)
        self._orders = folder / f"{self.name}.orders.json"
        self._orders.write_text(json.dumps(asdict(orders)), "utf-8")
        self._stderr = folder / f"{self.name}.stderr.txt"
        self.sleep: Sleep | None = None
        self._expected: set[int] = set()
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        self._noted = self.journal_bytes()
        self.sleep = None
        self._expected = set(self._ends)
        command = [sys.executable, "-m", self._module, str(self._orders)]
        with self._stderr.open("ab") as stderr:
            return subprocess.Popen(command, cwd=TESTS, stdin=subprocess.DEVNULL, stderr=stderr)

    def journal_bytes(self) -> int:
        return self._journal.stat().st_size if self._journal.exists() else 0

    @property
    def is_up(self) -> bool:
        return self._process.poll() is None

    @property
    def is_at_work(self) -> bool:
        """Whether it has come as far as to write: starting takes long and harms nobody."""
        return self.is_up and self.sleep is None and self.journal_bytes() > self._noted

    def restart(self) -> None:
        self._process = self._started()

    def kill(self) -> None:
        self._expected.add(-signal.SIGKILL)
        self._process.kill()
        self._process.wait()

    def freeze(self, for_s: float) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)
        self.sleep = Sleep(time.monotonic() + for_s)

    def thaw(self) -> None:
        if self.sleep is not None and self.is_up:
            os.kill(self._process.pid, signal.SIGCONT)
        self.sleep = None

    def wake(self) -> None:
        """Go on, if it stopped itself."""
        if self.is_up:
            os.kill(self._process.pid, signal.SIGCONT)

    def ask_to_stop(self) -> None:
        self._expected |= {0, -signal.SIGTERM}  # the latter if it had not begun
        if self.is_up:
            self._process.terminate()

    def await_end(self, deadline: float) -> str | None:
        """What is wrong with how it ended; None if nothing is."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.ask_where()
            time.sleep(_STACK_S)
            self.kill()
            return f"{self.name} did not stop: {self._said()}"
        return self.complaint()

    def ask_where(self) -> None:
        """Have it write to stderr where it is."""
        if self.is_at_work:
            os.kill(self._process.pid, signal.SIGUSR1)

    def complaint(self) -> str | None:
        """What is wrong with its end, if it has ended."""
        code = self._process.poll()
        if code is None or code in self._expected:
            return None
        return f"{self.name} ended by itself with {code}: {self._said()}"

    def _said(self) -> str:
        return self._stderr.read_text("utf-8", "replace")[-_STDERR_SHOWN:]


class Deeds:
    """What was done to the writers, counted and kept in a file, by the clock of the journals."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: Counter[str] = Counter()

    def note(self, deed: str, writer: Writer) -> None:
        self._counts[deed] += 1
        record = {"deed": deed, "at": time.monotonic_ns(), "writer": writer.name}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    @property
    def kills(self) -> int:
        return self._counts["kill"]

    @property
    def freezes(self) -> int:
        return self._counts["freeze"]

    @property
    def stalls(self) -> int:
        """Times that the others hardly wrote while one of them was frozen."""
        return self._counts["stall"]


class Fleet:
    """The writers of all tables; none outlives it."""

    def __init__(self, orders: Iterable[Orders], folder: Path, seed: int) -> None:
        self.deeds = Deeds(folder / "deeds.jsonl")
        self.complaints: list[str] = []
        self._chance = random.Random(f"{seed}/fleet")
        self._orders = list(orders)
        self._folder = folder
        self._writers: list[Writer] = []
        self._last = (time.monotonic(), 0)
        self._pause = 0.0

    def __enter__(self) -> Self:
        try:
            for each in self._orders:
                self._writers.append(Writer(each, self._folder))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for writer in self._writers:
            writer.kill()

    @property
    def at_work(self) -> list[Writer]:
        """Writers that are neither frozen nor just starting."""
        return [writer for writer in self._writers if writer.is_at_work]

    def trouble(self, is_enough: Callable[[], bool]) -> None:
        """Kill and freeze writers at random, and start them again."""
        while not self.complaints and not is_enough():
            time.sleep(_TICK_S)
            self._mend()
            if self._is_time() and self._harm():
                self._last = (time.monotonic(), self._journal_bytes())
                self._pause = self._chance.uniform(*_BETWEEN_S)

    def _is_time(self) -> bool:
        """Whether the writers have had some peace since the last deed."""
        at, noted = self._last
        passed = time.monotonic() - at
        if passed > _BETWEEN_MAX_S:
            return True
        return passed > self._pause and self._journal_bytes() > noted + _BETWEEN_BYTES

    def _journal_bytes(self) -> int:
        return sum(writer.journal_bytes() for writer in self._writers)

    def _mend(self) -> None:
        for writer in self._writers:
            if complaint := writer.complaint():
                self.complaints.append(complaint)
            if not writer.is_up:
                writer.restart()
                self.deeds.note("start", writer)
            elif writer.sleep is not None and self._has_slept_enough(writer, writer.sleep):
                writer.thaw()
                self.deeds.note("thaw", writer)

    def _has_slept_enough(self, writer: Writer, sleep: Sleep) -> bool:
        """Whether others have written since its heartbeat timed out, and so given up its write."""
        now = time.monotonic()
        if now < sleep.timed_out_at:
            return False
        others = [w for w in self._writers if w.table == writer.table and w is not writer]
        noted = sum(other.journal_bytes() for other in others)
        if sleep.noted is None:
            sleep.noted = noted
        if noted > sleep.noted + _FROZEN_BYTES:
            return True
        if now < sleep.timed_out_at + _FROZEN_MAX_S:
            return False
        for other in others:
            other.ask_where()
        self.deeds.note("stall", writer)
        return True

    def _harm(self) -> bool:
        """Do something to a writer that is at work, if enough others of its table are."""
        at_work = self.at_work
        crowds = Counter(writer.table for writer in at_work)
        crowded = [writer for writer in at_work if crowds[writer.table] > _LEFT_MIN]
        if not crowded:
            return False
        victim = self._chance.choice(crowded)
        frozen = sum(writer.sleep is not None for writer in self._writers)
        if frozen < _FROZEN_MAX and self._chance.random() < _FREEZES:
            victim.freeze(self._chance.uniform(*_FROZEN_S))
            self.deeds.note("freeze", victim)
        else:
            victim.kill()
            self.deeds.note("kill", victim)
        return True

    def stop(self, kills: int) -> None:
        """Kill some for good, so that repair has something to do, and let the others finish."""
        for writer in self._chance.sample(self._writers, kills):
            writer.kill()
            self.deeds.note("kill", writer)
        for writer in self._writers:
            writer.thaw()
            writer.ask_to_stop()
        deadline = time.monotonic() + STOP_S
        for writer in self._writers:
            if complaint := writer.await_end(deadline):
                self.complaints.append(complaint)
