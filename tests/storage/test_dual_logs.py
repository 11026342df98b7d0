"""Logs that a resize names: only their blocks tell which write made them."""

from __future__ import annotations

import pytest

from handmade import at
from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import IoType, MarkerName
from pyhudi.format.files.log_file import BlockType, HeaderKey, encode_block
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.markers import marker_path
from pyhudi.storage.objects.dual_logs import made_by
from pyhudi.storage.objects.markers import load_markers
from pyhudi.storage.stores.memory import MemoryStorage

RESIZE, WRITE, OTHER = at(10), at(20), at(30)
OWN = f"p/.a-0_{WRITE}.log.1_0-0-0"
TWICE = f"p/.x-0_{RESIZE}.log.1_3-5-7"


def block(write: str) -> bytes:
    return encode_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: write}, b"rows")


WHOLE = block(WRITE)
LOGS: dict[str, tuple[bytes | None, bool]] = {
    "its own": (WHOLE, True),
    "two of its own": (WHOLE * 2, True),
    "of another write": (block(OTHER), False),
    "of both": (WHOLE + block(OTHER), False),
    "of the resize, as Flink's": (block(RESIZE), False),
    "begun, by a writer that was killed": (WHOLE[:20], True),
    "its own, and one that was begun": (WHOLE + WHOLE[:20], True),
    "empty": (b"", True),
    "no log": (b"PAR1 and more", False),
    "gone": (None, False),
}


@pytest.mark.parametrize("log", LOGS)
def test_a_log_is_of_a_write_if_no_block_is_of_another(log: str) -> None:
    data, is_its = LOGS[log]
    storage = MemoryStorage(lambda: 0)
    if data is not None:
        storage.create(TWICE, data)
    assert made_by(storage, WRITE, [OWN, TWICE]) == ([OWN, TWICE] if is_its else [OWN])


def test_a_base_file_of_another_instant_is_never_a_writes() -> None:
    storage, path = MemoryStorage(lambda: 0), f"p/x-0_0-0-0_{RESIZE}.parquet"
    storage.create(path, WHOLE)
    assert made_by(storage, WRITE, [path]) == []


def test_markers_name_logs_of_other_instants_and_no_base_files_of_theirs() -> None:
    storage = MemoryStorage(lambda: 0)
    for path in (OWN, TWICE):
        storage.create(marker_path(InstantTime(WRITE), MarkerName(path, IoType.CREATE)), b"")
    assert {marker.data_file for marker in load_markers(storage, WRITE)} == {OWN, TWICE}
    forged = MarkerName(f"p/x-0_0-0-0_{RESIZE}.parquet", IoType.CREATE)
    storage.create(marker_path(InstantTime(WRITE), forged), b"")
    with pytest.raises(CorruptTableError, match="another instant"):
        load_markers(storage, WRITE)
