"""What schema does a commit record, if the table's schema changed while the write ran?

Three schemas meet (RFC-82): *start*, the table's when the attempt began; *now*, the table's when
its completion is validated; *own*, *start* with the changes that this write brings. None stands for
a table that has no schema yet. A strategy makes one schema of the three, or says which columns
contradict each other.

    start  now  own    simple            reconcile
    -      -    S1     S1                S1
    -      S1   S1     S1                S1
    -      S2   S3     a contradiction   S2 with what S3 adds and widens
    S1     S1   S1     S1                S1
    S1     S1   S2     S2                S2
    S1     S2   S1     S2                S2
    S1     S2   S2     S2                S2
    S1     S2   S3     a contradiction   S2 with what S3 changed

**Reconcile** does not unite two schemas. It applies to *now* what *own* changed since *start*, so a
column that another write dropped does not come back with a writer that still has it. For each
column, and inside of structs, lists and maps for each child:

    changed by                           the result
    neither, or by others alone          as in now; what others dropped stays dropped
    this write alone                     as in own; what it added comes last
    both, in the same way                as in now
    both added it, or changed its type   the least type that holds both (`joined_type`)
    one changed it, the other dropped    a contradiction

Two names that differ in nothing but case contradict each other wherever they meet, for Spark cannot
tell them apart. If others brought both of them, that is not this write's contradiction.

Each column is thus unchanged, dropped or changed to a type, and changes combine by a join. So the
changes of several writes may be applied in any order and in any grouping: the same columns come
out, in the order in which they were added, or a contradiction does. This holds as long as nothing
narrows a type, which no write does.

Nullability goes with the column: a change that one side made stands. A column that both added is
nullable if either is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from pyhudi.format.avro.canonical import FORM, column_form, column_forms
from pyhudi.format.avro.nesting import is_array, struct_inside
from pyhudi.table.joined_types import join
from pyhudi.table.schema_changes import ChangeKind, column_changes

_DROPPED_BY_OTHERS = "this write changes it, and another write dropped it"
_DROPPED_BY_OWN = "this write drops it, and another write changed it"
_REQUIRED = "the table requires it, and this write has no such column"
_DETAILS = "both changed what Avro says of it beside the type, such as its default"


@dataclass(frozen=True, slots=True)
class SchemaContradiction:
    """The columns on which two writes cannot both be right, each with the reason."""

    columns: tuple[tuple[str, str], ...]


class SchemaStrategy(Protocol):
    """Decides what a commit records if schemas changed beside each other."""

    def resolve(
        self, start: pa.Schema | None, now: pa.Schema | None, own: pa.Schema
    ) -> pa.Schema | SchemaContradiction:
        """Return the schema to record; None stands for a table without a schema."""
        ...


@dataclass(frozen=True, slots=True)
class SimpleSchemaStrategy:
    """The strategy of RFC-82: two different changes at the same time contradict each other."""

    def resolve(
        self, start: pa.Schema | None, now: pa.Schema | None, own: pa.Schema
    ) -> pa.Schema | SchemaContradiction:
        """Return the schema to record, which is always one of the three."""
        if now is None:
            return own
        now_forms, own_forms = column_forms(now), column_forms(own)
        start_forms = column_forms(start) if start is not None else None
        if own_forms in (now_forms, start_forms):
            return now
        if start_forms == now_forms:
            return own
        by = (("another write", start, now), ("this write", start, own))
        return SchemaContradiction(
            tuple(
                (change.path, f"{who}: {change.described}")
                for who, before, after in by
                for change in column_changes(before, after)
                if change.kind is not ChangeKind.DOC
            )
        )


@dataclass(frozen=True, slots=True)
class ReconcileSchemaStrategy:
    """Applies to the table's schema what this write changed since it began."""

    def resolve(
        self, start: pa.Schema | None, now: pa.Schema | None, own: pa.Schema
    ) -> pa.Schema | SchemaContradiction:
        """Return the table's schema with the write's own changes."""
        if now is None:
            return own
        if start is not None:
            return merged(start, now, own)
        return _first_brought(now, own)


def _first_brought(now: pa.Schema, own: pa.Schema) -> pa.Schema | SchemaContradiction:
    """Return the table's first schema with what this write brings, which began without one.

    Rows of either side lack what the other side adds. So what this write adds is nullable, and what
    the table requires it must have.
    """
    names = set(own.names)
    lacking = [(f.name, _REQUIRED) for f in now if not f.nullable and f.name not in names]
    if lacking:
        return SchemaContradiction(tuple(lacking))
    known = set(now.names)
    brought = [field if field.name in known else _optional(field) for field in own]
    return merged(pa.schema([]), now, pa.schema(brought, own.metadata))


def _optional(field: pa.Field) -> pa.Field:
    return field if field.nullable else pa.field(field.name, field.type, True, _unformed(field))


def _unformed(field: pa.Field) -> dict[bytes, bytes] | None:
    """Return the metadata of a field without its canonical form, which another field has."""
    return {key: value for key, value in (field.metadata or {}).items() if key != FORM} or None


def merged(base: pa.Schema, now: pa.Schema, own: pa.Schema) -> pa.Schema | SchemaContradiction:
    """Return `now` with what changed from `base` to `own`.

    Columns that this write did not change are the very fields of `now`, those it added the very
    fields of `own`. A joined column has no canonical form, and so that of what will be written.
    """
    before, table, ours = _level(base), _level(now), _level(own)
    if ours.said in (before.said, table.said):
        return now
    merging = _Merging()
    if before.said == table.said:
        fields: Sequence[pa.Field] = [
            table.by_name[name] if table.form(name) == ours.form(name) else field
            for name, field in zip(own.names, ours.fields, strict=True)
        ]
    else:
        fields = merging.level(before, table, ours, "")
    clashes = [*merging.contradictions, *_names_alike(fields, table.fields, "")]
    if clashes:
        return SchemaContradiction(tuple(clashes))
    return pa.schema(fields, metadata=now.metadata)


@dataclass(frozen=True, slots=True)
class _Level:
    """The columns of a table or the children of a struct, in order, and the form of each."""

    fields: Sequence[pa.Field]
    said: Sequence[bytes]
    by_name: Mapping[str, pa.Field]
    forms: Mapping[str, bytes]

    def form(self, name: str) -> bytes:
        """Return the form of a column, empty if there is none."""
        return self.forms.get(name, b"")


def _level(columns: Iterable[pa.Field]) -> _Level:
    fields = list(columns)
    said = [column_form(field) for field in fields]
    names = [field.name for field in fields]
    by_name = dict(zip(names, fields, strict=True))
    return _Level(fields, said, by_name, dict(zip(names, said, strict=True)))


class _Merging:
    """One merge, and the contradictions found so far."""

    def __init__(self) -> None:
        self.contradictions: list[tuple[str, str]] = []

    def level(self, base: _Level, now: _Level, own: _Level, path: str) -> list[pa.Field]:
        """Return the merged columns of the table, or children of a struct, at one path."""
        if len(own.by_name) < len(own.fields):
            self.contradictions += _alike_of_level(own.fields, now.by_name, path)
        result = []
        for name, field in now.by_name.items():
            then, other, mine = base.form(name), now.form(name), own.form(name)
            if mine in (then, other):
                result.append(field)
            elif then == other:
                result += [own.by_name[name]] if mine else []
            elif mine:
                columns = (base.by_name.get(name), field, own.by_name[name])
                result.append(self._field(*columns, f"{path}{name}"))
            else:
                self.contradictions.append((f"{path}{name}", _DROPPED_BY_OWN))
        for name, field in own.by_name.items():
            if name not in now.by_name and name not in base.by_name:
                result.append(field)
            elif name not in now.by_name and base.form(name) != own.form(name):
                self.contradictions.append((f"{path}{name}", _DROPPED_BY_OTHERS))
        return result

    def _field(self, base: pa.Field | None, now: pa.Field, own: pa.Field, path: str) -> pa.Field:
        """Return one column that both added, or both changed."""
        if base is None:
            type_ = join(now.type, own.type, path, self.contradictions)
            nullable = now.nullable or own.nullable
        else:
            if _shape(base) == _shape(now) == _shape(own):
                self.contradictions.append((path, _DETAILS))
            type_ = self._type(base.type, now.type, own.type, path)
            nullable = now.nullable if own.nullable == base.nullable else own.nullable
        for known in (now, own):
            if (type_, nullable) == _shape(known):
                return known
        return pa.field(now.name, type_, nullable, _unformed(now))

    def _type(
        self, base: pa.DataType, now: pa.DataType, own: pa.DataType, path: str
    ) -> pa.DataType:
        if own in (base, now):
            return now
        if now == base:
            return own
        types = (base, now, own)
        if all(pa.types.is_struct(type_) for type_ in types):
            return pa.struct(self.level(_level(base), _level(now), _level(own), f"{path}."))
        if all(is_array(type_) for type_ in types):
            was, is_now, is_own = (type_.value_field.with_name("element") for type_ in types)
            return pa.list_(self._field(was, is_now, is_own, f"{path}.element"))
        if all(pa.types.is_map(type_) for type_ in types) and now.key_type == own.key_type:
            was, is_now, is_own = (type_.item_field.with_name("value") for type_ in types)
            child = self._field(was, is_now, is_own, f"{path}.value")
            return pa.map_(now.key_type, child)
        return join(now, own, path, self.contradictions)


def _shape(field: pa.Field) -> tuple[pa.DataType, bool]:
    return field.type, field.nullable


# ---- names that differ in nothing but case


def _names_alike(
    fields: Iterable[pa.Field], now: Iterable[pa.Field], path: str
) -> Iterator[tuple[str, str]]:
    """Give each name that some other name of its level resembles, unless the table has them all."""
    fields, known = list(fields), {field.name: field for field in now}
    if len({field.name.lower() for field in fields}) < len(fields):
        yield from _alike_of_level(fields, known, path)
    for field in fields:
        if field.type.num_fields:
            before = known.get(field.name)
            if before is None or before.type != field.type:
                step, children = struct_inside(field.type)
                inside = struct_inside(before.type)[1] if before is not None else []
                yield from _names_alike(children, inside, f"{path}{field.name}{step}.")


def _alike_of_level(
    fields: Sequence[pa.Field], known: Mapping[str, pa.Field], path: str
) -> Iterator[tuple[str, str]]:
    groups: dict[str, list[str]] = {}
    for field in fields:
        groups.setdefault(field.name.lower(), []).append(field.name)
    for names in groups.values():
        if len(names) > 1 and not (len(set(names)) == len(names) and known.keys() >= set(names)):
            for name in names[1:]:
                yield f"{path}{name}", f"Spark cannot tell it from {names[0]!r}"
