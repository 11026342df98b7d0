"""Running the table services that are due, in an order in which each step helps the next.

Failed writes are rolled back first, because their remains hold up all other services. Once an hour
what crashed processes left is swept up. Compaction comes next: pending plans are executed, and a
new one is made if it is due. A resize follows, because a compaction makes buckets smaller and gives
what is to be split one base file; before it a migration of buckets goes on that no process is
making. Cleaning then removes what no retained snapshot needs any more. Archiving shortens the
timeline down to what cleaning has retained, or will have to count: a policy of cleaning raises the
number of writes that archiving leaves, as in Hudi. So does a policy of compaction, because its
trigger counts the writes on the active timeline. Where cleaning finds nothing to remove, as on a
table whose loads fill new partitions, its last result becomes outdated; then archiving uses what
cleaning would retain now.

Any number of processes may do this at once, beside any number of writers: each service appends its
plan to the decision log, and a plan has one result. A service that fails does not keep the others
from running; its error is reported at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from pyhudi.errors import HudiError, fault, first_of
from pyhudi.plan.archiving.choose import ArchivePlan
from pyhudi.plan.archiving.policy import ArchivePolicy, archiving_beside
from pyhudi.plan.cleaning import CleanBy, CleanPlan, CleanPolicy, clean_cut
from pyhudi.plan.compaction.policy import CompactionPolicy
from pyhudi.plan.due import counted_by_clean, leaving
from pyhudi.plan.resizing.policy import ResizePolicy
from pyhudi.plan.upkeep import ARCHIVE, CLEAN, COMPACTION, RESIZE, SERVICES, Upkeep
from pyhudi.services.archiving.facts import ServiceMemory
from pyhudi.services.archiving.result import ArchiveResult
from pyhudi.services.archiving.run import archive, back_off_archiving, is_archiving_due
from pyhudi.services.cleaning.execute import clean
from pyhudi.services.cleaning.result import CleanResult
from pyhudi.services.compaction.execute import Merge
from pyhudi.services.compaction.result import Compacted
from pyhudi.services.compaction.run import compact, is_compaction_due
from pyhudi.services.migration.result import Migrated
from pyhudi.services.repair import Repaired, repair_table
from pyhudi.services.resizing.execute import Merge as MergeChildren
from pyhudi.services.resizing.result import Resized
from pyhudi.services.resizing.run import resize
from pyhudi.session.session import TableSession
from pyhudi.storage.objects.consumers import load_consumers
from pyhudi.timeline.timeline import WRITE_ACTIONS
from pyhudi.wording import counted

#: How often a table is swept up, by the first process that comes, and the object whose age is the
#: time since the last sweep.
REPAIR_EVERY_MS = 3_600_000
REPAIRED = ".hoodie/.pyhudi/repaired"
#: How far clocks of machines that share a table may be apart. An object whose time is further in
#: the future is ignored.
MARK_AHEAD_MAX_MS = 300_000


@dataclass(frozen=True, slots=True)
class UpkeepResult:
    """What the services did, or would do in a dry run. None for one that was not run, or failed."""

    compaction: Compacted | None = None
    resize: Resized | None = None
    clean: CleanResult | CleanPlan | None = None
    archive: ArchiveResult | ArchivePlan | None = None
    errors: tuple[tuple[str, HudiError], ...] = ()  # the service, and why it failed
    rolled_back: tuple[str, ...] = ()  # failed writes
    swept: tuple[str, ...] = ()  # objects that no process needed any more
    migration: Migrated | None = None  # of the table's buckets, if one was under way

    @property
    def did_anything(self) -> bool:
        """True if the table changed."""
        compacted = self.compaction is not None and bool(self.compaction.results)
        resized = self.resize is not None and bool(self.resize.results)
        cleaned = isinstance(self.clean, CleanResult) and bool(self.clean.cleans)
        archived = isinstance(self.archive, ArchiveResult) and self.archive.did_anything
        migrated = self.migration is not None and self.migration.did_anything
        return bool(self.rolled_back) or migrated or compacted or resized or cleaned or archived

    def or_raise(self) -> Self:
        """Return this result, or raise the first error if a service failed."""
        if self.errors:
            raise first_of([error for _, error in self.errors], self._summary())
        return self

    def _summary(self) -> list[str]:
        results = (self.migration, self.compaction, self.resize, self.clean, self.archive)
        lines = [f"rollback of the failed write {requested}" for requested in self.rolled_back]
        if self.swept:
            lines.append(f"{counted(len(self.swept), 'object')} left over by failed writes removed")
        return lines + [str(result) for result in results if result is not None]

    def __str__(self) -> str:
        lines = self._summary()
        return "\n".join([*lines, *(f"{name} failed: {error}" for name, error in self.errors)])


def run_services(
    session: TableSession,
    upkeep: Upkeep,
    memory: ServiceMemory,
    *,
    merge: Merge | None = None,
    children: MergeChildren | None = None,
    dry_run: bool = False,
    only: Collection[str] = tuple(SERVICES),
    migrate: Callable[[ResizePolicy], Migrated | None] = lambda _: None,
) -> UpkeepResult:
    """Run the services that are due. The errors of those that failed are in the result.

    `merge` makes the base files of compactions, `children` those of resizes; without them this
    process does. `migrate` goes on with a migration of buckets, as a part of resizing. Services
    that are not among `only` are left out; what they count stays.
    """
    errors: list[tuple[str, HudiError]] = []

    def tried(name: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except HudiError as error:
            errors.append((name, error))
        except Exception as error:  # a bug, here or in a library, does not stop the others either
            errors.append((name, fault(name, error)))
        return None

    compaction = migrated = resized = cleaned = archived = None
    found = tried("rollback", lambda: _repaired(session, memory, dry_run=dry_run))
    repaired = found or Repaired((), ())
    if upkeep.compaction is not None and COMPACTION in only:
        policy = upkeep.compaction
        compaction = tried(COMPACTION, lambda: _compacted(session, policy, merge, dry_run=dry_run))
        errors += [(COMPACTION, e) for e in (compaction.errors if compaction else ())]
    if upkeep.resize is not None and RESIZE in only:
        sizing = upkeep.resize
        migrated = tried(RESIZE, lambda: migrate(sizing))
        resized = tried(RESIZE, lambda: _resized(session, sizing, children, dry_run=dry_run))
        errors += [(RESIZE, e) for done in (migrated, resized) if done for e in done.errors]
    if upkeep.clean is not None and CLEAN in only:
        cleaned = tried(CLEAN, lambda: clean(session, upkeep.clean, dry_run=dry_run))
        failed = cleaned.errors if isinstance(cleaned, CleanResult) else ()
        errors += [(CLEAN, error) for error in failed]
    if upkeep.archive is not None and ARCHIVE in only:
        archiving = upkeep.archive
        archived = tried(
            ARCHIVE,
            lambda: _archived(session, memory, upkeep, archiving, cleaned, dry_run=dry_run),
        )
    return UpkeepResult(
        compaction,
        resized,
        cleaned,
        archived,
        tuple(errors),
        repaired.rolled_back,
        repaired.removed,
        migrated,
    )


def _repaired(session: TableSession, memory: ServiceMemory, *, dry_run: bool) -> Repaired:
    """Roll failed writes back, and sweep up as well if that is due."""
    with session.exclusive:
        if dry_run:
            return Repaired(session.failed(), ())
        if _is_repair_due(session, memory):
            return repair_table(session)
        return Repaired(session.recover(), ())


def _is_repair_due(session: TableSession, memory: ServiceMemory) -> bool:
    """True if no process has swept the table up within the last hour.

    Storage is asked once an hour at most, too.
    """
    now_ms, last_ms = session.world.elapsed_ms(), memory.repaired_at_ms
    if last_ms is not None and now_ms - last_ms < REPAIR_EVERY_MS:
        return False
    memory.repaired_at_ms = now_ms
    found = session.storage.stat(REPAIRED)
    if found is not None:
        age_ms = session.log.clock.estimate_ms() - found.modified_ms
        if -MARK_AHEAD_MAX_MS <= age_ms < REPAIR_EVERY_MS:
            return False
        if age_ms < 0:  # of a clock that was wrong; a local disk would keep the later time
            session.storage.delete(REPAIRED)
    session.storage.write(REPAIRED, b"")  # before the sweep, so that one process does it
    return True


def _compacted(
    session: TableSession, policy: CompactionPolicy, merge: Merge | None, *, dry_run: bool
) -> Compacted | None:
    if not session.is_mor:
        return None
    is_due = is_compaction_due(session, policy)
    return compact(session, policy, merge=merge, dry_run=dry_run, plans=is_due)


def _resized(
    session: TableSession, policy: ResizePolicy, children: MergeChildren | None, *, dry_run: bool
) -> Resized | None:
    if not session.can_resize:
        return None
    return resize(session, policy, dry_run=dry_run, merge=children)


def _archived(
    session: TableSession,
    memory: ServiceMemory,
    upkeep: Upkeep,
    configured: ArchivePolicy,
    cleaned: CleanResult | CleanPlan | None,
    *,
    dry_run: bool,
) -> ArchiveResult | ArchivePlan:
    """Archive if that is due. To find after a commit that it is not costs next to nothing."""
    policy = configured
    if upkeep.compaction is not None:
        policy = archiving_beside(policy, upkeep.compaction)
    if upkeep.clean is not None:
        policy = leaving(policy, _counted(session, upkeep.clean) + 1)
    retained_from = None
    if upkeep.clean is not None and cleaned is not None:
        retained_from = _retained_from(session, upkeep.clean, cleaned)
    if dry_run:
        return archived_table(session, memory, policy, dry_run=True, retained_from=retained_from)
    if not is_archiving_due(session, memory, policy, configured):
        return ArchiveResult()
    done = archived_table(session, memory, policy, dry_run=False, retained_from=retained_from)
    with suppress(HudiError):  # this only saves later runs a listing
        back_off_archiving(session, memory, policy, configured)
    return done


def _retained_from(
    session: TableSession, policy: CleanPolicy, cleaned: CleanResult | CleanPlan
) -> str | None:
    """Return the write from which on this round's clean retains everything, if that is known."""
    retained_from: str | None
    if isinstance(cleaned, CleanPlan):
        is_open, first = bool(cleaned.pending), cleaned.earliest
        retained_from = None if is_open or first is None else first.requested
    else:
        is_open = bool(cleaned.errors) or cleaned.attended is not None
        retained_from = cleaned.kept_from
    if policy.by is CleanBy.VERSIONS and not is_open:
        with session.exclusive:
            return session.log.live.highest  # versions retain no point in time
    return retained_from


def archived_table(
    session: TableSession,
    memory: ServiceMemory,
    policy: ArchivePolicy | None,
    *,
    dry_run: bool,
    retained_from: str | None = None,
) -> ArchiveResult | ArchivePlan:
    """Archive what is due, except for what a registered consumer has not read."""
    with session.exclusive:
        since = _oldest_read(session, dry_run=dry_run)
    return archive(
        session,
        policy,
        consumers_since=since,
        retained_from=retained_from,
        dry_run=dry_run,
        memory=memory,
    )


def _counted(session: TableSession, policy: CleanPolicy) -> int:
    """Return how many of the newest writes a clean has to find on the active timeline."""
    if policy.by is not CleanBy.HOURS:
        return counted_by_clean(policy, (), "")
    with session.exclusive:
        zone = session.config.zone
        done = session.log.refresh().completed.values()
        reached = session.log.clock.at_least_ms()  # if the time is later, more writes are left
        cut = clean_cut(policy, reached or session.world.now_ms(), zone) or ""
    return counted_by_clean(policy, (i for i in done if i.action in WRITE_ACTIONS), cut)


def _oldest_read(session: TableSession, *, dry_run: bool) -> str | None:
    """Return the time up to which the consumer that is furthest behind has read.

    Consumers that have expired do not count.
    """
    found = load_consumers(session.storage)
    if not found:
        return None
    clock = session.log.clock
    now_ms = clock.estimate_ms() if dry_run else clock.read_ms()
    return min((f.consumer.since for f in found if f.holds_at(now_ms)), default=None)
