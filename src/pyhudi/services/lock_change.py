"""Giving a table another lock while other processes write it.

First the properties change, under both locks. Then a write without rows is committed under the new
lock. After the entry of its begin, a process appends to the log only once it has read the
properties again. So when this returns, every entry is appended under the new lock. A write that
began under the old lock has either completed before, or is refused at its end and rolled back like
any failed write. A process that dies on the way, or that storage does not answer, repeats the call.

A lock that Apache Hudi takes ends the resizes that are pending and that Hudi cannot execute: a Hudi
writer would not know what pyhudi copies. No new one of that kind begins under the new lock, so they
are cancelled last. None loses a row. A virtual one is executed instead, if committed rows are in
its children by then.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyhudi.format.lock.lock_address import parse_lock_address
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.services.resizing.run import cancel_own
from pyhudi.session.lock_setting import change_lock
from pyhudi.session.open import OpenTable
from pyhudi.write.begin import commit_nothing


def use_lock(table: OpenTable, kind: LockKind, options: Mapping[str, object] | None) -> None:
    """Make all writers of the table take this lock from now on."""
    with table.exclusive, table.by_recorded_lock():
        read_only = table.session(is_read_only=True)
        read_only.schema.avro()  # refused like any write, before anything has changed
        before = read_only.config
        address = parse_lock_address(kind, options, before.name)
        if address is None and kind is before.lock:
            address = before.lock_address
        wait_ms = table.settings.lock_wait_ms
        change_lock(table.storage, table.world, before, kind, address, wait_ms=wait_ms)
        session = table.session()
        commit_nothing(session, "the new lock")
        if session.config.lock.is_shared:
            cancel_own(session)
