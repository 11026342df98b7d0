"""A write yields to an announced one by the rules of completions, and by an order that both see."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.conflict.announced import Met, announced_conflict, place_of
from pyhudi.conflict.early_strategies import STRATEGIES, by_tasks_alone
from pyhudi.conflict.rules import ConflictRule, OtherWrite, OwnWrite, Retry, WriteKind
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.conflict_strategy import Strategy

G = FileGroupId("p", "00000003-0000-0000-0000-000000000000-0")
OTHER_NAME = FileGroupId("p", "00000003-1111-1111-1111-111111111111-0")
ELSEWHERE = FileGroupId("q", G.file_id)
ONE = frozenset([G])
EARLIER, OURS, LATER = (f"2026010100000000{n}" for n in (1, 2, 3))

COW = OwnWrite(OURS, ONE, appended=ONE)
LOG = OwnWrite(OURS, ONE, appended=ONE)
BASE_AMONG_LOGS = OwnWrite(OURS, ONE, new_slices=ONE)
BLIND = replace(LOG, reads_nothing=True)
UNCHECKED = OwnWrite(OURS, ONE)
OVERWRITE = OwnWrite(OURS, ONE, appended=ONE, replaces=lambda partition: partition == "p")
A_FILE = OtherWrite(EARLIER, None, ONE)


def of(kind: WriteKind) -> OtherWrite:
    return replace(A_FILE, kind=kind)


YIELDS: dict[str, tuple[OwnWrite, OtherWrite, ConflictRule]] = {
    "both wrote it": (COW, A_FILE, ConflictRule.SAME_FILE_GROUP),
    "its base file would hide rows": (BASE_AMONG_LOGS, A_FILE, ConflictRule.HIDDEN_ROWS),
    "another name of the bucket": (
        COW,
        replace(A_FILE, groups=frozenset([OTHER_NAME])),
        ConflictRule.SAME_FILE_GROUP,
    ),
    "it is replaced": (UNCHECKED, of(WriteKind.REPLACE), ConflictRule.REPLACED),
    "a partition that it clears": (
        OVERWRITE,
        replace(A_FILE, groups=frozenset([FileGroupId("p", "00000009-a")])),
        ConflictRule.CLEARED_PARTITION,
    ),
    "a clustering": (COW, of(WriteKind.CLUSTERING), ConflictRule.CLUSTERING_PENDING),
    "a log compaction": (
        BASE_AMONG_LOGS,
        of(WriteKind.LOG_COMPACTION),
        ConflictRule.LOG_COMPACTION_PENDING,
    ),
    "any file group": (
        COW,
        replace(of(WriteKind.CLUSTERING), groups=None),
        ConflictRule.CLUSTERING_PENDING,
    ),
    "higher priority": (COW, replace(A_FILE, priority=1), ConflictRule.SAME_FILE_GROUP),
}


@pytest.mark.parametrize("case", YIELDS)
def test_a_write_yields_by_the_rule_of_a_completion(case: str) -> None:
    own, rival, rule = YIELDS[case]
    found = announced_conflict(own, rival, Strategy.BUCKET)
    assert found is not None
    assert (found.rule, found.other, found.retry) == (rule, rival, Retry.LATER)


GOES_ON: dict[str, tuple[OwnWrite, OtherWrite]] = {
    "the other began later": (COW, replace(A_FILE, requested=LATER)),
    "the other is itself": (COW, replace(A_FILE, requested=OURS)),
    "lower priority": (replace(COW, priority=1), A_FILE),
    "its logs can be committed behind": (BLIND, A_FILE),
    "it is not checked": (UNCHECKED, A_FILE),
    "the same file id elsewhere": (COW, replace(A_FILE, groups=frozenset([ELSEWHERE]))),
    "a seed below its logs": (LOG, of(WriteKind.SEED)),
    "a compaction planned before": (BASE_AMONG_LOGS, of(WriteKind.COMPACTION)),
}


@pytest.mark.parametrize("case", GOES_ON)
def test_a_write_goes_on_where_it_would_not_lose(case: str) -> None:
    assert announced_conflict(*GOES_ON[case], Strategy.BUCKET) is None


def test_a_clustering_stops_no_write_that_it_yields_to() -> None:
    rival = of(WriteKind.CLUSTERING)
    assert announced_conflict(COW, rival, Strategy.PREFER_WRITER) is None


def test_file_ids_are_compared_where_the_table_says_so() -> None:
    rival = replace(A_FILE, groups=frozenset([OTHER_NAME]))
    assert announced_conflict(COW, rival, Strategy.SIMPLE) is None
    assert announced_conflict(COW, A_FILE, Strategy.SIMPLE) is not None


kinds = st.sampled_from([WriteKind.WRITE, WriteKind.REPLACE])
instants = st.sampled_from([EARLIER, OURS, LATER])


@given(st.tuples(instants, st.integers(0, 2), kinds), st.tuples(instants, st.integers(0, 2), kinds))
def test_two_writes_never_yield_to_each_other(
    one: tuple[str, int, WriteKind], two: tuple[str, int, WriteKind]
) -> None:
    def yields(a: tuple[str, int, WriteKind], b: tuple[str, int, WriteKind]) -> bool:
        own = OwnWrite(a[0], ONE, appended=ONE, priority=a[1])
        other = OtherWrite(b[0], None, ONE, b[2], b[1])
        return announced_conflict(own, other, Strategy.BUCKET) is not None

    assert not (yields(one, two) and yields(two, one))


def test_facts_are_the_conflict_again() -> None:
    met = Met(EARLIER, WriteKind.WRITE, ConflictRule.SAME_FILE_GROUP, G, 3, "p/f", 7, "s")
    assert Met.of(met.facts) == met
    assert met.conflict.other.files == ("p/f",)


def test_a_place_has_its_partition() -> None:
    for by_number in (True, False):
        assert place_of(G, by_number=by_number) != place_of(ELSEWHERE, by_number=by_number)
    assert place_of(G, by_number=True) == place_of(OTHER_NAME, by_number=True)


def test_where_only_tasks_can_look_a_strategy_keeps_its_filters() -> None:
    found = {name: by_tasks_alone(looks).name for name, looks in STRATEGIES.items()}
    assert found == {
        **{name: name for name, looks in STRATEGIES.items() if looks.by_task},
        "async_server": "simple_direct",
        "bloom_async_server": "bloom_direct",
    }
