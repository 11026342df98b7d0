"""Base files of a resize's children that are there already."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import BaseFileName, FileGroupId
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.storage.protocol import Storage
from pyhudi.write.files.base_file import base_stat
from pyhudi.write.files.spec import WRITE_TOKEN, data_path


def found_bases(
    storage: Storage, requested: InstantTime, groups: Sequence[FileGroupId]
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
        try:
            with storage.open(path) as source:
                rows = pq.read_metadata(source).num_rows
        except FileNotFoundError:
            return None  # cancelled
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _not_sound(requested, path, error) from None
        stats.append(base_stat(group, name, rows, stat.size, None))
    return tuple(stats)


def _not_sound(requested: str, path: str, error: Exception) -> CorruptTableError:
    return CorruptTableError(
        f"the resize {requested} cannot be executed",
        why=f"the base file that an earlier attempt left is not sound parquet ({error})",
        next_step="Cancel it with cancel_resize, which removes the file and loses no row",
        path=path,
    )
