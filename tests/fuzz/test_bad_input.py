"""What a read says of each kind of damage: which file, at which byte, and what to do.

A log file may end in what a dying writer left, and the format has readers step over it: that is a
warning, and the blocks around it count. Everything else is an error before any row is given.
"""

from __future__ import annotations

import io
import json
import re
import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyhudi
from fuzz.mutations import log_parts
from fuzz.subjects import SCHEMA, commit, new_memory, row
from handmade import TIMELINE, HandmadeTable, at, parquet_bytes
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.format.files.delete_records import delete_batch, encode_delete_records
from pyhudi.format.files.log_file import BlockType, HeaderKey, encode_block

LOG = f".f-0_{at(3)}.log.1_0-1-0"
BASE = f"f-0_0-1-0_{at(1)}.parquet"
ROWS_IN_BASE = ["base of a", "base of b"]


@pytest.fixture
def made() -> HandmadeTable:
    """A table with a base file of two rows."""
    made = HandmadeTable(new_memory(), SCHEMA, ordering="ts")
    commit(made, 1, made.base(1, [row("a", 1, "base"), row("b", 1, "base")]))
    return made


def values(made: HandmadeTable) -> list[str]:
    read = pyhudi.open_table(made.storage.uri).read(columns=["v"]).to_arrow()
    return sorted(read["v"].to_pylist())


_Error = TypeVar("_Error", bound=pyhudi.HudiError)


def refused(made: HandmadeTable, kind: type[_Error], why: str) -> _Error:
    """The error of a read, which says why, and what to do next."""
    with pytest.raises(kind, match=why) as caught:
        values(made)
    assert caught.value.next_step
    return caught.value


# ---- log blocks


def good(made: HandmadeTable) -> bytes:
    return made.rows_block(3, [row("c", 3, "good")], avro=True)


def bad(made: HandmadeTable) -> bytes:
    """A sound block of two rows, to be damaged."""
    return made.rows_block(3, [row("x", 3, "bad"), row("y", 3, "bad")], avro=True)


def place(data: bytes, part: str) -> int:
    return next(found.start for found in log_parts(data)[0] if found.name == part)


def forged(part: str, layout: str, number: int) -> Callable[[HandmadeTable], bytes]:
    """A block with another number in one part of its frame."""

    def damage(made: HandmadeTable) -> bytes:
        data, value = bad(made), struct.pack(layout, number)
        start = place(data, part)
        return data[:start] + value + data[start + len(value) :]

    return damage


def block(
    type_: BlockType = BlockType.AVRO_DATA, content: bytes = b"", **header: str | None
) -> Callable[[HandmadeTable], bytes]:
    """A block whose frame is sound, around whatever the content is; None leaves a key out."""

    def damage(made: HandmadeTable) -> bytes:
        avro = avro_record_schema(made.batch(3, [row("x", 3, "")], "", "").schema, "handmade")
        keys: dict[str, str | None] = {"INSTANT_TIME": at(3), "SCHEMA": json.dumps(avro), **header}
        kept = {HeaderKey[name]: text for name, text in keys.items() if text is not None}
        return encode_block(type_, kept, content)

    return damage


def parquet_block(table: pa.Table) -> Callable[[HandmadeTable], bytes]:
    return block(BlockType.PARQUET_DATA, parquet_bytes(table, None))


def deletes_without_a_key(made: HandmadeTable) -> bytes:
    batch = delete_batch(pa.array([None, "a"]), pa.array(["", ""]), pa.array([9, 9]))
    return block(BlockType.DELETE, encode_delete_records([batch]))(made)


def rows_without_a_key(made: HandmadeTable) -> bytes:
    batch = made.batch(3, [row("x", 3, "bad")], "", "f-0")
    nameless = pa.Table.from_batches([batch]).drop_columns(["_hoodie_record_key"])
    return parquet_block(nameless)(made)


def rows_with_a_column_twice(made: HandmadeTable) -> bytes:
    table = pa.Table.from_batches([made.batch(3, [row("x", 3, "bad")], "", "f-0")])
    return parquet_block(table.append_column("v", pa.array(["worse"])))(made)


def rows_that_the_footer_overstates(made: HandmadeTable) -> bytes:
    batch = made.batch(3, [row(f"x{n}", 3, "bad") for n in range(5_000)], "", "f-0")
    data = parquet_bytes(pa.Table.from_batches([batch]), None)
    return block(BlockType.PARQUET_DATA, with_row_count(data, 5_000, 2**40))(made)


def with_row_count(data: bytes, rows: int, claimed: int) -> bytes:
    """The parquet file with another number of rows everywhere in its footer."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:-8].replace(_varint(2 * rows), _varint(2 * claimed))
    assert footer != data[start:-8]
    return data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


Build = Callable[[HandmadeTable], bytes]


def cut(size: int) -> Build:
    return lambda made: bad(made)[:size]


#: What the format has readers step over.
TORN: dict[str, Build] = {
    **{f"cut at byte {size}": cut(size) for size in (6, 13, 14, 50, 700, -1)},
    "H is past the end of the file": forged("H", ">q", 2**62),
    "H is the greatest there is": forged("H", ">q", -1),
    "H is 0": forged("H", ">q", 0),
    "T is not H": forged("T", ">q", 5),
    "T is the greatest there is": forged("T", ">q", 2**63 - 1),
    "many magics": lambda made: b"#HUDI#" * 100,
}


@pytest.mark.parametrize("build", TORN.values(), ids=TORN)
def test_a_torn_block_is_skipped_with_a_warning_and_blocks_around_it_are_read(
    made: HandmadeTable, build: Build
) -> None:
    first, last = good(made), made.rows_block(3, [row("d", 3, "good")], avro=True)
    commit(made, 3, made.log(3, first, build(made), last))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [*ROWS_IN_BASE, "good of c", "good of d"] == values(made)
    assert {warning.category for warning in caught} == {pyhudi.CorruptBlockWarning}
    assert re.match(rf"bytes {len(first)} to \d+ of {re.escape(repr(LOG))}", str(caught[0].message))


#: What is left of a log file whose end is lost, and what is said of it.
ENDS: dict[str, tuple[Build, str]] = {
    "a torn last block": (lambda made: good(made) + bad(made)[:-10], "the file ends before"),
    "rubbish behind a block": (lambda made: good(made) + b"rubbish", "no block follows"),
    "a part of a magic": (lambda made: b"#HU", "inside a block's first 14 bytes"),
    "nothing": (lambda made: b"", "empty"),
}


@pytest.mark.parametrize(("build", "why"), ENDS.values(), ids=ENDS)
def test_a_log_file_that_a_commit_names_and_whose_end_is_torn_is_an_error(
    made: HandmadeTable, build: Build, why: str
) -> None:
    commit(made, 3, made.log(3, build(made)))
    with pytest.raises(pyhudi.CorruptTableError, match=f"the write {at(3)}.*{why}") as caught:
        values(made)
    assert caught.value.path == LOG


@pytest.mark.parametrize(("build", "why"), ENDS.values(), ids=ENDS)
def test_a_torn_log_file_that_its_commit_does_not_name_is_skipped_with_a_warning(
    made: HandmadeTable, build: Build, why: str
) -> None:
    made.log(3, build(made), token="9-9-9")
    commit(made, 3, made.log(3, good(made)))
    with pytest.warns(pyhudi.CorruptBlockWarning, match=why):
        assert [*ROWS_IN_BASE, "good of c"] == values(made)


@dataclass(frozen=True)
class Damage:
    build: Build
    why: str
    part: str | None = "magic"  # the part of the block's frame at which the error points
    frame: Build | None = None  # the block before it was damaged, where its own frame lies


def forgery(part: str, layout: str, number: int, why: str, points_at: str) -> Damage:
    return Damage(forged(part, layout, number), why, points_at, frame=bad)


_HEAD = struct.Struct(">ii")
_SELF = '{"type":"record","name":"r","fields":[{"name":"a","type":"r"}]}'
_TWINS = (
    '{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}'
)

#: Damage inside a sound frame.
DAMAGED = {
    "format version": forgery("version", ">i", 2, "version 2", "version"),
    "block type": forgery("type", ">i", 9, "no block type 9", "type"),
    "header count": forgery("header count", ">i", 65, "65 entries", "header count"),
    "negative count": forgery("header count", ">i", -1, "-1 entries", "header count"),
    "header overruns": forgery(
        "header length 0", ">i", 2**31 - 1, "2147483647 bytes overruns", "header value 0"
    ),
    "negative header": forgery("header length 0", ">i", -5, "-5 bytes overruns", "header value 0"),
    "header key": forgery("header key 0", ">i", 77, "entry 77", "header key 0"),
    "content overruns": forgery("content length", ">q", 2**62, "overruns it", "content length"),
    "negative content": forgery("content length", ">q", -1, "overruns", "content length"),
    "no instant": Damage(block(INSTANT_TIME=None), "lacks INSTANT_TIME"),
    "empty instant": Damage(block(INSTANT_TIME=""), "INSTANT_TIME ''"),
    "instant is no time": Damage(block(INSTANT_TIME="now"), "INSTANT_TIME 'now'"),
    "no schema": Damage(block(SCHEMA=None), "no schema"),
    "schema is no JSON": Damage(block(SCHEMA='{"type"'), "not JSON", None),
    "schema is no record": Damage(block(SCHEMA='"int"'), "not a record", None),
    "schema contains itself": Damage(block(SCHEMA=_SELF), "contains itself", None),
    "schema has a name twice": Damage(block(SCHEMA=_TWINS), "two fields", None),
    "Avro record count": forgery(
        "content int 1", ">i", 2**31 - 1, "2147483647 records", "content int 0"
    ),
    "negative record count": forgery("content int 1", ">i", -1, "-1 records", "content int 0"),
    "a record too few": forgery("content int 1", ">i", 3, "record 3 of 3", "footer count"),
    "Avro record length": forgery(
        "content int 2", ">i", 2**31 - 1, "record 1 of 2 overruns", "content int 2"
    ),
    "negative record length": forgery(
        "content int 2", ">i", -1, "record 1 of 2 overruns", "content int 2"
    ),
    "no Avro content": Damage(block(), "shorter than its own head", "footer count"),
    "Avro garbage": Damage(
        block(content=_HEAD.pack(3, 1) + b"\0\0\0\4" + b"\xff" * 4), "union", "content int 2"
    ),
    "no deletes": Damage(block(BlockType.DELETE), "shorter", "footer count"),
    "deletes of another size": Damage(
        block(BlockType.DELETE, _HEAD.pack(3, 2**31 - 1) + b"\0"),
        "2147483647 bytes",
        "content int 0",
    ),
    "count of deletes": Damage(
        block(BlockType.DELETE, _HEAD.pack(3, 6) + b"\xfe\xff\xff\xff\x0f\0"),
        "2147483647 items",
        "content int 0",
    ),
    "garbage for deletes": Damage(
        block(BlockType.DELETE, _HEAD.pack(3, 5) + b"\xff" * 5), "range", "content int 0"
    ),
    "delete without a key": Damage(deletes_without_a_key, "1 of its 2 records have no key"),
    "no parquet": Damage(block(BlockType.PARQUET_DATA), "parquet content is broken"),
    "garbage for parquet": Damage(
        block(BlockType.PARQUET_DATA, b"PAR1" + b"x" * 50 + b"PAR1"), "parquet content is broken"
    ),
    "row without a key": Damage(rows_without_a_key, "1 of its 1 records have no key"),
    "column twice": Damage(rows_with_a_column_twice, "several of that name", None),
    "parquet row count": Damage(rows_that_the_footer_overstates, "1099511627776 rows"),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_damage_inside_a_block_names_file_byte_and_remedy(
    made: HandmadeTable, damage: Damage
) -> None:
    first, broken = good(made), damage.build(made)
    commit(made, 3, made.log(3, first, broken, good(made)))
    error = refused(made, pyhudi.CorruptTableError, damage.why)
    assert error.path == LOG
    assert LOG in str(error)
    assert "Restore the file" in error.next_step
    if damage.part is not None:
        frame = (damage.frame or damage.build)(made)
        assert error.offset == len(first) + place(frame, damage.part)
        assert f"at byte {error.offset}" in str(error)


FOREIGN: dict[str, tuple[Build, str]] = {
    "HFile": (block(BlockType.HFILE_DATA, b"x"), "HFILE_DATA"),
    "change capture": (block(BlockType.CDC_DATA, b"x"), "CDC_DATA"),
    "Hudi's mark for corrupt ones": (block(BlockType.CORRUPT, b"x"), "CORRUPT"),
    "older Avro": (forged("content int 0", ">i", 2), "content version 2"),
    "Kryo deletes": (block(BlockType.DELETE, _HEAD.pack(1, 1) + b"\0"), "Kryo"),
}


@pytest.mark.parametrize(("build", "why"), FOREIGN.values(), ids=FOREIGN)
def test_a_block_that_pyhudi_has_no_reader_for_is_refused_by_name(
    made: HandmadeTable, build: Build, why: str
) -> None:
    commit(made, 3, made.log(3, good(made), build(made)))
    error = refused(made, pyhudi.UnsupportedTableError, why)
    assert re.search(rf"at byte \d+ of {re.escape(repr(LOG))}", str(error))
    assert "Compact the file group" in error.next_step


def test_a_file_that_is_no_log_file_is_refused_by_its_first_bytes(made: HandmadeTable) -> None:
    commit(made, 3, made.log(3, b"PAR1", good(made)))
    error = refused(made, pyhudi.CorruptTableError, "not a Hudi log file")
    assert (error.path, error.offset) == (LOG, 0)


def test_a_log_file_of_nothing_but_magics_ends_in_an_error_and_soon(made: HandmadeTable) -> None:
    commit(made, 3, made.log(3, b"#HUDI#" * 1_000_000))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pyhudi.CorruptBlockWarning)
        error = refused(made, pyhudi.CorruptTableError, "more than 1000 here are not whole")
    assert (error.path, error.offset) == (LOG, 6_000)


# ---- base files


def overstated_base(rows: int) -> bytes:
    data = io.BytesIO()
    names = [f"_hoodie_{name}" for name in ("commit_time", "record_key")]
    columns = [[at(1)] * 5_000, [f"k{n}" for n in range(5_000)]]
    pq.write_table(pa.table(columns, names=names), data)
    return with_row_count(data.getvalue(), 5_000, rows)


BROKEN_BASES = {
    "empty": (b"", "0 bytes"),
    "text": (b"id,v\na,1\n", "not sound parquet"),
    "only magics": (b"PAR1PAR1", "not sound parquet"),
    "a footer length": (b"PAR1" + b"\0" * 20 + b"\xff\xff\xff\x7fPAR1", "not sound parquet"),
    "more rows in the footer": (overstated_base(9_000), "4000 rows that its footer claims"),
    "2^40 rows in the footer": (overstated_base(2**40), "rows that its footer claims are missing"),
}


@pytest.mark.parametrize(("data", "why"), BROKEN_BASES.values(), ids=BROKEN_BASES)
@pytest.mark.parametrize("column", ["v", "_hoodie_record_key"])
def test_a_broken_base_file_is_refused_by_name(
    made: HandmadeTable, data: bytes, why: str, column: str
) -> None:
    made.storage.write(BASE, data)
    commit(made, 1, BASE)  # of this length: a shorter file would not be opened at all
    scan = pyhudi.open_table(made.storage.uri).read(columns=[column])
    with pytest.raises(pyhudi.CorruptTableError, match=why) as caught:
        scan.to_arrow()
    assert caught.value.path == BASE
    assert "Restore the file" in caught.value.next_step


def test_a_broken_base_file_is_refused_also_where_it_has_to_tell_the_schema(
    made: HandmadeTable,
) -> None:
    for stat in [*made.storage.list(TIMELINE)]:
        made.storage.delete(stat.path)
    made.begin(5)  # an instant without metadata: the older ones count as archived
    made.storage.write(BASE, b"not parquet")
    assert refused(made, pyhudi.CorruptTableError, "not sound parquet")


# ---- the timeline


def completed(made: HandmadeTable) -> str:
    return f"{TIMELINE}/{at(1)}_{at(2)}.deltacommit"


BROKEN_COMMITS = {
    "empty": (b"", "must hold one"),
    "text": (b'{"partitionToWriteStats": {}}', "does not begin as an Avro container"),
    "only a magic": (b"Obj\x01", "range"),
}


@pytest.mark.parametrize(("data", "why"), BROKEN_COMMITS.values(), ids=BROKEN_COMMITS)
def test_a_broken_completed_commit_is_refused_by_name(
    made: HandmadeTable, data: bytes, why: str
) -> None:
    made.storage.write(completed(made), data)
    error = refused(made, pyhudi.CorruptTableError, why)
    assert error.path == completed(made)


def test_a_commit_file_that_goes_away_between_listing_and_reading_is_an_error_to_retry(
    made: HandmadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = made.storage.read

    def gone(path: str, start: int = 0, end: int | None = None) -> bytes:
        if path == completed(made):
            raise FileNotFoundError(path)
        return read(path, start, end)

    monkeypatch.setattr(made.storage, "read", gone)
    error = refused(made, pyhudi.UnavailableError, "archived")
    assert completed(made) in str(error)


def test_a_compaction_without_its_plan_hides_neither_rows_nor_files(made: HandmadeTable) -> None:
    before = pyhudi.open_table(made.storage.uri).inspect.file_slices()
    assert before.num_rows
    made.storage.write(f"{TIMELINE}/{at(5)}.compaction.inflight", b"")
    assert values(made) == ROWS_IN_BASE
    assert pyhudi.open_table(made.storage.uri).inspect.file_slices() == before


@pytest.mark.parametrize("ordering", ["nope", "tags", "a.b"])
def test_an_ordering_field_that_cannot_order_is_refused_by_name(ordering: str) -> None:
    schema = pa.schema([*SCHEMA, ("tags", pa.list_(pa.string()))])
    made = HandmadeTable(new_memory(), schema, ordering=ordering)
    commit(made, 1, made.base(1, [row("a", 1, "base")]))
    assert values(made) == ["base of a"]  # without logs there is nothing to order
    commit(made, 3, made.log(3, made.deletes_block(3, ["a"])))
    error = refused(made, pyhudi.UnsupportedTableError, ordering)
    assert "hoodie.table.ordering.fields" in error.next_step


# ---- the archive

HISTORY = f"{TIMELINE}/history"


def archived(made: HandmadeTable, names: list[str]) -> None:
    entries = [{"fileName": name, "fileLen": 1} for name in names]
    made.storage.write(f"{HISTORY}/manifest_7", json.dumps({"files": entries}).encode())
    made.storage.write(f"{HISTORY}/_version_", b"7")


def changes(made: HandmadeTable) -> int:
    return len(pyhudi.open_table(made.storage.uri).changes().to_arrow())


def test_a_missing_manifest_or_archive_file_is_an_error_and_never_fewer_rows(
    made: HandmadeTable,
) -> None:
    archived(made, [])
    assert changes(made) == 2
    archived(made, [f"{at(0)}_{at(0)}_0.parquet"])
    with pytest.raises(pyhudi.UnavailableError, match=f"{at(0)}_{at(0)}_0.parquet"):
        changes(made)
    made.storage.delete(f"{HISTORY}/manifest_7")
    with pytest.raises(pyhudi.UnavailableError, match="manifest_7"):
        changes(made)


@pytest.mark.parametrize("version", [None, b""])
def test_the_newest_manifest_counts_while_hudi_rewrites_the_version(
    made: HandmadeTable, version: bytes | None
) -> None:
    archived(made, [f"{at(0)}_{at(0)}_0.parquet"])
    made.storage.write(f"{HISTORY}/manifest_6", b'{"files": []}')
    if version is None:
        made.storage.delete(f"{HISTORY}/_version_")
    else:
        made.storage.write(f"{HISTORY}/_version_", version)
    with pytest.raises(pyhudi.UnavailableError, match=f"{at(0)}_{at(0)}_0.parquet"):
        changes(made)  # manifest 7 names it


def test_an_archived_instant_without_its_time_is_refused(made: HandmadeTable) -> None:
    name = f"{at(0)}_{at(0)}_0.parquet"
    archived(made, [name])
    columns = ["instantTime", "completionTime", "action", "metadata", "plan"]
    table = pa.table([[None], [at(0)], ["commit"], [b""], [b""]], names=columns)
    made.storage.write(f"{HISTORY}/{name}", parquet_bytes(table, None))
    with pytest.raises(pyhudi.CorruptTableError, match="lacks its time") as caught:
        changes(made)
    assert caught.value.path == f"{HISTORY}/{name}"
