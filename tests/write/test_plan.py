"""Writes that replace or depend on what is there: what they leave, and what they conflict with.

Another writer acts at a chosen moment: when the first data file of a kind is about to be created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from as_by_spark import written_as_by_spark
from faulty_storage import FaultyStorage
from handmade import parquet_bytes
from memory_tables import TIMELINE, MemoryTable
from pyhudi.api.table import Table
from pyhudi.conflict.schema_to_record import WriteSchemas
from pyhudi.errors import ConflictError, CorruptTableError, InvalidRequestError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat, encode_commit_metadata
from pyhudi.format.timeline.plan_files import (
    ClusteringGroup,
    ClusteringPlan,
    ClusteringSlice,
    CompactionOperation,
    CompactionPlan,
    RequestedReplaceMetadata,
    encode_compaction_plan,
    encode_requested_replace,
)
from pyhudi.index.simple_bucket import bucket_ids
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.instant_time import following_time
from pyhudi.write import tasks as group_jobs
from pyhudi.write.begin import write_spec
from pyhudi.write.intent import Keys, Reads, WholeRows, WriteIntent
from pyhudi.write.plan import Prepared, plan_write
from pyhudi.write.result import WriteResult
from pyhudi.write.schemas import row_schema
from pyhudi.write.tasks import DeleteTask

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("ts", pa.int64())])
Content = dict[tuple[str, str], int]
NBCC: dict[str, Any] = {"ordering": "ts"}
OCC: dict[str, Any] = {"ordering": "ts", "concurrency": ConcurrencyMode.OPTIMISTIC}
COW: dict[str, Any] = {"ordering": "ts", "table_type": TableType.COPY_ON_WRITE}
KINDS = pytest.mark.parametrize("kind", [NBCC, OCC, COW], ids=["nbcc", "occ", "cow"])
LOGS = pytest.mark.parametrize("kind", [NBCC, OCC], ids=["nbcc", "occ"])


def rows(ids: Iterable[str], day: str = "d0", ts: int = 1) -> pa.Table:
    ids = list(ids)
    columns = {"id": ids, "day": [day] * len(ids), "ts": [ts] * len(ids)}
    return pa.table(columns, schema=SCHEMA)


class Meddled(FaultyStorage):
    """Somebody else acts once, just before a file whose path has a certain part is created."""

    def __init__(self, inner: Storage, part: str, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._part, self._act = part, act
        self.met = False

    def _meet(self, path: str) -> None:
        is_data = not path.startswith(".hoodie")
        if is_data and not self.met and self._part in path:
            self.met = True
            self._act()

    def create(self, path: str, data: bytes) -> bool:
        self._meet(path)
        return super().create(path, data)

    def create_from(self, path: str, chunks: Iterable[bytes]) -> int | None:
        self._meet(path)
        return super().create_from(path, chunks)


class Bench(MemoryTable):
    """A table with partitions of one bucket each, so that whoever meets there conflicts."""

    def __init__(self, **options: Any) -> None:
        given = {"partition_by": "day", "buckets": SimpleBuckets(1), **options}
        super().__init__(SCHEMA, **given)

    def meddled(self, part: str, act: Callable[[], object]) -> tuple[Table, Meddled]:
        """The table as a process has it open in whose way another one gets."""
        storage = Meddled(self.storage, part, act)
        return self.table("meddled", storage, conflict_retries=0), storage

    def content(self, **point: Any) -> Content:
        read = self.table("reader").read(columns=["day", "id", "ts"], **point)
        found = read.to_arrow().to_pylist()
        by_key = {(row["day"], row["id"]): row["ts"] for row in found}
        assert len(by_key) == len(found), "a key is there twice"
        return by_key

    def files(self) -> list[str]:
        return [s.path for s in self.storage.list("") if not s.path.startswith(".hoodie")]


def appended(table: Table, given: pa.Table) -> WriteResult:
    return table.append(given)


def appended_new(table: Table, given: pa.Table) -> WriteResult:
    """As Spark's tasks do it, which check the keys where the rows are."""
    change = WholeRows(loads=True)
    intent = WriteIntent(operation="INSERT", change=change, reads=Reads.KEYS)
    return written_as_by_spark(table, given, intent)


def contents(day: str, ids: str, ts: int = 1) -> Content:
    return {(day, id_): ts for id_ in ids}


# -- what they leave


@KINDS
@pytest.mark.parametrize(
    ("partitions", "left"),
    [
        ("all", {}),
        ("touched", contents("d1", "cd") | contents("d2", "ef")),
        (["d0"], contents("d1", "cd") | contents("d2", "ef")),
        (["d0", "d1"], contents("d2", "ef")),
        (["d0", "d1", "none"], contents("d2", "ef")),
        ([("d0",), {"day": "d2"}], contents("d1", "cd")),
    ],
    ids=str,
)
def test_an_overwrite_leaves_its_rows_and_what_it_was_not_asked_to_replace(
    kind: dict[str, Any], partitions: Any, left: Content
) -> None:
    bench = Bench(**kind)
    table = bench.table()
    before = [table.upsert(rows("ab")), table.upsert(rows("cd", "d1"))][-1]
    third = table.upsert(rows("ef", "d2"))
    result = table.overwrite(rows("ax", ts=0), partitions=partitions)
    new = contents("d0", "ax", ts=0)  # older than what was there: an overwrite does not merge
    assert bench.content() == left | new
    assert result.rows == 2
    everything = contents("d0", "ab") | contents("d1", "cd") | contents("d2", "ef")
    assert bench.content(as_of=third) == everything
    assert bench.content(as_of=before) == contents("d0", "ab") | contents("d1", "cd")
    changed = table.changes(since=third).to_arrow().to_pylist()
    assert {(r["day"], r["id"]): r["ts"] for r in changed} == new
    assert bench.pending() == []
    table.upsert(rows("bcz", ts=2))
    assert bench.content() == left | new | contents("d0", "bcz", ts=2)


@KINDS
def test_deleted_partitions_are_empty_and_can_be_filled_again(kind: dict[str, Any]) -> None:
    bench = Bench(**kind)
    table = bench.table()
    table.upsert(rows("ab"))
    before = table.upsert(rows("cd", "d1"))
    result = table.delete_partitions(["d0", "nowhere"])
    assert bench.content() == contents("d1", "cd")
    assert bench.content(as_of=before) == contents("d0", "ab") | contents("d1", "cd")
    assert result.rows == 0
    assert table.changes(since=before).to_arrow().num_rows == 0
    assert "nowhere/.hoodie_partition_metadata" not in bench.files()
    table.upsert(rows("b", ts=0))  # what is gone does not beat what comes
    assert bench.content() == contents("d1", "cd") | contents("d0", "b", ts=0)


@KINDS
def test_an_overwrite_with_nothing_empties_the_table(kind: dict[str, Any]) -> None:
    bench = Bench(**kind)
    table = bench.table()
    table.upsert(rows("ab"))
    table.overwrite(rows(""), partitions="touched")
    assert bench.content() == contents("d0", "ab")
    table.overwrite(rows(""), partitions=["d1"])
    assert bench.content() == contents("d0", "ab")
    table.overwrite(rows(""), partitions="all")
    assert bench.content() == {}


@KINDS
def test_an_overwrite_of_a_new_table_fills_it(kind: dict[str, Any]) -> None:
    bench = Bench(**kind, buckets=SimpleBuckets(4))
    table = bench.table()
    table.overwrite(rows("a"), partitions="all")
    assert bench.content() == contents("d0", "a")
    table.upsert(rows("abcdefgh", ts=2))  # most of these buckets have no file yet
    assert bench.content() == contents("d0", "abcdefgh", ts=2)


@KINDS
def test_rows_outside_of_the_named_partitions_are_refused(kind: dict[str, Any]) -> None:
    bench = Bench(**kind)
    table = bench.table()
    table.upsert(rows("ab"))
    table.upsert(rows("cd", "d1"))
    given = pa.concat_tables([rows("x"), rows("y", "d1"), rows("z", "d9")])
    with pytest.raises(InvalidRequestError, match=r"rows of partition 'd1'.*id='y', day='d1'"):
        table.overwrite(given, partitions=["d0"])
    assert bench.content() == contents("d0", "ab") | contents("d1", "cd")
    assert bench.pending() == []


@KINDS
def test_an_update_changes_the_named_columns_of_rows_that_are_there(kind: dict[str, Any]) -> None:
    bench = Bench(**kind)
    table = bench.table()
    table.upsert(rows("abc"))
    update = rows("bcx", ts=7).append_column("more", pa.array([1, 2, 3]))
    result = table.update(update, columns=["ts"])
    assert bench.content() == contents("d0", "a") | contents("d0", "bc", ts=7)
    assert result.rows == 2
    assert bench.pending() == []


# -- conflicts of overwrites

OVERWRITES = [
    pytest.param(lambda t: t.overwrite(rows("x", ts=5)), id="touched"),
    pytest.param(lambda t: t.overwrite(rows("x", ts=5), partitions="all"), id="all"),
    pytest.param(lambda t: t.overwrite(rows("x", ts=5), partitions=["d0"]), id="named"),
    pytest.param(lambda t: t.delete_partitions(["d0"]), id="deleted"),
]


@KINDS
@pytest.mark.parametrize("overwrite", OVERWRITES)
def test_a_write_that_completes_while_its_bucket_is_overwritten_is_a_conflict(
    kind: dict[str, Any], overwrite: Callable[[Table], WriteResult]
) -> None:
    bench = Bench(**kind)
    bench.table().upsert(rows("ab"))
    other = bench.table("other")
    table, met = bench.meddled(".parquet", lambda: other.upsert(rows("n", ts=2)))
    with pytest.raises(ConflictError, match="lost to another write"):
        overwrite(table)
    assert met.met
    assert bench.content() == contents("d0", "ab") | contents("d0", "n", ts=2)
    assert bench.pending() == []


@KINDS
def test_an_overwrite_is_repeated_after_a_conflict_and_then_replaces_that_too(
    kind: dict[str, Any],
) -> None:
    bench = Bench(**kind)
    bench.table().upsert(rows("ab"))
    other = bench.table("other")
    storage = Meddled(bench.storage, ".parquet", lambda: other.upsert(rows("n", ts=2)))
    result = bench.table("late", storage, conflict_retries=1).overwrite(rows("x"))
    assert result.retries == 1
    assert bench.content() == contents("d0", "x")


@KINDS
def test_a_write_elsewhere_is_in_no_overwrites_way(kind: dict[str, Any]) -> None:
    bench = Bench(**kind)
    bench.table().upsert(rows("ab"))
    other = bench.table("other")
    table, met = bench.meddled(".parquet", lambda: other.upsert(rows("n", "d1")))
    table.overwrite(rows("x"), partitions=["d0"])
    assert met.met
    assert bench.content() == contents("d0", "x") | contents("d1", "n")


@KINDS
def test_of_two_overwrites_of_a_partition_the_first_to_complete_stays(kind: dict[str, Any]) -> None:
    bench = Bench(**kind)
    bench.table().upsert(rows("ab"))
    other = bench.table("other")
    table, _ = bench.meddled(".parquet", lambda: other.overwrite(rows("n", ts=2)))
    with pytest.raises(ConflictError):
        table.overwrite(rows("x"))
    assert bench.content() == contents("d0", "n", ts=2)


def test_an_older_log_that_completes_after_the_overwrite_adds_to_it() -> None:
    bench = Bench(**NBCC)
    bench.table().upsert(rows("ab"))
    other = bench.table("other")
    done: list[WriteResult] = []
    older, _ = bench.meddled(
        ".log.", lambda: done.append(other.overwrite(rows("x", ts=5), partitions="all"))
    )
    result = older.upsert(rows("ax", ts=2))
    assert result.instant < done[0].instant < done[0].completed < result.completed
    assert bench.content() == contents("d0", "x", ts=5) | contents("d0", "a", ts=2)
    assert bench.content(as_of=done[0]) == contents("d0", "x", ts=5)


def test_an_older_log_conflicts_with_the_overwrite_where_writers_wait() -> None:
    bench = Bench(**OCC)
    bench.table().upsert(rows("ab"))
    other = bench.table("other")
    older, _ = bench.meddled(".log.", lambda: other.overwrite(rows("x", ts=5)))
    with pytest.raises(ConflictError):
        older.upsert(rows("ax", ts=2))
    assert bench.content() == contents("d0", "x", ts=5)


@LOGS
@pytest.mark.parametrize("action", ["compaction", "clustering", "logcompaction"])
def test_a_service_that_was_planned_after_an_overwrite_began_is_a_conflict(
    kind: dict[str, Any], action: str
) -> None:
    bench = Bench(**kind, lock=LockKind.FILE)
    bench.table().upsert(rows("ab"))

    def plan() -> None:
        latest = max(name[:17] for name in bench.names() if name[:1].isdigit())
        name = f"{following_time(latest)}.{action}.requested"
        bench.storage.create(f"{TIMELINE}/{name}", b"")

    table, met = bench.meddled(".parquet", plan)
    with pytest.raises(ConflictError, match=f"the {action.replace('logc', 'log c')} .* is pending"):
        table.overwrite(rows("x"))
    assert met.met
    assert bench.content() == contents("d0", "ab")


@LOGS
def test_a_service_that_was_planned_before_is_in_no_overwrites_way(kind: dict[str, Any]) -> None:
    bench = Bench(**kind, lock=LockKind.FILE)
    table = bench.table()
    table.upsert(rows("ab"))
    latest = max(name[:17] for name in bench.names() if name[:1].isdigit())
    bench.storage.create(f"{TIMELINE}/{following_time(latest)}.compaction.requested", b"")
    table.overwrite(rows("x"))
    assert bench.content() == contents("d0", "x")


@LOGS
def test_a_log_compaction_would_bring_old_rows_back_whenever_it_was_planned(
    kind: dict[str, Any],
) -> None:
    """It ends as a log of its own, which would join the new slice."""
    bench = Bench(**kind, lock=LockKind.FILE)
    table = bench.table()
    table.upsert(rows("ab"))
    latest = max(name[:17] for name in bench.names() if name[:1].isdigit())
    bench.storage.create(f"{TIMELINE}/{following_time(latest)}.logcompaction.requested", b"")
    with pytest.raises(ConflictError, match="log compaction"):
        table.overwrite(rows("x"))
    assert bench.content() == contents("d0", "ab")
    table.upsert(rows("n"))  # logs are in nobody's way
    assert bench.content() == contents("d0", "abn")


# -- conflicts of updates


@KINDS
def test_a_write_that_completes_while_its_bucket_is_updated_is_a_conflict(
    kind: dict[str, Any],
) -> None:
    bench = Bench(**kind)
    bench.table().upsert(rows("ab"))
    other = bench.table("other")
    part = ".parquet" if kind is COW else ".log."
    table, met = bench.meddled(part, lambda: other.upsert(rows("a", ts=2)))
    with pytest.raises(ConflictError):
        table.update(rows("a", ts=9), columns=["ts"])
    assert met.met
    assert bench.content() == contents("d0", "b") | contents("d0", "a", ts=2)


# -- loads


@pytest.fixture
def small_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_jobs, "LOAD_BYTES_MIN", 200)


MANY = [f"k{number}" for number in range(40)]


@LOGS
@pytest.mark.usefixtures("small_loads")
def test_a_large_load_of_an_empty_bucket_becomes_a_base_file(kind: dict[str, Any]) -> None:
    bench = Bench(**kind)
    table = bench.table(conflict_retries=0)
    appended(table, rows(MANY))
    assert [f.endswith(".parquet") for f in bench.files() if ".hoodie" not in f] == [True]
    assert len(bench.content()) == 40
    appended(table, rows(MANY, ts=2))  # the bucket is not empty any more
    assert sum(".log." in file for file in bench.files()) == 1
    assert set(bench.content().values()) == {2}


@LOGS
def test_a_first_large_append_needs_no_compaction_and_a_small_one_stays_a_log(
    kind: dict[str, Any],
) -> None:
    bench = Bench(**kind)
    large = rows([f"{number:>40}" for number in range(30_000)])
    result = bench.table().append(large)
    [base] = bench.files()[-1:]
    assert base.endswith(".parquet")
    assert result.instant in base
    assert not bench.table().services.compact().results
    small = bench.table("b").append(rows("a", "d1"))
    assert any(small.instant in file and ".log." in file for file in bench.files())
    assert len(bench.content()) == 30_001


@LOGS
@pytest.mark.usefixtures("small_loads")
def test_a_load_that_met_another_write_is_written_again_as_a_log(kind: dict[str, Any]) -> None:
    bench = Bench(**kind)
    bench.table().upsert(rows("a", "d9"))
    other = bench.table("other")
    storage = Meddled(bench.storage, "d0/0", lambda: other.append(rows(MANY)))
    result = bench.table("again", storage).append(rows(MANY, ts=2))
    assert result.retries == 1
    assert any(result.instant in file and ".log." in file for file in bench.files())
    assert bench.content() == {("d0", key): 2 for key in MANY} | contents("d9", "a")


@LOGS
@pytest.mark.usefixtures("small_loads")
def test_a_large_load_of_a_seeded_bucket_becomes_a_base_file(kind: dict[str, Any]) -> None:
    bench = Bench(**kind, buckets=SimpleBuckets(2))
    table = bench.table()
    table.upsert(rows("a"))  # which seeds the other bucket
    result = appended(bench.table("b", conflict_retries=0), rows(MANY))
    assert sum(result.instant in f and f.endswith(".parquet") for f in bench.files()) == 1
    assert bench.content() == contents("d0", "a") | {("d0", key): 1 for key in MANY}


@LOGS
@pytest.mark.usefixtures("small_loads")
def test_a_load_of_large_and_small_buckets_meets_no_seed_of_its_own(kind: dict[str, Any]) -> None:
    bench = Bench(**kind)
    given = pa.concat_tables([rows(MANY), rows("z", "d1")]).combine_chunks()
    result = appended(bench.table(conflict_retries=0), given)
    assert result.retries == 0
    assert bench.content() == {("d0", key): 1 for key in MANY} | contents("d1", "z")


@LOGS
@pytest.mark.usefixtures("small_loads")
def test_of_two_loads_of_an_empty_bucket_one_wins(kind: dict[str, Any]) -> None:
    bench = Bench(**kind)
    bench.table().upsert(rows("a", "d9"))
    other = bench.table("other")
    table, met = bench.meddled("d0/0", lambda: appended(other, rows(MANY)))
    with pytest.raises(ConflictError):
        appended(table, rows(MANY, ts=2))
    assert met.met
    assert bench.content() == {("d0", key): 1 for key in MANY} | contents("d9", "a")
    assert bench.pending() == []


@LOGS
@pytest.mark.usefixtures("small_loads")
def test_a_log_that_completes_while_its_bucket_is_loaded_is_a_conflict(
    kind: dict[str, Any],
) -> None:
    bench = Bench(**kind)
    other = bench.table("other")
    table, met = bench.meddled("d0/0", lambda: other.upsert(rows("n")))
    with pytest.raises(ConflictError):
        appended(table, rows(MANY))
    assert met.met
    assert bench.content() == contents("d0", "n")


@LOGS
@pytest.mark.usefixtures("small_loads")
def test_a_seed_that_completes_while_its_bucket_is_loaded_is_a_conflict(
    kind: dict[str, Any],
) -> None:
    """It would open a slice behind the load, or before it, depending on who is asked."""
    bench = Bench(**kind, buckets=SimpleBuckets(2))
    other = bench.table("other")
    table, met = bench.meddled("d0/0", lambda: other.upsert(rows("n")))
    loaded = [key for key in MANY if key != "n"]
    with pytest.raises(ConflictError):
        appended(table, rows(loaded))
    assert met.met
    assert bench.content() == contents("d0", "n")


@pytest.mark.usefixtures("small_loads")
def test_a_pending_log_that_is_older_than_a_load_is_seen_once_it_completes() -> None:
    bench = Bench(**NBCC)
    bench.table().upsert(rows("a", "d9"))
    other = bench.table("other")
    older, met = bench.meddled("d0/.0", lambda: appended(other, rows(MANY)))
    older.upsert(rows("n"))
    assert met.met
    assert bench.content() == (
        contents("d0", "n") | {("d0", key): 1 for key in MANY} | contents("d9", "a")
    )


def test_small_appends_to_one_bucket_never_conflict_where_writers_do_not_wait() -> None:
    bench = Bench(**NBCC)
    other = bench.table("other")
    table, met = bench.meddled(".log.", lambda: appended(other, rows("n")))
    appended(table, rows("a"))
    assert met.met
    assert bench.content() == contents("d0", "an")


def test_keys_that_must_be_new_are_looked_up_and_refused() -> None:
    bench = Bench(**NBCC)
    table = bench.table()
    table.upsert(rows("ab"))
    with pytest.raises(InvalidRequestError, match="in the table already"):
        appended_new(table, rows("cb"))
    appended_new(table, rows("cd"))
    appended_new(table, rows("ab", "d1"))  # other keys: elsewhere
    assert bench.content() == contents("d0", "abcd") | contents("d1", "ab")


# -- deletes, as tasks do them


@KINDS
@pytest.mark.parametrize("given", [["id"], ["id", "day"], ["id", "day", "ts"]], ids=str)
@pytest.mark.parametrize("unconditional", [False, True])
def test_deletes_by_whatever_is_known_of_the_keys(
    kind: dict[str, Any], given: list[str], unconditional: bool
) -> None:
    bench = Bench(**kind)
    table = bench.table()
    table.upsert(rows("abc"))
    table.upsert(rows("bcd", "d1"))
    what = rows("bx").select(given)
    table.delete(what, unconditional=unconditional)
    left = contents("d0", "ac") | contents("d1", "bcd" if "day" in given else "cd")
    assert bench.content() == left
    assert bench.pending() == []


@KINDS
def test_a_plan_of_a_delete_finds_what_a_local_delete_finds(kind: dict[str, Any]) -> None:
    bench = Bench(**kind)
    table = bench.table()
    table.upsert(rows("abc"))
    session = table._opening.session()
    schema = row_schema(session)
    intent = WriteIntent(operation="DELETE", change=Keys(frozenset({"id", "day"})), rows=schema)
    schemas = WriteSchemas(schema.called, schema.rows)
    # As a Spark task is given them: prepared, and with the columns that the task keeps.
    plan = plan_write(
        session, intent, write_spec(session, "20990101000000000"), schemas, Prepared()
    )
    assert isinstance(plan.task, DeleteTask)
    prepared = plan.task.shape.prepare(rows("bx").select(["id", "day"]).to_batches()[0])
    assert prepared.keys.to_pylist() == ["b", "x"]
    assert prepared.paths.to_pylist() == ["d0", "d0"]


# -- what an overwrite is about as a whole


@KINDS
def test_a_partition_that_opens_while_the_table_is_overwritten_is_a_conflict(
    kind: dict[str, Any],
) -> None:
    bench = Bench(**kind)
    bench.table().upsert(rows("ab"))
    other = bench.table("other")
    table, met = bench.meddled(".parquet", lambda: other.upsert(rows("n", "d9")))
    with pytest.raises(ConflictError, match="'d9'"):
        table.overwrite(rows("x"), partitions="all")
    assert met.met
    assert bench.content() == contents("d0", "ab") | contents("d9", "n")


def test_a_bucket_that_opens_while_its_partition_is_deleted_is_a_conflict() -> None:
    bench = Bench(**COW, buckets=SimpleBuckets(2))
    bench.table().upsert(rows("a"))
    other = bench.table("other")
    mine, *others = bucket_ids(pa.array(list("abcdefgh")), [], 2).to_pylist()
    elsewhere = "".join(
        id_ for id_, bucket in zip("bcdefgh", others, strict=True) if bucket != mine
    )
    table, met = bench.meddled(".parquet", lambda: other.upsert(rows(elsewhere)))
    with pytest.raises(ConflictError, match="'d0'"):
        table.delete_partitions(["d0"])
    assert met.met
    assert bench.content() == contents("d0", f"a{elsewhere}")


@LOGS
@pytest.mark.parametrize("action", ["compaction", "logcompaction"])
def test_a_service_for_other_file_groups_is_in_no_overwrites_way(
    kind: dict[str, Any], action: str
) -> None:
    bench = Bench(**kind, lock=LockKind.FILE)
    bench.table().upsert(rows("ab"))
    operation = CompactionOperation("0" * 17, (), None, "00000000-elsewhere-0", "d7")
    plan = encode_compaction_plan(CompactionPlan((operation,)), b"s" * 16)

    def planned_elsewhere() -> None:
        latest = max(name[:17] for name in bench.names() if name[:1].isdigit())
        bench.storage.create(f"{TIMELINE}/{following_time(latest)}.{action}.requested", plan)

    table, met = bench.meddled(".parquet", planned_elsewhere)
    table.overwrite(rows("x"))
    assert met.met
    assert bench.content() == contents("d0", "x")


@pytest.mark.parametrize("kind", [NBCC, OCC, COW])
@pytest.mark.parametrize("is_own", [True, False])
def test_rows_are_not_added_to_what_a_clustering_is_about_to_move(
    kind: dict[str, Any], is_own: bool
) -> None:
    bench = Bench(**kind, lock=LockKind.FILE)
    table = bench.table(conflict_retries=0)
    table.upsert(rows("ab"))
    ids = {
        s.path.rpartition("/")[2].lstrip(".").partition("_")[0] for s in bench.storage.list("d0")
    }
    slices = tuple(ClusteringSlice(None, (), id_, "d0" if is_own else "d7") for id_ in sorted(ids))
    asked = RequestedReplaceMetadata("CLUSTER", ClusteringPlan((ClusteringGroup(slices),)))
    latest = max(name[:17] for name in bench.names() if name[:1].isdigit())
    name = f"{following_time(latest)}.clustering.requested"
    bench.storage.create(f"{TIMELINE}/{name}", encode_requested_replace(asked, b"s" * 16))
    if is_own:
        with pytest.raises(ConflictError, match=r"the clustering .* is pending"):
            table.upsert(rows("a", ts=2))
        assert bench.content() == contents("d0", "ab")
    else:
        table.upsert(rows("n"))
        assert bench.content() == contents("d0", "abn")


# -- beside another engine


FOREIGN = {
    "a bucket beyond the last": ("00000007-0000-0000-0000-000000000000-0", "bucket"),
    "a second group of a bucket": (
        "00000000-aaaa-bbbb-cccc-dddddddddddd-0",
        r"has the file group .* already",
    ),
    "a group without a bucket": ("deadbeef-aaaa-bbbb-cccc-dddddddddddd-0", "bucket"),
}


@LOGS
@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_foreign_commit_that_breaks_the_bucket_layout_is_an_error_at_publish(
    kind: dict[str, Any], foreign: str
) -> None:
    bench = Bench(**kind, lock=LockKind.FILE)
    bench.table().upsert(rows("ab"))
    file_id, why = FOREIGN[foreign]

    def commit() -> None:
        """As a Java writer with another number of buckets, or another index, would."""
        latest = max(name[:17] for name in bench.names() if name[:1].isdigit())
        requested = following_time(latest)
        stat = WriteStat(file_id=file_id, path=f"d0/{file_id}_0-0-0_{requested}.parquet")
        no_rows = pa.table({"id": pa.array([], pa.string())})
        bench.storage.create(stat.data_path, parquet_bytes(no_rows, None))
        data = encode_commit_metadata(CommitMetadata({"d0": (stat,)}), b"s" * 16)
        completed = following_time(requested)
        bench.storage.create(f"{TIMELINE}/{requested}.deltacommit.requested", b"")
        bench.storage.create(f"{TIMELINE}/{requested}.deltacommit.inflight", b"")
        bench.storage.create(f"{TIMELINE}/{requested}_{completed}.deltacommit", data)

    table, met = bench.meddled(".log.", commit)
    with pytest.raises(CorruptTableError, match=why):
        table.upsert(rows("a", ts=2))
    assert met.met
    assert bench.content() == contents("d0", "ab")
