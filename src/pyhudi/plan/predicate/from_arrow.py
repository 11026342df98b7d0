"""A pyarrow expression → the tree that `where` takes.

pyarrow shows no tree of an expression. But it pickles one as an Arrow IPC file, whose schema lists
the tree in its metadata, in order: `call` … `end` around the arguments of a function, `field_ref`,
`nested_field_ref`, `literal` and `options`. The last two name a column of the file's only row, with
the value in its own type. So nothing is lost and nothing is guessed, as it would be in the text
that an expression prints as; whatever is not listed here is refused by its name.

What pyarrow and SQL mean differently is written out: `isin` is false for a null, not unknown, and
finds it if a null is among the values. NaN is as everywhere in `where`: equal to itself, and larger
than any other number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequestError
from pyhudi.plan.predicate.tree import (
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    joined,
    like_text,
)

_MAGIC_BYTES = 8  # in front of the first message of an IPC file
_MATCH, _SKIP = 0, 1  # what `is_in` does about nulls

_COMPARISONS: Final = {
    "equal": Operator.EQUAL,
    "not_equal": Operator.NOT_EQUAL,
    "less": Operator.LESS,
    "less_equal": Operator.LESS_OR_EQUAL,
    "greater": Operator.GREATER,
    "greater_equal": Operator.GREATER_OR_EQUAL,
}
_PATTERNS: Final = {"starts_with": "{}%", "ends_with": "%{}", "match_substring": "%{}%"}


def from_arrow(expression: pc.Expression) -> Predicate:
    """Return the predicate that keeps the rows that a filter by the expression keeps."""
    try:
        _, (data,) = expression.__reduce__()
    except pa.ArrowException as error:
        raise _refusal(f"pyarrow does not spell it out ({error})") from None
    row = pa.ipc.open_file(data).get_batch(0)
    calls: list[_Call] = [_Call("")]
    parts: list[str] = []  # of a nested field's name
    missing = 0
    for key, value in _metadata(data):
        match key:
            case "call":
                calls.append(_Call(value))
            case "nested_field_ref":
                missing = int(value)
            case "field_ref" if missing:
                parts.append(value)
                if len(parts) == missing:
                    calls[-1].arguments.append(Column(tuple(parts)))
                    parts, missing = [], 0
            case "field_ref":
                calls[-1].arguments.append(Column((value,)))
            case "literal":
                calls[-1].arguments.append(_literal(row.column(int(value))[0]))
            case "options":
                calls[-1].options = row.column(int(value))[0]
            case "end":
                ended = calls.pop()
                calls[-1].arguments.append(ended.predicate())
            case _:
                raise _refusal(f"it holds {key!r}, which pyhudi does not know")
    [found] = calls[-1].arguments
    return found


class _Call:
    """A function with what has been read of its arguments."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.arguments: list[Predicate] = []
        self.options: pa.StructScalar | None = None

    def predicate(self) -> Predicate:
        match self.function, self.arguments:
            case name, [Column() | Literal() as left, Column() | Literal() as right] if (
                name in _COMPARISONS
            ):
                return Comparison(_COMPARISONS[name], left, right)
            case "and_kleene", [left, right]:
                return joined(And, (left, right))
            case "or_kleene", [left, right]:
                return joined(Or, (left, right))
            case "invert", [operand]:
                return Not(operand)
            case "is_null", [Column() as column] if self._option("nan_is_null") is False:
                return IsNull(column)
            case "is_valid", [Column() as column]:
                return IsNull(column, negated=True)
            case "is_in", [Column() as column]:
                return self._is_in(column)
            case name, [Column() as column] if (
                name in _PATTERNS and self._option("ignore_case") is False
            ):
                return Like(column, _PATTERNS[name].format(like_text(self._option("pattern"))))
        raise _refusal(f"{self.function!r} cannot be used like this, or not at all")

    def _is_in(self, column: Column) -> Predicate:
        nulls = self._option("null_matching_behavior")
        if nulls not in (_MATCH, _SKIP) or self.options is None:
            raise _refusal("'is_in' treats nulls in a way that pyhudi does not")
        literals = tuple(map(_literal, self.options["value_set"].values))
        values = tuple(literal for literal in literals if literal.value is not None)
        if any(isinstance(literal.value, float) and not literal.value for literal in values):
            raise _refusal("'is_in' of pyarrow separates 0.0 from -0.0, which are equal elsewhere")
        is_found = In(column, values) if values else Literal(False)
        if nulls == _MATCH and len(values) < len(literals):
            return Or((IsNull(column), is_found))
        return And((IsNull(column, negated=True), is_found))

    def _option(self, name: str) -> Any:
        options: Mapping[str, Any] = self.options or {}
        return options[name].as_py() if name in options else None


def _literal(scalar: pa.Scalar) -> Literal:
    if pa.types.is_timestamp(scalar.type):
        try:
            zone = None if scalar.type.tz is None else "UTC"
            scalar = scalar.cast(pa.timestamp("us", zone))
        except pa.ArrowException:
            raise _refusal(f"{scalar} has parts of a microsecond") from None
    return Literal(scalar.as_py())


def _refusal(why: str) -> InvalidRequestError:
    return InvalidRequestError(
        "the pyarrow expression cannot be used as a predicate",
        why=why,
        next_step="Write it as SQL text, or filter the rows afterwards; docs/predicates.md has"
        " what can be translated",
    )


# ---- the metadata of the file's schema, in which a key may occur many times


def _metadata(file: pa.Buffer) -> Iterator[tuple[str, str]]:
    """Yield the pairs in order, of the flatbuffer that a schema is in an IPC file.

    pyarrow's own `schema.metadata` is a dictionary, which keeps one pair of each key.
    """
    message = pa.ipc.read_message(pa.BufferReader(file.slice(_MAGIC_BYTES)))
    data = message.metadata.to_pybytes()
    schema = _reference(data, _slot(data, _reference(data, 0), 2))
    pairs = _reference(data, _slot(data, schema, 2))
    for number in range(_unsigned(data, pairs)):
        pair = _reference(data, pairs + 4 + 4 * number)
        yield _text(data, _slot(data, pair, 0)), _text(data, _slot(data, pair, 1))


def _slot(data: bytes, table: int, number: int) -> int:
    """Return where a table has its field of this number."""
    slots = table - struct.unpack_from("<i", data, table)[0]
    (offset,) = struct.unpack_from("<H", data, slots + 4 + 2 * number)
    return int(table + offset)


def _reference(data: bytes, at: int) -> int:
    return at + _unsigned(data, at)


def _unsigned(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def _text(data: bytes, at: int) -> str:
    start = _reference(data, at)
    return data[start + 4 : start + 4 + _unsigned(data, start)].decode()
