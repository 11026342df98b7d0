"""What cleaning gives back: what was removed, what was spared, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pyhudi.errors import HudiError, first_of
from pyhudi.wording import counted, readable


@dataclass(frozen=True, slots=True)
class Cleaned:
    """One clean that is complete."""

    instant: str
    completed: str  # "" if another process completed it, and it was archived since
    files: int  # that are gone
    bytes: int  # of those that were there when it was carried out
    spared: tuple[str, ...] = ()  # planned, and left because something needs them by now

    def __str__(self) -> str:
        spared = f", {len(self.spared)} spared, which are needed by now" if self.spared else ""
        files = f"{counted(self.files, 'file')} ({readable(self.bytes, 'B')})"
        return f"clean {self.instant}: {files} removed{spared}"


@dataclass(frozen=True, slots=True)
class CleanResult:
    """What a call did: cleans that others had planned, and then its own."""

    cleans: tuple[Cleaned, ...] = ()
    attended: str | None = None  # a clean that another process is carrying out, left to it
    errors: tuple[HudiError, ...] = ()  # why a plan was not made, or not carried out
    #: If nothing more is to be removed: the requested time of the earliest write that the policy
    #: keeps. None if cleans are pending, if versions are counted, or if all of it is kept.
    kept_from: str | None = None

    @property
    def files(self) -> int:
        return sum(clean.files for clean in self.cleans)

    @property
    def bytes(self) -> int:
        return sum(clean.bytes for clean in self.cleans)

    def or_raise(self) -> Self:
        """This, if nothing failed."""
        if self.errors:
            raise first_of(self.errors, self.cleans)
        return self

    def __str__(self) -> str:
        lines = [str(clean) for clean in self.cleans]
        if self.attended is not None:
            lines.append(f"clean {self.attended}: another process is carrying it out")
        return "\n".join(lines) or ("no clean was completed" if self.errors else "nothing to clean")
