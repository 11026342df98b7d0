"""Which Avro text does a commit record for a schema that writers have agreed on?

Hudi's writers compare schemas and copy their text from commit to commit, so text that need not
change should not: aliases and names of an earlier commit stay, and so does documentation, unless
the schema says another one. In order of preference:

1. the text of an earlier commit as it is, if it says the same;
2. the record of the first earlier text, each column as the first text that has it says it; columns
   that none has, or whose fields are documented otherwise inside, are generated from their form,
   with the documentation of a column of that name;
3. every column generated.

A text is recorded only if it says exactly what the schema says, form by form and documentation by
documentation, and defines no name twice. Columns from several texts may bring several types of one
name, and then the second way ends in the third.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.avro.canonical import (
    PRIMITIVES,
    CanonicalRecord,
    Definition,
    annotated_schema,
    canonical_record,
    column_forms,
    full_name,
    is_same_schema,
    qualified,
)
from pyhudi.format.avro.documentation import (
    documented_columns,
    documented_field,
    documented_in_full,
    has_documentation,
)
from pyhudi.format.avro.schema import AvroType

_SOURCE = "the table's schema"
_Object = Mapping[str, Any]


def encode_schema(
    schema: pa.Schema,
    sources: Sequence[str],
    table_name: str,
    *,
    without: Collection[str] = frozenset(),
) -> str:
    """Return the Avro JSON that a commit records for the schema.

    `sources` are texts of earlier commits, the one to stay closest to first; of these the columns
    named in `without` are not looked at.
    """
    texts = documented_columns(schema)
    for text in sources:
        earlier = annotated_schema(text, _SOURCE, without=without)
        if is_same_schema(earlier, schema) and has_documentation(earlier, texts):
            return text
    records = [canonical_record(text, _SOURCE) for text in sources]
    made = _composed(schema, records, table_name) if records else None
    if made is not None and _defect(made, schema) is None:
        return made
    made = _generated(schema, records, table_name)
    defect = _defect(made, schema)
    if defect is None:
        return made
    raise InvalidRequestError(
        "the changed schema cannot be recorded",
        why=defect,
        next_step="Give the table fewer columns, or flatten those inside others",
    )


def _defect(text: str, schema: pa.Schema) -> str | None:
    """Return why the text is not to be recorded for the schema, if there is a reason."""
    try:
        record = canonical_record(text, _SOURCE)
    except CorruptTableError as error:
        return error.why
    if record.defines_twice:
        return "two of its types have one name"
    if list(record.forms) != column_forms(schema):
        return "its columns would change"
    is_documented = has_documentation(record.columns, documented_columns(schema))
    return None if is_documented else "the documentation of its columns would change"


# ---- columns of earlier texts


def _composed(schema: pa.Schema, records: Sequence[CanonicalRecord], table_name: str) -> str | None:
    head = records[0].avro
    namespace = full_name(head, "").rpartition(".")[0]
    copying = _Copying(namespace)
    same: dict[bytes, tuple[CanonicalRecord, _Object, pa.Field]] = {}
    for record in reversed(records):
        columns = zip(record.forms, record.avro["fields"], record.columns, strict=True)
        for form, written, column in columns:
            same[form] = (record, written, column)
    earlier = _by_name(records)
    generating = _Generating(_record_namespace(table_name), copying.defined)
    fields: list[_Object] = []
    for column, form in zip(schema, column_forms(schema), strict=True):
        found = same.get(form)
        if found is not None and _says_inside(found[2], column):
            fields.append(documented_field(copying.column(*found[:2]), column))
        else:
            fields.append(generating.column(column, form, earlier.get(column.name)))
    try:
        return _text({**head, "fields": fields})
    except RecursionError:  # a property that is not read can be nested as deep as it likes
        return None


def _says_inside(earlier: pa.Field, column: pa.Field) -> bool:
    """True if the fields inside an earlier column are documented as those of the column are."""
    if not column.type.num_fields:
        return True
    texts = documented_columns([column])
    texts.pop(column.name, None)
    return has_documentation([earlier], texts)


def _by_name(records: Sequence[CanonicalRecord]) -> dict[str, tuple[CanonicalRecord, _Object]]:
    """Return each column as the first text has it that has one of the name."""
    return {
        written["name"]: (record, written)
        for record in reversed(records)
        for written in record.avro["fields"]
    }


class _Copying:
    """One walk over columns of several records, which writes each named type once."""

    def __init__(self, namespace: str) -> None:
        self.defined: dict[str, str] = {}  # full names, and the forms of what they name
        self._namespace = namespace
        self._named: Mapping[str, Definition] = {}

    def column(self, record: CanonicalRecord, written: _Object) -> _Object:
        """Return a column as written, with names that mean the same in the new record."""
        self._named = record.named
        namespace = full_name(record.avro, "").rpartition(".")[0]
        return {**written, "type": self._type(written["type"], namespace, self._namespace)}

    def _type(self, avro: AvroType, read_in: str, written_in: str) -> AvroType:
        if isinstance(avro, list):
            return [self._type(branch, read_in, written_in) for branch in avro]
        if isinstance(avro, str):
            if avro in PRIMITIVES:
                return avro
            full = qualified(avro, read_in)
            full = full if full in self._named else avro
            known = self._named[full]
            return self._definition(known.avro, full, known.namespace, written_in)
        kind = avro["type"]
        match kind:
            case "array":
                return {**avro, "items": self._type(avro["items"], read_in, written_in)}
            case "map":
                return {**avro, "values": self._type(avro["values"], read_in, written_in)}
            case "record" | "enum" | "fixed":
                return self._definition(avro, full_name(avro, read_in), read_in, written_in)
        return {**avro, "type": self._type(kind, read_in, written_in)}

    def _definition(self, avro: _Object, full: str, read_in: str, written_in: str) -> AvroType:
        """Return the name of a type that is defined already, or else its definition."""
        form = self._named[full].form
        if self.defined.get(full) == form and ("." in full or not written_in):
            return full
        made = dict(avro)
        if full_name(avro, written_in) != full:
            made["namespace"], _, made["name"] = full.rpartition(".")
        if avro["type"] == "record":
            inside = full.rpartition(".")[0]
            made["fields"] = [
                {**field, "type": self._type(field["type"], inside, inside)}
                for field in avro["fields"]
            ]
        self.defined[full] = form
        return made


# ---- columns that no earlier text has


def _generated(schema: pa.Schema, records: Sequence[CanonicalRecord], table_name: str) -> str:
    earlier = _by_name(records)
    generating = _Generating(_record_namespace(table_name), None)
    fields = [
        generating.column(column, form, earlier.get(column.name))
        for column, form in zip(schema, column_forms(schema), strict=True)
    ]
    name = f"{table_name}_record"
    return _text(
        {"type": "record", "name": name, "namespace": f"hoodie.{table_name}", "fields": fields}
    )


def _record_namespace(table_name: str) -> str:
    return f"hoodie.{table_name}.{table_name}_record"


class _Generating:
    """Avro from canonical forms, with the names that `avro_record_schema` would give.

    Documentation comes from an earlier text's column of the same name, at each level. So do the
    names of records, of which `defined` has those in use; without it, none is taken over.
    """

    def __init__(self, namespace: str, defined: dict[str, str] | None) -> None:
        self._namespace = namespace
        self._defined = defined
        self._named: Mapping[str, Definition] = {}

    def column(
        self, column: pa.Field, form: bytes, earlier: tuple[CanonicalRecord, _Object] | None
    ) -> _Object:
        """Return the Avro field of one column."""
        record, written = earlier or (None, {})
        self._named = record.named if record else {}
        around = full_name(record.avro, "").rpartition(".")[0] if record else ""
        made = self._field(json.loads(form), self._namespace, written, around)
        return documented_in_full(made, column)

    def _field(self, form: _Object, namespace: str, earlier: _Object, around: str) -> _Object:
        name = form["name"]
        type_ = self._type(form["type"], name, namespace, earlier.get("type"), around)
        if isinstance(type_, list) and form.get("default", None) is None:
            type_ = sorted(type_, key=lambda branch: branch != "null")  # a default's branch leads
        elif isinstance(type_, list):
            type_ = sorted(type_, key=lambda branch: branch == "null")
        made = {"name": name, "type": type_}
        for key in ("default", "order"):
            if key in form:
                made[key] = form[key]
        if isinstance(earlier.get("doc"), str):
            made["doc"] = earlier["doc"]
        return made

    def _type(
        self, form: AvroType, name: str, namespace: str, earlier: AvroType, around: str
    ) -> AvroType:
        if isinstance(form, str):
            return form
        if isinstance(form, list):
            branches = [self._type(one, name, namespace, earlier, around) for one in form]
            return sorted(branches, key=lambda branch: branch != "null")
        earlier, around = self._without_union(earlier, around)
        match form["type"]:
            case "record":
                return self._record(form, name, namespace, earlier, around)
            case "array":
                items = earlier.get("items")
                return {**form, "items": self._type(form["items"], name, namespace, items, around)}
            case "map":
                value = earlier.get("values")
                made = self._type(form["values"], name, namespace, value, around)
                return {**form, "values": made}
            case "fixed" | "enum":
                return {**form, "namespace": f"{namespace}.{name}"}
        return form

    def _record(
        self, form: _Object, name: str, namespace: str, earlier: _Object, around: str
    ) -> _Object:
        inside = f"{namespace}.{name}"
        before = full_name(earlier, around) if "fields" in earlier else ""
        written = {field["name"]: field for field in earlier.get("fields", ())}
        around = before.rpartition(".")[0]
        fields = [
            self._field(field, inside, written.get(field["name"], {}), around)
            for field in form["fields"]
        ]
        if self._defined is not None and before and before not in self._defined:
            self._defined[before] = ""
            namespace, _, name = before.rpartition(".")
        return {**form, "name": name, "namespace": namespace, "fields": fields}

    def _without_union(self, avro: AvroType, around: str) -> tuple[_Object, str]:
        """Return the one type of an earlier union, by its definition, and where it stands."""
        while True:
            if isinstance(avro, list):
                avro = next((branch for branch in avro if branch != "null"), None)
            elif isinstance(avro, str):
                full = qualified(avro, around)
                known = self._named.get(full) or self._named.get(avro)
                return (known.avro, known.namespace) if known else ({}, "")
            elif isinstance(avro, dict) and isinstance(avro.get("type"), dict | list):
                avro = avro["type"]
            else:
                return (avro, around) if isinstance(avro, dict) else ({}, "")


def _text(record: _Object) -> str:
    return json.dumps(record, separators=(",", ":"))
