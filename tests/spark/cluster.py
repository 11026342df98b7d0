"""A Spark standalone cluster of this machine, and drivers that write from it.

Master, workers and drivers are processes of their own, for a JVM with a local session runs in the
tests' process already. Each worker has a loopback address of its own: Spark never speculates
twice on one host. Whatever happens to a test, everything that was started here is killed.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyspark
import pytest

START_S = 120  # for a process to be there, on a machine that has much to do
ANSWER_S = 240  # for one command of a driver, which may have to wait for executors
WORKERS = ("127.0.0.2", "127.0.0.3")
DRIVERS = Path(__file__).with_name("drivers")
GATES = DRIVERS / "gates"
_TICK_S = 0.02
_SHOWN = 4_000  # characters of a log in a failure
_ENDED = object()  # in place of an answer

_DAEMON = {
    "SPARK_DAEMON_MEMORY": "192m",
    # These JVMs live for a minute and do next to nothing: the quick compiler is the right one.
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -Dspark.master.rest.enabled=false",
}
_SESSION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # To compile code for a dozen rows takes longer than everything else.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def until(found: Callable[[], Any], what: str, seconds: float = START_S) -> Any:
    """What the function gives, once it gives something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(_TICK_S)
    pytest.fail(f"{what} did not happen within {seconds} seconds")


class Process:
    """A program in a process group of its own, with a log file."""

    def __init__(self, command: list[str], log: Path, env: Mapping[str, str], **pipes: Any) -> None:
        self._log = log
        with log.open("wb") as errors:
            self.popen: subprocess.Popen[str] = subprocess.Popen(
                command,
                env=dict(env),
                stderr=errors,
                text=True,
                start_new_session=True,
                cwd=log.parent,
                **pipes,
            )

    def is_running(self) -> bool:
        return self.popen.poll() is None

    def kill(self) -> None:
        """At once, with what it started in its process group."""
        if self.popen.returncode is None:
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(START_S)
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")[-_SHOWN:]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _environment() -> dict[str, str]:
    """This process's, without what would make Spark another one, or executors find test modules."""
    left_out = {"PYTHONPATH", "SPARK_HOME", "SPARK_LOCAL_IP"}
    return {name: value for name, value in os.environ.items() if name not in left_out}


def _daemon(role: str, log: Path, host: str, *arguments: str) -> Process:
    home = Path(pyspark.__file__).parent
    kind = f"org.apache.spark.deploy.{role}.{role.capitalize()}"
    command = [str(home / "bin" / "spark-class"), kind, "--host", host, *arguments]
    env = {**_environment(), **_DAEMON, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": host}
    return Process(command, log, env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A master and two workers, with room for one driver that has an executor on each."""

    folder: Path
    url: str

    def driver(self, name: str, options: Mapping[str, str]) -> Driver:
        """A new driver; to be used in a `with` statement, which kills it."""
        return Driver(self, name, options)


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        port, page = _free_port(), _free_port()
        address = f"http://127.0.0.1:{page}/json/"
        ports = ("--port", str(port), "--webui-port", str(page))
        master = _daemon("master", folder / "master.log", "127.0.0.1", *ports)
        stack.callback(master.kill)
        until(lambda: _state(master, address), "the start of the master")
        url = f"spark://127.0.0.1:{port}"
        workers = []
        for number, host in enumerate(WORKERS):
            own = folder / f"worker{number}"
            size = ("--cores", "1", "--memory", "600m", "--webui-port", "0")
            log = folder / f"worker{number}.log"
            worker = _daemon("worker", log, host, *size, "--work-dir", str(own), url)
            stack.callback(worker.kill)
            workers.append(worker)
        until(lambda: _all_alive(master, workers, address), "the registration of the workers")
        yield Cluster(folder, url)


def _state(master: Process, address: str) -> Any:
    if not master.is_running():
        pytest.fail(f"the master ended: {master.log}")
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return json.load(answer)
    except OSError:
        return None


def _all_alive(master: Process, workers: list[Process], address: str) -> bool:
    for worker in workers:
        if not worker.is_running():
            pytest.fail(f"a worker ended: {worker.log}")
    found = _state(master, address)
    return bool(found) and found["aliveworkers"] == len(workers)


class Driver:
    """A program of `drivers/` with a session on the cluster, which takes commands and answers.

    A command runs in a thread of the driver, so that another can disturb it.
    """

    def __init__(self, cluster: Cluster, name: str, options: Mapping[str, str]) -> None:
        self.gates = Gates(cluster.folder / f"{name}-gates")
        settings = {**_SESSION, **self.gates.executor_settings, **options}
        arguments = {"master": cluster.url, "name": name, "settings": settings}
        program = str(DRIVERS / "writer.py")
        self._process = Process(
            [sys.executable, program, json.dumps(arguments)],
            cluster.folder / f"{name}.log",
            {
                **_environment(),
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._answers: dict[int, queue.Queue[Any]] = {}
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.popen.stdout is not None
        for line in self._process.popen.stdout:
            number, answer = json.loads(line)
            self._answers[number].put(answer)
        for waiting in list(self._answers.values()):
            waiting.put(_ENDED)

    def begin(self, do: str, **arguments: Any) -> Call:
        """Have the driver begin what its function of this name does."""
        number = len(self._answers)
        self._answers[number] = queue.Queue()
        assert self._process.popen.stdin is not None
        self._process.popen.stdin.write(json.dumps([number, do, arguments]) + "\n")
        self._process.popen.stdin.flush()
        return Call(self, do, self._answers[number])

    def ask(self, do: str, **arguments: Any) -> Any:
        return self.begin(do, **arguments).answer()

    @property
    def log(self) -> str:
        return self._process.log

    def is_running(self) -> bool:
        return self._process.is_running()

    def kill(self) -> None:
        """With SIGKILL, the JVM too."""
        if self._process.is_running():
            os.killpg(self._process.popen.pid, signal.SIGKILL)
        self._listener.join(START_S)
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.gates.release()
        self.kill()
        self.gates.kill_held()


@dataclass(frozen=True, slots=True)
class Call:
    """A command that a driver is at."""

    _driver: Driver
    _what: str
    _answers: queue.Queue[Any]

    def is_running(self) -> bool:
        return self._answers.empty()

    def answer(self, seconds: float = ANSWER_S) -> Any:
        """Its answer: what the function gave, or an error as {"error", "text"}."""
        try:
            found = self._answers.get(timeout=seconds)
        except queue.Empty:
            pytest.fail(f"no answer to {self._what!r} in {seconds} seconds: {self._driver.log}")
        if found is _ENDED:
            pytest.fail(f"the driver ended during {self._what!r}: {self._driver.log}")
        return found


class Gates:
    """Where a task of ours stops before it creates a file, until it is let go.

    `gates/sitecustomize.py` is the executors' side of it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    @property
    def executor_settings(self) -> dict[str, str]:
        return {
            "spark.executorEnv.PYTHONPATH": str(GATES),
            "spark.executorEnv.PYHUDI_TEST_GATES": str(self._folder),
        }

    def hold(self, step: str, count: int = 1) -> None:
        """Stop the next so many tasks before they create a "marker" or a "data" file."""
        self.clear()
        for number in range(count):
            (self._folder / f"hold.{step}.{number}").touch()

    def clear(self) -> None:
        shutil.rmtree(self._folder)
        self._folder.mkdir()

    def held(self, count: int = 1) -> list[int]:
        """The process ids of the tasks that stand there, as soon as there are so many."""
        return until(  # type: ignore[no-any-return]
            lambda: self._pids() if len(self._pids()) >= count else None,
            f"a task before its file, of {count}",
        )

    def _pids(self) -> list[int]:
        return [int(path.name.partition(".")[2]) for path in self._folder.glob("held.*")]

    def release(self) -> None:
        (self._folder / "release").touch()

    def passed(self, pid: int) -> str:
        """What became of the file that the task stood before: "created", "taken" or "an error".

        Told when the task has ended, and can do no more.
        """
        ended = self._folder / f"ended.{pid}"
        until(lambda: ended.exists() or not is_alive(pid), f"the end of the task in {pid}")
        return (self._folder / f"passed.{pid}").read_text()

    def kill_held(self) -> None:
        for pid in self._pids():
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Whether it runs; one that waits for its parent to take notice does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def executor_of(pid: int) -> int:
    """The process id of the JVM that a Python worker works for."""
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid
