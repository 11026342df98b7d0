"""What runs the tasks of a write? An executor has the rows, and knows if they can be read again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from pyhudi.commit.transaction import Lost
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.write.buffer import RowBuffer
from pyhudi.write.plan import WritePlan
from pyhudi.write.watch import Watch


class Executor(Protocol):
    """Runs the plans of one write, one plan for each attempt, where the rows are."""

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
    def buffered(self) -> RowBuffer | None:
        """The rows, if all of them are in this process before the write begins."""
        ...

    @property
    def partitions(self) -> Collection[str]:
        """The partitions that get logs, as far as they are known before the write begins."""
        ...

    @property
    def sizes(self) -> Mapping[str, float]:
        """The bytes of the rows by partition, as far as they are known before the write begins."""
        ...

    def run(self, plan: WritePlan, watch: Watch) -> list[WriteStat] | Lost:
        """Run all tasks; return the stats of their files, or how the write was lost meanwhile."""
        ...

    def rebase(self, plan: WritePlan, stats: Sequence[WriteStat]) -> list[WriteStat]:
        """Run the plan with the rows of these files, which an attempt that lost has written."""
        ...
