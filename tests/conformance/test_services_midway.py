"""Services that stopped midway, and plans that Hudi left: what the judges read, and how Hudi goes
on from there."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

import pyhudi
from conformance.client import JudgeClient
from conformance.combinations import Combination
from conformance.rivals import EAGER_LOCK
from conformance.rows import Row, assert_same_rows
from conformance.scenes import COPY_ON_WRITE, NON_BLOCKING, Scene, until
from conformance.test_archiving import (
    HUDI_ARCHIVES,
    POLICY,
    agree_on_the_past,
    archived_by_pyhudi,
    hudis_view,
    pyhudis_view,
)
from conformance.test_cleaning import (
    KINDS_TOO,
    clean,
    cleanings,
    cleans,
    data_files,
    hudi_clean,
    written,
)
from conformance.writing import QUIET
from faulty_storage import Effect, Fault, FaultyStorage
from golden_tables import load_description, unpack
from opened_tables import session_on
from pyhudi.format.timeline.instant import Action, State
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.services.archiving.run import archive
from pyhudi.services.cleaning.execute import table_cleanings
from pyhudi.session.session import TableSession
from pyhudi.storage.open import open_storage
from pyhudi.table.schema import FILE_NAME
from pyhudi.world import real_world

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

#: A Hudi job beside pyhudi, on a table whose own job knew nobody else.
BESIDE_PYHUDI = {
    **QUIET,
    **EAGER_LOCK,
    "hoodie.metadata.enable": "false",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": (
        "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    ),
    "hoodie.clean.failed.writes.policy": "LAZY",
}


def dying(scene: Scene, *, on: str, after: int) -> TableSession:
    """A process that deletes so many of the objects, and is dead from then on."""
    stops = Fault(Effect.FAIL, operation="delete", path=on, nth=after + 1, times=None)
    storage = FaultyStorage(open_storage(str(scene.path), None), [stops])
    return session_on(storage, real_world())


# ---- plans of Hudi's in golden tables


@pytest.mark.parametrize("is_begun", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_compaction_that_hudi_planned_long_ago_is_carried_out_and_hudi_goes_on(
    judge: JudgeClient, tmp_path: Path, is_begun: bool
) -> None:
    """Of a golden table; Hudi has at most made it inflight, and is gone."""
    path = unpack("mor_compacted", tmp_path)
    timeline = path / ".hoodie" / "timeline"
    [plan] = pending(timeline, Action.COMPACTION)
    if is_begun:
        (timeline / f"{plan}.compaction.inflight").touch()
        long_ago = (timeline / f"{plan}.compaction.requested").stat().st_mtime - 86_400
        os.utime(timeline / f"{plan}.compaction.inflight", (long_ago, long_ago))
    before = unnamed(pyhudi.open_table(path).read(meta=True).to_arrow().to_pylist())
    table = pyhudi.open_table(path, lock="file")
    done = table.services.compact()
    assert [result.instant for result in done.results] == [plan]
    assert pending(timeline, Action.COMPACTION) == []
    three_agree(judge, path)
    assert unnamed(table.read(meta=True).to_arrow().to_pylist()) == before

    description = load_description("mor_compacted")
    row = {"id": "row0047", "ver": 99, "name": "later", "amount": 1.5, "part": "y77"}
    options = {**description["options"], **BESIDE_PYHUDI}
    judge.hudi_write(path, [row], description["schema"], options)
    at_once = {**BESIDE_PYHUDI, "hoodie.compact.inline.max.delta.commits": "1"}
    text = ",".join(f"{key}={value}" for key, value in at_once.items())
    judge.hudi_call("compaction", path, op="scheduleAndExecute", options=text)
    three_agree(judge, path)
    assert table.read(where="id = 'row0047'").to_arrow()["name"].to_pylist() == ["later"]


def pending(timeline: Path, action: Action) -> list[str]:
    names = [name for name in os.listdir(timeline) if not name.startswith(".")]
    done = {name.partition("_")[0] for name in names if "_" in name}
    plans = {name[:17] for name in names if f".{action.value}." in name}
    return sorted(plans - done)


def unnamed(rows: list[Row]) -> list[str]:
    """Without the names of files, which a compaction changes."""
    kept = ({name: value for name, value in row.items() if name != FILE_NAME} for row in rows)
    return sorted(map(repr, kept))


def three_agree(judge: JudgeClient, path: Path) -> None:
    ours = pyhudi.open_table(path).read(meta=True).to_arrow()
    assert_same_rows(ours, judge.hudi_rows(path))
    assert_same_rows(ours, judge.rs_rows(path))


# ---- cleaning


def half_cleaned(judge: JudgeClient, path: Path, combination: Combination) -> tuple[Scene, str]:
    """Plan and inflight file are there, and one file is gone; the clean's instant."""
    scene = written(judge, path, combination)
    requested = cleanings(scene).schedule(CleanPolicy.commits(1))
    assert requested is not None
    there = data_files(scene.path)
    session = dying(scene, on="*.parquet", after=1)
    with pytest.raises(pyhudi.UnavailableError):
        table_cleanings(session).execute(requested)
    assert len(data_files(scene.path)) == len(there) - 1
    assert scene.is_inflight(requested)
    return scene, requested


@pytest.mark.parametrize("combination", KINDS_TOO)
def test_all_read_a_table_that_is_half_cleaned_and_hudi_finishes_it(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene, requested = half_cleaned(judge, tmp_path / "table", combination)
    scene.agree(judge)
    scene.upsert(scene.rows(range(6), written=4))
    hudi_clean(judge, scene)
    assert requested in cleans(scene, State.COMPLETED)
    assert cleans(scene, State.REQUESTED) == []
    scene.agree(judge)


@pytest.mark.parametrize("is_begun", [False, True])
def test_hudi_reads_and_cleans_behind_a_clean_that_was_cancelled(
    judge: JudgeClient, tmp_path: Path, is_begun: bool
) -> None:
    """Its completed file tells of no file, or of files that were not removed. Hudi reads the last
    one whenever it plans the next."""
    if is_begun:
        scene, requested = half_cleaned(judge, tmp_path / "table", COPY_ON_WRITE)
    else:
        scene = written(judge, tmp_path / "table", COPY_ON_WRITE)
        requested = str(cleanings(scene).schedule(CleanPolicy.commits(1)))
    there = data_files(scene.path)
    cancelled = scene.shared.open().services.cancel_clean(requested)
    assert cancelled.files == 0
    assert data_files(scene.path) == there
    assert {"clean", "COMPLETED"} <= set(hudis_instant(judge, scene, requested).values())
    scene.agree(judge)
    scene.hudi_write(judge, scene.rows(range(12), written=4))
    hudi_clean(judge, scene)
    assert len(cleans(scene, State.COMPLETED)) == 2
    assert len(data_files(scene.path)) < len(there)
    scene.agree(judge)
    assert clean(scene).cleans == ()


def hudis_instant(judge: JudgeClient, scene: Scene, requested: str) -> Row:
    [found] = [row for row in judge.hudi_timeline(scene.path) if row["requested"] == requested]
    return found


# ---- archiving


def active_and_archived(scene: Scene) -> set[str]:
    archived = {requested for requested, _, _ in pyhudis_view(scene)}
    return archived & {instant.requested for instant in scene.instants()}


def dies_archiving(scene: Scene, removed: int) -> None:
    """Once there is something to archive: local times are as coarse as a second."""

    def has_died() -> bool:
        try:
            archive(dying(scene, on=".hoodie/timeline/2*", after=removed), POLICY)
        except pyhudi.UnavailableError:
            return True
        return False

    until(has_died, "there is something to remove")


def test_all_read_a_table_that_is_half_archived_and_hudi_archives_on(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """First the manifest has instants that are still active, then of some the pending files are
    gone, and one is gone wholly."""
    scene = Scene(tmp_path / "table", NON_BLOCKING)
    done = [scene.upsert(scene.rows(range(6 * n, 6 * n + 12), written=n)) for n in range(1, 7)]
    for removed in (0, 5):
        dies_archiving(scene, removed)
        assert active_and_archived(scene)
        scene.agree(judge)
    agree_on_the_past(judge, scene, done[2].instant, done[1].completed)
    scene.hudi_write(judge, scene.rows(range(40, 52), written=7), **HUDI_ARCHIVES)
    assert not active_and_archived(scene)
    theirs = judge.hudi_timeline(scene.path, archived=True)
    assert set(Counter(row["requested"] for row in theirs).values()) == {1}
    assert {result.instant for result in done[:4]} < {row["requested"] for row in theirs}
    for n in (8, 9):
        scene.upsert(scene.rows(range(6), written=n))
    assert archived_by_pyhudi(scene)
    assert hudis_view(judge, scene) == pyhudis_view(scene)
    scene.agree(judge)
