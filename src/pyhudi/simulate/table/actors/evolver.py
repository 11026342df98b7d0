"""Changes of a toy table's schema: those that writers bring with rows, and an actor without rows.

All of it is the code of production but the rows themselves: the schema that a call brings, what a
retry makes of it, the strategy, and the commit. Columns are numbers, so that a type that is too
narrow for a value shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.transaction import Completed
from pyhudi.commit.validation import SchemaConflict
from pyhudi.conflict.schema_to_record import WriteSchemas
from pyhudi.errors import ConflictError, UnavailableError
from pyhudi.format.timeline.instant import Instant, InstantTime, State
from pyhudi.read.load import TableLoader
from pyhudi.session.session import TableSession
from pyhudi.settings import SchemaMode, WriteSettings
from pyhudi.simulate.choices import drawn
from pyhudi.simulate.simulation import Process
from pyhudi.simulate.table.actors.service_actor import ServiceActor
from pyhudi.simulate.table.history import ProposedChange
from pyhudi.simulate.table.rows import Numbers, Row, happens
from pyhudi.simulate.table.stage import Stage
from pyhudi.simulate.table.table import table_config
from pyhudi.write.schema_change import change_schema, schema_start
from pyhudi.write.schemas import RowSchema, row_schema, schemas_at_begin

#: The columns that may be added.
ADDED = tuple(f"c{number}" for number in range(6))
INT_MAX = (1 << 31) - 1
#: What a wide column may hold, and a narrow one may not.
_WIDE = 1 << 40


def drawn_columns(stage: Stage, chance: random.Random, table: pa.Schema) -> pa.Schema:
    """Draw the columns of a write: those of the table, often with one more, or a wider one."""
    ever = {name for change in stage.history.proposed for name in change.dropped}
    new = [name for name in ADDED if name not in table.names and name not in ever]
    narrow = [name for name in ADDED if name in table.names and _type(table, name) == pa.int32()]
    fields = list(table)
    if new and happens(chance, 0.4):
        # One of the first two, so that writers often add the same column at the same time.
        name = new[drawn(chance, 2) % len(new)]
        fields.append(pa.field(name, (pa.int32(), pa.int64())[drawn(chance, 2)]))
    if narrow and happens(chance, 0.3):
        name = narrow[drawn(chance, len(narrow))]
        fields[table.get_field_index(name)] = pa.field(name, pa.int64())
    return pa.schema(fields)


def _type(schema: pa.Schema, name: str) -> pa.DataType:
    return schema.field(name).type


def proposed(stage: Stage, before: pa.Schema, after: pa.Schema) -> ProposedChange:
    """Record the change in the history."""
    old, new = frozenset(before.names), frozenset(after.names)
    widened = frozenset(name for name in old & new if _type(before, name) != _type(after, name))
    change = ProposedChange(new - old, widened, old - new, stage.place)
    stage.history.proposed.append(change)
    return change


@dataclass(frozen=True, slots=True)
class EvolvingCall:
    """One call of a write on a table that evolves; its retries bring the same columns."""

    session: TableSession
    rows: RowSchema
    change: ProposedChange

    @classmethod
    def of(
        cls,
        stage: Stage,
        log: DecisionLog,
        settings: WriteSettings,
        brought: Callable[[pa.Schema], pa.Schema],
    ) -> EvolvingCall:
        """Make the call: `brought` returns the columns of the rows from those of the table."""
        config = table_config(stage.kind)
        session = TableSession.of(settings, config, TableLoader(log.storage, config), log)
        now = session.schema.now()
        assert now is not None
        table = now.arrow
        columns = brought(table)
        mode = SchemaMode.STRICT if columns is table else SchemaMode.ADD
        rows = row_schema(session, columns, mode)
        return cls(session, rows, proposed(stage, table, columns))

    @property
    def changed(self) -> tuple[str, ...]:
        """Return the columns that the rows add or widen."""
        return tuple(sorted(self.change.added | self.change.widened))

    def begun(self) -> WriteSchemas | SchemaConflict:
        """Return the schemas of an attempt that has just begun."""
        self.change.answered = None
        return schemas_at_begin(self.session, self.rows)

    def numbered(self, rows: Iterable[Row], schemas: WriteSchemas, number: int) -> tuple[Row, ...]:
        """Return the rows with values in the columns that they bring and the table has."""
        assert schemas.own is not None
        own, brought = schemas.own.arrow, self.rows.rows.arrow
        more: Numbers = {
            name: number + (_WIDE if _type(brought, name) == pa.int64() else 0)
            for name in ADDED
            if name in brought.names and name in own.names
        }
        return tuple(row if row.is_deleted else row._replace(more=more) for row in rows)

    def ended(self, place: int, requested: str, ended: Completed | None) -> None:
        """Take note of the answer."""
        self.change.answered, self.change.is_done = place, ended is not None
        if ended is not None and ended.schema is not None:
            times = InstantTime(requested), InstantTime(ended.time)
            done = Instant(times[0], self.session.action, State.COMPLETED, times[1])
            self.session.schema.note(done, ended.schema)


class Evolver(ServiceActor):
    """Changes the schema without rows: adds, widens and drops columns."""

    harmless = (UnavailableError, ConflictError)

    def __init__(self, stage: Stage, name: str, *, rounds: int) -> None:
        super().__init__(stage, name, rounds=rounds, pauses=(1, 50, 200, 1_000))

    def _begun(self, process: Process) -> Callable[[], object]:
        return partial(evolve, self._stage, self._stage.session(process), self._drawn)

    def _drawn(self, table: pa.Schema) -> pa.Schema:
        there = [name for name in ADDED if name in table.names]
        if there and happens(self._chance, 0.5):
            gone = there[drawn(self._chance, len(there))]
            return pa.schema([field for field in table if field.name != gone])
        return drawn_columns(self._stage, self._chance, table)


def evolve(stage: Stage, session: TableSession, wanted: Callable[[pa.Schema], pa.Schema]) -> None:
    """Change the schema from what it is to what is wanted."""
    session.log.refresh()
    start = schema_start(session)
    table = start.schema.arrow
    columns = wanted(table)
    change = proposed(stage, table, columns)
    change_schema(session, start, columns)
    change.answered, change.is_done = stage.place, True
