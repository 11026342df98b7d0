"""A write that replaces rows executes a virtual resize of its buckets first.

Elsewhere it would cancel the resize. That is no longer possible once a completed write has its rows
in the children alone.
"""

from __future__ import annotations

from typing import Final

from pyhudi.errors import InvalidRequestError
from pyhudi.services.resizing.run import resizes
from pyhudi.session.session import TableSession
from pyhudi.world import jittered_ms

#: How long to leave another process that executes the resize alone, before the write looks again.
_LOOK_MS: Final = 1_000


def finish_before_write(session: TableSession, requested: str) -> bool:
    """Execute the resize, or give the process that executes it some time; return True.

    Raise the error if it cannot be executed: it names what is damaged.
    """
    try:
        done = resizes(session).execute(requested)
    except InvalidRequestError:
        return True  # it has ended meanwhile
    if done is None:
        session.world.sleep_ms(jittered_ms(session.world, _LOOK_MS))
    return True
