"""Table services on tables of Hudi that pyhudi cannot write: refused by name, and left as found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyhudi
from golden_tables import load_description, unpack
from pyhudi.api.services import Services
from pyhudi.errors import UnsupportedTableError

#: Tables, and the word for what stands in the way.
REFUSED = {
    "mor_consistent_hash_pending": "Apache Hudi is resizing buckets of it",
    "mor_mdt": "its metadata table is live",
    "cow_cdc": "it captures changes",
    "cow_clustered": "it is not a bucket table",
}
PENDING = "mor_consistent_hash_pending"


def pending_clustering() -> str:
    """The clustering that Hudi planned in the golden table, and has not executed."""
    instants = load_description(PENDING)["instants"]
    pending = [i for i in instants if i["action"] == "clustering" and i["completed"] is None]
    [found] = pending
    return str(found["requested"])


SERVICES: dict[str, Callable[[Services], Any]] = {
    "run": lambda services: services.run(),
    "compact": lambda services: services.compact(),
    "cancel_compaction": lambda services: services.cancel_compaction(pending_clustering()),
    "clean": lambda services: services.clean(),
    "cancel_clean": lambda services: services.cancel_clean(pending_clustering()),
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
def test_each_service_leaves_a_table_with_a_pending_clustering_as_it_is(
    tmp_path: Path, service: str
) -> None:
    path = unpack(PENDING, tmp_path)
    before = contents(path)
    table = pyhudi.open_table(path, lock="file", progress=False)
    with pytest.raises(UnsupportedTableError, match=f"{PENDING}.*{REFUSED[PENDING]}"):
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
