"""A table whose timeline is empty: the table is new, or has lost its timeline, or is gone.

Only a new table has no rows. Readers of the other two must not show an empty table. A write to a
table that lost its timeline would start a new timeline. Readers count each file that is older than
all writes of the timeline as committed, so rows of writes that failed long ago would come back.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyhudi.errors import CorruptTableError
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.instant import is_timeline_file
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import FileGroupFiles


def is_begun_now(storage: Storage, folder: str, groups: Iterable[FileGroupFiles]) -> bool:
    """True if a writer began the table after its timeline was listed as empty.

    CorruptTableError for data files without a timeline, which is listed once more after the files.
    """
    found = next((file.path for group in groups for file in group.files), None)
    if found is None:
        return False
    if not has_instants(storage, folder):
        raise missing_timeline_error(storage, folder, found)
    return True


def has_instants(storage: Storage, folder: str) -> bool:
    """True if the timeline's folder has the file of an instant."""
    objects = storage.list_folder(folder).objects
    return any(is_timeline_file(file_name(stat.path)) for stat in objects)


def missing_timeline_error(storage: Storage, folder: str, path: str) -> CorruptTableError:
    return CorruptTableError(
        f"the table at {storage.uri} has data files and no completed write",
        why=f"files of {folder} are missing, where at least the last write should be; "
        "no data file was removed",
        next_step=f"Put {folder} back from a copy, or from versions that the store keeps. "
        "Without either, create a new table at another path",
        path=path,
    )
