"""What `World.together` promises: results in order, and of errors the first, after all calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from pyhudi.world import Together, one_by_one, real_world

_THREADS = real_world().together
BOTH = {"in threads": _THREADS, "one by one": one_by_one}
#: How many calls are under way at once, and more items than that.
AT_ONCE = 16
MANY = range(40)


class _StrangeError(Exception):
    """The error of one item."""


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("together", BOTH.values(), ids=BOTH)
@pytest.mark.parametrize("items", [range(0), range(1), range(2), MANY], ids=len)
def test_results_come_in_the_order_of_the_items(together: Together, items: range) -> None:
    def call(item: int) -> str:
        time.sleep((len(items) - item) % 3 / 1000)  # later ones are often faster
        return f"result {item}"

    assert together(call, items) == [f"result {item}" for item in items]


def test_as_many_calls_as_allowed_are_under_way_at_once() -> None:
    all_there = threading.Barrier(AT_ONCE, timeout=10)
    counting, under_way, most = threading.Lock(), 0, 0

    def call(item: int) -> None:
        nonlocal under_way, most
        with counting:
            under_way += 1
            most = max(most, under_way)
        if item < AT_ONCE:
            all_there.wait()
        with counting:
            under_way -= 1

    _THREADS(call, MANY)
    assert most == AT_ONCE


@pytest.mark.parametrize("together", BOTH.values(), ids=BOTH)
def test_a_single_item_needs_no_thread(together: Together) -> None:
    assert together(lambda _: threading.current_thread(), [1]) == [threading.current_thread()]


def test_after_an_error_no_further_call_begins_and_it_is_raised_when_all_have_ended() -> None:
    all_there, over = threading.Barrier(AT_ONCE, timeout=10), threading.Event()
    begun, ended = set[int](), set[int]()

    def call(item: int) -> None:
        begun.add(item)
        all_there.wait()
        if item == 1:
            raise _StrangeError(item)
        if item == 0:  # leaves the thread of the failed call the time to begin another one
            time.sleep(0.05)
            over.set()
        over.wait(10)
        ended.add(item)

    with pytest.raises(_StrangeError):
        _THREADS(call, MANY)
    assert begun == set(range(AT_ONCE))
    assert ended == begun - {1}


def test_of_several_errors_that_of_the_first_item_is_raised_whichever_came_first() -> None:
    all_there, failed = threading.Barrier(AT_ONCE, timeout=10), threading.Event()

    def call(item: int) -> None:
        all_there.wait()
        if item == 5:
            failed.set()
            raise _StrangeError(item)
        if item == 3:
            failed.wait(10)
            raise _StrangeError(item)

    with pytest.raises(_StrangeError) as raised:
        _THREADS(call, range(AT_ONCE))
    assert raised.value.args == (3,)


def test_one_by_one_ends_at_the_first_error() -> None:
    begun = []

    def call(item: int) -> None:
        begun.append(item)
        if item == 1:
            raise _StrangeError(item)

    with pytest.raises(_StrangeError):
        one_by_one(call, MANY)
    assert begun == [0, 1]
