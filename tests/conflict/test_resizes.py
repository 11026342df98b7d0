"""What a write does about the resizes that it meets: the four rules, one by one and together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.conflict.resizes import (
    BucketChange,
    MeetsClosed,
    MustCancel,
    MustForget,
    MustMove,
    MustRepeat,
    MustWriteTwice,
    PlacedWrite,
    Resize,
    other_through,
    own_through,
    resize_verdict,
    through,
)
from pyhudi.conflict.rules import ConflictRule, OtherWrite, OwnWrite, WriteKind, first_conflict
from pyhudi.format.files.file_names import FileGroupId


def at(number: int) -> str:
    return f"20260101{number:09d}"


def groups(names: str) -> frozenset[FileGroupId]:
    return frozenset(FileGroupId("p", name) for name in names)


def resize(
    change: str,
    requested: int,
    completed: int | None = None,
    *,
    is_closed: bool = False,
    is_dual: bool = False,
) -> Resize:
    """A resize such as "g>ab hi>c": a split of g, and a merge of h and i."""
    sides = (part.split(">") for part in change.split())
    changes = tuple(BucketChange(groups(before), groups(after)) for before, after in sides)
    done = None if completed is None else at(completed)
    return Resize(at(requested), done, is_closed, changes, is_dual)


PENDING = resize("g>ab", 5)
CLOSED = resize("g>ab", 5, is_closed=True)
DONE = resize("g>ab", 5, 30)
LATE = resize("g>ab", 15, 30)  # planned after the write of time 10 began
NEXT = resize("a>cd", 32, 40)
DAMAGED = Resize(at(5), None, is_closed=False, changes=(), is_readable=False)
DAMAGED_CLOSED = Resize(at(5), None, is_closed=True, changes=(), is_readable=False)


def placed(written: str, bases: str) -> PlacedWrite:
    return PlacedWrite(at(10), groups(written), groups(bases))


UNREADABLE = replace(DONE, is_readable=False)

#: What the write of time 10 has files in, where it opened base files, what it meets → the verdict.
CASES: dict[str, tuple[str, str, tuple[Resize, ...], object]] = {
    "no resize": ("g", "", (), None),
    "a pending one elsewhere": ("h", "", (PENDING,), None),
    "a pending one": ("g", "", (PENDING,), None),
    "rule 1": ("g", "", (CLOSED,), MeetsClosed(at(5))),
    "a closed one elsewhere": ("h", "h", (CLOSED,), None),
    "rule 2": ("g", "g", (PENDING,), MustCancel(at(5))),
    "rule 2 where it is closed": ("g", "g", (CLOSED,), MustCancel(at(5))),
    "a base file elsewhere": ("gh", "h", (PENDING,), None),
    "a plan that cannot be read": ("g", "", (DAMAGED,), None),
    "rule 1, a plan that cannot be read": ("h", "", (DAMAGED_CLOSED,), MeetsClosed(at(5))),
    "rule 2, a plan that cannot be read": ("h", "h", (DAMAGED,), MustCancel(at(5))),
    "a write of no file, a plan that cannot be read": ("", "", (DAMAGED_CLOSED,), None),
    "a completed one whose plan cannot be read": (
        *("gh", "", (UNREADABLE,)),
        MustRepeat(UNREADABLE, min(groups("g"))),
    ),
    "a child of one whose plan cannot be read": (
        *("a", "", (UNREADABLE,)),
        MustRepeat(UNREADABLE, min(groups("a"))),
    ),
    "one elsewhere whose plan cannot be read": ("h", "h", (UNREADABLE,), None),
    "rule 3": ("g", "", (DONE,), MustMove(at(5))),
    "rule 3 in some of its groups": ("gh", "", (DONE,), MustMove(at(5))),
    "rule 3, a base file": ("g", "g", (DONE,), MustRepeat(DONE, min(groups("g")))),
    "rule 3, a plan since": ("g", "", (LATE,), MustRepeat(LATE, min(groups("g")))),
    "rule 4": ("a", "", (LATE,), MustRepeat(LATE, min(groups("a")))),
    "it wrote to the children": ("a", "", (DONE,), None),
    "rule 5": ("a", "a", (DONE,), MustRepeat(DONE, min(groups("a")))),
    "a completed one elsewhere": ("h", "", (DONE, LATE), None),
    "two in a row, the second planned since": (
        *("g", "", (NEXT, DONE)),
        MustRepeat(NEXT, min(groups("a"))),
    ),
    "a completed one, and the next is closed": (
        *("g", "", (DONE, resize("a>cd", 35, is_closed=True))),
        MeetsClosed(at(35)),
    ),
    "a completed one, and the next is pending": (
        *("g", "", (DONE, resize("a>cd", 35))),
        MustMove(at(5)),
    ),
    "one to repeat for, and one to cancel": (
        *("gh", "h", (LATE, resize("h>k", 8))),
        MustRepeat(LATE, min(groups("g"))),
    ),
    "a merge": ("i", "", (resize("hi>c", 5, 30),), MustMove(at(5))),
    "several changes in one": (
        "i",
        "",
        (resize("g>ab hi>c", 5, is_closed=True),),
        MeetsClosed(at(5)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_write_is_told_what_to_do(case: str) -> None:
    written, bases, met, expected = CASES[case]
    assert resize_verdict(placed(written, bases), met) == expected


HUDIS = resize("g>ab", 5, is_dual=True)
HUDIS_LATE = resize("g>ab", 15, is_dual=True)
HUDIS_DONE = resize("g>ab", 5, 30, is_dual=True)

#: The same of resizes that Hudi can execute, with those that the write has written twice for.
DUAL_CASES: dict[str, tuple[str, str, tuple[Resize, ...], frozenset[str], object]] = {
    "a pending one elsewhere": ("h", "", (HUDIS,), frozenset(), None),
    "a pending one": ("g", "", (HUDIS,), frozenset(), MustWriteTwice(at(5))),
    "written twice": ("ga", "", (HUDIS,), frozenset([at(5)]), None),
    "planned since": (
        "g",
        "",
        (HUDIS_LATE,),
        frozenset(),
        MustRepeat(HUDIS_LATE, min(groups("g"))),
    ),
    "a base file": ("g", "g", (HUDIS,), frozenset(), MustCancel(at(5))),
    "completed since": ("ga", "", (HUDIS_DONE,), frozenset([at(5)]), None),
    "completed too early": ("g", "", (HUDIS_DONE,), frozenset(), MustMove(at(5))),
    "cancelled since": ("ga", "", (), frozenset([at(5)]), MustForget(at(5))),
    "two of them": (
        *("gh", "", (HUDIS, resize("h>c", 7, is_dual=True)), frozenset([at(5)])),
        MustWriteTwice(at(7)),
    ),
    "first it moves": (
        *("gh", "", (resize("h>c", 4, 20), HUDIS), frozenset()),
        MustMove(at(4)),
    ),
    "the next one, planned since": (
        *("ga", "", (HUDIS_DONE, resize("a>d", 32, is_dual=True)), frozenset([at(5)])),
        MustRepeat(resize("a>d", 32, is_dual=True), min(groups("a"))),
    ),
}


@pytest.mark.parametrize("case", DUAL_CASES)
def test_a_write_beside_a_resize_that_hudi_can_execute_is_told_what_to_do(case: str) -> None:
    written, bases, met, twice, expected = DUAL_CASES[case]
    write = replace(placed(written, bases), twice=twice)
    assert resize_verdict(write, met) == expected


#: A ring of two groups, and what may happen to it: up to three resizes, one after the other.
CHANGES = ("gh>x", "g>ab", "g>a h>b")
NEXT_CHANGES = {"gh>x": "x>cd", "g>ab": "ab>c", "g>a h>b": "a>c b>d"}


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, tuple[Resize, ...]]:
    """A write's requested time, and resizes of a partition that it may meet, as a log has them."""
    change = draw(st.sampled_from(CHANGES))
    requested, completed = sorted(draw(st.sets(st.integers(1, 20), min_size=2, max_size=2)))
    taken = {requested, completed}  # no two times of a log are equal
    first_done = draw(st.booleans())
    resizes = [resize(change, requested, completed if first_done else None)]
    if not first_done:
        resizes = [resize(change, requested, is_closed=draw(st.booleans()))]
    elif draw(st.booleans()):
        later = sorted(draw(st.sets(st.integers(21, 40), min_size=2, max_size=2)))
        taken.update(later)
        second_done = draw(st.booleans())
        again = NEXT_CHANGES[change]
        closed = not second_done and draw(st.booleans())
        resizes.append(resize(again, later[0], later[1] if second_done else None, is_closed=closed))
    began = draw(st.integers(0, 45).filter(lambda t: t not in taken))
    met = [r for r in resizes if r.completed is None or r.completed > at(began)]
    return began, tuple(draw(st.permutations(met)))


@given(histories(), st.sets(st.sampled_from("ghabcdx")), st.sets(st.sampled_from("ghabcdx")))
def test_a_write_may_complete_exactly_if_the_rules_hold(
    history: tuple[int, tuple[Resize, ...]], written: set[str], bases: set[str]
) -> None:
    began, met = history
    own, opened = groups("".join(written)), groups("".join(written & bases))
    rules = (
        all(not r.is_closed or r.completed or own.isdisjoint(r.inputs) for r in met),
        all(r.completed or opened.isdisjoint(r.inputs) for r in met),
        all(not r.completed or own.isdisjoint(r.inputs) for r in met),
        all(not r.completed or r.requested < at(began) or own.isdisjoint(r.children) for r in met),
        all(not r.completed or opened.isdisjoint(r.children) for r in met),
    )
    assert (resize_verdict(PlacedWrite(at(began), own, opened), met) is None) == all(rules)


@given(histories(), st.sets(st.sampled_from("gh"), min_size=1))
def test_a_write_that_has_moved_may_complete_or_meets_the_next_resize(
    history: tuple[int, tuple[Resize, ...]], written: set[str]
) -> None:
    began, met = history
    own = groups("".join(written))
    if isinstance(resize_verdict(PlacedWrite(at(began), own), met), MustMove):
        replaced = frozenset(g for r in met if r.completed for g in r.inputs)
        moved = through(own, met) - replaced
        assert not isinstance(
            resize_verdict(PlacedWrite(at(began), moved), met), MustMove | MustRepeat | MustCancel
        )


# -- comparing through resizes


def own(touched: str, **facts: Any) -> OwnWrite:
    return OwnWrite(at(10), groups(touched), **facts)


def other(touched: str, completed: int, kind: WriteKind = WriteKind.WRITE) -> OtherWrite:
    return OtherWrite(at(completed - 1), at(completed), groups(touched), kind)


def test_a_write_of_a_child_conflicts_with_one_of_the_input_that_completed_before() -> None:
    """Both are optimistic; the other one was copied into the child."""
    ours = own("a", appended=groups("a"))
    theirs = other("g", 20)
    assert first_conflict(ours, [theirs]) is None
    found = first_conflict(ours, [other_through(theirs, [DONE])])
    assert found is not None
    assert found.rule is ConflictRule.SAME_FILE_GROUP


def test_writes_of_two_children_do_not_conflict() -> None:
    ours = own("a", appended=groups("a"))
    assert first_conflict(ours, [other_through(other("b", 35), [DONE])]) is None


def test_a_compaction_of_a_child_may_have_the_new_keys_of_a_write_that_moved() -> None:
    ours = own("g", new_keys=groups("g"))
    theirs = other("a", 50, WriteKind.COMPACTION)
    assert first_conflict(ours, [theirs]) is None
    found = first_conflict(own_through(ours, [DONE]), [theirs])
    assert found is not None
    assert found.rule is ConflictRule.KEYS_TAKEN_FOR_NEW


@pytest.mark.parametrize("completed", [None, 30])
def test_a_resize_planned_since_may_have_keys_that_a_write_took_for_new(
    completed: int | None,
) -> None:
    late = OtherWrite(
        at(15), None if completed is None else at(completed), groups("gab"), WriteKind.RESIZE
    )
    early = OtherWrite(
        at(5), None if completed is None else at(completed), groups("gab"), WriteKind.RESIZE
    )
    ours = own("g", new_keys=groups("g"), partial=groups("g"))
    found = first_conflict(ours, [late])
    assert found is not None
    assert found.rule is ConflictRule.KEYS_TAKEN_FOR_NEW
    assert first_conflict(ours, [early]) is None


@pytest.mark.parametrize("completed", [None, 30])
def test_a_resize_is_in_the_way_of_no_write_by_itself(completed: int | None) -> None:
    met = OtherWrite(
        at(15), None if completed is None else at(completed), groups("gab"), WriteKind.RESIZE
    )
    for ours in (
        own("g", appended=groups("g")),
        own("g", new_slices=groups("g")),
        own("g", partial=groups("g")),
        OwnWrite(at(10), groups("g"), replaces=lambda _: True),
    ):
        assert first_conflict(ours, [met]) is None
