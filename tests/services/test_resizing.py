"""Executing resizes: what readers see before, meanwhile and after, and what is left to others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyhudi.commit.proposals import Begin, Decided
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    InvalidRequestError,
    UnsupportedTableError,
)
from pyhudi.format.table.ring_file import initial_ring
from pyhudi.format.timeline.commit_metadata import decode_commit_metadata
from pyhudi.format.timeline.instant import Action
from pyhudi.format.timeline.resize_plan import (
    ResizePlan,
    decode_resize_plan,
    encode_resize_plan,
)
from pyhudi.index.ring_changes import unsound_change
from pyhudi.index.ring_layout import RingLayout
from pyhudi.services.resizing.run import resizes
from pyhudi.storage.protocol import Folder
from pyhudi.timeline.instant_time import RequestedTime
from pyhudi.write.resizing.work import ring_layout
from resize_tables import MODES, Beside, ResizeTable

#: Virtual ones, too.
ALL: dict[str, dict[str, Any]] = {**MODES, "virtual": {"ordering": "ts", "is_virtual": True}}


#: Of resizes that copy what completes meanwhile.
copying = pytest.mark.parametrize("table", ["event time", "commit time"], indirect=True)


@pytest.fixture(params=ALL)
def table(request: pytest.FixtureRequest) -> ResizeTable:
    return ResizeTable(**ALL[request.param])


def completed_file(table: ResizeTable, requested: str) -> str:
    [path] = [s.path for s in table.storage.list(".hoodie/timeline") if f"/{requested}_" in s.path]
    return path


def test_readers_see_the_same_rows_after_a_resize(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    table.put("mnxyz", 2)
    table.remove("ky")
    before = table.rows()
    requested = table.plan()
    assert table.rows() == before
    result = table.resizes().execute(requested)
    assert result is not None
    assert table.rows() == before
    assert (result.inputs, result.children, result.copies) == (1, 4, 0)
    assert result.rows == len(before)


def test_the_completion_brings_the_rings_and_names_what_it_replaced(table: ResizeTable) -> None:
    for day in ("d", "e"):
        table.put("klm", 1, day)
    requested = table.plan(3, ("d", "e"))
    table.resizes().execute(requested)
    data = table.storage.read(completed_file(table, requested))
    metadata = decode_commit_metadata(data, "")
    first = {day: initial_ring(day, 1).nodes[0].file_id for day in ("d", "e")}
    assert metadata.operation_type == "CLUSTER"
    assert metadata.replaced_file_ids == {day: (file_id,) for day, file_id in first.items()}
    assert metadata.schema_json
    folder = ".hoodie/.bucket_index/consistent_hashing_metadata"
    for day in ("d", "e"):
        names = [stat.path.rpartition("/")[2] for stat in table.storage.list(f"{folder}/{day}")]
        assert names[2:] == [f"{requested}.commit", f"{requested}.hashing_meta"]


@copying
def test_what_completes_while_base_files_are_made_is_copied(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    requested = table.plan()

    def write() -> None:
        table.put("kl", 2)
        table.remove("m")
        table.put("new", 3)

    beside = Beside(table, {".parquet": write})
    result = table.resizes(storage=beside).execute(requested)
    assert result is not None
    assert result.copies >= 3
    rows = table.rows()
    assert len(rows) == 8
    assert any("'k2'" in row for row in rows)


@copying
def test_what_completes_during_the_copying_is_copied_too(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    requested = table.plan()
    deeds = {
        ".parquet": lambda: table.put("kl", 2),
        "log.1000_": lambda: table.put("mn", 3),
        "log.2000_": lambda: table.put("kn", 4),
    }
    result = table.resizes(storage=Beside(table, deeds)).execute(requested)
    assert not deeds
    assert result is not None
    values = {row.partition("'v': ")[2] for row in table.rows()}
    assert values == {f"'{v}'}}" for v in ("k4", "l2", "m3", "n4", "o1", "p1", "q1")}


@copying
def test_a_resize_that_writers_outrun_is_closed_and_completes(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    requested = table.plan()
    stamps = iter(range(2, 100))
    log = table.session("look").log
    closed: list[bool] = []

    def is_completion(data: bytes) -> bool:
        return b'"kind":"complete"' in data and f'"instant":"{requested}"'.encode() in data

    class Outrun(Beside):
        def create(self, path: str, data: bytes) -> bool:
            if "/.pyhudi/log/" in path and is_completion(data):
                live = log.refresh()
                closed.append(requested in live.closed)
                if requested in live.pending and not closed[-1]:
                    table.put("k", next(stamps))
            return super().create(path, data)

    service = table.resizes(storage=Outrun(table, {}))
    result = service.execute(requested)
    assert result is not None
    last = next(stamps) - 1
    assert any(f"'k{last}'" in row for row in table.rows())
    assert len(table.rows()) == 7
    assert closed[-1], "the completion came after the close"
    assert not table.storage.stat(f".hoodie/.pyhudi/closed_resizes/{requested}")


def test_the_past_and_the_changes_are_what_they_were(table: ResizeTable) -> None:
    """At every completion, as of every request, and between any two completions."""
    table.put("klmnopq", 1)
    table.put("kx", 2)
    requested = table.plan()
    table.put("kl", 3)
    table.remove("m")
    instants = table.session("s").log.live.completed_after("0")
    completions = [instant.completed for instant in instants if instant.completed]
    requests = [RequestedTime(instant.requested) for instant in instants]
    points = [*completions, *requests]
    ranges = [(a, b) for a in (None, *completions) for b in completions if a is None or a < b]
    past = [table.rows(as_of=point) for point in points]
    changes = [table.changed(*ends) for ends in ranges]
    so_far = [table.changed(since, None) for since in completions]
    assert any(map(bool, past))
    assert any(map(bool, changes))
    table.resizes().execute(requested)
    assert [table.rows(as_of=point) for point in points] == past
    assert [table.changed(*ends) for ends in ranges] == changes
    assert [table.changed(since, None) for since in completions] == so_far
    table.put("z", 4)
    done = table.session("s").log.live.completed[requested].completed
    assert len(table.changed(done, None)) == 1, "a resize changes nothing"


@copying
def test_another_process_continues_where_one_died(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    requested = table.plan()
    table.put("kl", 2)
    table.put("mn", 3)

    def die() -> None:
        raise KeyboardInterrupt

    beside = Beside(table, {"log.2000_": die})
    with pytest.raises(KeyboardInterrupt):
        table.resizes(storage=beside).execute(requested)
    before = table.rows()
    result = table.resizes("other").execute(requested, is_forced=True)
    assert result is not None
    assert table.rows() == before
    assert result.copies == len(
        [s for s in table.storage.list("d") if f"_{requested}.log" in s.path]
    )


@copying
def test_a_damaged_log_of_an_input_cancels_the_resize(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    requested = table.plan()
    table.put("kl", 2)
    newest = max(
        (stat.path for stat in table.storage.list("d") if ".log." in stat.path),
    )
    table.storage.write(newest, table.storage.read(newest)[:-30])
    with pytest.raises(CorruptTableError):
        table.resizes().execute(requested)
    assert requested not in table.session("s").log.refresh().pending
    left = [stat.path for stat in table.storage.list("d") if requested in stat.path]
    assert not left


@copying
def test_a_resize_that_was_cancelled_leaves_nothing_and_may_be_planned_again(
    table: ResizeTable,
) -> None:
    table.put("klmnopq", 1)
    before = table.rows()
    requested = table.plan()

    def die() -> None:
        raise KeyboardInterrupt

    table.put("k", 1)
    before = table.rows()
    beside = Beside(table, {f"_{requested}.log": die})
    with pytest.raises(KeyboardInterrupt):
        table.resizes(storage=beside).execute(requested)
    service = table.resizes("other")
    service.cancel(requested, is_forced=True)
    assert table.rows() == before
    assert not [stat.path for stat in table.storage.list("d") if requested in stat.path]
    with pytest.raises(InvalidRequestError):
        service.execute(requested)
    again = table.plan()
    assert service.execute(again) is not None
    assert table.rows() == before


def test_an_executor_that_was_overtaken_returns_what_the_other_did(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    requested = table.plan()
    other: list[Any] = []
    deeds = {
        ".parquet": lambda: other.append(table.resizes("b").execute(requested, is_forced=True))
    }
    result = table.resizes(storage=Beside(table, deeds)).execute(requested)
    assert result is not None
    assert other[0].is_ours
    assert not result.is_ours
    assert result.completed == other[0].completed


@pytest.mark.parametrize("ended", ["completed", "cancelled"])
def test_a_resize_that_ends_while_another_executor_loads_its_plan_is_not_called_damaged(
    table: ResizeTable, ended: str
) -> None:
    table.put("abcdef", 1)
    requested = table.plan(2)
    session = table.session("late")

    def layout_of(partition: str) -> RingLayout:
        other = table.resizes("other")
        if ended == "completed":
            other.execute(requested)
            return ring_layout(session, partition)
        other.cancel(requested)
        raise unsound_change(partition, "its plan is gone")

    late = resizes(session, layout_of=layout_of)
    if ended == "completed":
        result = late.execute(requested)
        assert result is not None
        assert not result.is_ours
    else:
        with pytest.raises(InvalidRequestError, match=r"cancels it|no plan"):
            late.execute(requested)


def test_an_executor_whose_resize_was_cancelled_meanwhile_reports_it(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    requested = table.plan()
    deeds = {".parquet": lambda: table.resizes("b").cancel(requested, is_forced=True)}
    with pytest.raises((ConflictError, InvalidRequestError)):
        table.resizes(storage=Beside(table, deeds)).execute(requested)
    assert not [
        s.path for s in table.storage.list("d") if requested in s.path and "log" not in s.path
    ]


def test_an_executor_whose_plan_is_gone_completes_nothing(table: ResizeTable) -> None:
    """It slept until nothing told any more that the resize was cancelled but the missing plan."""
    table.put("klmnopq", 1)
    before = table.rows()
    requested = table.plan()
    plan = f".hoodie/timeline/{requested}.clustering.requested"
    deeds = {".parquet": lambda: table.storage.delete(plan)}
    with pytest.raises(ConflictError, match="not pending"):
        table.resizes(storage=Beside(table, deeds)).execute(requested)
    assert table.rows() == before
    assert not [name for name in table.names() if name.startswith(requested)]


def test_a_plan_of_an_older_ring_changes_nothing(table: ResizeTable) -> None:
    table.put("klm", 1)
    late = table.plan()
    plan = table.storage.read(f".hoodie/timeline/{late}.clustering.requested")
    table.resizes().execute(late)
    before = table.rows()
    outcome = table.session("forger").log.append(Begin(Action.CLUSTERING, plan))
    assert isinstance(outcome, Decided)
    assert outcome.entry.instant is not None
    with pytest.raises(CorruptTableError, match="planned on ring 0"):
        table.resizes().execute(outcome.entry.instant)
    table.resizes().cancel(outcome.entry.instant)
    assert table.rows() == before


def test_buckets_merge_and_writers_go_on_in_the_new_ones(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    table.resizes().execute(table.plan(4))
    table.put("kmx", 2)
    requested = table.plan_merge()
    table.put("ly", 3)
    before = table.rows()
    result = table.resizes().execute(requested)
    assert result is not None
    assert (result.inputs, result.children) == (4, 1)
    assert table.rows() == before
    table.put("z", 4)
    assert len(table.values()) == 10


def test_rounds_of_splits_and_merges_keep_every_row(table: ResizeTable) -> None:
    expected: dict[str, str] = {}

    def put(keys: str, stamp: int) -> None:
        table.put(keys, stamp)
        expected.update({key: f"{key}{stamp}" for key in keys})

    put("abcdefghijklm", 1)
    for stamp, parts in enumerate((2, 3, 0, 5, 0), 2):
        requested = table.plan(parts) if parts else table.plan_merge()
        put("aceg"[: stamp - 1] + "xyz"[stamp % 3], stamp)
        assert table.resizes().execute(requested) is not None
        assert table.values() == expected
        assert bool(table.table("v").services.verify())


def test_a_bucket_that_was_never_written_is_split_too(table: ResizeTable) -> None:
    table.put("k", 1)
    table.resizes().execute(table.plan(8))
    before = table.rows()
    result = table.resizes().execute(table.plan(2))
    assert result is not None
    assert result.children == 16
    assert table.rows() == before


@pytest.mark.parametrize("left_out", ["a log", "everything"])
def test_a_plan_that_leaves_out_what_had_completed_is_not_executed(
    table: ResizeTable, left_out: str
) -> None:
    """Its children would lack the rows, and the inputs be hidden."""
    table.put("klm", 1)
    table.put("kx", 2)
    sound = table.plan()
    path = f".hoodie/timeline/{sound}.clustering.requested"
    plan = decode_resize_plan(table.storage.read(path), path)
    assert plan is not None
    table.resizes().cancel(sound)
    before = table.rows()
    [change] = plan.groups
    [part] = change.slices
    logs = part.log_files[:-1] if left_out == "a log" else ()
    base = part.base_file if left_out == "a log" else None
    cut = replace(change, slices=(replace(part, base_file=base, log_files=logs),))
    data = encode_resize_plan(ResizePlan((cut,)), table.storage.uri, bytes(16))
    outcome = table.session("forger").log.append(Begin(Action.CLUSTERING, data))
    assert isinstance(outcome, Decided)
    assert outcome.entry.instant is not None
    with pytest.raises(CorruptTableError, match="leaves out"):
        table.resizes().execute(outcome.entry.instant)
    table.resizes().cancel(outcome.entry.instant)
    assert table.rows() == before


def test_an_executor_that_slept_until_its_ring_was_cleaned_leaves_no_mark(
    table: ResizeTable,
) -> None:
    """A mark without its ring would be an error of the table."""
    table.put("klm", 1)
    first = table.plan(2)
    folder = ".hoodie/.bucket_index/consistent_hashing_metadata/d"

    def others() -> None:
        table.resizes("b").execute(first, is_forced=True)
        table.resizes("c").execute(table.plan(2, label="p2"))
        for suffix in ("hashing_meta", "commit"):
            table.storage.delete(f"{folder}/{first}.{suffix}")

    result = table.resizes(storage=Beside(table, {".parquet": others})).execute(first)
    assert result is not None
    assert not result.is_ours
    assert not [stat.path for stat in table.storage.list(folder) if first in stat.path]
    assert table.table("v").services.verify()


def test_a_folder_that_is_listed_while_copies_are_made_hides_none_of_them(
    table: ResizeTable,
) -> None:
    """The commit names every copy: readers that refresh go by it."""
    table.put("klmnopq", 1)
    requested = table.plan(4)
    table.put("klmnopq", 2)
    table.put("klmnopq", 3)

    class Racing(Beside):
        """A listing that misses all copies of the first write but one, as a local disk may."""

        lists = 0

        def list_folder(self, prefix: str) -> Folder:
            found = table.storage.list_folder(prefix)
            if prefix != "d":
                return found
            self.lists += 1
            missed = [s for s in found.objects if f"_{requested}.log.1000" in s.path][1:]
            shown = tuple(s for s in found.objects if self.lists > 1 or s not in missed)
            return Folder(found.folders, shown)

    def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.resizes(storage=Beside(table, {"/log/0": die, "log.2000": lambda: None})).execute(
            requested
        )
    late = table.resizes("late", storage=Racing(table, {}))
    result = late.execute(requested, is_forced=True)
    assert result is not None
    copies = [s.path for s in table.storage.list("d") if f"_{requested}.log" in s.path]
    assert result.copies == len(copies)


# -- a lock of Hudi's


def test_a_lock_that_hudi_takes_cancels_pending_resizes() -> None:
    table = ResizeTable(ordering="ts")
    table.put("klmn", 1)
    requested = table.plan(3)
    table.table("own").alter.use_lock("storage")
    table.put("kl", 2)
    assert not table.pending()
    with pytest.raises(InvalidRequestError, match=f"no pending resize {requested}"):
        table.resizes().execute(requested)
    assert table.values() == {"k": "k2", "l": "l2", "m": "m1", "n": "n1"}


def test_no_process_executes_a_resize_beside_hudi(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that gave the table its lock died before it cancelled the resize."""
    table = ResizeTable(ordering="ts")
    table.put("klmn", 1)
    requested = table.plan(3)
    monkeypatch.setattr("pyhudi.services.lock_change.cancel_own", lambda session: None)
    table.table("own").alter.use_lock("storage")
    with pytest.raises(UnsupportedTableError, match="Cancel it with cancel_resize"):
        table.resizes().execute(requested)
    table.table("own").services.cancel_resize(requested)
    table.put("kl", 2)
    assert len(table.values()) == 4
