"""Which file groups did replace commits take out of the table?"""

from __future__ import annotations

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.instant import Action
from pyhudi.read.load import TableLoader


class ReplacedGroups:
    """The file groups that replace commits took out, read once for each such commit."""

    def __init__(self, loader: TableLoader, log: DecisionLog) -> None:
        self._loader = loader
        self._log = log
        self._since = ""
        self._groups: frozenset[FileGroupId] = frozenset()
        self._times: dict[FileGroupId, str] = {}

    def load(self) -> frozenset[FileGroupId]:
        """Return the groups as of the timeline that the process knows."""
        for instant in self._log.live.completed_after(self._since):
            if instant.action is Action.REPLACECOMMIT:
                known = self._log.metadata(instant.requested)
                replaced = self._loader.metadata(instant, known).replaced_file_ids
                groups = {
                    FileGroupId(partition, file_id)
                    for partition, ids in replaced.items()
                    for file_id in ids
                }
                self._groups |= groups
                self._times.update(dict.fromkeys(groups, instant.completed or ""))
            self._since = instant.completed or self._since
        return self._groups

    def time(self, group: FileGroupId) -> str:
        """Return when the replace commit completed that took out this group, which `load` has."""
        return self._times[group]
