"""From a table's state and a read request to the list of slices to open.

A predicate on partition columns skips partitions before anything is opened. What is left of it goes
to the tasks: there it skips row groups, on any column where a slice has no logs, on key columns
alone where it has (an older version that does not match may be the one that a log replaces), and is
applied to the merged rows in any case. So `read(where=p)` is always the same as filtering `read()`.

Slices are packed into splits, one for each task: a large slice alone, small ones together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from pyhudi.errors import InvalidRequestError, UnsupportedTableError
from pyhudi.format.table.column_owners import is_joined
from pyhudi.format.table.merge_rules import (
    DELETE_FIELD,
    DELETE_MARKER,
    UNAVAILABLE_VALUE,
    MergeMode,
    PartialUpdateMode,
)
from pyhudi.format.table.table_config import TableConfig
from pyhudi.plan.predicate.binding import BoundPredicate, ColumnRange, bind
from pyhudi.plan.predicate.tree import Predicate
from pyhudi.table.file_group import FileGroupFiles, FileSlice
from pyhudi.table.file_slices import is_replaced
from pyhudi.table.merge import MergeRule, NotMine
from pyhudi.table.partitions import (
    DEFAULT_PARTITION,
    partition_texts,
    partition_values,
    plain_fields,
)
from pyhudi.table.schema import COMMIT_TIME, IS_DELETED, RECORD_KEY
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import Visibility

#: A slice below this size shares its task with others.
SPLIT_BYTES = 128 * 1024 * 1024
#: What opening a slice costs, as bytes read: keeps thousands of tiny slices out of one split.
OPEN_COST_BYTES = 1024 * 1024

_RECORD_INDEX = "record_index"
_UNAVAILABLE_DEFAULT = "__debezium_unavailable_value"


class CommitFolders(NamedTuple):
    """Where a task finds what a commit says, if it needs it."""

    timeline: str
    history: str

    @classmethod
    def of(cls, config: TableConfig) -> CommitFolders:
        timeline = f".hoodie/{config.timeline_folder}"
        return cls(timeline, f"{timeline}/{config.history_folder}")


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """What each task of a read has to know besides its slices."""

    output: pa.Schema  # the requested columns, in that order
    plain: pa.Schema  # the columns to read of a slice without logs
    merged: pa.Schema  # the columns to read of a slice with logs
    rule: MergeRule
    visibility: Visibility
    predicate: BoundPredicate | None = None
    key_predicate: BoundPredicate | None = None  # the part that holds for every version of a row
    row_instants: frozenset[str] | None = None  # changes: only rows of these instants
    whole_visibility: Visibility | None = None  # changes: for slices read with their past
    by_keys: bool = False  # changes: in a joined table, keys identify the changed rows
    commits: CommitFolders | None = None  # needed for slices with logs
    #: Rewrites: columns that the new file may lack although an old one has them; None: any.
    may_lack: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class SliceRead:
    """A slice to read, and what its path or its history adds."""

    slice: FileSlice
    constants: tuple[tuple[str, str | None], ...] = ()  # text columns, valued by the path
    whole: FileSlice | None = None  # changes: the slice with its past, for partial rows
    #: Changes of a joined table: of the slice, the rows count that these slices have the keys of.
    keys_in: tuple[FileSlice, ...] = ()

    @property
    def cost(self) -> int:
        """The cost of reading it, in bytes."""
        return self.slice.bytes + OPEN_COST_BYTES


@dataclass(frozen=True, slots=True)
class Split:
    """The work of one task."""

    reads: tuple[SliceRead, ...]

    @property
    def bytes(self) -> int:
        return sum(read.slice.bytes for read in self.reads)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    spec: ReadSpec
    reads: tuple[SliceRead, ...]
    schema: pa.Schema  # all columns of the table, as of the read
    config: TableConfig

    def splits(self, target_bytes: int = SPLIT_BYTES) -> tuple[Split, ...]:
        return tuple(packed(self.reads, target_bytes))


def merge_rule(config: TableConfig) -> MergeRule:
    """Return the table's own way to merge, from its properties."""
    rules = config.merge
    modes = {
        None: NotMine.NOTHING,
        PartialUpdateMode.IGNORE_DEFAULTS: NotMine.NULLS,
        PartialUpdateMode.FILL_UNAVAILABLE: NotMine.MARKER,
    }
    event_time = rules.mode is MergeMode.EVENT_TIME_ORDERING
    return MergeRule(
        ordering=rules.ordering_fields if event_time else (),
        not_mine=modes[rules.partial_update_mode],
        marker=rules.properties.get(UNAVAILABLE_VALUE, _UNAVAILABLE_DEFAULT),
        delete_column=rules.properties.get(DELETE_FIELD),
        delete_value=rules.properties.get(DELETE_MARKER),
        latest_meta=rules.latest_meta,
    )


def read_spec(
    config: TableConfig,
    schema: pa.Schema,
    visibility: Visibility,
    *,
    output: pa.Schema,
    predicate: BoundPredicate | None = None,
    row_instants: frozenset[str] | None = None,
    whole_visibility: Visibility | None = None,
) -> ReadSpec:
    """Decide which columns are read for which purpose, so that `output` can be returned."""
    rule = merge_rule(config)
    wanted = set(output.names) | (predicate.columns if predicate else frozenset())
    if row_instants is not None:
        wanted.add(COMMIT_TIME)
    merging = wanted | {RECORD_KEY, *rule.ordering}
    merging |= {name for name in (IS_DELETED, rule.delete_column) if name in schema.names}
    keys = predicate.restricted_to(config.record_key_fields) if predicate else None
    return ReadSpec(
        output=output,
        plain=_subset(schema, wanted),
        merged=_subset(schema, merging),
        rule=rule,
        visibility=visibility,
        predicate=predicate,
        key_predicate=keys,
        row_instants=row_instants,
        whole_visibility=whole_visibility,
        by_keys=row_instants is not None and is_joined(config),
        commits=CommitFolders.of(config),
    )


def narrowed(
    plan: ScanPlan, columns: Sequence[str] | None = None, where: Predicate | None = None
) -> ScanPlan:
    """Return the plan of the rows that also satisfy `where`, with some of the plan's columns.

    Both may name what the plan outputs. The files stay those of the plan, except for those that
    cannot hold a match.
    """
    spec = plan.spec
    output = spec.output if columns is None else chosen_columns(spec.output, columns)
    if where is None:
        return _with_spec(plan, output, spec.predicate)
    found = bind(where, spec.output)
    both = found if spec.predicate is None else spec.predicate.both(found)
    return _with_spec(plan, output, both)


def counting(plan: ScanPlan) -> ScanPlan:
    """Return a plan of as many rows, with no more columns than it takes to find them."""
    spec = plan.spec
    needed = [*sorted(spec.predicate.columns if spec.predicate else ()), RECORD_KEY]
    return _with_spec(plan, _subset(plan.schema, needed[:1]), spec.predicate)


def _with_spec(plan: ScanPlan, output: pa.Schema, predicate: BoundPredicate | None) -> ScanPlan:
    spec = read_spec(
        plan.config,
        plan.schema,
        plan.spec.visibility,
        output=output,
        predicate=predicate,
        row_instants=plan.spec.row_instants,
        whole_visibility=plan.spec.whole_visibility,
    )
    # Constants of a path may differ from what the path stands for: such reads are not skipped.
    reads = (
        read
        for read in plan.reads
        if read.constants or may_hold_matches(read.slice.partition, plan.schema, plan.config, spec)
    )
    return replace(plan, spec=spec, reads=tuple(reads))


def chosen_columns(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    if not columns:
        raise InvalidRequestError(
            "no column is requested",
            why="columns is empty",
            next_step="Name at least one column, or leave columns out for all of them",
        )
    for name in columns:
        if name not in schema.names:
            raise InvalidRequestError(
                f"there is no column {name!r}",
                why=f"the table has {', '.join(schema.names)}",
                next_step="Choose among these",
            )
    if len(set(columns)) != len(columns):
        raise InvalidRequestError(
            "a column is requested twice",
            why=f"columns are {list(columns)}",
            next_step="Name each column once",
        )
    return pa.schema([schema.field(name) for name in columns])


def _subset(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    chosen = set(names)
    return pa.schema([field for field in schema if field.name in chosen])


SliceOf = Callable[[FileGroupFiles], FileSlice | None]


def plan_scan(state: TableState, schema: pa.Schema, spec: ReadSpec, slice_of: SliceOf) -> ScanPlan:
    """Return the slices that a read at the spec's point in time has to open."""
    reads: list[SliceRead] = []
    for partition, groups in state.partitions.items():
        if not may_hold_matches(partition, schema, state.config, spec):
            continue
        for group in groups:
            if is_replaced(group, state.replaced, spec.visibility):
                continue
            slice_ = slice_of(group)
            if slice_ is not None:
                reads.append(SliceRead(slice_))
    refuse_unordered(spec, reads)
    return ScanPlan(spec, tuple(reads), schema, state.config)


def refuse_unordered(spec: ReadSpec, reads: Iterable[SliceRead]) -> None:
    """Raise if an ordering field is not a column with an order: logs are merged by it."""
    if not any(read.slice.logs for read in reads):
        return
    for name in spec.rule.ordering:
        index = spec.merged.get_field_index(name)
        type_ = spec.merged.field(index).type if index >= 0 else pa.null()
        if pa.types.is_null(type_) or pa.types.is_nested(type_):
            found = "no column with values" if pa.types.is_null(type_) else f"a {type_}"
            raise UnsupportedTableError(
                "the table's log files cannot be merged",
                why=f"its rows are ordered by {name!r}, which is {found}",
                next_step="Set hoodie.table.ordering.fields back to what the table was written"
                " with, or read it with Apache Hudi",
            )


def may_hold_matches(
    partition: str, schema: pa.Schema, config: TableConfig, spec: ReadSpec
) -> bool:
    """True if a row of the partition can satisfy the predicate, by its path alone."""
    if spec.predicate is None or _RECORD_INDEX in config.metadata_partitions:
        # With a record index Hudi leaves a row in its folder when its partition column changes.
        return True
    values = partition_values(partition, schema, config)
    ranges = {name: ColumnRange(value, value, 0, None) for name, value in values.items()}
    return spec.predicate.may_match(ranges)


def read_optimized(plan: ScanPlan) -> ScanPlan:
    """Return the same slices without their logs; those that have no base file drop out."""
    return replace(
        plan,
        reads=tuple(
            replace(read, slice=read.slice._replace(logs=()))
            for read in plan.reads
            if read.slice.base is not None
        ),
    )


def with_path_columns(
    plan: ScanPlan, schema: pa.Schema, config: TableConfig, *, as_in_path: bool
) -> ScanPlan:
    """Take partition columns from the path where the files do not have them, or if asked to.

    `as_in_path` is what Hudi's incremental reads do: the value as it stands in the path, still
    encoded, and null for an empty text. It is offered to callers that need Hudi's answer to the
    letter. Only texts differ from what the files have, and times that a path formats are as there.
    """
    if not (config.drop_partition_columns or as_in_path):
        return plan
    taken = set(config.partition_fields if config.drop_partition_columns else plain_fields(config))
    texts = {name for name in taken if _is_text(name, schema)}

    def constants(partition: str) -> tuple[tuple[str, str | None], ...]:
        values = partition_texts(partition, config, decoded=not as_in_path)
        if values is None:
            return _no_constants(partition, config)
        nulled = ((k, None if v == DEFAULT_PARTITION else v) for k, v in values.items())
        return tuple(pair for pair in nulled if pair[0] in texts)

    return replace(
        plan,
        reads=tuple(
            replace(read, constants=constants(read.slice.partition)) for read in plan.reads
        ),
    )


def _is_text(column: str, schema: pa.Schema) -> bool:
    index = schema.get_field_index(column)
    return index >= 0 and bool(schema.field(index).type == pa.string())


def _no_constants(partition: str, config: TableConfig) -> tuple[()]:
    if config.drop_partition_columns and config.partition_fields:
        raise UnsupportedTableError(
            f"the partition columns of {partition!r} cannot be read",
            why="they are not in the files, and the path does not separate their values",
            next_step="Read it with Apache Hudi; docs/format.md lists what pyhudi supports",
        )
    return ()


def packed(reads: Iterable[SliceRead], target_bytes: int) -> Iterator[Split]:
    """Yield neighbouring slices together, up to the target size."""
    batch: list[SliceRead] = []
    total = 0
    for read in reads:
        if batch and total + read.cost > target_bytes:
            yield Split(tuple(batch))
            batch, total = [], 0
        batch.append(read)
        total += read.cost
    if batch:
        yield Split(tuple(batch))
