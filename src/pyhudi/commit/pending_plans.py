"""Which file groups table services claim, by their plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.errors import CorruptTableError
from pyhudi.format.avro.container import CONTAINER_BYTES_MAX
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import decode_compaction_plan
from pyhudi.format.timeline.resize_plan import ResizePlan, decode_clustering, decode_resize_plan
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.live import LiveTimeline
from pyhudi.timeline.timeline import WRITE_ACTIONS, Timeline


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


def entered_children(log: DecisionLog, live: LiveTimeline) -> dict[FileGroupId, str]:
    """Return children of resizes that have completed, and the pending write that may have put rows
    into them before.

    Beside a resize that Hudi can execute, writes do that in files that the resize names. Such a
    write began after the plan and before its completion.
    """
    # What is being rolled back has its files still.
    undone = {w for w, rollback in live.rolled_back_by.items() if rollback not in live.completed}
    return _entered(log, live.instants, live.began_as, undone)


def entered_then(log: DecisionLog, timeline: Timeline) -> dict[FileGroupId, str]:
    """Return the same as of a timeline that was listed."""
    return _entered(log, timeline.instants, timeline.began_as, set())


def _entered(
    log: DecisionLog,
    instants: Iterable[Instant],
    began_as: Mapping[str, Action],
    undone: AbstractSet[str],
) -> dict[FileGroupId, str]:
    known = tuple(instants)
    pending = (i for i in known if i.completed is None and i.action in WRITE_ACTIONS)
    writes = sorted(undone | {instant.requested for instant in pending})
    found: dict[FileGroupId, str] = {}
    for done in known if writes else ():
        if done.completed is None or began_as.get(done.requested) is not Action.CLUSTERING:
            continue
        between = (w for w in writes if done.requested < w < (done.completed or ""))
        if (write := next(between, None)) is None:
            continue
        plan = load_resize_plan(log, done.requested)
        if plan is not None and plan.is_dual:
            found.update(dict.fromkeys(plan.made, write))
    return found


def load_resize_plan(log: DecisionLog, requested: str) -> ResizePlan | None:
    """Return the plan of a completed resize; None if it was another clustering, or is archived."""
    plan = Instant(InstantTime(requested), Action.CLUSTERING, State.REQUESTED)
    path = log.path(plan)
    try:
        data = log.storage.read(path, 0, CONTAINER_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    try:
        return decode_resize_plan(data, path)
    except CorruptTableError as error:
        raise CorruptTableError(
            f"the plan of the clustering {requested}, which has completed, cannot be read",
            why=error.why,
            next_step="Repeat the call: what begins after the clustering does not need its plan."
            " Restore the file from a copy if there is one; no row is lost with it",
            path=path,
            offset=error.offset,
        ) from None
