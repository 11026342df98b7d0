from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import LogFileName, parse_data_file
from pyhudi.format.files.log_file import BlockType, HeaderKey, LogBlock, decode_blocks
from pyhudi.format.files.log_reference import (
    REFERENCE_BYTES_MAX,
    REFERENCE_MAGIC,
    REFERRED_BYTES_MAX,
    REFERRED_LOGS_MAX,
    ReferredLog,
    checksum,
    decode_reference,
    encode_reference,
    is_reference,
    is_virtual_child,
    marked_as_virtual,
)
from pyhudi.format.timeline.instant import InstantTime

WRITE = "20260102030405678"
CHILD = "f2a1c0de-0000-8000-8000-00000000abcd-0"
NAME = f".{CHILD}_{WRITE}.log.1_1-0-0"
PATH = f"day=1/.a-0_{WRITE}.log.1_0-0-0"
#: The block that names one log of 5 bytes, as every release writes it.
VECTOR = (
    "23485544492300000000000000b600000001000000050000000200000000000000113230323630313032303330343035"
    "3637380000000200000006226e756c6c22000000000000006f23505948524546317b2276223a312c226c6f6773223a5b"
    "5b222e66326131633064652d303030302d383030302d383030302d3030303030303030616263642d305f323032363031"
    "30323033303430353637382e6c6f672e315f312d302d30222c352c323234303237323438355d5d7d0000000000000000"
    "000000bc"
)


def block_of(data: bytes) -> tuple[LogBlock, bytes]:
    [found] = decode_blocks(lambda start, end: data[start:end], len(data), PATH)
    assert isinstance(found, LogBlock)
    return found, data[found.content_start : found.content_end]


def test_a_block_has_the_bytes_that_earlier_releases_wrote() -> None:
    data = encode_reference([ReferredLog(NAME, 5, checksum([b"ab", b"cde"]))], '"null"', WRITE)
    found, content = block_of(data)
    assert (found.type, dict(found.header)) == (
        BlockType.PARQUET_DATA,
        {HeaderKey.INSTANT_TIME: WRITE, HeaderKey.SCHEMA: '"null"'},
    )
    assert content == b'#PYHREF1{"v":1,"logs":[["%s",5,2240272485]]}' % NAME.encode()
    assert data.hex() == VECTOR


uuids = st.uuids(version=4).map(str)
names = st.builds(
    lambda uuid, version, place: (
        LogFileName(
            f"{marked_as_virtual(uuid)}-0", InstantTime(WRITE), version, f"{place}-0-0"
        ).file_name
    ),
    uuids,
    st.integers(1, 2**31 - 1),
    st.integers(1, 1000),
)
referred = st.builds(
    ReferredLog, names, st.integers(1, REFERRED_BYTES_MAX), st.integers(0, 2**32 - 1)
)


@given(st.lists(referred, min_size=1, max_size=5, unique_by=lambda log: log.name))
def test_a_block_is_read_as_it_was_written(logs: list[ReferredLog]) -> None:
    _, content = block_of(encode_reference(logs, '"null"', WRITE))
    assert is_reference(content)
    assert decode_reference(content, PATH, WRITE) == tuple(logs)


@given(uuids)
def test_the_mark_is_seen_in_ids_that_have_it_and_in_no_random_one(uuid: str) -> None:
    assert not is_virtual_child(f"{uuid}-0")
    assert is_virtual_child(f"{marked_as_virtual(uuid)}-0")


@pytest.mark.parametrize(
    "file_id",
    ["", "a1-0", "00000008-0", "x" * 14 + "8" + "x" * 21 + "-0", CHILD[:-2], CHILD.upper()],
)
def test_no_other_file_id_has_the_mark(file_id: str) -> None:
    assert not is_virtual_child(file_id)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"#PYHREF", b"#PYHREF2{}"])
def test_other_content_names_no_logs(content: bytes) -> None:
    assert not is_reference(content)


def named(name: str, size: object = 5, crc32: object = 1) -> object:
    return {"v": 1, "logs": [[name, size, crc32]]}


OTHER = NAME.replace(WRITE, "20260102030405679")


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ([], "content"),
        (None, "content"),
        ({"v": 2, "logs": []}, "version 2"),
        ({"v": 1}, "content"),
        ({"v": 1, "logs": []}, "names 0 logs"),
        ({"v": 1, "logs": [[NAME, 5]]}, "content"),
        ({"v": 1, "logs": [[1, 5, 1]]}, "is no log"),
        ({"v": 1, "logs": [[NAME, 5, 1], [NAME, 5, 1]]}, "twice"),
        (named(NAME, "5"), "is no log"),
        (named(NAME, True), "is no log"),
        (named(NAME, 0), "size"),
        (named(NAME, REFERRED_BYTES_MAX + 1), "size"),
        (named(NAME, 5, -1), "checksum"),
        (named(NAME, 5, 2**32), "checksum"),
        (named(f"../{NAME}"), "not the name of a log"),
        (named(f"/{NAME}"), "not the name of a log"),
        (named(f"{NAME}.cdc"), "not the name of a log"),
        (named(f"{CHILD}_0-0-0_{WRITE}.parquet"), "not the name of a log"),
        (named(OTHER), "another write"),
        (named(NAME.replace("-8000-8000-", "-4000-8000-")), "virtual resize"),
    ],
)
def test_a_block_that_is_damaged_or_names_what_it_may_not_is_an_error_with_its_file(
    record: object, why: str
) -> None:
    with pytest.raises(CorruptTableError, match=why) as caught:
        decode_reference(REFERENCE_MAGIC + json.dumps(record).encode(), PATH, WRITE)
    assert caught.value.path == PATH


def test_an_error_about_a_log_names_it_beside_the_file_that_refers_to_it() -> None:
    with pytest.raises(CorruptTableError) as caught:
        decode_reference(REFERENCE_MAGIC + json.dumps(named(OTHER)).encode(), PATH, WRITE)
    assert OTHER in str(caught.value)
    assert PATH in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"{", b"\xff", b"[" * 100_000, b" " * REFERENCE_BYTES_MAX],
    ids=["torn", "no text", "deep", "large"],
)
def test_content_of_any_bytes_is_an_error_and_nothing_else(content: bytes) -> None:
    with pytest.raises(CorruptTableError):
        decode_reference(REFERENCE_MAGIC + content, PATH, WRITE)


def test_a_block_names_no_more_logs_than_it_may() -> None:
    logs = [[f".{CHILD}_{WRITE}.log.{n}_1-0-0", 1, 1] for n in range(REFERRED_LOGS_MAX + 1)]
    with pytest.raises(CorruptTableError, match="65537 logs"):
        decode_reference(REFERENCE_MAGIC + json.dumps({"v": 1, "logs": logs}).encode(), PATH, WRITE)


def test_what_a_reference_names_parses_as_a_file_of_the_table() -> None:
    assert parse_data_file(NAME) is not None
