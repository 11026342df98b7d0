"""The promises of the commit protocol, each as a question to the evidence of one simulation.

Most are asked of every moment and not of the end alone: a time that appeared too late, a file that
was missing while its write was visible, is a broken promise even if no reader looked just then.
Each has a number, by which comments and tests name it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

from pyhudi.commit.conflict_notes import CONFLICT_FOLDER
from pyhudi.errors import HudiError, InvalidRequestError
from pyhudi.format.files.file_names import FileGroupId, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.table.consumer_file import CONSUMERS_FOLDER
from pyhudi.format.table.ring_file import FIRST_INSTANT, RING_ROOT, RingFileName
from pyhudi.format.timeline.decision_entry import LOG_FOLDER, EntryKind
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.read.load import TableLoader
from pyhudi.services.maintenance import REPAIRED
from pyhudi.simulate.table.actors.readers import shown
from pyhudi.simulate.table.checks.archive import (
    archive_is_whole,
    logs_stay_in_place,
    unlisted_files,
)
from pyhudi.simulate.table.checks.client_history import (
    consumers_receive_each_change_once,
    order_is_that_of_real_time,
    reads_equal_the_expected_rows,
    refusals_are_deserved,
)
from pyhudi.simulate.table.checks.early_stops import early_stops_are_deserved
from pyhudi.simulate.table.checks.evidence import (
    HISTORY_FOLDER,
    TIMELINE_FOLDER,
    Evidence,
    Logged,
    Planned,
    Published,
    Violation,
)
from pyhudi.simulate.table.checks.expected_rows import ExpectedRows
from pyhudi.simulate.table.checks.partial_rows import join_faults
from pyhudi.simulate.table.checks.past_states import states_never_change
from pyhudi.simulate.table.checks.resizes import RESIZE_CHECKS, ResizeCheck
from pyhudi.simulate.table.checks.schemas import (
    columns_change_on_purpose,
    no_value_is_lost,
    two_orders_one_schema,
)
from pyhudi.simulate.table.checks.services import (
    cleans_spare_what_is_needed,
    compactions_take_what_completed,
    kept_from,
    losses_are_deserved,
)
from pyhudi.simulate.table.checks.yields import Rivalry
from pyhudi.simulate.table.history import Exchange, History, Outcome
from pyhudi.simulate.table.table import PROPERTIES, ToyReader, table_config
from pyhudi.storage.objects.column_owners import OWNERS_FOLDER
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.table.file_slices import file_slices
from pyhudi.timeline.completion import visible_now


@dataclass(frozen=True)
class Case:
    """Everything that one simulation is judged by."""

    evidence: Evidence
    history: History
    heartbeat_timeout_ms: int
    clean_policy: CleanPolicy | None = None  # what all cleaners retain
    pruned: bool = False  # a careless pruner was at work
    archived: bool = False  # rollbacks left the timeline while zombies were about
    repaired: bool = True  # a fresh process repaired the table at the end
    fresh_write: str | None = None  # how a fresh writer failed after faults stopped
    struck: frozenset[str] = frozenset()  # processes that met a fault
    closely: bool = False  # states of the past are rebuilt and read, which is slow

    @cached_property
    def expected(self) -> ExpectedRows:
        return ExpectedRows(self.evidence, self.history)

    @cached_property
    def rivalry(self) -> Rivalry:
        return Rivalry(self.evidence, self.history, self.heartbeat_timeout_ms)


Predicate = Callable[[Case], Iterator[str]]


def atomic_visibility(case: Case) -> Iterator[str]:
    """I1. A visible write has all its files, as it wrote them, from its first moment on."""
    evidence = case.evidence
    for requested, write in evidence.writes.items():
        place = write.change.place
        missing = write.paths - evidence.paths_at(place, requested) - _forgotten(evidence)
        if missing:
            yield f"{requested} became visible without {sorted(missing)}"
        for owner, change in evidence.data_files:
            if owner == requested and change.place > place and change.path in write.paths:
                done = "removed" if change.data is None else "written again"
                if change.path in _forgotten(evidence):
                    continue
                if evidence.is_cleaned(change.path, change.place):
                    continue  # I11 judges that; a late task may create it again, and it is as old
                if change.data is None or change.data != change.before:
                    yield f"{change.path} of the completed {requested} was {done}"


def _forgotten(evidence: Evidence) -> set[str]:
    """Return the logs in children of resizes that never completed: no reader sees them."""
    return {path for path, of in evidence.twice.items() if of.resize not in evidence.writes}


def durability(case: Case) -> Iterator[str]:
    """I2. What was acknowledged was visible at once and stays."""
    evidence = case.evidence
    for exchange in case.history.writes:
        answer = exchange.answer
        if answer is None or answer.outcome is not Outcome.OK:
            continue
        write = evidence.writes.get(answer.requested)
        if write is None or write.change.place >= answer.place:
            yield f"{answer.requested} was acknowledged and not visible"
        elif write.completed != answer.completed:
            yield f"{answer.requested} completed at {write.completed}, not {answer.completed}"


def no_resurrection(case: Case) -> Iterator[str]:
    """I3. What was refused never becomes visible."""
    for exchange in case.history.writes:
        requested = case.history.begun.get(exchange.invoke.attempt, "")
        if exchange.outcome is Outcome.FAIL and requested in case.evidence.writes:
            assert exchange.answer is not None
            yield f"{requested} was refused ({exchange.answer.error}) and completed"


def times_increase(case: Case) -> Iterator[str]:
    """I4. Each new time is greater than all before it, and belongs to one instant only."""
    highest = ""
    seen: set[str] = set()
    for instant, change in case.evidence.timeline:
        time = instant.completed or instant.requested
        if time not in seen and time <= highest:
            yield f"{change.path} appeared after {highest}"
        seen.add(time)
        highest = max(highest, time)
    yield from _shared_times(case.evidence)
    for published in case.evidence.published:
        if published.requested >= published.completed:
            yield f"{published.requested} completed at {published.completed}"


def _shared_times(evidence: Evidence) -> Iterator[str]:
    owners: dict[str, str] = {}
    for instant, _ in evidence.timeline:
        if instant.action is Action.SAVEPOINT:
            continue  # it has the time of the write that it retains
        for time in (instant.requested, instant.completed):
            owner = f"{instant.requested} {instant.action.completed_as}"
            if time is not None and owners.setdefault(time, owner) != owner:
                yield f"{owners[time]} and {owner} share the time {time}"
    completions: dict[str, set[str]] = {}
    for published in evidence.published:
        if published.instant.action is Action.SAVEPOINT:
            continue
        completions.setdefault(published.requested, set()).add(published.completed)
    for requested, times in completions.items():
        if len(times) > 1:
            yield f"{requested} completed more than once, at {sorted(times)}"
    live = [logged for logged in evidence.log if not logged.is_dead and logged.entry.time]
    for one, other in pairwise(live):
        if (one.entry.time or "") >= (other.entry.time or ""):
            yield f"entries {one.entry.n} and {other.entry.n} have times out of order"


def first_committer_wins(case: Case) -> Iterator[str]:
    """I5. Two writes that overlapped on a file group can be merged.

    Logs merge with what they rest on, if they were not to yield, or read nothing and are in the
    order of completion. A base file merges with nothing but a compaction that was planned before it
    began. A write that replaces a partition overlaps with every write of it.
    """
    evidence = case.evidence
    writes = sorted(evidence.writes.values(), key=lambda write: write.completed)
    through = evidence.buckets.through
    for position, later in enumerate(writes):
        exchange = case.history.by_instant.get(later.requested)
        if exchange is None:
            continue
        for earlier in writes[:position]:
            if earlier.is_resize:
                continue  # what a write does about it is judged by N1 to N9
            kept = earlier.groups - _inputs_written_twice(evidence, earlier)
            shared = later.groups & through(kept, later.completed)
            if not earlier.is_compaction:
                replaced = exchange.invoke.replaces
                shared |= {group for group in earlier.groups if group.partition in replaced}
            if earlier.completed <= later.requested or not shared:
                continue
            if earlier.is_compaction and earlier.requested < later.requested:
                continue
            if shared & later.opened or not _merge(earlier, later, exchange):
                both = f"{earlier.requested} and {later.requested}"
                yield f"{both} both wrote {min(shared)}"


def _inputs_written_twice(evidence: Evidence, write: Published) -> frozenset[FileGroupId]:
    """Return inputs of resizes of whose children the write names those that have its rows."""
    twice = {of.resize for path, of in evidence.twice.items() if path in write.paths}
    inputs = (evidence.resizes[requested].plan.inputs for requested in twice)
    return frozenset[FileGroupId]().union(*inputs)


def _merge(earlier: Published, later: Published, exchange: Exchange) -> bool:
    """True if logs of the later write merge with what completed while it was pending."""
    if not exchange.invoke.is_checked or earlier.is_compaction:
        return True
    return exchange.invoke.reads_nothing and earlier.requested < later.requested


def priority_is_heeded(case: Case) -> Iterator[str]:
    """A write that yields has yielded to one of higher priority in the same file group.

    Only to one that had announced its file before the other proposed its completion, and whose end
    came later.
    """
    evidence, history = case.evidence, case.history
    ranked = {r: e for r, e in history.by_instant.items() if e.invoke.priority}
    for requested, write in evidence.writes.items() if ranked else ():
        exchange = history.by_instant.get(requested)
        if exchange is None or exchange.answer is None or exchange.outcome is not Outcome.OK:
            continue
        if not exchange.invoke.is_checked or exchange.invoke.process in case.struck:
            continue
        decided = evidence.decided[requested]
        for other, other_write in ranked.items():
            if (
                other_write.invoke.priority <= exchange.invoke.priority
                or other not in evidence.begun
            ):
                continue
            ended = evidence.decided.get(other, len(evidence.changes))
            announced = evidence.announced(other, exchange.answer.asked)
            if ended > decided and announced & write.groups:
                yield f"{requested} completed while {other}, of higher priority, was pending"


def owners_do_not_meet(case: Case) -> Iterator[str]:
    """Of two owners of a column, the one that lost it completed before the other began."""
    if not case.evidence.kind.has_owners:
        return
    writes = sorted(case.evidence.writes.values(), key=lambda write: write.completed)
    owned = [(write, case.history.by_instant.get(write.requested)) for write in writes]
    for position, (later, asked) in enumerate(owned):
        for earlier, before in owned[:position]:
            if asked is None or before is None or asked.invoke.owner == before.invoke.owner:
                continue
            both = _columns(asked) & _columns(before)
            if both and earlier.completed > later.requested:
                yield f"{earlier.requested} and {later.requested} both had {sorted(both)}"


def _columns(exchange: Exchange) -> set[str]:
    return {column for row in exchange.invoke.rows for column in row.cells or ()}


def snapshot_is_expected(case: Case) -> Iterator[str]:
    """I7 and I10. As of every completion time the table is the merge of the writes up to it.

    Whatever services have done, and wherever the write is recorded by now; unless a clean may have
    removed that time: then reading it is refused.
    """
    evidence, expected = case.evidence, case.expected
    reader = ToyReader(evidence.storage, evidence.kind)
    state = reader.load()
    since, bound = reader.retention(state).since, kept_from(case.evidence, case.clean_policy)
    if since > bound:
        yield f"all from {bound} on was to be retained, and can be read from {since} on"
    for time in sorted(write.completed for write in evidence.writes.values()):
        read = reader.as_of if time >= since else reader.at
        with suppress(InvalidRequestError):  # it may be refused where it is not retained
            yield from expected.faults(time, shown(read(state, time)))


def hudi_reads_the_join(case: Case) -> Iterator[str]:
    """As of every completion time, the partial rows are such as Hudi's readers join."""
    evidence = case.evidence
    if not evidence.kind.has_owners:
        return
    reader = ToyReader(evidence.storage, evidence.kind)
    state = reader.load()
    since = reader.retention(state).since
    for time in sorted(write.completed for write in evidence.writes.values()):
        if time < since:
            continue
        for slice_ in reader.slices(state, time):
            base = reader.rows_of(slice_._replace(logs=()))
            logs = reader.rows_of(slice_._replace(base=None))
            yield from (f"{fault}, as of {time}" for fault in join_faults(base, logs))


def every_log_in_one_slice(case: Case) -> Iterator[str]:
    """I8. A log file is on the newest base that was requested before the log completed."""
    evidence = case.evidence
    reader = ToyReader(evidence.storage, evidence.kind)
    state = reader.load()
    times, visible = reader.times(state, ""), visible_now(state.timeline)
    for group in state.groups():
        bases = [b.name.requested for b in group.bases if b.name.requested in evidence.writes]
        slices = file_slices(group, times, visible)
        for log in group.logs:
            write = evidence.writes.get(log.name.requested)
            if write is None:
                continue
            below = max((base for base in bases if base <= write.completed), default=None)
            within = [s.base and s.base.name.requested for s in slices if log in s.logs]
            if within != [below]:
                yield f"{log.path} is on {within}, not on {below}"


def rollback_is_exact(case: Case) -> Iterator[str]:
    """I12. One rollback for a failed write, none for a completed one, of its files and no other."""
    evidence = case.evidence
    by_target: dict[str, list[Planned]] = {}
    for plan in evidence.plans:
        by_target.setdefault(plan.target, []).append(plan)
    for target, plans in by_target.items():
        if len({plan.rollback for plan in plans}) > 1 and not case.archived:
            yield f"{target} has the rollbacks {[plan.rollback for plan in plans]}"
        if target in evidence.writes:
            yield f"{target} completed and has the rollback {plans[0].rollback}"
    for owner, change in evidence.data_files:
        planned = by_target.get(owner)
        if change.data is not None or (planned and planned[0].change.place < change.place):
            continue
        if (twice := evidence.twice.get(change.path)) is not None:
            named = owner in evidence.writes and change.path in evidence.writes[owner].paths
            if not named or twice.resize not in evidence.writes:
                continue  # it moved its rows instead, or the resize was cancelled
        if evidence.is_left(change.path, owner) and change.path not in evidence.writes[owner].paths:
            continue
        if not evidence.is_cleaned(change.path, change.place):
            yield f"{change.path} was removed, and {owner} had not been aborted"
    yield from _left_by_rollbacks(evidence)


def _left_by_rollbacks(evidence: Evidence) -> Iterator[str]:
    """Yield files that were there when a rollback began and still when it completed."""
    inflight: dict[str, int] = {}
    for instant, change in evidence.timeline:
        if instant.action is Action.ROLLBACK and instant.state is State.INFLIGHT:
            inflight.setdefault(instant.requested, change.place)
    for plan in evidence.plans:
        done = evidence.rollbacks.get(plan.rollback)
        if done is None or plan.rollback not in inflight:
            continue
        started, ended = inflight[plan.rollback], done.change.place
        left = evidence.paths_at(started, plan.target) - {
            change.path
            for owner, change in evidence.data_files
            if started < change.place < ended and change.data is None
        }
        if left:
            yield f"rollback {plan.rollback} of {plan.target} left {sorted(left)}"


def live_writers_are_spared(case: Case) -> Iterator[str]:
    """I12. Other writers abort an instant only after its writer had been silent for too long."""
    evidence = case.evidence
    carried_out = {plan.rollback for plan in evidence.plans}
    for logged in evidence.log:
        entry = logged.entry
        if entry.kind is not EntryKind.ABORT or entry.instant not in carried_out:
            continue
        assert entry.target is not None
        begun = evidence.begun.get(entry.target.instant)
        if begun is None or begun.entry.writer == entry.writer:
            continue
        if entry.target.action in (Action.COMPACTION, Action.CLUSTERING):
            continue  # no heartbeat: a plan has none until a process starts to execute it
        silence = _longest_silence_ms(evidence, begun, logged)
        if silence <= case.heartbeat_timeout_ms:
            yield (
                f"{entry.writer} aborted {entry.target.instant} of {begun.entry.writer}, which"
                f" was never silent for more than {silence} ms"
            )


def _longest_silence_ms(evidence: Evidence, begun: Logged, aborted: Logged) -> int:
    assert begun.entry.creates is not None
    requested = Instant.parse(begun.entry.creates.name)
    paths = (heartbeat_path(requested.requested), f"{TIMELINE_FOLDER}/{requested.file_name}")
    signs = [
        change.at_ms
        for change in evidence.changes[: aborted.change.place]
        if change.data is not None and change.path in paths
    ]
    signs.append(aborted.change.at_ms)
    return max((later - earlier for earlier, later in pairwise(signs)), default=1 << 62)


def zombies_are_harmless(case: Case) -> Iterator[str]:
    """I13. What a late task or writer leaves belongs to no visible write and shows no row."""
    evidence = case.evidence
    there: dict[str, set[str]] = {}
    for owner, change in evidence.data_files:
        paths = there.setdefault(owner, set())
        (paths.discard if change.data is None else paths.add)(change.path)
    for requested, write in evidence.writes.items():
        more = there.get(requested, set()) - write.paths
        more = {path for path in more if not evidence.is_left(path, requested)}
        more -= _forgotten(evidence)
        if more:
            yield f"{requested} has files that it does not name: {sorted(more)}"
    state = TableLoader(evidence.storage, table_config(evidence.kind)).load()
    visible = visible_now(state.timeline)
    for group in state.groups():
        for file in group.files:
            if visible.sees(file.name.requested) and file.name.requested not in evidence.writes:
                yield f"{file.path} is visible, and its instant did not complete"


def nothing_is_left(case: Case) -> Iterator[str]:
    """I17. After a repair there is nothing but completed instants and their files."""
    if case.archived or not case.repaired:
        return  # real archiving waits for the grace, and removes files once more before it
    evidence = case.evidence
    published = {(p.requested, p.instant.action): p.change.path for p in evidence.published}
    for stat in evidence.storage.list(""):
        if not _belongs(stat.path, published, evidence):
            yield f"{stat.path} is left"
    undone = {plan.target for plan in evidence.plans if plan.rollback in evidence.rollbacks}
    completed = {published.requested for published in evidence.published}
    for requested in evidence.begun:
        if requested not in completed and requested not in undone:
            yield f"{requested} was begun, and neither completed nor rolled back"
    yield from unlisted_files(evidence)


#: What stays for good, or until it is pruned.
_STAYS = tuple(
    f"{folder}/"
    for folder in (LOG_FOLDER, CONFLICT_FOLDER, OWNERS_FOLDER, CONSUMERS_FOLDER, HISTORY_FOLDER)
)


def _belongs(path: str, published: Mapping[tuple[str, Action], str], evidence: Evidence) -> bool:
    if path in (PROPERTIES, REPAIRED) or path.startswith(_STAYS):
        return True
    if path.startswith(f"{RING_ROOT}/"):
        ring = RingFileName.parse(file_name(path))
        return ring is not None and ring.instant in (FIRST_INSTANT, *evidence.writes)
    name = file_name(path)
    if path.startswith(f"{TIMELINE_FOLDER}/"):
        instant = Instant.parse(name)
        done = published.get((instant.requested, instant.action.completed_as))
        return done is not None and evidence.storage.stat(done) is not None
    data_file = None if path.startswith(".hoodie/") else parse_data_file(name)
    if data_file is None:
        return False
    if (twice := evidence.twice.get(path)) is not None:
        its = evidence.writes.get(twice.write)
        if its is None or twice.resize not in evidence.writes:
            # What comes late into the children stays until archiving lists partitions.
            return twice.write in evidence.undone_by_others or its is not None
        return path in its.paths
    write = evidence.writes.get(data_file.requested)
    if write is None:
        # Late files of what a foreign engine rolled back stay until archiving lists partitions.
        return data_file.requested in evidence.undone_by_others
    return path in write.paths or evidence.is_left(path, write.requested)


def progress(case: Case) -> Iterator[str]:
    """I18. Once faults have stopped, a fresh writer commits within its rounds."""
    if case.fresh_write is not None:
        yield f"a fresh writer failed: {case.fresh_write}"


def no_unexpected_errors(case: Case) -> Iterator[str]:
    """No client gets the error that the table is corrupt, or finds a file missing."""
    yield from case.history.unexpected


def _resizes(check: ResizeCheck, case: Case) -> Iterator[str]:
    return check(case.evidence, case.history) if case.evidence.kind.has_rings else iter(())


PREDICATES: dict[str, Predicate] = {
    "I1 atomic visibility": atomic_visibility,
    "I2 durability": durability,
    "I3 no resurrection": no_resurrection,
    "I4 times increase": times_increase,
    "I5 first committer wins": first_committer_wins,
    "priority is heeded": priority_is_heeded,
    "owners do not meet": owners_do_not_meet,
    "I7 snapshot is expected": snapshot_is_expected,
    "Hudi reads the join": hudi_reads_the_join,
    "I8 slicing": every_log_in_one_slice,
    "I8 compaction's input": lambda case: compactions_take_what_completed(case.evidence),
    "I10 services are no-ops": lambda case: (
        states_never_change(case.evidence, case.expected) if case.closely else iter(())
    ),
    "I11 cleaner safety": lambda case: cleans_spare_what_is_needed(
        case.evidence, case.history, case.clean_policy
    ),
    "archive": lambda case: iter(()) if case.archived else archive_is_whole(case.evidence),
    "archived logs": lambda case: logs_stay_in_place(case.evidence),
    "I12 rollback exactness": rollback_is_exact,
    "I12 live writers are spared": live_writers_are_spared,
    "I13 zombies are harmless": zombies_are_harmless,
    "early stops are deserved": lambda case: early_stops_are_deserved(case.evidence, case.history),
    "yields are deserved": lambda case: case.rivalry.yields_are_deserved(),
    "no two yield": lambda case: case.rivalry.no_two_yield_to_each_other(),
    "the dead stop no write": lambda case: case.rivalry.the_dead_stop_no_write(),
    "looks miss nothing": lambda case: case.rivalry.looks_miss_nothing(case.struck),
    "I15 no value is lost": lambda case: no_value_is_lost(case.evidence, case.history),
    "two orders, one schema": lambda case: two_orders_one_schema(case.evidence),
    "columns change on purpose": lambda case: columns_change_on_purpose(
        case.evidence, case.history
    ),
    **{name: partial(_resizes, check) for name, check in RESIZE_CHECKS.items()},
    "I17 nothing is left": nothing_is_left,
    "I18 progress": progress,
    "no unexpected errors": no_unexpected_errors,
}


def violations(case: Case) -> list[Violation]:
    """Return every broken promise, those of the client history included."""
    found: list[Violation] = []
    for rule, holds in PREDICATES.items():
        try:
            found += [Violation(rule, what) for what in holds(case)]
        except (HudiError, FileNotFoundError) as error:
            found.append(Violation(rule, f"the table cannot be read: {error}"))
    evidence, history, expected = case.evidence, case.history, case.expected
    found += reads_equal_the_expected_rows(expected, history)
    found += order_is_that_of_real_time(history)
    found += consumers_receive_each_change_once(evidence, expected, history)
    found += refusals_are_deserved(evidence, history, pruned=case.pruned)
    found += losses_are_deserved(evidence, history, case.clean_policy)
    return found
