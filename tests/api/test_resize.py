"""table.services.resize: what a caller sees of it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import pyhudi
from memory_tables import MemoryTable
from pyhudi.errors import ConflictError, InvalidRequestError
from pyhudi.format.files.log_reference import is_virtual_child
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.plan.resizing.policy import ResizePolicy
from resize_tables import SCHEMA, ResizeTable

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # buckets this small are for tests only
    SMALL = ResizePolicy(target_bytes=4096, rest_seconds=0)
    VIRTUAL = ResizePolicy(target_bytes=4096, rest_seconds=0, writes="virtual")
KEYS = [f"k{n}" for n in range(2_000)]


@pytest.fixture(params=["non-blocking", "optimistic"])
def table(request: pytest.FixtureRequest) -> ResizeTable:
    modes: dict[str, dict[str, Any]] = {
        "non-blocking": {"ordering": "ts"},
        "optimistic": {"concurrency": ConcurrencyMode.OPTIMISTIC},
    }
    found = ResizeTable(initial=2, **modes[request.param])
    found.put(KEYS, 1)
    return found


def test_a_resize_splits_what_is_too_large_and_keeps_every_row(table: ResizeTable) -> None:
    before = table.rows()
    done = table.table("r1").services.resize(SMALL)
    [result] = done.results
    assert result.inputs == 2
    assert result.children > 2
    assert done.planned == result.instant
    assert not done.pending
    assert table.rows() == before
    assert table.table("v").services.verify()
    assert "became" in str(done)


def test_what_a_writer_completes_in_between_is_in_the_new_buckets(table: ResizeTable) -> None:
    planned = table.table("r1").services.resize(SMALL, plan_only=True)
    assert planned.pending == (planned.planned,)
    table.put(KEYS[:10], 2)
    table.remove(KEYS[-5:])
    before = table.rows()
    [result] = table.table("r2").services.resize(SMALL).results
    assert result.instant == planned.planned
    assert result.copies > 0
    assert table.rows() == before
    table.put(KEYS[5:8], 3)
    values = table.values()
    assert len(values) == len(KEYS) - 5
    assert [values[key] for key in KEYS[3:9]] == ["k32", "k42", "k53", "k63", "k73", "k82"]


def test_rounds_come_to_an_end(table: ResizeTable) -> None:
    for number in range(10):
        if not table.table(f"r{number}").services.resize(SMALL).results:
            break
    else:
        pytest.fail("every round resizes again")
    assert set(table.values()) == set(KEYS)


def test_a_dry_run_says_what_would_happen_and_changes_nothing(table: ResizeTable) -> None:
    names = table.names()
    preview = table.table("r1").services.resize(SMALL, dry_run=True)
    assert "split into" in str(preview)
    assert preview.planned is None
    assert table.names() == names


def test_nothing_to_do_is_no_error() -> None:
    table = ResizeTable(ordering="ts")
    table.put(KEYS, 1)
    done = table.table("r1").services.resize()
    assert (done.planned, done.pending, done.results) == (None, (), ())
    assert str(done) == "nothing to resize"


def test_a_pending_resize_is_cancelled_by_one_rollback(table: ResizeTable) -> None:
    before = table.rows()
    planned = table.table("r1").services.resize(SMALL, plan_only=True).planned
    assert planned is not None
    services = table.table("c").services
    rollback = services.cancel_resize(planned)
    assert rollback > planned
    assert table.rows() == before
    assert services.cancel_resize(planned) == rollback
    with pytest.raises(InvalidRequestError, match="no pending resize"):
        services.cancel_resize("20260101000000000")
    assert table.table("r2").services.resize(SMALL).results


def test_simple_buckets_cannot_be_resized() -> None:
    table = MemoryTable(SCHEMA, partition_by="day", buckets=SimpleBuckets(2))
    with pytest.raises(InvalidRequestError, match="fixed number"):
        table.table("r").services.resize()


def test_another_policy_is_refused(table: ResizeTable) -> None:
    with pytest.raises(InvalidRequestError, match="ResizePolicy"):
        table.table("r").services.resize(pyhudi.CompactionPolicy())  # type: ignore[arg-type]


def test_a_virtual_resize_is_chosen_by_the_policy_of_a_call(table: ResizeTable) -> None:
    planned = table.table("r1").services.resize(VIRTUAL, plan_only=True)
    assert planned.planned is not None
    table.put(KEYS[:10], 2)
    table.remove(KEYS[-5:])
    before = table.rows()
    with pytest.raises(ConflictError, match="cannot be cancelled"):
        table.table("c").services.cancel_resize(planned.planned)
    [result] = table.table("r2").services.resize(SMALL).results
    assert (result.instant, result.copies) == (planned.planned, 0)
    assert table.rows() == before
    table.put(KEYS[5:8], 3)
    assert len(table.values()) == len(KEYS) - 5
    assert table.table("v").services.verify()


def test_a_policy_that_a_table_records_may_choose_virtual_resizes(table: ResizeTable) -> None:
    table.table("a").alter.upkeep(pyhudi.Upkeep(resize=VIRTUAL, compaction=None, clean=None))
    before = table.rows()
    done = table.table("b").services.run().resize
    assert done is not None
    [result] = done.results
    assert result.children > 2
    assert table.rows() == before
    ids = {path.rpartition("/")[2] for path in (s.path for s in table.storage.list("d"))}
    assert any(is_virtual_child(name.partition("_")[0]) for name in ids)
