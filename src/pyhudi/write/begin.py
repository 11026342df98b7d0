"""How does a write begin? The table's first completed write, the instant, and its spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import pyarrow as pa

from pyhudi.commit.transaction import Transaction, preparing
from pyhudi.commit.validation import Checks
from pyhudi.conflict.schema_to_record import TableSchemaText, WriteSchemas
from pyhudi.format.table.bucket_migration import MigratingBuckets, begun_properties
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.session.open import OpenTable
from pyhudi.session.properties import update_properties
from pyhudi.session.session import TableSession
from pyhudi.timeline.timeline import WRITE_ACTIONS
from pyhudi.write.files.spec import Part, WriteSpec
from pyhudi.write.result import commit_metadata

#: What the commits of the begin and the end of a migration of buckets carry.
MIGRATION_KEY: Final = "pyhudi.migration"


def ready(table: OpenTable) -> TableSession:
    """Open the table for a write, and roll back what failed writers left."""
    session = begun_migration(table, table.session())
    session.recover()
    return session


def begun_migration(table: OpenTable, session: TableSession) -> TableSession:
    """Begin the migration of the table's buckets if it is announced; return the session then.

    First an entry of the log, a write without rows, then the properties: see
    `format.table.bucket_migration`. Any process does it, so none waits for one that died between.
    """
    while isinstance(session.config.buckets, MigratingBuckets) and (
        session.config.buckets.is_announced
    ):
        rings = session.config.buckets.after
        commit_nothing(session, "the migration of the buckets", {MIGRATION_KEY: f"to {rings}"})
        update_properties(table.storage, begun_properties, table.world)
        session = table.session()
    return session


@contextmanager
def begun(
    session: TableSession, *, is_fenced: bool = False, is_seed: bool = False
) -> Iterator[Transaction]:
    """Begin an instant, and abandon it if the block raises."""
    transaction = Transaction.begin(
        session.log,
        session.settings,
        session.action,
        session.recovery,
        is_fenced=is_fenced,
        is_seed=is_seed,
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


def commit_nothing(
    session: TableSession, what: str, extra: Mapping[str, str] | None = None
) -> None:
    """Commit a write without rows. `what` names the thing that it prepares.

    Its commit carries `extra`.
    """
    with begun(session) as transaction, preparing(what):
        schemas = WriteSchemas(session.schema.now(), None)
        metadata = replace(commit_metadata([], "UPSERT"), extra_metadata=dict(extra or {}))
        transaction.complete(metadata, Checks(schemas=schemas)).or_raise()
