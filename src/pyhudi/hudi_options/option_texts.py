"""The texts of options as values; an option that cannot be one is refused by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pyhudi.errors import InvalidRequestError
from pyhudi.hudi_options.classes import refused_option

_T = TypeVar("_T")
_DIGITS_MAX = 18


def agreed(
    given: Mapping[str, str], spellings: Sequence[str], parse: Callable[[str, str], _T]
) -> _T | None:
    """Return the value of the options of one meaning; None if none is set."""
    found = {name: parse(name, given[name].strip()) for name in spellings if name in given}
    if not found:
        return None
    first, *others = found
    for other in others:
        if found[other] != found[first]:
            raise InvalidRequestError(
                f"options {first}={given[first]!r} and {other}={given[other]!r} contradict",
                why="they are two names of the same thing",
                next_step="Leave one out",
            )
    return found[first]


def number(option: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        raise refused_option(option, text, "it is a whole number")
    return int(text)


def flag(option: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise refused_option(option, text, "it is true or false")
    return text.lower() == "true"
