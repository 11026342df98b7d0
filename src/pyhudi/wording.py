"""How counts, sizes, names and reasons are put into words for a person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

#: Reasons that a list shows. A table may have as many as it has instants.
REASONS_MAX: Final = 10

_PREFIXES = ("", "k", "M", "G", "T", "P")
_T = TypeVar("_T")


def readable(value: float, unit: str = "") -> str:
    """Return the number with at most three digits before the point.

    Where there are fewer, one follows the point.

    >>> readable(120_345), readable(45_100_000, "B"), readable(3.14), readable(512, "B")
    ('120 k', '45.1 MB', '3.1', '512 B')
    """
    prefix = 0
    while value >= 999.5 and prefix < len(_PREFIXES) - 1:
        value, prefix = value / 1000, prefix + 1
    digits = f"{value:.1f}".removesuffix(".0") if value < 99.95 else f"{value:.0f}"
    return f"{digits} {_PREFIXES[prefix]}{unit}".rstrip()


def counted(count: int, noun: str) -> str:
    """Return the number with its noun.

    >>> counted(1, "row"), counted(1234, "row")
    ('1 row', '1,234 rows')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def with_article(noun: str) -> str:
    """Return the noun with "a" or "an" before it.

    >>> with_article("DataFrame"), with_article("Expression")
    ('a DataFrame', 'an Expression')
    """
    return f"an {noun}" if noun[:1] in "AEIOaeio" else f"a {noun}"


def by_reason(found: Iterable[tuple[_T, str]]) -> Iterator[tuple[str, Sequence[_T]]]:
    """Yield each reason once, in the order of its first use, with everything it applies to.

    >>> list(by_reason([("a", "old"), ("b", "new"), ("c", "old")]))
    [('old', ['a', 'c']), ('new', ['b'])]
    """
    groups: dict[str, list[_T]] = {}
    for each, reason in found:
        groups.setdefault(reason, []).append(each)
    yield from groups.items()


def first_reasons(lines: Sequence[str], *, indent: str = "") -> list[str]:
    """Return the first lines, one for each reason, and how many more there are."""
    more = len(lines) - REASONS_MAX
    shown = [f"{indent}{line}" for line in lines[:REASONS_MAX]]
    return [*shown, f"{indent}... and {counted(more, 'more reason')}"] if more > 0 else shown


def storable(text: str) -> str:
    r"""Return the text without lone surrogates, which JSON and paths may hold and Arrow may not.

    >>> storable("a\ud800b")
    'a?b'
    """
    return text.encode("utf-8", "replace").decode()


def public_methods(kind: type) -> list[str]:
    """Return the methods that a user may call, in the order of their definition."""
    return [name for name, what in vars(kind).items() if name[0] != "_" and callable(what)]
