"""What the check of schemas costs: the requests of a write, whatever others commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from faulty_storage import FaultyStorage
from meddled_storage import Meddled
from memory_tables import TIMELINE, MemoryTable
from pyhudi.api.table import Table
from pyhudi.commit.transaction import Transaction
from pyhudi.commit.validation import Checks
from pyhudi.conflict.schema_to_record import WriteSchemas
from schema_scenarios import metadata, recorded, rows
from write.test_schema_evolution import evolving_table

FEW, MANY = 2, 1_000
LOG = ".hoodie/.pyhudi/log"


@pytest.mark.parametrize("others", ["v", "vx"], ids=["the schema stays", "the schema changes"])
@pytest.mark.parametrize("size", ["in the log", "staged"])
def test_of_a_thousand_commits_beside_a_write_one_is_read_if_the_schema_changed_and_else_none(
    size: str, others: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their entries in the log are read, as without schemas: a begin and a completion of each."""
    if size == "staged":  # bytes that are too large for an entry
        monkeypatch.setattr("pyhudi.commit.proposals.INLINE_BYTES_MAX", 10)
    few, many = requests_behind(FEW, others), requests_behind(MANY, others)
    is_read = others == "vx" and size == "staged"  # one in the log needs no request of its own
    assert many["read", TIMELINE] == is_read
    assert many - few == {("read", LOG): 2 * (MANY - FEW)}
    assert few - many == {}


def requests_behind(count: int, columns: str) -> Counter[tuple[str, str]]:
    """What a write asks of storage behind so many others: verbs and folders, "" for any further.

    The others commit when its rows are to be written, and the first of them brings these columns.
    """
    made = evolving_table("non-blocking")
    counted = FaultyStorage(made.storage)

    def others() -> None:
        made.table("first").upsert(rows("first", columns), schema_mode="add")
        commit_again(made, count - 1)
        made.clock.sleep(60_000)
        counted.trace.clear()

    made.table("own", Meddled(counted, ".log.", others)).upsert(rows("own"))
    folders = (TIMELINE, LOG)
    found = [next((f for f in folders if do.path.startswith(f)), "") for do in counted.trace]
    return Counter(zip((done.name for done in counted.trace), found, strict=True))


def commit_again(made: MemoryTable, count: int) -> None:
    """So many commits, each with the metadata of the last one and without files."""
    last, _ = recorded(made.storage)[-1]
    again = replace(metadata(made.storage, last), partition_to_write_stats={})
    session = made.session("others")
    checks = Checks(schemas=WriteSchemas(session.schema.now(), None))
    for _ in range(count):
        write = Transaction.begin(session.log, session.settings, last.action, session.recovery)
        write.complete(again, checks).or_raise()


def add_column(table: Table) -> None:
    with table.update_schema() as change:
        change.add_column("x", pa.string())


CHANGING: dict[str, Callable[[Table], object]] = {
    "rows that change nothing": lambda table: table.upsert(rows("own")),
    "rows that add a column": lambda table: table.upsert(rows("own", "vx"), schema_mode="add"),
    "a change without rows": add_column,
}


@pytest.mark.parametrize("verb", CHANGING)
def test_a_change_asks_the_same_of_storage_after_ten_commits_and_after_five_hundred(
    verb: str,
) -> None:
    found = []
    for count in (10, 500):
        made = evolving_table("non-blocking")
        commit_again(made, count)
        counted = FaultyStorage(made.storage)
        CHANGING[verb](made.table("own", counted))
        found.append(Counter(do.name for do in counted.trace))
    assert found[0] == found[1]
