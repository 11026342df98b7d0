"""Registered consumers: those who read changes again and again, and for whom cleaning keeps them.

A consumer says up to which completion time it has read. It is registered by creating its object
first and looking at the timeline then, which is what makes the promise hold against a clean that
is planned at the same moment (`services.cleaning.schedule`): a registration that comes too late is
refused.
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

#: Hours of silence after which a consumer no longer holds files, unless it says otherwise.
EXPIRES_AFTER_HOURS: Final = 7 * 24


def register_consumer(
    session: TableSession,
    name: str,
    *,
    since: str | None = None,
    expires_after_hours: int | None = EXPIRES_AFTER_HOURS,
) -> Consumer:
    """Keep, from now on, what the consumer needs to read every change after `since`.

    Without `since` that is the newest completion time, or for a consumer that is known already
    the time up to which it has read. InvalidRequestError if some of that is gone, or going, or if
    nothing has completed as late as that.
    """
    name, hours = checked_consumer_name(name), checked_hours(expires_after_hours)
    given = None if since is None else checked_since(since)
    now = session.world.now_ms()

    def change(known: Consumer | None, newest: str) -> Consumer:
        known = known or Consumer(name, newest, now, now, hours)
        read = given or known.since
        _refuse_future(name, read, max(newest, known.since))
        return replace(known, since=read, updated_ms=now, expires_after_hours=hours, silent_ms=0)

    return _changed(session, name, change)


_Change: TypeAlias = Callable[[Consumer | None, str], Consumer]


def _changed(session: TableSession, name: str, change: _Change) -> Consumer:
    """Change a consumer, who is told if what it needs is gone. `change` is given the newest
    completion time."""
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
    """A consumer never goes back by itself, so a mistake here would end what it is kept for."""
    if since > newest:
        raise InvalidRequestError(
            f"the consumer {name!r} cannot have read up to {since}",
            why=f"the newest change of the table completed at {newest}",
            next_step="Give the `until` of a read of changes; to begin at the newest state,"
            " register a new name without `since`",
        )


def _refuse_lost(session: TableSession, consumer: Consumer) -> None:
    """Asked again once the consumer can be seen: what was planned before may not have seen it."""
    kept = Reader(session.loader).retention(session.current.load())
    if consumer.since < kept.since:
        raise InvalidRequestError(
            f"the consumer {consumer.name!r} cannot be registered as of {consumer.since}",
            why=f"cleaning has kept what is needed from {kept.since} on, and changes before are"
            " gone",
            next_step="Release the consumer, register it again without `since`, and read the"
            " table as of the `since` that it then has; from there on read changes",
        )


def advance_consumer(session: TableSession, name: str, since: str) -> Consumer:
    """The consumer has read up to `since`, and is alive; an earlier time changes only the latter.

    InvalidRequestError if it is not registered, if nothing has completed as late as that, or if it
    was silent for too long and changes that it has not read are gone.
    """
    name, read = checked_consumer_name(name), checked_since(since)
    now = session.world.now_ms()

    def change(known: Consumer | None, newest: str) -> Consumer:
        if known is None:
            raise InvalidRequestError(
                f"there is no consumer {name!r}",
                why="it was not registered, or has been released",
                next_step="Register it with since= the `until` of its last read of changes;"
                " without, it begins at the newest state",
            )
        _refuse_future(name, read, max(newest, known.since))
        return replace(known, since=max(known.since, read), updated_ms=now, silent_ms=0)

    return _changed(session, name, change)


def release_consumer(storage: Storage, name: str) -> bool:
    """Hold nothing more for the consumer; whether it was registered."""
    return remove_consumer(storage, checked_consumer_name(name))
