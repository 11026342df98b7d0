"""Arrow rows → the blocks of a log file, and back to how many records a block holds.

A block is encoded whole, so its size is what a reader must hold at once. Rows are therefore cut
into blocks of bounded size before they are encoded, by the size of their values alone: buffers and
offsets differ between two copies of the same rows, and a repeated attempt must cut where the first
one did. Every function here makes the same bytes of the same rows.

Parquet blocks carry no statistics, for a reader merges all rows of a block. Small ones have no
dictionaries either, and snappy in place of zstd: they come out as small in half the time.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.avro.records import encode_avro_content
from pyhudi.format.avro.schema import AvroType
from pyhudi.format.files.base_file import BaseFileFooter, encode_footer
from pyhudi.format.files.delete_records import (
    DeleteBatch,
    decode_delete_records,
    delete_batch,
    encode_delete_records,
)
from pyhudi.format.files.log_file import (
    BLOCK_BYTES_MAX,
    BlockType,
    Header,
    HeaderKey,
    LogBlock,
    encode_block,
)
from pyhudi.settings import LogBlockFormat

#: What the values of a block may take. A reader lets parquet inflate to twice as much without a
#: check.
BLOCK_VALUE_BYTES: Final = 32 << 20
#: From this many rows on, compressing well pays.
_LARGE_ROWS: Final = 1_000
_AVRO_HEAD: Final = struct.Struct(">ii")


def encode_rows_block(
    batch: pa.RecordBatch,
    avro_json: str,
    requested: str,
    block_format: LogBlockFormat,
    *,
    is_partial: bool = False,
) -> bytes:
    """Return a data block of these rows, whose schema the Avro JSON states, meta columns included.

    The columns that the rows of a partial block lack are taken from older versions of the rows.
    """
    if block_format is LogBlockFormat.AVRO:
        kind, content = BlockType.AVRO_DATA, _avro_content(batch, avro_json)
    else:
        kind, content = BlockType.PARQUET_DATA, _parquet_content(batch, avro_json)
    return _block(kind, content, avro_json, requested, is_partial=is_partial)


def encode_deletes_block(
    keys: pa.Array, partition: str, ordering: pa.Array | None, avro_json: str, requested: str
) -> bytes:
    """Return a delete block; without ordering values its deletes beat everything before them.

    Ordering values have one type, and none is null: hudi-rs reads no block that mixes them.
    """
    paths = pa.repeat(pa.scalar(partition, pa.string()), len(keys))
    content = encode_delete_records([delete_batch(keys, paths, ordering)])
    return _block(BlockType.DELETE, content, avro_json, requested)


#: What a block that is copied in part keeps of its header. Record positions are of the base file
#: below the original.
_COPIED_KEYS = (HeaderKey.INSTANT_TIME, HeaderKey.SCHEMA, HeaderKey.IS_PARTIAL)


def encode_copied_rows(batch: pa.RecordBatch, source: LogBlock) -> bytes:
    """Return a data block of some rows of another block, with its type, instant and schema."""
    avro_json = source.header[HeaderKey.SCHEMA]
    encode = _avro_content if source.type is BlockType.AVRO_DATA else _parquet_content
    return _copied_block(source, encode(batch, avro_json))


def encode_copied_deletes(batches: Sequence[DeleteBatch], source: LogBlock) -> bytes:
    """Return a delete block of some deletes of another block, with its instant and schema."""
    return _copied_block(source, encode_delete_records(batches))


def _copied_block(source: LogBlock, content: bytes) -> bytes:
    header = {key: source.header[key] for key in _COPIED_KEYS if key in source.header}
    return _framed(source.type, header, content)


def _block(
    kind: BlockType, content: bytes, avro_json: str, requested: str, *, is_partial: bool = False
) -> bytes:
    header = {HeaderKey.INSTANT_TIME: requested, HeaderKey.SCHEMA: avro_json}
    if is_partial:
        header[HeaderKey.IS_PARTIAL] = "true"
    return _framed(kind, header, content)


def _framed(kind: BlockType, header: Header, content: bytes) -> bytes:
    data = encode_block(kind, header, content)
    if len(data) > BLOCK_BYTES_MAX:
        raise InvalidRequestError(
            "a row is too large to be written",
            why=f"alone it makes a log block of {len(data)} bytes, and {BLOCK_BYTES_MAX} can be"
            " read back",
            next_step="Keep such values outside the table, or split them over several rows",
        )
    return data


def _avro_content(batch: pa.RecordBatch, avro_json: str) -> bytes:
    try:
        return encode_avro_content([batch], _parsed_avro(avro_json))
    # What Arrow and fastavro raise for values that the schema cannot hold.
    except (pa.ArrowException, ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise _not_storable(str(error)) from None


@lru_cache(maxsize=16)
def _parsed_avro(avro_json: str) -> AvroType:
    """Return the parsed schema, cached: parsing takes longer than encoding a small block."""
    return fastavro.parse_schema(json.loads(avro_json))


def _parquet_content(batch: pa.RecordBatch, avro_json: str) -> bytes:
    large = batch.num_rows >= _LARGE_ROWS
    sink = pa.BufferOutputStream()
    writer = ParquetEncoder(sink, batch.schema, compact=large, statistics=False)
    writer.write(pa.Table.from_batches([batch]))
    writer.close(BaseFileFooter(avro_json))
    content: bytes = sink.getvalue().to_pybytes()
    return content


class ParquetEncoder:
    """Writes parquet as all our files have it: compressed, with Hudi's footer and our errors.

    Dictionaries pay where values repeat. Where they do not, building one takes as long as all the
    rest, and parquet drops it in the end; so the first rows decide, column by column.
    """

    def __init__(
        self, sink: object, schema: pa.Schema, *, compact: bool = True, statistics: bool = True
    ) -> None:
        self._sink = sink
        self._schema = schema
        self._compact = compact
        self._statistics = statistics
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Write one row group in the schema of the file."""
        try:
            self._opened(table).write_table(table, max(1, table.num_rows))
        except (pa.ArrowException, ValueError) as error:
            raise _not_storable(str(error)) from None

    def close(self, footer: BaseFileFooter) -> None:
        writer = self._opened(None)
        writer.add_key_value_metadata(encode_footer(footer))
        writer.close()

    def _opened(self, first: pa.Table | None) -> pq.ParquetWriter:
        if self._writer is None:
            repeating = _repeating(first) if self._compact and first is not None else []
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression="zstd" if self._compact else "snappy",
                use_dictionary=repeating or False,
                write_statistics=self._statistics,
                store_schema=False,  # the Arrow schema says nothing that the Avro one does not
            )
        return self._writer


#: Rows that are looked at, and the share of different values up to which a dictionary is made.
_SAMPLE_ROWS = 1024
_DISTINCT_MAX = 0.5


def _repeating(table: pa.Table) -> list[str]:
    """Return the columns, as parquet calls them, whose values repeat among the first rows."""
    names = []
    for field, paths in zip(table.schema, _leaf_paths(table.schema), strict=True):
        sample = table.column(field.name).slice(0, _SAMPLE_ROWS)
        if _distinct(sample) <= max(1, len(sample) * _DISTINCT_MAX):
            names += paths
    return names


def _distinct(sample: pa.ChunkedArray) -> int:
    """Return the number of different values.

    Arrow does not count those of lists and other nested types; they are taken to repeat.
    """
    try:
        return int(pc.count_distinct(sample).as_py())
    except pa.ArrowNotImplementedError:
        return 0


@lru_cache(maxsize=16)
def _leaf_paths(schema: pa.Schema) -> list[list[str]]:
    """Return the names that parquet gives the leaves of each column."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, store_schema=False):
        pass
    made = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    found: dict[str, list[str]] = {name: [] for name in schema.names}
    paths = [made.column(index).path for index in range(len(made))]
    for name in schema.names:
        found[name] = [path for path in paths if path == name or path.startswith(f"{name}.")]
    return list(found.values())


def _not_storable(why: str) -> InvalidRequestError:
    return InvalidRequestError(
        "rows cannot be written",
        why=why,
        next_step="Bring the values into the table's schema first",
    )


# ---- cutting


def block_sized(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in pieces whose values take at most that many bytes, or of one row."""
    if batch.num_rows > 1 and batch.nbytes > bytes_max and value_bytes(batch) > bytes_max:
        middle = batch.num_rows // 2
        yield from block_sized(batch.slice(0, middle), bytes_max)
        yield from block_sized(batch.slice(middle), bytes_max)
    elif batch.num_rows:
        yield batch


def value_bytes(batch: pa.RecordBatch) -> int:
    """Return what the values take, however they lie in memory; never more than Arrow says."""
    return sum(_array_bytes(column) for column in batch.columns)


def _array_bytes(array: pa.Array) -> int:
    type_ = array.type
    if pa.types.is_struct(type_):
        return sum(_array_bytes(child) for child in array.flatten())
    if pa.types.is_map(type_):
        pairs = pa.struct([("key", type_.key_type), ("value", type_.item_type)])
        array = array.cast(pa.list_(pairs))
    if pa.types.is_nested(type_):
        return 4 * len(array) + _array_bytes(array.flatten())
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return 4 * len(array) + int(pc.sum(pc.binary_length(array)).as_py() or 0)
    if pa.types.is_null(type_):
        return 0
    return int(type_.bit_width) * len(array) // 8


# ---- counting


def block_records(block: LogBlock, content: bytes, path: str) -> int:
    """Return how many rows or deletes a block holds, decoding as little as possible."""
    match block.type:
        case BlockType.PARQUET_DATA:
            try:
                return int(pq.read_metadata(pa.BufferReader(content)).num_rows)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise _uncountable(path, block.start, f"broken parquet: {error}") from None
        case BlockType.AVRO_DATA if len(content) >= _AVRO_HEAD.size:
            return int(_AVRO_HEAD.unpack_from(content)[1])
        case BlockType.DELETE:
            deletes = decode_delete_records(content, path, block.content_start)
            return sum(len(batch.rows) for batch in deletes)
    raise _uncountable(path, block.start, f"its type is {block.type.name}")


def _uncountable(path: str, offset: int, why: str) -> CorruptTableError:
    return CorruptTableError(
        "the records of a log block cannot be counted",
        why=why,
        next_step="Restore the file from a copy, or from versions that the store keeps",
        path=path,
        offset=offset,
    )
