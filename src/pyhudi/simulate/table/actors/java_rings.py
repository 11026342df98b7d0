"""Where a Java writer puts its rows on a table of rings, as it finds them when it begins.

It goes by the rings that were in force when it read the timeline. If a resize was pending then, it
writes rows of its inputs twice: under its own instant where they are, and in logs that the resize
names into the children (`docs/protocol/README.md`, section 16). Such logs have version 1, and a
token that no other task of Hudi has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyhudi.format.files.file_names import FileGroupId, IoType, LogFileName
from pyhudi.format.table.ring_file import Ring
from pyhudi.format.timeline.instant import Action, InstantTime, State
from pyhudi.format.timeline.resize_plan import ResizePlan, decode_resize_plan
from pyhudi.plan.resizing.rings import rings_after
from pyhudi.read.archive import History
from pyhudi.read.rings import Known, Rings
from pyhudi.simulate.table.checks.evidence import HISTORY_FOLDER, TIMELINE_FOLDER
from pyhudi.simulate.table.rows import PARTITIONS, Row, partition_of
from pyhudi.simulate.table.table import DataFile, log_files, stamped
from pyhudi.simulate.table.toy_rings import group_on
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class PendingResize:
    """A resize that was pending, and the rings that it leaves."""

    requested: InstantTime
    plan: ResizePlan
    after: dict[str, Ring]


@dataclass(frozen=True, slots=True)
class JavaRings:
    """The rings of a table, and the resizes that were pending on them."""

    rings: dict[str, Ring]
    pending: tuple[PendingResize, ...]

    @classmethod
    def load(cls, storage: Storage, timeline: Timeline) -> JavaRings:
        """Load them as a timeline shows them. FileNotFoundError, or CorruptTableError, if they have
        changed since."""
        waiting = {i.requested for i in timeline.pending}
        known = Known(
            timeline.completion_times.__contains__,
            waiting.__contains__,
            lambda requested: False,
            timeline.is_committed,
        )
        found = Rings(storage, History(storage, HISTORY_FOLDER), known)
        loaded = {partition: found.load(partition) for partition in PARTITIONS}
        rings = {partition: one.ring for partition, one in loaded.items() if one is not None}
        pending = []
        for instant in timeline.pending:
            if instant.action is Action.CLUSTERING:
                path = f"{TIMELINE_FOLDER}/{instant.in_state(State.REQUESTED).file_name}"
                plan = decode_resize_plan(storage.read(path), path)
                assert plan is not None, "no actor clusters rows"
                after = rings_after(plan, rings, instant.requested)
                pending.append(PendingResize(instant.requested, plan, after))
        return cls(rings, tuple(pending))

    def group(self, key: str) -> FileGroupId:
        return group_on(self.rings[partition_of(key)], key)

    def files(self, requested: str, rows: Sequence[Row], token: str) -> list[DataFile]:
        """Return the logs of a write."""
        made = log_files(requested, rows, self.group)
        for resize in self.pending:
            inputs = resize.plan.inputs
            children: dict[FileGroupId, list[Row]] = {}
            for row in stamped(rows, requested):
                if self.group(row.key) in inputs:
                    ring = resize.after[partition_of(row.key)]
                    children.setdefault(group_on(ring, row.key), []).append(row)
            for group, its in sorted(children.items()):
                name = LogFileName(group.file_id, resize.requested, 1, token).file_name
                time = InstantTime(requested)
                made.append(DataFile(time, group, name, IoType.CREATE, tuple(its)))
        return made

    def twice(self, groups: frozenset[FileGroupId]) -> frozenset[str]:
        """Return the resizes for which a write that has these file groups has written twice."""
        return frozenset(r.requested for r in self.pending if groups & r.plan.made)
