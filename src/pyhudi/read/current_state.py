"""What is the table's state now? Loaded once, and refreshed by every later look."""

from __future__ import annotations

from pyhudi.read.load import TableLoader
from pyhudi.table.state import TableState


class CurrentState:
    """The state of one table, as of the last look of this process."""

    def __init__(self, loader: TableLoader) -> None:
        self._loader = loader
        self._state: TableState | None = None

    @property
    def known(self) -> TableState | None:
        """The state of the last look; None before the first."""
        return self._state

    def load(self, *, is_whole: bool = False) -> TableState:
        """Return the state as it is now.

        With `is_whole` the timeline is listed whole: a savepoint is as old as the write that it
        retains, and a listing of the timeline's end does not show it.
        """
        if self._state is None:
            self._state = self._loader.load()
        else:
            self._state = self._loader.refresh(self._state)
        if is_whole:
            return self._loader.refresh(self._state, is_whole=True)
        return self._state
