"""Where the tables lie: a folder on local disk, or a bucket of an S3 server in another process."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pyhudi.errors import UnavailableError
from pyhudi.storage.open import open_storage

TESTS = Path(__file__).parents[1]

BUCKET = "the-bucket"
_KEY, _SECRET = "nobody", "nothing-at-all"
_START_S = 120
_STOP_S = 30

#: The S3 server of record: of those tried it decides every race for an object rightly.
VERSITYGW_MODULE = "github.com/versity/versitygw/cmd/versitygw"
VERSITYGW_VERSION = "v1.8.0"
_BUILD_S = 3600


class StoreMissingError(Exception):
    """This machine cannot run the store that was asked for."""


@dataclass(frozen=True, slots=True)
class Store:
    """A place for tables."""

    root: str
    options: dict[str, str] | None = None
    folder: Path | None = None  # on local disk

    def uri(self, table: str) -> str:
        return f"{self.root}/{table}"


@contextlib.contextmanager
def local_store(folder: Path) -> Iterator[Store]:
    yield Store(str(folder), folder=folder)


@contextlib.contextmanager
def moto_store(folder: Path) -> Iterator[Store]:
    """An S3 server in memory, made for tests."""
    command = [sys.executable, "-m", "processes.s3_server"]
    pipe = subprocess.PIPE
    with (folder / "s3_server.txt").open("wb") as log:
        server = subprocess.Popen(command, cwd=TESTS, stdin=pipe, stdout=pipe, stderr=log)
    with _ended(server):
        assert server.stdout is not None
        port = server.stdout.readline().strip()  # empty if it ended before it was up
        if not port:
            raise StoreMissingError(f"the S3 server did not start; see {log.name}")
        yield _s3_store(int(port))


@contextlib.contextmanager
def versitygw_store(folder: Path) -> Iterator[Store]:
    """An S3 server that keeps objects as files; built if this machine has Go."""
    program = _versitygw()
    port = _free_port()
    objects = folder / "objects"
    (objects / BUCKET).mkdir(parents=True)  # to this server a folder is a bucket
    command = [program, "--port", f"127.0.0.1:{port}", "posix", str(objects)]
    environment = {**os.environ, "ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET}
    with (folder / "versitygw.txt").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    with _ended(server):
        store = _s3_store(port)
        _await_answer(store, server)
        yield store


STORES: dict[str, Callable[[Path], AbstractContextManager[Store]]] = {
    "local": local_store,
    "moto": moto_store,
    "versitygw": versitygw_store,
}


def _s3_store(port: int) -> Store:
    options = {
        "aws_endpoint": f"http://127.0.0.1:{port}",
        "aws_access_key_id": _KEY,
        "aws_secret_access_key": _SECRET,
        "aws_region": "us-east-1",
        "allow_http": "true",
    }
    return Store(f"s3://{BUCKET}", options)


def _await_answer(store: Store, server: subprocess.Popen[bytes]) -> None:
    bucket = open_storage(store.root, {**(store.options or {}), "max_retries": "0"})
    deadline = time.monotonic() + _START_S
    while True:
        try:
            bucket.list_folder("")
        except UnavailableError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise StoreMissingError(f"the S3 server does not answer: {error}") from error
            time.sleep(0.1)
        else:
            return


def _versitygw() -> str:
    """The program: the one on the path, or one built by Go beside what else is built."""
    if found := shutil.which("versitygw"):
        return found
    built = TESTS.parent / "build" / "bin" / "versitygw"
    if built.exists():
        return str(built)
    if (go := shutil.which("go")) is None:
        raise StoreMissingError("versitygw is not on the path, and there is no Go to build it")
    print(f"building versitygw {VERSITYGW_VERSION}, which takes minutes", flush=True)
    environment = {**os.environ, "GOBIN": str(built.parent)}
    module = f"{VERSITYGW_MODULE}@{VERSITYGW_VERSION}"
    done = subprocess.run([go, "install", module], env=environment, timeout=_BUILD_S, check=False)
    if done.returncode:
        raise StoreMissingError(f"versitygw could not be built: go ended with {done.returncode}")
    return str(built)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def _ended(server: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        for stream in (server.stdin, server.stdout):
            if stream is not None:
                stream.close()
        server.terminate()
        try:
            server.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
