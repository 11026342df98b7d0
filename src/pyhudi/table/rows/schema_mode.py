"""Which schema do a caller's rows bring to a table?

The caller chooses how much of the table's schema its rows may change:

| mode   | columns that the table lacks | wider types | columns that the rows lack |
| ------ | ---------------------------- | ----------- | -------------------------- |
| strict | refused                      | coerced     | refused                    |
| add    | appended, nullable           | taken       | refused                    |
| merge  | appended, nullable           | taken       | null                       |

The same holds for the fields of structs, also inside lists and maps. `brought_schema` returns the
schema that the rows are brought to, from types alone; `input_rows.conformed` brings them there, and
refuses what this module leaves as it is. Four rules:

- A schema only grows. Old columns keep their order, names and metadata; new ones follow them in the
  order of the rows. A type changes only to one that holds every value of both
  (`table.joined_types`), so that files written before are read without loss. Rows of a narrower
  type change nothing, and neither do integers where the column has floating-point numbers.
- Whatever is new is nullable, inside too: older rows have no value there, and that one input had no
  null in its lists says nothing about the next.
- Columns by which rows are found, placed or ordered (`fixed`) stay as they are: a record key of
  another type may have another text, and an ordering value of another type is not comparable.
- What readers could not read, or Spark not tell apart, is refused before any row is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pyhudi.errors import InvalidRequestError
from pyhudi.format.avro.schema import FIELDS_MAX
from pyhudi.settings import SchemaMode
from pyhudi.table.joined_types import joined_type
from pyhudi.table.rows.reserved_names import reservation
from pyhudi.table.rows.storable_types import (
    is_list,
    storable_fields,
    storable_scalar,
    storable_schema,
    unreadable,
)
from pyhudi.table.schema import META_COLUMNS


def parse_schema_mode(value: object) -> SchemaMode:
    """Return the mode; InvalidRequestError names the modes if it is none of them."""
    words = [mode.value for mode in SchemaMode]
    if not isinstance(value, str) or value not in words:
        raise InvalidRequestError(
            f"schema_mode={value!r:.100} is not known",
            why=f"it is one of {', '.join(map(repr, words))}",
            next_step="Change schema_mode",
        )
    return SchemaMode(value)


def brought_schema(
    table: pa.Schema | None, rows: pa.Schema, mode: SchemaMode, fixed: Collection[str]
) -> pa.Schema:
    """Return the schema that the rows are brought to.

    `table` has the table's data columns, with nullability as the table has it; None if the table
    has no schema yet. `rows` is the schema of the input, in any Arrow types. `fixed` names the
    columns of record key, partition and ordering. InvalidRequestError names the first column whose
    change the mode would allow and the table cannot have. Whatever else does not fit is left to
    `conformed`.

    >>> table = pa.schema([("id", pa.string()), ("n", pa.int32())])
    >>> rows = pa.schema([("id", pa.string()), ("n", pa.uint32()), ("t", pa.large_string())])
    >>> brought_schema(table, rows, SchemaMode.ADD, ["id"])
    id: string
    n: int64
    t: string
    """
    given = [field for field in rows if field.name not in META_COLUMNS]
    if table is None:
        _refuse_reserved([field.name for field in given])
        _refuse_unreadable([], storable_fields(given))
        return storable_schema(pa.schema(given))
    if mode is SchemaMode.STRICT:
        return table
    own = list(table)
    growth = _Growth(frozenset(fixed), may_lack=mode is SchemaMode.MERGE)
    fields = growth.fields(own, given, "")
    if _are_same(own, fields):
        return table
    _refuse_reserved([field.name for field in fields[len(own) :]])
    _refuse_unreadable(own, fields)
    return pa.schema(fields, metadata=table.metadata)


@dataclass(frozen=True, slots=True)
class _Growth:
    """What rows may do to the columns of a table. A field or type that stays is the same object."""

    fixed: frozenset[str]
    may_lack: bool

    def fields(
        self, own: Sequence[pa.Field], given: Sequence[pa.Field], within: str
    ) -> list[pa.Field]:
        """Return the table's own fields, widened, and those that only the rows have."""
        counts = Counter(field.name for field in given)
        brought = {field.name: field for field in given}
        names = {field.name for field in own}
        new = [field for field in given if field.name not in names]
        if new and self._is_fixed(within.rstrip(".")):
            what = f"column {within + new[0].name!r} cannot be added"
            raise _fixed(what, within.rstrip("."), "Leave it out")
        # Before what is missing: a name in the wrong case is both.
        stored = storable_fields(new, within, beside=names)
        grown = []
        for field in own:
            path = f"{within}{field.name}"
            if not counts[field.name]:
                self._refuse_lack(field, path)
            unclear = counts[field.name] != 1  # missing, or there twice: `conformed` judges
            source = field.type if unclear else brought[field.name].type
            type_ = self._type(field.type, source, path)
            grown.append(field if type_ is field.type else field.with_type(type_))
        return grown + [pa.field(field.name, _nullable(field.type)) for field in stored]

    def _refuse_lack(self, field: pa.Field, path: str) -> None:
        if not self.may_lack:
            return
        what = f"column {path!r} cannot be left out"
        if self._is_fixed(path) or any(name.startswith(f"{path}.") for name in self.fixed):
            raise _fixed(what, path, "Give it in every row")
        if not field.nullable:
            why = "the table requires a value there, and it would be null"
            raise InvalidRequestError(what, why=why, next_step="Give it in every row")

    def _type(self, own: pa.DataType, given: pa.DataType, path: str) -> pa.DataType:
        """Return the type that holds the table's own values and, if there is one, the rows'."""
        while pa.types.is_dictionary(given):
            given = given.value_type
        if pa.types.is_struct(own) and pa.types.is_struct(given):
            fields = list(own)
            grown = self.fields(fields, list(given), f"{path}.")
            return own if _are_same(fields, grown) else pa.struct(grown)
        if is_list(own) and is_list(given):
            old, item = own.value_field, given.value_type
            type_ = self._type(old.type, item, f"{path}.element")
            return own if type_ is old.type else pa.list_(old.with_type(type_))
        if pa.types.is_map(own) and pa.types.is_map(given):
            old, item = own.item_field, given.item_type
            type_ = self._type(old.type, item, f"{path}.value")
            return own if type_ is old.type else pa.map_(own.key_field, old.with_type(type_))
        holding = _holding_both(own, given)
        if holding is not own and self._is_fixed(path):
            raise _fixed(
                f"column {path!r} cannot become {holding}", path, f"Cast it to {own} before writing"
            )
        return holding

    def _is_fixed(self, path: str) -> bool:
        return any(path == name or path.startswith(f"{name}.") for name in self.fixed)


def _are_same(left: Sequence[pa.Field], right: Sequence[pa.Field]) -> bool:
    """True if these are the same objects. Equality does not see metadata, and costs more."""
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))


def _nullable(type_: pa.DataType) -> pa.DataType:
    """Return the storable type with everything inside nullable, but for the keys of maps."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _nullable(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(pa.field("element", _nullable(type_.value_type)))
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, pa.field("value", _nullable(type_.item_type)))
    return type_


def _holding_both(own: pa.DataType, given: pa.DataType) -> pa.DataType:
    """Return the least type with all values of both; the table's own if there is none."""
    stored = storable_scalar(given)
    if stored is None or (pa.types.is_floating(own) and pa.types.is_integer(stored)):
        return own
    joined = joined_type(own, stored)
    return own if joined is None or joined == own else joined


# ---- what no table may have


def _refuse_reserved(names: Sequence[str]) -> None:
    for name in names:
        if (why := reservation(name)) is not None:
            raise InvalidRequestError(
                f"column {name!r} cannot be stored",
                why=why,
                next_step="Rename it, or leave it out",
            )


def _refuse_unreadable(own: Sequence[pa.Field], grown: Sequence[pa.Field]) -> None:
    """Raise InvalidRequestError for the first change by which readers could not read the schema."""
    olds = [*own, *[None] * (len(grown) - len(own))]
    changed = [at for at, old in enumerate(olds) if grown[at] is not old][: FIELDS_MAX + 1]

    def verdict(changes: int) -> str | None:
        made = {*changed[:changes]}
        fields = [grown[at] if at in made else old for at, old in enumerate(olds)]
        return unreadable(pa.schema([field for field in fields if field is not None]))

    if (why := verdict(len(changed))) is None:
        return
    # More changes never make a schema readable again, so the first bad one is found by halves.
    counts = range(1, len(changed) + 1)
    first = bisect_left(counts, True, key=lambda changes: verdict(changes) is not None)
    raise InvalidRequestError(
        f"column {grown[changed[first]].name!r} cannot be stored",
        why=verdict(first + 1) or why,
        next_step="Leave it out, or flatten the columns inside it",
    )


def _fixed(what: str, column: str, next_step: str) -> InvalidRequestError:
    why = f"by {column!r} the table finds, places or orders its rows, so it never changes"
    return InvalidRequestError(what, why=why, next_step=next_step)
