"""`append(require_new_keys=True)` in this process: no key of the rows may be in the table.

The keys are checked before the write begins, so that a refusal leaves nothing behind. Each attempt
checks them again once its instant has begun, if another write has completed since the last check.
What completes after that is a conflict, and the next attempt checks again. So the write never puts
its row over another writer's.
"""

from __future__ import annotations

from pyhudi.commit.concurrent import is_seed
from pyhudi.table.state import TableState
from pyhudi.timeline.timeline import WRITE_ACTIONS
from pyhudi.write.buffer import RowBuffer
from pyhudi.write.plan import WritePlans
from pyhudi.write.tasks import refuse_known_keys
from pyhudi.write.writer import TableWriter


class NewKeys:
    """The check of the keys of one write. Only the buckets that its rows go to are opened."""

    def __init__(self, writer: TableWriter, rows: RowBuffer) -> None:
        self._writer = writer
        self._rows = rows
        self._checked: TableState | None = None

    def require(self) -> None:
        """Raise InvalidRequestError, with a sample, if a key is in the table."""
        writer = self._writer
        if self._checked is not None and not self._has_news(self._checked):
            return
        state = writer.state()
        known = WritePlans(writer).known_keys(state)
        self._rows.route(writer.routing(writer.current_slices(state)))
        for group, rows in self._rows.buffered():
            refuse_known_keys(rows, known.keys(writer.storage, group), writer.config)
        self._checked = state

    def _has_news(self, state: TableState) -> bool:
        """True if a write has completed that the state does not have, and that may have rows.

        The live timeline is as of the instant's begin, so this costs no look at the timeline. Seeds
        have no rows; the first write to a partition makes one itself.
        """
        loader, timeline = self._writer.loader, state.timeline
        done = self._writer.log.live.completed.values()
        writes = (i for i in done if i.action in WRITE_ACTIONS)
        return any(
            not timeline.is_committed(instant.requested) and not is_seed(loader.metadata(instant))
            for instant in writes
        )
