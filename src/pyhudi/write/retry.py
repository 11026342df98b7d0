"""One write, tried until it is visible or must be given up.

A conflict is met in the cheapest way that is right:

    the files already lie behind the other's    the same instant is committed (`Transaction`)
    the rows are at hand                        they are written again, as if the write began now
    the rows are only in the write's own files  those are read and written under a new instant

The last is for rows that came as a stream or from Spark: the input is evaluated once. The instant
that lost stays until the new one has its files; nobody sees either before it completes.

**A write of higher priority** is waited for until it ends, or is found dead and rolled back. A dead
one seems alive until its heartbeat is too old, so the wait for each such write is as long as that
takes, and no longer: one that lives on may take hours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from pyhudi.commit.conflict_report import NEW_SCHEMA_STEP
from pyhudi.commit.proposals import Rule
from pyhudi.commit.transaction import Checks, Transaction
from pyhudi.commit.write_ids import TakenOverError
from pyhudi.conflict.rules import Cleared, ConflictRule, Retry
from pyhudi.errors import ConflictError
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.read.schema import is_same_schema, schema_change
from pyhudi.settings import WriteSettings
from pyhudi.world import World, jittered_ms
from pyhudi.write.files.spec import WriteSpec
from pyhudi.write.result import WriteResult, write_result

#: How long to wait for another that is under way, the first time and at most; in between, twice as
#: long each time.
LATER_MS, LATER_MAX_MS = 1_000, 30_000
#: How often to look whether a write of higher priority has ended.
LOOK_MS = 5_000

Clears: TypeAlias = Callable[[Collection[WriteStat]], Cleared]
Rewrite: TypeAlias = Callable[[WriteSpec, Sequence[WriteStat]], list[WriteStat]]


@dataclass(frozen=True, slots=True)
class Work:
    """What a write does once its instant has begun; a stat for each file it made."""

    operation: str
    write: Callable[[WriteSpec], list[WriteStat]]
    is_repeatable: bool = True  # whether it can be done again after a conflict
    is_checked: bool = False  # whether it depends on what others write, on a table of any mode
    is_blind: bool = False  # whether it reads nothing of the table: rows as they come
    is_part: bool = False  # whether its rows are parts of rows, and those of new keys inserts
    is_fenced: bool = False  # whether its tasks run elsewhere and may outlive it
    partitions: Collection[str] = ()  # those it appends logs to, as far as they are known before
    clears: Clears | None = None  # which partitions it is about as a whole, once it is written
    #: Asked at every try to complete it; InvalidRequestError if it may not complete any more.
    recheck: Callable[[], None] | None = None
    #: The schema, as a commit records it, that its rows were brought to; None if it brings none.
    schema: str | None = None
    #: Writes the rows of these files anew, for a write that cannot be repeated otherwise.
    rewrite: Rewrite | None = None


class Writer(Protocol):
    """What a write asks of the table's writer."""

    settings: WriteSettings
    world: World

    def ready(self) -> object: ...
    def recover(self) -> object: ...
    def is_under_way(self, requested: str) -> bool: ...
    def make_beginning(self) -> None: ...
    def prepare(self, partitions: Collection[str]) -> None: ...
    def begun(self) -> AbstractContextManager[Transaction]: ...
    def spec(self, requested: str) -> WriteSpec: ...
    def start_over(self) -> None: ...
    def prune(self, transaction: Transaction) -> None: ...
    def registered(
        self, transaction: Transaction, write_id: str | None, operation: str
    ) -> WriteResult | None: ...
    def publish(
        self,
        transaction: Transaction,
        spec: WriteSpec,
        stats: Collection[WriteStat],
        operation: str,
        write_id: str | None,
        checks: Checks | None = None,
    ) -> str: ...


class Attempts:
    """The attempts of one write."""

    def __init__(
        self, writer: Writer, work: Work, write_id: str | None, began_ms: int | None = None
    ) -> None:
        """The write began at `began_ms`, with the first row of its input, or begins now."""
        self._writer = writer
        self._work = work
        self._write_id = write_id
        now_ms = writer.world.elapsed_ms()
        self._started = now_ms if began_ms is None else began_ms
        self._retries = 0
        self._waited_for: set[str] = set()

    def run(self) -> WriteResult:
        lost_to: ConflictError | None = None
        while True:
            try:
                if lost_to is not None:
                    self._retry_after(lost_to)  # the table's lock may change meanwhile, too
                return self._attempt()
            except ConflictError as error:
                if not self._work.is_repeatable or not self._may_retry(error):
                    raise
                lost_to = error

    def _may_retry(self, error: ConflictError) -> bool:
        is_over = isinstance(error, TakenOverError) or _retry_of(error) is Retry.NO
        return not is_over and self._retries < self._writer.settings.conflict_retries

    def _retry_after(self, error: ConflictError) -> None:
        """Begin again, once the other that is under way has had some time to end."""
        if _retry_of(error) is Retry.LATER:
            other = str(error.facts["theirs"]["instant"])
            is_ranked = error.facts["rule"] == ConflictRule.PRIORITY.name.lower()
            if is_ranked and other not in self._waited_for:
                self._waited_for.add(other)
                self._wait_for(other)
            else:
                world = self._writer.world
                longer = LATER_MS << min(self._retries, 10)
                world.sleep_ms(jittered_ms(world, min(longer, LATER_MAX_MS)))
        self._retries += 1
        self._writer.start_over()
        self._writer.ready()  # the other may be dead, and the table may have another lock by now

    def _wait_for(self, other: str) -> None:
        writer, world = self._writer, self._writer.world
        # A look longer than a dead one can seem alive from now on, by a clock we only glimpse.
        end = world.elapsed_ms() + writer.settings.heartbeat_timeout_ms + LOOK_MS
        pause = LATER_MS
        while not self._has_ended(other) and world.elapsed_ms() < end:
            world.sleep_ms(jittered_ms(world, pause))
            pause = min(2 * pause, LOOK_MS)

    def _has_ended(self, other: str) -> bool:
        try:
            self._writer.ready()  # with the lock that the table has by now
            return not self._writer.is_under_way(other)
        except ConflictError:  # it got another one in this very moment: the next look is with that
            return False

    def _attempt(self) -> WriteResult:
        writer, work = self._writer, self._work
        if self._write_id is not None:  # an attempt of it may have been given up
            writer.recover()
        writer.make_beginning()
        if work.partitions:
            # Before it begins, so that time travel to its requested time finds the buckets too.
            writer.prepare(work.partitions)
        return self._written(work.write)

    def _written(self, write: Callable[[WriteSpec], list[WriteStat]]) -> WriteResult:
        writer, work = self._writer, self._work
        with writer.begun() as transaction:
            transaction.is_fenced = work.is_fenced
            done = writer.registered(transaction, self._write_id, work.operation)
            if done is not None:
                return done
            spec = replace(writer.spec(transaction.requested), is_fenced=work.is_fenced)
            self._require_schema(spec)
            stats = write(spec)
            return self._published(transaction, spec, stats)

    def _require_schema(self, spec: WriteSpec) -> None:
        """ConflictError if the table's schema has changed since the rows were brought to it."""
        schema = self._work.schema
        if schema is not None and not is_same_schema(schema, spec.avro_schema):
            raise ConflictError(
                f"the write {spec.requested} was not completed",
                why=f"{Rule.SCHEMA_CHANGED} ({schema_change(schema, spec.avro_schema)})",
                next_step=NEW_SCHEMA_STEP,
                facts={"rule": Rule.SCHEMA_CHANGED.name.lower(), "retry": Retry.NO.name.lower()},
            )

    def _published(
        self, transaction: Transaction, spec: WriteSpec, stats: list[WriteStat]
    ) -> WriteResult:
        writer, work = self._writer, self._work
        checks = Checks(
            work.is_checked,
            work.is_blind,
            work.is_part,
            clears=None if work.clears is None else work.clears(stats),
            recheck=work.recheck,
            keeps_files=work.rewrite is not None,
        )
        try:
            completed = writer.publish(
                transaction, spec, stats, work.operation, self._write_id, checks
            )
        except ConflictError as error:
            if work.rewrite is None or not transaction.has_kept_files:
                raise
            if not self._may_retry(error):
                raise
            self._retry_after(error)
        else:
            writer.prune(transaction)
            return self._result(transaction, completed, stats)
        rewrite = work.rewrite
        result = self._written(lambda spec: rewrite(spec, stats))
        transaction.abandon()  # its files are needed no more
        return result

    def _result(
        self, transaction: Transaction, completed: str, stats: list[WriteStat]
    ) -> WriteResult:
        seconds = (self._writer.world.elapsed_ms() - self._started) / 1000
        result = write_result(transaction.requested, completed, stats, self._retries, seconds)
        return replace(result, recommits=len(transaction.accepted))


def _retry_of(error: ConflictError) -> Retry | None:
    """What the error says that helps; None if it does not say."""
    named = error.facts.get("retry")
    return None if named is None else Retry[named.upper()]
