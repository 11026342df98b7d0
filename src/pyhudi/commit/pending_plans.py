"""Which file groups table services claim, by their plans."""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.errors import CorruptTableError
from pyhudi.format.avro.container import CONTAINER_BYTES_MAX
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import decode_compaction_plan, decode_requested_replace
from pyhudi.format.timeline.resize_plan import ResizePlan, decode_resize_plan, resize_of


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """The plan of a pending table service, as far as other writes are concerned."""

    groups: frozenset[FileGroupId] | None  # None: unknown
    resize: ResizePlan | None = None  # set if it is a clustering that resizes buckets


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
    try:
        data = log.storage.read(path, 0, CONTAINER_BYTES_MAX + 1)
    except FileNotFoundError:
        return ServicePlan(frozenset())
    try:
        return _decoded(instant, data, path) if data else ServicePlan(None)
    except CorruptTableError:
        return ServicePlan(None)


def _decoded(instant: Instant, data: bytes, path: str) -> ServicePlan:
    if instant.action is Action.CLUSTERING:
        asked = decode_requested_replace(data, path)
        if (resize := resize_of(asked, path)) is not None:
            return ServicePlan(resize.inputs, resize)
        ids = {} if not asked or not asked.clustering_plan else asked.clustering_plan.file_ids
        return ServicePlan(frozenset(FileGroupId(p, i) for p, found in ids.items() for i in found))
    operations = decode_compaction_plan(data, path).operations or ()
    return ServicePlan(frozenset(operation.file_group for operation in operations))


def load_resize_plan(log: DecisionLog, requested: str) -> ResizePlan | None:
    """Return the plan of a completed resize; None if it was another clustering, or is archived."""
    plan = Instant(InstantTime(requested), Action.CLUSTERING, State.REQUESTED)
    path = log.path(plan)
    try:
        data = log.storage.read(path, 0, CONTAINER_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    return decode_resize_plan(data, path)
