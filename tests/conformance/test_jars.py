"""The jars of the judges come whole, whatever lies in the user's home.

A repository of one jar on a local server stands for Maven's; Java and Ivy are the real ones.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from conformance.client import MISSING, TESTS

pytestmark = pytest.mark.judge  # for it needs Java, though it asks no judge

JAR = "commons-logging_commons-logging-1.2.jar"
IN_MAVEN = "commons-logging/commons-logging/1.2/commons-logging-1.2"
CONTENT = b"a jar is a zip file, but this one is never opened" * 1000
LOCKED = f"""
[some]
"commons-logging:commons-logging:1.2" = "{hashlib.sha256(CONTENT).hexdigest()}"
"""


@dataclass
class Repository:
    address: str
    files: dict[str, bytes]
    fetched: list[str] = field(default_factory=list)


@pytest.fixture
def repository() -> Iterator[Repository]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = served.files.get(self.path)
            served.fetched.append(self.path)
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Length", str(len(found or b"")))
            self.end_headers()
            self.wfile.write(found or b"")

        def do_HEAD(self) -> None:
            found = served.files.get(self.path)
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Length", str(len(found or b"")))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = Repository(f"http://127.0.0.1:{server.server_port}/repository", {})
        served.files[f"/repository/{IN_MAVEN}.jar"] = CONTENT
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield served
        server.shutdown()
        thread.join()


@dataclass(frozen=True)
class Machine:
    """A user's home and a clone's folder of jars."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def jars(self) -> Path:
        return self.folder / "jars"

    def keep(self, path: str, content: bytes) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(content)

    def fetch(self, repository: str | None, **environment: str) -> subprocess.Popen[str]:
        locked = self.folder / "jars.toml"
        locked.write_text(LOCKED)
        program = str(TESTS.parent / "scripts" / "fetch_jars.py")
        command = [sys.executable, program, "--locked", str(locked)]
        inherited = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
        home = {"HOME": str(self.home), "JAVA_TOOL_OPTIONS": f"-Duser.home={self.home}"}
        address = {"DEFAULT_ARTIFACT_REPOSITORY": repository} if repository else {}
        return subprocess.Popen(
            [*command, "--into", str(self.jars), "some"],
            env={**inherited, **home, **address, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "home").mkdir()
    return Machine(tmp_path)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def test_what_maven_left_half_done_in_the_home_does_not_stop_a_fetch(
    machine: Machine, repository: Repository
) -> None:
    pom = b"<project><modelVersion>4.0.0</modelVersion></project>"
    machine.keep(f"home/.m2/repository/{IN_MAVEN}.pom", pom)
    machine.keep(f"home/.m2/repository/{IN_MAVEN}.jar.lastUpdated", b"")
    machine.keep(f"home/.ivy2/jars/{JAR}", CONTENT[:-1])
    machine.keep(f"home/.ivy2.5.2/jars/{JAR}/is-a-folder", b"")
    status, out, err = ended(machine.fetch(repository.address))
    assert (status, out) == (0, f"{machine.jars / JAR}\n"), err
    assert (machine.jars / JAR).read_bytes() == CONTENT
    assert sorted(os.listdir(machine.jars)) == [".lock", JAR]
    assert sorted(os.listdir(machine.home)) == [".ivy2", ".ivy2.5.2", ".m2"]


def test_a_whole_jar_in_the_home_needs_no_network(machine: Machine) -> None:
    machine.keep(f"home/.m2/repository/{IN_MAVEN}.jar", CONTENT)
    status, _, err = ended(machine.fetch("http://127.0.0.1:9/repository"))
    assert (status, err) == (0, "")
    assert (machine.jars / JAR).read_bytes() == CONTENT


def test_two_processes_fetch_a_jar_once(machine: Machine, repository: Repository) -> None:
    both = [machine.fetch(repository.address) for _ in range(2)]
    assert [ended(process)[:2] for process in both] == [(0, f"{machine.jars / JAR}\n")] * 2
    assert repository.fetched.count(f"/repository/{IN_MAVEN}.jar") == 1


def test_a_torn_jar_of_the_project_is_fetched_again(
    machine: Machine, repository: Repository
) -> None:
    machine.keep(f"jars/{JAR}", CONTENT[:100])
    machine.keep("jars/.scratch/from a killed process", b"")
    assert ended(machine.fetch(repository.address))[0] == 0
    assert (machine.jars / JAR).read_bytes() == CONTENT


def test_a_jar_with_another_checksum_is_refused(machine: Machine, repository: Repository) -> None:
    repository.files[f"/repository/{IN_MAVEN}.jar"] = b"another"
    status, out, err = ended(machine.fetch(repository.address))
    assert (status, out) == (1, "")
    assert f"the repository's {JAR} does not have the checksum" in err
    assert os.listdir(machine.jars) == [".lock"]


def test_the_repositories_that_spark_is_configured_with_are_asked(
    machine: Machine, repository: Repository
) -> None:
    settings = f"# a mirror\nspark.jars.repositories  {repository.address}\n".encode()
    machine.keep("conf/spark-defaults.conf", settings)
    fetching = machine.fetch("http://127.0.0.1:9/", SPARK_CONF_DIR=str(machine.folder / "conf"))
    status, _, err = ended(fetching)
    assert status == 0, err


def test_without_a_network_the_reason_is_the_one_that_skips_the_suite(machine: Machine) -> None:
    status, out, err = ended(machine.fetch("http://127.0.0.1:9/repository"))
    assert (status, out) == (1, "")
    meanings = [meaning for pattern, meaning in MISSING if re.search(pattern, err)]
    assert meanings == ["the network is out of reach, and Hudi's bundle has not been fetched yet"]
