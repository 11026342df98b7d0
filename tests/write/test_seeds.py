"""File groups of buckets: seeds are in nobody's way, and rows go only where readers look."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from memory_tables import TIMELINE, MemoryTable
from pyhudi.errors import CorruptTableError, UnavailableError, UnsupportedTableError
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import BUCKET_COUNT, SimpleBuckets
from pyhudi.format.table.table_config import CREATE_SCHEMA, TableType
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    encode_replace_commit_metadata,
)
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.read.load import PROPERTIES
from pyhudi.session.properties import update_properties
from pyhudi.session.simple_groups import BUCKETS_FOLDER
from pyhudi.timeline.instant_time import following_time
from pyhudi.write.files.base_file import write_base
from pyhudi.write.files.spec import KeyedRows, WriteSpec

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("ts", pa.int64())])
FIXED = "00000000-0000-0000-0000-000000000000-0"
NEW = "00000000-5ca1-ab1e-0000-00000000beef-0"


def rows(*ids: str, day: str = "mo", ts: int = 1) -> pa.Table:
    count = len(ids)
    return pa.table({"id": list(ids), "day": [day] * count, "ts": [ts] * count}, schema=SCHEMA)


class Bench(MemoryTable):
    """A partitioned table in memory, and processes that write it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(SCHEMA, **{"partition_by": "day", "buckets": SimpleBuckets(2), **options})

    def content(self) -> dict[tuple[str, str], int]:
        found = self.table("reader").read(columns=["day", "id", "ts"]).to_arrow().to_pylist()
        return {(row["day"], row["id"]): row["ts"] for row in found}

    def forget_schema(self) -> None:
        """As in a table that Hudi created and no write has given columns."""

        def forgotten(values: dict[str, str]) -> dict[str, str]:
            return {key: value for key, value in values.items() if key != CREATE_SCHEMA}

        update_properties(self.storage, forgotten, self.world("first"))


# -- seeds


@pytest.mark.parametrize("settings", [{}, {"buffer_bytes_max": 1}], ids=["whole", "as a stream"])
def test_rows_give_a_table_without_columns_its_schema_before_their_buckets_are_seeded(
    settings: dict[str, Any],
) -> None:
    """Of a stream, the partitions are known when its rows are written, as they are of Spark's."""
    bench = Bench(ordering="ts")
    bench.forget_schema()
    bench.table(**settings).upsert(rows("a", "b"))
    assert bench.content() == {("mo", "a"): 1, ("mo", "b"): 1}


def test_a_first_write_does_not_conflict_with_its_own_seed() -> None:
    bench = Bench()
    table = bench.table(conflict_retries=0)
    assert table.upsert(rows("a")).retries == 0
    assert table.upsert(rows("a", day="tu")).retries == 0
    assert bench.content() == {("mo", "a"): 1, ("tu", "a"): 1}


def test_a_stream_may_open_partitions_on_a_table_where_writes_conflict() -> None:
    bench = Bench()
    days = ["mo", "tu", "we", "mo"]
    batches = [rows(f"k{n}", day=day).to_batches()[0] for n, day in enumerate(days)]
    stream = pa.RecordBatchReader.from_batches(SCHEMA, iter(batches))
    result = bench.table(buffer_bytes_max=20).upsert(stream)
    assert (result.rows, result.retries) == (4, 0)
    assert bench.content() == {(day, f"k{n}"): 1 for n, day in enumerate(days)}


@pytest.mark.parametrize("ordering", ["ts", ()])
def test_of_two_that_seed_one_partition_neither_hides_rows_of_the_other(ordering: Any) -> None:
    bench = Bench(ordering=ordering)
    other = bench.table("other")

    class Meddled(FaultyStorage):
        met = False

        def create(self, path: str, data: bytes) -> bool:
            if not self.met and path.endswith(".parquet"):
                self.met = True
                other.upsert(rows("a", "b", "c", ts=1))
            return super().create(path, data)

    result = bench.table("late", Meddled(bench.storage)).upsert(rows("c", "d", "e", ts=2))
    assert bench.content() == {("mo", id_): 2 if id_ in "cde" else 1 for id_ in "abcde"}
    assert result.retries == 0, "only the seeds met: the rows began when the buckets were there"
    bases = [s.path for s in bench.storage.list("mo") if s.path.endswith(".parquet")]
    assert len(bases) == 2
    assert bench.pending() == []


@pytest.mark.parametrize("ordering", ["ts", ()])
def test_a_partition_is_seeded_once_though_the_other_that_seeded_it_wrote_no_row(
    ordering: Any,
) -> None:
    bench = Bench(ordering=ordering)
    full = Fault(Effect.FAIL, operation="create", path="mo/.0*")
    other = bench.table("other", FaultyStorage(bench.storage, [full]))

    class Meddled(FaultyStorage):
        met = False

        def create(self, path: str, data: bytes) -> bool:
            if not self.met and path.endswith(".parquet"):
                self.met = True
                with pytest.raises(UnavailableError):
                    other.upsert(rows("a"))
            return super().create(path, data)

    result = bench.table("late", Meddled(bench.storage)).upsert(rows("c", "d"))
    assert bench.content() == {("mo", "c"): 1, ("mo", "d"): 1}
    assert result.retries == 0
    bases = [s.path for s in bench.storage.list("mo") if s.path.endswith(".parquet")]
    assert len(bases) == 2
    assert bench.pending() == []


# -- file groups that another engine replaced


AVRO = json.dumps(avro_record_schema(SCHEMA, "t"))


def later(bench: Bench) -> InstantTime:
    """A time after all of the timeline's."""
    times = [name[:35].replace("_", ".").split(".")[:2] for name in bench.names()]
    return InstantTime(following_time(max(t for pair in times for t in pair if t[:1].isdigit())))


def overwrite(
    bench: Bench, replaced: str, requested: InstantTime | None = None, *new: WriteStat
) -> None:
    """What Hudi's delete_partition leaves; with new files, its insert_overwrite."""
    requested = requested or later(bench)
    metadata = CommitMetadata(
        partition_to_write_stats={"mo": new} if new else {},
        partition_to_replace_file_ids={"mo": (replaced,)},
        extra_metadata={"schema": AVRO},
        operation_type="INSERT_OVERWRITE",
    )
    data = encode_replace_commit_metadata(metadata, bytes(16))
    bench.storage.create(f"{TIMELINE}/{requested}.replacecommit.requested", b"")
    bench.storage.create(f"{TIMELINE}/{requested}.replacecommit.inflight", b"")
    completed = f"{requested}_{following_time(requested)}.replacecommit"
    bench.storage.create(f"{TIMELINE}/{completed}", data)


def shared_bench(table_type: TableType = TableType.MERGE_ON_READ) -> Bench:
    return Bench(ordering="ts", buckets=SimpleBuckets(1), lock=LockKind.FILE, table_type=table_type)


@pytest.mark.parametrize("knows", [True, False], ids=["a writer of before", "a new writer"])
def test_rows_for_a_replaced_file_group_are_refused_for_nobody_would_see_them(knows: bool) -> None:
    bench = shared_bench()
    table = bench.table()
    table.upsert(rows("a"))
    overwrite(bench, FIXED)
    assert bench.content() == {}
    writer = table if knows else bench.table("new")
    with pytest.raises(UnsupportedTableError, match="bucket 00000000 of partition 'mo'"):
        writer.upsert(rows("b"))
    writer.upsert(rows("b", day="tu"))
    assert bench.content() == {("tu", "b"): 1}
    assert bench.pending() == []


@pytest.mark.parametrize("knows", [True, False], ids=["a writer of before", "a new writer"])
def test_rows_go_to_the_file_group_that_replaced_another(knows: bool) -> None:
    bench = shared_bench()
    table = bench.table()
    table.upsert(rows("a"))
    requested = later(bench)
    batch = rows("n").to_batches()[0]
    new = write_base(
        bench.storage,
        WriteSpec(requested, AVRO),
        FileGroupId("mo", NEW),
        [KeyedRows(batch, batch.column("id"))],
    )
    overwrite(bench, FIXED, requested, new)
    assert bench.content() == {("mo", "n"): 1}
    (table if knows else bench.table("new")).upsert(rows("b"))
    assert bench.content() == {("mo", "n"): 1, ("mo", "b"): 1}
    assert json.loads(bench.storage.read(GROUPS)) == {"groups": [NEW]}


def test_a_copy_on_write_table_takes_no_rows_that_nobody_would_see() -> None:
    bench = shared_bench(TableType.COPY_ON_WRITE)
    bench.table().upsert(rows("a"))
    overwrite(bench, FIXED)
    assert bench.content() == {}
    try:
        bench.table("new").upsert(rows("b"))
    except UnsupportedTableError:
        assert bench.pending() == []
    else:
        assert bench.content() == {("mo", "b"): 1}


# -- the object that remembers

GROUPS = f"{BUCKETS_FOLDER}/mo/groups.json"
FORGED = [
    b"",
    b"[]",
    b"null",
    b"\xff",
    b"{}",
    b'{"groups":[1,2]}',
    b'{"groups":[null,null]}',
    b'{"groups":"ab"}',
    b'{"groups":[]}',
    b'{"groups":["00000001-x","00000000-y"]}',
    b'{"groups":["00000000/../../x","00000001-y"]}',
    b'{"groups":["00000000-x/y","00000001-y"]}',
    b'{"groups":["00000000_a","00000001-a_b_c"]}',
    b'{"groups":["00000000-x\\n","00000001-y"]}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("forged", FORGED, ids=lambda body: repr(body[:50]))
def test_file_groups_that_make_no_sense_are_reported_and_made_again(forged: bytes) -> None:
    bench = Bench(ordering="ts")
    bench.table().upsert(rows("a"))
    bench.storage.write(GROUPS, forged)
    with pytest.raises(CorruptTableError, match=r"groups\.json.*the next write makes it again"):
        bench.table("b").upsert(rows("b"))
    assert bench.content() == {("mo", "a"): 1}
    assert bench.pending() == []
    bench.storage.delete(GROUPS)
    bench.table("c").upsert(rows("b"))
    assert bench.content() == {("mo", "a"): 1, ("mo", "b"): 1}


@pytest.mark.parametrize("count", [1, 3])
def test_a_number_of_buckets_that_was_changed_is_told_apart_from_damage(count: int) -> None:
    """Deleting the object would let the next write put known keys into other buckets."""
    bench = Bench(ordering="ts")
    bench.table().upsert(rows("a", "b", "c"))
    properties = bench.storage.read(PROPERTIES)
    asked, kept = (f"{BUCKET_COUNT}={n}".encode() for n in (count, 2))
    assert kept in properties
    bench.storage.write(PROPERTIES, properties.replace(kept, asked))
    files = {stat.path for stat in bench.storage.list("")}
    plural = "s" if count > 1 else ""
    with pytest.raises(CorruptTableError, match=r"groups\.json") as caught:
        bench.table("b").upsert(rows("a", "b", "c"))
    says = f"hoodie.properties says {count} bucket{plural}, and the table was written with 2"
    assert caught.value.why == says
    assert f"Set {BUCKET_COUNT} back to 2, and delete nothing" in caught.value.next_step
    assert {stat.path for stat in bench.storage.list("")} == files
    bench.storage.write(PROPERTIES, properties)
    bench.table("c").upsert(rows("a", "d"))
    assert bench.content() == {("mo", id_): 1 for id_ in "abcd"}
