"""Has a write with this write id completed before? Then its result is returned."""

from __future__ import annotations

from pyhudi.commit.transaction import Transaction
from pyhudi.commit.write_ids import WriteIds
from pyhudi.format.timeline.instant import Instant
from pyhudi.session.session import TableSession
from pyhudi.write.intent import WriteIntent
from pyhudi.write.result import WriteResult, write_result


def finished(session: TableSession, intent: WriteIntent) -> WriteResult | None:
    """Return the result of an earlier attempt with the write's id that completed."""
    if intent.write_id is None:
        return None
    write_ids = WriteIds(session.log, session.recovery)
    done = write_ids.completed(intent.write_id, intent.operation)
    return None if done is None else _result_of(session, done)


def registered(
    session: TableSession, transaction: Transaction, intent: WriteIntent
) -> WriteResult | None:
    """Register the write under its id; return the result of the one that completed, if one did."""
    if intent.write_id is None:
        return None
    done = WriteIds(session.log, session.recovery).register(
        intent.write_id, transaction.requested, intent.operation, frozenset(session.own)
    )
    if done is None:
        return None
    transaction.abandon()
    return _result_of(session, done)


def _result_of(session: TableSession, done: Instant) -> WriteResult:
    metadata = session.loader.metadata(done, session.log.metadata(done.requested))
    stats = [stat for group in metadata.write_stats.values() for stat in group]
    assert done.completed is not None
    return write_result(done.requested, done.completed, stats, 0, 0.0, repeated=True)
