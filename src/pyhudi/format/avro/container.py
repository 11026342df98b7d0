"""Avro object containers that hold exactly one record: the files of Hudi's timeline.

    Obj 1 | header: map of text to bytes | 16 sync bytes | 1 | size | record | 16 sync bytes

The header has the writer's schema under `avro.schema`, and under `avro.codec` how the record is
compressed if it is. Hudi writes neither the codec nor compressed records; readers accept deflate.

Containers come from storage, so nothing in one is trusted: sizes are compared with what is there
and with caps before anything is allocated, and inflating stops at the cap. The sync marker is an
argument wherever bytes are made: this package has no randomness of its own.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, replace
from typing import Any, Final

from pyhudi.errors import CorruptTableError
from pyhudi.format.avro.decoding import (
    MALFORMED,
    read_bytes,
    read_count,
    read_long,
)
from pyhudi.format.avro.encoding import write_bytes, write_long, write_string
from pyhudi.format.avro.types import AvroError

CONTAINER_BYTES_MAX: Final = 512 * 1024 * 1024
INFLATED_BYTES_MAX: Final = 16 * 1024 * 1024  # Hudi's own are not compressed, and may be larger
INFLATED_RATIO_MAX: Final = 200
SYNC_BYTES: Final = 16

_MAGIC: Final = b"Obj\x01"
_SCHEMA: Final = "avro.schema"
_CODEC: Final = "avro.codec"


@dataclass(frozen=True, slots=True)
class Container:
    """A container taken apart; encoding it again gives the same bytes if it is not compressed."""

    header: tuple[tuple[str, bytes], ...]  # in the order of the file
    sync: bytes
    body: bytes  # the record, inflated

    @property
    def schema_json(self) -> bytes:
        return dict(self.header)[_SCHEMA]


def decode_container(data: bytes, path: str) -> Container:
    """Take a container apart without decoding its record."""
    if len(data) > CONTAINER_BYTES_MAX:
        raise damaged_container(path, f"it has {len(data)} bytes, more than {CONTAINER_BYTES_MAX}")
    try:
        return _container(data)
    except MALFORMED as error:
        raise damaged_container(path, str(error)) from None


def encode_container(container: Container) -> bytes:
    """Return the bytes of a container, not compressed."""
    assert len(container.sync) == SYNC_BYTES
    header = [item for item in container.header if item != (_CODEC, b"deflate")]
    out = bytearray(_MAGIC)
    write_long(len(header), out)
    for key, value in header:
        write_string(key, out)
        write_bytes(value, out)
    out.append(0)
    out += container.sync
    write_long(1, out)
    write_bytes(container.body, out)
    out += container.sync
    return bytes(out)


def new_container(schema: Any, body: bytes, sync: bytes) -> Container:
    """Return a container with the header that Hudi gives it.

    The schema as compact JSON, nothing else.
    """
    text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
    return Container(((_SCHEMA, text.encode()),), sync, body)


def damaged_container(path: str, why: str) -> CorruptTableError:
    return CorruptTableError(
        "a timeline file cannot be decoded",
        why=why,
        next_step="Restore the file from a copy of the table",
        path=path,
    )


def _container(data: bytes) -> Container:
    if not data.startswith(_MAGIC):
        raise AvroError("it does not begin as an Avro container does")
    header, position = _header(data, len(_MAGIC))
    sync = data[position : position + SYNC_BYTES]
    count, position = read_long(data, position + SYNC_BYTES)
    if count != 1:
        raise AvroError(f"its first block holds {count} records instead of 1")
    body, position = read_bytes(data, position)
    if data[position:] != sync or len(sync) != SYNC_BYTES:
        raise AvroError("the bytes after its record are not its sync marker")
    return _inflated(Container(header, sync, body))


def _header(data: bytes, position: int) -> tuple[tuple[tuple[str, bytes], ...], int]:
    items: dict[str, bytes] = {}
    count, position = read_count(data, position)
    while count:
        for _ in range(count):
            key, position = read_bytes(data, position)
            items[key.decode()], position = read_bytes(data, position)
        count, position = read_count(data, position)
    if _SCHEMA not in items:
        raise AvroError("its header has no schema")
    return tuple(items.items()), position


def _inflated(container: Container) -> Container:
    codec = dict(container.header).get(_CODEC, b"null")
    if codec == b"null":
        return container
    if codec != b"deflate":
        raise AvroError(f"its codec is {codec[:40]!r}, and timeline files have null or deflate")
    most = min(INFLATED_BYTES_MAX, INFLATED_RATIO_MAX * len(container.body))
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        body = inflater.decompress(container.body, most + 1)
    except zlib.error as error:
        raise AvroError(f"its record cannot be inflated ({error})") from None
    if len(body) > most:
        raise AvroError(f"its record inflates to more than {most} bytes")
    if not inflater.eof:  # bytes may follow: fastavro leaves some of zlib's checksum there
        raise AvroError("its compressed record is cut short")
    return replace(container, body=body)
