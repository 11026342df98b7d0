"""The result of a verification: no findings, for a healthy table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from pyhudi.errors import CorruptTableError, first_of
from pyhudi.notebook import verified_html
from pyhudi.wording import counted, readable

#: How many findings a text shows.
SHOWN_MAX = 20


class FindingKind(StrEnum):
    """The kinds of damage."""

    LOST = "lost"  # a file that a commit names is not there
    LENGTH = "length"  # a file has another length than the commit says
    UNREADABLE = "unreadable"  # a footer, a log block or a timeline file cannot be read
    BUCKET = "bucket"  # keys, or a file group, are not in their bucket
    DUPLICATE = "duplicate"  # a key is in a partition more than once


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a table."""

    kind: FindingKind
    path: str  # of the file; for a file group, of the first file of its slice
    commit: str  # the requested time of the write that made the file; "" if none is known
    why: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.path!r}: {self.why}"

    @property
    def error(self) -> CorruptTableError:
        return CorruptTableError(
            "the table is damaged",
            why=self.why,
            next_step="Restore the file from a copy, or from versions that the store keeps, before"
            " the table is compacted or cleaned",
            path=self.path,
        )


@dataclass(frozen=True, slots=True)
class Verified:
    """What `table.services.verify()` has checked and found. True if nothing is wrong."""

    findings: tuple[Finding, ...]
    commits: int  # completed writes, archived ones included
    files: int
    rows: int
    bytes: int  # of the files
    seconds: float
    left_out: int = 0  # findings beyond those in `findings`

    def __bool__(self) -> bool:
        return not self.findings

    def or_raise(self) -> Self:
        """Return this result, or raise a CorruptTableError with all findings as notes."""
        if self.findings:
            raise first_of([finding.error for finding in self.findings], ())
        return self

    def __str__(self) -> str:
        checked = (
            f"{counted(self.commits, 'commit')}, {counted(self.files, 'file')},"
            f" {counted(self.rows, 'row')}, {readable(self.bytes, 'B')}, {self.seconds:.1f} s"
        )
        if not self.findings:
            return f"the table is whole: {checked}"
        total = len(self.findings) + self.left_out
        lines = [f"{counted(total, 'finding')}: {checked}"]
        lines += [f"  {finding}" for finding in self.findings[:SHOWN_MAX]]
        more = total - SHOWN_MAX
        return "\n".join([*lines, f"  ... and {more} more"] if more > 0 else lines)

    def _repr_html_(self) -> str:
        return verified_html(self)
