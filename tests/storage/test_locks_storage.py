"""Hudi's storage lock: leases, renewals, lost races and replies, wrong clocks and garbage.

A Java writer is played by its bytes, written over whatever version is there.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from faulty_storage import Effect, Fault, FaultyStorage
from locking_world import MINUTE_MS, Universe
from pyhudi.errors import CorruptTableError, InvalidRequestError, UnavailableError
from pyhudi.format.lock.lease import LEASE_PATH, Lease, decode_lease, encode_lease
from pyhudi.storage.locks.lock import MARGIN_MS, POLL_MS, HeldLock
from pyhudi.storage.locks.storage_lock import ALIVE_MS, RENEW_MS, VALIDITY_MS, StorageLock
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage

JAVA = "8f14e45f-ceea-467f-a8d3-1b6f4c2d9e10"
EFFECTS = [Effect.FAIL, Effect.LOSE_REPLY]
SAFE_MS = VALIDITY_MS - MARGIN_MS


@pytest.fixture
def universe() -> Universe:
    return Universe()


@pytest.fixture
def memory(universe: Universe) -> MemoryStorage:
    return universe.memory()


def lease_in(storage: Storage) -> Lease:
    return decode_lease(storage.read(LEASE_PATH))


def taken_by_java(storage: Storage, valid_until_ms: int, *, expired: bool = False) -> bytes:
    body = encode_lease(Lease(expired, valid_until_ms, JAVA))
    storage.write(LEASE_PATH, body)
    return body


def test_object_has_hudis_bytes_from_acquire_to_release(
    memory: MemoryStorage, universe: Universe
) -> None:
    held = StorageLock(memory, universe.world()).acquire(0)
    until_ms = universe.now_ms + 300_000
    owner = json.loads(memory.read(LEASE_PATH))["owner"]
    assert uuid.UUID(owner).version == 4
    rest = f'"validUntil":{until_ms},"owner":"{owner}"}}'
    assert memory.read(LEASE_PATH) == f'{{"expired":false,{rest}'.encode()
    held.release()
    assert memory.read(LEASE_PATH) == f'{{"expired":true,{rest}'.encode()
    assert LEASE_PATH == ".hoodie/.locks/table_lock.json"


def test_next_owner_writes_over_the_released_lease(
    memory: MemoryStorage, universe: Universe
) -> None:
    counted = FaultyStorage(memory)
    lock = StorageLock(counted, universe.world())
    lock.acquire(0).release()
    first = lease_in(memory).owner
    counted.trace.clear()
    lock.acquire(0).release()
    assert lease_in(memory).owner != first
    names = [operation.name for operation in counted.trace]
    assert names == ["stat", "read", "replace", "replace"]


@pytest.mark.parametrize(
    ("late_ms", "is_taken_over"),
    [(-299_000, False), (-1, False), (0, False), (500, False), (501, True), (10_000_000, True)],
)
def test_lease_counts_until_half_a_second_past_its_end(
    memory: MemoryStorage, universe: Universe, late_ms: int, is_taken_over: bool
) -> None:
    body = taken_by_java(memory, universe.now_ms + VALIDITY_MS)
    universe.pass_ms(VALIDITY_MS + late_ms)
    lock = StorageLock(memory, universe.world())
    if is_taken_over:
        assert lock.acquire(0).is_held()
    else:
        with pytest.raises(UnavailableError, match=JAVA):
            lock.acquire(0)
        assert memory.read(LEASE_PATH) == body


@pytest.mark.parametrize(
    ("age_ms", "is_taken_over"), [(0, False), (ALIVE_MS, False), (ALIVE_MS + 1, True)]
)
def test_owner_whose_clock_is_slow_lives_while_it_renews(
    memory: MemoryStorage, universe: Universe, age_ms: int, is_taken_over: bool
) -> None:
    """By its own words its lease was over before it was written."""
    taken_by_java(memory, universe.now_ms - 5 * MINUTE_MS)
    universe.pass_ms(age_ms)
    lock = StorageLock(memory, universe.world())
    if is_taken_over:
        assert lock.acquire(0).is_held()
    else:
        with pytest.raises(UnavailableError, match=JAVA):
            lock.acquire(0)


@pytest.mark.parametrize("skew_ms", [-10 * MINUTE_MS, 0, 10 * MINUTE_MS])
def test_expired_flag_frees_the_lock_whatever_the_clocks_say(
    memory: MemoryStorage, universe: Universe, skew_ms: int
) -> None:
    taken_by_java(memory, universe.now_ms + 300_000, expired=True)
    assert StorageLock(memory, universe.world(skew_ms=skew_ms)).acquire(0).is_held()


def test_time_out_names_the_owner_its_times_and_the_file(
    memory: MemoryStorage, universe: Universe
) -> None:
    taken_by_java(memory, universe.now_ms + 300_000)
    with pytest.raises(UnavailableError) as caught:
        StorageLock(memory, universe.world()).acquire(60_000)
    assert caught.value.why == (
        f"the owner '{JAVA}' has it since 2023-11-14T22:13:20.000+00:00 or earlier, renewed it "
        "last at 2023-11-14T22:13:20.000+00:00, and may keep it until 2023-11-14T22:18:20.000+00:00"
    )
    assert f"only its operator should delete {LEASE_PATH!r}" in caught.value.next_step


def test_owner_that_renews_is_named_with_the_time_it_was_first_seen(
    memory: MemoryStorage, universe: Universe
) -> None:
    StorageLock(memory, universe.world("alice")).acquire(0)
    with pytest.raises(UnavailableError) as caught:
        StorageLock(memory, universe.world("bob")).acquire(100_000)
    assert "since 2023-11-14T22:13:20.000+00:00 or earlier" in caught.value.why
    assert "renewed it last at 2023-11-14T22:14:50.000+00:00" in caught.value.why


@pytest.mark.parametrize(
    ("owner", "until_ms", "shown"),
    [
        ("", 1 << 62, "the owner '' has it"),
        ("a" * 50_000, 1 << 62, "the owner 'aaa"),
        ("\x1b[2J\ud800", 1 << 62, r"the owner '\x1b[2J\ud800' has it"),
        (JAVA, (1 << 63) - 1, "may keep it until 9223372036854775807 ms after 1970"),
    ],
)
def test_forged_lease_is_waited_for_no_longer_than_asked(
    memory: MemoryStorage, universe: Universe, owner: str, until_ms: int, shown: str
) -> None:
    memory.write(LEASE_PATH, encode_lease(Lease(False, until_ms, owner)))
    began_ms = universe.now_ms
    with pytest.raises(UnavailableError) as caught:
        StorageLock(memory, universe.world()).acquire(5_000)
    assert shown in caught.value.why
    assert len(str(caught.value)) < 1_000
    assert universe.now_ms == began_ms + 5_000


@pytest.mark.parametrize("body", [b"", b"{}", b"garbage", b'{"expired":false,"owner":"x"}'])
def test_garbage_is_reported_at_once_and_left_alone(
    memory: MemoryStorage, universe: Universe, body: bytes
) -> None:
    memory.write(LEASE_PATH, body)
    with pytest.raises(CorruptTableError, match=LEASE_PATH):
        StorageLock(memory, universe.world()).acquire(60_000)
    assert memory.read(LEASE_PATH) == body
    assert universe.naps_ms == []


def test_unknown_fields_of_another_engine_are_skipped(
    memory: MemoryStorage, universe: Universe
) -> None:
    fields = {"expired": False, "validUntil": universe.now_ms - 501, "owner": JAVA, "host": "h"}
    memory.write(LEASE_PATH, json.dumps(fields).encode())
    universe.pass_ms(ALIVE_MS + 1)
    assert StorageLock(memory, universe.world()).acquire(0).is_held()


def test_lease_is_renewed_for_as_long_as_it_is_held(
    memory: MemoryStorage, universe: Universe
) -> None:
    held = StorageLock(memory, universe.world("alice")).acquire(0)
    for _ in range(40):
        universe.pass_ms(RENEW_MS)
        assert held.remaining_ms() == SAFE_MS
        assert held.is_held()
    with pytest.raises(UnavailableError):
        StorageLock(memory, universe.world("bob")).acquire(0)
    assert universe.background == ["alice"]
    held.release()
    assert universe.background == []
    after = memory.read(LEASE_PATH)
    universe.pass_ms(10 * RENEW_MS)
    assert memory.read(LEASE_PATH) == after


def test_owner_without_renewal_stops_before_another_may_begin(
    memory: MemoryStorage, universe: Universe
) -> None:
    alice = StorageLock(memory, universe.world("alice")).acquire(0)
    universe.frozen.add("alice")
    universe.pass_ms(SAFE_MS - 1)
    assert alice.remaining_ms() == 1
    universe.pass_ms(1)
    assert alice.remaining_ms() == 0
    assert not alice.is_held()
    began_ms = universe.now_ms
    bob = StorageLock(memory, universe.world("bob")).acquire(60_000)
    assert MARGIN_MS + 500 < universe.now_ms - began_ms <= MARGIN_MS + 501 + POLL_MS
    universe.frozen.clear()
    universe.pass_ms(RENEW_MS)
    alice.release()
    assert bob.is_held()
    assert not alice.is_held()


def test_lapsed_lease_is_not_revived(memory: MemoryStorage, universe: Universe) -> None:
    """Who woke up too late may have told somebody already that the lock is gone."""
    held = StorageLock(memory, universe.world("alice")).acquire(0)
    universe.frozen.add("alice")
    universe.pass_ms(SAFE_MS + 1)
    universe.frozen.clear()
    universe.pass_ms(RENEW_MS)
    assert not held.is_held()
    assert held.remaining_ms() == 0
    held.release()
    assert lease_in(memory).expired


@pytest.mark.parametrize("left", ["another owner's", "nothing", "garbage", "expired by hand"])
def test_renewal_that_finds_no_lease_of_ours_loses_the_lock_for_good(
    memory: MemoryStorage, universe: Universe, left: str
) -> None:
    held = StorageLock(memory, universe.world()).acquire(0)
    mine = memory.read(LEASE_PATH)
    match left:
        case "another owner's":
            taken_by_java(memory, universe.now_ms + 300_000)
        case "nothing":
            memory.delete(LEASE_PATH)
        case "garbage":
            memory.write(LEASE_PATH, b"garbage")
        case "expired by hand":
            memory.write(LEASE_PATH, mine.replace(b"false", b"true"))
    before = memory.stat(LEASE_PATH)
    assert held.remaining_ms() == SAFE_MS  # nobody told it yet
    universe.pass_ms(RENEW_MS)
    assert held.remaining_ms() == 0
    assert not held.is_held()
    assert memory.stat(LEASE_PATH) == before
    memory.write(LEASE_PATH, mine)
    assert not held.is_held()
    assert held.remaining_ms() == 0


def test_look_finds_the_loss_before_the_renewal_does(
    memory: MemoryStorage, universe: Universe
) -> None:
    held = StorageLock(memory, universe.world()).acquire(0)
    theirs = taken_by_java(memory, universe.now_ms + 300_000)
    assert not held.is_held()
    assert held.remaining_ms() == 0
    held.release()
    assert memory.read(LEASE_PATH) == theirs


def test_release_after_an_unnoticed_loss_leaves_the_new_owner(
    memory: MemoryStorage, universe: Universe
) -> None:
    held = StorageLock(memory, universe.world()).acquire(0)
    theirs = taken_by_java(memory, universe.now_ms + 300_000)
    held.release()
    assert memory.read(LEASE_PATH) == theirs


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("times", [1, 2, 5])
def test_throttled_renewals_cost_nothing_while_the_lease_lasts(
    memory: MemoryStorage, universe: Universe, effect: Effect, times: int
) -> None:
    storage = FaultyStorage(memory, [Fault(effect, "replace", times=times)])
    held = StorageLock(storage, universe.world()).acquire(0)
    universe.pass_ms((times + 1) * RENEW_MS)
    assert held.remaining_ms() == SAFE_MS
    assert held.is_held()
    held.release()
    assert lease_in(memory).expired


def test_store_that_stays_away_ends_the_lease(memory: MemoryStorage, universe: Universe) -> None:
    storage = FaultyStorage(memory, [Fault(Effect.FAIL, nth=8, times=None)])  # after the acquire
    held = StorageLock(storage, universe.world()).acquire(0)
    universe.pass_ms(SAFE_MS - 1)
    assert held.remaining_ms() == 1
    with pytest.raises(UnavailableError):
        held.is_held()
    universe.pass_ms(1)
    assert held.remaining_ms() == 0
    assert not held.is_held()
    held.release()  # in vain, but the lease is over anyway


def test_throttled_release_is_repeated_as_hudi_does(
    memory: MemoryStorage, universe: Universe
) -> None:
    storage = FaultyStorage(memory, [Fault(Effect.FAIL, "replace", times=3)])
    held = StorageLock(storage, universe.world()).acquire(0)
    held.release()
    assert universe.naps_ms == [1_000, 2_000, 4_000]
    assert lease_in(memory).expired


def test_release_that_never_arrives_leaves_a_lease_that_ends(
    memory: MemoryStorage, universe: Universe
) -> None:
    storage = FaultyStorage(memory, [Fault(Effect.FAIL, "replace", times=None)])
    held = StorageLock(storage, universe.world("alice")).acquire(0)
    began_ms = universe.now_ms
    held.release()
    assert not held.is_held()
    StorageLock(memory, universe.world("bob")).acquire(2 * VALIDITY_MS)
    assert universe.now_ms - began_ms <= VALIDITY_MS + 501 + POLL_MS


@pytest.mark.parametrize("found", ["nothing", "a released lease", "an old lease"])
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("nth", range(1, 8))
def test_one_failed_operation_never_costs_or_leaks_the_lock(
    memory: MemoryStorage, universe: Universe, found: str, effect: Effect, nth: int
) -> None:
    if found != "nothing":
        taken_by_java(memory, universe.now_ms, expired=found == "a released lease")
        universe.pass_ms(ALIVE_MS + 1)
    storage = FaultyStorage(memory, [Fault(effect, nth=nth)])
    held = StorageLock(storage, universe.world("alice")).acquire(10_000)
    universe.pass_ms(2 * RENEW_MS)
    assert held.remaining_ms() in (SAFE_MS, SAFE_MS - RENEW_MS)
    with pytest.raises(UnavailableError):
        StorageLock(memory, universe.world("bob")).acquire(0)
    held.release()
    assert StorageLock(memory, universe.world("bob")).acquire(0).is_held()


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("nth", range(1, 8))
def test_crashed_writer_blocks_others_no_longer_than_its_lease(
    memory: MemoryStorage, universe: Universe, effect: Effect, nth: int
) -> None:
    faults = [Fault(effect, nth=nth), Fault(Effect.FAIL, nth=nth + 1, times=None)]
    lock = StorageLock(FaultyStorage(memory, faults), universe.world("the dead"))
    dead: HeldLock | None = None
    try:
        dead = lock.acquire(3_000)
        universe.pass_ms(RENEW_MS)
        dead.release()
    except UnavailableError:
        pass
    universe.frozen.add("the dead")
    began_ms = universe.now_ms
    heir = StorageLock(memory, universe.world("bob")).acquire(2 * VALIDITY_MS)
    assert universe.now_ms - began_ms <= VALIDITY_MS + 501 + POLL_MS
    assert heir.is_held()
    assert dead is None or dead.remaining_ms() == 0


class LateStorage(FaultyStorage):
    """A store in which one conditional write times out, and is carried out later."""

    def __init__(self, inner: Storage, late: str) -> None:
        super().__init__(inner)
        self._late = late
        self.arrive: Callable[[], object] | None = None

    def create(self, path: str, data: bytes) -> bool:
        self._delay("create", lambda: self._inner.create(path, data))
        return super().create(path, data)

    def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
        self._delay("replace", lambda: self._inner.replace(path, data, etag=etag))
        return super().replace(path, data, etag=etag)

    def _delay(self, name: str, write: Callable[[], object]) -> None:
        if name == self._late and self.arrive is None:
            self.arrive = write
            raise UnavailableError("a write timed out", why="the network", next_step="Repeat it")


@pytest.mark.parametrize("late", ["create", "replace"])
@pytest.mark.parametrize("arrives_ms", [1, 5_000, RENEW_MS + 1])
def test_write_that_arrives_late_is_recognised(
    memory: MemoryStorage, universe: Universe, late: str, arrives_ms: int
) -> None:
    if late == "replace":
        taken_by_java(memory, universe.now_ms, expired=True)
    storage = LateStorage(memory, late)
    universe.at(arrives_ms, lambda: storage.arrive and storage.arrive())
    held = StorageLock(storage, universe.world("alice")).acquire(10_000)
    universe.pass_ms(3 * RENEW_MS)
    assert held.is_held()
    held.release()
    assert lease_in(memory).expired


def test_renewal_that_arrives_after_the_next_one_changes_nothing(
    memory: MemoryStorage, universe: Universe
) -> None:
    storage = LateStorage(memory, "replace")
    held = StorageLock(storage, universe.world("alice")).acquire(0)
    universe.pass_ms(2 * RENEW_MS)
    assert storage.arrive is not None
    assert storage.arrive() is None
    assert held.is_held()
    held.release()
    assert storage.arrive() is None
    assert lease_in(memory).expired


def test_renewal_that_arrives_before_the_release_does_not_keep_the_lock(
    memory: MemoryStorage, universe: Universe
) -> None:
    storage = LateStorage(memory, "replace")
    held = StorageLock(storage, universe.world("alice")).acquire(0)
    universe.pass_ms(RENEW_MS)
    assert storage.arrive is not None
    assert storage.arrive() is not None
    held.release()
    assert lease_in(memory).expired


def test_writer_that_gave_up_gives_back_what_it_got_unknowingly(
    memory: MemoryStorage, universe: Universe
) -> None:
    faults = [Fault(Effect.LOSE_REPLY, "create"), Fault(Effect.FAIL, "stat", nth=2)]
    with pytest.raises(UnavailableError, match="stat of"):
        StorageLock(FaultyStorage(memory, faults), universe.world("alice")).acquire(0)
    assert StorageLock(memory, universe.world("bob")).acquire(0).is_held()


def test_reply_lost_inside_the_client_is_recognised(
    memory: MemoryStorage, universe: Universe
) -> None:
    """The client repeats a request by itself, and the repetition loses to the first try."""

    class Repeating(FaultyStorage):
        def create(self, path: str, data: bytes) -> bool:
            super().create(path, data)
            return super().create(path, data)

        def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
            super().replace(path, data, etag=etag)
            return super().replace(path, data, etag=etag)

    lock = StorageLock(Repeating(memory), universe.world())
    for _ in range(2):
        held = lock.acquire(0)
        universe.pass_ms(3 * RENEW_MS)
        assert held.remaining_ms() == SAFE_MS
        held.release()
        assert lease_in(memory).expired


@pytest.mark.parametrize("found", ["nothing", "a released lease"])
def test_lost_race_is_no_lock(memory: MemoryStorage, universe: Universe, found: str) -> None:
    if found != "nothing":
        taken_by_java(memory, universe.now_ms, expired=True)
    winner: list[HeldLock] = []

    class Slow(FaultyStorage):
        """Lets a rival in between the look and the write."""

        def create(self, path: str, data: bytes) -> bool:
            self._let_a_rival_in()
            return super().create(path, data)

        def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
            self._let_a_rival_in()
            return super().replace(path, data, etag=etag)

        def _let_a_rival_in(self) -> None:
            winner.append(StorageLock(memory, universe.world("rival")).acquire(0))

    with pytest.raises(UnavailableError, match="has it since"):
        StorageLock(Slow(memory), universe.world("slow")).acquire(0)
    assert winner[0].is_held()


def test_no_two_bodies_are_the_same_even_if_the_clock_stands_still_or_goes_back(
    memory: MemoryStorage, universe: Universe
) -> None:
    """To S3 equal bodies are one version, and a condition on it would hold twice."""
    bodies: list[bytes] = []

    class Recording(FaultyStorage):
        def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
            bodies.append(data)
            return super().replace(path, data, etag=etag)

    held = StorageLock(Recording(memory), universe.world("alice")).acquire(0)
    bodies.append(memory.read(LEASE_PATH))
    for skew_ms in (0, 90_000, 90_000 - RENEW_MS, 0, -RENEW_MS, -10 * MINUTE_MS):
        universe.skew_ms["alice"] = skew_ms
        universe.pass_ms(RENEW_MS)
    held.release()
    assert len(bodies) == len(set(bodies)) == 8


def test_same_bytes_are_the_same_version_on_s3_so_the_lock_is_tried_there(
    s3: Storage, universe: Universe
) -> None:
    held = StorageLock(s3, universe.world("alice")).acquire(0)
    universe.pass_ms(2 * RENEW_MS)
    assert held.is_held()
    held.release()
    bob = StorageLock(s3, universe.world("bob")).acquire(0)
    universe.pass_ms(RENEW_MS)
    held.release()
    assert bob.is_held()


@pytest.mark.parametrize(
    ("skew_ms", "left_ms"),
    [(-10 * MINUTE_MS, SAFE_MS), (500, SAFE_MS - 500), (10 * MINUTE_MS, SAFE_MS)],
)
def test_clock_that_is_set_while_the_lock_is_held_never_makes_it_last_longer(
    memory: MemoryStorage, universe: Universe, skew_ms: int, left_ms: int
) -> None:
    held = StorageLock(memory, universe.world("alice")).acquire(0)
    universe.frozen.add("alice")
    universe.skew_ms["alice"] = skew_ms
    assert held.remaining_ms() == left_ms
    universe.pass_ms(left_ms)
    assert held.remaining_ms() == 0
    universe.skew_ms["alice"] = -10 * MINUTE_MS
    assert held.remaining_ms() == 0
    assert not held.is_held()


def test_clock_that_is_set_back_does_not_shorten_what_others_see(
    memory: MemoryStorage, universe: Universe
) -> None:
    held = StorageLock(memory, universe.world("alice")).acquire(0)
    universe.skew_ms["alice"] = -10 * MINUTE_MS
    for _ in range(20):
        universe.pass_ms(RENEW_MS)
        with pytest.raises(UnavailableError):
            StorageLock(memory, universe.world("bob")).acquire(0)
    assert held.is_held()


@pytest.mark.parametrize("alice_ms", [-10 * MINUTE_MS, 0, 10 * MINUTE_MS])
@pytest.mark.parametrize("bob_ms", [-10 * MINUTE_MS, 0, 10 * MINUTE_MS])
def test_with_wrong_clocks_a_lease_is_neither_lost_nor_shared(
    memory: MemoryStorage, universe: Universe, alice_ms: int, bob_ms: int
) -> None:
    """Hudi compares clocks, and a rival ahead by more than the lease would take it."""
    alice = StorageLock(memory, universe.world("alice", skew_ms=alice_ms)).acquire(0)
    assert alice.is_held()
    until_ms = lease_in(memory).valid_until_ms
    assert abs(until_ms - universe.now_ms - VALIDITY_MS) <= 1_000  # as a Java writer sees it
    lock = StorageLock(memory, universe.world("bob", skew_ms=bob_ms))
    with pytest.raises(UnavailableError):
        lock.acquire(60_000)
    assert alice.is_held()


@pytest.mark.parametrize(
    ("validity_ms", "renew_ms"), [(9_999, 1_000), (299_999, 30_000), (10_000, 999), (0, 0)]
)
def test_numbers_that_hudi_refuses_are_refused(
    memory: MemoryStorage, universe: Universe, validity_ms: int, renew_ms: int
) -> None:
    with pytest.raises(InvalidRequestError, match="ten times as long"):
        StorageLock(memory, universe.world(), validity_ms=validity_ms, renew_ms=renew_ms)


WRITERS = ("alice", "bob", "carol")
OPERATIONS = ("create", "replace", "stat", "read")


class ManyWriters(RuleBasedStateMachine):
    """Writers take, keep, lose and give back one lock while requests fail and time passes.

    Their clocks differ by less than the margin; then no two may go on at the same time. Whatever
    the clocks, storage shows the lock to one of them at most.
    """

    def __init__(self) -> None:
        super().__init__()
        self.universe = Universe()
        self.memory = self.universe.memory()
        self.held: dict[str, HeldLock] = {}
        for place, writer in enumerate(WRITERS):
            self.universe.world(writer, skew_ms=(place - 1) * (MARGIN_MS // 2))

    @rule(
        writer=st.sampled_from(WRITERS),
        wait_ms=st.sampled_from([0, 2_000]),
        effect=st.sampled_from(EFFECTS),
        operation=st.sampled_from(OPERATIONS),
        nth=st.integers(1, 12),
        times=st.sampled_from([1, 2, 12, None]),
    )
    def acquire(
        self,
        writer: str,
        wait_ms: int,
        effect: Effect,
        operation: str,
        nth: int,
        times: int | None,
    ) -> None:
        if writer in self.held:
            return
        skew_ms = self.universe.skew_ms[writer]
        fault = Fault(effect, operation, nth=nth, times=times)
        lock = StorageLock(
            FaultyStorage(self.memory, [fault]), self.universe.world(writer, skew_ms=skew_ms)
        )
        with contextlib.suppress(UnavailableError):
            self.held[writer] = lock.acquire(wait_ms)

    @rule(writer=st.sampled_from(WRITERS))
    def release(self, writer: str) -> None:
        if writer in self.held:
            self.held.pop(writer).release()

    @rule(writer=st.sampled_from(WRITERS))
    def freeze_or_thaw(self, writer: str) -> None:
        self.universe.frozen ^= {writer}

    @rule(ms=st.sampled_from([100, RENEW_MS, 100_000, SAFE_MS, VALIDITY_MS + 501]))
    def wait(self, ms: int) -> None:
        self.universe.pass_ms(ms)

    @invariant()
    def at_most_one_may_go_on(self) -> None:
        going_on = [writer for writer, held in self.held.items() if held.remaining_ms()]
        assert len(going_on) <= 1

    @invariant()
    def who_may_go_on_is_in_storage(self) -> None:
        for held in self.held.values():
            if held.remaining_ms():
                lease = lease_in(self.memory)
                assert not lease.expired
                assert lease.owner == held._owner  # type: ignore[attr-defined]


TestManyWriters = ManyWriters.TestCase
TestManyWriters.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
