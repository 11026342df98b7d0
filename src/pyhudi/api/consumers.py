"""table.consumers: for which readers of changes does a clean retain what they have not read?"""

from __future__ import annotations

from pyhudi.api.inputs import Time, parse_time
from pyhudi.format.table.consumer_file import Consumer
from pyhudi.services.consumers import (
    EXPIRES_AFTER_HOURS,
    advance_consumer,
    register_consumer,
    release_consumer,
)
from pyhudi.session.open import OpenTable
from pyhudi.session.session import TableSession
from pyhudi.wording import public_methods


class Consumers:
    """Processes that read changes again and again (docs/services.md)."""

    def __init__(self, table: OpenTable) -> None:
        self._table = table

    def __repr__(self) -> str:
        return f"<consumers of {self._table.storage.uri}: {', '.join(public_methods(type(self)))}>"

    def register(
        self,
        name: str,
        *,
        since: Time | None = None,
        expires_after_hours: int | None = EXPIRES_AFTER_HOURS,
    ) -> Consumer:
        """Retain what `table.changes(since=since)` needs until this consumer has read it.

        Without `since` a new consumer begins at the newest state, and a registered one keeps the
        time up to which it has read. For a consumer that is silent for `expires_after_hours`,
        nothing is retained any more; with None, its files are retained for ever.
        """
        time = None if since is None else self._time(since)
        return register_consumer(
            self._session(), name, since=time, expires_after_hours=expires_after_hours
        )

    def advance(self, name: str, since: Time) -> Consumer:
        """Record that the consumer has read up to `since`, and needs nothing before that.

        Pass the `until` of the `changes(...)` that it has read.
        """
        return advance_consumer(self._session(), name, self._time(since))

    def release(self, name: str) -> bool:
        """Retain nothing more for the consumer. Return whether it was registered."""
        return release_consumer(self._table.storage, name)

    def _time(self, time: Time) -> str:
        return parse_time(time, self._table.known().config.zone)

    def _session(self) -> TableSession:
        with self._table.exclusive:
            return self._table.session()
