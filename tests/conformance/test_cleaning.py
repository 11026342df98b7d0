"""Cleaning by two engines: all read what either left, and each finishes what the other planned."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from conformance.client import JudgeClient, JudgeError
from conformance.combinations import Combination
from conformance.rivals import EAGER_LOCK
from conformance.rows import assert_same_rows
from conformance.scenes import COPY_ON_WRITE, OPTIMISTIC, Scene
from conformance.writing import QUIET, hudi_writer_options
from pyhudi.format.files.file_names import parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.instant import Action, State
from pyhudi.format.timeline.plan_files import decode_cleaner_plan
from pyhudi.format.timeline.service_metadata import decode_clean_metadata
from pyhudi.plan.clean_records import planned_paths
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.services.cleaning.execute import Cleanings, table_cleanings
from pyhudi.services.cleaning.result import CleanResult
from pyhudi.timeline.instant_time import RequestedTime

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

#: Of a quick run, one kind in each test.
KINDS = [OPTIMISTIC, pytest.param(COPY_ON_WRITE, marks=pytest.mark.long)]
KINDS_TOO = [COPY_ON_WRITE, pytest.param(OPTIMISTIC, marks=pytest.mark.long)]


def written(judge: JudgeClient, path: Path, combination: Combination) -> Scene:
    """Several versions of one file group; on merge on read, by compactions of both engines."""
    scene = Scene(path, combination)
    for written_ in (1, 2, 3):
        scene.upsert(scene.rows(range(6 * written_), written=written_))
        if combination is OPTIMISTIC:
            if written_ == 2:
                hudi_compaction(judge, scene)
            else:
                scene.shared.open().services.compact()
    return scene


def job_options(scene: Scene, **more: str) -> str:
    """Of a job that runs beside other writers."""
    job = hudi_writer_options("table", scene.shared.combination, buckets=scene.shared.buckets)
    shared = {key: job[key] for key in job if key.startswith(("hoodie.write.", "hoodie.clean."))}
    given = {**QUIET, **shared, **EAGER_LOCK, "hoodie.metadata.enable": "false", **more}
    return ",".join(f"{key}={value}" for key, value in given.items())


def hudi_compaction(judge: JudgeClient, scene: Scene) -> None:
    options = job_options(scene, **{"hoodie.compact.inline.max.delta.commits": "1"})
    judge.hudi_call("compaction", scene.path, op="scheduleAndExecute", options=options)


def hudi_clean(judge: JudgeClient, scene: Scene, path: Path | None = None, keep: int = 1) -> None:
    judge.hudi_call(
        "clean",
        path or scene.path,
        clean_policy="KEEP_LATEST_COMMITS",
        retain_commits=keep,
        options=job_options(scene),
    )


def clean(scene: Scene, keep: int = 1) -> CleanResult:
    found = scene.shared.open().services.clean(CleanPolicy.commits(keep))
    assert isinstance(found, CleanResult)
    return found


def cleanings(scene: Scene) -> Cleanings:
    return table_cleanings(scene.shared.open()._opening.session())


def data_files(path: Path) -> set[str]:
    names = {name for _, _, names in os.walk(path) for name in names}
    return {name for name in names if parse_data_file(name) is not None}


def cleans(scene: Scene, state: State) -> list[str]:
    found = [i for i in scene.instants() if i.action is Action.CLEAN]
    done = {i.requested for i in found if i.state is State.COMPLETED}
    if state is State.COMPLETED:
        return sorted(done)
    return sorted({i.requested for i in found} - done)


@pytest.mark.parametrize("combination", KINDS)
def test_every_engine_reads_and_writes_a_table_that_pyhudi_cleaned(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene = written(judge, tmp_path / "table", combination)
    twin = tmp_path / "twin"
    shutil.copytree(scene.path, twin)
    hudi_clean(judge, scene, twin)
    [done] = clean(scene).cleans
    assert done.files > 0
    assert data_files(scene.path) == data_files(twin), "Hudi would have kept others"
    scene.agree(judge)
    time_travel(judge, scene, done.instant)
    scene.hudi_write(judge, scene.rows(range(12), written=4))
    if combination is OPTIMISTIC:
        hudi_compaction(judge, scene)
    scene.upsert(scene.rows(range(6, 18), written=5))
    hudi_clean(judge, scene)
    assert len(cleans(scene, State.COMPLETED)) == 2
    scene.agree(judge)
    scene.upsert(scene.rows(range(3), written=6))
    clean(scene)
    scene.agree(judge)


@pytest.mark.parametrize("combination", KINDS_TOO)
def test_by_versions_pyhudi_keeps_the_files_that_hudi_keeps(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene = written(judge, tmp_path / "table", combination)
    before = data_files(scene.path)
    for keep in (2, 1):
        twin = tmp_path / f"twin-{keep}"
        shutil.copytree(scene.path, twin)
        judge.hudi_call(
            "clean",
            twin,
            clean_policy="KEEP_LATEST_FILE_VERSIONS",
            file_versions_retained=keep,
            options=job_options(scene),
        )
        plan = scene.shared.open().services.clean(CleanPolicy.versions(keep), dry_run=True)
        gone = plan.going["path"].to_pylist()
        assert {path.rpartition("/")[2] for path in gone} == before - data_files(twin) != set()
    scene.shared.open().services.clean(CleanPolicy.versions(1))
    assert data_files(scene.path) == data_files(twin)
    scene.agree(judge)


def time_travel(judge: JudgeClient, scene: Scene, cleaned: str) -> None:
    """To the earliest instant that was kept, and not to what lies before it."""
    folder = scene.path / ".hoodie" / "timeline"
    [name] = [n for n in os.listdir(folder) if n.startswith(f"{cleaned}_")]
    metadata = decode_clean_metadata((folder / name).read_bytes(), name)
    kept = metadata.earliest_commit_to_retain
    ours = scene.shared.open().read(as_of=RequestedTime(kept), meta=True).to_arrow()
    assert_same_rows(ours, judge.hudi_rows(scene.path, as_of=kept))
    first = min(i.requested for i in scene.instants())
    with pytest.raises(JudgeError, match="Cleaner cleaned up the timestamp"):
        judge.hudi_rows(scene.path, as_of=first)


@pytest.mark.parametrize("combination", KINDS_TOO)
def test_hudi_finishes_a_clean_that_pyhudi_planned(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene = written(judge, tmp_path / "table", combination)
    requested = cleanings(scene).schedule(CleanPolicy.commits(1))
    assert requested is not None
    path = f"{requested}.clean.requested"
    data = (scene.path / ".hoodie" / "timeline" / path).read_bytes()
    planned = planned_paths(decode_cleaner_plan(data, path), f"file://{scene.path}", path)
    names = {file_name(name) for names in planned.values() for name in names}
    assert names <= data_files(scene.path)
    scene.agree(judge)
    hudi_clean(judge, scene)
    assert cleans(scene, State.COMPLETED) == [requested]
    assert cleans(scene, State.REQUESTED) == []
    assert not names & data_files(scene.path)
    scene.agree(judge)
    assert clean(scene).cleans == ()


@pytest.mark.parametrize("combination", KINDS)
def test_pyhudi_finishes_a_clean_that_hudi_planned(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    """As if Hudi had died behind its plan: the files are put back, and what came after is gone."""
    scene = written(judge, tmp_path / "table", combination)
    before = tmp_path / "before"
    shutil.copytree(scene.path, before)
    hudi_clean(judge, scene)
    expected = data_files(scene.path)
    [requested] = cleans(scene, State.COMPLETED)
    timeline = scene.path / ".hoodie" / "timeline"
    for name in data_files(before) - expected:
        [found] = before.rglob(name)
        shutil.copy(found, scene.path / found.relative_to(before))
    for name in os.listdir(timeline):
        if name.startswith((f"{requested}_", f"{requested}.clean.inflight")):
            (timeline / name).unlink()
    assert cleans(scene, State.REQUESTED) == [requested]
    assert clean(scene).attended == requested  # Hudi may still be at it
    done = cleanings(scene).run(CleanPolicy.commits(1), take_over=True)
    assert [clean.instant for clean in done.cleans] == [requested]
    assert data_files(scene.path) == expected
    scene.agree(judge)
    scene.hudi_write(judge, scene.rows(range(12), written=4))
    hudi_clean(judge, scene)
    scene.agree(judge)
