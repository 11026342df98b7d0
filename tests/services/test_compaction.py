"""Compaction: planned beside writers, executed by any process, with one result."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import Effect, Fault, FaultyStorage
from many_writers.scene import (
    KINDS,
    NBCC,
    SHARED,
    Act,
    ForeignWriter,
    Scene,
    begun_scene,
    no_row_is_lost,
    rows,
    upsert,
)
from many_writers.services_by_hand import plan_clustering
from memory_tables import TIMELINE
from pyhudi.commit.proposals import Begin, Decided
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    InvalidRequestError,
    UnavailableError,
)
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    decode_commit_metadata,
    encode_commit_metadata,
)
from pyhudi.format.timeline.decision_entry import INLINE_BYTES_MAX, STAGED_FOLDER
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import (
    CompactionOperation,
    CompactionPlan,
    InstantName,
    RollbackPlan,
    decode_compaction_plan,
    encode_compaction_plan,
    encode_rollback_plan,
)
from pyhudi.format.timeline.service_metadata import encode_rollback_metadata
from pyhudi.index.simple_bucket import file_id
from pyhudi.plan.compaction.policy import CompactionOrder, CompactionPolicy
from pyhudi.plan.rollback import rollback_metadata
from pyhudi.read.archive import History
from pyhudi.services.compaction import run as module
from pyhudi.services.compaction.execute import Compactions
from pyhudi.services.compaction.result import LOOKED_FOR_MAX, CompactionResult
from pyhudi.services.compaction.run import compact, compactions, is_compaction_due
from pyhudi.services.compaction.schedule import WHOLE_MAX, CompactionPlanning, PlanDraft
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import Heartbeat
from pyhudi.storage.protocol import Folder, Storage
from pyhudi.timeline.live import LiveTimeline
from pyhudi.write.result import WriteResult

GROUP = FileGroupId("mo", file_id(0))


def scene_with_logs(**definition: Any) -> Scene:
    written = [rows("one", "a", "b"), rows("two", "b", "c", ts=2), rows("three", "a", ts=3)]
    return begun_scene(*written, **(definition or NBCC))


def service(scene: Scene, label: str = "compactor", **settings: Any) -> Compactions:
    return compactions(scene.session(label, **settings))


def plan_of(scene: Scene, requested: str) -> CompactionPlan:
    path = f"{TIMELINE}/{requested}.compaction.requested"
    return decode_compaction_plan(scene.storage.read(path), path)


def metadata_of(scene: Scene, requested: str) -> CommitMetadata:
    [name] = [n for n in scene.names() if n.startswith(f"{requested}_")]
    assert name.endswith(".commit")
    return decode_commit_metadata(scene.storage.read(f"{TIMELINE}/{name}"), name)


def forged(scene: Scene, plan: CompactionPlan) -> str:
    """Put a plan on the timeline that was not made from the table."""
    session = scene.session("forger")
    outcome = session.log.append(Begin(Action.COMPACTION, encode_compaction_plan(plan, bytes(16))))
    assert isinstance(outcome, Decided)
    assert outcome.entry.instant is not None
    return outcome.entry.instant


# -- one compaction


@pytest.mark.parametrize("kind", ["nbcc", "mor"])
def test_a_compaction_changes_files_and_no_row(kind: str) -> None:
    scene = scene_with_logs(**KINDS[kind])
    with no_row_is_lost(scene):
        done = compact(scene.session("compactor"))
    [result] = done.results
    assert (result.file_groups, result.log_files, result.rows) == (1, 3, 3)
    [slice_] = [s for s in scene.table().inspect.file_slices().to_pylist() if s["latest"]]
    assert slice_["base_instant"] == result.instant == done.planned
    assert not slice_["log_files"]
    assert scene.leftovers() == []
    assert not list(scene.storage.list(".hoodie/.heartbeat"))
    assert not list(scene.storage.list(".hoodie/.temp"))
    assert not list(scene.storage.list(STAGED_FOLDER))


def test_rows_keep_their_commit_time_and_number() -> None:
    scene = scene_with_logs()
    columns = ["_hoodie_record_key", "_hoodie_commit_time", "_hoodie_commit_seqno"]
    before = scene.table().read(columns=columns).to_arrow().sort_by("_hoodie_record_key")
    compact(scene.session("compactor"))
    after = scene.table().read(columns=columns).to_arrow().sort_by("_hoodie_record_key")
    assert after.equals(before)


def test_the_completed_file_says_what_hudis_says() -> None:
    """The numbers are those of Hudi for the same logs, but for the times that it took."""
    scene = scene_with_logs()
    stamps = pa.array([9], pa.int64())
    scene.table("d").delete(pa.table({"id": ["c"], "day": ["mo"], "ts": stamps}))
    done = compact(scene.session("compactor"))
    scene.table("late").upsert(rows("late", "a", "d", ts=5))
    again = compact(scene.session("compactor"))
    metadata = metadata_of(scene, again.planned or "")
    assert metadata.compacted is True
    assert metadata.operation_type == "COMPACT"
    assert metadata.schema_json
    [stat] = metadata.write_stats["mo"]
    assert (stat.num_writes, stat.num_inserts, stat.num_update_writes) == (3, 1, 1)
    assert (stat.num_deletes, stat.total_log_records, stat.total_log_blocks) == (0, 2, 1)
    assert (stat.total_updated_records_compacted, stat.total_log_files_compacted) == (2, 1)
    assert stat.prev_commit == done.planned
    [first] = metadata_of(scene, done.planned or "").write_stats["mo"]
    assert (first.num_writes, first.num_deletes, first.total_log_records) == (2, 0, 6)


def test_a_row_that_is_deleted_counts_as_such() -> None:
    scene = scene_with_logs()
    compact(scene.session("compactor"))
    stamps = pa.array([9], pa.int64())
    scene.table("d").delete(pa.table({"id": ["c"], "day": ["mo"], "ts": stamps}))
    with no_row_is_lost(scene):
        done = compact(scene.session("compactor"))
    [stat] = metadata_of(scene, done.planned or "").write_stats["mo"]
    assert (stat.num_writes, stat.num_deletes, stat.num_update_writes) == (2, 1, 0)


def test_a_dry_run_says_what_would_be_done_and_does_nothing() -> None:
    scene = scene_with_logs()
    before = [(stat.path, stat.etag) for stat in scene.storage.list("")]
    would = compact(scene.session("compactor"), dry_run=True)
    assert "1 file group to compact: 3 log files" in str(would)
    assert [(stat.path, stat.etag) for stat in scene.storage.list("")] == before


def test_nothing_to_compact_makes_no_plan() -> None:
    scene = scene_with_logs()
    compact(scene.session("compactor"))
    names = scene.names()
    done = compact(scene.session("compactor"))
    assert done.planned is None
    assert str(done) == "nothing to compact"
    assert scene.names() == names


def test_a_table_without_logs_has_nothing_to_compact() -> None:
    scene = begun_scene(rows("one", "a"), **KINDS["cow"])
    assert compact(scene.session("compactor")).planned is None


def test_it_is_due_by_the_delta_commits_since_the_last_one() -> None:
    scene = scene_with_logs()
    policy = CompactionPolicy(trigger_delta_commits=3)
    session = scene.session("compactor")
    assert is_compaction_due(session, policy)
    compact(session, policy)
    scene.table("w").upsert(rows("w", "a", ts=7))
    assert not is_compaction_due(session, policy)


# -- beside writers


def test_a_plan_has_what_completed_before_it_and_nothing_else() -> None:
    scene = scene_with_logs()
    early = scene.hold("early", upsert(rows("early", "a", "e", ts=9)))
    planned = service(scene).schedule()
    assert planned is not None
    assert early.requested < planned
    scene.table("later").upsert(rows("later", "b", ts=9))
    [operation] = plan_of(scene, planned).operations or ()
    instants = {name.split("_")[1].split(".")[0] for name in operation.delta_file_paths or ()}
    assert len(instants) == 3
    assert max(instants) < planned
    assert early.requested not in instants
    early.finish()
    with no_row_is_lost(scene):
        service(scene).execute(planned)
    assert scene.writers() == {"a": "early", "b": "later", "c": "two", "e": "early"}
    with no_row_is_lost(scene):
        compact(scene.session("compactor"))


def test_a_writer_older_than_the_plan_may_complete_when_it_has_been_executed() -> None:
    scene = scene_with_logs()
    early = scene.hold("early", upsert(rows("early", "a", "e", ts=9)))
    compact(scene.session("compactor"))
    early.finish()
    assert scene.writers() == {"a": "early", "b": "two", "c": "two", "e": "early"}


def test_a_write_that_completes_while_the_plan_is_made_is_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often that happens: it is worked in where the plan is decided."""
    scene = scene_with_logs()
    loads = written_while_planning(monkeypatch, scene, writes=3)
    planned = service(scene).schedule()
    assert planned is not None
    [operation] = plan_of(scene, planned).operations or ()
    logs = " ".join(operation.delta_file_paths or ())
    assert len(loads) == 3
    assert all(result.instant in logs for result in loads)
    assert max(result.completed for result in loads) < planned
    with no_row_is_lost(scene):
        service(scene).execute(planned)


def written_while_planning(
    monkeypatch: pytest.MonkeyPatch, scene: Scene, *, writes: int
) -> list[WriteResult]:
    """So many writes, one after each time that the planner reads the table; their results."""
    written: list[WriteResult] = []

    def followed(look: Callable[..., PlanDraft]) -> Callable[..., PlanDraft]:
        def looked(*args: Any, **kwargs: Any) -> PlanDraft:
            draft = look(*args, **kwargs)
            if len(written) < writes:
                table = scene.table(f"w{len(written)}")
                written.append(table.upsert(rows("w", "a", ts=20 + len(written))))
            return draft

        return looked

    for name in ("drafted", "adjusted"):
        look = getattr(CompactionPlanning, name)
        monkeypatch.setattr(CompactionPlanning, name, followed(look))
    return written


def test_a_plan_that_loses_the_race_again_and_again_becomes_smaller_and_keeps_what_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = scene_with_logs()
    days = [f"d{number:02}" for number in range(16)]
    for day in days:
        scene.table("cold").upsert(rows("cold", f"k{day}", day=day))
    loads = written_while_planning(monkeypatch, scene, writes=WHOLE_MAX + 3)
    preview, planned = service(scene).scheduled(CompactionPolicy(order=CompactionOrder.AGE))
    assert planned is not None
    assert len(loads) == WHOLE_MAX + 3
    operations = plan_of(scene, planned).operations or ()
    # Seventeen groups; the first looks kept all of them, and each of three more half: 8, 4, 2.
    assert [o.partition_path for o in operations] == ["mo", *days[:1]]
    assert {o.group.partition for o in preview.left_out} == set(days[1:])
    assert "writes kept completing" in str(preview)
    logs = " ".join(next(o for o in operations if o.partition_path == "mo").delta_file_paths or ())
    assert all(result.instant in logs for result in loads)
    with no_row_is_lost(scene):
        service(scene).execute(planned)
        compact(scene.session("compactor"))


def test_a_plan_is_made_though_a_write_completes_whenever_a_folder_is_listed() -> None:
    """Folders grow with old slices, and listing one takes longer than a small write."""
    scene = scene_with_logs()
    table, written = scene.table("busy"), 0

    class Busy(FaultyStorage):
        def list_folder(self, prefix: str) -> Folder:
            nonlocal written
            written += 1
            table.upsert(rows("busy", "a", ts=20 + written))
            return super().list_folder(prefix)

    busy = Busy(scene.storage)
    planned = compactions(scene.session("compactor", busy)).schedule()
    assert planned is not None
    [operation] = plan_of(scene, planned).operations or ()
    assert len(operation.delta_file_paths or ()) == 3 + written
    with no_row_is_lost(scene):
        service(scene).execute(planned)


def test_files_that_another_engine_does_not_name_are_in_an_adjusted_plan() -> None:
    """Readers show every log of a commit, so on a shared table folders are listed again."""
    scene = Scene(**NBCC, **SHARED)
    for number in range(3):
        scene.table("one").upsert(rows("one", "a", ts=number))
    work = service(scene)
    drafted = work.planning.drafted
    unnamed: list[str] = []

    def slow(live: LiveTimeline, policy: CompactionPolicy, **how: bool) -> PlanDraft:
        draft = drafted(live, policy, **how)
        written = scene.table("two").upsert(rows("two", "a", ts=9))
        [named] = [o.path for o in scene.storage.list("mo") if written.instant in o.path]
        unnamed.append(named.replace(".log.1_", ".log.2_"))
        scene.storage.create(unnamed[0], scene.storage.read(named))
        return draft

    work.planning.drafted = slow  # type: ignore[method-assign]
    planned = work.schedule()
    assert planned is not None
    [operation] = plan_of(scene, planned).operations or ()
    assert unnamed[0].rpartition("/")[2] in (operation.delta_file_paths or ())


def test_a_plan_of_another_process_is_heeded_that_comes_while_one_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = scene_with_logs()
    scene.table("tu").upsert(rows("tu", "t", day="tu"))
    drafted = CompactionPlanning.drafted
    others: list[str] = []

    def slow(self: CompactionPlanning, *args: Any, **kwargs: Any) -> PlanDraft:
        draft = drafted(self, *args, **kwargs)
        if not others:
            others.append("")
            others.append(service(scene).schedule(CompactionPolicy(partitions=("mo",))) or "")
        return draft

    monkeypatch.setattr(CompactionPlanning, "drafted", slow)
    preview, planned = service(scene).scheduled()
    assert planned is not None
    assert [o.partition_path for o in plan_of(scene, planned).operations or ()] == ["tu"]
    assert others[1] in str(preview)


def test_plans_on_disjoint_file_groups_are_pending_at_once() -> None:
    scene = scene_with_logs()
    scene.table("tu").upsert(rows("tu", "t", day="tu"))
    first = service(scene).schedule(CompactionPolicy(partitions=("mo",)))
    second = service(scene).schedule()
    assert first is not None
    assert second is not None
    parts = [
        {o.partition_path for o in plan_of(scene, p).operations or ()} for p in (first, second)
    ]
    assert parts == [{"mo"}, {"tu"}]
    assert service(scene).schedule() is None
    scene.table("w").upsert(rows("w", "a", ts=9))
    with no_row_is_lost(scene):
        service(scene).execute(second)
        service(scene).cancel(first)
    assert {slice_.partition for slice_ in service(scene).preview().slices} == {"mo"}
    with no_row_is_lost(scene):
        compact(scene.session("compactor"))


def test_file_groups_under_clustering_are_left_alone() -> None:
    scene = scene_with_logs()
    plan_clustering(scene.session("clusterer"), [GROUP])
    assert service(scene).schedule() is None
    assert "the pending plan" in str(service(scene).preview())


def test_other_threads_may_write_while_base_files_are_made() -> None:
    """They share the table, and its turns, which are not taken for the work itself."""
    scene = scene_with_logs()
    session = scene.session("one process")
    inside: list[str] = []

    def merge(requested: str, schema: str, operations: Any) -> Any:
        inside.append("written")
        scene.table("another").upsert(rows("another", "a", ts=30))
        return module.LocalMerge(session)(requested, schema, operations)

    compact(session, merge=merge)
    assert scene.writers()["a"] == "another"
    assert inside


# -- plans too large for an entry


def test_a_plan_that_is_too_large_for_an_entry_is_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = scene_with_logs()
    monkeypatch.setattr("pyhudi.commit.proposals.INLINE_BYTES_MAX", 100)
    assert INLINE_BYTES_MAX > 100
    with no_row_is_lost(scene):
        done = compact(scene.session("compactor"))
    assert done.results
    assert not list(scene.storage.list(STAGED_FOLDER))


# -- which process executes it


class Died(BaseException):
    """The end of a process, which no handler catches."""


class Mortal(FaultyStorage):
    """Its process dies before the nth call that changes something, and changes nothing after."""

    def __init__(self, inner: Storage, dies_before: int) -> None:
        super().__init__(inner)
        self._left = dies_before

    def _run(self, name: str, path: str, perform: Any) -> Any:
        if name in ("create", "create_from", "replace", "write", "delete"):
            self._left -= 1
            if self._left < 0:
                raise Died
        return super()._run(name, path, perform)


def test_a_compaction_that_dies_anywhere_is_finished_by_the_next() -> None:
    """Before every single change that it makes; nothing is lost, and nothing stays behind."""
    begun = scene_with_logs()
    begun.table("tu").upsert(rows("tu", "t", day="tu"))
    expected, deaths = begun.content(), 0
    for nth in range(1_000):
        scene = begun.copy()
        try:
            compact(scene.session("mortal", Mortal(scene.storage, nth)))
            break
        except Died:
            deaths += 1
        assert scene.content() == expected
        scene.clock.sleep(2 * WriteSettings().heartbeat_timeout_ms)
        compact(scene.session("next"))
        assert scene.content() == expected
        assert service(scene).preview().is_empty
        assert scene.leftovers() == []
        scene.table("sweeper").services.repair(grace_minutes=0)
        for folder in (".hoodie/.heartbeat", ".hoodie/.temp", STAGED_FOLDER):
            assert not list(scene.storage.list(folder)), (nth, folder)
    assert deaths > 12


def test_base_files_that_are_there_are_not_made_again() -> None:
    scene = scene_with_logs()
    planned = service(scene).schedule()
    assert planned is not None
    with pytest.raises(Died):
        compactions(scene.session("mortal", Mortal(scene.storage, 4))).execute(planned)
    watched = FaultyStorage(scene.storage)
    [made] = [s.path for s in scene.storage.list("mo") if planned in s.path]
    assert compactions(scene.session("next", watched)).execute(planned, is_forced=True)
    assert not [o for o in watched.trace if o.name == "create_from"]
    [stat] = metadata_of(scene, planned).write_stats["mo"]
    assert (stat.path, stat.num_writes, stat.total_log_files_compacted) == (made, 3, 3)


def test_a_plan_that_another_process_executes_is_left_alone() -> None:
    scene = scene_with_logs()
    planned = service(scene).schedule()
    assert planned is not None
    heartbeat = Heartbeat(scene.storage, planned)
    heartbeat.start(scene.world("other"), 60_000)
    done = compact(scene.session("compactor"))
    assert (done.results, done.pending) == ((), (planned,))
    assert f"plan {planned} is pending" in str(done)
    with pytest.raises(ConflictError, match="seems to execute it"):
        service(scene).cancel(planned)
    scene.clock.sleep(2 * WriteSettings().heartbeat_timeout_ms)
    assert len(compact(scene.session("compactor")).results) == 1


def test_half_a_base_file_says_what_gets_rid_of_it() -> None:
    """As Hudi leaves one on a local disk, under the name that ours has too."""
    scene = scene_with_logs()
    planned = service(scene).schedule()
    assert planned is not None
    half = f"mo/{GROUP.file_id}_0-0-0_{planned}.parquet"
    scene.storage.write(half, b"PAR1 half of i")
    scene.storage.write(f".hoodie/.temp/{planned}/{half}.marker.MERGE", b"")
    with no_row_is_lost(scene), pytest.raises(CorruptTableError, match="cancel_compaction"):
        service(scene).execute(planned)
    with no_row_is_lost(scene):
        service(scene).cancel(planned)
        assert compact(scene.session("compactor")).results
    assert scene.storage.stat(half) is None


def test_a_plan_that_was_just_made_can_be_executed_by_any_process() -> None:
    """A recent file is not a sign that a process works on it."""
    scene = scene_with_logs()
    planned = service(scene, "planner").schedule()
    [result] = compact(scene.session("executor")).results
    assert result.instant == planned


def test_two_executors_at_once_end_in_one_result() -> None:
    scene = scene_with_logs()
    planned = service(scene).schedule()
    assert planned is not None
    others: list[CompactionResult | None] = []

    def merge(requested: str, schema: str, operations: Any) -> Any:
        stats = list(module.LocalMerge(session)(requested, schema, operations))
        others.append(service(scene, "other").execute(planned, is_forced=True))
        return stats

    session = scene.session("one")
    with no_row_is_lost(scene):
        mine = compactions(session, merge).execute(planned)
    [theirs] = others
    assert mine is not None
    assert theirs is not None
    assert (mine.is_ours, theirs.is_ours) == (False, True)
    assert mine.completed == theirs.completed
    assert len(scene.completed("commit")) == 1
    assert "by another process" in str(mine)


def test_an_executor_that_comes_when_all_is_done_and_cleaned_learns_so() -> None:
    scene = scene_with_logs()
    planned = service(scene).schedule()
    assert planned is not None

    def merge(requested: str, schema: str, operations: Any) -> Any:
        service(scene, "other").execute(planned, is_forced=True)
        for name in operations[0].delta_file_paths:
            scene.storage.delete(f"mo/{name}")
        scene.storage.delete(f"mo/{GROUP.file_id}_0-0-0_{planned}.parquet")
        return module.LocalMerge(session)(requested, schema, operations)

    session = scene.session("late")
    result = compactions(session, merge).execute(planned)
    assert result is not None
    assert not result.is_ours
    again = service(scene).execute(planned)
    assert again is not None
    assert not again.is_ours


# -- cancelling


@pytest.mark.parametrize("work", ["planned", "begun", "files are there"])
def test_a_cancelled_plan_leaves_nothing(work: str) -> None:
    scene = scene_with_logs()
    planned = service(scene).schedule()
    assert planned is not None
    deaths = {"planned": 0, "begun": 2, "files are there": 4}
    with pytest.raises(Died):
        compactions(scene.session("mortal", Mortal(scene.storage, deaths[work]))).execute(planned)
    scene.clock.sleep(2 * WriteSettings().heartbeat_timeout_ms)
    with no_row_is_lost(scene):
        rollback = service(scene).cancel(planned)
    assert [name for name in scene.completed("rollback") if name.startswith(rollback)]
    assert scene.leftovers() == []
    assert not [s.path for s in scene.storage.list("mo") if planned in s.path]
    with pytest.raises(InvalidRequestError, match="no pending compaction"):
        service(scene).execute(planned)
    with pytest.raises(InvalidRequestError, match="no plan has that time"):
        service(scene).cancel(planned)
    with no_row_is_lost(scene):
        [result] = compact(scene.session("compactor")).results
    assert result.instant > rollback


def test_an_interrupted_cancel_is_finished_by_the_next_call() -> None:
    begun = scene_with_logs()
    planned = service(begun).schedule()
    assert planned is not None
    with pytest.raises(Died):
        compactions(begun.session("mortal", Mortal(begun.storage, 4))).execute(planned)
    expected, deaths = begun.content(), 0
    for nth in range(1_000):
        scene = begun.copy()
        scene.clock.sleep(2 * WriteSettings().heartbeat_timeout_ms)
        try:
            compactions(scene.session("mortal", Mortal(scene.storage, nth))).cancel(planned)
            break
        except Died:
            deaths += 1
        scene.table("writer").upsert(rows("one", "z"))  # finishes the cancel, if it is in the log
        if service(scene).pending():
            service(scene).cancel(planned)
        assert scene.content() == {**expected, "z": (1, "one")}
        assert scene.leftovers() == []
        assert len(scene.completed("rollback")) == 1
    assert deaths > 5


def test_an_executor_whose_plan_is_cancelled_meanwhile_leaves_nothing() -> None:
    scene = scene_with_logs()
    planned = service(scene).schedule()
    assert planned is not None

    def merge(requested: str, schema: str, operations: Any) -> Any:
        service(scene, "other").cancel(planned, is_forced=True)
        return module.LocalMerge(session)(requested, schema, operations)

    session = scene.session("frozen")
    with no_row_is_lost(scene), pytest.raises(ConflictError, match="cancelled meanwhile, by the r"):
        compactions(session, merge).execute(planned)
    assert scene.leftovers() == []
    assert not [s.path for s in scene.storage.list("mo") if planned in s.path]


def test_an_executor_that_finds_files_gone_says_that_the_plan_was_cancelled() -> None:
    scene = scene_with_logs()
    planned = service(scene).schedule()
    assert planned is not None

    def merge(requested: str, schema: str, operations: Any) -> Any:
        service(scene, "other").cancel(planned, is_forced=True)
        compact(scene.session("other")).or_raise()
        for path in operations[0].log_file_paths:
            scene.storage.delete(path)
        return module.LocalMerge(session)(requested, schema, operations)

    session = scene.session("frozen")
    with no_row_is_lost(scene), pytest.raises(InvalidRequestError, match=f"no pending .*{planned}"):
        compactions(session, merge).execute(planned)
    assert scene.leftovers() == []


def test_what_has_completed_cannot_be_cancelled() -> None:
    scene = scene_with_logs()
    done = compact(scene.session("compactor"))
    with pytest.raises(InvalidRequestError, match="it has completed"):
        service(scene).cancel(done.planned or "")


# -- plans that are not sound

LOG = f".{GROUP.file_id}_20251231000000000.log.1_0-0-0"
SOUND = CompactionOperation("20251231000000000", (LOG,), None, GROUP.file_id, "mo", {})
UNSOUND: dict[str, tuple[CompactionOperation, ...]] = {
    "a path": (replace(SOUND, delta_file_paths=(f"../{LOG}",)),),
    "a partition outside": (replace(SOUND, partition_path="../other"),),
    "a whole path": (replace(SOUND, data_file_path="/etc/passwd", delta_file_paths=()),),
    "another group": (replace(SOUND, file_id=file_id(1)),),
    "no data file": (replace(SOUND, delta_file_paths=("hoodie.properties",)),),
    "a log as base": (replace(SOUND, data_file_path=LOG),),
    "twice": (SOUND, SOUND),
    "no file": (replace(SOUND, delta_file_paths=()),),
    "no file id": (replace(SOUND, file_id=None),),
    "an odd file id": (replace(SOUND, file_id="../x"),),
    "a newer file": (replace(SOUND, delta_file_paths=(LOG.replace("20251231", "29991231"),)),),
}


@pytest.mark.parametrize("left_out", ["the first log", "the last log", "the base file"])
def test_a_plan_that_leaves_out_what_had_completed_is_refused(left_out: str) -> None:
    """Its base file would hide those rows for good; what completed later is rightly not in it."""
    scene = scene_with_logs()
    compact(scene.session("compactor"))
    early = scene.hold("early", upsert(rows("early", "e", ts=9)))
    for n in range(3):
        scene.table("w").upsert(rows(f"w{n}", f"w{n}", ts=9))
    [sound] = service(scene).preview().plan.operations or ()
    logs = sound.delta_file_paths or ()
    assert len(logs) == 3
    shorter = {
        "the first log": replace(sound, delta_file_paths=logs[1:]),
        "the last log": replace(sound, delta_file_paths=logs[:-1]),
        "the base file": replace(sound, data_file_path=None),
    }
    requested = forged(scene, CompactionPlan((shorter[left_out],)))
    early.finish()
    files = [stat.path for stat in scene.storage.list("")]
    with no_row_is_lost(scene), pytest.raises(CorruptTableError, match="it leaves out 'mo/"):
        service(scene).execute(requested)
    assert [stat.path for stat in scene.storage.list("")] == files
    with no_row_is_lost(scene):
        service(scene).cancel(requested)
        requested = forged(scene, CompactionPlan((sound,)))
    with no_row_is_lost(scene), pytest.raises(CorruptTableError, match=early.requested):
        service(scene).execute(requested)  # by now it is too old


def test_a_sound_plan_of_another_process_is_executed_though_much_came_later() -> None:
    scene = scene_with_logs()
    early = scene.hold("early", upsert(rows("early", "e", ts=9)))
    sound = service(scene).preview().plan
    requested = forged(scene, sound)
    early.finish()
    scene.table("later").upsert(rows("later", "l", ts=9))
    with no_row_is_lost(scene):
        result = service(scene).execute(requested)
    assert result is not None
    assert result.is_ours


def test_a_write_that_completed_after_the_plan_may_be_archived_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It began earlier, and Hudi archives by that; the archive shows that the plan is whole."""
    scene = scene_with_logs()
    early = scene.hold("early", upsert(rows("early", "e", ts=9)))
    planned = service(scene).schedule()
    assert planned is not None
    completed = early.finish().completed
    scene.table("later").upsert(rows("later", "l", ts=9))
    for name in scene.names():
        if name[:17] <= early.requested:
            scene.storage.delete(f"{TIMELINE}/{name}")

    def archived(_: History, instants: frozenset[str]) -> dict[str, str]:
        return dict.fromkeys(instants & {early.requested}, completed)

    monkeypatch.setattr(History, "completion_times", archived)
    with no_row_is_lost(scene):
        result = service(scene).execute(planned)
    assert result is not None
    assert result.is_ours
    assert scene.writers()["e"] == "early"


@pytest.mark.parametrize("name", UNSOUND)
def test_a_forged_plan_is_refused_and_stays(name: str) -> None:
    scene = scene_with_logs()
    requested = forged(scene, CompactionPlan(UNSOUND[name]))
    files = [stat.path for stat in scene.storage.list("")]
    with no_row_is_lost(scene), pytest.raises(CorruptTableError):
        service(scene).execute(requested)
    assert [stat.path for stat in scene.storage.list("")] == files
    assert [i.requested for i in service(scene).pending()] == [requested]
    with no_row_is_lost(scene):
        service(scene).cancel(requested)
    assert scene.leftovers() == []


def test_a_plan_whose_files_are_gone_stays_and_keeps_no_other_from_its_work() -> None:
    scene = scene_with_logs()
    scene.table("tu").upsert(rows("tu", "t", day="tu"))
    [found] = service(scene).preview(CompactionPolicy(partitions=("mo",))).plan.operations or ()
    names = (*(found.delta_file_paths or ()), LOG)
    lost = forged(scene, CompactionPlan((replace(found, delta_file_paths=names),)))
    with no_row_is_lost(scene), pytest.raises(CorruptTableError, match="is gone"):
        compact(scene.session("compactor")).or_raise()
    [done] = scene.completed("commit")
    metadata = decode_commit_metadata(scene.storage.read(f"{TIMELINE}/{done}"), done)
    assert set(metadata.write_stats) == {"tu"}
    assert [i.requested for i in service(scene).pending()] == [lost]
    service(scene).cancel(lost)
    with no_row_is_lost(scene):
        compact(scene.session("compactor"))


@pytest.mark.parametrize("written", [0, 1, 3])
def test_storage_that_fails_from_some_file_on_leaves_the_plan_and_every_row(written: int) -> None:
    scene = scene_with_logs()
    for day in ("tu", "we", "th"):
        scene.table(day).upsert(rows(day, day, day=day))
    fault = Fault(Effect.FAIL, "create_from", nth=written + 1, times=None)
    full = FaultyStorage(scene.storage, [fault])
    with no_row_is_lost(scene), pytest.raises(UnavailableError, match="injected"):
        compact(scene.session("compactor", full)).or_raise()
    assert not list(scene.storage.list(".hoodie/.heartbeat"))
    [planned] = service(scene).pending()
    with no_row_is_lost(scene):
        [result] = compact(scene.session("next")).results
    assert (result.instant, result.file_groups) == (planned.requested, 4)


def test_a_disk_that_fills_up_while_a_plan_is_executed_is_named_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), ("ts", pa.int64())])
    table = pyhudi.create_table(
        tmp_path / "table", schema, record_key="id", ordering="ts", buckets=SimpleBuckets(4)
    )
    for ts in (1, 2):
        table.upsert(pa.table({"id": [f"k{n}" for n in range(40)], "ts": [ts] * 40}, schema))
    before = table.read(columns=["id", "ts"]).to_arrow().sort_by("id")
    link = os.link
    made: list[Any] = []

    def filling(source: Any, target: Any, **how: Any) -> None:
        if str(target).endswith(".parquet"):
            if len(made) == 2:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            made.append(target)
        link(source, target, **how)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", filling)
        with pytest.raises(UnavailableError, match="No space left on device"):
            table.services.compact()
    assert len(made) == 2
    assert table.read(columns=["id", "ts"]).to_arrow().sort_by("id") == before
    [done] = table.services.compact().results
    assert done.file_groups == 4
    assert table.read(columns=["id", "ts"]).to_arrow().sort_by("id") == before


# -- a table that another engine writes too


def shared_scene() -> Scene:
    return scene_with_logs(**NBCC, **SHARED)


def test_a_compaction_of_a_shared_table_changes_no_row() -> None:
    scene = shared_scene()
    with no_row_is_lost(scene):
        assert compact(scene.session("compactor")).results
    assert scene.leftovers() == []


@pytest.mark.parametrize("looked_for_max", [0, 8])
def test_files_that_the_other_engine_took_away_are_made_again(
    monkeypatch: pytest.MonkeyPatch, looked_for_max: int
) -> None:
    """As Hudi does, when it restarts the plan."""
    monkeypatch.setattr("pyhudi.services.compaction.result.LOOKED_FOR_MAX", looked_for_max)
    scene = shared_scene()
    planned = service(scene).schedule()
    assert planned is not None
    runs: list[Any] = []

    def merge(requested: str, schema: str, operations: Any) -> Any:
        stats = list(module.LocalMerge(session)(requested, schema, operations))
        runs.append(stats)
        if len(runs) == 1:
            scene.storage.delete(stats[0].data_path)
        if len(runs) == 2:
            scene.storage.delete(f"{TIMELINE}/{planned}.compaction.inflight")
        return stats

    session = scene.session("compactor")
    with no_row_is_lost(scene):
        result = compactions(session, merge).execute(planned)
    assert result is not None
    assert result.is_ours
    assert len(runs) == 3


def test_many_files_are_looked_for_by_listing_while_others_wait_for_the_lock() -> None:
    count = 3 * LOOKED_FOR_MAX
    scene = Scene(**NBCC, **SHARED, buckets=SimpleBuckets(count))
    scene.table("w").upsert(rows("w", *map(str, range(40 * count))))
    watched = FaultyStorage(scene.storage)
    with no_row_is_lost(scene):
        [result] = compact(scene.session("compactor", watched)).results
    assert result.file_groups == count
    made = [o.path for o in watched.trace if o.name == "create_from"]
    looks = [o.path for o in watched.trace if o.name == "stat" and o.path in made]
    assert len(made) == count
    assert len(looks) == len(set(looks)) == count  # each once, where it is made


def test_what_a_failed_attempt_of_the_other_engine_left_is_gone_before_ours_counts() -> None:
    """Half a base file of the same instant, whose name comes after ours."""
    scene = shared_scene()
    planned = service(scene).schedule()
    assert planned is not None
    name = f"{GROUP.file_id}_7-21-9_{planned}.parquet"
    scene.storage.write(f"mo/{name}", b"PAR1 half of i")
    scene.storage.write(f".hoodie/.temp/{planned}/mo/{name}.marker.MERGE", b"")
    scene.storage.write(f"{TIMELINE}/{planned}.compaction.inflight", b"")
    with no_row_is_lost(scene):
        assert compact(scene.session("compactor")).results
    assert [s.path for s in scene.storage.list("mo") if planned in s.path] == [
        f"mo/{GROUP.file_id}_0-0-0_{planned}.parquet"
    ]


@pytest.mark.parametrize("is_whole", [True, False])
def test_if_the_other_engine_completes_the_plan_first_its_files_count(is_whole: bool) -> None:
    """Unless they are missing, which ours then make up for."""
    scene = shared_scene()
    planned = service(scene).schedule()
    assert planned is not None
    theirs = f"mo/{GROUP.file_id}_7-21-9_{planned}.parquet"

    def merge(requested: str, schema: str, operations: Any) -> Any:
        stats = list(module.LocalMerge(session)(requested, schema, operations))
        if is_whole:
            scene.storage.write(theirs, scene.storage.read(stats[0].data_path))
        metadata = CommitMetadata({"mo": (replace(stats[0], path=theirs),)}, compacted=True)
        data = encode_commit_metadata(metadata, bytes(16))
        ForeignWriter(scene).complete(planned, data, "commit")
        return stats

    session = scene.session("compactor")
    with no_row_is_lost(scene):
        result = compactions(session, merge).execute(planned)
    assert result is not None
    assert not result.is_ours
    left = [s.path for s in scene.storage.list("mo") if planned in s.path]
    assert left == [theirs if is_whole else f"mo/{GROUP.file_id}_0-0-0_{planned}.parquet"]


# -- Hudi restarts a plan


def hudi_rolls_back(scene: Scene, target: str, *, ends: bool) -> str:
    """Do what Hudi does before it executes a plan that was left inflight; the plan stays."""
    plan = RollbackPlan(InstantName(target, "compaction"), ())
    hudi = ForeignWriter(scene)
    rollback = hudi.begin("rollback", encode_rollback_plan(plan, bytes(16)))
    if ends:
        instant = Instant(InstantTime(target), Action.COMPACTION, State.REQUESTED)
        metadata = rollback_metadata(rollback, instant, (), scene.storage.uri, 1)
        hudi.complete(rollback, encode_rollback_metadata(metadata, bytes(16)), "rollback")
        scene.storage.delete(f"{TIMELINE}/{target}.compaction.inflight")
    return rollback


def test_a_plan_that_hudi_restarts_is_pending_and_pyhudi_deletes_none_of_its_files() -> None:
    """A rollback of it has completed; the plan is there, and Hudi may be writing."""
    scene = shared_scene()
    planned = service(scene).schedule()
    assert planned is not None
    hudi_rolls_back(scene, planned, ends=True)
    name = f"{GROUP.file_id}_7-21-9_{planned}.parquet"
    scene.storage.write(f"{TIMELINE}/{planned}.compaction.inflight", b"")
    scene.storage.write(f".hoodie/.temp/{planned}/mo/{name}.marker.MERGE", b"")
    scene.storage.write(f"mo/{name}", b"of Hudi")
    scene.table("sweeper").services.repair(grace_minutes=0)
    assert scene.storage.stat(f"mo/{name}") is not None
    assert [i.requested for i in service(scene).pending()] == [planned]
    assert service(scene).schedule() is None
    with no_row_is_lost(scene):
        result = service(scene).execute(planned)
    assert result is not None
    assert result.is_ours


def test_a_rollback_that_hudi_has_under_way_for_a_plan_is_hudis_to_end() -> None:
    scene = shared_scene()
    planned = service(scene).schedule()
    assert planned is not None
    scene.storage.write(f"{TIMELINE}/{planned}.compaction.inflight", b"")
    rollback = hudi_rolls_back(scene, planned, ends=False)
    scene.table("writer").upsert(rows("w", "z"))
    assert f"{rollback}.rollback.inflight" in scene.pending()
    assert f"{planned}.compaction.requested" in scene.pending()
    assert service(scene).pending() == []
    assert service(scene).schedule() is None
    for attempt in (service(scene).execute, service(scene).cancel):
        with pytest.raises(ConflictError, match=f"the rollback {rollback}") as caught:
            attempt(planned)
        assert "start Hudi once" in str(caught.value)
    assert f"{planned}.compaction.requested" in scene.pending()


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_rollback_that_hudi_never_ended_is_reported_when_it_has_been_silent(
    dry_run: bool,
) -> None:
    """Its file groups are in no other plan, so the user has to know."""
    scene = shared_scene()
    planned = service(scene).schedule()
    assert planned is not None
    scene.storage.write(f"{TIMELINE}/{planned}.compaction.inflight", b"")
    rollback = hudi_rolls_back(scene, planned, ends=False)
    done = compact(scene.session("compactor"), dry_run=dry_run)
    assert (done.pending, done.errors) == ((planned,), ())
    scene.clock.sleep(2 * WriteSettings().heartbeat_timeout_ms)
    done = compact(scene.session("compactor"), dry_run=dry_run)
    assert done.pending == (planned,)
    [error] = done.errors
    assert rollback in str(error)
    assert planned in str(error)
    scene.storage.write(f".hoodie/.heartbeat/{planned}", b"")  # Hudi comes back
    assert compact(scene.session("compactor"), dry_run=dry_run).errors == ()


def test_the_error_of_an_executor_whose_plan_hudi_restarts_names_the_way_out() -> None:
    scene = shared_scene()
    planned = service(scene).schedule()
    assert planned is not None

    def merge(requested: str, schema: str, operations: Any) -> Any:
        stats = list(module.LocalMerge(session)(requested, schema, operations))
        hudi_rolls_back(scene, planned, ends=False)
        return stats

    session = scene.session("compactor")
    with no_row_is_lost(scene), pytest.raises(ConflictError, match="start Hudi once"):
        compactions(session, merge).execute(planned)
    assert f"{planned}.compaction.inflight" in scene.pending()


def half_written(scene: Scene, planned: str) -> str:
    """A base file of a Hudi that died while it executed the plan, with its marker."""
    half = f"mo/{GROUP.file_id}_7-21-9_{planned}.parquet"
    scene.storage.write(f"{TIMELINE}/{planned}.compaction.inflight", b"")
    scene.storage.write(f".hoodie/.temp/{planned}/{half}.marker.MERGE", b"")
    scene.storage.write(half, b"PAR1 half of i")
    return half


def test_a_cancel_is_decided_again_if_hudi_came_before_it_was_done() -> None:
    """The plan is gone, and no rollback names it: nothing else would remove half a base file."""
    scene = shared_scene()
    planned = service(scene).schedule()
    assert planned is not None
    half = half_written(scene, planned)
    dies = Fault(Effect.FAIL, "create", "*.rollback.requested", times=None)
    with pytest.raises(UnavailableError):
        compactions(scene.session("dies", FaultyStorage(scene.storage, [dies]))).cancel(planned)
    assert f"{planned}.compaction.requested" not in scene.names()
    scene.clock.sleep(60_000)
    hudi = ForeignWriter(scene)
    hudi.complete(hudi.begin(), encode_commit_metadata(CommitMetadata(), bytes(16)))
    with no_row_is_lost(scene):
        service(scene).cancel(planned)
        assert scene.storage.stat(half) is None
        assert len(scene.completed("rollback")) == 1
        scene.table("sweeper").services.repair(grace_minutes=0)
    assert not [s.path for s in scene.storage.list("") if planned in s.path]


def test_what_is_left_of_a_plan_that_was_removed_by_hand_is_swept_up() -> None:
    scene = shared_scene()
    planned = service(scene).schedule()
    assert planned is not None
    half = half_written(scene, planned)
    scene.table("w").upsert(rows("w", "a", ts=7))
    for state in ("inflight", "requested"):
        scene.storage.delete(f"{TIMELINE}/{planned}.compaction.{state}")
    with no_row_is_lost(scene):
        scene.table("sweeper").services.repair(grace_minutes=60)
        assert scene.storage.stat(half) is not None  # a frozen executor may still write
        scene.table("sweeper").services.repair(grace_minutes=0)
    assert not [s.path for s in scene.storage.list("") if planned in s.path]


def test_an_inflight_file_without_a_plan_is_no_plan() -> None:
    """As an executor leaves it that slept while the plan was cancelled, and died."""
    scene = scene_with_logs()
    planned = service(scene).schedule()
    assert planned is not None
    service(scene).cancel(planned)
    scene.storage.write(f"{TIMELINE}/{planned}.compaction.inflight", b"")
    assert service(scene, "another").pending() == []
    with no_row_is_lost(scene):
        assert compact(scene.session("compactor")).results
    scene.table("sweeper").services.repair(grace_minutes=0)
    assert scene.leftovers() == []


def test_a_plan_that_comes_back_when_it_was_cancelled_is_removed() -> None:
    """A process that sleeps while it applies the plan's begin may bring it back."""
    scene = scene_with_logs()
    planned = service(scene).schedule()
    assert planned is not None
    path = f"{TIMELINE}/{planned}.compaction.requested"
    data = scene.storage.read(path)
    service(scene).cancel(planned)
    scene.storage.write(path, data)
    assert service(scene, "another").pending() == []
    with pytest.raises(InvalidRequestError, match="no pending compaction"):
        service(scene, "a third").execute(planned)
    scene.table("sweeper").services.repair(grace_minutes=0)
    assert scene.leftovers() == []
    with no_row_is_lost(scene):
        assert compact(scene.session("compactor")).results


# -- writes of base files beside it


def overwrite(given: pa.Table) -> Act:
    return lambda table: table.overwrite(given)


@pytest.mark.parametrize("kind", ["nbcc", "mor"])
@pytest.mark.parametrize("moment", ["while it is planned", "when it has completed"])
def test_a_base_file_older_than_the_plan_is_not_completed_over_it(kind: str, moment: str) -> None:
    """It would lie before the compacted one, and be hidden; written again it counts."""
    scene = scene_with_logs(**KINDS[kind])
    refused = scene.hold("one", overwrite(rows("over", "x")), conflict_retries=0)
    repeated = scene.hold("two", overwrite(rows("again", "y")))
    planned = service(scene).schedule()
    assert planned is not None
    if moment == "when it has completed":
        service(scene).execute(planned)
    with no_row_is_lost(scene), pytest.raises(ConflictError):
        refused.finish()
    assert repeated.finish().instant > planned
    assert scene.writers() == {"y": "again"}
    with no_row_is_lost(scene):
        service(scene).execute(planned)
    scene.table("later").upsert(rows("later", "z", ts=9))
    with no_row_is_lost(scene):
        compact(scene.session("compactor"))


@pytest.mark.parametrize("kind", ["nbcc", "mor"])
def test_a_base_file_newer_than_the_plan_hides_the_compacted_one(kind: str) -> None:
    scene = scene_with_logs(**KINDS[kind])
    planned = service(scene).schedule()
    assert planned is not None
    scene.table("over").overwrite(rows("over", "x"))
    scene.table("later").upsert(rows("later", "z", ts=9))
    with no_row_is_lost(scene):
        service(scene).execute(planned)
    assert scene.writers() == {"x": "over", "z": "later"}
