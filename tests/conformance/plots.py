"""What happens to each table: how it begins, what then changes, and what is replaced.

A table's life has three such turns among its commits, and all ways to take them would be 48 for
each of 24 tables. Here too every two values meet in one of the tables: a property of the table with
a turn of its life, and a turn with another. The other 696 tables take theirs by turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from fractions import Fraction
from functools import partial
from itertools import combinations, product

from conformance.combinations import (
    COMBINATIONS,
    Combination,
    Partitioning,
    TableKind,
    all_combinations,
)

#: How often each plot is chosen anew.
ROUNDS = 4


class First(StrEnum):
    """The first rows."""

    LOAD = "load"  # an append that is large enough for base files
    APPEND = "append"
    UPSERT = "upsert"


class Change(StrEnum):
    """What happens to rows that are there."""

    UPDATE = "update"
    DELETE_KEYS = "delete_keys"  # by the record key alone; the rest is looked up
    DELETE_ROWS = "delete_rows"  # with partition and ordering, so that newer rows stay
    DELETE_WHERE = "delete_where"


class Replacement(StrEnum):
    """What happens to partitions."""

    TOUCHED = "overwrite_touched"
    NAMED = "overwrite_named"
    ALL = "overwrite_all"
    DELETED = "delete_partitions"


@dataclass(frozen=True, slots=True)
class Plot:
    first: First
    change: Change
    replacement: Replacement

    def fits(self, combination: Combination) -> bool:
        """Only partitions can be named."""
        is_named = self.replacement in (Replacement.NAMED, Replacement.DELETED)
        return not (is_named and combination.partitioning is Partitioning.NONE)


Pair = tuple[tuple[str, StrEnum], tuple[str, StrEnum]]


def fitting_plots(combination: Combination) -> Iterator[Plot]:
    for turns in product(First, Change, Replacement):
        plot = Plot(*turns)
        if plot.fits(combination):
            yield plot


def encounters(combination: Combination, plot: Plot) -> set[Pair]:
    """The turns that meet in a table, with each other and with its properties."""
    turns = [(field.name, getattr(plot, field.name)) for field in fields(plot)]
    values = [(field.name, getattr(combination, field.name)) for field in fields(combination)]
    return {*combinations(turns, 2), *product(values, turns)}


def possible_encounters(combination: Combination) -> set[Pair]:
    return set().union(*(encounters(combination, plot) for plot in fitting_plots(combination)))


def covering_plots(rows: Sequence[Combination]) -> dict[Combination, Plot]:
    """A plot for each table, and then again with those of the others known, so that all meet.

    What few tables can have counts more, and what has met already counts less.
    """
    chances = Counter(pair for row in rows for pair in possible_encounters(row))
    met: Counter[Pair] = Counter()
    plots: dict[Combination, Plot] = {}

    def worth(row: Combination, plot: Plot) -> Fraction:
        pairs = encounters(row, plot)
        return sum((Fraction(1, 5 ** met[pair] * chances[pair]) for pair in pairs), Fraction())

    for row in [*rows] * ROUNDS:
        if row in plots:
            met.subtract(encounters(row, plots[row]))
        plots[row] = max(fitting_plots(row), key=partial(worth, row))
        met.update(encounters(row, plots[row]))
    return plots


PLOTS = covering_plots(COMBINATIONS)


#: The turn of its life that each commit of a table shows best.
COMMITS = ("first", "first", "change", "replacement", "replacement", "replacement")


def telling_tables(
    turn: str, properties: Sequence[str], rows: Sequence[Combination]
) -> frozenset[Combination]:
    """Few of these tables, in which each way to take the turn meets each value of the properties.

    For reads that are too slow to be made of all.
    """
    met: set[tuple[StrEnum, StrEnum]] = set()
    chosen = set()
    for row in rows:
        way = getattr(PLOTS[row], turn)
        pairs = {(way, getattr(row, name)) for name in properties}
        if not pairs <= met:
            chosen.add(row)
        met |= pairs
    return frozenset(chosen)


def _by_turns(
    properties: Sequence[str], rows: Sequence[Combination], first: int
) -> tuple[frozenset[Combination], ...]:
    """Such tables for each commit, of which the others are not asked the same time and again."""
    return tuple(
        telling_tables(turn, properties, rows[:: 1 if (number + first) % 2 == 0 else -1])
        for number, turn in enumerate(COMMITS)
    )


_MERGED = tuple(row for row in COMBINATIONS if row.kind is TableKind.MOR)
#: After each commit of a quick run, the tables of which Hudi reads a snapshot, only the base files,
#: and the changes.
SNAPSHOTS = _by_turns(("kind", "merge"), COMBINATIONS, 0)
BASE_FILES = _by_turns(("merge",), _MERGED, 1)
CHANGES = _by_turns(("kind",), COMBINATIONS, 1)


def other_plots() -> dict[Combination, Plot]:
    """Every table that is not among those, and plots by turns."""
    plots = {}
    for number, row in enumerate(all_combinations()):
        if row not in PLOTS:
            fitting = list(fitting_plots(row))
            # After a round of plots the properties begin a round too: out of step, all may meet.
            plots[row] = fitting[(number + number // len(fitting)) % len(fitting)]
    return plots
