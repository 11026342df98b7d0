"""Python values → Avro binary, by an encoder compiled once from a schema.

What Java writes is what we write: an array or map is one block with a positive count and then a
zero, an empty one the zero alone, and numbers take the fewest bytes. So decoding a file of Hudi's
and encoding the values again gives the same bytes.

Values come from our own code. One that does not fit the schema is a bug there, and raises Python's
own error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import fields as dataclass_fields
from operator import attrgetter, itemgetter
from typing import Any, Final

from pyhudi.format.avro.types import Array, Enum, Fixed, Map, Primitive, Record, Type, Union

Encoder = Callable[[Any, bytearray], None]

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


def write_long(value: int, out: bytearray) -> None:
    if not -(1 << 63) <= value < 1 << 63:
        raise OverflowError(f"{value} is not a long of 64 bits")
    number = (value << 1) ^ (value >> 63)
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _write_int(value: int, out: bytearray) -> None:
    if not -(1 << 31) <= value < 1 << 31:
        raise OverflowError(f"{value} is not an int of 32 bits")
    write_long(value, out)


def write_bytes(value: bytes, out: bytearray) -> None:
    write_long(len(value), out)
    out += value


def write_string(value: str, out: bytearray) -> None:
    write_bytes(value.encode(), out)


WRITERS: Final[Mapping[str, Encoder]] = {
    "boolean": lambda value, out: out.append(1 if value else 0),
    "int": _write_int,
    "long": write_long,
    "float": lambda value, out: out.extend(_FLOAT.pack(value)),
    "double": lambda value, out: out.extend(_DOUBLE.pack(value)),
    "bytes": write_bytes,
    "string": write_string,
}


def compiled_encoder(linked: Type, classes: Mapping[str, type]) -> Encoder:
    """Return an encoder for values of the type.

    Records named in `classes` are instances of those.
    """
    match linked:
        case Primitive(name):
            return WRITERS[name]
        case Array(items):
            return _array(compiled_encoder(items, classes))
        case Map(values):
            return _map(compiled_encoder(values, classes))
        case Record():
            return _record(linked, classes)
        case Union((Primitive("null"), other)):
            return _nullable(compiled_encoder(other, classes), null_byte=0, value_byte=2)
        case Union((other, Primitive("null"))):
            return _nullable(compiled_encoder(other, classes), null_byte=2, value_byte=0)
        case Enum(symbols):
            return lambda value, out: write_long(symbols.index(value), out)
        case Fixed(size):
            return _fixed(size)
        case _:
            raise TypeError("only a union of null and one type can be encoded")


def _record(record: Record, classes: Mapping[str, type]) -> Encoder:
    names = [field.name for field in record.fields]
    made = classes.get(record.name)
    if made is not None:  # the class has the fields of the record, in its order
        names = [field.name for field in dataclass_fields(made)][: len(names)]
        assert len(names) == len(record.fields), f"{made.__name__} has too few fields"
    values_of = attrgetter(*names) if made is not None else itemgetter(*names)
    encoders = [compiled_encoder(field.type, classes) for field in record.fields]
    if len(encoders) == 1:
        only = encoders[0]
        return lambda value, out: only(values_of(value), out)

    def encode(value: Any, out: bytearray) -> None:
        for encoder, part in zip(encoders, values_of(value), strict=True):
            encoder(part, out)

    return encode


def _nullable(inner: Encoder, *, null_byte: int, value_byte: int) -> Encoder:
    def encode(value: Any, out: bytearray) -> None:
        if value is None:
            out.append(null_byte)
        else:
            out.append(value_byte)
            inner(value, out)

    return encode


def _array(item: Encoder) -> Encoder:
    def encode(value: Any, out: bytearray) -> None:
        if value:
            write_long(len(value), out)
            for each in value:
                item(each, out)
        out.append(0)

    return encode


def _map(inner: Encoder) -> Encoder:
    def encode(value: Any, out: bytearray) -> None:
        if value:
            write_long(len(value), out)
            for key, each in value.items():
                write_string(key, out)
                inner(each, out)
        out.append(0)

    return encode


def _fixed(size: int) -> Encoder:
    def encode(value: bytes, out: bytearray) -> None:
        if len(value) != size:
            raise ValueError(f"{len(value)} bytes do not fit a fixed type of {size}")
        out.extend(value)

    return encode
