"""A table that has rows and no timeline: the folder was lost, or not copied with the table.

Nothing is written to such a table, for the reason that `empty_table` gives.
"""

from __future__ import annotations

from pyhudi.format.files.file_names import parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.read.empty_table import has_instants, missing_timeline_error
from pyhudi.read.load import list_data_files
from pyhudi.storage.protocol import Storage


def require_timeline(storage: Storage, folder: str) -> None:
    """Raise CorruptTableError for a table with data files and an empty timeline.

    Only files with the name of a Hudi data file count. A `.DS_Store`, a `_SUCCESS` or a notebook's
    checkpoints may be in the folder before the table is created. The timeline is listed once more
    after the files, because another writer may have begun the table meanwhile.
    """
    if has_instants(storage, folder):
        return
    paths = (stat.path for stat in list_data_files(storage))
    found = next((path for path in paths if parse_data_file(file_name(path))), None)
    if found is not None and not has_instants(storage, folder):
        raise missing_timeline_error(storage, folder, found)
