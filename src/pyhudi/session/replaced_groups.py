"""Which file groups did replace commits take out of the table?"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class SeenGroups:
    """The replaced file groups that a process has looked at, and where the timeline began then."""

    groups: frozenset[FileGroupId] = frozenset()
    begin: str | None = None

    def changed_since(self, before: SeenGroups) -> frozenset[str] | None:
        """Return the partitions in which a file group was replaced since.

        None if it may be any: if the timeline was listed again and begins later now, a replace
        commit may have been archived unseen.
        """
        if self.begin != before.begin:
            return None
        if self.groups is before.groups:
            return frozenset()
        return frozenset(group.partition for group in self.groups - before.groups)


def seen_groups(log: DecisionLog, replaced: ReplacedGroups) -> SeenGroups:
    """Return what there is to see by the timeline that the process knows."""
    return SeenGroups(replaced.load(), log.live.first_active)
