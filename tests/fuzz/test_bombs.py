"""Small files that stand for very much: each is refused by its claim, before it is unfolded.

Ten seconds and 512 MB are the bounds here: some bombs are large files themselves.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyhudi
from fuzz.front_door import Answer, answers, bounded
from fuzz.subjects import SCHEMA, commit, new_memory, row
from handmade import SYNC, TIMELINE, HandmadeTable, at
from pyhudi.format.avro.container import Container, encode_container
from pyhudi.format.avro.encoding import write_bytes, write_long, write_string
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.format.files.log_file import BlockType, HeaderKey, encode_block
from pyhudi.format.table.properties import decode_properties, encode_properties
from pyhudi.format.timeline.archive import CONTENTS, TIMES
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat, encode_commit_metadata
from pyhudi.format.timeline.metadata_schemas import REPLACE_COMMIT_METADATA
from pyhudi.table.schema import META_COLUMNS

MEGABYTE = 1024 * 1024
PROPERTIES = ".hoodie/hoodie.properties"
HISTORY = f"{TIMELINE}/history"
COMMIT = f"{TIMELINE}/{at(3)}_{at(4)}.replacecommit"


@pytest.fixture
def made() -> Iterator[HandmadeTable]:
    made = HandmadeTable(new_memory(), SCHEMA, ordering="ts")
    commit(made, 1, made.base(1, [row("a", 1, "base")]))
    yield made
    for stat in [*made.storage.list("")]:
        made.storage.delete(stat.path)  # a storage in memory lives as long as the process


def judged(made: HandmadeTable) -> dict[str, Answer]:
    with bounded(seconds=10, bytes_max=512 * MEGABYTE):
        return answers(made.storage.uri, at(4))


def assert_refused(found: Answer, why: str) -> None:
    assert isinstance(found, pyhudi.CorruptTableError)
    assert why in str(found)
    assert len(str(found)) < 2_000, "an error does not repeat the bomb"


# ---- Avro containers


def deflated(size: int) -> bytes:
    """So many zeros, compressed as well as deflate can: about a thousand to one."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    part = deflate.compress(bytes(MEGABYTE)) + deflate.flush(zlib.Z_FULL_FLUSH)  # stands alone
    return part * (size // MEGABYTE) + deflate.flush()


def compressed_container(schema: Any, body: bytes) -> bytes:
    out = bytearray(b"Obj\x01")
    write_long(2, out)
    for key, value in (("avro.schema", json.dumps(schema).encode()), ("avro.codec", b"deflate")):
        write_string(key, out)
        write_bytes(value, out)
    out += b"\0" + SYNC
    write_long(1, out)
    write_bytes(body, out)
    return bytes(out + SYNC)


def container(schema_json: str, body: bytes = b"\0") -> bytes:
    return encode_container(Container((("avro.schema", schema_json.encode()),), SYNC, body))


def test_commit_metadata_that_inflates_without_end_is_refused(made: HandmadeTable) -> None:
    made.storage.write(COMMIT, compressed_container(REPLACE_COMMIT_METADATA, deflated(1 << 30)))
    assert_refused(judged(made)["read"], "inflates to more than")


def test_commit_metadata_whose_schema_stores_next_to_nothing_is_refused(
    made: HandmadeTable,
) -> None:
    # A write stat of one byte, which we would make thirty fields of.
    stat = {
        "type": "record",
        "name": "HoodieWriteStat",
        "fields": [{"name": "fileId", "type": ["null", "string"]}],
    }
    stats = {"type": "map", "values": {"type": "array", "items": stat}}
    fields = [{"name": "partitionToWriteStats", "type": stats}]
    schema = {"type": "record", "name": "HoodieReplaceCommitMetadata", "fields": fields}
    body = bytearray()
    write_long(1, body)
    write_string("", body)
    write_long(4 * MEGABYTE, body)
    body += bytes(4 * MEGABYTE + 2)
    made.storage.write(COMMIT, container(json.dumps(schema), bytes(body)))
    assert_refused(judged(made)["read"], "may stand for more than")


def test_lengths_beyond_64_bits_are_refused(made: HandmadeTable) -> None:
    fields = [{"name": "s", "type": "string"}, {"name": "d", "type": "double"}]
    body = bytearray()
    write_long(2**63 - 1, body)
    schema = {"type": "record", "name": "HoodieReplaceCommitMetadata", "fields": fields}
    made.storage.write(COMMIT, container(json.dumps(schema), bytes(body)))
    assert_refused(judged(made)["read"], COMMIT)


# ---- schemas


def record(fields: str) -> str:
    return f'{{"type":"record","name":"r","fields":[{fields}]}}'


def _fields(count: int) -> str:
    return record(",".join(f'{{"name":"f{n}","type":"int"}}' for n in range(count)))


def _nested(levels: int) -> str:
    open_, close = '{"type":"array","items":', "}"
    return record(f'{{"name":"a","type":{open_ * levels}"int"{close * levels}}}')


def _named(levels: int, uses: int) -> str:
    """Each record has the one before it so many times, by its name."""
    fields = [
        '{"name":"x","type":{"type":"record","name":"A0","fields":[{"name":"a","type":"int"}]}}'
    ]
    for n in range(1, levels):
        inner = ",".join(f'{{"name":"a{use}","type":"A{n - 1}"}}' for use in range(uses))
        type_ = f'{{"type":"record","name":"A{n}","fields":[{inner}]}}'
        fields.append(f'{{"name":"x{n}","type":{type_}}}')
    return record(",".join(fields))


SCHEMAS = {
    "10,000 levels": lambda: _nested(10_000),
    "65 levels": lambda: _nested(65),
    "100,000 brackets": lambda: "[" * 100_000 + "]" * 100_000,
    "1,000,000 fields": lambda: _fields(1_000_000),
    "100,000 fields": lambda: _fields(100_000),
    "doubled by name 60 times": lambda: _named(60, uses=2),
    "4,000 levels by name": lambda: _named(4_000, uses=1),
    "a decimal of 10^30 digits": lambda: record(
        f'{{"name":"a","type":{{"type":"bytes","logicalType":"decimal","precision":{10**30}}}}}'
    ),
    "half a character": lambda: record('{"name":"\\ud800","type":"int"}'),
    "a number of 5,000 digits": lambda: record(f'{{"name":"a","type":{"9" * 5_000}}}'),
    "a name of 1 MB": lambda: record(f'{{"name":"a","type":"{"x" * MEGABYTE}"}}'),
}
SchemaJson = Callable[[], str]


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_a_schema_bomb_in_commit_metadata_is_refused(
    made: HandmadeTable, schema: SchemaJson
) -> None:
    metadata = CommitMetadata(extra_metadata={"schema": schema()})
    path = f"{TIMELINE}/{at(3)}_{at(4)}.deltacommit"
    made.storage.write(path, encode_commit_metadata(metadata, SYNC))
    assert_refused(judged(made)["read"], path.rpartition("/")[2])


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_a_schema_bomb_in_an_avro_container_is_refused(
    made: HandmadeTable, schema: SchemaJson
) -> None:
    made.storage.write(COMMIT, container(schema()))
    assert_refused(judged(made)["read"], COMMIT)


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_a_schema_bomb_in_a_log_block_is_refused(made: HandmadeTable, schema: SchemaJson) -> None:
    header = {HeaderKey.INSTANT_TIME: at(3), HeaderKey.SCHEMA: schema()}
    content = struct.pack(">iii", 3, 1, 0)
    path = made.log(3, encode_block(BlockType.AVRO_DATA, header, content))
    commit(made, 3, path)
    assert_refused(judged(made)["read"], path)


@pytest.mark.parametrize("items", ['"null"', record(""), record('{"name":"n","type":"null"}')])
@pytest.mark.parametrize("kind", ["array", "map"])
def test_items_that_take_no_bytes_cannot_be_counted_up(
    made: HandmadeTable, items: str, kind: str
) -> None:
    key = {"array": "items", "map": "values"}[kind]
    schema = record(f'{{"name":"a","type":{{"type":"{kind}","{key}":{items}}}}}')
    body = bytearray()
    write_long(2**40, body)
    content = struct.pack(">iii", 3, 1, len(body)) + bytes(body)
    header = {HeaderKey.INSTANT_TIME: at(3), HeaderKey.SCHEMA: schema}
    path = made.log(3, encode_block(BlockType.AVRO_DATA, header, content))
    commit(made, 3, path)
    assert_refused(judged(made)["read"], path)


# ---- parquet


def zeros(size: int) -> bytes:
    """A parquet file of a few hundred kilobytes with one column of so many zeros."""
    schema = pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *SCHEMA])
    rows = size // MEGABYTE
    batch = pa.RecordBatch.from_pylist(
        [{"_hoodie_record_key": str(n), "v": "0" * MEGABYTE} for n in range(16)], schema
    )
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, schema, compression="zstd", use_dictionary=False) as writer:
        for _ in range(rows // 16):
            writer.write_batch(batch)
    return sink.getvalue()


def test_a_parquet_block_that_inflates_without_end_is_refused(made: HandmadeTable) -> None:
    content = zeros(1 << 30)
    assert len(content) < MEGABYTE
    header = {HeaderKey.INSTANT_TIME: at(3)}
    path = made.log(3, encode_block(BlockType.PARQUET_DATA, header, content))
    commit(made, 3, path)
    assert_refused(judged(made)["read"], "bytes of rows")


def test_an_archive_file_that_inflates_without_end_is_refused(made: HandmadeTable) -> None:
    instants = [[at(0)] * 16, [at(1)] * 16, ["commit"] * 16, [bytes(MEGABYTE)] * 16, [b""] * 16]
    sink = io.BytesIO()
    batch = pa.RecordBatch.from_arrays([pa.array(c) for c in instants], [*TIMES, *CONTENTS])
    with pq.ParquetWriter(sink, batch.schema, compression="zstd", use_dictionary=False) as writer:
        for _ in range(64):
            writer.write_batch(batch)
    name = f"{at(0)}_{at(1)}_0.parquet"
    made.storage.write(f"{HISTORY}/{name}", sink.getvalue())
    manifest = {"files": [{"fileName": name, "fileLen": 1}]}
    made.storage.write(f"{HISTORY}/manifest_1", json.dumps(manifest).encode())
    made.storage.write(f"{HISTORY}/_version_", b"1")
    assert_refused(judged(made)["changes"], "bytes are claimed")


# ---- text


def _many_properties(made: HandmadeTable) -> bytes:
    return b"".join(b"key%d=%s\n" % (n, b"x" * 100) for n in range(900_000))


def _one_property(made: HandmadeTable) -> bytes:
    return b"key=" + b"\\a" * (50 * MEGABYTE)


@pytest.mark.parametrize("bomb", [_many_properties, _one_property])
def test_properties_of_100_megabytes_are_refused(
    made: HandmadeTable, bomb: Callable[[HandmadeTable], bytes]
) -> None:
    made.storage.write(PROPERTIES, made.storage.read(PROPERTIES) + bomb(made))
    assert_refused(judged(made)["open"], PROPERTIES)


@pytest.mark.parametrize("schema", [_nested(10_000), _named(60, uses=2)], ids=["deep", "doubled"])
def test_a_schema_bomb_in_the_properties_is_refused(made: HandmadeTable, schema: str) -> None:
    for stat in [*made.storage.list("")]:
        if stat.path != PROPERTIES:
            made.storage.delete(stat.path)
    pairs = decode_properties(made.storage.read(PROPERTIES))
    pairs["hoodie.table.create.schema"] = schema
    made.storage.write(PROPERTIES, encode_properties(pairs))
    assert_refused(judged(made)["read"], PROPERTIES)


MANIFESTS = {
    "100,000 levels of lists": lambda: b"[" * 100_000 + b"]" * 100_000,
    "100,000 levels of objects": lambda: b'{"files":' * 100_000 + b"1" + b"}" * 100_000,
    "70 MB": lambda: b'{"files":[]' + b" " * (70 * MEGABYTE) + b"}",
    "a number of a million digits": lambda: b'{"files":[' + b"9" * 1_000_000 + b"]}",
}


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS)
def test_a_manifest_bomb_is_refused(made: HandmadeTable, manifest: Callable[[], bytes]) -> None:
    made.storage.write(f"{HISTORY}/manifest_1", manifest())
    made.storage.write(f"{HISTORY}/_version_", b"1")
    assert_refused(judged(made)["changes"], f"{HISTORY}/manifest_1")


def test_an_archive_version_of_100_megabytes_is_refused(made: HandmadeTable) -> None:
    made.storage.write(f"{HISTORY}/_version_", b"1" * (100 * MEGABYTE))
    assert_refused(judged(made)["changes"], f"{HISTORY}/_version_")


# ---- sizes that a write says of itself


def changes_of_a_log_said_to_have(made: HandmadeTable, size: int | None) -> tuple[str, Answer]:
    path = made.log(3, made.rows_block(3, [row("b", 3, "log")]))
    stat = WriteStat(file_id="f-0", path=path, partition_path="", file_size_in_bytes=size)
    schema = json.dumps(avro_record_schema(SCHEMA, "handmade"))
    metadata = CommitMetadata(
        partition_to_write_stats={"": (stat,)}, extra_metadata={"schema": schema}
    )
    commit_path = f"{TIMELINE}/{at(3)}_{at(4)}.deltacommit"
    made.storage.write(commit_path, encode_commit_metadata(metadata, SYNC))
    return path, judged(made)["changes"]


@pytest.mark.parametrize("size", [None, 0, -1])
def test_a_size_that_a_write_does_not_tell_is_taken_from_the_file(
    made: HandmadeTable, size: int | None
) -> None:
    _, changes = changes_of_a_log_said_to_have(made, size)
    assert isinstance(changes, pa.Table)
    assert sorted(changes["v"].to_pylist()) == ["base of a", "log of b"]


@pytest.mark.parametrize("size", [2**31, 2**62])
def test_a_file_that_is_shorter_than_its_write_says_is_refused_before_memory_is_taken(
    made: HandmadeTable, size: int
) -> None:
    path, changes = changes_of_a_log_said_to_have(made, size)
    assert_refused(changes, path)
