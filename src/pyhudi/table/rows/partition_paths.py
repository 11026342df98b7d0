"""Partition paths: the folder of each row, made of the partition fields as Hudi makes it.

The fields' texts are joined by slashes, each as `field=text` in hive style; null and the empty text
are `__HIVE_DEFAULT_PARTITION__`. Where the table encodes, the characters of `_ESCAPED` are written
as %XX, those that Hive escapes in paths; blanks and letters of any alphabet stay.

Values become folders, so some are refused: a dot, two dots and `.hoodie`, which lead elsewhere, and
whatever `format.paths` calls no path. Without encoding two more are refused. A slash makes a
folder inside a folder, and where both hold rows Hudi lists only the outer one. Before a colon Hudi
sees the scheme of a URI. Any other text is a partition to Hudi, also one that begins with a dot or
an underscore.

Rows are many and partitions few: each distinct value is made into text once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.paths import PATH_BYTES_MAX, table_path
from pyhudi.format.table.table_config import KeyGenerator, TableConfig
from pyhudi.table.partitions import DEFAULT_PARTITION
from pyhudi.table.rows.bad_rows import sample, true_rows
from pyhudi.table.rows.key_generators import PARTITION_ROLE, key_columns, refuse_key_generator
from pyhudi.table.rows.value_texts import texts

_ESCAPED: Final = (*(chr(code) for code in (*range(0x20), 0x7F)), *"\"#%'*/:=?\\{[]^")
_ESCAPES: Final = str.maketrans({sign: f"%{ord(sign):02X}" for sign in _ESCAPED})
_NEEDS_ESCAPE: Final = r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]"
RESERVED_FOLDER: Final = ".hoodie"
#: A segment that may be no path, or may be so only by chance.
_SUSPECT: Final = r"[/\\:\x00-\x1f\x7f-\x{9f}]|^\."
_PATH_BYTES_MAX: Final = PATH_BYTES_MAX - 256  # leaves room for the name of a file

_Codes: TypeAlias = npt.NDArray[np.int64]


def partition_paths(batch: pa.RecordBatch, config: TableConfig) -> pa.DictionaryArray:
    """Return the partition path of each row.

    Its dictionary has every path once, in no certain order.
    """
    refuse_key_generator(config)
    codes: _Codes = np.zeros(batch.num_rows, np.int64)
    paths = pa.array([""])
    if config.key_generator is not KeyGenerator.NON_PARTITION:
        columns = key_columns(batch, config.partition_fields, PARTITION_ROLE)
        for number, (name, column) in enumerate(columns.items()):
            level = _segments(column, name, config)
            codes, paths = _joined(codes, paths, level) if number else _parts(level)
        _refuse_long(codes, paths, columns)
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), paths)


def escaped(text: str) -> str:
    """Return one value as Hudi encodes it in a path.

    >>> escaped("50% a/b é")
    '50%25 a%2Fb é'
    """
    return text.translate(_ESCAPES)


def _segments(column: pa.Array, name: str, config: TableConfig) -> pa.DictionaryArray:
    """Return the path segment that one field makes, for each row; its dictionary has each once."""
    encoded = column.dictionary_encode(null_encoding="encode")
    values = pc.fill_null(texts(encoded.dictionary), "")
    segments = _escaped_all(values) if config.url_encode else values
    segments = pc.if_else(pc.equal(segments, ""), DEFAULT_PARTITION, segments)
    if config.hive_style:
        segments = pc.binary_join_element_wise(f"{name}=", segments, "")
    if problems := _problems(values, segments, url_encode=config.url_encode):
        raise _refusal(encoded, problems, column, name, url_encode=config.url_encode)
    # Null, the empty text and the text __HIVE_DEFAULT_PARTITION__ have become one.
    once = segments.dictionary_encode()
    return pa.DictionaryArray.from_arrays(once.indices.take(encoded.indices), once.dictionary)


def _escaped_all(values: pa.StringArray) -> pa.StringArray:
    """Return the texts, escaped where needed.

    Few texts need it; these are done one by one, each distinct text once.
    """
    needy = pc.match_substring_regex(values, _NEEDS_ESCAPE)
    if not pc.any(needy, min_count=0).as_py():
        return values
    done = [escaped(text) for text in values.filter(needy).to_pylist()]
    return pc.replace_with_mask(values, needy, pa.array(done, pa.string()))


def _joined(
    codes: _Codes, paths: pa.StringArray, level: pa.DictionaryArray
) -> tuple[_Codes, pa.StringArray]:
    """Return the paths one segment longer. Of all pairs, only those that some row has are made."""
    inner, segments = _parts(level)
    width = max(len(segments), 1)
    pairs, found = np.unique(codes * width + inner, return_inverse=True)
    outer = paths.take(pa.array(pairs // width))
    longer = pc.binary_join_element_wise(outer, segments.take(pa.array(pairs % width)), "/")
    return found.astype(np.int64), longer


def _parts(level: pa.DictionaryArray) -> tuple[_Codes, pa.StringArray]:
    return np.asarray(level.indices).astype(np.int64), level.dictionary


# ---- refusals


def _problems(
    values: pa.StringArray, segments: pa.StringArray, *, url_encode: bool
) -> dict[int, str]:
    """Return what is wrong with which of the values. Few are looked at closely."""
    suspects = np.flatnonzero(pc.match_substring_regex(segments, _SUSPECT))
    found = {}
    for number in suspects.tolist():
        value, segment = values[number].as_py(), segments[number].as_py()
        if why := _problem(value, segment, url_encode=url_encode):
            found[number] = why
    return found


def _problem(value: str, segment: str, *, url_encode: bool) -> str | None:
    if not url_encode and "/" in value:
        return "a slash would make a folder inside a folder"
    if not url_encode and ":" in value:
        return "Hudi would take what is before the colon for the scheme of a URI"
    if segment.lower() == RESERVED_FOLDER:
        return f"{RESERVED_FOLDER} is the table's own folder"
    try:
        table_path(segment)
    except CorruptTableError as error:
        return f"as a path, {error.why}"
    return None


def _refusal(
    encoded: pa.DictionaryArray,
    problems: dict[int, str],
    column: pa.Array,
    name: str,
    *,
    url_encode: bool,
) -> InvalidRequestError:
    why = next(iter(problems.values()))
    alike = [number for number, other in problems.items() if other == why]
    rows = true_rows(pc.is_in(encoded.indices, pa.array(alike, pa.int32())))
    advice = "Change these values"
    if not url_encode:
        advice += ", or keep the rows in a table that URL-encodes its partition paths"
    return InvalidRequestError(
        f"values of column {name!r} cannot be partitions",
        why=f"{why}, as in {sample(rows, {name: column})}",
        next_step=advice,
    )


def _refuse_long(codes: _Codes, paths: pa.StringArray, columns: Mapping[str, pa.Array]) -> None:
    long = np.asarray(pc.greater(pc.binary_length(paths), _PATH_BYTES_MAX))
    if rows := true_rows(pa.array(long[codes])):
        raise InvalidRequestError(
            "values of the partition fields are too long",
            why=f"the path has over {_PATH_BYTES_MAX} bytes, as in {sample(rows, columns)}",
            next_step="Partition by shorter values",
        )
