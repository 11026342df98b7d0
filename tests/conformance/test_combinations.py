"""The array of combinations meets what it promises to meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from conformance.combinations import (
    COMBINATIONS,
    ROWS,
    BlockFormat,
    Combination,
    TableKind,
    all_combinations,
    covering_rows,
    meetings_of,
)
from conformance.plots import (
    BASE_FILES,
    CHANGES,
    COMMITS,
    PLOTS,
    SNAPSHOTS,
    Change,
    First,
    Replacement,
    covering_plots,
    encounters,
    other_plots,
    possible_encounters,
)
from conformance.sample_rows import ORDERING, Sample


def test_every_pair_of_values_meets_in_some_combination() -> None:
    assert meetings_of(COMBINATIONS) == meetings_of(all_combinations())


def test_only_log_blocks_without_logs_are_left_out() -> None:
    kinds = Counter(row.kind for row in all_combinations())
    assert kinds[TableKind.MOR] == 480
    assert kinds[TableKind.COW] == 240
    avro = {row.kind for row in all_combinations() if row.blocks is BlockFormat.AVRO}
    assert avro == {TableKind.MOR}


def test_combinations_are_the_same_every_time() -> None:
    assert covering_rows(ROWS) == COMBINATIONS
    assert len({row.name for row in COMBINATIONS}) == ROWS
    assert COMBINATIONS[0].name == "mor-v9-unpartitioned-text_key-event-parquet-scalars"


def test_every_turn_of_a_story_meets_every_property_and_every_other_turn() -> None:
    met = set().union(*(encounters(row, plot) for row, plot in PLOTS.items()))
    assert met == set().union(*map(possible_encounters, COMBINATIONS))
    assert covering_plots(COMBINATIONS) == PLOTS


@pytest.mark.parametrize(
    ("heard", "properties"),
    [(SNAPSHOTS, ("kind", "merge")), (CHANGES, ("kind",)), (BASE_FILES, ("merge",))],
)
def test_hudi_is_asked_after_every_way_to_take_a_turn_on_every_kind_of_table(
    heard: Sequence[frozenset[Combination]], properties: Sequence[str]
) -> None:
    rows = [row for row in PLOTS if heard is not BASE_FILES or row.kind is TableKind.MOR]
    for turn, tables in zip(COMMITS, heard, strict=True):
        for name in properties:
            met, possible = (
                {(getattr(PLOTS[row], turn), getattr(row, name)) for row in some}
                for some in (tables, rows)
            )
            assert met == possible
        assert len(tables) <= len(PLOTS) // 2


def test_every_other_table_has_a_plot_and_every_plot_has_tables() -> None:
    others = other_plots()
    assert {*others, *PLOTS} == set(all_combinations())
    assert len(set(others.values())) == len(First) * len(Change) * len(Replacement)


@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda row: row.name)
def test_sample_rows_are_told_apart_and_meet_nulls_in_every_column(
    combination: Combination,
) -> None:
    sample = Sample(combination)
    table = sample.table(sample.row(n, written=1, seen_at=1) for n in range(200))
    distinct = table.group_by(list(sample.identity)).aggregate([])
    assert distinct.num_rows == 200
    for name in sample.schema.names:
        may_be_null = name not in (*sample.identity, ORDERING)
        assert (0 < table[name].null_count < 200) == may_be_null, name


def test_a_later_round_changes_the_row_but_not_its_name() -> None:
    for sample in map(Sample, COMBINATIONS):
        before = [sample.row(n, written=1, seen_at=1) for n in range(50)]
        after = [sample.row(n, written=2, seen_at=2) for n in range(50)]
        assert sample.keys(before) == sample.keys(after)
        assert all(old != new for old, new in zip(before, after, strict=True))
