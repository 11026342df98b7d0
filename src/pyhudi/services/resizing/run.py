"""Resizing an open table: what its services call, and making base files in this process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pyhudi.commit.pending_plans import load_service_plan
from pyhudi.errors import ConflictError, HudiError, InvalidRequestError
from pyhudi.format.table.bucket_migration import ring_settings
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.resize_plan import ResizePlan
from pyhudi.plan.resizing.changes import ResizePreview
from pyhudi.plan.resizing.choose import RingLimits
from pyhudi.plan.resizing.pace import OutrunError
from pyhudi.plan.resizing.policy import ResizePolicy
from pyhudi.read.lost_files import CommitRecords
from pyhudi.read.plan import Reader
from pyhudi.services.compaction.merge_slice import CompactionSpec
from pyhudi.services.planned_work import LocalWork, base_file_spec, execute_pending
from pyhudi.services.resizing.child_bases import Rewrite, write_children
from pyhudi.services.resizing.execute import Merge, Resizes
from pyhudi.services.resizing.result import Resized
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
    otherwise. It does not keep others from being executed. Its error is in the result. If writers
    outrun the plan, it is made again in smaller plans, one after the other.
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
    done = _planned(session, planning, policy)
    done = replace(done, errors=(*done.errors, *planning.damaged))
    if plan_only:
        return replace(done, pending=_pending(service), errors=(*done.errors, *service.damaged()))
    done = _executed(service, policy, done)
    if _outrun(done) is None:
        return done
    return _in_smaller_plans(session, planning, service, policy, done)


def _planned(session: TableSession, planning: ResizePlanning, policy: ResizePolicy) -> Resized:
    """Make a plan."""
    try:
        with session.exclusive:
            preview, planned = planning.schedule(policy)
    except HudiError as error:
        return Resized(NOTHING, errors=(error,))
    return Resized(preview, planned)


def _executed(service: Resizes, policy: ResizePolicy, done: Resized) -> Resized:
    """Execute the plan that was made, and all others that are pending."""
    errors = [*done.errors]
    results = tuple(execute_pending(service, done.planned, policy.input_bytes_max, errors))
    return replace(done, pending=_pending(service), results=results, errors=tuple(errors))


def _in_smaller_plans(
    session: TableSession,
    planning: ResizePlanning,
    service: Resizes,
    policy: ResizePolicy,
    outrun: Resized,
) -> Resized:
    """Do what a plan was to do that writers have outrun, in plans of at most half of its size.

    Return what all plans have done, with the preview of the first. A plan is halved again if it is
    outrun, too. One of a single split or merge that is outrun ends it, and so does a round in which
    nothing is planned, because what is left rests.
    """
    error, planned = _outrun(outrun), outrun.planned
    results, errors = [*outrun.results], [*outrun.errors]
    left = 0 if error is None else _replaced(error.plan)
    while left > 0:
        if error is not None:
            if len(error.plan.groups) == 1:
                break
            errors.remove(error)
            policy = policy.half_of(len(error.plan.by_partition), _replaced(error.plan))
        last = _executed(service, policy, _planned(session, planning, policy))
        results += last.results
        errors += _new(last.errors, errors)
        if last.planned is None:
            break
        error, planned = _outrun(last), last.planned
        left -= 0 if error else sum(len(change.nodes) for change in last.preview.changes)
    return Resized(outrun.preview, planned, _pending(service), tuple(results), tuple(errors))


def _outrun(done: Resized) -> OutrunError | None:
    """Return the error of a plan that writers have outrun, whichever process made it."""
    return next((error for error in done.errors if isinstance(error, OutrunError)), None)


def _replaced(plan: ResizePlan) -> int:
    """Return how many buckets a plan replaces."""
    return sum(len(change.inputs) for change in plan.groups)


def _new(errors: Iterable[HudiError], known: Sequence[HudiError]) -> list[HudiError]:
    """Return the errors that are not known: a plan of another process may fail in each round."""
    texts = set(map(str, known))
    return [error for error in errors if str(error) not in texts]


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
