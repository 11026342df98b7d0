"""What the process that closes a resize notes of the files it has made, for the one that ends it.

    .hoodie/.temp/<requested>/made.json   {"v": 1, "files": {path: [bytes, rows, inserts, deletes]}}

The completion of a resize counts the rows of each file. They are in the files: in the footers of
base files, which may be large, and in the blocks of logs. A writer that meets a closed resize has
no time to read them all. A note only saves that. What it lacks is read from the file, and so is
what it has with another size than the file's. Bytes that are no note count as none.

The note lies among the markers of the resize, which are removed together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.markers import marker_folder

MADE_BYTES_MAX: Final = 16 << 20
_VERSION = 1
_COUNT_MAX = 2**53


class MadeFile(NamedTuple):
    """The size of a file, and what a stat counts in it."""

    size: int
    rows: int
    inserts: int
    deletes: int

    def counted(self, stat: WriteStat) -> WriteStat:
        """Return the stat of the file with these counts."""
        updates = 0 if stat.log_files is None else self.rows - self.inserts
        return replace(
            stat,
            num_writes=self.rows,
            num_inserts=self.inserts,
            num_update_writes=updates,
            num_deletes=self.deletes,
        )


def made_path(requested: InstantTime) -> str:
    return f"{marker_folder(requested)}/made.json"


def encode_made(stats: Iterable[WriteStat]) -> bytes:
    files = {
        stat.path: (
            stat.file_size_in_bytes,
            stat.num_writes,
            stat.num_inserts,
            stat.num_deletes,
        )
        for stat in stats
    }
    return json.dumps({"v": _VERSION, "files": files}, separators=(",", ":")).encode()


def decode_made(data: bytes) -> Mapping[str, MadeFile]:
    """Return the files by path; none if these bytes are no note of this version."""
    if len(data) > MADE_BYTES_MAX:
        return {}
    try:
        record = json.loads(data)
        if record["v"] != _VERSION:
            return {}
        return {str(path): _made_file(counts) for path, counts in record["files"].items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def _made_file(counts: Any) -> MadeFile:
    made = MadeFile(*counts)
    are_counts = all(type(count) is int and 0 <= count < _COUNT_MAX for count in made)
    if not are_counts or made.inserts > made.rows:
        raise ValueError(f"{counts!r} cannot be counts")
    return made
