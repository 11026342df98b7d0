"""Hudi's ZooKeeper lock: the queue, sessions that end, lost replies and garbage.

The service is played, so that time passes as a test wants it. A Java writer is played by its nodes,
which are named as Curator names them.
"""

from __future__ import annotations

import sys

import pytest

from locking_world import Universe
from played_zookeeper import ADDRESS, PlayedZookeeper
from pyhudi.errors import InvalidRequestError, UnavailableError
from pyhudi.storage.locks.lock import MARGIN_MS, HeldLock
from pyhudi.storage.locks.zookeeper_lock import LOOK_MS, ZookeeperLock, queue_order

JAVA = "_c_8f14e45f-ceea-467f-a8d3-1b6f4c2d9e10-lock-"
JAVA_DATA = b"application_id=local-1763283000000"
SAFE_MS = ADDRESS.session_timeout_ms - MARGIN_MS


@pytest.fixture
def universe() -> Universe:
    return Universe()


@pytest.fixture
def zookeeper(universe: Universe) -> PlayedZookeeper:
    return PlayedZookeeper(universe)


def is_free(zookeeper: PlayedZookeeper) -> bool:
    try:
        zookeeper.lock("anybody").acquire(0).release()
    except UnavailableError:
        return False
    return True


def test_node_is_named_as_curator_names_its_own(zookeeper: PlayedZookeeper) -> None:
    held = zookeeper.lock("alice").acquire(0)
    (path,) = zookeeper.nodes
    assert path.startswith("/locks/orders/_c_")
    name = path.rpartition("/")[2]
    assert len(name) == len(JAVA) + 10
    assert name[-16:] == "-lock-0000000000"
    assert zookeeper.nodes[path].node.data == b"alice"
    held.release()
    assert not zookeeper.nodes


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (f"{JAVA}0000000001", "_c_00000000-lock-0000000002"),
        ("_c_zzz-lock-0000000001", "_c_aaa-lock-0000000002"),
        ("lock-0000000001", "_c_a-lock-0000000002"),
        ("_c_a-lock-b-lock-0000000001", "_c_a-lock-0000000002"),
        ("0000000001", "_c_a-lock-0000000002"),  # without the word the whole name counts
        ("_c_a-lock-0000000002", "garbage"),
        ("_c_a-lock--2147483648", "_c_a-lock-0000000000"),
    ],
)
def test_queue_is_in_the_order_that_java_sees(first: str, second: str) -> None:
    assert queue_order(first) < queue_order(second)


def test_java_writer_before_us_is_waited_for(
    zookeeper: PlayedZookeeper, universe: Universe
) -> None:
    zookeeper.put(f"{JAVA}{zookeeper.next_number()}", JAVA_DATA)
    with pytest.raises(UnavailableError) as caught:
        zookeeper.lock("alice").acquire(5_000)
    assert caught.value.why == (
        "'application_id=local-1763283000000' has it, in the queue since "
        f"2023-11-14T22:13:20.000+00:00 as '{JAVA}0000000000'"
    )
    assert "its session ends by itself" in caught.value.next_step
    assert zookeeper.names() == [f"{JAVA}0000000000"]  # ours is gone


def test_java_writer_behind_us_is_not(zookeeper: PlayedZookeeper) -> None:
    held = zookeeper.lock("alice").acquire(0)
    zookeeper.put(f"{JAVA}{zookeeper.next_number()}", JAVA_DATA)
    assert held.is_held()
    held.release()
    assert zookeeper.names() == [f"{JAVA}0000000001"]


def test_lock_is_had_in_the_order_of_arrival(
    zookeeper: PlayedZookeeper, universe: Universe
) -> None:
    held = zookeeper.lock("alice").acquire(0)
    java = f"{JAVA}{zookeeper.next_number()}"
    zookeeper.put(java)
    universe.at(1_000, held.release)
    universe.at(3_000, lambda: zookeeper.nodes.pop(f"{ADDRESS.path}/{java}"))
    began_ms = universe.now_ms
    zookeeper.lock("bob").acquire(60_000)
    assert 3_000 <= universe.now_ms - began_ms <= 3_000 + LOOK_MS


@pytest.mark.parametrize(
    ("name", "data", "blocks"),
    [
        ("garbage", b"", False),
        ("_c_x-lock-zzz", b"", False),
        ("\U0001f512", b"", False),
        ("!", b"", True),
        ("", b"", True),
        ("_c_-lock-0000000000", b"\xff\x1b[2J" + b"x" * 100_000, True),
    ],
)
def test_garbage_in_the_queue_counts_as_it_does_for_java_and_is_left_alone(
    zookeeper: PlayedZookeeper, universe: Universe, name: str, data: bytes, blocks: bool
) -> None:
    zookeeper.put(name, data)
    began_ms = universe.now_ms
    if not blocks:
        assert zookeeper.lock("alice").acquire(0).is_held()
    else:
        with pytest.raises(UnavailableError) as caught:
            zookeeper.lock("alice").acquire(5_000)
        assert universe.now_ms == began_ms + 5_000
        assert len(str(caught.value)) < 1_000
        assert "\x1b" not in str(caught.value)
    assert name in zookeeper.names()


def test_session_lives_for_as_long_as_the_lock_is_held(
    zookeeper: PlayedZookeeper, universe: Universe
) -> None:
    held = zookeeper.lock("alice").acquire(0)
    for _ in range(20):
        universe.pass_ms(ADDRESS.session_timeout_ms)
        assert held.remaining_ms() == SAFE_MS
        assert held.is_held()
    held.release()
    assert universe.background == []


def stolen(zookeeper: PlayedZookeeper, universe: Universe) -> tuple[HeldLock, HeldLock]:
    """The lock of alice, who stood still for too long, and of bob, who has it now."""
    alices = zookeeper.lock("alice").acquire(0)
    universe.frozen.add("alice")
    bobs = zookeeper.lock("bob").acquire(2 * ADDRESS.session_timeout_ms)
    universe.frozen.clear()
    return alices, bobs


def test_frozen_writer_that_wakes_up_knows_that_it_lost_the_lock(
    zookeeper: PlayedZookeeper, universe: Universe
) -> None:
    alices, bobs = stolen(zookeeper, universe)
    assert alices.remaining_ms() == 0  # by its clock alone, before anybody is asked
    assert not alices.is_held()
    universe.pass_ms(ADDRESS.session_timeout_ms)
    assert alices.remaining_ms() == 0
    assert bobs.is_held()


def test_late_release_does_not_free_the_next_owner(
    zookeeper: PlayedZookeeper, universe: Universe
) -> None:
    alices, bobs = stolen(zookeeper, universe)
    alices.release()
    assert bobs.is_held()
    assert not is_free(zookeeper)


@pytest.mark.parametrize("frozen_ms", [SAFE_MS - 1, SAFE_MS, ADDRESS.session_timeout_ms])
def test_owner_gives_up_before_its_session_can_be_over(
    zookeeper: PlayedZookeeper, universe: Universe, frozen_ms: int
) -> None:
    held = zookeeper.lock("alice").acquire(0)
    universe.frozen.add("alice")
    universe.pass_ms(frozen_ms)
    assert not is_free(zookeeper)
    assert held.is_held() is (frozen_ms < SAFE_MS)


@pytest.mark.parametrize("skew_ms", [-600_000, 600_000])
def test_clocks_that_are_set_do_not_matter(
    zookeeper: PlayedZookeeper, universe: Universe, skew_ms: int
) -> None:
    held = zookeeper.lock("alice").acquire(0)
    universe.skew_ms["alice"] = skew_ms
    assert held.remaining_ms() == SAFE_MS
    assert held.is_held()


def test_node_that_somebody_deletes_is_a_lock_that_is_lost(zookeeper: PlayedZookeeper) -> None:
    held = zookeeper.lock("alice").acquire(0)
    zookeeper.nodes.clear()
    assert not held.is_held()
    assert held.remaining_ms() == 0


def test_node_that_somebody_deletes_is_missed_in_the_background_too(
    zookeeper: PlayedZookeeper, universe: Universe
) -> None:
    held = zookeeper.lock("alice").acquire(0)
    zookeeper.nodes.clear()
    universe.pass_ms(ADDRESS.session_timeout_ms // 6)
    assert held.remaining_ms() == 0


def test_service_that_dies_leaves_an_owner_the_time_it_was_sure_of(
    zookeeper: PlayedZookeeper, universe: Universe
) -> None:
    held = zookeeper.lock("alice").acquire(0)
    zookeeper.is_down = True
    assert held.remaining_ms() == SAFE_MS
    with pytest.raises(UnavailableError):
        held.is_held()
    universe.pass_ms(SAFE_MS)
    assert not held.is_held()
    zookeeper.is_down = False
    assert not held.is_held()  # for good, although the node may still be there
    held.release()
    assert is_free(zookeeper)


def test_service_that_comes_back_in_time_is_no_loss(
    zookeeper: PlayedZookeeper, universe: Universe
) -> None:
    held = zookeeper.lock("alice").acquire(0)
    zookeeper.is_down = True
    universe.pass_ms(SAFE_MS - 1)
    zookeeper.is_down = False
    assert held.is_held()
    assert held.remaining_ms() == SAFE_MS


def test_release_while_the_service_is_away_raises_nothing_and_ends_by_itself(
    zookeeper: PlayedZookeeper, universe: Universe
) -> None:
    held = zookeeper.lock("alice").acquire(0)
    zookeeper.is_down = True
    held.release()
    zookeeper.is_down = False
    assert not is_free(zookeeper)
    universe.pass_ms(ADDRESS.session_timeout_ms + 1)
    assert is_free(zookeeper)


def test_waiting_goes_on_while_the_service_is_away(
    zookeeper: PlayedZookeeper, universe: Universe
) -> None:
    zookeeper.is_down = True
    universe.at(20_000, lambda: setattr(zookeeper, "is_down", False))
    assert zookeeper.lock("alice").acquire(60_000).is_held()


def test_service_that_never_answers_is_an_error_that_names_it_and_no_session_stays(
    zookeeper: PlayedZookeeper, universe: Universe
) -> None:
    zookeeper.is_down = True
    with pytest.raises(UnavailableError):
        zookeeper.lock("alice").acquire(5_000)
    assert universe.background == []


@pytest.mark.parametrize("lost", range(1, 6))
def test_lost_replies_cost_time_and_nothing_else(
    zookeeper: PlayedZookeeper, universe: Universe, lost: int
) -> None:
    zookeeper.loses_replies = lost
    held = zookeeper.lock("alice").acquire(60_000)
    assert held.is_held()
    assert len(zookeeper.names()) == 1  # the node is found again, not made twice
    assert not is_free(zookeeper)
    held.release()
    assert is_free(zookeeper)


def test_place_in_the_queue_that_a_freeze_cost_is_taken_anew(
    zookeeper: PlayedZookeeper, universe: Universe
) -> None:
    held = zookeeper.lock("alice").acquire(0)
    universe.at(1_000, lambda: universe.frozen.add("bob"))

    def end_of_bobs_session() -> None:
        zookeeper.end(zookeeper.sessions[1])
        universe.frozen.clear()

    universe.at(40_000, end_of_bobs_session)
    universe.at(45_000, held.release)
    bobs = zookeeper.lock("bob").acquire(60_000)
    assert bobs.is_held()
    assert len(zookeeper.names()) == 1


def test_interrupt_while_waiting_leaves_nothing_behind(
    zookeeper: PlayedZookeeper, universe: Universe
) -> None:
    held = zookeeper.lock("alice").acquire(0)

    def interrupt() -> None:
        raise KeyboardInterrupt

    universe.at(1_000, interrupt)
    with pytest.raises(KeyboardInterrupt):
        zookeeper.lock("bob").acquire(60_000)
    assert len(zookeeper.names()) == 1
    held.release()
    assert is_free(zookeeper)


def test_missing_library_is_named_with_what_to_install(
    universe: Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(InvalidRequestError, match=r"pip install 'pyhudi\[zookeeper\]'"):
        ZookeeperLock(universe.memory(), universe.world(), ADDRESS)
