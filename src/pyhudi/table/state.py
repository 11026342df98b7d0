"""A table as one load found it: the value that every read and plan starts from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyhudi.format.table.table_config import TableConfig
from pyhudi.table.file_group import FileGroupFiles
from pyhudi.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class TableState:
    config: TableConfig
    timeline: Timeline
    #: Partition path → its file groups; the empty path is the table's own folder.
    partitions: Mapping[str, tuple[FileGroupFiles, ...]]
    #: (partition path, file id) → the completed writes that replaced the group.
    replaced: Mapping[tuple[str, str], frozenset[str]]

    def groups(self) -> Iterator[FileGroupFiles]:
        for groups in self.partitions.values():
            yield from groups
