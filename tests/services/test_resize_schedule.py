"""Plans of resizes: made beside writers and other services, and begun only if they are right.

The tables have simple buckets, and a ring whose nodes have their file ids: what is planned does not
depend on how keys are hashed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from counted_storage import CountedStorage
from many_writers.scene import NBCC, OCC, SHARED, Scene, begun_scene, rows
from many_writers.services_by_hand import archive, begin_service, plan_clustering, replacement
from memory_tables import TIMELINE, MemoryTable
from pyhudi.commit.transaction import Transaction
from pyhudi.errors import ConflictError, CorruptTableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import ConsistentBuckets, SimpleBuckets
from pyhudi.format.table.ring_file import FIRST_INSTANT, RING_MAX, Ring, RingNode
from pyhudi.format.timeline.instant import Action, InstantTime
from pyhudi.format.timeline.resize_plan import ResizePlan, decode_resize_plan
from pyhudi.index.consistent_bucket import bucket_ids
from pyhudi.index.simple_bucket import file_id
from pyhudi.plan.compaction.policy import CompactionPolicy
from pyhudi.plan.resizing.choose import RingLimits
from pyhudi.plan.resizing.policy import MIB, ResizePolicy
from pyhudi.plan.resizing.rings import rings_after
from pyhudi.read.lost_files import CommitRecords
from pyhudi.read.plan import Reader
from pyhudi.services.compaction.run import compact, compactions
from pyhudi.services.resizing import schedule
from pyhudi.services.resizing.schedule import ResizeDraft, ResizePlanning, RingFacts
from pyhudi.session.session import TableSession
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.instant_time import clock_time, shifted_time
from pyhudi.timeline.live import LiveTimeline

BUCKETS = 4
NODES = [RING_MAX // BUCKETS * (number + 1) for number in range(BUCKETS - 1)] + [RING_MAX]
pytestmark = pytest.mark.filterwarnings("ignore:target_bytes")

LIMITS = RingLimits(1, 64)
#: Every bucket is small.
MERGES = ResizePolicy(target_bytes=MIB, rest_seconds=0)


def splits() -> ResizePolicy:
    """A policy by which every bucket is large."""
    return ResizePolicy(target_bytes=4096, split_above=1, merge_below=0, rest_seconds=0)


def fits() -> ResizePolicy:
    """A policy by which every bucket is as it should be."""
    return ResizePolicy(target_bytes=8192, split_above=4, merge_below=0, rest_seconds=0)


def ring(partition: str, instant: str = FIRST_INSTANT, sequence: int = 0) -> Ring:
    nodes = (RingNode(at, file_id(n).removesuffix("-0")) for n, at in enumerate(NODES))
    return Ring(partition, InstantTime(instant), BUCKETS, sequence, tuple(nodes))


def scene_of(writes: int = 3, **definition: Any) -> Scene:
    """Two partitions; each write adds a log to each of four buckets."""
    written = [
        rows(f"w{n}", *(f"{day}{key}" for key in range(200)), ts=n, day=day)
        for n in range(writes)
        for day in ("mo", "tu")
    ]
    given = {"buckets": SimpleBuckets(BUCKETS), **(definition or NBCC)}
    return begun_scene(*written, **given)


def planning(
    scene: Scene,
    rings: Callable[[str], Ring | None] = ring,
    storage: Storage | None = None,
    limits: RingLimits = LIMITS,
) -> ResizePlanning:
    session = scene.session("planner", storage)
    return planning_of(session, rings, limits)


def planning_of(
    session: TableSession, rings: Callable[[str], Ring | None], limits: RingLimits
) -> ResizePlanning:
    return ResizePlanning(
        session.log,
        RingFacts(rings, limits, ("id",)),
        load=session.current.load,
        load_whole=partial(session.current.load, is_whole=True),
        advance=session.loader.advanced,
        times=Reader(session.loader).completion_times,
        records=CommitRecords(session.loader),
        now=lambda: clock_time(session.world.now_ms(), session.config.zone),
    )


def plan_of(scene: Scene, requested: str) -> ResizePlan:
    path = f"{TIMELINE}/{requested}.clustering.requested"
    plan = decode_resize_plan(scene.storage.read(path), path)
    assert plan is not None
    return plan


def latest_files(scene: Scene) -> dict[tuple[str, str], list[str]]:
    """The files of the latest slices, as any process sees them."""
    found = scene.table("looker").inspect.file_slices().to_pylist()
    return {
        (row["partition"], row["file_id"]): [
            *([row["base_file"]] if row["base_file"] else []),
            *row["log_files"],
        ]
        for row in found
        if row["latest"]
    }


def assert_latest(scene: Scene, plan: ResizePlan) -> None:
    files = latest_files(scene)
    for change in plan.groups:
        for part in change.slices:
            assert list(part.files) == files[change.partition, part.file_id]


# -- one plan


@pytest.mark.parametrize("definition", [NBCC, OCC], ids=["nbcc", "occ"])
@pytest.mark.parametrize("is_split", [False, True], ids=["merges", "splits"])
def test_a_plan_is_begun_with_the_latest_slices_and_children_that_fit_the_rings(
    definition: dict[str, Any], is_split: bool
) -> None:
    scene = scene_of(**definition)
    before = scene.content()
    preview, requested = planning(scene).schedule(splits() if is_split else MERGES)
    assert requested is not None
    assert scene.pending() == [f"{requested}.clustering.requested"]
    plan = plan_of(scene, requested)
    assert_latest(scene, plan)
    assert [change.partition for change in preview.changes] == [g.partition for g in plan.groups]
    after = rings_after(plan, {p: ring(p) for p in ("mo", "tu")}, InstantTime(requested))
    assert {p: len(made.nodes) > BUCKETS for p, made in after.items()} == dict.fromkeys(
        ("mo", "tu"), is_split
    )
    assert len(plan.made) == sum(len(group.made) for group in plan.groups)
    assert scene.content() == before


def test_a_preview_changes_nothing_and_says_what_a_plan_would_do() -> None:
    scene = scene_of()
    before = {stat.path: scene.storage.read(stat.path) for stat in scene.storage.list("")}
    told = str(planning(scene).preview(MERGES))
    assert told.startswith("8 buckets become 2, in 2 partitions")
    assert {stat.path: scene.storage.read(stat.path) for stat in scene.storage.list("")} == before


def test_nothing_is_begun_where_every_bucket_is_as_it_should_be() -> None:
    scene = scene_of()
    preview, requested = planning(scene).schedule(fits())
    assert requested is None
    assert preview.is_empty
    assert scene.pending() == []


def test_an_even_split_of_real_keys_gives_children_of_nearly_equal_size() -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    memory = MemoryTable(schema, ordering="n", buckets=ConsistentBuckets(2))
    for load in range(3):
        keys = [f"k{load}_{number}" for number in range(4000)]
        memory.table().upsert(pa.table({"id": keys, "n": [1] * len(keys)}, schema=schema))
    session = memory.session("planner")
    policy = ResizePolicy(target_bytes=8192, split="even", rest_seconds=0)
    work = planning_of(session, session.groups.ring, LIMITS)
    _, requested = work.schedule(policy)
    assert requested is not None
    path = f"{TIMELINE}/{requested}.clustering.requested"
    plan = decode_resize_plan(memory.storage.read(path), path)
    before = session.groups.ring("")
    assert plan is not None
    assert before is not None
    after = rings_after(plan, {"": before}, InstantTime(requested))[""]
    assert len(after.nodes) > 6
    found = memory.table().read(columns=["id"]).to_arrow().column("id").combine_chunks()
    counts = np.bincount(np.asarray(bucket_ids(found, ["id"], after)))
    assert counts.sum() == 12_000
    assert counts.max() <= 1.2 * 12_000 / len(after.nodes)


def test_limits_of_the_table_and_of_the_plan_hold() -> None:
    scene = scene_of()
    few = ResizePolicy(target_bytes=MIB, partitions_max=1)
    preview, requested = planning(scene, limits=RingLimits(3, 64)).schedule(few)
    assert requested is not None
    (change,) = preview.changes
    assert (change.partition, len(change.nodes)) == ("mo", 2)
    assert preview.later == 1
    assert "left to the next plan: 1 other partition" in str(preview)


def test_rings_are_loaded_only_where_sizes_ask_for_it_and_until_the_plan_is_full() -> None:
    asked: list[str] = []

    def noted(partition: str) -> Ring:
        asked.append(partition)
        return ring(partition)

    scene = scene_of()
    planning(scene, noted).preview(fits())
    assert asked == []
    planning(scene, noted).preview(ResizePolicy(target_bytes=MIB, partitions_max=1))
    assert asked == ["mo"]


def test_buckets_that_one_plan_cannot_sample_are_left_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedule, "SAMPLES_MAX", 3)
    scene = scene_of()
    one = ResizePolicy(target_bytes=4096, split_above=1, merge_below=0, buckets_max=2)
    preview = planning(scene).preview(one)
    assert len(preview.changes) == 2

    def damaged(*_: object) -> None:
        raise CorruptTableError("it cannot be read", why="it is damaged", next_step="Restore it")

    monkeypatch.setattr(schedule, "sample_keys", damaged)
    preview = planning(scene).preview(one)
    assert preview.is_empty
    assert "it cannot be read (it is damaged)" in str(preview)
    assert "the plan has sampled enough buckets without it" in str(preview)


def test_a_partition_without_a_ring_is_left_alone() -> None:
    scene = scene_of()
    preview = planning(scene, lambda path: ring(path) if path == "tu" else None).preview(MERGES)
    assert [change.partition for change in preview.changes] == ["tu"]
    assert {left.group.partition: left.why for left in preview.left} == {
        "mo": "its partition has no ring"
    }


def test_planning_makes_the_requests_of_a_compaction_and_those_for_samples() -> None:
    scene = scene_of()
    counts: dict[str, Counter[str]] = {}
    for name in ("compaction", "merge", "split"):
        storage = CountedStorage(scene.copy().storage)
        with storage.counting() as counts[name]:
            if name == "compaction":
                compactions(scene.session("planner", storage.as_storage())).preview()
            else:
                work = planning(scene, storage=storage.as_storage())
                work.preview(MERGES if name == "merge" else splits())
    assert counts["merge"] == counts["compaction"]
    more = counts["split"] - counts["compaction"]
    assert more.keys() == {"read", "open"}  # of data files


# -- beside writers and other plans


def while_planning(work: ResizePlanning, happens: Callable[[], object]) -> None:
    """Let something happen between the plan and its entry, once."""
    drafted = work.drafted
    left = [happens]

    def slow(*args: Any, **how: Any) -> ResizeDraft:
        draft = drafted(*args, **how)
        if left:
            left.pop()()
        return draft

    work.drafted = slow  # type: ignore[method-assign]


def test_a_write_that_completes_while_a_plan_is_made_is_in_it() -> None:
    scene = scene_of()
    work = planning(scene)
    while_planning(work, lambda: scene.table("late").upsert(rows("late", "mo0", "mo1", ts=99)))
    _, requested = work.schedule(MERGES)
    assert requested is not None
    plan = plan_of(scene, requested)
    assert_latest(scene, plan)
    done = max(name[:17] for name in scene.completed("deltacommit"))
    assert any(done in name for part in plan.groups[0].slices for name in part.log_files)


def test_a_plan_is_begun_though_writes_complete_in_every_round() -> None:
    scene = scene_of()
    work = planning(scene)
    adjusted, count = work.adjusted, [0]

    def slow(draft: ResizeDraft, live: LiveTimeline) -> ResizeDraft:
        draft = adjusted(draft, live)
        if count[0] < 5:
            count[0] += 1
            scene.table("late").upsert(rows("late", "mo0", ts=100 + count[0]))
        return draft

    while_planning(work, lambda: scene.table("late").upsert(rows("late", "mo0", ts=99)))
    work.adjusted = slow  # type: ignore[method-assign]
    _, requested = work.schedule(MERGES)
    assert requested is not None
    assert count == [5]
    assert_latest(scene, plan_of(scene, requested))


def test_a_compaction_that_begins_meanwhile_takes_its_groups_out_of_the_plan() -> None:
    scene = scene_of()
    work = planning(scene)
    while_planning(work, lambda: plan_compaction_of(scene, "tu"))
    preview, requested = work.schedule(MERGES)
    assert requested is not None
    assert {group.partition for group in plan_of(scene, requested).groups} == {"mo"}
    assert "the pending plan" in str(preview)


def plan_compaction_of(scene: Scene, partition: str) -> None:
    assert compactions(scene.session("compactor")).schedule(
        CompactionPolicy(partitions=(partition,))
    )


def test_a_clustering_that_begins_meanwhile_takes_its_partition_out_of_the_plan() -> None:
    scene = scene_of()
    work = planning(scene)
    group = FileGroupId("mo", file_id(3))
    while_planning(work, lambda: plan_clustering(scene.session("other"), [group]))
    preview, requested = work.schedule(splits())
    assert requested is not None
    assert {group.partition for group in plan_of(scene, requested).groups} == {"tu"}
    assert "is in its partition" in str(preview)


def test_of_two_plans_for_one_partition_one_is_refused() -> None:
    scene = scene_of()
    work = planning(scene)
    other: list[str | None] = []
    while_planning(work, lambda: other.append(planning(scene).schedule(MERGES)[1]))
    preview, requested = work.schedule(MERGES)
    assert requested is None
    assert f"the pending plan {other[0]} is in its partition" in str(preview)
    assert scene.pending() == [f"{other[0]}.clustering.requested"]


def test_a_ring_that_changes_meanwhile_takes_its_partition_out_of_the_plan() -> None:
    scene = scene_of()
    in_force = {"mo": ring("mo"), "tu": ring("tu")}
    work = planning(scene, in_force.get)
    while_planning(work, lambda: in_force.update(tu=ring("tu", "20260101000000000", 1)))
    preview, requested = work.schedule(MERGES)
    assert requested is not None
    assert {group.partition for group in plan_of(scene, requested).groups} == {"mo"}
    assert "was resized a moment ago" in str(preview)


def test_a_group_that_is_replaced_meanwhile_takes_its_change_out_of_the_plan() -> None:
    scene = scene_of()
    schema = scene.session("any").schema.avro()
    group = FileGroupId("tu", file_id(2))

    def overwrite() -> None:
        service = begin_service(scene.session("other"), Action.REPLACECOMMIT, b"")
        service.complete(replacement([group], schema, "INSERT_OVERWRITE"))

    work = planning(scene)
    while_planning(work, overwrite)
    preview, requested = work.schedule(MERGES)
    assert requested is not None
    assert {group.partition for group in plan_of(scene, requested).groups} == {"mo"}
    assert f"file group {group.file_id} was replaced a moment ago" in str(preview)


def test_groups_of_a_pending_compaction_are_not_resized() -> None:
    scene = scene_of()
    plan_compaction_of(scene, "mo")
    _, requested = planning(scene).schedule(MERGES)
    assert requested is not None
    assert {group.partition for group in plan_of(scene, requested).groups} == {"tu"}


def test_a_compaction_leaves_out_the_inputs_of_a_pending_resize() -> None:
    scene = scene_of()
    one = ResizePolicy(target_bytes=MIB, partitions_max=1)
    _, requested = planning(scene).schedule(one)
    assert requested is not None
    before = scene.content()
    done = compact(scene.session("compactor"))
    assert {slice_.partition for slice_ in done.preview.slices} == {"tu"}
    held = {left.group for left in done.preview.left_out if requested in left.why}
    assert held == plan_of(scene, requested).inputs
    assert scene.content() == before


def test_nothing_is_begun_while_a_restore_is_pending() -> None:
    scene = scene_of()
    work = planning(scene)
    while_planning(work, lambda: begin_service(scene.session("other"), Action.RESTORE, b""))
    with pytest.raises(ConflictError, match=r"a resize of the table at .* was not completed"):
        work.schedule(MERGES)


def test_a_plan_made_before_its_writes_were_archived_is_made_again() -> None:
    scene = scene_of()
    work = planning(scene)

    def happens() -> None:
        scene.table("late").upsert(rows("late", "mo0", ts=99))
        assert archive(scene.storage, TIMELINE, "9")
        work._log.forget()

    while_planning(work, happens)
    _, requested = work.schedule(MERGES)
    assert requested is not None
    assert_latest(scene, plan_of(scene, requested))


# -- what is refused


def test_hudi_can_execute_what_is_planned_where_the_table_has_its_lock() -> None:
    for definition in (NBCC, {**NBCC, **SHARED}):
        scene = scene_of(**definition)
        _, requested = planning(scene).schedule(MERGES)
        path = f"{TIMELINE}/{requested}.clustering.requested"
        plan = decode_resize_plan(scene.storage.read(path), path)
        assert plan is not None
        assert plan.is_dual is (definition is not NBCC)


def test_no_resize_begins_beside_a_pending_write_of_another_engine() -> None:
    scene = scene_of(**NBCC, **SHARED)
    own = scene.session("two")
    own.log.refresh()
    write = Transaction.begin(own.log, own.settings, own.action, own.recovery)
    foreign = shifted_time(write.requested, 1)
    scene.storage.create(f"{TIMELINE}/{foreign}.deltacommit.requested", b"")
    preview, requested = planning(scene).schedule(MERGES)
    assert requested is None
    assert {left.why for left in preview.left} == {
        f"the write {foreign} of another engine is pending"
    }
    scene.storage.delete(f"{TIMELINE}/{foreign}.deltacommit.requested")
    _, requested = planning(scene).schedule(MERGES)
    assert requested is not None, "a writer of pyhudi finds the plan when it completes"


def test_a_bucket_that_has_lost_a_file_is_not_rewritten() -> None:
    scene = scene_of()
    scene.storage.delete(next(s.path for s in scene.storage.list("mo") if ".log." in s.path))
    with pytest.raises(CorruptTableError, match=r"buckets of the table .* cannot be resized"):
        planning(scene).schedule(MERGES)
    assert scene.pending() == []


def test_a_bucket_whose_log_is_damaged_does_not_keep_others_from_being_split() -> None:
    scene = scene_of()
    broken = max(s.path for s in scene.storage.list("mo") if ".log." in s.path)
    scene.storage.write(broken, b"x" * len(scene.storage.read(broken)))
    preview, requested = planning(scene).schedule(splits())
    assert requested is not None
    (left,) = [each for each in preview.left if "not a Hudi log file" in each.why]
    assert left.group.file_id in broken
    assert len(preview.changes) == 7
