"""A resize beside writers that complete in every round of its copies is closed, or cancelled."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from faulty_storage import FaultyStorage
from pyhudi.plan.resizing import copies, pace
from pyhudi.plan.resizing.pace import OutrunError
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
