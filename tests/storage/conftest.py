"""Storages to test: in memory, on local disk, and S3 as a server in this process plays it."""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from true_moto import start_true_moto

BUCKET = "a-bucket"


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, str]]:
    """Storage options of an S3 server with one empty bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = start_true_moto()
    host, port = server.get_host_and_port()
    options = {
        "aws_endpoint": f"http://{host}:{port}",
        "aws_access_key_id": "nobody",
        "aws_secret_access_key": "nothing",
        "aws_region": "us-east-1",
        "aws_conditional_put": "etag",
        "allow_http": "true",
        "max_retries": "0",
    }
    put_plainly(f"{options['aws_endpoint']}/{BUCKET}")
    yield options
    server.stop()


def put_plainly(url: str) -> None:
    """Send the request that makes a bucket, or an empty object of a key obstore would not send."""
    with urlopen(Request(url, method="PUT", data=b"")) as answer:
        assert answer.status == 200


@pytest.fixture
def s3_put(s3_options: dict[str, str]) -> Callable[[Storage, str], None]:
    """Puts an empty object of any key, also one ending in a slash, under a storage's root."""

    def put(storage: Storage, key: str) -> None:
        prefix = storage.uri.removeprefix("s3://")
        put_plainly(f"{s3_options['aws_endpoint']}/{prefix}/{key}")

    return put


@pytest.fixture
def memory() -> MemoryStorage:
    clock = itertools.count(1_000)
    return MemoryStorage(lambda: next(clock))


@pytest.fixture
def local(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "table"))


@pytest.fixture
def s3(s3_options: dict[str, str]) -> Storage:
    return open_storage(f"s3://{BUCKET}/tables/{uuid.uuid4().hex}", s3_options)


@pytest.fixture(params=["memory", "local", "s3"])
def storage(request: pytest.FixtureRequest) -> Storage:
    chosen: Storage = request.getfixturevalue(request.param)
    return chosen
