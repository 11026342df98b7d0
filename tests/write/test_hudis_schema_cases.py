"""The cases by which Hudi tests its own schema conflict resolution, beside the eight scenarios.

They are commits and writers without a schema, table services, which are skipped, and the option
that turns the check off. Another engine commits while a write of pyhudi is under way; where Hudi
checks, the strategy is Hudi's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

import pyhudi
from meddled_storage import Meddled
from memory_tables import MemoryTable
from pyhudi.api.table import Table
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.timeline.instant import Action
from pyhudi.hudi_options.write_options import parse_write_options
from read.test_schema_in_force import foreign
from schema_scenarios import S1, TABLES, begin, definition, requires_one_schema, rows, schema_of

#: What another engine commits: the columns that it records, None for none and "" for Hudi's empty
#: text; the action that it began; its operation.
Commit = tuple[str | None, Action | None, str]


def write(columns: str | None) -> Commit:
    return columns, None, "UPSERT" if columns else "DELETE"


@dataclass(frozen=True, slots=True)
class Case:
    """What happens, and the columns of the table afterwards."""

    theirs: tuple[Commit, ...]
    own: Callable[[Table], object]
    columns: str
    is_refused: bool = False
    is_of_logs: bool = False  # no table without logs has such an action


def upsert(columns: str) -> Callable[[Table], object]:
    return lambda table: table.upsert(rows("own", columns), schema_mode="add")


CASES: dict[str, Case] = {
    # A writer without a schema records the table's.
    "a delete by key": Case((write("vx"),), lambda t: t.delete(rows("first")), "vx"),
    "a delete by predicate": Case((write("vx"),), lambda t: t.delete("v = 1"), "vx"),
    # A commit without a schema is passed over, as is one with an empty text.
    "a commit without a schema": Case((write(None),), upsert("vx"), "vx"),
    "a commit with an empty schema": Case((write(""),), upsert("vx"), "vx"),
    "no schema behind a change": Case((write("vx"), write(None)), upsert("v"), "vx"),
    "an empty one behind a change": Case((write("vx"), write("")), upsert("v"), "vx"),
    "no schema behind another change": Case(
        (write("vx"), write(None)), upsert("vy"), "vx", is_refused=True
    ),
    "an empty one behind another change": Case(
        (write("vx"), write("")), upsert("vy"), "vx", is_refused=True
    ),
    # A table service is skipped: as the one that checks, and as one that is checked against.
    "a compaction of its own": Case(
        (write("vx"),), lambda t: t.services.compact(), "vx", is_of_logs=True
    ),
    "a compaction": Case(
        (("vx", Action.COMPACTION, "COMPACT"),), upsert("vy"), "vy", is_of_logs=True
    ),
    "a log compaction": Case(
        (("vx", Action.LOGCOMPACTION, "LOG_COMPACT"),), upsert("vy"), "vy", is_of_logs=True
    ),
    "a clustering": Case((("vx", Action.CLUSTERING, "CLUSTER"),), upsert("vy"), "vy"),
    "a clustering of older releases": Case(
        (("vx", Action.REPLACECOMMIT, "CLUSTER"),), upsert("vy"), "vy"
    ),
    "a clustering behind another change": Case(
        (write("vx"), ("v", Action.CLUSTERING, "CLUSTER")), upsert("vy"), "vx", is_refused=True
    ),
    # An overwrite is no table service.
    "an overwrite": Case(
        (("vx", Action.REPLACECOMMIT, "INSERT_OVERWRITE"),), upsert("vy"), "vx", is_refused=True
    ),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for name, case in CASES.items()
        for kind in TABLES
        if kind != "copy on write" or not case.is_of_logs
    ],
)
def test_a_case_of_hudis_own_ends_as_in_hudi(name: str, kind: str) -> None:
    case, is_cow = CASES[name], kind == "copy on write"
    made = MemoryTable(S1, **definition(kind), lock=LockKind.FILE)
    begin(made, has_schema=True)

    def others() -> None:
        for columns, began, operation in case.theirs:
            foreign(
                made,
                schema_of(columns) if columns else None,
                began=began or (Action.COMMIT if is_cow else Action.DELTACOMMIT),
                operation=operation,
                extra={"schema": ""} if columns == "" else {},
            )

    makes_base_file = is_cow or name == "a compaction of its own"
    storage = Meddled(made.storage, "-0_" if makes_base_file else ".log.", others)
    table = made.table("own", storage, schema_strategy="simple")
    if case.is_refused:
        with pytest.raises(pyhudi.ConcurrentSchemaEvolutionError):
            case.own(table)
    else:
        case.own(table)
    assert storage.is_done
    assert made.table("reader").schema.arrow.names == schema_of(case.columns).names
    requires_one_schema(made.storage)
    assert made.pending() == []


@pytest.mark.parametrize(("value", "is_refused"), [("true", False), ("false", True)])
def test_the_check_cannot_be_turned_off(value: str, is_refused: bool) -> None:
    """Off, the columns that another writer adds meanwhile would go."""
    options = {"hoodie.write.concurrency.schema.conflict.resolution.enable": value}
    if is_refused:
        with pytest.raises(pyhudi.InvalidRequestError, match="drop columns that other writers add"):
            parse_write_options(options)
    else:
        parse_write_options(options)
