"""Compaction of a light table, by the protocol of production: planned, pending, completed.

The plan is the requested file of the compaction. It names the logs that completed before the
compaction's requested time, so it is begun only if nothing completed since they were listed. Once
planned it is never given up: whoever comes next carries it out, and two who do it at once write
the same files.
"""

from __future__ import annotations

from pyhudi.engine.decide import DecisionLog
from pyhudi.engine.decisions import Begin, Complete, Outcome, Refused, Rule
from pyhudi.engine.timeline_files import load_timeline_file
from pyhudi.errors import HudiError, UnavailableError
from pyhudi.format.commit_metadata import encode_commit_metadata
from pyhudi.format.file_names import FileGroupId
from pyhudi.format.instant import Action, Instant, State
from pyhudi.format.plan_files import (
    CompactionOperation,
    CompactionPlan,
    decode_compaction_plan,
    encode_compaction_plan,
)
from pyhudi.simulate.choices import drawn
from pyhudi.simulate.light_rows import decode_rows, happens
from pyhudi.simulate.light_table import (
    DataFile,
    LightReader,
    base_file,
    commit_metadata,
    latest_completion,
    write_data_file,
)
from pyhudi.simulate.simulation import Process
from pyhudi.simulate.stage import Stage
from pyhudi.table.file_group import FileSlice
from pyhudi.table.snapshot import latest_slice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes, visible_now
from pyhudi.timeline.ledger import Ledger
from pyhudi.timeline.timeline import WRITE_ACTIONS


class Compactor:
    """Plans compactions and carries them out, now and then; a plan may stay pending for long."""

    def __init__(self, stage: Stage, name: str, *, rounds: int) -> None:
        self._stage = stage
        self._name = name
        self._rounds = rounds
        self._chance = stage.chance(f"work of {name}")
        self._processes = 0

    def start(self) -> None:
        process = self._stage.simulation.process(self._name + "+" * self._processes)
        self._processes += 1
        process.on_crash = self.start
        process.start(self._run, process)

    def _run(self, process: Process) -> None:
        work = Compaction(self._stage, process)
        while self._rounds > 0:
            self._rounds -= 1
            process.world.sleep_ms((1, 20, 300, 3_000)[drawn(self._chance, 4)])
            try:
                if not work.pending():
                    work.plan()
                elif happens(self._chance, 0.7):
                    work.finish()
            except UnavailableError:
                continue
            except HudiError as error:
                self._stage.surprise(process, error)


class Compaction:
    """What one process does for compactions."""

    def __init__(self, stage: Stage, process: Process) -> None:
        self._stage = stage
        self._storage = process.storage
        self._log: DecisionLog = stage.decision_log(process)
        self._reader = LightReader(process.storage, stage.kind)

    def pending(self) -> list[Instant]:
        return self._log.refresh().pending_of(Action.COMPACTION)

    # -- planning

    def plan(self) -> Outcome | None:
        """Begin a compaction of all slices that have logs; None if there is none."""
        state = self._reader.load()
        operations = [_operation(slice_) for slice_ in _slices(state) if slice_.logs]
        if not operations:
            return None
        planned_up_to = latest_completion(state)

        def check(ledger: Ledger) -> Refused | None:
            later = ledger.completed_after(planned_up_to)
            writes = [instant for instant in later if instant.action in WRITE_ACTIONS]
            busy = ledger.pending_of(Action.COMPACTION)
            return Refused(Rule.CONFLICT) if writes or busy else None

        plan = CompactionPlan(operations=tuple(operations))
        data = encode_compaction_plan(plan, self._log.world.random_bytes(16))
        return self._log.append(Begin(Action.COMPACTION, data, check=check))

    # -- carrying out

    def finish(self) -> None:
        """Complete what is pending."""
        for instant in self.pending():
            self._carry_out(instant)

    def _carry_out(self, instant: Instant) -> None:
        requested = Instant(instant.requested, Action.COMPACTION, State.REQUESTED)
        path = self._log.path(requested)
        plan = decode_compaction_plan(load_timeline_file(self._storage, path), path)
        inflight = Instant(instant.requested, Action.COMPACTION, State.INFLIGHT)
        self._storage.create(self._log.path(inflight), b"")
        files = [self._compacted(instant.requested, o) for o in plan.operations or ()]
        stats = [write_data_file(self._storage, file) for file in files]
        metadata = commit_metadata(stats, self._stage.kind, "COMPACT")
        data = encode_commit_metadata(metadata, self._log.world.random_bytes(16))
        staged = self._log.stage(instant.requested, data)
        # Nobody gives a compaction up, so it does not matter what the log says since its begin.
        self._log.append(Complete(instant.requested, Action.COMPACTION, None, data, staged))
        if staged is not None:
            self._storage.delete(staged)

    def _compacted(self, requested: str, operation: CompactionOperation) -> DataFile:
        base = operation.base_file_path
        paths = (*([base] if base else []), *operation.log_file_paths)
        rows = [row for path in paths for row in decode_rows(self._storage.read(path))]
        group = FileGroupId(operation.partition_path or "", operation.file_id or "")
        return base_file(requested, group, rows, self._stage.kind)


def _slices(state: TableState) -> list[FileSlice]:
    times, now = CompletionTimes(state.timeline), visible_now(state.timeline)
    found = (latest_slice(group, times, now) for group in state.groups())
    return [slice_ for slice_ in found if slice_ is not None]


def _operation(slice_: FileSlice) -> CompactionOperation:
    return CompactionOperation(
        base_instant_time=slice_.base_instant,
        delta_file_paths=tuple(log.name.file_name for log in slice_.logs),
        data_file_path=None if slice_.base is None else slice_.base.name.file_name,
        file_id=slice_.file_id,
        partition_path=slice_.partition,
    )
