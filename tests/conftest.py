"""Fixtures that every folder of tests may use."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from golden_reads import score_lines
from golden_tables import GoldenTables
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage

_numbers = count()


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> GoldenTables:
    """The tables of `golden/`, unpacked once per run."""
    return GoldenTables(tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of answers recorded from Hudi's own classes."""
    return Path(__file__).parent / "vectors"


@pytest.fixture
def memory() -> Storage:
    """A storage in memory that no other test has."""
    return open_storage(f"memory://test-{next(_numbers)}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many of the recorded reads each engine passed."""
    if table := score_lines():
        terminalreporter.section("conformance with Apache Hudi 1.2.0")
        terminalreporter.write_line("\n".join(table))
