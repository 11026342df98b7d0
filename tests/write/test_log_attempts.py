"""What a second attempt at the same log does: the files of an instant are written once.

A task may run again because it failed, because it was slow, or because its reply was lost.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from handmade import at
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    InvalidRequestError,
    UnavailableError,
)
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.settings import LogBlockFormat
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.write.files.log_file import write_log
from written_tables import GROUP, WrittenTable, deletes

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
FORMATS = list(LogBlockFormat)
LOG = f".{GROUP.file_id}_{at(1)}.log.1_0-0-0"


def row(id_: str, ts: int = 1, v: str = "v") -> dict[str, Any]:
    return {"id": id_, "ts": ts, "v": v}


def made(storage: Storage) -> WrittenTable:
    table = WrittenTable(storage, SCHEMA, ordering="ts")
    table.begin(1)
    return table


def test_a_marker_announces_every_file_before_it_is_there(memory: Storage) -> None:
    storage = FaultyStorage(memory)
    table = made(memory)
    spec = table.spec(1, log_file_bytes_max=1)
    group = FileGroupId("p", GROUP.file_id)
    stats = write_log(storage, spec, group, rows=table.keyed([row("a"), row("b")]))
    created = [done.path for done in storage.trace]
    marked = [f".hoodie/.temp/{at(1)}/{stat.path}.marker.CREATE" for stat in stats]
    assert created == [marked[0], stats[0].path, marked[1], stats[1].path]
    assert memory.read(marked[0]) == b""


@pytest.mark.parametrize("bytes_max", [1 << 30, 1])
@pytest.mark.parametrize("block_format", FORMATS)
def test_a_second_attempt_changes_nothing_and_says_the_same(
    memory: Storage, block_format: Any, bytes_max: int
) -> None:
    table = made(memory)
    spec = table.spec(1, block_format=block_format, log_file_bytes_max=bytes_max)
    rows = table.keyed([row("a"), row("b")])
    gone = deletes("c")
    first = write_log(memory, spec, GROUP, rows=rows, deletes=gone)
    before = {stat.path: stat.etag for stat in memory.list("")}
    assert write_log(memory, spec, GROUP, rows=rows, deletes=gone) == first
    assert {stat.path: stat.etag for stat in memory.list("")} == before


@pytest.mark.parametrize("block_format", FORMATS)
def test_the_loser_returns_the_stat_of_the_winners_file(memory: Storage, block_format: Any) -> None:
    table = made(memory)
    spec = table.spec(1, block_format=block_format)
    winner = table.keyed([row("a", v="x" * 500), row("b")])
    loser = table.keyed([row("b"), row("a", v="y" * 900)])
    [won] = write_log(memory, spec, GROUP, rows=winner, deletes=deletes("c", "d"))
    [lost] = write_log(memory, spec, GROUP, rows=loser, deletes=deletes("d", "c"))
    assert lost == won
    table.commit(1, [lost])
    assert [found["v"] for found in table.rows()] == ["x" * 500, "v"]


def _disagreeing(rows: int, bytes_max: int = 1 << 30, **how: Any) -> dict[str, Any]:
    return {"rows": rows, "bytes_max": bytes_max, "how": how}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (_disagreeing(3), _disagreeing(2)),  # rows are missing
        (_disagreeing(2, bytes_max=1), _disagreeing(2)),  # cut elsewhere
        (_disagreeing(2), _disagreeing(2, bytes_max=1)),
        (_disagreeing(1, ordinal=1), _disagreeing(1, ordinal=1)),  # not the first file
        (_disagreeing(2, more=True), _disagreeing(2, more=True)),  # nor the last
        (_disagreeing(2, bytes_max=1), _disagreeing(1)),  # one more file is there
    ],
)
def test_attempts_whose_files_do_not_fit_together_are_refused(
    memory: Storage, first: dict[str, Any], second: dict[str, Any]
) -> None:
    table = made(memory)
    for text, attempt in (("x", first), ("y", second)):
        spec = table.spec(1, log_file_bytes_max=attempt["bytes_max"])
        rows = table.keyed([row(str(n), v=text) for n in range(attempt["rows"])])
        before = [stat.path for stat in memory.list("") if ".log." in stat.path]
        if text == "x":
            write_log(memory, spec, GROUP, rows=rows, **attempt["how"])
        else:
            with pytest.raises(InvalidRequestError, match="two attempts of one task disagree"):
                write_log(memory, spec, GROUP, rows=rows, **attempt["how"])
            after = [stat.path for stat in memory.list("") if ".log." in stat.path]
            assert after == before


@pytest.mark.parametrize("effect", [Effect.FAIL, Effect.LOSE_REPLY])
@pytest.mark.parametrize("operation", range(1, 5))
def test_a_call_that_failed_anywhere_succeeds_when_it_is_repeated(
    memory: Storage, effect: Effect, operation: int
) -> None:
    table = made(memory)
    spec = table.spec(1, log_file_bytes_max=1)
    rows = table.keyed([row("a"), row("b")])
    faulty = FaultyStorage(memory, [Fault(effect, nth=operation)])
    with pytest.raises(UnavailableError):
        write_log(faulty, spec, GROUP, rows=rows)
    stats = write_log(faulty, spec, GROUP, rows=rows)
    fresh = MemoryStorage(lambda: 0)
    assert stats == write_log(fresh, spec, GROUP, rows=rows)
    assert [memory.read(stat.data_path) for stat in stats] == [
        fresh.read(stat.data_path) for stat in stats
    ]
    table.commit(1, stats)
    assert table.rows() == [row("a"), row("b")]


@pytest.mark.parametrize("keep", [0, 3, 10, 300, 2_000])
@pytest.mark.parametrize("block_format", FORMATS)
def test_a_torn_file_is_neither_visible_nor_accepted(
    memory: Storage, block_format: Any, keep: int
) -> None:
    table = made(memory)
    table.commit(1, write_log(memory, table.spec(1), GROUP, rows=table.keyed([row("a")])))
    table.begin(5)
    spec = table.spec(5, block_format=block_format)
    rows = table.keyed([row(str(n), v="x" * n) for n in range(50)])
    torn = FaultyStorage(memory, [Fault(Effect.TEAR, path="*.log.*0", keep_bytes=keep)])
    with pytest.raises(UnavailableError):
        write_log(torn, spec, GROUP, rows=rows)
    assert table.rows() == [row("a")]
    with pytest.raises(CorruptTableError, match="not whole"):
        write_log(memory, spec, GROUP, rows=rows)


def test_a_file_of_another_instant_under_our_name_is_not_accepted(memory: Storage) -> None:
    table = made(memory)
    write_log(memory, table.spec(3), GROUP, rows=table.keyed([row("a")]))
    memory.write(LOG, memory.read(LOG.replace(at(1), at(3))))
    with pytest.raises(CorruptTableError, match=f"of the instant {at(3)}"):
        write_log(memory, table.spec(1), GROUP, rows=table.keyed([row("a")]))


class _Vanishing(FaultyStorage):
    """A rollback that removes the file between the create that lost and the look at the winner."""

    def create(self, path: str, data: bytes) -> bool:
        return False


def test_a_file_that_a_rollback_took_away_ends_the_attempt(memory: Storage) -> None:
    table = made(memory)
    with pytest.raises(ConflictError, match="rolled back"):
        write_log(_Vanishing(memory), table.spec(1), GROUP, rows=table.keyed([row("a")]))
