"""Which names of columns are not the user's to give, and whose are they?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: How the names begin, and whose they are. Spark does not see case, so it makes no difference.
_RESERVED: Final[Mapping[str, str]] = {
    "_hoodie_": "Hudi's",
    "_pyhudi_": "pyhudi's",
    "__pyhudi_": "pyhudi's",
}


def reservation(name: str) -> str | None:
    """Return why a column that a user adds cannot have the name; None if it can.

    >>> reservation("_hoodie_file_name")
    "names that begin with '_hoodie_' are Hudi's own"
    """
    for start, owner in _RESERVED.items():
        if name.lower().startswith(start):
            return f"names that begin with {start!r} are {owner} own"
    return None


def is_reserved(name: str) -> bool:
    """True if Hudi or pyhudi fills in the column of that name."""
    return reservation(name) is not None
