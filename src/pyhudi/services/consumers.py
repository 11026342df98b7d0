"""Registered consumers: readers of changes, for which cleaning retains what they have not read.

A consumer records the completion time up to which it has read. A process that registers one first
creates the consumer's object and then reads the timeline. This order makes the promise hold against
a clean that is planned at the same moment (`services.cleaning.schedule`): a registration that comes
too late is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.consumer_file import (
    Consumer,
    checked_consumer_name,
    checked_hours,
    checked_since,
)
from pyhudi.read.plan import Reader
from pyhudi.session.session import TableSession
from pyhudi.storage.objects.consumers import (
    change_consumer,
    load_consumer,
    put_back_consumer,
    remove_consumer,
)
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.live import BEFORE_ALL

#: Hours of silence after which a consumer no longer retains files, unless it sets another number.
EXPIRES_AFTER_HOURS: Final = 7 * 24


def register_consumer(
    session: TableSession,
    name: str,
    *,
    since: str | None = None,
    expires_after_hours: int | None = EXPIRES_AFTER_HOURS,
) -> Consumer:
    """Retain, from now on, what the consumer needs to read every change after `since`.

    Without `since` that is the newest completion time, or for a consumer that is already registered
    the time up to which it has read. Raise InvalidRequestError if some of these changes are removed
    or about to be removed, or if nothing has completed as late as `since`.
    """
    name, hours = checked_consumer_name(name), checked_hours(expires_after_hours)
    parsed = None if since is None else checked_since(since)
    now = session.world.now_ms()

    def change(known: Consumer | None, newest: str) -> Consumer:
        known = known or Consumer(name, newest, now, now, hours)
        read = parsed or known.since
        _refuse_future(name, read, max(newest, known.since))
        return replace(known, since=read, updated_ms=now, expires_after_hours=hours, silent_ms=0)

    return _changed(session, name, change)


_Change: TypeAlias = Callable[[Consumer | None, str], Consumer]


def _changed(session: TableSession, name: str, change: _Change) -> Consumer:
    """Change a consumer, or raise InvalidRequestError if changes that it needs are removed.

    `change` gets the consumer, if it is registered, and the newest completion time.
    """
    with session.exclusive:
        before = load_consumer(session.storage, name)
        newest = max(session.current.load().timeline.completion_times.values(), default=BEFORE_ALL)
        _refuse_lost(session, change(None if before is None else before.consumer, newest))
        changed = change_consumer(session.storage, name, lambda known: change(known, newest))
        try:
            _refuse_lost(session, changed)
        except InvalidRequestError:
            put_back_consumer(session.storage, name, changed, before)
            raise
        return changed


def _refuse_future(name: str, since: str, newest: str) -> None:
    """Refuse a time that is later than every completion.

    A consumer never goes back by itself. A time that is too late would therefore release changes
    that it has not read.
    """
    if since > newest:
        raise InvalidRequestError(
            f"the consumer {name!r} cannot have read up to {since}",
            why=f"the newest change of the table completed at {newest}",
            next_step="Give the `until` of a read of changes. To begin at the newest state,"
            " register a new name without `since`",
        )


def _refuse_lost(session: TableSession, consumer: Consumer) -> None:
    """Refuse a consumer of which cleaning has removed changes, or is about to.

    This is called once more after the consumer's object was created, because a clean that was
    planned before that may not have seen the consumer.
    """
    retained = Reader(session.loader).retention(session.current.load())
    if consumer.since < retained.since:
        raise InvalidRequestError(
            f"the consumer {consumer.name!r} cannot be registered as of {consumer.since}",
            why=f"cleaning has retained what is needed from {retained.since} on, and earlier"
            " changes are removed",
            next_step="Release the consumer, register it again without `since`, and read the table"
            " as of the `since` that it then has. Read changes from there on",
        )


def advance_consumer(session: TableSession, name: str, since: str) -> Consumer:
    """Record that the consumer is alive and has read up to `since`.

    An earlier time than the recorded one only records that the consumer is alive. Raise
    InvalidRequestError if the consumer is not registered, if nothing has completed as late as
    `since`, or if it was silent for too long and changes that it has not read are removed.
    """
    name, read = checked_consumer_name(name), checked_since(since)
    now = session.world.now_ms()

    def change(known: Consumer | None, newest: str) -> Consumer:
        if known is None:
            raise InvalidRequestError(
                f"there is no consumer {name!r}",
                why="it was not registered, or has been released",
                next_step="Register it with since= the `until` of its last read of changes."
                " Without since=, it begins at the newest state",
            )
        _refuse_future(name, read, max(newest, known.since))
        return replace(known, since=max(known.since, read), updated_ms=now, silent_ms=0)

    return _changed(session, name, change)


def release_consumer(storage: Storage, name: str) -> bool:
    """Retain nothing more for the consumer; return True if it was registered."""
    return remove_consumer(storage, checked_consumer_name(name))
