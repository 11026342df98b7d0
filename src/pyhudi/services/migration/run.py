"""Migrating a table from simple to consistent buckets, while any number of processes write it.

    announce    the properties say what the buckets become; from the entry that follows on, new
                partitions get rings (`format.table.bucket_migration`)
    migrate     each partition with simple buckets gets its ring by a resize, one after the other
    end         when no partition is left: an entry, then the properties

Killed anywhere, the next call goes on: what is announced is begun, a resize that is pending is
executed, and partitions that have a ring are passed over. A heartbeat keeps a second call away
while one runs. That only saves double work.

A partition is passed over for now if another plan has one of its buckets, or if a write cancels its
resize. It is tried again, with what pending compactions there are executed before.

The table services go on with a migration, too, if no process is at it (`continue_migration`): the
table's policy of resizes says how much one run of them rewrites.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

from pyhudi.commit.pending_plans import load_service_plan
from pyhudi.commit.transaction import writer_identity
from pyhudi.errors import ConflictError, HudiError, InvalidRequestError, UnsupportedTableError
from pyhudi.format.table.bucket_config import ConsistentBuckets, SimpleBuckets
from pyhudi.format.table.bucket_migration import (
    MigratingBuckets,
    announced_properties,
    migrated_properties,
)
from pyhudi.format.table.properties import TableProperties
from pyhudi.format.table.table_config import TableConfig, TableType
from pyhudi.plan.resizing.policy import ResizePolicy
from pyhudi.services.compaction.execute import Merge as MergeSlices
from pyhudi.services.compaction.run import compact
from pyhudi.services.migration.plan import first_ring_planning, simple_partitions
from pyhudi.services.migration.result import Migrated
from pyhudi.services.resizing.execute import Merge
from pyhudi.services.resizing.result import ResizeResult
from pyhudi.services.resizing.run import resizes
from pyhudi.session.lock_setting import under_recorded_lock
from pyhudi.session.open import OpenTable
from pyhudi.session.properties import update_properties
from pyhudi.session.session import TableSession
from pyhudi.session.simple_groups import BUCKETS_FOLDER
from pyhudi.storage.objects.heartbeats import Heartbeat
from pyhudi.world import jittered_ms
from pyhudi.write.begin import MIGRATION_KEY, commit_nothing, ready
from pyhudi.write.seeds import seed_missing

#: The heartbeat of the process that migrates the table.
CLAIM: Final = ".hoodie/.pyhudi/migration_claim"
#: How often all partitions that are left are tried, and the pauses between.
ROUNDS_MAX: Final = 6
PAUSE_FIRST_MS, PAUSE_MS = 500, 8_000

#: Make what writes base files in a session: of compactions, and of rings.
Compacts: TypeAlias = Callable[[TableSession], MergeSlices | None]
Merges: TypeAlias = Callable[[TableSession], Merge | None]


def migrate_buckets(
    table: OpenTable,
    buckets: ConsistentBuckets | None = None,
    *,
    compacts: Compacts = lambda _: None,
    merges: Merges = lambda _: None,
) -> Migrated:
    """Migrate the table, or go on with it; without `buckets` to those that it is migrated to.

    InvalidRequestError or UnsupportedTableError if it cannot be migrated to them, ConflictError if
    another process is migrating it. Then nothing was changed.
    """
    with table.exclusive:
        session = table.session()
        target = _target(session.config, buckets)
        heartbeat = Heartbeat(table.storage, "migration", _writer(session), path=CLAIM)
        _claim(session, heartbeat)
    try:
        with table.exclusive:
            _announce(table, session, target)
        return _Migration(table, target.after, merges).run(compacts)
    finally:
        with suppress(HudiError):  # a claim that stays expires
            heartbeat.end()


def continue_migration(
    table: OpenTable, session: TableSession, policy: ResizePolicy, merges: Merges = lambda _: None
) -> Migrated | None:
    """Go on with a migration that no process is making; None if there is none.

    Each partition is tried once, until as much is rewritten as one plan of the policy may replace.
    Errors are in the result.
    """
    target = session.config.buckets
    if not isinstance(target, MigratingBuckets):
        return None
    heartbeat = Heartbeat(table.storage, "migration", _writer(session), path=CLAIM)
    with table.exclusive:
        if not _is_claimed(session, heartbeat):
            return None
    try:
        return _Migration(table, target.after, merges, policy).run_once()
    except HudiError as error:
        return Migrated(target.after, is_done=False, errors=(error,))
    finally:
        with suppress(HudiError):  # a claim that stays expires
            heartbeat.end()


def migration_left(session: TableSession) -> Migrated | None:
    """Return what there is to do of a migration; None without one. Change nothing."""
    target = session.config.buckets
    if not isinstance(target, MigratingBuckets):
        return None
    why = "it has simple buckets, and a run goes on with it if no other process does"
    return Migrated(
        target.after, is_done=False, left=dict.fromkeys(simple_partitions(session), why)
    )


# ---- what is refused


def _target(config: TableConfig, given: ConsistentBuckets | None) -> MigratingBuckets:
    """Return the migration to make, or to go on with; raise if there is none to make."""
    if given is not None and not isinstance(given, ConsistentBuckets):
        raise InvalidRequestError(
            f"{given!r:.100} cannot be migrated to",
            why="it is no ConsistentBuckets",
            next_step="Write migrate_buckets(pyhudi.ConsistentBuckets())",
        )
    there = config.buckets
    if isinstance(there, ConsistentBuckets):
        raise _refused(config, "it has consistent buckets already", "There is nothing to do")
    if config.table_type is not TableType.MERGE_ON_READ:
        why = "it is copy on write, and consistent buckets need log files"
        raise _refused(config, why, "Create a merge-on-read table, and copy the rows")
    if config.lock.is_shared:
        raise UnsupportedTableError(
            f"the table {config.name!r} cannot be migrated",
            why=f"it has the lock {config.lock.value!r}, which Apache Hudi takes, and a Hudi writer"
            " would put rows into the wrong buckets meanwhile",
            next_step="Stop all Hudi writers, and give it another lock with"
            " table.alter.use_lock('none') first",
        )
    if isinstance(there, MigratingBuckets):
        if given is not None and _resolved(config, there.before, given) != there.after:
            why = f"it is being migrated to {there.after} already"
            raise _refused(config, why, "Go on with migrate_buckets(), without an argument")
        return there
    assert isinstance(there, SimpleBuckets)
    after = _resolved(config, there, given or ConsistentBuckets())
    return MigratingBuckets(there, after, is_announced=True)


def _resolved(
    config: TableConfig, before: SimpleBuckets, given: ConsistentBuckets
) -> ConsistentBuckets:
    """Return the buckets with every hashed column named: without any, those hashed so far."""
    fields = given.hash_fields or before.hash_fields
    named = ConsistentBuckets(given.initial, given.min, given.max, fields)
    return named.resolved(config.record_key_fields)


def _refused(config: TableConfig, why: str, next_step: str) -> InvalidRequestError:
    what = f"the buckets of the table {config.name!r} cannot be migrated"
    return InvalidRequestError(what, why=why, next_step=next_step)


# ---- one process at a time


def _writer(session: TableSession) -> str:
    return writer_identity(session.world, session.settings).text


def _is_claimed(session: TableSession, heartbeat: Heartbeat) -> bool:
    settings, log = session.settings, session.log
    interval_ms, timeout_ms = settings.heartbeat_interval_ms, settings.heartbeat_timeout_ms
    return heartbeat.claim(log.clock, session.world, interval_ms, timeout_ms)


def _claim(session: TableSession, heartbeat: Heartbeat) -> None:
    if not _is_claimed(session, heartbeat):
        timeout_ms = session.settings.heartbeat_timeout_ms
        raise ConflictError(
            f"the buckets of the table {session.config.name!r} are not migrated by this process",
            why="another process is migrating them",
            next_step="Leave it to that process. If it has died, repeat the call"
            f" {timeout_ms / 1000:g} s after that, and it goes on where the process stopped",
        )


# ---- announcing


def _announce(table: OpenTable, session: TableSession, target: MigratingBuckets) -> None:
    """Record the migration, unless it is recorded; raise if the table has changed meanwhile."""
    session.schema.avro()  # refused like any write, before anything has changed

    def announced(values: dict[str, str]) -> dict[str, str]:
        now = TableConfig.of(TableProperties(values))
        if isinstance(now.buckets, MigratingBuckets) and now.buckets.after == target.after:
            return values
        if now.buckets is not None:
            _target(now, target.after)
        elif now.lock.is_shared:
            raise _refused(now, "it has got another lock this moment", "Repeat the call")
        return announced_properties(values, target, now.record_key_fields)

    wait_ms = table.settings.lock_wait_ms
    with under_recorded_lock(table.storage, table.world, session.config, wait_ms):
        update_properties(table.storage, announced, table.world)


# ---- migrating


class _Migration:
    """One call's way through the partitions."""

    def __init__(
        self,
        table: OpenTable,
        target: ConsistentBuckets,
        merges: Merges,
        limits: ResizePolicy | None = None,
    ) -> None:
        """`limits` says how much the call rewrites; without it, all."""
        self._table = table
        self._target = target
        self._merges = merges
        self._limits = limits
        self._results: list[ResizeResult] = []
        self._errors: dict[str, HudiError] = {}  # the last one of each partition
        self._left: dict[str, str] = {}

    def run(self, compacts: Compacts) -> Migrated:
        """Try all partitions, several times; execute pending compactions in between."""
        pause = PAUSE_FIRST_MS
        for nth in range(ROUNDS_MAX):
            if nth:
                self._table.world.sleep_ms(jittered_ms(self._table.world, pause))
                pause = min(2 * pause, PAUSE_MS)
            before = len(self._results)
            session = self._round()
            if session is None:
                return self._ended(is_done=True)
            if self._left:
                done = compact(session, plans=False, merge=compacts(session))
                self._errors.update({str(n): error for n, error in enumerate(done.errors)})
            if len(self._results) > before:
                pause = PAUSE_FIRST_MS
        return self._ended(is_done=False)

    def run_once(self) -> Migrated:
        return self._ended(is_done=self._round() is None)

    def _ended(self, *, is_done: bool) -> Migrated:
        errors = tuple(self._errors.values())
        left = {} if is_done else dict(self._left)
        return Migrated(self._target, is_done, tuple(self._results), left, errors)

    def _round(self) -> TableSession | None:
        """Try each partition that is left; return the session, or None if the migration ended."""
        self._errors.clear()
        self._left.clear()
        with self._table.exclusive:
            session = ready(self._table)
        if not isinstance(session.config.buckets, MigratingBuckets):
            return None  # another process has ended it
        self._execute_pending(session, frozenset(simple_partitions(session)))
        for partition in simple_partitions(session):
            if self._is_enough:
                self._left[partition] = "the call has rewritten as much as its policy allows"
                continue
            try:
                self._migrate(session, partition)
            except HudiError as error:
                self._errors[partition] = error
                self._left[partition] = f"{error.what} ({error.why})"
        if simple_partitions(session):
            return session
        self._end(session)
        return None

    @property
    def _is_enough(self) -> bool:
        limits, done = self._limits, self._results
        return limits is not None and (
            sum(result.partitions for result in done) >= limits.partitions_max
            or sum(result.bytes for result in done) >= limits.bytes_max
        )

    def _execute_pending(self, session: TableSession, partitions: frozenset[str]) -> None:
        """Execute what another call has planned for these partitions."""
        service = resizes(session, self._merges(session))
        for plan in service.plans():
            found = load_service_plan(session.log, plan).resize
            if found is None or partitions.isdisjoint(found.by_partition):
                continue
            try:
                if self._is_too_much(service.input_bytes(plan.requested)):
                    continue
                self._note(service.execute(plan.requested))
            except HudiError as error:
                self._errors[plan.requested] = error

    def _is_too_much(self, size: float) -> bool:
        """True if one plan may not read so many bytes."""
        most = None if self._limits is None else self._limits.input_bytes_max
        return most is not None and size > most

    def _migrate(self, session: TableSession, partition: str) -> None:
        with session.exclusive:
            seed_missing(session, [partition])
            planning = first_ring_planning(session, partition)
            bound = None if self._limits is None else self._limits.input_bytes_max
            preview, planned = planning.schedule(ResizePolicy(input_bytes_max=bound))
        if planned is None:
            self._left[partition] = next((left.why for left in preview.left), "it has changed")
            return
        self._note(resizes(session, self._merges(session)).execute(planned))

    def _note(self, result: ResizeResult | None) -> None:
        if result is not None:
            self._results.append(result)

    def _end(self, session: TableSession) -> None:
        table = self._table
        with table.exclusive:
            commit_nothing(session, "the end of the migration", {MIGRATION_KEY: "done"})
            update_properties(table.storage, migrated_properties, table.world)
            with suppress(HudiError):  # no reader reads what stays
                gone = [found.path for found in table.storage.list(BUCKETS_FOLDER)]
                table.storage.delete_all(gone)
