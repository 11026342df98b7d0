"""The rules of conflicts as tables: own write x other write x strategy, without a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyhudi.conflict.rules import (
    ConflictRule,
    OtherWrite,
    OwnWrite,
    Retry,
    WriteKind,
    first_conflict,
)
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.conflict_strategy import Strategy
from pyhudi.index.simple_bucket import file_id

G = FileGroupId("mo", file_id(0))
G_BY_HUDI = FileGroupId("mo", "00000000-57eb-4d0f-a1b2-6b1f3c1d2e3f-0")
NEIGHBOUR = FileGroupId("mo", file_id(1))
ELSEWHERE = FileGroupId("tu", file_id(0))
WITHOUT_BUCKET = FileGroupId("mo", "8b764ad0-e5d2-49d3-ae38-f135d57ba24f-0")

_G = frozenset({G})
#: All of them began at 100 and are about file group g.
SELVES = {
    "upsert": OwnWrite("100", _G, appended=_G, reads_nothing=True),
    "read and write": OwnWrite("100", _G, appended=_G),
    "non-blocking upsert": OwnWrite("100", _G),
    "overwrite": OwnWrite("100", _G, new_slices=_G, replaces=lambda partition: partition == "mo"),
}


def done(requested: str, kind: WriteKind = WriteKind.WRITE, group: FileGroupId = G) -> OtherWrite:
    return OtherWrite(requested, "110", frozenset({group}), kind)


def pending(
    requested: str, kind: WriteKind, group: FileGroupId = G, priority: int = 0
) -> OtherWrite:
    return OtherWrite(requested, None, frozenset({group}), kind, priority)


SAME, HIDDEN, REPLACED, CLEARED = (
    ConflictRule.SAME_FILE_GROUP,
    ConflictRule.HIDDEN_ROWS,
    ConflictRule.REPLACED,
    ConflictRule.CLEARED_PARTITION,
)
CLUSTERING, REPLACE, PRIORITY = (
    ConflictRule.CLUSTERING_PENDING,
    ConflictRule.REPLACE_PENDING,
    ConflictRule.PRIORITY,
)
COMPACTION, LOG_COMPACTION = (
    ConflictRule.COMPACTION_PENDING,
    ConflictRule.LOG_COMPACTION_PENDING,
)
NONE = (None, None, None, None)
Verdicts = tuple[ConflictRule | None, ...]

#: The other → which rule fires, in the order of SELVES.
RULES: dict[str, tuple[OtherWrite, Verdicts]] = {
    "write, begun before": (done("090"), (SAME, SAME, None, HIDDEN)),
    "write, begun since": (done("105"), (SAME, SAME, None, HIDDEN)),
    "write beside g": (done("105", group=NEIGHBOUR), (None, None, None, CLEARED)),
    "write of another partition": (done("105", group=ELSEWHERE), NONE),
    "seed": (done("105", WriteKind.SEED), (None, None, None, HIDDEN)),
    "seed beside g": (done("105", WriteKind.SEED, NEIGHBOUR), NONE),
    "compaction, planned since": (done("105", WriteKind.COMPACTION), (None, None, None, HIDDEN)),
    "compaction beside g": (done("105", WriteKind.COMPACTION, NEIGHBOUR), NONE),
    "compaction, planned before": (done("095", WriteKind.COMPACTION), NONE),
    "replace commit": (done("105", WriteKind.REPLACE), (REPLACED,) * 4),
    "replace commit, begun before": (done("095", WriteKind.REPLACE), (REPLACED,) * 4),
    "replace commit beside g": (
        done("105", WriteKind.REPLACE, NEIGHBOUR),
        (None, None, None, CLEARED),
    ),
    "clustering under way": (pending("050", WriteKind.CLUSTERING), (CLUSTERING,) * 4),
    "clustering planned since": (pending("105", WriteKind.CLUSTERING), (CLUSTERING,) * 4),
    "clustering beside g": (pending("105", WriteKind.CLUSTERING, NEIGHBOUR), NONE),
    "compaction under way": (pending("095", WriteKind.COMPACTION), NONE),
    "compaction planned since, under way": (
        pending("105", WriteKind.COMPACTION),
        (None, None, None, COMPACTION),
    ),
    "log compaction under way": (
        pending("095", WriteKind.LOG_COMPACTION),
        (None, None, None, LOG_COMPACTION),
    ),
    "replace commit, begun before, under way": (pending("095", WriteKind.REPLACE), NONE),
    "replace commit, begun since, under way": (
        pending("105", WriteKind.REPLACE),
        (REPLACE, REPLACE, None, REPLACE),
    ),
    "write under way": (pending("105", WriteKind.WRITE), NONE),
    "write of higher priority under way": (
        pending("105", WriteKind.WRITE, priority=1),
        (PRIORITY, PRIORITY, None, PRIORITY),
    ),
}
#: Where `prefer_writer` differs: a clustering yields to the write.
PREFERRED: dict[str, Verdicts] = {
    "clustering under way": NONE,
    "clustering planned since": NONE,
}
CASES = [(strategy, other) for strategy in Strategy for other in RULES]


@pytest.mark.parametrize(("strategy", "other"), CASES, ids=[f"{s}: {o}" for s, o in CASES])
def test_the_rule_that_fires(strategy: Strategy, other: str) -> None:
    write, expected = RULES[other]
    if strategy is Strategy.PREFER_WRITER:
        expected = PREFERRED.get(other, expected)
    found = [first_conflict(own, [write], strategy) for own in SELVES.values()]
    assert tuple(c.rule if c else None for c in found) == expected
    for conflict in filter(None, found):
        assert conflict.other is write
        assert conflict.group == (NEIGHBOUR if conflict.rule is CLEARED else G)


# -- what is the same place

PLACES = {
    "the same file group": (G, G, True, True),
    "the same bucket by another engine": (G, G_BY_HUDI, True, False),
    "another bucket": (G, NEIGHBOUR, False, False),
    "the same file id in another partition": (G, ELSEWHERE, False, False),
    "a file group without a bucket": (WITHOUT_BUCKET, WITHOUT_BUCKET, True, True),
    "another without a bucket": (WITHOUT_BUCKET, G, False, False),
}


@pytest.mark.parametrize("what", PLACES)
def test_strategies_differ_in_what_is_the_same_place(what: str) -> None:
    own, theirs, by_bucket, by_file_group = PLACES[what]
    write = OwnWrite("100", frozenset({own}), appended=frozenset({own}))
    expected = {
        Strategy.BUCKET: by_bucket,
        Strategy.SIMPLE: by_file_group,
        Strategy.PREFER_WRITER: by_bucket,
    }
    for strategy, is_conflict in expected.items():
        found = first_conflict(write, [done("105", group=theirs)], strategy)
        assert (found is not None) == is_conflict, strategy


def test_one_that_does_not_tell_its_file_groups_may_have_any() -> None:
    unknown = OtherWrite("050", None, None, WriteKind.CLUSTERING)
    for own in SELVES.values():
        assert first_conflict(own, [unknown]) is not None


# -- what helps

RETRIES = [
    ("upsert", done("090"), Retry.COMMIT),  # its logs already lie behind the other's
    ("upsert", done("105"), Retry.WRITE),
    ("upsert", done("090", WriteKind.REPLACE), Retry.WRITE),
    ("read and write", done("090"), Retry.WRITE),
    ("overwrite", done("090"), Retry.WRITE),
    ("upsert", pending("050", WriteKind.CLUSTERING), Retry.LATER),
    ("upsert", pending("105", WriteKind.WRITE, priority=1), Retry.LATER),
]


@pytest.mark.parametrize(("own", "other", "retry"), RETRIES)
def test_a_conflict_says_what_helps(own: str, other: OtherWrite, retry: Retry) -> None:
    found = first_conflict(SELVES[own], [other])
    assert found is not None
    assert found.retry is retry


# -- priorities


@pytest.mark.parametrize("own", [0, 1, 2])
@pytest.mark.parametrize("other", [0, 1, 2])
def test_of_writes_under_way_the_one_of_higher_priority_goes_first(own: int, other: int) -> None:
    write = replace(SELVES["upsert"], priority=own)
    rival = pending("105", WriteKind.WRITE, priority=other)
    assert (first_conflict(write, [rival]) is not None) == (other > own)
    # Never both, or they would wait for each other.
    back = first_conflict(
        replace(write, requested="105", priority=other),
        [pending("100", WriteKind.WRITE, priority=own)],
    )
    assert (back is not None) == (own > other)


def test_a_priority_undoes_nothing_that_has_completed() -> None:
    write = replace(SELVES["upsert"], priority=9)
    found = first_conflict(write, [done("105")])
    assert found is not None
    assert found.rule is SAME


# -- table services


@pytest.mark.parametrize("strategy", Strategy)
def test_a_clustering_that_is_checked_yields_to_a_write_that_completed_meanwhile(
    strategy: Strategy,
) -> None:
    """Where writers do not yield to it, this is all that keeps their rows."""
    service = OwnWrite("100", _G, appended=_G)
    found = first_conflict(service, [done("105")], strategy)
    assert found is not None
    assert found.retry is Retry.WRITE


# -- which of several


def test_the_first_in_the_order_given_is_told() -> None:
    early, late = done("105"), done("090")
    found = first_conflict(SELVES["upsert"], [done("104", group=ELSEWHERE), early, late])
    assert found is not None
    assert found.other is early


def test_a_write_is_no_rival_of_itself_and_nobody_is_no_rival() -> None:
    for own in SELVES.values():
        assert first_conflict(own, [done("100"), pending("100", WriteKind.CLUSTERING)]) is None
        assert first_conflict(own, []) is None
