"""What one call of `DecisionLog.append` has appended to the log, or tried to append."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyhudi.commit.proposals import Decided, Draft
from pyhudi.format.timeline.decision_entry import Entry


@dataclass(slots=True)
class AppendRounds:
    """The rounds of one append."""

    drafts: dict[str, Draft] = field(default_factory=dict)  # by the id of the entry
    may_stand: int | None = None  # number of the last entry, unless it was seen to lose
    staged: dict[bytes, str] = field(default_factory=dict)  # bytes → where they are staged
    waits_ms: int = 0  # until the clock reaches the table's times
    waited_ms: int = 0

    def decided(self, entry: Entry) -> Decided:
        return Decided(entry, self.drafts[entry.id])
