"""What a table lock promises, and how a process waits for it.

Among pyhudi writers a lock is advisory and saves lost races. With a Java writer on the table it is
mandatory, since a Java writer knows nothing else. So each kind is one of Hudi's own, byte for byte,
and exactly as strong. The holder of a lock may have lost it without notice: the process slept past
its lease, or the file was deleted. So a holder can check again, and does so right before it
publishes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from pyhudi.errors import UnavailableError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.storage.redaction import redacted
from pyhudi.world import World, jittered_ms

POLL_MS = 1_000  # Hudi's; with our jitter it is the longest pause

#: How long before its end a lease counts as over, since the clocks of waiting processes differ.
MARGIN_MS = 5_000

#: Between the attempts to release a lock, as Hudi's storage lock has them.
RELEASE_PAUSES_MS = (1_000, 2_000, 4_000)

_SHOWN_CHARACTERS_MAX = 200

_T = TypeVar("_T")


class HeldLock(Protocol):
    """A lock that was taken. It may have been lost since."""

    def remaining_ms(self) -> int | None:
        """Return how long it is safe to go on; 0 once it is lost, None if the lock has no lease.

        Only clocks are read, so it costs nothing. Time in which this machine was suspended counts.
        """

    def is_held(self) -> bool:
        """True if storage still shows the lock that we took; once False, False for good.

        UnavailableError if storage does not answer.
        """

    def release(self) -> None:
        """Release the lock if it still is ours. Doing so twice is not an error.

        An error means that the lock stays behind for good; a lock that ends by itself raises none.
        """


class Lock(Protocol):
    """The lock of one table, not yet taken."""

    @property
    def kind(self) -> LockKind: ...

    def acquire(self, wait_ms: int) -> HeldLock:
        """Take the lock and return it.

        LockTakenError when the time is over, which names the lock's holder and since when. Another
        UnavailableError if the service did not answer.
        """


class LockTakenError(UnavailableError):
    """Another process has the lock, and had it for as long as we waited."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Why an attempt did not get the lock: the holder, and what can be done about it."""

    why: str
    next_step: str
    #: How much longer than requested it pays to wait, since then the waiter gets the lock. Only for
    #: callers that wait at all.
    worth_ms: int = 0


def wait_for(
    attempt: Callable[[], _T | Taken],
    world: World,
    *,
    wait_ms: int,
    table_uri: str,
    poll_ms: int = POLL_MS,
) -> _T:
    """Return the attempt's result, repeating it until it is not a `Taken`.

    A store that does not answer is asked again, too: a throttled request is not a refusal.
    """
    began_ms = world.elapsed_ms()
    failure: UnavailableError
    while True:
        worth_ms = 0
        try:
            outcome = attempt()
        except UnavailableError as error:
            failure = error
        else:
            if not isinstance(outcome, Taken):
                return outcome
            failure = LockTakenError(
                f"the lock of {table_uri} could not be taken within {wait_ms} ms",
                why=outcome.why,
                next_step=outcome.next_step,
            )
            worth_ms = outcome.worth_ms if wait_ms else 0
        left_ms = max(began_ms + wait_ms - world.elapsed_ms(), worth_ms)
        if left_ms <= 0:
            raise failure
        world.sleep_ms(min(left_ms, jittered_ms(world, poll_ms)))


def quoted(text: str) -> str:
    """Return the content of a lock file for people.

    Any process may have written it, so it is cut short, on one line, and free of what looks like a
    secret.

    >>> quoted("host, process 7"), quoted("\\x1b[2J s3://me:pw@host")
    ("'host, process 7'", "'\\\\x1b[2J s3://***@host'")
    """
    return repr(redacted(text[:_SHOWN_CHARACTERS_MAX]))


def moment(ms: int) -> str:
    """Return a point in time for people, also if it makes no sense.

    >>> moment(1700000000123), moment(10**18)
    ('2023-11-14T22:13:20.123+00:00', '1000000000000000000 ms after 1970')
    """
    try:
        seconds, rest = divmod(ms, 1000)
        when = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * 1000)
        return when.isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms after 1970"
