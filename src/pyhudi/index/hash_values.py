"""From record keys to the values that bucket indexes hash.

An index sees no columns, only the record key's text and the names of the hash fields. The rules
are Hudi's, to the letter, since two engines must agree on the bucket of every key:

1. A key that lacks a comma or a colon is one value, whole: `5`, `id:5`, `a:b:c`, `p,q`.
2. Any other key is read as `name:value,name:value`. A value ends at the last comma before the next
   colon. If there is none after the value's own colon, the value holds that next colon too, and
   the colon after it is tried; failing all, the value runs to the end.
3. Values of the named fields are kept in the order of the key; all of them when no field is named.
   A kept `__null__` is null, a kept `__empty__` is the empty text.
4. When nothing is kept, the whole key is the one value.

Hudi 1.2.0 never returns from rule 2 when the last field is not wanted and its value holds a colon.
Here that value runs to the end, like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequestError
from pyhudi.format.hashing import utf8_bytes

_NULL = "__null__"
_EMPTY = "__empty__"

_Rows: TypeAlias = npt.NDArray[np.int64]
_Mask: TypeAlias = npt.NDArray[np.bool_]
_Group: TypeAlias = tuple[_Rows, pa.ListArray]  # some rows, and the values of each


def key_values(record_key: str, hash_fields: Sequence[str]) -> tuple[str | None, ...]:
    """Return the values to hash of one key.

    >>> key_values("id:1,name:a,b", ["name"])
    ('a,b',)
    >>> key_values("id:5", ["id"])
    ('id:5',)
    """
    if "," not in record_key or ":" not in record_key:
        return (record_key,)
    wanted = _wanted_names(hash_fields)
    kept = tuple(
        None if value == _NULL else "" if value == _EMPTY else value
        for name, value in _fields(record_key)
        if wanted is None or name in wanted
    )
    return kept or (record_key,)


def _wanted_names(hash_fields: Sequence[str]) -> frozenset[str] | None:
    """Return the names; None for all. Hudi takes an empty list, or one empty name, that way."""
    return None if list(hash_fields) in ([], [""]) else frozenset(hash_fields)


def _fields(record_key: str) -> Iterator[tuple[str, str]]:
    """Yield (name, value) by rule 2, for a key with a colon."""
    start = 0
    while start < len(record_key):
        colon = record_key.index(":", start)
        end = _value_end(record_key, colon)
        yield record_key[start:colon], record_key[colon + 1 : end]
        start = end + 1


def _value_end(record_key: str, colon: int) -> int:
    while (following := record_key.find(":", colon + 1)) >= 0:
        comma = record_key.rfind(",", colon + 1, following)
        if comma >= 0:
            return comma
        colon = following
    return len(record_key)


def extracted_key_values(record_keys: pa.Array, hash_fields: Sequence[str]) -> pa.ListArray:
    """Return the values to hash of each key.

    Keys of one field, the usual case, cost nothing. Keys of several fields are split by Arrow as
    long as no value holds a comma or colon; the few that do go through `key_values`, each once.
    """
    if record_keys.null_count:
        raise InvalidRequestError(
            "a record has no bucket",
            why=f"{record_keys.null_count} record keys are null",
            next_step="Give every row a value in at least one record key field",
        )
    composite = _composite(record_keys)
    if not composite.any():
        return _whole_keys(record_keys)
    groups = list(_groups(record_keys, composite, hash_fields))
    order = np.argsort(np.concatenate([rows for rows, _ in groups]), kind="stable")
    return pa.concat_arrays([lists for _, lists in groups]).take(pa.array(order))


def _composite(record_keys: pa.Array) -> _Mask:
    """Return which keys have a comma and a colon. Most tables' keys have no colon at all."""
    if not (utf8_bytes(record_keys) == ord(":")).any():
        return np.zeros(len(record_keys), np.bool_)
    with_comma, with_colon = (pc.match_substring(record_keys, sign) for sign in ",:")
    return _mask(pc.and_(with_comma, with_colon))


def _groups(
    record_keys: pa.Array, composite: _Mask, hash_fields: Sequence[str]
) -> Iterator[_Group]:
    """Yield every row, in groups that can be treated alike."""
    plain, rows = np.flatnonzero(~composite), np.flatnonzero(composite)
    yield plain, _whole_keys(record_keys.take(pa.array(plain)))
    keys = record_keys.take(pa.array(rows))
    parts = pc.split_pattern(keys, ",")
    one_colon = pc.equal(pc.count_substring(parts.flatten(), ":"), 1)
    regular = np.logical_and.reduceat(_mask(one_colon), _starts(parts))
    odd = np.flatnonzero(~regular)
    yield rows[odd], _odd_keys(keys.take(pa.array(odd)), hash_fields)
    regular_rows = np.flatnonzero(regular)
    if len(regular_rows):
        yield from _regular_keys(keys.take(pa.array(regular_rows)), rows[regular_rows], hash_fields)


def _regular_keys(keys: pa.Array, rows: _Rows, hash_fields: Sequence[str]) -> Iterator[_Group]:
    """Yield keys in which commas and colons only separate."""
    parts = pc.split_pattern(keys, ",")
    pieces = pc.split_pattern(parts.flatten(), ":").flatten()  # name, value, name, value …
    names, values = (pieces.take(pa.array(np.arange(at, len(pieces), 2))) for at in (0, 1))
    wanted = _wanted_names(hash_fields)
    keep = np.ones(len(names), np.bool_)
    if wanted is not None:
        keep = _mask(pc.is_in(names, value_set=pa.array(sorted(wanted), names.type)))
    counts = np.add.reduceat(keep.astype(np.int64), _starts(parts))
    kept = values.filter(pa.array(keep))
    kept = pc.if_else(pc.equal(kept, _EMPTY), "", kept)
    kept = pc.if_else(pc.equal(kept, _NULL), pa.scalar(None, kept.type), kept)
    some, none = np.flatnonzero(counts), np.flatnonzero(counts == 0)
    yield rows[some], _lists(counts[some], kept)
    yield rows[none], _whole_keys(keys.take(pa.array(none)))


def _odd_keys(keys: pa.Array, hash_fields: Sequence[str]) -> pa.ListArray:
    """Return the values of keys with commas or colons in them, each distinct key once."""
    distinct = keys.dictionary_encode()
    values = [list(key_values(key, hash_fields)) for key in distinct.dictionary.to_pylist()]
    return pa.array(values, pa.list_(keys.type)).take(distinct.indices)


def _whole_keys(keys: pa.Array) -> pa.ListArray:
    return _lists(np.ones(len(keys), np.int64), keys)


def _lists(counts: npt.NDArray[np.int64], values: pa.Array) -> pa.ListArray:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _starts(lists: pa.ListArray) -> npt.NDArray[np.int64]:
    """Return where each list begins among the flattened values; none of these lists is empty."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    starts: npt.NDArray[np.int64] = offsets[:-1] - offsets[0]
    return starts


def _mask(booleans: pa.BooleanArray) -> _Mask:
    mask: _Mask = booleans.to_numpy(zero_copy_only=False)
    return mask
