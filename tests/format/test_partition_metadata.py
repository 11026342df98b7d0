"""The file that makes a folder a partition."""

from __future__ import annotations

import pytest

from golden_tables import NAMES, GoldenTables
from pyhudi.format.files.partition_metadata import (
    PARTITION_METADATA_FILE,
    partition_metadata,
)
from pyhudi.format.table.properties import decode_properties
from pyhudi.format.timeline.instant import InstantTime, instant_time

T = InstantTime("20260102030405678")


@pytest.mark.parametrize(("partition", "depth"), [("", 0), ("a", 1), ("year=2026/month=01", 2)])
def test_partition_metadata_tells_who_made_the_partition_and_its_depth(
    partition: str, depth: int
) -> None:
    data = f"#partition metadata\ncommitTime=20260102030405678\npartitionDepth={depth}\n"
    assert partition_metadata(partition, T) == data.encode()


@pytest.mark.parametrize("name", NAMES)
def test_golden_partition_metadata_differs_from_ours_by_the_date_alone(
    golden: GoldenTables, name: str
) -> None:
    table = golden.path(name)
    files = [p for p in table.rglob(PARTITION_METADATA_FILE) if ".hoodie" not in p.parts]
    assert files
    for path in files:
        lines = path.read_bytes().splitlines(keepends=True)
        created = decode_properties(b"".join(lines))["commitTime"]
        folder = path.parent.relative_to(table).as_posix()
        ours = partition_metadata("" if folder == "." else folder, instant_time(created))
        assert ours == b"".join(lines[:1] + lines[2:])
