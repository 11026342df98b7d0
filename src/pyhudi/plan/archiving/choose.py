"""Which instants leave the active timeline for the archive, and why each other one stays.

Readers count a file whose instant is older than the first active write as committed: its name is
all that is left of it. So writes leave in the order of their requests, without a gap, and where the
active timeline begins afterwards decides what becomes visible. Every rule below is a point at which
that order has to stop:

- archiving starts when more than `keep_max` completed writes are there, and leaves `keep_min`;
- a completed write stays in front of every pending instant, and in front of an aborted one of which
  a file may still appear; so does a write that completed while a pending one was running, since
  that one checks for conflicts with it;
- the earliest savepoint and all behind it stay, and so do the writes that the last clean retained,
  those that a compaction's trigger counts, and those that a consumer has not read;
- a write that replaced file groups stays as long as files of theirs are there: it hides them;
- a write stays while one of its logs lies on a younger base file in a latest slice: only the
  write's completion time says that the log belongs there, and hudi-rs does not know it of archived
  writes;
- a write stays in front of a file whose instant is on no timeline: readers ignore the file as long
  as it is younger than that write, and it is unknown whether it may be removed;
- an instant of the last entries of the decision log stays until every process must have read
  further, because one that slept would apply the entry once more (section 10 of the protocol);
- the newest write with a schema stays, and so does the one that completed last, however long ago it
  began: consumers read up to the last completion that is active.

Cleans and rollbacks are archived after the writes around them. The cleans that say how far back the
table can be read stay, so that every read finds them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.instant import Action, Instant, InstantTime
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.plan.compaction.preview import group_name
from pyhudi.table.file_group import FileGroupFiles
from pyhudi.table.file_slices import is_replaced, latest_slice
from pyhudi.timeline.completion import CompletionTimes, visible_now
from pyhudi.timeline.timeline import WRITE_ACTIONS, Timeline
from pyhudi.wording import by_reason, counted, first_reasons

#: What leaves beside writes.
_COMPANIONS = frozenset({Action.CLEAN, Action.ROLLBACK})
_AFTER_ALL = "9" * 18
#: Requested times of active writes → file groups.
OldLogs: TypeAlias = Mapping[str, tuple[FileGroupId, ...]]


@dataclass(frozen=True, kw_only=True)
class ArchiveFacts:
    """What is known when instants are chosen. Times are requested times unless noted."""

    timeline: Timeline
    is_mor: bool = True
    #: In the archive already: the process that archived them ended before it removed their files.
    #: Also among the targets of rollbacks.
    archived: frozenset[str] = frozenset()
    #: Completion times from the first to the last are of recent entries of the decision log.
    recent_entries: tuple[str, str] | None = None
    #: Rollbacks and restores, pending or completed → their targets.
    rollback_targets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Of these, the completed ones that are so recent that a file may still appear.
    recent_rollbacks: frozenset[str] = frozenset()
    retained: str = ""  # the earliest write that the last clean retained whole
    retained_cleans: frozenset[str] = frozenset()  # which say how far back the table can be read
    #: Completed replace commits whose replaced file groups still have files.
    live_replacements: frozenset[str] = frozenset()
    consumers_since: str | None = None  # completion time up to which every consumer has read
    swept: frozenset[str] = frozenset()  # aborted, and known to have left nothing
    #: Instants that are on no timeline, and were not rolled back → a data file of each.
    unknown: Mapping[str, str] = field(default_factory=dict)
    #: Completed writes → the file groups in which a log of theirs is older than its base file.
    old_logs: OldLogs = field(default_factory=dict)

    @cached_property
    def known_instants(self) -> frozenset[str]:
        """Instants that are on the timeline, in the archive, or the target of a rollback."""
        targeted = (target for targets in self.rollback_targets.values() for target in targets)
        return frozenset(
            {*(i.requested for i in self.timeline.instants), *self.archived, *targeted}
        )

    @cached_property
    def unfinished_rollbacks(self) -> frozenset[str]:
        """Targets of rollbacks that are pending, or so recent that a file may still appear."""
        pending = {i.requested for i in self.timeline.pending}
        unsafe = (r for r in self.rollback_targets if r in self.recent_rollbacks or r in pending)
        return frozenset(
            target for rollback in unsafe for target in self.rollback_targets[rollback]
        )


@dataclass(frozen=True, slots=True)
class InstantVerdict:
    """An instant, and why it goes or stays."""

    instant: Instant
    goes: bool
    why: str

    def __str__(self) -> str:
        what = "goes " if self.goes else "stays"
        return f"{what} {self.instant.requested} {self.instant.action.value}: {self.why}"


@dataclass(frozen=True)
class ArchivePlan:
    """What archiving would do now."""

    timeline: Timeline
    verdicts: tuple[InstantVerdict, ...]
    finished: tuple[Instant, ...]  # in the archive already; only their files have to go
    #: Aborted instants whose files must be removed before the active timeline begins behind them,
    #: or at once where it does already.
    passed: tuple[str, ...]
    stopped_by: str = ""  # why no more instants go
    begin: str = ""  # the first active write afterwards
    stopped_at: str = ""  # a file of an instant on no timeline, if one is in the way
    #: File groups that keep the next write, for a log of it there is older than its base file.
    held_by: tuple[str, ...] = ()

    @cached_property
    def leaving(self) -> tuple[Instant, ...]:
        """The instants that go to the archive, oldest request first."""
        return tuple(verdict.instant for verdict in self.verdicts if verdict.goes)

    @property
    def is_empty(self) -> bool:
        return not self.leaving and not self.finished

    def __str__(self) -> str:
        lines = [f"{len(self.leaving)} of {len(self.verdicts)} instants go to the archive"]
        lines[0] += f"; the next write stays: {self.stopped_by}" if self.stopped_by else ""
        if self.finished:
            lines.append(f"{len(self.finished)} are there already, and their files are removed")
        if self.passed:
            failed = counted(len(self.passed), "failed write")
            lines.append(f"what {failed} may have left is removed")
        for goes in (True, False):
            of_kind = ((each, each.why) for each in self.verdicts if each.goes is goes)
            lines += first_reasons([_reason_line(*of) for of in by_reason(of_kind)])
        return "\n".join(lines)


def _reason_line(why: str, verdicts: Sequence[InstantVerdict]) -> str:
    first, last = verdicts[0], verdicts[-1]
    if first is last:
        return str(first)
    what = "go  " if first.goes else "stay"
    times = f"between {first.instant.requested} and {last.instant.requested}"
    return f"{what}  {counted(len(verdicts), 'instant')} {times}: {why}"


@dataclass(frozen=True, slots=True)
class _Stop:
    """How many of the oldest writes may go, and why no more."""

    count: int
    why: str
    held_by: tuple[FileGroupId, ...] = ()


def plan_archiving(facts: ArchiveFacts, policy: ArchivePolicy) -> ArchivePlan:
    """Return what leaves the active timeline now."""
    return _Planning(facts, policy).plan()


class _Planning:
    def __init__(self, facts: ArchiveFacts, policy: ArchivePolicy) -> None:
        self._facts = facts
        self._policy = policy
        timeline = facts.timeline
        saved = (i.requested for i in timeline.completed(Action.SAVEPOINT))
        self._savepoint = min(saved, default=None)
        self._finished = tuple(i for i in timeline.instants if self._is_finished(i))
        gone = {i.requested for i in self._finished}
        done = timeline.completed(*WRITE_ACTIONS)
        #: Completed writes by request: those that go are the first ones.
        self._writes = tuple(i for i in done if i.requested not in gone)
        self._gone = gone

    def _is_finished(self, instant: Instant) -> bool:
        if instant.action is Action.SAVEPOINT or instant.requested not in self._facts.archived:
            return False
        if instant.requested >= self._first_unpassed:
            return False
        return self._savepoint is None or instant.requested < self._savepoint

    @cached_property
    def _first_unpassed(self) -> str:
        """The write that has to stay in front of a file of an unknown instant."""
        if not self._facts.unknown:
            return _AFTER_ALL
        first, timeline = min(self._facts.unknown), self._facts.timeline
        saved = {i.requested for i in timeline.completed(Action.SAVEPOINT)}
        before = (r for r in timeline.completion_times if r < first and r not in saved)
        return max(before, default="")

    def plan(self) -> ArchivePlan:
        stop = min(self._stops(), key=lambda stop: stop.count)
        count = max(0, stop.count)
        verdicts = tuple(self._verdicts(count, stop.why))
        leaving = {v.instant.requested for v in verdicts if v.goes} | self._gone
        begin = self._begin(leaving)
        targeted = {t for targets in self._facts.rollback_targets.values() for t in targets}
        targeted -= {i.requested for i in self._facts.timeline.pending}
        gone_by = (t for t in targeted if t < begin and self._is_aborted(t))
        passed = tuple(sorted(t for t in gone_by if not self._is_swept(t)))
        unknown = self._facts.unknown
        in_the_way = unknown[min(unknown)] if unknown else ""
        return ArchivePlan(
            self._facts.timeline,
            verdicts,
            self._finished,
            passed,
            stop.why,
            begin,
            in_the_way,
            tuple(map(group_name, stop.held_by)),
        )

    def _is_swept(self, requested: str) -> bool:
        """True if the target lies before the active timeline already and nothing is left of it.

        Either a run swept it first and then moved the begin past it, or another engine archived the
        writes before it, or they are savepointed, which readers skip. So its files are looked for
        once.
        """
        begin = self._facts.timeline.first_active or ""
        return requested < begin and requested in self._facts.swept

    def _is_aborted(self, requested: str) -> bool:
        if requested in self._facts.archived:
            return False
        return requested not in self._facts.timeline.completion_times

    def _begin(self, leaving: set[InstantTime]) -> str:
        """Return the first active write once these are archived.

        Readers count what is older as committed.
        """
        timeline = self._facts.timeline
        left = tuple(i for i in timeline.instants if i.requested not in leaving)
        return Timeline(left, timeline.began_as).first_active or ""

    # -- where the order of writes has to stop

    def _stops(self) -> Iterator[_Stop]:
        policy, count = self._policy, len(self._writes)
        if count <= policy.keep_max:
            yield _Stop(0, f"no more than {policy.keep_max} completed writes are there")
            return
        yield _Stop(count - policy.keep_min, f"the newest {policy.keep_min} writes stay")
        yield from self._pending_stops()
        yield from self._needed_stops()
        for number, write in enumerate(self._writes):
            if self._is_recent(write):
                yield _Stop(number, "its entry in the decision log is recent")
                break
        for number, write in enumerate(self._writes):
            if write.requested in self._facts.live_replacements:
                yield _Stop(number, "it hides file groups that still have files")
                break
        for number, write in enumerate(self._writes):
            if groups := self._facts.old_logs.get(write.requested):
                yield _Stop(number, _old_log(groups), groups)
                break
        newest = max((n for n, w in enumerate(self._writes) if self._brings_rows(w)), default=0)
        yield _Stop(newest, "it is the newest write with a schema")
        last = max(range(count), key=lambda n: self._writes[n].completed or "")
        yield _Stop(last, "no write completed later, and consumers come as far as the last one")

    def _pending_stops(self) -> Iterator[_Stop]:
        timeline = self._facts.timeline
        pending = sorted(i.requested for i in timeline.pending if i.requested not in self._gone)
        if pending:
            first = pending[0]
            yield _Stop(self._before(first), f"{first} is pending, and a write before it stays")
            late = (n for n, w in enumerate(self._writes) if (w.completed or "") > first)
            why = f"it completed while {first} was pending, which checks for conflicts with it"
            yield _Stop(next(late, len(self._writes)), why)
        for target in self._unsafe_targets():
            why = f"{target} was aborted, and a file of it may still appear"
            yield _Stop(self._before(target), why)
            break
        for target in sorted(self._facts.unknown)[:1]:
            why = f"{target} is on no timeline, and its file {self._facts.unknown[target]} would"
            yield _Stop(self._before(target), f"{why} become visible; see services.repair()")

    def _unsafe_targets(self) -> list[str]:
        """Return the aborted instants whose rollback is not finished, the oldest first."""
        begin = self._facts.timeline.first_active or ""  # what is older is passed already
        unsafe = (t for t in self._facts.unfinished_rollbacks if t >= begin)
        return sorted(target for target in unsafe if self._is_aborted(target))

    def _before(self, time: str) -> int:
        """Return how many writes may go so that one requested before the time stays.

        A savepointed write does not count: readers skip it when they look for the first.
        """
        saved = {i.requested for i in self._facts.timeline.completed(Action.SAVEPOINT)}
        before = [n for n, w in enumerate(self._writes) if w.requested < time]
        return next((n for n in reversed(before) if self._writes[n].requested not in saved), 0)

    def _needed_stops(self) -> Iterator[_Stop]:
        facts = self._facts
        if self._savepoint is not None:
            why = f"a savepoint keeps what is not older than {self._savepoint}"
            yield _Stop(self._from(self._savepoint), why)
        if facts.retained:
            why = f"cleaning has retained what is needed from {facts.retained} on"
            yield _Stop(self._from(facts.retained), why)
        if facts.consumers_since is not None:
            since = facts.consumers_since
            unread = (n for n, w in enumerate(self._writes) if (w.completed or "") > since)
            why = f"a consumer has read up to {since}"
            yield _Stop(next(unread, len(self._writes)), why)
        if facts.is_mor:
            yield self._counted()

    def _from(self, requested: str) -> int:
        found = (n for n, w in enumerate(self._writes) if w.requested >= requested)
        return next(found, len(self._writes))

    def _counted(self) -> _Stop:
        """Return the stop that compaction needs.

        A trigger counts from the last compaction, or needs that many delta commits.
        """
        positions = range(len(self._writes))
        last = max((n for n in positions if self._writes[n].action is Action.COMMIT), default=-1)
        timeline = self._facts.timeline
        deltas = [
            position
            for position, write in enumerate(self._writes)
            if position > last
            and write.action is Action.DELTACOMMIT
            and not timeline.is_table_service(write)  # log compactions are not counted
        ]
        due = self._policy.delta_commits
        why = "whether a compaction is due is counted from here"
        if due and len(deltas) >= due:
            return _Stop(deltas[-due], why)
        if not due or (last < 0 and not deltas):
            return _Stop(len(self._writes), why)
        return _Stop(last if last >= 0 else deltas[0], why)

    def _is_recent(self, instant: Instant) -> bool:
        if self._facts.recent_entries is None:
            return False
        first, last = self._facts.recent_entries
        return first <= (instant.completed or "") <= last

    def _brings_rows(self, write: Instant) -> bool:
        return not (self._facts.is_mor and write.action is Action.COMMIT)

    # -- each instant

    def _verdicts(self, count: int, why: str) -> Iterator[InstantVerdict]:
        going = {write.requested for write in self._writes[:count]}
        last = self._writes[count - 1].requested if count else ""
        stop = self._writes[count].requested if count < len(self._writes) else ""
        for instant in self._facts.timeline.instants:
            if instant.requested in self._gone and instant.action is not Action.SAVEPOINT:
                continue
            if instant.completed is None:
                yield InstantVerdict(instant, goes=False, why="it is pending")
            elif instant.requested in going and instant.action in WRITE_ACTIONS:
                yield InstantVerdict(
                    instant, goes=True, why=f"it is one of the oldest {count} writes"
                )
            elif instant.action in _COMPANIONS:
                yield self._companion(instant, last)
            elif instant.action in WRITE_ACTIONS:
                first = instant.requested == stop
                yield InstantVerdict(
                    instant, goes=False, why=why if first else f"{stop} stays ({why})"
                )
            else:
                yield InstantVerdict(
                    instant, goes=False, why="only writes, cleans and rollbacks go"
                )

    def _companion(self, instant: Instant, last: str) -> InstantVerdict:
        if instant.requested >= last:
            return InstantVerdict(instant, goes=False, why="the writes around it stay")
        if self._is_recent(instant):
            return InstantVerdict(
                instant, goes=False, why="its entry in the decision log is recent"
            )
        if instant.requested in self._facts.retained_cleans:
            return InstantVerdict(
                instant, goes=False, why="it says how far back the table can be read"
            )
        return InstantVerdict(instant, goes=True, why="the writes around it go")


def _old_log(groups: Sequence[FileGroupId]) -> str:
    more = f" and of {len(groups) - 1} more" if len(groups) > 1 else ""
    where = f"of the file group {group_name(groups[0])}{more}"
    why = f"its log {where} is older than the base file there, and hudi-rs would lose the rows"
    return f"{why}; a compaction of the group ends that, see services.compact()"


def old_logs(
    groups: Iterable[FileGroupFiles],
    timeline: Timeline,
    replaced: Mapping[tuple[str, str], frozenset[str]] = MappingProxyType({}),
) -> OldLogs:
    """Return the active writes of which a log is older than its base file, in a latest slice.

    The groups need no files that are older than the active timeline: such a base file is older than
    every active write.
    """
    times, now = CompletionTimes(timeline), visible_now(timeline)
    found: dict[str, list[FileGroupId]] = {}
    for group in groups:
        if not group.bases or not group.logs or is_replaced(group, replaced, now):
            continue
        active = [log for log in group.logs if log.name.requested in timeline.completion_times]
        slice_ = latest_slice(group._replace(logs=tuple(active)), times, now)
        logs = () if slice_ is None else slice_.old_logs
        for requested in sorted({log.name.requested for log in logs}):
            found.setdefault(requested, []).append(FileGroupId(group.partition, group.file_id))
    return {requested: tuple(named) for requested, named in found.items()}


def batches(instants: Sequence[Instant], size: int) -> Iterator[tuple[Instant, ...]]:
    """Yield the instants in the same order, `size` at a time."""
    for start in range(0, len(instants), size):
        yield tuple(instants[start : start + size])
