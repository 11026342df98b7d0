"""Must a write yield to one that has announced a file, and has not completed?

RFC-56 has two kinds of evidence (decision 0023). A rival that has *completed* makes a write certain
to lose (`conflict.doomed`). A rival that has only *announced* a file proves less: one of the two
will lose, and which one is not known. Yielding to it changes who wins, so it is opt-in, and by an
order that both sides see alike:

    a write yields to     with a smaller instant and no lower priority, so two never yield to each
                          other
    if                    the rules of `conflict.rules` would refuse it once the rival has completed
    and not if            its files could then be committed as they are, behind the rival's

The plan of a table service has announced all its file groups. Such a plan is judged as it is judged
when the write completes: while it is pending.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from pyhudi.conflict.rules import (
    Conflict,
    ConflictRule,
    OtherWrite,
    OwnWrite,
    Retry,
    WriteKind,
    conflict_key,
    first_conflict,
)
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.conflict_strategy import Strategy

#: Later than every instant that has begun.
LATEST: Final = "9" * 17
#: Plans of table services that are judged as pending ones.
_PLANS: Final = (WriteKind.CLUSTERING, WriteKind.COMPACTION, WriteKind.LOG_COMPACTION)


def announced_conflict(own: OwnWrite, rival: OtherWrite, strategy: Strategy) -> Conflict | None:
    """Return the conflict because of which our write yields to a pending one; None if it need not.

    Whether the rival is alive is another question.
    """
    if rival.requested >= own.requested or rival.priority < own.priority:
        return None
    is_plan = rival.kind in _PLANS
    seen = rival if is_plan else replace(rival, completed=LATEST)
    found = first_conflict(own, [seen], strategy)
    if found is None or (not is_plan and found.retry is not Retry.WRITE):
        return None
    return replace(found, other=rival, retry=Retry.LATER)


def place_of(group: FileGroupId, *, by_number: bool) -> tuple[str, str]:
    """Return by what two writes meet: partition and bucket, or partition and file group.

    >>> place_of(FileGroupId("p", "00000003-a"), by_number=True)
    ('p', '3')
    >>> place_of(FileGroupId("p", "00000003-a"), by_number=False)
    ('p', '00000003-a')
    """
    return conflict_key(group) if by_number else (group.partition, group.file_id)


@dataclass(frozen=True, slots=True)
class Met:
    """A conflict with a rival that has announced a file: plain values, to be sent."""

    rival: str  # its requested time
    kind: WriteKind
    rule: ConflictRule
    group: FileGroupId  # of the write that yields
    priority: int = 0  # the rival's
    file: str = ""  # that it announced; of a plan none
    announced_ago_ms: int | None = None  # when the conflict was found, by the store's clock
    strategy: str = ""  # which found it

    @property
    def conflict(self) -> Conflict:
        other = OtherWrite(
            self.rival,
            None,
            frozenset([self.group]),
            self.kind,
            self.priority,
            files=(self.file,) if self.file else (),
            has_deletes_without_keys=True,  # it may still write more
        )
        return Conflict(self.rule, other, self.group, Retry.LATER)

    @property
    def facts(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return {
            "rival": self.rival,
            "kind": self.kind.value,
            "rule": self.rule.name,
            "partition": self.group.partition,
            "file_id": self.group.file_id,
            "priority": self.priority,
            "file": self.file,
            "announced_ago_ms": self.announced_ago_ms,
            "strategy": self.strategy,
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Return the conflict with these facts; ValueError if they are none."""
        texts = {n: facts.get(n) for n in ("rival", "partition", "file_id", "file", "strategy")}
        priority, ago = facts.get("priority"), facts.get("announced_ago_ms")
        rule = ConflictRule.__members__.get(str(facts.get("rule")))
        if rule is None or not all(isinstance(text, str) for text in texts.values()):
            raise ValueError("not the facts of a conflict")
        if not isinstance(priority, int) or not isinstance(ago, int | None):
            raise ValueError("not the facts of a conflict")
        return cls(
            texts["rival"] or "",
            WriteKind(str(facts.get("kind"))),
            rule,
            FileGroupId(texts["partition"] or "", texts["file_id"] or ""),
            priority,
            texts["file"] or "",
            ago,
            texts["strategy"] or "",
        )
