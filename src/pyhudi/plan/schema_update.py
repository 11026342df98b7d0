"""A change of a table's columns without rows: which changes are allowed, and what comes of them.

Files are not rewritten, so a change may only ask for what every reader makes of the old files. A
column that a file lacks is null there: so what is added is nullable. A type may become one to which
Hudi promotes values when it reads them. These include lossy ones, which nothing takes by itself but
a user may ask for: an int as text, a long as a float. A column that is left out is not read.

Without Hudi's schema-on-read a column is its name. So there are no renames, and a column that was
dropped must not come back while a file may hold the old values, for they would come back with it.
Spark does not see the case of names, so none may differ only in that. Positions mean nothing to
Hudi's readers, who find columns by name, but they are part of what makes two schemas equal: so
there are no moves, and new columns come last.

Record key, partition and ordering columns say which row is meant and which version of it counts.
Their types are hashed and compared, so they stay as they are; only their documentation may change.

Each verb checks at once and changes all that it names, or nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NoReturn, Self

import pyarrow as pa

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.avro.canonical import FORM
from pyhudi.format.avro.documentation import documentation, with_documentation
from pyhudi.format.avro.schema import FIELDS_MAX, avro_record_schema, decode_arrow_schema
from pyhudi.plan.column_paths import (
    Parts,
    Path,
    child_of,
    columns_in,
    dotted,
    has_column,
    parse_path,
    paths_of,
    refused,
    with_inner,
    without_metadata,
)
from pyhudi.plan.type_names import parse_type
from pyhudi.table.joined_types import joined_type
from pyhudi.table.rows.reserved_names import is_reserved, reservation
from pyhudi.table.rows.storable_types import (
    is_bytes,
    is_list,
    is_text,
    storable_fields,
    storable_type,
)
from pyhudi.table.schema import META_COLUMNS, is_promotion
from pyhudi.table.schema_changes import ColumnChange, column_changes
from pyhudi.wording import public_methods

_INSTEAD: Final = "Add a new column, or create a new table"
_NAMES_SHOWN_MAX: Final = 20


class SchemaDraft:
    """The changes of one update of a schema, with PyIceberg's verbs.

    A path is a name, or names joined by dots or in a tuple: `"address.city"` is a field of a
    struct, `"tags.element.name"` one inside a list, `"prices.value.amount"` one inside a map.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        fixed: Iterable[str] = (),
        dropped: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Begin with the table's data columns.

        `fixed` are the paths of record key, partition and ordering columns. `dropped` has the paths
        of dropped columns that a file may still hold, and since when.
        """
        self._start = schema
        self._fixed = frozenset(fixed)
        self._held = {path.lower(): text for path, text in dropped.items()}
        self._fields: dict[str, pa.Field] = {field.name: field for field in schema}
        self._by_lower = {name.lower(): name for name in self._fields}
        self._count = len(META_COLUMNS) + sum(map(columns_in, schema))

    def __repr__(self) -> str:
        changes = "; ".join(map(str, self.changes)) or "no change"
        return f"<schema update, {changes}: {', '.join(public_methods(SchemaDraft))}>"

    @property
    def schema(self) -> pa.Schema:
        """The data columns with the changes."""
        return pa.schema(list(self._fields.values()), self._start.metadata)

    @property
    def changes(self) -> tuple[ColumnChange, ...]:
        """What differs from the schema with which the update began."""
        return column_changes(self._start, self.schema)

    # -- verbs

    def add_column(
        self,
        path: Path,
        field_type: pa.DataType | str,
        doc: str | None = None,
        required: bool = False,
    ) -> Self:
        """Add a column, which is null in every row there is.

        `field_type` is an Arrow type or a name such as "long" or "decimal(10,2)".
        """
        parts = parse_path(path)
        if required:
            raise refused(
                dotted(parts),
                "be added as required",
                "the rows that the table has lack a value for it",
                "Add it without required=True, and fill it with table.update",
            )
        column = pa.field(parts[-1], parse_type(field_type, dotted(parts)))
        self._add(parts[:-1], _documented(column, doc))
        return self

    def update_column(
        self, path: Path, field_type: pa.DataType | str | None = None, doc: str | None = None
    ) -> Self:
        """Give a column a wider type, other documentation, or both.

        Every promotion that Hudi reads is allowed, also one that loses digits, such as long to
        float. Empty documentation removes what there is.
        """
        parts = parse_path(path)
        old = new = self._existing(parts)
        if field_type is None and doc is None:
            raise refused(
                dotted(parts),
                "be updated",
                "neither a type nor documentation is given",
                "Give field_type= or doc=",
            )
        if field_type is not None:
            type_ = storable_type(parse_type(field_type, dotted(parts)), dotted(parts))
            new = self._retyped(old, type_, parts)
        if doc is not None and len(parts) > 1:
            self._refuse_undocumented(parts)
        new = _documented(new, doc)
        if not new.equals(old, check_metadata=True):
            self._put(parts, new)
        return self

    def make_column_optional(self, path: Path) -> Self:
        """Allow null in a column."""
        parts = parse_path(path)
        old = self._existing(parts)
        self._refuse_fixed(parts, "become optional")
        if not old.nullable:
            self._put(parts, old.with_nullable(True))
        return self

    def delete_column(self, path: Path) -> Self:
        """Leave a column out of what is read and written.

        Its values go from storage with compaction and cleaning; until then its name cannot be given
        to a new column.
        """
        parts = parse_path(path)
        self._existing(parts)
        self._refuse_fixed(parts, "be deleted")
        if len(parts) == 1:
            self._delete_top(parts[0])
        else:
            self._delete_nested(parts)
        if has_column(self._start, parts):
            self._held = {**self._held, dotted(parts).lower(): "this update deletes it"}
        return self

    def union_by_name(self, schema: pa.Schema) -> Self:
        """Add the columns that another schema has and this one lacks, and widen types to hold both.

        Columns that it lacks stay. Types are widened
        without loss: int to long or double, float to double, decimals up to 38 digits. Fields of
        structs are joined in the same way.
        """
        before = self._columns()
        try:
            for field in schema:
                self._unite((field.name,), field)
        except InvalidRequestError:
            self._fields, self._by_lower, self._count = before
            raise
        return self

    def rename_column(self, path: Path, new_name: str) -> NoReturn:
        """Refuse: without Hudi's schema-on-read there are no renames."""
        raise refused(
            dotted(parse_path(path)),
            f"be renamed to {new_name!r:.100}",
            "readers find a column in old files by its name, and without Hudi's schema-on-read"
            " nothing connects the new name with the old one",
            f"Add {new_name!r:.100} as a new column, fill it with table.update, and delete this"
            " one later",
        )

    def move_first(self, path: Path) -> NoReturn:
        """Refuse: without Hudi's schema-on-read columns keep their order."""
        raise _unmoved(path)

    def move_before(self, path: Path, before_path: Path) -> NoReturn:
        """Refuse: without Hudi's schema-on-read columns keep their order."""
        raise _unmoved(path)

    def move_after(self, path: Path, after_path: Path) -> NoReturn:
        """Refuse: without Hudi's schema-on-read columns keep their order."""
        raise _unmoved(path)

    # -- adding

    def _add(self, parent: Parts, column: pa.Field) -> None:
        """Add a nullable column to the table, or to the struct at a path."""
        within = "".join(f"{part}." for part in parent)
        path = f"{within}{column.name}"
        siblings = self._siblings(parent, path)
        if (other := siblings.get(column.name.lower())) is not None:
            why = f"there is {other!r}, which differs from it only in case"
            if other == column.name:
                why = "there is a column of that name"
            raise refused(path, "be added", why, "Give it another name, or use update_column")
        [stored] = storable_fields([column], within, len(parent))
        stored = stored.with_nullable(True).with_metadata(column.metadata)
        for each in paths_of(stored, within):
            self._refuse_name(each)
        if parent:
            self._refuse_inside_fixed(parent, "have another field")
            struct = self._existing(parent)
            fields = [*struct.type, stored]
            self._put(parent, struct.with_type(pa.struct(fields)))
        else:
            self._put((stored.name,), stored)

    def _siblings(self, parent: Parts, path: str) -> Mapping[str, str]:
        """Return the names beside which a column is added, by their lower case."""
        if not parent:
            return self._by_lower
        type_ = self._existing(parent).type
        if pa.types.is_struct(type_):
            return {field.name.lower(): field.name for field in type_}
        next_step = "Add it beside that column, or to a struct"
        if is_list(type_):
            next_step = f"Name what the list holds: {dotted((*parent, 'element'))!r}"
        elif pa.types.is_map(type_):
            next_step = f"Name what the map holds: {dotted((*parent, 'value'))!r}"
        why = f"{dotted(parent)!r} is {type_}, which has no fields of its own"
        raise refused(path, "be added", why, next_step)

    def _refuse_name(self, path: str) -> None:
        name = path.rpartition(".")[2]
        if (why := reservation(name)) is not None:
            raise refused(path, "be added", why, "Give it another name")
        if (since := self._held.get(path.lower())) is not None:
            raise refused(
                path,
                "be added again",
                f"a column of that name was dropped, and files may still hold its values ({since})",
                "Give it another name, or add it once table.services.compact() and"
                " table.services.clean() have removed those files",
            )

    # -- changing

    def _retyped(self, old: pa.Field, type_: pa.DataType, parts: Parts) -> pa.Field:
        if old.type.equals(type_):
            return old
        self._refuse_fixed(parts, "have another type")
        path = dotted(parts)
        if old.type.num_fields or type_.num_fields:
            raise refused(
                path,
                f"become {type_}",
                f"it is {old.type}, and types that have others inside are not promoted as a whole",
                f"Name the column inside, such as {path + '.name'!r}, or use union_by_name",
            )
        if not _may_become(old.type, type_):
            raise refused(
                path,
                f"become {type_}",
                f"it is {old.type}, and Hudi does not read that as {type_}",
                "Add a new column of that type, and fill it with table.update",
            )
        return old.with_type(type_)

    def _refuse_undocumented(self, parts: Parts) -> None:
        """Refuse documentation of what a list or map holds, for which Avro has no place."""
        parent = self._existing(parts[:-1])
        if not pa.types.is_struct(parent.type):
            raise refused(
                dotted(parts),
                "have documentation",
                f"it is what {dotted(parts[:-1])!r} holds, and Avro documents columns and fields",
                "Document the column that it is in",
            )

    def _unite(self, parts: Parts, given: pa.Field) -> None:
        """Take a column of another schema in."""
        siblings = self._siblings(parts[:-1], dotted(parts))
        if siblings.get(given.name.lower()) == given.name:
            self._widen(parts, given.type)
        else:
            self._add(
                parts[:-1], _documented(pa.field(given.name, given.type), documentation(given))
            )

    def _widen(self, parts: Parts, given: pa.DataType) -> None:
        old = self._existing(parts)
        if pa.types.is_dictionary(given):
            given = given.value_type
        if old.type.equals(given):
            return
        if pa.types.is_struct(old.type) and pa.types.is_struct(given):
            for child in given:
                self._unite((*parts, child.name), child)
        elif is_list(old.type) and is_list(given):
            self._widen((*parts, "element"), given.value_type)
        elif _are_maps(old.type, given):
            self._widen((*parts, "value"), given.item_type)
        elif not _is_same_kind(old.type, given):
            self._widen_to(parts, old, storable_type(given, dotted(parts)))

    def _widen_to(self, parts: Parts, old: pa.Field, given: pa.DataType) -> None:
        joined = joined_type(old.type, given)
        if joined is None:
            raise refused(
                dotted(parts),
                "hold both types",
                f"it is {old.type} here and {given} in the other schema, and no type holds the"
                " values of both without loss",
                "Cast it in the other schema, or widen it here with update_column",
            )
        if not joined.equals(old.type):
            self._refuse_fixed(parts, "have another type")
            self._put(parts, old.with_type(joined))

    # -- deleting

    def _delete_top(self, name: str) -> None:
        others = [other for other in self._fields if not is_reserved(other)]
        if others == [name]:
            raise refused(
                name,
                "be deleted",
                "it is the table's last column",
                "Add another column before, in the same update",
            )
        self._count -= columns_in(self._fields.pop(name))
        del self._by_lower[name.lower()]

    def _delete_nested(self, parts: Parts) -> None:
        parent = self._existing(parts[:-1])
        if not pa.types.is_struct(parent.type):
            raise refused(
                dotted(parts),
                "be deleted",
                f"{dotted(parts[:-1])!r} is {parent.type} and cannot be without it",
                "Delete the whole column",
            )
        kept = [field for field in parent.type if field.name != parts[-1]]
        if not kept:
            raise refused(
                dotted(parts),
                "be deleted",
                f"it is the last field of {dotted(parts[:-1])!r}",
                "Delete the whole column",
            )
        self._put(parts[:-1], parent.with_type(pa.struct(kept)))

    # -- columns

    def _columns(self) -> tuple[dict[str, pa.Field], dict[str, str], int]:
        return {**self._fields}, {**self._by_lower}, self._count

    def _existing(self, parts: Parts) -> pa.Field:
        """Return the column at a path; InvalidRequestError if there is none."""
        field = self._fields.get(parts[0])
        for depth, part in enumerate(parts[1:], start=1):
            if field is not None:
                field = child_of(field.type, part, parts[: depth + 1])
        if field is not None:
            return field
        shown = [name for name in self._fields if not is_reserved(name)]
        more = ", …" if len(shown) > _NAMES_SHOWN_MAX else ""
        raise refused(
            dotted(parts),
            "be changed",
            "there is no such column",
            f"Name one of the table's: {', '.join(shown[:_NAMES_SHOWN_MAX])}{more}",
        )

    def _put(self, parts: Parts, new: pa.Field) -> None:
        """Set the column at a path, if readers can read what comes of it."""
        top = self._fields.get(parts[0])
        column = new if len(parts) == 1 else with_inner(top, parts[1:], new)
        count = self._count + columns_in(column) - (0 if top is None else columns_in(top))
        if count > FIELDS_MAX:
            raise refused(
                dotted(parts),
                "be stored",
                f"the table would have more than {FIELDS_MAX:,} columns, with the fields of"
                f" structs and Hudi's {len(META_COLUMNS)}",
                "Delete columns that are not used, or write these to a table of their own",
            )
        _refuse_unreadable(column, dotted(parts))
        if top is not None and not column.equals(top):  # documentation is no part of the text
            column = without_metadata(column, FORM)
        self._fields[column.name], self._count = column, count
        self._by_lower[column.name.lower()] = column.name

    def _refuse_fixed(self, parts: Parts, what: str) -> None:
        """Refuse what would change a key, partition or ordering column, or pyhudi's own."""
        path = dotted(parts)
        self._refuse_inside_fixed(parts, what)
        if any(fixed.startswith(f"{path}.") for fixed in self._fixed):
            why = "it holds a record key, partition or ordering column"
            raise refused(path, what, why, _INSTEAD)
        if is_reserved(parts[0]):
            raise refused(path, what, "pyhudi or Hudi fills it in", "Leave it as it is")

    def _refuse_inside_fixed(self, parts: Parts, what: str) -> None:
        if any(dotted(parts[:depth]) in self._fixed for depth in range(1, len(parts) + 1)):
            why = "it is a record key, partition or ordering column"
            raise refused(dotted(parts), what, why, _INSTEAD)


# ---- fields


def _documented(field: pa.Field, doc: str | None) -> pa.Field:
    """Return the field with this documentation; None keeps what it has, and "" takes it away."""
    if doc is None:
        return field
    if not _is_text(doc):
        why = f"{doc!r:.100} is not text"
        raise refused(field.name, "have that documentation", why, "Give doc= a text")
    return field if doc == (documentation(field) or "") else with_documentation(field, doc)


def _is_text(given: object) -> bool:
    return isinstance(given, str) and not any(map(_is_surrogate, given))


def _is_surrogate(character: str) -> bool:
    return "\ud800" <= character <= "\udfff"


def _refuse_unreadable(field: pa.Field, path: str) -> None:
    """Raise if readers would refuse a schema with this column: it is too deep."""
    avro = json.dumps(avro_record_schema(pa.schema([field]), "t"))
    try:
        decode_arrow_schema(avro, "the schema")
    except CorruptTableError as error:
        raise refused(path, "be stored", error.why, "Flatten what is inside it") from None


# ---- types


def _may_become(source: pa.DataType, target: pa.DataType) -> bool:
    """True if Hudi lets a table's column change from the one type to the other.

    Files may differ from the table in more: in the unit of times and in the size of bytes.
    """
    if pa.types.is_timestamp(source) or pa.types.is_fixed_size_binary(source):
        return pa.types.is_decimal(source) and is_promotion(source, target)
    # Promotions are read one at a time. A long column may have files with ints, which no reader
    # takes for times, and a text column files with numbers, which none takes for bytes.
    is_last = pa.types.is_timestamp(target) or is_bytes(target)
    return is_promotion(source, target) and not is_last


def _are_maps(stored: pa.DataType, given: pa.DataType) -> bool:
    return bool(pa.types.is_map(stored) and pa.types.is_map(given) and is_text(given.key_type))


def _is_same_kind(stored: pa.DataType, given: pa.DataType) -> bool:
    """True if the stored type takes the values of the other one as they are."""
    if pa.types.is_timestamp(stored) and pa.types.is_timestamp(given):
        return (stored.tz is None) == (given.tz is None)
    both = (stored, given)
    return all(map(is_text, both)) or all(map(is_bytes, both))


# ---- refusals


def _unmoved(path: Path) -> InvalidRequestError:
    return refused(
        dotted(parse_path(path)),
        "be moved",
        "without Hudi's schema-on-read columns keep their order, and new ones come last",
        "Read the columns in the order you want: table.read(columns=[…])",
    )
