"""Marker folders: which data files an instant that has not completed may have left behind.

A writer announces each data file under `.hoodie/.temp/<requested>/` before creating it, so that
a rollback knows what to delete. There are two ways to do it:

- direct: one empty file per data file, named as `MarkerName.path` says;
- by timeline server: a file `MARKERS.type` names the way, and text files `MARKERS0`, `MARKERS1`
  and so on list marker paths, one to a line. Hudi's Spark writers do this by default.

pyhudi reads both, also in one folder. It writes direct markers, or lists where these were asked for
(`write.markers`); and for the copies of a resize, which are many small files, one list for each
write that is copied.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import MarkerName
from pyhudi.format.timeline.instant import InstantTime

MARKER_ROOT: Final = ".hoodie/.temp"
MARKER_TYPE_FILE: Final = "MARKERS.type"
TIMELINE_SERVER_TYPE: Final = "TIMELINE_SERVER_BASED"
DIRECT_TYPE: Final = "DIRECT"

_LIST_PREFIX = "MARKERS"


def marker_folder(requested: InstantTime) -> str:
    """Return the folder, relative to the table, of an instant's markers."""
    return f"{MARKER_ROOT}/{requested}"


def marker_path(requested: InstantTime, marker: MarkerName) -> str:
    """Return the path, relative to the table, of a direct marker."""
    return f"{marker_folder(requested)}/{marker.path}"


def marker_list_path(requested: InstantTime, number: int) -> str:
    """Return the path, relative to the table, of one of an instant's lists of markers."""
    return f"{marker_folder(requested)}/{_LIST_PREFIX}{number}"


def is_marker_list(file_name: str) -> bool:
    """True if the file lists markers.

    >>> is_marker_list("MARKERS12"), is_marker_list("MARKERS.type")
    (True, False)
    """
    number = file_name.removeprefix(_LIST_PREFIX)
    return number != file_name and number.isascii() and number.isdigit()


def decode_marker_type(data: bytes, path: str | None = None) -> str:
    """Return the type of markers, DIRECT or TIMELINE_SERVER_BASED."""
    text = data.decode("utf-8", "replace").strip()
    if text not in (DIRECT_TYPE, TIMELINE_SERVER_TYPE):
        raise _damaged(f"{text[:40]!r} is not a type of markers", path)
    return text


def decode_marker_list(data: bytes, path: str | None = None) -> tuple[MarkerName, ...]:
    """Return the markers that a `MARKERS<n>` file lists.

    A line that names no data file is refused, not skipped: a rollback that misses a file would
    leave its rows to appear later.
    """
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise _damaged("it is not UTF-8 text", path) from None
    return tuple(_listed_marker(line.rstrip("\r"), path) for line in lines if line.strip())


def _listed_marker(line: str, path: str | None) -> MarkerName:
    marker = MarkerName.parse(line)
    if marker is None:
        raise _damaged(f"the line {line[:120]!r} names no data file", path)
    return marker


def _damaged(why: str, path: str | None) -> CorruptTableError:
    return CorruptTableError(
        "a marker file cannot be read",
        why=why,
        next_step="Read it again once its writer has stopped",
        path=path,
    )


def encode_marker_list(markers: Iterable[MarkerName]) -> bytes:
    return "".join(f"{marker.path}\n" for marker in markers).encode()
