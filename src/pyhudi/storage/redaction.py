"""Keeping secrets out of every text that a person or a log may see."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

REDACTED = "***"

_SECRET_WORD = r"(?:key|secret|token|password|passwd|credential|sas|sig)"
_SECRET_NAME = re.compile(_SECRET_WORD, re.IGNORECASE)

# user:password@ after any scheme, up to the last @, for a password may hold a slash; and a user
# alone, which may be a token. (In abfss://container@account the part before the @ is not a secret.)
_USER = re.compile(
    r"(?<![a-z0-9+.\-])(?:([a-z][a-z0-9+.\-]*+://)[^/@\s]*:\S*@"
    r"|(?!abfss?:)([a-z][a-z0-9+.\-]*+://)[^/@\s]+@)",
    re.IGNORECASE,
)

# name=value, as in a shared access signature or a presigned address.
_PARAMETER = re.compile(
    rf"(?<![\w.\-])([\w.\-]*{_SECRET_WORD}[\w.\-]*+=)[^&\s\"'<>]+", re.IGNORECASE
)

#: From this length on a secret is removed wherever it is found, also within a word.
_LONG_SECRET = 8
#: Beyond this a text is cut: patterns take longer than linear time, and people do not read so far.
_CHARACTERS_MAX = 4_000


def secret_values(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values that must not be shown, longest first: one may be part of another."""
    values = {value for name, value in options.items() if _SECRET_NAME.search(name) and value}
    values |= {quote(value, safe="") for value in values}
    return tuple(sorted(values, key=lambda value: (-len(value), value)))


def _without(text: str, secret: str) -> str:
    """Return the text without the secret; a short one is removed as a whole word only.

    Within words, a key such as `a` would make every text unreadable.
    """
    if len(secret) >= _LONG_SECRET:
        return text.replace(secret, REDACTED)
    return re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", REDACTED, text)


def redacted(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Return the text without these secrets and without what looks like one.

    >>> redacted("PUT https://me:pw@host/x?sv=1&sig=abc%3D failed for AKIA1", ("AKIA1",))
    'PUT https://***@host/x?sv=1&sig=*** failed for ***'
    """
    for secret in secrets:
        text = _without(text, secret)
    if len(text) > _CHARACTERS_MAX:
        text = f"{text[:_CHARACTERS_MAX]}..."
    text = _USER.sub(lambda match: f"{match[1] or match[2]}{REDACTED}@", text)
    return _PARAMETER.sub(rf"\1{REDACTED}", text)
