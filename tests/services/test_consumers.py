"""Registered consumers: what they have not read stays, until they have, or have gone silent."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, pairwise
from typing import Any
from unittest.mock import patch

import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from many_writers.scene import COW, NBCC, Scene, rows
from memory_tables import TIMELINE
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    InvalidRequestError,
    UnavailableError,
)
from pyhudi.format.table.consumer_file import CONSUMERS_FOLDER, Consumer, consumer_path
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.services import consumers as module
from pyhudi.services.cleaning.execute import clean
from pyhudi.services.cleaning.result import CleanResult
from pyhudi.services.consumers import (
    advance_consumer,
    register_consumer,
    release_consumer,
)
from pyhudi.session.session import TableSession
from pyhudi.storage.objects.consumers import change_consumer, load_consumers
from pyhudi.timeline.live import BEFORE_ALL

HOUR_MS = 3_600_000


def written(writes: int = 6, **definition: object) -> tuple[Scene, list[str]]:
    """A table, and when each of its writes completed."""
    scene = Scene(**(definition or COW))
    times = [
        scene.table("first").upsert(rows(f"w{n}", "a", f"k{n}", ts=n)).completed
        for n in range(writes)
    ]
    return scene, times


def registered_consumers(session: TableSession) -> tuple[Consumer, ...]:
    """All of them, also those that have been silent for too long to count, by name."""
    return tuple(found.consumer for found in load_consumers(session.storage))


def cleaned(scene: Scene, policy: CleanPolicy | None = None) -> int:
    found = clean(scene.session("cleaner"), policy or CleanPolicy.versions(1))
    assert isinstance(found, CleanResult)
    return found.or_raise().files


def changed(scene: Scene, since: str) -> set[str]:
    found = scene.table("consumer").changes(since=since, columns=["id"]).to_arrow()
    return set(found["id"].to_pylist())


def test_a_consumer_finds_every_change_however_often_the_table_is_cleaned() -> None:
    scene, times = written()
    register_consumer(scene.session("consumer"), "search", since=times[1])
    for _ in range(2):
        cleaned(scene)
        assert changed(scene, times[1]) == {"a", "k2", "k3", "k4", "k5"}
    advance_consumer(scene.session("consumer"), "search", times[3])
    assert cleaned(scene) > 0
    assert changed(scene, times[3]) == {"a", "k4", "k5"}
    with pytest.raises(InvalidRequestError, match="no longer complete"):
        scene.table("consumer").changes(since=times[1], until=times[2])


def test_every_range_that_a_consumer_may_ask_for_is_whole() -> None:
    scene, times = written()
    register_consumer(scene.session("consumer"), "steps", since=times[1])
    cleaned(scene)
    table = scene.table("consumer")
    for since, until in pairwise(times[1:]):
        found = table.changes(since=since, until=until, columns=["id"]).to_arrow()
        assert "a" in found["id"].to_pylist()


def test_the_slowest_consumer_counts() -> None:
    scene, times = written()
    register_consumer(scene.session("one"), "fast", since=times[5])
    register_consumer(scene.session("two"), "slow", since=times[2])
    cleaned(scene)
    assert changed(scene, times[2]) == {"a", "k3", "k4", "k5"}
    assert [c.name for c in registered_consumers(scene.session("x"))] == ["fast", "slow"]


def test_a_released_consumer_holds_nothing() -> None:
    scene, times = written()
    register_consumer(scene.session("consumer"), "gone", since=times[0])
    before = cleaned(scene)
    assert not release_consumer(scene.storage, "gnoe")
    assert release_consumer(scene.storage, "gone")
    assert not release_consumer(scene.storage, "gone")
    assert cleaned(scene) > before
    assert registered_consumers(scene.session("x")) == ()


def test_a_consumer_that_is_silent_for_too_long_holds_nothing_more() -> None:
    scene, times = written()
    session = scene.session("consumer")
    register_consumer(session, "abandoned", since=times[0], expires_after_hours=2)
    scene.clock.sleep(HOUR_MS)
    held = cleaned(scene)
    scene.clock.sleep(2 * HOUR_MS)
    assert cleaned(scene) > held
    assert registered_consumers(session)[0].name == "abandoned"
    with pytest.raises(InvalidRequestError, match="cannot be registered as of"):
        register_consumer(session, "abandoned")
    # It may read the table as it is, and go on from there.
    advanced = advance_consumer(session, "abandoned", times[5])
    assert advanced.since == times[5]


def test_what_a_consumer_is_advised_to_do_when_changes_are_gone_helps() -> None:
    scene, times = written()
    session = scene.session("consumer")
    register_consumer(session, "late", since=times[0], expires_after_hours=2)
    scene.clock.sleep(3 * HOUR_MS)
    cleaned(scene)
    with pytest.raises(InvalidRequestError, match="Release the consumer, register it again"):
        register_consumer(session, "late")
    assert release_consumer(scene.storage, "late")
    since = register_consumer(session, "late").since
    seen = set(scene.table("reader").read(as_of=since).to_arrow()["id"].to_pylist())
    assert seen == {"a", *(f"k{n}" for n in range(6))}
    scene.table("first").upsert(rows("w6", "a", "k6", ts=6))
    assert changed(scene, since) == {"a", "k6"}


def test_a_sign_of_life_keeps_a_consumer_that_has_nothing_new_to_read() -> None:
    scene, times = written()
    session = scene.session("consumer")
    register_consumer(session, "steady", since=times[1], expires_after_hours=2)
    for _ in range(5):
        scene.clock.sleep(HOUR_MS)
        advance_consumer(session, "steady", times[1])
        cleaned(scene)
    assert changed(scene, times[1]) == {"a", "k2", "k3", "k4", "k5"}


def test_one_that_never_expires_is_waited_for() -> None:
    scene, times = written()
    register_consumer(scene.session("c"), "patient", since=times[1], expires_after_hours=None)
    scene.clock.sleep(10_000 * HOUR_MS)
    cleaned(scene)
    assert changed(scene, times[1]) == {"a", "k2", "k3", "k4", "k5"}


def test_without_a_time_a_consumer_begins_now_and_goes_on_where_it_was() -> None:
    scene, times = written()
    session = scene.session("consumer")
    assert register_consumer(session, "new").since == times[5]
    advance_consumer(session, "new", times[5])
    scene.table("w").upsert(rows("w9", "a", ts=9))
    assert register_consumer(session, "new", expires_after_hours=1).since == times[5]
    assert registered_consumers(session)[0].expires_after_hours == 1
    empty = Scene(**NBCC)
    assert register_consumer(empty.session("c"), "first").since == BEFORE_ALL


def test_a_consumer_never_goes_back_by_advancing() -> None:
    scene, times = written()
    session = scene.session("consumer")
    register_consumer(session, "c", since=times[3])
    assert advance_consumer(session, "c", times[1]).since == times[3]
    assert register_consumer(session, "c", since=times[1]).since == times[1]  # if it says so


def test_a_consumer_cannot_have_read_what_has_not_completed() -> None:
    scene, times = written()
    session = scene.session("consumer")
    later = f"{int(times[5]) + 1}"
    with pytest.raises(InvalidRequestError, match=f"cannot have read up to {later}.*{times[5]}"):
        register_consumer(session, "c", since=later)
    assert registered_consumers(session) == ()
    register_consumer(session, "c", since=times[3])
    with pytest.raises(InvalidRequestError, match="cannot have read up to"):
        advance_consumer(session, "c", later)
    with pytest.raises(InvalidRequestError, match="cannot have read up to"):
        register_consumer(session, "c", since=later)
    assert registered_consumers(session)[0].since == times[3]
    assert advance_consumer(session, "c", times[5]).since == times[5]


def test_a_consumer_that_has_read_what_was_rolled_back_since_may_still_advance() -> None:
    scene, times = written()
    session = scene.session("consumer")
    register_consumer(session, "c", since=times[5])
    for name in scene.names():
        if times[5] in name:  # as a restore does
            scene.storage.delete(f"{TIMELINE}/{name}")
    assert advance_consumer(scene.session("again"), "c", times[5]).since == times[5]


def test_a_consumer_that_is_not_registered_cannot_advance() -> None:
    scene, times = written(1)
    with pytest.raises(InvalidRequestError, match="there is no consumer 'x'"):
        advance_consumer(scene.session("c"), "x", times[0])


def test_a_consumer_cannot_register_as_of_what_is_gone() -> None:
    scene, times = written()
    cleaned(scene)
    session = scene.session("consumer")
    with pytest.raises(InvalidRequestError, match="cleaning has retained what is needed from"):
        register_consumer(session, "late", since=times[1])
    assert registered_consumers(session) == ()
    register_consumer(session, "late", since=times[5])
    with pytest.raises(InvalidRequestError, match="cleaning has retained what is needed from"):
        register_consumer(session, "late", since=times[1])
    assert registered_consumers(session)[0].since == times[5]


@pytest.mark.parametrize("is_known", [False, True])
def test_a_clean_planned_while_a_consumer_registers_is_noticed(*, is_known: bool) -> None:
    scene, times = written()
    session = scene.session("consumer")
    if is_known:
        register_consumer(session, "racing", since=times[5])
    change = change_consumer

    def raced(*args: Any) -> Consumer:
        with patch.object(module, "change_consumer", change):
            cleaned(scene)  # between the first look and the object
        return change(*args)

    with (
        patch.object(module, "change_consumer", raced),
        pytest.raises(InvalidRequestError, match="cannot be registered"),
    ):
        register_consumer(session, "racing", since=times[1])
    found = [consumer.since for consumer in registered_consumers(session)]
    assert found == ([times[5]] if is_known else [])


def test_a_registration_that_is_refused_leaves_another_of_the_same_name_alone() -> None:
    scene, times = written()
    change = change_consumer

    def raced(*args: Any) -> Consumer:
        with patch.object(module, "change_consumer", change):
            cleaned(scene)
            made = change(*args)
            register_consumer(scene.session("other"), "shared", since=times[5])
        return made

    with (
        patch.object(module, "change_consumer", raced),
        pytest.raises(InvalidRequestError, match="cannot be registered"),
    ):
        register_consumer(scene.session("consumer"), "shared", since=times[1])
    assert [c.since for c in registered_consumers(scene.session("x"))] == [times[5]]


def test_a_consumer_whose_changes_are_gone_cannot_go_on_as_if_they_were_not() -> None:
    scene, times = written()
    session = scene.session("consumer")
    register_consumer(session, "silent", since=times[1], expires_after_hours=1)
    before = registered_consumers(session)
    scene.clock.sleep(2 * HOUR_MS)
    assert cleaned(scene) > 0
    with pytest.raises(InvalidRequestError, match="earlier changes are removed"):
        advance_consumer(session, "silent", times[1])
    assert registered_consumers(session) == before
    assert advance_consumer(session, "silent", times[5]).since == times[5]


def test_an_expired_consumer_that_is_refused_does_not_hold_again() -> None:
    """Its object is put back, which makes the object recent."""
    scene, times = written()
    session = scene.session("consumer")
    register_consumer(session, "silent", since=times[1], expires_after_hours=2)
    scene.clock.sleep(3 * HOUR_MS)
    change = change_consumer

    def raced(*args: Any) -> Consumer:
        with patch.object(module, "change_consumer", change):
            assert cleaned(scene) > 0  # between the first look and the object
        return change(*args)

    with (
        patch.object(module, "change_consumer", raced),
        pytest.raises(InvalidRequestError, match="earlier changes are removed"),
    ):
        advance_consumer(session, "silent", times[1])
    [row] = scene.table("person").inspect.consumers().to_pylist()
    assert (row["since"], row["holds"]) == (times[1], False)
    assert row["silent_hours"] == pytest.approx(3, abs=0.01)
    advance_consumer(session, "silent", times[5])
    [row] = scene.table("person").inspect.consumers().to_pylist()
    assert (row["holds"], row["silent_hours"]) == (True, pytest.approx(0, abs=0.01))


def test_a_file_that_is_no_consumer_stops_nothing() -> None:
    scene, _ = written()
    scene.storage.write(f"{CONSUMERS_FOLDER}/foo bar.json", b"{}")
    assert cleaned(scene) > 0
    assert registered_consumers(scene.session("c")) == ()


def test_consumers_can_be_looked_at() -> None:
    scene, times = written()
    register_consumer(scene.session("c"), "billing", since=times[1], expires_after_hours=1)
    register_consumer(scene.session("c"), "search", since=times[2], expires_after_hours=None)
    scene.clock.sleep(3 * HOUR_MS)
    found = scene.table("person").inspect.consumers().to_pylist()
    assert [row.pop("silent_hours") for row in found] == pytest.approx([3, 3], abs=0.01)
    assert found == [
        {"name": "billing", "since": times[1], "expires_after_hours": 1, "holds": False},
        {"name": "search", "since": times[2], "expires_after_hours": None, "holds": True},
    ]
    assert Scene(**COW).table("person").inspect.consumers().num_rows == 0


def test_of_two_that_move_a_consumer_at_once_the_later_time_stays() -> None:
    scene, times = written()
    register_consumer(scene.session("c"), "both", since=times[0])
    tries = []

    def change(known: Consumer | None) -> Consumer:
        tries.append(known)
        if len(tries) == 1:
            advance_consumer(scene.session("other"), "both", times[4])
        assert known is not None
        return replace(known, since=max(known.since, times[2]), updated_ms=7)

    assert change_consumer(scene.storage, "both", change).since == times[4]
    assert len(tries) == 2


def test_a_registration_whose_reply_was_lost_can_be_repeated() -> None:
    scene, times = written(2)
    broken = FaultyStorage(scene.storage, [Fault(Effect.LOSE_REPLY, "create", "*/consumers/*")])
    with pytest.raises(UnavailableError):
        register_consumer(scene.session("c", broken), "told", since=times[0])
    register_consumer(scene.session("c"), "told", since=times[0])
    [found] = registered_consumers(scene.session("c"))
    assert found.since == times[0]


def test_a_consumer_that_is_changed_without_end_is_an_error() -> None:
    scene, _ = written(1)
    register_consumer(scene.session("c"), "hot")
    number = count()

    def change(known: Consumer | None) -> Consumer:
        assert known is not None
        scene.storage.write(consumer_path("hot"), scene.storage.read(consumer_path("hot")) + b" ")
        return replace(known, updated_ms=next(number))

    with pytest.raises(ConflictError, match="others changed it first"):
        change_consumer(scene.storage, "hot", change)


def test_a_consumer_that_cannot_be_read_stops_cleaning() -> None:
    scene, _ = written()
    scene.storage.write(consumer_path("broken"), b"{}")
    files = len(list(scene.storage.list("mo")))
    with pytest.raises(CorruptTableError, match="registered consumer cannot be read"):
        cleaned(scene)
    assert len(list(scene.storage.list("mo"))) == files
    release_consumer(scene.storage, "broken")
    assert cleaned(scene) > 0
