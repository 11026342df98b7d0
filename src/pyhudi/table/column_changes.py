"""What differs between two schemas, column by column.

Columns are known by their names, as Hudi knows them without schema-on-read: a column with another
name is another column. Fields of structs are compared one by one, also inside lists (`element`) and
maps (`value`), so that a change names the innermost column that it concerns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

#: The metadata of a field that holds its documentation.
DOC_KEY = b"doc"

ADDED, DROPPED, TYPE = "added", "dropped", "type"
NULLABLE, DOC, ORDER = "nullable", "doc", "order"


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One difference.

    `kind` says what `before` and `after` are: types (`added`, `dropped`, `type`), whether null is
    allowed (`nullable`: required or optional), documentation (`doc`), or the names of the columns
    that both schemas have (`order`; the path is that of the struct, empty for the table itself).
    """

    path: str
    kind: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.kind == ADDED:
            return f"{self.path!r} added as {self.after}"
        if self.kind == DROPPED:
            return f"{self.path!r} dropped, which was {self.before}"
        return f"{self.kind} of {self.path!r} from {self.before} to {self.after}"


def column_changes(before: pa.Schema | None, after: pa.Schema) -> tuple[ColumnChange, ...]:
    """Return what differs: what was dropped, then the rest in the order of the later schema.

    >>> old, new = pa.schema([("a", pa.int32())]), pa.schema([("a", pa.int64())])
    >>> [str(change) for change in column_changes(old, new)]
    ["type of 'a' from int32 to int64"]
    """
    return tuple(_between([] if before is None else list(before), list(after), ""))


def documentation(field: pa.Field) -> str | None:
    """Return the column's documentation; None if it has none."""
    text = (field.metadata or {}).get(DOC_KEY)
    return None if text is None else text.decode("utf-8", "replace")


def _between(
    before: Sequence[pa.Field], after: Sequence[pa.Field], within: str
) -> Iterator[ColumnChange]:
    old = {field.name: field for field in before}
    new = {field.name for field in after}
    for field in before:
        if field.name not in new:
            yield ColumnChange(f"{within}{field.name}", DROPPED, _type_text(field), None)
    for field in after:
        if field.name in old:
            yield from _of_field(old[field.name], field, f"{within}{field.name}")
        else:
            yield ColumnChange(f"{within}{field.name}", ADDED, None, _type_text(field))
    was = [field.name for field in before if field.name in new]
    is_now = [field.name for field in after if field.name in old]
    if was != is_now:
        yield ColumnChange(within.removesuffix("."), ORDER, ", ".join(was), ", ".join(is_now))


def _of_field(before: pa.Field, after: pa.Field, path: str) -> Iterator[ColumnChange]:
    yield from _of_type(before.type, after.type, path)
    if before.nullable != after.nullable:
        yield ColumnChange(path, NULLABLE, _null_text(before), _null_text(after))
    docs = documentation(before), documentation(after)
    if docs[0] != docs[1]:
        yield ColumnChange(path, DOC, *docs)


def _of_type(before: pa.DataType, after: pa.DataType, path: str) -> Iterator[ColumnChange]:
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        yield from _between(list(before), list(after), f"{path}.")
    elif pa.types.is_list(before) and pa.types.is_list(after):
        yield from _of_field(before.value_field, after.value_field, f"{path}.element")
    elif pa.types.is_map(before) and pa.types.is_map(after):
        yield from _of_field(before.item_field, after.item_field, f"{path}.value")
    elif not before.equals(after):
        yield ColumnChange(path, TYPE, str(before), str(after))


def _type_text(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"


def _null_text(field: pa.Field) -> str:
    return "optional" if field.nullable else "required"
