"""The eight scenarios of RFC-82: what a table's columns become if another write changes them.

The own write begins; another one begins later and completes before it. What each of them brings and
what every reader must find afterwards is written here, once: for one process with a table in memory
(`write/test_schema_evolution.py`), for two Spark drivers (`spark/test_schema_scenarios.py`) and for
the judges (`conformance/test_schema_scenarios.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

import pyhudi
from meddled_storage import Meddled
from opened_tables import table_on
from pyhudi.api.table import Table
from pyhudi.format.table.table_config import CREATE_SCHEMA, TableType
from pyhudi.format.timeline.commit_metadata import CommitMetadata, decode_commit_metadata
from pyhudi.format.timeline.instant import Instant, State, is_timeline_file
from pyhudi.format.timeline.writer_identity import WRITER_KEY
from pyhudi.plan.table_definition import TableDefinition
from pyhudi.read.schema_in_force import recorded_by_write
from pyhudi.session.create import create_table_files
from pyhudi.session.properties import update_properties
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.timeline import WRITE_ACTIONS
from pyhudi.world import World, real_world

TIMELINE = ".hoodie/timeline"

KEYS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("day", pa.string(), nullable=False),
        pa.field("ts", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column that a write may bring, and the value that it writes."""

    name: str
    type: pa.DataType
    in_spark: str
    value: object


#: Each by a letter: "vx" is the column v as a table has it at first, and the column x.
COLUMNS: Mapping[str, Column] = {
    "v": Column("v", pa.int32(), "int", 1),
    "V": Column("v", pa.int64(), "long", 1 << 40),  # no int holds the value
    "x": Column("x", pa.string(), "string", "x"),
    "y": Column("y", pa.int32(), "int", 5),
}


def schema_of(columns: str) -> pa.Schema:
    """The columns of a table or of rows, with those of the keys."""
    return pa.schema([*KEYS, *((COLUMNS[one].name, COLUMNS[one].type) for one in columns)])


S1 = schema_of("v")

#: What is special about each kind of table.
TABLES: Mapping[str, Mapping[str, Any]] = {
    "copy on write": {"ordering": "ts", "table_type": TableType.COPY_ON_WRITE},
    "optimistic": {},
    "non-blocking": {"ordering": "ts"},
}
STRATEGIES = ("simple", "reconcile")


def definition(kind: str) -> dict[str, Any]:
    """What a table is created with beside its columns."""
    buckets = pyhudi.SimpleBuckets(1)
    return {"record_key": "id", "partition_by": "day", "buckets": buckets, **TABLES[kind]}


# ---- the table of the RFC


@dataclass(frozen=True, slots=True)
class Scenario:
    """Two writes that overlap, and what becomes of the table."""

    start: str | None  # columns of the table when the own write begins; None if it has no schema
    theirs: str | None  # of the rows of the other write; None if there is none
    own: str  # of the own rows
    joined: str  # of the table afterwards
    is_contradiction: bool = False  # to the simple strategy, which refuses the own write

    def is_refused(self, strategy: str) -> bool:
        return self.is_contradiction and strategy == "simple"

    def end(self, strategy: str) -> pa.Table:
        """The whole table afterwards; what was refused has left nothing."""
        if not self.is_refused(strategy):
            return self.end_of_all()
        assert self.theirs is not None
        return _rows_of({"first": self.start, "theirs": self.theirs}, self.theirs)

    def end_of_all(self) -> pa.Table:
        """The whole table when each write has completed, perhaps at its second call."""
        written = {"first": self.start, "theirs": self.theirs, "own": self.own}
        return _rows_of(written, self.joined)


#: By the row of the RFC's table.
SCENARIOS: Mapping[int, Scenario] = {
    1: Scenario(None, None, "v", "v"),
    2: Scenario(None, "v", "v", "v"),
    3: Scenario(None, "vx", "vy", "vxy", is_contradiction=True),
    4: Scenario("v", "v", "v", "v"),
    5: Scenario("v", "v", "V", "V"),
    6: Scenario("v", "V", "v", "V"),
    7: Scenario("v", "vx", "vx", "vx"),
    8: Scenario("v", "vx", "Vy", "Vxy", is_contradiction=True),
}
#: (row of the RFC's table, kind of table, strategy)
CELLS = [
    (number, kind, strategy) for number in SCENARIOS for kind in TABLES for strategy in STRATEGIES
]


def row(id_: str, columns: str) -> dict[str, Any]:
    """A row in a partition of its own, so that no two writes meet in a file group."""
    keys = {"id": id_, "day": f"day of {id_}", "ts": 1}
    return keys | {COLUMNS[one].name: COLUMNS[one].value for one in columns}


def rows(id_: str, columns: str = "v") -> pa.Table:
    """What one write brings."""
    return pa.Table.from_pylist([row(id_, columns)], schema_of(columns))


def _rows_of(written: Mapping[str, str | None], columns: str) -> pa.Table:
    """One row of each write, with nulls where it had no such column, as a read gives them."""
    found = [row(id_, brought) for id_, brought in written.items() if brought is not None]
    return pa.Table.from_pylist(found, pa.schema(f.with_nullable(True) for f in schema_of(columns)))


# ---- playing it


class Stage(Protocol):
    """A table that several processes have open."""

    @property
    def storage(self) -> Storage: ...

    def world(self, label: str) -> World: ...

    def table(self, label: str, storage: Storage | None = None, **settings: Any) -> Table: ...


@dataclass(frozen=True, slots=True)
class TableOnDisk:
    """A new table in a folder, for readers that are no part of this process."""

    path: Path
    kind: str

    def __post_init__(self) -> None:
        asked = TableDefinition.of("t", S1, **definition(self.kind))
        create_table_files(self.storage, asked, real_world(), exist_ok=False)

    @property
    def storage(self) -> Storage:
        return open_storage(str(self.path))

    def world(self, _: str) -> World:
        return real_world()

    def table(self, label: str, storage: Storage | None = None, **settings: Any) -> Table:
        chosen = pyhudi.WriteSettings(job=label, **settings)
        return table_on(storage or self.storage, real_world(), chosen)


def begin(stage: Stage, *, has_schema: bool) -> None:
    """Write the first row, or take away what the table was created with."""
    if has_schema:
        stage.table("first").upsert(rows("first"))
    else:
        update_properties(stage.storage, _without_schema, stage.world("first"))


def _without_schema(values: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name != CREATE_SCHEMA}


def play(
    stage: Stage, number: int, kind: str, strategy: str
) -> pyhudi.ConcurrentSchemaEvolutionError | None:
    """Make both writes on a new table, and return why the own one was refused, if it was.

    The own write has begun when the other one begins, and completes behind it.
    """
    scenario = SCENARIOS[number]
    begin(stage, has_schema=scenario.start is not None)

    def other() -> None:
        if scenario.theirs is not None:
            stage.table("theirs").upsert(rows("theirs", scenario.theirs), schema_mode="add")

    # To a table without a schema, the seed of a write brings it, which is a base file.
    makes_base_file = scenario.start is None or kind == "copy on write"
    storage = Meddled(stage.storage, "-0_" if makes_base_file else ".log.", other)
    table = stage.table("own", storage, schema_strategy=strategy)
    try:
        table.upsert(rows("own", scenario.own), schema_mode="add")
    except pyhudi.ConcurrentSchemaEvolutionError as error:
        return error
    finally:
        assert storage.is_done
    return None


# ---- what was recorded


def recorded(storage: Storage) -> list[tuple[Instant, str | None]]:
    """The completed writes by their requests, with the schema that each recorded."""
    names = [stat.path.rpartition("/")[2] for stat in storage.list_folder(TIMELINE).objects]
    instants = [Instant.parse(name) for name in sorted(names) if is_timeline_file(name)]
    done = [i for i in instants if i.state is State.COMPLETED and i.action in WRITE_ACTIONS]
    return [(instant, recorded_by_write(metadata(storage, instant))) for instant in done]


def metadata(storage: Storage, instant: Instant) -> CommitMetadata:
    path = f"{TIMELINE}/{instant.file_name}"
    return decode_commit_metadata(storage.read(path), path)


def requires_one_schema(storage: Storage) -> None:
    """Hudi's readers go by the greatest request, and RFC-82 by the greatest completion.

    Of requests those of pyhudi's table services count, too.
    """
    found = recorded(storage)
    writes = [(instant, schema) for instant, schema in found if schema is not None]
    of_services = ((i, metadata(storage, i)) for i, schema in found if schema is None)
    services = [
        (instant, done.schema_json or "")
        for instant, done in of_services
        if WRITER_KEY in (done.extra_metadata or {})
    ]
    by_request = max([*writes, *services], key=lambda commit: commit[0].requested)[1]
    by_completion = max(writes, key=lambda write: write[0].completed or "")[1]
    assert by_request == by_completion
