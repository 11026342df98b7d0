"""Cases in which Apache Hudi 1.2.0 loses rows, or commits, and pyhudi does not.

The names say where each was reported. `tests/write/test_known_failures.py` has the same failures
at the level of the commit core; here they happen to whole writes, and rows are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from faulty_storage import FaultyStorage
from many_writers.compaction_by_hand import plan_compaction
from many_writers.scene import (
    CHECKED,
    KINDS,
    NBCC,
    ORDERS,
    Act,
    HeldWrite,
    Scene,
    append,
    begun_scene,
    rows,
    upsert,
)
from pyhudi.errors import ConflictError
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import HEARTBEAT_FOLDER
from pyhudi.write.begin import ready

SIX = tuple(f"k{number}" for number in range(6))
TIMEOUT_MS = WriteSettings().heartbeat_timeout_ms


def compacted(scene: Scene) -> None:
    if planned := plan_compaction(scene.session("compactor")):
        planned.run().complete()


# -- rows written behind an overwrite (issue 19793, pull request 19791)


@pytest.mark.parametrize("kind", KINDS)
def test_issue_19793_rows_written_after_their_partition_was_deleted_are_there(kind: str) -> None:
    scene = begun_scene(rows("first", *SIX), **KINDS[kind])
    deleted = scene.table("deleter").delete_partitions(["mo"])
    assert scene.content() == {}
    scene.table("again").upsert(rows("again", *SIX))
    assert scene.writers() == dict.fromkeys(SIX, "again")
    assert scene.content(as_of=deleted.completed) == {}
    compacted(scene)
    assert scene.writers() == dict.fromkeys(SIX, "again")


def test_issue_19793_older_rows_do_not_come_back_with_the_new_ones() -> None:
    """The deleted rows had greater ordering values than those written afterwards."""
    scene = begun_scene(rows("first", *SIX, ts=100), **NBCC)
    scene.table("deleter").delete_partitions(["mo"])
    scene.table("again").upsert(rows("again", "k0", ts=1))
    assert scene.content() == {"k0": (1, "again")}
    compacted(scene)
    assert scene.content() == {"k0": (1, "again")}


@pytest.mark.parametrize("kind", KINDS)
def test_pr_19791_an_overwrite_of_a_non_blocking_table_keeps_its_rows(kind: str) -> None:
    scene = Scene(**KINDS[kind])
    first = scene.table("first").upsert(rows("first", "a", "b", ts=9))
    scene.table("first").upsert(rows("first", "t", day="tu"))
    over = scene.table("over").overwrite(rows("over", "b", "c", ts=1))
    expected = {"b": "over", "c": "over", "t": "first"}
    assert scene.writers() == expected
    scene.table("later").upsert(rows("later", "c", "d", ts=2))
    assert scene.writers() == {**expected, "c": "later", "d": "later"}
    assert scene.writers(as_of=over.completed) == expected
    assert scene.writers(as_of=first.completed) == {"a": "first", "b": "first"}
    assert scene.leftovers() == []


# -- an overwrite that races with upserts


def overwrite(table: Any) -> Any:
    return table.overwrite(rows("over", "b", "c", ts=1))


def delete_partition(table: Any) -> Any:
    return table.delete_partitions(["mo"])


CLEARING: dict[str, tuple[Act, dict[str, str]]] = {
    "overwrite": (overwrite, {"b": "over", "c": "over"}),
    "delete of the partition": (delete_partition, {}),
}


@pytest.mark.parametrize(
    ("kind", "clearing", "retries"),
    [
        *((kind, "overwrite", 0) for kind in KINDS),
        ("mor", "overwrite", 3),
        ("nbcc", "delete of the partition", 3),
    ],
)
@pytest.mark.parametrize("order", ORDERS)
def test_an_overwrite_beside_upserts_conflicts_or_keeps_every_row(
    kind: str, order: str, clearing: str, retries: int
) -> None:
    """1 upserts, 2 clears. The table is as if they had run one after the other, by completion."""
    scene = begun_scene(rows("first", "a", "b", ts=9), **KINDS[kind])
    clear, left = CLEARING[clearing]
    acts: dict[str, Act] = {"1": upsert(rows("up", "d", "e", ts=1)), "2": clear}
    held: dict[str, HeldWrite] = {}
    content = {"a": "first", "b": "first"}
    seen = {}
    for event in order.split():
        by = event[0]
        if event == by:
            held[by] = scene.hold(by, acts[by], conflict_retries=retries)
            continue
        try:
            done = held[by].finish()
        except ConflictError:
            assert not retries
            assert by == "2" or kind != "nbcc", "an upsert of a non-blocking table never conflicts"
            continue
        content = dict(left) if by == "2" else {**content, "d": "up", "e": "up"}
        seen[done.completed] = content
        assert scene.writers() == content
    assert seen, "at least one of them commits"
    for completed, then in seen.items():
        assert scene.writers(as_of=completed) == then
    assert scene.leftovers() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_to_another_partition_is_no_conflict_for_an_overwrite(kind: str) -> None:
    scene = begun_scene(rows("first", "a", day="mo"), rows("first", "t", day="tu"), **KINDS[kind])
    over = scene.hold("over", overwrite, conflict_retries=0)
    scene.table("other").upsert(rows("other", "t", ts=2, day="tu"))
    over.finish()
    assert scene.writers() == {"b": "over", "c": "over", "t": "other"}


@pytest.mark.parametrize("kind", KINDS)
def test_an_overwrite_of_the_whole_table_meets_a_partition_that_came_meanwhile(kind: str) -> None:
    scene = begun_scene(rows("first", "a", day="mo"), **KINDS[kind])

    def all_of_it(table: Any) -> Any:
        return table.overwrite(rows("over", "b"), partitions="all")

    over = scene.hold("over", all_of_it, conflict_retries=0)
    scene.table("other").upsert(rows("other", "t", day="tu"))
    with pytest.raises(ConflictError):
        over.finish()
    assert scene.writers() == {"a": "first", "t": "other"}


# -- heartbeats and rollbacks


class Meddled(FaultyStorage):
    """Something happens just before the nth call."""

    def __init__(self, scene: Scene, nth: int, happening: Callable[[], object]) -> None:
        super().__init__(scene.storage)
        self._nth = nth
        self._happening: Callable[[], object] | None = happening
        self.calls = 0

    def _run(self, name: str, path: str, perform):  # type: ignore[no-untyped-def]
        self.calls += 1
        if self.calls == self._nth and self._happening is not None:
            happening, self._happening = self._happening, None
            happening()
        return super()._run(name, path, perform)


def test_hudi_5675_a_write_that_completes_while_it_is_judged_is_visible_or_told() -> None:
    """At every call of a recovery that takes the write for dead."""
    outcomes = set()
    for nth in count(1):
        scene = begun_scene(rows("first", "a"), **NBCC)
        slow = scene.hold("slow", upsert(rows("slow", "b")), conflict_retries=0)
        scene.clock.sleep(TIMEOUT_MS + 1_000)
        ended: list[bool] = []

        def end(slow: HeldWrite = slow, ended: list[bool] = ended) -> None:
            try:
                slow.finish()
                ended.append(True)
            except ConflictError:
                ended.append(False)

        judging = Meddled(scene, nth, end)
        ready(scene.opening("judge", judging))
        is_met = bool(ended)
        if not is_met:
            end()
        assert ("b" in scene.content()) == ended[0], f"call {nth}"
        assert len(scene.completed("rollback")) == (0 if ended[0] else 1), f"call {nth}"
        outcomes.add(ended[0])
        if not is_met:
            break
    assert outcomes == {True, False}


@pytest.mark.parametrize("kind", KINDS)
def test_hudi_2641_of_five_writers_only_the_dead_one_is_rolled_back(kind: str) -> None:
    scene = Scene(**KINDS[kind])
    days = ("mo", "tu", "we", "th", "fr")
    for day in days:
        scene.table("first").upsert(rows("first", day, day=day))
    held = {
        day: scene.hold(day, upsert(rows("w", day, ts=5, day=day)), conflict_retries=0)
        for day in days
    }
    scene.clock.sleep(TIMEOUT_MS + 1_000)
    for day in days[1:]:
        scene.storage.write(f"{HEARTBEAT_FOLDER}/{held[day].requested}", b"")
    scene.table("sixth").upsert(rows("sixth", "x", day="sa"))
    for day in days[1:]:
        assert held[day].finish().retries == 0
    assert len(scene.completed("rollback")) == 1
    with pytest.raises(ConflictError):
        held["mo"].finish()
    expected = {"mo": "first", **dict.fromkeys(days[1:], "w"), "x": "sixth"}
    assert scene.writers() == expected


@pytest.mark.parametrize("kind", KINDS)
def test_pr_18448_five_writers_that_find_a_failed_write_roll_it_back_once(kind: str) -> None:
    scene = begun_scene(rows("first", "a"), **KINDS[kind])
    scene.hold("dead", upsert(rows("dead", "a", ts=9)))
    scene.clock.sleep(TIMEOUT_MS + 1_000)
    tables = [scene.table(f"w{number}") for number in range(5)]
    for number, table in enumerate(tables):
        table.upsert(rows(f"w{number}", f"k{number}"))
    assert len(scene.completed("rollback")) == 1
    assert scene.writers() == {"a": "first", **{f"k{n}": f"w{n}" for n in range(5)}}
    assert scene.leftovers() == []


# -- conflicts that are none, and some that are


@pytest.mark.parametrize("order", ORDERS[1:5])
@pytest.mark.parametrize("kind", CHECKED)
def test_hudi_5831_one_file_id_in_two_partitions_is_no_conflict(kind: str, order: str) -> None:
    scene = Scene(**CHECKED[kind])
    for day in ("mo", "tu"):
        scene.table("first").upsert(rows("first", day, day=day))
    held: dict[str, HeldWrite] = {}
    for event in order.split():
        by, day = event[0], "mo" if event[0] == "1" else "tu"
        if event == by:
            act = upsert(rows(by, day, ts=5, day=day))
            held[by] = scene.hold(by, act, conflict_retries=0)
        else:
            assert held[by].finish().retries == 0
    assert scene.writers() == {"mo": "1", "tu": "2"}
    files = [s.path.split("/") for s in scene.storage.list("") if "-0_0-" in s.path]
    ids = {name.lstrip(".").partition("_")[0] for *_, name in files if name[0] != "."}
    assert len(ids) == 1, "both partitions have a file group of that id"


@pytest.mark.parametrize("order", ORDERS[1:5])
@pytest.mark.parametrize("kind", KINDS)
def test_rfc_56_two_first_inserts_of_one_key_leave_one_row(kind: str, order: str) -> None:
    scene = Scene(**KINDS[kind])
    held: dict[str, HeldWrite] = {}
    for event in order.split():
        by = event[0]
        if event == by:
            held[by] = scene.hold(by, append(rows(by, "k", ts=int(by))))
        else:
            held[by].finish()
    assert scene.content() == {"k": (2, "2")}  # which also says that the key is there once
