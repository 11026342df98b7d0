"""Table services on tables of Hudi that pyhudi cannot write: refused by name, and left as found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyhudi
from golden_tables import unpack
from pyhudi.api.services import Services
from pyhudi.errors import UnsupportedTableError

#: Tables, and the word for what stands in the way.
REFUSED = {
    "mor_mdt": "its metadata table is live",
    "cow_cdc": "it captures changes",
    "cow_clustered": "it is not a bucket table",
}
#: A merge-on-read table, and a time at which nothing is pending in it.
LIVE, TIME = "mor_mdt", "20260101000000000"

SERVICES: dict[str, Callable[[Services], Any]] = {
    "run": lambda services: services.run(),
    "compact": lambda services: services.compact(),
    "cancel_compaction": lambda services: services.cancel_compaction(TIME),
    "clean": lambda services: services.clean(),
    "cancel_clean": lambda services: services.cancel_clean(TIME),
    "archive": lambda services: services.archive(),
    "repair": lambda services: services.repair(),
    "run, dry": lambda services: services.run(dry_run=True),
    "compact, dry": lambda services: services.compact(dry_run=True),
    "clean, dry": lambda services: services.clean(dry_run=True),
    "archive, dry": lambda services: services.archive(dry_run=True),
}


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("service", SERVICES)
def test_each_service_leaves_a_table_that_cannot_be_written_as_it_is(
    tmp_path: Path, service: str
) -> None:
    path = unpack(LIVE, tmp_path)
    before = contents(path)
    table = pyhudi.open_table(path, lock="file", progress=False)
    with pytest.raises(UnsupportedTableError, match=f"{LIVE}.*{REFUSED[LIVE]}"):
        SERVICES[service](table.services)
    assert contents(path) == before


@pytest.mark.parametrize("service", ["run", "clean", "archive"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_table_that_cannot_be_written_is_not_cleaned_or_archived(
    tmp_path: Path, name: str, service: str
) -> None:
    path = unpack(name, tmp_path)
    before = contents(path)
    with pytest.raises(UnsupportedTableError, match=f"{name}.*{REFUSED[name]}"):
        SERVICES[service](pyhudi.open_table(path, lock="file", progress=False).services)
    assert contents(path) == before
