"""What keeps a table in order, apart from reading and writing it."""

from __future__ import annotations

from pyhudi.engine.local import LocalWriter
from pyhudi.engine.repair import GRACE_MS, Repaired
from pyhudi.errors import InvalidRequestError


class Services:
    """Table services."""

    def __init__(self, writer: LocalWriter) -> None:
        self._writer = writer

    def repair(self, *, grace_minutes: float = GRACE_MS / 60_000) -> Repaired:
        """Finish what crashed writers began, roll back what they left, and remove the remains.

        Safe at any time and beside any writer. A writer that is frozen longer than the grace and
        then wakes up may still leave files behind; shorten the grace only when no writer runs.
        """
        if not isinstance(grace_minutes, int | float) or not 0 <= grace_minutes < 10**9:
            raise InvalidRequestError(
                f"grace_minutes={grace_minutes!r} cannot be used",
                why="it is not a number of minutes",
                next_step="Leave it out, or give 0 when no writer runs",
            )
        return self._writer.repair(round(grace_minutes * 60_000))

    def disable_metadata_table(self) -> None:
        """Remove Hudi's metadata table, which pyhudi does not maintain and must not let go stale.

        Readers then list the table's folders. A Hudi writer builds it again unless it runs with
        `hoodie.metadata.enable=false`.
        """
        self._writer.disable_metadata_table()
