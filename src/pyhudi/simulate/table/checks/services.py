"""Whether compactions and cleans kept their promises, judged by the changes and by no plan.

What a state of the table is made of is computed here once more, from the names of files and the
times of writes, by the rule of RFC-66 and in the plainest way.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from typing import NamedTuple

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.paths import file_name
from pyhudi.format.table.consumer_file import consumer_path, decode_consumer
from pyhudi.format.timeline.instant import Action
from pyhudi.plan.cleaning import CleanBy, CleanPolicy
from pyhudi.simulate.table.checks.evidence import Evidence, PlannedClean, Violation, group_of_path
from pyhudi.simulate.table.history import History, Operation, Outcome
from pyhudi.timeline.instant_time import clock_time

_HOUR_MS = 3_600_000


class _File(NamedTuple):
    path: str
    requested: str
    completed: str

    @property
    def is_base(self) -> bool:
        return not file_name(self.path).startswith(".")


class _Files:
    """The files of completed writes, group by group."""

    def __init__(self, evidence: Evidence) -> None:
        self.buckets = evidence.buckets
        self.by_path: dict[str, _File] = {}
        self._by_group: dict[FileGroupId, list[_File]] = {}
        for write in evidence.writes.values():
            for path in write.paths:
                completed = write.completed
                if (twice := evidence.twice.get(path)) is not None:
                    if (resize := evidence.writes.get(twice.resize)) is None:
                        continue  # no reader ever sees it
                    completed = max(completed, resize.completed)
                file = _File(path, write.requested, completed)
                self.by_path[path] = file
                self._by_group.setdefault(group_of_path(path), []).append(file)

    def slice_at(self, group: FileGroupId, time: str) -> set[str]:
        """Return what a read of the group as of the completion time opens."""
        if self.buckets.is_replaced(group, time):
            return set()
        there = [file for file in self._by_group.get(group, ()) if file.completed <= time]
        base = max((f for f in there if f.is_base), key=lambda f: f.requested, default=None)
        if base is None:
            return {file.path for file in there}
        logs = (f for f in there if not f.is_base and f.completed >= base.requested)
        return {base.path, *(log.path for log in logs)}

    def newer_bases(self, path: str, time: str) -> int:
        """Return how many base files of the group had completed by the time and are above the
        file."""
        mine = self.by_path[path]
        own = mine.requested if mine.is_base else mine.completed
        return sum(
            f.is_base and f.requested > own and f.completed <= time
            for f in self._by_group[group_of_path(path)]
        )


# -- compaction


def compactions_take_what_completed(evidence: Evidence) -> Iterator[str]:
    """I8. A plan has exactly the logs that completed before it and are on its base file."""
    files = _Files(evidence) if evidence.compactions else None
    for planned in evidence.compactions:
        assert files is not None
        for operation in planned.plan.operations or ():
            base = operation.base_file_path
            taken = {*operation.log_file_paths, *([base] if base else [])}
            group = operation.file_group
            right = files.slice_at(group, planned.requested)
            if taken != right:
                wrong = sorted(taken ^ right)
                yield f"compaction {planned.requested} has or lacks {wrong}"
    for number, planned in enumerate(evidence.compactions):
        done = evidence.writes.get(planned.requested)
        if done is not None and done.opened != planned.groups:
            yield f"compaction {planned.requested} of {planned.groups} made {done.opened}"
        for earlier in evidence.compactions[:number]:
            is_open = evidence.decided.get(earlier.requested, planned.place) >= planned.place
            if is_open and earlier.groups & planned.groups:
                yield f"{earlier.requested} and {planned.requested} are pending on one file group"


# -- clean


def kept_from(evidence: Evidence, policy: CleanPolicy | None) -> str:
    """Return the completion time from which on everything must be readable, after all cleans."""
    return max((_bound(evidence, clean.place, policy) for clean in evidence.cleans), default="")


def _bound(evidence: Evidence, place: int, policy: CleanPolicy | None) -> str:
    """Return from when on a clean that is planned at that point retains every state of the
    table."""
    done = {w.requested: w.completed for w in evidence.writes.values() if w.change.place < place}
    if policy is None or policy.by is CleanBy.VERSIONS:
        return max(done.values(), default="")
    if policy.by is CleanBy.HOURS:
        return clock_time(evidence.changes[place].at_ms - policy.keep * _HOUR_MS, UTC)
    first = sorted(done)[-policy.keep :][0] if len(done) >= policy.keep else ""
    return min((done[r] for r in done if r >= first), default="")


def cleans_spare_what_is_needed(
    evidence: Evidence, history: History, policy: CleanPolicy | None
) -> Iterator[str]:
    """I11. What was removed was needed by no retained state, pending plan or consumer."""
    files = _Files(evidence) if evidence.cleans else None
    for _, change in evidence.data_files if evidence.cleans else ():
        assert files is not None
        file = files.by_path.get(change.path)
        if change.data is not None or file is None:
            continue
        plans = [c for c in evidence.cleans if c.place < change.place and change.path in c.paths]
        if not plans:
            continue  # it was rolled back; I12 judges that
        for planned in evidence.compactions:
            ended = evidence.decided.get(planned.requested, len(evidence.changes))
            if planned.place < change.place < ended and change.path in planned.paths:
                yield f"{change.path} was removed, and {planned.requested} is to read it"
        for resize in evidence.resizes.values():
            ended = evidence.decided.get(resize.requested, len(evidence.changes))
            if resize.place < change.place < ended and change.path in resize.paths:
                yield f"{change.path} was removed, and {resize.requested} is to read it"
        for saved, place in _savepoints(evidence).items():
            state = files.slice_at(group_of_path(change.path), saved)
            if place < change.place and change.path in state:
                yield f"{change.path} was removed, and is in the savepoint as of {saved}"
        for name, since in _consumers_at(evidence, history, change.place).items():
            if file.completed > since:
                yield f"{change.path} was removed, and {name} has read up to {since}"
        yield from _needed(evidence, files, file, plans[0], policy)


def _savepoints(evidence: Evidence) -> dict[str, int]:
    """Return completion times of states with a savepoint, and from when on."""
    found: dict[str, int] = {}
    for instant, change in evidence.timeline:
        if instant.action is Action.SAVEPOINT:
            found.setdefault(evidence.writes[instant.requested].completed, change.place)
    return found


def _needed(
    evidence: Evidence,
    files: _Files,
    file: _File,
    clean: PlannedClean,
    policy: CleanPolicy | None,
) -> Iterator[str]:
    since = _bound(evidence, clean.place, policy)
    group = group_of_path(file.path)
    for time in sorted({since, *(write.completed for write in evidence.writes.values())}):
        if time >= since and file.path in files.slice_at(group, time):
            yield f"{file.path} was removed, and the table as of {time} has it"
            break
    is_out = files.buckets.is_replaced(group, clean.requested)
    if policy is not None and policy.by is CleanBy.VERSIONS and not is_out:
        newer = files.newer_bases(file.path, clean.requested)
        if newer < policy.keep:
            yield f"{file.path} was removed, and is in one of the last {policy.keep} versions"


def _consumers_at(evidence: Evidence, history: History, place: int) -> dict[str, str]:
    """Return the consumers that are registered, and up to when each had read by then.

    A consumer that got its answer later has the time that it registered with: nothing behind that
    may be gone.
    """
    found: dict[str, str] = {}
    for name, registered_at in history.registered.items():
        path = consumer_path(name)
        for change in evidence.changes[: max(place, registered_at)]:
            if change.path == path and change.data is not None:
                found[name] = decode_consumer(change.data, path).since
    return found


def losses_are_deserved(
    evidence: Evidence, history: History, policy: CleanPolicy | None
) -> list[Violation]:
    """I11. A reader of what was cleaned gets an error that says so, and no other reader does."""
    found = [
        *_undeserved_refusals(evidence, history, policy),
        *_undeserved_losses(evidence, history),
    ]
    return [Violation("I11 losses are deserved", what) for what in found]


def _undeserved_refusals(
    evidence: Evidence, history: History, policy: CleanPolicy | None
) -> Iterator[str]:
    for event in history.events:
        if event.outcome is not Outcome.FAIL or event.operation is Operation.WRITE:
            continue
        if event.error:
            cleans = [clean for clean in evidence.cleans if clean.place < event.place]
            bound = max((_bound(evidence, c.place, policy) for c in cleans), default="")
            asked = event.since if event.operation is Operation.CHANGES else event.as_of
            if asked >= bound:
                yield f"{event.process} was refused {asked}, and all from {bound} on is retained"


def _undeserved_losses(evidence: Evidence, history: History) -> Iterator[str]:
    """A file may vanish from a read that began before its clean was planned, and from no other."""
    for exchange in history.exchanges(*Operation):
        answer = exchange.answer
        if answer is not None and answer.missing:
            planned = [c.place for c in evidence.cleans if answer.missing in c.paths]
            if not any(place >= exchange.invoke.place for place in planned):
                yield f"{answer.process} did not find {answer.missing}"
    given_up = {plan.target: plan.change.place for plan in evidence.plans}
    for lost in history.lost:
        if given_up.get(lost.requested, lost.place) >= lost.place:
            yield f"{lost.requested} is pending and did not find {lost.path}"
