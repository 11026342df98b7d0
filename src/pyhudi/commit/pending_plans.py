"""Which file groups table services claim, by their plans."""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.errors import CorruptTableError
from pyhudi.format.avro.container import CONTAINER_BYTES_MAX
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import decode_compaction_plan
from pyhudi.format.timeline.resize_plan import ResizePlan, decode_clustering, decode_resize_plan
from pyhudi.storage.protocol import Storage


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """The plan of a pending table service, as far as other processes are concerned."""

    groups: frozenset[FileGroupId] | None  # None: unknown, because of the damage
    resize: ResizePlan | None = None  # set if it is a clustering that resizes buckets
    damage: CorruptTableError | None = None  # why the plan cannot be read


def load_planned_groups(log: DecisionLog, instant: Instant) -> frozenset[FileGroupId] | None:
    """Return the file groups that a pending table service works on; None if they are unknown."""
    return load_service_plan(log, instant).groups


def load_service_plan(log: DecisionLog, instant: Instant) -> ServicePlan:
    """Return the plan of a pending table service.

    It has no groups if the inflight file stands alone: an executor that slept while the plan was
    rolled back leaves such a file, and no process can execute the plan. They are unknown if the
    plan cannot be read: then no new plan is made, and plans made earlier are executed as usual.
    """
    path = log.path(instant.in_state(State.REQUESTED))
    return load_plan_file(log.storage, instant.action, path)


def load_plan_file(storage: Storage, action: Action, path: str) -> ServicePlan:
    """Return the plan in the requested file of a table service; see `load_service_plan`."""
    try:
        data = storage.read(path, 0, CONTAINER_BYTES_MAX + 1)
    except FileNotFoundError:
        return ServicePlan(frozenset())
    try:
        if action is not Action.CLUSTERING:
            operations = decode_compaction_plan(data, path).operations or ()
            return ServicePlan(frozenset(operation.file_group for operation in operations))
        plan = decode_clustering(data, path)
    except CorruptTableError as error:
        return ServicePlan(None, damage=error)
    if isinstance(plan, ResizePlan):
        return ServicePlan(plan.inputs, plan)
    ids = plan.file_ids.items()
    return ServicePlan(frozenset(FileGroupId(p, i) for p, found in ids for i in found))


def load_resize_plan(log: DecisionLog, requested: str) -> ResizePlan | None:
    """Return the plan of a completed resize; None if it was another clustering, or is archived."""
    plan = Instant(InstantTime(requested), Action.CLUSTERING, State.REQUESTED)
    path = log.path(plan)
    try:
        data = log.storage.read(path, 0, CONTAINER_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    return decode_resize_plan(data, path)
