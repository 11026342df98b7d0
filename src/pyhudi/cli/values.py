"""The values of options: times, sizes, and pairs of a key and a value."""

from __future__ import annotations

import argparse
import re

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_SIZES = {None: 0, "KB": 10, "MB": 20, "GB": 30, "TB": 40}  # shift in bits


def milliseconds_of(text: str) -> int:
    """Parse a duration.

    >>> milliseconds_of("30s"), milliseconds_of("1.5m"), milliseconds_of("250ms")
    (30000, 90000, 250)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write 30s, 5m or 1h")
    return round(float(found[1]) * _UNITS[found[2]])


def pause_of(text: str) -> int:
    """Parse a duration that is not zero.

    >>> pause_of("250ms")
    250
    """
    if not (milliseconds := milliseconds_of(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a pause; write 1s or longer")
    return milliseconds


def seconds_of(text: str) -> int:
    """Parse a duration of whole seconds.

    >>> seconds_of("90s"), seconds_of("1.5h")
    (90, 5400)
    """
    seconds, rest = divmod(milliseconds_of(text), 1_000)
    if rest:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of seconds")
    return seconds


def bytes_of(text: str) -> int:
    """Parse a size; 1 KB is 1,024 bytes.

    >>> bytes_of("4096"), bytes_of("64MB"), bytes_of("50GB")
    (4096, 67108864, 53687091200)
    """
    found = re.fullmatch(r"(\d+)(KB|MB|GB|TB)?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write 4096, 64MB or 50GB")
    return int(found[1]) << _SIZES[found[2]]


def option_of(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError("write KEY=VALUE")
    return key, value
