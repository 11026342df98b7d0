"""Changing a table's schema without rows: one commit, whatever other writes do meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from pyhudi.commit.concurrent import ConcurrentWrites
from pyhudi.commit.conflict_report import Loser, schema_error
from pyhudi.commit.evolution import SchemaEvolution
from pyhudi.commit.proposals import Decided, Refused, Rule, refusal_error
from pyhudi.commit.transaction import writer_identity
from pyhudi.commit.validation import Denied, SchemaConflict
from pyhudi.conflict.schema_to_record import TableSchemaText, WriteSchemas
from pyhudi.errors import HudiError
from pyhudi.format.avro.recorded import encode_schema
from pyhudi.format.timeline.instant import Instant, InstantTime, State
from pyhudi.format.timeline.writer_identity import WriterIdentity, parse_writer
from pyhudi.session.session import TableSession
from pyhudi.table.schema import META_COLUMNS
from pyhudi.write.begin import make_beginning
from pyhudi.write.files.copied_log import copied_write, copies_in
from pyhudi.write.result import WriteResult, write_result
from pyhudi.write.schemas import fixed_columns, schema_strategy


@dataclass(frozen=True, slots=True)
class SchemaStart:
    """The schema that a change begins with, and which writes could change it since."""

    schema: TableSchemaText
    fixed: tuple[str, ...]
    held: Mapping[str, str]  # dropped columns that a data file may still hold, and since when
    released: frozenset[tuple[str, str]]  # the other dropped columns
    since: str  # the latest completion that it contains
    pending: frozenset[str]


def schema_start(session: TableSession) -> SchemaStart:
    """Return what a change of the schema begins with. Nothing is committed."""
    session.schema.avro()  # raises if there is none
    now, live = session.schema.now(), session.log.live
    assert now is not None
    held = _held(session, now) if now.dropped else {}
    kept = tuple((name, when) for name, when in now.dropped if name in held)
    fixed = fixed_columns(session.config)
    start = replace(now, dropped=kept)
    released = frozenset(now.dropped) - frozenset(kept)
    pending = frozenset(live.pending)
    return SchemaStart(start, fixed, held, released, live.last_completion, pending)


def _held(session: TableSession, now: TableSchemaText) -> dict[str, str]:
    """Return the dropped columns that a data file may still hold, now or later.

    A file that was requested before the drop completed may have been written with the column. So
    may one of an instant that is pending, which no reader counts yet. A copy that a resize made
    counts by the write of which it is one, and not by its name.
    """
    groups = tuple(session.current.load().groups())
    requested = {file.name.requested for group in groups for file in group.files}
    oldest = min(requested | session.log.live.pending.keys(), default="~")
    if any(when and oldest > when for _, when in now.dropped):
        copies = [log for group in groups for log in copies_in(group)]
        found = session.world.together(partial(copied_write, session.storage), copies)
        oldest = min([oldest, *(write for write in found if write is not None)])
    return {name: when for name, when in now.dropped if not when or oldest <= when}


def change_schema(session: TableSession, start: SchemaStart, wanted: pa.Schema) -> WriteResult:
    """Commit the change from the start to the wanted schema, on top of what others changed."""
    log, config = session.log, session.config
    began_ms = session.world.elapsed_ms()
    make_beginning(session)
    text = encode_schema(wanted, [start.schema.avro_json], config.name, without=META_COLUMNS)
    own = TableSchemaText(text, start.schema.dropped)
    strategy = schema_strategy(session.settings)
    name, released = config.name, start.released
    schemas = WriteSchemas(start.schema, own, strategy, start.fixed, name, released)
    others = ConcurrentWrites(log, start.since, session.action, start.pending)
    writer = writer_identity(session.world, session.settings)
    sync = session.world.random_bytes(16)
    outcome = log.append(SchemaEvolution(session.action, others, schemas, writer, sync))
    if isinstance(outcome, Refused):
        if outcome.rule is Rule.NOTHING_TO_EVOLVE:  # another write has brought all of it by now
            now = log.live.last_completion
            return write_result(now, now, [], 0, 0.0, repeated=True)
        raise _error(session, outcome, others, writer)
    assert isinstance(outcome, Decided)
    entry = outcome.entry
    assert entry.instant is not None
    assert entry.time is not None
    assert isinstance(outcome.draft.basis, TableSchemaText)
    times = InstantTime(entry.instant), InstantTime(entry.time)
    done = Instant(times[0], session.action, State.COMPLETED, times[1])
    session.schema.note(done, outcome.draft.basis)
    seconds = (session.world.elapsed_ms() - began_ms) / 1000
    return write_result(entry.instant, entry.time, [], 0, seconds)


def _error(
    session: TableSession, refused: Refused, others: ConcurrentWrites, writer: WriterIdentity
) -> HudiError:
    match refused.reason:
        case Denied(error):
            return error
        case SchemaConflict(by=by) as conflict:
            winner = WriterIdentity()
            if by is not None:
                winner = parse_writer(others.metadata(by).extra_metadata)
            loser = Loser("", writer, (), 0.0)
            return schema_error(session.storage, loser, conflict, winner)
    what = "the change of the schema"
    return refusal_error(refused, session.storage.uri, what=what)
