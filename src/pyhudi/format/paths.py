"""Paths inside a table: relative, of plain segments, and never decoded.

Partition values, commit metadata, markers and clean and rollback plans all name files by path, and
the table's writers chose those names. A path that climbs out of the table would let a forged plan
delete files outside the table. So there is one definition of what a path may be, and storage checks
every path by it.

A percent sequence is never decoded. Hudi may write the partition value "a/b" as the folder
"a%2Fb", and decoding it before joining would let a path climb out after all.
"""

from __future__ import annotations

import re

from pyhudi.errors import CorruptTableError

PATH_BYTES_MAX = 4096  # no file system or object store we speak to takes a longer one

_SHOWN_CHARACTERS_MAX = 200  # of a bad path, in an error

# One or more segments, each neither empty nor a dot nor two dots, without backslash, control
# characters or lone surrogates (which have no bytes in UTF-8). Nearly every path is a good one,
# so this is the whole cost; the reason for a refusal is looked for afterwards.
_SEGMENT = r"(?!\.{1,2}(?:/|\Z))[^/\\\x00-\x1f\x7f-\x9f\ud800-\udfff]+"
_PATH = re.compile(rf"(?![A-Za-z][A-Za-z0-9+.\-]*:/){_SEGMENT}(?:/{_SEGMENT})*\Z")

_REASONS = (
    (re.compile(r"\Z"), "it is empty"),
    (re.compile(r"/"), "it is absolute"),
    (re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:/"), "it begins with a scheme"),
    (re.compile(r".*[\x00-\x1f\x7f-\x9f]", re.DOTALL), "it holds a control character"),
    (re.compile(r".*\\"), "it holds a backslash"),
    (re.compile(r".*[\ud800-\udfff]"), "it has no form in UTF-8"),
    (re.compile(r"(?:.*/)?\.{1,2}(?:/|\Z)"), "it holds a segment '.' or '..'"),
    (re.compile(r".*(?://|/\Z)"), "it holds an empty segment"),
)


def table_path(path: str) -> str:
    """Return the path if it names something below the table's root.

    CorruptTableError if it does not.

    >>> table_path("day=2026-01-01/a%2Fb.parquet")
    'day=2026-01-01/a%2Fb.parquet'
    >>> table_path("day=../../x")
    Traceback (most recent call last):
    pyhudi.errors.CorruptTableError: 'day=../../x' is not a path inside a table: it holds a \
segment '.' or '..'. Find the commit, plan or partition that names it, and check its writer.
    """
    if _PATH.match(path) is None:
        raise _refusal(path, next(why for shape, why in _REASONS if shape.match(path)))
    if len(path) > PATH_BYTES_MAX // 4 and len(path.encode()) > PATH_BYTES_MAX:
        raise _refusal(path, f"it is longer than {PATH_BYTES_MAX} bytes")
    return path


def table_folder(path: str) -> str:
    """Return the path as `table_path` does, but accept the empty text for the root folder."""
    return path and table_path(path)


def file_name(path: str) -> str:
    """Return the last segment of a path.

    >>> file_name("day=1/a.parquet"), file_name("a.parquet")
    ('a.parquet', 'a.parquet')
    """
    return path.rpartition("/")[2]


def _refusal(path: str, why: str) -> CorruptTableError:
    shown = path if len(path) <= _SHOWN_CHARACTERS_MAX else path[:_SHOWN_CHARACTERS_MAX] + "…"
    return CorruptTableError(
        f"{shown!r} is not a path inside a table",
        why=why,
        next_step="Find the commit, plan or partition that names it, and check its writer",
    )
