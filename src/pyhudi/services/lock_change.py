"""Giving a table another lock while others write it.

First the properties change, under both locks, and then a write without rows is committed with the
new one. Its begin is the entry behind which nobody decides who has not looked at the properties
again. So when this returns, every decision is made under the new lock: a write that began with the
old one has completed before, or is refused at its end, and rolled back like any failed write.
Whoever dies on the way, or is not answered, calls again.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyhudi.format.lock.lock_address import parse_lock_address
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.session.lock_setting import change_lock
from pyhudi.write.writer import TableWriter


def use_lock(writer: TableWriter, kind: LockKind, options: Mapping[str, object] | None) -> None:
    """Let all writers of the table take this lock from now on."""
    with writer.turn, writer.opening.by_recorded_lock():
        with writer.looking():
            before = writer.open()
            _ = writer.schema  # refused like any write, before anything has changed
        address = parse_lock_address(kind, options, before.name)
        if address is None and kind is before.lock:
            address = before.lock_address
        wait_ms = writer.settings.lock_wait_ms
        change_lock(writer.storage, writer.world, before, kind, address, wait_ms=wait_ms)
        writer.open()
        writer.commit_nothing("the new lock")
