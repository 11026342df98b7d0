"""A resize beside writers that complete in every round of its copies is closed, or cancelled."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest

from faulty_storage import FaultyStorage
from pyhudi.plan.resizing import copies, pace
from pyhudi.plan.resizing.pace import OutrunError
from pyhudi.plan.resizing.policy import ResizePolicy
from pyhudi.services.resizing.run import resize
from resize_tables import ResizeTable


@pytest.fixture(autouse=True)
def _short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a short round copy one write to four children."""
    monkeypatch.setattr(pace, "_LOAD_FILES", 4)
    monkeypatch.setattr(copies, "PORTION_FILES", 4)


class Meddled(FaultyStorage):
    """Storage on which so many writes complete with each one that an executor copies, and each copy
    takes its time."""

    def __init__(self, table: ResizeTable, requested: str, writes: int, copy_ms: int = 0) -> None:
        super().__init__(table.storage)
        self._table, self._requested, self._writes = table, requested, writes
        self._copy_ms = copy_ms
        self._log = table.session("look").log
        self._versions: set[int] = set()
        self.stamp = 10
        self.closed_after: int | None = None  # copied writes

    @property
    def copied(self) -> int:
        return len(self._versions)

    def create_from(self, path: str, chunks: Iterable[bytes]) -> int | None:
        made = super().create_from(path, chunks)
        if f"_{self._requested}.log." in path:
            self._table.clock.ms += self._copy_ms
            self._meet(int(path.rpartition(".log.")[2].partition("_")[0]) // 1_000)
        return made

    def _meet(self, number: int) -> None:
        """Let writes complete once for each copied write, as long as writers may."""
        if number in self._versions:
            return
        self._versions.add(number)
        live = self._log.refresh()
        if self._requested in live.closed:
            self.closed_after = self.closed_after or self.copied
            return
        for _ in range(self._writes):
            self.stamp += 1
            self._table.put("k", self.stamp)


def meddled(writes: int, copy_ms: int = 0) -> tuple[ResizeTable, str, Meddled]:
    table = ResizeTable(ordering="ts")
    table.put("klmnopq", 1)
    requested = table.plan()
    table.put("kl", 2)
    return table, requested, Meddled(table, requested, writes, copy_ms)


@pytest.mark.parametrize(
    ("writes", "copy_ms", "left"),
    [(1, 1_900, 1), (2, 400, 4), (4, 0, 10)],
    ids=["as fast as it", "twice as fast", "four times as fast as one that needs no time"],
)
def test_a_resize_is_closed_while_writers_complete_in_every_round_if_the_rest_is_little(
    writes: int, copy_ms: int, left: int
) -> None:
    table, requested, storage = meddled(writes, copy_ms)
    result = table.resizes(storage=storage).execute(requested)
    assert result is not None
    assert storage.closed_after == pace.REFUSALS_MAX + 1, "the first copy behind the close"
    assert storage.copied - pace.REFUSALS_MAX == left
    assert copy_ms * left <= pace.CLOSE_MS, "each is in one child"
    assert table.values() == {
        **{key: f"{key}1" for key in "mnopq"},
        "l": "l2",
        "k": f"k{storage.stamp}",
    }


def test_a_resize_that_writers_outrun_for_good_is_cancelled_and_says_so() -> None:
    table, requested, storage = meddled(2, 600)
    done = resize(table.session("e", storage))
    [error] = done.errors
    assert isinstance(error, OutrunError)
    assert requested in str(error)
    assert "faster" in str(error)
    assert (done.results, done.pending) == ((), ())
    assert storage.copied == 33
    assert storage.closed_after is None, "no writer ever waited"
    assert not [stat.path for stat in table.storage.list("d") if requested in stat.path]
    assert table.values()["k"] == f"k{storage.stamp}"
    again = table.resizes("again").execute(table.plan())
    assert again is not None
    assert again.copies == 0, "its base files have all rows"
    assert table.values()["k"] == f"k{storage.stamp}"


def test_what_had_piled_up_is_caught_up_with_without_a_close() -> None:
    table = ResizeTable(ordering="ts")
    table.put("klmnopq", 1)
    requested = table.plan()
    for stamp in range(2, 18):
        table.put("kl", stamp)
    storage = Meddled(table, requested, 0)
    result = table.resizes(storage=storage).execute(requested)
    assert result is not None
    assert (storage.copied, storage.closed_after) == (16, None)


class OutrunWhile(FaultyStorage):
    """Storage on which a write completes beside each base file, and two with each one that is
    copied into so many partitions or more. Each copy takes its time."""

    def __init__(self, table: ResizeTable, partitions: int) -> None:
        super().__init__(table.storage)
        self._table, self._partitions = table, partitions
        self._met: set[tuple[str, str]] = set()
        self._copied: dict[str, set[str]] = {}  # by resize
        self.stamp = 10

    def create_from(self, path: str, chunks: Iterable[bytes]) -> int | None:
        made = super().create_from(path, chunks)
        day, _, name = path.rpartition("/")
        resize, is_log, version = name.partition("_")[2].partition(".log.")
        if path.endswith(".parquet"):
            self._write()
        elif is_log and version.endswith("_0-0-0") and len(version) > len("1_0-0-0"):
            self._copied.setdefault(resize, set()).add(day)
            self._table.clock.ms += 600
            if len(self._copied[resize]) >= self._partitions and (resize, version) not in self._met:
                self._met.add((resize, version))
                self._write()
                self._write()
        return made

    def _write(self) -> None:
        self.stamp += 1
        rows = [self._table.made(KEYS, self.stamp, day) for day in DAYS]
        self._table.table("w").upsert(pa.concat_tables(rows))


DAYS = ("d", "e", "f")
KEYS = [f"key {n}" for n in range(200)]


@pytest.mark.filterwarnings("ignore:target_bytes")
@pytest.mark.parametrize(("partitions", "plans"), [(4, [3]), (3, [1, 1, 1]), (1, [])])
def test_what_writers_outrun_is_resized_in_smaller_plans_if_they_keep_up(
    partitions: int, plans: list[int]
) -> None:
    table = ResizeTable()
    for day in DAYS:
        table.put(KEYS, 1, day)
    storage = OutrunWhile(table, partitions)
    policy = ResizePolicy(target_bytes=4096, split_above=1, merge_below=0)

    done = resize(table.session("e", storage), policy)
    assert [result.inputs for result in done.results] == plans
    assert [type(error) for error in done.errors] == ([] if plans else [OutrunError])
    assert len(done.preview.changes) == len(DAYS), "of the first plan"
    assert not done.pending
    found = table.table("r").read(columns=["id", "v"]).to_arrow()
    assert found.num_rows == len(DAYS) * len(KEYS)


@pytest.mark.filterwarnings("ignore:target_bytes")
def test_a_plan_of_another_process_that_writers_outrun_is_made_again_in_smaller_plans() -> None:
    table = ResizeTable()
    for day in DAYS:
        table.put(KEYS, 1, day)
    policy = ResizePolicy(target_bytes=4096, split_above=1, merge_below=0)
    planned = resize(table.session("planner"), policy, plan_only=True)
    assert len(planned.preview.changes) == len(DAYS)
    done = resize(table.session("e", OutrunWhile(table, 3)), policy)
    assert [result.inputs for result in done.results] == [1, 1, 1]
    assert (done.errors, done.pending) == ((), ())
