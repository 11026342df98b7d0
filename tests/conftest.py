"""Fixtures that every folder of tests may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden_tables import GoldenTables


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> GoldenTables:
    """The tables of `golden/`, unpacked once per run."""
    return GoldenTables(tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of answers recorded from Hudi's own classes."""
    return Path(__file__).parent / "vectors"
