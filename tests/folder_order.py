"""The order of the package's parts: which of them each may know about.

A part is a folder or a module directly under `pyhudi`. `test_architecture.py` judges imports by
this table, and `scripts/walk.py` the calls that a running write makes.
"""

from __future__ import annotations

_BASE = {"errors", "settings", "version", "wording"}
_FORMAT = _BASE | {"format"}
_TIMELINE = _FORMAT | {"timeline"}
_TABLE = _TIMELINE | {"table"}
_INDEX = _TABLE | {"index"}
#: Parts that touch neither clock nor storage.
PURE = _INDEX | {"plan", "conflict"}
_STORAGE = PURE | {"world", "progress", "storage"}
_READ = _STORAGE | {"read"}
_COMMIT = _READ | {"commit"}
_SESSION = _COMMIT | {"session"}
_WRITE = _SESSION | {"notebook", "write"}
_SERVICES = _WRITE | {"services"}
_SPARK = _SERVICES | {"spark"}
_API = _SPARK | {"hudi_options", "api"}

#: What each part may import, beside itself. Reading down the table is reading up the architecture.
MAY_IMPORT = {
    "errors": set[str](),
    "version": set[str](),
    "wording": set[str](),
    "settings": {"errors"},
    "world": {"errors"},
    "progress": {"errors", "wording", "world"},
    "notebook": {"progress", "wording"},
    "format": _BASE,
    "timeline": _FORMAT,
    "table": _TIMELINE,
    "index": _TABLE,
    "plan": _INDEX,
    "conflict": _INDEX,
    "storage": _TIMELINE | {"world"},
    "read": _STORAGE,
    "commit": _READ,
    "session": _COMMIT,
    "write": _SESSION | {"notebook"},
    "services": _WRITE,
    "spark": _SERVICES,
    "hudi_options": _READ,
    "api": _SPARK | {"hudi_options"},
    "cli": _API,
    "service": {"cli"},
    "simulate": _SERVICES,
    "__init__": _API,
}

_RANK = {part: rank for rank, part in enumerate(MAY_IMPORT)}


def part_of(path: str) -> str:
    """Return the part that a file belongs to, by its path below `pyhudi`.

    >>> part_of("write/files/spec.py"), part_of("errors.py")
    ('write', 'errors')
    """
    return path.partition("/")[0].removesuffix(".py")


def stands_above(part: str, other: str) -> bool:
    """True if the first part stands above the other in the table.

    >>> stands_above("write", "commit"), stands_above("format", "storage")
    (True, False)
    """
    return _RANK[part] > _RANK[other]
