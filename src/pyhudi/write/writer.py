"""Writing a table: opening it for writing, one write after the other, and each to its end.

What all engines share: the table's configuration and schema as they are now, the decision log, the
file groups of buckets, the life of an instant and its repetition after a conflict. Which rows go
where, and what makes the files, is the work that an engine hands to `commit`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from pyhudi.commit.log import DecisionLog
from pyhudi.commit.pruning import prune
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.commit.transaction import Completed, Lost, Transaction, preparing
from pyhudi.commit.validation import KnownLayout
from pyhudi.commit.write_ids import WriteIds
from pyhudi.errors import HudiError, InvalidRequestError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.lock.lock_address import LockAddress
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import BUCKET_COUNT, SimpleBuckets
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.table_config import TableConfig, TableType
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.index.layout import SimpleRule
from pyhudi.index.routing import Routing
from pyhudi.progress import Listener, ProgressBoard
from pyhudi.read.load import TableLoader
from pyhudi.read.lost_files import refuse_known_losses
from pyhudi.read.schema import RecordedSchema, avro_in_force, last_recorded
from pyhudi.session.open import OpenTable, Overrides
from pyhudi.session.session import TableSession
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.progress import Totals
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import FileSlice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes
from pyhudi.timeline.live import LiveTimeline
from pyhudi.timeline.timeline import WRITE_ACTIONS
from pyhudi.world import World
from pyhudi.write.files.spec import WriteSpec, refuse_unknown
from pyhudi.write.intent import WriteIntent
from pyhudi.write.result import WriteResult, commit_metadata, write_result
from pyhudi.write.retry import Attempts, Work
from pyhudi.write.seeds import BucketGroups, latest_slices, replaced_for_good

#: Every so many entries of the log, the writer that made it tidies up behind all of them.
PRUNE_EVERY = 1_000


class TableWriter:
    """Writes one table from this process, one write at a time."""

    def __init__(
        self,
        storage: Storage,
        world: World,
        settings: WriteSettings,
        *,
        buckets: SimpleBuckets | None = None,
        lock: LockKind | None = None,
        lock_address: LockAddress | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.storage = storage
        self.listener = listener
        self.board = ProgressBoard(None, world)
        self.world = world
        self.settings = settings
        self.opening = OpenTable(storage, world, settings, Overrides(buckets, lock, lock_address))
        self._session: TableSession | None = None
        self.turn = threading.RLock()  # threads that share a table take turns
        self._own: set[str] = set()
        self._is_looking = False
        self._schema: RecordedSchema | None = None  # the last one that a commit recorded
        self._state: TableState | None = None
        #: Services that come with each write: its result, and Spark's session if it was Spark's.
        self.after_commit: Callable[[WriteResult, Any], None] = lambda *_: None

    @property
    def session(self) -> TableSession:
        """The table as it was opened last."""
        if self._session is None:
            self.open()
        assert self._session is not None
        return self._session

    @property
    def config(self) -> TableConfig:
        known = self.opening.known(is_read_only=self._is_looking)
        return self.open() if known is None else known.config

    @property
    def log(self) -> DecisionLog:
        return self.session.log

    @property
    def loader(self) -> TableLoader:
        return self.session.loader

    @property
    def recovery(self) -> FailedWriteRecovery:
        return self.session.recovery

    @property
    def schema(self) -> pa.Schema:
        """The table's columns as the last completed write left them, without meta columns."""
        self.open()
        return self.spec("").layout.data

    # -- opening

    def open(self) -> TableConfig:
        """Open the table under its properties as they are now; return its configuration."""
        self._adopt(self.opening.session(is_read_only=self._is_looking))
        return self.session.config

    def _adopt(self, session: TableSession) -> None:
        """Work under that session; what was known under other properties counts no more."""
        known, self._session = self._session, session
        if known is not None and known.config is session.config:
            return
        self.groups = BucketGroups(self.storage, session.config, self.replaced)
        self._replacements: tuple[str, frozenset[FileGroupId]] = ("", frozenset())
        self.with_metadata: set[str] = set()  # partitions that have their metadata file
        self._has_beginning = False
        self._schema = None
        self._state = None

    def ready(self) -> TableConfig:
        """Open the table for a write, with what failed writers left out of the way."""
        config = self.open()
        self.recover()
        return config

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Work in a read-only session, for a dry run."""
        with self.turn:
            before = self._session
            self._is_looking = True
            try:
                yield
            finally:
                self._is_looking = False
                self._session = before

    # -- one write

    def in_turn(self, write: Callable[[], WriteResult], spark: Any = None) -> WriteResult:
        """One write, and what comes with it. Services may take long: other threads go on then."""
        with self.turn, ProgressBoard(self.listener, self.world) as self.board:
            result = write()
        self.after_commit(result, spark)
        return result

    def commit(self, work: Work) -> WriteResult:
        if (done := self._finished(work.intent)) is not None:
            return done
        result = Attempts(self, work, self.board.began_ms).run()
        self.board.set_totals(result)
        return result

    @property
    def own(self) -> frozenset[str]:
        """The instants that this process works on: no repair gives them up."""
        return frozenset(self._own)

    def failed(self) -> tuple[str, ...]:
        """What `recover` would give up, by a look that changes nothing."""
        return self.recovery.failed(self.own)

    def recover(self) -> tuple[str, ...]:
        """Give up what failed writers left; their instants."""
        return self.recovery.recover(self.own)

    def is_under_way(self, requested: str) -> bool:
        """Whether the write has neither ended nor been given up, as far as we know."""
        live = self.log.live
        return requested in live.pending and requested not in live.rolled_back_by

    def start_over(self) -> None:
        """What was counted so far is to be done again."""
        self.board.set_totals(Totals())

    def noted(self, stats: Iterable[WriteStat]) -> Iterator[WriteStat]:
        """The stats, which whoever watches the write is told of."""
        for stat in stats:
            self.board.add(rows=stat.rows_written, bytes=stat.total_write_bytes or 0, files=1)
            yield stat

    def finished(self, intent: WriteIntent) -> WriteResult | None:
        """Return the result of an earlier attempt with the write's id that completed."""
        with self.turn:
            self.open()
            return self._finished(intent)

    def _finished(self, intent: WriteIntent) -> WriteResult | None:
        if intent.write_id is None:
            return None
        write_ids = WriteIds(self.log, self.recovery)
        done = write_ids.completed(intent.write_id, intent.operation)
        return None if done is None else self._result_of(done)

    def registered(self, transaction: Transaction, intent: WriteIntent) -> WriteResult | None:
        """Register the write under its id; the result of the one that completed, if one did."""
        if intent.write_id is None:
            return None
        done = WriteIds(self.log, self.recovery).register(
            intent.write_id, transaction.requested, intent.operation, self.own
        )
        if done is None:
            return None
        transaction.abandon()
        return self._result_of(done)

    def publish(
        self,
        transaction: Transaction,
        spec: WriteSpec,
        stats: Collection[WriteStat],
        intent: WriteIntent,
        *,
        keeps_files: bool = False,
    ) -> Completed | Lost:
        """Complete a write that made these files."""
        if spec.is_fenced:
            refuse_unknown(transaction.close([stat.data_path for stat in stats]))
        metadata = commit_metadata(stats, spec, intent.operation, intent.write_id)
        checks = replace(
            intent.checks(stats, keeps_files=keeps_files),
            is_checked=self._is_checked or intent.is_checked,
            layout=self._layout(stats) if self._is_shared else None,
            are_closed=partial(self._are_closed, opens_all=self.is_mor and intent.replaces is None),
            strategy=self.config.conflict_strategy,
        )
        ended = transaction.complete(metadata, checks)
        if isinstance(ended, Completed):
            time = InstantTime(ended.time)
            done = Instant(spec.requested, transaction.action, State.COMPLETED, time)
            self._schema = RecordedSchema(done, spec.avro_schema)
        return ended

    def prune(self, transaction: Transaction) -> None:
        """Now and then, tidy up behind all writers; the write itself has completed."""
        if transaction.number % PRUNE_EVERY < 2:
            with suppress(HudiError):  # the next one does
                prune(self.log)

    def make_beginning(self) -> None:
        """Let the table have a completed write before the first one that has data files.

        Readers count a file that is older than all writes of the timeline as committed, and a
        first write that was given up may still leave one.
        """
        writes = (i for i in self.log.live.completed.values() if i.action in WRITE_ACTIONS)
        if not self._has_beginning and next(writes, None) is None:
            self.commit_nothing("the table")
        self._has_beginning = True

    def commit_nothing(self, what: str) -> None:
        """Commit a write without rows, for what is to be prepared by it."""
        with self.begun() as transaction, preparing(what):
            metadata = commit_metadata([], self.spec(transaction.requested), "UPSERT")
            transaction.complete(metadata).or_raise()

    @contextmanager
    def begun(self, *, is_fenced: bool = False) -> Iterator[Transaction]:
        transaction = Transaction.begin(
            self.log, self.settings, self.action, self.recovery, is_fenced=is_fenced
        )
        self._own.add(transaction.requested)
        try:
            yield transaction
        except BaseException:
            transaction.abandon()  # unless its completion was asked for: then the log knows
            raise
        finally:
            self._own.discard(transaction.requested)

    @property
    def action(self) -> Action:
        return Action.DELTACOMMIT if self.is_mor else Action.COMMIT

    @property
    def is_mor(self) -> bool:
        return self.config.table_type is TableType.MERGE_ON_READ

    @property
    def _is_checked(self) -> bool:
        """Whether writes of file groups that overlap conflict. Logs of an NBCC table never do."""
        return self.config.concurrency is not ConcurrencyMode.NON_BLOCKING

    def _result_of(self, done: Instant) -> WriteResult:
        """The result of an attempt that completed earlier."""
        stats = [s for group in self._metadata(done).write_stats.values() for s in group]
        assert done.completed is not None
        return write_result(done.requested, done.completed, stats, 0, 0.0, repeated=True)

    # -- schema

    def spec(self, requested: str) -> WriteSpec:
        return WriteSpec(
            requested=InstantTime(requested),
            avro_schema=self._current_schema(),
            block_format=self.settings.log_block_format,
            log_file_bytes_max=self.settings.log_file_bytes_max,
        )

    def _current_schema(self) -> str:
        config, known = self.config, self._schema
        live = self.log.live
        if known is not None and not live.is_committed(known.instant.requested):
            known = None  # a restore undid it
        since = "" if known is None else known.instant.completed or ""
        new = live.completed_after(since)
        self._schema = known = last_recorded(new, live.began_as, self._metadata, known)
        if known is not None:
            return known.avro_json
        is_first = not any(i.action in WRITE_ACTIONS for i in live.completed.values())
        found = config.create_schema if is_first else avro_in_force(self.loader, self.state())
        if found:
            return found
        raise InvalidRequestError(
            f"the table at {self.storage.uri} cannot be written yet",
            why="no write has given it a schema, and its properties have none",
            next_step="Write it once with Apache Hudi, or create it with create_table",
        )

    def replaced(self, live: LiveTimeline) -> frozenset[FileGroupId]:
        """The file groups that replace commits took out of the table."""
        since, groups = self._replacements
        for instant in live.completed_after(since):
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
        return self.loader.metadata(instant, self.log.metadata(instant.requested))

    # -- file groups

    def prepare(self, partitions: Collection[str], opened: Collection[FileGroupId] = ()) -> None:
        """Make sure that every bucket has a committed file, but for those that this write opens."""
        self.groups.prepare(
            partitions,
            lambda: self.log.live,
            lambda: Transaction.begin(self.log, self.settings, self.action, self.recovery),
            self.spec,
            opened=opened,
        )

    def routing(self, groups: Iterable[FileGroupId] | None = None) -> Routing:
        """Return where rows go, by the file groups of the table if they are given or matter.

        Without other engines every bucket has the file id that our writers give it.
        """
        has_own_ids = BUCKET_COUNT not in self.config.properties.values or self._is_shared
        if groups is None:
            groups = self.current_slices() if has_own_ids else ()
        rule = SimpleRule(self.buckets)
        return Routing(rule, rule.layouts_of(groups))

    @property
    def _is_shared(self) -> bool:
        return self.config.lock.is_shared

    def _layout(self, stats: Iterable[WriteStat]) -> KnownLayout:
        """What no write that completed beside this one may have broken."""
        layouts = self.groups.layouts({stat.partition_path or "" for stat in stats})
        known = {
            partition: tuple(layout.group(n).file_id for n in range(layout.size))
            for partition, layout in layouts.items()
        }
        return KnownLayout(self.buckets.count, known)

    @property
    def buckets(self) -> SimpleBuckets:
        assert self.config.buckets is not None
        return self.config.buckets

    def refuse_replaced(self, groups: Collection[FileGroupId]) -> None:
        """UnsupportedTableError if another engine took one of the file groups out of the table."""
        if hidden := self.replaced(self.log.live).intersection(groups):
            raise replaced_for_good(hidden)

    def _are_closed(self, groups: frozenset[FileGroupId], *, opens_all: bool) -> bool:
        return self.groups.are_closed(groups, self.log.live, opens_all=opens_all)

    def current_slices(
        self, state: TableState | None = None, *, are_rewritten: bool = False
    ) -> dict[FileGroupId, FileSlice]:
        """Return the slice of each file group, in this state or the present one.

        Called after the instant began: what completes from then on is found by the check for
        conflicts. If they are to be rewritten, none may lack a file.
        """
        state = state or self.state()
        times = CompletionTimes(state.timeline)
        if are_rewritten:
            refuse_known_losses(self.loader, state, times)
        return latest_slices(state, times, SimpleRule(self.buckets))

    def state(self) -> TableState:
        """The table as it is now, for work that depends on what is there."""
        state = self._state
        self._state = self.loader.load() if state is None else self.loader.refresh(state)
        return self._state
