"""Which buckets have lost a file, and which: beside each bucket in `table.inspect.buckets()`.

A resize needs every file of the buckets that it replaces. One that cannot be cancelled any more
stays pending until the file is restored. So of these buckets all commits are read that have files
in them. Of the others those commits count that were read anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import FileGroupId, parse_data_file
from pyhudi.format.timeline.instant import Action
from pyhudi.format.timeline.resize_plan import ResizePlan
from pyhudi.plan.resizing.inputs import input_slices
from pyhudi.read.load import TableLoader
from pyhudi.read.lost_files import CommitRecords, known_losses
from pyhudi.table.committed_files import LostFile
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes


def lost_in_buckets(
    loader: TableLoader, state: TableState, times: CompletionTimes, resizes: Iterable[ResizePlan]
) -> Iterator[tuple[FileGroupId, str]]:
    """Yield buckets of which a file is gone or cut off, and that file in words.

    `resizes` are those that are pending.
    """
    if any(instant.action is Action.RESTORE for instant in state.timeline.pending):
        return  # it removes files
    changes = (change for plan in resizes for change in plan.groups)
    slices = [slice_ for change in changes for slice_ in input_slices(change)]
    lost: list[LostFile] = []
    if slices:
        with suppress(CorruptTableError):  # a commit that cannot be read names no file
            lost += CommitRecords(loader).lost(state, times, slices)
    lost += known_losses(loader, state, times)
    paths = list(dict.fromkeys(file.path for file in lost))
    sizes = dict(zip(paths, loader.storage.stat_all(paths), strict=True))
    for file in lost:
        folder, _, bare = file.path.rpartition("/")
        name, found = parse_data_file(bare), sizes[file.path]
        is_whole = found is not None and found.size >= (file.size or 1)  # it was listed too early
        if name is not None and not is_whole:
            yield FileGroupId(folder, name.file_id), damage_words(file.path, file.why)


def damage_words(path: str | None, why: str) -> str:
    return f"damaged: {why}" if path is None else f"damaged: {path!r}: {why}"
