"""Which files a clean removes, and for every file of the table why it goes or stays.

Two points say what is retained. The *earliest instant* is a requested time, chosen as Hudi chooses
it: the oldest of the last so many completed writes of the active timeline, or the beginning of the
last so many hours, and never later than a pending write. From it on Hudi's own time travel works:
of each file group the newest slice below it stays, and every slice above. The second point is a
completion time, *since*: the first at which one of the retained writes became visible, or by hours
when the state became visible that was there so many hours ago; or before that the beginning of a
pending write, which may still read the table as it was then. A snapshot there or later needs of
each group the newest base file that had completed by then, and everything above it. A slice that
either point needs stays, and so does every file that completed since.

Both points move back for a registered consumer, to where it has read: its next read may end
anywhere behind that, and partial rows are read as of its end.

A file group that a replace commit replaced goes as a whole, once no retained point is before that
commit. Files that a pending plan or a savepoint names stay, with the slice they are in. Files of a
pending write stay, since only a rollback removes them; files of instants on no timeline are left to
repair. A partition whose files are all removed stays as a folder with its metadata file: writers
rely on that file.

Counting versions is simpler: so many slices of each group, and the state of the table now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import tzinfo
from enum import StrEnum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequestError
from pyhudi.format.timeline.instant import Action, Instant
from pyhudi.format.timeline.plan_files import CleanerPlan, CleanFile, RetainedInstant
from pyhudi.plan.clean_verdicts import FileVerdicts, Horizon, Judge, Pins
from pyhudi.plan.retention import RETAINED_SINCE_KEY, Retention
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes
from pyhudi.timeline.instant_time import clock_time
from pyhudi.timeline.timeline import Timeline
from pyhudi.wording import REASONS_MAX, counted, readable

#: Extra metadata of a clean, by which Hudi finds what a removed savepoint held.
SAVEPOINTS_KEY: Final = "savepointed_timestamps"
_KEEP_MAX = 10**9


class CleanBy(StrEnum):
    """What is counted; the values are Hudi's names."""

    COMMITS = "KEEP_LATEST_COMMITS"
    VERSIONS = "KEEP_LATEST_FILE_VERSIONS"
    HOURS = "KEEP_LATEST_BY_HOURS"


_UNITS = {CleanBy.COMMITS: "commit", CleanBy.VERSIONS: "version", CleanBy.HOURS: "hour"}


@dataclass(frozen=True, slots=True)
class CleanPolicy:
    """How much history a clean retains; the defaults are Hudi's."""

    by: CleanBy = CleanBy.COMMITS
    keep: int = 10

    def __post_init__(self) -> None:
        is_number = isinstance(self.keep, int) and not isinstance(self.keep, bool)
        if not isinstance(self.by, CleanBy):
            raise InvalidRequestError(
                f"by={self.by!r:.100} cannot be used for cleaning",
                why="commits, versions or hours can be counted",
                next_step="Write CleanPolicy.commits(10), .versions(3) or .hours(24)",
            )
        if not is_number or not 1 <= self.keep <= _KEEP_MAX:
            raise InvalidRequestError(
                f"keep={self.keep!r:.100} cannot be used for cleaning",
                why=f"it must be a whole number from 1 to {_KEEP_MAX}",
                next_step="Say how many commits, versions or hours to retain",
            )

    @classmethod
    def commits(cls, keep: int = 10) -> CleanPolicy:
        """Retain every state of the table that one of the last `keep` commits left.

        Only commits of the active timeline are counted: archiving must leave more than these.
        """
        return cls(CleanBy.COMMITS, keep)

    @classmethod
    def versions(cls, keep: int = 3) -> CleanPolicy:
        """Retain that many slices of each file group. Of older states, nothing is promised."""
        return cls(CleanBy.VERSIONS, keep)

    @classmethod
    def hours(cls, keep: int = 24) -> CleanPolicy:
        """Retain every state that the table has had in the last `keep` hours."""
        return cls(CleanBy.HOURS, keep)

    def __str__(self) -> str:
        return f"the last {counted(self.keep, _UNITS[self.by])}"


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """What a clean would do. `files` has a row for every data file of the table."""

    policy: CleanPolicy
    earliest: Instant | None  # the oldest instant that stays readable; None if versions count
    since: str  # the completion time from which on every snapshot stays whole
    last_completed: str  # the newest requested time of a completed write
    files: pa.Table = field(repr=False)
    savepoints: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()  # pending cleans, which are finished before this one is planned

    @property
    def going(self) -> pa.Table:
        return self.files.filter(self.files["goes"])

    @property
    def count(self) -> int:
        """The number of files that go."""
        return pc.sum(self.files["goes"]).as_py() or 0

    @property
    def bytes(self) -> int:
        """The bytes of the files that go."""
        return pc.sum(self.going["bytes"]).as_py() or 0

    def cleaner_plan(self, base_uri: str) -> CleanerPlan:
        """Return the plan as Hudi stores it."""
        by_partition: dict[str, list[CleanFile]] = {}
        going = self.going
        for partition, path in zip(
            going["partition"].to_pylist(), going["path"].to_pylist(), strict=True
        ):
            file = CleanFile(f"{base_uri}/{path}", is_bootstrap_base_file=False)
            by_partition.setdefault(partition, []).append(file)
        kept, retained = self.earliest, None
        if kept is not None:
            retained = RetainedInstant(kept.requested, kept.action.value, "COMPLETED")
        extra = {RETAINED_SINCE_KEY: self.since} if self.since else {}
        if self.savepoints:
            extra[SAVEPOINTS_KEY] = ",".join(self.savepoints)
        return CleanerPlan(
            earliest_instant_to_retain=retained,
            last_completed_commit_timestamp=self.last_completed,
            policy=self.policy.by.value,
            files_to_be_deleted_per_partition={},
            file_paths_to_be_deleted_per_partition={p: tuple(f) for p, f in by_partition.items()},
            partitions_to_be_deleted=(),
            extra_metadata=extra,
        )

    def __str__(self) -> str:
        total, count = self.files.num_rows, self.count
        bytes_ = pc.sum(self.files["bytes"]).as_py() or 0
        lines = [
            f"cleaning that keeps {self.policy}: {count:,} of {total:,} files go"
            f" ({readable(self.bytes, 'B')} of {readable(bytes_, 'B')})"
        ]
        for requested in self.pending:
            lines.append(
                f"clean {requested} is still pending; its plan has some of the files below"
            )
        if count:
            lines.append(f"the table stays readable as of {self.since} and later")
        lines += self._reasons("goes", goes=True) + self._reasons("stays", goes=False)
        return "\n".join(lines)

    def _reasons(self, word: str, *, goes: bool) -> list[str]:
        """Return a line for each reason. A table has thousands of files and few reasons."""
        files = self.files.filter(pc.equal(self.files["goes"], goes))
        texts = files["reason"].cast(pa.string())
        facts = [("path", "count"), ("path", "min"), ("bytes", "sum")]
        groups = files.set_column(files.schema.get_field_index("reason"), "reason", texts)
        order = [("path_count", "descending"), ("path_min", "ascending")]
        found = groups.group_by("reason").aggregate(facts).sort_by(order)
        shown = []
        for row in found.slice(0, REASONS_MAX).to_pylist():
            count, path, size = row["path_count"], row["path_min"], readable(row["bytes_sum"], "B")
            which = path if count == 1 else f"{counted(count, 'file')} such as {path}"
            shown.append(f"{word}  {which} ({size}): {row['reason']}")
        more = found.num_rows - len(shown)
        rest = f"{word}  for {counted(more, 'more reason')}: see `files`"
        return [*shown, rest] if more else shown


def plan_cleaning(
    state: TableState,
    times: CompletionTimes,
    policy: CleanPolicy,
    *,
    now_ms: int,
    pins: Pins | None = None,
    retention: Retention | None = None,
) -> CleanPlan:
    """Judge every file. `retention` is what earlier cleans left; what they removed stays lost.

    `times` must know when each archived write completed whose file lies beside others.
    """
    pins, retention = pins or Pins(), retention or Retention()
    timeline = state.timeline
    horizon = _horizon(timeline, policy, now_ms, state.config.zone, pins)
    judge = Judge(
        state,
        times,
        horizon,
        pins,
        nothing_goes=_nothing_goes(timeline, policy),
        versions=f"among {policy}",
    )
    verdicts = FileVerdicts()
    for group in state.groups():
        judge.judge(group, verdicts)
    lowest = judge.lowest or Horizon(None, "")
    earliest = (
        None if lowest.versions else lowest.earliest and max(lowest.earliest, retention.earliest)
    )
    return CleanPlan(
        policy,
        earliest=_first_from(timeline, earliest),
        since=max(lowest.since, retention.since),
        last_completed=max(timeline.completion_times, default=""),
        files=verdicts.table(),
        savepoints=pins.savepoints,
    )


def _first_from(timeline: Timeline, earliest: str | None) -> Instant | None:
    """Return the first completed write that was requested at the time or later."""
    if not earliest:
        return None
    later = [write for write in timeline.writes if write.requested >= earliest]
    return min(later, key=lambda write: write.requested, default=None)


# ---- how far back is retained


_PLAIN_WRITES = (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)


def _horizon(
    timeline: Timeline, policy: CleanPolicy, now_ms: int, zone: tzinfo | None, pins: Pins
) -> Horizon | None:
    """Return what the policy retains and writes under way need.

    None if nothing is old enough to go.
    """
    done = timeline.completion_times
    if not done:
        return None
    if policy.by is CleanBy.VERSIONS:
        horizon = Horizon(None, max(done.values()), policy.keep)
    else:
        cut = clean_cut(policy, now_ms, zone)
        earliest = _earliest(timeline, policy, cut)
        if earliest is None:
            return None
        if cut is None:
            since = min(e for r, e in done.items() if r >= earliest)
        else:
            since = max((e for e in done.values() if e <= cut), default=cut)
        horizon = Horizon(earliest, since)
    # Its tasks may still read what was there when it began.
    begun = [i.requested for i in timeline.pending if i.action in _PLAIN_WRITES]
    horizon = horizon._replace(since=min([horizon.since, *begun]))
    for saved in pins.unfinished_savepoints:
        horizon = horizon.saving(saved, done.get(saved, saved))
    return horizon


def clean_cut(policy: CleanPolicy, now_ms: int, zone: tzinfo | None) -> str | None:
    """Return the time from which on a policy by hours retains everything; None for the others."""
    if policy.by is not CleanBy.HOURS:
        return None
    return clock_time(max(0, now_ms - policy.keep * 3_600_000), zone)


def _earliest(timeline: Timeline, policy: CleanPolicy, cut: str | None) -> str | None:
    """Return the earliest requested time to retain.

    Commits are counted as Hudi does, on the active timeline. Hours need no timeline: the names of
    files say when each was requested.
    """
    writes = sorted(timeline.completion_times)
    if cut is not None:
        if writes[-1] < cut:
            return None  # as in Hudi, a table without new writes is left alone
        earliest = cut
    elif len(writes) <= policy.keep:
        return None
    else:
        earliest = writes[-policy.keep]
    under_way = min(timeline.pending_writes, default=None)
    if under_way is not None and earliest > under_way:
        return max((write for write in writes if write < under_way), default=None)
    return earliest


def _nothing_goes(timeline: Timeline, policy: CleanPolicy) -> str:
    """Return why nothing goes, for the case that nothing does."""
    writes = len(timeline.completion_times)
    if policy.by is CleanBy.COMMITS and writes <= policy.keep:
        return f"the active timeline has {writes} completed writes, and {policy} are retained"
    if policy.by is CleanBy.HOURS:
        return f"{policy} are retained, and nothing is older, or nothing was written since"
    return f"{policy} are retained, or what a pending write may need, and nothing is older"
