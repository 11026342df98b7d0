"""A foreign engine that makes a savepoint: cleaning must retain that state from then on."""

from __future__ import annotations

from contextlib import suppress

from pyhudi.errors import UnavailableError
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.service_metadata import (
    SavepointMetadata,
    SavepointPartition,
    encode_savepoint_metadata,
)
from pyhudi.simulate.choices import drawn
from pyhudi.simulate.table.actors.java_writer import AbandonedError, JavaWriter
from pyhudi.simulate.table.stage import Stage
from pyhudi.simulate.table.table import ToyReader
from pyhudi.table.state import TableState
from pyhudi.timeline.timeline import Timeline


class SavepointActor(JavaWriter):
    """Announces a savepoint of a state that can still be read, finds its files, and names them.

    Never of the oldest state: files of aborted writes behind a saved beginning of the timeline
    count as committed, in Hudi as well.
    """

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(stage, name, writes=3, base_rate=0.0, faulty=False)

    def run(self) -> None:
        for _ in range(self._writes):
            self._world.sleep_ms((20, 300, 3_000, 5_000)[drawn(self._chance, 4)])
            with suppress(UnavailableError, AbandonedError):  # nothing to save, or no lock
                self._save()

    def _save(self) -> None:
        reader = ToyReader(self._storage, self._stage.kind)
        chosen: list[Instant] = []

        def begin(timeline: Timeline, _: str) -> Instant | None:
            since = reader.retention(reader.load()).since
            saved = {i.requested for i in timeline.instants if i.action is Action.SAVEPOINT}
            kept = [w for w in timeline.writes[1:] if (w.completed or "") >= since]
            unsaved = [write for write in kept if write.requested not in saved]
            if not unsaved:
                return None
            chosen.append(unsaved[drawn(self._chance, len(unsaved))])
            return Instant(chosen[0].requested, Action.SAVEPOINT, State.INFLIGHT)

        self._locked(begin, b"")
        saved = chosen[0]
        files = _files_at(reader, reader.load(), saved)
        metadata = SavepointMetadata("java", 0, "", files)

        def end(_: Timeline, time: str) -> Instant:
            done = InstantTime(time)
            return Instant(saved.requested, Action.SAVEPOINT, State.COMPLETED, done)

        data = encode_savepoint_metadata(metadata, self._world.random_bytes(16))
        while True:
            with suppress(UnavailableError):  # a process that died has the lock
                self._locked(end, data)
                return


def _files_at(
    reader: ToyReader, state: TableState, saved: Instant
) -> dict[str, SavepointPartition]:
    names: dict[str, list[str]] = {}
    for slice_ in reader.slices(state, saved.completed or ""):
        base = () if slice_.base is None else (slice_.base.name.file_name,)
        logs = (log.name.file_name for log in slice_.logs)
        names.setdefault(slice_.partition, []).extend((*base, *logs))
    return {path: SavepointPartition(path, tuple(found)) for path, found in names.items()}
