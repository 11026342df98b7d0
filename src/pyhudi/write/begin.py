"""How does a write begin? The table's first completed write, the instant, and its spec."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from pyhudi.commit.transaction import Transaction, preparing
from pyhudi.commit.validation import Checks
from pyhudi.conflict.schema_to_record import TableSchemaText, WriteSchemas
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.session.open import OpenTable
from pyhudi.session.session import TableSession
from pyhudi.timeline.timeline import WRITE_ACTIONS
from pyhudi.write.files.spec import Part, WriteSpec
from pyhudi.write.result import commit_metadata


def ready(table: OpenTable) -> TableSession:
    """Open the table for a write, and roll back what failed writers left."""
    session = table.session()
    session.recover()
    return session


@contextmanager
def begun(session: TableSession, *, is_fenced: bool = False) -> Iterator[Transaction]:
    """Begin an instant, and abandon it if the block raises."""
    transaction = Transaction.begin(
        session.log, session.settings, session.action, session.recovery, is_fenced=is_fenced
    )
    session.own.add(transaction.requested)
    try:
        yield transaction
    except BaseException:
        transaction.abandon()  # no effect if its completion was proposed: then the log decides
        raise
    finally:
        session.own.discard(transaction.requested)


def write_spec(
    session: TableSession,
    requested: str,
    schema: TableSchemaText | None = None,
    *,
    part: Part | None = None,
    is_fenced: bool = False,
) -> WriteSpec:
    """Return what tasks of a write have to know, by this schema or the table's present one."""
    return WriteSpec(
        requested=InstantTime(requested),
        avro_schema=session.schema.avro() if schema is None else schema.avro_json,
        block_format=session.settings.log_block_format,
        log_file_bytes_max=session.settings.log_file_bytes_max,
        is_fenced=is_fenced,
        part=part,
    )


def data_schema(session: TableSession) -> pa.Schema:
    """Return the table's columns as the last completed write left them, without meta columns."""
    return write_spec(session, "").layout.data


def make_beginning(session: TableSession) -> None:
    """Make sure that the table has a completed write before the first one with data files.

    Readers count a file that is older than all writes of the timeline as committed, and a first
    write that was rolled back may still leave one.
    """
    writes = (i for i in session.log.live.completed.values() if i.action in WRITE_ACTIONS)
    if next(writes, None) is None:
        commit_nothing(session, "the table")


def commit_nothing(session: TableSession, what: str) -> None:
    """Commit a write without rows. `what` names the thing that it prepares."""
    with begun(session) as transaction, preparing(what):
        schemas = WriteSchemas(session.schema.now(), None)
        metadata = commit_metadata([], "UPSERT")
        transaction.complete(metadata, Checks(schemas=schemas)).or_raise()
