"""A process that knows a partition's ring from long ago finds out that it is an old one."""

from __future__ import annotations

from unittest.mock import patch

import pytest

import pyhudi
from pyhudi.commit import decision_log, pruning
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
