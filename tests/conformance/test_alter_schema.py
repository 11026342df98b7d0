"""Commits that change the schema and bring no rows: what Hudi and hudi-rs make of them.

Their operation is `ALTER_SCHEMA`, as of those that Hudi's own `ALTER TABLE … ADD COLUMNS` makes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from conformance.client import JudgeClient, JudgeError
from conformance.combinations import Combination
from conformance.evolving import (
    FIRST,
    WIDE,
    Change,
    Evolving,
    Pending,
    added,
    dropped,
    empty_commit,
    made_optional,
    new_time,
    one_in_each_bucket,
    widened,
)
from conformance.rows import assert_same_rows, spark_columns
from conformance.scenes import (
    COPY_ON_WRITE,
    IMPATIENT_CLEANER,
    NON_BLOCKING,
    OPTIMISTIC,
    frozen_hudi_write,
)
from conformance.test_archiving import HUDI_ARCHIVES, archived_by_pyhudi, hudis_view
from conformance.test_cleaning import hudi_clean, hudi_compaction
from pyhudi.format.timeline.commit_metadata import decode_commit_metadata
from pyhudi.format.timeline.instant import State
from pyhudi.plan.cleaning import CleanPolicy

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

CHANGES: tuple[Change, ...] = (widened, made_optional, dropped, added)
#: Before all instants.
BEGINNING = "20000101000000000"


def evolve_in_all_ways(scene: Evolving) -> list[str]:
    """Every change, each with other pending files, and one more column."""
    ways = zip((*CHANGES, lambda schema: added(schema, "more")), Pending, strict=True)
    return [scene.evolve(change, pending) for change, pending in ways]


def rs_does_not_read(judge: JudgeClient, scene: Evolving) -> None:
    """It takes a log block that lacks a column for a partial update, of the column's first type."""
    with pytest.raises(JudgeError, match="partial-update column 'size' has type Int32"):
        judge.rs_rows(scene.path)


# -- readers


@pytest.mark.parametrize(
    ("change", "combination", "pending"),
    [
        (added, NON_BLOCKING, Pending.BARE),
        (added, COPY_ON_WRITE, Pending.NONE),
        pytest.param(widened, COPY_ON_WRITE, Pending.BARE, marks=pytest.mark.long),
        (widened, OPTIMISTIC, Pending.AS_HUDI),
        (dropped, NON_BLOCKING, Pending.INTRODUCED),
        pytest.param(dropped, COPY_ON_WRITE, Pending.AS_HUDI, marks=pytest.mark.long),
        (made_optional, COPY_ON_WRITE, Pending.REQUESTED),
    ],
)
def test_all_readers_follow_a_change_and_those_of_the_past_do_not(
    judge: JudgeClient, tmp_path: Path, change: Change, combination: Combination, pending: Pending
) -> None:
    scene = Evolving(tmp_path / "table", combination)
    first = scene.sample.schema
    last = scene.upsert(scene.rows([3], written=1))
    changed = scene.evolve(change, pending)
    scene.agree(judge)
    past = scene.agree_on(judge, as_of=last.completed)
    assert [n for n in past.schema.names if n in first.names] == first.names
    assert past.schema.field("size").type == pa.int32()
    scene.agree_on(judge, as_of=changed)
    assert scene.agree_on(judge, query_type="incremental", begin=BEGINNING).num_rows == 4
    assert scene.agree_on(judge, query_type="incremental", begin=last.completed).num_rows == 0


def test_hudi_rs_does_not_read_a_log_block_with_a_narrower_and_a_missing_column(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """It takes a block without the column for a partial update; a compaction helps."""
    scene = Evolving(tmp_path / "table", OPTIMISTIC)
    scene.evolve(widened)
    scene.evolve(added)
    scene.agree(judge, by_rs=False)
    rs_does_not_read(judge, scene)
    assert scene.shared.open().services.compact().results
    scene.agree(judge)


def test_hudi_rs_keeps_a_value_where_a_later_log_block_lacks_the_column(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """For the same reason. To Hudi and pyhudi the later row is whole, and has a null there."""
    scene = Evolving(tmp_path / "table", OPTIMISTIC)
    without = scene.sample.schema
    scene.evolve(added)
    scene.upsert(scene.rows([1], written=1))
    scene.evolve(lambda _: without)
    scene.upsert(scene.rows([1], written=2))
    scene.evolve(added)
    scene.agree(judge, by_rs=False)
    found = {row["id"]: row["extra"] for row in judge.rs_rows(scene.path)}
    assert found == {"k000": None, "k001": "extra 1 by 1", "k002": None, "k003": None}
    assert scene.shared.open().services.compact().results
    scene.agree(judge)


def test_hudi_reads_no_table_with_a_commit_whose_statistics_are_null(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """They must be there and empty; hudi-rs and pyhudi do not mind."""
    scene = Evolving(tmp_path / "table", COPY_ON_WRITE)
    scene.sample.schema = added(scene.sample.schema)
    without = replace(scene.change(), partition_to_write_stats=None)
    scene.complete(new_time(), without, Pending.BARE)
    with pytest.raises(JudgeError, match="NullPointerException"):
        judge.hudi_rows(scene.path)
    ours = scene.shared.open().read(meta=True).to_arrow()
    assert_same_rows(ours, scene.expected.rows, meta=False)
    assert_same_rows(ours, judge.rs_rows(scene.path))


def test_hudis_own_change_of_a_schema_is_a_commit_of_the_same_form(
    judge: JudgeClient, tmp_path: Path
) -> None:
    scene = Evolving(tmp_path / "table", COPY_ON_WRITE)
    judge.ask("sql", text="SET hoodie.metadata.enable=false")
    try:
        text = "ALTER TABLE altered ADD COLUMNS (extra string)"
        judge.ask("sql", text=text, tables={"altered": scene.path})
    finally:
        judge.ask("sql", text="RESET hoodie.metadata.enable")
    done = scene.instants()[-1]
    data = {
        state: (scene.timeline / found.file_name).read_bytes()
        for state, found in ((i.state, i) for i in scene.instants()[-3:])
    }
    assert data[State.REQUESTED] == b""
    for state in (State.INFLIGHT, State.COMPLETED):
        found = decode_commit_metadata(data[state], done.file_name)
        extra = found.extra_metadata if state is State.COMPLETED else {}
        assert found == empty_commit(extra)
    assert scene.recorded_columns()[done.requested] == [*FIRST.names, "extra"]
    scene.sample.schema = made_optional(added(FIRST))  # as Spark knows no required columns here
    scene.upsert(scene.rows([1, 7], written=1))
    scene.agree(judge)


# -- writers


@pytest.mark.parametrize(
    "combination", [NON_BLOCKING, pytest.param(COPY_ON_WRITE, marks=pytest.mark.long)]
)
def test_hudi_writes_the_columns_that_there_are_now(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene = Evolving(tmp_path / "table", combination)
    for change in (added, made_optional):
        scene.evolve(change)
    scene.hudi_write(judge, [{**row, "must": None} for row in scene.rows([1, 4], written=1)])
    lacking = scene.sample.table(scene.rows([2, 5], written=2)).drop_columns(["extra"])
    with pytest.raises(JudgeError, match="MissingSchemaFieldException"):
        scene.hudi_write_frame(judge, lacking)
    scene.hudi_write_frame(judge, lacking, **{"hoodie.write.set.null.for.missing.columns": "true"})
    scene.upsert(scene.rows([4, 6], written=3))
    scene.agree(judge)
    narrow = scene.sample.table(scene.rows([3, 7], written=4))
    scene.evolve(widened)
    scene.hudi_write_frame(judge, narrow)
    scene.hudi_write(judge, scene.rows([8], written=5))
    if scene.is_mor:
        scene.agree(judge, by_rs=False)
        rs_does_not_read(judge, scene)
        assert scene.shared.open().services.compact().results
    scene.agree(judge)


def test_a_dropped_column_that_hudi_adds_again_has_its_old_values(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """Where files still hold them. No Hudi writer knows that there was such a column."""
    scene = Evolving(tmp_path / "table", NON_BLOCKING)
    with_it = scene.sample.table(scene.rows([1], written=2))
    scene.evolve(dropped)
    scene.hudi_write(judge, scene.rows([2], written=1))
    scene.agree(judge)
    scene.hudi_write_frame(judge, with_it)
    scene.sample.schema = scene.sample.schema.append(pa.field("gone", pa.string()))
    scene.agree(judge, by_rs=False)
    values = {row["id"]: row["gone"] for row in judge.hudi_rows(scene.path)}
    assert values == {
        "k000": "gone 0 by 0",
        "k001": "gone 1 by 2",
        "k002": None,
        "k003": "gone 3 by 0",
    }
    # hudi-rs also keeps the value of a row that was written without.
    by_rs = {row["id"]: row["gone"] for row in judge.rs_rows(scene.path)}
    assert by_rs == {**values, "k002": "gone 2 by 0"}
    assert scene.shared.open().services.compact().results
    scene.agree(judge)


@pytest.mark.parametrize(
    "combination", [COPY_ON_WRITE, pytest.param(OPTIMISTIC, marks=pytest.mark.long)]
)
def test_an_optimistic_hudi_writer_takes_up_a_change_that_came_while_it_wrote(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene = Evolving(tmp_path / "table", combination)
    scene.evolve(made_optional)
    rows = scene.rows([1, 5], written=1)
    with frozen_hudi_write(judge, scene, rows) as (requested, written):
        changed = scene.evolve(added)
    written.result()
    scene.expected.upsert(rows)
    assert requested < changed
    assert scene.recorded_columns()[requested][-1] == "extra"
    scene.agree(judge)


@pytest.mark.parametrize(
    "combination", [OPTIMISTIC, pytest.param(COPY_ON_WRITE, marks=pytest.mark.long)]
)
def test_an_optimistic_hudi_writer_of_another_column_is_refused_behind_a_change(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene = Evolving(tmp_path / "table", combination)
    scene.evolve(made_optional)
    before = scene.sample.schema
    scene.sample.schema = added(before, "other")
    with frozen_hudi_write(judge, scene, scene.rows([1, 5], written=1)) as (_, written):
        scene.sample.schema = before
        scene.evolve(added)
    with pytest.raises(JudgeError, match="HoodieSchemaEvolutionConflictException"):
        written.result()
    scene.agree(judge)


@pytest.mark.long
def test_to_an_optimistic_hudi_writer_a_required_column_is_a_change_of_its_own(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """Its frame may have nulls, so any other change while it writes is a second one, and stops it.

    It would have made the column optional.
    """
    scene = Evolving(tmp_path / "table", COPY_ON_WRITE)
    with frozen_hudi_write(judge, scene, scene.rows([1, 5], written=1)) as (_, written):
        scene.evolve(added)
    with pytest.raises(JudgeError, match="HoodieSchemaEvolutionConflictException"):
        written.result()
    scene.agree(judge)


def test_a_non_blocking_hudi_writer_records_the_columns_it_began_with(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """Readers that go by requests still have the column, for the change was requested later."""
    scene = Evolving(tmp_path / "table", NON_BLOCKING)
    rows = scene.rows([1, 5], written=1)
    with frozen_hudi_write(judge, scene, rows) as (requested, written):
        changed = scene.evolve(added)
    written.result()
    assert requested < changed
    assert scene.recorded_columns()[requested] == FIRST.names
    assert judge.hudi_schema(scene.path) == spark_columns(added(FIRST))
    assert {"extra"} <= judge.rs_rows(scene.path)[0].keys()


@pytest.mark.parametrize(
    ("combination", "comes_first"),
    [(COPY_ON_WRITE, True), pytest.param(NON_BLOCKING, False, marks=pytest.mark.long)],
)
def test_a_late_wide_value_is_read_by_all_if_a_change_has_the_greatest_request(
    judge: JudgeClient, tmp_path: Path, combination: Combination, comes_first: bool
) -> None:
    """It began first and completes behind a write that began later and knows narrow values. Without
    the change Hudi reads another number, or fails.
    """
    scene = Evolving(tmp_path / "table", combination, buckets=2)
    mine, other = one_in_each_bucket()
    scene.evolve(made_optional)
    before = scene.sample.schema
    scene.sample.schema = widened(before)
    early = scene.rows([mine], written=1)
    with frozen_hudi_write(judge, scene, early) as (_, written):
        scene.sample.schema = before
        scene.upsert(scene.rows([other], written=2))
        if comes_first:
            scene.evolve(widened)
    written.result()
    if not comes_first:
        found = {row["id"]: row["size"] for row in judge.hudi_rows(scene.path)}
        assert found[early[0]["id"]] == mine  # the lower half of the value
        scene.evolve(widened)
    scene.expected.upsert(early)
    scene.agree(judge)
    found = {row["id"]: row["size"] for row in judge.hudi_rows(scene.path)}
    assert found[early[0]["id"]] == WIDE + mine


# -- table services


@pytest.mark.parametrize(
    "combination",
    [NON_BLOCKING, *(pytest.param(c, marks=pytest.mark.long) for c in (COPY_ON_WRITE, OPTIMISTIC))],
)
def test_hudi_compacts_cleans_and_archives_over_changes(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene = Evolving(tmp_path / "table", combination)
    scene.upsert(scene.rows([0, 1], written=1))
    changes = evolve_in_all_ways(scene)
    if scene.is_mor:
        hudi_compaction(judge, scene)
        scene.agree(judge)
    scene.hudi_write(judge, scene.rows([3, 4], written=2))
    hudi_clean(judge, scene)
    scene.agree(judge)
    for written in range(3, 6):
        rows = scene.rows([written, written + 1], written=written)
        scene.hudi_write(judge, rows, **HUDI_ARCHIVES)
    assert {*changes} <= {requested for requested, _, _ in hudis_view(judge, scene)}
    assert not {*changes} & {i.requested for i in scene.instants()}
    scene.agree(judge)
    scene.upsert(scene.rows([1, 2], written=7))
    if scene.is_mor:
        assert scene.shared.open().services.compact().results
    scene.agree(judge)


@pytest.mark.parametrize(
    "combination", [OPTIMISTIC, pytest.param(COPY_ON_WRITE, marks=pytest.mark.long)]
)
def test_hudi_goes_on_where_pyhudi_compacted_cleaned_and_archived_changes(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene = Evolving(tmp_path / "table", combination)
    changes = evolve_in_all_ways(scene)
    if scene.is_mor:
        assert scene.shared.open().services.compact().results
        scene.agree(judge)
    for written in range(1, 4):
        scene.upsert(scene.rows([written, written + 1], written=written))
    scene.shared.open().services.compact()
    assert scene.shared.open().services.clean(CleanPolicy.commits(1)).cleans
    assert {*changes} <= {*archived_by_pyhudi(scene)}
    assert {*changes} <= {requested for requested, _, _ in hudis_view(judge, scene)}
    scene.agree(judge)
    scene.hudi_write(judge, scene.rows([3, 8], written=5), **HUDI_ARCHIVES)
    scene.agree(judge)


@pytest.mark.long
def test_hudi_takes_changes_back(judge: JudgeClient, tmp_path: Path) -> None:
    """By a rollback of the last one, and by a return to a savepoint that is one."""
    scene = Evolving(tmp_path / "table", COPY_ON_WRITE)
    saved = scene.evolve(added)
    judge.hudi_call("savepoint", scene.path, commit_time=saved)
    kept = scene.sample.schema
    scene.evolve(dropped, Pending.NONE)
    before = scene.sample.schema
    last = scene.evolve(widened)
    judge.hudi_call("rollback", scene.path, instant_time=last)
    scene.sample.schema = before
    scene.agree(judge)
    judge.hudi_call("rollback_to_savepoint", scene.path, instant_time=saved)
    scene.sample.schema = kept
    scene.agree(judge)
    scene.upsert(scene.rows([2, 5], written=1))
    scene.agree(judge)


@pytest.mark.parametrize(
    "combination", [COPY_ON_WRITE, pytest.param(NON_BLOCKING, marks=pytest.mark.long)]
)
def test_hudi_rolls_back_a_change_that_stopped_midway(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene = Evolving(tmp_path / "table", combination)
    stopped = [new_time(), new_time()]
    scene.begin(stopped[0], Pending.REQUESTED)
    scene.begin(stopped[1], Pending.BARE)
    scene.agree(judge)
    scene.hudi_write(judge, scene.rows([1, 5], written=1), **IMPATIENT_CLEANER)
    assert scene.pending_writes() == set()
    assert [scene.rollbacks_of(requested) for requested in stopped] == [1, 1]
    scene.agree(judge)
