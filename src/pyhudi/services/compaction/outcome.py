"""How a compaction ended that is not pending any more: what the timeline and the archive say.

That a plan is gone from the timeline does not mean that it was cancelled. Another executor may have
carried it out, under the very names that this one gave to its files, and it may have been archived
since. So an executor that slept takes its files away only if a rollback cancelled the plan for
good; names of such an instant are never used again. Files whose fate is unknown stay.

The timeline is asked before the archive: what leaves the one has come to the other before.
"""

from __future__ import annotations

from pyhudi.commit.log import DecisionLog
from pyhudi.commit.proposals import Refused, Rule
from pyhudi.errors import ConflictError, InvalidRequestError, UnavailableError
from pyhudi.format.timeline.commit_metadata import CommitMetadata
from pyhudi.format.timeline.instant import Instant
from pyhudi.read.archive import History, as_instant
from pyhudi.timeline.timeline import WRITE_ACTIONS


def load_completed(log: DecisionLog, requested: str) -> Instant | None:
    """The instant, if it has completed, wherever it is by now."""
    ledger = log.refresh()
    if requested in ledger.completed or requested in ledger.pending:
        return ledger.completed.get(requested)
    found = _history(log).instant(requested)
    if found is None or found.action not in {action.value for action in WRITE_ACTIONS}:
        return None
    return as_instant(found)


def load_completed_metadata(log: DecisionLog, done: Instant) -> CommitMetadata:
    """What it says of itself; nothing, if nobody has kept it."""
    try:
        return _history(log).write_metadata(log.folder, done)
    except UnavailableError:
        return CommitMetadata()


def is_cancelled(log: DecisionLog, requested: str) -> bool:
    """True if a rollback says that no file of the instant will ever count."""
    ledger = log.refresh()
    if requested in ledger.completed:
        return False
    if log.rollback_of(requested) is not None:
        return True
    if requested in ledger.pending:
        return False
    history = _history(log)
    return history.instant(requested) is None and history.is_undone(requested)


def _history(log: DecisionLog) -> History:
    return History(log.storage, log.history_folder)


# ---- what is said of it


def nothing_to_cancel(log: DecisionLog, requested: str) -> InvalidRequestError:
    done = load_completed(log, requested)
    return InvalidRequestError(
        f"there is no pending compaction {requested} to cancel",
        why="no plan has that time" if done is None else f"it has completed at {done.completed}",
        next_step="Look at table.inspect.timeline()",
    )


def attended(requested: str, timeout_ms: int) -> ConflictError:
    return ConflictError(
        f"the compaction {requested} cannot be cancelled now",
        why="another process is carrying it out: its heartbeat is fresh",
        next_step="Let it end, or repeat the call once it has been silent for"
        f" {timeout_ms / 1000:g} s",
    )


def not_completed(requested: str, refused: Refused) -> ConflictError:
    why = f"{refused.rule} ({refused.instant or requested})"
    if refused.rule is Rule.ROLLED_BACK:
        why = f"it was cancelled meanwhile, by the rollback {refused.instant}"
    return ConflictError(
        f"the compaction {requested} was not completed",
        why=why,
        next_step="Plan a new one; no row is lost",
    )


def begun_anew(requested: str, rollback: str) -> ConflictError:
    """Only Hudi ends such a rollback: what it may be writing next has the names of before."""
    return ConflictError(
        f"the compaction {requested} can be neither carried out nor cancelled here",
        why=f"another engine rolls back its own work on it (the rollback {rollback}), to begin"
        " anew; the plan stays, and its file groups with it",
        next_step="Let that engine end it. If it died, start Hudi once on this table, as with CALL"
        " run_compaction: it ends the rollback and carries the plan out",
    )
