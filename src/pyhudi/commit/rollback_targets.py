"""The targets of rollbacks. Their plans name them, and no file name does."""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.format.avro.container import CONTAINER_BYTES_MAX
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import decode_rollback_plan
from pyhudi.plan.rollback import is_final
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.live import LiveTimeline


@dataclass(frozen=True, slots=True)
class Undone:
    """The target of a rollback."""

    target: str
    is_final: (
        bool  # the instant itself is rolled back, not only the files of one execution of its plan
    )


def load_rollback_target(storage: Storage, folder: str, rollback: str) -> str | None:
    """Return the instant that the rollback's plan names, if it names one; else as `load_undone`."""
    undone = load_undone(storage, folder, rollback)
    return None if undone is None else undone.target


def load_undone(storage: Storage, folder: str, rollback: str) -> Undone | None:
    """Return what the rollback's plan rolls back, if it names that.

    FileNotFoundError if the plan is gone: it completed and was archived. A storage failure is
    raised as it is.
    """
    plan = Instant(InstantTime(rollback), Action.ROLLBACK, State.REQUESTED)
    path = f"{folder}/{plan.file_name}"
    data = storage.read(path, 0, CONTAINER_BYTES_MAX + 1)
    decoded = decode_rollback_plan(data, path)
    named = decoded.instant_to_rollback
    return None if named is None else Undone(named.commit_time, is_final(decoded))


class RollbackTargets:
    """The targets of a table's rollbacks; each plan is read once."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._undone: dict[str, Undone | None] = {}  # by rollback

    def undone_by(self, rollback: str) -> Undone | None:
        if rollback not in self._undone:
            try:
                undone = load_undone(self._storage, self._folder, rollback)
            except FileNotFoundError:
                return None  # it completed and was archived since
            self._undone[rollback] = undone
        return self._undone[rollback]

    def naming(self, requested: str, live: LiveTimeline) -> str | None:
        """Return the rollback, of any state, that rolls the instant back for good."""
        later = (i.requested for i in live.rollbacks() if i.requested > requested)
        undone = ((rollback, self.undone_by(rollback)) for rollback in sorted(later))
        return next((r for r, u in undone if u and u.is_final and u.target == requested), None)
