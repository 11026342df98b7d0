"""The rollback of a write that did not complete: which files it may have left, and its plan.

Since table version 8 every file belongs to one instant, so a rollback deletes whole files. The
markers say which. A plan written at one moment may lack what a frozen writer adds later, so the
process that executes it reads the markers again.

A write beside a resize that Hudi can execute also has logs that the resize names. A plan or a
marker that names one does not suffice to delete it: its blocks must be the write's
(`storage.objects.dual_logs`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import (
    LogFileName,
    MarkerName,
    group_of_path,
    parse_data_file,
)
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.instant import Instant, State
from pyhudi.format.timeline.plan_files import InstantName, RollbackPlan, RollbackRequest
from pyhudi.format.timeline.service_metadata import RollbackMetadata, RolledBackPartition
from pyhudi.format.timeline.stored_paths import path_in_partition
from pyhudi.timeline.live import PLANNED_ACTIONS


def plan_rollback(
    target: Instant, files: Iterable[str], base_uri: str, timeline_folder: str = ""
) -> RollbackPlan:
    """Return a rollback plan with one request for each file, as Hudi plans it.

    For a table service, the plan is among the files. Hudi rolls back a failed execution of a plan
    too, and executes the plan again; so a plan that names the plan file says that the plan itself
    is aborted (`is_final`).
    """
    requests = [
        RollbackRequest(
            partition_path=group.partition,
            file_id=group.file_id,
            latest_base_instant=target.requested,
            files_to_be_deleted=(f"{base_uri}/{path}",),
            log_blocks_to_be_deleted={},
        )
        for path in files
        if (group := group_of_path(path)) is not None
    ]
    if target.action in PLANNED_ACTIONS:
        path = f"{base_uri}/{timeline_folder}/{_plan_name(target.requested, target.action.value)}"
        requests.append(
            RollbackRequest(timeline_folder, None, target.requested, (path,), {}),
        )
    return RollbackPlan(InstantName(target.requested, target.action.value), tuple(requests))


def _plan_name(requested: str, action: str) -> str:
    return f"{requested}.{action}.{State.REQUESTED.value}"


def is_final(plan: RollbackPlan) -> bool:
    """True if the rollback aborts the instant itself, not just one failed execution of its plan."""
    named = plan.instant_to_rollback
    if named is None or named.action not in {action.value for action in PLANNED_ACTIONS}:
        return True
    return any(_is_plan_of(plan, path) for path in _planned_paths(plan))


def _planned_paths(plan: RollbackPlan) -> Iterator[str]:
    for request in plan.rollback_requests or ():
        yield from request.files_to_be_deleted


def _is_plan_of(plan: RollbackPlan, path: str) -> bool:
    named = plan.instant_to_rollback
    return named is not None and path.endswith("/" + _plan_name(named.commit_time, named.action))


def files_to_delete(
    plan: RollbackPlan, markers: Iterable[MarkerName], target: str
) -> tuple[str, ...]:
    """Return the data files of the instant, by its plan and its markers.

    A log that another instant names may be among them. It is deleted if its blocks are the target's
    (`storage.objects.dual_logs`).

    A plan has whole paths, of the location where its author saw the table; another machine may have
    it mounted elsewhere. Partition and file name say the same, and cannot lead out of the table.
    """
    planned = (
        path_in_partition(request.partition_path, file_name(path))
        for request in plan.rollback_requests or ()
        for path in request.files_to_be_deleted
        if not _is_plan_of(plan, path)
    )
    paths = {*planned, *(marker.data_file for marker in markers)}
    for path in paths:
        name = parse_data_file(file_name(path))
        if name is None or (name.requested != target and not isinstance(name, LogFileName)):
            raise CorruptTableError(
                f"the rollback of {target} would delete {path!r}",
                why="that is not a data file of this instant",
                next_step="Find out which program wrote the plan before anything is rolled back",
            )
    return tuple(sorted(paths))


def rollback_metadata(
    rollback: str, target: Instant, deleted: Iterable[str], base_uri: str, took_ms: int
) -> RollbackMetadata:
    """Return the content of the rollback's completed file."""
    by_partition = defaultdict(list)
    for path in deleted:
        by_partition[path.rpartition("/")[0]].append(f"{base_uri}/{path}")
    return RollbackMetadata(
        start_rollback_time=rollback,
        time_taken_in_millis=took_ms,
        total_files_deleted=sum(map(len, by_partition.values())),
        commits_rollback=(target.requested,),
        partition_metadata={
            partition: RolledBackPartition(partition, tuple(paths), (), {}, {})
            for partition, paths in by_partition.items()
        },
        instants_rollback=(InstantName(target.requested, target.action.value),),
    )
