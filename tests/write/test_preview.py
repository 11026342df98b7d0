"""A preview says where a write will have files and whom it would meet, and the write agrees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import FaultyStorage
from many_writers.scene import COW, NBCC, OCC, SHARED, HeldWrite, Scene, Stop, rows
from many_writers.services_by_hand import plan_clustering
from memory_tables import TIMELINE
from pyhudi.api.table import Table
from pyhudi.errors import ConflictError, InvalidRequestError
from pyhudi.format.files.file_names import FileGroupId, group_of_path
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import ConsistentBuckets, SimpleBuckets
from pyhudi.format.table.column_owners import ColumnOwners
from pyhudi.format.timeline.decision_entry import closed_path
from pyhudi.index.simple_bucket import file_id
from pyhudi.storage.objects.column_owners import declare_owners
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.write import tasks
from pyhudi.write.preview import places
from pyhudi.write.preview.preview import WritePreview
from resize_tables import ResizeTable

KEYS = [f"k{n}" for n in range(24)]
MODES: dict[str, dict[str, Any]] = {"non-blocking": NBCC, "optimistic": OCC, "copy on write": COW}
KINDS = {**MODES, "shared": {**NBCC, **SHARED}}
#: Consistent buckets are of merge-on-read tables.
TABLES = [(mode, buckets) for mode in MODES for buckets in ("simple", "consistent")]
TABLES.remove(("copy on write", "consistent"))
LOOKED_AT = [*TABLES, ("shared", "simple")]
BUCKETS = {"simple": SimpleBuckets(4), "consistent": ConsistentBuckets(4)}
GIVEN = pa.concat_tables([rows("new", *KEYS[:5], ts=2), rows("new", *KEYS[9:20], day="tu", ts=2)])
CHANGED = GIVEN.select(["id", "day", "by"])


@dataclass(frozen=True)
class Verb:
    """A write, and what plans it."""

    write: Callable[[Table], Any]
    plan: Callable[[Table], WritePreview]


VERBS = {
    "upsert": Verb(lambda t: t.upsert(GIVEN), lambda t: t.plan_upsert(GIVEN)),
    "update": Verb(
        lambda t: t.update(CHANGED, columns=["by"]),
        lambda t: t.plan_update(CHANGED, columns=["by"]),
    ),
    "overwrite": Verb(lambda t: t.overwrite(GIVEN), lambda t: t.plan_overwrite(GIVEN)),
    "overwrite of all": Verb(
        lambda t: t.overwrite(GIVEN, partitions="all"),
        lambda t: t.plan_overwrite(GIVEN, partitions="all"),
    ),
    "overwrite of named": Verb(
        lambda t: t.overwrite(GIVEN, partitions=["mo", "tu", "we"]),
        lambda t: t.plan_overwrite(GIVEN, partitions=["mo", "tu", "we"]),
    ),
}


def made(mode: str, buckets: str = "simple") -> Scene:
    scene = Scene(**KINDS[mode], buckets=BUCKETS[buckets])
    for day in ("mo", "tu", "we"):
        scene.table("before").upsert(rows("old", *KEYS, day=day))
    return scene


def objects(scene: Scene) -> list[Any]:
    return list(scene.storage.list(""))


def found(preview: WritePreview) -> dict[tuple[str, str | None], int]:
    listed = preview.places().to_pylist()
    places = {(row["partition"], row["file_id"]): row["rows"] for row in listed}
    assert len(places) == len(listed)
    return places


def written(scene: Scene, before: list[Any]) -> Counter[tuple[str, str]]:
    """Return the file groups in which there are new files, and how many."""
    known = {stat.path for stat in before}
    new = (stat.path for stat in objects(scene) if stat.path not in known)
    groups = (group_of_path(path) for path in new if not path.startswith(".hoodie"))
    return Counter((group.partition, group.file_id) for group in groups if group is not None)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("mode", "buckets"), LOOKED_AT)
def test_the_write_then_has_files_in_exactly_the_places(verb: str, mode: str, buckets: str) -> None:
    scene = made(mode, buckets)
    preview = found(VERBS[verb].plan(scene.table("ours")))
    before = objects(scene)
    result = VERBS[verb].write(scene.table("ours"))
    assert set(written(scene, before)) == set(preview)
    assert sum(preview.values()) == result.rows == GIVEN.num_rows
    if verb == "upsert":
        read = scene.table().read(meta=True, where="ts = 2").to_arrow()
        files = zip(read["_hoodie_partition_path"], read["_hoodie_file_name"], strict=True)
        seen = Counter((day.as_py(), name.as_py().lstrip(".").split("_")[0]) for day, name in files)
        assert seen == preview


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("mode", "buckets"), LOOKED_AT)
def test_a_preview_writes_nothing_and_begins_nothing(verb: str, mode: str, buckets: str) -> None:
    scene = made(mode, buckets)
    held = scene.hold("other", lambda t: t.upsert(rows("x", *KEYS)), Stop.WRITTEN)
    scene.clock.sleep(1)
    before = objects(scene)
    storage = FaultyStorage(scene.storage)
    VERBS[verb].plan(scene.table("ours", storage))
    assert objects(scene) == before
    looks = {"read", "read_ranges", "stat", "list", "list_folder", "open"}
    assert {call.name for call in storage.trace} <= looks
    held.finish()


@pytest.mark.parametrize("form", ["arrow", "batches", "pandas", "polars"])
def test_rows_of_every_kind_have_the_same_places(form: str) -> None:
    scene = made("non-blocking", "consistent")
    forms: dict[str, Callable[[], Any]] = {
        "arrow": lambda: GIVEN,
        "batches": lambda: pa.RecordBatchReader.from_batches(
            GIVEN.schema, GIVEN.to_batches(max_chunksize=3)
        ),
        "pandas": lambda: GIVEN.to_pandas(),
        "polars": lambda: pytest.importorskip("polars").from_arrow(GIVEN),
    }
    table = scene.table("ours")
    assert found(table.plan_upsert(forms[form]())) == found(table.plan_upsert(GIVEN))


def test_a_new_partition_of_a_consistent_table_has_no_file_group_yet() -> None:
    scene = made("non-blocking", "consistent")
    preview = scene.table("ours").plan_upsert(rows("new", *KEYS, day="su"))
    [place] = preview.places().to_pylist()
    none = {"bucket": None, "node": None, "file_id": None}
    assert place == {"partition": "su", **none, "rows": len(KEYS)}
    assert "1 new partition, which the write gives its first ring" in str(preview)
    assert preview.conflicts().num_rows == 0
    assert str(preview).splitlines()[-1] == "no other at work there"


def test_a_new_partition_of_simple_buckets_has_the_places_that_it_will_have() -> None:
    scene = made("non-blocking")
    given = rows("new", *KEYS, day="su")
    preview = found(scene.table("ours").plan_upsert(given))
    scene.table("ours").upsert(given)
    read = scene.table().read(meta=True, where="day = 'su'").to_arrow()
    files = Counter(name.as_py().lstrip(".").split("_")[0] for name in read["_hoodie_file_name"])
    assert preview == {("su", file_id): count for file_id, count in files.items()}


def test_buckets_are_numbers_and_nodes_are_positions() -> None:
    for buckets, column in (("simple", "bucket"), ("consistent", "node")):
        scene = made("non-blocking", buckets)
        places = scene.table("ours").plan_upsert(rows("new", *KEYS)).places().to_pylist()
        assert len({place[column] for place in places}) == 4
        other = ({"bucket", "node"} - {column}).pop()
        assert all(place[other] is None for place in places)


def test_rows_of_other_partitions_than_the_overwrite_names_are_refused() -> None:
    table = made("non-blocking").table("ours")
    for call in (table.plan_overwrite, table.overwrite):
        with pytest.raises(InvalidRequestError, match="overwrite names other partitions"):
            call(GIVEN, partitions=["mo"])


def test_bad_rows_are_refused_as_the_write_refuses_them() -> None:
    table = made("non-blocking").table("ours")
    bad = pa.table({"id": ["a"], "day": ["mo"], "ts": [None], "by": ["x"]}, GIVEN.schema)
    told = []
    for call in (table.plan_upsert, table.upsert):
        with pytest.raises(InvalidRequestError) as caught:
            call(bad)
        told.append(str(caught.value))
    assert told[0] == told[1]


# -- whom it would meet


def held(scene: Scene, verb: str, **settings: Any) -> Any:
    """A rival with files in partition `mo`."""
    one = rows("theirs", KEYS[0], ts=3)
    writes: dict[str, Callable[[Table], Any]] = {
        "upsert": lambda t: t.upsert(one),
        "update": lambda t: t.update(one.select(["id", "day", "by"]), columns=["by"]),
        "overwrite": lambda t: t.overwrite(one),
    }
    return scene.hold("rival", writes[verb], Stop.WRITTEN, **settings)


PAIRS = [
    (mode, buckets, own, rival)
    for mode, buckets in TABLES
    for own in ("upsert", "update", "overwrite")
    for rival in ("upsert", "update", "overwrite")
]


@pytest.mark.parametrize(("mode", "buckets", "own", "rival"), PAIRS)
def test_what_is_predicted_happens(mode: str, buckets: str, own: str, rival: str) -> None:
    scene = made(mode, buckets)
    other = held(scene, rival, job="nightly")
    [met] = VERBS[own].plan(scene.table("ours")).conflicts().to_pylist()
    assert (met["job"], met["kind"], met["partition"]) == ("nightly", "write", "mo")
    assert met["places"] >= 1

    for retries in (0, 3):
        twin = made(mode, buckets)
        first = held(twin, rival)
        ours = twin.hold("ours", VERBS[own].write, Stop.WRITTEN, conflict_retries=retries)
        first.finish()
        error = None
        result = None
        try:
            result = ours.finish()
        except ConflictError as caught:
            error = caught
        preview = VERBS[own].plan(scene.table("ours", conflict_retries=retries)).conflicts()
        [met] = preview.to_pylist()
        if met["outcome"] == "both complete":
            assert met["rule"] is None
            assert error is None
            assert result is not None
            assert result.retries == result.recommits == 0
        elif met["outcome"] == "its files are committed behind the other's":
            assert result is not None
            assert (result.recommits, result.retries) == (1, 0)
        else:
            assert met["outcome"] == "it is made again, or refused"
            assert met["rule"] is not None
            if retries:
                assert result is not None
                assert result.retries
            else:
                assert error is not None
                assert error.facts["rule"] == met["rule"]
                assert error.facts["partition"] == met["partition"]
                assert error.facts["file_group"] == met["file_id"] or own == "overwrite"
        if met["certain"]:
            assert (error is not None) or (result is not None and result.retries)
    other.finish()


def test_certain_is_what_no_commit_behind_another_settles() -> None:
    certain = {}
    for mode, own in ((mode, own) for mode in MODES for own in ("upsert", "update", "overwrite")):
        scene = made(mode)
        other = held(scene, "upsert")
        [met] = VERBS[own].plan(scene.table("ours")).conflicts().to_pylist()
        certain[mode, own] = met["certain"]
        other.finish()
    assert certain == {
        ("non-blocking", "upsert"): False,
        ("non-blocking", "update"): False,  # it may find none of its keys there
        ("non-blocking", "overwrite"): True,
        ("optimistic", "upsert"): False,  # its files are committed behind the other's
        ("optimistic", "update"): False,
        ("optimistic", "overwrite"): True,
        ("copy on write", "upsert"): True,
        ("copy on write", "update"): False,
        ("copy on write", "overwrite"): True,
    }


def test_a_writer_in_other_buckets_or_partitions_is_not_met() -> None:
    scene = made("copy on write")
    other = held(scene, "upsert")
    table = scene.table("ours")
    read = scene.table("reader").read(meta=True, where="day = 'mo'").to_arrow().to_pylist()
    buckets = {row["id"]: row["_hoodie_file_name"][:8] for row in read}
    elsewhere = [key for key in KEYS if buckets[key] != buckets[KEYS[0]]]
    assert table.plan_upsert(rows("x", *elsewhere)).conflicts().num_rows == 0
    assert table.plan_upsert(rows("x", *KEYS, day="tu")).conflicts().num_rows == 0
    assert table.plan_upsert(rows("x", *KEYS)).conflicts().num_rows == 1
    # An overwrite meets it in its partition, whichever bucket that is.
    assert table.plan_overwrite(rows("x", *elsewhere)).conflicts().num_rows == 1
    other.finish()


def test_a_dead_writer_and_one_that_is_rolled_back_are_not_met() -> None:
    scene = made("copy on write")
    held(scene, "upsert")
    table = scene.table("ours")
    assert table.plan_upsert(GIVEN).conflicts().num_rows == 1
    scene.clock.sleep(10 * 60_000)
    assert table.plan_upsert(GIVEN).conflicts().num_rows == 0
    scene.table("third").upsert(rows("x", "z", day="we"))  # which rolls it back
    assert table.plan_upsert(GIVEN).conflicts().num_rows == 0


def test_of_a_writer_whose_markers_cannot_be_read_any_place_may_be_taken() -> None:
    scene = made("copy on write")
    other = held(scene, "upsert")
    [met] = scene.table("ours").plan_upsert(GIVEN).conflicts().to_pylist()
    scene.storage.create(f".hoodie/.temp/{met['instant']}/MARKERS0", b"\xff garbage\n")
    [now] = scene.table("ours").plan_upsert(GIVEN).conflicts().to_pylist()
    assert met["certain"]
    assert not now["certain"]
    assert now["rule"] == met["rule"]
    assert now["places"] > met["places"]
    scene.storage.delete(f".hoodie/.temp/{met['instant']}/MARKERS0")
    other.finish()


def test_a_writer_of_higher_priority_goes_first() -> None:
    scene = made("optimistic")
    other = held(scene, "upsert", priority=5)
    [met] = scene.table("ours").plan_upsert(GIVEN).conflicts().to_pylist()
    assert (met["rule"], met["priority"]) == ("priority", 5)
    assert met["outcome"] == "it yields while the other is under way"
    [met] = scene.table("ours", priority=9).plan_upsert(GIVEN).conflicts().to_pylist()
    assert met["rule"] == "same_file_group"
    other.finish()


def test_a_writer_that_may_be_a_seed_makes_nothing_certain_which_a_seed_would_not() -> None:
    """Of a seed, only another base file of its buckets is refused."""
    scene = made("optimistic")
    other = held(scene, "overwrite")
    [bases] = scene.table("ours").plan_overwrite(rows("x", *KEYS)).conflicts().to_pylist()
    [logs] = scene.table("ours", conflict_retries=0).plan_upsert(GIVEN).conflicts().to_pylist()
    assert (bases["rule"], bases["certain"]) == ("hidden_rows", True)
    assert (logs["rule"], logs["certain"]) == ("same_file_group", False)
    other.finish()


def test_a_pending_compaction_is_met_and_stops_no_write_that_begins_behind_it() -> None:
    scene = made("non-blocking")
    policy = pyhudi.CompactionPolicy(trigger_delta_commits=1)
    scene.table("service").services.compact(policy, plan_only=True)
    for own in ("upsert", "overwrite"):
        [met] = VERBS[own].plan(scene.table("ours")).conflicts().to_pylist()
        assert (met["kind"], met["rule"], met["outcome"]) == ("compaction", None, "both complete")
        twin = made("non-blocking")
        service = twin.table("service").services
        service.compact(policy, plan_only=True)
        ours = twin.hold("ours", VERBS[own].write, Stop.WRITTEN, conflict_retries=0)
        service.compact(policy)
        assert ours.finish().retries == 0


def test_a_pending_clustering_of_another_engine_is_met_as_the_write_meets_it() -> None:
    scene = made("shared")
    service = plan_clustering(scene.session("service"), [FileGroupId("mo", file_id(0))])
    [met] = scene.table("ours").plan_upsert(rows("x", *KEYS)).conflicts().to_pylist()
    assert (met["instant"], met["kind"]) == (service.requested, "clustering")
    assert (met["partition"], met["bucket"], met["places"]) == ("mo", 0, 1)
    assert met["outcome"] == "it yields while the other is under way"
    assert met["certain"]
    with pytest.raises(ConflictError) as caught:
        scene.table("ours", conflict_retries=0).upsert(rows("x", *KEYS))
    assert caught.value.facts["rule"] == met["rule"] == "clustering_pending"
    elsewhere = scene.table("ours").plan_upsert(rows("x", *KEYS, day="tu"))
    assert elsewhere.conflicts().num_rows == 0


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("verb", ["upsert", "overwrite"])
def test_what_a_write_does_about_a_resize_is_predicted(verb: str, is_closed: bool) -> None:
    table = ResizeTable(ordering="ts")
    table.put(KEYS, 1)
    resize = table.plan(2)
    if is_closed:
        table.storage.create(closed_path(resize), b"")
    given = table.made(KEYS[:3], 2)
    ours = table.table("ours")
    plan = ours.plan_upsert if verb == "upsert" else ours.plan_overwrite
    before = list(table.storage.list(""))
    [met] = plan(given).conflicts().to_pylist()
    assert list(table.storage.list("")) == before
    assert (met["instant"], met["kind"], met["certain"]) == (resize, "resize", False)
    assert (met["rule"], met["outcome"]) == {
        ("upsert", False): ("resize_moves", "its logs are moved to the new buckets"),
        ("upsert", True): ("resize_closed", "it finishes the resize first"),
        ("overwrite", False): ("resize_yields", "it cancels the resize"),
        ("overwrite", True): ("resize_yields", "it cancels the resize"),
    }[verb, is_closed]


def test_logs_are_moved_as_predicted_if_the_resize_completes_first() -> None:
    table = ResizeTable(ordering="ts")
    table.put(KEYS, 1)
    resize, given = table.plan(2), table.made(KEYS[:3], 2)
    [met] = table.table("ours").plan_upsert(given).conflicts().to_pylist()
    assert met["outcome"] == "its logs are moved to the new buckets"
    ours = table.table("ours")
    held = HeldWrite(lambda: ours.upsert(given)).run_to(Stop.WRITTEN)
    table.resizes().execute(resize)
    result = held.finish()
    assert result.moved
    assert result.retries == 0


def test_a_resize_is_cancelled_as_predicted_by_what_replaces_rows() -> None:
    table = ResizeTable(ordering="ts")
    table.put(KEYS, 1)
    resize, given = table.plan(2), table.made(KEYS[:3], 2)
    [met] = table.table("ours").plan_overwrite(given).conflicts().to_pylist()
    assert (met["instant"], met["outcome"]) == (resize, "it cancels the resize")
    assert table.table("ours").overwrite(given).retries == 0
    assert resize not in {name[:17] for name in table.pending()}


def test_beside_a_resize_that_hudi_can_execute_logs_are_written_twice_as_predicted() -> None:
    table = ResizeTable(ordering="ts", lock=LockKind.FILE)
    table.put(KEYS, 1)
    resize, given = table.plan(2, is_dual=True), table.made(KEYS[:3], 2)
    [met] = table.table("ours").plan_upsert(given).conflicts().to_pylist()
    assert (met["instant"], met["rule"]) == (resize, "resize_twice")
    assert met["outcome"] == "its logs go into the new buckets, too"
    before = {stat.path for stat in table.storage.list("d")}
    table.table("ours").upsert(given)
    new = {stat.path for stat in table.storage.list("d")} - before
    groups = {group.file_id for path in new if (group := group_of_path(path)) is not None}
    assert met["file_id"] in groups
    assert len(groups) == 3  # and the two children


def test_of_a_resize_whose_plan_cannot_be_read_any_place_may_be_taken() -> None:
    table = ResizeTable(ordering="ts")
    table.put(KEYS, 1)
    resize = table.plan(2)
    table.storage.write(f"{TIMELINE}/{resize}.clustering.requested", b"garbage")
    given = table.made(KEYS[:3], 2)
    [met] = table.table("ours").plan_upsert(given).conflicts().to_pylist()
    assert (met["kind"], met["outcome"], met["places"]) == ("resize", "both complete", 1)
    [met] = table.table("ours").plan_overwrite(given).conflicts().to_pylist()
    assert met["outcome"] == "it cancels the resize"


def test_a_preview_of_one_owner_meets_no_other_owner() -> None:
    owners = {"writer": ("by",), "clock": ("ts",)}
    scene = Scene(owners=owners)
    declare_owners(scene.storage, ColumnOwners(owners))
    by, ts = (rows("x", *KEYS).select(["id", "day", name]) for name in ("by", "ts"))
    scene.table("before").upsert(by, owner="writer")
    other = scene.hold("rival", lambda t: t.upsert(ts, owner="clock"), Stop.WRITTEN)
    preview = scene.table("ours").plan_upsert(by, owner="writer")
    [met] = preview.conflicts().to_pylist()
    assert (met["rule"], met["outcome"]) == (None, "both complete")
    other.finish()
    with pytest.raises(InvalidRequestError, match="owner"):
        scene.table("ours").plan_upsert(by)
    before = objects(scene)
    scene.table("ours").upsert(by, owner="writer")
    assert set(written(scene, before)) == set(found(preview))


def test_a_load_that_would_open_a_bucket_meets_a_rival_that_announced_a_file_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (tasks, places):
        monkeypatch.setattr(module, "is_load", lambda size: size > 0)
    scene = Scene(**OCC, buckets=SimpleBuckets(1))
    scene.table("before").upsert(rows("old", *KEYS, day="we"))
    other = scene.hold("rival", lambda t: t.upsert(rows("x", *KEYS, day="we")), Stop.BEGUN)
    [pending] = {name[:17] for name in scene.pending()}
    marker = f"mo/.{file_id(0)}_{pending}.log.1_0-0-0.marker.CREATE"
    scene.storage.create(f".hoodie/.temp/{pending}/{marker}", b"")
    [met] = scene.table("ours").plan_upsert(rows("y", *KEYS)).conflicts().to_pylist()
    assert (met["rule"], met["outcome"]) == ("hidden_rows", "it is made again, or refused")
    assert met["certain"]
    other.finish()


def test_in_words_a_preview_has_counts_and_who_is_in_the_way() -> None:
    scene = made("copy on write")
    other = held(scene, "upsert", job="nightly")
    preview = scene.table("ours").plan_upsert(GIVEN)
    places = preview.places().num_rows
    head = f"{GIVEN.num_rows} rows to {places} places in 2 partitions"
    first, second, third = str(preview).splitlines()
    assert (first, second) == (head, "1 other at work there: 1 conflict if they complete first")
    assert "of job 'nightly'" in third
    assert third.endswith("partition 'mo': it is made again, or refused")
    assert repr(preview) == f"<preview of a write: {head}>"
    other.finish()


def test_an_empty_table_in_memory_has_a_preview() -> None:
    scene = Scene(**NBCC, buckets=SimpleBuckets(1))
    assert isinstance(scene.storage, MemoryStorage)
    before = objects(scene)
    preview = scene.table("ours").plan_upsert(rows("a", "a"))
    assert preview.places()["rows"].to_pylist() == [1]
    assert objects(scene) == before
