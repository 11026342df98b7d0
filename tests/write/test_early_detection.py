"""A write yields to one that is ahead of it and has announced a file where it has one, and only
then."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import FaultyStorage
from many_writers.scene import COW, NBCC, OCC, Definition, HeldWrite, Scene, Stop, rows
from many_writers.services_by_hand import plan_clustering
from opened_tables import table_on
from pyhudi.api.table import Table
from pyhudi.commit.concurrent import SEED_KEY
from pyhudi.commit.early_evidence import EVIDENCE_FOLDER
from pyhudi.commit.validation import Checks
from pyhudi.conflict.early_strategies import STRATEGIES
from pyhudi.format.files.file_names import IoType, MarkerName, group_of_path
from pyhudi.format.lock.lock_address import ZookeeperAddress
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.commit_metadata import decode_inflight_commit
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.markers import marker_path
from pyhudi.settings import EARLY_STRATEGIES, EarlyDetection, WriteSettings
from pyhudi.storage.objects import rival_markers
from pyhudi.storage.objects.claims import CLAIM_BYTES_MAX, CLAIM_FOLDER, Claim
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.objects.marker_filters import FILTER_FOLDER
from pyhudi.write import local, tasks
from pyhudi.write.early import announcing
from pyhudi.write.early.announcing import LookingMarkers
from pyhudi.write.early.check import EarlyCheck, Seen, Stance
from pyhudi.write.files.announcing import DIRECT, Stored

BUCKETS = 4
KEYS = [f"k{n}" for n in range(16)]
DAYS = ("mo", "tu")
PERIOD_MS = 5_000
LIST_BYTES_MAX = 4_096  # instead of 64 MiB
KINDS: dict[str, Definition] = {"cow": COW, "occ": OCC, "nbcc": NBCC}


def made(kind: str, days: tuple[str, ...] = DAYS) -> Scene:
    scene = Scene(**KINDS[kind], buckets=pyhudi.SimpleBuckets(BUCKETS))
    for day in days:
        scene.table("before").upsert(rows("before", *ids(day), day=day))
    return scene


def ids(day: str, keys: list[str] = KEYS) -> list[str]:
    return [f"{day}-{key}" for key in keys]


def by_bucket(scene: Scene, day: str) -> dict[int, list[str]]:
    read = scene.table("reader").read(meta=True, where=f"day = '{day}'").to_arrow().to_pylist()
    found: dict[int, list[str]] = {}
    for row in read:
        found.setdefault(int(row["_hoodie_file_name"].lstrip(".")[:8]), []).append(row["id"])
    return found


def update(by: str, given: pa.Table) -> Callable[[Table], Any]:
    """A write that reads what it changes, and so conflicts in every kind of table."""
    return lambda table: table.update(given.select(["id", "day", "by"]), columns=["by"])


def upsert(given: pa.Table) -> Callable[[Table], Any]:
    return lambda table: table.upsert(given)


class Slow(FaultyStorage):
    """Each data file takes the time between two looks."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.storage)
        self._clock = scene.clock
        self.files: list[str] = []

    def _create(self, path: str) -> None:
        if not path.startswith(".hoodie") and not path.endswith("_metadata"):
            self._clock.sleep(PERIOD_MS)
            self.files.append(path)

    def create(self, path: str, data: bytes) -> bool:
        self._create(path)
        return super().create(path, data)

    def create_from(self, path: str, chunks: Any) -> int | None:
        self._create(path)
        return super().create_from(path, chunks)


def tried(
    scene: Scene, strategy: object, act: Callable[[Table], Any], **settings: Any
) -> tuple[Slow, pyhudi.ConflictError | None]:
    """Write with early detection; the files that it made, and its error."""
    storage = Slow(scene)
    early = EarlyDetection(strategy=strategy, period_ms=PERIOD_MS)
    given = {"conflict_retries": 0, "job": "ours", **settings}
    try:
        act(scene.table("ours", storage, early_detection=early, **given))
    except pyhudi.ConflictError as error:
        return storage, error
    return storage, None


def hold(
    scene: Scene, label: str, act: Callable[[Table], Any], stop: Stop = Stop.WRITTEN, **given: Any
) -> HeldWrite:
    """A write that is not repeated."""
    return scene.hold(label, act, stop, **{"conflict_retries": 0, **given})


def some(scene: Scene, day: str, count: int, first: int = 0) -> list[str]:
    """The keys of some buckets of a day."""
    found = by_bucket(scene, day)
    return [key for bucket in sorted(found)[first : first + count] for key in found[bucket]]


#: Which buckets of Monday the rival has, and ours, which go up from the other end.
OVERLAPS = {"full": (BUCKETS, 0), "partial": (2, 1), "none": (2, 2)}


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", EARLY_STRATEGIES)
def test_a_write_yields_exactly_where_files_overlap(strategy: str, kind: str, overlap: str) -> None:
    scene = made(kind)
    count, first = OVERLAPS[overlap]
    theirs = rows("theirs", *some(scene, "mo", count), ts=2)
    ours = rows("ours", *some(scene, "mo", BUCKETS, first), ts=3)
    held = hold(scene, "theirs", update("theirs", theirs), job="theirs")
    storage, error = tried(scene, strategy, update("ours", ours))
    held.finish()
    if overlap == "none":
        assert error is None
        return
    assert isinstance(error, pyhudi.EarlyConflictError)
    assert len(storage.files) < BUCKETS - first
    facts = error.facts
    assert (facts["found"], facts["strategy"]) == ("early", strategy)
    assert (facts["theirs"]["job"], facts["theirs"]["instant"]) == ("theirs", held.requested)
    assert facts["theirs"]["completed"] is None
    assert facts["found_after_ms"] >= 0
    assert facts["lost"]["files"] == len(storage.files)
    noted = scene.table().inspect.conflicts().to_pylist()
    assert [(row["found"], row["strategy"], row["job"]) for row in noted] == [
        ("early", strategy, "ours")
    ]


@pytest.mark.parametrize("strategy", EARLY_STRATEGIES)
def test_of_five_writers_the_one_in_the_way_is_found(strategy: str) -> None:
    scene = made("cow")
    held = [
        hold(scene, f"w{n}", upsert(rows(f"w{n}", *some(scene, "mo", 1, n), ts=2)), job=f"w{n}")
        for n in range(BUCKETS)
    ]
    _, error = tried(scene, strategy, upsert(rows("ours", *some(scene, "mo", 2, 1))))
    assert error is not None
    assert error.facts["theirs"]["job"] in ("w1", "w2")
    _, free = tried(scene, strategy, upsert(rows("ours", *ids("tu"), day="tu")))
    assert free is None
    for each in held:
        each.finish()


# ---- what is no conflict


@pytest.mark.parametrize("strategy", EARLY_STRATEGIES)
@pytest.mark.parametrize(("one", "other"), [("dt_1", "dt_2"), ("dt", "dt_1"), ("dt_1", "dt")])
def test_partitions_with_similar_names_are_different(strategy: str, one: str, other: str) -> None:
    """Hudi cuts names at the first underscore, and compares file ids alone (HUDI-5831)."""
    scene = Scene(**COW, buckets=pyhudi.SimpleBuckets(1))
    for day in (one, other):
        scene.table("before").upsert(rows("before", f"{day}-k", day=day))
    held = hold(scene, "theirs", upsert(rows("theirs", f"{one}-k", day=one, ts=2)))
    _, error = tried(scene, strategy, upsert(rows("ours", f"{other}-k", day=other, ts=2)))
    assert error is None
    held.finish()


@pytest.mark.parametrize("strategy", EARLY_STRATEGIES)
def test_blind_upserts_to_logs_never_yield(strategy: str) -> None:
    for kind in ("occ", "nbcc"):
        scene = made(kind)
        given = upsert(rows("theirs", *ids("mo"), ts=2))
        held = hold(scene, "theirs", given, conflict_retries=3)
        _, error = tried(
            scene, strategy, upsert(rows("ours", *ids("mo"), ts=3)), conflict_retries=3
        )
        assert error is None
        held.finish()
        assert set(scene.writers().values()) == {"ours", "before"}


@pytest.mark.parametrize("strategy", EARLY_STRATEGIES)
def test_a_write_does_not_yield_to_one_that_began_later(strategy: str) -> None:
    scene = made("cow")
    early = EarlyDetection(strategy=strategy, period_ms=1)
    given: dict[str, Any] = {"early_detection": early, "conflict_retries": 0}
    other = hold(scene, "w0", upsert(rows("w0", *ids("tu"), day="tu", ts=2)))  # both have a rival
    first = hold(scene, "w1", upsert(rows("w1", *ids("mo"), ts=2)), Stop.BEGUN, **given)
    later = hold(scene, "w2", upsert(rows("w2", *ids("mo"), ts=3)), **given)
    first.run_to(Stop.WRITTEN)  # it met the markers of the later one
    first.finish()
    with pytest.raises(pyhudi.ConflictError) as caught:
        later.finish()
    assert caught.value.facts["theirs"]["instant"] == first.requested
    other.finish()


@pytest.mark.parametrize("strategy", EARLY_STRATEGIES)
@pytest.mark.parametrize(("theirs", "yields"), [(0, False), (5, True), (9, True)])
def test_a_rival_of_lower_priority_is_not_waited_for(
    strategy: str, theirs: int, yields: bool
) -> None:
    scene = made("cow")
    held = hold(scene, "theirs", upsert(rows("theirs", *ids("mo"), ts=2)), priority=theirs)
    _, error = tried(scene, strategy, upsert(rows("ours", *ids("mo"), ts=3)), priority=5)
    assert isinstance(error, pyhudi.EarlyConflictError) == yields
    if not yields:
        with pytest.raises(pyhudi.ConflictError):
            held.finish()


# ---- a log against a base file


@pytest.mark.parametrize("strategy", EARLY_STRATEGIES)
@pytest.mark.parametrize("base_first", [True, False])
def test_a_log_and_a_base_file_of_one_file_group_conflict(strategy: str, base_first: bool) -> None:
    scene = made("occ")
    log = update("log", rows("log", *ids("mo"), ts=2))
    base = lambda table: table.overwrite(rows("base", *ids("mo"), ts=2))  # noqa: E731
    acts = [base, log] if base_first else [log, base]
    held = hold(scene, "theirs", acts[0])
    _, error = tried(scene, strategy, acts[1])
    assert isinstance(error, pyhudi.EarlyConflictError)
    held.finish()


class Meddled(FaultyStorage):
    """Something happens once the first data file is there."""

    meddle: Callable[[], object] | None = None

    def create(self, path: str, data: bytes) -> bool:
        made = super().create(path, data)
        meddle, is_data = self.meddle, path.endswith(".parquet")
        if meddle is not None and is_data:
            self.meddle = None
            meddle()
        return made


def test_a_seed_says_so_while_it_is_pending() -> None:
    """It opens a bucket for logs and has no rows: no log is in its way."""
    scene = made("occ", ("mo",))
    storage, seen = Meddled(scene.storage), list[bytes]()

    def look() -> None:
        path = max(p for p in paths(scene, ".hoodie/timeline") if p.endswith("inflight"))
        seen.append(scene.storage.read(path))

    storage.meddle = look
    scene.table("theirs", storage).upsert(rows("theirs", "tu-k", day="tu"))
    (metadata,) = (decode_inflight_commit(data, "inflight") for data in seen)
    assert metadata is not None
    assert (metadata.extra_metadata or {})[SEED_KEY] == "true"


def paths(scene: Scene, folder: str = "") -> list[str]:
    return [stat.path for stat in scene.storage.list(folder)]


# ---- table services


@pytest.mark.parametrize("strategy", EARLY_STRATEGIES)
@pytest.mark.parametrize("is_met", [True, False])
def test_the_plan_of_a_clustering_counts_as_announced(strategy: str, is_met: bool) -> None:
    scene = made("occ")
    files = [path for path in paths(scene) if path.startswith("mo/") and path.endswith(".parquet")]
    groups = {group for path in files if (group := group_of_path(path)) is not None}
    plan = plan_clustering(scene.session("c"), groups)
    day = "mo" if is_met else "tu"
    storage, error = tried(scene, strategy, update("ours", rows("ours", *ids(day), day=day, ts=2)))
    if not is_met:
        assert error is None
        return
    assert isinstance(error, pyhudi.EarlyConflictError)
    assert len(storage.files) < BUCKETS
    assert error.facts["rule"] == "clustering_pending"
    assert error.facts["theirs"]["instant"] == plan.requested


# ---- who is alive


@pytest.mark.parametrize("strategy", EARLY_STRATEGIES)
def test_a_dead_writer_stops_nobody_once_its_heartbeat_is_old(strategy: str) -> None:
    scene = made("cow")
    held = hold(scene, "theirs", upsert(rows("theirs", *ids("mo"), ts=2)))
    # It is not rolled back either: to the others its heartbeat is young enough for that.
    patient = {"heartbeat_interval_ms": 600_000}
    ours = upsert(rows("ours", *ids("mo"), ts=3))
    _, error = tried(scene, strategy, ours, **patient)
    assert isinstance(error, pyhudi.EarlyConflictError)
    scene.clock.sleep(20 * 60_000)
    impatient = {"heartbeat_interval_ms": 1_200_000}  # times two misses: it counts as alive still
    _, error = tried(scene, strategy, ours, **impatient)
    assert isinstance(error, pyhudi.EarlyConflictError)
    scene.storage.delete(heartbeat_path(held.requested))
    _, error = tried(scene, strategy, ours, **impatient)
    assert error is None
    with pytest.raises(pyhudi.ConflictError):
        held.finish()


def test_liveness_is_asked_on_a_conflict_only() -> None:
    scene = made("cow")
    held = hold(scene, "theirs", upsert(rows("theirs", *some(scene, "mo", 2), ts=2)))
    storage, _ = tried(scene, "simple_direct", upsert(rows("o", *some(scene, "mo", 2, 2), ts=2)))
    clock = [call for call in storage.trace if call.path.startswith(".hoodie/.pyhudi/clock")]
    asked = [call for call in storage.trace if call.path == heartbeat_path(held.requested)]
    storage, error = tried(scene, "simple_direct", upsert(rows("o", *ids("mo"), ts=2)))
    more = [call for call in storage.trace if call.path == heartbeat_path(held.requested)]
    assert error is not None
    assert len(more) == len(asked) + 1, clock
    held.finish()


# ---- what becomes of the write


def test_a_write_that_yields_waits_for_the_other_and_is_repeated() -> None:
    scene = made("cow")
    held = hold(scene, "theirs", upsert(rows("theirs", *ids("mo"), ts=2)))
    slept: list[int] = []
    world = scene.world("ours")

    def sleep(ms: int) -> None:
        slept.append(ms)
        scene.clock.sleep(ms)
        if len(slept) == 2:
            held.finish()

    early = EarlyDetection(strategy="simple_direct")
    table = table_on(
        scene.storage, replace(world, sleep_ms=sleep), pyhudi.WriteSettings(early_detection=early)
    )
    result = table.upsert(rows("ours", *ids("mo"), ts=3))
    assert (result.retries, len(slept)) == (1, 2)
    assert {scene.writers()[key] for key in ids("mo")} == {"ours"}


def test_nothing_of_a_write_that_yielded_stays() -> None:
    for strategy in EARLY_STRATEGIES:
        scene = made("cow")
        other = hold(scene, "other", upsert(rows("other", *ids("tu"), day="tu", ts=2)))
        held = hold(scene, "theirs", upsert(rows("theirs", *ids("mo"), ts=2)))
        _, error = tried(scene, strategy, upsert(rows("ours", *ids("mo"), ts=3)))
        assert error is not None
        instant = error.facts["ours"]["instant"]
        left = [path for path in paths(scene) if instant in path]
        left = [path for path in left if not path.startswith(".hoodie/.temp/")]
        assert left == [f".hoodie/.pyhudi/conflicts/{instant}.json"]
        held.finish()
        other.finish()
        assert paths(scene, EVIDENCE_FOLDER) == []


# ---- claims


def claims(scene: Scene) -> dict[str, str]:
    """Who has which file group."""
    found = (Claim.decode(scene.storage.read(path)) for path in paths(scene, CLAIM_FOLDER))
    return {c.marker.data_file.partition("_")[0]: c.requested for c in found if c is not None}


def claiming(**given: Any) -> dict[str, Any]:
    early = EarlyDetection(strategy="transaction_direct", **given)
    return {"early_detection": early, "conflict_retries": 0}


def test_a_claim_stays_as_long_as_the_markers_of_its_write() -> None:
    scene = made("cow")
    other = hold(scene, "other", upsert(rows("other", *ids("tu"), day="tu", ts=2)))
    held = hold(scene, "ours", upsert(rows("ours", *ids("mo"), ts=2)), **claiming())
    assert set(claims(scene).values()) == {held.requested}
    assert len(claims(scene)) == BUCKETS
    held.finish()
    assert paths(scene, EVIDENCE_FOLDER) == []
    other.finish()


def test_a_smaller_instant_writes_itself_in_and_the_larger_one_yields() -> None:
    scene = made("cow")
    other = hold(scene, "other", upsert(rows("other", *ids("tu"), day="tu", ts=2)))
    smaller = hold(scene, "s", upsert(rows("s", *ids("mo"), ts=2)), Stop.BEGUN, **claiming())
    slow = Slow(scene)
    # The larger one has its claims and markers, and is at work still.
    meddled = Meddled(slow)
    met: list[str] = []

    def announce() -> None:
        smaller.run_to(Stop.WRITTEN)
        met.extend(claims(scene).values())

    def create_from(path: str, chunks: Any) -> int | None:
        made_ = slow.create_from(path, chunks)
        meddle, meddled.meddle = meddled.meddle, None
        if meddle is not None:
            meddle()
        return made_

    meddled.meddle = announce
    meddled.create_from = create_from  # type: ignore[method-assign]
    given = {**claiming(period_ms=PERIOD_MS), "storage": meddled}
    with pytest.raises(pyhudi.EarlyConflictError) as caught:
        scene.table("l", **given).upsert(rows("l", *ids("mo"), ts=3))
    assert set(met) == {smaller.requested}
    assert caught.value.facts["theirs"]["instant"] == smaller.requested
    smaller.finish()
    other.finish()
    assert paths(scene, EVIDENCE_FOLDER) == []


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\xfe", b"x" * (CLAIM_BYTES_MAX + 9), b"20990101000000000\nmo/../../x\n"],
    ids=["empty", "garbage", "huge", "of nothing"],
)
def test_a_claim_that_cannot_be_read_is_taken_over(data: bytes) -> None:
    scene = made("cow")
    other = hold(scene, "other", upsert(rows("other", *ids("tu"), day="tu", ts=2)))
    held = hold(scene, "a", upsert(rows("a", *ids("mo"), ts=2)), **claiming())
    for path in paths(scene, CLAIM_FOLDER):
        scene.storage.write(path, data)
    later = hold(scene, "b", upsert(rows("b", *ids("mo"), ts=3)), **claiming())
    with pytest.raises(pyhudi.EarlyConflictError) as caught:
        later.finish()  # the markers are there
    assert caught.value.facts["theirs"]["instant"] == held.requested
    held.finish()
    other.finish()


def test_claims_and_filters_of_dead_writers_are_swept() -> None:
    scene = made("cow")
    other = hold(scene, "other", upsert(rows("other", *ids("tu"), day="tu", ts=2)))
    dead = []
    for strategy in ("transaction_direct", "bloom_direct"):
        early = EarlyDetection(strategy=strategy)
        given: dict[str, Any] = {"early_detection": early, "heartbeat_interval_ms": 1_000}
        act = upsert(rows("dead", *ids("mo"), ts=2))
        dead.append(hold(scene, "dead", act, **given))
        scene.clock.sleep(10_000)
        scene.table("next", heartbeat_interval_ms=1_000).services.repair()
    assert paths(scene, EVIDENCE_FOLDER) == []
    assert len(dead) == 2
    with pytest.raises(pyhudi.ConflictError):
        other.finish()


@pytest.mark.parametrize("is_down", [False, True])
def test_zookeepers_lock_is_held_until_the_marker_is_there(
    monkeypatch: pytest.MonkeyPatch, is_down: bool
) -> None:
    scene = made("cow")
    storage = FaultyStorage(scene.storage)
    asked: list[str] = []
    held: list[str] = []
    when: list[list[str]] = []

    class Played:
        def __init__(self, storage: object, world: object, address: ZookeeperAddress) -> None:
            self._path = address.path

        def acquire(self, wait_ms: int) -> Played:
            asked.append(self._path)
            if is_down:
                raise pyhudi.UnavailableError("no answer", why="a test", next_step="go on")
            held.append(self._path)
            return self

        def release(self) -> None:
            when.append([call.path for call in storage.trace])
            held.clear()

    monkeypatch.setattr(announcing, "ZookeeperLock", Played)
    requested = InstantTime("20260102030405678")
    stance = Stance(requested, Checks(is_checked=True), None, WriteSettings(), False, False)
    looks, world = STRATEGIES["transaction_direct"], scene.world("ours")
    check = EarlyCheck(looks, stance, (), 1, lambda: world, Seen(stance))
    address = ZookeeperAddress(url="zk:2181", base_path="/locks", lock_key="t")
    marker = MarkerName(f"mo/00000001-a-0_0-0-0_{requested}.parquet", IoType.CREATE)
    markers = LookingMarkers(check, DIRECT, address)
    assert markers.announce(storage, requested, marker) == Stored()
    assert len(when) == (not is_down)
    for calls in when:
        assert calls[-1] == marker_path(requested, marker)
    assert len(paths(scene, CLAIM_FOLDER)) == 1
    assert held == []
    markers.announce(storage, requested, marker)
    assert len(asked) == (1 if is_down else 2), "a task does not wait before each file"
    scene.clock.sleep(announcing.LOCK_REST_MS)
    markers.announce(storage, requested, marker)
    assert len(asked) == (2 if is_down else 3)


# ---- filters


def filters(scene: Scene) -> list[str]:
    return paths(scene, FILTER_FOLDER)


def filtering(scene: Scene) -> HeldWrite:
    """A rival that leaves filters, as it has a rival itself."""
    hold(scene, "other", upsert(rows("other", *ids("tu"), day="tu", ts=2)))
    act = upsert(rows("theirs", *some(scene, "mo", 2), ts=2))
    early = EarlyDetection(strategy="bloom_direct")
    return hold(scene, "theirs", act, early_detection=early)


def marker_lists(storage: FaultyStorage, requested: str) -> int:
    folder = f".hoodie/.temp/{requested}"
    calls = Counter(call.path for call in storage.trace if call.name.startswith("list"))
    return calls[f"{folder}/mo"]


def test_markers_are_read_only_where_the_filters_say_there_may_be_some() -> None:
    scene = made("cow")
    held = filtering(scene)
    assert len(filters(scene)) == 1
    storage, error = tried(scene, "bloom_direct", upsert(rows("o", *some(scene, "mo", 2, 2), ts=2)))
    assert (error, marker_lists(storage, held.requested)) == (None, 0)
    storage, error = tried(scene, "bloom_direct", upsert(rows("o", *ids("mo"), ts=2)))
    assert error is not None
    assert marker_lists(storage, held.requested) == 1


@pytest.mark.parametrize("strategy", ["bloom_direct", "bloom_async_server"])
@pytest.mark.parametrize(
    "data", [b"", b"garbage", b"\xff" * (1 << 17), None], ids=["empty", "garbage", "huge", "gone"]
)
def test_a_filter_that_says_nothing_hides_no_marker(strategy: str, data: bytes | None) -> None:
    scene = made("cow")
    held = filtering(scene)
    for path in filters(scene):
        if data is None:
            scene.storage.delete(path)
        else:
            scene.storage.write(path, data)
    _, error = tried(scene, strategy, upsert(rows("ours", *ids("mo"), ts=3)))
    assert error is not None
    assert error.facts["theirs"]["instant"] == held.requested


@pytest.mark.parametrize("strategy", ["bloom_direct", "bloom_async_server"])
@pytest.mark.parametrize("bit", [b"\xff", b"\x00"], ids=["all", "none"])
def test_a_filter_that_lies_does_not_decide(strategy: str, bit: bytes) -> None:
    scene = made("cow")
    held = filtering(scene)
    for path in filters(scene):
        data = scene.storage.read(path)
        scene.storage.write(path, data[:13] + bit * (len(data) - 13))
    _, error = tried(scene, strategy, upsert(rows("o", *some(scene, "mo", 2, 2), ts=2)))
    assert error is None  # it says that everything is there, or nothing
    many = pa.concat_tables([rows("o", *ids("mo"), ts=2), rows("o", *ids("tu"), day="tu", ts=2)])
    _, error = tried(scene, strategy, upsert(many))
    assert error is not None
    assert held.requested or error.facts["theirs"]


def test_a_filter_has_also_what_its_write_need_not_yield_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A load need not yield for its logs, and does for base files. Others yield to it for both."""
    monkeypatch.setattr(tasks, "is_load", lambda size: True)
    monkeypatch.setattr(local, "is_load", lambda size: True)
    scene = made("occ")
    hold(scene, "other", update("other", rows("other", *ids("tu"), day="tu")))
    both = pa.concat_tables([rows("theirs", *ids("we"), day="we"), rows("theirs", *ids("mo"))])
    early = EarlyDetection(strategy="bloom_direct")
    held = hold(scene, "theirs", upsert(both), early_detection=early)
    names = [file_name(path) for path in paths(scene, f".hoodie/.temp/{held.requested}")]
    assert {name.startswith(".") for name in names} == {True, False}, "logs and base files"
    assert filters(scene) != []
    _, error = tried(scene, "bloom_direct", update("ours", rows("ours", *ids("mo"))))
    assert error is not None
    assert error.facts["theirs"]["instant"] == held.requested


# ---- the user's strategy


class Judge:
    looks = "simple_direct"

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked: list[Mapping[str, Any]] = []

    def yields(self, facts: Mapping[str, Any], /) -> Any:
        self.asked.append(facts)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("looks", EARLY_STRATEGIES)
def test_a_users_strategy_decides_whether_a_write_yields(looks: str) -> None:
    scene = made("cow")
    held = hold(scene, "theirs", upsert(rows("theirs", *ids("mo"), ts=2)))
    for answer in (True, False):
        judge = Judge(answer)
        judge.looks = looks
        _, error = tried(scene, judge, upsert(rows("ours", *ids("mo"), ts=3)))
        assert isinstance(error, pyhudi.EarlyConflictError) == answer
        assert judge.asked[0]["rival"] == held.requested
        json.dumps(judge.asked[0])
    with pytest.raises(pyhudi.ConflictError):
        held.finish()


@pytest.mark.parametrize("looks", EARLY_STRATEGIES)
@pytest.mark.parametrize(
    ("answer", "named"), [(ValueError("no such job"), "no such job"), ("yes", "'yes'")]
)
def test_a_strategy_that_fails_is_named_and_nothing_is_visible(
    looks: str, answer: object, named: str
) -> None:
    scene = made("cow")
    held = hold(scene, "theirs", upsert(rows("theirs", *ids("mo"), ts=2)))
    judge = Judge(answer)
    judge.looks = looks
    with pytest.raises(pyhudi.InvalidRequestError, match=named):
        tried(scene, judge, upsert(rows("ours", *ids("mo"), ts=3)))
    held.finish()
    assert "ours" not in scene.writers().values()
    assert scene.pending() == []


# ---- markers that make no sense


@pytest.mark.parametrize("strategy", EARLY_STRATEGIES)
@pytest.mark.parametrize(
    "data",
    [
        b"\xff\x00garbage",
        b"mo/half-writ",
        b"",
        b"../../etc/x.parquet.marker.CREATE\n",
        b"mo/00000000-a-0_0-0-0_20200101000000000.parquet.marker.CREATE\n",
        b"\n" * (LIST_BYTES_MAX + 1),
    ],
    ids=["garbage", "half-written", "empty", "outside", "of another instant", "huge"],
)
def test_a_list_of_markers_that_cannot_be_read_counts_as_empty_until_it_can(
    strategy: str, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rival_markers, "MARKER_LIST_BYTES_MAX", LIST_BYTES_MAX)
    scene = made("cow")
    held = hold(scene, "theirs", upsert(rows("theirs", *ids("mo"), ts=2)))
    folder = f".hoodie/.temp/{held.requested}"
    names = [path[len(folder) + 1 :] for path in paths(scene, folder)]
    scene.storage.delete_all(paths(scene, folder))
    scene.storage.write(f"{folder}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    scene.storage.write(f"{folder}/MARKERS0", data)

    class Repairing(Slow):
        def _create(self, path: str) -> None:
            super()._create(path)
            if self.files:
                listed = "".join(f"{name}\n" for name in names).encode()
                scene.storage.write(f"{folder}/MARKERS0", listed)

    storage = Repairing(scene)
    early = EarlyDetection(strategy=strategy, period_ms=PERIOD_MS)
    table = scene.table("ours", storage, early_detection=early, conflict_retries=0)
    with pytest.raises(pyhudi.EarlyConflictError) as caught:
        table.upsert(rows("ours", *ids("mo"), ts=3))
    assert 0 < caught.value.facts["lost"]["files"] < BUCKETS
    held.finish()


# ---- what it costs


def test_a_writer_that_began_alone_makes_no_request_more() -> None:
    traces = []
    for strategy in (None, *EARLY_STRATEGIES):
        scene = made("cow")
        storage = FaultyStorage(scene.storage)
        early = EarlyDetection(strategy=strategy)
        scene.table("ours", storage, early_detection=early).upsert(rows("ours", *ids("mo"), ts=2))
        traces.append(Counter(call.name for call in storage.trace))
    assert all(trace == traces[0] for trace in traces)


def test_a_task_lists_the_folder_of_its_partition_alone() -> None:
    scene = made("cow")
    held = hold(scene, "theirs", upsert(rows("theirs", *ids("tu"), day="tu", ts=2)))
    storage, error = tried(scene, "simple_direct", upsert(rows("ours", *ids("mo"), ts=2)))
    assert error is None
    folder = f".hoodie/.temp/{held.requested}"
    listed = {c.path for c in storage.trace if c.name.startswith("list") and folder in c.path}
    assert listed == {folder}
    held.finish()
