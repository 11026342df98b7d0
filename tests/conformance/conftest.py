"""The judges and Spark as fixtures, and what a skip means."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest
from pyspark.sql import SparkSession

from conformance import small_loads
from conformance.client import ENVIRONMENT, SERVE, TESTS, JudgeClient, JudgeMissingError
from conformance.outcome import outcome_in_ci

collect_ignore = ["judge"]  # a program of another environment


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeClient]:
    """Apache Hudi and hudi-rs, in one process for the whole run."""
    if not (TESTS.parent / ENVIRONMENT / ".ready").exists():
        pytest.skip(f"there is no {ENVIRONMENT}; `make test-conformance` makes it")
    log = tmp_path_factory.mktemp("judge") / "stderr.txt"
    with JudgeClient(SERVE, TESTS, log) as client:
        try:
            client.start()
        except JudgeMissingError as missing:
            pytest.skip(str(missing))
        yield client


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark 4 in this process, whose tasks write what the judges read."""
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pyhudi conformance")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        # To compile code for a hundred rows takes longer than everything else.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.python.daemon.module", small_loads.__name__)
        .config("spark.executorEnv.PYTHONPATH", str(TESTS))
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where everything has to be there, a test that was left out has failed."""
    report = yield
    return outcome_in_ci(report) if os.environ.get("CI") else report
