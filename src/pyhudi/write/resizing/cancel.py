"""Cancelling a resize: its children's files go, and writers go on as if it had never been."""

from __future__ import annotations

from pyhudi.commit.pending_plans import load_service_plan
from pyhudi.commit.proposals import Decided, Outcome, Refused, Rule
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.errors import ConflictError, CorruptTableError, HudiError, UnsupportedTableError
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.plan.resizing.pace import OutrunError
from pyhudi.write.resizing.leftovers import remove_rings


def abort_resize(recovery: FailedWriteRecovery, requested: str) -> Outcome:
    """Abort a pending resize, closed or not, and remove its files."""
    instant = Instant(InstantTime(requested), Action.CLUSTERING, State.REQUESTED)
    plan = load_service_plan(recovery.log, instant).resize
    outcome = recovery.abort(instant)
    if (rollback := rollback_of(outcome)) is not None:
        recovery.undo(rollback)
        if plan is not None and plan.is_dual:
            # Writers may have put more there since the rollback was planned; Hudi writes rings
            # first.
            recovery.remove_named(instant, plan.made)
            remove_rings(recovery.log.storage, plan.by_partition, instant.requested)
    return outcome


def rollback_of(outcome: Outcome) -> str | None:
    """Return the rollback by which an abort ends its target, of this process or another."""
    if isinstance(outcome, Decided):
        return outcome.entry.instant
    is_aborted = isinstance(outcome, Refused) and outcome.rule is Rule.ROLLED_BACK
    return outcome.instant if isinstance(outcome, Refused) and is_aborted else None


def is_kept(outcome: Outcome) -> bool:
    """True if the resize was not aborted, because committed rows are in its children alone."""
    return isinstance(outcome, Refused) and outcome.rule is Rule.HAS_ROWS


def has_rows_error(requested: str, refused: Refused) -> ConflictError:
    """Return the error for a virtual resize that can no longer be cancelled."""
    return ConflictError(
        f"the resize {requested} cannot be cancelled",
        why=f"it is virtual, and {refused.rule} ({refused.instant}), so it has to be finished",
        next_step="Call table.services.resize(), which executes it. If a file is damaged, its error"
        " names the file: restore that first. Writes other than overwrites go on meanwhile",
    )


def is_incurable(error: HudiError) -> bool:
    """True if a resize that failed so has to be cancelled: it cannot be carried out, or not now."""
    return isinstance(error, CorruptTableError | UnsupportedTableError | OutrunError)
