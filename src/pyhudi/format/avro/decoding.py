"""Avro binary → Python values, by a decoder compiled once and used for many files.

A decoder is a function (data, position) → (value, next position), compiled from two types: the
writer's, which says what the bytes are, and the reader's, which says what we want. Fields that
only the writer has are read and dropped; fields that only the reader has get their default.

A library would make a dict for every record first: for commit metadata with a thousand write
stats that alone takes longer than building the values directly does here.

Bounds: a string that runs past the end leaves the position there, and either the next byte read
or the final check that all bytes were used refuses it; Python slices allocate only what exists.
A count of items is compared with the bytes left before the loop starts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyhudi.format.avro.types import (
    Array,
    AvroError,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Type,
    Union,
)

Decoder = Callable[[bytes, int], tuple[Any, int]]
Classes = Mapping[str, type]  # record name → the class of its values; other records become dicts

#: What reading malformed bytes may raise; everything else is a bug. `struct` raises the last one
#: for a position that a forged length moved beyond 64 bits.
MALFORMED: Final = (AvroError, IndexError, UnicodeDecodeError, struct.error, OverflowError)
#: Older releases know fewer fields than we do, so a stored byte may stand for up to two values.
#: Where it stands for more, a file may not hold more than this many.
VALUES_MAX: Final = 16 * 1024 * 1024
_DENSITY_USUAL: Final = 2

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


def read_long(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    position += 1
    if byte < 0x80:  # most numbers: counts, lengths of short texts
        return (byte >> 1) ^ -(byte & 1), position
    number = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if number >> 64 or shift > 70:
            raise AvroError("a number has more than 64 bits")
    return (number >> 1) ^ -(number & 1), position


def _read_int(data: bytes, position: int) -> tuple[int, int]:
    number, position = read_long(data, position)
    if not -(1 << 31) <= number < 1 << 31:
        raise AvroError(f"{number} is not an int of 32 bits")
    return number, position


def read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    size, position = read_long(data, position)
    if not 0 <= size <= len(data) - position:
        raise AvroError(f"{size} bytes are claimed and {len(data) - position} are left")
    return data[position : position + size], position + size


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    size, position = read_long(data, position)
    if size < 0:
        raise AvroError(f"a string claims {size} bytes")
    end = position + size
    return data[position:end].decode(), end


def _read_boolean(data: bytes, position: int) -> tuple[bool, int]:
    byte = data[position]
    if byte > 1:
        raise AvroError(f"byte {byte} is not a boolean")
    return byte == 1, position + 1


def _read_float(data: bytes, position: int) -> tuple[float, int]:
    return _FLOAT.unpack_from(data, position)[0], position + 4


def _read_double(data: bytes, position: int) -> tuple[float, int]:
    return _DOUBLE.unpack_from(data, position)[0], position + 8


def _read_null(data: bytes, position: int) -> tuple[None, int]:
    return None, position


READERS: Final[Mapping[str, Decoder]] = {
    "null": _read_null,
    "boolean": _read_boolean,
    "int": _read_int,
    "long": read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": read_bytes,
    "string": _read_string,
}
_PROMOTIONS: Mapping[str, tuple[str, ...]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
}


class CompiledDecoder:
    """Reads one value of the writer's type as a value of the reader's type."""

    def __init__(self, writer: Type, reader: Type, classes: Classes) -> None:
        self._classes = classes
        self._records: dict[tuple[Record, Record], Decoder] = {}
        self._density = 1
        self._decode = self._resolved(writer, reader)

    def __call__(self, data: bytes) -> Any:
        """Return the value that these bytes, all of them, encode; raise one of MALFORMED."""
        if self._density > _DENSITY_USUAL and len(data) * self._density > VALUES_MAX:
            raise AvroError(f"{len(data)} bytes may stand for more than {VALUES_MAX} values")
        value, end = self._decode(data, 0)
        if end != len(data):
            raise AvroError(f"the record ends at byte {end} of {len(data)}")
        return value

    def _resolved(self, writer: Type, reader: Type) -> Decoder:
        if isinstance(writer, Union):
            return self._union(writer.branches, reader)
        if isinstance(reader, Union):
            return self._chosen(writer, reader.branches)
        match writer, reader:
            case Primitive(name), Primitive(wanted):
                if name == wanted or wanted in _PROMOTIONS.get(name, ()):
                    return READERS[name]
            case Array(items), Array(wanted_items):
                return _array(self._resolved(items, wanted_items))
            case Map(values), Map(wanted_values):
                return _map(self._resolved(values, wanted_values))
            case Record(), Record():
                return self._record(writer, reader)
            case Fixed(size), Fixed(wanted_size) if size == wanted_size:
                return _fixed(size)
            case Enum(symbols), Enum():
                return _enum(symbols)
        raise AvroError(f"{_described(writer)} is stored where {_described(reader)} belongs")

    def _union(self, branches: tuple[Type, ...], reader: Type) -> Decoder:
        decoders = [self._branch(branch, reader) for branch in branches]
        if len(branches) == 2:
            for null, branch in enumerate(branches):
                if isinstance(branch, Primitive) and branch.name == "null":
                    return _nullable(decoders[1 - null], decoders[null], null)
        return _any_of(decoders)

    def _branch(self, branch: Type, reader: Type) -> Decoder:
        """Return the decoder of a branch.

        One that does not fit the reader is an error only when a value uses it.
        """
        try:
            return self._resolved(branch, reader)
        except AvroError as error:
            return _refusal(str(error))

    def _chosen(self, writer: Type, branches: tuple[Type, ...]) -> Decoder:
        reasons = []
        for branch in branches:
            try:
                return self._resolved(writer, branch)
            except AvroError as error:
                reasons.append(str(error))
        raise AvroError(reasons[-1])

    def _record(self, writer: Record, reader: Record) -> Decoder:
        known = self._records.get((writer, reader))
        if known is None:
            self._density = max(self._density, -(-len(reader.fields) // writer.bytes_min))
            known = self._records[writer, reader] = self._new_record(writer, reader)
        return known

    def _new_record(self, writer: Record, reader: Record) -> Decoder:
        slots = {field.name: slot for slot, field in enumerate(reader.fields)}
        steps = []
        for field in writer.fields:
            slot = slots.pop(field.name, None)
            if slot is None:  # unknown to us: read it into the spare last slot
                steps.append((self._resolved(field.type, field.type), len(reader.fields)))
            else:
                steps.append((self._resolved(field.type, reader.fields[slot].type), slot))
        for slot in slots.values():
            if reader.fields[slot].required:
                name = f"{reader.name}.{reader.fields[slot].name}"
                raise AvroError(f"the writer's schema leaves out {name}, which has no default")
        # A list in a default becomes a tuple, as decoded arrays are.
        defaults = [tuple(d) if isinstance(d := f.default, list) else d for f in reader.fields]
        return _record(steps, defaults, self._maker(reader))

    def _maker(self, reader: Record) -> Callable[..., Any]:
        made = self._classes.get(reader.name)
        if made is not None:
            return made
        names = tuple(field.name for field in reader.fields)
        return lambda *values: dict(zip(names, values, strict=True))


def _record(
    steps: Sequence[tuple[Decoder, int]], defaults: Sequence[Any], make: Callable[..., Any]
) -> Decoder:
    template = [*defaults, None]

    def decode(data: bytes, position: int) -> tuple[Any, int]:
        values = template.copy()
        for step, slot in steps:
            values[slot], position = step(data, position)
        values.pop()
        return make(*values), position

    return decode


def _nullable(value: Decoder, null: Decoder, null_branch: int) -> Decoder:
    null_byte, value_byte = 2 * null_branch, 2 * (1 - null_branch)

    def decode(data: bytes, position: int) -> tuple[Any, int]:
        byte = data[position]
        if byte == null_byte:
            return null(data, position + 1)
        if byte == value_byte:
            return value(data, position + 1)
        raise AvroError(f"byte {byte} is not a branch of a union of two")

    return decode


def _any_of(branches: Sequence[Decoder]) -> Decoder:
    def decode(data: bytes, position: int) -> tuple[Any, int]:
        branch, position = read_long(data, position)
        if not 0 <= branch < len(branches):
            raise AvroError(f"{branch} is not a branch of a union of {len(branches)}")
        return branches[branch](data, position)

    return decode


def _refusal(why: str) -> Decoder:
    def decode(data: bytes, position: int) -> tuple[Any, int]:
        raise AvroError(why)

    return decode


def read_count(data: bytes, position: int) -> tuple[int, int]:
    """Return the number of items in the next block of an array or map; 0 ends it."""
    count, position = read_long(data, position)
    if count < 0:  # the block's size in bytes follows, for readers that skip it
        count = -count
        _, position = read_long(data, position)
    if count > len(data) - position:
        raise AvroError(f"{count} items are claimed and {len(data) - position} bytes are left")
    return count, position


def _array(item: Decoder) -> Decoder:
    def decode(data: bytes, position: int) -> tuple[tuple[Any, ...], int]:
        items = []
        count, position = read_count(data, position)
        while count:
            for _ in range(count):
                value, position = item(data, position)
                items.append(value)
            count, position = read_count(data, position)
        return tuple(items), position

    return decode


def _map(value: Decoder) -> Decoder:
    def decode(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        entries = {}
        count, position = read_count(data, position)
        while count:
            for _ in range(count):
                key, position = _read_string(data, position)
                entries[key], position = value(data, position)
            count, position = read_count(data, position)
        return entries, position

    return decode


def _fixed(size: int) -> Decoder:
    def decode(data: bytes, position: int) -> tuple[bytes, int]:
        return data[position : position + size], position + size

    return decode


def _enum(symbols: tuple[str, ...]) -> Decoder:
    def decode(data: bytes, position: int) -> tuple[str, int]:
        number, position = read_long(data, position)
        if not 0 <= number < len(symbols):
            raise AvroError(f"{number} is not one of {len(symbols)} symbols")
        return symbols[number], position

    return decode


def _described(linked: Type) -> str:
    match linked:
        case Primitive(name):
            return f"a {name}"
        case Record(name):
            return f"record {name[:100]}"
        case Union():
            return "a union"
        case _:
            return f"a type of the kind {type(linked).__name__.lower()}"
