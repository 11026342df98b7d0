"""Reads that depend on the archived timeline, and reads that must not open it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import FaultyStorage
from handmade import TIMELINE, HandmadeTable, at
from pyhudi.format.timeline import archive as archive_format
from pyhudi.format.timeline.archive import (
    VERSION_FILE,
    ArchivedInstant,
    Manifest,
    ManifestEntry,
    archive_file_name,
    encode_archive_file,
    encode_archive_version,
    encode_manifest,
    manifest_name,
)
from pyhudi.format.timeline.instant import instant_time
from pyhudi.read import archive as history_module
from pyhudi.read.archive import History
from pyhudi.read.load import TableLoader, load_config
from pyhudi.read.plan import AtCompletion, Now, Question, Reader
from pyhudi.storage.protocol import Storage

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.string())])
HISTORY = f"{TIMELINE}/history"


def commit(made: HandmadeTable, requested: int, completed: int, *, base: bool = False) -> None:
    rows = [{"id": "a", "v": str(requested)}, {"id": str(requested), "v": ""}]
    made.begin(requested)
    if base:
        path = made.base(requested, rows)
    else:
        path = made.log(requested, made.rows_block(requested, rows))
    made.complete(requested, completed, [path])


def archive(made: HandmadeTable, *pairs: tuple[int, int], action: str = "deltacommit") -> None:
    """Move completed instants from the timeline into a new snapshot of the archive."""
    storage = made.storage
    instants = []
    for requested, completed in pairs:
        path = f"{TIMELINE}/{at(requested)}_{at(completed)}.{action}"
        times = instant_time(at(requested)), instant_time(at(completed))
        instants.append(ArchivedInstant(*times, action, storage.read(path)))
        for state in (f"{action}.requested", f"{action}.inflight"):
            storage.delete(f"{TIMELINE}/{at(requested)}.{state}")
        storage.delete(path)
    data, name = encode_archive_file(instants), archive_file_name(instants)
    storage.write(f"{HISTORY}/{name.file_name}", data)
    manifest = Manifest((ManifestEntry(name, len(data)),))
    storage.write(f"{HISTORY}/{manifest_name(1)}", encode_manifest(manifest))
    storage.write(f"{HISTORY}/{VERSION_FILE}", encode_archive_version(1))


def values(scan: pyhudi.Scan) -> Any:
    return {row["id"]: row["v"] for row in scan.to_arrow().to_pylist()}


def opened_archive(made: HandmadeTable, point: Any) -> bool:
    storage = FaultyStorage(made.storage)
    loader = TableLoader(storage, load_config(storage))
    Reader(loader).plan_snapshot(loader.load(), point, Question())
    return any(HISTORY in op.path and op.name in ("read", "open") for op in storage.trace)


@pytest.fixture
def made(memory: Storage) -> HandmadeTable:
    """A log at 3 that completed after the base file at 5 was requested; both archived."""
    table = HandmadeTable(memory, SCHEMA)
    commit(table, 1, 2)
    table.begin(3)
    path = table.log(3, table.rows_block(3, [{"id": "late", "v": "3"}]))
    commit(table, 5, 6, base=True)
    table.complete(3, 7, [path])
    commit(table, 10, 11)
    archive(table, (1, 2), (3, 7), (5, 6))
    return table


def test_a_log_that_outlived_an_archived_base_file_is_still_read_on_top_of_it(
    made: HandmadeTable,
) -> None:
    rows = values(pyhudi.open_table(made.storage.uri).read())
    assert rows == {"a": "10", "5": "", "late": "3", "10": ""}
    assert opened_archive(made, Now())


def test_a_log_that_an_archived_base_file_replaced_is_not_read(made: HandmadeTable) -> None:
    slices = pyhudi.open_table(made.storage.uri).inspect.file_slices().to_pylist()
    latest = [[name.split(".")[1] for name in s["log_files"]] for s in slices if s["latest"]]
    assert [[name[-9:] for name in logs] for logs in latest] == [["000000003", "000000010"]]
    assert [s["base_instant"] for s in slices] == [at(5), at(1)]


def test_the_archive_stays_closed_where_no_slice_depends_on_it(memory: Storage) -> None:
    table = HandmadeTable(memory, SCHEMA)
    commit(table, 1, 2, base=True)
    commit(table, 3, 4)
    commit(table, 10, 11)
    archive(table, (1, 2), (3, 4))
    assert not opened_archive(table, Now())
    assert opened_archive(table, AtCompletion(at(3)))


@pytest.mark.parametrize(
    ("time", "expected"),
    [(2, {"a": "1", "1": ""}), (6, {"a": "5", "5": ""}), (7, {"a": "5", "5": "", "late": "3"})],
)
def test_time_travel_reaches_into_the_archive(
    made: HandmadeTable, time: int, expected: dict[str, str]
) -> None:
    assert values(pyhudi.open_table(made.storage.uri).read(as_of=at(time))) == expected


def test_changes_reach_into_the_archive(made: HandmadeTable) -> None:
    table = pyhudi.open_table(made.storage.uri)
    assert values(table.changes(since=at(6), until=at(7))) == {"late": "3"}
    assert values(table.changes(since=at(6))) == {"late": "3", "a": "10", "10": ""}


def test_a_long_lived_table_sees_each_write_once_while_instants_are_archived(
    memory: Storage,
) -> None:
    made = HandmadeTable(memory, SCHEMA)
    commit(made, 1, 2)
    commit(made, 3, 4)
    table = pyhudi.open_table(memory.uri)
    first = table.changes(until=at(2))
    commit(made, 10, 11)
    archive(made, (1, 2), (3, 4))
    assert values(first) == {"a": "1", "1": ""}
    assert values(table.changes(since=first.until)) == {"a": "10", "3": "", "10": ""}


def test_changes_of_partial_updates_are_the_same_once_they_are_archived(memory: Storage) -> None:
    made = HandmadeTable(memory, SCHEMA)
    commit(made, 1, 2, base=True)
    for requested in (3, 5):
        made.begin(requested)
        block = made.rows_block(requested, [{"id": "a", "v": str(requested)}], columns=["v"])
        made.complete(requested, requested + 1, [made.log(requested, block)])
    commit(made, 10, 11)
    table = pyhudi.open_table(memory.uri)
    before = values(table.changes(since=at(2), until=at(4)))
    archive(made, (1, 2), (3, 4), (5, 6))
    assert before == {"a": "3"}
    assert values(pyhudi.open_table(memory.uri).changes(since=at(2), until=at(4))) == before


def test_a_time_that_an_archived_clean_has_taken_is_refused(memory: Storage) -> None:
    made = HandmadeTable(memory, SCHEMA)
    commit(made, 10, 11)
    made.clean(7, 8, earliest=at(5))
    archive(made, (7, 8), action="clean")
    with pytest.raises(pyhudi.InvalidRequestError, match="no longer be read"):
        pyhudi.open_table(memory.uri).read(as_of=at(4))


def test_a_question_that_needs_more_than_is_kept_is_answered(
    memory: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it loads pushes out what it found there."""
    monkeypatch.setattr(history_module, "INSTANTS_KEPT_MAX", 8)
    monkeypatch.setattr(archive_format, "ROW_GROUP_INSTANTS", 2)
    monkeypatch.setattr(archive_format, "_PIECE_INSTANTS", 2)
    times = [instant_time(at(n)) for n in range(21)]
    instants = [ArchivedInstant(t, u, "deltacommit", b"x") for t, u in pairwise(times)]
    data, name = encode_archive_file(instants), archive_file_name(instants)
    memory.write(f"{HISTORY}/{name.file_name}", data)
    manifest = Manifest((ManifestEntry(name, len(data)),))
    memory.write(f"{HISTORY}/{manifest_name(1)}", encode_manifest(manifest))
    memory.write(f"{HISTORY}/{VERSION_FILE}", encode_archive_version(1))
    history = History(memory, HISTORY)
    everything = frozenset(times[:-1])
    for some in (everything, frozenset(times[:3]), everything, frozenset(times[-4:-1]), everything):
        assert history.recorded(some).keys() == some
