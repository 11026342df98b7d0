"""The fence: no task creates a data file once its write is about to complete.

Readers show every log file of a completed instant, whether or not its metadata names it. A task
attempt that counts as lost may wake up after the completion and still have rows to write. Where
another attempt wrote the same file, creating it fails. But computed again, a non-deterministic
input may have rows for file groups that the winner never touched. So:

    a task                                      the driver, when all tasks are done
    1  creates the marker of the file           1  creates the fence
    2  looks: no fence, and a heartbeat?        2  lists the markers: each must be of a known file
    3  creates the file                         3  completes the write
                                                4  ends the heartbeat, then removes the fence

A task that saw no fence created its marker before the fence, so the driver's listing has it, and
an unknown file stops the write. A task that looks later sees the fence, or, since the heartbeat
goes first and is looked for last, no heartbeat. Nothing stays behind, and no clock is involved.

Where a service in the driver's process stores the markers (`write.markers`), its reply is the
task's look. It says whether the write was open after the marker was stored. The driver closes the
service before step 1, so a task that got the reply "open" has its marker in the listing, too.
"""

from __future__ import annotations

from typing import Final

from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.protocol import Storage

#: Of the refusal of a task, which the fence may carry to the driver.
REASON_BYTES_MAX: Final = 1 << 20
FENCE_FOLDER: Final = ".hoodie/.pyhudi/closed"


def fence_path(requested: str) -> str:
    return f"{FENCE_FOLDER}/{requested}"


def raise_fence(storage: Storage, requested: str, reason: bytes = b"") -> None:
    """Create the fence: from here on, no task gets past its look. Harmless when repeated.

    The first one that is created stays, with its reason.
    """
    storage.create(fence_path(requested), reason)


def is_raised(storage: Storage, requested: str) -> bool:
    """True if the fence is there."""
    return storage.stat(fence_path(requested)) is not None


def load_reason(storage: Storage, requested: str) -> bytes:
    """Return the reason of the fence; nothing if there is none."""
    try:
        return storage.read(fence_path(requested), 0, REASON_BYTES_MAX)
    except FileNotFoundError:
        return b""


def remove_fence(storage: Storage, requested: str) -> None:
    """Remove the fence of an instant whose heartbeat is gone."""
    storage.delete(fence_path(requested))


def may_create_file(storage: Storage, requested: str) -> bool:
    """True if a task that has created its marker may create the file. The order matters."""
    if is_raised(storage, requested):
        return False
    return storage.stat(heartbeat_path(requested)) is not None
