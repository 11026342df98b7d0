"""Paths as timeline files store them → paths in the table.

Hudi stores most paths relative to the table, some as bare names beside a partition path, and those
of clustering, cleaner and rollback plans as whole URIs, by the table's address where the plan was
made. Files are deleted by these paths, so each is converted to one form, relative and checked by
`table_path`, and a path outside the table is refused rather than followed.
"""

from __future__ import annotations

import re
from typing import Final

from pyhudi.errors import CorruptTableError
from pyhudi.format.paths import table_folder, table_path

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(?://([^/]*))?(/.*)", re.DOTALL)
#: Hadoop has had three connectors for one store, each with a scheme of its own.
_SAME_STORE: Final = {"s3a": "s3", "s3n": "s3"}


def required_path(path: str | None, owner: str) -> str:
    """Return a path that a record stores relative to the table and may not leave out."""
    if path is None:
        raise CorruptTableError(
            f"{owner} names no file",
            why="its path is null",
            next_step="Restore the timeline file it is in from a copy of the table",
        )
    return table_path(path)


def path_in_partition(partition_path: str | None, name: str) -> str:
    """Return the path of a file that a record stores as a bare name beside its partition path.

    >>> path_in_partition("day=1", "a.parquet"), path_in_partition("", "a.parquet")
    ('day=1/a.parquet', 'a.parquet')
    """
    if "/" in name:
        raise _refusal(name, "it should be a bare file name")
    folder = table_folder(partition_path or "")
    return table_path(f"{folder}/{name}" if folder else name)


def relative_to_table(path: str, base_uri: str) -> str:
    """Return a stored path, whole or relative already, as a path in the table at `base_uri`.

    >>> relative_to_table("file:/data/orders/day=1/a.parquet", "file:///data/orders")
    'day=1/a.parquet'
    >>> relative_to_table("s3a://lake/orders/a.parquet", "s3://lake/orders/")
    'a.parquet'
    """
    whole = _parts(path)
    if whole is None:
        return table_path(path)
    base = _parts(base_uri.rstrip("/") + "/")
    assert base is not None, f"{base_uri!r} is not an absolute path or URI"
    # A path without a scheme was printed without it, not stored elsewhere.
    if whole[0] is not None and whole[0] != (base[0] or ("file", "")):
        raise _refusal(path, f"it is in another store than the table at {base_uri!r}")
    if not whole[1].startswith(base[1]):
        raise _refusal(path, f"it is outside the table at {base_uri!r}")
    return table_path(whole[1].removeprefix(base[1]))


def _parts(path: str) -> tuple[tuple[str, str] | None, str] | None:
    """Return ((scheme, host), path) of a whole path, without the pair if it has no scheme."""
    if path.startswith("/"):
        return None, path
    matched = _URI.fullmatch(path)
    if matched is None:
        return None
    scheme = matched[1].lower()
    return (_SAME_STORE.get(scheme, scheme), matched[2] or ""), matched[3]


def _refusal(path: str, why: str) -> CorruptTableError:
    return CorruptTableError(
        f"{path[:200]!r} is not a path of this table",
        why=why,
        next_step="If the table was moved, execute its pending plans where they were made",
    )
