"""A dropped column whose values a resize has copied: the name stays taken until they are gone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from many_writers.scene import HeldWrite, Stop
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.plan.compaction.policy import CompactionPolicy
from resize_tables import SCHEMA, ResizeTable

MODES: dict[str, dict[str, Any]] = {
    "event time": {"ordering": "ts"},
    "commit time": {"concurrency": ConcurrencyMode.OPTIMISTIC},
}
ONE = CleanPolicy.commits(1)
WIDE = SCHEMA.append(pa.field("x", pa.string()))


def rows(key: str, stamp: int) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": key, "day": "d", "ts": stamp, "v": f"{key}{stamp}", "x": "text"}], WIDE
    )


@pytest.mark.parametrize("mode", MODES)
def test_a_name_is_not_given_anew_while_a_copy_has_values_of_the_dropped_column(mode: str) -> None:
    """The write began before the drop, and the resize that copied it is younger than the drop."""
    made = ResizeTable(**MODES[mode])
    made.put("klmn", 1)
    with made.table("own").update_schema() as change:
        change.add_column("x", pa.string())
    own = made.table("held")
    write = HeldWrite(lambda: own.upsert(rows("k", 2))).run_to(Stop.WRITTEN)
    with made.table("other").update_schema() as change:
        change.delete_column("x")
    resize = made.plan(2)
    write.finish()
    assert made.resizes().execute(resize) is not None
    for stamp in (3, 4):
        made.put("m", stamp)
    made.table("cleaner").services.clean(ONE)
    old = [stat.path for stat in made.storage.list("d") if write.requested in stat.path]
    assert not old, "the input is gone, and the write's rows are in copies alone"
    with (
        made.table("other").update_schema() as change,
        pytest.raises(pyhudi.InvalidRequestError, match="'x' cannot be added again"),
    ):
        change.add_column("x", pa.int64())
    assert made.values() == {"k": "k2", "l": "l1", "m": "m4", "n": "n1"}

    compacted = made.table("service").services.compact(CompactionPolicy(trigger_delta_commits=1))
    assert compacted.results
    made.put("m", 5)
    made.put("m", 6)
    made.table("cleaner").services.clean(ONE)
    with made.table("other").update_schema() as change:
        change.add_column("x", pa.int64())
    assert made.values() == {"k": "k2", "l": "l1", "m": "m6", "n": "n1"}
    found = made.table("r").read(columns=["id", "x"]).to_arrow()
    assert found["x"].to_pylist() == [None] * 4
