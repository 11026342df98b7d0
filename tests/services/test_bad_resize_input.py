"""Damaged rings, plans and settings: an error that says what and where, and nothing rewritten."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from many_writers.scene import HeldWrite, Stop
from many_writers.services_by_hand import plan_clustering
from memory_tables import MemoryTable
from pyhudi.api.services import Services
from pyhudi.commit.proposals import Begin, Close, Decided
from pyhudi.errors import ConflictError, CorruptTableError, HudiError, InvalidRequestError
from pyhudi.format.table.column_owners import ColumnOwners
from pyhudi.format.table.ring_file import RING_BYTES_MAX
from pyhudi.format.timeline.instant import Action
from pyhudi.format.timeline.plan_files import (
    ClusteringStrategy,
    CompactionPlan,
    RequestedReplaceMetadata,
    decode_requested_replace,
    encode_compaction_plan,
    encode_requested_replace,
)
from pyhudi.format.timeline.resize_plan import (
    RESIZE_STRATEGY,
    GroupChange,
    ResizePlan,
    decode_resize_plan,
    encode_resize_plan,
)
from pyhudi.storage.objects.column_owners import declare_owners
from resize_tables import SCHEMA, ResizeTable, latest_slices

KEYS = "klmnopqrst"
MERGING = pyhudi.ResizePolicy(rest_seconds=0)  # the buckets of these tests are small
_FOLDER = ".hoodie/.bucket_index/consistent_hashing_metadata/d"


def resized_table() -> tuple[ResizeTable, str]:
    """A table whose ring is that of a resize, and the resize."""
    table = ResizeTable(ordering="ts")
    table.put(KEYS, 1)
    requested = table.plan(3)
    assert table.resizes().execute(requested) is not None
    return table, requested


def contents(table: ResizeTable) -> dict[str, bytes]:
    """Data files and rings: what no failed attempt may change."""
    paths = [s.path for s in table.storage.list("")]
    kept = [p for p in paths if not p.startswith(".hoodie/") or "/.bucket_index/" in p]
    return {path: bytes(table.storage.read(path)) for path in kept}


# -- hashing files

Damage = Callable[[ResizeTable, str], str]


def _changed(change: Callable[[dict[str, Any]], None]) -> Damage:
    """Damage that changes the JSON of the newest ring."""

    def damage(table: ResizeTable, requested: str) -> str:
        path = f"{_FOLDER}/{requested}.hashing_meta"
        ring = json.loads(table.storage.read(path))
        change(ring)
        table.storage.write(path, json.dumps(ring).encode())
        return path

    return damage


def _replaced(data: Callable[[bytes], bytes]) -> Damage:
    def damage(table: ResizeTable, requested: str) -> str:
        path = f"{_FOLDER}/{requested}.hashing_meta"
        table.storage.write(path, data(table.storage.read(path)))
        return path

    return damage


def _without_file(table: ResizeTable, requested: str) -> str:
    path = f"{_FOLDER}/{requested}.hashing_meta"
    table.storage.delete(path)
    return path


def _rolled_back(table: ResizeTable, requested: str) -> str:
    """A ring that is marked although its resize was rolled back."""
    bad = table.plan(2)
    [(path, data)] = table.resizes()._load_plan(bad).work.ring_files
    table.table("c").services.cancel_resize(bad)
    table.storage.create(path, data)
    table.storage.create(f"{_FOLDER}/{bad}.commit", b"")
    return path


def _same_value(ring: dict[str, Any]) -> None:
    ring["nodes"][1]["value"] = ring["nodes"][0]["value"]


def _elsewhere(ring: dict[str, Any]) -> None:
    ring["nodes"][1]["fileIdPrefix"] = "../../e/child"


RINGS: dict[str, tuple[Damage, str]] = {
    "cut off": (_replaced(lambda data: data[: len(data) // 2]), "not hashing metadata"),
    "empty": (_replaced(lambda data: b""), "not hashing metadata"),
    "not JSON": (_replaced(lambda data: b"PAR1" + data), "not hashing metadata"),
    "of another partition": (_changed(lambda r: r.update(partitionPath="e")), "partition 'e'"),
    "of another instant": (_changed(lambda r: r.update(instant="20250101000000000")), "20250101"),
    "without nodes": (_changed(lambda r: r.update(nodes=[])), "is missing"),
    "two nodes at one value": (_changed(_same_value), "same position"),
    "file ids that lead elsewhere": (_changed(_elsewhere), "cannot begin a file id"),
    "larger than 64 MiB": (_replaced(lambda d: d + b" " * RING_BYTES_MAX), "more than 67108864"),
    "a mark without its file": (_without_file, "its mark is there without it"),
    "marked, and rolled back": (_rolled_back, "was rolled back"),
}
_VERBS: dict[str, Callable[[ResizeTable], object]] = {
    "upsert": lambda t: t.put("kz", 2, label="new"),
    "append": lambda t: t.table("new").append(t.made("z", 2)),
    "overwrite": lambda t: t.table("new").overwrite(t.made("z", 2), partitions=["d"]),
    "plan": lambda t: t.plan(2, label="new"),
    "resize": lambda t: t.table("new").services.resize(MERGING),
}


@pytest.mark.parametrize("name", RINGS)
def test_a_damaged_ring_stops_writers_and_resizes_and_names_partition_and_file(name: str) -> None:
    table, requested = resized_table()
    damage, why = RINGS[name]
    path = damage(table, requested)
    before, rows = contents(table), table.rows()
    for verb in _VERBS.values():
        with pytest.raises(CorruptTableError) as caught:
            verb(table)
        assert "partition 'd'" in str(caught.value)
        assert why in str(caught.value)
        assert caught.value.path == path
    assert contents(table) == before
    assert table.rows() == rows  # readers need no ring
    found = table.table("v").services.verify().findings
    assert any(finding.path == path and why in finding.why for finding in found), found


@pytest.mark.parametrize("name", RINGS)
def test_a_damaged_ring_stops_no_other_partition(name: str) -> None:
    table, requested = resized_table()
    table.put("k", 1, "e")
    RINGS[name][0](table, requested)
    table.put("kl", 2, "e", label="new")
    changes = table.table("r").read(where="day = 'e'").to_arrow()
    assert changes.num_rows == 2


@pytest.mark.parametrize("name", RINGS)
def test_a_damaged_ring_is_named_and_other_partitions_are_resized(name: str) -> None:
    table, requested = resized_table()
    table.put(KEYS, 1, "e")
    other = table.plan(3, ["e"], label="other")
    assert table.resizes().execute(other) is not None
    path = RINGS[name][0](table, requested)
    dry = table.table("dry").services.run(dry_run=True, keep_going=True)
    assert [error.path for _, error in dry.errors if isinstance(error, CorruptTableError)] == [path]
    with pytest.raises(CorruptTableError, match="partition 'd'") as caught:
        table.table("new").services.resize(MERGING)
    assert caught.value.path == path
    buckets = table.table("look").inspect.file_slices().to_pylist()
    assert sum(row["partition"] == "e" for row in buckets if row["latest"]) == 1


@pytest.mark.parametrize("name", RINGS)
def test_a_resize_that_is_pending_when_its_ring_is_damaged_changes_nothing(name: str) -> None:
    table, requested = resized_table()
    if name == "marked, and rolled back":
        _rolled_back(table, requested)
        return  # none can be planned, see above
    pending = table.plan(2)
    damage, why = RINGS[name]
    path = damage(table, requested)
    before, rows = contents(table), table.rows()
    with pytest.raises(CorruptTableError, match="partition 'd'") as caught:
        table.resizes("new").execute(pending)
    assert why in str(caught.value)
    assert caught.value.path == path
    assert contents(table) == before
    assert table.rows() == rows


# -- plans


@dataclass(frozen=True)
class BadPlan:
    change: Callable[[GroupChange], GroupChange]
    why: str
    where: str = "partition 'd'"


def _child(change: GroupChange, number: int, **other: Any) -> GroupChange:
    children = list(change.children)
    children[number] = replace(children[number], **other)
    return replace(change, children=tuple(children))


PLANS: dict[str, BadPlan] = {
    "on an older ring": BadPlan(lambda c: replace(c, sequence_number=0), "ring 0"),
    "children that overlap": BadPlan(
        lambda c: _child(c, 0, position=c.children[1].position), "overlap"
    ),
    "children that reach into a neighbour": BadPlan(lambda c: _child(c, 0, position=1), "overlaps"),
    "children that leave a gap": BadPlan(lambda c: replace(c, children=c.children[:1]), "gap"),
    "a group twice": BadPlan(lambda c: replace(c, slices=c.slices * 2), "twice"),
    "a child twice": BadPlan(
        lambda c: _child(c, 0, file_id_prefix=c.children[1].file_id_prefix), "twice"
    ),
    "a group that is not on the ring": BadPlan(
        lambda c: replace(
            c,
            slices=(replace(c.slices[0], file_id="00000000-x-0", base_file=None, log_files=()),),
        ),
        "not on the ring",
    ),
    "another partition": BadPlan(
        lambda c: replace(c, partition="e"), "the partition has no ring", "partition 'e'"
    ),
    "outside of the table": BadPlan(
        lambda c: replace(c, partition="../x"), "not a path inside a table", "'../x'"
    ),
}


#: The strategies of plans of pyhudi and of Hudi, which names its own and has the same groups.
PLANNERS = {
    "pyhudi": RESIZE_STRATEGY,
    "Hudi": "org.apache.hudi.client.clustering.run.strategy"
    ".SparkConsistentBucketClusteringExecutionStrategy",
}


def _planned_by(planner: str, data: bytes, path: str) -> bytes:
    request = decode_requested_replace(data, path)
    assert request is not None
    assert request.clustering_plan is not None
    strategy = ClusteringStrategy(PLANNERS[planner], {})
    plan = replace(request.clustering_plan, strategy=strategy)
    return encode_requested_replace(replace(request, clustering_plan=plan), bytes(16))


def _bad_plan(table: ResizeTable, bad: BadPlan, planner: str = "pyhudi") -> str:
    """Put a plan on the timeline that differs from a right one in one thing."""
    copied = table.plan(2)
    path = f".hoodie/timeline/{copied}.clustering.requested"
    plan = decode_resize_plan(table.storage.read(path), path)
    assert plan is not None
    table.table("c").services.cancel_resize(copied)
    changed = ResizePlan((bad.change(plan.groups[1]),))
    data = _planned_by(planner, encode_resize_plan(changed, table.storage.uri, bytes(16)), path)
    outcome = table.session("p").log.append(Begin(Action.CLUSTERING, data))
    assert isinstance(outcome, Decided)
    assert outcome.entry.instant is not None
    return outcome.entry.instant


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_is_wrong_is_not_executed_and_can_be_cancelled(name: str, planner: str) -> None:
    table, _ = resized_table()
    bad = PLANS[name]
    pending = _bad_plan(table, bad, planner)
    before, rows = contents(table), table.rows()
    for call in (lambda: table.resizes("new").execute(pending), table.table("s").services.resize):
        with pytest.raises(CorruptTableError) as caught:
            call()
        assert bad.why in str(caught.value)
        assert bad.where in str(caught.value)
        assert caught.value.path == f".hoodie/timeline/{pending}.clustering.requested"
        assert "cancel_resize" in str(caught.value)
    assert contents(table) == before
    assert table.rows() == rows
    table.table("c").services.cancel_resize(pending)
    table.put("kz", 2, label="new writer")
    assert len(table.values()) == len(KEYS) + 1
    assert table.table("v").services.verify()


#: Plans that say nothing that can be relied on, so any file group may be an input.
_CONTRADICTORY = {"a group twice", "a child twice", "outside of the table"}


@pytest.mark.parametrize("name", sorted(PLANS.keys() - _CONTRADICTORY))
def test_writers_go_on_beside_a_plan_that_is_wrong(name: str) -> None:
    table, _ = resized_table()
    _bad_plan(table, PLANS[name])
    table.put("kz", 2, label="new")
    assert len(table.values()) == len(KEYS) + 1


def _request(table: ResizeTable, path: str) -> RequestedReplaceMetadata:
    request = decode_requested_replace(table.storage.read(path), path)
    assert request is not None
    return request


def _compaction(table: ResizeTable, path: str) -> bytes:
    plan = CompactionPlan(operations=())
    return encode_compaction_plan(plan, bytes(16))


def _other_operation(table: ResizeTable, path: str) -> bytes:
    request = replace(_request(table, path), operation_type="INSERT_OVERWRITE")
    return encode_requested_replace(request, bytes(16))


def _no_plan(table: ResizeTable, path: str) -> bytes:
    request = replace(_request(table, path), clustering_plan=None)
    return encode_requested_replace(request, bytes(16))


def _contradictory(name: str) -> Callable[[ResizeTable, str], bytes]:
    def damage(table: ResizeTable, path: str) -> bytes:
        plan = decode_resize_plan(table.storage.read(path), path)
        assert plan is not None
        changed = ResizePlan((PLANS[name].change(plan.groups[1]),))
        return encode_resize_plan(changed, table.storage.uri, bytes(16))

    return damage


#: What the file of a plan holds instead, and what is said of it.
UNREADABLE: dict[str, tuple[Callable[[ResizeTable, str], bytes], str]] = {
    "cut off": (lambda t, p: bytes(t.storage.read(p))[:-10], "sync marker"),
    "empty": (lambda t, p: b"", "the file is empty"),
    "rubbish": (lambda t, p: b"rubbish", "Avro"),
    "another record": (_compaction, "HoodieRequestedReplaceMetadata"),
    "another operation": (_other_operation, "'INSERT_OVERWRITE'"),
    "without a plan": (_no_plan, "names nothing to rewrite"),
    **{name: (_contradictory(name), PLANS[name].why) for name in sorted(_CONTRADICTORY)},
}


def damaged_plan(name: str, **definition: Any) -> tuple[ResizeTable, str, str]:
    """A table with a pending resize whose plan cannot be read, its time, and its path."""
    table = ResizeTable(**{"ordering": "ts", "initial": 2, **definition})
    table.put(KEYS, 1)
    pending = table.plan(2)
    path = f".hoodie/timeline/{pending}.clustering.requested"
    table.storage.write(path, UNREADABLE[name][0](table, path))
    return table, pending, path


_SERVICES: dict[str, Callable[[Services], object]] = {
    "resize": lambda s: s.resize(),
    "plan only": lambda s: s.resize(plan_only=True),
    "dry run": lambda s: s.resize(dry_run=True),
    "run": lambda s: s.run(pyhudi.Upkeep(compaction=None, clean=None, archive=None)),
    "dry run of all": lambda s: s.run(
        pyhudi.Upkeep(compaction=None, clean=None, archive=None), dry_run=True
    ),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_every_service_that_resizes_names_a_plan_that_cannot_be_read_and_what_cancels_it(
    name: str,
) -> None:
    table, pending, path = damaged_plan(name)
    before, rows = contents(table), table.rows()
    for call in _SERVICES.values():
        with pytest.raises(CorruptTableError) as caught:
            call(table.table("s").services)
        assert caught.value.path == path
        assert UNREADABLE[name][1] in str(caught.value)
        assert f"table.services.cancel_resize({pending!r})" in str(caught.value)
    states = table.table("i").inspect.buckets().column("state").to_pylist()
    assert len(states) == 2
    assert all(path in state and f"cancel_resize({pending!r})" in state for state in states)
    assert contents(table) == before
    assert table.rows() == rows
    table.table("c").services.cancel_resize(pending)
    assert not table.pending()
    assert table.table("s").services.resize().errors == ()


def test_a_plan_that_cannot_be_read_keeps_no_other_resize_from_being_executed() -> None:
    table, _, path = damaged_plan("rubbish")
    table.put(KEYS, 1, day="e")
    other = table.plan(2, days=("e",))
    done = table.table("s").services.run(keep_going=True)
    assert done.resize is not None
    assert [result.instant for result in done.resize.results] == [other]
    failed = [(service, error.path) for service, error in done.errors if service == "resize"]  # type: ignore[attr-defined]
    assert failed == [("resize", path)]


_LOG_WRITES: dict[str, Callable[[ResizeTable], object]] = {
    "upsert": lambda t: t.put("kz", 2, label="new"),
    "append": lambda t: t.table("new").append(t.made("z", 2)),
    "update": lambda t: t.table("new").update(t.made("k", 2), columns=["ts", "v"]),
    "delete": lambda t: t.remove("k"),
    "delete by predicate": lambda t: t.table("new").delete("id = 'k'"),
    "upsert of a new partition": lambda t: t.put("k", 2, day="new", label="new"),
}
_BASE_WRITES: dict[str, Callable[[ResizeTable], object]] = {
    "overwrite": lambda t: t.table("new").overwrite(t.made("z", 2), partitions=["d"]),
    "delete of a partition": lambda t: t.table("new").delete_partitions(["d"]),
}
_MODES: dict[str, dict[str, Any]] = {"non-blocking": {}, "optimistic": {"ordering": ()}}


@pytest.mark.parametrize("name", ["rubbish", "a group twice"])
@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("verb", _LOG_WRITES)
def test_writes_of_logs_go_on_beside_a_plan_that_cannot_be_read_and_leave_it(
    verb: str, mode: str, name: str
) -> None:
    table, pending, _ = damaged_plan(name, **_MODES[mode])
    plain = ResizeTable(**{"ordering": "ts", "initial": 2, **_MODES[mode]})
    plain.put(KEYS, 1)
    for each in (table, plain):
        _LOG_WRITES[verb](each)
    assert visible(table) == visible(plain)
    assert any(name.startswith(pending) for name in table.pending())
    table.table("c").services.cancel_resize(pending)
    assert visible(table) == visible(plain)
    assert table.table("v").services.verify()


def visible(table: ResizeTable) -> list[tuple[str, str, str]]:
    found = table.table("r").read(columns=["id", "day", "v"]).to_arrow().to_pylist()
    return sorted((row["day"], row["id"], row["v"]) for row in found)


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("verb", _BASE_WRITES)
def test_a_write_that_replaces_rows_cancels_a_resize_whose_plan_cannot_be_read(
    verb: str, mode: str
) -> None:
    table, _, _ = damaged_plan("cut off", **_MODES[mode])
    _BASE_WRITES[verb](table)
    assert not table.pending()
    assert set(table.values()) == ({"z"} if verb == "overwrite" else set())
    assert table.table("v").services.verify()


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("name", ["rubbish", "a group twice"])
def test_a_writer_that_meets_a_closed_resize_whose_plan_cannot_be_read_cancels_it(
    name: str, mode: str
) -> None:
    table, pending, _ = damaged_plan(name, **_MODES[mode])
    table.resizes("dead")._make_inflight(pending)
    table.session("closing").log.append(Close(pending, lambda live: None))
    table.put("k", 2, day="new", label="seeding")
    table.put("kz", 2, label="new")
    assert not table.pending()
    assert len(visible(table)) == len(KEYS) + 2
    assert table.table("v").services.verify()


def test_a_write_of_one_owner_that_began_before_such_a_plan_is_written_again() -> None:
    """Keys that it took for new may be in base files that the plan would make."""
    owners: dict[str, tuple[str, ...]] = {"a": ("ts",), "b": ("v",)}
    table = ResizeTable(owners=owners)
    declare_owners(table.storage, ColumnOwners(owners))
    table.table("a").upsert(table.made(KEYS, 1).drop_columns(["v"]), owner="a")
    own, rows = table.table("b"), table.made("kz", 2).drop_columns(["ts"])
    held = HeldWrite(lambda: own.upsert(rows, owner="b")).run_to(Stop.WRITTEN)
    pending = table.plan(2)
    table.storage.write(f".hoodie/timeline/{pending}.clustering.requested", b"rubbish")
    assert held.finish().requested > pending
    values = table.values()
    assert (values["k"], values["z"], len(values)) == ("k2", "z2", len(KEYS) + 1)


@pytest.mark.parametrize("is_virtual", [False, True], ids=["copied", "virtual"])
@pytest.mark.parametrize("begins", ["before the plan", "beside the plan"])
@pytest.mark.parametrize("mode", _MODES)
def test_a_write_from_before_a_completed_resize_whose_plan_is_damaged_is_made_again(
    mode: str, begins: str, is_virtual: bool
) -> None:
    table = ResizeTable(**{"ordering": "ts", "is_virtual": is_virtual, **_MODES[mode]})
    table.put(KEYS, 1)
    table.put(KEYS, 1, day="e")
    own, other = table.table("b"), table.table("o")
    writes = [
        lambda: own.upsert(table.made("kz", 2)),
        lambda: other.upsert(table.made("k", 2, "e")),
    ]

    def begun() -> list[HeldWrite]:
        return [HeldWrite(write).run_to(Stop.WRITTEN) for write in writes]

    held = begun() if begins == "before the plan" else []
    resize = table.plan(3)
    held = held or begun()
    assert table.resizes().execute(resize) is not None
    table.storage.write(f".hoodie/timeline/{resize}.clustering.requested", b"rubbish")
    first, beside = (each.finish() for each in held)
    assert first.requested > resize
    assert (beside.requested > resize) == (begins == "beside the plan")
    found = {(row["day"], row["id"]): row["v"] for row in everything(table)}
    assert len(found) == 2 * len(KEYS) + 1
    assert (found["d", "k"], found["d", "z"], found["e", "k"]) == ("k2", "z2", "k2")
    table.put("k", 3, label="new")
    assert table.table("v").services.verify()


def everything(table: ResizeTable) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.table("r").read().to_arrow().to_pylist()
    return found


def test_other_services_leave_alone_what_a_plan_that_cannot_be_read_may_have() -> None:
    table, pending, path = damaged_plan("rubbish")
    before = contents(table)
    services = table.table("s").services
    preview = str(services.compact().preview)
    assert f"the pending plan {pending} may have it, for its file cannot be read" in preview
    with pytest.raises(CorruptTableError) as cannot_clean:
        services.clean(pyhudi.CleanPolicy.commits(1))
    assert cannot_clean.value.path == path
    assert f"cancel_resize({pending!r})" in str(cannot_clean.value)
    services.archive(pyhudi.ArchivePolicy(keep_min=1, keep_max=2))
    assert contents(table) == before


def test_a_clustering_without_children_is_no_resize_and_is_left_to_the_engine_that_planned_it() -> (
    None
):
    """It moves the rows of its file groups elsewhere: writes of them wait until it has ended."""
    table, _ = resized_table()
    table.put("k", 1, day="e")
    session = table.session("hudi")
    group = min(g for g in latest_slices(session) if g.partition == "d")
    clustering = plan_clustering(session, [group]).requested
    done = table.table("s").services.resize()
    assert (done.pending, done.errors) == ((), ())
    with pytest.raises(InvalidRequestError, match="does not resize buckets"):
        table.resizes("e").execute(clustering)
    with pytest.raises(ConflictError, match=f"the clustering {clustering} is pending") as caught:
        table.put(KEYS, 2, label="new")
    assert "cannot be read" not in str(caught.value)
    table.put("k", 2, day="e", label="new")
    states = table.table("i").inspect.buckets().column("state").to_pylist()
    assert sorted(set(states)) == [f"in clustering {clustering}", "normal"]


def test_a_write_beside_a_clustering_that_cannot_be_read_is_refused_and_told_what_helps() -> None:
    """Buckets that have numbers are never resized, so it is another engine's."""
    table = MemoryTable(SCHEMA, partition_by="day", buckets=pyhudi.SimpleBuckets(2))
    rows = pa.Table.from_pylist([{"id": "k", "day": "d", "ts": 1, "v": "k1"}], SCHEMA)
    table.table("a").upsert(rows)
    outcome = table.session("hudi").log.append(Begin(Action.CLUSTERING, b"rubbish"))
    assert isinstance(outcome, Decided)
    pending = outcome.entry.instant
    for day in ("d", "new"):
        changed = rows.set_column(1, "day", pa.array([day]))
        with pytest.raises(ConflictError) as caught:
            table.table("b").upsert(changed)
        assert f"'.hoodie/timeline/{pending}.clustering.requested' cannot be read" in str(
            caught.value
        )
        assert f"cancel_resize({pending!r})" in str(caught.value)
    table.table("c").services.cancel_resize(str(pending))
    table.table("b").upsert(rows)


# -- what an input holds


def damaged_log(table: ResizeTable) -> tuple[str, str]:
    """Plan a resize, and damage a log that has to be copied; return the resize and the log."""
    table.put(KEYS, 1)
    table.table("c").services.compact()
    pending = table.plan(2)
    table.put("kl", 2)
    log = max(s.path for s in table.storage.list("d") if ".log." in s.path)
    table.storage.write(log, bytes(len(table.storage.read(log))))
    return pending, log


def test_a_damaged_log_cancels_the_resize_and_writers_go_on() -> None:
    table = ResizeTable(ordering="ts")
    pending, log = damaged_log(table)
    before = contents(table)
    with pytest.raises(CorruptTableError) as caught:
        table.resizes("new").execute(pending)
    assert caught.value.path == log
    assert contents(table) == before
    assert not table.pending()
    assert table.table("own").upsert(table.made("m", 3)).completed


def test_a_writer_that_meets_a_closed_resize_with_a_damaged_log_cancels_it() -> None:
    table = ResizeTable(ordering="ts")
    pending, _ = damaged_log(table)
    before = contents(table)
    table.resizes("dead")._make_inflight(pending)
    table.session("closing").log.append(Close(pending, lambda live: None))
    assert table.table("own").upsert(table.made("m", 3)).completed
    assert not table.pending()
    assert len(contents(table)) == len(before) + 1


# -- settings


class Outside:
    """A policy that cuts where the bucket does not reach."""

    def points(self, bucket: pyhudi.SplitBucket) -> list[int]:
        return [bucket.high + 1]


@pytest.mark.filterwarnings("ignore:target_bytes")
def test_points_outside_of_a_bucket_are_refused_and_nothing_is_planned() -> None:
    table, _ = resized_table()
    table.put([f"k{number}" for number in range(3_000)], 2)
    before = contents(table)
    policy = pyhudi.ResizePolicy(target_bytes=4096, rest_seconds=0, split=Outside())
    for dry_run in (True, False):
        errors: tuple[HudiError, ...]
        try:
            errors = table.table("r").services.resize(policy, dry_run=dry_run).errors
        except InvalidRequestError as error:
            errors = (error,)
        assert ["partition 'd'" in str(error) for error in errors] == [True]
    assert contents(table) == before
    assert not table.pending()


@pytest.mark.filterwarnings("ignore:target_bytes")
def test_a_limit_that_cannot_be_met_is_said_in_the_preview() -> None:
    table = ResizeTable(ordering="ts", buckets=pyhudi.ConsistentBuckets(initial=1, max=1))
    table.put([f"k{number}" for number in range(3_000)], 1)
    policy = pyhudi.ResizePolicy(target_bytes=4096, rest_seconds=0)
    preview = str(table.table("r").services.resize(policy, dry_run=True))
    assert "its partition may have 1 bucket at most" in preview


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"initial": 2, "min": 3}, "min"),
        ({"initial": 5, "max": 4}, "max"),
        ({"min": 5, "max": 4}, "max"),
    ],
)
def test_limits_that_exclude_the_first_number_are_refused(given: dict[str, int], why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        pyhudi.ConsistentBuckets(**given)  # type: ignore[arg-type]


def test_a_target_below_four_kibibytes_is_refused_and_below_one_mebibyte_a_warning() -> None:
    with pytest.raises(InvalidRequestError, match="target_bytes"):
        pyhudi.ResizePolicy(target_bytes=4095)
    with pytest.warns(UserWarning, match="target_bytes"):
        pyhudi.ResizePolicy(target_bytes=4096)


def test_consistent_buckets_are_refused_on_copy_on_write(tmp_path: Path) -> None:
    given: dict[str, Any] = {"schema": SCHEMA, "name": "t", "record_key": "id"}
    with pytest.raises(HudiError, match=r"copy.on.write"):
        pyhudi.create_table(
            str(tmp_path / "t"),
            **given,
            table_type="cow",
            buckets=pyhudi.ConsistentBuckets(),
        )


def test_a_table_of_other_buckets_is_not_taken_for_the_same(tmp_path: Path) -> None:
    given: dict[str, Any] = {"schema": SCHEMA, "name": "t", "record_key": "id", "exist_ok": True}
    pyhudi.create_table(str(tmp_path / "t"), **given, buckets=pyhudi.ConsistentBuckets())
    with pytest.raises(InvalidRequestError, match="buckets"):
        pyhudi.create_table(str(tmp_path / "t"), **given, buckets=pyhudi.SimpleBuckets(4))
    rows = pa.Table.from_pylist([{"id": "k", "day": "d", "ts": 1, "v": "k1"}], SCHEMA)
    with pytest.raises(InvalidRequestError, match="buckets"):
        pyhudi.open_table(str(tmp_path / "t"), buckets=pyhudi.SimpleBuckets(4)).upsert(rows)
