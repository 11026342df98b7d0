"""obstore's errors in our own kinds, with every secret taken out of their text.

The class of obstore's error says what was refused, its text why. The text spans lines and may quote
addresses, headers and options, so only its first line is kept, and redacted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from obstore.exceptions import (
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from pyhudi.errors import CorruptTableError, HudiError, InvalidRequestError, UnavailableError
from pyhudi.storage.redaction import redacted

_TEXT_CHARACTERS_MAX = 500

# S3 answers this when another request for the same key was in progress: it is not known yet whether
# the key is taken. obstore reports it as "already exists".
_UNDECIDED = ("ConditionalRequestConflict", "OperationAborted")

_ADDRESS_NAME = re.compile(r"(?:endpoint(?:_url(?:_s3)?)?|base_url)\Z", re.IGNORECASE)

# For a refused listing obstore has these in its text alone.
_FORBIDDEN = ("status code: 401", "status code: 403")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
# How the client refuses an address of http when only https is allowed, before it sends anything.
_PLAIN_HTTP = ("source: BadScheme",)


def is_undecided(error: Exception) -> bool:
    return _says(error, _UNDECIDED)


def _says(error: Exception, phrases: tuple[str, ...]) -> bool:
    return any(phrase in str(error) for phrase in phrases)


def translated(
    error: Exception, operation: str, path: str, *, uri: str, secrets: tuple[str, ...]
) -> HudiError | OSError:
    """Return the error to raise for one that came out of an operation on a path."""
    if isinstance(error, FileNotFoundError) and operation in ("read", "stat", "delete"):
        return FileNotFoundError(path)
    what = f"{operation} of {path!r} in {uri} failed"
    why = _first_line(error, secrets)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or _says(error, _FORBIDDEN):
        return InvalidRequestError(
            what, why=why, next_step="Give credentials that allow it in the storage options"
        )
    if _says(error, _PLAIN_HTTP):
        return InvalidRequestError(
            what,
            why="the endpoint is plain http, which is not allowed unless configured",
            next_step="Give allow_http='true' in the storage options, or an https endpoint",
        )
    if _says(error, _NO_BUCKET):
        return InvalidRequestError(what, why=why, next_step="Create the bucket first")
    match error:
        case FileNotFoundError():
            return InvalidRequestError(what, why=why, next_step="Create the bucket first")
        case NotSupportedError() | NotImplementedError():
            return InvalidRequestError(
                what, why=why, next_step="Use a store that takes conditional writes"
            )
        case InvalidPathError():
            return CorruptTableError(
                what, why=why, next_step="Move the object with the impossible name out of the table"
            )
    return UnavailableError(what, why=why, next_step="Repeat the call when the store answers again")


def invalid_options(error: Exception, *, uri: str, secrets: tuple[str, ...]) -> InvalidRequestError:
    return InvalidRequestError(
        f"{uri} cannot be opened",
        why=_first_line(error, secrets),
        next_step="Correct the storage options",
    )


def check_addresses(options: Mapping[str, str], *, uri: str) -> None:
    """Raise InvalidRequestError for an address that would make obstore panic."""
    for name, value in options.items():
        if _ADDRESS_NAME.search(name) and not _is_address(value):
            raise InvalidRequestError(
                f"{uri} cannot be opened",
                why=f"the storage option {name!r} is not of the form http(s)://host[:port]",
                next_step="Correct the storage options",
            )


def _is_address(value: str) -> bool:
    try:
        parts = urlsplit(value)
        return bool(parts.hostname and parts.port != 0) and parts.scheme in ("http", "https")
    except (ValueError, AttributeError):
        return False


def _first_line(error: Exception, secrets: tuple[str, ...]) -> str:
    line = redacted(str(error), secrets).strip().partition("\n")[0]
    return line[:_TEXT_CHARACTERS_MAX].rstrip(". ") or type(error).__name__
