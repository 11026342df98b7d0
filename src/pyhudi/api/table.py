"""Table: which verbs are there? Each is load → plan → act, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any

import pyarrow as pa

from pyhudi.api.alter import Alterations
from pyhudi.api.columns import TableSchema
from pyhudi.api.consumers import Consumers
from pyhudi.api.inputs import Time, parse_time
from pyhudi.api.inspection import Inspection
from pyhudi.api.previews import Previews
from pyhudi.api.scan import Changes, Scan
from pyhudi.api.schema_update import SchemaUpdateBlock
from pyhudi.api.services import Services, children_in, merge_in
from pyhudi.api.writes import OVERWRITE_TOUCHED, Writing
from pyhudi.errors import HudiError, InvalidRequestError
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.bucket_migration import MigratingBuckets, TableBuckets
from pyhudi.format.table.table_config import TableType
from pyhudi.hudi_options.read_options import parse_read_options
from pyhudi.notebook import table_html
from pyhudi.plan.predicate.parser import Where
from pyhudi.plan.upkeep import Upkeep, recorded_upkeep
from pyhudi.progress import Listener, ProgressBoard
from pyhudi.read.load import TableLoader, load_config
from pyhudi.read.plan import AtCompletion, AtRequest, Now, Point, Question, Reader
from pyhudi.services.inline import InlineUpkeep, UpkeepMemory
from pyhudi.session.open import OpenTable, Overrides
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.column_owners import load_owners
from pyhudi.storage.protocol import Storage
from pyhudi.table.schema import without_meta_columns
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import visible_now
from pyhudi.timeline.instant_time import RequestedTime
from pyhudi.world import real_world
from pyhudi.write.preview.preview import WritePreview
from pyhudi.write.result import WriteResult

#: Before every instant: the beginning of the table.
_BEGINNING = "0" * 17


class Table:
    """A Hudi table. Every read begins by loading what other writers have completed since.

    `table.services` has the table services, `table.consumers` the registered readers of changes,
    `table.alter` the lock, column owners and metadata table, `table.inspect` what the table
    consists of. A copy and a pickle hold the address and the options, among them the storage
    options and so their secrets. The copy opens the table again, shows no progress, and shares no
    lock or cache.
    """

    def __init__(
        self,
        loader: TableLoader,
        opening: OpenTable,
        upkeep: Upkeep | bool | None = None,
        listener: Listener | None = None,
    ) -> None:
        """`upkeep` is a policy in place of the recorded one; with False no write runs services."""
        self._loader = loader
        self._reader = Reader(loader)
        self._opening = opening
        self._upkeep = upkeep
        self._state: TableState | None = None  # loaded by the first read
        self.inspect = Inspection(
            loader, self._reader, self._refreshed, opening.world, opening.settings
        )
        memory = UpkeepMemory()
        self.services = Services(opening, listener, memory)
        self.consumers = Consumers(opening)
        self.alter = Alterations(opening)
        self._writing = Writing(opening, listener, _after(opening, upkeep, memory, listener))
        self._previews = Previews(opening)
        self._watch = partial(ProgressBoard, listener, opening.world)

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
        arrow = self._reader.schema_at(state, visible_now(state.timeline))
        return TableSchema(without_meta_columns(arrow))

    @property
    def owners(self) -> dict[str, tuple[str, ...]]:
        """The columns of each owner of a joined table; empty for other tables."""
        return dict(load_owners(self._loader.storage).columns)

    def history(self, *, limit: int = 100) -> pa.Table:
        """Return the writes and compactions of the table, the latest first.

        Each row has when it completed, what it wrote, how long it took and which writer did it;
        what another engine does not record is null. `read(as_of=completed)` is the table after it.
        Archived ones are not listed.
        """
        return self.inspect.history(limit=limit)

    @property
    def upkeep(self) -> Upkeep | None:
        """The maintenance policy that the table records; None if it has none."""
        return recorded_upkeep(load_config(self._loader.storage)).policy

    # -- reading

    def read(
        self,
        *,
        as_of: Time | RequestedTime | None = None,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        read_optimized: bool = False,
        meta: bool = False,
        limit: int | None = None,
    ) -> Scan:
        """Return the table's rows, now or as of a completion time.

        `where` is SQL, or an expression of pyarrow or Polars (docs/predicates.md). With
        `read_optimized` only base files are read: faster, and as old as the last compaction. With
        `meta` Hudi's five columns, such as `_hoodie_commit_time`, come before the data; `columns`
        can name them too. With `limit` reading stops after so many rows, any of them.
        """
        question = _question(columns, where, read_optimized=read_optimized, meta=meta)
        plan = self._reader.plan_snapshot(self._refreshed(), self._point(as_of), question)
        return Scan(self._loader.storage, plan, self._watch, limit)

    def changes(
        self,
        *,
        since: Time | None = None,
        until: Time | None = None,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        meta: bool = False,
    ) -> Changes:
        """Return the rows that writes completed in (since, until] left behind.

        Deletes, and rows that an overwrite removed, are not among them (docs/concurrency.md).
        Without `since` the range begins with the table. Pass the result's `until` as the next
        `since`. `columns`, `where` and `meta` are as in `read`.
        """
        begin = _BEGINNING if since is None else self._time(since)
        end = None if until is None else self._time(until)
        question = _question(columns, where, meta=meta)
        plan, reached = self._reader.plan_changes(self._refreshed(), begin, end, question)
        return Changes(self._loader.storage, plan, begin, reached, self._watch)

    def read_with_hudi_options(self, options: Mapping[str, str]) -> Scan:
        """Return a read described by Hudi's own option names, with Hudi's own meaning.

        Time travel compares requested times, and an incremental read returns partition columns as
        the path has them. With at least one of Hudi's options the rows have Hudi's five columns,
        unless the option `meta` excludes them. An option that pyhudi cannot honour is an error.
        """
        query = parse_read_options(options)
        state = self._refreshed()
        if query.begin is not None:
            end = None if query.end is None else self._time(query.end)
            begin = max(_BEGINNING, query.begin)
            plan, reached = self._reader.plan_changes(state, begin, end, query.question)
            return Changes(self._loader.storage, plan, begin, reached, self._watch)
        point = Now() if query.as_of is None else AtRequest(self._time(query.as_of))
        plan = self._reader.plan_snapshot(state, point, query.question)
        return Scan(self._loader.storage, plan, self._watch)

    # -- writing

    def upsert(
        self,
        rows: Any,
        *,
        owner: str | None = None,
        schema_mode: str | None = None,
        write_id: str | None = None,
    ) -> WriteResult:
        """Write rows: a new key is added, a known one merged by the table's rule.

        `rows` is a Spark DataFrame, or anything with `__arrow_c_stream__` (Arrow, pandas, Polars,
        DuckDB), and is evaluated once. Errors leave the table as it was, except for an
        OutcomeUnknownError: then the write is visible wholly or not at all, and a `write_id` makes
        it safe to repeat the call. On a joined table the rows have the record key, the partition
        and the columns of the `owner`; the other columns stay as their owners wrote them.

        With `schema_mode="add"` the rows may have new columns and wider types, which become the
        table's; with "merge" they may also lack columns, which become null. The default is that of
        the settings, "strict" (docs/schema_evolution.md).
        """
        return self._writing.upsert(rows, write_id, owner, schema_mode)

    def append(
        self,
        rows: Any,
        *,
        require_new_keys: bool = False,
        schema_mode: str | None = None,
        write_id: str | None = None,
    ) -> WriteResult:
        """Write rows that are new; an existing key is merged as by `upsert`.

        A large load of empty buckets becomes base files, the fastest to read; two such loads of one
        bucket at the same moment conflict. A stream that does not fit in memory
        (`buffer_bytes_max`) is spilled to log files. With `require_new_keys` an existing key is
        refused. That reads the keys of the buckets that are written, and buffers the rows in
        memory. A write of one of these buckets that completes meanwhile is a conflict: the keys are
        checked again, or from Spark the call ends in a ConflictError. `schema_mode` is as for
        `upsert`.
        """
        return self._writing.append(
            rows, write_id, require_new_keys=require_new_keys, schema_mode=schema_mode
        )

    def update(
        self, rows: Any, *, columns: Sequence[str], write_id: str | None = None
    ) -> WriteResult:
        """Set some columns of existing rows; keys that do not exist are ignored.

        `rows` have the record key's, the partition's and the named columns; others are ignored. The
        rest of each row stays. A write of the same buckets that completes meanwhile is a conflict.
        """
        return self._writing.update(rows, columns, write_id)

    def delete(
        self,
        what: Any,
        *,
        unconditional: bool = False,
        spark: Any = None,
        write_id: str | None = None,
    ) -> WriteResult:
        """Delete the rows that a predicate (as `where` of `read`) finds, or those with given keys.

        Keys are rows, as for `upsert`, that have the record key's columns. If the partition's or
        the ordering's columns are missing, they are looked up in the table, and keys that do not
        exist are ignored. On a table with an ordering, a row that is newer than the delete stays;
        `unconditional` deletes whatever was written before. What a predicate finds is read and
        deleted in this process, or with a session as `spark` by tasks of Spark.
        """
        return self._writing.delete(what, write_id, unconditional=unconditional, spark=spark)

    def overwrite(
        self,
        rows: Any,
        *,
        partitions: str | Sequence[Any] = OVERWRITE_TOUCHED,
        schema_mode: str | None = None,
        write_id: str | None = None,
    ) -> WriteResult:
        """Replace all rows of some partitions, or of the table, by these rows.

        `partitions` is "touched" for the partitions that the rows are in, "all" for the whole
        table, or a list of partitions, each named by its path or by its values. A write of one of
        these partitions that completes meanwhile is a conflict; one that completes later adds to
        the new rows. `schema_mode` is as for `upsert`.
        """
        return self._writing.overwrite(rows, partitions, write_id, schema_mode)

    def delete_partitions(
        self, partitions: Sequence[Any], *, write_id: str | None = None
    ) -> WriteResult:
        """Delete all rows of the partitions, named as for `overwrite`."""
        return self._writing.delete_partitions(partitions, write_id)

    # -- looking ahead

    def plan_upsert(
        self, rows: Any, *, owner: str | None = None, schema_mode: str | None = None
    ) -> WritePreview:
        """Return where `upsert` would write these rows, and whom it would meet; write nothing.

        The rows are read, and a Spark DataFrame is evaluated once for it: cache one that is dear to
        compute before it is written. What others begin or complete later is not in the preview
        (docs/concurrency.md).
        """
        return self._previews.upsert(rows, owner, schema_mode)

    def plan_update(self, rows: Any, *, columns: Sequence[str]) -> WritePreview:
        """Return the same for `update`, which writes only where it then finds its keys."""
        return self._previews.update(rows, columns)

    def plan_overwrite(
        self,
        rows: Any,
        *,
        partitions: str | Sequence[Any] = OVERWRITE_TOUCHED,
        schema_mode: str | None = None,
    ) -> WritePreview:
        """Return the same for `overwrite`, whose places include the buckets that it empties."""
        return self._previews.overwrite(rows, partitions, schema_mode)

    # -- changing the columns

    def update_schema(self, *, dry_run: bool = False) -> SchemaUpdateBlock:
        """Change the table's columns without rows.

            with table.update_schema() as change:
                change.add_column("note", pa.string(), doc="of the customer")
                change.update_column("amount", pa.float64())

        The changes are one commit, when the block ends. Nothing is committed if the block raises or
        changes nothing. What other writes change meanwhile stays; changes that contradict are a
        ConcurrentSchemaEvolutionError. A dry run commits nothing; its `changes` and `writers` are
        what would change, and the writers that are under way (docs/schema_evolution.md).
        """
        return SchemaUpdateBlock(self._opening, self.inspect, dry_run=dry_run)

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
        return parse_time(time, self._loader.config.zone)

    def _repr_html_(self) -> str:
        config = self._loader.config
        return table_html(
            name=self.name,
            uri=self.uri,
            table_type=_words(self.table_type),
            version=self.version,
            record_key=self.record_key,
            partition_by=self.partition_by,
            ordering=config.ordering_fields,
            buckets=None if config.buckets is None else _shown_buckets(config.buckets),
            concurrency=None if config.concurrency is None else _words(config.concurrency),
            columns=self._columns_to_show(),
        )

    def _columns_to_show(self) -> list[tuple[str, pa.DataType]] | None:
        """Return the columns as of the last read: a notebook must not list the table, nor fail."""
        if self._state is None:
            return None
        try:
            arrow = self._reader.schema_at(self._state, visible_now(self._state.timeline))
        except HudiError:
            return None
        return [(field.name, field.type) for field in without_meta_columns(arrow)]

    def __reduce__(self) -> tuple[object, ...]:
        opening = self._opening
        given = (opening.storage, opening.settings, opening.overrides)
        return _opened_again, (*given, self._upkeep)

    def __repr__(self) -> str:
        kind = _words(self.table_type)
        return f"<Table {self.name!r} at {self.uri}, {kind}, version {self.version}>"


def _opened_again(
    storage: Storage, settings: WriteSettings, overrides: Overrides, upkeep: Upkeep | bool | None
) -> Table:
    """Open a copy of a table, perhaps in another process, by its address and options alone."""
    opening = OpenTable(storage, real_world(), settings, overrides)
    return Table(TableLoader(storage, load_config(storage)), opening, upkeep)


def _after(
    opening: OpenTable,
    upkeep: Upkeep | bool | None,
    memory: UpkeepMemory,
    listener: Listener | None,
) -> Callable[[WriteResult, Any], None] | None:
    """Return what follows each write: the services that are due."""
    if upkeep is False:
        return None
    inline = InlineUpkeep(opening, upkeep if isinstance(upkeep, Upkeep) else None, memory)

    def follow(written: WriteResult, spark: Any) -> None:
        inline.follow(
            written,
            lambda session: merge_in(session, spark, listener),
            lambda session: children_in(session, spark, listener),
        )

    return follow


def _words(choice: StrEnum) -> str:
    return choice.value.lower().replace("_", " ")


def _question(
    columns: Sequence[str] | None,
    where: Where | None,
    *,
    read_optimized: bool = False,
    meta: bool,
) -> Question:
    if isinstance(columns, str):
        raise InvalidRequestError(
            f"columns={columns!r} is a string",
            why="it would mean one column for each letter",
            next_step=f"Write columns=[{columns!r}]",
        )
    chosen = None if columns is None else tuple(columns)
    return Question(chosen, where, read_optimized, meta=meta)


def _shown_buckets(buckets: TableBuckets) -> str:
    if isinstance(buckets, MigratingBuckets):
        return f"{_shown_buckets(buckets.before)}, being migrated: {_shown_buckets(buckets.after)}"
    if isinstance(buckets, SimpleBuckets):
        return f"{buckets.count:,} in each partition"
    return f"as many as each partition fills, {buckets.min:,} to {buckets.max:,}"
