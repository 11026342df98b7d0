"""Opening lists once; a refresh costs what is new."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import FaultyStorage
from handmade import HandmadeTable, at
from many_writers.services_by_hand import archive
from pyhudi.read.load import TableLoader, load_config
from pyhudi.storage.protocol import Folder, ObjectStat, Storage
from pyhudi.table.file_slices import latest_slice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes, visible_now

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.string())])


def commit(made: HandmadeTable, requested: int, partition: str, *ids: str) -> str:
    rows = [{"id": id_, "part": partition, "v": str(requested)} for id_ in ids]
    made.begin(requested)
    path = made.log(requested, made.rows_block(requested, rows), partition=partition)
    made.complete(requested, requested + 1, [path])
    return path


@pytest.fixture
def made(memory: Storage) -> HandmadeTable:
    table = HandmadeTable(memory, SCHEMA, partition_by="part")
    for number, partition in enumerate(("x", "y", "z")):
        commit(table, 10 * (number + 1), partition, "a")
    return table


def traced(made: HandmadeTable) -> tuple[FaultyStorage, TableLoader]:
    storage = FaultyStorage(made.storage)
    return storage, TableLoader(storage, load_config(storage))


def operations(storage: FaultyStorage) -> list[tuple[str, str]]:
    return [(operation.name, operation.path) for operation in storage.trace]


def test_a_refresh_of_an_unchanged_table_lists_the_timeline_and_nothing_else(
    made: HandmadeTable,
) -> None:
    storage, loader = traced(made)
    state = loader.load()
    storage.trace.clear()
    assert loader.refresh(state) is state
    assert [name for name, _ in operations(storage)] == ["list"]


def test_a_refresh_lists_only_the_partitions_that_new_writes_touched(made: HandmadeTable) -> None:
    storage, loader = traced(made)
    state = loader.load()
    storage.trace.clear()
    commit(made, 40, "y", "b")
    refreshed = loader.refresh(state)
    listed = [path for name, path in operations(storage) if name == "list_folder"]
    assert listed == ["y"]
    assert len(refreshed.partitions["y"][0].logs) == 2
    assert refreshed.partitions["x"] is state.partitions["x"]
    assert refreshed == loader.load()


def seen(state: TableState) -> tuple[object, ...]:
    """What a reader can see of a state; a refresh need not find files of pending writes."""
    visible = visible_now(state.timeline)
    times = CompletionTimes(state.timeline)
    slices = {latest_slice(group, times, visible) for group in state.groups()}
    return state.timeline, state.replaced, slices - {None}


def test_refreshing_after_each_step_gives_what_opening_anew_gives(made: HandmadeTable) -> None:
    _, loader = traced(made)
    state = loader.load()
    made.begin(40)
    path = made.log(40, made.rows_block(40, [{"id": "p", "part": "x", "v": "p"}]), partition="x")
    state = loader.refresh(state)
    assert seen(state) == seen(loader.load())
    commit(made, 50, "new", "n")
    state = loader.refresh(state)
    assert seen(state) == seen(loader.load())
    made.complete(40, 60, [path])  # requested before, completed after
    state = loader.refresh(state)
    assert seen(state) == seen(loader.load())
    made.begin(70, "replacecommit")
    made.complete(70, 71, [], "replacecommit", replaced={"x": ("f-0",)})
    state = loader.refresh(state)
    assert seen(state) == seen(loader.load())
    assert ("x", "f-0") in state.replaced


def test_a_refresh_sees_what_a_clean_removed(made: HandmadeTable) -> None:
    storage, loader = traced(made)
    path = commit(made, 40, "y", "b")
    state = loader.load()
    made.storage.delete(path)
    made.clean(50, 51, earliest=at(30), removed=[path])
    storage.trace.clear()
    refreshed = loader.refresh(state)
    assert [p for name, p in operations(storage) if name == "list_folder"] == ["y"]
    assert refreshed == loader.load()


def test_a_refresh_after_a_rollback_loads_everything_again(made: HandmadeTable) -> None:
    _, loader = traced(made)
    path = commit(made, 40, "y", "b")
    state = loader.load()
    made.storage.delete(path)
    for name in (f"{at(40)}.deltacommit.requested", f"{at(40)}.deltacommit.inflight"):
        made.storage.delete(f".hoodie/timeline/{name}")
    made.storage.delete(f".hoodie/timeline/{at(40)}_{at(41)}.deltacommit")
    made.storage.write(f".hoodie/timeline/{at(50)}_{at(51)}.rollback", b"Obj")
    refreshed = loader.refresh(state)
    assert refreshed == loader.load()
    assert refreshed != state


def test_times_older_than_what_cleaning_kept_are_refused(made: HandmadeTable) -> None:
    made.clean(50, 51, earliest=at(20))
    table = pyhudi.open_table(made.storage.uri)
    assert table.read(as_of=at(21)).to_arrow().num_rows == 2
    with pytest.raises(pyhudi.InvalidRequestError, match=f"from {at(21)} on"):
        table.read(as_of=at(20))
    assert table.read(as_of=pyhudi.RequestedTime(at(20))).to_arrow().num_rows == 2
    with pytest.raises(pyhudi.InvalidRequestError, match=f"from {at(20)} on"):
        table.read(as_of=pyhudi.RequestedTime(at(19)))


def test_a_refresh_heeds_a_table_that_was_upgraded_meanwhile(made: HandmadeTable) -> None:
    _, loader = traced(made)
    state = loader.load()
    path = ".hoodie/hoodie.properties"
    data = made.storage.read(path).replace(b"COMMIT_TIME_ORDERING", b"EVENT_TIME_ORDERING")
    made.storage.write(path, data + b"hoodie.table.ordering.fields=v\n")
    commit(made, 40, "y", "b")
    assert loader.refresh(state).config.merge.ordering_fields == ("v",)


class Torn(FaultyStorage):
    """Once, a listing of the timeline comes in pages: the first one is older than the others."""

    def __init__(self, made: HandmadeTable, meanwhile: Callable[[], None]) -> None:
        super().__init__(made.storage)
        self._meanwhile: Callable[[], None] | None = meanwhile

    def _torn(self, listed: Callable[[], Iterable[ObjectStat]]) -> Sequence[ObjectStat]:
        meanwhile, self._meanwhile = self._meanwhile, None
        before = tuple(listed())
        if meanwhile is None:
            return before
        meanwhile()
        boundary = f".hoodie/timeline/{at(55)}"
        later = [stat for stat in listed() if stat.path >= boundary]
        return [*(stat for stat in before if stat.path < boundary), *later]

    def list_folder(self, prefix: str) -> Folder:
        found = super().list_folder(prefix)
        if prefix != ".hoodie/timeline":
            return found
        inner = super().list_folder
        return replace(found, objects=tuple(self._torn(lambda: inner(prefix).objects)))

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
        if prefix != ".hoodie/timeline":
            return super().list(prefix, after=after)
        inner = super().list
        return iter(self._torn(lambda: inner(prefix, after=after)))


def overlapping(made: HandmadeTable) -> Callable[[], None]:
    """Two writes that began, the earlier one on the first page; then both complete, in order."""
    row = [{"id": "b", "part": "x", "v": "b"}]
    paths = {}
    for requested in (50, 60):
        made.begin(requested)
        paths[requested] = made.log(requested, made.rows_block(requested, row), partition="x")

    def complete() -> None:
        made.complete(50, 70, [paths[50]])
        made.complete(60, 71, [paths[60]])

    return complete


@pytest.mark.parametrize("again", [False, True], ids=["opened", "refreshed"])
def test_a_listing_that_missed_an_earlier_completion_is_not_taken_for_the_table(
    made: HandmadeTable, again: bool
) -> None:
    before = TableLoader(made.storage, load_config(made.storage)).load()
    storage = Torn(made, overlapping(made))
    loader = TableLoader(storage, load_config(storage))
    state = loader.refresh(before) if again else loader.load()
    done = {i.requested for i in state.timeline.instants if i.completed}
    assert (at(50) in done) >= (at(60) in done)
    assert at(60) in done


@pytest.mark.parametrize("word", ["deltacommit", "deltacommit.inflight", "clean.requested"])
def test_a_timeline_file_that_hudi_has_not_renamed_yet_is_passed_over(
    made: HandmadeTable, word: str
) -> None:
    """It writes beside the name first, and if it dies there the file stays."""
    loader = TableLoader(made.storage, load_config(made.storage))
    before = loader.load()
    times = f"{at(90)}_{at(91)}" if "." not in word else at(90)
    name = f"{times}.{word}.a3bb189e-8bf9-4888-9912-ace4e6543002"
    made.storage.create(f".hoodie/timeline/{name}", b"half")
    assert loader.refresh(before) is before
    assert loader.load() == before


HOUR = 10_000_000  # times of a handmade table are digits


@pytest.fixture
def old(memory: Storage) -> HandmadeTable:
    """A table that is written every hour."""
    table = HandmadeTable(memory, SCHEMA, partition_by="part")
    for hour in range(6):
        commit(table, hour * HOUR + 10, "x", f"k{hour}")
    return table


def archive_before(made: HandmadeTable, hour: int) -> None:
    archive(made.storage, ".hoodie/timeline", at(hour * HOUR))


def test_a_refresh_forgets_what_was_archived(old: HandmadeTable) -> None:
    storage, loader = traced(old)
    state = loader.load()
    archive_before(old, 2)
    assert loader.refresh(state) is state  # its end is the same, and it reads the same
    whole = loader.refresh(state, is_whole=True)
    assert whole == loader.load()
    commit(old, 6 * HOUR, "y", "b")
    storage.trace.clear()
    refreshed = loader.refresh(state)
    assert [p for name, p in operations(storage) if name == "list_folder"] == [
        ".hoodie/timeline",
        "y",
    ]
    assert refreshed == loader.load()
    assert len(refreshed.timeline.writes) == 5


def test_a_refresh_notices_a_savepoint_of_an_old_write(old: HandmadeTable) -> None:
    _, loader = traced(old)
    state = loader.load()
    path = f".hoodie/timeline/{at(10)}_{at(5 * HOUR + 50)}.savepoint"
    old.storage.write(path, b"Obj")
    saved = loader.refresh(state, is_whole=True)
    assert saved == loader.load() != state
    commit(old, 6 * HOUR, "y", "b")
    assert loader.refresh(state) == loader.load()
    old.storage.delete(path)
    assert loader.refresh(saved, is_whole=True) == loader.load()


def test_what_a_given_up_write_left_is_not_seen_once_the_timeline_has_passed_it(
    old: HandmadeTable,
) -> None:
    """Whoever archives removes it; a listing that is older still has it."""
    _, loader = traced(old)
    rows = [{"id": "ghost", "part": "x", "v": "g"}]
    path = old.log(HOUR + 50, old.rows_block(HOUR + 50, rows), partition="x")
    state = loader.load()
    old.storage.delete(path)
    archive_before(old, 3)
    commit(old, 6 * HOUR, "y", "b")
    refreshed = loader.refresh(state)
    assert refreshed == loader.load()
