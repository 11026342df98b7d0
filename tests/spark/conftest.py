"""One Spark session for all tests that need one: starting it is the slow part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from pyhudi.spark.write import SparkExecutor

#: Spark 3.5 has no data sources in Python, so that these tests cannot even be loaded there.
collect_ignore = ["test_datasource_writes.py"] if pyspark.__version__.startswith("3.") else []


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pyhudi tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Lets something happen when the tasks of the next write are done."""
    waiting: list[Callable[[], object]] = []
    results = SparkExecutor._results

    def meddled(self: SparkExecutor, *arguments: Any) -> Any:
        found = results(self, *arguments)
        if waiting:
            waiting.pop()()
        return found

    monkeypatch.setattr(SparkExecutor, "_results", meddled)
    return waiting.append


@pytest.fixture
def conf(spark: SparkSession) -> Iterator[Any]:
    """Settings that end with the test."""
    before: dict[str, str | None] = {}

    def put(name: str, value: str) -> None:
        before.setdefault(name, spark.conf.get(name, None))
        spark.conf.set(name, value)

    yield put
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)
