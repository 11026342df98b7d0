"""Where a table lies: the parts of its address.

The address is read the way Spark and Hadoop read it: the text after the bucket is the key, a
percent sequence in it is literal, and there is no query. An address ends up in logs and commit
metadata, so one that carries credentials is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.paths import table_folder, table_path
from pyhudi.storage.redaction import redacted

__all__ = ["Location", "table_folder", "table_path"]

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/?#]*)(.*)\Z", re.DOTALL)
_NAME = r"[A-Za-z0-9._\-]+"
_AUTHORITY = re.compile(rf"{_NAME}\Z")
_AUTHORITY_OF_ABFS = re.compile(rf"{_NAME}(@{_NAME})?\Z")  # container@account.dfs.core.windows.net


@dataclass(frozen=True, slots=True)
class Location:
    """A root in an object store: its scheme, its bucket or container, and the key's beginning."""

    scheme: str
    authority: str
    prefix: str

    @classmethod
    def parse(cls, uri: str) -> Location:
        match = _URI.match(uri)
        if match is None:
            raise _refusal(uri, "it is not of the form scheme://bucket/path")
        scheme, authority, rest = match[1].lower(), match[2], match[3]
        allowed = _AUTHORITY_OF_ABFS if scheme in ("abfs", "abfss") else _AUTHORITY
        if not allowed.match(authority):
            raise _refusal(uri, "what should be the bucket's name is not one")
        if "?" in rest:
            raise _refusal(uri, "it has a query")
        try:
            return cls(scheme, authority, table_folder(rest.strip("/")))
        except CorruptTableError as error:
            raise _refusal(uri, error.why) from None

    @property
    def uri(self) -> str:
        return f"{self.scheme}://{self.authority}/{self.prefix}".rstrip("/")


def _refusal(uri: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{redacted(uri)!r} is not an address of a table",
        why=why,
        next_step="Give scheme://bucket/path and put credentials into the storage options",
    )
