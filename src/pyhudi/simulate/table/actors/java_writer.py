"""A writer like Hudi's Java writers: it uses the table's lock and the inflight check, and no log.

It follows the `J` actions of the protocol's model: under the lock it lists the timeline, reads its
own clock, waits out the allowed skew, and creates the file. Between its requested and its inflight
file it reads the timeline, and takes for older than itself what has completed by then. Before it
publishes it checks that its inflight file is there; nothing else protects it from being rolled
back. It rolls back others whose heartbeat, by its own clock, has expired: plan under the lock,
deletes outside, the pending files and the completed rollback under the lock again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC

from pyhudi.commit.validation import LOOK_AROUND_MS
from pyhudi.conflict.file_groups import touched_groups
from pyhudi.conflict.rules import OtherWrite
from pyhudi.errors import CorruptTableError, HudiError, UnavailableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.paths import file_name
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    decode_commit_metadata,
    encode_commit_metadata,
)
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import (
    decode_compaction_plan,
    decode_rollback_plan,
    encode_rollback_plan,
)
from pyhudi.format.timeline.service_metadata import encode_rollback_metadata
from pyhudi.plan.rollback import files_to_delete, plan_rollback, rollback_metadata
from pyhudi.read.schema_in_force import last_recorded
from pyhudi.settings import WriteSettings
from pyhudi.simulate.choices import drawn
from pyhudi.simulate.table.actors.java_rings import JavaRings
from pyhudi.simulate.table.checks.evidence import TIMELINE_FOLDER, group_of_path
from pyhudi.simulate.table.history import Event, Operation, Outcome
from pyhudi.simulate.table.overlap import first_overlap
from pyhudi.simulate.table.rows import Row, drawn_rows, happens
from pyhudi.simulate.table.stage import Stage
from pyhudi.simulate.table.table import (
    ToyReader,
    avro_schema,
    base_files,
    commit_metadata,
    log_files,
    write_data_file,
)
from pyhudi.storage.objects.heartbeats import heartbeat_path, last_sign_ms
from pyhudi.storage.objects.markers import load_markers, marker_objects
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.instant_time import clock_time
from pyhudi.timeline.timeline import WRITE_ACTIONS, Timeline
from pyhudi.world import World

_LOOK_PAUSES_MS = (0, 0, 0, 200, 3_000)
_ROLLED_BACK = (Action.COMMIT, Action.DELTACOMMIT)


class AbandonedError(Exception):
    """The write failed, and says why; its remains are left to a later rollback."""


class _Heartbeat:
    """As Hudi's: one that finds its own last beat too old stops for good."""

    def __init__(
        self, storage: Storage, world: World, settings: WriteSettings, requested: str
    ) -> None:
        self._storage = storage
        self._world = world
        self._timeout_ms = settings.heartbeat_timeout_ms
        self._path = heartbeat_path(requested)
        self._beaten_ms = world.elapsed_ms()
        self._expired = False
        storage.write(self._path, b"")
        self.stop = world.every(settings.heartbeat_interval_ms // 2, self._beat)

    def is_overdue(self) -> bool:
        overdue = self._world.elapsed_ms() - self._beaten_ms > self._timeout_ms
        self._expired = self._expired or overdue
        return self._expired

    def _beat(self) -> None:
        if self.is_overdue():
            return
        sent_ms = self._world.elapsed_ms()
        try:
            self._storage.write(self._path, b"")
        except UnavailableError:
            return
        self._beaten_ms = sent_ms


class JavaWriter:
    """One foreign engine on the table."""

    def __init__(
        self, stage: Stage, name: str, *, writes: int, base_rate: float, faulty: bool = True
    ) -> None:
        assert stage.lock is not None
        self._stage = stage
        # Hudi reads only its own clock, so that one must be right to within the skew.
        most = stage.skew_ms // 2
        skew_ms = drawn(stage.chance(f"clock of {name}"), 2 * most + 1) - most
        self.process = stage.simulation.process(name, clock_skew_ms=skew_ms, faulty=faulty)
        self._storage = self.process.storage
        self._world = self.process.world
        self._lock = stage.lock.of(self.process)
        self._writes = writes
        self._base_rate = base_rate
        self._chance = stage.chance(f"work of {name}")
        self._heartbeat: _Heartbeat | None = None
        self._looking = stage.chance(f"looking of {name}")
        self._begun_ms = 0
        self._seen: frozenset[str] = frozenset()  # what had completed when it read the timeline
        self._rings: JavaRings | None = None  # as it found them then, on a table that has some
        self._resizing = stage.chance(f"rings of {name}")
        self._count = 0

    def run(self) -> None:
        for number in range(self._writes):
            with suppress(UnavailableError):  # the next process does it
                self._clean_up()
            rows = self._ranked(drawn_rows(self._chance, f"{self.process.name}.{number}"))
            self._write(rows, is_base=happens(self._chance, self._base_rate))
            self._world.sleep_ms((0, 200, 5_000)[drawn(self._chance, 3)])

    def _ranked(self, rows: tuple[Row, ...]) -> tuple[Row, ...]:
        """Return the rows, on a table of rings below or above those of all pyhudi writers.

        In a child its logs lie before theirs, whichever write came last, so a tie is not decided as
        elsewhere.
        """
        if not self._stage.kind.has_rings:
            return rows
        return tuple(row._replace(ordering=0 if row.ordering < 3 else 9) for row in rows)

    # -- under the lock

    def _locked(
        self,
        publish: Callable[[Timeline, str], Instant | None],
        data: bytes | Callable[[Timeline], bytes],
    ) -> Instant:
        """List, read the clock, let the caller name the file, create it."""
        held = self._lock.acquire(self._stage.settings.lock_wait_ms)
        try:
            timeline = self._timeline()
            time = clock_time(self._world.now_ms(), UTC)
            self._world.sleep_ms(self._stage.skew_ms)
            instant = publish(timeline, time)
            if instant is None:
                raise AbandonedError("it is no longer to be done")
            path = self._path(instant)
            data = data if isinstance(data, bytes) else data(timeline)
            if not self._storage.create(path, data) and self._storage.read(path) != data:
                raise AbandonedError(f"{instant.file_name} is there already")
            return instant  # its own, if it was there: the request was sent twice
        finally:
            held.release()

    def _timeline(self) -> Timeline:
        objects = self._storage.list_folder(TIMELINE_FOLDER).objects
        return Timeline.of(Instant.parse(file_name(stat.path)) for stat in objects)

    def _path(self, instant: Instant) -> str:
        return f"{TIMELINE_FOLDER}/{instant.file_name}"

    # -- writing

    def _write(self, rows: tuple[Row, ...], *, is_base: bool) -> None:
        history = self._stage.history
        number = history.new_attempt()
        self._record(number, Outcome.INVOKE, rows)
        requested, completed = "", ""
        outcome = Outcome.FAIL
        published = False
        try:
            requested = self._begin()
            history.begun[number] = requested
            metadata = self._work(requested, rows, is_base=is_base)
            published = True  # from here on an error leaves the outcome open
            completed = self._complete(requested, metadata)
            outcome = Outcome.OK
        except AbandonedError:
            outcome = Outcome.FAIL
        except UnavailableError:
            outcome = Outcome.INFO if published else Outcome.FAIL
        except HudiError as error:
            history.unexpected.append(f"{self.process.name} got the error: {error}")
        self._end(requested, completed=bool(completed))
        self._record(number, outcome, rows, requested=requested, completed=completed)

    def _begin(self) -> str:
        def publish(timeline: Timeline, time: str) -> Instant:
            self._heartbeat = _Heartbeat(self._storage, self._world, self._stage.settings, time)
            self._begun_ms = self._world.elapsed_ms()
            return Instant(InstantTime(time), self._stage.action, State.REQUESTED)

        return self._locked(publish, b"").requested

    def _work(self, requested: str, rows: tuple[Row, ...], *, is_base: bool) -> CommitMetadata:
        pending = Instant(InstantTime(requested), self._stage.action, State.REQUESTED)
        if self._storage.stat(self._path(pending)) is None:
            raise AbandonedError("its requested file is gone")
        self._look_around()
        self._storage.create(self._path(pending.in_state(State.INFLIGHT)), b"")
        if is_base:
            reader = ToyReader(self._storage, self._stage.kind)
            before = reader.groups(reader.load())
            files = base_files(requested, rows, before, self._stage.kind)
        elif self._rings is not None:
            self._count += 1
            files = self._rings.files(requested, rows, f"{self._count}-1-1")
        else:
            files = log_files(requested, rows)
        stats = [write_data_file(self._storage, file) for file in files]
        return commit_metadata(stats, self._stage.kind)

    def _look_around(self) -> None:
        """Read what has completed, perhaps a while after it began.

        A writer that takes longer than others wait for it is outside the promise.
        """
        if pause_ms := _LOOK_PAUSES_MS[drawn(self._looking, len(_LOOK_PAUSES_MS))]:
            self._world.sleep_ms(pause_ms)
        # Compactions count whenever they completed: a base file of theirs hides an older one. Hudi
        # does not check, because beside logs it makes base files only in buckets that have none.
        is_cow = self._stage.kind.table_type is TableType.COPY_ON_WRITE
        actions = {*WRITE_ACTIONS} - ({Action.COMMIT} if not is_cow else set())
        timeline = self._timeline()
        done = (i for i in timeline.instants if i.completed is not None)
        if self._stage.kind.has_rings:
            try:
                self._rings = JavaRings.load(self._storage, timeline)
            except (FileNotFoundError, CorruptTableError):
                raise AbandonedError("a resize has ended meanwhile") from None
        self._seen = frozenset(i.requested for i in done if i.action in actions)
        if self._world.elapsed_ms() - self._begun_ms >= LOOK_AROUND_MS:
            raise AbandonedError("it was too slow to read the timeline")

    def _complete(self, requested: str, metadata: CommitMetadata) -> str:
        pending = Instant(InstantTime(requested), self._stage.action, State.REQUESTED)
        if self._heartbeat is None or self._heartbeat.is_overdue():
            raise AbandonedError("its own heartbeat has expired")

        def publish(timeline: Timeline, time: str) -> Instant | None:
            if self._storage.stat(self._path(pending.in_state(State.INFLIGHT))) is None:
                return None
            touched = touched_groups(metadata)
            if first_overlap(touched, self._others(timeline, requested, touched)):
                return None
            if opened_groups(metadata) & self._planned(timeline, requested):
                return None  # a compaction that does not know its base files would hide them
            done = InstantTime(time)
            return Instant(pending.requested, pending.action, State.COMPLETED, done)

        sync = self._world.random_bytes(16)

        def with_schema(timeline: Timeline) -> bytes:
            return encode_commit_metadata(self._evolved(timeline, metadata), sync)

        data = with_schema if self._stage.kind.evolves else encode_commit_metadata(metadata, sync)
        completed = self._locked(publish, data).completed
        assert completed is not None
        return completed

    def _evolved(self, timeline: Timeline, metadata: CommitMetadata) -> CommitMetadata:
        """Record the schema in force, as Hudi's optimistic writers do that bring none."""

        def load(instant: Instant) -> CommitMetadata:
            path = self._path(instant)
            return decode_commit_metadata(self._storage.read(path), path)

        last = last_recorded(timeline.writes, timeline.began_as, load)
        schema = avro_schema(self._stage.kind) if last is None else last.avro_json
        return replace(metadata, extra_metadata={"schema": schema})

    def _others(
        self, timeline: Timeline, requested: str, touched: frozenset[FileGroupId]
    ) -> list[OtherWrite]:
        """Return what completed since it began, without what it takes for older than itself."""
        found = []
        twice: frozenset[str] = frozenset()
        if self._rings is not None and happens(self._resizing, 0.5):
            twice = self._rings.twice(touched)  # as a single writer, which looks for no conflict
        for instant in timeline.instants:
            done = instant.completed
            if instant.requested in twice:
                continue
            if instant.requested > requested and instant.requested in self._seen:
                continue  # Hudi counts from its read of the timeline, whichever write began first
            if instant.action in WRITE_ACTIONS and done is not None and done > requested:
                path = self._path(instant)
                groups = touched_groups(decode_commit_metadata(self._storage.read(path), path))
                found.append(OtherWrite(instant.requested, done, groups))
        return found

    def _planned(self, timeline: Timeline, requested: str) -> frozenset[FileGroupId]:
        """Return file groups of pending compactions that were planned after the write began."""
        found: set[FileGroupId] = set()
        for instant in timeline.pending:
            if instant.action is Action.COMPACTION and instant.requested > requested:
                path = self._path(instant.in_state(State.REQUESTED))
                plan = decode_compaction_plan(self._storage.read(path), path)
                ids = ((o.partition_path, o.file_id) for o in plan.operations or ())
                found.update(FileGroupId(partition or "", id_ or "") for partition, id_ in ids)
        return frozenset(found)

    def _end(self, requested: str, *, completed: bool) -> None:
        if self._heartbeat is None:
            return
        self._heartbeat.stop()
        try:
            if completed:
                self._storage.delete(heartbeat_path(requested))
                for path in marker_objects(self._storage, requested):
                    self._storage.delete(path)
        except UnavailableError:
            return
        finally:
            self._heartbeat = None

    # -- rolling back

    def _clean_up(self) -> None:
        timeline = self._timeline()
        for instant in timeline.pending:
            try:
                if instant.action is Action.ROLLBACK:
                    self._finish(instant.requested)
                elif self._has_failed(timeline, instant):
                    self._finish(self._plan(instant))
            except AbandonedError:
                continue  # another process was first

    def _has_failed(self, timeline: Timeline, instant: Instant) -> bool:
        if instant.action not in _ROLLED_BACK or self._is_planned(timeline, instant):
            return False
        return self._is_silent(instant)

    def _is_silent(self, instant: Instant) -> bool:
        """True if its heartbeat has expired by the reader's own clock, as in Hudi."""
        path = self._path(instant.in_state(State.REQUESTED))
        sign = last_sign_ms(self._storage, heartbeat_path(instant.requested), path) or 0
        return self._world.now_ms() - sign > self._stage.settings.heartbeat_timeout_ms

    def _is_planned(self, timeline: Timeline, target: Instant) -> bool:
        rollbacks = (i for i in timeline.instants if i.action is Action.ROLLBACK)
        return any(self._target(i.requested) == target.requested for i in rollbacks)

    def _target(self, rollback: str) -> str:
        path = self._path(Instant(InstantTime(rollback), Action.ROLLBACK, State.REQUESTED))
        named = decode_rollback_plan(self._storage.read(path), path).instant_to_rollback
        assert named is not None
        return named.commit_time

    def _plan(self, target: Instant) -> str:
        def publish(timeline: Timeline, time: str) -> Instant | None:
            pending = {(i.requested, i.action) for i in timeline.pending}  # savepoints share times
            is_pending = (target.requested, target.action) in pending
            if not is_pending or self._is_planned(timeline, target):
                return None
            return Instant(InstantTime(time), Action.ROLLBACK, State.REQUESTED)

        files = [marker.data_file for marker in load_markers(self._storage, target.requested)]
        plan = plan_rollback(target, files, self._storage.uri)
        data = encode_rollback_plan(plan, self._world.random_bytes(16))
        return self._locked(publish, data).requested

    def _finish(self, rollback: str) -> None:
        requested = Instant(InstantTime(rollback), Action.ROLLBACK, State.REQUESTED)
        path = self._path(requested)
        plan = decode_rollback_plan(self._storage.read(path), path)
        assert plan.instant_to_rollback is not None
        time, action = plan.instant_to_rollback.commit_time, plan.instant_to_rollback.action
        target = Instant(InstantTime(time), Action(action), State.REQUESTED)
        self._storage.create(self._path(requested.in_state(State.INFLIGHT)), b"")
        markers = load_markers(self._storage, time)
        deleted = files_to_delete(plan, markers, time)
        for data_file in deleted:
            self._storage.delete(data_file)

        def publish(timeline: Timeline, now: str) -> Instant | None:
            if rollback not in {i.requested for i in timeline.pending}:
                return None
            for state in (State.INFLIGHT, State.REQUESTED):
                self._storage.delete(self._path(target.in_state(state)))
            done = InstantTime(now)
            return Instant(requested.requested, Action.ROLLBACK, State.COMPLETED, done)

        metadata = rollback_metadata(rollback, target, deleted, self._storage.uri, 0)
        data = encode_rollback_metadata(metadata, self._world.random_bytes(16))
        self._locked(publish, data)
        for marker in marker_objects(self._storage, time):
            self._storage.delete(marker)
        self._storage.delete(heartbeat_path(time))

    def _record(
        self,
        number: int,
        outcome: Outcome,
        rows: tuple[Row, ...],
        *,
        requested: str = "",
        completed: str = "",
    ) -> None:
        event = Event(
            process=self.process.name,
            outcome=outcome,
            operation=Operation.WRITE,
            attempt=number,
            place=len(self._stage.storage.changes),
            rows=rows,
            is_checked=True,
            requested=requested,
            completed=completed,
        )
        self._stage.history.record(event)


def opened_groups(metadata: CommitMetadata) -> frozenset[FileGroupId]:
    """Return the file groups of which the write has a base file."""
    paths = (stat.data_path for stat in metadata.stats)
    return frozenset(group_of_path(p) for p in paths if not file_name(p).startswith("."))
