"""The table's schema as Arrow, and bringing older files into it.

Files keep the schema they were written with. A read has one schema, that of the instant it reads,
and `conform` brings every batch into it: columns added since are null, types widened since are
promoted, and everything else that differs is refused by name. Promotions are those Hudi reads
without schema-on-read: int → long → float → double, numbers → string, float → double, bytes ↔
string, wider decimals.

A float becomes the double with the same shortest text (0.1f → 0.1), as Hudi does it, not the double
with the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptTableError, UnsupportedTableError
from pyhudi.format.avro.schema import decode_arrow_schema

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"
META_COLUMNS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)

#: Written when a table keeps each row's change operation; D is a delete.
OPERATION = "_hoodie_operation"
IS_DELETED = "_hoodie_is_deleted"

_META_FIELDS = tuple(pa.field(name, pa.string()) for name in META_COLUMNS)


def table_schema(avro_json: str, path: str) -> pa.Schema:
    """Return the five meta columns and the columns of a schema in commit metadata."""
    return with_meta_columns(decode_arrow_schema(avro_json, path))


def with_meta_columns(columns: pa.Schema) -> pa.Schema:
    """Return the five meta columns first, then the others.

    All are nullable, whatever the table says: a column added later is null in older files.
    """
    data = [field.with_nullable(True) for field in columns if field.name not in META_COLUMNS]
    return pa.schema([*_META_FIELDS, *data])


def without_meta_columns(columns: pa.Schema) -> pa.Schema:
    """Return the schema of the user's columns."""
    return pa.schema([field for field in columns if field.name not in META_COLUMNS])


def conform(batch: pa.RecordBatch, schema: pa.Schema, path: str) -> pa.RecordBatch:
    """Return the batch with exactly the schema's columns, older types promoted."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index >= 0:
            columns.append(promoted(batch.column(index), field.type, field.name, path))
        elif not batch.schema.get_all_field_indices(field.name):
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            raise CorruptTableError(
                f"column {field.name!r} cannot be read",
                why="the file has several of that name",
                next_step="Restore the file from a copy",
                path=path,
            )
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def promoted(array: pa.Array, target: pa.DataType, column: str, path: str) -> pa.Array:
    """Return the same values in a type to which the column was widened."""
    source = array.type
    if source.equals(target):
        return array
    if array.offset and source.num_fields:
        array = pa.concat_arrays([array])  # children of a slice are whole: cut them too
    if pa.types.is_null(source):
        return pa.nulls(len(array), target)
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _promoted_struct(array, target, column, path)
    if pa.types.is_map(source) and pa.types.is_map(target):
        keys = promoted(array.keys, target.key_type, column, path)
        items = promoted(array.items, target.item_type, column, path)
        return pa.MapArray.from_arrays(
            array.offsets, keys, items, type=target, mask=array.is_null()
        )
    if _is_list(source) and _is_list(target):
        values = promoted(array.values, target.value_type, column, path)
        return pa.ListArray.from_arrays(array.offsets, values, type=target, mask=array.is_null())
    if is_promotion(source, target):
        return _cast(array, target, column, path)
    raise _no_promotion(source, target, column, path)


def _promoted_struct(
    array: pa.StructArray, target: pa.StructType, column: str, path: str
) -> pa.Array:
    fields = []
    for field in target:
        index = array.type.get_field_index(field.name)
        if index < 0:
            fields.append(pa.nulls(len(array), field.type))
        else:
            # `.field` ignores a slice's offset and drops the struct's own nulls. The mask and the
            # slicing here keep both.
            child = pc.struct_field(array, [index])
            fields.append(promoted(child, field.type, f"{column}.{field.name}", path))
    return pa.StructArray.from_arrays(fields, fields=list(target), mask=array.is_null())


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


_WIDTH = {pa.int32(): 0, pa.int64(): 1, pa.float32(): 2, pa.float64(): 3}


def is_promotion(source: pa.DataType, target: pa.DataType) -> bool:
    """True if Hudi lets a column's type change from the one to the other."""
    if source in _WIDTH and target in _WIDTH:
        return _WIDTH[source] < _WIDTH[target]
    if pa.types.is_decimal128(source) and pa.types.is_decimal128(target):
        digits = target.precision - target.scale >= source.precision - source.scale
        return bool(digits and target.scale >= source.scale)
    if target == pa.string():
        return source in _WIDTH or source in (pa.binary(), pa.large_string())
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        # Parquet has one unit where the Avro schema has another; the zone may not change.
        return bool((source.tz is None) == (target.tz is None))
    if target == pa.binary():
        return bool(source == pa.string() or pa.types.is_fixed_size_binary(source))
    return bool(source == pa.int64() and pa.types.is_timestamp(target))


def _cast(array: pa.Array, target: pa.DataType, column: str, path: str) -> pa.Array:
    try:
        if array.type == pa.float32() and target == pa.float64():
            return pc.cast(pc.cast(array, pa.string()), target)
        if target == pa.string() and array.type in (pa.float32(), pa.float64()):
            return _java_text(array)
        if target in (pa.float32(), pa.float64()):
            return pc.cast(array, target, safe=False)  # a long may lose digits, as in Java
        return pc.cast(array, target)
    except pa.ArrowException:
        raise _no_promotion(array.type, target, column, path) from None


def _java_text(array: pa.Array) -> pa.Array:
    """Return floats as Java prints them: 1.0, 1.0E10, 1.0E-5. Formatted once per distinct value."""
    encoded = pc.dictionary_encode(array)
    texts = [_java_number(value) for value in encoded.dictionary.cast(pa.string()).to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _java_number(text: str) -> str:
    if text in ("nan", "inf", "-inf"):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[text]
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    mantissa, _, exponent = digits.partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(exponent or 0)
    number = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(number)
    number = number.rstrip("0")
    if not number:
        return f"{sign}0.0"
    if -2 <= point <= 7:  # 0.001 ≤ value < 10,000,000
        if point <= 0:
            return f"{sign}0.{'0' * -point}{number}"
        padded = number.ljust(point, "0")
        return f"{sign}{padded[:point]}.{padded[point:] or '0'}"
    return f"{sign}{number[0]}.{number[1:] or '0'}E{point - 1}"


def needs_promotion(file_schema: pa.Schema, schema: pa.Schema) -> bool:
    """True if some column of the file has another type than the read wants."""
    for field in schema:
        index = file_schema.get_field_index(field.name)
        if index >= 0 and not _same_type(file_schema.field(index).type, field.type):
            return True
    return False


def _same_type(left: pa.DataType, right: pa.DataType) -> bool:
    """True if the types are equal except for names of list items and nullability."""
    if _is_list(left) and _is_list(right):
        return _same_type(left.value_type, right.value_type)
    if pa.types.is_map(left) and pa.types.is_map(right):
        return _same_type(left.item_type, right.item_type)
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        names = [field.name for field in left] == [field.name for field in right]
        pairs: Sequence[tuple[pa.Field, pa.Field]] = list(zip(left, right, strict=False))
        return names and all(_same_type(a.type, b.type) for a, b in pairs)
    return bool(left.equals(right))


def _no_promotion(
    source: pa.DataType, target: pa.DataType, column: str, path: str
) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"column {column!r} of {path!r} cannot be read",
        why=f"the file has {source} where the table has {target}, and that is not a promotion",
        next_step="Rewrite the file group with the engine that changed the schema",
    )
