"""What a write means: a value, from which checks, retries and metadata follow."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from pyhudi.commit.ownership import OwnedPart
from pyhudi.commit.validation import Checks
from pyhudi.conflict.rules import Cleared
from pyhudi.format.timeline.commit_metadata import WriteStat


class Reads(StrEnum):
    """What a write depends on of the rows that are in the table when it begins."""

    NOTHING = "nothing"  # rows as they come: it means the same wherever it stands in the order
    PLACES = "places"  # where its own keys are: deletes by key
    KEYS = "keys"  # that none of its keys is there: require_new_keys
    ROWS = "rows"  # the rows themselves: updates, deletes by predicate


@dataclass(frozen=True, slots=True)
class PartitionScope:
    """The partitions that a write is about as a whole: overwrites, deletes of partitions."""

    partitions: frozenset[str] | None = None  # None: those that it has rows in
    is_whole_table: bool = False

    def of(self, stats: Collection[WriteStat]) -> Cleared:
        """Return whether a partition is one of them, for a write that made these files."""
        touched = self.partitions or {stat.partition_path or "" for stat in stats}
        return lambda partition: self.is_whole_table or partition in touched


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteIntent:
    """What a write means, whichever engine carries it out."""

    operation: str  # as the commit records it
    reads: Reads = Reads.NOTHING
    owned: OwnedPart | None = None  # its rows are parts of rows, of this owner's columns
    replaces: PartitionScope | None = None
    write_id: str | None = None

    @property
    def is_checked(self) -> bool:
        """True if no other write may have met it, on a table of any concurrency mode."""
        return self.reads in (Reads.KEYS, Reads.ROWS) or self.replaces is not None

    @property
    def reads_nothing(self) -> bool:
        """True if its rows mean the same whatever the table holds."""
        is_whole = self.owned is None and self.replaces is None
        return self.reads is Reads.NOTHING and is_whole

    def checks(self, stats: Collection[WriteStat], *, keeps_files: bool = False) -> Checks:
        """Return what is to be validated when it completes with these files."""
        return Checks(
            self.is_checked,
            self.reads_nothing,
            self.owned is not None,
            clears=None if self.replaces is None else self.replaces.of(stats),
            owned=self.owned,
            keeps_files=keeps_files,
        )
