"""What keeps a table in order, apart from reading and writing it."""

from __future__ import annotations

from collections.abc import Sequence

from pyhudi.engine.local import LocalWriter
from pyhudi.engine.owned_columns import own_columns, release_columns
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

    def own_columns(self, owner: str, columns: Sequence[str]) -> None:
        """Declare that these columns of a joined table are the owner's to write, and nobody else's.

        A column has one owner: of two processes that ask for it at once, one is refused. The same
        declaration again changes nothing.
        """
        own_columns(self._writer, owner, columns)

    def release_columns(self, owner: str) -> None:
        """Take an owner's columns from it, so that others may have them.

        Values that were written stay. Writes of the owner that have not completed are refused.
        """
        release_columns(self._writer, owner)
