"""What a write means: a value, from which plan, checks, retries and metadata follow."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from pyhudi.commit.ownership import OwnedPart
from pyhudi.commit.validation import Checks
from pyhudi.conflict.rules import PartitionFilter
from pyhudi.plan.predicate.parser import Where
from pyhudi.write.files.spec import Part
from pyhudi.write.schemas import RowSchema


class Reads(StrEnum):
    """What a write depends on of the rows that are in the table when it begins."""

    NOTHING = "nothing"  # rows as they are: the write means the same at any position in the order
    LOCATIONS = "locations"  # in which file groups its own keys are: deletes by key
    KEYS = "keys"  # that none of its keys exists: require_new_keys
    ROWS = "rows"  # the rows themselves: updates, deletes by predicate


@dataclass(frozen=True, slots=True)
class PartitionScope:
    """The partitions that a write replaces or deletes as a whole."""

    partitions: frozenset[str] | None = None  # None: those that it has rows in
    is_whole_table: bool = False

    def of(self, written: Collection[str]) -> PartitionFilter:
        """Return the filter of these partitions, for a write with files in the given ones."""
        touched = self.partitions or written
        return lambda partition: self.is_whole_table or partition in touched


# ---- the input of a write


@dataclass(frozen=True, slots=True)
class WholeRows:
    """Rows with all columns of the table."""

    #: True if rows of an empty bucket may become its first base file on a table of any concurrency
    #: mode. Two such loads of one bucket conflict.
    loads: bool = False


@dataclass(frozen=True, slots=True)
class PartialRows:
    """The columns of one owner."""

    part: Part


@dataclass(frozen=True, slots=True)
class NewValues:
    """New values of these columns, for rows that are in the table."""

    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys to delete, with the columns that the caller gave."""

    columns: frozenset[str]
    unconditional: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """No input: the write deletes the rows that a predicate matches."""

    where: Where
    unconditional: bool = False


Change: TypeAlias = WholeRows | PartialRows | NewValues | Keys | Found


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteIntent:
    """What a write means, whichever executor runs it."""

    operation: str  # as the commit records it
    rows: RowSchema | None = None  # to which its input is converted; None if it has none
    change: Change = WholeRows()
    reads: Reads = Reads.NOTHING
    owned: OwnedPart | None = None  # set if its rows are partial rows of this owner's columns
    replaces: PartitionScope | None = None
    write_id: str | None = None

    @property
    def part(self) -> Part | None:
        return self.change.part if isinstance(self.change, PartialRows) else None

    @property
    def is_checked(self) -> bool:
        """True if it is checked for conflicts, whatever the concurrency mode of the table."""
        return self.reads in (Reads.KEYS, Reads.ROWS) or self.replaces is not None

    @property
    def reads_nothing(self) -> bool:
        """True if its rows mean the same whatever the table holds."""
        is_whole = self.owned is None and self.replaces is None
        return self.reads is Reads.NOTHING and is_whole

    @property
    def adds_rows(self) -> bool:
        """True if each row of its input becomes a row of its files, and nothing else does."""
        return isinstance(self.change, WholeRows | PartialRows) and self.replaces is None

    def checks(self, written: Collection[str], *, keeps_files: bool = False) -> Checks:
        """Return what is validated when it completes with files in these partitions."""
        return Checks(
            self.is_checked,
            self.reads_nothing,
            self.owned is not None,
            replaces=None if self.replaces is None else self.replaces.of(written),
            owned=self.owned,
            keeps_files=keeps_files,
        )
