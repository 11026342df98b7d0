"""table.services: which table services are there, and what does each do when called?"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, Literal, overload

from pyhudi.api.inputs import parse_upkeep
from pyhudi.errors import HudiError, InvalidRequestError
from pyhudi.format.table.bucket_config import ConsistentBuckets
from pyhudi.plan.archiving.choose import ArchivePlan
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.plan.cleaning import CleanPlan, CleanPolicy
from pyhudi.plan.compaction.policy import CompactionPolicy
from pyhudi.plan.resizing.policy import ResizePolicy
from pyhudi.plan.upkeep import Upkeep, require_policy, upkeep_mark
from pyhudi.progress import Listener
from pyhudi.services.archiving.result import ArchiveResult
from pyhudi.services.cleaning.execute import cancel_clean, clean
from pyhudi.services.cleaning.result import Cleaned, CleanResult
from pyhudi.services.compaction.execute import Merge
from pyhudi.services.compaction.result import Compacted
from pyhudi.services.compaction.run import LocalMerge, compact, compactions
from pyhudi.services.inline import UpkeepMemory, policy_in_force, record_run
from pyhudi.services.maintenance import UpkeepResult, archived_table, run_services
from pyhudi.services.migration.result import Migrated
from pyhudi.services.migration.run import continue_migration, migrate_buckets, migration_left
from pyhudi.services.repair import GRACE_MS, Repaired, repair_table
from pyhudi.services.resizing.execute import Merge as MergeChildren
from pyhudi.services.resizing.result import Resized
from pyhudi.services.resizing.run import LocalChildren, resize, resizes
from pyhudi.services.verification.result import Verified
from pyhudi.services.verification.run import verify
from pyhudi.session.open import OpenTable
from pyhudi.session.session import TableSession
from pyhudi.wording import public_methods


class Services:
    """The table services (docs/services.md): `run` does all that is due."""

    def __init__(
        self,
        table: OpenTable,
        listener: Listener | None = None,
        memory: UpkeepMemory | None = None,
    ) -> None:
        """`memory` is shared with what runs services after writes."""
        self._table = table
        self._listener = listener
        self._memory = UpkeepMemory() if memory is None else memory

    def __repr__(self) -> str:
        return f"<services of {self._table.storage.uri}: {', '.join(public_methods(type(self)))}>"

    def repair(self, *, grace_minutes: float = GRACE_MS / 60_000) -> Repaired:
        """Complete what crashed writers began, roll back what they left, remove remaining files.

        Also removes data files whose instant is on neither the active nor the archived timeline. No
        reader shows them and no writer can complete them; archiving stops at them. `run` leaves
        them alone. Files of a write that completed by the decision log stay, and are `kept`: the
        timeline lacks a file.

        Safe at any time and beside any writer. A writer that is frozen longer than the grace and
        then continues may still leave files behind; shorten the grace only when no writer runs.
        """
        if not isinstance(grace_minutes, int | float) or not 0 <= grace_minutes < 10**9:
            raise InvalidRequestError(
                f"grace_minutes={grace_minutes!r} cannot be used",
                why="it is not a number of minutes",
                next_step="Leave it out, or give 0 when no writer runs",
            )
        return repair_table(self._session(), round(grace_minutes * 60_000), is_whole=True)

    def verify(self) -> Verified:
        """Check every file and key of the table, and report what is wrong. Write nothing.

        Each file that a retained commit names must exist and have its length, footers and log
        blocks must be readable, and each key must be in its bucket, once in its partition. Safe
        beside any writer and service. The result is true, and has no findings, if all is well.
        """
        return verify(self._table.storage, self._table.world, self._listener)

    # -- table services (docs/services.md). A dry run has a session that writes nothing.

    def run(
        self,
        upkeep: Upkeep | None = None,
        *,
        dry_run: bool = False,
        keep_going: bool = False,
        spark: Any = None,
    ) -> UpkeepResult:
        """Do what is due: roll back failed writes, compact, resize buckets, clean, archive.

        A migration of buckets that no process is making any more goes on, as far as the policy of
        resizes lets one plan rewrite.

        The policy is the one that the table records, or else `Upkeep()`. If `upkeep` is another
        one, an UpkeepWarning says so. Safe beside any number of writers and of processes that run
        services. A service that fails does not stop the others; the first error is raised at the
        end, or with `keep_going` all are in the result. With `dry_run` nothing is changed, and the
        printed result shows what would be done. If `spark` is a session, its tasks compact
        and resize.
        """
        named = parse_upkeep(upkeep)
        try:
            session = self._session(dry_run=dry_run)
            policy = policy_in_force(session, named, self._memory) or Upkeep()
        except HudiError as error:  # an error of the table, and so of each service
            result = UpkeepResult(errors=(("open", error),))
        else:
            result = run_services(
                session,
                policy,
                self._memory.services,
                merge=self._merge(session, spark),
                children=children_in(session, spark, self._listener),
                dry_run=dry_run,
                migrate=partial(self._migrated, session, spark, dry_run=dry_run),
            )
            if not dry_run and (result.did_anything or result.errors):
                with suppress(HudiError):  # the record is for those who look
                    record_run(session, upkeep_mark(policy), result)
        return result if keep_going else result.or_raise()

    def _migrated(
        self, session: TableSession, spark: Any, policy: ResizePolicy, *, dry_run: bool
    ) -> Migrated | None:
        """Go on with a migration of the table's buckets, if no process is making it."""
        if dry_run:
            return migration_left(session)
        return continue_migration(
            self._table,
            session,
            policy,
            lambda current: children_in(current, spark, self._listener),
        )

    def compact(
        self,
        policy: CompactionPolicy | None = None,
        *,
        dry_run: bool = False,
        plan_only: bool = False,
        spark: Any = None,
    ) -> Compacted:
        """Merge log files into base files: plan it, and execute every pending plan.

        Writers continue meanwhile. With `plan_only` the plan is left to the next process that
        compacts, pyhudi's or Hudi's. It is planned whether due or not; only `run` applies the
        policy's trigger. A plan that fails does not stop the others; its error is raised at the
        end. Without a policy, it is the one that the table records, or the usual one.
        """
        require_policy("policy", policy, CompactionPolicy)
        session = self._session(dry_run=dry_run)
        policy = policy or self._recorded(session).compaction
        merge = self._merge(session, spark)
        done = compact(session, policy, dry_run=dry_run, plan_only=plan_only, merge=merge)
        return done.or_raise()

    def cancel_compaction(self, instant: str) -> str:
        """Cancel a compaction that is planned and not complete. Return the rollback's instant.

        Use it for a plan that cannot be executed, or a log compaction that a Hudi writer planned
        and left. Its logs are then in no plan, and the next plan may include them.
        """
        return compactions(self._session()).cancel(instant)

    def resize(
        self,
        policy: ResizePolicy | None = None,
        *,
        dry_run: bool = False,
        plan_only: bool = False,
        spark: Any = None,
    ) -> Resized:
        """Split large buckets and merge small ones: plan it, and execute every pending plan.

        For tables with `pyhudi.ConsistentBuckets`. Writers continue meanwhile. With `plan_only` the
        plan is left to the next process that resizes. With `dry_run` nothing is changed, and the
        printed result says of each bucket what would happen, or why nothing would. If `spark` is a
        session, its tasks write the new base files. A plan that fails does not stop the others; its
        error is raised at the end. Without a policy, it is the one that the table records, or the
        usual one. Pending plans of Hudi's are executed, too. On a table with one of Hudi's locks
        the plan is one that Hudi can execute.
        """
        require_policy("policy", policy, ResizePolicy)
        session = self._session(dry_run=dry_run)
        policy = policy or self._recorded(session).resize
        merge = children_in(session, spark, self._listener)
        done = resize(session, policy, dry_run=dry_run, plan_only=plan_only, merge=merge)
        return done.or_raise()

    def migrate_buckets(
        self, buckets: ConsistentBuckets | None = None, *, spark: Any = None
    ) -> Migrated:
        """Turn a table of simple buckets into one of consistent buckets, or go on with it.

        Partition by partition, while writers continue. New partitions get rings from its beginning
        on. Without hash fields the columns that are hashed stay. If the process is killed, `run` or
        another call, without an argument, continues. Partitions that could not be migrated now are
        `left` in the result, with the reason; the next call tries them again. If `spark` is a
        session, its tasks write the new base files.
        """
        done = migrate_buckets(
            self._table,
            buckets,
            compacts=lambda session: self._merge(session, spark),
            merges=lambda session: children_in(session, spark, self._listener),
        )
        return done.or_raise()

    def cancel_resize(self, instant: str) -> str:
        """Cancel a resize that is planned and not complete. Return the rollback's instant.

        The buckets stay as they are, and no row is lost. It is refused while another process
        executes the resize.
        """
        return resizes(self._session()).cancel(instant)

    @overload
    def clean(
        self, policy: CleanPolicy | None = None, *, dry_run: Literal[False] = False
    ) -> CleanResult: ...
    @overload
    def clean(self, policy: CleanPolicy | None = None, *, dry_run: Literal[True]) -> CleanPlan: ...
    @overload
    def clean(
        self, policy: CleanPolicy | None = None, *, dry_run: bool
    ) -> CleanResult | CleanPlan: ...
    def clean(
        self, policy: CleanPolicy | None = None, *, dry_run: bool = False
    ) -> CleanResult | CleanPlan:
        """Remove files that are needed only by states older than the policy retains.

        With `dry_run` the plan's `files` give, for each file of the table, why it is removed or
        stays. Without a policy, it is the one that the table records, or that of `Upkeep()`.
        """
        require_policy("policy", policy, CleanPolicy)
        session = self._session(dry_run=dry_run)
        done = clean(session, policy or self._recorded(session).clean, dry_run=dry_run)
        return done.or_raise() if isinstance(done, CleanResult) else done

    def cancel_clean(self, instant: str) -> Cleaned:
        """Cancel a clean that is planned and not complete: it completes, and removes nothing.

        Use it for a plan that cannot be executed, and so blocks every later clean.
        """
        return cancel_clean(self._session(), instant)

    @overload
    def archive(
        self, policy: ArchivePolicy | None = None, *, dry_run: Literal[False] = False
    ) -> ArchiveResult: ...
    @overload
    def archive(
        self, policy: ArchivePolicy | None = None, *, dry_run: Literal[True]
    ) -> ArchivePlan: ...
    @overload
    def archive(
        self, policy: ArchivePolicy | None = None, *, dry_run: bool
    ) -> ArchiveResult | ArchivePlan: ...
    def archive(
        self, policy: ArchivePolicy | None = None, *, dry_run: bool = False
    ) -> ArchiveResult | ArchivePlan:
        """Move completed instants from the active timeline to the archive.

        Only this policy counts, or without one that of the table. `run` also leaves the instants
        that its clean policy has to count.
        """
        require_policy("policy", policy, ArchivePolicy)
        session = self._session(dry_run=dry_run)
        policy = policy or self._recorded(session).archive
        return archived_table(session, self._memory.services, policy, dry_run=dry_run)

    def _recorded(self, session: TableSession) -> Upkeep:
        """Return the policies that the table records; where it has none, the usual ones."""
        recorded, usual = policy_in_force(session, None, self._memory), Upkeep()
        if recorded is None:
            return usual
        return Upkeep(
            compaction=recorded.compaction or usual.compaction,
            resize=recorded.resize or usual.resize,
            clean=recorded.clean or usual.clean,
            archive=recorded.archive or usual.archive,
        )

    def _session(self, *, dry_run: bool = False) -> TableSession:
        with self._table.exclusive:
            return self._table.session(is_read_only=dry_run)

    def _merge(self, session: TableSession, spark: Any) -> Merge:
        return merge_in(session, spark, self._listener)


def merge_in(session: TableSession, spark: Any, listener: Listener | None) -> Merge:
    """Return what makes base files: tasks of the Spark session, or without one this process."""
    if spark is None:
        return LocalMerge(session, listener)
    from pyhudi.spark.compact import SparkMerge  # optional: it needs PySpark

    return SparkMerge(session, spark)


def children_in(session: TableSession, spark: Any, listener: Listener | None) -> MergeChildren:
    """Return what makes the base files of resizes, as `merge_in` does for compactions."""
    if spark is None:
        return LocalChildren(session, listener)
    from pyhudi.spark.resize import SparkChildren  # optional: it needs PySpark

    return SparkChildren(session, spark)
