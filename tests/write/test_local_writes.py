"""Writing through the front door: what is written is read; what fails leaves no trace."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import Effect, Fault, FaultyStorage
from opened_tables import table_on
from pyhudi.api.table import Table
from pyhudi.format.files.file_names import LogFileName, parse_data_file
from pyhudi.settings import FailedWrites, LogBlockFormat, WriteSettings
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from worlds import Clock, still_world

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("day", pa.string()),
        ("ts", pa.int64()),
        ("amount", pa.float64()),
    ]
)
Rows = dict[str, tuple[str, int, float]]
_names = itertools.count()


def rows(start: int, stop: int, ts: int = 1, amount: float = 1.0) -> pa.Table:
    ids = [f"k{number}" for number in range(start, stop)]
    return pa.table(
        {
            "id": ids,
            "day": [f"d{number % 2}" for number in range(start, stop)],
            "ts": [ts] * len(ids),
            "amount": [amount] * len(ids),
        },
        schema=SCHEMA,
    )


def new_table(uri: str | None = None, **options: Any) -> Table:
    """A table in memory by default, with two partitions and an ordering."""
    given = {
        "record_key": "id",
        "partition_by": "day",
        "ordering": "ts",
        "buckets": pyhudi.SimpleBuckets(2),
        **options,
    }
    if given.get("table_type") == "cow":
        given.setdefault("merge_mode", None)
    return pyhudi.create_table(uri or f"memory://writes{next(_names)}", SCHEMA, **given)


def content(table: Table) -> Rows:
    found = table.read(columns=["id", "day", "ts", "amount"]).to_arrow().to_pylist()
    by_key = {row["id"]: (row["day"], row["ts"], row["amount"]) for row in found}
    assert len(by_key) == len(found), "a key is there twice"
    return by_key


def timeline(table: Table) -> list[tuple[str, str]]:
    return [(r["action"], r["state"]) for r in table.inspect.timeline().to_pylist()]


KINDS = [
    {"table_type": "mor"},
    {"table_type": "cow"},
    {"table_type": "mor", "ordering": ()},
    {"table_type": "cow", "ordering": ()},
    {"table_type": "mor", "partition_by": (), "version": 8},
    {"table_type": "cow", "partition_by": ("day", "ts"), "hive_style": True},
    {"table_type": "mor", "record_key": ("id", "day"), "partition_by": ()},
]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_an_upsert_adds_new_keys_and_merges_known_ones(options: dict[str, Any]) -> None:
    table = new_table(**options)
    first = table.upsert(rows(0, 20))
    if options.get("partition_by") == ("day", "ts"):
        second = table.upsert(rows(10, 30, amount=2.0))
        expected = {f"k{n}": (f"d{n % 2}", 1, 2.0 if n >= 10 else 1.0) for n in range(30)}
    else:
        second = table.upsert(rows(10, 30, ts=2, amount=2.0))
        expected = {f"k{n}": (f"d{n % 2}", *((2, 2.0) if n >= 10 else (1, 1.0))) for n in range(30)}
    assert content(table) == expected
    assert (first.rows, second.rows) == (20, 20)
    assert first.instant < first.completed < second.instant < second.completed
    assert table.read(as_of=first).to_arrow().num_rows == 20
    changed = table.changes(since=first, until=second).to_arrow()
    assert sorted(changed["id"].to_pylist()) == sorted(f"k{n}" for n in range(10, 30))


@pytest.mark.parametrize("options", KINDS[:4], ids=str)
def test_deleted_keys_are_gone_and_the_others_stay(options: dict[str, Any]) -> None:
    table = new_table(**options)
    table.upsert(rows(0, 10))
    result = table.delete(pa.table({"id": ["k3", "k4", "absent"]}))
    assert content(table).keys() == {f"k{n}" for n in range(10)} - {"k3", "k4"}
    assert result.deletes == 2
    table.delete("id in ('k0', 'k1') and amount = 1.0")
    assert content(table).keys() == {f"k{n}" for n in (2, 5, 6, 7, 8, 9)}
    table.upsert(rows(3, 4, ts=9))
    assert "k3" in content(table)


def test_a_delete_carries_the_ordering_value_of_the_row_it_saw() -> None:
    table = new_table()
    table.upsert(rows(0, 2, ts=5))
    table.delete(pa.table({"id": ["k0"]}))
    table.upsert(rows(0, 1, ts=4))  # late: it is older than what was deleted
    assert content(table).keys() == {"k1"}
    table.upsert(rows(0, 1, ts=6))
    assert content(table).keys() == {"k0", "k1"}


def test_a_delete_that_is_older_than_the_row_does_nothing() -> None:
    table = new_table()
    table.upsert(rows(0, 2, ts=5))
    keys = pa.table({"id": ["k0", "k1"], "day": ["d0", "d1"], "ts": pa.array([4, 5], pa.int64())})
    table.delete(keys)
    assert content(table).keys() == {"k0"}


def test_an_unconditional_delete_must_be_asked_for() -> None:
    table = new_table()
    table.upsert(rows(0, 2, ts=5))
    table.delete(pa.table({"id": ["k0"], "day": ["d0"]}), unconditional=True)
    table.upsert(rows(0, 1, ts=1))
    # As in Hudi: the delete is forgotten, and the base row (there is none here) decides.
    assert content(table)["k0"] == ("d0", 1, 1.0)


@pytest.mark.parametrize("event_time", [True, False])
@pytest.mark.parametrize("table_type", ["mor", "cow"])
def test_of_rows_with_one_key_in_one_write_one_stays(table_type: str, event_time: bool) -> None:
    table = new_table(table_type=table_type, ordering="ts" if event_time else ())
    twice = pa.concat_tables([rows(0, 1, ts=7, amount=7.0), rows(0, 1, ts=3, amount=3.0)])
    assert table.upsert(twice).rows == 1
    assert content(table) == {"k0": ("d0", 7, 7.0) if event_time else ("d0", 3, 3.0)}


def test_anything_that_speaks_arrow_can_be_written() -> None:
    table = new_table()
    table.upsert(rows(0, 2).to_batches()[0])
    table.upsert(rows(2, 4).to_reader())
    table.upsert(rows(4, 6).to_pandas())
    table.append(table.read(columns=["id", "day", "ts", "amount"]))
    assert content(table).keys() == {f"k{n}" for n in range(6)}


def test_a_stream_larger_than_memory_becomes_several_log_files_of_one_write() -> None:
    settings = WriteSettings(buffer_bytes_max=2_000)
    table = new_table(write_settings=settings)
    batches = [rows(start, start + 25).to_batches()[0] for start in range(0, 400, 25)]
    reader = pa.RecordBatchReader.from_batches(SCHEMA, iter(batches))
    result = table.upsert(reader)
    assert len(content(table)) == 400
    assert result.rows == 400
    assert result.files > 4
    # The table's beginning, the seed, and the write.
    assert timeline(table) == [("deltacommit", "completed")] * 3


@pytest.mark.parametrize("block_format", list(LogBlockFormat))
def test_log_files_roll_at_their_limit(block_format: LogBlockFormat) -> None:
    settings = WriteSettings(log_file_bytes_max=20_000, log_block_format=block_format)
    table = new_table(write_settings=settings, buckets=pyhudi.SimpleBuckets(1), partition_by=())
    many = rows(0, 4_000)
    many = many.set_column(1, "day", pa.array([f"{n:0100d}" for n in range(4_000)]))
    result = table.upsert(many)
    storage = open_storage(table.uri)
    names = [parse_data_file(s.path) for s in storage.list_folder("").objects]
    versions = sorted(name.version for name in names if isinstance(name, LogFileName))
    assert versions == list(range(1, result.files + 1))
    assert len(versions) > 1
    assert len(content(table)) == 4_000


# -- bad input


def with_column(name: str, column: pa.Array) -> pa.Table:
    table = rows(0, 3)
    return table.set_column(table.column_names.index(name), name, column)


BAD: list[tuple[str, Callable[[], Any], str]] = [
    ("a missing column", lambda: rows(0, 3).drop_columns(["amount"]), "amount"),
    ("an unknown column", lambda: rows(0, 3).append_column("x", pa.array([1, 2, 3])), "'x'"),
    ("another type", lambda: with_column("ts", pa.array(["a", "b", "c"])), "ts"),
    ("a null key", lambda: with_column("id", pa.array(["a", None, "c"])), "row 1"),
    ("an empty key", lambda: with_column("id", pa.array(["a", "", "c"])), "row 1"),
    ("a null ordering value", lambda: with_column("ts", pa.array([1, None, 3])), "row 1"),
    ("an illegal partition", lambda: with_column("day", pa.array(["a", "../b", "c"])), r"\.\./b"),
    ("no rows at all", lambda: object(), "__arrow_c_stream__"),
]


@pytest.mark.parametrize("table_type", ["mor", "cow"])
@pytest.mark.parametrize(("what", "bad", "told"), BAD, ids=[what for what, _, _ in BAD])
def test_bad_rows_are_refused_with_a_sample_and_nothing_changes(
    what: str, bad: Callable[[], Any], told: str, table_type: str
) -> None:
    table = new_table(table_type=table_type)
    table.upsert(rows(0, 2))
    before, instants = content(table), timeline(table)
    with pytest.raises(pyhudi.InvalidRequestError, match=told):
        table.upsert(bad())
    assert content(table) == before
    assert timeline(table) == instants


def test_a_float_key_is_refused_when_the_table_is_created() -> None:
    with pytest.raises(pyhudi.InvalidRequestError, match="amount"):
        new_table(record_key="amount")


def test_a_bad_row_late_in_a_stream_leaves_nothing_visible() -> None:
    table = new_table(write_settings=WriteSettings(buffer_bytes_max=500))
    table.upsert(rows(0, 2))
    before = content(table)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from (rows(n, n + 25).to_batches()[0] for n in range(0, 100, 25))
        yield with_column("id", pa.array(["a", None, "c"])).to_batches()[0]

    unchecked = pa.schema([field.with_nullable(True) for field in SCHEMA])
    stream = (pa.RecordBatch.from_arrays(b.columns, schema=unchecked) for b in batches())
    with pytest.raises(pyhudi.InvalidRequestError, match="row 1"):
        table.upsert(pa.RecordBatchReader.from_batches(unchecked, stream))
    assert content(table) == before
    assert not [state for _, state in timeline(table) if state != "completed"]
    assert leftovers(open_storage(table.uri)) == []


def leftovers(storage: Storage) -> list[str]:
    """Data files of instants that did not complete, and their pending files."""
    names = [s.path.rpartition("/")[2] for s in storage.list(".hoodie/timeline")]
    done = {name[:17] for name in names if "_" in name}
    files = (s.path for s in storage.list("") if not s.path.startswith(".hoodie"))
    parsed = ((path, parse_data_file(path.rpartition("/")[2])) for path in files)
    data = [path for path, name in parsed if name and name.requested not in done]
    return data + [name for name in names if name[:1].isdigit() and name[:17] not in done]


# -- failing storage


def writer(
    storage: Storage, clock: Clock, label: str = "w", settings: WriteSettings | None = None
) -> Table:
    return table_on(storage, still_world(clock, label), settings or WriteSettings())


def memory_table(**options: Any) -> tuple[MemoryStorage, Clock]:
    """A table in a storage of its own, with a clock of its own."""
    table = new_table(**options)
    clock = Clock(int(datetime(2027, 1, 1, tzinfo=UTC).timestamp()) * 1000)
    storage = MemoryStorage(lambda: clock.ms)
    for stat in open_storage(table.uri).list(""):
        storage.write(stat.path, open_storage(table.uri).read(stat.path))
    return storage, clock


@pytest.mark.parametrize("table_type", ["mor", "cow"])
def test_a_full_disk_leaves_the_table_as_it_was(table_type: str) -> None:
    storage, clock = memory_table(table_type=table_type)
    writer(storage, clock).upsert(rows(0, 4))
    before = content(writer(storage, clock))
    full = Fault(Effect.TEAR, path="d?/*", times=None, keep_bytes=10)
    broken = writer(FaultyStorage(storage, [full]), clock, "broken")
    with pytest.raises(pyhudi.UnavailableError):
        broken.upsert(rows(0, 8, ts=2))
    assert content(writer(storage, clock)) == before
    assert writer(storage, clock).services.repair(grace_minutes=0)
    assert leftovers(storage) == []


def test_a_lost_reply_of_the_decision_is_resolved_and_not_repeated() -> None:
    storage, clock = memory_table()
    lost = Fault(Effect.LOSE_REPLY, operation="create", path="*/log/*", times=6)
    table = writer(FaultyStorage(storage, [lost]), clock)
    table.upsert(rows(0, 4))
    assert len(content(writer(storage, clock))) == 4
    entries = list(storage.list(".hoodie/.pyhudi/log"))
    assert len(entries) == 6  # begin and complete, of the beginning, the seed and the write


def test_an_unknown_outcome_is_resolved_by_the_write_id() -> None:
    storage, clock = memory_table()
    writer(storage, clock).upsert(rows(100, 101))
    # The decision is made, and then storage is gone for this process.
    lost = Fault(Effect.LOSE_REPLY, operation="create", path="*/log/*", nth=4)
    gone = Fault(Effect.FAIL, path="*/log/*", operation="read", times=None)
    broken = writer(FaultyStorage(storage, [lost, gone]), clock, "broken")
    with pytest.raises(pyhudi.UnavailableError):
        broken.upsert(rows(0, 4), write_id="batch 1")
    again = writer(storage, clock, "again").upsert(rows(0, 4), write_id="batch 1")
    once_more = writer(storage, clock, "more").upsert(rows(0, 4), write_id="batch 1")
    assert again.instant == once_more.instant
    assert content(writer(storage, clock)).keys() == {"k100", "k0", "k1", "k2", "k3"}
    assert leftovers(storage) == []


def test_a_write_id_that_is_still_pending_is_given_up_first() -> None:
    storage, clock = memory_table()
    writer(storage, clock).upsert(rows(100, 102))
    dead = Fault(Effect.FAIL, path=".hoodie/timeline/*_*", operation="create", times=None)
    dead_log = Fault(Effect.FAIL, path="*/log/*", operation="create", nth=2, times=None)
    broken = writer(FaultyStorage(storage, [dead, dead_log]), clock, "broken")
    with pytest.raises(pyhudi.OutcomeUnknownError) as error:
        broken.upsert(rows(0, 4), write_id="batch 1")
    again = writer(storage, clock, "again").upsert(rows(0, 4, amount=2.0), write_id="batch 1")
    assert again.instant != error.value.instant
    assert content(writer(storage, clock))["k0"] == ("d0", 1, 2.0)
    assert ("rollback", "completed") in timeline(writer(storage, clock))
    assert leftovers(storage) == []


# -- several writers


def test_writers_of_an_ordered_table_never_conflict() -> None:
    storage, clock = memory_table()
    a, b = writer(storage, clock, "a"), writer(storage, clock, "b")
    for turn in range(4):
        a.upsert(rows(0, 4, ts=2 * turn))
        b.upsert(rows(0, 4, ts=2 * turn + 1, amount=float(turn)))
    assert content(a) == {f"k{n}": (f"d{n % 2}", 7, 3.0) for n in range(4)}


def test_a_copy_on_write_conflict_is_retried_on_the_table_as_it_is() -> None:
    storage, clock = memory_table(table_type="cow")
    a, b = writer(storage, clock, "a"), writer(storage, clock, "b")
    a.upsert(rows(0, 2))

    class Meddled(FaultyStorage):
        """The other writer commits in the middle of the first attempt."""

        meddled = False

        def create_from(self, path: str, chunks: Any) -> int | None:
            if not self.meddled and path.endswith(".parquet"):
                self.meddled = True
                b.upsert(rows(0, 2, ts=2, amount=2.0))
            return super().create_from(path, chunks)

    result = writer(Meddled(storage), clock, "c").upsert(rows(1, 4, ts=3, amount=3.0))
    assert result.retries == 1
    assert content(a) == {
        "k0": ("d0", 2, 2.0),
        "k1": ("d1", 3, 3.0),
        "k2": ("d0", 3, 3.0),
        "k3": ("d1", 3, 3.0),
    }
    assert leftovers(storage) == []


def test_a_conflict_names_the_other_write_and_the_file_group() -> None:
    storage, clock = memory_table(table_type="cow")
    settings = WriteSettings(conflict_retries=0)
    a = writer(storage, clock, "a")
    a.upsert(rows(0, 2))

    class Meddled(FaultyStorage):
        meddled = False

        def create_from(self, path: str, chunks: Any) -> int | None:
            if not self.meddled and path.endswith(".parquet"):
                self.meddled = True
                a.upsert(rows(0, 2, ts=2))
            return super().create_from(path, chunks)

    loser = writer(Meddled(storage), clock, "b", settings)
    with pytest.raises(pyhudi.ConflictError, match="first committer wins") as error:
        loser.upsert(rows(0, 2, ts=3))
    last = [r for r in a.inspect.timeline().to_pylist() if r["action"] == "commit"][-1]
    assert last["requested"] in str(error.value)
    facts = error.value.facts
    assert facts["theirs"]["instant"] == last["requested"]
    assert (facts["rule"], facts["retry"]) == ("same_file_group", "write")
    assert facts["file_group"].startswith(f"{facts['bucket']:08}")
    assert facts["keys"] == [{"d0": "k0", "d1": "k1"}[facts["partition"]]]
    assert facts["lost"]["rows"] == 2
    assert content(a) == {"k0": ("d0", 2, 1.0), "k1": ("d1", 2, 1.0)}


def abandoned(storage: MemoryStorage, clock: Clock) -> str:
    """A write whose process died after its data files; its instant."""
    is_new = not list(storage.list(".hoodie/.pyhudi/log"))
    nth = 4 if is_new else 2  # a new table gets its beginning first
    dead = Fault(Effect.FAIL, operation="create", path="*/log/*", nth=nth, times=None)
    table = writer(FaultyStorage(storage, [dead]), clock, "dead")
    with pytest.raises(pyhudi.OutcomeUnknownError) as error:
        table.upsert(rows(0, 4, ts=99, amount=99.0))
    return error.value.instant


def test_a_dead_writer_is_rolled_back_once_though_five_notice() -> None:
    storage, clock = memory_table()
    writer(storage, clock).upsert(rows(0, 4))
    failed = abandoned(storage, clock)
    clock.sleep(10 * 60_000)
    five = [writer(storage, clock, f"w{n}") for n in range(5)]
    for number, table in enumerate(five):
        table.upsert(rows(number, number + 1, ts=2))
    rollbacks = [name for name, _ in timeline(five[0]) if name == "rollback"]
    assert len(rollbacks) == 1
    assert leftovers(storage) == []
    assert failed not in {r["requested"] for r in five[0].inspect.timeline().to_pylist()}


def test_a_live_writer_is_never_rolled_back_however_wrong_the_clock_of_the_other() -> None:
    storage, clock = memory_table()
    writer(storage, clock).upsert(rows(0, 4))
    failed = abandoned(storage, clock)  # its heartbeat is fresh
    table = table_on(storage, still_world(clock, skew_ms=3_600_000), WriteSettings())
    table.upsert(rows(0, 1, ts=2))
    assert (failed, "deltacommit", "inflight") in {
        (r["requested"], r["action"], r["state"]) for r in table.inspect.timeline().to_pylist()
    }


def test_an_eager_writer_rolls_back_at_once() -> None:
    storage, clock = memory_table()
    writer(storage, clock).upsert(rows(0, 4))
    abandoned(storage, clock)
    eager = writer(storage, clock, "e", WriteSettings(failed_writes=FailedWrites.EAGER))
    eager.upsert(rows(0, 1, ts=2))
    assert leftovers(storage) == []
    assert ("rollback", "completed") in timeline(eager)


# -- seeds


def test_the_first_write_to_a_partition_is_preceded_by_a_seed() -> None:
    table = new_table()
    table.upsert(rows(0, 4))
    table.upsert(rows(0, 4, ts=2))
    storage = open_storage(table.uri)
    bases = [s.path for s in storage.list("") if s.path.endswith(".parquet")]
    assert len(bases) == 4  # two partitions, two buckets
    assert len({path[-25:] for path in bases}) == 1, "one seed, of one instant"
    assert timeline(table) == [("deltacommit", "completed")] * 4  # with the table's beginning


def test_a_table_begins_with_a_write_of_nothing_so_that_late_files_stay_unseen() -> None:
    storage, clock = memory_table(table_type="cow")
    table = writer(storage, clock)
    first = abandoned(storage, clock)
    clock.sleep(10 * 60_000)
    table.upsert(rows(100, 102))
    late = f"d0/00000000-0000-0000-0000-000000000000-0_0-0-0_{first}.parquet"
    template = next(s.path for s in storage.list("d0") if s.path.endswith(".parquet"))
    storage.create(late, storage.read(template))
    beginnings = [r for r in table.inspect.timeline().to_pylist() if r["action"] == "commit"]
    assert beginnings[0]["requested"] < first
    assert content(writer(storage, clock)).keys() == {"k100", "k101"}


def test_two_writers_that_seed_one_partition_hide_no_row() -> None:
    storage, clock = memory_table()
    b = writer(storage, clock, "b")

    class Meddled(FaultyStorage):
        meddled = False

        def create(self, path: str, data: bytes) -> bool:
            if not self.meddled and path.endswith(".parquet"):
                self.meddled = True
                b.upsert(rows(0, 4, ts=2, amount=2.0))
            return super().create(path, data)

    a = writer(Meddled(storage), clock, "a")
    a.upsert(rows(2, 6, ts=3, amount=3.0))
    assert content(b) == {
        f"k{n}": (f"d{n % 2}", *((3, 3.0) if n >= 2 else (2, 2.0))) for n in range(6)
    }
    assert leftovers(storage) == []


def test_a_table_with_a_live_metadata_table_is_refused_until_it_is_switched_off() -> None:
    storage, clock = memory_table()
    path = ".hoodie/hoodie.properties"
    data = storage.read(path) + b"hoodie.table.metadata.partitions=files\n"
    storage.write(path, data)
    storage.write(".hoodie/metadata/files/x", b"stale")
    table = writer(storage, clock)
    with pytest.raises(pyhudi.UnsupportedTableError, match="disable_metadata_table"):
        table.upsert(rows(0, 2))
    table.alter.disable_metadata_table()
    table.upsert(rows(0, 2))
    assert content(table).keys() == {"k0", "k1"}
    assert not list(storage.list(".hoodie/metadata"))


def test_every_storable_type_comes_back_as_it_was() -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("d", pa.decimal128(10, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("tags", pa.list_(pa.string())),
            ("attributes", pa.map_(pa.string(), pa.int32())),
            ("where", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
        ]
    )
    row = {
        "id": 1,
        "d": Decimal("1.50"),
        "at": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "tags": ["a", None],
        "attributes": [("k", 1)],
        "where": {"x": 1.0, "y": 2.0},
    }
    for table_type, block_format in itertools.product(("mor", "cow"), LogBlockFormat):
        table = pyhudi.create_table(
            f"memory://types{next(_names)}",
            schema,
            record_key="id",
            buckets=pyhudi.SimpleBuckets(1),
            table_type=table_type,
            write_settings=WriteSettings(log_block_format=block_format),
        )
        table.upsert(pa.Table.from_pylist([row], schema=schema))
        found = table.read(columns=schema.names).to_arrow()
        assert found.to_pylist() == [row]
