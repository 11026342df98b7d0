"""`write_id`: repeating a write whose outcome is unknown, without doing it twice.

A write that has an id registers its instant under the id before it writes data. A later attempt
with the same id finds the earlier instants there. One that completed is the answer. One that is
pending is aborted, in the decision log, so that it cannot complete afterwards. Attempts that run at
the same time find each other too, and the one with the later instant continues.

The registration outlasts the instant by a week, as the decision log does.
"""

from __future__ import annotations

import hashlib
import json

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.errors import ConflictError, InvalidRequestError
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.instant import Instant, is_instant_time
from pyhudi.read.archive import History, as_instant

WRITE_ID_FOLDER = ".hoodie/.pyhudi/writes"
WRITE_ID_KEY = "pyhudi.write_id"
_ID_CHARACTERS_MAX = 1_000


class TakenOverError(ConflictError):
    """Another attempt with the same write_id continues; repeating this one would abort that one."""


class WriteIds:
    """The attempts registered under write ids."""

    def __init__(self, log: DecisionLog, recovery: FailedWriteRecovery) -> None:
        self._log = log
        self._storage = log.storage
        self._recovery = recovery
        self._history = History(log.storage, log.history_folder)

    def completed(self, write_id: str, operation: str) -> Instant | None:
        """Return the earlier attempt that completed. Attempts that are pending are aborted."""
        return self._settle(write_id, operation, before=None)

    def register(
        self,
        write_id: str,
        requested: str,
        operation: str,
        own: frozenset[str] = frozenset(),
    ) -> Instant | None:
        """Register an attempt; return another attempt that has completed, if one has.

        TakenOverError if a later attempt has taken over. `own` attempts that lost to a conflict are
        left to the caller: their files may still be needed, and no process completes them.
        """
        body = json.dumps({"write_id": write_id, "instant": requested}).encode()
        self._storage.create(f"{_folder(write_id)}/{requested}", body)
        return self._settle(write_id, operation, before=requested, own=own)

    def _settle(
        self,
        write_id: str,
        operation: str,
        before: str | None,
        own: frozenset[str] = frozenset(),
    ) -> Instant | None:
        others = [r for r in self._attempts(write_id) if r != before and r not in own]
        if not others:
            return None
        live = self._log.refresh()
        for requested in others:
            pending = live.pending.get(requested)
            if before is not None and requested > before and pending is not None:
                raise TakenOverError(
                    f"the write {write_id!r} was taken over",
                    why=f"a later attempt, {requested}, has the same write_id",
                    next_step="Leave it to that attempt",
                )
            if pending is not None:
                self._recovery.abort(pending)
        live = self._log.live
        for requested in others:
            if (done := live.completed.get(requested)) is not None:
                self._check(done, write_id, operation)
                return done
            undone = live.rolled_back_by.get(requested) or self._log.rollback_of(requested)
            if undone is not None or not live.is_committed(requested):
                continue
            if (archived := self._history.instant(requested)) is not None:
                done = as_instant(archived)
                self._check(done, write_id, operation)
                return done
            if not self._history.is_undone(requested):
                raise InvalidRequestError(
                    f"whether the write {write_id!r} was done before is not known",
                    why=f"its attempt {requested} is in neither the timeline nor its archive",
                    next_step="Check whether its rows are there. If they are not, write them with"
                    " another write_id",
                )
        return None

    def _check(self, done: Instant, write_id: str, operation: str) -> None:
        """Require that the completed instant has this write_id, and is the same operation."""
        metadata = self._history.write_metadata(self._log.folder, done)
        if (metadata.extra_metadata or {}).get(WRITE_ID_KEY) != write_id:
            why = f"it is registered for {done.requested}, which is another write"
        elif metadata.operation != operation:
            why = f"{done.requested} has it, and was {metadata.operation}, not {operation}"
        else:
            return
        raise InvalidRequestError(
            f"the write_id {write_id!r} cannot be used",
            why=why,
            next_step="Give each write its own write_id",
        )

    def _attempts(self, write_id: str) -> list[str]:
        names = (file_name(stat.path) for stat in self._storage.list(_folder(write_id)))
        return sorted(name for name in names if is_instant_time(name))


def _folder(write_id: str) -> str:
    if (
        not isinstance(write_id, str)
        or not 0 < len(write_id) <= _ID_CHARACTERS_MAX
        or not write_id.isprintable()
    ):
        raise InvalidRequestError(
            f"the write_id {write_id!r:.100} cannot be used",
            why=f"it must be text of 1 to {_ID_CHARACTERS_MAX} printable characters",
            next_step="Give the write another write_id",
        )
    return f"{WRITE_ID_FOLDER}/{hashlib.sha256(write_id.encode()).hexdigest()}"
