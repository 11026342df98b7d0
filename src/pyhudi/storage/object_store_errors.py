"""obstore's errors in our own kinds, with every secret taken out of their text.

obstore tells by class what was refused and by text what was said. Its text spans lines and may
quote addresses, headers and options, so only its first line is kept, and redacted.
"""

from __future__ import annotations

from obstore.exceptions import (
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from pyhudi.errors import CorruptTableError, HudiError, InvalidRequestError, UnavailableError
from pyhudi.storage.redaction import redacted

_TEXT_CHARACTERS_MAX = 500

# S3 answers so when another request for the same key was under way: nobody knows yet whether the
# key is taken. obstore takes it for "already exists".
_UNDECIDED = ("ConditionalRequestConflict", "OperationAborted")

_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")


def is_undecided(error: Exception) -> bool:
    return any(code in str(error) for code in _UNDECIDED)


def translated(
    error: Exception, operation: str, path: str, *, uri: str, secrets: tuple[str, ...]
) -> HudiError | OSError:
    """The error to raise for one that came out of an operation on a path."""
    reads = operation in ("read", "stat", "delete")
    if isinstance(error, FileNotFoundError) and reads:
        return FileNotFoundError(path)
    what = f"{operation} of {path!r} in {uri} failed"
    why = _first_line(error, secrets)
    match error:
        case PermissionDeniedError() | UnauthenticatedError():
            return InvalidRequestError(
                what, why=why, next_step="Give credentials that allow it in the storage options"
            )
        case FileNotFoundError():
            return InvalidRequestError(what, why=why, next_step="Create the bucket first")
        case NotSupportedError() | NotImplementedError():
            return InvalidRequestError(
                what, why=why, next_step="Use a store that takes conditional writes"
            )
        case InvalidPathError():
            return CorruptTableError(
                what, why=why, next_step="Remove the object with the impossible name"
            )
    if any(code in str(error) for code in _NO_BUCKET):
        return InvalidRequestError(what, why=why, next_step="Create the bucket first")
    return UnavailableError(what, why=why, next_step="Repeat the call when the store answers again")


def invalid_options(error: Exception, *, uri: str, secrets: tuple[str, ...]) -> InvalidRequestError:
    return InvalidRequestError(
        f"{uri} cannot be opened",
        why=_first_line(error, secrets),
        next_step="Correct the storage options",
    )


def _first_line(error: Exception, secrets: tuple[str, ...]) -> str:
    line = redacted(str(error), secrets).strip().partition("\n")[0]
    return line[:_TEXT_CHARACTERS_MAX].rstrip(". ") or type(error).__name__
