"""No verb makes a storage request more than it did; one that makes fewer is recorded anew.

A table far away answers in tens of milliseconds, so the number of requests is the time of a small
write. The numbers stand in `request_counts.tsv`, by kind of table, verb and verb of `Storage`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from request_counts import BUCKETS, TABLES, WRITES, Case, counted, differences, line, parse_line

LINES = Path(__file__).with_name("request_counts.tsv").read_text("utf-8").splitlines()
RECORDED = dict(map(parse_line, LINES))
HOW = "record fewer with: python tests/request_counts.py > tests/api/request_counts.tsv"


@pytest.mark.parametrize("buckets", BUCKETS)
@pytest.mark.parametrize("table", TABLES)
def test_a_verb_makes_as_many_requests_as_are_recorded(table: str, buckets: int) -> None:
    recorded = {c: n for c, n in RECORDED.items() if (c.table, c.buckets) == (table, buckets)}
    told = differences(recorded, dict(counted(table, buckets)))
    assert not told, "\n".join([*told, HOW])


def test_a_warm_upsert_makes_two_requests_for_each_file_group() -> None:
    for table in ("mor nbcc", "mor occ"):
        for groups in BUCKETS:
            warm = RECORDED[Case(table, groups, "upsert", "warm")]
            assert warm.total() == 16 + 2 * groups


def test_a_commit_after_which_no_service_is_due_costs_what_it_costs_without_a_policy() -> None:
    kept = {case: counts for case, counts in RECORDED.items() if case.table == "mor upkeep"}
    assert len(kept) > 20
    assert kept == {case: RECORDED[case._replace(table="mor nbcc")] for case in kept}


CASE = Case("cow", 4, "read", "warm")
CHANGED = [
    (Counter(list=1, open=4), Counter(list=2, open=4), "1 more: list 1 → 2"),
    (Counter(list=1, open=4), Counter(open=4), "1 fewer (record it): list 1 → 0"),
    (Counter(list=1, open=4), Counter(stat=1, open=4), "others: list 1 → 0, stat 0 → 1"),
]


@pytest.mark.parametrize(("before", "now", "told"), CHANGED)
def test_other_requests_than_recorded_are_told(
    before: Counter[str], now: Counter[str], told: str
) -> None:
    assert differences({CASE: before}, {CASE: before}) == []
    assert differences({CASE: before}, {CASE: now}) == [f"{CASE} makes {told}"]


def test_a_case_that_is_gone_or_new_is_told() -> None:
    assert differences({CASE: Counter()}, {}) == [f"{CASE} is recorded only"]
    assert differences({}, {CASE: Counter()}) == [f"{CASE} is found only"]


def test_a_request_that_came_in_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    upsert = WRITES["upsert"]
    monkeypatch.setitem(WRITES, "upsert", lambda table, turn: (table.owners, upsert(table, turn)))
    recorded = {c: n for c, n in RECORDED.items() if (c.table, c.buckets) == ("cow", 1)}
    told = differences(recorded, dict(counted("cow", 1)))
    assert [text.partition(" makes ")[2].partition(" → ")[0] for text in told] == [
        "1 more: list 11",  # cold
        "1 more: list 8",  # warm
    ]


def test_lines_can_be_read_back() -> None:
    assert [line(*parse_line(text)) for text in LINES] == LINES
