"""The end of a resize: what completed meanwhile is copied, and then it completes.

    copy        each write that completed since the plan, oldest first
    complete    one decision: legal if nothing is owed, for exactly the number that it takes
    close       after three refusals, because writers are faster: from then on no write that has
                files in an input completes, and what is still owed is little
    tidy        marks, markers, the object that shows the close

No writer waits for more than the last copies: a writer that meets a closed resize executes these
steps itself (`write.resizing.help`). All processes that do make the same files, and the log takes
one completion.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Final

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
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.writer_identity import WRITER_KEY, WriterIdentity
from pyhudi.storage.objects.markers import marker_objects
from pyhudi.storage.objects.rings import write_mark
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.live import LiveTimeline
from pyhudi.write.resizing.bases import note_made
from pyhudi.write.resizing.copies import ResizeCopies, bytes_owed, files_owed
from pyhudi.write.resizing.work import ResizeWork

#: Refused completions after which a resize is closed.
REFUSALS_MAX: Final = 3
#: What may be left to copy when a resize is closed. After five refusals it may be twice as much.
CLOSE_BYTES: Final = 8 << 20
CLOSE_BYTES_MAX: Final = 256 << 20
CLOSE_FILES: Final = 64
CLOSE_REFUSALS: Final = 5


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
        self._refusals = 0
        self._close_refusals = 0

    def copy(self) -> None:
        """Copy what is owed now."""
        with self._exclusive:
            owed = self._copies.owed(self._log.refresh())
        self._copies.copy(owed)

    def run(self) -> Outcome:
        """Copy and complete, until the resize has ended or may not complete."""
        while True:
            self.copy()
            with self._exclusive:
                outcome = self._complete()
                if not _is_owed(outcome):
                    return outcome
                self._refusals += 1
                if self._refusals >= REFUSALS_MAX:
                    self._close()

    def _complete(self) -> Outcome:
        work, data, rings = self._work, self._encoded(), self._work.ring_files
        # An executor need not have read the log since the plan's begin, so it names no begin entry.
        action, check = Action.CLUSTERING, self._incomplete
        return self._log.append(Complete(work.requested, action, None, data, check, rings))

    def _incomplete(self, live: LiveTimeline) -> Refused | None:
        """Return a refusal if anything is owed, or the plan is gone.

        A process may have slept until the resize was cancelled and nothing tells of that any more.
        Its inflight file alone then makes the resize look pending.
        """
        requested = self._work.requested
        plan = Instant(requested, Action.CLUSTERING, State.REQUESTED)
        if self._log.storage.stat(self._log.path(plan)) is None:
            return Refused(Rule.NOT_PENDING, requested)
        return self._objection(0, 0, live)

    def _close(self) -> None:
        """Close the resize, unless too much is owed; a resize that has ended shows in `run`."""
        doubled = CLOSE_BYTES << (self._close_refusals // CLOSE_REFUSALS)
        check = partial(self._objection, min(doubled, CLOSE_BYTES_MAX), CLOSE_FILES)
        stats = (*self._bases, *self._copies.stats)
        note_made(self._log.storage, self._work.requested, stats)
        if _is_owed(self._log.append(Close(self._work.requested, check))):
            self._close_refusals += 1

    def _objection(self, bytes_max: int, files_max: int, live: LiveTimeline) -> Refused | None:
        """Return a refusal if more than that is owed."""
        owed = self._copies.owed(live)
        if bytes_owed(owed) <= bytes_max and files_owed(owed) <= files_max:
            return None
        return Refused(Rule.NOT_COPIED, owed[0].requested)


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
            _mark(log.storage, partition, work.requested)
        log.storage.delete_all(marker_objects(log.storage, work.requested))
        log.storage.delete(closed_path(work.requested))


def _mark(storage: Storage, partition: str, requested: InstantTime) -> None:
    """Mark a ring, unless this process slept until the ring was cleaned: no mark stands alone."""
    ring, mark = (
        ring_path(partition, RingFileName(requested, is_commit_mark=is_mark))
        for is_mark in (False, True)
    )
    if storage.stat(ring) is None:
        return
    write_mark(storage, partition, requested)
    if storage.stat(ring) is None:
        storage.delete(mark)
