"""A table whose columns change fifty times, with compaction, cleaning and archiving in between.

A model in the test keeps rows and columns as plain values. Every state of the table that is
retained must read as the model had it then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from memory_tables import MemoryTable
from pyhudi.api.schema_update import SchemaUpdate
from pyhudi.api.table import Table
from pyhudi.format.table.table_config import TableType

Row = dict[str, Any]

KEYS = ("id", "ts")
FIRST = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("ts", pa.int64(), nullable=False),
        ("size", pa.int32()),
        ("ratio", pa.float32()),
        ("price", pa.decimal128(6, 2)),
        ("place", pa.struct([("x", pa.int32()), ("label", pa.string())])),
        ("tags", pa.list_(pa.struct([("n", pa.int32())]))),
    ]
)
EVOLUTIONS = 50
CLEANED = (30, 36, 48)  # so that archived states are retained at first
SETTINGS: dict[str, Any] = {"ordering": "ts", "buckets": pyhudi.SimpleBuckets(2)}
CLEAN = pyhudi.CleanPolicy.commits(6)
ARCHIVE = pyhudi.ArchivePolicy(
    keep_min=8, keep_max=10, delta_commits=0, file_instants=9, grace_ms=1_000
)
WIDER = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}
DIGITS_MAX = 38
#: Where a column can be added.
PLACES: list[tuple[str, ...]] = [(), ("place",), ("tags", "element")]


# ---- the model


@dataclass(frozen=True, slots=True)
class Moment:
    """The table as one commit left it."""

    completed: str
    requested: str
    schema: pa.Schema
    rows: dict[str, Row]
    written: frozenset[str]  # ids of the rows that the commit brought


@dataclass(slots=True)
class Model:
    """The columns and rows that there are now, and all that there were."""

    schema: pa.Schema = FIRST
    rows: dict[str, Row] = field(default_factory=dict)
    past: list[Moment] = field(default_factory=list)
    evolutions: list[str] = field(default_factory=list)  # their requested times

    def done(self, result: pyhudi.WriteResult, *ids: str, evolves: bool = False) -> None:
        self.past.append(
            Moment(
                result.completed,
                result.instant,
                self.schema,
                deepcopy(self.rows),
                frozenset(ids),
            )
        )
        if evolves:
            self.evolutions.append(result.instant)

    def change(self, schema: pa.Schema) -> None:
        """Give the table these columns; rows have null where they had no value."""
        self.schema = schema
        self.rows = {id_: _shaped(row, schema) for id_, row in self.rows.items()}


def _shaped(value: Any, kind: Any) -> Any:
    """The value as a column of this type, or a row of this schema, has it."""
    if value is None:
        return None
    if isinstance(kind, pa.Schema) or pa.types.is_struct(kind):
        return {child.name: _shaped(value.get(child.name), child.type) for child in kind}
    if pa.types.is_list(kind):
        return [_shaped(item, kind.value_type) for item in value]
    return value


# ---- evolutions


def with_type(kind: pa.DataType, path: tuple[str, ...], change: Callable[[Any], Any]) -> Any:
    """The type with what lies at the path changed; a change to None leaves the field out."""
    if not path:
        return change(kind)
    if path[0] == "element":
        return pa.list_(with_type(kind.value_type, path[1:], change))
    fields = [(f.name, with_type(f.type, path[1:], change)) for f in kind if f.name == path[0]]
    replaced = dict(fields)
    kept = [(f.name, replaced.get(f.name, f.type)) for f in kind]
    return pa.struct([(name, found) for name, found in kept if found is not None])


def evolved(schema: pa.Schema, path: tuple[str, ...], change: Callable[[Any], Any]) -> pa.Schema:
    fields = []
    for column in schema:
        if column.name == path[0]:
            kind = with_type(column.type, path[1:], change)
            if kind is None:
                continue
            column = column.with_type(kind)
        fields.append(column)
    return pa.schema(fields)


def leaves(kind: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Paths and types of all columns that have none inside."""
    for child in kind:
        path, inner = (*above, child.name), child.type
        if pa.types.is_list(inner):
            path, inner = (*path, "element"), inner.value_type
        if pa.types.is_struct(inner):
            yield from leaves(inner, path)
        elif path[0] not in KEYS:
            yield path, inner


def wider(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_decimal(kind):
        room = kind.precision + 2 <= DIGITS_MAX
        return pa.decimal128(kind.precision + 2, kind.scale) if room else None
    return WIDER.get(kind)


class Chain:
    """One writer that evolves a table step by step, and the model beside it."""

    def __init__(self, table_type: TableType, seed: int) -> None:
        self.made = MemoryTable(FIRST, table_type=table_type, **SETTINGS)
        self.table = self.made.table("writer")
        self.chance = random.Random(seed)
        self.model = Model()
        self.dropped: list[tuple[str, ...]] = []
        self.refused = 0  # names that were to be given again too early
        self.given_again: set[str] = set()
        self.read_archived = 0  # moments
        self._named = 0
        self._at = 0
        self._rows(4)

    def evolve(self) -> None:
        """Add, widen or drop a column, with rows or without."""
        adding, widening, dropping = self._adding, self._widening, self._dropping
        deed = self.chance.choices([adding, widening, dropping], [5, 3, 3])[0]
        deed()
        if self.chance.random() < 0.7:
            self._rows(self.chance.randint(1, 3))
        if self.chance.random() < 0.2:
            self._delete()
        if self.chance.random() < 0.2:
            self.table = self.made.table(f"writer {self._at}")  # another process

    def _adding(self) -> None:
        within = self.chance.choice(PLACES)
        name = self._name(within)
        kind = self.chance.choice([pa.int32(), pa.float32(), pa.string(), pa.decimal128(6, 2)])
        if within:
            schema = evolved(
                self.model.schema,
                within,
                lambda old: pa.struct([*old, pa.field(name, kind)]),
            )
        else:
            schema = self.model.schema.append(pa.field(name, kind))
        if self.chance.random() < 0.5 and name not in self.given_again:
            return self._rows(2, schema)
        return self._without_rows(schema, lambda c: c.add_column((*within, name), kind))

    def _name(self, within: tuple[str, ...]) -> str:
        """A new name, or one that was dropped there if no file holds its values any more."""
        gone = [path[-1] for path in self.dropped if path[:-1] == within]
        if gone and self.chance.random() < 0.5:
            name = self.chance.choice(gone)
            try:
                with self.table.update_schema(dry_run=True) as change:
                    change.add_column((*within, name), "int")
            except pyhudi.InvalidRequestError as error:
                if "files may still hold its values" not in str(error):
                    raise
                self.refused += 1
            else:
                self.dropped.remove((*within, name))
                self.given_again.add(name)
                return name
        self._named += 1
        return f"c{self._named}"

    def _widening(self) -> None:
        found = [(path, wider(kind)) for path, kind in leaves(self.model.schema)]
        able = [(path, kind) for path, kind in found if kind is not None]
        if not able:
            return self._adding()
        path, kind = self.chance.choice(able)
        schema = evolved(self.model.schema, path, lambda _: kind)
        if self.chance.random() < 0.5:
            return self._rows(2, schema)
        return self._without_rows(schema, lambda c: c.update_column(path, kind))

    def _dropping(self) -> None:
        able = [path for path, _ in leaves(self.model.schema) if path[-1].startswith("c")]
        if not able:
            return self._adding()
        path = self.chance.choice(able)
        schema = evolved(self.model.schema, path, lambda _: None)
        self.dropped.append(path)
        return self._without_rows(schema, lambda c: c.delete_column(path))

    def _without_rows(self, schema: pa.Schema, change: Callable[[SchemaUpdate], object]) -> None:
        block = self.table.update_schema()
        with block as update:
            change(update)
        assert block.result is not None
        self.model.change(schema)
        self.model.done(block.result, evolves=True)

    def _rows(self, count: int, schema: pa.Schema | None = None) -> None:
        """Upsert rows, which may bring another schema; some of their keys are known."""
        if schema is not None:
            self.model.change(schema)
        self._at += 1
        ids = self.chance.sample([f"k{n}" for n in range(12)], count)
        rows = [_value(self.model.schema, self.chance, id_, self._at) for id_ in ids]
        given = pa.Table.from_pylist(rows, self.model.schema)
        mode = "strict" if schema is None else "add"
        result = self.table.upsert(given, schema_mode=mode)
        self.model.rows |= {row["id"]: row for row in given.to_pylist()}
        self.model.done(result, *ids, evolves=schema is not None)

    def _delete(self) -> None:
        if self.model.rows:
            self._at += 1
            id_ = self.chance.choice(sorted(self.model.rows))
            keys = pa.table({"id": [id_], "ts": pa.array([self._at], pa.int64())})
            result = self.table.delete(keys)
            del self.model.rows[id_]
            self.model.done(result)

    # -- what there is

    def check(self) -> list[Moment]:
        """Compare every retained moment with the model; these moments."""
        reader = self.made.table("reader")
        retained = [moment for moment in self.model.past if self._is_as_it_was(reader, moment)]
        assert retained == self.model.past[-len(retained) :]
        assert _columns(reader.schema.arrow) == _columns(self.model.schema)
        assert _by_id(reader.read().to_arrow()) == self.model.rows
        active = {name[:17] for name in self.made.names()}
        self.read_archived += sum(moment.requested not in active for moment in retained)
        return retained

    def _is_as_it_was(self, reader: Table, moment: Moment) -> bool:
        """False if cleaning has removed it."""
        try:
            scan = reader.read(as_of=moment.completed)
        except pyhudi.InvalidRequestError as error:
            if "can no longer be read" not in str(error):
                raise
            return False
        assert _columns(scan.schema) == _columns(moment.schema), moment.completed
        assert _by_id(scan.to_arrow()) == moment.rows, moment.completed
        return True

    def check_changes(self, retained: list[Moment]) -> None:
        """The changes of each commit have the columns of that commit."""
        reader = self.made.table("reader")
        before = retained[0].completed
        for moment in retained[1:]:
            found = reader.changes(since=before, until=moment.completed)
            assert _columns(found.schema) == _columns(moment.schema)
            expected = {id_: moment.rows[id_] for id_ in moment.written}
            assert _by_id(found.to_arrow()) == expected
            before = moment.completed

    def check_history(self) -> None:
        found = self.made.table("reader").inspect.schema_history()
        first, *instants = found["instant"].to_pylist()
        assert first <= self.model.past[0].requested
        assert instants == self.model.evolutions
        assert [len(change) for change in found["change"].to_pylist()[1:]] == [1] * EVOLUTIONS


def _value(schema: pa.Schema, chance: random.Random, id_: str, at: int) -> Row:
    row = {column.name: _some(column.type, chance) for column in schema}
    return {**row, "id": id_, "ts": at}


def _some(kind: pa.DataType, chance: random.Random) -> Any:
    """A value that only this type can hold, if it was widened; now and then null."""
    if chance.random() < 0.15:
        return None
    if pa.types.is_struct(kind):
        return {child.name: _some(child.type, chance) for child in kind}
    if pa.types.is_list(kind):
        return [_some(kind.value_type, chance) for _ in range(chance.randint(0, 2))]
    if pa.types.is_decimal(kind):
        digits = chance.randint(10 ** (kind.precision - 1), 10**kind.precision - 1)
        return pa.scalar(digits, pa.decimal128(38, 0)).as_py().scaleb(-kind.scale)
    if pa.types.is_string(kind):
        return f"text {chance.randint(0, 99)}"
    bits = {pa.int32(): 31, pa.int64(): 62, pa.float32(): 24, pa.float64(): 50}[kind]
    whole = chance.randint(2 ** (bits - 1), 2**bits - 1)
    return whole if pa.types.is_integer(kind) else whole / 2


def _columns(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {column.name: column.type for column in schema}


def _by_id(table: pa.Table) -> dict[str, Row]:
    rows = {row["id"]: row for row in table.to_pylist()}
    assert len(rows) == table.num_rows, "a key is there twice"
    return rows


@pytest.mark.parametrize(
    ("table_type", "seed"), [(TableType.COPY_ON_WRITE, 1), (TableType.MERGE_ON_READ, 2)]
)
def test_each_retained_state_of_a_table_that_evolves_fifty_times_reads_as_it_was(
    table_type: TableType, seed: int
) -> None:
    chain = Chain(table_type, seed)
    archived = 0
    for steps in range(1, EVOLUTIONS + 1):
        chain.evolve()
        if steps % 7 == 0 and table_type is TableType.MERGE_ON_READ:
            chain.table.services.compact()
        if steps % 9 == 0:
            chain.made.clock.sleep(5_000)
            archived += len(chain.table.services.archive(ARCHIVE).archived)
        if steps % 12 == 0:
            chain.check_changes(chain.check())
        if steps in CLEANED:
            chain.table.services.clean(CLEAN)
    retained = chain.check()
    assert CLEAN.keep <= len(retained) < len(chain.model.past)
    assert archived > 30
    chain.check_changes(retained)
    chain.check_history()
    assert chain.refused
    assert chain.read_archived > 20
    assert chain.given_again
