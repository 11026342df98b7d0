"""Creating tables: races, crashes, lost replies, and tables that are there already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import Effect, Fault, FaultyStorage
from handmade import HandmadeTable
from pyhudi.errors import CorruptTableError, InvalidRequestError, TableExistsError, UnavailableError
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.properties import encode_properties
from pyhudi.format.table.table_config import TableConfig
from pyhudi.plan.table_definition import TableDefinition
from pyhudi.read.load import is_table, load_config
from pyhudi.session.create import FOLDER_KEEPER, create_table_files
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.local_disk import LocalStorage
from pyhudi.storage.stores.memory import MemoryStorage
from seeded_world import seeded_world

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())])
PROPERTIES = ".hoodie/hoodie.properties"
BACKUP = ".hoodie/hoodie.properties.backup"


def orders(**changes: Any) -> TableDefinition:
    asked: dict[str, Any] = {"record_key": "id", "buckets": SimpleBuckets(8), "ordering": "v"}
    return TableDefinition.of("orders", changes.pop("schema", SCHEMA), **(asked | changes))


def create(
    storage: Storage, asked: TableDefinition | None = None, *, exist_ok: bool = True, seed: int = 0
) -> TableConfig:
    return create_table_files(storage, asked or orders(), seeded_world(seed), exist_ok=exist_ok)


@pytest.fixture(params=["memory", "local"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return LocalStorage(str(tmp_path / "table"))
    return MemoryStorage(lambda: 0)


# -- creating and opening


def test_a_created_table_is_a_table_that_reads_empty(tmp_path: Path) -> None:
    config = create(LocalStorage(str(tmp_path / "t")), exist_ok=False)
    assert config.buckets == SimpleBuckets(8, ("id",))
    table = pyhudi.open_table(tmp_path / "t")
    read = table.read().to_arrow()
    assert read.num_rows == 0
    assert [name for name in read.column_names if not name.startswith("_hoodie")] == SCHEMA.names


def test_creating_costs_two_writes_and_two_questions(storage: Storage) -> None:
    counted = FaultyStorage(storage)
    create(counted)
    assert [operation.name for operation in counted.trace] == ["stat", "stat", "create", "create"]


def test_what_was_created_is_what_is_loaded(storage: Storage) -> None:
    assert create(storage) == load_config(storage)


def test_an_existing_table_that_is_the_same_is_opened(storage: Storage) -> None:
    first = create(storage, seed=1)
    data = storage.read(PROPERTIES)
    assert create(storage, seed=2) == first
    assert storage.read(PROPERTIES) == data


def test_an_existing_table_is_refused_unless_allowed(storage: Storage) -> None:
    create(storage)
    with pytest.raises(TableExistsError, match="there is a table at"):
        create(storage, exist_ok=False)


@pytest.mark.parametrize(
    ("changes", "differences"),
    [
        ({"record_key": "part"}, ["record key: id in the table, part requested", "8 by part"]),
        ({"buckets": SimpleBuckets(9)}, ["buckets: 8 by id in the table, 9 by id requested"]),
        (
            {"partition_by": "part", "ordering": ()},
            ["partition columns", "key generator", "ordering", "merge mode", "concurrency mode"],
        ),
        ({"schema": SCHEMA.append(pa.field("w", pa.int32()))}, ["column 'w' is not in the table"]),
        (
            {"schema": SCHEMA.set(1, pa.field("part", pa.int32()))},
            ["column 'part' is string, not int32"],
        ),
        (
            {"schema": SCHEMA.set(0, pa.field("id", pa.string(), nullable=False))},
            ["column 'id' may be null"],
        ),
    ],
)
def test_another_table_is_refused_and_every_difference_named(
    storage: Storage, changes: dict[str, Any], differences: list[str]
) -> None:
    create(storage)
    data = storage.read(PROPERTIES)
    with pytest.raises(TableExistsError, match="exists and is different") as caught:
        create(storage, orders(**changes))
    assert all(difference in caught.value.why for difference in differences)
    assert caught.value.why.count(";") == len(differences) - 1
    assert storage.read(PROPERTIES) == data


EVOLVED = SCHEMA.append(pa.field("w", pa.int32()))


@pytest.mark.parametrize(
    ("schema", "is_known"),
    [(SCHEMA, True), (EVOLVED, True), (pa.schema([("id", pa.string()), ("v", pa.int64())]), False)],
    ids=["as it began", "as it is now", "as it never was"],
)
def test_a_table_that_has_grown_is_known_by_its_old_columns_and_its_new_ones(
    memory: Storage, schema: pa.Schema, is_known: bool
) -> None:
    create(memory)
    stored = memory.read(PROPERTIES)
    grown = HandmadeTable(memory, EVOLVED)
    memory.write(PROPERTIES, stored)  # the handmade table has put its own there
    grown.begin(10)
    grown.complete(10, 11)
    if is_known:
        assert create(memory, orders(schema=schema)).name == "orders"
    else:
        with pytest.raises(InvalidRequestError, match="column 'part' is in the table"):
            create(memory, orders(schema=schema))


def test_a_table_that_keeps_no_schema_is_known_by_what_was_written(memory: Storage) -> None:
    create(memory)
    values = dict(load_config(memory).properties.values)
    del values["hoodie.table.create.schema"]
    memory.write(PROPERTIES, encode_properties(values))
    with pytest.raises(InvalidRequestError, match="column 'id' is not in the table"):
        create(memory)
    written = HandmadeTable(memory, SCHEMA)
    memory.write(PROPERTIES, encode_properties(values))
    written.begin(10)
    written.complete(10, 11)
    assert create(memory).buckets == SimpleBuckets(8, ("id",))


# -- Hudi at work on the same table


def test_a_table_that_hudi_is_rewriting_is_found_by_its_backup(storage: Storage) -> None:
    first = create(storage)
    storage.create(BACKUP, storage.read(PROPERTIES))
    storage.delete(PROPERTIES)
    assert create(storage) == first
    with pytest.raises(InvalidRequestError, match="already"):
        create(storage, exist_ok=False)
    assert storage.stat(PROPERTIES) is None  # Hudi's to write
    assert storage.stat(BACKUP) is not None


def test_a_backup_that_hudi_left_behind_does_not_matter(storage: Storage) -> None:
    first = create(storage)
    storage.create(BACKUP, b"")
    assert create(storage) == first
    assert storage.stat(BACKUP) is not None


def test_properties_that_are_no_tables_are_not_overwritten(storage: Storage) -> None:
    storage.create(PROPERTIES, b"rubbish")
    with pytest.raises(CorruptTableError):
        create(storage)
    assert storage.read(PROPERTIES) == b"rubbish"


# -- racing creators


def raced(calls: list[Callable[[], TableConfig]]) -> list[TableConfig | InvalidRequestError]:
    """The answers of calls that start at the same moment."""
    together = Barrier(len(calls))

    def run(call: Callable[[], TableConfig]) -> TableConfig | InvalidRequestError:
        together.wait()
        try:
            return call()
        except InvalidRequestError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def test_racing_creators_of_one_table_all_have_it(storage: Storage) -> None:
    answers = raced([lambda seed=i: create(storage, seed=seed) for i in range(8)])  # type: ignore[misc]
    assert answers == [load_config(storage)] * 8


def test_of_racing_creators_that_insist_on_a_new_table_one_wins(storage: Storage) -> None:
    answers = raced(
        [lambda seed=i: create(storage, exist_ok=False, seed=seed) for i in range(8)]  # type: ignore[misc]
    )
    created = [answer for answer in answers if isinstance(answer, TableConfig)]
    assert created == [load_config(storage)]


def test_racing_creators_of_different_tables_never_believe_each_others(storage: Storage) -> None:
    answers = raced(
        [
            lambda n=i: create(storage, orders(buckets=SimpleBuckets(1 + n % 2)), seed=n)  # type: ignore[misc]
            for i in range(8)
        ]
    )
    (winner,) = {a.buckets for a in answers if isinstance(a, TableConfig)}
    assert isinstance(winner, SimpleBuckets)
    assert load_config(storage).buckets == winner
    refused = [a for a in answers if isinstance(a, InvalidRequestError)]
    assert len(refused) == 4
    assert all("buckets: " in error.why for error in refused)


def test_losing_the_race_to_another_process_counts_as_finding_its_table(storage: Storage) -> None:
    class Overtaken(FaultyStorage):
        def create(self, path: str, data: bytes) -> bool:
            if path == PROPERTIES and not is_table(storage):
                create(storage, seed=7)
            return super().create(path, data)

    with pytest.raises(InvalidRequestError, match="already"):
        create(Overtaken(storage), exist_ok=False)
    assert create(storage, seed=8) == load_config(storage)


# -- lost replies and crashes


def test_a_lost_reply_is_found_out_by_reading(storage: Storage) -> None:
    plan = [Fault(Effect.LOSE_REPLY, "create", PROPERTIES)]
    assert create(FaultyStorage(storage, plan), exist_ok=False) == load_config(storage)


def test_a_client_that_repeats_its_own_request_knows_its_own_table(storage: Storage) -> None:
    class Repeating(FaultyStorage):
        def create(self, path: str, data: bytes) -> bool:
            super().create(path, data)
            return super().create(path, data)

    assert create(Repeating(storage), exist_ok=False) == load_config(storage)


def test_a_request_that_never_arrived_is_reported(storage: Storage) -> None:
    with pytest.raises(UnavailableError):
        create(FaultyStorage(storage, [Fault(Effect.FAIL, "create", PROPERTIES)]))
    assert not is_table(storage)


def crashes(operations: int) -> Iterator[tuple[Fault, ...]]:
    """Plans of a process that dies before or after each of its storage operations."""
    for nth in range(1, operations + 1):
        yield (Fault(Effect.FAIL, nth=nth, times=None),)
        yield (Fault(Effect.LOSE_REPLY, nth=nth), Fault(Effect.FAIL, nth=nth + 1, times=None))


CRASHES = list(crashes(4))


@pytest.mark.parametrize("first", range(len(CRASHES)))
@pytest.mark.parametrize("second", [None, *range(len(CRASHES))])
def test_a_creator_may_die_anywhere_and_so_may_its_successor(
    first: int, second: int | None
) -> None:
    storage = MemoryStorage(lambda: 0)
    for seed, number in enumerate(n for n in (first, second) if n is not None):
        try:
            create(FaultyStorage(storage, CRASHES[number]), seed=seed)
        except UnavailableError:
            assert not is_table(storage) or load_config(storage).name == "orders"
    assert create(storage, seed=9) == load_config(storage)
    assert storage.stat(FOLDER_KEEPER) is not None
    assert [stat.path for stat in storage.list("")] == sorted([FOLDER_KEEPER, PROPERTIES])


@pytest.mark.parametrize("plan", CRASHES)
def test_after_a_crash_there_is_no_table_or_a_whole_one(plan: tuple[Fault, ...]) -> None:
    storage = MemoryStorage(lambda: 0)
    with pytest.raises(UnavailableError):
        create(FaultyStorage(storage, plan))
    if is_table(storage):
        assert load_config(storage).buckets == SimpleBuckets(8, ("id",))
        assert storage.stat(FOLDER_KEEPER) is not None  # without it Hudi's readers fail
