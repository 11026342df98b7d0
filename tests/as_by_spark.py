"""Writes as Spark's tasks make them, in this process: nothing is prepared before the write begins.

The rows are only known to the tasks, so buckets are seeded once the rows are written, and keys are
checked where the rows are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pyhudi.api.table import Table
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.progress import ProgressBoard
from pyhudi.session.open import OpenTable
from pyhudi.write.begin import ready
from pyhudi.write.intent import WriteIntent
from pyhudi.write.local import LocalExecutor
from pyhudi.write.plan import WritePlan
from pyhudi.write.result import WriteResult
from pyhudi.write.schemas import row_schema
from pyhudi.write.watch import Watch
from pyhudi.write.write import write


class LateExecutor(LocalExecutor):
    """Knows nothing of its rows before the write begins."""

    buffered = None
    partitions = ()
    sizes: Mapping[str, float] = MappingProxyType({})


def written_as_by_spark(table: Table, given: Any, intent: WriteIntent) -> WriteResult:
    opening = table._opening
    with ProgressBoard(None, opening.world) as board:
        session = ready(opening)
        if intent.rows is None:
            intent = replace(intent, rows=row_schema(session))
        executor = LateExecutor(session, intent, iter(given.to_batches()), board)
        return write(opening, session, intent, executor, board)


class FencedExecutor:
    """Gives the stats of files that a test writes, as tasks elsewhere would."""

    schema = None
    is_fenced = True
    can_repeat = False
    can_rebase = False
    buffered = None
    partitions = ()
    sizes: Mapping[str, float] = MappingProxyType({})

    def run(self, plan: WritePlan, watch: Watch) -> list[WriteStat]:
        raise NotImplementedError

    def rebase(self, plan: WritePlan, stats: Sequence[WriteStat]) -> list[WriteStat]:
        raise NotImplementedError


def written_by(opening: OpenTable, executor: FencedExecutor, intent: WriteIntent) -> WriteResult:
    with ProgressBoard(None, opening.world) as board:
        session = ready(opening)
        intent = replace(intent, rows=row_schema(session))
        return write(opening, session, intent, executor, board)
