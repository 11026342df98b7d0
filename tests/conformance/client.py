"""Asking the judges: one process that serves questions for the whole run.

The judges live in an environment of their own (`judge/`, `requirements/judge.in`), so they are a
process away: a JSON command goes in, a JSON answer comes out. Its stderr is kept in a file, and the
end of it is part of every error. A question that takes too long ends the process, and the next one
starts another; so does a crash.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

Row = dict[str, Any]
Question = dict[str, Any]  # a command under "cmd", and its arguments

TESTS = Path(__file__).parents[1]
ENVIRONMENT = ".venv-judge"
JAVA_NEWEST = "21"  # for PySpark 3.5
SERVE = (
    str(TESTS.parent / "scripts" / "with_spark.sh"),
    *(ENVIRONMENT, JAVA_NEWEST, "python", "-m", "conformance.judge", "serve"),
)

START_S = 480.0  # the first start on a machine fetches the bundle, some 80 MB
ANSWER_S = 300.0  # of which a busy machine takes more than an idle one
STOP_S = 10.0
SHOWN_LINES = 40

#: What a start that cannot succeed here says, and what it means. Any other failure is a fault.
MISSING = (
    (r"This Spark needs Java .*none was found", "there is no Java that PySpark 3.5 runs on"),
    (
        r"(?s)(UnknownHostException|Host \S+ not found|Connection (refused|timed out)|"
        r"Connect timed out|Network is unreachable).*could not be fetched",
        "the network is out of reach, and Hudi's bundle has not been fetched yet",
    ),
)


class JudgeError(Exception):
    """A judge said no, or could not answer."""


class JudgeMissingError(Exception):
    """The judges cannot be had on this machine; the message says why."""


class JudgeClient:
    """The judges, as a process that starts with the first question."""

    def __init__(self, command: Sequence[str], folder: Path, log: Path) -> None:
        self._command = command
        self._folder = folder
        self._log = log
        self._running: _Running | None = None

    # -- what may be asked

    def start(self) -> Row:
        """Start the JVM and say which versions run; JudgeMissingError if it cannot be had here."""
        try:
            return self.ask("hello", timeout_s=START_S)[0]
        except JudgeError as error:
            text = self._log.read_text(errors="replace")
            for pattern, meaning in MISSING:
                if re.search(pattern, text):
                    raise JudgeMissingError(meaning) from error
            raise

    def hudi_rows(self, path: str | Path, **how: Any) -> list[Row]:
        """What Hudi reads: `query_type`, `as_of`, `begin`, `end`, `columns`, `meta`, `options`."""
        return self.ask("read", path=path, **how)

    def rs_rows(self, path: str | Path, **how: Any) -> list[Row]:
        """What hudi-rs reads; the arguments are those of `hudi_rows`."""
        return self.ask("rs-read", path=path, **how)

    def hudi_stream(self, path: str | Path, checkpoint: str | Path) -> list[Row]:
        """The rows of the next micro-batch of Hudi's streaming source."""
        return self.ask("stream", path=path, checkpoint=checkpoint)

    def hudi_write(
        self,
        path: str | Path,
        rows: Sequence[Row],
        schema: str,
        options: Mapping[str, str],
        op: str = "upsert",
    ) -> list[Row]:
        """Have Hudi write encoded rows; the instants that this added to the timeline."""
        return self.ask("write", path=path, rows=rows, schema=schema, options=options, op=op)

    def hudi_call(self, procedure: str, path: str | Path, **arguments: Any) -> list[Row]:
        """Have Hudi run one of its procedures, such as `compaction` or `clean`."""
        return self.ask("call", procedure=procedure, path=path, arguments=arguments)

    def hudi_timeline(self, path: str | Path, *, archived: bool = False) -> list[Row]:
        return self.ask("timeline", path=path, archived=archived)

    def hudi_slices(self, path: str | Path) -> list[Row]:
        return self.ask("slices", path=path)

    def hudi_schema(self, path: str | Path) -> str:
        """The columns as Spark writes them in SQL, without meta columns."""
        return str(self.ask("schema", path=path)[0]["schema"])

    def ask_all(self, questions: Sequence[Question]) -> list[list[Row]]:
        """The answers to several questions, on which both judges work at the same time."""
        answers = self.ask("several", commands=questions)
        for question, answer in zip(questions, answers, strict=True):
            if not answer["ok"]:
                raise JudgeError(f"{question}: {answer['error']}")
        return [answer["rows"] for answer in answers]

    def ask(self, command: str, *, timeout_s: float = ANSWER_S, **arguments: Any) -> list[Row]:
        heard = self._log.stat().st_size if self._log.exists() else 0
        if self._running is None:
            self._running = _Running(self._command, self._folder, self._log)
        question = json.dumps({"cmd": command, **arguments}, default=os.fspath)
        try:
            answer = self._running.answer(question, timeout_s)
        except (TimeoutError, OSError, ValueError) as error:
            self.close()
            raise JudgeError(
                f"no answer to {command}: {error}{self._words_since(heard)}"
            ) from error
        if not answer["ok"]:
            raise JudgeError(f"{command}: {answer['error']}{self._words_since(heard)}")
        rows: list[Row] = answer["rows"]
        return rows

    # -- its life

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Let the process and its JVM stand still meanwhile, in the midst of whatever they do."""
        assert self._running is not None, "nothing was asked yet"
        self._running.signal(signal.SIGSTOP)
        self._running.await_standstill()
        try:
            yield
        finally:
            self._running.signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process and its JVM this moment, in the midst of whatever they do."""
        assert self._running is not None, "nothing was asked yet"
        self._running.signal(signal.SIGKILL)

    def close(self) -> None:
        if self._running is not None:
            self._running.stop()
            self._running = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _words_since(self, heard: int) -> str:
        """The end of what the process has said on stderr since then."""
        with self._log.open("rb") as log:
            log.seek(heard)
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(["", "stderr:", *lines[-SHOWN_LINES:]]) if lines else ""


#: A thread that waits for so long while its processes are stopped waits for one of them.
_WAITING_S = 1.0


class _Running:
    """A process and the thread that listens to it."""

    def __init__(self, command: Sequence[str], folder: Path, log: Path) -> None:
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                encoding="utf-8",
                start_new_session=True,  # so that it can be ended with its JVM
            )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        for line in _pipe(self._process.stdout):
            self._lines.put(line)
        self._lines.put(None)

    def answer(self, question: str, timeout_s: float) -> Row:
        stdin = _pipe(self._process.stdin)
        stdin.write(f"{question}\n")
        stdin.flush()
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"{timeout_s:g} seconds have passed") from None
        if line is None:
            raise OSError(f"the process ended with {self._process.wait()}")
        answer: Row = json.loads(line)
        return answer

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self._process.pid, number)

    def await_standstill(self) -> None:
        """Wait until each thread of the processes has stopped.

        A signal returns before it has arrived everywhere, and on a busy machine a thread may still
        take a lock meanwhile. A thread that starts another program waits for that one's first step,
        in a state of its own (D), and takes no lock either.
        """
        deadline, waiting_since = time.monotonic() + STOP_S, None
        while (now := time.monotonic()) < deadline:
            states = [stat.rpartition(")")[2].split() for stat in _thread_stats()]
            ours = {fields[0] for fields in states if int(fields[2]) == self._process.pid}
            if ours <= {*"TtZX"}:
                return
            if not ours <= {*"TtZXD"}:
                waiting_since = None
            elif waiting_since is None:
                waiting_since = now
            elif now - waiting_since > _WAITING_S:
                return
            self.signal(signal.SIGSTOP)  # for what was started meanwhile
            time.sleep(0.01)
        raise TimeoutError(f"the processes of group {self._process.pid} did not stop: {ours}")

    def stop(self) -> None:
        """End the process: by the end of its input if it listens, else by force."""
        with contextlib.suppress(BrokenPipeError):  # it is gone already
            _pipe(self._process.stdin).close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._listener.join()
        _pipe(self._process.stdout).close()


def _thread_stats() -> Iterator[str]:
    """The state of each thread of this machine, as Linux shows it; nothing elsewhere."""
    for path in Path("/proc").glob("[0-9]*/task/*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            yield path.read_text("utf-8", "replace")


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None, "Popen was told to make it"
    return stream
