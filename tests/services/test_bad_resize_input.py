"""Damaged rings, plans and settings: an error that says what and where, and nothing rewritten."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import pyhudi
from pyhudi.commit.proposals import Begin, Close, Decided
from pyhudi.errors import ConflictError, CorruptTableError, HudiError, InvalidRequestError
from pyhudi.format.table.ring_file import RING_BYTES_MAX
from pyhudi.format.timeline.instant import Action
from pyhudi.format.timeline.resize_plan import (
    GroupChange,
    ResizePlan,
    decode_resize_plan,
    encode_resize_plan,
)
from resize_tables import SCHEMA, ResizeTable

KEYS = "klmnopqrst"
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
    "another partition": BadPlan(lambda c: replace(c, partition="e"), "partition 'e'"),
    "outside of the table": BadPlan(lambda c: replace(c, partition="../x"), "../x"),
}


def _bad_plan(table: ResizeTable, bad: BadPlan) -> str:
    """Put a plan on the timeline that differs from a right one in one thing."""
    copied = table.plan(2)
    path = f".hoodie/timeline/{copied}.clustering.requested"
    plan = decode_resize_plan(table.storage.read(path), path)
    assert plan is not None
    table.table("c").services.cancel_resize(copied)
    changed = ResizePlan((bad.change(plan.groups[1]),))
    data = encode_resize_plan(changed, table.storage.uri, bytes(16))
    outcome = table.session("p").log.append(Begin(Action.CLUSTERING, data))
    assert isinstance(outcome, Decided)
    assert outcome.entry.instant is not None
    return outcome.entry.instant


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_is_wrong_is_not_executed_and_can_be_cancelled(name: str) -> None:
    table, _ = resized_table()
    bad = PLANS[name]
    pending = _bad_plan(table, bad)
    before, rows = contents(table), table.rows()
    with pytest.raises(HudiError) as caught:
        table.resizes("new").execute(pending)
    assert bad.why in str(caught.value)
    assert f"/{pending}.clustering.requested'" in str(caught.value)
    assert contents(table) == before
    assert table.rows() == rows
    table.table("c").services.cancel_resize(pending)
    table.put("kz", 2, label="new writer")
    assert len(table.values()) == len(KEYS) + 1
    assert table.table("v").services.verify()


#: Plans that no process can decode. Which buckets they are about is known by their slices alone.
_UNREADABLE = {"a group twice", "a child twice", "outside of the table"}


@pytest.mark.parametrize("name", sorted(PLANS.keys() - _UNREADABLE))
def test_writers_go_on_beside_a_plan_that_is_wrong(name: str) -> None:
    table, _ = resized_table()
    _bad_plan(table, PLANS[name])
    table.put("kz", 2, label="new")
    assert len(table.values()) == len(KEYS) + 1


@pytest.mark.parametrize("name", sorted(_UNREADABLE))
def test_writers_are_told_of_a_plan_that_cannot_be_read(name: str) -> None:
    table, _ = resized_table()
    pending = _bad_plan(table, PLANS[name])
    before = table.rows()
    with pytest.raises(ConflictError, match=f"clustering {pending} is pending.*partition 'd'"):
        table.put(KEYS, 2, label="new")
    assert table.rows() == before
    table.table("c").services.cancel_resize(pending)
    table.put(KEYS, 2, label="new")
    assert set(table.values().values()) == {f"{key}2" for key in KEYS}


def test_a_plan_of_rubbish_stops_what_needs_it_and_can_be_cancelled() -> None:
    table, _ = resized_table()
    pending = table.plan(2)
    path = f".hoodie/timeline/{pending}.clustering.requested"
    table.storage.write(path, b"rubbish")
    before, rows = contents(table), table.rows()
    with pytest.raises(CorruptTableError) as caught:
        table.resizes("new").execute(pending)
    assert caught.value.path == path
    for stamp in range(2, 4):
        with pytest.raises(HudiError, match=pending):
            table.put("k", stamp, label=f"new {stamp}")
    with pytest.raises(CorruptTableError) as cannot_clean:
        table.table("cleaner").services.clean(pyhudi.CleanPolicy.commits(1))
    assert f"cancel_resize('{pending}')" in str(cannot_clean.value)
    assert contents(table) == before
    assert table.rows() == rows
    table.table("c").services.cancel_resize(pending)
    table.put("k", 5, label="new writer")
    assert table.values()["k"] == "k5"
    assert table.table("v").services.verify()


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
    assert "its partition has its most buckets, 1" in preview or "most" in preview


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
