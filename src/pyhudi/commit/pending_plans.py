"""Which file groups pending table services claim."""

from __future__ import annotations

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.errors import CorruptTableError
from pyhudi.format.avro.container import CONTAINER_BYTES_MAX
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.format.timeline.plan_files import decode_compaction_plan, decode_requested_replace


def load_planned_groups(log: DecisionLog, instant: Instant) -> frozenset[FileGroupId] | None:
    """Return the file groups that a pending table service works on; None if they are unknown.

    The set is empty if the inflight file stands alone: an executor that slept while the plan was
    rolled back leaves such a file, and no process can execute the plan. They are unknown if the
    plan cannot be read: then no new plan is made, and plans made earlier are executed as usual.
    """
    path = log.path(instant.in_state(State.REQUESTED))
    try:
        data = log.storage.read(path, 0, CONTAINER_BYTES_MAX + 1)
    except FileNotFoundError:
        return frozenset()
    try:
        return _groups(instant, data, path) if data else None
    except CorruptTableError:
        return None


def _groups(instant: Instant, data: bytes, path: str) -> frozenset[FileGroupId]:
    if instant.action is Action.CLUSTERING:
        asked = decode_requested_replace(data, path)
        ids = {} if not asked or not asked.clustering_plan else asked.clustering_plan.file_ids
        return frozenset(FileGroupId(p, id_) for p, found in ids.items() for id_ in found)
    operations = decode_compaction_plan(data, path).operations or ()
    return frozenset(operation.file_group for operation in operations)
