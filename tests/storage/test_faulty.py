from __future__ import annotations

from collections.abc import Callable

import pytest

from faulty_storage import Effect, Fault, FaultyStorage, Operation
from pyhudi.errors import UnavailableError
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage

FAIL, LOSE_REPLY, TEAR = Effect.FAIL, Effect.LOSE_REPLY, Effect.TEAR
DELAY, STALE, LIE = Effect.DELAY, Effect.STALE, Effect.LIE

Call = Callable[[Storage], object]

# Every method of Storage, on an object that is there.
CALLS: dict[str, Call] = {
    "create": lambda storage: storage.create("d/new", b"123456"),
    "create_from": lambda storage: storage.create_from("d/new", [b"123", b"456"]),
    "replace": lambda storage: storage.replace("d/old", b"123456", etag=etag(storage)),
    "write": lambda storage: storage.write("d/old", b"123456"),
    "read": lambda storage: storage.read("d/old"),
    "read_ranges": lambda storage: storage.read_ranges("d/old", [(0, 1)]),
    "stat": lambda storage: storage.stat("d/old"),
    "list": lambda storage: list(storage.list("d")),
    "list_folder": lambda storage: storage.list_folder("d"),
    "delete": lambda storage: storage.delete("d/old"),
    "open": lambda storage: storage.open("d/old").read(),
}
CHANGES = {"create", "create_from", "replace", "write", "delete"}


def etag(storage: Storage) -> str:
    return "1"  # of d/old, the first object of the memory below


def inner() -> MemoryStorage:
    storage = MemoryStorage(lambda: 0)
    storage.create("d/old", b"original")
    return storage


def contents(storage: Storage) -> dict[str, bytes]:
    return {stat.path: storage.read(stat.path) for stat in storage.list("")}


def paths(storage: Storage, prefix: str = "") -> list[str]:
    return [stat.path for stat in storage.list(prefix)]


def test_every_method_of_storage_is_exercised() -> None:
    methods = {name for name in vars(Storage) if not name.startswith("_")}
    assert set(CALLS) == methods - {"uri", "delete_all", "stat_all"}


def test_each_of_many_deletes_may_fail_by_itself() -> None:
    wrapped = inner()
    wrapped.create("d/new", b"1")
    faulty = FaultyStorage(wrapped, [Fault(FAIL, nth=2)])
    with pytest.raises(UnavailableError):
        faulty.delete_all(["d/old", "d/new"])
    assert contents(wrapped) == {"d/new": b"1"}
    assert [operation.name for operation in faulty.trace] == ["delete", "delete"]


@pytest.mark.parametrize("name", CALLS)
def test_without_faults_nothing_is_different(name: str) -> None:
    plain, wrapped = inner(), inner()
    faulty = FaultyStorage(wrapped)
    assert CALLS[name](faulty) == CALLS[name](plain)
    assert contents(wrapped) == contents(plain)
    assert [operation.name for operation in faulty.trace] == [name]
    assert faulty.uri == wrapped.uri


@pytest.mark.parametrize("name", CALLS)
def test_failed_call_does_nothing(name: str) -> None:
    wrapped = inner()
    with pytest.raises(UnavailableError, match=name):
        CALLS[name](FaultyStorage(wrapped, [Fault(FAIL)]))
    assert contents(wrapped) == {"d/old": b"original"}


@pytest.mark.parametrize("name", CALLS)
def test_call_whose_reply_is_lost_was_carried_out(name: str) -> None:
    plain, wrapped = inner(), inner()
    CALLS[name](plain)
    with pytest.raises(UnavailableError, match="lose reply"):
        CALLS[name](FaultyStorage(wrapped, [Fault(LOSE_REPLY)]))
    assert contents(wrapped) == contents(plain)
    assert (contents(wrapped) != {"d/old": b"original"}) == (name in CHANGES)


@pytest.mark.parametrize("name", ["create", "create_from", "replace", "write"])
def test_torn_write_keeps_a_prefix(name: str) -> None:
    wrapped = inner()
    with pytest.raises(UnavailableError, match="tear"):
        CALLS[name](FaultyStorage(wrapped, [Fault(TEAR, keep_bytes=4)]))
    path = "d/new" if name.startswith("create") else "d/old"
    assert wrapped.read(path) == b"1234"


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"create", "create_from", "replace", "write"}))
def test_only_writes_are_torn(name: str) -> None:
    CALLS[name](FaultyStorage(inner(), [Fault(TEAR, times=None)]))


@pytest.mark.parametrize("name", CALLS)
def test_delayed_call_sleeps_first(name: str) -> None:
    wrapped, slept = inner(), list[object]()
    faulty = FaultyStorage(
        wrapped,
        [Fault(DELAY, delay_ms=70)],
        sleep_ms=lambda ms: slept.append((ms, contents(wrapped))),
    )
    CALLS[name](faulty)
    assert slept == [(70, {"d/old": b"original"})]


@pytest.mark.parametrize(
    ("fault", "failed"),
    [
        (Fault(FAIL), [1]),
        (Fault(FAIL, nth=3), [3]),
        (Fault(FAIL, nth=3, times=2), [3, 4]),
        (Fault(FAIL, nth=4, times=None), [4, 5, 6]),
        (Fault(FAIL, operation="read"), [2]),
        (Fault(FAIL, operation="read", nth=2), [4]),
        (Fault(FAIL, path="b*", nth=1, times=None), [3, 4]),
        (Fault(FAIL, path="*/c", operation="create"), [5]),
        (Fault(FAIL, path="B*"), []),
    ],
)
def test_fault_strikes_the_calls_it_names(fault: Fault, failed: list[int]) -> None:
    wrapped = MemoryStorage(lambda: 0)
    for path in ("a", "b", "d/c"):
        wrapped.create(path, b"")
    faulty, seen = FaultyStorage(wrapped, [fault]), []
    calls = [(call, path) for path in ("a", "b", "d/c") for call in ("create", "read")]
    for n, (call, path) in enumerate(calls, start=1):
        try:
            faulty.create(path, b"") if call == "create" else faulty.read(path)
        except UnavailableError:
            seen.append(n)
    assert seen == failed
    assert faulty.trace == [Operation(call, path) for call, path in calls]


def test_faults_act_together() -> None:
    wrapped, slept = inner(), list[int]()
    plan = [Fault(DELAY, delay_ms=5), Fault(TEAR, keep_bytes=1), Fault(FAIL, nth=2)]
    faulty = FaultyStorage(wrapped, plan, sleep_ms=slept.append)
    with pytest.raises(UnavailableError, match="tear"):
        faulty.create("a", b"12")
    with pytest.raises(UnavailableError, match="fail"):
        faulty.create("b", b"12")
    assert slept == [5]
    assert contents(wrapped) == {"a": b"1", "d/old": b"original"}


def test_crash_after_an_operation_is_two_faults() -> None:
    wrapped = inner()
    plan = [Fault(LOSE_REPLY, nth=2), Fault(FAIL, nth=3, times=None)]
    faulty = FaultyStorage(wrapped, plan)
    faulty.create("a", b"1")
    for path in ("b", "c", "d"):
        with pytest.raises(UnavailableError):
            faulty.create(path, b"1")
    assert paths(wrapped) == ["a", "b", "d/old"]


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        (0, ["d/b", "d/c"]),
        (1, ["d/a", "d/b", "d/c"]),  # the delete of a is not known yet
        (2, ["d/a", "d/b"]),
        (3, ["d/a"]),
        (4, []),
        (9, []),
    ],
)
def test_stale_listing_is_one_of_the_past(behind: int, expected: list[str]) -> None:
    faulty = FaultyStorage(MemoryStorage(lambda: 0), [Fault(STALE, times=None, behind=behind)])
    for path in ("d/a", "d/b", "d/c"):
        faulty.create(path, b"1")
    faulty.delete("d/a")
    assert paths(faulty) == paths(faulty, "d") == expected
    level = faulty.list_folder("d")
    assert [stat.path for stat in level.objects] == expected
    assert faulty.list_folder("").folders == (("d",) if expected else ())
    assert [stat.path for stat in faulty.list("d", after="d/a")] == [
        path for path in expected if path > "d/a"
    ]
    assert faulty.stat("d/c") is not None, "only listings are stale"


def test_stale_listing_shows_an_overwritten_object_as_it_was() -> None:
    faulty = FaultyStorage(MemoryStorage(lambda: 0), [Fault(STALE, operation="list")])
    faulty.create("a", b"1")
    before = faulty.stat("a")
    faulty.write("a", b"22")
    assert list(faulty.list("")) == [before]
    assert list(faulty.list("")) == [faulty.stat("a")]


def test_call_that_changed_nothing_is_no_change() -> None:
    faulty = FaultyStorage(inner(), [Fault(STALE, behind=1)])
    faulty.create("d/new", b"1")
    faulty.create("d/new", b"2")
    faulty.delete("d/none")
    assert faulty.replace("d/old", b"3", etag="wrong") is None
    assert paths(faulty) == ["d/old"]


def test_wrappers_with_one_list_of_changes_miss_each_others() -> None:
    wrapped = inner()
    writer = FaultyStorage(wrapped)
    reader = FaultyStorage(wrapped, [Fault(STALE)], changes=writer.changes)
    writer.create("d/new", b"1")
    assert paths(reader) == ["d/old"]
    assert paths(reader) == ["d/new", "d/old"]


@pytest.mark.parametrize(
    "lie",
    [
        lambda storage: storage.create("d/old", b"usurped"),
        lambda storage: storage.create_from("d/old", [b"usur", b"ped"]),
        lambda storage: storage.replace("d/old", b"usurped", etag="long gone"),
    ],
)
def test_lying_store_lets_a_loser_win(lie: Call) -> None:
    wrapped = inner()
    assert lie(FaultyStorage(wrapped, [Fault(LIE)]))
    assert wrapped.read("d/old") == b"usurped"
    honest = inner()
    assert not lie(FaultyStorage(honest, [Fault(LIE, nth=2)]))
    assert honest.read("d/old") == b"original"


def test_same_calls_meet_the_same_faults() -> None:
    def run() -> list[object]:
        plan = [Fault(FAIL, nth=2, times=2), Fault(TEAR, operation="write", keep_bytes=1)]
        faulty, seen = FaultyStorage(inner(), plan), list[object]()
        for call in (*CALLS.values(), *CALLS.values()):
            try:
                seen.append(repr(call(faulty)))
            except (UnavailableError, FileNotFoundError) as error:
                seen.append(str(error))
        return [*seen, *faulty.trace]

    assert run() == run()
