"""Compacting an open table: what its services call, and making base files in this process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyhudi.errors import HudiError
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.plan_files import CompactionOperation
from pyhudi.plan.compaction.policy import CompactionPolicy
from pyhudi.plan.compaction.preview import NOTHING
from pyhudi.plan.compaction.trigger import is_due
from pyhudi.read.lost_files import CommitRecords
from pyhudi.read.plan import Reader
from pyhudi.services.compaction.execute import Compactions, Merge
from pyhudi.services.compaction.merge_slice import CompactionSpec, compact_slice, planned_slice
from pyhudi.services.compaction.result import Compacted
from pyhudi.services.planned_work import LocalWork, base_file_spec, execute_pending
from pyhudi.session.session import TableSession
from pyhudi.timeline.instant_time import clock_time


class LocalMerge(LocalWork[CompactionOperation]):
    """Makes the base files of compactions in this process."""

    def _spec(
        self, requested: str, schema: str, parts: Sequence[CompactionOperation]
    ) -> CompactionSpec:
        return compaction_spec(self._session, requested, schema, parts)

    def _made(self, spec: CompactionSpec, part: CompactionOperation) -> tuple[WriteStat]:
        return (compact_slice(self._session.storage, spec, part),)


def compaction_spec(
    session: TableSession, requested: str, schema: str, operations: Sequence[CompactionOperation]
) -> CompactionSpec:
    """Return what tasks need to execute a plan."""
    slices = [planned_slice(operation) for operation in operations]
    return base_file_spec(session, requested, schema, slices)


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
            schema=session.schema.avro_at,
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
    results = [] if plan_only else list(execute_pending(service, planned, bytes_max, errors))
    left = service.plans()
    errors += service.blocked(left)
    pending = tuple(instant.requested for instant in left)
    return Compacted(preview, planned, pending, tuple(results), tuple(errors))
