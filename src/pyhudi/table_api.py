"""The verbs a user has. Each is load → plan → act, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from os import PathLike, fspath
from typing import Any

import pyarrow as pa

from pyhudi.engine.load import TableLoader, load_config
from pyhudi.engine.load import is_table as is_table_at
from pyhudi.engine.read import AtCompletion, AtRequest, Now, Point, Question, Reader
from pyhudi.errors import InvalidRequestError
from pyhudi.format.table_config import TableType, TimelineTimezone
from pyhudi.hudi_options import parse_read_options
from pyhudi.inspection import Inspection
from pyhudi.plan.predicate import Predicate
from pyhudi.scan import Changes, Scan
from pyhudi.storage.open import open_storage
from pyhudi.table.schema import META_COLUMNS
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import visible_now
from pyhudi.timeline.instant_time import RequestedTime, timeline_time

Time = str | datetime

#: Before every instant: the beginning of the table.
_BEGINNING = "0" * 17


def open_table(
    uri: str | PathLike[str], *, storage_options: Mapping[str, str] | None = None
) -> Table:
    """Open the Hudi table at a path or URI (local disk, s3://, gs://, az://).

    Raises UnsupportedTableError, naming the feature, when pyhudi could not read its rows exactly.
    """
    storage = open_storage(fspath(uri), storage_options)
    return Table(TableLoader(storage, load_config(storage)))


def is_table(uri: str | PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> bool:
    """Whether there is a Hudi table at the path or URI, of whatever version."""
    return is_table_at(open_storage(fspath(uri), storage_options))


class TableSchema:
    """The table's columns."""

    def __init__(self, arrow: pa.Schema) -> None:
        self.arrow = arrow

    @property
    def data_columns(self) -> list[str]:
        """The user's columns: all but Hudi's meta columns."""
        return [name for name in self.arrow.names if name not in META_COLUMNS]

    def __arrow_c_schema__(self) -> Any:
        return self.arrow.__arrow_c_schema__()

    def __repr__(self) -> str:
        return str(self.arrow)


class Table:
    """A Hudi table. Every read begins by loading what other writers have completed since."""

    def __init__(self, loader: TableLoader) -> None:
        self._loader = loader
        self._reader = Reader(loader)
        self._state: TableState | None = None  # loaded by the first read
        self.inspect = Inspection(loader, self._reader, self._refreshed)

    # -- what it is

    @property
    def uri(self) -> str:
        return self._loader.storage.uri

    @property
    def name(self) -> str:
        return self._loader.config.name

    @property
    def table_type(self) -> TableType:
        return self._loader.config.table_type

    @property
    def version(self) -> int:
        """The table format's version: 8 or 9."""
        return self._loader.config.version

    @property
    def record_key(self) -> tuple[str, ...]:
        return self._loader.config.record_key_fields

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self._loader.config.partition_fields

    @property
    def schema(self) -> TableSchema:
        """The columns as the last completed write left them."""
        state = self._refreshed()
        return TableSchema(self._reader.schema_at(state, visible_now(state.timeline)))

    # -- reading

    def read(
        self,
        *,
        as_of: Time | RequestedTime | None = None,
        columns: Sequence[str] | None = None,
        where: str | Predicate | None = None,
        read_optimized: bool = False,
    ) -> Scan:
        """The table's rows, now or as of a completion time.

        `where` is SQL as in docs/predicates.md. With `read_optimized` only base files are read:
        faster, and as old as the last compaction of each file group.
        """
        question = _question(columns, where, read_optimized=read_optimized)
        plan = self._reader.plan_snapshot(self._refreshed(), self._point(as_of), question)
        return Scan(self._loader.storage, plan)

    def changes(
        self,
        *,
        since: Time | None = None,
        until: Time | None = None,
        columns: Sequence[str] | None = None,
        where: str | Predicate | None = None,
    ) -> Changes:
        """Rows that writes completed in (since, until] left behind; deletes leave none.

        Without `since` the range begins with the table. Pass the result's `until` as the next
        `since`.
        """
        begin = _BEGINNING if since is None else self._time(since)
        end = None if until is None else self._time(until)
        question = _question(columns, where)
        plan, reached = self._reader.plan_changes(self._refreshed(), begin, end, question)
        return Changes(self._loader.storage, plan, begin, reached)

    def read_with_hudi_options(self, options: Mapping[str, str]) -> Scan:
        """A read described by Hudi's own option names, with Hudi's own meaning.

        Time travel compares requested times, and an incremental read gives partition columns as
        the path has them. An option that pyhudi cannot honour is an error.
        """
        asked = parse_read_options(options)
        state = self._refreshed()
        if asked.begin is not None:
            end = None if asked.end is None else self._time(asked.end)
            begin = max(_BEGINNING, asked.begin)
            plan, reached = self._reader.plan_changes(state, begin, end, asked.question)
            return Changes(self._loader.storage, plan, begin, reached)
        point = Now() if asked.as_of is None else AtRequest(self._time(asked.as_of))
        plan = self._reader.plan_snapshot(state, point, asked.question)
        return Scan(self._loader.storage, plan)

    # -- inner workings

    def _refreshed(self) -> TableState:
        state = self._state
        self._state = self._loader.load() if state is None else self._loader.refresh(state)
        return self._state

    def _point(self, as_of: Time | RequestedTime | None) -> Point:
        if as_of is None:
            return Now()
        if isinstance(as_of, RequestedTime):
            return AtRequest(self._time(as_of.time))
        return AtCompletion(self._time(as_of))

    def _time(self, time: Time) -> str:
        return timeline_time(time, self._zone)

    @property
    def _zone(self) -> tzinfo | None:
        return UTC if self._loader.config.timezone is TimelineTimezone.UTC else None

    def __repr__(self) -> str:
        kind = self.table_type.value.lower().replace("_", " ")
        return f"<Table {self.name!r} at {self.uri}, {kind}, version {self.version}>"


def _question(
    columns: Sequence[str] | None,
    where: str | Predicate | None,
    *,
    read_optimized: bool = False,
) -> Question:
    if isinstance(columns, str):
        raise InvalidRequestError(
            f"columns={columns!r} is a text",
            why="it would be taken for one column per letter",
            next_step=f"Write columns=[{columns!r}]",
        )
    chosen = None if columns is None else tuple(columns)
    return Question(chosen, where, read_optimized)
