"""One record of a timeline file ↔ one frozen value.

A `TimelineRecord` joins a schema of `metadata_schemas` with the classes of its values. A class has
the fields of its record in the record's order, so that decoding needs no names.

Files of one kind nearly always carry the same schema text, so decoders are cached by it. Loading a
timeline compiles one decoder, not one per file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

from pyhudi.errors import CorruptTableError
from pyhudi.format.avro.container import (
    damaged_container,
    decode_container,
    encode_container,
    new_container,
)
from pyhudi.format.avro.decoding import MALFORMED, CompiledDecoder
from pyhudi.format.avro.encoding import compiled_encoder
from pyhudi.format.avro.types import AvroError, Record, linked_type, parse_schema

Value = TypeVar("Value")

_SCHEMA_BYTES_CACHED_MAX: Final = 64 * 1024  # longer schemas are not Hudi's, and are not cached


class TimelineRecord(Generic[Value]):
    """Decodes and encodes timeline files whose record stands for a `Value`."""

    def __init__(
        self, schema: Any, value: type[Value], *, also: Sequence[str] = (), **inner: type
    ) -> None:
        """Compile the record. `inner` has the class for each record inside, by the record's name.

        `also` names records that the file may hold instead. Any other is refused: all fields have
        defaults, so a file of another kind would pass for an empty one of this.
        """
        self.schema = schema
        self._names = frozenset({schema["name"], *also})
        self._reader = linked_type(schema)
        self.classes: Mapping[str, type] = {schema["name"]: value, **inner}
        self._encode = compiled_encoder(self._reader, self.classes)
        self._cached_decoder = lru_cache(maxsize=8)(self._decoder)

    def decode(self, data: bytes, path: str) -> Value:
        """Return the value in a file that must hold one."""
        value = self.decode_or_none(data, path)
        if value is None:
            raise CorruptTableError(
                "a timeline file is empty",
                why=f"it must hold one {self.schema['name']} record; its writer may have stopped",
                next_step="Restore the file from a copy of the table. If its writer died before it"
                " filled it, roll the instant back with Apache Hudi and write its rows again",
                path=path,
            )
        return value

    def decode_or_none(self, data: bytes, path: str) -> Value | None:
        """Return the value in a file that may also be empty."""
        if not data:
            return None
        container = decode_container(data, path)
        schema = container.schema_json
        decoder = self._cached_decoder if len(schema) <= _SCHEMA_BYTES_CACHED_MAX else self._decoder
        try:
            value: Value = decoder(schema)(container.body)
        except MALFORMED as error:
            raise damaged_container(path, str(error)) from None
        return value

    def encode(self, value: Value, sync: bytes) -> bytes:
        """Return the file that holds the value; `sync` is 16 bytes that should be random."""
        body = bytearray()
        self._encode(value, body)
        return encode_container(new_container(self.schema, bytes(body), sync))

    def _decoder(self, schema_json: bytes) -> CompiledDecoder:
        writer = parse_schema(schema_json)
        if not isinstance(writer, Record) or writer.name not in self._names:
            raise AvroError(f"it does not hold a {self.schema['name']} record")
        return CompiledDecoder(writer, self._reader, self.classes)
