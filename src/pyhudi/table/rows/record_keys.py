"""Record keys: one text per row, made of the record key fields as Hudi makes it.

One field is the key as it is; null and the empty text are not keys. Several fields, and even one
under the COMPLEX key generator, make `f1:v1,f2:v2` in the order of the table's properties, with
`__null__` and `__empty__` for missing values; a key of nothing else is refused.

With some values two different keys would have one text, and one row would replace the other:
`a:x,b:y,b:z` is both (`x,b:y`, `z`) and (`x`, `y,b:z`), and a value may read `__null__`. Rows with
such values are refused (`_ambiguous`); what another engine wrote with them is read as it is.

Hudi's releases 0.14.1 to 1.0.2 wrote the bare value where COMPLEX has one field; 1.2 writes
`field:value`, in table versions 8 and 9 alike, and so does this.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.table_config import KeyGenerator, TableConfig
from pyhudi.table.rows.bad_rows import sample, true_rows
from pyhudi.table.rows.key_generators import RECORD_KEY_ROLE, key_columns, refuse_key_generator
from pyhudi.table.rows.value_texts import texts

_NULL = "__null__"
_EMPTY = "__empty__"


def record_keys(batch: pa.RecordBatch, config: TableConfig) -> pa.StringArray:
    """Return the record key of each row, made of the record key fields alone."""
    refuse_key_generator(config)
    columns = key_columns(batch, config.record_key_fields, RECORD_KEY_ROLE)
    values = {name: texts(column) for name, column in columns.items()}
    _refuse_keyless(columns, values)
    if len(values) == 1 and config.key_generator is not KeyGenerator.COMPLEX:
        return next(iter(values.values()))
    _refuse_ambiguous(columns, values)
    return _composite(values)


def rows_without_key(batch: pa.RecordBatch, config: TableConfig) -> pa.BooleanArray:
    """Return true for each row whose values `record_keys` refuses."""
    columns = key_columns(batch, config.record_key_fields, RECORD_KEY_ROLE)
    values = {name: texts(column) for name, column in columns.items()}
    return pc.or_(_keyless(values), _ambiguous(values))


def _keyless(values: Mapping[str, pa.StringArray]) -> pa.BooleanArray:
    """Return true for each row with only null and empty text in its record key fields."""
    keyless: pa.Array = pa.scalar(True)
    for text in values.values():
        keyless = pc.and_(keyless, pc.fill_null(pc.equal(text, ""), True))
    return keyless


def _ambiguous(values: Mapping[str, pa.StringArray]) -> pa.BooleanArray:
    """Return true for each row whose key text is also that of other values.

    The text is taken apart at `,<field>:`, in the order of the fields. There is a second way to do
    that only if some value holds the mark that begins its own field, or the mark that ends it.
    """
    ambiguous: pa.Array = pa.scalar(False)
    if len(values) == 1:
        return ambiguous
    marks = ["", *(f",{name}:" for name in list(values)[1:]), ""]  # none before the first field
    for index, text in enumerate(values.values()):
        signs = [pc.match_substring(text, mark) for mark in marks[index : index + 2] if mark]
        signs += [pc.equal(text, placeholder) for placeholder in (_NULL, _EMPTY)]
        for sign in signs:
            ambiguous = pc.or_(ambiguous, pc.fill_null(sign, False))
    return ambiguous


def _refuse_ambiguous(columns: Mapping[str, pa.Array], values: Mapping[str, pa.Array]) -> None:
    if len(values) == 1:
        return
    ambiguous = _ambiguous(values)
    if rows := true_rows(ambiguous):
        marks = ", ".join(repr(f",{name}:") for name in list(columns)[1:])
        raise InvalidRequestError(
            f"{pc.sum(ambiguous).as_py()} of {len(ambiguous)} rows have a record key that is not"
            " certain",
            why=f"rows with other values could have the same key, for a value holds {marks} or is"
            f" {_NULL!r} or {_EMPTY!r}: {sample(rows, columns)}",
            next_step="Change these values, or leave these rows out; a table whose record key is"
            " one column takes any text",
        )


def _refuse_keyless(columns: Mapping[str, pa.Array], values: Mapping[str, pa.Array]) -> None:
    """Raise if some row has only null and empty text in its record key fields."""
    keyless = _keyless(values)
    if rows := true_rows(keyless):
        names = ", ".join(repr(name) for name in columns)
        raise InvalidRequestError(
            f"{pc.sum(keyless).as_py()} of {len(keyless)} rows have no record key",
            why=f"null or empty in {names}: {sample(rows, columns)}",
            next_step="Give each row a value there, or leave these rows out",
        )


def _composite(values: Mapping[str, pa.StringArray]) -> pa.StringArray:
    parts: list[pa.Array | str] = []
    for name, text in values.items():
        parts += [f"{',' if parts else ''}{name}:", _placeheld(text)]
    try:
        return pc.binary_join_element_wise(*parts, "")
    except pa.ArrowException:  # the one way to fail: more bytes than an Arrow text array holds
        raise InvalidRequestError(
            "the rows cannot be written at once",
            why="their record keys have more than 2^31 bytes together",
            next_step="Write them in smaller batches",
        ) from None


def _placeheld(text: pa.StringArray) -> pa.StringArray:
    return pc.fill_null(pc.if_else(pc.equal(text, ""), _EMPTY, text), _NULL)
