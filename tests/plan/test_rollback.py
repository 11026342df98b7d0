"""Rollback plans: exactly the files of one instant, whatever a plan or a marker claims."""

from __future__ import annotations

import pytest

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import IoType, MarkerName
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import RollbackPlan, RollbackRequest
from pyhudi.plan.rollback import files_to_delete, is_final, plan_rollback, rollback_metadata

R = "20260101000000001"
OTHER = "20260101000000002"
TARGET = Instant(InstantTime(R), Action.DELTACOMMIT, State.INFLIGHT)
URI = "file:///table"
LOG = f"p/.a-0_{R}.log.1_0-0-0"
BASE = f"b-0_0-0-0_{R}.parquet"


def marker(path: str) -> MarkerName:
    return MarkerName(path, IoType.CREATE)


def test_a_plan_deletes_each_marked_file() -> None:
    plan = plan_rollback(TARGET, [LOG, BASE], URI)
    assert plan.instant_to_rollback is not None
    assert plan.instant_to_rollback.commit_time == R
    assert set(files_to_delete(plan, [], R)) == {LOG, BASE}
    requests = plan.rollback_requests or ()
    assert [(r.partition_path, r.file_id) for r in requests] == [("p", "a-0"), ("", "b-0")]
    assert all(r.latest_base_instant == R and not r.log_blocks_to_be_deleted for r in requests)


def test_markers_that_came_after_the_plan_count_too() -> None:
    plan = plan_rollback(TARGET, [BASE], URI)
    assert files_to_delete(plan, [marker(LOG)], R) == tuple(sorted([BASE, LOG]))


FORGED = [
    f"{URI}/p/b-0_0-0-0_{OTHER}.parquet",
    f"{URI}/.hoodie/hoodie.properties",
    "file:///etc/passwd",
    "",
]


@pytest.mark.parametrize("path", FORGED)
def test_a_forged_plan_deletes_nothing(path: str) -> None:
    plan = RollbackPlan(None, (RollbackRequest("p", files_to_be_deleted=(path,)),))
    with pytest.raises(CorruptTableError):
        files_to_delete(plan, [], R)


def test_a_plan_made_where_the_table_is_mounted_elsewhere_is_understood() -> None:
    plan = plan_rollback(TARGET, [LOG, BASE], "file:///mnt/lake/table")
    assert files_to_delete(plan, [], R) == tuple(sorted([BASE, LOG]))


def test_a_plan_cannot_reach_outside_the_table() -> None:
    outside = f"{URI}/../../other/{BASE}"
    plan = RollbackPlan(None, (RollbackRequest("p", files_to_be_deleted=(outside,)),))
    assert files_to_delete(plan, [], R) == (f"p/{BASE}",)
    plan = RollbackPlan(None, (RollbackRequest("../p", files_to_be_deleted=(outside,)),))
    with pytest.raises(CorruptTableError):
        files_to_delete(plan, [], R)


def test_the_result_names_what_was_deleted_in_each_partition() -> None:
    made = rollback_metadata(OTHER, TARGET, [LOG, BASE], URI, 12)
    assert made.commits_rollback == (R,)
    assert made.total_files_deleted == 2
    assert made.partition_metadata["p"].success_delete_files == (f"{URI}/{LOG}",)
    assert made.partition_metadata[""].success_delete_files == (f"{URI}/{BASE}",)
    assert made.instants_rollback[0].action == "deltacommit"


PLANNED = Instant(InstantTime(R), Action.COMPACTION, State.INFLIGHT)


def test_a_plan_that_is_given_up_is_among_the_files_and_stays_no_data_file() -> None:
    plan = plan_rollback(PLANNED, [BASE], URI, ".hoodie/timeline")
    named = [path for r in plan.rollback_requests or () for path in r.files_to_be_deleted]
    assert named == [f"{URI}/{BASE}", f"{URI}/.hoodie/timeline/{R}.compaction.requested"]
    assert is_final(plan)
    assert files_to_delete(plan, [], R) == (BASE,)


def test_a_rollback_of_a_failed_run_leaves_the_plan() -> None:
    """As Hudi plans it, before it carries the plan out anew."""
    plan = plan_rollback(PLANNED, [BASE], URI, ".hoodie/timeline")
    requests = (plan.rollback_requests or ())[:1]
    assert not is_final(RollbackPlan(plan.instant_to_rollback, requests))
    assert not is_final(RollbackPlan(plan.instant_to_rollback, ()))


def test_every_rollback_of_a_write_is_final() -> None:
    assert is_final(plan_rollback(TARGET, [LOG], URI, ".hoodie/timeline"))
    assert is_final(RollbackPlan(None, ()))
