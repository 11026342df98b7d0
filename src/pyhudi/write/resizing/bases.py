"""Base files of a resize's children that are there already, and what was noted of its files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import BaseFileName, FileGroupId
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.made_files import (
    MADE_BYTES_MAX,
    MadeFile,
    decode_made,
    encode_made,
    made_path,
)
from pyhudi.storage.protocol import Storage
from pyhudi.write.files.base_file import base_stat
from pyhudi.write.files.spec import WRITE_TOKEN, data_path


def load_made(storage: Storage, requested: InstantTime) -> Mapping[str, MadeFile]:
    """Return what another process noted of the files that it has made, by path."""
    try:
        return decode_made(storage.read(made_path(requested), 0, MADE_BYTES_MAX + 1))
    except FileNotFoundError:
        return {}


def note_made(storage: Storage, requested: InstantTime, stats: Iterable[WriteStat]) -> None:
    """Note the files that were made, for the process that ends the resize."""
    storage.write(made_path(requested), encode_made(stats))


def found_bases(
    storage: Storage,
    requested: InstantTime,
    groups: Sequence[FileGroupId],
    made: Mapping[str, MadeFile],
) -> tuple[WriteStat, ...] | None:
    """Return the stats of the children's base files; None unless all are there."""
    names = [BaseFileName(group.file_id, WRITE_TOKEN, requested).file_name for group in groups]
    paths = [data_path(g.partition, name) for g, name in zip(groups, names, strict=True)]
    stats = []
    found = storage.stat_all(paths)
    if None in found:
        return None
    for group, name, path, stat in zip(groups, names, paths, found, strict=True):
        assert stat is not None
        noted = made.get(path)
        if noted is not None and noted.size == stat.size:
            rows: int | None = noted.rows
        else:
            rows = _load_rows(storage, requested, path)
        if rows is None:
            return None  # cancelled
        stats.append(base_stat(group, name, rows, stat.size, None))
    return tuple(stats)


def _load_rows(storage: Storage, requested: str, path: str) -> int | None:
    try:
        with storage.open(path) as source:
            return int(pq.read_metadata(source).num_rows)
    except FileNotFoundError:
        return None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _not_sound(requested, path, error) from None


def _not_sound(requested: str, path: str, error: Exception) -> CorruptTableError:
    return CorruptTableError(
        f"the resize {requested} cannot be executed",
        why=f"the base file that an earlier attempt left is not sound parquet ({error})",
        next_step="Cancel it with cancel_resize, which removes the file and loses no row",
        path=path,
    )
