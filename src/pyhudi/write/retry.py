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
from pyhudi.commit.transaction import Completed, Lost, Transaction
from pyhudi.commit.write_ids import TakenOverError
from pyhudi.conflict.rules import Retry
from pyhudi.errors import ConflictError
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.read.schema import is_same_schema, schema_change
from pyhudi.settings import WriteSettings
from pyhudi.world import World, jittered_ms
from pyhudi.write.files.spec import WriteSpec
from pyhudi.write.intent import WriteIntent
from pyhudi.write.result import WriteResult, write_result

#: How long to wait for another that is under way, the first time and at most; in between, twice as
#: long each time.
LATER_MS, LATER_MAX_MS = 1_000, 30_000
#: How often to look whether a write of higher priority has ended.
LOOK_MS = 5_000

Rewrite: TypeAlias = Callable[[WriteSpec, Sequence[WriteStat]], list[WriteStat]]


@dataclass(frozen=True, slots=True)
class Work:
    """What a write does once its instant has begun; a stat for each file it made."""

    intent: WriteIntent
    write: Callable[[WriteSpec], list[WriteStat]]
    is_repeatable: bool = True  # whether it can be done again after a conflict
    is_fenced: bool = False  # whether its tasks run elsewhere and may outlive it
    partitions: Collection[str] = ()  # those it appends logs to, as far as they are known before
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
    def begun(self, *, is_fenced: bool = False) -> AbstractContextManager[Transaction]: ...
    def spec(self, requested: str) -> WriteSpec: ...
    def start_over(self) -> None: ...
    def prune(self, transaction: Transaction) -> None: ...
    def registered(self, transaction: Transaction, intent: WriteIntent) -> WriteResult | None: ...
    def publish(
        self,
        transaction: Transaction,
        spec: WriteSpec,
        stats: Collection[WriteStat],
        intent: WriteIntent,
        *,
        keeps_files: bool = False,
    ) -> Completed | Lost: ...


class Attempts:
    """The attempts of one write."""

    def __init__(self, writer: Writer, work: Work, began_ms: int | None = None) -> None:
        """The write began at `began_ms`, with the first row of its input, or begins now."""
        self._writer = writer
        self._work = work
        now_ms = writer.world.elapsed_ms()
        self._started = now_ms if began_ms is None else began_ms
        self._retries = 0
        self._waited_for: set[str] = set()

    def run(self) -> WriteResult:
        lost: Lost | None = None
        while True:
            ended = self._attempted(lost)
            if isinstance(ended, WriteResult):
                return ended
            if not self._work.is_repeatable or not self._may_retry(ended):
                ended.or_raise()
            lost = ended

    def _attempted(self, lost: Lost | None) -> WriteResult | Lost:
        """Make an attempt, after one that was lost. What raises a ConflictError has lost, too."""
        try:
            if lost is not None:
                self._retry_after(lost)  # the table's lock may change meanwhile, too
            return self._attempt()
        except TakenOverError as error:
            return Lost(error, Retry.NO)
        except ConflictError as error:
            return Lost(error, Retry.WRITE)

    def _may_retry(self, lost: Lost) -> bool:
        is_left = self._retries < self._writer.settings.conflict_retries
        return is_left and lost.retry is not Retry.NO

    def _retry_after(self, lost: Lost) -> None:
        """Begin again, once the other that is under way has had some time to end."""
        if lost.retry is Retry.LATER:
            other = lost.waits_for
            if other is not None and other not in self._waited_for:
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

    def _attempt(self) -> WriteResult | Lost:
        writer, work = self._writer, self._work
        if work.intent.write_id is not None:  # an attempt of it may have been rolled back
            writer.recover()
        writer.make_beginning()
        if work.partitions:
            # Before it begins, so that time travel to its requested time finds the buckets too.
            writer.prepare(work.partitions)
        return self._written(work.write)

    def _written(self, write: Callable[[WriteSpec], list[WriteStat]]) -> WriteResult | Lost:
        writer, work = self._writer, self._work
        with writer.begun(is_fenced=work.is_fenced) as transaction:
            done = writer.registered(transaction, work.intent)
            if done is not None:
                return done
            spec = replace(writer.spec(transaction.requested), is_fenced=work.is_fenced)
            if (outdated := self._outdated(spec)) is not None:
                transaction.abandon()
                return outdated
            stats = write(spec)
            return self._published(transaction, spec, stats)

    def _outdated(self, spec: WriteSpec) -> Lost | None:
        """Return why rows may not be written that were brought to a schema which has changed."""
        schema = self._work.schema
        if schema is None or is_same_schema(schema, spec.avro_schema):
            return None
        error = ConflictError(
            f"the write {spec.requested} was not completed",
            why=f"{Rule.SCHEMA_CHANGED} ({schema_change(schema, spec.avro_schema)})",
            next_step=NEW_SCHEMA_STEP,
            facts={"rule": Rule.SCHEMA_CHANGED.name.lower(), "retry": Retry.NO.name.lower()},
        )
        return Lost(error, Retry.NO)

    def _published(
        self, transaction: Transaction, spec: WriteSpec, stats: list[WriteStat]
    ) -> WriteResult | Lost:
        writer, work = self._writer, self._work
        ended = writer.publish(
            transaction, spec, stats, work.intent, keeps_files=work.rewrite is not None
        )
        if isinstance(ended, Completed):
            writer.prune(transaction)
            return self._result(transaction, ended, stats)
        rewrite = work.rewrite
        if rewrite is None or not ended.keeps_files or not self._may_retry(ended):
            transaction.abandon()
            return ended
        self._retry_after(ended)
        result = self._written(lambda spec: rewrite(spec, stats))
        transaction.abandon()  # its files are needed no more
        return result

    def _result(
        self, transaction: Transaction, completed: Completed, stats: list[WriteStat]
    ) -> WriteResult:
        seconds = (self._writer.world.elapsed_ms() - self._started) / 1000
        result = write_result(transaction.requested, completed.time, stats, self._retries, seconds)
        return replace(result, recommits=len(completed.behind))
