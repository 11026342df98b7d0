"""Who may complete beside whom, when a write and another one touch the same file group.

The first table is about file group g and a write S that begins at 100 and asks to be completed at
120. The second one holds, for each kind of table, which write meets a conflict with what.
`test_conflict_rules` has the rules alone, under each strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from many_writers.compaction_by_hand import PlannedCompaction, plan_compaction
from many_writers.scene import (
    CHECKED,
    COW,
    KINDS,
    OCC,
    SCHEMA,
    SHARED,
    Act,
    ForeignWriter,
    HeldWrite,
    Scene,
    begun_scene,
    rows,
    upsert,
)
from many_writers.services_by_hand import (
    archive,
    clean,
    plan_clustering,
    replacement,
)
from memory_tables import TIMELINE
from pyhudi.api.table import Table
from pyhudi.errors import ConflictError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.commit_metadata import WriteStat, encode_commit_metadata
from pyhudi.format.timeline.instant import Action, InstantTime
from pyhudi.index.simple_bucket import bucket_ids, file_id
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import HEARTBEAT_FOLDER
from pyhudi.write.begin import write_spec
from pyhudi.write.files.base_file import write_base
from pyhudi.write.files.spec import create_partition_metadata
from pyhudi.write.result import WriteResult, commit_metadata
from pyhudi.write.retry import LATER_MS, LOOK_MS
from written_tables import keyed

G = FileGroupId("mo", file_id(0))
HUDI_ID = "00000000-57eb-4d0f-a1b2-6b1f3c1d2e3f-0"
#: What somebody else does: up to its first stop before S begins, then while S is under way.
Other = Iterator[None]
Script = Callable[[Scene], Other]


def begun_table(**definition: Any) -> Scene:
    """A table in whose file group g lie the rows k and old."""
    scene = begun_scene(rows("first", "k", "old"), **definition)
    return scene


def asked_to_complete(
    script: Script, scene: Scene, act: Act | None = None, **settings: Any
) -> tuple[HeldWrite, Other]:
    """S, which now has to be finished, and what the other does from there on."""
    other = script(scene)
    next(other)
    scene.at(100)
    given = {"conflict_retries": 0, **settings}
    held = scene.hold("S", act or upsert(rows("S", "k", ts=9)), **given)
    next(other, None)
    scene.at(120)
    return held, other


def is_refused(held: HeldWrite, scene: Scene) -> bool:
    """Whether S met a conflict. Then nothing of it is visible."""
    before = scene.content()
    try:
        held.finish()
    except ConflictError:
        assert scene.content() == before
        return True
    return False


# -- what the other is


def write(
    *, begins: int, ends: int | None, act: Act | None = None, day: str = "mo", priority: int = 0
) -> Script:
    """A write of the row k, or of another day's t; without an end it stays pending."""

    def script(scene: Scene) -> Other:
        if begins > 100:
            yield
        scene.at(begins)
        given = act or upsert(rows("other", "k" if day == "mo" else "t", ts=5, day=day))
        other = scene.hold("other", given, conflict_retries=0, priority=priority)
        if begins < 100 and (ends is None or ends > 100):
            yield
        if ends is not None:
            scene.at(ends)
            other.finish()
        yield
        if ends is None:
            other.finish()

    return script


def planned_compaction(scene: Scene) -> PlannedCompaction:
    planned = plan_compaction(scene.session("compactor"), [G])
    assert planned is not None
    return planned


def compaction(begins: int, ends: int | None) -> Script:
    """Planned and run; without an end its base file is there and does not count."""

    def script(scene: Scene) -> Other:
        if begins > 100:
            yield
        scene.at(begins)
        planned = planned_compaction(scene).run()
        if begins < 100:
            yield
        if ends is not None:
            scene.at(ends)
            planned.complete()
        yield
        if ends is None:
            planned.complete()

    return script


def clustering(begins: int, ends: int | None = None) -> Script:
    """A clustering of g, which moves its rows elsewhere."""

    def script(scene: Scene) -> Other:
        if begins > 100:
            yield
        scene.at(begins)
        writer = scene.session("clusterer")
        service = plan_clustering(writer, [G])
        if begins < 100:
            yield
        if ends is not None:
            scene.at(ends)
            service.complete(replacement([G], writer.schema.avro(), "CLUSTER"))

    return script


def foreign_overwrite(begins: int, ends: int | None) -> Script:
    """Another engine replaces g; its inflight file tells what it writes."""

    def script(scene: Scene) -> Other:
        if begins > 100:
            yield
        scene.at(begins)
        foreign = ForeignWriter(scene)
        schema = scene.session("schema").schema.avro()
        data = replacement([G], schema, "INSERT_OVERWRITE")
        stat = WriteStat(file_id=G.file_id, path=f"mo/{G.file_id}_x.parquet", partition_path="mo")
        intent = commit_metadata([stat], "INSERT_OVERWRITE")
        inflight = encode_commit_metadata(intent, bytes(16))
        requested = foreign.begin("replacecommit", inflight=inflight)
        if begins < 100:
            yield
        if ends is not None:
            scene.at(ends)
            foreign.complete(requested, data, "replacecommit")

    return script


def overwrite(table: Table) -> WriteResult:
    return table.overwrite(rows("other", "new", ts=5))


def delete_partitions(table: Table) -> WriteResult:
    return table.delete_partitions(["mo"])


def cleaning(scene: Scene) -> Other:
    """The first base file of g goes, which a second one has replaced."""
    scene.table("again").upsert(rows("again", "k", ts=2))
    if scene.table().table_type is TableType.MERGE_ON_READ:
        planned_compaction(scene).run().complete()
    bases = sorted(s.path for s in scene.storage.list("mo") if s.path.endswith(".parquet"))
    yield
    scene.at(105)
    clean(
        scene.session("cleaner"), bases[:-1], bases[-1].rpartition("_")[2].removesuffix(".parquet")
    )


def rollback_of_s(*, is_done: bool) -> Script:
    """Another process took S for dead."""

    def script(scene: Scene) -> Other:
        yield
        scene.at(105)
        judge = scene.session("judge")
        [pending] = judge.log.refresh().pending_of(Action.COMMIT, Action.DELTACOMMIT)
        judge.recovery.abort(pending)
        if is_done:
            judge.recovery.undo(judge.log.live.rolled_back_by[pending.requested])

    return script


def vanished_inflight(scene: Scene) -> Other:
    """Another engine rolled S back, and its rollback has left the timeline."""
    yield
    scene.at(105)
    for name in scene.pending():
        if name.endswith("inflight"):
            scene.storage.delete(f"{TIMELINE}/{name}")


def same_bucket_with_another_id(scene: Scene) -> Other:
    """Both engines write the first file of a bucket, each with a file id of its own."""
    yield
    scene.at(105)
    foreign = ForeignWriter(scene)
    requested = foreign.begin("commit")
    spec = write_spec(scene.session("spec"), requested)
    create_partition_metadata(scene.storage, "tu", InstantTime(requested))
    written = keyed(rows("hudi", "t", day="tu").to_pylist(), SCHEMA)
    stat = write_base(scene.storage, spec, FileGroupId("tu", HUDI_ID), [written])
    scene.at(110)
    data = encode_commit_metadata(commit_metadata([stat], "UPSERT"), bytes(16))
    foreign.complete(requested, data, "commit")


# -- the first table

SHARED_KINDS = {kind: {**given, **SHARED} for kind, given in CHECKED.items()}
#: Row → which kinds of tables, what the other does, whether S meets a conflict.
ROWS: dict[str, tuple[dict[str, dict[str, Any]], Script, bool]] = {
    "1 it completed before S began": (CHECKED, write(begins=90, ends=95), False),
    "2 it was pending at the start": (CHECKED, write(begins=90, ends=110), True),
    "3 it came and went meanwhile": (CHECKED, write(begins=105, ends=110), True),
    "4 it is still pending": (CHECKED, write(begins=105, ends=None), False),
    "5 a compaction is planned": ({"mor": OCC}, compaction(105, None), False),
    "6 a clustering is pending": (CHECKED, clustering(50), True),
    "7 another engine overwrites": (SHARED_KINDS, foreign_overwrite(105, None), True),
    "8 another engine has overwritten": (SHARED_KINDS, foreign_overwrite(95, 110), True),
    "9 S is being rolled back": (KINDS, rollback_of_s(is_done=False), True),
    "9 S has been rolled back": (KINDS, rollback_of_s(is_done=True), True),
    "9 the inflight file of S is gone": (KINDS, vanished_inflight, True),
    "10 a clean works on g": (CHECKED, cleaning, False),
    "12 it writes a new file group": (CHECKED, write(begins=105, ends=110, day="tu"), False),
}
CASES = [(row, kind) for row, (kinds, _, _) in ROWS.items() for kind in kinds]


@pytest.mark.parametrize(("row", "kind"), CASES, ids=[f"{row}, {kind}" for row, kind in CASES])
def test_what_the_other_did_decides_whether_s_may_complete(row: str, kind: str) -> None:
    kinds, script, is_conflict = ROWS[row]
    scene = begun_table(**kinds[kind])
    held, _ = asked_to_complete(script, scene)
    assert is_refused(held, scene) == is_conflict
    monday = scene.writers(where="day = 'mo'")
    assert (monday.get("k") == "S") == (not is_conflict)


@pytest.mark.parametrize("kind", CHECKED)
def test_4_the_write_that_was_still_pending_loses_when_it_asks(kind: str) -> None:
    scene = begun_table(**CHECKED[kind])
    held, other = asked_to_complete(write(begins=105, ends=None), scene)
    held.finish()
    with pytest.raises(ConflictError, match="lost to another write") as error:
        next(other)
    facts = error.value.facts
    assert facts["rule"] == "same_file_group"
    assert facts["theirs"]["instant"] == held.requested
    assert (facts["partition"], facts["file_group"], facts["bucket"]) == ("mo", G.file_id, 0)
    assert facts["keys"] == ["k"]
    assert scene.writers() == {"k": "S", "old": "first"}


@pytest.mark.parametrize("lock", [LockKind.FILE, LockKind.NONE])
@pytest.mark.parametrize("kind", CHECKED)
def test_2_a_write_that_was_archived_meanwhile_is_still_a_conflict(
    kind: str, lock: LockKind
) -> None:
    """Hudi archives up to the oldest pending write by requested times: also what completed since
    that began."""
    scene = begun_table(**CHECKED[kind], lock=lock)
    scene.at(90)
    other = scene.hold("other", upsert(rows("other", "k", "of the other", ts=5)))
    kept = scene.table("kept").upsert(rows("kept", "t", day="tu"))
    scene.at(100)
    held = scene.hold("S", upsert(rows("S", "k", ts=9)), conflict_retries=0)
    scene.at(110)
    other.finish()
    for number in range(3):
        scene.table("later").upsert(rows("later", f"t{number}", day="tu"))
    assert other.requested in archive(scene.storage, TIMELINE, kept.instant)
    with pytest.raises(ConflictError):
        held.finish()


def test_8_so_is_an_overwrite_by_another_engine_that_was_archived_meanwhile() -> None:
    """Not even a non-blocking write may add to file groups that are out of use."""
    scene = begun_table(**KINDS["nbcc"], **SHARED)
    script = foreign_overwrite(90, 110)(scene)
    next(script)
    kept = scene.table("kept").upsert(rows("kept", "t", day="tu"))
    scene.at(100)
    held = scene.hold("S", upsert(rows("S", "k", ts=9)), conflict_retries=0)
    next(script, None)
    scene.table("later").upsert(rows("later", "t", day="tu"))
    archive(scene.storage, TIMELINE, kept.instant)
    assert not [name for name in scene.names() if name.endswith("replacecommit")]
    with pytest.raises(ConflictError):
        held.finish()


@pytest.mark.parametrize("kind", KINDS)
def test_9_no_later_write_brings_s_back_after_its_rollback(kind: str) -> None:
    scene = begun_table(**KINDS[kind])
    held, _ = asked_to_complete(rollback_of_s(is_done=False), scene)
    assert is_refused(held, scene)
    scene.table("next").upsert(rows("next", "other key"))
    assert scene.writers() == {"k": "first", "old": "first", "other key": "next"}
    assert scene.leftovers() == []
    assert len(scene.completed("rollback")) == 1


def test_11_the_same_bucket_under_another_file_id_is_the_same_file_group() -> None:
    scene = begun_table(**COW, **SHARED)
    act = upsert(rows("S", "t", ts=9, day="tu"))
    held, _ = asked_to_complete(same_bucket_with_another_id, scene, act)
    assert is_refused(held, scene)
    assert scene.writers(where="day = 'tu'") == {"t": "hudi"}


def test_12_the_same_file_id_in_another_partition_is_another_file_group() -> None:
    scene = begun_table(**COW)
    held, _ = asked_to_complete(write(begins=105, ends=110, day="tu"), scene)
    assert not is_refused(held, scene)
    bases = [s.path for s in scene.storage.list("") if s.path.endswith(".parquet")]
    assert {path.rpartition("/")[2].partition("_")[0] for path in bases} == {G.file_id}


@pytest.mark.parametrize("begins", [90, 105])
@pytest.mark.parametrize("kind", KINDS)
def test_12_so_is_a_second_bucket_of_the_same_partition(kind: str, begins: int) -> None:
    ids = [f"key {number}" for number in range(20)]
    buckets = bucket_ids(pa.array(ids), ["id"], 2).to_pylist()
    first, second = ids[buckets.index(0)], ids[buckets.index(1)]
    scene = begun_scene(rows("first", first, second), **KINDS[kind], buckets=SimpleBuckets(2))
    other = write(begins=begins, ends=110, act=upsert(rows("other", second, ts=5)))
    held, _ = asked_to_complete(other, scene, upsert(rows("S", first, ts=9)))
    result = held.finish()
    assert (result.retries, result.recommits) == (0, 0)
    assert scene.writers() == {first: "S", second: "other"}
    assert scene.table().inspect.conflicts().num_rows == 0
    groups = scene.table().inspect.file_slices().column("file_id").to_pylist()
    assert {*groups} == {file_id(0), file_id(1)}


@pytest.mark.parametrize("kind", CHECKED)
def test_a_write_that_met_a_conflict_is_repeated_on_the_table_as_it_is_then(kind: str) -> None:
    scene = begun_table(**CHECKED[kind])
    script = write(begins=90, ends=110)
    held, _ = asked_to_complete(script, scene, conflict_retries=1)
    result = held.finish()
    assert (result.retries, result.recommits) == ((0, 1) if kind == "mor" else (1, 0))
    assert scene.content() == {"k": (9, "S"), "old": (1, "first")}
    assert scene.leftovers() == []


# -- the second table

#: The kinds of writes that S can be: one that adds rows, one that depends on what it read, and one
#: that is about the whole partition. Every other verb behaves as one of these.
SELVES: dict[str, Act] = {
    "upsert": upsert(rows("S", "k", ts=9)),
    "delete where": lambda table: table.delete("id = 'k'"),
    "overwrite": lambda table: table.overwrite(rows("S", "k", ts=9)),
}
OTHERS: dict[str, Script] = {
    "write, completed": write(begins=105, ends=110),
    "write, pending": write(begins=105, ends=None),
    "overwrite, completed": write(begins=105, ends=110, act=overwrite),
    "overwrite, pending": write(begins=105, ends=None, act=overwrite),
    "delete of partitions, completed": write(begins=105, ends=110, act=delete_partitions),
    "compaction, older, pending": compaction(95, None),
    "compaction, newer, pending": compaction(105, None),
    "compaction, older, completed": compaction(95, 110),
    "compaction, newer, completed": compaction(105, 110),
    "clustering, pending": clustering(105),
    "clustering, completed": clustering(105, 110),
    "overwrite by another engine, pending": foreign_overwrite(105, None),
    "overwrite by another engine, completed": foreign_overwrite(105, 110),
    "clean": cleaning,
    "rollback of S": rollback_of_s(is_done=True),
}
#: By kind of table: an x for each self, in the order of SELVES, that meets a conflict.
#: An overwrite of ours puts a base file into the same file group, so that a compaction that was
#: planned later would hide it. Hudi's has file groups of its own, and no conflict there.
MATRIX: dict[str, dict[str, str]] = {
    "mor": {
        "write, completed": "xxx",
        "write, pending": "...",
        "overwrite, completed": "xxx",
        "compaction, older, pending": "...",
        "compaction, newer, pending": "..x",
        "compaction, older, completed": "...",
        "compaction, newer, completed": "..x",
        "clustering, pending": "xxx",
        "clustering, completed": "xxx",
        "overwrite by another engine, pending": "xxx",
        "overwrite by another engine, completed": "xxx",
        "clean": "...",
        "rollback of S": "xxx",
    },
    "cow": {
        "write, completed": "xxx",
        "write, pending": "...",
        "overwrite, completed": "xxx",
        "clustering, pending": "xxx",
        "clustering, completed": "xxx",
        "overwrite by another engine, pending": "xxx",
        "overwrite by another engine, completed": "xxx",
        "clean": "...",
        "rollback of S": "xxx",
    },
    "nbcc": {
        "write, completed": ".xx",
        "write, pending": "...",
        "overwrite, completed": ".xx",
        "overwrite, pending": "...",
        "delete of partitions, completed": ".xx",
        "compaction, older, pending": "...",
        "compaction, newer, pending": "..x",
        "compaction, older, completed": "...",
        "compaction, newer, completed": "..x",
        "clustering, pending": "xxx",
        "clustering, completed": "xxx",
        "overwrite by another engine, completed": "xxx",
        "clean": "...",
        "rollback of S": "xxx",
    },
}
CELLS = [
    (kind, other, self_, marks[place] == "x")
    for kind, table in MATRIX.items()
    for other, marks in table.items()
    for place, self_ in enumerate(SELVES)
]


@pytest.mark.parametrize(
    ("kind", "other", "self_", "is_conflict"),
    CELLS,
    ids=[f"{kind}: {self_} x {other}" for kind, other, self_, _ in CELLS],
)
def test_the_matrix_of_conflicts(kind: str, other: str, self_: str, is_conflict: bool) -> None:
    is_hudis = "another engine" in other or "clustering" in other
    scene = begun_table(**KINDS[kind], **(SHARED if is_hudis else {}))
    held, _ = asked_to_complete(OTHERS[other], scene, SELVES[self_])
    assert is_refused(held, scene) == is_conflict
    if not is_conflict:
        k = scene.writers(where="day = 'mo'").get("k")
        assert k == (None if self_ == "delete where" else "S")


def test_rows_for_a_file_group_that_a_clustering_replaced_are_not_lost() -> None:
    """Also on a table of our own, where no bucket layout is checked."""
    scene = begun_table(**KINDS["nbcc"])
    held, _ = asked_to_complete(clustering(105, 110), scene)
    assert is_refused(held, scene)


# -- priorities


@pytest.mark.parametrize("kind", CHECKED)
@pytest.mark.parametrize("begins", [90, 105])
def test_a_write_yields_to_one_of_higher_priority_under_way_and_then_completes(
    kind: str, begins: int
) -> None:
    scene = begun_table(**CHECKED[kind])
    script = write(begins=begins, ends=None, priority=1)
    held, other = asked_to_complete(script, scene)
    with pytest.raises(ConflictError) as error:
        held.finish()
    assert error.value.facts["rule"] == "priority"
    assert error.value.facts["retry"] == "later"
    next(other, None)
    assert scene.writers()["k"] == "other"
    scene.table("again").upsert(rows("again", "k", ts=9))
    assert scene.writers()["k"] == "again"


@pytest.mark.parametrize("kind", KINDS)
def test_a_priority_is_nothing_to_writes_that_do_not_meet(kind: str) -> None:
    scene = begun_table(**KINDS[kind])
    day = "mo" if kind == "nbcc" else "tu"
    held, other = asked_to_complete(write(begins=105, ends=None, day=day, priority=9), scene)
    held.finish()
    next(other, None)


TIMEOUT_MS = WriteSettings().heartbeat_timeout_ms
#: What a wait may take beyond the heartbeat's: one look.
SOON_MS = 2 * LOOK_MS


@pytest.mark.parametrize("silent_ms", [0, 100_000, 2 * TIMEOUT_MS])
@pytest.mark.parametrize("kind", CHECKED)
def test_a_dead_writer_of_high_priority_stands_in_nobodys_way(kind: str, silent_ms: int) -> None:
    """It is taken for alive until its heartbeat is too old, and no failure comes of that."""
    scene = begun_table(**CHECKED[kind])
    scene.hold("dead", upsert(rows("dead", "k", ts=5)), priority=9)
    scene.clock.sleep(silent_ms)
    before = scene.clock.ms
    result = scene.table("low").upsert(rows("low", "k", ts=9))
    assert result.retries == (0 if silent_ms > TIMEOUT_MS else 1)
    assert scene.clock.ms - before <= max(0, TIMEOUT_MS - silent_ms) + SOON_MS
    assert scene.writers()["k"] == "low"
    assert scene.leftovers() == []


def watched(
    scene: Scene, label: str, slept: Callable[[int], object], **settings: Any
) -> tuple[Table, list[int]]:
    """The table of a process, with something that happens after each of its sleeps; its sleeps."""
    table, sleeps = scene.table(label, **settings), []

    def sleep_ms(ms: int) -> None:
        sleeps.append(ms)
        scene.clock.sleep(ms)
        slept(sum(sleeps))

    table._opening.world = replace(table._opening.world, sleep_ms=sleep_ms)
    return table, sleeps


@pytest.mark.parametrize("kind", CHECKED)
def test_a_write_goes_on_as_soon_as_one_of_higher_priority_has_ended(kind: str) -> None:
    scene = begun_table(**CHECKED[kind])
    high = scene.hold("high", upsert(rows("high", "k", "h", ts=5)), priority=9)
    done: list[WriteResult] = []

    def slept(ms: int) -> None:
        if ms > 40_000 and not done:
            done.append(high.finish())

    low, sleeps = watched(scene, "low", slept, conflict_retries=1)
    result = low.upsert(rows("low", "k", ts=9))
    assert (result.retries, len(done)) == (1, 1)
    assert 40_000 < sum(sleeps) <= 40_000 + SOON_MS
    assert result.instant > done[0].completed
    assert scene.writers() == {"k": "low", "old": "first", "h": "high"}


@pytest.mark.parametrize("kind", CHECKED)
def test_nobody_waits_forever_for_one_of_higher_priority_that_lives_on(kind: str) -> None:
    scene = begun_table(**CHECKED[kind])
    high = scene.hold("high", upsert(rows("high", "k", ts=5)), priority=9)
    beat = f"{HEARTBEAT_FOLDER}/{high.requested}"
    low, sleeps = watched(scene, "low", lambda _: scene.storage.write(beat, b""))
    with pytest.raises(ConflictError) as error:
        low.upsert(rows("low", "k", ts=9))
    assert (error.value.facts["rule"], error.value.facts["retry"]) == ("priority", "later")
    assert TIMEOUT_MS <= sum(sleeps) <= TIMEOUT_MS + SOON_MS + (LATER_MS << 3)
    high.finish()
    assert scene.writers()["k"] == "high"
