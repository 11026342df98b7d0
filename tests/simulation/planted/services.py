"""Planted bugs in the table services: compaction, cleaning, archiving.

As in `commit`, each weakens the code of production at one point, and has no state of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from pyhudi.errors import InvalidRequestError
from pyhudi.format.timeline.archive import VERSION_FILE, encode_archive_version
from pyhudi.format.timeline.instant import Action, Instant
from pyhudi.plan.archiving import choose as archiving
from pyhudi.plan.clean_verdicts import CleanRule, Pins
from pyhudi.plan.compaction import choose as compaction
from pyhudi.plan.pending_plans import PendingPlans
from pyhudi.read import load
from pyhudi.read.plan import Reader
from pyhudi.services import consumers
from pyhudi.services.archiving import facts as archiving_facts
from pyhudi.services.archiving.archive_files import ArchiveFiles, Snapshot
from pyhudi.services.archiving.execute import Archiver
from pyhudi.services.cleaning import execute as cleaning
from pyhudi.services.cleaning import pins as clean_pins
from pyhudi.services.cleaning import schedule as clean_schedule
from pyhudi.services.cleaning.execute import Cleanings
from pyhudi.services.cleaning.result import Cleaned
from pyhudi.services.cleaning.schedule import CleanPlanning
from pyhudi.services.compaction.schedule import Scheduling
from pyhudi.services.planned_action import Execution
from pyhudi.storage.objects import timeline_listing as listed_timeline
from pyhudi.table.file_group import FileSlice
from pyhudi.table.file_slices import latest_slice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes, Visibility
from pyhudi.timeline.timeline import Timeline

_Bug = Callable[[], AbstractContextManager[Any]]
_EVERYTHING = Visibility(frozenset(), "9" * 18)


# -- compaction


def _planned_without_a_check() -> AbstractContextManager[Any]:
    """A plan is begun although writes completed since the table was loaded for it."""
    return patch.object(Scheduling, "_changes", lambda self, live: None)


def _late_logs_compacted() -> AbstractContextManager[Any]:
    """Logs of pending writes are compacted, too: they complete after the plan, if they do."""

    def weak(state: TableState, times: CompletionTimes, partitions: Any) -> Iterable[FileSlice]:
        found = (latest_slice(group, times, _EVERYTHING) for group in state.groups())
        return [slice_ for slice_ in found if slice_ is not None and slice_.logs]

    return patch.object(compaction, "_with_logs", weak)


def _plans_share_file_groups() -> AbstractContextManager[Any]:
    """File groups of pending plans are not excluded."""
    return patch.object(PendingPlans, "holders", lambda self: lambda group: None)


# -- cleaning


def _pins(weak: Callable[[Pins], Pins]) -> AbstractContextManager[Any]:
    load_all = clean_pins.load_pins

    def load_less(*arguments: Any) -> Pins:
        return weak(load_all(*arguments))

    return patch.object(clean_schedule, "load_pins", load_less)


def _pending_plans_cleaned() -> AbstractContextManager[Any]:
    """Hudi #19290: the files that a pending compaction reads are cleaned."""

    def weak(pins: Pins) -> Pins:
        others = {path: v for path, v in pins.files.items() if v.rule is not CleanRule.PLAN}
        return replace(pins, files=others)

    return _pins(weak)


def _consumers_cleaned() -> AbstractContextManager[Any]:
    """Consumers that have not read yet are ignored."""
    return _all(
        _pins(lambda pins: replace(pins, consumers=())),
        patch.object(clean_schedule, "live_consumers", lambda storage, now_ms: ()),
    )


def _cleaned_without_a_check() -> AbstractContextManager[Any]:
    """A clean is begun and executed as planned, whatever came since the table was loaded."""
    return _all(
        patch.object(CleanPlanning, "_listed_changes", lambda self, facts: None),
        patch.object(CleanPlanning, "_unchanged", lambda self, facts, decided: lambda live: None),
        patch.object(Cleanings, "_examined", lambda self, requested, planned: (0, frozenset())),
    )


def _registered_without_a_check() -> AbstractContextManager[Any]:
    """A consumer is registered although a clean that does not know it is pending."""
    return patch.object(consumers, "_refuse_lost", lambda writer, consumer: None)


def _cleaned_times_read() -> AbstractContextManager[Any]:
    """A state of which files are gone is read: fewer rows, and no error."""
    return patch.object(Reader, "_refuse_cleaned", lambda self, state, point: None)


def _cancelled_cleans_record_nothing() -> AbstractContextManager[Any]:
    """A clean that is cancelled before it began is recorded as one of nothing, though a process may
    have begun it since."""
    cancel = Cleanings.cancel

    def weak(self: Cleanings, requested: str) -> Cleaned:
        pending = {instant.requested for instant in self.pending()}
        if requested not in pending or self._seems_executed(requested):
            raise InvalidRequestError("not now", why="it is not pending", next_step="Wait")
        if self._log._facts.is_inflight(requested, Action.CLEAN):
            return cancel(self, requested)
        if (ended := self._make_inflight(requested)) is not None:
            return self._ended_before(requested, ended, 0)
        run = Execution(requested, cleaning._Plan(cleaning._NO_PLAN, {}), 0)
        return self._finished(run, 0, self._complete(run, 0))

    return patch.object(Cleanings, "cancel", weak)


# -- archiving


def _late_files_count_as_pending() -> AbstractContextManager[Any]:
    """An inflight file that was created when its instant was archived counts as a pending write."""
    return _all(
        *(
            patch.object(module, "without_orphaned_inflights", tuple)
            for module in (listed_timeline, load)
        )
    )


def _pending_passed() -> AbstractContextManager[Any]:
    """A pending write does not stop archiving, nor does one that was aborted a moment ago."""
    return patch.object(archiving._Planning, "_pending_stops", lambda self: iter(()))


def _removed_before_archived() -> AbstractContextManager[Any]:
    """Instants leave the active timeline, and then the archive's manifest is written."""

    def weak(
        self: Archiver,
        files: ArchiveFiles,
        snapshot: Snapshot,
        timeline: Timeline,
        batch: tuple[Instant, ...],
        done: Any,
        may_go_on: Callable[[], bool],
    ) -> Snapshot | None:
        loaded = list(self._loaded(timeline, batch))
        self._remove(timeline, batch, may_go_on)
        added = files.add(snapshot, loaded) if loaded else None
        return None if added is None else added.snapshot

    return patch.object(Archiver, "_archive", weak)


def _orphans_passed() -> AbstractContextManager[Any]:
    """Late files of aborted writes stay when the active timeline moves past them."""
    return patch.object(Archiver, "_sweep_aborted", lambda self, plan, done: None)


def _version_overwritten() -> AbstractContextManager[Any]:
    """An archiver that slept sets the archive's version back."""

    def weak(self: ArchiveFiles, number: int) -> None:
        self._storage.write(self._path(VERSION_FILE), encode_archive_version(number))

    return patch.object(ArchiveFiles, "_move_version", weak)


def _completed_removed_first() -> AbstractContextManager[Any]:
    """An archived instant looks pending until the rest of it is removed."""
    remove = Archiver._remove

    def weak(
        self: Archiver, timeline: Timeline, instants: Iterable[Instant], may_go_on: Any
    ) -> None:
        there = list(instants)
        for instant in there:
            self._storage.delete(self._log.path(instant))
        remove(self, timeline, there, may_go_on)

    return patch.object(Archiver, "_remove", weak)


def _old_logs_passed() -> AbstractContextManager[Any]:
    """A write is archived though a log of it is older than its base file."""
    return patch.object(archiving_facts, "old_logs", lambda groups, timeline, replaced=None: {})


def _recent_ones_archived() -> AbstractContextManager[Any]:
    """Recent instants are archived: a process that slept publishes them once more."""
    return _all(
        patch.object(archiving._Planning, "_is_recent", lambda self, instant: False),
        patch.object(archiving_facts, "recent_times", lambda log, before_ms: None),
    )


@contextmanager
def _all(*replacements: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for replacement in replacements:
            stack.enter_context(replacement)
        yield


#: The bugs, by name.
SERVICE_BUGS: dict[str, _Bug] = {
    "planned without a check": _planned_without_a_check,
    "late logs compacted": _late_logs_compacted,
    "plans share file groups": _plans_share_file_groups,
    "pending plans cleaned": _pending_plans_cleaned,
    "consumers cleaned": _consumers_cleaned,
    "cleaned without a check": _cleaned_without_a_check,
    "registered without a check": _registered_without_a_check,
    "cleaned times read": _cleaned_times_read,
    "cancelled cleans record nothing": _cancelled_cleans_record_nothing,
    "late files count as pending": _late_files_count_as_pending,
    "pending passed": _pending_passed,
    "removed before archived": _removed_before_archived,
    "orphans passed": _orphans_passed,
    "version overwritten": _version_overwritten,
    "completed removed first": _completed_removed_first,
    "recent ones archived": _recent_ones_archived,
    "old logs passed": _old_logs_passed,
}
