"""The ring in force of a partition: its files, and what timeline and archive say of them.

`index.ring_history` decides; here its questions are answered. A partition that was never resized
costs a listing of its folder of rings and one read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyhudi.errors import UnavailableError
from pyhudi.format.files.file_names import BaseFileName, parse_data_file
from pyhudi.format.table.ring_file import Ring, RingFiles, ring_folder
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.index.ring_history import Fate, InForce, ring_in_force
from pyhudi.read.archive import History
from pyhudi.storage.objects.rings import load_ring, load_ring_files
from pyhudi.storage.protocol import Storage
from pyhudi.table.state import TableState

#: How often a ring is looked for that was removed between listing and read.
LOAD_ATTEMPTS_MAX = 5


@dataclass(frozen=True, slots=True)
class Known:
    """What a process knows of the timeline."""

    is_completed: Callable[[str], bool]
    is_pending: Callable[[str], bool]
    is_undone: Callable[[str], bool]  # rolled back for good, as far as the timeline tells
    is_committed: Callable[[str], bool]  # files of the instant count


def known_by(state: TableState) -> Known:
    """Return what a loaded state of the table tells.

    It does not tell of rollbacks. What was rolled back is neither pending there nor completed, and
    it left no base files.
    """
    timeline = state.timeline
    return Known(
        timeline.completion_times.__contains__,
        frozenset(instant.requested for instant in timeline.pending).__contains__,
        lambda requested: False,
        timeline.is_committed,
    )


@dataclass(frozen=True, slots=True)
class LoadedRing:
    """The ring in force, and whether its mark says that every node has files."""

    ring: Ring
    is_complete: bool


class Rings:
    """The rings of a table."""

    def __init__(self, storage: Storage, history: History, known: Known) -> None:
        self._storage = storage
        self._history = history
        self._known = known

    def load(self, partition: str) -> LoadedRing | None:
        """Return the partition's ring in force; None if it has none yet."""
        for _ in range(LOAD_ATTEMPTS_MAX):
            found = self.in_force(load_ring_files(self._storage, partition))
            if found is None:
                return None
            ring = load_ring(self._storage, partition, found.instant)
            if ring is not None:
                return LoadedRing(ring, found.is_complete)
        raise UnavailableError(
            f"the ring of partition {partition!r} cannot be read",
            why=f"files of {ring_folder(partition)!r} vanished {LOAD_ATTEMPTS_MAX} times between"
            " listing and read",
            next_step="Try again",
        )

    def in_force(self, files: RingFiles) -> InForce | None:
        """Return which of these files is that of the ring in force."""

        def has_left_base_files(instant: InstantTime) -> bool:
            return self._has_left_base_files(files, instant)

        return ring_in_force(files, self._fate, has_left_base_files, self._is_known_undone)

    def _fate(self, instant: InstantTime) -> Fate:
        known = self._known
        if known.is_completed(instant):
            return Fate.COMPLETED
        if known.is_undone(instant):
            return Fate.ROLLED_BACK
        if known.is_pending(instant):
            return Fate.PENDING
        if self._history.recorded(frozenset([instant])):
            return Fate.COMPLETED
        return Fate.ROLLED_BACK if self._history.is_undone(instant) else Fate.FORGOTTEN

    def _is_known_undone(self, instant: InstantTime) -> bool:
        return not self._known.is_completed(instant) and self._known.is_undone(instant)

    def _has_left_base_files(self, files: RingFiles, instant: InstantTime) -> bool:
        """True if there is a base file of a node that the ring before this one lacks."""
        partition = files.partition
        ring = load_ring(self._storage, partition, instant)
        earlier = [other for other in files.instants if other < instant]
        before = load_ring(self._storage, partition, earlier[-1]) if earlier else None
        old = {node.file_id for node in before.nodes} if before else set()
        new = {node.file_id for node in ring.nodes} - old if ring else set()
        objects = self._storage.list_folder(partition).objects
        names = (parse_data_file(stat.path.rpartition("/")[2]) for stat in objects)
        bases = (name for name in names if isinstance(name, BaseFileName) and name.file_id in new)
        return any(self._known.is_committed(base.requested) for base in bases)
