"""A table that has rows and no timeline: somebody lost the folder, or copied the table without it.

Readers see nothing there. But the first write would make a timeline anew, and readers count each
file that is older than all writes of the timeline as committed: rows of writes that failed long ago
would come back. So nobody writes to such a table.
"""

from __future__ import annotations

from pyhudi.engine.load import list_data_files
from pyhudi.errors import CorruptTableError
from pyhudi.format.file_names import parse_data_file
from pyhudi.format.instant import is_timeline_file
from pyhudi.storage.protocol import Storage


def require_timeline(storage: Storage, folder: str) -> None:
    """CorruptTableError for a table with data files and an empty timeline.

    Only files with the name of a Hudi data file count. A `.DS_Store`, a `_SUCCESS` or a notebook's
    checkpoints may lie in the folder before the table is created. The timeline is listed once more
    after the files, because another writer may have begun the table meanwhile.
    """
    if _has_instants(storage, folder):
        return
    paths = (stat.path for stat in list_data_files(storage))
    found = next((path for path in paths if parse_data_file(path.rpartition("/")[2])), None)
    if found is not None and not _has_instants(storage, folder):
        raise lost_timeline(storage, folder, found)


def _has_instants(storage: Storage, folder: str) -> bool:
    objects = storage.list_folder(folder).objects
    return any(is_timeline_file(stat.path.rpartition("/")[2]) for stat in objects)


def lost_timeline(storage: Storage, folder: str, path: str) -> CorruptTableError:
    return CorruptTableError(
        f"the table at {storage.uri} has data files and no completed write",
        why=f"files of {folder} are missing, where at least the last write should be; "
        "no data file was removed",
        next_step=f"Put {folder} back from a copy, or from versions that the store keeps. "
        "Remove the data files yourself if nobody needs them",
        path=path,
    )
