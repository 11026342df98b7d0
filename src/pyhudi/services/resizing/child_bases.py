"""The first base files of a resize's children, from the slices that its plan names.

A child's base file holds what readers of the inputs' slices would show of the keys that it owns. So
it is a compaction with one output for each child: the slices of all inputs stream through once,
merged as a compaction merges them, and are split by owner. The rows of several inputs follow one
another in the order of the ring.

It may be repeated, and by several processes at once: the files have fixed names, and an executor
that finds all of them reads only their footers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pyhudi.errors import CorruptTableError
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.index.children import Children
from pyhudi.services.compaction.merge_slice import CompactionSpec, merged_rows
from pyhudi.storage.protocol import Storage
from pyhudi.table.committed_files import LostFile, lost_file_error
from pyhudi.table.file_group import BaseFile, FileSlice, LogFile
from pyhudi.write.files.split_base import write_bases
from pyhudi.write.resizing.bases import found_bases


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One split or merge: the slices that are read, and the file groups that get their rows."""

    slices: tuple[FileSlice, ...]  # in the order of the ring; sizes are not known yet
    children: Children
    megabytes: float = 0.0  # read and written, by the plan

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(file.path for slice_ in self.slices for file in _files(slice_))


def write_children(
    storage: Storage, spec: CompactionSpec, rewrite: Rewrite
) -> tuple[WriteStat, ...]:
    """Write the children's base files; return their stats in the children's order."""
    children = rewrite.children
    if (found := found_bases(storage, spec.requested, children.groups, {})) is not None:
        return found
    slices = _sized(storage, spec, rewrite)
    rows = _rows(storage, spec, slices)
    return write_bases(storage, spec.write, children.groups, children, rows)


def _rows(
    storage: Storage, spec: CompactionSpec, slices: Sequence[FileSlice]
) -> Iterator[pa.RecordBatch]:
    for slice_ in slices:
        yield from merged_rows(storage, spec, slice_)


def _sized(storage: Storage, spec: CompactionSpec, rewrite: Rewrite) -> list[FileSlice]:
    """Return the slices with the sizes of their files, none of which may be gone or cut off."""
    paths = rewrite.paths
    sizes: dict[str, int] = {}
    for path, stat in zip(paths, storage.stat_all(paths), strict=True):
        if stat is None:
            raise _gone(spec.requested, path)
        sizes[path] = stat.size
    return [_checked(slice_, sizes, spec) for slice_ in rewrite.slices]


def _checked(slice_: FileSlice, sizes: dict[str, int], spec: CompactionSpec) -> FileSlice:
    for file in _files(slice_):
        if sizes[file.path] < (size := spec.sizes.get(file.path, 0)):
            lost = LostFile(file.path, file.name.requested, size, sizes[file.path])
            raise lost_file_error(lost, f"the resize {spec.requested} cannot be executed")
    base = slice_.base and slice_.base._replace(size=sizes[slice_.base.path])
    logs = tuple(log._replace(size=sizes[log.path]) for log in slice_.logs)
    return slice_._replace(base=base, logs=logs)


def _files(slice_: FileSlice) -> list[BaseFile | LogFile]:
    return [*([slice_.base] if slice_.base else []), *slice_.logs]


def _gone(requested: str, path: str) -> CorruptTableError:
    return CorruptTableError(
        f"the resize {requested} cannot be executed",
        why=f"{path!r}, which its plan names, is gone",
        next_step="Restore the file, because committed rows are lost with it. The plan was"
        " cancelled, unless it is virtual and writes have rows in its new buckets: then it can be"
        " executed once the file is there",
        path=path,
    )
