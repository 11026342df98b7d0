"""Fixtures that every folder of tests may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden_reads import score_lines
from golden_tables import GoldenTables


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> GoldenTables:
    """The tables of `golden/`, unpacked once per run."""
    return GoldenTables(tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of answers recorded from Hudi's own classes."""
    return Path(__file__).parent / "vectors"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many of the recorded reads each engine passed."""
    if table := score_lines():
        terminalreporter.section("conformance with Apache Hudi 1.2.0")
        terminalreporter.write_line("\n".join(table))
