"""One engine in the midst of a write or with a plan made, and what the other one does."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from pathlib import Path
from unittest.mock import patch

import pytest

import pyhudi
import pyhudi.world
from conformance.client import JudgeClient, JudgeError
from conformance.combinations import Combination
from conformance.rivals import EAGER_LOCK, HUDI_CONFLICT, Shared, hudi_write
from conformance.sample_rows import Sample
from conformance.scenes import (
    COPY_ON_WRITE,
    IMPATIENT,
    IMPATIENT_CLEANER,
    NON_BLOCKING,
    OPTIMISTIC,
    Scene,
    dead_write,
    frozen_hudi_write,
    grown_silent,
    held_write,
    hudi_write_frozen_at_its_start,
    until,
)
from conformance.writing import QUIET, create_table, hudi_writer_options
from pyhudi.commit import foreign_writers as foreigners
from pyhudi.commit import validation
from pyhudi.format.table.table_config import CLOCK_SKEW_DEFAULT_MS
from pyhudi.format.timeline.instant import Action
from pyhudi.storage.locks.file_lock import LOCK_PATH
from pyhudi.storage.stores.local_disk import LocalStorage
from pyhudi.timeline.instant_time import clock_time

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

#: Hudi keeps its markers in lists.
MARKER_LISTS = {
    "hoodie.embed.timeline.server": "true",
    "hoodie.write.markers.type": "TIMELINE_SERVER_BASED",
}
#: Hudi compares completion times.
PREFER_WRITER = {
    "hoodie.write.lock.conflict.resolution.strategy": (
        "org.apache.hudi.client.transaction.PreferWriterConflictResolutionStrategy"
    ),
}


def test_pyhudi_spares_a_hudi_writer_whose_heartbeat_is_fresh(
    judge: JudgeClient, tmp_path: Path
) -> None:
    scene = Scene(tmp_path / "table", NON_BLOCKING)
    rows = scene.rows(range(24), written=1)
    with frozen_hudi_write(judge, scene, rows) as (requested, written):
        scene.upsert(scene.rows(range(12, 36), written=2))
        assert scene.is_inflight(requested)
        assert not [i for i in scene.instants() if i.action is Action.ROLLBACK]
    written.result()
    scene.expected.upsert(rows)
    scene.agree(judge)


@pytest.mark.parametrize("markers", [MARKER_LISTS, pytest.param({}, marks=pytest.mark.long)])
def test_pyhudi_rolls_back_a_hudi_writer_that_is_silent_and_hudi_goes_on(
    judge: JudgeClient, tmp_path: Path, markers: dict[str, str]
) -> None:
    scene = Scene(tmp_path / "table", NON_BLOCKING)
    rows = scene.rows(range(24), written=1)
    with frozen_hudi_write(judge, scene, rows, **markers) as (requested, written):
        assert scene.files_of(requested)
        grown_silent(scene, requested)
        scene.upsert(scene.rows(range(12, 36), written=2), **IMPATIENT)
        assert scene.rollbacks_of(requested) == 1
        assert not scene.files_of(requested)
    with pytest.raises(JudgeError):
        written.result()
    assert requested not in {instant.requested for instant in scene.instants()}
    assert not scene.files_of(requested)
    scene.hudi_write(judge, scene.rows(range(6, 30), written=3))
    scene.upsert(scene.rows(range(12), written=4))
    scene.agree(judge)


@pytest.mark.parametrize(
    "combination", [OPTIMISTIC, pytest.param(COPY_ON_WRITE, marks=pytest.mark.long)]
)
def test_hudi_is_told_that_it_lost_to_pyhudi(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene = Scene(tmp_path / "table", combination)
    rows = scene.rows(range(24), written=1)
    with frozen_hudi_write(judge, scene, rows) as (_, written):
        scene.upsert(scene.rows(range(12, 36), written=2))
    with pytest.raises(JudgeError, match=HUDI_CONFLICT):
        written.result()
    scene.hudi_write(judge, rows)
    scene.agree(judge)


@pytest.mark.long
@pytest.mark.parametrize("combination", [COPY_ON_WRITE, OPTIMISTIC])
def test_hudi_finds_what_completed_before_it_looked_if_told_to_prefer_writers(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    """With its default strategy it does not, and its base file hides behind pyhudi's newer one.

    That is for a Hudi writer that stands still for longer than pyhudi waits.
    """
    scene = Scene(tmp_path / "table", combination)
    rows = scene.rows(range(24), written=1)
    with hudi_write_frozen_at_its_start(judge, scene, rows, **PREFER_WRITER) as (_, written):
        scene.upsert(scene.rows(range(12, 36), written=2))
    with pytest.raises(JudgeError, match=HUDI_CONFLICT):
        written.result()
    scene.agree(judge)


@pytest.mark.parametrize(
    "combination", [COPY_ON_WRITE, pytest.param(OPTIMISTIC, marks=pytest.mark.long)]
)
def test_pyhudi_completes_nothing_that_hudi_would_not_find(
    judge: JudgeClient,
    tmp_path: Path,
    combination: Combination,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Hudi writer that has begun and not looked around yet is given a moment to do so."""
    scene = Scene(tmp_path / "table", combination)
    rows, ours = scene.rows(range(24), written=1), scene.rows(range(12, 36), written=2)
    with ThreadPoolExecutor(1) as pool:
        with hudi_write_frozen_at_its_start(judge, scene, rows) as (requested, written):
            monkeypatch.setattr(validation, "LOOK_AROUND_MS", 120_000)  # the machine may be busy
            upsert = pool.submit(scene.shared.open().upsert, scene.sample.table(ours))
            own = until(lambda: scene.pending_writes() - {requested}, "pyhudi has begun").pop()
            until(lambda: scene.files_of(own), "pyhudi has written")
            with pytest.raises(TimeoutError):
                upsert.result(timeout=1)
        upsert.result()
    try:
        written.result()
        scene.expected.upsert(rows)  # it was first, and pyhudi wrote once more
    except JudgeError as error:
        assert HUDI_CONFLICT in str(error)  # noqa: PT017
    scene.expected.upsert(ours)
    scene.agree(judge)


@pytest.mark.parametrize(
    "combination", [OPTIMISTIC, pytest.param(COPY_ON_WRITE, marks=pytest.mark.long)]
)
def test_pyhudi_is_told_that_it_lost_to_hudi(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene = Scene(tmp_path / "table", combination)
    rows = scene.rows(range(12, 36), written=2)
    with held_write(scene, rows, conflict_retries=0) as (requested, finish):
        scene.hudi_write(judge, scene.rows(range(24), written=1))
        winner = max(i.requested for i in scene.instants() if i.completed)
        with pytest.raises(pyhudi.ConflictError, match=winner):
            finish()
    assert not scene.files_of(requested)
    scene.upsert(rows)
    scene.agree(judge)


def test_a_write_that_lost_to_hudi_is_repeated(judge: JudgeClient, tmp_path: Path) -> None:
    scene = Scene(tmp_path / "table", OPTIMISTIC)
    rows = scene.rows(range(12, 36), written=2)
    with held_write(scene, rows) as (requested, finish):
        scene.hudi_write(judge, scene.rows(range(24), written=1))
        result = finish()
    assert result.retries == 1
    assert result.instant > requested
    scene.expected.upsert(rows)
    scene.agree(judge)


# ---- remains of pyhudi writers, and Hudi's cleaner


@pytest.mark.parametrize("markers", ["direct", "server"])
def test_the_cleaner_of_hudi_rolls_back_a_dead_pyhudi_writer_and_spares_a_live_one(
    judge: JudgeClient, tmp_path: Path, markers: str
) -> None:
    scene = Scene(tmp_path / "table", NON_BLOCKING)
    dead = dead_write(scene, scene.rows(range(24), written=1), markers=markers)
    assert scene.files_of(dead)
    lists = {each.name for each in (scene.path / ".hoodie" / ".temp" / dead).glob("MARKERS*")}
    assert lists == ({"MARKERS.type", "MARKERS0"} if markers == "server" else set())
    rows = scene.rows(range(6, 30), written=2)
    with held_write(scene, rows, **IMPATIENT) as (live, finish):
        grown_silent(scene, dead)
        for written in (3, 4):
            numbers = range(6 * written, 6 * written + 12)
            scene.hudi_write(judge, scene.rows(numbers, written=written), **IMPATIENT_CLEANER)
        assert scene.rollbacks_of(dead) == 1
        assert not scene.files_of(dead)
        assert scene.is_inflight(live)
        finish()
    scene.expected.upsert(rows)
    scene.upsert(scene.rows(range(12), written=5), **IMPATIENT)
    scene.agree(judge)
    assert scene.rollbacks_of(dead) == 1
    assert scene.rollbacks_of(live) == 0


def test_what_pyhudi_has_rolled_back_is_nothing_to_the_cleaner_of_hudi(
    judge: JudgeClient, tmp_path: Path
) -> None:
    scene = Scene(tmp_path / "table", NON_BLOCKING)
    dead = dead_write(scene, scene.rows(range(24), written=1))
    grown_silent(scene, dead)
    scene.upsert(scene.rows(range(12, 36), written=2), **IMPATIENT)
    assert scene.rollbacks_of(dead) == 1
    scene.hudi_write(judge, scene.rows(range(6, 30), written=3), **IMPATIENT_CLEANER)
    scene.agree(judge)
    assert scene.rollbacks_of(dead) == 1
    assert not scene.files_of(dead)


def test_a_rollback_that_pyhudi_left_half_done_is_finished_by_either_engine(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """Its plan is there, and the target is inflight: of what is not, Hudi deletes no files."""
    scene = Scene(tmp_path / "table", NON_BLOCKING)
    dead = dead_write(scene, scene.rows(range(24), written=1))
    grown_silent(scene, dead)
    dead_write(scene, scene.rows(range(12, 36), written=2), where="undo")
    assert scene.is_inflight(dead)
    scene.hudi_write(judge, scene.rows(range(6, 30), written=3), **IMPATIENT_CLEANER)
    scene.upsert(scene.rows(range(12, 36), written=4), **IMPATIENT)
    scene.agree(judge)
    assert scene.rollbacks_of(dead) == 1
    assert not scene.files_of(dead)


# ---- plans of Hudi


def run_service(judge: JudgeClient, scene: Scene, service: str, op: str, **options: str) -> None:
    """As a job beside other writers runs it."""
    job = hudi_writer_options("table", scene.shared.combination, buckets=scene.shared.buckets)
    shared = {key: job[key] for key in job if key.startswith(("hoodie.write.", "hoodie.clean."))}
    given = {**QUIET, **shared, **EAGER_LOCK, "hoodie.metadata.enable": "false", **options}
    text = ",".join(f"{key}={value}" for key, value in given.items())
    judge.hudi_call(service, scene.path, op=op, options=text)


def compaction(judge: JudgeClient, scene: Scene, op: str) -> None:
    at_once = {"hoodie.compact.inline.max.delta.commits": "1"}
    run_service(judge, scene, "compaction", op, **at_once)


def test_a_compaction_that_hudi_planned_takes_no_row_from_writers_around_it(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """Neither from one that began before the plan and completes after it was carried out."""
    scene = Scene(tmp_path / "table", NON_BLOCKING)
    early = scene.rows(range(36), written=3)
    with held_write(scene, early) as (requested, finish):
        compaction(judge, scene, "schedule")
        [plan] = [i for i in scene.instants() if i.action is Action.COMPACTION]
        assert plan.requested > requested
        scene.upsert(scene.rows(range(24, 48), written=2))
        scene.agree(judge)
        compaction(judge, scene, "execute")
        finish()
    scene.expected.upsert(early)
    compaction(judge, scene, "scheduleAndExecute")
    scene.upsert(scene.rows(range(12), written=4))
    scene.agree(judge)


def test_a_write_over_which_hudi_plans_a_clustering_is_refused(
    judge: JudgeClient, tmp_path: Path
) -> None:
    scene = Scene(tmp_path / "table", COPY_ON_WRITE)
    with held_write(scene, scene.rows(range(24), written=1)) as (requested, finish):
        run_service(judge, scene, "clustering", "schedule")
        [plan] = [i for i in scene.instants() if i.action is Action.CLUSTERING]
        with pytest.raises(pyhudi.ConflictError, match=plan.requested):
            finish()
    assert not scene.files_of(requested)
    scene.agree(judge)


# ---- the lock and the clocks


def test_the_lock_of_a_shared_table_outlasts_the_skew_of_clocks(tmp_path: Path) -> None:
    """A Java writer that gets it next reads a later time from its clock than any that is taken."""
    scene = Scene(tmp_path / "table", NON_BLOCKING)
    freed: list[tuple[str, str]] = []
    delete = LocalStorage.delete

    def noting(self: LocalStorage, path: str) -> None:
        if path == LOCK_PATH:
            times = [i.completed or i.requested for i in scene.instants()]
            now = clock_time(pyhudi.world.real_world().now_ms() - CLOCK_SKEW_DEFAULT_MS, UTC)
            freed.append((max(times), now))
        delete(self, path)

    with patch.object(LocalStorage, "delete", noting):
        scene.upsert(scene.rows(range(24), written=1))
    assert len(freed) >= 2
    assert all(taken < now for taken, now in freed)


def test_a_table_of_pyhudi_alone_pays_no_wait(tmp_path: Path) -> None:
    table = create_table(tmp_path / "table", NON_BLOCKING, buckets=2)
    sample = Sample(NON_BLOCKING)
    rows = sample.table([sample.row(n, written=0, seen_at=1) for n in range(24)])
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            sleeps.append(seconds)
        else:  # a thread of another test's
            threading.Event().wait(seconds)

    with patch("pyhudi.world.time.sleep", sleep):
        table.upsert(rows)
        table.upsert(rows)
    assert sleeps == []


def test_pyhudi_refuses_a_table_without_a_lock_that_hudi_writes(
    judge: JudgeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Shared(str(tmp_path / "table"), NON_BLOCKING, 2)
    table = create_table(tmp_path / "table", NON_BLOCKING, buckets=2)
    rows = shared.sample.table([shared.sample.row(n, written=0, seen_at=1) for n in range(24)])
    table.upsert(rows)
    hudi_write(judge, shared, rows)
    before = judge.hudi_rows(shared.path)
    [foreign] = {row["_hoodie_commit_time"] for row in before}
    monkeypatch.setattr(foreigners, "LOOK_AGAIN_MS", 0)  # a writer at work looks now and then
    for writer in (shared.open(), table):
        with pytest.raises(pyhudi.InvalidRequestError, match=f"another engine began {foreign}"):
            writer.upsert(rows)
    assert judge.hudi_rows(shared.path) == before


def test_what_hudi_is_about_to_rename_into_the_timeline_is_passed_over(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """A file of Hudi's has its name and a UUID before it has its name, for ever if Hudi dies."""
    scene = Scene(tmp_path / "table", NON_BLOCKING)
    last = max(instant.file_name for instant in scene.instants())
    folder = tmp_path / "table" / ".hoodie" / "timeline"
    later = "29990101000000000"
    for name in (last, f"{later}.deltacommit.inflight", f"{later}.clean.requested"):
        (folder / f"{name}.{uuid.uuid4()}").write_bytes(b"half of i")
    scene.upsert(scene.rows(range(24), written=1))
    scene.hudi_write(judge, scene.rows(range(12, 36), written=2))
    scene.agree(judge)
