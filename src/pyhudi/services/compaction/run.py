"""Compacting an open table: what its services call, and making base files in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from pyhudi.errors import HudiError, InvalidRequestError, fault
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import Instant, InstantTime
from pyhudi.format.timeline.plan_files import CompactionOperation
from pyhudi.plan.compaction import NOTHING, CompactionPolicy, is_due
from pyhudi.plan.scan import CommitFolders, merge_rule
from pyhudi.progress import Listener, ProgressBoard
from pyhudi.read.lost_files import CommitRecords
from pyhudi.read.plan import Reader
from pyhudi.services.compaction.execute import Compactions, Merge
from pyhudi.services.compaction.merge_slice import CompactionSpec, compact_slice, planned_slice
from pyhudi.services.compaction.result import Compacted, CompactionResult
from pyhudi.session.session import TableSession
from pyhudi.timeline.completion import visible_now
from pyhudi.timeline.instant_time import clock_time


class LocalMerge:
    """Makes the base files in this process, one after the other."""

    def __init__(self, session: TableSession, listener: Listener | None = None) -> None:
        self._session = session
        self._listener = listener

    def __call__(
        self, requested: str, schema: str, operations: Sequence[CompactionOperation]
    ) -> Iterator[WriteStat]:
        session = self._session
        spec = compaction_spec(session, requested, schema, operations)
        with ProgressBoard(self._listener, session.world) as board:
            for operation in operations:
                stat = compact_slice(session.storage, spec, operation)
                board.add(rows=stat.num_writes or 0, bytes=stat.total_write_bytes or 0, files=1)
                yield stat


def compaction_spec(
    session: TableSession, requested: str, schema: str, operations: Sequence[CompactionOperation]
) -> CompactionSpec:
    """Return what tasks need to execute a plan."""
    with session.exclusive:
        state = session.current.load()
        slices = [planned_slice(operation) for operation in operations]
        return CompactionSpec(
            InstantTime(requested),
            schema,
            merge_rule(session.config),
            visible_now(state.timeline),
            CommitFolders.of(session.config),
            CommitRecords(session.loader).load(state, slices).sizes,
            session.schema.may_go(),
        )


def compactions(session: TableSession, merge: Merge | None = None) -> Compactions:
    """Return the compactions of an open table."""
    with session.exclusive:
        return Compactions(
            session.log,
            session.recovery,
            session.settings,
            load=session.current.load,
            load_whole=partial(session.current.load, is_whole=True),
            advance=session.loader.advanced,
            times=Reader(session.loader).completion_times,
            records=CommitRecords(session.loader),
            merge=merge or LocalMerge(session),
            schema=session.schema.avro,
            exclusive=session.exclusive,
        )


def is_compaction_due(session: TableSession, policy: CompactionPolicy) -> bool:
    """True if a compaction is due by the policy's trigger."""
    with session.exclusive:
        now = clock_time(session.world.now_ms(), session.config.zone)
        return is_due(policy, session.current.load().timeline, now)


def compact(
    session: TableSession,
    policy: CompactionPolicy | None = None,
    *,
    dry_run: bool = False,
    plan_only: bool = False,
    plans: bool = True,
    merge: Merge | None = None,
) -> Compacted:
    """Make a plan, and execute every pending plan that no other process is executing.

    Plans of other processes are left to them if they read more than `input_bytes_max`. Without
    `plans`, do not make a new one. A plan that cannot be executed stays, and does not keep other
    plans from being executed. Its error is in the result.
    """
    service = compactions(session, merge)
    if dry_run:
        preview = service.preview(policy) if plans else NOTHING
        left = service.plans()
        pending = tuple(instant.requested for instant in left)
        return Compacted(preview, pending=pending, errors=tuple(service.blocked(left)))
    with session.exclusive:
        session.recover()
    errors: list[HudiError] = []
    preview, planned = NOTHING, None
    try:
        preview, planned = service.scheduled(policy) if plans else (NOTHING, None)
    except HudiError as error:
        errors.append(error)
    bytes_max = None if policy is None else policy.input_bytes_max
    results = [] if plan_only else list(_execute_pending(service, planned, bytes_max, errors))
    left = service.plans()
    errors += service.blocked(left)
    pending = tuple(instant.requested for instant in left)
    return Compacted(preview, planned, pending, tuple(results), tuple(errors))


def _execute_pending(
    service: Compactions, planned: str | None, bytes_max: int | None, errors: list[HudiError]
) -> Iterator[CompactionResult]:
    """Execute the pending plans, each even if others fail, and yield the results.

    With `bytes_max`, leave out larger plans than that, except for `planned`, which was just made.
    """
    for instant in service.pending():
        try:
            is_free = bytes_max is None or instant.requested == planned
            if not is_free and service.input_bytes(instant.requested) > (bytes_max or 0):
                continue
            result = service.execute(instant.requested)
        except HudiError as error:
            # A plan that was cancelled a moment ago is not a failure.
            is_reported = not isinstance(error, InvalidRequestError) or _is_pending(
                service, instant
            )
            errors += [error] if is_reported else []
        except Exception as error:  # a bug, here or in Spark, does not stop other plans
            errors.append(fault(f"the compaction {instant.requested}", error))
        else:
            yield from [] if result is None else [result]


def _is_pending(service: Compactions, plan: Instant) -> bool:
    """True if the plan is still pending, in whatever state."""
    return plan.requested in {pending.requested for pending in service.pending()}
