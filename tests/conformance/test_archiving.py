"""An archive that two engines write: each reads what the other archived, and goes on from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.client import JudgeClient
from conformance.combinations import Combination
from conformance.rows import assert_same_rows
from conformance.scenes import COPY_ON_WRITE, NON_BLOCKING, Scene, held_write, until
from golden_reads import hudi_options
from opened_tables import session_on
from pyhudi.format.timeline.archive import VERSION_FILE, decode_manifest, manifest_name
from pyhudi.format.timeline.instant import Action, State
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.plan.compaction.policy import CompactionPolicy
from pyhudi.read.archive import History
from pyhudi.services.archiving.archive_merge import load_times
from pyhudi.services.archiving.result import ArchiveResult
from pyhudi.services.archiving.run import archive
from pyhudi.storage.open import open_storage
from pyhudi.world import real_world

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

HISTORY = ".hoodie/timeline/history"
#: Several files and levels after a few writes.
POLICY = ArchivePolicy(
    keep_min=2, keep_max=3, delta_commits=0, file_instants=2, merge_files=2, grace_ms=0
)
HUDI_ARCHIVES = {
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.clean.commits.retained": "1",
    "hoodie.compact.inline.max.delta.commits": "1",
    "hoodie.timeline.compaction.batch.size": "2",
}


def archived_by_pyhudi(scene: Scene) -> tuple[str, ...]:
    """What a run archives, once what is due is a second old: local times are that coarse."""
    session = session_on(open_storage(str(scene.path), None), real_world())
    done: list[str] = []

    def run() -> bool:
        result = archive(session, POLICY)
        assert isinstance(result, ArchiveResult)
        done.extend(result.archived)
        return bool(done) and len(completed_writes(scene)) <= POLICY.keep_max

    until(run, "all is archived that is due")
    return tuple(done)


def completed_writes(scene: Scene) -> list[str]:
    writes = (Action.COMMIT, Action.DELTACOMMIT)
    return [
        i.requested for i in scene.instants() if i.state is State.COMPLETED and i.action in writes
    ]


def pyhudis_view(scene: Scene) -> set[tuple[str, str, str]]:
    """Requested and completion time, and action, of every archived instant."""
    folder = scene.path / HISTORY
    manifest = folder / manifest_name(int((folder / VERSION_FILE).read_text()))
    files = [entry.file for entry in decode_manifest(manifest.read_bytes(), "").entries]
    history = History(open_storage(str(scene.path), None), HISTORY)
    storage, times = open_storage(str(scene.path), None), set[str]()
    for file in files:
        times.update(load_times(storage, f"{HISTORY}/{file.file_name}")["instantTime"].to_pylist())
    found = history.recorded(frozenset(times))
    return {(i.requested, i.completed, i.action) for i in found.values()}


def hudis_view(judge: JudgeClient, scene: Scene) -> set[tuple[str, str, str]]:
    found = judge.hudi_timeline(scene.path, archived=True)
    assert {row["state"] for row in found} <= {"COMPLETED"}
    return {(row["requested"], row["completed"], row["action"]) for row in found}


def agree_on_the_past(judge: JudgeClient, scene: Scene, requested: str, completed: str) -> None:
    """Time travel to an archived write, and the changes since it."""
    table = scene.shared.open()
    for how in ({"as_of": requested}, {"query_type": "incremental", "begin": completed}):
        ours = table.read_with_hudi_options(hudi_options(how)).to_arrow()
        assert ours.num_rows
        assert_same_rows(ours, judge.hudi_rows(scene.path, **how))


@pytest.mark.parametrize(
    "combination", [NON_BLOCKING, pytest.param(COPY_ON_WRITE, marks=pytest.mark.long)]
)
def test_either_engine_reads_and_continues_the_others_archive(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene = Scene(tmp_path / "table", combination)
    done = []
    for written in range(1, 7):
        numbers = range(6 * written, 6 * written + 12)
        done.append(scene.upsert(scene.rows(numbers, written=written)))
    ours = archived_by_pyhudi(scene)
    assert {done[0].instant, done[2].instant} <= set(ours)
    assert hudis_view(judge, scene) == pyhudis_view(scene)
    scene.agree(judge)
    agree_on_the_past(judge, scene, done[2].instant, done[1].completed)

    for written in range(7, 10):  # Hudi writes, and archives behind itself
        numbers = range(6 * written, 6 * written + 12)
        scene.hudi_write(judge, scene.rows(numbers, written=written), **HUDI_ARCHIVES)
    theirs = pyhudis_view(scene)
    assert len(theirs) > len(ours)
    assert hudis_view(judge, scene) == theirs
    scene.agree(judge)

    for written in range(12, 16):
        scene.upsert(scene.rows(range(6 * written, 6 * written + 12), written=written))
    assert archived_by_pyhudi(scene)
    assert theirs < pyhudis_view(scene)
    assert not (scene.path / HISTORY / f".{VERSION_FILE}.crc").exists()  # of Hudi's version
    assert hudis_view(judge, scene) == pyhudis_view(scene)
    agree_on_the_past(judge, scene, done[2].instant, done[1].completed)
    scene.hudi_write(judge, scene.rows(range(40), written=20), **HUDI_ARCHIVES)
    scene.agree(judge)


def test_no_reader_loses_a_log_that_is_older_than_its_base_file(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """Its write began before a compaction was planned, and completed after it.

    hudi-rs goes by the requested times of archived writes, and would not read such a log. So the
    write stays active until another compaction has merged the log, which no policy puts off.
    """
    scene = Scene(tmp_path / "table", NON_BLOCKING)
    late = scene.rows(range(100, 106), written=1)
    with held_write(scene, late) as (requested, finish):
        assert scene.shared.open().services.compact().results
        finish()
    scene.expected.upsert(late)
    for written in range(2, 8):
        scene.upsert(scene.rows(range(6 * written, 6 * written + 12), written=written))
    services = scene.shared.open().services

    def is_archived() -> bool:
        is_held = bool(services.archive(POLICY).held_by)
        return is_held or len(completed_writes(scene)) <= POLICY.keep_max

    until(is_archived, "all is archived that may go")
    scene.agree(judge)
    assert min(completed_writes(scene)) == requested
    [group] = services.archive(POLICY).held_by
    assert group in str(services.archive(POLICY, dry_run=True)).splitlines()[0]

    assert services.compact(CompactionPolicy(min_delta_commits=99)).results
    scene.upsert(scene.rows(range(12), written=9))
    assert requested in archived_by_pyhudi(scene)
    assert requested not in completed_writes(scene)
    scene.agree(judge)
