"""Are two schemas the same, as Hudi compares them? The canonical form of each column says.

An Arrow schema cannot express all that an Avro schema says: defaults, symbols of enums, names of
fixed types, order. Two schemas that are the same in Arrow may differ for Hudi, and a commit that
records one for the other would take a default away. So a column keeps its *form* beside its Arrow
type: one line of canonical JSON, in the metadata of the field under `FORM`.

A form has what Hudi compares: name, type, logical type, default (presence and value), sort order,
symbols, size and short name of enums and fixed types, and the branches of a union as a set. It
lacks what Hudi ignores: documentation, namespaces, names of records, aliases, other properties. A
type that is used by its name stands there in full, so each column can be compared by itself.

Beside it stands the documentation of the column, under `DOC`, and so it does in fields of structs.

A form is believed only while it is of the field's type and nullability, so a column that was
changed with Arrow's own methods counts as changed. A field without a form that can be believed has
that of what `avro_record_schema` writes for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from pyhudi.errors import CorruptTableError, HudiError
from pyhudi.format.avro.schema import (
    SCHEMA_BYTES_MAX,
    AvroType,
    avro_record_schema,
    decode_documented_schema,
    load_avro_json,
)

#: The metadata of a field that has its canonical form.
FORM = b"avro"

PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_FLOATS = ("float", "double")


def annotated_schema(
    avro_json: str, path: str, *, without: Collection[str] = frozenset()
) -> pa.Schema:
    """Return the Arrow schema of a record schema in Avro JSON.

    Each column has its form and its documentation. Columns named in `without` are left out. `path`
    is where the text was found, for errors.
    """
    left_out = frozenset(without)
    try:
        return _annotated(avro_json, left_out)
    except HudiError:
        return canonical_record(avro_json, path).schema(left_out)  # raises: it names the path


@lru_cache(maxsize=16)  # the schemas of a table's latest commits are asked for again and again
def _annotated(avro_json: str, without: frozenset[str]) -> pa.Schema:
    return canonical_record(avro_json, "").schema(without)


def is_same_schema(left: pa.Schema, right: pa.Schema) -> bool:
    """True if Hudi takes the two for one schema: the same columns in the same order."""
    if left is right or left.equals(right, check_metadata=True):
        return True
    return len(left) == len(right) and column_forms(left) == column_forms(right)


def fingerprint(schema: pa.Schema) -> str:
    """Return 16 hex digits that are the same for the same schemas, and for no others by chance."""
    return hashlib.sha256(b"\n".join(column_forms(schema))).hexdigest()[:16]


def column_forms(schema: pa.Schema) -> list[bytes]:
    """Return the canonical form of each column."""
    return [column_form(field) for field in schema]


def column_form(field: pa.Field) -> bytes:
    """Return the canonical form of one column."""
    start = _form_start(field.name)
    metadata = field.metadata
    stored: bytes | None = metadata.get(FORM) if metadata else None
    if stored is not None and stored.startswith(start):
        shape = _shape(stored[len(start) :])
        if shape is not None and shape == (field.type, field.nullable):
            return stored
    return start + _generated_rest(field.type, field.nullable)


def with_form(field: pa.Field, form: bytes) -> pa.Field:
    """Return the field with a form beside the metadata that it has."""
    return field.with_metadata({**(field.metadata or {}), FORM: form})


@lru_cache(maxsize=16_384)  # names of columns come again with each schema
def _form_start(name: str) -> bytes:
    return b'{"name":' + json.dumps(name).encode() + b","


@lru_cache(maxsize=4096)  # most columns differ in nothing but the name
def _shape(rest: bytes) -> tuple[pa.DataType, bool] | None:
    """Return type and nullability of the column that a form describes; None if it is no form."""
    text = (
        f'{{"type":"record","name":"r","fields":[{{"name":"x",{rest.decode("utf-8", "replace")}]}}'
    )
    try:
        record = canonical_record(text, "")
    except HudiError:
        return None
    if len(record.forms) != 1 or record.forms[0] != _form_start("x") + rest:
        return None
    return record.columns[0].type, record.columns[0].nullable


@lru_cache(maxsize=4096)
def _generated_rest(type_: pa.DataType, nullable: bool) -> bytes:
    avro = avro_record_schema(pa.schema([pa.field("x", type_, nullable=nullable)]), "t")
    return _Forms("").field(avro["fields"][0])


# ---- from Avro


@dataclass(frozen=True, slots=True)
class Definition:
    """A named type where it is defined: as written, the namespace around it, and its form."""

    avro: Mapping[str, Any]
    namespace: str
    form: str


@dataclass(frozen=True, slots=True)
class CanonicalRecord:
    """A record schema that was read: its columns as written, in Arrow, and in canonical form."""

    avro: Mapping[str, Any]
    columns: tuple[pa.Field, ...]
    forms: tuple[bytes, ...]
    named: Mapping[str, Definition]
    defines_twice: bool  # a name, which Avro forbids

    def schema(self, without: frozenset[str]) -> pa.Schema:
        """Return the columns with their forms."""
        pairs = zip(self.columns, self.forms, strict=True)
        return pa.schema([with_form(c, form) for c, form in pairs if c.name not in without])


def canonical_record(avro_json: str, path: str) -> CanonicalRecord:
    """Return a record schema in Avro JSON with its columns in canonical form."""
    columns = decode_documented_schema(avro_json, path)
    avro = load_avro_json(avro_json, path)
    forms = _Forms(path)
    rests = forms.record_fields(avro, "")
    pairs = zip(columns, rests, strict=True)
    texts = tuple(_form_start(column.name) + rest for column, rest in pairs)
    return CanonicalRecord(avro, tuple(columns), texts, forms.named, forms.defines_twice)


class _Forms:
    """One walk over one schema that has been decoded: sound, not deep, not wide."""

    def __init__(self, path: str) -> None:
        self.named: dict[str, Definition] = {}
        self.defines_twice = False
        self._path = path
        self._namespace = ""
        self._characters = 0  # that names stand for

    def record_fields(self, avro: Mapping[str, Any], outer: str) -> list[bytes]:
        """Return for each field its form without the name."""
        self._namespace = full_name(avro, outer).rpartition(".")[0]
        rests = [self.field(field) for field in avro["fields"]]
        self._namespace = outer
        return rests

    def field(self, avro: Mapping[str, Any]) -> bytes:
        """Return the form of a field, without the name that it begins with."""
        text = f'"type":{self.type(avro["type"])}'
        if "default" in avro:
            text += f',"default":{self._json(_number_of(avro["default"], avro["type"]))}'
        if avro.get("order", "ascending") != "ascending":
            text += f',"order":{self._json(avro["order"])}'
        return f"{text}}}".encode()

    def type(self, avro: AvroType) -> str:
        """Return the form of a type."""
        if isinstance(avro, list):
            return f"[{','.join(sorted({self.type(branch) for branch in avro}))}]"
        if isinstance(avro, str):
            return f'"{avro}"' if avro in PRIMITIVES else self._reference(avro)
        kind = avro["type"]
        match kind:
            case "array":
                return self._object(avro, f'"type":"array","items":{self.type(avro["items"])}')
            case "map":
                return self._object(avro, f'"type":"map","values":{self.type(avro["values"])}')
            case "record" | "enum" | "fixed":
                return self._definition(avro)
            case str() if kind in PRIMITIVES:
                return self._object(avro, f'"type":"{kind}"')
        return self.type(kind)

    def _reference(self, name: str) -> str:
        known = self.named.get(qualified(name, self._namespace)) or self.named[name]
        self._characters += len(known.form)
        if self._characters > SCHEMA_BYTES_MAX:
            raise self._corrupt(f"its named types stand for more than {SCHEMA_BYTES_MAX} bytes")
        return known.form

    def _definition(self, avro: Mapping[str, Any]) -> str:
        outer, full = self._namespace, full_name(avro, self._namespace)
        if avro["type"] == "record":
            pairs = zip(avro["fields"], self.record_fields(avro, outer), strict=True)
            fields = ",".join((_form_start(f["name"]) + rest).decode() for f, rest in pairs)
            text = f'"type":"record","fields":[{fields}]'
        else:
            text = f'"type":"{avro["type"]}","name":{self._json(full.rpartition(".")[2])}'
            counted = "size" if avro["type"] == "fixed" else "symbols"
            text += f',"{counted}":{self._json(avro.get(counted))}'
            if avro["type"] == "enum" and "default" in avro:
                text += f',"default":{self._json(avro["default"])}'
        form = self._object(avro, text)
        self.defines_twice = self.defines_twice or full in self.named
        self.named[full] = Definition(avro, outer, form)
        return form

    def _object(self, avro: Mapping[str, Any], text: str) -> str:
        """Return the form of a type in an object, in short if it says no more than a name."""
        logical = avro.get("logicalType")
        if isinstance(logical, str):
            text += f',"logicalType":{self._json(logical)}'
        elif avro["type"] in PRIMITIVES:
            return f'"{avro["type"]}"'
        if logical == "decimal":
            digits = (avro.get("precision"), avro.get("scale", 0))
            text += f',"precision":{self._json(digits[0])},"scale":{self._json(digits[1])}'
        return f"{{{text}}}"

    def _json(self, value: Any) -> str:
        try:
            return json.dumps(value, sort_keys=True, separators=(",", ":"))
        except (ValueError, RecursionError):
            raise self._corrupt("a default is nested too deeply") from None

    def _corrupt(self, why: str) -> CorruptTableError:
        return CorruptTableError(
            "an Avro schema cannot be used",
            why=why,
            next_step="Restore the file from a copy",
            path=self._path,
        )


def _number_of(default: Any, avro: AvroType) -> Any:
    """Return the default; 0 of a floating-point column as 0.0, which is the same."""
    while isinstance(avro, list | dict):  # a union's default is one of its first branch
        avro = (avro or [None])[0] if isinstance(avro, list) else avro.get("type")
    if avro not in _FLOATS or not isinstance(default, int) or isinstance(default, bool):
        return default
    try:
        return float(default)
    except OverflowError:
        return default


def qualified(name: str, namespace: str) -> str:
    """Return the full name that a name stands for inside a namespace."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


def full_name(avro: Mapping[str, Any], outer: str) -> str:
    """Return the full name of a type that is defined inside a namespace."""
    own = avro.get("namespace")
    return qualified(str(avro.get("name", "")), own if isinstance(own, str) else outer)
