"""Cleaning, archiving, compaction, rollback, repair and verification beside resizes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from many_writers.scene import HeldWrite, Stop
from many_writers.services_by_hand import begin_service, plan_clustering
from pyhudi.commit.proposals import Close
from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.ring_file import FIRST_INSTANT
from pyhudi.format.timeline.decision_entry import closed_path
from pyhudi.format.timeline.instant import Action, InstantTime
from pyhudi.format.timeline.plan_files import (
    CompactionOperation,
    CompactionPlan,
    encode_compaction_plan,
)
from pyhudi.format.timeline.service_metadata import (
    SavepointMetadata,
    SavepointPartition,
    encode_savepoint_metadata,
)
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.plan.resizing.policy import ResizePolicy
from pyhudi.services.repair import repair_table
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.objects.markers import load_markers
from pyhudi.storage.objects.rings import load_ring_files
from pyhudi.storage.objects.write_fence import fence_path, raise_fence
from resize_tables import MODES, Beside, ResizeTable, latest_slices

KEYS = "klmnopqrst"
DAY_MS = 24 * 3_600_000
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # buckets this small are for tests only
    SMALL = ResizePolicy(target_bytes=4096, split_above=1, merge_below=0, rest_seconds=0)
ONE = CleanPolicy.commits(1)
ARCHIVE = ArchivePolicy(
    keep_min=2, keep_max=3, delta_commits=0, grace_ms=1_000, aborted_grace_ms=1_000
)


@pytest.fixture(params=MODES)
def table(request: pytest.FixtureRequest) -> ResizeTable:
    table = ResizeTable(**MODES[request.param])
    table.put(KEYS, 1)
    return table


def resized(table: ResizeTable, parts: int = 3) -> str:
    requested = table.plan(parts)
    assert table.resizes().execute(requested) is not None
    return requested


def rings(table: ResizeTable, day: str = "d") -> tuple[set[str], set[str]]:
    """The instants of the ring files, and of the marks."""
    files = load_ring_files(table.storage, day)
    return set(files.instants), set(files.marks)


def whole(table: ResizeTable) -> dict[str, str]:
    """What is in the table, which is whole."""
    verified = table.table("verifier").services.verify()
    assert verified, str(verified)
    return table.values()


def files_of(table: ResizeTable, requested: str) -> list[str]:
    """The data files that an instant made."""
    return sorted(s.path for s in table.storage.list("d") if requested in s.path)


def written(table: ResizeTable, stamps: Iterable[int]) -> None:
    for stamp in stamps:
        table.put("kz", stamp)


# -- cleaning


def test_the_clean_that_removes_replaced_buckets_removes_their_ring(table: ResizeTable) -> None:
    first, second = resized(table), resized(table, 2)
    assert rings(table)[0] == {FIRST_INSTANT, first, second}
    written(table, (2, 3))
    before = whole(table)
    done = table.table("cleaner").services.clean(ONE).or_raise()
    assert sum(clean.files for clean in done.cleans) > 0
    assert rings(table) == ({second}, {second})
    assert whole(table) == before
    table.put("new", 4, label="a new process")
    assert whole(table) == {**before, "n": "n4", "e": "e4", "w": "w4"}


def test_a_ring_stays_while_a_state_before_the_next_one_is_retained(table: ResizeTable) -> None:
    first = resized(table)
    written(table, (2, 3))
    table.table("cleaner").services.clean(CleanPolicy.commits(3))
    assert rings(table)[0] == {FIRST_INSTANT, first}
    table.table("cleaner").services.clean(CleanPolicy.commits(2))
    assert rings(table)[0] == {first}


def test_the_first_ring_stays_while_it_is_alone(table: ResizeTable) -> None:
    written(table, range(2, 6))
    table.table("compactor").services.compact()
    written(table, range(6, 9))
    table.table("cleaner").services.clean(ONE)
    assert rings(table)[0] == {FIRST_INSTANT}


def test_the_newest_marked_ring_stays_beside_a_pending_resize(table: ResizeTable) -> None:
    first = resized(table)
    written(table, (2, 3))
    pending = table.plan(2)
    before = whole(table)
    named = {path for path in (s.path for s in table.storage.list("d")) if first in path}
    table.table("cleaner").services.clean(ONE)
    assert named <= {s.path for s in table.storage.list("d")}  # the plan reads them
    assert rings(table) == ({first}, {first})
    assert table.resizes().execute(pending) is not None
    assert whole(table) == before


def test_a_mark_that_a_clean_left_behind_does_no_harm(table: ResizeTable) -> None:
    first, second = resized(table), resized(table, 2)
    table.storage.delete(f"{_folder()}/{first}.hashing_meta")
    table.put("new", 4)
    assert len(whole(table)) == len(KEYS) + 2
    written(table, (5, 6))
    table.table("cleaner").services.clean(ONE)
    assert rings(table) == ({second}, {second})


def test_a_savepoint_keeps_replaced_buckets_and_their_ring(table: ResizeTable) -> None:
    done = table.table("w").upsert(table.made("k", 2))
    old = files_of(table, "")
    saved(table, done.requested, str(done.completed), old)
    before = table.rows(as_of=done.completed)
    first = resized(table)
    written(table, range(3, 8))
    table.table("cleaner").services.clean(ONE)
    assert set(old) <= set(files_of(table, ""))
    assert rings(table)[0] == {FIRST_INSTANT, first}
    assert len(before) == len(KEYS)


def saved(table: ResizeTable, requested: str, completed: str, paths: list[str]) -> None:
    names = tuple(path.rpartition("/")[2] for path in paths)
    metadata = SavepointMetadata("me", 0, "", {"d": SavepointPartition("d", names)})
    path = f".hoodie/timeline/{requested}_{completed}.savepoint"
    table.storage.write(path, encode_savepoint_metadata(metadata, bytes(16)))


def test_a_consumer_reads_through_a_resize_until_it_has_passed_it(table: ResizeTable) -> None:
    start = table.table("c").consumers.register("me").since
    table.put("lm", 2)
    requested = table.plan(3)
    inside = table.table("w").upsert(table.made("mn", 3)).completed
    assert inside is not None
    table.resizes().execute(requested)
    written(table, range(4, 10))
    part, every = table.changed(start, inside), table.changed(start, None)
    assert (len(part), len(every)) == (3, 5)
    cleaned_and_archived(table)
    assert (table.changed(start, inside), table.changed(start, None)) == (part, every)
    table.table("c").consumers.advance("me", _newest(table))
    written(table, (10, 11))
    cleaned_and_archived(table)
    with pytest.raises(InvalidRequestError, match="no longer"):
        table.changed(start, inside)
    # A range that has the resize in it needs no file of the buckets that it replaced.
    assert len(table.changed(start, None)) == 5


def _newest(table: ResizeTable) -> str:
    return max(name[18:35] for name in table.names() if "_" in name and not name.endswith("et"))


# -- archiving


def cleaned_and_archived(table: ResizeTable, times: int = 1) -> None:
    """Clean and archive what may go, each time a day later."""
    for _ in range(times):
        table.table("cleaner").services.clean(ONE).or_raise()
        table.clock.ms += DAY_MS
        table.table("archiver").services.archive(ARCHIVE)


def is_active(table: ResizeTable, requested: str) -> bool:
    return any(name.startswith(requested) for name in table.names())


def test_no_resize_leaves_the_timeline_before_its_ring_is_marked(table: ResizeTable) -> None:
    requested = resized(table)
    mark = f"{_folder()}/{requested}.commit"
    table.storage.delete(mark)  # its executor died right after the completion
    written(table, range(2, 9))
    before = table.values()
    if mark in _objects(table):
        table.storage.delete(mark)  # a writer set it
    cleaned_and_archived(table, 2)
    assert not is_active(table, requested)
    assert requested in rings(table)[1]
    assert whole(table) == before


def test_the_ring_of_an_archived_resize_is_found_with_and_without_its_mark(
    table: ResizeTable,
) -> None:
    requested = resized(table)
    written(table, range(2, 9))
    cleaned_and_archived(table, 2)
    assert not is_active(table, requested)
    for stamp in (20, 21):
        table.put("kz", stamp, label=f"process {stamp}")
        assert whole(table)["k"] == f"k{stamp}"
        if (mark := f"{_folder()}/{requested}.commit") in _objects(table):
            table.storage.delete(mark)


def test_a_resize_stays_while_its_inputs_have_files(table: ResizeTable) -> None:
    requested = resized(table)
    written(table, range(2, 9))
    table.clock.ms += DAY_MS
    table.table("archiver").services.archive(ARCHIVE)
    assert is_active(table, requested)
    assert whole(table)["k"] == "k8"


def test_a_pending_resize_keeps_what_completed_since(table: ResizeTable) -> None:
    written(table, (2, 3, 4))
    requested = table.plan(3)
    written(table, range(5, 12))
    table.clock.ms += DAY_MS
    table.table("archiver").services.archive(ARCHIVE)
    since = [name for name in table.names() if name.endswith("deltacommit") and "_" in name]
    assert sum(name > requested for name in since) == 7
    before = table.rows()
    assert table.resizes().execute(requested) is not None
    assert table.rows() == before
    assert whole(table)["k"] == "k11"


def test_what_a_resize_copied_is_not_taken_for_lost_once_the_resize_is_archived(
    table: ResizeTable,
) -> None:
    """The resize was requested first, so it leaves first. Its inputs may be gone by then."""
    first = table.plan(3)
    written(table, (2,))
    assert table.resizes().execute(first) is not None
    later = [resized(table, 2), resized(table, 2)]
    table.table("cleaner").services.clean(ONE).or_raise()
    table.clock.ms += DAY_MS
    table.table("archiver").services.archive(replace(ARCHIVE, keep_min=3, keep_max=4))
    assert not is_active(table, first)
    [copied] = (n for n in table.names() if n.endswith("deltacommit") and "_" in n)
    assert first < copied < min(later)
    before = table.rows()  # by a process that never saw the resize
    assert whole(table)["k"] == "k2"
    assert table.rows(as_of=_newest(table)) == before
    written(table, (4,))
    assert whole(table)["k"] == "k4"


def test_times_of_archived_writes_are_read_beside_a_resize(table: ResizeTable) -> None:
    requested = resized(table)
    written(table, range(2, 5))
    newest = _newest(table)
    known = table.rows(as_of=newest)
    table.table("cleaner").services.clean(CleanPolicy.commits(2)).or_raise()
    written(table, range(5, 9))
    table.clock.ms += DAY_MS
    table.table("archiver").services.archive(ARCHIVE)
    assert not is_active(table, requested)
    assert table.rows(as_of=newest) == known


# -- compaction


def test_compaction_leaves_inputs_alone_and_merges_children(table: ResizeTable) -> None:
    table.put("kl", 2)
    requested = table.plan(3)
    table.put("lm", 3)
    done = table.table("compactor").services.compact()
    assert not done.results
    assert any(requested in str(left.why) for left in done.preview.left_out)
    table.resizes().execute(requested)
    table.put(KEYS, 4)
    before = table.rows()
    assert table.table("compactor").services.compact().results
    assert table.rows() == before
    logs = table.table("looker").inspect.file_slices().to_pylist()
    assert not any(row["log_files"] for row in logs if row["latest"])
    assert len(whole(table)) == len(KEYS)


def test_a_resize_leaves_groups_of_a_pending_compaction_alone(table: ResizeTable) -> None:
    table.put([f"k{number}" for number in range(200)], 2)
    table.put("k", 2)
    compaction = table.table("compactor").services.compact(plan_only=True).pending
    assert len(compaction) == 1
    done = table.table("r").services.resize(SMALL)
    assert done.planned is None
    assert compaction[0] in str(done.preview)
    assert table.table("compactor").services.compact().results
    assert table.table("r").services.resize(SMALL).results
    assert whole(table)["k"] == "k2"


def test_a_resize_that_begins_while_a_compaction_is_planned_keeps_its_inputs(
    table: ResizeTable,
) -> None:
    table.put(KEYS, 1, "e")
    table.put("kl", 2)
    begun: list[str] = []
    storage = Beside(table, {"/.pyhudi/log/": lambda: begun.append(table.plan(2))})
    planned = table.table("compactor", storage).services.compact(plan_only=True).pending
    assert len(begun) == len(planned) == 1
    plan = _shown_buckets(table)
    assert plan["d"] == {f"in resize {begun[0]}"}
    assert plan["e"] == {f"in compaction {planned[0]}"}
    before = table.rows()
    assert table.resizes().execute(begun[0]) is not None
    assert table.table("compactor").services.compact().results
    assert table.rows() == before
    assert table.table("v").services.verify()


def _shown_buckets(table: ResizeTable) -> dict[str, set[str]]:
    """What is pending in the buckets of each partition."""
    found: dict[str, set[str]] = {}
    for row in table.table("looker").inspect.buckets().to_pylist():
        found.setdefault(row["partition"], set()).add(str(row["state"]))
    return found


@pytest.mark.parametrize("action", [Action.LOGCOMPACTION, Action.CLUSTERING])
def test_a_resize_leaves_alone_what_another_engine_rewrites(
    table: ResizeTable, action: Action
) -> None:
    for day in ("d", "e"):
        table.put([f"k{number}" for number in range(200)], 2, day)
    [group] = [g for g in latest_slices(table.session("looker")) if g.partition == "d"]
    if action is Action.CLUSTERING:
        plan_clustering(table.session("hudi"), [group])
    else:
        logs = (log.name.file_name for log in latest_slices(table.session("l"))[group].logs)
        operation = CompactionOperation(None, tuple(logs), None, group.file_id, "d")
        begin_service(
            table.session("hudi"),
            action,
            encode_compaction_plan(CompactionPlan((operation,)), bytes(16)),
        )
    before = table.rows()
    [done] = table.table("r").services.resize(SMALL).results
    assert done.inputs == 1
    assert _partitions_of(table, done.instant) == {"e"}
    assert table.rows() == before


def _partitions_of(table: ResizeTable, requested: str) -> set[str]:
    return {s.path.partition("/")[0] for s in table.storage.list("") if f"_{requested}.p" in s.path}


# -- rollback


class DeadError(Exception):
    """A process has died."""


class Dying:
    """The storage of a process that dies when it is about to complete something."""

    def __init__(self, table: ResizeTable) -> None:
        self._storage = table.storage
        self._is_dead = False

    def __getattr__(self, name: str) -> Any:
        if self._is_dead:
            raise DeadError
        return getattr(self._storage, name)

    def create(self, path: str, data: bytes) -> bool:
        self._is_dead |= "/.pyhudi/log/" in path and b'"kind":"complete"' in data
        return bool(self.__getattr__("create")(path, data))


@pytest.mark.parametrize("has_moved", [False, True])
def test_a_write_that_dies_before_or_after_its_move_is_rolled_back(
    table: ResizeTable, has_moved: bool
) -> None:
    before = whole(table)
    requested = table.plan(2)
    own = table.table("own", Dying(table))
    rows = table.made("klu", 50)
    held = HeldWrite(lambda: own.upsert(rows)).run_to(Stop.WRITTEN)
    assert table.resizes().execute(requested) is not None
    if has_moved:
        with pytest.raises(DeadError):
            held.finish()
    assert any("child" in path for path in files_of(table, held.requested)) is has_moved
    assert whole(table) == before
    table.clock.ms += DAY_MS
    table.session("other").recover()
    assert not files_of(table, held.requested)
    assert whole(table) == before


def test_a_cancelled_resize_leaves_no_file_if_a_process_is_late(table: ResizeTable) -> None:
    requested = table.plan(3)
    table.put("lm", 2)
    before = table.values()
    with pytest.raises(DeadError):
        table.resizes("dying", Dying(table)).execute(requested)
    made = [path for path in files_of(table, requested) if "child" in path]
    assert len(made) > 3
    late = {path: bytes(table.storage.read(path)) for path in made}
    table.session("closing").log.append(Close(requested, lambda live: None))
    assert closed_path(requested) in _objects(table)
    table.clock.ms += DAY_MS
    table.table("c").services.cancel_resize(requested)
    assert not [path for path in files_of(table, requested) if "child" in path]
    assert closed_path(requested) not in _objects(table)
    for path, data in late.items():  # the executor wakes up
        table.storage.create(path, data)
    assert whole(table) == before
    written(table, range(3, 12))
    for _ in range(3):
        table.clock.ms += 2 * DAY_MS
        repair_table(table.session("repairer"))
        cleaned_and_archived(table)
    assert not any(name.startswith(requested) for name in table.names())
    assert min(name for name in table.names() if "_" in name and ".par" not in name) > requested
    assert not [path for path in files_of(table, requested) if "child" in path]
    assert not load_markers(table.storage, InstantTime(requested))
    assert whole(table)["k"] == "k11"


# -- repair


def test_repair_removes_closes_of_ended_resizes_and_no_fence_of_a_live_write(
    table: ResizeTable,
) -> None:
    closed = table.plan(2)
    rows = table.made("kl", 2)
    own = table.table("own")
    held = HeldWrite(lambda: own.upsert(rows)).run_to(Stop.WRITTEN)
    raise_fence(table.storage, held.requested)
    table.resizes("dead")._make_inflight(closed)
    table.storage.create(closed_path(closed), b"")  # as if closed, with a dead executor
    table.storage.create(closed_path("20250101000000000"), b"")
    table.clock.ms += 1
    repair_table(table.session("repairer"))
    assert fence_path(held.requested) in _objects(table)
    assert heartbeat_path(held.requested) in _objects(table)
    assert closed_path("20250101000000000") not in _objects(table)


def test_repair_removes_rings_of_resizes_that_were_rolled_back(table: ResizeTable) -> None:
    requested = table.plan(3)
    ring = table.resizes()._load_plan(requested).work.ring_files
    table.table("c").services.cancel_resize(requested)
    [(path, data)] = ring
    table.storage.create(path, data)  # as Hudi leaves it
    before = whole(table)
    done = repair_table(table.session("repairer"))
    assert path in done.removed
    assert rings(table)[0] == {FIRST_INSTANT}
    assert whole(table) == before


def test_repair_leaves_rings_of_resizes_that_completed_or_are_pending(table: ResizeTable) -> None:
    first = resized(table)
    table.storage.delete(f"{_folder()}/{first}.commit")
    second = table.plan(2)
    [(path, data)] = table.resizes()._load_plan(second).work.ring_files
    table.storage.create(path, data)
    repair_table(table.session("repairer"))
    assert rings(table)[0] == {FIRST_INSTANT, first, second}
    assert whole(table)


# -- verification


def test_verify_finds_rows_and_groups_that_the_ring_does_not_own(table: ResizeTable) -> None:
    resized(table)
    names = [path for path in files_of(table, "child") if path.endswith(".parquet")]
    full = [path for path in names if len(table.storage.read(path)) > 0]
    one, other = sorted(full, key=lambda path: -len(table.storage.read(path)))[:2]
    data = table.storage.read(one), table.storage.read(other)
    table.storage.write(one, data[1])
    table.storage.write(other, data[0])
    found = table.table("v").services.verify()
    told = [str(finding) for finding in found.findings]
    assert any("keys of other buckets" in text for text in told), told
    assert any("'d/" in text for text in told)


def test_a_resize_that_completes_while_a_table_is_verified_is_no_damage(
    table: ResizeTable,
) -> None:
    table.put("x", 1, "a")
    requested = table.plan(3)
    executed: list[str] = []

    class Meanwhile:
        def __getattr__(self, name: str) -> Any:
            return getattr(table.storage, name)

        def list_folder(self, path: str) -> Any:
            if path.startswith(_folder("a")) and not executed:
                executed.append(path)
                table.resizes().execute(requested)
            return table.storage.list_folder(path)

    verified = table.table("v", Meanwhile()).services.verify()
    assert executed
    assert verified, str(verified)


# -- several


def test_resizes_of_different_partitions_go_on_at_once(table: ResizeTable) -> None:
    table.put(KEYS, 1, "e")
    days = {"d": table.plan(2, ("d",)), "e": table.plan(3, ("e",))}
    table.put("k", 2, "d")
    table.put("k", 3, "e")
    before = table.rows()
    service = table.resizes()
    assert [plan.requested for plan in service.pending()] == list(days.values())
    for requested in reversed(days.values()):
        assert service.execute(requested) is not None
        assert table.rows() == before
    assert table.table("v").services.verify()


def test_of_two_plans_for_one_partition_the_second_is_refused(table: ResizeTable) -> None:
    table.put([f"k{number}" for number in range(200)], 2)
    first = table.plan(2)
    done = table.table("r").services.resize(SMALL, plan_only=True)
    assert done.planned is None
    assert first in str(done.preview)


# -- what is shown


def test_inspection_shows_a_resize_while_it_is_pending_closed_and_completed(
    table: ResizeTable,
) -> None:
    looker = table.table("looker").inspect
    requested = table.plan(3)
    assert ("clustering", "requested") in _shown(looker.timeline(), requested)
    assert _shown_buckets(table)["d"] == {f"in resize {requested}"}
    table.resizes("x")._make_inflight(requested)
    table.session("closing").log.append(Close(requested, lambda live: None))
    assert _shown_buckets(table)["d"] == {f"in resize {requested}, closed"}
    table.put("kl", 2)  # there are no base files to finish it with, so it is cancelled
    assert _shown(looker.timeline(), requested) == set()
    done = resized(table)
    assert _shown(looker.timeline(), done) == {("replacecommit", "completed")}
    assert looker.buckets().num_rows == 3
    slices = looker.file_slices().to_pylist()
    assert sum(row["latest"] for row in slices) == 3
    assert looker.conflicts().num_rows == 0
    assert whole(table)["k"] == "k2"


def _shown(timeline: pa.Table, requested: str) -> set[tuple[str, str]]:
    rows = [row for row in timeline.to_pylist() if row["requested"] == requested]
    return {(str(row["action"]), str(row["state"]).lower()) for row in rows}


def _folder(day: str = "d") -> str:
    return f".hoodie/.bucket_index/consistent_hashing_metadata/{day}"


def _objects(table: ResizeTable) -> set[str]:
    return {stat.path for stat in table.storage.list("")}
