"""A process that slept for hours between two requests, and then creates an inflight file.

That is later than archiving allows for, so the file may stay until it is removed. But no process
may take its instant for pending: everything that was archived behind it would seem not to be
committed.
"""

from __future__ import annotations

from pyhudi.errors import UnavailableError
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.instant import Instant, State, is_timeline_file
from pyhudi.simulate.choices import drawn
from pyhudi.simulate.simulation import Process
from pyhudi.simulate.table.actors.archiver import LONG_PAUSE_MS
from pyhudi.simulate.table.checks.evidence import TIMELINE_FOLDER
from pyhudi.simulate.table.stage import Stage
from pyhudi.timeline.timeline import WRITE_ACTIONS

_ROUNDS = 12


class LateInflightActor:
    """Creates the inflight file of a write, or of a compaction, that is no longer active."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._process: Process = stage.simulation.process(name, faulty=False)
        self._chance = stage.chance(f"work of {name}")
        self._known: set[Instant] = set()

    def start(self) -> None:
        self._process.start(self._run)

    def _run(self) -> None:
        for _ in range(_ROUNDS):
            active = self._active()
            gone = sorted(
                (i for i in self._known if not any(i.requested == a.requested for a in active)),
                key=lambda instant: (instant.requested, instant.action),
            )
            if gone:
                chosen = gone[drawn(self._chance, len(gone))]
                late = chosen.in_state(State.INFLIGHT)
                self._process.storage.create(f"{TIMELINE_FOLDER}/{late.file_name}", b"")
                return
            self._known |= active
            waits = (300, 5_000, LONG_PAUSE_MS // 2)
            self._process.world.sleep_ms(waits[drawn(self._chance, len(waits))])

    def _active(self) -> set[Instant]:
        """Return the begun writes and compactions; nothing if the store does not answer."""
        try:
            objects = self._process.storage.list_folder(TIMELINE_FOLDER).objects
        except UnavailableError:
            return set(self._known)
        names = (file_name(stat.path) for stat in objects)
        instants = (Instant.parse(name) for name in names if is_timeline_file(name))
        return {
            i.in_state(State.REQUESTED)
            for i in instants
            if i.state is not State.COMPLETED and i.action.completed_as in WRITE_ACTIONS
        }
