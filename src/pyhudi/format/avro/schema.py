"""Avro schemas ↔ Arrow schemas: the table's columns as Hudi writes them down.

Hudi stores a table's schema as Avro JSON, in commit metadata, in log block headers and in base file
footers. Everything in this package works on Arrow types, so this is the one place where the two
meet. A nullable column is the union of null and one type; any other union has no Arrow column and
is refused by name. Schemas come from files, so their size, depth and width are capped; a named type
counts as often as it is used, or thirty short lines could stand for a billion columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pyhudi.errors import CorruptTableError, UnsupportedTableError
from pyhudi.format.avro.documentation import avro_documentation, with_documentation

SCHEMA_BYTES_MAX = 16 * 1024 * 1024
DEPTH_MAX = 64
FIELDS_MAX = 10_000

AvroType = Any  # JSON: a name, a list (union) or an object

_PRIMITIVES: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}


def load_avro_json(text: str | bytes, path: str) -> AvroType:
    """Parse schema JSON that came from a file."""
    if len(text) > SCHEMA_BYTES_MAX:
        raise _corrupt(path, f"the schema has {len(text)} bytes, more than {SCHEMA_BYTES_MAX}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _corrupt(path, f"the schema is not JSON ({type(error).__name__})") from None


def decode_arrow_schema(text: str | bytes, path: str) -> pa.Schema:
    """Return the Arrow schema of a record schema in Avro JSON."""
    return _read(load_avro_json(text, path), _Reading(path))


def decode_documented_schema(text: str | bytes, path: str) -> pa.Schema:
    """Return the Arrow schema with the documentation of its columns, inside structs too."""
    return _read(load_avro_json(text, path), _DocumentedReading(path))


def _read(avro: AvroType, reading: _Reading) -> pa.Schema:
    if not isinstance(avro, dict) or avro.get("type") != "record":
        raise _corrupt(reading.path, "the schema is not a record")
    return pa.schema(reading.fields_of(avro, 0))


class _Reading:
    """One walk over one schema: the named types met so far, and how many fields."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._named: dict[str, _Named] = {}
        self._namespace = ""  # of the record that is being read
        self._fields = 0
        self._characters = 0  # of documentation

    def _record_fields(self, avro: Mapping[str, Any], depth: int) -> list[pa.Field]:
        fields = avro.get("fields")
        if not isinstance(fields, list):
            raise _corrupt(self.path, "a record without fields")
        self._count(len(fields), 0)
        made = [self._field(field, depth) for field in fields]
        if len({field.name for field in made}) != len(made):
            raise _corrupt(self.path, "a record with two fields of one name")
        return made

    def _count(self, fields: int, characters: int) -> None:
        self._fields += fields
        self._characters += characters
        if self._fields > FIELDS_MAX:
            raise _corrupt(self.path, f"the schema has more than {FIELDS_MAX} fields")
        if self._characters > SCHEMA_BYTES_MAX:
            why = f"the documentation in it stands for more than {SCHEMA_BYTES_MAX} bytes"
            raise _corrupt(self.path, why)

    def _field(self, field: Any, depth: int) -> pa.Field:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str):
            raise _corrupt(self.path, "a field without a name")
        type_, nullable = self.type(field.get("type"), depth + 1)
        try:
            return pa.field(field["name"], type_, nullable=nullable)
        except UnicodeEncodeError:  # JSON can say half a character
            raise _corrupt(self.path, f"a field named {field['name'][:100]!a}") from None

    def type(self, avro: AvroType, depth: int) -> tuple[pa.DataType, bool]:
        """Return the Arrow type, and whether null is allowed."""
        if depth > DEPTH_MAX:
            raise _corrupt(self.path, f"the schema is more than {DEPTH_MAX} levels deep")
        if isinstance(avro, list):
            return self._union(avro, depth)
        if isinstance(avro, str):
            known = _PRIMITIVES.get(avro) or self._reference(avro, depth)
            return known, avro == "null"
        if isinstance(avro, dict):
            made = self._complex(avro, depth)
            return made, bool(pa.types.is_null(made))
        raise _corrupt(self.path, f"{avro!r:.100} is not a type")

    def _reference(self, name: str, depth: int) -> pa.DataType:
        known = self._named.get(_full_name(name, self._namespace)) or self._named.get(name)
        if known is None:
            raise _corrupt(self.path, f"type {name[:100]!r} is not defined, or contains itself")
        self._count(known.fields, known.characters)
        if depth + known.height > DEPTH_MAX:
            raise _corrupt(self.path, f"the schema is more than {DEPTH_MAX} levels deep")
        return known.type

    def _union(self, branches: list[AvroType], depth: int) -> tuple[pa.DataType, bool]:
        others = [branch for branch in branches if branch != "null"]
        if len(others) == 1:
            return self.type(others[0], depth + 1)[0], len(branches) > 1
        if not others and branches:
            return pa.null(), True
        raise UnsupportedTableError(
            f"the schema in {self.path!r} has a union of {len(others)} types",
            why="an Arrow column has one type, which may be nullable",
            next_step="Read this table with Apache Hudi",
        )

    def _complex(self, avro: Mapping[str, Any], depth: int) -> pa.DataType:
        kind = avro.get("type")
        fields, characters = self._fields, self._characters
        match kind:
            case "record":
                result = pa.struct(self.fields_of(avro, depth))
            case "array":
                item, nullable = self.type(avro.get("items"), depth + 1)
                return pa.list_(pa.field("element", item, nullable=nullable))
            case "map":
                value, nullable = self.type(avro.get("values"), depth + 1)
                return pa.map_(pa.string(), pa.field("value", value, nullable=nullable))
            case "enum":
                result = pa.string()
            case "fixed":
                size = avro.get("size")
                if not isinstance(size, int) or not 0 < size <= 1 << 20:
                    raise _corrupt(self.path, f"a fixed type of size {size!r:.100}")
                result = self._decimal(avro) or pa.binary(size)
            case str():
                return self._logical(kind, avro, depth)
            case _:
                return self.type(kind, depth + 1)[0]
        counts = (self._fields - fields, self._characters - characters)
        self._remember(avro, _Named(result, *counts, _height(result)))
        return result

    def _logical(self, kind: str, avro: Mapping[str, Any], depth: int) -> pa.DataType:
        if kind == "bytes" and (decimal := self._decimal(avro)):
            return decimal
        logical = _LOGICAL.get((kind, str(avro.get("logicalType"))))
        return logical or self.type(kind, depth + 1)[0]

    def _decimal(self, avro: Mapping[str, Any]) -> pa.DataType | None:
        if avro.get("logicalType") != "decimal":
            return None
        precision, scale = avro.get("precision"), avro.get("scale", 0)
        try:
            return pa.decimal128(precision, scale)
        except (TypeError, ValueError, OverflowError):
            why = f"decimal({precision!r:.100}, {scale!r:.100})"
            raise _corrupt(self.path, why) from None

    def fields_of(self, avro: Mapping[str, Any], depth: int) -> list[pa.Field]:
        """Return the fields of a record; types named inside it inherit its namespace."""
        outer = self._namespace
        self._namespace = self._name(avro).rpartition(".")[0]
        fields = self._record_fields(avro, depth)
        self._namespace = outer
        return fields

    def _name(self, avro: Mapping[str, Any]) -> str:
        own = avro.get("namespace")
        return _full_name(
            str(avro.get("name", "")), own if isinstance(own, str) else self._namespace
        )

    def _remember(self, avro: Mapping[str, Any], named: _Named) -> None:
        self._named[self._name(avro)] = named


class _DocumentedReading(_Reading):
    """A walk that takes the documentation of fields along."""

    def _field(self, field: Any, depth: int) -> pa.Field:
        made = super()._field(field, depth)
        if not (text := avro_documentation(field)):
            return made
        self._count(0, len(text))
        return with_documentation(made, text)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


@dataclass(frozen=True, slots=True)
class _Named:
    """A type that the schema may use again by its name, and what each use adds."""

    type: pa.DataType
    fields: int
    characters: int
    height: int


def _height(type_: pa.DataType) -> int:
    """Return how many levels of other types the type has inside."""
    inner = (type_.field(number).type for number in range(type_.num_fields))
    return max((1 + _height(child) for child in inner), default=0)


def avro_record_schema(schema: pa.Schema, table_name: str) -> dict[str, Any]:
    """Return the Avro record that Hudi would write for these columns.

    Its names, its nulls, its sizes.
    """
    record = f"{table_name}_record"
    fields = [_avro_field(field, f"hoodie.{table_name}.{record}") for field in schema]
    return {
        "type": "record",
        "name": record,
        "namespace": f"hoodie.{table_name}",
        "fields": fields,
    }


def _avro_field(field: pa.Field, namespace: str) -> dict[str, Any]:
    type_ = _avro_type(field.type, field.name, namespace)
    if not field.nullable:
        return {"name": field.name, "type": type_}
    return {"name": field.name, "type": ["null", type_], "default": None}


_AVRO_NAMES: Mapping[pa.DataType, AvroType] = {
    **{arrow: name for name, arrow in _PRIMITIVES.items()},
    pa.large_string(): "string",
    pa.large_binary(): "bytes",
    pa.int8(): "int",
    pa.int16(): "int",
    **{arrow: {"type": n, "logicalType": logical} for (n, logical), arrow in _LOGICAL.items()},
}


def _avro_type(type_: pa.DataType, name: str, namespace: str) -> AvroType:
    if (simple := _AVRO_NAMES.get(type_)) is not None:
        return simple
    if pa.types.is_decimal128(type_):
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{namespace}.{name}",
            "size": decimal_bytes(type_.precision),
            "logicalType": "decimal",
            "precision": type_.precision,
            "scale": type_.scale,
        }
    if pa.types.is_fixed_size_binary(type_):
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{namespace}.{name}",
            "size": type_.byte_width,
        }
    if pa.types.is_struct(type_):
        fields = [_avro_field(field, f"{namespace}.{name}") for field in type_]
        return {"type": "record", "name": name, "namespace": namespace, "fields": fields}
    if pa.types.is_map(type_):
        value = _nullable(type_.item_field, _avro_type(type_.item_type, name, namespace))
        return {"type": "map", "values": value}
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        item = _nullable(type_.value_field, _avro_type(type_.value_type, name, namespace))
        return {"type": "array", "items": item}
    raise UnsupportedTableError(
        f"column {name!r} cannot be stored",
        why=f"Hudi has no type for Arrow's {type_}",
        next_step="Cast the column to a type of the table in docs/format.md",
    )


def _nullable(field: pa.Field, avro: AvroType) -> AvroType:
    return ["null", avro] if field.nullable else avro


def decimal_bytes(precision: int) -> int:
    """Return the fewest bytes of two's complement that hold every decimal of the precision."""
    largest: int = 10**precision - 1
    return largest.bit_length() // 8 + 1  # one bit for the sign


def _corrupt(path: str, why: str) -> CorruptTableError:
    return CorruptTableError(
        "an Avro schema cannot be used",
        why=why,
        next_step="Restore the file from a copy",
        path=path,
    )
