"""What keeps a table in order, apart from reading and writing it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from traceback import format_exc
from typing import Any, Literal, overload

from pyhudi.errors import InvalidRequestError
from pyhudi.format.lock.lock_kind import given_lock_kind
from pyhudi.format.table.consumer_file import Consumer
from pyhudi.plan.archiving import ArchivePlan, ArchivePolicy
from pyhudi.plan.cleaning import CleanPlan, CleanPolicy
from pyhudi.plan.compaction import CompactionPolicy
from pyhudi.services.archiving.facts import ServiceMemory
from pyhudi.services.archiving.run import ArchiveResult
from pyhudi.services.cleaning.execute import clean, undo_clean
from pyhudi.services.cleaning.result import Cleaned, CleanResult
from pyhudi.services.compaction.execute import Merge
from pyhudi.services.compaction.result import Compacted
from pyhudi.services.compaction.run import compact, compactions
from pyhudi.services.consumers import (
    EXPIRES_AFTER_HOURS,
    advance_consumer,
    register_consumer,
    release_consumer,
)
from pyhudi.services.lock_change import use_lock
from pyhudi.services.maintenance import (
    Upkeep,
    UpkeepResult,
    archived_table,
    require_policy,
    run_services,
)
from pyhudi.services.repair import GRACE_MS, Repaired, repair_table
from pyhudi.services.verification.result import Verified
from pyhudi.services.verification.run import verify
from pyhudi.timeline.instant_time import timeline_time
from pyhudi.wording import public_methods
from pyhudi.write.column_owners import own_columns, release_columns
from pyhudi.write.local import LocalWriter
from pyhudi.write.result import WriteResult


class UpkeepWarning(UserWarning):
    """A table service that was to follow a write failed; the write did not."""


def given_upkeep(given: Upkeep | None) -> Upkeep | None:
    if given is not None and not isinstance(given, Upkeep):
        raise InvalidRequestError(
            f"upkeep={given!r:.100} cannot be used",
            why="it is not an Upkeep, which says what each table service does",
            next_step="Write upkeep=pyhudi.Upkeep(), or leave it out",
        )
    return given


class Services:
    """What keeps a table healthy (docs/services.md): `run` does all that is due."""

    def __init__(self, writer: LocalWriter) -> None:
        self._writer = writer
        self._memory = ServiceMemory()

    def __repr__(self) -> str:
        return f"<services of {self._writer.storage.uri}: {', '.join(public_methods(type(self)))}>"

    def repair(self, *, grace_minutes: float = GRACE_MS / 60_000) -> Repaired:
        """Finish what crashed writers began, roll back what they left, and remove the remains.

        So it does with data files of instants that no timeline tells of, which archiving stops at:
        no reader sees them, and nobody can complete them. `run` leaves those alone. Files of
        a write that completed by the decision log stay, and are `kept`: the timeline lacks a file.

        Safe at any time and beside any writer. A writer that is frozen longer than the grace and
        then wakes up may still leave files behind; shorten the grace only when no writer runs.
        """
        if not isinstance(grace_minutes, int | float) or not 0 <= grace_minutes < 10**9:
            raise InvalidRequestError(
                f"grace_minutes={grace_minutes!r} cannot be used",
                why="it is not a number of minutes",
                next_step="Leave it out, or give 0 when no writer runs",
            )
        return repair_table(self._writer, round(grace_minutes * 60_000), is_whole=True)

    def verify(self) -> Verified:
        """Look at every file and key of the table, and say what is wrong; nothing is written.

        Each file that a retained commit names must be there and have its length, footers and log
        blocks must be readable, and each key must be in its bucket, once in its partition. Safe
        beside any writer and service. The result is true, and has no findings, if all is well.
        """
        return verify(self._writer.storage, self._writer.world, self._writer.listener)

    # -- table services (docs/services.md). A dry run writes nothing: see TableWriter.looking.

    def run(
        self,
        upkeep: Upkeep | None = None,
        *,
        dry_run: bool = False,
        keep_going: bool = False,
        spark: Any = None,
    ) -> UpkeepResult:
        """Do what is due: roll back failed writes, compact, clean, archive.

        Beside any number of writers, and of others who do the same. A service that fails keeps no
        other from its turn; the first error is raised at the end, or with `keep_going` all are in
        the result. With `dry_run` nothing happens, and printing the result says what would. A
        session as `spark` lets its tasks compact.
        """
        with self._look(dry_run=dry_run):
            result = run_services(
                self._writer,
                given_upkeep(upkeep) or Upkeep(),
                self._memory,
                merge=self._merge(spark),
                dry_run=dry_run,
            )
        return result if keep_going else result.or_raise()

    def keep_up(self, upkeep: Upkeep, written: WriteResult, spark: Any = None) -> None:
        """What follows a write: `run`, whose errors are warnings, for the write has succeeded.

        Who has warnings raised gets one in the place of the write's result, so it tells which.
        """
        after = f"after the write {written.instant}, which completed at {written.completed}"
        try:
            errors = self.run(upkeep, keep_going=True, spark=spark).errors
        except Exception:  # a fault of ours, told in full
            warnings.warn(f"upkeep failed {after}: {format_exc()}", UpkeepWarning, stacklevel=2)
            return
        for name, error in errors:
            warnings.warn(f"{name} failed {after}: {error}", UpkeepWarning, stacklevel=2)

    def compact(
        self,
        policy: CompactionPolicy | None = None,
        *,
        dry_run: bool = False,
        plan_only: bool = False,
        spark: Any = None,
    ) -> Compacted:
        """Merge log files into base files: plan it, and carry out every plan that waits.

        Writers go on meanwhile. With `plan_only` the plan is left to whoever comes next, pyhudi or
        Hudi. Due or not: `run` asks the policy for that. A plan that fails keeps no other from
        being carried out; its error is raised at the end.
        """
        require_policy("policy", policy, CompactionPolicy)
        with self._look(dry_run=dry_run):
            done = compact(
                self._writer, policy, dry_run=dry_run, plan_only=plan_only, merge=self._merge(spark)
            )
        return done.or_raise()

    def undo_compaction(self, instant: str) -> str:
        """Give up a compaction that is planned and not complete; the instant of the rollback.

        For a plan that cannot be carried out, or a log compaction that was left by a Hudi which is
        gone. Its logs are then in no plan, and the next one may take them.
        """
        return compactions(self._writer).undo(instant)

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
        """Remove files that only older states of the table need than the policy keeps.

        With `dry_run` the plan's `files` tell for each file of the table why it goes or stays.
        """
        require_policy("policy", policy, CleanPolicy)
        with self._look(dry_run=dry_run):
            done = clean(self._writer, policy, dry_run=dry_run)
        return done.or_raise() if isinstance(done, CleanResult) else done

    def undo_clean(self, instant: str) -> Cleaned:
        """Give up a clean that is planned and not complete: it completes, and removes nothing.

        For a plan that cannot be carried out, and so holds back every later clean.
        """
        return undo_clean(self._writer, instant)

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

        By this policy alone: `run` also leaves what its policy of cleaning has to count.
        """
        require_policy("policy", policy, ArchivePolicy)
        with self._look(dry_run=dry_run):
            return archived_table(self._writer, self._memory, policy, dry_run=dry_run)

    # -- consumers

    def register_consumer(
        self,
        name: str,
        *,
        since: str | datetime | WriteResult | None = None,
        expires_after_hours: int | None = EXPIRES_AFTER_HOURS,
    ) -> Consumer:
        """Keep what `table.changes(since=since)` needs until this consumer has read it.

        Without `since` a new one begins at the newest state, and a known one keeps the time up to
        which it has read. A consumer that has not been heard of for so many hours holds nothing
        any more; with None it holds for ever.
        """
        time = None if since is None else self._time(since)
        return register_consumer(
            self._writer, name, since=time, expires_after_hours=expires_after_hours
        )

    def advance_consumer(self, name: str, since: str | datetime | WriteResult) -> Consumer:
        """The consumer has read up to there (`changes(...).until`), and needs nothing before."""
        return advance_consumer(self._writer, name, self._time(since))

    def release_consumer(self, name: str) -> bool:
        """Hold nothing more for the consumer; whether it was registered."""
        return release_consumer(self._writer, name)

    def _time(self, time: str | datetime | WriteResult) -> str:
        if isinstance(time, WriteResult):
            return time.completed
        return timeline_time(time, self._writer.config.zone)

    def _look(self, *, dry_run: bool) -> AbstractContextManager[None]:
        return self._writer.looking() if dry_run else nullcontext()

    def _merge(self, spark: Any) -> Merge | None:
        if spark is None:
            return None
        from pyhudi.spark.compact import SparkMerge  # optional: it needs PySpark

        return SparkMerge(self._writer, spark)

    # -- other

    def disable_metadata_table(self) -> None:
        """Remove Hudi's metadata table, which pyhudi does not maintain and must not let go stale.

        Readers then list the table's folders. A Hudi writer builds it again unless it runs with
        `hoodie.metadata.enable=false`.
        """
        self._writer.disable_metadata_table()

    def use_lock(self, lock: str, *, lock_options: Mapping[str, object] | None = None) -> None:
        """Give the table a lock, or another one, which all its writers take from now on.

        `lock` and `lock_options` are as for `create_table` (docs/locks.md). Call it before a Java
        writer comes to a table that has none, or when pyhudi has found one. Other pyhudi processes
        need not be told: once this returns nobody decides without the new lock. A write under way
        whose rows are in memory begins again by itself; one from Spark or from a stream fails with
        a ConflictError and has to be done again. Java writers have to be told, and stopped while a
        lock that they take is changed. If it fails, call it again.
        """
        use_lock(self._writer, given_lock_kind(lock), lock_options)

    def own_columns(self, owner: str, columns: Sequence[str]) -> None:
        """Declare that these columns of a joined table are the owner's to write, and nobody else's.

        A column has one owner: of two processes that ask for it at once, one is refused. The same
        declaration again changes nothing.
        """
        own_columns(self._writer, owner, columns)

    def release_columns(self, owner: str) -> None:
        """Take an owner's columns from it, so that others may have them.

        Values that were written stay. Writes of the owner that have not completed are refused.
        """
        release_columns(self._writer, owner)
