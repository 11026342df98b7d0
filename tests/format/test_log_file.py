from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_tables import NAMES, GoldenTables
from pyhudi.errors import CorruptTableError, UnsupportedTableError
from pyhudi.format.files import log_file
from pyhudi.format.files.log_file import (
    MAGIC,
    BlockType,
    CorruptSpan,
    HeaderKey,
    LogBlock,
    decode_blocks,
    encode_block,
)


def decoded(data: bytes) -> list[LogBlock | CorruptSpan]:
    return list(decode_blocks(lambda start, end: data[start:end], len(data), "x.log"))


def block(content: bytes = b"content", instant: str = "20260101000000000") -> bytes:
    return encode_block(BlockType.AVRO_DATA, {HeaderKey.INSTANT_TIME: instant}, content)


headers = st.dictionaries(st.sampled_from(HeaderKey), st.text(max_size=20))
blocks = st.tuples(st.sampled_from(BlockType), headers, st.binary(max_size=50), headers)


@given(st.lists(blocks, max_size=4))
@settings(deadline=None)
def test_blocks_round_trip(
    written: list[tuple[BlockType, dict[HeaderKey, str], bytes, dict[HeaderKey, str]]],
) -> None:
    data = b"".join(encode_block(*parts) for parts in written)
    found = decoded(data)
    assert all(isinstance(one, LogBlock) for one in found)
    assert [
        (b.type, b.header, data[b.content_start : b.content_end], b.footer)
        for b in found
        if isinstance(b, LogBlock)
    ] == written


def golden_logs(table: Path) -> list[Path]:
    return [path for path in table.rglob(".*.log.*") if not path.name.endswith(".crc")]


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("mor_") or n == "cow_cdc"])
def test_every_golden_log_file_is_written_back_as_it_was(golden: GoldenTables, name: str) -> None:
    logs = golden_logs(golden.path(name))
    assert logs
    for path in logs:
        data = path.read_bytes()
        again = b"".join(
            encode_block(b.type, b.header, data[b.content_start : b.content_end], b.footer)
            for b in decoded(data)
            if isinstance(b, LogBlock)
        )
        assert again == data, path.name


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("mor_")])
def test_golden_blocks_are_those_that_hudi_lists(golden: GoldenTables, name: str) -> None:
    for recorded in golden.description(name)["log_blocks"]:
        data = (golden.path(name) / recorded["file"]).read_bytes()
        ours = [b for b in decoded(data) if isinstance(b, LogBlock)]
        assert [
            {
                "type": f"{b.type.name}_BLOCK",
                "header": {k.name: v for k, v in b.header.items() if k is not HeaderKey.SCHEMA},
            }
            for b in ours
        ] == recorded["blocks"]


def with_long(data: bytes, offset: int, value: int) -> bytes:
    return data[:offset] + struct.pack(">Q", value) + data[offset + 8 :]


GOOD = block(b"good")

#: What a dying writer, or a bad disk, may leave between two good blocks.
TORN = {
    "half a block": block(b"torn" * 10)[:40],
    "a magic alone": MAGIC,
    "ten bytes of a block": block()[:10],
    "lengths that disagree": with_long(block(), len(block()) - 8, 7),
    "a length past the end of the file": with_long(block(), 6, 1 << 40),
    "a length of zero": with_long(block(), 6, 0),
    "the greatest length there is": with_long(block(), 6, (1 << 64) - 1),
    "garbage behind a block": block() + b"garbage",
}


@pytest.mark.parametrize("torn", TORN.values(), ids=TORN)
def test_a_torn_block_is_stepped_over_and_good_ones_around_it_are_kept(torn: bytes) -> None:
    data = GOOD + torn + GOOD
    found = decoded(data)
    good = [b for b in found if isinstance(b, LogBlock)]
    assert [data[b.content_start : b.content_end] for b in good][:1] == [b"good"]
    assert data[good[-1].content_start : good[-1].content_end] == b"good"
    spans = [s for s in found if isinstance(s, CorruptSpan)]
    assert spans
    assert sum(s.end - s.start for s in spans) + sum(b.end - b.start for b in good) == len(data)
    assert [b for b in decoded(GOOD + torn) if isinstance(b, LogBlock)]


def test_an_empty_file_has_no_blocks() -> None:
    assert decoded(b"") == []


def test_a_magic_across_two_reads_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "_SEARCH_CHUNK", 16)
    torn = with_long(block(b"x" * 100), 6, 1 << 40)
    for padding in range(20):
        found = decoded(torn + b"-" * padding + GOOD)
        assert [type(one) for one in found] == [CorruptSpan, LogBlock]


def entry(ordinal: int, length: int, text: bytes = b"") -> bytes:
    return struct.pack(">ii", ordinal, length) + text


def framed(body: bytes) -> bytes:
    """A block whose two lengths are right around whatever the body is."""
    length = len(body) + 8
    return MAGIC + struct.pack(">Q", length) + body + struct.pack(">Q", length + 6)


HEAD = struct.pack(">ii", 1, 3)
EMPTY = struct.pack(">i", 0)
NO_CONTENT = struct.pack(">Q", 0)

#: Damage inside a block whose frame is sound is an error: the format does not step over it.
DAMAGED = {
    "format version": (struct.pack(">ii", 2, 3) + EMPTY + NO_CONTENT + EMPTY, "version 2"),
    "block type": (struct.pack(">ii", 1, 9) + EMPTY + NO_CONTENT + EMPTY, "block type 9"),
    "too many header entries": (HEAD + struct.pack(">i", 65) + NO_CONTENT + EMPTY, "65 entries"),
    "negative header entries": (HEAD + struct.pack(">i", -1) + NO_CONTENT + EMPTY, "-1 entries"),
    "unknown header key": (
        HEAD + struct.pack(">i", 1) + entry(77, 1, b"x") + NO_CONTENT + EMPTY,
        "entry 77",
    ),
    "header overruns": (
        HEAD + struct.pack(">i", 1) + entry(0, 2**31 - 1) + NO_CONTENT + EMPTY,
        "2147483647 bytes overruns",
    ),
    "negative length": (
        HEAD + struct.pack(">i", 1) + entry(0, -5) + NO_CONTENT + EMPTY,
        "-5 bytes overruns",
    ),
    "not text": (
        HEAD + struct.pack(">i", 1) + entry(0, 1, b"\xff") + NO_CONTENT + EMPTY,
        "entry 0 is not text",
    ),
    "content overruns": (HEAD + EMPTY + struct.pack(">Q", 1 << 62) + EMPTY, "overruns"),
    "bytes left over": (HEAD + EMPTY + NO_CONTENT + EMPTY + b"more", "4 bytes are left over"),
}


@pytest.mark.parametrize(("body", "why"), DAMAGED.values(), ids=DAMAGED)
def test_damage_inside_a_sound_frame_names_file_and_offset(body: bytes, why: str) -> None:
    with pytest.raises(CorruptTableError, match=why) as caught:
        decoded(GOOD + framed(body))
    assert caught.value.path == "x.log"
    assert caught.value.offset is not None
    assert caught.value.offset >= len(GOOD)


def test_a_file_that_is_no_log_is_refused_by_its_first_bytes() -> None:
    with pytest.raises(CorruptTableError, match="PAR1"):
        decoded(b"PAR1 and then some")


def test_a_block_too_large_to_hold_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_file, "BLOCK_BYTES_MAX", 100)
    with pytest.raises(UnsupportedTableError, match="too large"):
        decoded(block(b"x" * 200))
