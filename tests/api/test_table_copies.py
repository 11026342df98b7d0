"""Copies of a table: by address and options, so that they work in other processes too."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
SETTINGS = pyhudi.WriteSettings(job="nightly", conflict_retries=7)

COPIES: dict[str, Callable[[pyhudi.Table], pyhudi.Table]] = {
    "pickle": lambda table: pickle.loads(pickle.dumps(table)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "ts": [1] * len(ids)}, schema=SCHEMA)


def ids(table: pyhudi.Table) -> list[int]:
    return sorted(table.read(columns=["id"]).to_arrow()["id"].to_pylist())


def create(uri: str | Path, **options: Any) -> pyhudi.Table:
    given = {"record_key": "id", "ordering": "ts", "buckets": pyhudi.SimpleBuckets(1), **options}
    return pyhudi.create_table(uri, SCHEMA, **given)


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("place", ["disk", "memory"])
def test_a_copy_reads_and_writes_the_same_table(place: str, how: str, tmp_path: Path) -> None:
    uri = tmp_path / "t" if place == "disk" else f"memory://copies-{tmp_path.name}"
    table = create(uri, write_settings=SETTINGS, upkeep=pyhudi.Upkeep())
    table.upsert(rows(1))  # it now has a decision log, a lock among threads, and caches
    copied = COPIES[how](table)
    assert (copied.uri, repr(copied)) == (table.uri, repr(table))
    copied.upsert(rows(2))
    assert ids(copied) == ids(table) == [1, 2]
    assert {row["job"] for row in copied.inspect.writers().to_pylist()} == {"nightly"}


def test_the_options_go_with_a_copy(tmp_path: Path) -> None:
    create(tmp_path)
    buckets, upkeep = pyhudi.SimpleBuckets(1, ("id",)), pyhudi.Upkeep()
    table = pyhudi.open_table(
        tmp_path, write_settings=SETTINGS, buckets=buckets, lock="file", upkeep=upkeep
    )
    assert copy.copy(table).__reduce__() == table.__reduce__()


def test_a_table_can_be_copied_while_a_thread_writes_it_and_tells_a_function(
    tmp_path: Path,
) -> None:
    told = threading.Event()
    table = create(tmp_path, progress=lambda _: told.set())
    copied: list[pyhudi.Table] = []

    def slow() -> pa.RecordBatchReader:
        def batches() -> Any:
            copied.append(pickle.loads(pickle.dumps(table)))
            yield from rows(1).to_batches()

        return pa.RecordBatchReader.from_batches(SCHEMA, batches())

    writer = threading.Thread(target=lambda: table.upsert(slow()))
    writer.start()
    writer.join(60)
    assert told.is_set()
    told.clear()
    copied[0].upsert(rows(2))
    assert not told.is_set(), "a listener stays where it is"
    assert ids(copied[0]) == [1, 2]


def test_processes_that_share_no_memory_write_through_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = create("t")  # a relative path, which means something else where a worker runs
    monkeypatch.chdir("/")
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawned) as pool:
        written = list(pool.map(pyhudi.Table.upsert, [table] * 6, map(rows, range(6))))
    assert [result.rows for result in written] == [1] * 6
    assert ids(table) == list(range(6))


def test_a_pickle_of_a_table_that_is_gone_is_refused_where_it_is_opened(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    pickled = pickle.dumps(table)
    (tmp_path / "t").rename(tmp_path / "elsewhere")
    with pytest.raises(pyhudi.TableNotFoundError, match="no Hudi table at file:///"):
        pickle.loads(pickled)


def test_a_table_in_memory_is_refused_in_another_process() -> None:
    table = create("memory://copies-of-a-process")
    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
        pytest.raises(pyhudi.TableNotFoundError, match="memory://copies-of-a-process"),
    ):
        pool.submit(pickle.loads, pickle.dumps(table)).result()
