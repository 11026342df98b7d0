"""Whether the answers that clients got are consistent.

Check A compares every read with the expected rows. Check B compares with real time: what was
acknowledged before something began comes before it. Check C follows each consumer of changes. Check
D asks of every refusal whether it was justified.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyhudi.commit.conflict_report import Found
from pyhudi.commit.proposals import Rule
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.paths import file_name
from pyhudi.simulate.table.checks.evidence import Evidence, Published, Violation, group_of_path
from pyhudi.simulate.table.checks.expected_rows import ExpectedRows
from pyhudi.simulate.table.history import Event, Exchange, History, Operation, Outcome
from pyhudi.timeline.live import BEFORE_ALL

_Groups = frozenset[FileGroupId]
_END_OF_TIME = "9" * 17
_INSTANT = re.compile(r"\d{17}")


def reads_equal_the_expected_rows(expected: ExpectedRows, history: History) -> list[Violation]:
    """Check A."""
    found = []
    for answer in _answers(history, Operation.SNAPSHOT, Operation.TRAVEL, Operation.RESTART):
        reader = f"a {answer.operation} read of {answer.process}"
        found += [f"{reader}: {fault}" for fault in expected.faults(answer.as_of, answer.read)]
    return [Violation("Check A", what) for what in found]


def order_is_that_of_real_time(history: History) -> list[Violation]:
    """Check B."""
    found = []
    latest = ""  # the greatest completion time that was acknowledged so far
    acknowledged: dict[int, str] = {}
    for place, event in enumerate(history.events):
        acknowledged[place] = latest
        if event.operation is Operation.WRITE and event.outcome is Outcome.OK:
            latest = max(latest, event.completed)
    for exchange in history.exchanges(*Operation):
        known, answer = acknowledged[exchange.invoked], exchange.answer
        if answer is None or answer.outcome is not Outcome.OK:
            continue
        if answer.operation is Operation.SNAPSHOT and answer.as_of < known:
            found.append(
                f"{answer.process} read as of {answer.as_of}, after {known} was acknowledged"
            )
        if answer.operation is Operation.CHANGES and answer.as_of < known:
            found.append(
                f"{answer.process} polled up to {answer.as_of}, after {known} was acknowledged"
            )
        if answer.operation is Operation.WRITE and answer.requested <= known:
            found.append(f"{answer.requested} was begun after {known} was acknowledged")
    return [Violation("Check B", what) for what in found]


def consumers_receive_each_change_once(
    evidence: Evidence, expected: ExpectedRows, history: History
) -> list[Violation]:
    """Check C, which is I9: each poll brings its range, and the ranges leave no gap."""
    found = []
    reached: dict[str, str] = {}
    for answer in _answers(history, Operation.CHANGES, Operation.RESTART):
        if answer.operation is Operation.RESTART:  # from a snapshot, which has everything
            reached[answer.process] = answer.as_of
            continue
        span = f"({answer.since}, {answer.as_of}]"
        before = reached.get(answer.process, BEFORE_ALL)
        if answer.since != before:
            found.append(f"{answer.process} polled {span} and had reached {before}")
        reached[answer.process] = answer.as_of
        faults = expected.change_faults(answer.since, answer.as_of, answer.rows)
        found += [f"{answer.process}, {span}: {fault}" for fault in faults]
    newest = max((write.completed for write in evidence.writes.values()), default=BEFORE_ALL)
    for consumer in history.consumed_to_the_end:
        if reached.get(consumer, BEFORE_ALL) != newest:
            found.append(f"{consumer} reached {reached.get(consumer)}, and {newest} is there")
    return [Violation("Check C", what) for what in found]


def _answers(history: History, *operations: Operation) -> Iterator[Event]:
    """Yield good answers, in true order."""
    for event in history.events:
        if event.operation in operations and event.outcome is Outcome.OK:
            yield event


# -- Check D


def refusals_are_deserved(evidence: Evidence, history: History, *, pruned: bool) -> list[Violation]:
    """Check D. `pruned`: a process removed log entries that pending instants needed."""
    found = []
    for exchange in history.writes:
        answer = exchange.answer
        if answer is None or answer.outcome is not Outcome.FAIL or not answer.error:
            continue
        if answer.facts.get("found") == Found.EARLY:
            continue  # `early_stops` judges that
        if why := _undeserved(evidence, history, exchange, answer, pruned):
            found.append(f"{answer.requested} was refused ({answer.error}): {why}")
    return [Violation("Check D", what) for what in found]


def _undeserved(
    evidence: Evidence, history: History, exchange: Exchange, answer: Event, pruned: bool
) -> str:
    error = answer.error
    if error.startswith(Rule.ROLLED_BACK):
        named = [time for time in _INSTANT.findall(error) if time != answer.requested]
        plans = {plan.rollback: plan.target for plan in evidence.plans}
        return "" if named and plans.get(named[0]) == answer.requested else "no process did"
    if error.startswith(Rule.LOG_NOT_WHOLE):
        return "" if pruned else "it was not pruned"
    if error.startswith(Rule.NOT_INFLIGHT):
        return ""
    if answer.facts.get("rule") == Rule.SCHEMA_EVOLVED.name.lower():
        return _no_contradiction(history, answer)
    if answer.facts:
        return _no_conflict(evidence, history, exchange, answer)
    return "there is no such rule"


def _no_contradiction(history: History, answer: Event) -> str:
    """Return why the contradiction that the writer reported is none; empty if it is one.

    All types can be joined here, so it takes a process that dropped the column.
    """
    asked = [change for change in history.proposed if change.place <= answer.place]
    dropped = {name for change in asked for name in change.dropped}
    columns = {each["column"] for each in answer.facts["columns"]}
    if foreign := columns - {*answer.changes}:
        return f"it does not change {sorted(foreign)}"
    return "" if columns <= dropped else f"no process wanted to drop {sorted(columns - dropped)}"


def _no_conflict(evidence: Evidence, history: History, exchange: Exchange, answer: Event) -> str:
    """Return why the conflict that the writer reported is none; empty if it is one."""
    named = answer.facts["theirs"]["instant"]
    opened, appended = _own_groups(evidence, answer.requested)
    match answer.facts["rule"]:
        case "same_file_group":
            if not exchange.invoke.is_checked:
                return "it yields to no write"
            other = evidence.writes.get(named)
            if exchange.invoke.reads_nothing and named < answer.requested:
                return f"{named} is below it anyway"
            return _no_overlap(evidence, other, answer, opened | appended)
        case "hidden_rows":
            is_twice = any(of.write == answer.requested for of in evidence.twice.values())
            mine = opened | appended if is_twice else opened
            return _no_overlap(evidence, evidence.writes.get(named), answer, mine)
        case "resized":
            return _no_resize(evidence, named, answer.requested, opened, appended)
        case "resize_cancelled":
            resize = evidence.resizes.get(named)
            if resize is None or named in evidence.writes or named not in evidence.decided:
                return "no resize was cancelled"
            return "" if appended & resize.plan.made else f"it had no rows in children of {named}"
        case "cleared_partition":
            other = evidence.writes.get(named)
            written = frozenset() if other is None else other.groups
            replaced = exchange.invoke.replaces
            mine = frozenset(g for g in written if g.partition in replaced)
            return _no_overlap(evidence, other, answer, mine)
        case "parts_alone":
            return _no_overlap(evidence, evidence.writes.get(named), answer, appended)
        case "keys_taken_for_new":
            return "" if named in evidence.begun and named > answer.requested else "it was before"
        case "compaction_pending":
            return "" if named in evidence.begun and opened else "there was none"
        case "priority":
            other_exchange = history.by_instant.get(named)
            if other_exchange is None or not exchange.invoke.is_checked:
                return "no writer had a priority"
            lower = other_exchange.invoke.priority <= exchange.invoke.priority
            return "its priority was not lower" if lower else ""
    return "there is no such rule"


def _no_resize(
    evidence: Evidence, named: str, requested: str, opened: _Groups, appended: _Groups
) -> str:
    """Return why a resize was no reason to begin the write again; empty if it was one."""
    done, resize = evidence.writes.get(named), evidence.resizes.get(named)
    if resize is None:
        return "there was no resize"
    if resize.plan.is_dual and named > requested:  # it need not have completed
        mine = evidence.buckets.through(opened | appended, _END_OF_TIME)
        is_its = mine & (resize.plan.inputs | resize.plan.made)
        return "" if is_its else f"{named} resized other file groups"
    if done is None:
        return "the resize did not complete"
    if done.completed <= requested:
        return f"{named} had completed before it began"
    through = evidence.buckets.through(opened | appended, done.completed)
    if not (through & (resize.plan.inputs | resize.plan.made)):
        return f"{named} resized other file groups"
    return "" if named > requested or opened else "it could have moved"


def _own_groups(evidence: Evidence, requested: str) -> tuple[_Groups, _Groups]:
    """Return the file groups in which the write put a base file, and those with logs."""
    mine = [change.path for owner, change in evidence.data_files if owner == requested]
    logs = frozenset(group_of_path(p) for p in mine if file_name(p).startswith("."))
    return frozenset(map(group_of_path, mine)) - logs, logs


def _no_overlap(evidence: Evidence, other: Published | None, answer: Event, mine: _Groups) -> str:
    if other is None:
        return "the other write did not complete"
    if other.completed <= answer.requested:
        return f"{other.requested} had completed before it began"
    end = max(write.completed for write in evidence.writes.values())
    through = evidence.buckets.through
    is_shared = through(mine, end) & through(other.groups, end)
    return "" if is_shared else f"{other.requested} wrote other file groups"
