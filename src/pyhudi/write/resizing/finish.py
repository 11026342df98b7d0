"""The end of a resize: what completed meanwhile is copied, and then it completes.

    copy        each write that completed since the plan, oldest first, in rounds
    complete    one decision: legal if nothing is owed, for exactly the number that it takes
    close       if writers are faster (`plan.resizing.pace`): from then on no write that has files
                in an input completes, and what is still owed is little
    tidy        marks, markers, the object that shows the close

No writer waits for more than the last copies: a writer that meets a closed resize executes these
steps itself (`write.resizing.help`). All processes that do make the same files, and the log takes
one completion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.proposals import Close, Complete, Outcome, Refused, Rule
from pyhudi.errors import HudiError
from pyhudi.format.table.ring_file import RingFileName, ring_path
from pyhudi.format.timeline.commit_metadata import (
    SCHEMA_KEY,
    CommitMetadata,
    WriteStat,
    stats_by_partition,
)
from pyhudi.format.timeline.decision_entry import closed_path
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.format.timeline.writer_identity import WRITER_KEY, WriterIdentity
from pyhudi.plan.resizing.copies import OwedCopy
from pyhudi.plan.resizing.pace import Pace, outrun_error
from pyhudi.storage.objects.markers import marker_objects
from pyhudi.storage.objects.rings import write_mark
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.live import LiveTimeline
from pyhudi.write.resizing.bases import note_made
from pyhudi.write.resizing.copies import ResizeCopies
from pyhudi.write.resizing.leftovers import remove_leftovers
from pyhudi.write.resizing.work import ResizeWork


class ResizeEnd:
    """One process's way through the end of a resize."""

    def __init__(
        self,
        log: DecisionLog,
        work: ResizeWork,
        bases: tuple[WriteStat, ...],
        copies: ResizeCopies,
        *,
        encoded: Callable[[], bytes],
        exclusive: AbstractContextManager[Any],
    ) -> None:
        """`encoded` makes the completed file, with the copies made so far. `exclusive` is held for
        everything but the copying."""
        self._log = log
        self._work = work
        self._bases = bases
        self._copies = copies
        self._encoded = encoded
        self._exclusive = exclusive

    def run(self) -> Outcome:
        """Copy and complete, until the resize has ended or may not complete.

        OutrunError if writers complete faster than that.
        """
        pace: Pace | None = None
        copied: Sequence[OwedCopy] = ()
        elapsed_ms, took_ms = self._log.world.elapsed_ms, 0
        while True:
            with self._exclusive:
                owed: Sequence[OwedCopy] = self._copies.owed(self._log.refresh())
                pace = Pace.of(owed) if pace is None else pace.after(copied, took_ms, owed)
                if not owed or not self._is_pending():
                    outcome = self._complete()
                    if not _is_owed(outcome):
                        return outcome
                    pace, owed = pace.refused(), self._copies.owed(self._log.live)
                if self._is_closed(pace, owed):
                    owed = self._copies.owed(self._log.live)
                else:
                    owed = pace.next_round(owed)
            began_ms = elapsed_ms()
            self._copies.copy(owed)
            copied, took_ms = owed, elapsed_ms() - began_ms

    def _is_pending(self) -> bool:
        live, requested = self._log.live, self._work.requested
        return requested in live.pending and requested not in live.rolled_back_by

    def _complete(self) -> Outcome:
        work, data, rings = self._work, self._encoded(), self._work.ring_files
        # An executor need not have read the log since the plan's begin, so it names no begin entry.
        action, check = Action.CLUSTERING, self._incomplete
        return self._log.append(Complete(work.requested, action, None, data, check, rings))

    def _incomplete(self, live: LiveTimeline) -> Refused | None:
        """Return a refusal of the completion if anything is owed, or the plan is gone.

        A process may have slept until the resize was cancelled and nothing tells of that any more.
        Its inflight file alone then makes the resize look pending.
        """
        requested = self._work.requested
        plan = Instant(requested, Action.CLUSTERING, State.REQUESTED)
        if self._log.storage.stat(self._log.path(plan)) is None:
            return Refused(Rule.NOT_PENDING, requested)
        if self._work.plan.is_dual:
            bases = [stat.data_path for stat in self._bases]
            if gone := remove_leftovers(self._log.storage, self._work, bases):
                return Refused(Rule.DENIED, requested, f"{gone!r} is gone")
        owed = self._copies.owed(live)
        return Refused(Rule.NOT_COPIED, owed[0].requested) if owed else None

    def _is_closed(self, pace: Pace, owed: Sequence[OwedCopy]) -> bool:
        """True if the resize is closed; close it if it is time to.

        A resize that Hudi can execute never is: Hudi knows no close, and writers copy themselves.
        """
        if self._work.plan.is_dual:
            return False
        if self._work.requested in self._log.live.closed:
            return True
        if not pace.may_close(owed):
            plan = self._work.plan
            if pace.must_cancel(len(plan.groups)):
                raise outrun_error(self._work.requested, plan, pace, owed)
            return False
        stats = (*self._bases, *self._copies.stats)
        note_made(self._log.storage, self._work.requested, stats)
        self._log.append(Close(self._work.requested, partial(self._closable, pace)))
        return self._work.requested in self._log.live.closed

    def _closable(self, pace: Pace, live: LiveTimeline) -> Refused | None:
        """Return a refusal of the close if too much is owed."""
        owed = self._copies.owed(live)
        return None if pace.may_close(owed) else Refused(Rule.NOT_COPIED, owed[0].requested)


def _is_owed(outcome: Outcome) -> bool:
    return isinstance(outcome, Refused) and outcome.rule is Rule.NOT_COPIED


def resize_metadata(
    work: ResizeWork, stats: tuple[WriteStat, ...], schema: str, writer: WriterIdentity
) -> CommitMetadata:
    """Return the metadata of the completed file, as Hudi has it of a clustering."""
    replaced: dict[str, list[str]] = {}
    for change in work.plan.groups:
        ids = (group.file_id for group in change.inputs)
        replaced.setdefault(change.partition, []).extend(ids)
    return CommitMetadata(
        stats_by_partition(stats),
        compacted=False,
        extra_metadata={SCHEMA_KEY: schema, WRITER_KEY: writer.text},
        operation_type="CLUSTER",
        partition_to_replace_file_ids={name: tuple(ids) for name, ids in replaced.items()},
    )


def tidy(log: DecisionLog, work: ResizeWork) -> None:
    """Mark the rings of a completed resize, and remove what it no longer needs.

    What stays after an error is done by the next process that loads a ring, or swept up.
    """
    with suppress(HudiError):
        for partition in work.partitions:
            _mark(log.storage, partition, work)
        log.storage.delete_all(marker_objects(log.storage, work.requested))
        log.storage.delete(closed_path(work.requested))


def _mark(storage: Storage, partition: str, work: ResizeWork) -> None:
    """Mark a ring, unless this process slept until the ring was cleaned: no mark stands alone."""
    requested = work.requested
    ring, mark = (
        ring_path(partition, RingFileName(requested, is_commit_mark=is_mark))
        for is_mark in (False, True)
    )
    if storage.stat(ring) is None:
        return
    # Apache Hudi plans resizes also where buckets have no files yet.
    write_mark(storage, partition, requested, is_complete=work.plan.is_own)
    if storage.stat(ring) is None:
        storage.delete(mark)
