"""Writes that replace partitions, as the engine makes them: overwrites, and deletes of partitions.

Each file group that such a write finds in its partitions gets a new base file, an empty one where
it has no rows. A concurrent writer may still add a file group that it does not find. So before it
completes it checks which other writes were in its partitions.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from pyhudi.conflict.rules import PartitionFilter
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.simulate.choices import drawn
from pyhudi.simulate.table.rows import (
    KEYS,
    PARTITIONS,
    Placing,
    Row,
    TableKind,
    drawn_row,
    group_of,
    happens,
    partition_of,
)
from pyhudi.simulate.table.table import DataFile, base_file, stamped
from pyhudi.write.intent import PartitionScope


class Overwrite(NamedTuple):
    """A write that leaves only these rows in these partitions."""

    partitions: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def operation(self) -> str:
        if not self.rows:
            return "DELETE_PARTITION"
        return "INSERT_OVERWRITE_TABLE" if self._is_of_all else "INSERT_OVERWRITE"

    @property
    def _is_of_all(self) -> bool:
        return self.partitions == PARTITIONS

    def files(
        self, requested: str, there: Iterable[FileGroupId], kind: TableKind, placing: Placing
    ) -> list[DataFile]:
        """Return a base file for each file group that exists, or that a row belongs to."""
        found = {group for group in there if group.partition in self.partitions}
        groups = sorted(found | {placing(row.key) for row in self.rows})
        return [
            base_file(
                requested,
                group,
                stamped((row for row in self.rows if placing(row.key) == group), requested),
                kind,
            )
            for group in groups
        ]

    @property
    def scope(self) -> PartitionScope:
        return PartitionScope(frozenset(self.partitions), self._is_of_all and bool(self.rows))

    def replaced(self, stats: Collection[WriteStat]) -> PartitionFilter:
        return self.scope.of({stat.partition_path or "" for stat in stats})


def drawn_overwrite(chance: random.Random, version: str, *, may_bring: bool) -> Overwrite:
    """Draw an overwrite of one partition, sometimes of all; `may_bring` new rows, which some do."""
    one = PARTITIONS[drawn(chance, len(PARTITIONS))]
    partitions = PARTITIONS if happens(chance, 0.25) else (one,)
    brings = happens(chance, 0.6)
    mine = [key for key in KEYS if partition_of(key) in partitions]
    keys = [key for key in mine if happens(chance, 0.3)] if may_bring and brings else []
    return Overwrite(partitions, tuple(drawn_row(chance, key, version) for key in keys))


def drawn_seeds(chance: random.Random) -> Sequence[FileGroupId]:
    """Draw some of the file groups; the others come with their first rows."""
    groups = sorted({group_of(key) for key in KEYS})
    return [group for group in groups if happens(chance, 0.4)]
