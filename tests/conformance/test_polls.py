"""The check of polls beside Spark drivers can fail: it finds every kind of wrong read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from conformance.spark_drivers import Answer, Commit, Poll, Watched, by_ordering, check


def row(id_: str, ts: int, batch: str) -> dict[str, Any]:
    return {"id": id_, "ts": ts, "batch": batch}


FIRST = Commit(
    "first", (row("k", 2, "a"), row("a0", 1, "a"), row("a1", 1, "a")), frozenset({"a0", "a1"})
)
SECOND = Commit(
    "second", (row("k", 2, "b"), row("b0", 1, "b"), row("bx", 1, "b")), frozenset({"b0"})
)
GONE = Commit("gone", ({"id": "bx", "ts": 1},), frozenset({"bx"}), "delete", undoes="second")

A = (row("a0", 1, "a"), row("a1", 1, "a"))
ONE = (row("k", 2, "a"), *A)
TWO = (row("k", 2, "b"), *A, row("b0", 1, "b"), row("bx", 1, "b"))
ALL = TWO[:-1]


def watched(*polls: tuple[Sequence[str], Sequence[dict[str, Any]]]) -> Watched:
    """Commits that were requested in this order, and polls that saw such rows."""
    commits = {commit.name: commit for commit in (FIRST, SECOND, GONE)}
    answers = {name: Answer(str(n), str(n), 0, ()) for n, name in enumerate(commits)}
    found = [Poll("Hudi", frozenset(returned), tuple(rows)) for returned, rows in polls]
    return Watched(commits, answers, tuple(found))


def test_polls_that_see_ever_more_commits_are_right() -> None:
    everything = ["first", "second", "gone"]
    check(watched(([], []), ([], ONE), (["first"], ONE), ([], TWO), (everything, ALL)), by_ordering)


WRONG = {
    "a commit that had returned is missing": ([(["first"], [])], "misses"),
    "a part of a commit": ([([], ONE[:-1])], "a part of first"),
    "a part of a commit that others overwrote": ([([], A[:1])], "a part of first"),
    "a commit is taken back": ([([], TWO), ([], ONE)], "no longer sees"),
    "a delete is taken back": ([([], ALL), ([], TWO)], "no longer sees"),
    "the tie goes to the earlier one": ([([], (ONE[0], *TWO[1:]))], "sees"),
    "a row is missing": ([([], TWO[1:])], "sees"),
    "a row is there twice": ([([], (*ONE, ONE[0]))], "sees"),
    "a row that nobody wrote": ([([], (*ONE, row("z", 1, "z")))], "sees"),
}


@pytest.mark.parametrize(("polls", "what"), WRONG.values(), ids=WRONG)
def test_a_wrong_poll_is_found(polls: list[Any], what: str) -> None:
    with pytest.raises(AssertionError, match=what):
        check(watched(*polls), by_ordering)


def test_a_driver_that_did_not_finish_is_found() -> None:
    seen = watched()
    unfinished = Watched(seen.commits, {"first": seen.answers["first"]}, ())
    with pytest.raises(AssertionError, match="all of them commit"):
        check(unfinished, by_ordering)
