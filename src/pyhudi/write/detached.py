"""A write whose beginning, tasks and end run in processes that know nothing of each other.

    one process     begins the instant and hands out a `DetachedWrite`, which travels
    many tasks      write logs, each under names of its own (`write_rows`, `write_deletes`)
    one process     completes the write (`complete`), or gives it up (`abandon`)

Nobody shuffled the rows, so any task may have rows of any bucket. Each task has a write token of
its own, which all its attempts share: they meet on one name, and two tasks never do.

**Nobody beats in the background** of all this, so every task does while it runs, and whoever
completes the write. A beat replaces the heartbeat and never creates it: tasks may outlive the
write, and a heartbeat that came back would let them in (`storage.objects.write_fence`).
While no task runs yet the write is as silent as a dead one, and others may give it up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from pyhudi.commit.proposals import Refused, Rule, refusal_error
from pyhudi.commit.transaction import Transaction
from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import WriteToken
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.session.lock_setting import difference
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.objects.write_fence import raise_fence, remove_fence
from pyhudi.storage.protocol import ObjectStat, Storage
from pyhudi.world import World
from pyhudi.write.buffer import RowBuffer
from pyhudi.write.column_owners import refuse_joined
from pyhudi.write.deletes import keyed_rows
from pyhudi.write.group_files import Files
from pyhudi.write.intent import WriteIntent
from pyhudi.write.plan import WritePlans
from pyhudi.write.result import WriteResult, write_result
from pyhudi.write.spill import SpillingLogWriter, spilled_logs
from pyhudi.write.writer import TableWriter


@dataclass(frozen=True, slots=True)
class DetachedWrite:
    """A write that has begun: all that its other processes have to know. It travels."""

    files: Files
    settings: WriteSettings
    number: int  # of the begin's entry in the decision log
    intent: WriteIntent
    pending: tuple[str, ...]  # writes that were under way when it began

    @property
    def requested(self) -> str:
        return self.files.spec.requested

    def writer(self, world: World) -> TableWriter:
        """The table, opened anew in this process, with the lock that it tells since it began."""
        buckets = self.files.config.buckets
        return TableWriter(self.files.storage, world, self.settings, buckets=buckets)

    def of_task(self, task: int) -> DetachedWrite:
        """The write as one of its tasks does it; the same for each attempt of the task."""
        spec = replace(self.files.spec, write_token=WriteToken(task, 0, 0).text)
        return replace(self, files=replace(self.files, spec=spec))


# ---- the beginning


def begin(writer: TableWriter, intent: WriteIntent) -> DetachedWrite | WriteResult:
    """Begin a write, or return the result of the one that completed with its write id."""
    config = writer.ready()
    refuse_joined(config, "a save")
    if (done := writer.finished(intent)) is not None:
        return done
    if intent.write_id is not None:
        writer.recovery.recover()  # an earlier attempt may just have been given up
    writer.make_beginning()
    transaction = Transaction.begin(
        writer.log, writer.settings, writer.action, writer.recovery, is_fenced=True
    )
    try:
        if (done := writer.registered(transaction, intent)) is not None:
            return done
        spec = replace(writer.spec(transaction.requested), is_fenced=True)
        files = Files(writer.storage, spec, config, writer.routing())
    except BaseException:
        transaction.abandon()
        raise
    transaction.leave()
    pending = tuple(writer.log.live.pending)
    return DetachedWrite(files, writer.settings, transaction.number, intent, pending)


# ---- the tasks


def write_rows(write: DetachedWrite, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    """Write a task's rows as logs, half of what is held whenever memory is full."""
    most = write.settings.buffer_bytes_max
    rows = RowBuffer(write.files.config, write.files.spec.layout.data)
    is_whole = rows.fill(batches, most)
    yield from spilled_logs(write.files, rows, () if is_whole else batches, most)


def write_deletes(write: DetachedWrite, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    """Write deletes of a task's keys, which come with all that a delete needs."""
    files, most = write.files, write.settings.buffer_bytes_max
    logs = SpillingLogWriter(files)
    held: list[pa.Table] = []
    for batch in batches:
        held.append(keyed_rows(batch, files.spec.layout.data, files.config))
        if sum(keys.nbytes for keys in held) >= most:
            yield from logs.add_deletes(pa.concat_tables(held), more=True)
            held = []
    if held:
        yield from logs.add_deletes(pa.concat_tables(held), more=False)


# ---- signs of life


@contextmanager
def beating(write: DetachedWrite, world: World) -> Iterator[None]:
    """Keep the write's heartbeat young, if it is there."""
    beats = _Beats(write.files.storage, heartbeat_path(write.requested))
    beats.beat()
    # A look that finds another's beat leaves it at that, so two looks may be one beat.
    stop = world.every(max(1, write.settings.heartbeat_interval_ms // 4), beats.look)
    try:
        yield
    finally:
        stop()


class _Beats:
    """Beats of one process among many that keep up the same heartbeat."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._seen: ObjectStat | None = None

    def beat(self) -> None:
        self._seen = found = self._storage.stat(self._path)
        if found is not None and found.etag is not None:
            self._storage.replace(self._path, b"", etag=found.etag)

    def look(self) -> None:
        """Beat if nobody has since the last look."""
        try:
            seen, self._seen = self._seen, self._storage.stat(self._path)
            if self._seen == seen:
                self.beat()
        except HudiError:
            return  # the next look may get through; if none does, others find the write silent


# ---- the end


def complete(write: DetachedWrite, world: World, stats: Sequence[WriteStat]) -> WriteResult:
    """Make what the tasks wrote visible; on any error it is given up instead."""
    started = world.elapsed_ms()
    with beating(write, world):
        writer, transaction = _taken_up(write, world)
        try:
            _require_same_lock(write, writer)
            spec = write.files.spec
            stats = WritePlans(writer).opened(list(stats))
            completed = writer.publish(transaction, spec, stats, write.intent).or_raise()
        except BaseException:
            transaction.abandon()
            raise
    writer.prune(transaction)
    seconds = (world.elapsed_ms() - started) / 1000
    result = write_result(write.requested, completed.time, stats, 0, seconds)
    return replace(result, recommits=len(completed.behind))


def _require_same_lock(write: DetachedWrite, writer: TableWriter) -> None:
    if (change := difference(writer.config, write.files.config)) is not None:
        refused = Refused(Rule.OTHER_LOCK, detail=change)
        raise refusal_error(refused, write.files.storage.uri, write.requested)


def abandon(write: DetachedWrite, world: World) -> None:
    """Give the write up, unless its end has been decided; harmless when repeated."""
    storage, requested = write.files.storage, write.requested
    writer, transaction = _taken_up(write, world)
    if requested in writer.log.live.pending:
        raise_fence(storage, requested)  # tasks that still run need not go on
        transaction.abandon()
    if storage.stat(heartbeat_path(requested)) is None:
        remove_fence(storage, requested)


def _taken_up(write: DetachedWrite, world: World) -> tuple[TableWriter, Transaction]:
    writer = write.writer(world)
    writer.open()
    writer.log.read_from(write.number)
    writer.log.refresh()
    begun = (write.requested, write.number)
    log, recovery = writer.log, writer.recovery
    return writer, Transaction.resume(
        log, write.settings, writer.action, recovery, begun, write.pending
    )
