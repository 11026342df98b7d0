"""Writing in this process: load, decide, act, with plain Arrow and no Spark.

The same task functions (`log_writer`, `base_writer`, `copy_on_write`) run in Spark's executors;
here they run one after the other. Begin, completion and everything else that others can see is the
transaction's, and the decision log's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC

import pyarrow as pa

from pyhudi.engine.buckets import BucketGroups, replaced_for_good
from pyhudi.engine.copy_on_write import rewrite_base
from pyhudi.engine.decide import SHARED_LOCKS, DecisionLog
from pyhudi.engine.gathering import GatheredDeletes, GatheredRows, Place
from pyhudi.engine.load import TableLoader, load_config
from pyhudi.engine.log_writer import write_log
from pyhudi.engine.properties_file import load_properties_file, switch_off_metadata_table
from pyhudi.engine.repair import GRACE_MS, Repair, Repaired
from pyhudi.engine.rollback import FailedWriteRecovery
from pyhudi.engine.timeline_files import load_timeline_file
from pyhudi.engine.transaction import Transaction, preparing
from pyhudi.engine.write_files import (
    DeleteRows,
    KeyedRows,
    WriteSpec,
    create_partition_metadata,
)
from pyhudi.engine.write_ids import TakenOverError, WriteIds
from pyhudi.engine.write_result import WriteResult, commit_metadata, write_result
from pyhudi.errors import ConflictError, InvalidRequestError
from pyhudi.format.bucket_config import SimpleBuckets
from pyhudi.format.commit_metadata import CommitMetadata, WriteStat, decode_commit_metadata
from pyhudi.format.concurrency_mode import ConcurrencyMode
from pyhudi.format.file_names import FileGroupId
from pyhudi.format.instant import Action, Instant, InstantTime
from pyhudi.format.lock_kind import LockKind
from pyhudi.format.table_config import TableConfig, TableType, TimelineTimezone
from pyhudi.index.simple_bucket import bucket_of_file, file_id
from pyhudi.plan.scan import merge_rule
from pyhudi.plan.writable import refuse_unwritable, told_config
from pyhudi.settings import WriteSettings
from pyhudi.storage.open_lock import open_lock
from pyhudi.storage.probe import (
    is_true_by_construction,
    require_true_create,
    require_true_replace,
)
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import BaseFile
from pyhudi.table.snapshot import is_replaced, latest_slice
from pyhudi.timeline.completion import CompletionTimes, visible_now
from pyhudi.timeline.ledger import Ledger
from pyhudi.timeline.timeline import WRITE_ACTIONS
from pyhudi.world import World

SKEW_KEY = "hoodie.time.generator.max_expected_clock_skew_ms"
SKEW_DEFAULT_MS = 200
#: Says that the table's store was put to the test.
PROBED = ".hoodie/.pyhudi/probed"
#: Every so many entries of the log, the writer that made it tidies up behind all of them.
PRUNE_EVERY = 1_000


@dataclass(frozen=True, slots=True)
class _Work:
    """What a write does once its instant has begun; a stat for each file it made."""

    operation: str
    write: Callable[[WriteSpec], list[WriteStat]]
    is_repeatable: bool = True


class LocalWriter:
    """Writes one table from this process, one write at a time."""

    def __init__(
        self,
        storage: Storage,
        world: World,
        settings: WriteSettings,
        *,
        buckets: SimpleBuckets | None = None,
        lock: LockKind | None = None,
    ) -> None:
        self._storage = storage
        self._given = (buckets, lock)
        self._world = world
        self._settings = settings
        self._config: TableConfig | None = None
        self._turn = threading.RLock()  # threads that share a table take turns
        self._properties: bytes | None = None
        self._own: set[str] = set()
        self._schema: tuple[str, str] | None = None  # completion time, Avro JSON

    # -- what a user asks for

    def write(
        self, batches: Iterator[pa.RecordBatch], operation: str, write_id: str | None = None
    ) -> WriteResult:
        """Upsert the rows of a stream, which is read once."""
        with self._turn:
            return self._write(batches, operation, write_id)

    def _write(
        self, batches: Iterator[pa.RecordBatch], operation: str, write_id: str | None
    ) -> WriteResult:
        config = self._open()
        self._recovery.recover(frozenset(self._own))
        spec = self._spec("")
        rows = GatheredRows(config, spec.layout.data)
        is_cow = config.table_type is TableType.COPY_ON_WRITE
        is_whole = rows.fill(batches, None if is_cow else self._settings.buffer_bytes_max)

        def write(spec: WriteSpec) -> list[WriteStat]:
            if is_cow:
                return self._rewrite(spec, dict(rows.kept()), {})
            if is_whole:
                return self._append_logs(spec, rows.partitions(), rows.kept())
            return self._stream_logs(spec, rows, batches)

        return self._commit(_Work(operation, write, is_whole), write_id)

    def delete(
        self, find: Callable[[], GatheredDeletes], write_id: str | None = None
    ) -> WriteResult:
        """Delete what `find` finds, once the instant has begun: what changes later is a conflict.

        It is asked again if the write has to be repeated.
        """
        with self._turn:
            return self._delete(find, write_id)

    def _delete(self, find: Callable[[], GatheredDeletes], write_id: str | None) -> WriteResult:
        config = self._open()
        self._recovery.recover(frozenset(self._own))

        def write(spec: WriteSpec) -> list[WriteStat]:
            deletes = find()
            if config.table_type is TableType.COPY_ON_WRITE:
                return self._rewrite(spec, {}, deletes.groups)
            return self._append_deletes(spec, deletes)

        return self._commit(_Work("DELETE", write), write_id)

    def repair(self, grace_ms: int = GRACE_MS) -> Repaired:
        """Finish what crashed writers began, and remove what they left."""
        with self._turn:
            self._open()
            return Repair(self._log, self._recovery, grace_ms=grace_ms).run(frozenset(self._own))

    def switch_off_metadata_table(self) -> None:
        """Under the table's lock, where it has one that other engines heed."""
        with self._turn:
            config = told_config(load_config(self._storage), *self._given)
            lock = open_lock(config.lock, self._storage, self._world)
            held = None if lock is None else lock.acquire(self._settings.lock_wait_ms)
            try:
                switch_off_metadata_table(self._storage, self._world)
            finally:
                if held is not None:
                    held.release()

    @property
    def config(self) -> TableConfig:
        return self._config if self._config is not None else self._open()

    @property
    def schema(self) -> pa.Schema:
        """The table's columns as the last completed write left them, without meta columns."""
        self._open()
        return self._spec("").layout.data

    # -- opening

    def _open(self) -> TableConfig:
        """The table's properties, which may have changed since the last write."""
        data = load_properties_file(self._storage)
        if self._config is not None and data is not None and data == self._properties:
            return self._config
        config = told_config(load_config(self._storage), *self._given)
        refuse_unwritable(config)
        assert config.buckets is not None
        if self._config is None:
            self._require_true_store(config)
        self._properties, self._config = data, config
        self._loader = TableLoader(self._storage, config)
        self._log = self._decision_log(config)
        self._recovery = FailedWriteRecovery(self._log, self._settings)
        self._write_ids = WriteIds(self._log, self._recovery)
        self._groups = BucketGroups(self._storage, config.buckets.count, self._replaced)
        self._replacements: tuple[str, frozenset[FileGroupId]] = ("", frozenset())
        self._with_metadata: set[str] = set()
        self._has_beginning = False
        self._schema = None
        return config

    def _require_true_store(self, config: TableConfig) -> None:
        """Race for objects, once for each table, unless the storage is true by construction."""
        if is_true_by_construction(self._storage) or self._storage.stat(PROBED) is not None:
            return
        require_true_create(self._storage, self._world)
        if config.lock is LockKind.STORAGE:
            require_true_replace(self._storage, self._world)
        self._storage.create(PROBED, b"")

    def _decision_log(self, config: TableConfig) -> DecisionLog:
        is_shared = config.lock in SHARED_LOCKS
        skew = config.properties.number(SKEW_KEY) or SKEW_DEFAULT_MS
        return DecisionLog(
            self._storage,
            self._world,
            self._settings,
            timeline_folder=self._loader.timeline_folder,
            zone=UTC if config.timezone is TimelineTimezone.UTC else None,
            lock=open_lock(config.lock, self._storage, self._world),
            skew_ms=skew if is_shared else 0,
        )

    # -- one write

    def _commit(self, work: _Work, write_id: str | None) -> WriteResult:
        started = self._world.elapsed_ms()
        if (done := self._finished(write_id, work.operation)) is not None:
            return done
        retries = 0
        while True:
            try:
                return self._attempt(work, write_id, retries, started)
            except ConflictError as error:
                if isinstance(error, TakenOverError):
                    raise
                if retries >= self._settings.conflict_retries or not work.is_repeatable:
                    raise
                retries += 1

    def finished(self, write_id: str | None, operation: str) -> WriteResult | None:
        """The result of an earlier attempt with this id that completed."""
        with self._turn:
            self._open()
            return self._finished(write_id, operation)

    def _finished(self, write_id: str | None, operation: str) -> WriteResult | None:
        if write_id is None:
            return None
        done = self._write_ids.completed(write_id, operation)
        return None if done is None else self._result_of(done)

    def _attempt(
        self, work: _Work, write_id: str | None, retries: int, started: int
    ) -> WriteResult:
        if retries or write_id is not None:  # others went on, or an attempt was given up
            self._recovery.recover(frozenset(self._own))
        self._make_beginning()
        with self._begun() as transaction:
            if write_id is not None:
                done = self._write_ids.register(write_id, transaction.requested, work.operation)
                if done is not None:
                    transaction.abandon()
                    return self._result_of(done)
            spec = self._spec(transaction.requested)
            stats = work.write(spec)
            metadata = commit_metadata(stats, spec, work.operation, write_id)
            completed = transaction.complete(metadata, is_checked=self._is_checked)
        self._schema = (completed, spec.avro_schema)
        if transaction.number % PRUNE_EVERY < 2:
            Repair(self._log, self._recovery).prune()
        return write_result(
            transaction.requested,
            completed,
            stats,
            retries,
            (self._world.elapsed_ms() - started) / 1000,
        )

    def _make_beginning(self) -> None:
        """Let the table have a completed write before the first one that has data files.

        Readers count a file that is older than all writes of the timeline as committed, and a
        first write that was given up may still leave one.
        """
        writes = (i for i in self._log.ledger.completed.values() if i.action in WRITE_ACTIONS)
        if not self._has_beginning and next(writes, None) is None:
            with self._begun() as transaction, preparing("the table"):
                metadata = commit_metadata([], self._spec(transaction.requested), "UPSERT")
                transaction.complete(metadata, is_checked=False)
        self._has_beginning = True

    @contextmanager
    def _begun(self) -> Iterator[Transaction]:
        transaction = Transaction(self._log, self._settings, self._action, self._recovery)
        self._own.add(transaction.requested)
        try:
            yield transaction
        except BaseException:
            transaction.abandon()  # unless its completion was asked for: then the log knows
            raise
        finally:
            self._own.discard(transaction.requested)

    @property
    def _action(self) -> Action:
        is_cow = self.config.table_type is TableType.COPY_ON_WRITE
        return Action.COMMIT if is_cow else Action.DELTACOMMIT

    @property
    def _is_checked(self) -> bool:
        """Whether writes of file groups that overlap conflict. Logs of an NBCC table never do."""
        return self.config.concurrency is not ConcurrencyMode.NON_BLOCKING

    def _result_of(self, done: Instant) -> WriteResult:
        """The result of an attempt that completed earlier."""
        stats = [s for group in self._metadata(done).write_stats.values() for s in group]
        assert done.completed is not None
        return write_result(done.requested, done.completed, stats, 0, 0.0)

    # -- schema

    def _spec(self, requested: str) -> WriteSpec:
        return WriteSpec(
            requested=InstantTime(requested),
            avro_schema=self._current_schema(),
            block_format=self._settings.log_block_format,
            log_file_bytes_max=self._settings.log_file_bytes_max,
        )

    def _current_schema(self) -> str:
        since, known = self._schema or ("", "")
        config = self.config
        skipped = {Action.COMMIT} if config.table_type is TableType.MERGE_ON_READ else set()
        for instant in reversed(self._log.ledger.completed_after(since)):
            if instant.action not in WRITE_ACTIONS - skipped:
                continue
            if schema := self._metadata(instant).schema_json:
                self._schema = (instant.completed or "", schema)
                return schema
        if known or config.create_schema:
            return known or config.create_schema or ""
        raise InvalidRequestError(
            f"the table at {self._storage.uri} cannot be written yet",
            why="no write has given it a schema, and its properties have none",
            next_step="Write it once with Apache Hudi, or create it with create_table",
        )

    def _replaced(self, ledger: Ledger) -> frozenset[FileGroupId]:
        """The file groups that replace commits took out of the table."""
        since, groups = self._replacements
        for instant in ledger.completed_after(since):
            if instant.action is Action.REPLACECOMMIT:
                groups |= {
                    FileGroupId(partition, file_id)
                    for partition, ids in self._metadata(instant).replaced_file_ids.items()
                    for file_id in ids
                }
            since = instant.completed or since
        self._replacements = (since, groups)
        return groups

    def _metadata(self, instant: Instant) -> CommitMetadata:
        path = self._log.path(instant)
        return decode_commit_metadata(load_timeline_file(self._storage, path), path)

    # -- merge on read: logs

    def _prepare(self, partitions: list[str]) -> None:
        self._groups.prepare(
            partitions,
            lambda: self._log.ledger,
            lambda: Transaction(self._log, self._settings, self._action, self._recovery),
            self._spec,
        )

    def _append_logs(
        self, spec: WriteSpec, partitions: list[str], groups: Iterator[tuple[Place, KeyedRows]]
    ) -> list[WriteStat]:
        self._prepare(partitions)
        return [stat for place, rows in groups for stat in self._log_files(spec, place, rows)]

    def _log_files(
        self, spec: WriteSpec, place: Place, rows: KeyedRows, ordinal: int = 0, more: bool = False
    ) -> tuple[WriteStat, ...]:
        group = FileGroupId(place[0], self._groups(*place))
        return write_log(self._storage, spec, group, rows=rows, ordinal=ordinal, more=more)

    def _stream_logs(
        self, spec: WriteSpec, rows: GatheredRows, batches: Iterator[pa.RecordBatch]
    ) -> list[WriteStat]:
        """More rows than memory holds: half of them are put out whenever it is full."""
        stats: list[WriteStat] = []
        ordinals: dict[Place, int] = {}
        most = self._settings.buffer_bytes_max
        is_whole = False
        while not is_whole:
            self._prepare(rows.partitions())
            for place, taken in rows.taken(most // 2):
                made = self._log_files(spec, place, taken, ordinals.get(place, 0), more=True)
                stats += made
                ordinals[place] = ordinals.get(place, 0) + len(made)
            is_whole = rows.fill(batches, most)
        self._prepare(rows.partitions())
        for place, taken in rows.taken():
            stats += self._log_files(spec, place, taken, ordinals.get(place, 0))
        return stats

    def _append_deletes(self, spec: WriteSpec, deletes: GatheredDeletes) -> list[WriteStat]:
        self._prepare(deletes.partitions())
        stats: list[WriteStat] = []
        for place, keys in sorted(deletes.groups.items(), key=lambda item: item[0]):
            group = FileGroupId(place[0], self._groups(*place))
            stats += write_log(self._storage, spec, group, deletes=keys)
        return stats

    # -- copy on write: base files

    def _rewrite(
        self,
        spec: WriteSpec,
        rows: Mapping[Place, KeyedRows],
        deletes: Mapping[Place, DeleteRows],
    ) -> list[WriteStat]:
        bases = self._current_bases()
        rule = merge_rule(self.config)
        stats = []
        for place in sorted({*rows, *deletes}):
            previous = bases.get(place)
            if previous is None and place not in rows:
                continue  # nothing there to delete
            partition, bucket = place
            if partition not in self._with_metadata:
                create_partition_metadata(self._storage, partition, spec.requested)
                self._with_metadata.add(partition)
            id_ = previous.name.file_id if previous else file_id(bucket)
            group = FileGroupId(partition, id_)
            if group in self._replaced(self._log.ledger):
                raise replaced_for_good([group])
            stats.append(
                rewrite_base(
                    self._storage,
                    spec,
                    group,
                    previous,
                    rows=rows.get(place),
                    deletes=deletes.get(place),
                    rule=rule,
                )
            )
        return stats

    def _current_bases(self) -> dict[Place, BaseFile]:
        """The base file of each bucket. Called after the instant began: what completes from then
        on is found by the check for conflicts."""
        state = self._loader.load()
        times, now = CompletionTimes(state.timeline), visible_now(state.timeline)
        bases = {}
        for group in state.groups():
            if is_replaced(group, state.replaced, now):
                continue
            found = latest_slice(group, times, now)
            if found is not None and found.base is not None:
                bases[group.partition, bucket_of_file(group.file_id)] = found.base
        return bases
