"""`write_id`: repeating a write whose outcome is unknown, without doing it twice.

A write that has an id registers its instant under the id before it writes data. Whoever comes with
the same id later finds the earlier instants there: one that completed is the answer; one that is
pending is given up, in the decision log, so that it cannot complete behind our back. Attempts that
run at the same time find each other too, and the one with the later instant goes on.

The registration outlasts the instant by a week, as the decision log does.
"""

from __future__ import annotations

import hashlib
import json

from pyhudi.engine.decide import DecisionLog
from pyhudi.engine.repair import WRITE_ID_FOLDER
from pyhudi.engine.rollback import FailedWriteRecovery
from pyhudi.errors import ConflictError, InvalidRequestError
from pyhudi.format.instant import Instant, is_instant_time

WRITE_ID_KEY = "pyhudi.write_id"
_ID_CHARACTERS_MAX = 1_000


class WriteIds:
    """The attempts registered under write ids."""

    def __init__(self, log: DecisionLog, recovery: FailedWriteRecovery) -> None:
        self._log = log
        self._storage = log.storage
        self._recovery = recovery

    def completed(self, write_id: str) -> Instant | None:
        """The earlier attempt that completed. Those that are pending are given up."""
        return self._settle(write_id, before=None)

    def register(self, write_id: str, requested: str) -> Instant | None:
        """Register an attempt; the other attempt that made it superfluous, if one has completed.

        ConflictError if a later attempt has taken over.
        """
        body = json.dumps({"write_id": write_id, "instant": requested}).encode()
        self._storage.create(f"{_folder(write_id)}/{requested}", body)
        return self._settle(write_id, before=requested)

    def _settle(self, write_id: str, before: str | None) -> Instant | None:
        others = [r for r in self._attempts(write_id) if r != before]
        if not others:
            return None
        ledger = self._log.refresh()
        for requested in others:
            pending = ledger.pending.get(requested)
            if before is not None and requested > before and pending is not None:
                raise ConflictError(
                    f"the write {write_id!r} was taken over",
                    why=f"a later attempt, {requested}, has the same write_id",
                    next_step="Leave it to that attempt",
                )
            if pending is not None:
                self._recovery.abort(pending)
        ledger = self._log.ledger
        done = (ledger.completed[r] for r in others if r in ledger.completed)
        return next(done, None)

    def _attempts(self, write_id: str) -> list[str]:
        names = (stat.path.rpartition("/")[2] for stat in self._storage.list(_folder(write_id)))
        return sorted(name for name in names if is_instant_time(name))


def _folder(write_id: str) -> str:
    if not write_id or len(write_id) > _ID_CHARACTERS_MAX:
        raise InvalidRequestError(
            "the write_id cannot be used",
            why=f"it must have 1 to {_ID_CHARACTERS_MAX} characters",
            next_step="Give the write another write_id",
        )
    return f"{WRITE_ID_FOLDER}/{hashlib.sha256(write_id.encode()).hexdigest()}"
