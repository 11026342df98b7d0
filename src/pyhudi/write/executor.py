"""What runs the tasks of a write? An executor has its rows, and knows how often they can be had."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.session.session import TableSession
from pyhudi.table.state import TableState
from pyhudi.write.plan import WritePlan


class Executor(Protocol):
    """Runs the plans of one write, one for each attempt, where its rows are."""

    @property
    def schema(self) -> str | None:
        """The schema, as a commit records it, that the rows were brought to; None without rows."""
        ...

    @property
    def is_fenced(self) -> bool:
        """True if tasks run elsewhere and may outlive the write."""
        ...

    @property
    def can_repeat(self) -> bool:
        """True if the rows are at hand, so that they can be written again after a conflict."""
        ...

    @property
    def can_rebase(self) -> bool:
        """True if the rows, or the results of tasks, can be read from the write's own files."""
        ...

    @property
    def partitions(self) -> Collection[str]:
        """The partitions that get logs, as far as they are known before the write begins."""
        ...

    def check_keys(self, session: TableSession) -> TableState | None:
        """Refuse keys that are in the table, before the write begins: so a refusal leaves nothing.

        Return the state in which none of them is there; None if that was not looked at.
        """
        ...

    def run(self, plan: WritePlan) -> list[WriteStat]:
        """Run all tasks; return the stats of their files."""
        ...

    def rebase(self, plan: WritePlan, stats: Sequence[WriteStat]) -> list[WriteStat]:
        """Run the plan with the rows of these files, which an attempt that lost has written."""
        ...
