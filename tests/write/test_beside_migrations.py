"""Writes whose begin, tasks and end are apart, while the table's buckets are migrated."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from as_by_spark import written_as_by_spark
from migrating_tables import MigratingTable, settled
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.index.layout import SimpleLayout
from pyhudi.index.ring_layout import RingLayout
from pyhudi.index.routing import Routing
from pyhudi.plan.resizing.policy import ResizePolicy
from pyhudi.services.migration.plan import first_ring_planning
from pyhudi.session.ring_groups import PinnedRings
from pyhudi.write.begin import ready
from pyhudi.write.detached import DetachedWrite, begin, complete, run_task
from pyhudi.write.intent import WholeRows, WriteIntent
from pyhudi.write.schemas import row_schema
from pyhudi.write.tasks import RowsTask


def announce(table: MigratingTable) -> None:
    table.announce("announces")


def begin_to_migrate(table: MigratingTable) -> None:
    if isinstance(table.config.buckets, SimpleBuckets):
        announce(table)
    ready(table.opening("begins"))


def migrate(table: MigratingTable) -> None:
    assert table.migrate("migrates").is_done


def nothing(table: MigratingTable) -> None:
    pass


def filled(**definition: Any) -> MigratingTable:
    table = MigratingTable(**definition)
    table.put("abcd", 1, "d")
    table.put("klmn", 1, "e")
    return table


def begun(table: MigratingTable) -> DetachedWrite:
    session = ready(table.opening("driver"))
    intent = WriteIntent(operation="UPSERT", change=WholeRows(), rows=row_schema(session))
    found = begin(session, intent)
    assert isinstance(found, DetachedWrite)
    return found


def travelled(write: DetachedWrite) -> DetachedWrite:
    """The write as tasks of other processes have it; storage in memory does not travel."""
    task = write.plan.task
    assert isinstance(task, RowsTask)
    routing = task.files.routing
    rule = routing.default
    if isinstance(rule, PinnedRings):
        buckets, instants = pickle.loads(pickle.dumps((rule.buckets, dict(rule.instants))))
        rule = PinnedRings(rule.storage, buckets, instants, creates=rule.creates)
    layouts = pickle.loads(pickle.dumps(dict(routing.layouts)))
    files = replace(task.files, routing=Routing(rule, layouts))
    task = RowsTask(files, task.shape, task.target)
    return replace(write, plan=replace(write.plan, task=task))


STEPS = [nothing, announce, begin_to_migrate, migrate]
#: What happens before the write begins, and while its tasks run.
CASES = [
    (before, meanwhile)
    for before, meanwhile in [(a, b) for a in STEPS for b in STEPS]
    if STEPS.index(before) < STEPS.index(meanwhile)
]


@pytest.mark.parametrize("mode", list(ConcurrencyMode)[:2])
@pytest.mark.parametrize(
    ("before", "meanwhile"), CASES, ids=[f"{a.__name__}, {b.__name__}" for a, b in CASES]
)
def test_a_write_in_pieces_loses_nothing_to_a_migration(
    before: Callable[[MigratingTable], None],
    meanwhile: Callable[[MigratingTable], None],
    mode: ConcurrencyMode,
) -> None:
    table = filled(concurrency=mode)
    before(table)
    write = travelled(begun(table))
    rows = pa.concat_tables(
        [table.made("ab", 9, "d"), table.made("kz", 9, "e"), table.made("x", 9, "new")]
    )
    stats = list(run_task(write, 0, iter(rows.to_batches())))
    meanwhile(table)
    result = complete(write, write.table(table.world("end")), stats)
    expected = {key: f"{key}1" for key in "cdlmn"} | {key: f"{key}9" for key in "abkzx"}
    assert table.values() == expected
    settled(table.table("r"))
    assert not [name for name in table.pending() if "deltacommit" in name]
    is_outdated = before is nothing  # it knew of no migration, or its ring was planned later
    assert (result.instant != write.requested) is (is_outdated or meanwhile is migrate)
    if meanwhile is not migrate:
        assert table.migrate("later").is_done
        assert table.values() == expected
        settled(table.table("r"))


def test_a_write_moves_its_rows_if_its_partition_got_a_ring_that_was_planned_before() -> None:
    table = filled()
    begin_to_migrate(table)
    session = table.session("plans")
    _, planned = first_ring_planning(session, "d").schedule(ResizePolicy())
    assert planned is not None
    write = travelled(begun(table))
    rows = pa.concat_tables([table.made("ab", 9, "d"), table.made("k", 9, "e")])
    stats = list(run_task(write, 0, iter(rows.to_batches())))
    assert table.resizes("executes").execute(planned) is not None
    result = complete(write, write.table(table.world("end")), stats)
    assert result.moved == 2
    assert result.instant == write.requested
    assert table.values() == {key: f"{key}1" for key in "cdlmn"} | {k: f"{k}9" for k in "abk"}
    settled(table.table("r"))


@pytest.mark.parametrize("before", STEPS)
def test_rows_that_only_tasks_know_are_placed_by_the_kind_of_each_partition(
    before: Callable[[MigratingTable], None],
) -> None:
    table = filled()
    before(table)
    rows = pa.concat_tables([table.made("ab", 9, "d"), table.made("x", 9, "new")])
    intent = WriteIntent(operation="UPSERT", change=WholeRows())
    written_as_by_spark(table.table("by spark"), rows, intent)
    expected = {key: f"{key}1" for key in "cdklmn"} | {key: f"{key}9" for key in "abx"}
    assert table.values() == expected
    settled(table.table("r"))


def test_a_sent_write_takes_along_which_partitions_have_simple_buckets() -> None:
    table = filled()
    begin_to_migrate(table)
    table.put("x", 2, "new")
    routing = begun(table).plan.routing
    kinds = {day: type(routing.layout(day)) for day in ("d", "e", "new", "newer")}
    assert kinds == {"d": SimpleLayout, "e": SimpleLayout, "new": RingLayout, "newer": RingLayout}
