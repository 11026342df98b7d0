"""The results of cleaning: what was removed, what was skipped, and what failed."""

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
    files: int  # that were removed
    bytes: int  # of those that were there when the plan was executed
    spared: tuple[str, ...] = ()  # files of the plan that were skipped, because they are needed

    def __str__(self) -> str:
        spared = f", {len(self.spared)} skipped (still needed)" if self.spared else ""
        files = f"{counted(self.files, 'file')} ({readable(self.bytes, 'B')})"
        return f"clean {self.instant}: {files} removed{spared}"


@dataclass(frozen=True, slots=True)
class CleanResult:
    """What a call did: cleans that other processes had planned, and then its own."""

    cleans: tuple[Cleaned, ...] = ()
    attended: str | None = None  # a clean that another process is executing
    errors: tuple[HudiError, ...] = ()  # why a plan was not made, or not executed
    #: If nothing more is to be removed: the requested time of the earliest write that the policy
    #: retains. None if cleans are pending, if versions are counted, or if everything is retained.
    kept_from: str | None = None

    @property
    def files(self) -> int:
        return sum(clean.files for clean in self.cleans)

    @property
    def bytes(self) -> int:
        return sum(clean.bytes for clean in self.cleans)

    def or_raise(self) -> Self:
        """Return this result, or raise the first error if something failed."""
        if self.errors:
            raise first_of(self.errors, self.cleans)
        return self

    def __str__(self) -> str:
        lines = [str(clean) for clean in self.cleans]
        if self.attended is not None:
            lines.append(f"clean {self.attended}: another process is executing it")
        return "\n".join(lines) or ("no clean was completed" if self.errors else "nothing to clean")
