"""What readers see of tables that were resized: at every time, and in every range of times."""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.read.plan import Now, Question, Reader
from pyhudi.read.slice import read_split
from pyhudi.timeline.instant_time import RequestedTime
from resize_tables import MODES, Beside
from resized_twins import JOINED, Twin, lived

every_mode = pytest.mark.parametrize("mode", [*MODES, JOINED])


@cache
def twins(mode: str) -> tuple[Twin, Twin]:
    """A table that was resized, and one with the same writes that was not."""
    return lived(mode, resizes=True), lived(mode, resizes=False)


@every_mode
def test_a_read_now_sees_every_write_once(mode: str) -> None:
    resized, plain = twins(mode)
    assert resized.now() == plain.now()
    assert len(resized.table.values()) == len(plain.table.values())


@every_mode
def test_a_read_as_of_any_completion_sees_what_had_completed(mode: str) -> None:
    resized, plain = twins(mode)
    for time in resized.moments():
        if count := resized.completed_by(time):
            expected = plain.now(as_of=plain.completion(count))
            assert resized.now(as_of=time) == expected, time


@every_mode
def test_a_read_as_of_any_request_sees_what_was_requested(mode: str) -> None:
    resized, plain = twins(mode)
    for time in resized.moments():
        if count := resized.requested_by(time):
            expected = plain.now(as_of=plain.request(count))
            assert resized.now(as_of=RequestedTime(time)) == expected, time


@every_mode
def test_batches_and_lookups_see_what_a_read_sees(mode: str) -> None:
    resized, plain = twins(mode)
    scan = resized.table.table("r").read(columns=["id", "v"])
    batches = pa.Table.from_batches(scan.to_batches())
    assert sorted(batches.column("id").to_pylist()) == sorted(resized.table.values())
    for key in sorted(plain.table.values()):
        where = f"id = '{key}'"
        assert resized.now(where=where) == plain.now(where=where)


@every_mode
def test_tasks_read_the_slices_that_a_plan_names_each_row_once(mode: str) -> None:
    """As Spark does: the plan is made by one process, and its splits are read by others."""
    resized, _ = twins(mode)
    session = resized.table.session("driver")
    reader, state = Reader(session.loader), session.loader.load()
    whole = reader.plan_snapshot(state, Now(), Question(columns=("id", "v")))
    changed, _end = reader.plan_changes(state, "", None, Question(columns=("id", "v")))
    for plan in (whole, changed):
        splits = pickle.loads(pickle.dumps(plan.splits(1)))
        assert len(splits) == len(plan.reads) >= 1
        rows: list[tuple[str, str]] = []
        for split in splits:
            for batch in read_split(resized.table.storage, plan.spec, split):
                rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        assert dict(rows) == resized.table.values()
        assert len(rows) == len(dict(rows))


@every_mode
def test_readers_see_every_write_once_at_every_step_of_a_resize(mode: str) -> None:
    twin = Twin(mode, resizes=True)
    twin.put("klmnop", 1)
    twin.put("kl", 2)
    requested = twin.table.plan(3)
    twin.put("mn", 3)
    start = twin.completion(1)
    table, steps = twin.table, []

    def seen() -> object:
        optimized = table.table("o").read(columns=["id"], read_optimized=True).to_arrow()
        keys = optimized.column("id").to_pylist()
        assert len(keys) == len(set(keys))
        return twin.now(), twin.now(as_of=twin.completion(2)), twin.changed(start, None)

    before = seen()

    class Watched(Beside):
        def _meet(self, path: str) -> None:
            steps.append(path)
            assert seen() == before, path

    service = table.resizes(storage=Watched(table, {}))
    assert service.execute(requested) is not None
    assert len(steps) > 8
    assert seen() == before


@every_mode
def test_read_optimised_has_the_old_base_files_until_the_resize_has_completed(mode: str) -> None:
    twin = Twin(mode, resizes=True)
    twin.put("klm", 1)
    assert twin.table.table("c").services.compact().results
    twin.put("kx", 3)
    before = _optimised(twin)
    requested = twin.table.plan(2)
    assert _optimised(twin) == before == {"k": "k1", "l": "l1", "m": "m1"}
    assert twin.table.resizes().execute(requested) is not None
    assert _optimised(twin) == twin.table.values() == {**before, "k": "k3", "x": "x3"}


def _optimised(twin: Twin) -> dict[str, str]:
    scan = twin.table.table("r").read(columns=["id", "v"], read_optimized=True)
    rows = scan.to_arrow().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["v"] for row in rows}


@every_mode
def test_times_that_were_archived_are_read_as_before(mode: str) -> None:
    resized = lived(mode, resizes=True)
    kept = [time for time in resized.moments() if time >= resized.resized[-1][1]]
    before = {time: resized.now(as_of=time) for time in kept}
    since = resized.resized[0][1]
    changed = {time: resized.changed(since, time) for time in kept}
    for stamp in range(10, 20):
        resized.put("z", stamp)
    resized.table.clock.ms += 24 * 3_600_000
    consumer = resized.table.table("c").consumers
    consumer.register("me", since=since, expires_after_hours=None)
    resized.table.table("cleaner").services.clean(CleanPolicy.commits(1))
    resized.table.table("archiver").services.archive(
        ArchivePolicy(keep_min=2, keep_max=3, delta_commits=0, grace_ms=1_000)
    )
    assert not any(name.startswith(resized.writes[0][0]) for name in resized.table.names())
    assert {time: resized.now(as_of=time) for time in kept} == before
    assert {time: resized.changed(since, time) for time in kept} == changed


@every_mode
def test_changes_of_a_range_are_those_of_its_writes_also_if_it_ends_inside_a_resize(
    mode: str,
) -> None:
    """A row that was older than the key's own already is not shown if a resize merged them."""
    resized, plain = twins(mode)
    times = [None, *resized.ends()]
    expected: dict[tuple[int, int], set[tuple[Any, ...]]] = {}
    for number, since in enumerate(times):
        for until in times[number + 1 :]:
            assert until is not None
            if since is None or not resized.completions.issuperset({since, until}):
                low = 0 if since is None else resized.completed_by(since)
                high = resized.completed_by(until)
                end = plain.completion(high)
                if (low, high) not in expected:
                    changed = plain.changed(plain.completion(low), end) if high else []
                    expected[low, high] = set(changed)
                got = resized.changed(since, until)
                assert len(got) == len(set(got))
                if missing := expected[low, high].symmetric_difference(got):
                    assert resized.has_resize(since, until), (since, until)
                    assert missing <= expected[low, high].difference(plain.now(as_of=end))


def changed_by_a_late_part(*, resizes: bool) -> Twin:
    """Two owners write one row at once; the first to begin completes last, then comes a resize."""
    twin = Twin(JOINED, resizes)
    twin.put("klmnop", 1)
    twin.put("klmnop", 2)
    late = twin.hold("k", 4)
    twin.put("k", 3)
    twin.did(late.finish())
    twin.resize(lambda table: table.plan(3))
    twin.put("z", 5)
    return twin


def test_changes_of_a_joined_table_have_what_was_changed_before_a_resize_of_the_range() -> None:
    resized, plain = (changed_by_a_late_part(resizes=it) for it in (True, False))
    expected = plain.changed(plain.completion(3), None)
    assert [row[:3] for row in expected] == [("k", "k3", "4"), ("z", "z5", "None")]
    since = resized.completion(3)
    assert resized.changed(since, None) == expected
    changes = resized.table.table("r").changes(since=since, columns=["v"], where="ts = 4")
    assert (changes.to_arrow().to_pylist(), changes.count()) == ([{"v": "k3"}], 1)
    path = f".hoodie/timeline/{resized.resized[0][0]}.clustering.requested"
    resized.table.storage.delete(path)  # without its plan, every new bucket is looked into
    assert resized.changed(since, None) == expected
