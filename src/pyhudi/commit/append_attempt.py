"""What one call of `DecisionLog.append` has put into the log, or tried to."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyhudi.commit.proposals import Decided, Draft
from pyhudi.format.timeline.decision_entry import Entry


@dataclass(slots=True)
class AppendAttempt:
    """The rounds of one append."""

    drafts: dict[str, Draft] = field(default_factory=dict)  # by the id of the entry
    may_stand: int | None = None  # the number of the last one, if it was not seen to lose
    staged: dict[bytes, str] = field(default_factory=dict)  # where large bytes lie
    waits_ms: int = 0  # until the clock has come as far as the table's times
    waited_ms: int = 0

    def decided(self, entry: Entry) -> Decided:
        return Decided(entry, self.drafts[entry.id])
