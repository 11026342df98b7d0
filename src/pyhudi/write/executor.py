"""What runs the tasks of a write? An executor has the rows, and knows if they can be read again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.session.session import TableSession
from pyhudi.table.state import TableState
from pyhudi.write.plan import WritePlan


class Executor(Protocol):
    """Runs the plans of one write, one plan for each attempt, where the rows are."""

    @property
    def schema(self) -> str | None:
        """The schema that the rows were converted to, as a commit records it; None without rows."""
        ...

    @property
    def is_fenced(self) -> bool:
        """True if tasks run in other processes and may outlive the write."""
        ...

    @property
    def can_repeat(self) -> bool:
        """True if the rows are in memory, so that they can be written again after a conflict."""
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
        """Refuse keys that are in the table. Return the state in which none of them exists.

        This is before the write begins, so that a refusal leaves nothing behind. None if no state
        was examined.
        """
        ...

    def run(self, plan: WritePlan) -> list[WriteStat]:
        """Run all tasks; return the stats of their files."""
        ...

    def rebase(self, plan: WritePlan, stats: Sequence[WriteStat]) -> list[WriteStat]:
        """Run the plan with the rows of these files, which an attempt that lost has written."""
        ...
