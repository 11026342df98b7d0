"""Compacting a table that is open: what its services call, and base files made in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyhudi.errors import HudiError, InvalidRequestError, fault
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import Instant, InstantTime
from pyhudi.format.timeline.plan_files import CompactionOperation
from pyhudi.plan.compaction import NOTHING, CompactionPolicy, is_due
from pyhudi.plan.scan import CommitFolders, merge_rule
from pyhudi.progress import ProgressBoard
from pyhudi.read.lost_files import CommitRecords
from pyhudi.read.plan import Reader
from pyhudi.services.compaction.execute import Compactions, Merge
from pyhudi.services.compaction.merge_slice import CompactionSpec, compact_slice, planned_slice
from pyhudi.services.compaction.result import Compacted, CompactionResult
from pyhudi.timeline.completion import visible_now
from pyhudi.timeline.instant_time import clock_time
from pyhudi.write.writer import TableWriter


class LocalMerge:
    """Makes the base files in this process, one after the other."""

    def __init__(self, writer: TableWriter) -> None:
        self._writer = writer

    def __call__(
        self, requested: str, schema: str, operations: Sequence[CompactionOperation]
    ) -> Iterator[WriteStat]:
        writer = self._writer
        spec = compaction_spec(writer, requested, schema, operations)
        with ProgressBoard(writer.listener, writer.world) as board:
            for operation in operations:
                stat = compact_slice(writer.storage, spec, operation)
                board.add(rows=stat.num_writes or 0, bytes=stat.total_write_bytes or 0, files=1)
                yield stat


def compaction_spec(
    writer: TableWriter, requested: str, schema: str, operations: Sequence[CompactionOperation]
) -> CompactionSpec:
    """What tasks need to know to carry a plan out."""
    with writer.turn:
        state = writer.state()
        slices = [planned_slice(operation) for operation in operations]
        return CompactionSpec(
            InstantTime(requested),
            schema,
            merge_rule(writer.config),
            visible_now(state.timeline),
            CommitFolders.of(writer.config),
            CommitRecords(writer.loader).load(state, slices).sizes,
        )


def compactions(writer: TableWriter, merge: Merge | None = None) -> Compactions:
    """The compactions of the writer's table."""
    with writer.turn:
        writer.open()
        return Compactions(
            writer.log,
            writer.recovery,
            writer.settings,
            load=writer.state,
            load_whole=lambda: writer.loader.refresh(writer.state(), is_whole=True),
            advance=writer.loader.advanced,
            times=Reader(writer.loader).completion_times,
            records=CommitRecords(writer.loader),
            merge=merge or LocalMerge(writer),
            schema=lambda: writer.spec("").avro_schema,
            turn=writer.turn,
        )


def is_compaction_due(writer: TableWriter, policy: CompactionPolicy) -> bool:
    """Whether the policy's trigger says so."""
    with writer.turn:
        zone = writer.open().zone
        return is_due(policy, writer.state().timeline, clock_time(writer.world.now_ms(), zone))


def compact(
    writer: TableWriter,
    policy: CompactionPolicy | None = None,
    *,
    dry_run: bool = False,
    plan_only: bool = False,
    plans: bool = True,
    merge: Merge | None = None,
) -> Compacted:
    """Make a plan, and carry out every plan that waits and that nobody else is carrying out.

    Without `plans` no new one is made. A plan that cannot be carried out stays, and keeps no other
    from it; its error is in the result.
    """
    service = compactions(writer, merge)
    if dry_run:
        preview = service.preview(policy) if plans else NOTHING
        left = service.plans()
        pending = tuple(instant.requested for instant in left)
        return Compacted(preview, pending=pending, errors=tuple(service.held(left)))
    with writer.turn:
        writer.ready()
    errors: list[HudiError] = []
    preview, planned = NOTHING, None
    try:
        preview, planned = service.scheduled(policy) if plans else (NOTHING, None)
    except HudiError as error:
        errors.append(error)
    results = [] if plan_only else list(_carried_out(service, errors))
    left = service.plans()
    errors += service.held(left)
    pending = tuple(instant.requested for instant in left)
    return Compacted(preview, planned, pending, tuple(results), tuple(errors))


def _carried_out(service: Compactions, errors: list[HudiError]) -> Iterator[CompactionResult]:
    """Carry out what waits, each whatever became of the others."""
    for instant in service.pending():
        try:
            result = service.execute(instant.requested)
        except HudiError as error:
            # One that was cancelled a moment ago is no failure.
            is_told = not isinstance(error, InvalidRequestError) or _waits(service, instant)
            errors += [error] if is_told else []
        except Exception as error:  # a fault of ours, or Spark's, keeps no other plan waiting
            errors.append(fault(f"the compaction {instant.requested}", error))
        else:
            yield from [] if result is None else [result]


def _waits(service: Compactions, plan: Instant) -> bool:
    """Whether the plan is still there, in whatever state by now."""
    return plan.requested in {pending.requested for pending in service.pending()}
