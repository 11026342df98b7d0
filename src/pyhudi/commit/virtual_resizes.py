"""May a virtual resize still be cancelled?

Writes that began after its plan have their rows in its children, and complete while it is pending.
From then on those rows are committed, and the children must become buckets: any process may finish
the resize, and none may cancel it. A pending write of that kind is no reason: it finds the resize
cancelled when it completes, and is made again. A plan that cannot be read does not tell its
children; then any write since that refers to rows elsewhere is a reason.
"""

from __future__ import annotations

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.pending_plans import load_service_plan
from pyhudi.commit.proposals import Refused, Rule
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.files.log_reference import is_virtual_child
from pyhudi.format.timeline.commit_metadata import CommitMetadata, decode_commit_metadata
from pyhudi.format.timeline.instant import Action, Instant
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.timeline.live import LiveTimeline


class KeptResizes:
    """Which pending resizes have committed rows in their children. Commits are read once each."""

    def __init__(self, log: DecisionLog) -> None:
        self._log = log
        self._groups: dict[str, frozenset[FileGroupId]] = {}  # of completed writes

    def refusal(self, target: Instant, live: LiveTimeline) -> Refused | None:
        """Return why the instant cannot be aborted; None if it is no virtual resize."""
        if target.action is not Action.CLUSTERING:
            return None
        plan = load_service_plan(self._log, target)
        if plan.resize is not None and not plan.resize.is_virtual:
            return None
        if plan.resize is None and plan.groups is not None:
            return None  # it is gone, or that of another clustering
        for write in live.writes_since(target.requested):
            children = self._children(write.instant)
            if children and (plan.resize is None or not children.isdisjoint(plan.resize.made)):
                return Refused(Rule.HAS_ROWS, write.instant.requested)
        return None

    def _children(self, write: Instant) -> frozenset[FileGroupId]:
        """Return the file groups in which a write has rows that others of its logs refer to."""
        if write.requested not in self._groups:
            stats = tuple(_load_metadata(self._log, write).group_stats)
            refers = any(stat.is_reference for _, stat in stats)
            found = (group for group, _ in stats if refers and is_virtual_child(group.file_id))
            self._groups[write.requested] = frozenset(found)
        return self._groups[write.requested]


def _load_metadata(log: DecisionLog, write: Instant) -> CommitMetadata:
    if (known := log.metadata(write.requested)) is not None:
        return known
    path = log.path(write)
    return decode_commit_metadata(load_timeline_file(log.storage, path), path)
