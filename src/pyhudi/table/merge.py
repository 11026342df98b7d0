"""Merging a file slice: many versions of a record become one row, or none.

Hudi's rule, which both judges follow: the log entries of a record are folded in log order into one,
then that one meets the base file's row.

*Commit time.* The later entry wins. *Event time.* The entry with the greater ordering value wins,
the later one on a tie. A delete without an ordering value is a commit-time delete: it beats what
precedes it, and a row after it beats it. A delete block's delete of a record that is already
deleted that way is ignored. *Partial updates.* A row may lack columns (a block of partial updates),
or hold values that mean "not set" (the table's partial update mode). The winner then takes those
columns from the loser. A delete has no columns to take: a row that wins over one keeps only its
own.

Here all records are folded at once. Without partial rows a record's winner is found by one sort.
With them, round r folds the r-th entry of every record, and each column keeps the number of the
row its value comes from; values are copied once, at the end.

Base files stream through: memory holds the logs and one batch. A base file may hold several rows of
one key. Only the first of them meets the record's log entry and the others stay as they are, unless
a block names the key several times: its writer found so many rows, and so many meet the entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.table.large_columns import of_type, one_array
from pyhudi.table.ordering import at_least, dense_ranks
from pyhudi.table.schema import META_COLUMNS, RECORD_KEY

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_OUTPUT_ROWS = 1 << 16
_OUTPUT_BYTES = 64 * 1024 * 1024


class NotMine(IntEnum):
    """Which values of a whole row mean that the writer did not set the column."""

    NOTHING = 0
    NULLS = 1  # Hudi's IGNORE_DEFAULTS, whose default is null
    MARKER = 2  # Hudi's FILL_UNAVAILABLE: a text in place of the value


@dataclass(frozen=True, slots=True)
class MergeRule:
    """How versions of a record compare. `ordering` is empty under commit time."""

    ordering: tuple[str, ...] = ()
    not_mine: NotMine = NotMine.NOTHING
    marker: str = ""
    delete_column: str | None = None
    delete_value: str | None = None
    #: Meta columns of a joined row come from the later record, even if it is the older by ordering.
    latest_meta: bool = False


@dataclass(frozen=True, slots=True)
class LogRows:
    """The rows of one data block, in the schema of the read."""

    rows: pa.RecordBatch
    deletes: pa.BooleanArray  # rows that mark themselves as deletes
    columns: frozenset[str] | None = None  # the block's own, when it is partial


@dataclass(frozen=True, slots=True)
class LogDeletes:
    """The deletes of one delete block."""

    keys: pa.Array
    ordering: tuple[pa.Array, ...]
    unconditional: pa.BooleanArray  # commit-time deletes


class Kind(IntEnum):
    NONE = 0
    ROW = 1
    DELETE = 2
    COMMIT_TIME_DELETE = 3


@dataclass(frozen=True, slots=True)
class _Entries:
    """All log entries of a slice in log order, column by column."""

    keys: pa.Array
    codes: Ints  # which of `keys` the entry belongs to
    kinds: npt.NDArray[np.int8]
    source: Ints  # the entry's row in `columns`; -1 for a delete
    ordering: tuple[pa.Array, ...]
    schema: pa.Schema
    columns: tuple[pa.Array, ...]  # in a larger type than the schema's where it takes that
    partial: tuple[Bools, ...] | None  # per column: does the entry have it?
    meetings: Ints  # per key: how many rows of the base file it may meet

    def ranks(self) -> Ints:
        if not self.ordering:
            return np.arange(len(self.codes))
        return dense_ranks(self.ordering)


class MergedLogs:
    """One folded log entry per record key, ready to meet the base file."""

    def __init__(
        self, entries: _Entries, kinds: npt.NDArray[np.int8], winners: Ints, sources: Ints | None
    ) -> None:
        self.keys = entries.keys
        self.kinds = kinds
        self.is_partial = sources is not None
        self._schema, self._columns = entries.schema, entries.columns
        self._output_rows = _output_rows(entries.columns)
        self._sources = sources
        self._row = entries.source[winners] if len(winners) else winners
        picked = pa.array(winners)
        self.ordering = tuple(values.take(picked) for values in entries.ordering)
        self._left = entries.meetings.copy()  # rows of the base file that may still be met
        self._met = np.zeros(len(self.keys), dtype=bool)
        self._won = np.zeros(len(self.keys), dtype=bool)  # over one, and not come out yet

    def column(self, number: int, keys: Ints) -> tuple[pa.Array, Bools]:
        """Return a column's values for these keys, and which of them the logs have."""
        rows = self._row[keys]
        if self._sources is None:
            has = rows >= 0
        else:
            has = self._sources[number][keys] >= 0
            # A value that no entry set stays as the winner has it: null, or the marker text.
            rows = np.where(has, self._sources[number][keys], rows)
        values = self._columns[number].take(pa.array(rows, mask=rows < 0))
        return of_type(values, self._schema.field(number).type), has

    def rows(self, keys: Ints) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these keys, in batches of some MB."""
        for part in self.parts(keys):
            try:
                batch = self._batch(part)
            except pa.ArrowInvalid:  # the largest of all values are in one part
                if len(part) == 1:
                    raise
                for half in np.array_split(part, 2):
                    yield from self.rows(half)
            else:
                yield batch

    def _batch(self, keys: Ints) -> pa.RecordBatch:
        columns = [self.column(n, keys)[0] for n in range(len(self._columns))]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def parts(self, places: Ints) -> Iterator[Ints]:
        """Yield the positions in pieces whose rows make a batch of average size."""
        for start in range(0, len(places), self._output_rows):
            yield places[start : start + self._output_rows]

    def meet(self, keys: Ints) -> Bools:
        """Note which keys meet a row of the base file, and return which of them may."""
        may = _nth(keys, len(self.keys)) < self._left[keys]
        np.subtract.at(self._left, keys[may], 1)
        self._met[keys] = True
        return may

    def won_again(self, keys: Ints) -> Ints:
        """Note the keys whose log row replaces a base row.

        Return those of which one is already to come out.
        """
        again = self._won[keys] | (_nth(keys, len(self.keys)) > 0)
        self._won[keys] = True
        return keys[again]

    def fresh(self) -> int:
        """Return how many rows the base file did not have.

        It is known when all of the base file has passed.
        """
        return int(np.count_nonzero(~self._met & (self.kinds == Kind.ROW)))

    def updates(self) -> int:
        """Return how many keys of the base file got a row from the logs, whole or joined."""
        met = self._met & (self.kinds == Kind.ROW)
        return int(np.count_nonzero(met if self.is_partial else met & self._won))

    def remaining(self) -> Iterator[pa.RecordBatch]:
        """Yield rows of the logs that met no base row, or won over one."""
        left = np.flatnonzero((~self._met | self._won) & (self.kinds == Kind.ROW))
        yield from self.rows(left)


def _output_rows(columns: Sequence[pa.Array]) -> int:
    rows = len(columns[0])
    bytes_: int = sum(column.nbytes for column in columns)
    if not bytes_:
        return _OUTPUT_ROWS
    return max(1, min(_OUTPUT_ROWS, _OUTPUT_BYTES * rows // bytes_))


def fold_logs(
    blocks: Sequence[LogRows | LogDeletes], schema: pa.Schema, rule: MergeRule
) -> MergedLogs:
    """Fold a slice's log blocks, given in log order, into one entry per record key."""
    entries = _entries(blocks, schema, rule)
    if rule.ordering:
        entries = _without_ineffective_deletes(entries)
    if entries.partial is None:
        winners = _winners(entries, event_time=bool(rule.ordering))
        return MergedLogs(entries, entries.kinds[winners], winners, None)
    return _folded(entries, rule)


def _entries(
    blocks: Sequence[LogRows | LogDeletes], schema: pa.Schema, rule: MergeRule
) -> _Entries:
    data = [block for block in blocks if isinstance(block, LogRows)]
    rows = pa.Table.from_batches([block.rows for block in data], schema)
    columns = tuple(one_array(column) for column in rows.columns)
    keys, kinds, source, seen = [], [], [], 0
    ordering: list[list[pa.Array]] = [[] for _ in rule.ordering]
    for block in blocks:
        if isinstance(block, LogRows):
            keys.append(block.rows.column(RECORD_KEY))
            values = tuple(block.rows.column(name) for name in rule.ordering)
            kinds.append(_row_kinds(block, values))
            source.append(np.arange(seen, seen + block.rows.num_rows))
            seen += block.rows.num_rows
        else:
            keys.append(block.keys)
            values = block.ordering
            unconditional = np.asarray(block.unconditional)
            kinds.append(np.where(unconditional, Kind.COMMIT_TIME_DELETE, Kind.DELETE))
            source.append(np.full(len(block.keys), -1))
        for collected, value in zip(ordering, values, strict=True):
            collected.append(value)
    encoded = pa.concat_arrays(keys).dictionary_encode()
    codes = np.asarray(encoded.indices).astype(np.int64)
    return _Entries(
        keys=encoded.dictionary,
        codes=codes,
        kinds=np.concatenate(kinds).astype(np.int8),
        source=np.concatenate(source).astype(np.int64),
        ordering=tuple(pa.concat_arrays(values) for values in ordering),
        schema=schema,
        columns=columns,
        partial=_partial_columns(blocks, schema, columns, rule),
        meetings=_most_in_a_block(codes, [len(block_keys) for block_keys in keys]),
    )


def _most_in_a_block(codes: Ints, lengths: Sequence[int]) -> Ints:
    """Return how often each key occurs in the block that names it most often."""
    most = np.ones(int(codes.max(initial=-1)) + 1, dtype=np.int64)
    start = 0
    for length in lengths:
        block = codes[start : start + length]
        nth = _nth(block, len(most))
        if nth.any():
            np.maximum.at(most, block, nth + 1)
        start += length
    return most


def _row_kinds(block: LogRows, ordering: Sequence[pa.Array]) -> Ints:
    deletes = np.asarray(block.deletes)
    kinds = np.where(deletes, Kind.DELETE, Kind.ROW)
    if ordering and deletes.any():
        # A deleting row whose ordering value is Hudi's default, null or the int 0, is a
        # commit-time delete like one from a delete block.
        default = np.asarray(_is_default_ordering(ordering))
        kinds = np.where(deletes & default, Kind.COMMIT_TIME_DELETE, kinds)
    return kinds.astype(np.int64)


def _is_default_ordering(ordering: Sequence[pa.Array]) -> pa.BooleanArray:
    first = ordering[0]
    if len(ordering) > 1:  # several fields make a list, which is never the default
        return pa.repeat(False, len(first))
    default = pc.is_null(first)
    if first.type == pa.int32():
        default = pc.or_(default, pc.fill_null(pc.equal(first, 0), False))
    return default


def _without_ineffective_deletes(entries: _Entries) -> _Entries:
    """Leave out deletes of delete blocks whose record a commit-time delete has already removed."""
    block_deletes = (entries.kinds == Kind.DELETE) & (entries.source < 0)
    resets = entries.kinds == Kind.COMMIT_TIME_DELETE
    if not (block_deletes.any() and resets.any()):
        return entries
    by_key = np.argsort(entries.codes, kind="stable")
    codes, block_deletes = entries.codes[by_key], block_deletes[by_key]
    index = np.arange(len(codes))
    # The last entry before each that is not such a delete; it must be of the same record.
    before = np.maximum.accumulate(np.where(block_deletes, -1, index))
    idle = block_deletes & (before >= 0) & (codes[before] == codes) & resets[by_key[before]]
    kept = np.ones(len(codes), dtype=bool)
    kept[by_key[idle]] = False
    return replace(
        entries,
        codes=entries.codes[kept],
        kinds=entries.kinds[kept],
        source=entries.source[kept],
        ordering=tuple(values.filter(pa.array(kept)) for values in entries.ordering),
    )


def _winners(entries: _Entries, *, event_time: bool) -> Ints:
    """Return the entry that wins for each key, when every row is whole."""
    codes = entries.codes
    order = np.arange(len(codes))
    winners = np.full(len(entries.keys), -1, dtype=np.int64)
    if not event_time:
        winners[codes] = order  # the last assignment stays: the latest entry
        return winners
    last_reset = np.full(len(entries.keys), -1, dtype=np.int64)
    resets = np.flatnonzero(entries.kinds == Kind.COMMIT_TIME_DELETE)
    last_reset[codes[resets]] = resets
    winners[:] = last_reset
    alive = np.flatnonzero(order > last_reset[codes])
    ranked = alive[np.argsort(entries.ranks()[alive], kind="stable")]
    winners[codes[ranked]] = ranked
    return winners


def _partial_columns(
    blocks: Sequence[LogRows | LogDeletes],
    schema: pa.Schema,
    columns: Sequence[pa.Array],
    rule: MergeRule,
) -> tuple[Bools, ...] | None:
    """Return, for each column, which *rows* set it; None if every row sets all of them."""
    data = [block for block in blocks if isinstance(block, LogRows)]
    whole = rule.not_mine is NotMine.NOTHING and all(block.columns is None for block in data)
    if whole or not data:
        return None
    result = []
    for field, column in zip(schema, columns, strict=True):
        has = [
            np.full(block.rows.num_rows, block.columns is None or field.name in block.columns)
            for block in data
        ]
        mine = _is_set(column, field.type, rule)
        result.append(np.concatenate(has) & mine)
    return tuple(result)


def _is_set(column: pa.Array, type_: pa.DataType, rule: MergeRule) -> Bools:
    """Return which values of a column their writer set, under the table's partial update mode."""
    if rule.not_mine is NotMine.NULLS:
        return np.asarray(pc.is_valid(column))
    if rule.not_mine is NotMine.MARKER and type_ == pa.string():
        return ~np.asarray(pc.fill_null(pc.equal(column, pa.scalar(rule.marker)), False))
    return np.ones(len(column), dtype=bool)


def _folded(entries: _Entries, rule: MergeRule) -> MergedLogs:
    """Fold rows that may lack columns: round r takes the r-th entry of every key."""
    assert entries.partial is not None
    ranks, count = entries.ranks(), len(entries.keys)
    kinds = np.zeros(count, dtype=np.int8)
    winners = np.full(count, -1, dtype=np.int64)
    sources = np.full((len(entries.partial), count), -1, dtype=np.int64)
    for chosen in _rounds(entries.codes):
        keys, new = entries.codes[chosen], entries.kinds[chosen]
        old, row = kinds[keys], entries.source[chosen]
        newer = old == Kind.NONE
        if rule.ordering:
            newer |= (new == Kind.COMMIT_TIME_DELETE) | (old == Kind.COMMIT_TIME_DELETE)
            newer |= ranks[chosen] >= ranks[winners[keys]]
        else:
            newer[:] = True
        wins = newer & (new == Kind.ROW)
        fills = ~newer & (new == Kind.ROW) & (old == Kind.ROW)
        for number, has in enumerate(entries.partial):
            now = sources[number][keys]
            sets = has[row] & (row >= 0)
            now = np.where(wins & (old != Kind.ROW), -1, now)
            late = fills & ((now < 0) | _is_latest(entries.schema.names[number], rule))
            sources[number][keys] = np.where(sets & (wins | late), row, now)
        kinds[keys] = np.where(newer, new, old)
        winners[keys] = np.where(newer, chosen, winners[keys])
    return MergedLogs(entries, kinds, winners, sources)


def _is_latest(column: str, rule: MergeRule) -> bool:
    return rule.latest_meta and column in META_COLUMNS


def _rounds(codes: Ints) -> Iterator[Ints]:
    """Yield entry numbers so that each round holds at most one entry of a key, in log order."""
    nth = _nth(codes, int(codes.max(initial=-1)) + 1)
    for number in range(int(nth.max(initial=-1)) + 1):
        yield np.flatnonzero(nth == number)


def _nth(codes: Ints, size: int) -> Ints:
    """Return how many equal codes come before each; all codes are below the size."""
    index = np.arange(len(codes))
    last = np.empty(size, dtype=np.int64)
    last[codes] = index
    if np.array_equal(last[codes], index):  # no code twice: the common case, without a sort
        return np.zeros(len(codes), dtype=np.int64)
    by_code = np.argsort(codes, kind="stable")
    ordered = codes[by_code]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    lengths = np.diff(np.r_[starts, len(codes)])
    nth = np.empty(len(codes), dtype=np.int64)
    nth[by_code] = index - np.repeat(starts, lengths)
    return nth


def merge_slice(
    base: Iterable[pa.RecordBatch], logs: MergedLogs, rule: MergeRule
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a slice.

    Base file batches come first, with the folded logs applied, then the rows that are new.
    """
    for batch in base:
        yield from _merge_batch(batch, logs, rule)
    yield from logs.remaining()


def _merge_batch(
    batch: pa.RecordBatch, logs: MergedLogs, rule: MergeRule
) -> Iterator[pa.RecordBatch]:
    rows, keys = _meetings(batch, logs)
    if not len(rows):
        yield batch
        return
    newer = _log_is_newer(batch, rows, logs, keys, rule)
    is_row = logs.kinds[keys] == Kind.ROW
    stays = np.ones(batch.num_rows, dtype=bool)
    if logs.is_partial:
        # A row on both sides is put together column by column, whichever is newer.
        stays[rows[newer | is_row]] = False
        for part in logs.parts(np.flatnonzero(is_row)):
            yield _joined(batch, rows[part], logs, keys[part], newer[part], rule)
    else:
        # The winner is whole: winning log rows come out at the end with the new ones, unless
        # they replace one more row of the same key.
        stays[rows[newer]] = False
        again = logs.won_again(keys[newer & is_row])
        if len(again):
            yield from logs.rows(again)
    yield batch.filter(pa.array(stays))


def _meetings(batch: pa.RecordBatch, logs: MergedLogs) -> tuple[Ints, Ints]:
    """Return the rows of the batch that meet a log entry, and the entries."""
    found = pc.index_in(batch.column(RECORD_KEY), value_set=logs.keys)
    index = np.asarray(pc.fill_null(found, -1)).astype(np.int64)
    rows = np.flatnonzero(index >= 0)
    may = logs.meet(index[rows])
    return rows[may], index[rows][may]


def _log_is_newer(
    batch: pa.RecordBatch, rows: Ints, logs: MergedLogs, keys: Ints, rule: MergeRule
) -> Bools:
    if not rule.ordering:
        return np.ones(len(rows), dtype=bool)
    ours = [values.take(pa.array(keys)) for values in logs.ordering]
    theirs = [batch.column(name).take(pa.array(rows)) for name in rule.ordering]
    newer: Bools = np.asarray(at_least(ours, theirs))
    resets: Bools = logs.kinds[keys] == Kind.COMMIT_TIME_DELETE
    return newer | resets


def _joined(
    batch: pa.RecordBatch, rows: Ints, logs: MergedLogs, keys: Ints, newer: Bools, rule: MergeRule
) -> pa.RecordBatch:
    """Return base rows and log rows of the same keys as one.

    Each column comes from the row that set it last.
    """
    columns = []
    for number, field in enumerate(batch.schema):
        old = batch.column(number).take(pa.array(rows))
        new, has = logs.column(number, keys)
        late = ~_is_set(old, field.type, rule) | _is_latest(field.name, rule)
        from_log = has & (newer | late)
        pick = np.where(from_log, np.arange(len(rows)) + len(rows), np.arange(len(rows)))
        both = one_array(pa.chunked_array([old, new]))
        columns.append(of_type(both.take(pa.array(pick)), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
