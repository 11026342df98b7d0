"""Planted bugs in what many writers and consumers rely on: conflicts, slices, polls.

Failures that Hudi has had are among them. As in `commit`, each weakens the code of production at
one point, and has no state of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from pyhudi.commit import concurrent
from pyhudi.commit.concurrent import ConcurrentWrites
from pyhudi.commit.transaction import Transaction
from pyhudi.commit.validation import Checks, CompletionCheck
from pyhudi.conflict import rules
from pyhudi.conflict.file_groups import Footprint
from pyhudi.conflict.rules import OtherWrite, OwnWrite, Retry
from pyhudi.format.timeline.instant import Action, Instant
from pyhudi.plan import changes
from pyhudi.read import plan as read
from pyhudi.storage.objects.write_fence import raise_fence
from pyhudi.table import file_slices as snapshot
from pyhudi.table.file_group import FileGroupFiles, FileSlice, LogFile
from pyhudi.table.file_slices import file_slices
from pyhudi.timeline.completion import CompletionTimes, Visibility
from pyhudi.timeline.live import LiveTimeline
from pyhudi.timeline.timeline import WRITE_ACTIONS
from pyhudi.write.files import spec as write_files

_Bug = Callable[[], AbstractContextManager[Any]]


# -- conflicts


def _conflicts_by_requested_time() -> AbstractContextManager[Any]:
    """Hudi's default strategy: a write that began before ours and completed meanwhile is
    ignored."""

    def weak(self: ConcurrentWrites, live: LiveTimeline) -> Iterator[Instant]:
        for instant in live.completed.values():
            if instant.action in WRITE_ACTIONS and instant.requested > self._requested:
                yield instant

    return patch.object(ConcurrentWrites, "instants", weak)


def _committed_behind_out_of_order() -> AbstractContextManager[Any]:
    """A write is committed behind one that began after it, and so merges above it."""

    def weak(own: OwnWrite, other: OtherWrite) -> Retry:
        return Retry.COMMIT if own.reads_nothing else Retry.WRITE

    return patch.object(rules, "_retry", weak)


def _committed_behind_after_reading() -> AbstractContextManager[Any]:
    """A write that depends on what it read is committed behind another, unchanged."""

    def weak(own: OwnWrite, other: OtherWrite) -> Retry:
        return Retry.COMMIT if other.requested < own.requested else Retry.WRITE

    return patch.object(rules, "_retry", weak)


def _base_files_unchecked() -> AbstractContextManager[Any]:
    """A base file among logs counts as one more log: Hudi's NBCC loses rows so."""
    own = Transaction.own_write

    def weak(self: Transaction, made: Footprint, checks: Checks, *, is_seed: bool) -> OwnWrite:
        return own(self, replace(made, bases=frozenset()), checks, is_seed=is_seed)

    return patch.object(Transaction, "own_write", weak)


def _compactions_ignored() -> AbstractContextManager[Any]:
    """A base file completes although a compaction that does not know it is pending."""
    return patch.object(ConcurrentWrites, "services", lambda self, own, live: iter(()))


def _parts_left_alone() -> AbstractContextManager[Any]:
    """A partial row completes although the row was deleted meanwhile."""
    return patch.object(concurrent, "removals", lambda metadata: frozenset())


def _keys_taken_for_new() -> AbstractContextManager[Any]:
    """A placeholder completes although a compaction has put the key into a base file meanwhile."""
    return patch.object(rules, "_new_keys_conflict", lambda own, other, strategy: None)


def _priority_ignored() -> AbstractContextManager[Any]:
    return patch.object(ConcurrentWrites, "pending", lambda self, own, live: iter(()))


def _replaced_unchecked() -> AbstractContextManager[Any]:
    """A partition is replaced although another write put a new file group into it meanwhile."""
    own = Transaction.own_write

    def weak(self: Transaction, made: Footprint, checks: Checks, *, is_seed: bool) -> OwnWrite:
        return own(self, made, replace(checks, replaces=None), is_seed=is_seed)

    return patch.object(Transaction, "own_write", weak)


def _ownership_checked_once() -> AbstractContextManager[Any]:
    """A write completes although its columns have been given to another owner."""
    return patch.object(CompletionCheck, "_denied", lambda self: None)


# -- late tasks


def _no_fence() -> AbstractContextManager[Any]:
    """A task that counted as lost creates its file when it wakes up."""
    return patch.object(write_files, "may_create_file", lambda storage, requested: True)


def _fence_without_a_check() -> AbstractContextManager[Any]:
    """Files that other attempts announced before the fence stood are not checked."""

    def weak(self: Transaction, files: Collection[str]) -> None:
        raise_fence(self._log.storage, self.requested)

    return patch.object(Transaction, "close", weak)


# -- slices and polls


def _sliced_by_requested_time() -> AbstractContextManager[Any]:
    """A log that completed after a compaction was planned counts as part of it."""

    def weak(log: LogFile, barriers: list[str], times: CompletionTimes) -> str | None:
        below = [barrier for barrier in barriers if barrier <= log.name.requested]
        return below[-1] if below else None

    return patch.object(snapshot, "_barrier", weak)


def _polled_by_requested_time() -> AbstractContextManager[Any]:
    """HUDI-5176 and 6157: a write that began before the checkpoint and completed after it is
    missed."""

    def weak(writes: Iterable[tuple[str, str]], since: str, until: str | None) -> frozenset[str]:
        return frozenset(r for r, _ in writes if since < r and (until is None or r <= until))

    return patch.object(read, "in_range", weak)


def _pending_compaction_hides_logs() -> AbstractContextManager[Any]:
    """HUDI-5990: a poll opens the slice that a pending compaction begins, and not the one below."""

    def weak(
        group: FileGroupFiles, times: CompletionTimes, visibility: Visibility
    ) -> FileSlice | None:
        pending = [i.requested for i in times.timeline.pending if i.action is Action.COMPACTION]
        barrier = max(pending, default=None)
        slices = file_slices(group, times, visibility, pending_compaction=barrier)
        return slices[0] if slices else None

    return patch.object(changes, "latest_slice", weak)


#: The bugs, by name.
CONFLICT_BUGS: dict[str, _Bug] = {
    "conflicts by requested time": _conflicts_by_requested_time,
    "committed behind out of order": _committed_behind_out_of_order,
    "committed behind after reading": _committed_behind_after_reading,
    "base files unchecked": _base_files_unchecked,
    "compactions ignored": _compactions_ignored,
    "parts left alone": _parts_left_alone,
    "keys taken for new": _keys_taken_for_new,
    "priority ignored": _priority_ignored,
    "replaced unchecked": _replaced_unchecked,
    "ownership checked once": _ownership_checked_once,
    "no fence": _no_fence,
    "fence without a check": _fence_without_a_check,
    "sliced by requested time": _sliced_by_requested_time,
    "polled by requested time": _polled_by_requested_time,
    "pending compaction hides logs": _pending_compaction_hides_logs,
}
