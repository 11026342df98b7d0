"""What archiving did."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyhudi.wording import counted


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """What archiving did."""

    archived: tuple[str, ...] = ()  # requested times of instants that were archived
    finished: tuple[str, ...] = ()  # of those that an earlier run archived but did not remove
    swept: tuple[str, ...] = ()  # files that abandoned writes had left
    merged: int = 0  # archive files that became part of a larger one
    removed: tuple[str, ...] = ()  # files that the archive no longer needs
    stopped_at: str = ""  # a data file whose instant is on no timeline
    held_by: tuple[str, ...] = ()  # file groups that must be compacted before more can go

    @property
    def did_anything(self) -> bool:
        return replace(self, stopped_at="", held_by=()) != ArchiveResult()

    def __str__(self) -> str:
        parts = [f"{counted(len(self.archived), 'instant')} archived"]
        if self.finished:
            parts.append(f"{len(self.finished)} of an earlier run finished")
        if self.swept:
            parts.append(f"{counted(len(self.swept), 'file')} of failed writes removed")
        if self.merged:
            parts.append(f"{counted(self.merged, 'archive file')} merged")
        if self.removed:
            parts.append(f"{counted(len(self.removed), 'old archive file')} removed")
        if self.stopped_at:
            parts.append(f"stopped at {self.stopped_at}, whose instant is on no timeline")
        if self.held_by:
            more = f" and {len(self.held_by) - 1} more" if len(self.held_by) > 1 else ""
            parts.append(f"held up until a compaction of {self.held_by[0]}{more}")
        return ", ".join(parts)
