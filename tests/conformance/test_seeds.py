"""A Hudi reader beside our writers never loses sight of committed rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi
from conformance.client import JudgeClient
from conformance.rows import assert_same_rows
from faulty_storage import Effect, Fault, FaultyStorage
from opened_tables import table_on
from pyhudi.storage.open import open_storage
from pyhudi.world import real_world

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("ts", pa.int64())])


def rows(day: str, count: int, ts: int) -> pa.Table:
    ids = [f"k{number}" for number in range(count)]
    return pa.table({"id": ids, "day": [day] * count, "ts": [ts] * count}, schema=SCHEMA)


def test_committed_rows_stay_visible_to_hudi_beside_an_older_pending_write(
    judge: JudgeClient, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    table = pyhudi.create_table(
        path,
        SCHEMA,
        record_key="id",
        partition_by="day",
        ordering="ts",
        buckets=pyhudi.SimpleBuckets(2),
        upkeep=False,
    )
    table.upsert(rows("monday", 3, 1))  # an unrelated commit, older than all that follows
    # The first write to a partition: its data files are there, and it never completes.
    dead = Fault(Effect.FAIL, operation="create", path="*/log/*", nth=4, times=None)
    storage = FaultyStorage(open_storage(str(path)), [dead])
    pending = table_on(storage, real_world())
    with pytest.raises(pyhudi.OutcomeUnknownError) as error:
        pending.upsert(rows("tuesday", 8, 1))
    logs = list((path / "tuesday").glob(f".*_{error.value.instant}.log.*"))
    assert len(logs) == 2, "both buckets have a log of the pending write"

    table.upsert(rows("tuesday", 8, 2))
    ours = table.read(meta=True).to_arrow()
    assert ours.num_rows == 11
    assert_same_rows(ours, judge.hudi_rows(path))
    assert_same_rows(ours, judge.rs_rows(path))
