"""`write_id`: a write that is repeated is done once, and an id is never taken for another write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from memory_tables import TIMELINE, MemoryTable
from pyhudi.api.table import Table
from pyhudi.commit.transaction import Transaction
from pyhudi.commit.write_ids import TakenOverError, WriteIds
from pyhudi.errors import InvalidRequestError, UnavailableError
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.timeline.commit_metadata import CommitMetadata
from pyhudi.format.timeline.instant import Action
from pyhudi.settings import WriteSettings
from pyhudi.storage.protocol import Storage
from pyhudi.write.result import WriteResult

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
WRITES = ".hoodie/.pyhudi/writes"


def rows(*ids: str, ts: int = 1) -> pa.Table:
    return pa.table({"id": list(ids), "ts": [ts] * len(ids)}, schema=SCHEMA)


class Bench(MemoryTable):
    """A table in memory, and processes that write it."""

    def __init__(self) -> None:
        super().__init__(SCHEMA, ordering="ts", buckets=SimpleBuckets(1))

    def content(self) -> dict[str, int]:
        found = self.table("reader").read(columns=["id", "ts"]).to_arrow().to_pylist()
        return {row["id"]: row["ts"] for row in found}


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.table("first").upsert(rows("z"))
    return bench


class Meddled(FaultyStorage):
    """Something happens right before the first object of a kind is created."""

    def __init__(self, inner: Storage, kind: str, meanwhile: Callable[[], object]) -> None:
        super().__init__(inner)
        self._kind = kind
        self._meanwhile: Callable[[], object] | None = meanwhile

    def create(self, path: str, data: bytes) -> bool:
        if self._kind in path and (meanwhile := self._meanwhile) is not None:
            self._meanwhile = None
            meanwhile()
        return super().create(path, data)


def test_a_repeated_append_of_new_keys_does_not_stumble_over_its_own(bench: Bench) -> None:
    first = bench.table("a").append(rows("a"), require_new_keys=True, write_id="run 1")
    again = bench.table("b").append(rows("a"), require_new_keys=True, write_id="run 1")
    assert (again.instant, again.rows) == (first.instant, 1)
    with pytest.raises(InvalidRequestError, match="in the table already"):
        bench.table("b").append(rows("a"), require_new_keys=True, write_id="run 2")


OTHERS: list[tuple[str, Callable[[Table], WriteResult]]] = [
    ("DELETE", lambda table: table.delete("id = 'a'", write_id="run 1")),
    ("DELETE", lambda table: table.delete(pa.table({"id": ["a"]}), write_id="run 1")),
    ("INSERT", lambda table: table.append(rows("b"), write_id="run 1")),
    ("INSERT", lambda table: table.append(rows("b"), require_new_keys=True, write_id="run 1")),
]


@pytest.mark.parametrize(("operation", "write"), OTHERS)
def test_an_id_is_not_taken_for_a_write_of_another_kind(
    bench: Bench, operation: str, write: Callable[[Table], WriteResult]
) -> None:
    bench.table("a").upsert(rows("a"), write_id="run 1")
    before, names = bench.content(), bench.names()
    with pytest.raises(InvalidRequestError, match=f"was UPSERT, not {operation}"):
        write(bench.table("b"))
    assert bench.content() == before
    assert bench.names() == names


@pytest.mark.parametrize("write_id", [123, 0, True, b"x", [], "", "x" * 1001, "a\nb", "\ud800"])
@pytest.mark.parametrize("verb", ["upsert", "append", "delete"])
def test_an_id_is_printable_text_or_nothing_begins(bench: Bench, verb: str, write_id: Any) -> None:
    names = bench.names()
    with pytest.raises(InvalidRequestError, match="write_id"):
        getattr(bench.table(), verb)(rows("a"), write_id=write_id)
    assert bench.names() == names
    assert bench.content() == {"z": 1}


def test_a_write_that_has_left_the_active_timeline_is_not_done_again(bench: Bench) -> None:
    first = bench.table("a").upsert(rows("a", ts=5), write_id="run 1")
    bench.table("a").upsert(rows("b"))
    for name in bench.names():  # a Java writer archives within minutes
        if name[:1].isdigit() and name[:17] <= first.instant:
            bench.storage.delete(f"{TIMELINE}/{name}")
    names = bench.names()
    with pytest.raises(InvalidRequestError, match="is not known"):
        bench.table("c").upsert(rows("a", ts=9), write_id="run 1")
    assert bench.content() == {"z": 1, "a": 5, "b": 1}
    assert bench.names() == names


def test_a_registration_that_names_another_write_swallows_none(bench: Bench) -> None:
    bench.table("a").upsert(rows("a"), write_id="real")
    [place] = [s.path for s in bench.storage.list(WRITES)]
    other = bench.table("a").upsert(rows("b"))
    bench.storage.create(f"{place.rpartition('/')[0]}/{other.instant}", b"{}")
    real = bench.storage.read(place)
    bench.storage.delete(place)
    with pytest.raises(InvalidRequestError, match="which is another write"):
        bench.table("c").upsert(rows("a", ts=9), write_id="real")
    assert bench.content() == {"z": 1, "a": 1, "b": 1}
    bench.storage.create(place, real)


@pytest.mark.parametrize("moment", [WRITES, ".log.1_"])
def test_of_two_attempts_at_once_one_writes_and_both_have_its_result(
    bench: Bench, moment: str
) -> None:
    results = []

    def twin() -> None:
        results.append(bench.table("twin").upsert(rows("a", "b"), write_id="same"))

    meddled = Meddled(bench.storage, moment, twin)
    result = bench.table("a", meddled).upsert(rows("a", "b"), write_id="same")
    assert [result.instant] == [r.instant for r in results]
    assert bench.content() == {"z": 1, "a": 1, "b": 1}
    assert bench.pending() == []
    deltas = [n for n in bench.names() if n.endswith(".deltacommit") and "_" in n]
    assert len(deltas) == 4  # the beginning, the seed, the first write, and one of the twins


def test_an_attempt_that_a_later_one_overtook_leaves_that_one_alone(bench: Bench) -> None:
    later: list[Transaction] = []
    twin = bench.session("twin")

    def overtake() -> None:
        later.append(
            Transaction.begin(twin.log, WriteSettings(), Action.DELTACOMMIT, twin.recovery)
        )
        write_ids = WriteIds(twin.log, twin.recovery)
        assert write_ids.register("same", later[0].requested, "UPSERT") is None

    meddled = Meddled(bench.storage, WRITES, overtake)
    with pytest.raises(TakenOverError, match=r"taken over.*Leave it to that attempt"):
        bench.table("a", meddled).upsert(rows("a"), write_id="same")
    assert {name[:17] for name in bench.pending()} == {later[0].requested}
    later[0].complete(CommitMetadata(extra_metadata={"schema": "{}"}))
    assert len(list(bench.storage.list(WRITES))) == 2, "the one that lost did not try again"


def test_the_first_write_of_a_table_may_be_repeated_after_it_was_rolled_back() -> None:
    bench = Bench()
    full = Fault(Effect.FAIL, operation="create", path=".0*.log.*")
    with pytest.raises(UnavailableError):
        bench.table("a", FaultyStorage(bench.storage, [full])).upsert(rows("a"), write_id="run 1")
    bench.table("b").upsert(rows("a"), write_id="run 1")
    assert bench.content() == {"a": 1}
