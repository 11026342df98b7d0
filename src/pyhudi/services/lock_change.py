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
from pyhudi.session.open import OpenTable
from pyhudi.write.begin import commit_nothing


def use_lock(table: OpenTable, kind: LockKind, options: Mapping[str, object] | None) -> None:
    """Let all writers of the table take this lock from now on."""
    with table.exclusive, table.by_recorded_lock():
        looked = table.session(is_read_only=True)
        looked.schema.avro()  # refused like any write, before anything has changed
        before = looked.config
        address = parse_lock_address(kind, options, before.name)
        if address is None and kind is before.lock:
            address = before.lock_address
        wait_ms = table.settings.lock_wait_ms
        change_lock(table.storage, table.world, before, kind, address, wait_ms=wait_ms)
        commit_nothing(table.session(), "the new lock")
