"""One write, top to bottom: intent → session → begin → plan → run → complete, until it is visible.

After a conflict, the cheapest correct way is taken:

    the files are already behind the other's    the same instant is committed (`Transaction`)
    the rows are in memory                      they are written again, as if the write began now
    the rows are only in the write's own files  they are rebased: read from there, and written under
                                                a new instant

A rebase is for rows that came as a stream or from Spark, because the input is evaluated once. The
instant that lost stays until the new one has its files. No reader sees either before it completes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from pyhudi.commit.transaction import Completed, Lost, MigratingError, Transaction
from pyhudi.commit.validation import SchemaConflict
from pyhudi.commit.write_ids import TakenOverError
from pyhudi.conflict.rules import Retry
from pyhudi.errors import ConcurrentSchemaEvolutionError, ConflictError
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.progress import ProgressBoard
from pyhudi.session.open import OpenTable
from pyhudi.session.session import TableSession
from pyhudi.storage.objects.progress import Totals
from pyhudi.table.state import TableState
from pyhudi.write.begin import begun, make_beginning, write_spec
from pyhudi.write.complete import complete
from pyhudi.write.early.start import announced_by, early_check
from pyhudi.write.executor import Executor
from pyhudi.write.files.announcing import MetRivalError
from pyhudi.write.intent import Reads, WriteIntent
from pyhudi.write.new_keys import check_buffered_keys
from pyhudi.write.plan import Prepared, WritePlan, brings_rows, finish, plan_write
from pyhudi.write.resizing.meet import WrittenFiles
from pyhudi.write.result import WriteResult, write_result
from pyhudi.write.retry import Retries
from pyhudi.write.schemas import schemas_at_begin
from pyhudi.write.seeds import seed_missing
from pyhudi.write.watch import Watch
from pyhudi.write.write_id import finished, registered

#: Executes a virtual resize; False if nothing can be done about it here.
FinishResize: TypeAlias = Callable[[TableSession, str], bool]


def unfinished(session: TableSession, requested: str) -> bool:
    return False


def write(
    table: OpenTable,
    session: TableSession,
    intent: WriteIntent,
    executor: Executor,
    board: ProgressBoard,
    finish_resize: FinishResize = unfinished,
) -> WriteResult:
    """Execute a write. The session is current, and failed writes were rolled back in it.

    A write that replaces rows may meet a virtual resize that has to be executed first; for that it
    calls `finish_resize`.
    """
    if (done := finished(session, intent)) is not None:
        return done
    return written(table, session, intent, executor, board, finish_resize)


def written(
    table: OpenTable,
    session: TableSession,
    intent: WriteIntent,
    executor: Executor,
    board: ProgressBoard,
    finish_resize: FinishResize = unfinished,
) -> WriteResult:
    """Execute a write of which no attempt has completed. Pending ones in `session.own` stay."""
    result = _Write(table, intent, executor, board, finish_resize).run(session)
    board.set_totals(result)
    return result


class _Write:
    """The attempts of one write."""

    def __init__(
        self,
        table: OpenTable,
        intent: WriteIntent,
        executor: Executor,
        board: ProgressBoard,
        finish_resize: FinishResize,
    ) -> None:
        self._table = table
        self._intent = intent
        self._executor = executor
        self._board = board
        # The write began with the first row of its input, or begins now.
        began_ms = board.began_ms
        self._started = table.world.elapsed_ms() if began_ms is None else began_ms
        self._retries = Retries(table)
        self._finish_resize = finish_resize
        self._checked: TableState | None = None  # in which none of the keys exists
        self._has_run = False  # the executor has begun to use up its rows

    def run(self, session: TableSession) -> WriteResult:
        ended = self._attempted(session, None)
        while isinstance(ended, Lost):
            if ended.unfinished is not None and not self._finish_resize(session, ended.unfinished):
                ended.or_raise()
            can_repeat = self._executor.can_repeat or not self._has_run
            if not can_repeat or not self._retries.may_follow(ended):
                ended.or_raise()  # the caller's next attempt does not meet that resize
            ended = self._attempted(session, ended)
        return ended

    def _attempted(self, session: TableSession, lost: Lost | None) -> WriteResult | Lost:
        """Make an attempt, after one that was lost. A ConflictError is a loss, too."""
        try:
            if lost is not None:
                session = self._again(lost)  # the table's lock may change here, too
            return self._attempt(session)
        except (TakenOverError, ConcurrentSchemaEvolutionError) as error:
            return Lost(error, Retry.NO)
        except MigratingError as error:
            return Lost(error, Retry.WRITE, is_counted=False)
        except ConflictError as error:
            return Lost(error, Retry.WRITE)

    def _attempt(self, session: TableSession) -> WriteResult | Lost:
        executor = self._executor
        if self._intent.reads is Reads.KEYS and executor.buffered is not None:
            self._checked = check_buffered_keys(session, executor.buffered, self._checked)
        if self._intent.write_id is not None:  # an attempt of it may have been rolled back
            session.recover()
        make_beginning(session)
        if brings_rows(self._intent.change, session.config):
            session.groups.prepare(executor.sizes)
        # Before it begins, so that time travel to its requested time finds the buckets too.
        rows = None if self._intent.rows is None else self._intent.rows.rows
        seed_missing(session, executor.partitions, schema=rows)
        prepared = Prepared(executor.partitions, self._checked)
        return self._written(session, prepared, executor.run, can_rebase=executor.can_rebase)

    def _written(
        self,
        session: TableSession,
        prepared: Prepared,
        run: Callable[[WritePlan, Watch], list[WriteStat] | Lost],
        *,
        can_rebase: bool,
    ) -> WriteResult | Lost:
        """Begin, plan, run the plan, and complete."""
        intent, is_fenced = self._intent, self._executor.is_fenced
        with begun(session, is_fenced=is_fenced) as transaction:
            if (done := registered(session, transaction, intent)) is not None:
                return done
            requested = transaction.requested
            schemas = schemas_at_begin(session, intent.rows)
            if isinstance(schemas, SchemaConflict):
                return transaction.lost_to_schema(schemas)
            own, part = schemas.own, intent.part
            spec = write_spec(session, requested, own, part=part, is_fenced=is_fenced)
            early = early_check(
                session, transaction, intent, can_rebase=can_rebase, are_sent=is_fenced
            )
            spec = replace(spec, announcing=announced_by(early, spec.announcing, session.config))
            seed_missing(session, prepared.partitions, schema=own)
            plan = plan_write(session, intent, spec, schemas, prepared)
            watch = Watch(session, transaction, intent, early, can_rebase=can_rebase)
            self._has_run = True
            try:
                stats = run(plan, watch)
            except MetRivalError as error:
                return watch.yielded(error.met, ())
            if isinstance(stats, Lost):
                return stats
            try:
                stats = finish(session, plan, stats)
            except MetRivalError as error:
                return watch.yielded(error.met, stats)
            except MigratingError as error:  # its files have all rows
                lost = Lost(error, Retry.WRITE, keeps_files=True, is_counted=False)
                return self._ended(transaction, lost, WrittenFiles(tuple(stats), tuple(stats)))
            keeps_files = self._executor.can_rebase
            end = complete(session, transaction, plan, stats, keeps_files=keeps_files)
            return self._ended(transaction, end.outcome, end.files)

    def _ended(
        self, transaction: Transaction, ended: Completed | Lost, files: WrittenFiles
    ) -> WriteResult | Lost:
        """Return the result, or what becomes of a write that was lost."""
        executor = self._executor
        if isinstance(ended, Completed):
            return self._result(transaction, ended, files)
        if not executor.can_rebase or not ended.keeps_files or not self._retries.may_follow(ended):
            transaction.abandon()
            return ended
        session = self._again(ended)
        result = self._written(
            session,
            Prepared(),
            lambda plan, watch: executor.rebase(plan, files.stats),
            can_rebase=True,
        )
        transaction.abandon()  # its files are no longer needed
        return result

    def _result(
        self, transaction: Transaction, completed: Completed, files: WrittenFiles
    ) -> WriteResult:
        seconds = (self._table.world.elapsed_ms() - self._started) / 1000
        result = write_result(
            transaction.requested, completed.time, files.stats, self._retries.count, seconds
        )
        return replace(result, recommits=len(completed.behind), moved=files.moved)

    def _again(self, lost: Lost) -> TableSession:
        self._board.set_totals(Totals())  # rows counted so far are written again
        return self._retries.reopened_after(lost)
