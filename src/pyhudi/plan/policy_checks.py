"""Whether a policy can be used: the checks that the policies of all services share.

`advice` is what the error tells its reader to do.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any, TypeVar

from pyhudi.errors import InvalidRequestError

Word = TypeVar("Word", bound=StrEnum)


def require_whole(name: str, value: object, least: int, advice: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise unusable(name, value, f"it must be a whole number, at least {least:,}", advice)


def require_number(name: str, value: Any, least: float, most: float, advice: str) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value <= most or math.isinf(value):
        bounds = f"at least {least:g}" if math.isinf(most) else f"from {least:g} to {most:g}"
        raise unusable(name, value, f"it must be a number {bounds}", advice)


def word_of(name: str, value: Any, words: type[Word], advice: str) -> Word:
    """Return the word that the value is, or stands for."""
    try:
        return words(value)
    except ValueError:
        listed = ", ".join(repr(word.value) for word in words)
        raise unusable(name, value, f"it is one of {listed}", advice) from None


def unusable(name: str, value: object, why: str, advice: str) -> InvalidRequestError:
    return InvalidRequestError(f"{name}={value!r:.100} cannot be used", why=why, next_step=advice)
