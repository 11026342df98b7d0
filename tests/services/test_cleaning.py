"""Cleaning: what is kept reads the same, what is not is refused, and any crash is finished."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyhudi
from faulty_storage import Effect, Fault, FaultyStorage
from handmade import HandmadeTable, at
from many_writers.compaction_by_hand import PlannedCompaction, plan_compaction, rewrite_groups
from many_writers.scene import (
    COW,
    NBCC,
    SHARED,
    Content,
    ForeignWriter,
    HeldWrite,
    Scene,
    begun_scene,
    rows,
    upsert,
)
from many_writers.services_by_hand import archive, plan_clustering, replacement
from memory_tables import TIMELINE
from pyhudi.commit.proposals import Begin, Decided
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    HudiError,
    InvalidRequestError,
    UnavailableError,
)
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.paths import file_name
from pyhudi.format.table.consumer_file import Consumer, consumer_path, encode_consumer
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import (
    CleanerPlan,
    CleanFile,
    ClusteringGroup,
    ClusteringPlan,
    ClusteringSlice,
    RequestedReplaceMetadata,
    RetainedInstant,
    decode_cleaner_plan,
    encode_cleaner_plan,
    encode_requested_replace,
)
from pyhudi.format.timeline.service_metadata import (
    SavepointMetadata,
    SavepointPartition,
    decode_clean_metadata,
    encode_savepoint_metadata,
)
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.plan.clean_records import planned_paths
from pyhudi.plan.cleaning import CleanPlan, CleanPolicy
from pyhudi.read.lost_files import CommitRecords
from pyhudi.read.plan import Question, Reader
from pyhudi.services.archiving.run import archive as archive_instants
from pyhudi.services.cleaning.execute import (
    Cleanings,
    cancel_clean,
    clean,
    table_cleanings,
)
from pyhudi.services.cleaning.result import Cleaned, CleanResult
from pyhudi.services.compaction.run import compact
from pyhudi.services.consumers import register_consumer
from pyhudi.services.repair import repair_table
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.protocol import Folder, Storage
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes

SYNC = bytes(16)
KINDS = {"cow": COW, "mor": NBCC}
every_kind = pytest.mark.parametrize("kind", KINDS)


def written(kind: str, count: int = 6) -> Scene:
    """Upserts of one key more each; on merge on read, compacted after each second."""
    return _written(kind, count).copy()


@cache
def _written(kind: str, count: int) -> Scene:
    scene = Scene(**KINDS[kind])
    for number in range(count):
        scene.table("first").upsert(rows(f"w{number}", "a", f"k{number}", ts=number))
        if kind == "mor" and number % 2:
            compacted(scene)
    return scene


def compacted(scene: Scene) -> None:
    planned = plan_compaction(scene.session("compactor"))
    assert planned is not None
    planned.run().complete()


def cleaned(scene: Scene, policy: CleanPolicy, storage: Storage | None = None) -> CleanResult:
    found = clean(scene.session("cleaner", storage), policy)
    assert isinstance(found, CleanResult)
    return found.or_raise()


def preview(scene: Scene, policy: CleanPolicy) -> CleanPlan:
    found = clean(scene.session("cleaner"), policy, dry_run=True)
    assert isinstance(found, CleanPlan)
    return found


def cleanings(scene: Scene, label: str = "cleaner") -> Cleanings:
    session = scene.session(label)
    return table_cleanings(session)


def data_files(scene: Scene) -> set[str]:
    paths = (s.path for s in scene.storage.list("") if not s.path.startswith(".hoodie/"))
    return {p for p in paths if not p.endswith(".hoodie_partition_metadata")}


def completions(scene: Scene) -> list[str]:
    """Times at which writes became visible."""
    done = scene.completed("commit", "deltacommit", "replacecommit")
    return sorted(name[18:35] for name in done)


def states(scene: Scene) -> dict[str, Content | None]:
    """What the table was at each completion; None where it can no longer be read."""
    return {time: state_at(scene, time) for time in completions(scene)}


def state_at(scene: Scene, time: str) -> Content | None:
    try:
        return scene.content(as_of=time)
    except InvalidRequestError as error:
        if "can no longer be read" not in error.what:
            raise
        return None


def assert_kept(before: dict[str, Content | None], after: dict[str, Content | None]) -> None:
    """Later states are as they were; earlier ones may be refused, and never are other rows."""
    lost = [time for time, content in after.items() if content is None]
    for time, content in before.items():
        if after[time] is not None:
            assert after[time] == content, time
            assert all(time > earlier for earlier in lost)
        else:
            assert after[max(after)] is not None


def plan_on_timeline(scene: Scene, plan: CleanerPlan) -> str:
    """Plan a clean; return its requested time."""
    session = scene.session("planner")
    outcome = session.log.append(Begin(Action.CLEAN, encode_cleaner_plan(plan, SYNC)))
    assert isinstance(outcome, Decided)
    assert outcome.entry.instant is not None
    return outcome.entry.instant


def naming(*uris: str, partition: str = "mo", earliest: str | None = None) -> CleanerPlan:
    retained = earliest and RetainedInstant(earliest, "commit", "COMPLETED")
    files = {partition: tuple(CleanFile(uri, is_bootstrap_base_file=False) for uri in uris)}
    return CleanerPlan(
        retained or None,
        "20260101000000000",
        "KEEP_LATEST_COMMITS",
        file_paths_to_be_deleted_per_partition=files,
        partitions_to_be_deleted=(),
    )


# ---- policies, with rows


@every_kind
@pytest.mark.parametrize(
    "policy",
    [CleanPolicy.commits(1), CleanPolicy.commits(3), CleanPolicy.versions(1), CleanPolicy.hours(1)],
    ids=str,
)
def test_what_is_kept_reads_the_same_and_what_is_not_is_refused(
    kind: str, policy: CleanPolicy
) -> None:
    scene = written(kind)
    before = states(scene)
    told = preview(scene, policy)
    result = cleaned(scene, policy)
    if policy.by == CleanPolicy.hours().by:
        assert result.files == 0  # everything is newer
        return
    assert result.files == told.count > 0
    assert result.bytes == told.bytes
    after = states(scene)
    assert_kept(before, after)
    assert {time for time, content in after.items() if content is None} == {
        time for time in after if time < told.since
    }
    assert len([c for c in after.values() if c is not None]) >= policy.keep
    assert cleaned(scene, policy).files == 0


@every_kind
def test_by_hours_older_states_go(kind: str) -> None:
    scene = written(kind)
    scene.clock.sleep(3 * 3_600_000)
    for number in range(3):
        scene.table("later").upsert(rows(f"l{number}", "a", ts=10 + number))
        if kind == "mor":
            compacted(scene)
    before = states(scene)
    assert cleaned(scene, CleanPolicy.hours(1)).files > 0
    after = states(scene)
    assert_kept(before, after)
    late = [time for time in after if time[8:10] == "03"]
    assert late
    assert all(after[time] is not None for time in late)


def test_a_clean_on_the_timeline_is_what_hudi_writes() -> None:
    scene = written("cow")
    removed = {row["path"] for row in preview(scene, CleanPolicy.commits(2)).going.to_pylist()}
    [done] = cleaned(scene, CleanPolicy.commits(2)).cleans
    requested, completed = done.instant, done.completed
    assert scene.storage.read(f"{TIMELINE}/{requested}.clean.inflight") == b""
    plan = decode_cleaner_plan(scene.storage.read(f"{TIMELINE}/{requested}.clean.requested"), "")
    assert plan.policy == "KEEP_LATEST_COMMITS"
    assert plan.earliest_instant_to_retain is not None
    assert plan.earliest_instant_to_retain.action == "commit"
    path = f"{TIMELINE}/{requested}_{completed}.clean"
    metadata = decode_clean_metadata(scene.storage.read(path), path)
    [partition] = metadata.partition_metadata.values()
    assert set(partition.success_delete_files) == {file_name(path) for path in removed}
    assert partition.delete_path_patterns == partition.success_delete_files
    assert (metadata.total_files_deleted, metadata.version) == (len(removed), 2)
    kept = plan.earliest_instant_to_retain.timestamp
    assert metadata.earliest_commit_to_retain == kept
    assert not removed & data_files(scene)


def test_a_clean_that_finds_nothing_leaves_no_instant() -> None:
    scene = written("cow", 3)
    before = scene.names()
    assert str(cleaned(scene, CleanPolicy())) == "nothing to clean"
    assert scene.names() == before


def test_a_dry_run_reports_and_changes_nothing() -> None:
    scene = written("mor")
    before = {s.path: s.etag for s in scene.storage.list("")}
    told = preview(scene, CleanPolicy.commits(1))
    assert told.count > 0
    assert {s.path: s.etag for s in scene.storage.list("")} == before
    assert f"{told.count} of {told.files.num_rows} files go" in str(told)


def test_what_failed_writers_left_is_rolled_back_first() -> None:
    scene = written("cow")
    broken = FaultyStorage(scene.storage, [Fault(Effect.FAIL, "create", "*/log/*", 2, None)])
    with pytest.raises(HudiError):
        scene.table("dead", broken).upsert(rows("dead", "a", ts=99))
    assert scene.leftovers()
    scene.clock.sleep(10 * 60_000)
    assert cleaned(scene, CleanPolicy.commits(1)).files > 0
    assert scene.leftovers() == []


# ---- what others need


def pending_compaction(scene: Scene) -> PlannedCompaction:
    scene.table("first").upsert(rows("late", "a", ts=50))
    planned = plan_compaction(scene.session("compactor"))
    assert planned is not None
    return planned


ARCHIVING = ArchivePolicy(
    keep_min=1, keep_max=2, delta_commits=0, grace_ms=0, aborted_grace_ms=0
)  # fmt: skip


@pytest.mark.parametrize("is_archived", [False, True])
@pytest.mark.parametrize("policy", [CleanPolicy.versions(1), CleanPolicy.commits(1)], ids=str)
def test_a_pending_compaction_can_be_executed_after_any_clean(
    policy: CleanPolicy, *, is_archived: bool
) -> None:
    """Hudi #19290. A log of the plan is older than its base, and a later base covers them all."""
    scene = written("mor", 5)  # the last one is not compacted yet
    early = scene.hold("early", upsert(rows("early", "e", ts=9)))
    compacted(scene)
    early.finish()
    planned = pending_compaction(scene)
    assert early.requested in planned.log_instants
    assert early.requested < (planned.operations[0].base_instant_time or "") < planned.requested
    rewrite_groups(scene.session("rewriter"))
    scene.table("first").upsert(rows("last", "a", ts=60))
    scene.clock.sleep(3_600_000)
    if is_archived:
        done = archive_instants(scene.session("archivist"), ARCHIVING)
        assert early.requested in done.archived  # type: ignore[union-attr]
    before = scene.content()
    cleaned(scene, policy)
    planned.run().complete()
    assert scene.content() == before
    cleaned(scene, policy)
    assert scene.content() == before


def test_a_pending_clustering_keeps_its_files() -> None:
    scene = written("cow")
    oldest = min(data_files(scene))
    part = ClusteringSlice(f"{scene.storage.uri}/{oldest}", (), "f", "mo")
    plan = RequestedReplaceMetadata("CLUSTER", ClusteringPlan((ClusteringGroup((part,)),)))
    session = scene.session("clusterer")
    data = encode_requested_replace(plan, SYNC)
    assert isinstance(session.log.append(Begin(Action.CLUSTERING, data)), Decided)
    told = preview(scene, CleanPolicy.versions(1))
    assert oldest not in told.going["path"].to_pylist()
    assert any("the pending clustering" in row["reason"] for row in told.files.to_pylist())


@pytest.mark.parametrize("data", [b"", b"Obj\x01 rubbish"])
def test_a_plan_that_cannot_be_read_stops_the_clean(data: bytes) -> None:
    """It may be about any file group."""
    scene = written("mor")
    session = scene.session("broken")
    assert isinstance(session.log.append(Begin(Action.COMPACTION, data)), Decided)
    before = data_files(scene)
    [pending] = [name[:17] for name in scene.pending()]
    with pytest.raises(
        CorruptTableError, match=rf"cannot be read.*cancel_compaction\('{pending}'\)"
    ):
        cleaned(scene, CleanPolicy.versions(1))
    assert data_files(scene) == before
    scene.table("person").services.cancel_compaction(pending)
    assert cleaned(scene, CleanPolicy.versions(1)).files > 0


@every_kind
def test_a_savepoint_keeps_its_files(kind: str) -> None:
    scene = written(kind)
    names = sorted(data_files(scene))[:2]
    assert set(names) <= set(preview(scene, CleanPolicy.versions(1)).going["path"].to_pylist())
    requested = requests(scene)[1]
    saved(scene, requested, *names)
    told = preview(scene, CleanPolicy.versions(1))
    assert told.count > 0
    assert set(names) <= set(told.files["path"].to_pylist()) - set(told.going["path"].to_pylist())
    assert told.savepoints == (requested,)


def test_a_write_under_way_may_read_what_it_began_from() -> None:
    """It rewrites a base file that others have replaced twice since."""
    scene = written("cow")
    held = scene.hold("slow", upsert(rows("slow", "a", ts=77)))
    before = states(scene)
    cleaned(scene, CleanPolicy.commits(1))
    assert_kept(before, states(scene))
    assert scene.content(as_of=max(before)) == before[max(before)]
    held.finish()
    assert scene.content()["a"] == (77, "slow")


def test_a_replaced_group_goes_and_its_rows_are_not_back() -> None:
    scene = written("cow", 2)
    group = FileGroupId("mo", "00000000-0000-0000-0000-000000000000-0")
    service = plan_clustering(scene.session("replacer"), [group])
    schema = scene.session("x").schema.avro()
    service.complete(replacement([group], schema, "DELETE_PARTITION"))
    assert scene.content() == {}
    assert cleaned(scene, CleanPolicy.versions(1)).files == 2
    assert not data_files(scene)
    assert scene.content() == {}
    assert scene.storage.stat("mo/.hoodie_partition_metadata") is not None


# ---- what changes between plan and decision


class Interrupted:
    """Cleans a table on which, between load and decision, something else happens once."""

    def __init__(self, scene: Scene, event: Callable[[], object]) -> None:
        self.session = scene.session("cleaner")
        self.loads = 0
        self._event = event
        self._whole = table_cleanings(self.session)

    def _load(self) -> TableState:
        self.loads += 1
        return self.session.current.load()

    def _times(self, state: TableState) -> CompletionTimes:
        if self.loads == 1:
            self._event()
        return self._whole.planning._times(state)

    def cleanings(self) -> Cleanings:
        session = self.session
        records, kept = CommitRecords(session.loader), self._whole.planning._retention
        return Cleanings(session.log, self._load, self._times, kept, records, session.settings)


def test_a_compaction_planned_since_the_load_has_the_table_loaded_again() -> None:
    """And then its files stay, though a later base has come as well."""
    scene = written("mor")
    planned: list[PlannedCompaction] = []

    def event() -> None:
        planned.append(pending_compaction(scene))
        rewrite_groups(scene.session("rewriter"))

    loaded = Interrupted(scene, event)
    requested = loaded.cleanings().schedule(CleanPolicy.versions(1))
    assert requested is not None
    assert loaded.loads == 2
    assert requested > planned[0].requested
    before = scene.content()
    cleaned(scene, CleanPolicy.versions(1))
    planned[0].run().complete()
    assert scene.content() == before


@every_kind
def test_a_savepoint_made_since_the_load_is_honoured(kind: str) -> None:
    """On merge on read it is one of a compaction, whose time is that of the savepoint."""
    scene = written(kind)
    files = data_files(scene)
    time = next(time for time in requests(scene) if any(time in path for path in files))
    oldest = min(path for path in files if time in path)
    loaded = Interrupted(scene, lambda: saved(scene, time, oldest))
    requested = loaded.cleanings().schedule(CleanPolicy.versions(1))
    assert requested is not None
    plan = decode_cleaner_plan(scene.storage.read(f"{TIMELINE}/{requested}.clean.requested"), "")
    planned = planned_paths(plan, scene.storage.uri, "")
    assert not any(oldest in paths for paths in planned.values())
    assert (plan.extra_metadata or {})["savepointed_timestamps"] == time
    assert loaded.loads == 2


def test_a_clean_is_planned_though_a_write_completes_whenever_the_timeline_is_listed() -> None:
    """That takes longer than a small write, as soon as there are some hundred instants."""
    scene = written("mor")
    table, writes = scene.table("busy"), 0

    class Busy(FaultyStorage):
        def list_folder(self, prefix: str) -> Folder:
            nonlocal writes
            if prefix == TIMELINE:
                writes += 1
                table.upsert(rows("busy", "a", ts=90 + writes))
            return super().list_folder(prefix)

    session = scene.session("cleaner", Busy(scene.storage))
    work = table_cleanings(session)
    requested = work.schedule(CleanPolicy.versions(1))
    assert requested is not None
    assert writes
    before = scene.content()
    assert work.execute(requested).files
    assert scene.content() == before


def test_a_compaction_begun_and_completed_since_the_load_is_noticed_without_a_listing() -> None:
    scene = written("mor")
    scene.table("one").upsert(rows("one", "a", ts=80))

    def event() -> None:
        assert compact(scene.session("compactor")).results

    loaded = Interrupted(scene, event)
    work = loaded.cleanings()
    work.planning._listed_changes = lambda facts: None  # type: ignore[method-assign]
    assert work.schedule(CleanPolicy.versions(1)) is not None
    assert loaded.loads == 2


def test_a_clean_that_another_process_archived_is_no_news_to_one_that_still_knows_it() -> None:
    scene = written("mor")
    session = scene.session("cleaner")
    first = cleaned(scene, CleanPolicy.versions(1)).cleans[0].instant
    # Without another write, the log's last entry would be applied again.
    scene.table("later").upsert(rows("later", "a", ts=80))
    assert first in session.log.refresh().completed
    for name in scene.names():
        if name.startswith(first):
            scene.storage.delete(f"{TIMELINE}/{name}")
    rewrite_groups(scene.session("rewriter"))
    assert not any(name.startswith(first) for name in scene.names())
    assert table_cleanings(session).schedule(CleanPolicy.versions(1)) is not None


@pytest.mark.parametrize("is_complete", [False, True])
def test_another_clean_decided_since_the_load_is_noticed_without_a_listing(
    *, is_complete: bool
) -> None:
    scene = written("mor")

    def event() -> None:
        other = cleanings(scene)
        requested = other.schedule(CleanPolicy.versions(1))
        assert requested is not None
        if is_complete:
            other.execute(requested)

    loaded = Interrupted(scene, event)
    work = loaded.cleanings()
    work.planning._listed_changes = lambda facts: None  # type: ignore[method-assign]
    assert work.schedule(CleanPolicy.versions(1)) is None
    assert loaded.loads == 2
    assert len(scene.completed("clean")) == int(is_complete)


def test_a_consumer_registered_since_the_load_is_honoured() -> None:
    scene = written("cow")
    since = completions(scene)[3]
    loaded = Interrupted(
        scene, lambda: register_consumer(scene.session("consumer"), "slow", since=since)
    )
    requested = loaded.cleanings().schedule(CleanPolicy.versions(1))
    assert requested is not None
    assert loaded.loads == 2
    cleanings(scene).execute(requested)
    table = scene.table("consumer")
    assert table.changes(since=since).to_arrow().num_rows > 0


def test_a_write_that_completes_since_the_load_does_no_harm() -> None:
    scene = written("cow")
    loaded = Interrupted(scene, lambda: scene.table("quick").upsert(rows("quick", "a", "q", ts=90)))
    work = loaded.cleanings()
    requested = work.schedule(CleanPolicy.commits(1))
    assert loaded.loads == 1
    assert requested is not None
    before = states(scene)
    work.execute(requested)
    assert scene.content()["a"] == (90, "quick")
    assert before[max(before)] == scene.content()


def test_a_completed_write_that_was_rolled_back_since_the_load_makes_a_new_plan() -> None:
    """Hudi can do that; then what it had replaced is the latest slice again."""
    scene = Scene(**COW, **SHARED)
    for number in range(4):
        scene.table("first").upsert(rows(f"w{number}", "a", ts=number))
    last = max(n for n in scene.completed("commit"))

    def roll_back() -> None:
        for path in data_files(scene):
            if last[:17] in path:
                scene.storage.delete(path)
        for name in scene.names():
            if name.startswith(last[:17]):
                scene.storage.delete(f"{TIMELINE}/{name}")
        foreign = ForeignWriter(scene)
        requested = foreign.begin("rollback", b"")
        scene.storage.delete(f"{TIMELINE}/{requested}.rollback.requested")
        scene.storage.delete(f"{TIMELINE}/{requested}.rollback.inflight")

    loaded = Interrupted(scene, roll_back)
    work = loaded.cleanings()
    requested = work.schedule(CleanPolicy.versions(1))
    assert requested is not None
    assert loaded.loads == 2
    work.execute(requested)
    assert scene.content()["a"] == (2, "w2")


def test_while_the_table_is_restored_nothing_is_cleaned() -> None:
    """A restore brings old slices back."""
    scene = Scene(**COW, **SHARED)
    for number in range(4):
        scene.table("first").upsert(rows(f"w{number}", "a", ts=number))
    requested = cleanings(scene).schedule(CleanPolicy.versions(1))
    assert requested is not None
    restore = ForeignWriter(scene).begin("restore")
    before = data_files(scene)
    with pytest.raises(ConflictError, match=f"restore of the table is pending.*{restore}"):
        cleaned(scene, CleanPolicy.versions(1))
    for name in scene.names():
        if name.startswith(requested):
            scene.storage.delete(f"{TIMELINE}/{name}")
    with pytest.raises(ConflictError, match=restore):
        cleaned(scene, CleanPolicy.versions(1))
    assert data_files(scene) == before


def test_a_restore_that_is_not_in_the_decision_log_is_seen_before_a_file_is_removed() -> None:
    """Another engine's, on a table without a lock."""
    scene = Scene(**COW)
    for number in range(4):
        scene.table("first").upsert(rows(f"w{number}", "a", ts=number))
    work = cleanings(scene)
    requested = work.schedule(CleanPolicy.versions(1))
    assert requested is not None
    restore = ForeignWriter(scene).begin("restore")
    before = data_files(scene)
    with pytest.raises(ConflictError, match=f"restore of the table is pending.*{restore}"):
        work.execute(requested)
    assert data_files(scene) == before
    scene.storage.delete(f"{TIMELINE}/{requested}.clean.requested")
    with pytest.raises(ConflictError, match=f"restore of the table is pending.*{restore}"):
        work.schedule(CleanPolicy.versions(1))


def test_a_table_on_which_services_never_rest_is_an_error() -> None:
    scene = written("mor")
    session = scene.session("cleaner")
    whole = table_cleanings(session)

    def busy(state: TableState) -> CompletionTimes:
        plan_clustering(scene.session("busy"), [])
        return whole.planning._times(state)

    records = CommitRecords(session.loader)
    work = Cleanings(
        session.log,
        session.current.load,
        busy,
        whole.planning._retention,
        records,
        session.settings,
    )
    with pytest.raises(UnavailableError, match="could not be cleaned"):
        work.schedule(CleanPolicy.versions(1))


# ---- pending cleans


def test_a_pending_clean_is_finished_before_a_new_one_is_planned() -> None:
    scene = written("cow")
    requested = cleanings(scene).schedule(CleanPolicy.commits(3))
    assert requested is not None
    assert f"clean {requested} is still pending" in str(preview(scene, CleanPolicy.commits(1)))
    result = cleaned(scene, CleanPolicy.commits(1))
    assert result.cleans[0].instant == requested
    assert len(result.cleans) == 2
    assert scene.pending() == []
    assert cleaned(scene, CleanPolicy.commits(1)).cleans == ()
    assert preview(scene, CleanPolicy.commits(1)).pending == ()


@pytest.mark.parametrize("then", ["pending", "completed", "archived"])
def test_changes_that_a_pending_clean_is_about_to_take_are_refused_by_name(then: str) -> None:
    """Else a file could go between the plan of a poll and its read."""
    scene = written("cow")
    _, first, *_, before, _ = completions(scene)
    work, consumer = cleanings(scene), scene.session("consumer")
    reader = Reader(consumer.loader)
    reader.plan_changes(consumer.current.load(), "", first, Question())
    requested = work.schedule(CleanPolicy.commits(1))
    assert requested is not None
    state = consumer.current.load()  # then the poll sleeps
    if then != "pending":
        work.execute(requested)
    if then == "archived":
        archive(scene.storage, TIMELINE, "9" * 17)
    with pytest.raises(InvalidRequestError, match=f"the clean {requested} removes"):
        reader.plan_changes(state, "", first, Question())
    plan, _ = reader.plan_changes(state, before, None, Question())
    assert plan.reads


STEPS_OF_EXECUTE = ["_examined", "_make_inflight", "_complete"]


def interrupted(work: Cleanings, step: str, event: Callable[[], object]) -> Cleanings:
    """Whose work is stopped before the step, for something else to happen."""
    whole = getattr(work, step)

    def after(*args: object) -> object:
        setattr(work, step, whole)
        event()
        return whole(*args)

    setattr(work, step, after)
    return work


@pytest.mark.parametrize("step", STEPS_OF_EXECUTE)
def test_two_that_carry_one_plan_out_complete_it_once(step: str) -> None:
    scene = written("cow")
    requested = cleanings(scene).schedule(CleanPolicy.commits(1))
    assert requested is not None
    planned = states(scene)
    seconds: list[Cleaned] = []
    two = cleanings(scene, "two")
    two.pending()
    one = interrupted(cleanings(scene, "one"), step, lambda: seconds.append(two.execute(requested)))
    first = one.execute(requested)
    assert first.completed == seconds[0].completed
    assert seconds[0].files > 0
    assert len(scene.completed("clean")) == 1
    assert states(scene) == planned


def test_a_plan_that_fails_keeps_no_other_from_being_executed() -> None:
    scene = written("cow")
    table = scene.storage.uri
    forged = [
        plan_on_timeline(scene, naming(f"{table}/{named}"))
        for named in (latest_file(scene), "mo/.hoodie_partition_metadata")
    ]
    sound = plan_on_timeline(scene, naming(f"{table}/{min(data_files(scene))}"))
    scene.clock.sleep(10 * 60_000)
    result = clean(scene.session("cleaner"), CleanPolicy.commits(1))
    assert isinstance(result, CleanResult)
    assert [done.instant for done in result.cleans] == [sound]
    assert result.files == 1
    assert len(result.errors) == len(forged)
    again = clean(scene.session("cleaner"), CleanPolicy.commits(1))
    assert str(again) == "no clean was completed"
    with pytest.raises(CorruptTableError, match="in the latest slice") as raised:
        scene.table("person").services.clean()
    assert "not a data file" in raised.value.__notes__[0]
    for requested in forged:
        cancelled(scene, requested)
    assert cleaned(scene, CleanPolicy.commits(1)).files > 0


def test_other_threads_of_the_table_may_write_while_files_are_deleted() -> None:
    scene = written("cow")
    told: list[bool] = []

    def look() -> None:
        told.append(opening.exclusive.acquire(blocking=False))
        if told[-1]:
            opening.exclusive.release()

    class Watched(FaultyStorage):
        def delete_all(self, paths: Sequence[str]) -> None:
            other = threading.Thread(target=look)
            other.start()
            other.join()
            super().delete_all(paths)

    opening = scene.opening("cleaner", Watched(scene.storage))
    assert isinstance(clean(opening.session(), CleanPolicy.commits(1)), CleanResult)
    assert told == [True]


def test_a_clean_that_finds_nothing_reports_where_it_retains_from() -> None:
    scene = written("cow", 4)
    for number in range(4):  # each fills a partition of its own, and replaces nothing
        scene.table("first").upsert(rows(f"n{number}", "x", day=f"d{number}"))
    policy = CleanPolicy.commits(2)
    assert cleaned(scene, policy).kept_from is None
    assert cleaned(scene, policy).kept_from == requests(scene)[-2]
    scene.table("first").upsert(rows("last", "x", day="d9"))
    assert cleaned(scene, policy).kept_from == requests(scene)[-2]
    assert cleaned(scene, CleanPolicy.versions(1)).kept_from is None
    assert cleaned(scene, CleanPolicy.commits(99)).kept_from is None
    scene.table("first").upsert(rows("again", "x", ts=9, day="d9"))
    scene.table("first").upsert(rows("again", "x", ts=10, day="d9"))
    requested = cleanings(scene).schedule(CleanPolicy.commits(1))
    assert requested is not None
    scene.storage.write(heartbeat_path(requested), b"")
    result = cleaned(scene, CleanPolicy.commits(4))
    assert (result.attended, result.kept_from) == (requested, None)


def test_a_clean_that_another_process_executes_is_left_to_it() -> None:
    scene = written("cow")
    requested = cleanings(scene).schedule(CleanPolicy.commits(1))
    assert requested is not None
    scene.storage.write(heartbeat_path(requested), b"")
    result = cleaned(scene, CleanPolicy.commits(1))
    assert result.attended == requested
    assert result.cleans == ()
    assert "another process" in str(result)
    taken = cleanings(scene).run(CleanPolicy.commits(1), take_over=True)
    assert [done.instant for done in taken.cleans] == [requested]


def test_a_clean_of_another_engine_is_finished_once_it_is_old() -> None:
    scene = written("cow")
    oldest = min(data_files(scene))
    plan = naming(f"{scene.storage.uri}/{oldest}", earliest=completions(scene)[1])
    requested = plan_on_timeline(scene, plan)
    assert cleaned(scene, CleanPolicy()).attended == requested
    scene.clock.sleep(10 * 60_000)
    assert cleaned(scene, CleanPolicy()).files == 1
    assert oldest not in data_files(scene)


def test_reads_of_what_a_plan_removes_are_refused_before_it_is_executed() -> None:
    scene = written("cow")
    before = states(scene)
    assert None not in before.values()
    requested = cleanings(scene).schedule(CleanPolicy.commits(1))
    assert requested is not None
    planned = states(scene)
    assert planned[min(planned)] is None
    assert_kept(before, planned)
    cleanings(scene).execute(requested)
    assert states(scene) == planned


def test_a_scan_that_was_made_before_the_clean_meets_an_error() -> None:
    scene = written("cow")
    reader = scene.table("reader")
    scan = reader.read(as_of=completions(scene)[1])
    cleaned(scene, CleanPolicy.versions(1))
    with pytest.raises(UnavailableError, match="is gone"):
        scan.to_arrow()


def test_changes_of_which_files_are_gone_are_refused() -> None:
    scene = written("cow")
    times = completions(scene)
    cleaned(scene, CleanPolicy.versions(1))
    table = scene.table("reader")
    assert table.changes(since=times[-2]).to_arrow().num_rows > 0
    with pytest.raises(InvalidRequestError, match="no longer complete"):
        table.changes(since=times[0], until=times[2])


def test_changes_in_parts_are_refused_if_the_rest_of_their_rows_is_gone(memory: Storage) -> None:
    """A clean of Hudi may take the base file that a long compaction replaced later."""
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
    made = HandmadeTable(memory, schema, ordering="ts")
    old = made.base(10, [{"id": "a", "ts": 1, "v": "x"}])
    made.complete(10, 11, [old])
    part = made.rows_block(40, [{"id": "a", "ts": 2, "v": None}], columns=["id", "ts"])
    made.complete(40, 41, [made.log(40, part)])
    new = made.base(30, [{"id": "a", "ts": 1, "v": "x"}])
    made.complete(30, 95, [new], action="commit")
    for requested in (100, 110):
        made.complete(requested, requested + 1, [])
    table = pyhudi.open_table(memory.uri)
    expected = [{"id": "a", "v": "x"}]

    def changed(until: int) -> list[dict[str, str]]:
        found = table.changes(since=at(20), until=at(until), columns=["id", "v"])
        rows_: list[dict[str, str]] = found.to_arrow().to_pylist()
        return rows_

    assert changed(50) == expected
    memory.delete(old)
    made.clean(120, 121, earliest=at(40), removed=[old])
    with pytest.raises(InvalidRequestError, match="parts of rows"):
        changed(50)
    assert changed(100) == expected
    with pytest.raises(InvalidRequestError, match=f"from {at(95)} on"):
        table.read(as_of=at(60))
    assert table.read(as_of=at(95), columns=["id", "v"]).to_arrow().to_pylist() == expected


def test_cleans_that_were_archived_are_remembered() -> None:
    scene = written("cow")
    cleaned(scene, CleanPolicy.versions(1))
    lost = states(scene)
    scene.table("more").upsert(rows("more", "a", ts=80))
    archive(scene.storage, TIMELINE, max(name[:17] for name in scene.completed("commit")))
    assert not scene.completed("clean")
    for time, content in lost.items():
        if content is None:
            with pytest.raises(InvalidRequestError, match="can no longer be read"):
                scene.content(as_of=time)


def test_a_base_file_that_does_not_count_hides_no_late_one_below_it(memory: Storage) -> None:
    """A write that was rolled back left it, or brought it late."""
    made = by_hudi(memory, late="commit")
    made.base(35, [{"id": "zombie", "ts": 9}])
    table = pyhudi.open_table(memory.uri)
    with pytest.raises(InvalidRequestError, match=f"from {at(95)} on"):
        table.read(as_of=at(60))
    assert table.read(as_of=at(95)).to_arrow()["id"].to_pylist() == ["a"]


def by_hudi(memory: Storage, *, late: str) -> HandmadeTable:
    """A table with a write that took very long; what it took the place of is gone."""
    made = HandmadeTable(memory, pa.schema([("id", pa.string()), ("ts", pa.int64())]))
    old = made.base(10, [{"id": "a", "ts": 1}])
    made.complete(10, 11, [old])
    if late == "replacecommit":
        made.complete(30, 95, [], late, replaced={"": ("f-0",)})
    else:
        new = made.base(30, [{"id": "a", "ts": 2}])
        made.complete(30, 95, [new], late)
    for requested in (40, 50, 100):
        made.complete(requested, requested + 1, [], "commit")
    memory.delete(old)
    made.clean(120, 121, earliest=at(40), removed=[old])
    return made


@pytest.mark.parametrize("is_archived", [False, True])
@pytest.mark.parametrize("late", ["commit", "replacecommit"])
def test_what_hudi_removed_beside_a_late_write_is_refused_also_when_that_is_archived(
    memory: Storage, late: str, *, is_archived: bool
) -> None:
    by_hudi(memory, late=late)
    if is_archived:
        archive(memory, TIMELINE, at(45))
    table = pyhudi.open_table(memory.uri)
    for time in (41, 60, 94):
        with pytest.raises(InvalidRequestError, match=f"from {at(95)} on"):
            table.read(as_of=at(time))
    assert table.read(as_of=at(95)).to_arrow().num_rows == (1 if late == "commit" else 0)


def test_what_hudi_removed_stays_refused_when_it_keeps_more_later(memory: Storage) -> None:
    made = HandmadeTable(memory, pa.schema([("id", pa.string()), ("ts", pa.int64())]))
    for requested in (10, 20, 30, 40, 70, 80):
        made.complete(requested, requested + 1, [made.base(requested, [{"id": "a", "ts": 1}])])
    made.clean(50, 51, earliest=at(40))
    made.clean(60, 61, earliest=at(10), removed=())
    made.clean(90, 91, earliest=at(20), removed=())
    table = pyhudi.open_table(memory.uri)
    for before in (None, 35, 75, 95):
        if before is not None:
            archive(memory, TIMELINE, at(before))
            made.complete(before + 5, before + 6, [], "commit")
        for reader in (table, pyhudi.open_table(memory.uri)):
            with pytest.raises(InvalidRequestError, match=f"from {at(41)} on"):
                reader.read(as_of=at(31))
            assert reader.read(as_of=at(41)).to_arrow().num_rows == 1


# ---- forged plans


def latest_file(scene: Scene) -> str:
    return max(data_files(scene), key=lambda path: path[-30:])


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("{table}/mo/../../x.parquet", "segment"),
        ("file:///etc/passwd", "another store|not a path"),
        ("/elsewhere/f_0-0-0_20260101000000010.parquet", "not a data file"),
        ("{table}/mo/.hoodie_partition_metadata", "not a data file"),
        ("{table}/{latest}", "in the latest slice"),
    ],
)
def test_a_forged_plan_is_refused_and_stays_pending(uri: str, message: str) -> None:
    scene = written("cow")
    before = data_files(scene)
    named = uri.format(table=scene.storage.uri.rstrip("/"), latest=latest_file(scene))
    oldest = f"{scene.storage.uri}/{min(before)}"
    requested = plan_on_timeline(scene, naming(oldest, named))
    scene.clock.sleep(10 * 60_000)
    for _ in range(2):
        with pytest.raises(CorruptTableError, match=message):
            cleaned(scene, CleanPolicy.commits(1))
    assert data_files(scene) == before
    assert any(name.startswith(requested) for name in scene.pending())


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("what", ["pending write", "pending compaction"])
def test_a_plan_that_names_what_others_need_is_refused(what: str, *, is_old: bool) -> None:
    """Also by a process that looked at the table before the file was there."""
    scene = written("mor")
    held: HeldWrite | None = None
    old = cleanings(scene, "old")
    assert old.schedule(CleanPolicy.commits(99)) is None
    if what == "pending write":
        held = scene.hold("slow", upsert(rows("slow", "a", ts=77)))
        [needed] = [path for path in data_files(scene) if held.requested in path]
    else:
        needed = min(path for path in data_files(scene) if path.endswith(".parquet"))
    if what == "pending compaction":
        planned = pending_compaction(scene)
        needed = next(o.base_file_path or "" for o in planned.operations)
        scene.table("first").upsert(rows("more", "a", ts=99))
    plan_on_timeline(scene, naming(f"{scene.storage.uri}/{needed}"))
    scene.clock.sleep(60_001 * 2)
    if held is not None:
        scene.storage.write(heartbeat_path(held.requested), b"")
    work = old if is_old else cleanings(scene, "new")
    with pytest.raises(CorruptTableError, match=r"needed.*cancel_clean"):
        work.run(CleanPolicy.commits(1)).or_raise()
    assert needed in data_files(scene)
    if held is not None:
        held.finish()
        assert scene.content()["a"] == (77, "slow")


def test_a_plan_that_names_a_file_which_a_pending_write_has_yet_to_make_is_refused() -> None:
    scene = written("mor")
    held = scene.hold("slow", upsert(rows("slow", "a", ts=77)))
    [needed] = [path for path in data_files(scene) if held.requested in path]
    data = scene.storage.read(needed)
    scene.storage.delete(needed)
    plan_on_timeline(scene, naming(f"{scene.storage.uri}/{needed}"))
    scene.clock.sleep(60_001 * 2)
    scene.storage.write(heartbeat_path(held.requested), b"")
    with pytest.raises(CorruptTableError, match=f"of the pending write {held.requested}"):
        cleaned(scene, CleanPolicy.commits(1))
    scene.storage.write(needed, data)
    held.finish()


def test_an_empty_plan_is_a_clean_of_nothing() -> None:
    scene = written("cow")
    session = scene.session("planner")
    assert isinstance(session.log.append(Begin(Action.CLEAN, b"")), Decided)
    assert scene.content(as_of=completions(scene)[1])  # no process executes it
    assert cleaned(scene, CleanPolicy()).attended is not None  # its writer may still fill it
    scene.clock.sleep(10 * 60_000)
    empty, ours = cleaned(scene, CleanPolicy.commits(1)).cleans
    assert (empty.files, empty.spared) == (0, ())
    assert ours.files > 0


def saved(scene: Scene, requested: str, *paths: str) -> str:
    """Put a savepoint of these files on the timeline; its path."""
    names = tuple(path.rpartition("/")[2] for path in paths)
    metadata = SavepointMetadata("me", 1, "", {"mo": SavepointPartition("mo", names)})
    path = f"{TIMELINE}/{requested}_{max(completions(scene))}.savepoint"
    scene.storage.write(path, encode_savepoint_metadata(metadata, SYNC))
    return path


def requests(scene: Scene) -> list[str]:
    """Of completed commits, which on merge on read are compactions."""
    return sorted(name[:17] for name in scene.completed("commit"))


def test_a_plan_that_met_a_later_savepoint_skips_its_files() -> None:
    scene = written("cow")
    requested = cleanings(scene).schedule(CleanPolicy.commits(1))
    assert requested is not None
    oldest = min(data_files(scene))
    saved(scene, requests(scene)[0], oldest)
    done = cleanings(scene).execute(requested)
    assert done.spared == (oldest,)
    assert done.files > 0
    assert oldest in data_files(scene)
    assert not cleanings(scene).pending()


def test_a_plan_skips_what_a_savepoint_that_is_being_made_may_need() -> None:
    """It does not name its files yet."""
    scene = written("cow")
    requested = cleanings(scene).schedule(CleanPolicy.commits(1))
    assert requested is not None
    kept = requests(scene)[2]
    scene.storage.create(f"{TIMELINE}/{kept}.savepoint.inflight", b"")
    done = cleanings(scene).execute(requested)
    assert any(kept in path for path in done.spared)
    assert any(kept in path for path in data_files(scene))


def test_while_a_clean_is_pending_no_other_is_planned() -> None:
    scene = written("cow")
    assert cleanings(scene).schedule(CleanPolicy.commits(3)) is not None
    assert cleanings(scene, "other").schedule(CleanPolicy.commits(1)) is None


# ---- processes that live for long


def hourly(count: int = 8) -> tuple[Scene, Cleanings]:
    """A table that is written every hour, and a process that has looked at it at the end."""
    scene = Scene(**COW)
    for number in range(count):
        scene.table("first").upsert(rows(f"w{number}", "a", ts=number))
        scene.clock.sleep(3_600_000)
    work = cleanings(scene, "old")
    assert work.schedule(CleanPolicy.commits(count + 1)) is None
    return scene, work


def test_a_savepoint_of_an_old_commit_is_seen_by_a_process_that_lives_long() -> None:
    scene, work = hourly()
    oldest = sorted(data_files(scene))[2]
    path = saved(scene, requests(scene)[2], oldest)
    assert work.run(CleanPolicy.commits(2)).files > 0
    assert oldest in data_files(scene)
    scene.storage.delete(path)
    assert work.run(CleanPolicy.commits(2)).files == 1
    assert oldest not in data_files(scene)


def test_a_plan_skips_files_of_an_old_savepoint_also_in_a_long_lived_process() -> None:
    scene, work = hourly()
    oldest = sorted(data_files(scene))[2]
    requested = cleanings(scene, "planner").schedule(CleanPolicy.commits(2))
    assert requested is not None
    saved(scene, requests(scene)[2], oldest)
    assert work.execute(requested).spared == (oldest,)
    assert oldest in data_files(scene)


# ---- inflight files that come too late


def archived_clean(scene: Scene) -> str:
    """A clean that is complete, and in the archive with all before it."""
    [done] = cleaned(scene, CleanPolicy.commits(2)).cleans
    scene.table("more").upsert(rows("more", "a", ts=80))
    archive(scene.storage, TIMELINE, requests(scene)[-1])
    assert not any(name.startswith(done.instant) for name in scene.names())
    return done.instant


def test_an_inflight_file_without_a_plan_stops_no_clean_and_is_swept_up() -> None:
    scene = written("cow")
    requested = archived_clean(scene)
    path = f"{TIMELINE}/{requested}.clean.inflight"
    scene.storage.create(path, b"")
    assert cleanings(scene).pending() == []
    assert scene.content(as_of=max(completions(scene)))
    register_consumer(scene.session("consumer"), "new")
    scene.table("more").upsert(rows("again", "a", ts=81))
    assert isinstance(cleaned(scene, CleanPolicy.versions(1)), CleanResult)
    assert path in repair_table(scene.session("repairer"), 0).removed
    assert scene.storage.stat(path) is None


def test_an_inflight_compaction_without_a_plan_stops_no_clean_and_is_swept_up() -> None:
    scene = written("mor")
    late = f"{TIMELINE}/{completions(scene)[0]}.compaction.inflight"
    scene.storage.create(late, b"")
    assert cleaned(scene, CleanPolicy.versions(1)).attended is None
    assert late in repair_table(scene.session("repairer"), 0).removed
    assert scene.storage.stat(late) is None


def test_an_executor_that_slept_until_the_clean_was_archived_does_not_bring_it_back() -> None:
    scene = written("cow")
    session = scene.session("slow")
    whole = table_cleanings(session)
    requested = whole.schedule(CleanPolicy.commits(2))
    assert requested is not None

    def sleeping(state: TableState) -> CompletionTimes:
        if whole._has_plan(requested):
            scene.clock.sleep(10 * 60_000)
            cleaned(scene, CleanPolicy.commits(2))
            scene.table("more").upsert(rows("more", "a", ts=80))
            archive(scene.storage, TIMELINE, requests(scene)[-1])
        return whole.planning._times(state)

    records = CommitRecords(session.loader)
    work = Cleanings(
        session.log,
        session.current.load,
        sleeping,
        whole.planning._retention,
        records,
        session.settings,
    )
    assert work.execute(requested).files == 0
    assert not any(name.startswith(requested) for name in scene.names())


# ---- cancelling


def cancelled(scene: Scene, instant: str) -> Cleaned:
    return cancel_clean(scene.session("person"), instant)


def test_a_plan_that_cannot_be_executed_can_be_cancelled() -> None:
    scene = written("cow")
    before = states(scene)
    outside = "/elsewhere/f_0-0-0_20260101000000010.parquet"
    requested = plan_on_timeline(scene, naming(outside, earliest="20990101000000000"))
    with pytest.raises(ConflictError, match="seems to execute it"):
        cancelled(scene, requested)
    scene.clock.sleep(10 * 60_000)
    with pytest.raises(CorruptTableError, match="cancel_clean"):
        cleaned(scene, CleanPolicy.commits(1))
    assert cancelled(scene, requested).files == 0
    assert states(scene) == before  # nothing was removed, and nothing is refused
    assert cleaned(scene, CleanPolicy.commits(1)).files > 0
    with pytest.raises(InvalidRequestError, match="no pending clean"):
        cancelled(scene, requested)


def test_a_plan_that_cannot_be_read_can_be_cancelled() -> None:
    scene = written("cow")
    session = scene.session("planner")
    outcome = session.log.append(Begin(Action.CLEAN, b"Obj\x01 rubbish"))
    assert isinstance(outcome, Decided)
    with pytest.raises(CorruptTableError):
        cleaned(scene, CleanPolicy.commits(1))
    assert cancelled(scene, outcome.entry.instant or "").files == 0
    assert cleaned(scene, CleanPolicy.commits(1)).files > 0


def test_what_was_removed_before_a_clean_is_cancelled_stays_refused() -> None:
    scene = written("cow")
    requested = cleanings(scene).schedule(CleanPolicy.commits(2))
    assert requested is not None
    lost = states(scene)
    scene.storage.create(f"{TIMELINE}/{requested}.clean.inflight", b"")
    scene.storage.delete(min(data_files(scene)))  # and there it died
    scene.clock.sleep(10 * 60_000)
    cancelled(scene, requested)
    assert states(scene) == lost
    assert None in lost.values()


@pytest.mark.parametrize("step", STEPS_OF_EXECUTE)
@pytest.mark.parametrize("dies", [False, True])
def test_what_is_removed_while_a_clean_is_cancelled_stays_refused(
    step: str, monkeypatch: pytest.MonkeyPatch, *, dies: bool
) -> None:
    """The canceller saw no heartbeat, and then comes an executor that may not even end."""
    scene = written("cow")
    before = states(scene)
    requested = cleanings(scene).schedule(CleanPolicy.commits(1))
    assert requested is not None
    planned = states(scene)
    scene.clock.sleep(10 * 60_000)
    service, person = cleanings(scene, "service"), cleanings(scene, "person")

    def execute() -> None:
        if dies:
            interrupted(service, "_complete", fail)
        with suppress(UnavailableError):
            service.execute(requested)

    if step == "_examined":  # the executor has begun, and the person comes then
        interrupted(service, "_make_inflight", lambda: person.cancel(requested))
        monkeypatch.setattr(scene.storage, "write", ignoring_heartbeats(scene.storage))
        execute()
    else:
        interrupted(person, step, execute)
        person.cancel(requested)
    assert scene.pending() == []
    assert states(scene) == planned
    assert_kept(before, planned)


def fail() -> None:
    raise UnavailableError("it died", why="", next_step="")


def ignoring_heartbeats(storage: Storage) -> Callable[[str, bytes], str]:
    """Writes as of a process that freezes before its heartbeat arrives."""
    write = storage.write
    return lambda path, data: "" if ".heartbeat" in path else write(path, data)


def test_a_plan_that_could_not_be_loaded_is_not_cancelled() -> None:
    """Else a failure of storage would be reported as a clean that removed nothing."""
    scene = written("cow")
    requested = cleanings(scene).schedule(CleanPolicy.commits(2))
    assert requested is not None
    scene.clock.sleep(10 * 60_000)
    fault = Fault(Effect.FAIL, "read", "*.clean.requested", nth=2, times=None)
    person = scene.session("person", FaultyStorage(scene.storage, [fault]))
    with pytest.raises(UnavailableError):
        cancel_clean(person, requested)
    assert scene.pending()


@pytest.mark.parametrize("is_executed", [False, True])
def test_a_forged_bound_refuses_nothing_that_comes_later(*, is_executed: bool) -> None:
    scene = written("cow")
    files = sorted(data_files(scene))
    named = files[0] if is_executed else latest_file(scene)
    plan = naming(f"{scene.storage.uri}/{named}", earliest="20990101000000000")
    far = {"pyhudi.kept_since": "20990101000000000"}
    plan = replace(plan, last_completed_commit_timestamp="20990101000000000", extra_metadata=far)
    requested = plan_on_timeline(scene, plan)
    newest = completions(scene)[-1]
    scene.clock.sleep(10 * 60_000)
    if is_executed:
        assert cleanings(scene).execute(requested).files == 1
    else:
        cancelled(scene, requested)
    for number in range(2):
        scene.table("later").upsert(rows(f"l{number}", "a", ts=90 + number))
    later = {time: content for time, content in states(scene).items() if time >= newest}
    assert [content and content["a"] for content in later.values()] == [
        (5, "w5"),
        (90, "l0"),
        (91, "l1"),
    ]
    requested_times = requests(scene)
    table = scene.table("reader")
    for time in requested_times[-3:]:
        assert table.read(as_of=pyhudi.RequestedTime(time)).to_arrow().num_rows > 0


# ---- cleans of a Hudi that died


@pytest.mark.parametrize("has_plan", [True, False])
def test_an_empty_completed_clean_stops_no_reader_and_its_plan_has_the_bound(
    *, has_plan: bool
) -> None:
    scene = written("cow")
    before = states(scene)
    reader, writer = scene.table("reader"), scene.table("writer")
    assert scene.content(reader)
    [done] = cleaned(scene, CleanPolicy.commits(3)).cleans
    told = states(scene)
    path = f"{TIMELINE}/{done.instant}_{done.completed}.clean"
    scene.storage.write(path, b"")
    if not has_plan:
        scene.storage.delete(f"{TIMELINE}/{done.instant}.clean.requested")
    assert scene.content(reader) == before[max(before)]
    writer.upsert(rows("x", "a", ts=90))
    assert scene.content(reader)["a"] == scene.content()["a"] == (90, "x")
    for is_archived in (False, True):
        if is_archived:
            archive(scene.storage, TIMELINE, requests(scene)[-1])
            assert not scene.completed("clean")
        if has_plan:
            assert {time: state_at(scene, time) for time in told} == told
        assert scene.content(as_of=max(told)) == told[max(told)]
    register_consumer(scene.session("consumer"), "new")
    scene.table("writer").upsert(rows("y", "a", ts=91))
    assert cleaned(scene, CleanPolicy.versions(1)).files > 0


def test_files_of_a_consumer_that_came_after_the_plan_are_skipped() -> None:
    """It is refused as too late, unless it was there before the first file was removed."""
    scene = written("cow")
    since = completions(scene)[1]
    requested = cleanings(scene).schedule(CleanPolicy.versions(1))
    assert requested is not None
    with pytest.raises(InvalidRequestError, match="cannot be registered"):
        register_consumer(scene.session("consumer"), "late", since=since)
    consumer = Consumer("late", since, 0, 0)
    scene.storage.write(consumer_path("late"), encode_consumer(consumer))
    done = cleanings(scene).execute(requested)
    assert done.spared
    assert "skipped (still needed)" in str(done)
    assert set(done.spared) <= data_files(scene)
    assert scene.table("consumer").changes(since=since).to_arrow().num_rows > 0


# ---- faults


def deaths(count: int) -> Iterator[tuple[str, list[Fault]]]:
    for nth in range(1, count + 1):
        yield f"before {nth}", [Fault(Effect.FAIL, nth=nth, times=None)]
        lost = Fault(Effect.LOSE_REPLY, nth=nth)
        yield f"after {nth}", [lost, Fault(Effect.FAIL, nth=nth + 1, times=None)]


@pytest.mark.parametrize(("kind", "is_large"), [("mor", False), ("cow", True)])
def test_a_clean_that_dies_at_any_point_is_finished_by_the_next(
    kind: str, monkeypatch: pytest.MonkeyPatch, *, is_large: bool
) -> None:
    """Large plans are staged beside the log."""
    if is_large:
        monkeypatch.setattr("pyhudi.commit.proposals.INLINE_BYTES_MAX", 16)
    policy = CleanPolicy.commits(1)
    scene = written(kind, 4)
    before = states(scene)
    whole = written(kind, 4)
    counting = FaultyStorage(whole.storage)
    cleaned(whole, policy, counting)
    expected = data_files(whole)
    assert expected < data_files(scene)
    count = len(counting.trace)
    assert count > 20
    for when, faults in deaths(count):
        scene = written(kind, 4)
        try:
            died = cleaned(scene, policy, FaultyStorage(scene.storage, faults))
        except HudiError:
            died = None
        try:
            assert_kept(before, states(scene))
            scene.clock.sleep(10 * 60_000)
            cleaned(scene, policy)
            assert data_files(scene) == expected
            assert scene.pending() == []
            assert len(scene.completed("clean")) == 1
            assert_kept(before, states(scene))
            scene.table("repairer").services.repair(grace_minutes=0)
            left = [s.path for s in scene.storage.list(".hoodie/.pyhudi/staged")]
            left += [s.path for s in scene.storage.list(".hoodie/.heartbeat")]
            assert left == []
        except BaseException as error:
            error.add_note(f"{kind}, death {when} of {count} operations, first gave {died}")
            raise


def test_storage_that_refuses_a_delete_leaves_the_plan_pending() -> None:
    scene = written("cow")
    fault = Fault(Effect.FAIL, "delete", "mo/*", nth=2, times=None)
    with pytest.raises(UnavailableError):
        cleaned(scene, CleanPolicy.commits(1), FaultyStorage(scene.storage, [fault]))
    assert len(scene.pending()) == 2  # the plan, and its inflight file
    result = cleaned(scene, CleanPolicy.commits(1))  # at once: the heartbeat went with the error
    assert [len(result.cleans), scene.pending()] == [1, []]


# ---- any history


STEPS = st.lists(
    st.sampled_from(
        ["upsert", "upsert", "delete", "hold", "finish", "plan", "run", "complete", "clean"]
    ),
    min_size=6,
    max_size=14,
)


@settings(deadline=None, max_examples=15)
@given(
    steps=STEPS,
    policy=st.sampled_from([CleanPolicy.commits(1), CleanPolicy.commits(3)]),
    by_versions=st.booleans(),
)
def test_after_any_history_what_is_kept_reads_the_same(
    steps: list[str], policy: CleanPolicy, *, by_versions: bool
) -> None:
    scene = begun_scene(rows("first", "a", "b", "c"), **NBCC)
    policy = CleanPolicy.versions(policy.keep) if by_versions else policy
    played = Played(scene, policy)
    for number, step in enumerate(steps):
        played.play(step, number)
    played.play("clean", 99)
    played.end()


class Played:
    """Writers, a compactor and a cleaner, each moved by the rule that runs."""

    def __init__(self, scene: Scene, policy: CleanPolicy) -> None:
        self._scene = scene
        self._policy = policy
        self._held: list[HeldWrite] = []
        self._planned: PlannedCompaction | None = None
        self._seen: dict[str, Content] = {}

    def play(self, step: str, number: int) -> None:
        scene = self._scene
        given = rows(f"w{number}", "a", f"k{number % 3}", ts=number)
        if step == "upsert":
            scene.table(f"u{number}").upsert(given)
        elif step == "delete":
            scene.table(f"d{number}").delete(pa.table({"id": ["b"], "day": ["mo"]}))
        elif step == "hold":
            self._held.append(scene.hold(f"h{number}", upsert(given)))
        elif step == "finish" and self._held:
            self._held.pop(0).finish()
        elif step == "plan" and self._planned is None:
            self._planned = plan_compaction(scene.session(f"c{number}"))
        elif step == "run" and self._planned is not None:
            self._planned.run()
        elif step == "complete" and self._planned is not None:
            self._planned.run().complete()
            self._planned = None
        elif step == "clean":
            cleaned(scene, self._policy)
        self._look()

    def _look(self) -> None:
        """Each state as it was seen when it was new, as long as it can be read."""
        found = states(self._scene)
        kept = [time for time, content in found.items() if content is not None]
        assert kept
        for time, content in found.items():
            if content is not None:
                assert self._seen.setdefault(time, content) == content
            else:
                assert time < min(kept)

    def end(self) -> None:
        for held in self._held:
            held.finish()
        self._look()


def test_pending_is_what_the_timeline_shows() -> None:
    scene = written("cow")
    work = cleanings(scene)
    assert work.pending() == []
    requested = work.schedule(CleanPolicy.commits(1))
    assert requested is not None
    assert work.pending() == [Instant(InstantTime(requested), Action.CLEAN, State.REQUESTED)]
