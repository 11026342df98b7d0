"""The file that makes a folder a partition."""

from __future__ import annotations

import pytest

from golden_tables import NAMES, GoldenTables
from pyhudi.errors import CorruptTableError
from pyhudi.format.files.partition_metadata import (
    PARTITION_METADATA_FILE,
    PartitionMetadata,
    decode_partition_metadata,
    encode_partition_metadata,
    partition_depth,
)
from pyhudi.format.timeline.instant import InstantTime

T = InstantTime("20260102030405678")


def test_partition_metadata_round_trips() -> None:
    data = b"#partition metadata\ncommitTime=20260102030405678\npartitionDepth=2\n"
    assert encode_partition_metadata(PartitionMetadata(T, 2)) == data
    assert decode_partition_metadata(data) == PartitionMetadata(T, 2)


@pytest.mark.parametrize("name", NAMES)
def test_golden_partition_metadata_differs_from_ours_by_the_date_alone(
    golden: GoldenTables, name: str
) -> None:
    table = golden.path(name)
    files = [p for p in table.rglob(PARTITION_METADATA_FILE) if ".hoodie" not in p.parts]
    assert files
    for path in files:
        lines = path.read_bytes().splitlines(keepends=True)
        metadata = decode_partition_metadata(b"".join(lines))
        assert encode_partition_metadata(metadata) == b"".join(lines[:1] + lines[2:])
        partition = path.parent.relative_to(table).as_posix()
        assert metadata.depth == partition_depth("" if partition == "." else partition)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"commitTime=20260102030405678\n",
        b"partitionDepth=1\n",
        b"commitTime=yesterday\npartitionDepth=1\n",
        b"commitTime=20260102030405678\npartitionDepth=-1\n",
        b"commitTime=20260102030405678\npartitionDepth=one\n",
        b"commitTime=20260102030405678\npartitionDepth=" + b"9" * 5000,
        b"\x00\xff\xfe",
        rb"commitTime=\u12",
    ],
)
def test_unusable_partition_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptTableError) as caught:
        decode_partition_metadata(data, path="p/.hoodie_partition_metadata")
    assert caught.value.path == "p/.hoodie_partition_metadata"
