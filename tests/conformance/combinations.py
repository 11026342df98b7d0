"""The tables that both judges read: every two properties of a table meet in at least one of them.

All combinations would be 720 tables. A fault that shows only when two properties meet is caught by
a *pairwise* array: rows chosen so that each pair of values stands in some row. Five kinds of
partitioning times four sets of columns need 20 rows, and `COMBINATIONS` has 24. Rows are chosen
greedily and without chance, so a combination keeps its name until a property is added.

One pair does not exist: a copy-on-write table has no log blocks, so it has no block format but the
default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from enum import StrEnum
from itertools import combinations, product

ROWS = 24


class TableKind(StrEnum):
    MOR = "mor"
    COW = "cow"


class Version(StrEnum):
    NINE = "v9"
    EIGHT = "v8"


class Partitioning(StrEnum):
    NONE = "unpartitioned"
    ONE = "one"
    TWO = "two"
    HIVE = "hive"
    ENCODED = "encoded"


class KeyShape(StrEnum):
    TEXT = "text_key"
    INTEGER = "int_key"
    COMPOSITE = "composite_key"


class MergeMode(StrEnum):
    EVENT_TIME = "event"
    COMMIT_TIME = "commit"


class BlockFormat(StrEnum):
    PARQUET = "parquet"
    AVRO = "avro"


class Columns(StrEnum):
    SCALARS = "scalars"
    TIMES = "decimals_and_times"
    NESTED = "nested"
    EVERYTHING = "everything"


@dataclass(frozen=True, slots=True)
class Combination:
    kind: TableKind
    version: Version
    partitioning: Partitioning
    key: KeyShape
    merge: MergeMode
    blocks: BlockFormat
    columns: Columns

    @property
    def name(self) -> str:
        return "-".join(astuple(self))

    @property
    def exists(self) -> bool:
        return not (self.kind is TableKind.COW and self.blocks is BlockFormat.AVRO)


Values = tuple[tuple[str, StrEnum], ...]  # (property, value), in the order of the properties


def all_combinations() -> Iterator[Combination]:
    for values in product(
        TableKind, Version, Partitioning, KeyShape, MergeMode, BlockFormat, Columns
    ):
        combination = Combination(*values)
        if combination.exists:
            yield combination


def meetings(combination: Combination, strength: int = 2) -> set[Values]:
    """The pairs of values that meet in a combination; the triples with a strength of three."""
    values = [(field.name, getattr(combination, field.name)) for field in fields(combination)]
    return set(combinations(values, strength))


def meetings_of(rows: Iterable[Combination], strength: int = 2) -> set[Values]:
    return set().union(*(meetings(row, strength) for row in rows))


def covering_rows(number: int) -> tuple[Combination, ...]:
    """Rows in which all pairs meet; what is left of the number goes to triples not met yet."""
    offers = {row: (meetings(row), meetings(row, 3)) for row in all_combinations()}
    pairs, triples = (set().union(*sets) for sets in zip(*offers.values(), strict=True))

    def worth(row: Combination) -> tuple[int, int]:
        met, met_by_three = offers[row]
        return len(met & pairs), len(met_by_three & triples)

    rows: list[Combination] = []
    while len(rows) < number:
        rows.append(max(offers, key=worth))
        pairs -= offers[rows[-1]][0]
        triples -= offers[rows[-1]][1]
    return tuple(rows)


COMBINATIONS = covering_rows(ROWS)
