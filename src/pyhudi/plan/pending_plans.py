"""Which pending table service has a file group, or may have it?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.instant import Action

#: Actions whose plans take file groups.
SERVICES = (Action.COMPACTION, Action.LOGCOMPACTION, Action.CLUSTERING)
#: By requested time; None if a plan does not name its groups.
PlannedGroups: TypeAlias = Mapping[str, frozenset[FileGroupId] | None]


@dataclass(frozen=True, slots=True)
class PendingPlans:
    """Pending table services and their file groups."""

    groups: PlannedGroups
    #: File group → a pending write that has put rows into it, or may do so, in files that are
    #: named by what has completed: a base file would lie on top of them.
    entered: Mapping[FileGroupId, str] = field(default_factory=dict)

    def holders(self) -> Callable[[FileGroupId], str | None]:
        """Return a function that says which plan, or which write, has a file group, or may have it;
        None: none."""
        known = {group: f"write {write}" for group, write in self.entered.items()}
        for plan, groups in self.groups.items():
            known.update(dict.fromkeys(groups or (), f"plan {plan}"))
        unclear = next((plan for plan, groups in self.groups.items() if groups is None), None)
        may = unclear and f"the pending plan {unclear} may have it, for its file cannot be read"
        return lambda group: held_by(known[group]) if group in known else may


def held_by(holder: str) -> str:
    return f"the pending {holder} has it"
