"""A write whose begin, tasks and end run in processes that share no memory.

    one process     begins the instant and returns a `DetachedWrite`, which is sent to the others
    many tasks      write logs (`run_task`), each under names of its own
    one process     completes the write (`complete`), or abandons it (`abandon`)

The rows are not shuffled, so any task may have rows of any bucket. Each task has a write token of
its own, which all its attempts share. So all attempts of a task use one name, and no two tasks do.

**No process renews the heartbeat all the time.** So every task renews it while it runs, and so does
the process that completes the write. They replace the heartbeat and never create it: tasks may
outlive the write, and a heartbeat that came back would let them in (`storage.objects.write_fence`).
While no task runs yet, the write is as silent as a dead one, and other writers may roll it back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

import pyarrow as pa

from pyhudi.commit.early_evidence import Evidence
from pyhudi.commit.proposals import Refused, Rule, refusal_error
from pyhudi.commit.transaction import Lost, Transaction
from pyhudi.commit.validation import SchemaConflict
from pyhudi.conflict.early_strategies import by_tasks_alone
from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import WriteToken
from pyhudi.format.table.bucket_config import BUCKET_COUNT
from pyhudi.format.table.bucket_migration import MigratingBuckets, is_outdated
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.progress import ProgressBoard
from pyhudi.session.lock_setting import difference
from pyhudi.session.open import OpenTable, Overrides
from pyhudi.session.session import TableSession
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.objects.write_fence import raise_fence, remove_fence
from pyhudi.storage.protocol import ObjectStat, Storage
from pyhudi.world import World
from pyhudi.write.begin import make_beginning, write_spec
from pyhudi.write.buffer import RowBuffer
from pyhudi.write.column_owners import refuse_joined
from pyhudi.write.complete import complete as complete_write
from pyhudi.write.early.start import announced_by, early_check
from pyhudi.write.files.announcing import MetRivalError
from pyhudi.write.intent import Reads, WriteIntent
from pyhudi.write.plan import Prepared, WritePlan, finish, plan_write
from pyhudi.write.rebase import rebased_logs
from pyhudi.write.result import WriteResult, write_result
from pyhudi.write.schemas import schemas_at_begin
from pyhudi.write.spill import spilled_deletes, spilled_logs
from pyhudi.write.tasks import DeleteTask, RowsTask
from pyhudi.write.watch import Watch
from pyhudi.write.write import written
from pyhudi.write.write_id import finished, registered


@dataclass(frozen=True, slots=True)
class DetachedWrite:
    """A write that has begun: all that its other processes have to know. It is sent to them."""

    plan: WritePlan
    settings: WriteSettings
    number: int  # of the begin's entry in the decision log
    pending: tuple[str, ...]  # writes that were pending when it began
    evidence: Evidence | None = None  # what there may be of it beside its markers

    @property
    def requested(self) -> str:
        return self.plan.spec.requested

    @property
    def storage(self) -> Storage:
        return self.plan.files.storage

    def table(self, world: World) -> OpenTable:
        """Open the table in this process, with the lock that is recorded since the write began."""
        config = self.plan.files.config
        given = None if BUCKET_COUNT in config.properties.values else config.buckets
        assert not isinstance(given, MigratingBuckets), "a migration is recorded"
        return OpenTable(self.storage, world, self.settings, Overrides(given))


# ---- the begin


def begin(session: TableSession, intent: WriteIntent) -> DetachedWrite | WriteResult:
    """Begin a write, or return the result of the one that completed with its write id."""
    refuse_joined(session.config, "a save")
    if (done := finished(session, intent)) is not None:
        return done
    if intent.write_id is not None:
        session.recover()  # an earlier attempt may just have been rolled back
    make_beginning(session)
    transaction = Transaction.begin(
        session.log, session.settings, session.action, session.recovery, is_fenced=True
    )
    try:
        if (done := registered(session, transaction, intent)) is not None:
            return done
        schemas = schemas_at_begin(session, intent.rows)
        if isinstance(schemas, SchemaConflict):
            transaction.lost_to_schema(schemas).or_raise()
        spec = write_spec(session, transaction.requested, schemas.own, is_fenced=True)
        early = early_check(
            session,
            transaction,
            intent,
            can_rebase=_has_rows(session, intent),
            are_sent=True,
            looks_as=by_tasks_alone,
        )
        spec = replace(spec, announcing=announced_by(early, spec.announcing, session.config))
        plan = plan_write(session, intent, spec, schemas, Prepared())
    except BaseException:
        transaction.abandon()
        raise
    transaction.leave()
    pending = tuple(session.log.live.pending)
    evidence = transaction.evidence
    return DetachedWrite(plan, session.settings, transaction.number, pending, evidence)


# ---- the tasks


def run_task(
    write: DetachedWrite, task: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[WriteStat]:
    """Write the rows of one task as logs. Whenever memory is full, half of the buffer is spilled.

    All attempts of the task have the same write token.
    """
    planned, bytes_max = write.plan.task, write.settings.buffer_bytes_max
    spec = replace(write.plan.spec, write_token=WriteToken(task, 0, 0).text)
    files = replace(write.plan.files, spec=spec)
    if isinstance(planned, DeleteTask):
        yield from spilled_deletes(files, planned.shape, batches, bytes_max)
        return
    assert isinstance(planned, RowsTask)
    rows = RowBuffer(planned.shape)
    is_whole = rows.fill(batches, bytes_max)
    yield from spilled_logs(files, rows, () if is_whole else batches, bytes_max)


# ---- the heartbeat


@contextmanager
def renewing_heartbeat(write: DetachedWrite, world: World) -> Iterator[None]:
    """Renew the write's heartbeat during the block, if it exists."""
    renewal = _HeartbeatRenewal(write.storage, heartbeat_path(write.requested))
    renewal.renew()
    # A check does not renew if another process just has, so a renewal may take two checks.
    stop = world.every(max(1, write.settings.heartbeat_interval_ms // 4), renewal.check)
    try:
        yield
    finally:
        stop()


class _HeartbeatRenewal:
    """Renews a heartbeat that several processes renew."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._seen: ObjectStat | None = None

    def renew(self) -> None:
        self._seen = found = self._storage.stat(self._path)
        if found is not None and found.etag is not None:
            self._storage.replace(self._path, b"", etag=found.etag)

    def check(self) -> None:
        """Renew the heartbeat if no process has since the last check."""
        try:
            seen, self._seen = self._seen, self._storage.stat(self._path)
            if self._seen == seen:
                self.renew()
        except HudiError:
            return  # the next check may succeed; if none does, other writers find the write silent


# ---- the end


def complete(write: DetachedWrite, table: OpenTable, stats: Sequence[WriteStat]) -> WriteResult:
    """Make what the tasks wrote visible; on any error, abandon the write instead.

    `table` is the table as this process has it open (`DetachedWrite.table`).
    """
    world, plan, intent = table.world, write.plan, write.plan.intent
    started = world.elapsed_ms()
    with renewing_heartbeat(write, world):
        session, transaction = _resumed(write, table)
        has_rows = _has_rows(session, intent)
        try:
            _require_same_lock(write, session)
            if is_outdated(plan.files.config.buckets, session.config.buckets):
                if not has_rows:
                    raise _is_migrating(write)
                return _written_again(table, session, write, transaction, stats)
            stats = finish(session, plan, list(stats))
            done = complete_write(session, transaction, plan, stats, keeps_files=has_rows)
            ended, files = done.outcome, done.files
            if isinstance(ended, Lost) and ended.keeps_files and not ended.is_counted:
                return _written_again(table, session, write, transaction, files.stats)
            completed = ended.or_raise()
        except BaseException:
            transaction.abandon()
            raise
    seconds = (world.elapsed_ms() - started) / 1000
    result = write_result(write.requested, completed.time, files.stats, 0, seconds)
    return replace(result, recommits=len(completed.behind), moved=files.moved)


def _has_rows(session: TableSession, intent: WriteIntent) -> bool:
    """True if the rows of the input are the rows of the write's files."""
    return session.is_mor and intent.adds_rows and intent.reads is Reads.NOTHING


def _written_again(
    table: OpenTable,
    session: TableSession,
    write: DetachedWrite,
    lost: Transaction,
    stats: Sequence[WriteStat],
) -> WriteResult:
    """Write the rows again in this process, since a resize or a migration has overtaken the write.

    Other conflicts are left to the caller, who can write again. These are nothing that he has to
    know of.
    """
    session.own.add(write.requested)
    executor = _FromFiles(stats, write.settings.buffer_bytes_max)
    with ProgressBoard(None, table.world) as board:
        result = written(table, session, write.plan.intent, executor, board)
    lost.abandon()  # its files are no longer needed
    return result


class _FromFiles:
    """Writes the rows of a write that was lost, and whose instant stays until it is abandoned."""

    is_fenced = False
    can_repeat = True
    can_rebase = False
    buffered = None
    partitions = ()
    sizes: Mapping[str, float] = MappingProxyType({})

    def __init__(self, stats: Sequence[WriteStat], bytes_max: int) -> None:
        self._stats = stats
        self._bytes_max = bytes_max

    def run(self, plan: WritePlan, watch: Watch) -> list[WriteStat]:
        return list(rebased_logs(plan, self._stats, self._bytes_max))

    def rebase(self, plan: WritePlan, stats: Sequence[WriteStat]) -> list[WriteStat]:
        raise NotImplementedError("it can be repeated")


def _require_same_lock(write: DetachedWrite, session: TableSession) -> None:
    if (change := difference(session.config, write.plan.files.config)) is not None:
        refused = Refused(Rule.OTHER_LOCK, detail=change)
        raise refusal_error(refused, write.storage.uri, write.requested)


def _is_migrating(write: DetachedWrite) -> HudiError:
    return refusal_error(Refused(Rule.MIGRATING), write.storage.uri, write.requested)


def abandon(write: DetachedWrite, world: World) -> None:
    """Abandon the write, unless its end has been decided. Repeating the call does no harm."""
    storage, requested = write.storage, write.requested
    session, transaction = _resumed(write, write.table(world))
    if requested in session.log.live.pending:
        raise_fence(storage, requested)  # tasks that still run can stop
        transaction.abandon()
    if storage.stat(heartbeat_path(requested)) is None:
        remove_fence(storage, requested)


def stopped(write: DetachedWrite, world: World, refusal: HudiError) -> HudiError:
    """Abandon the write, which a task refused to go on with; return the error for its caller."""
    if isinstance(refusal, MetRivalError):
        session, transaction = _resumed(write, write.table(world))
        watch = Watch(session, transaction, write.plan.intent, can_rebase=False)
        refusal = watch.yielded(refusal.met, ()).error
    abandon(write, world)
    return refusal


def _resumed(write: DetachedWrite, table: OpenTable) -> tuple[TableSession, Transaction]:
    session = table.session()
    log = session.log
    log.read_from(write.number)
    log.refresh()
    begun = (write.requested, write.number)
    transaction = Transaction.resume(
        log, write.settings, session.action, session.recovery, begun, write.pending
    )
    transaction.leaves(write.evidence)
    return session, transaction
