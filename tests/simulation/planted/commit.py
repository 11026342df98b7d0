"""Planted bugs: each weakens the protocol code of production at one point.

A harness that does not find them is too weak to be trusted when it finds nothing. The weakened
designs of the protocol's model are among them, and failures that Hudi has had.

A replacement must have no state outside of the object it is called on: other actors run while it
waits for storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from pyhudi.commit import rollback
from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.liveness import Liveness
from pyhudi.commit.proposals import (
    Abort,
    AlreadyDone,
    Complete,
    Facts,
    Outcome,
    Proposal,
    Refused,
    Rule,
)
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.commit.validation import Accepted, CompletionCheck
from pyhudi.format.timeline.decision_entry import Entry, EntryKind, encode_entry, entry_path
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import encode_rollback_plan
from pyhudi.plan.rollback import files_to_delete, plan_rollback
from pyhudi.simulate.table import table as light_table
from pyhudi.storage.locks.lock import HeldLock
from pyhudi.storage.objects.heartbeats import HEARTBEAT_FOLDER, heartbeat_path, last_sign_ms
from pyhudi.storage.objects.markers import load_markers
from pyhudi.timeline.instant_time import clock_time
from pyhudi.timeline.live import LiveTimeline
from simulation.planted.conflicts import CONFLICT_BUGS
from simulation.planted.early import EARLY_BUGS
from simulation.planted.resizes import RESIZE_BUGS
from simulation.planted.schemas import SCHEMA_BUGS
from simulation.planted.services import SERVICE_BUGS
from simulation.planted.shared import SHARED_BUGS
from simulation.planted.virtual_resizes import VIRTUAL_BUGS
from simulation.planted.yields import YIELD_BUGS

_Bug = Callable[[], AbstractContextManager[Any]]


def _no_settle_first() -> AbstractContextManager[Any]:
    """An entry of another process counts as published, without a check."""
    settle = DecisionLog._settle_tail

    def weak(self: DecisionLog, held: HeldLock | None) -> bool:
        known = self._known
        assert known is not None
        if known.tail is not None and known.tail.writer != self.world.label:
            known.settled = known.n
        return settle(self, held)

    return patch.object(DecisionLog, "_settle_tail", weak)


def _early_time() -> AbstractContextManager[Any]:
    """The time is taken before the log is read, and reused over retries."""
    append, next_time = DecisionLog.append, DecisionLog._next_time
    early: dict[int, str] = {}  # by log: one process appends one thing at a time

    def weak_append(self: DecisionLog, proposal: Proposal) -> Outcome:
        known = self._known is not None and self._live is not None
        now = clock_time(self.world.now_ms(), self._zone)
        early[id(self)] = next_time(self, self._live) if known and self._live else now
        return append(self, proposal)

    def weak_time(self: DecisionLog, live: LiveTimeline) -> str:
        return early[id(self)]

    return _all(
        patch.object(DecisionLog, "append", weak_append),
        patch.object(DecisionLog, "_next_time", weak_time),
    )


def _rollback_outside_the_log() -> AbstractContextManager[Any]:
    """A rollback is planned straight on the timeline; the log is only read for the time."""

    def weak(self: FailedWriteRecovery, instant: Instant) -> Outcome:
        log = self._log
        live = log.refresh()
        if instant.requested in live.rolled_back_by or instant.requested not in live.pending:
            return Refused(Rule.NOT_PENDING, instant.requested)
        files = [m.data_file for m in load_markers(log.storage, instant.requested)]
        plan = plan_rollback(instant, files, log.storage.uri)
        time = InstantTime(log._next_time(live))
        planned = Instant(time, Action.ROLLBACK, State.REQUESTED)
        data = encode_rollback_plan(plan, log.world.random_bytes(16))
        log.storage.create(log.path(planned), data)
        log.forget()
        return AlreadyDone(planned)

    return _all(
        patch.object(FailedWriteRecovery, "abort", weak),
        patch.object(DecisionLog, "_foreign", lambda self, live, job: None),
    )


def _no_verify() -> AbstractContextManager[Any]:
    """A number that was pruned and taken again is used."""
    return patch.object(DecisionLog, "_verify", lambda self, entry: True)


def _no_chain_rule() -> AbstractContextManager[Any]:
    """A write completes although entries since its begin were pruned, its abort perhaps."""
    return patch.object(Facts, "is_whole_from", lambda self, n: True)


def _abort_not_checked_again() -> AbstractContextManager[Any]:
    """A verdict on a heartbeat stands, whatever the timeline says by then (HUDI-5675)."""
    return patch.object(Abort, "refusal", lambda self, facts, live: None)


def _rollback_removes_all_heartbeats() -> AbstractContextManager[Any]:
    """HUDI-2641: the heartbeats of others are removed as well, and then they are rolled back."""
    undo = FailedWriteRecovery.undo

    def weak(self: FailedWriteRecovery, rollback: str) -> None:
        undo(self, rollback)
        for stat in list(self._storage.list(HEARTBEAT_FOLDER)):
            self._storage.delete(stat.path)

    return patch.object(FailedWriteRecovery, "undo", weak)


def _no_conflict_check() -> AbstractContextManager[Any]:
    return patch.object(CompletionCheck, "verdict", lambda *_: Accepted())


def _own_clock_for_heartbeats() -> AbstractContextManager[Any]:
    """Another machine's silence is measured with this machine's clock."""

    def weak(self: Liveness, instant: Instant) -> bool:
        signs = heartbeat_path(instant.requested), self._log.path(instant.in_state(State.REQUESTED))
        sign = last_sign_ms(self._log.storage, *signs)
        return self._log.world.now_ms() - (sign or 0) <= self._timeout_ms

    return patch.object(Liveness, "is_writer_alive", weak)


def _local_clock_only() -> AbstractContextManager[Any]:
    """A time may be smaller than one that is on the timeline."""

    def weak(self: DecisionLog, live: LiveTimeline) -> str:
        return clock_time(self.clock.bounded_now_ms(), self._zone)

    return patch.object(DecisionLog, "_next_time", weak)


def _complete_ignores_aborts() -> AbstractContextManager[Any]:
    refusal = Complete.refusal

    def weak(self: Complete, facts: Any, live: LiveTimeline) -> Refused | AlreadyDone | None:
        known = live.rolled_back_by, live.pending
        begun = Instant(InstantTime(self.requested), self.action, State.REQUESTED)
        live.rolled_back_by, live.pending = {}, {**live.pending, self.requested: begun}
        try:
            return refusal(self, facts, live)
        finally:
            live.rolled_back_by, live.pending = known

    return patch.object(Complete, "refusal", weak)


def _published_before_decided() -> AbstractContextManager[Any]:
    create = DecisionLog._create

    def weak(self: DecisionLog, entry: Entry) -> bool:
        if entry.kind is EntryKind.COMPLETE:
            self._publish(entry)
        return create(self, entry)

    return patch.object(DecisionLog, "_create", weak)


def _entry_overwritten() -> AbstractContextManager[Any]:
    """Entries are written, not created if absent."""

    def weak(self: DecisionLog, entry: Entry) -> bool:
        self.storage.write(entry_path(entry.n), encode_entry(entry))
        return True

    return patch.object(DecisionLog, "_create", weak)


def _no_markers() -> AbstractContextManager[Any]:
    return patch.object(light_table, "create_marker", lambda *arguments: None)


def _rollback_trusts_its_plan() -> AbstractContextManager[Any]:
    """Files that a frozen writer added after the plan was made are not looked for."""

    def weak(plan: Any, markers: Any, *rest: Any) -> tuple[str, ...]:
        return files_to_delete(plan, (), *rest)

    return patch.object(rollback, "files_to_delete", weak)


@contextmanager
def _all(*replacements: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for replacement in replacements:
            stack.enter_context(replacement)
        yield


#: The bugs, by name.
BUGS: dict[str, _Bug] = {
    "no settle-first": _no_settle_first,
    "early time": _early_time,
    "rollback outside the log": _rollback_outside_the_log,
    "no verify": _no_verify,
    "no chain rule": _no_chain_rule,
    "abort not checked again": _abort_not_checked_again,
    "rollback removes all heartbeats": _rollback_removes_all_heartbeats,
    "no conflict check": _no_conflict_check,
    "own clock for heartbeats": _own_clock_for_heartbeats,
    "local clock only": _local_clock_only,
    "complete ignores aborts": _complete_ignores_aborts,
    "published before decided": _published_before_decided,
    "entry overwritten": _entry_overwritten,
    "no markers": _no_markers,
    "rollback trusts its plan": _rollback_trusts_its_plan,
    **CONFLICT_BUGS,
    **EARLY_BUGS,
    **SCHEMA_BUGS,
    **RESIZE_BUGS,
    **VIRTUAL_BUGS,
    **SERVICE_BUGS,
    **SHARED_BUGS,
    **YIELD_BUGS,
}
