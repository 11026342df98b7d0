"""May a virtual resize still be cancelled?

Writes that began after its plan have their rows in its children, and complete while it is pending.
From then on those rows are committed, and the children must become buckets: any process may finish
the resize, and none may cancel it. A pending write of that kind is no reason: it finds the resize
cancelled when it completes, and is made again.
"""

from __future__ import annotations

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.pending_plans import load_service_plan
from pyhudi.commit.proposals import Refused, Rule
from pyhudi.format.files.file_names import FileGroupId
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
        plan = load_service_plan(self._log, target).resize
        if plan is None or not plan.is_virtual:
            return None
        for write in live.writes_since(target.requested):
            if not self._written(write.instant).isdisjoint(plan.made):
                return Refused(Rule.HAS_ROWS, write.instant.requested)
        return None

    def _written(self, write: Instant) -> frozenset[FileGroupId]:
        if write.requested not in self._groups:
            metadata = _load_metadata(self._log, write)
            self._groups[write.requested] = frozenset(group for group, _ in metadata.group_stats)
        return self._groups[write.requested]


def _load_metadata(log: DecisionLog, write: Instant) -> CommitMetadata:
    if (known := log.metadata(write.requested)) is not None:
        return known
    path = log.path(write)
    return decode_commit_metadata(load_timeline_file(log.storage, path), path)
