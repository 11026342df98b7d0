"""What changed between two schemas, column by column, for people and for the facts of an error.

Columns are known by their names, as Hudi knows them without schema-on-read: a column with another
name is another column. A change names the innermost column that it concerns, in structs and inside
lists and maps. Paths of such columns have dots: `address.zip`, `tags.element`, `prices.value.net`.

Two schemas without changes are the same as Hudi compares them (`format.avro.canonical`), and
documented in the same way, which Hudi does not compare. A column without documentation, and one
that says nothing of it, have none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from pyhudi.format.avro.canonical import column_form
from pyhudi.format.avro.documentation import documentation
from pyhudi.format.avro.nesting import is_array, struct_inside


class ChangeKind(StrEnum):
    """In what a column differs."""

    ADDED = "added"
    DROPPED = "dropped"
    TYPE = "type"
    NULLABLE = "nullable"
    ORDER = "order"  # it stands elsewhere among the columns that both schemas have
    DOC = "doc"
    DETAIL = "detail"  # what Arrow cannot express: a default, symbols, the name of a fixed type


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One difference.

    `kind` says what `before` and `after` are: types (`added`, `dropped`, `type`), whether null is
    allowed (`nullable`: required or optional), documentation (`doc`), places among the columns that
    both schemas have, from 1 (`order`), or the whole column in canonical Avro (`detail`). They are
    None where the column, or its documentation, is not there.
    """

    path: str
    kind: ChangeKind
    before: str | None
    after: str | None

    def __str__(self) -> str:
        match self.kind:
            case ChangeKind.ADDED:
                return f"{self.path!r} added as {self.after}"
            case ChangeKind.DROPPED:
                return f"{self.path!r} dropped, which was {self.before}"
        return f"{self.kind} of {self.path!r} from {self.before} to {self.after}"

    @property
    def described(self) -> str:
        """Return the change without its path, for a sentence."""
        match self.kind:
            case ChangeKind.ADDED:
                return f"added {self.after}"
            case ChangeKind.DROPPED:
                return f"dropped {self.before}"
        return f"{self.kind} from {self.before} to {self.after}"


def column_changes(before: pa.Schema | None, after: pa.Schema) -> tuple[ColumnChange, ...]:
    """Return what changed from one schema to the next: first what was dropped.

    >>> old, new = pa.schema([("a", pa.int32())]), pa.schema([("a", pa.int64())])
    >>> [str(change) for change in column_changes(old, new)]
    ["type of 'a' from int32 to int64"]
    """
    return tuple(
        _of_level(list(before) if before is not None else [], list(after), "", is_top=True)
    )


def _of_level(
    before: Sequence[pa.Field], after: Sequence[pa.Field], path: str, *, is_top: bool = False
) -> Iterator[ColumnChange]:
    old = {field.name: field for field in before}
    new = {field.name: field for field in after}
    for name, field in old.items():
        if name not in new:
            yield ColumnChange(f"{path}{name}", ChangeKind.DROPPED, _text(field), None)
    for name, field in new.items():
        if name not in old:
            yield ColumnChange(f"{path}{name}", ChangeKind.ADDED, None, _text(field))
        elif is_top:
            yield from _of_table_column(old[name], field)
        else:
            yield from _of_column(old[name], field, f"{path}{name}")
    yield from _moved([n for n in old if n in new], [n for n in new if n in old], path)


def _of_table_column(before: pa.Field, after: pa.Field) -> Iterator[ColumnChange]:
    if before.equals(after, check_metadata=True):
        return
    old, new = column_form(before), column_form(after)
    if old != new:
        texts = old.decode(), new.decode()
        found = list(_of_column(before, after, before.name))
        yield from found or [ColumnChange(before.name, ChangeKind.DETAIL, *texts)]
    yield from _of_documentation(before, after, before.name)


def _of_column(before: pa.Field, after: pa.Field, path: str) -> Iterator[ColumnChange]:
    if before.nullable != after.nullable:
        words = ["optional" if side.nullable else "required" for side in (before, after)]
        yield ColumnChange(path, ChangeKind.NULLABLE, *words)
    old, new = before.type, after.type
    if old == new:
        return
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        yield from _of_level(list(old), list(new), f"{path}.")
    elif is_array(old) and is_array(new):
        yield from _of_column(old.value_field, new.value_field, f"{path}.element")
    elif pa.types.is_map(old) and pa.types.is_map(new) and old.key_type == new.key_type:
        yield from _of_column(old.item_field, new.item_field, f"{path}.value")
    else:
        yield ColumnChange(path, ChangeKind.TYPE, str(old), str(new))


def _of_documentation(before: pa.Field, after: pa.Field, path: str) -> Iterator[ColumnChange]:
    if before.equals(after, check_metadata=True):
        return
    texts = documentation(before) or None, documentation(after) or None
    if texts[0] != texts[1]:
        yield ColumnChange(path, ChangeKind.DOC, *texts)
    if after.type.num_fields and before.type.num_fields:
        (was_at, was), (step, children) = struct_inside(before.type), struct_inside(after.type)
        old = {child.name: child for child in was} if was_at == step else {}
        for child in children:
            if child.name in old:
                yield from _of_documentation(old[child.name], child, f"{path}{step}.{child.name}")


def _moved(before: Sequence[str], after: Sequence[str], path: str) -> Iterator[ColumnChange]:
    """Give the fewest columns whose moves explain the new order of the columns that both have."""
    if list(before) == list(after):
        return
    place = {name: number for number, name in enumerate(before)}
    staying = _longest_rise([place[name] for name in after])
    for number, name in enumerate(after):
        if place[name] not in staying:
            places = [str(1 + place[name]), str(1 + number)]
            yield ColumnChange(f"{path}{name}", ChangeKind.ORDER, *places)


def _longest_rise(numbers: Sequence[int]) -> set[int]:
    """Return the numbers of a longest rising subsequence; they are all different."""
    ends: list[int] = []  # the least number that a rise of each length can end with
    earlier: dict[int, int | None] = {}
    for number in numbers:
        at = bisect_left(ends, number)
        earlier[number] = ends[at - 1] if at else None
        ends[at : at + 1] = [number]
    rise: set[int] = set()
    last = ends[-1] if ends else None
    while last is not None:
        rise.add(last)
        last = earlier[last]
    return rise


def _text(field: pa.Field) -> str:
    return f"{field.type}" if field.nullable else f"{field.type} not null"
