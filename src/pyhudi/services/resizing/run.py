"""Resizing an open table: what its services call, and making base files in this process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from pyhudi.commit.pending_plans import load_service_plan
from pyhudi.errors import ConflictError, HudiError, InvalidRequestError
from pyhudi.format.table.bucket_migration import ring_settings
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.plan.resizing.changes import ResizePreview
from pyhudi.plan.resizing.choose import RingLimits
from pyhudi.plan.resizing.policy import ResizePolicy
from pyhudi.read.lost_files import CommitRecords
from pyhudi.read.plan import Reader
from pyhudi.services.compaction.merge_slice import CompactionSpec
from pyhudi.services.planned_work import LocalWork, base_file_spec, execute_pending
from pyhudi.services.resizing.child_bases import Rewrite, write_children
from pyhudi.services.resizing.execute import Merge, Resizes
from pyhudi.services.resizing.result import Resized, ResizeResult
from pyhudi.services.resizing.schedule import ResizePlanning, RingFacts
from pyhudi.session.session import TableSession
from pyhudi.timeline.instant_time import clock_time
from pyhudi.write.resizing.work import LayoutOf, layout_before, ring_buckets

NOTHING = ResizePreview((), ())

Planning = TypeVar("Planning", bound=ResizePlanning)


class LocalChildren(LocalWork[Rewrite]):
    """Makes the children's base files in this process, one split or merge after the other."""

    def _spec(self, requested: str, schema: str, parts: Sequence[Rewrite]) -> CompactionSpec:
        return children_spec(self._session, requested, schema, parts)

    def _made(self, spec: CompactionSpec, part: Rewrite) -> tuple[WriteStat, ...]:
        return write_children(self._session.storage, spec, part)


def children_spec(
    session: TableSession, requested: str, schema: str, rewrites: Sequence[Rewrite]
) -> CompactionSpec:
    """Return what tasks need to make the children's base files."""
    slices = [slice_ for rewrite in rewrites for slice_ in rewrite.slices]
    return base_file_spec(session, requested, schema, slices)


def resizes(
    session: TableSession, merge: Merge | None = None, layout_of: LayoutOf | None = None
) -> Resizes:
    """Return the resizes of an open table. `layout_of` returns the buckets in force."""
    with session.exclusive:
        return Resizes(
            session.log,
            session.recovery,
            session.settings,
            load=session.current.load,
            records=CommitRecords(session.loader),
            layout_of=layout_of or partial(layout_before, session),
            merge=merge or LocalChildren(session),
            schema=session.schema.avro_at,
            exclusive=session.exclusive,
        )


def resize_planning(session: TableSession) -> ResizePlanning:
    """Return what makes plans of resizes of an open table."""
    return planning_of(session, ResizePlanning)


def planning_of(session: TableSession, kind: type[Planning], **given: Any) -> Planning:
    """Return what makes plans of this kind; `given` is what it takes beside the table."""
    buckets = ring_buckets(session)
    with session.exclusive:
        return kind(
            log=session.log,
            rings=RingFacts(
                session.groups.ring, RingLimits(buckets.min, buckets.max), buckets.hash_fields
            ),
            load=session.current.load,
            load_whole=partial(session.current.load, is_whole=True),
            advance=session.loader.advanced,
            times=Reader(session.loader).completion_times,
            records=CommitRecords(session.loader),
            now=lambda: clock_time(session.world.now_ms(), session.config.zone),
            **given,
        )


def resize(
    session: TableSession,
    policy: ResizePolicy | None = None,
    *,
    dry_run: bool = False,
    plan_only: bool = False,
    merge: Merge | None = None,
) -> Resized:
    """Make a plan, and execute every pending resize that no other process is executing.

    Plans of other processes are left to them if they read more than `input_bytes_max`. A resize
    that cannot be executed is cancelled if no attempt can succeed, and stays
    otherwise. It does not keep others from being executed. Its error is in the result.
    """
    policy = policy or ResizePolicy()
    planning, service = resize_planning(session), resizes(session, merge)
    if dry_run:
        with session.exclusive:
            preview = planning.preview(policy)
        damaged = (*planning.damaged, *service.damaged())
        return Resized(preview, pending=_pending(service), errors=damaged)
    with session.exclusive:
        session.recover()
    errors: list[HudiError] = []
    preview, planned = NOTHING, None
    try:
        with session.exclusive:
            preview, planned = planning.schedule(policy)
    except HudiError as error:
        errors.append(error)
    errors += planning.damaged
    bound = policy.input_bytes_max
    results: list[ResizeResult] = []
    if plan_only:
        errors += service.damaged()
    else:
        results += execute_pending(service, planned, bound, errors)
    return Resized(preview, planned, _pending(service), tuple(results), tuple(errors))


def _pending(service: Resizes) -> tuple[str, ...]:
    return tuple(instant.requested for instant in service.plans())


def cancel_own(session: TableSession) -> None:
    """Cancel every pending resize that Hudi cannot execute, also one that another process is
    executing.

    Execute those that can no longer be cancelled: virtual ones, with committed rows in their
    children.
    """
    if ring_settings(session.config.buckets) is None:
        return  # a clustering there, damaged or not, is no resize
    service = resizes(session)
    for plan in service.plans():
        resize = load_service_plan(session.log, plan).resize
        if resize is None or resize.is_dual:
            continue
        with suppress(InvalidRequestError):  # it ended a moment ago
            try:
                service.cancel(plan.requested, is_forced=True)
            except ConflictError:
                service.execute(plan.requested, is_forced=True)
