"""A ZooKeeper server of this machine, from the jars that come with PySpark: nothing is fetched.

Its ticks are short, so that a session ends one second after its client fell silent, if the client
asked for as little.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

TICK_MS = 500
SESSION_MAX_MS = 20 * TICK_MS  # of ZooKeeper: what it grants at most
START_S = 60.0

#: A killed server leaves what it wrote to the system, and nobody waits for a busy disk.
UNSYNCED = "-Dzookeeper.forceSync=no"
MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
JARS = ("zookeeper", "netty", "slf4j-api", "log4j", "metrics-core", "snappy-java", "commons-io")
JVM_OPTIONS = ("-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", UNSYNCED)


class ZookeeperMissingError(Exception):
    """No server can be started here; the message says why."""


class TrueZookeeper:
    """A server that keeps its data in a folder, and can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        lines = {
            "tickTime": TICK_MS,
            "dataDir": folder / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
        }
        folder.mkdir(parents=True, exist_ok=True)
        self._config = folder / "zoo.cfg"
        self._config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [_java(), *JVM_OPTIONS, "-cp", _class_path(), MAIN, str(self._config)],
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError((self._folder / "server.log").read_text(errors="replace"))
            time.sleep(0.05)
        return self

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as asked:
                asked.sendall(b"srvr")  # the one word that a server answers unless told otherwise
                return b"Mode" in asked.recv(4096)
        except OSError:
            return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    if not found or not Path(found).exists():
        raise ZookeeperMissingError("there is no Java")
    return found


def _class_path() -> str:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ZookeeperMissingError("PySpark, which brings ZooKeeper's jars, is not installed")
    jars = Path(spec.origin).parent / "jars"
    found = [str(jar) for name in JARS for jar in sorted(jars.glob(f"{name}-*.jar"))]
    if not any("zookeeper-jute" in jar for jar in found):
        raise ZookeeperMissingError("this PySpark brings no ZooKeeper")
    return ":".join(found)
