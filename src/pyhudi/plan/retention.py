"""From which point on every state of the table can still be read, after all cleans.

A clean records what it retained as a requested time, the one below which slices may have lost
files. That answers Hudi's time travel, which compares requested times. A snapshot by completion
time needs more: a base file that was requested before that time and completed long after it hides
the slices below it from a cleaner that looks at requested times alone, while a snapshot between the
two still needs them; and so does a replace commit. So for cleans of Hudi the bound is when the last
such write completed. Our own cleans retain those slices, and record from which completion time on
everything is whole.

A clean that is only planned counts too: its files may be removed at this moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pyhudi.format.timeline.instant import is_instant_time
from pyhudi.format.timeline.plan_files import CleanerPlan
from pyhudi.format.timeline.service_metadata import CleanMetadata
from pyhudi.table.state import TableState
from pyhudi.timeline.cut import cut_time

#: Extra metadata of our cleans: the completion time from which every snapshot is whole.
RETAINED_SINCE_KEY: Final = "pyhudi.kept_since"


@dataclass(frozen=True, slots=True)
class Retention:
    """Points from which on the table can be read; empty if it always could."""

    earliest: str = ""  # a requested time
    since: str = ""  # a completion time


@dataclass(frozen=True, slots=True)
class CleanBound:
    """What one clean, planned or done, says about what it leaves."""

    planned: str  # the clean's own requested time
    earliest: str  # the requested time from which it retains; "" if it counted versions
    last: str  # the newest requested time when it was planned
    since: str | None  # the completion time, if it records one
    removes: bool

    @property
    def is_bound(self) -> bool:
        return bool(self.earliest) or self.removes


def bound_of_clean(clean: CleanMetadata) -> CleanBound:
    # A clean that was run twice finds its files missing, and counts that as a failure.
    partitions = clean.partition_metadata.values()
    removes = clean.total_files_deleted > 0 or any(p.failed_delete_files for p in partitions)
    return CleanBound(
        clean.start_clean_time,
        clean.earliest_commit_to_retain,
        clean.last_completed_commit_timestamp,
        _recorded_since(clean.extra_metadata),
        removes,
    )


def bound_of_plan(requested: str, plan: CleanerPlan) -> CleanBound:
    files = (plan.file_paths_to_be_deleted_per_partition, plan.files_to_be_deleted_per_partition)
    retained = plan.earliest_instant_to_retain
    return CleanBound(
        requested,
        "" if retained is None else retained.timestamp,
        plan.last_completed_commit_timestamp,
        _recorded_since(plan.extra_metadata),
        any(group for named in files if named for group in named.values()),
    )


def _recorded_since(extra: object) -> str | None:
    recorded = extra.get(RETAINED_SINCE_KEY) if isinstance(extra, dict) else None
    return recorded if isinstance(recorded, str) and is_instant_time(recorded) else None


_NOTHING: Mapping[str, str] = MappingProxyType({})


def retention_after(
    state: TableState, cleans: Iterable[CleanBound], archived: Mapping[str, str] = _NOTHING
) -> Retention:
    """Return what all of these cleans together have left.

    Among cleans of Hudi `archived` must have the completion times of the archived writes whose
    files are there, of those that the cleans retained, and of those that replaced file groups.
    """
    bounds = [clean for clean in cleans if clean.is_bound]
    if not bounds:
        return Retention()
    recorded = [bound.since for bound in bounds if bound.since is not None]
    foreign = [bound for bound in bounds if bound.since is None]
    done = {**archived, **state.timeline.completion_times}
    return Retention(
        earliest=max(bound.earliest or bound.last for bound in bounds),
        since=max(
            [*recorded, _since_by_request(state, foreign, done), _since_by_versions(foreign, done)]
        ),
    )


def preserves_state(clean: CleanBound, state: TableState, late: Iterable[str]) -> bool:
    """True if a clean that knew of later completions leaves all that the state needs.

    `late` are the requested times of writes that completed after the state's cut. A clean of Hudi
    goes by requested times: such a write below its earliest one supersedes what the state needs. A
    clean by versions that names no completion time counted versions of later writes.
    """
    if not clean.is_bound:
        return True
    if clean.since is not None:
        return clean.since <= cut_time(state.timeline)
    if not clean.earliest or not state.timeline.is_committed(clean.earliest):
        return False
    return not any(requested < clean.earliest for requested in late)


def _since_by_request(
    state: TableState, bounds: Sequence[CleanBound], done: Mapping[str, str]
) -> str:
    """Return when what lies below the earliest requested time was complete, in every file group.

    A base file below it that does not count hides nothing: its write is under way, or was rolled
    back.
    """
    earliest = max((bound.earliest for bound in bounds), default="")
    if not earliest:
        return ""
    replacing = {r for instants in state.replaced.values() for r in instants if r < earliest}
    since = max([done.get(earliest, earliest), *(done.get(r, "") for r in replacing)])
    for group in state.groups():
        for base in reversed(group.bases):
            requested = base.name.requested
            if requested < earliest and state.timeline.is_committed(requested):
                since = max(since, done.get(requested, ""))
                break
    return since


def _since_by_versions(bounds: Sequence[CleanBound], done: Mapping[str, str]) -> str:
    """Return the point that cleaning by versions leaves.

    It retains no point in time: only the newest one when it was planned is whole.
    """
    planned = max((bound.planned for bound in bounds if not bound.earliest), default="")
    return max((time for time in done.values() if time < planned), default=planned)
