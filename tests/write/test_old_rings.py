"""A process that knows a partition's ring from long ago finds out that it is an old one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest

import pyhudi
from pyhudi.commit import decision_log, pruning
from pyhudi.storage.protocol import Storage
from resize_tables import ResizeTable

ARCHIVE = pyhudi.ArchivePolicy(
    keep_min=1, keep_max=2, delta_commits=0, grace_ms=0, aborted_grace_ms=0
)


def _resized_and_archived(table: ResizeTable) -> None:
    """Resize the partition, and let nothing be left of it but the new buckets and their ring."""
    resize = table.plan(2)
    table.resizes().execute(resize)
    services = table.table("s").services
    for stamp in (3, 4, 5):
        table.put("klmn", stamp)
        services.compact()
        table.clock.ms += 3_600_000
    services.clean(pyhudi.CleanPolicy.commits(1))
    table.put("klmn", 6)
    services.archive(ARCHIVE)
    assert not [name for name in table.names() if name.startswith(resize)]


@pytest.mark.parametrize("lost", ["entries were pruned", "too many entries to fold"])
def test_a_writer_that_slept_until_the_resize_was_archived_writes_by_the_new_ring(
    lost: str,
) -> None:
    table = ResizeTable(ordering="ts")
    own = table.table("idle")
    own.upsert(table.made("klmn", 1))
    _resized_and_archived(table)
    if lost == "entries were pruned":
        with patch.multiple(pruning, ENTRIES_KEPT=2, ENTRIES_KEPT_MS=0):
            assert any(
                "/.pyhudi/log/" in path for path in table.table("s").services.repair().removed
            )
        own.upsert(table.made("klmn", 9))
    else:
        with patch.object(decision_log, "NOTED_MAX", 5):
            own.upsert(table.made("klmn", 9))
    assert table.values() == {key: f"{key}9" for key in "klmn"}
    assert bool(table.table("v").services.verify())


class _Beside:
    """A storage that does something before the given one of these requests, counted from 0."""

    def __init__(self, storage: Storage, number: int, deed: Callable[[], None]) -> None:
        self._storage = storage
        self.left = number
        self._deed = deed

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if name not in ("list_folder", "create"):
            return found

        def asked(*args: Any) -> Any:
            self.left -= 1
            if self.left == -1:
                self._deed()
            return found(*args)

        return asked


def test_a_partition_is_opened_and_resized_by_others_at_any_moment_of_its_first_write() -> None:
    """The write finds file groups that the ring it has read does not have, and no damage."""
    for number in count():
        table = ResizeTable(ordering="ts", initial=2)
        table.put("z", 1, day="e")

        def opened_and_resized(table: ResizeTable = table) -> None:
            table.put("klmn", 1)
            table.resizes().execute(table.plan_merge())

        storage = _Beside(table.storage, number, opened_and_resized)
        table.table("own", storage).upsert(table.made("kl", 2))
        if storage.left >= 0:
            break
        assert table.values() == {"k": "k2", "l": "l2", "m": "m1", "n": "n1", "z": "z1"}
    assert number > 10
