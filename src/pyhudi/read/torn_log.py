"""Did a commit name a log file that is empty, or that ends in a torn block?

A task that was killed leaves such files, and Hudi's tasks are run again under another name. A
reader skips what a failed attempt left. But a file that the write stats of a completed commit name
was whole when it was committed, and has lost rows.
"""

from __future__ import annotations

from pyhudi.format.paths import file_name
from pyhudi.format.timeline.commit_metadata import CommitMetadata, decode_commit_metadata
from pyhudi.format.timeline.instant import Instant, State, is_timeline_file
from pyhudi.plan.scan import CommitFolders
from pyhudi.read.archive import History
from pyhudi.storage.protocol import Storage
from pyhudi.table.committed_files import CommittedFile, committed_files
from pyhudi.table.file_group import LogFile
from pyhudi.timeline.timeline import WRITE_ACTIONS


def load_committed_file(
    storage: Storage, folders: CommitFolders, log: LogFile
) -> CommittedFile | None:
    """Return what the file's commit records of it; None if it does not name it, or is not found."""
    metadata = _load_metadata(storage, folders, log.name.requested)
    if metadata is None:
        return None
    files = committed_files(log.name.requested, metadata)
    return next((file for file in files if file.path == log.path), None)


def _load_metadata(
    storage: Storage, folders: CommitFolders, requested: str
) -> CommitMetadata | None:
    """Return the metadata of a completed write, from the active timeline or the archive."""
    history = History(storage, folders.history)
    for stat in storage.list(folders.timeline, after=f"{folders.timeline}/{requested}"):
        name = file_name(stat.path)
        if not name.startswith(requested):
            break
        instant = Instant.parse(name) if is_timeline_file(name) else None
        if instant is None or instant.state is not State.COMPLETED:
            continue
        if instant.requested == requested and instant.action in WRITE_ACTIONS:
            return history.write_metadata(folders.timeline, instant)
    found = history.instant(requested)
    if found is None or found.action not in {action.value for action in WRITE_ACTIONS}:
        return None
    origin = f"{folders.history} ({requested})"
    return decode_commit_metadata(found.metadata or b"", origin)
