"""First committer wins, as Hudi's default strategy has it: which write came first where?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyhudi.conflict.rules import OtherWrite, conflict_key
from pyhudi.format.files.file_names import FileGroupId


@dataclass(frozen=True, slots=True)
class Overlap:
    """The other write that came first, and one of the file groups that both wrote."""

    other: OtherWrite
    group: FileGroupId


def first_overlap(own: Iterable[FileGroupId], others: Iterable[OtherWrite]) -> Overlap | None:
    """Return the earliest completed write that touched one of our file groups, or its bucket."""
    places = {conflict_key(group): group for group in own}
    for other in others:
        for group in sorted(other.groups or ()):
            if (mine := places.get(conflict_key(group))) is not None:
                return Overlap(other, mine)
    return None
