"""`with table.update_schema() as change`: when does a change of the schema become a commit?"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from pyhudi.api.inputs import parse_schema
from pyhudi.api.inspection import Inspection
from pyhudi.plan.schema_update import SchemaDraft
from pyhudi.session.open import OpenTable
from pyhudi.session.session import TableSession
from pyhudi.table.schema_changes import ColumnChange
from pyhudi.write.begin import ready
from pyhudi.write.result import WriteResult
from pyhudi.write.schema_change import SchemaStart, change_schema, schema_start


class SchemaUpdate(SchemaDraft):
    """The changes of one `table.update_schema()`, with PyIceberg's verbs.

    A path is a name, or names joined by dots or in a tuple: `"address.city"` is a field of a
    struct, `"tags.element.name"` one inside a list, `"prices.value.amount"` one inside a map.
    """

    def union_by_name(self, schema: Any) -> Self:
        """Add the columns that another schema has and this one lacks, and widen types to hold both.

        `schema` is a `pyarrow.Schema`, or a frame, of which only the columns are used. Columns that
        it lacks stay. Types are widened without loss: int to long or double, float to double,
        decimals up to 38 digits. Fields of structs are joined in the same way.
        """
        return super().union_by_name(parse_schema(schema))


class SchemaUpdateBlock:
    """One change of a table's schema. It is committed when the block ends without an error.

    Nothing is committed if nothing changes, nor by a dry run. `changes` are the changes that the
    block asked for. `writers` are the writers under way, for a dry run. `result` is the commit, if
    there was one.
    """

    def __init__(self, table: OpenTable, inspect: Inspection, *, dry_run: bool) -> None:
        self._table = table
        self._inspect = inspect
        self._dry_run = dry_run
        self._start: SchemaStart | None = None
        self._update: SchemaUpdate | None = None
        self.writers: pa.Table | None = None
        self.result: WriteResult | None = None

    @property
    def changes(self) -> tuple[ColumnChange, ...]:
        return () if self._update is None else self._update.changes

    def __enter__(self) -> SchemaUpdate:
        with self._table.exclusive:
            session = self._looking() if self._dry_run else ready(self._table)
            self._start = start = schema_start(session)
        self._update = SchemaUpdate(start.schema.arrow, fixed=start.fixed, dropped=start.held)
        return self._update

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._update is not None
        assert self._start is not None
        if kind is not None:
            return
        if self._dry_run:
            self.writers = self._inspect.pending_writers()
        elif self._update.changes:
            with self._table.exclusive:
                session = ready(self._table)
                self.result = change_schema(session, self._start, self._update.schema)

    def _looking(self) -> TableSession:
        """Open the table as it is now, to change nothing."""
        session = self._table.session(is_read_only=True)
        session.log.refresh()
        return session

    def __repr__(self) -> str:
        changes = "; ".join(map(str, self.changes)) or "nothing"
        under_way = "" if self.writers is None else f", beside {self.writers.num_rows} writers"
        return f"<schema update of {self._table.storage.uri}: {changes}{under_way}>"
