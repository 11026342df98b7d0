"""Avro schemas as linked, bounded types: what the codecs of this package are compiled from.

A schema comes out of a file and decides how that file's bytes are read, so it is checked as bytes
are. Three rules make every later step finite:

- depth, number of fields and size of the text are capped;
- no type contains itself, so values nest no deeper than the schema does;
- every type takes at least one byte (null only inside a union, whose branch number is a byte), so
  a forged count of items can never claim more than the bytes that follow it.

Logical types and other attributes are dropped: Hudi's own records hold plain values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyhudi.format.avro.schema import DEPTH_MAX, FIELDS_MAX, SCHEMA_BYTES_MAX

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_LEAST_BYTES: Mapping[str, int] = {"null": 0, "float": 4, "double": 8}


class AvroError(ValueError):
    """Bytes or a schema that break Avro. Callers turn it into CorruptTableError with a path."""


@dataclass(frozen=True, slots=True, eq=False)
class Primitive:
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Enum:
    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    items: Type


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    values: Type


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    branches: tuple[Type, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    name: str
    type: Type
    required: bool  # no default: a writer may not leave it out
    default: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    name: str  # without the namespace
    fields: tuple[Field, ...]
    bytes_min: int


Type = Primitive | Fixed | Enum | Array | Map | Union | Record


def parse_schema(text: str | bytes) -> Type:
    """Return the linked type of schema JSON found in a file."""
    if len(text) > SCHEMA_BYTES_MAX:
        raise AvroError(f"the schema has {len(text)} bytes, more than {SCHEMA_BYTES_MAX}")
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AvroError(f"the schema is not JSON ({type(error).__name__})") from None
    return linked_type(schema)


def linked_type(schema: Any) -> Type:
    """Return the linked type of a schema given as JSON data."""
    return _Linking().type(schema, "", 0)[0]


class _Linking:
    """One walk over one schema: the named types met so far, and how many fields."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[Type, int]] = {}
        self._fields = 0

    def type(self, schema: Any, namespace: str, depth: int) -> tuple[Type, int]:
        """Return the type and how many levels it has.

        A name counts with all the levels behind it.
        """
        if isinstance(schema, list):
            linked, height = self._union(schema, namespace, depth)
        elif isinstance(schema, str):
            linked, height = self._reference(schema, namespace)
        elif isinstance(schema, dict):
            linked, height = self._complex(schema, namespace, depth)
        else:
            raise AvroError("the schema has something that is not a type")
        if depth + height > DEPTH_MAX:
            raise AvroError(f"the schema is more than {DEPTH_MAX} levels deep")
        return linked, height

    def _inner(self, schema: Any, namespace: str, depth: int) -> tuple[Type, int]:
        """Return a type that stands on its own, outside a union: it must take a byte."""
        if depth > DEPTH_MAX:
            raise AvroError(f"the schema is more than {DEPTH_MAX} levels deep")
        linked, height = self.type(schema, namespace, depth)
        if bytes_min(linked) == 0:
            raise AvroError("the schema has a type whose values take no bytes")
        return linked, height + 1

    def _union(self, schema: list[Any], namespace: str, depth: int) -> tuple[Type, int]:
        if not schema:
            raise AvroError("the schema has an empty union")
        branches = [self._branch(branch, namespace, depth + 1) for branch in schema]
        return Union(tuple(b for b, _ in branches)), max(height for _, height in branches)

    def _branch(self, branch: Any, namespace: str, depth: int) -> tuple[Type, int]:
        if branch == "null":
            return Primitive("null"), 1
        if isinstance(branch, list):
            raise AvroError("the schema has a union inside a union")
        return self._inner(branch, namespace, depth)

    def _reference(self, name: str, namespace: str) -> tuple[Type, int]:
        if name in PRIMITIVES:
            return Primitive(name), 0
        known = self._named.get(_full_name(name, namespace)) or self._named.get(name)
        if known is None:
            raise AvroError(f"type {name[:100]!r} is not defined, or contains itself")
        return known

    def _complex(self, schema: dict[str, Any], namespace: str, depth: int) -> tuple[Type, int]:
        match schema.get("type"):
            case "array":
                items, height = self._inner(schema.get("items"), namespace, depth + 1)
                return Array(items), height
            case "map":
                values, height = self._inner(schema.get("values"), namespace, depth + 1)
                return Map(values), height
            case "record" | "enum" | "fixed" as kind:
                return self._define(kind, schema, namespace, depth)
            case inner:  # {"type": "string", ...}: a type with attributes
                return self._inner(inner, namespace, depth + 1)

    def _define(
        self, kind: str, schema: dict[str, Any], namespace: str, depth: int
    ) -> tuple[Type, int]:
        name = schema.get("name")
        if not isinstance(name, str):
            raise AvroError(f"the schema has a {kind} without a name")
        own = schema.get("namespace")
        full = _full_name(name, own if isinstance(own, str) else namespace)
        linked, height = self._body(kind, full, schema, depth)
        if self._named.setdefault(full, (linked, height))[0] is not linked:
            raise AvroError(f"the schema defines {full[:100]!r} twice")
        return linked, height

    def _body(self, kind: str, full: str, schema: dict[str, Any], depth: int) -> tuple[Type, int]:
        if kind == "record":
            return self._record(full, schema.get("fields"), depth)
        if kind == "fixed":
            size = schema.get("size")
            if type(size) is not int or size < 1:
                raise AvroError(f"the schema has a fixed type of size {size!r:.100}")
            return Fixed(size), 0
        symbols = schema.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(s, str) for s in symbols):
            raise AvroError("the schema has an enum without symbols")
        return Enum(tuple(symbols)), 0

    def _record(self, full: str, fields: Any, depth: int) -> tuple[Type, int]:
        if not isinstance(fields, list) or not fields:
            raise AvroError("the schema has a record without fields")
        self._fields += len(fields)
        if self._fields > FIELDS_MAX:
            raise AvroError(f"the schema has more than {FIELDS_MAX} fields")
        namespace, _, name = full.rpartition(".")
        linked = [self._field(field, namespace, depth) for field in fields]
        if len({field.name for field, _ in linked}) != len(linked):
            raise AvroError("the schema has two fields of one name")
        least = sum(bytes_min(field.type) for field, _ in linked)
        record = Record(name, tuple(field for field, _ in linked), least)
        return record, max(height for _, height in linked)

    def _field(self, field: Any, namespace: str, depth: int) -> tuple[Field, int]:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str):
            raise AvroError("the schema has a field without a name")
        linked, height = self._inner(field.get("type"), namespace, depth + 1)
        default = field.get("default")
        return Field(field["name"], linked, "default" not in field, default), height


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def bytes_min(linked: Type) -> int:
    """Return the fewest bytes that a value of the type takes."""
    match linked:
        case Record():
            return linked.bytes_min
        case Fixed():
            return linked.size
        case Primitive():
            return _LEAST_BYTES.get(linked.name, 1)
        case _:
            return 1
