"""Hudi and pyhudi write at the same time, and one of them changes the columns meanwhile.

Nothing that the one adds is lost by the other: in no reader, and not by a compaction either.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi
from conformance.client import JudgeClient, JudgeError
from conformance.combinations import Combination
from conformance.evolving import (
    ALTER_SCHEMA,
    PLAIN,
    WIDE,
    Evolving,
    added,
    dropped,
    one_in_each_bucket,
    widened,
)
from conformance.rows import spark_columns
from conformance.scenes import (
    COPY_ON_WRITE,
    NON_BLOCKING,
    OPTIMISTIC,
    frozen_hudi_write,
    held_write,
)
from pyhudi.api.schema_update import SchemaUpdate
from pyhudi.format.timeline.commit_metadata import decode_commit_metadata

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

long = pytest.mark.long
OTHER = "other"


def race(tmp_path: Path, combination: Combination) -> Evolving:
    """Two buckets, so that the two writes need not meet in a file group."""
    return Evolving(tmp_path / "table", combination, buckets=2, first=PLAIN)


def agree_before_and_after_compaction(judge: JudgeClient, scene: Evolving) -> None:
    scene.agree(judge)
    if scene.is_mor:
        assert scene.shared.open().services.compact().results
        scene.agree(judge)


def value_of(judge: JudgeClient, scene: Evolving, number: int, column: str) -> object:
    [row] = [row for row in judge.hudi_rows(scene.path) if row["id"] == f"k{number:03}"]
    return row[column]


# ---- pyhudi is stopped while Hudi evolves


@pytest.mark.parametrize(
    "combination",
    [NON_BLOCKING, COPY_ON_WRITE, pytest.param(OPTIMISTIC, marks=long)],
)
def test_a_column_that_hudi_adds_while_a_pyhudi_write_is_stopped_keeps_its_values(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene = race(tmp_path, combination)
    mine, other = one_in_each_bucket()
    rows = scene.rows([mine], written=1)
    with held_write(scene, rows) as (_, finish):
        scene.sample.schema = added(PLAIN)
        scene.hudi_write(judge, scene.rows([other], written=2))
        finish()
    scene.expected.upsert(rows)
    agree_before_and_after_compaction(judge, scene)
    assert value_of(judge, scene, other, "extra") == f"extra {other} by 2"
    scene.upsert(scene.rows([mine, other], written=3))
    scene.hudi_write(judge, scene.rows([mine], written=4))
    agree_before_and_after_compaction(judge, scene)


@pytest.mark.parametrize("combination", [OPTIMISTIC, pytest.param(COPY_ON_WRITE, marks=long)])
def test_a_write_that_lost_to_one_that_added_a_column_is_repeated_with_that_column(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene = race(tmp_path, combination)
    rows = scene.rows([1, 2], written=1)
    with held_write(scene, rows) as (_, finish):
        scene.sample.schema = added(PLAIN)
        scene.hudi_write(judge, scene.rows(range(2, 6), written=2))
        assert finish().retries == 1
    scene.expected.upsert(rows)
    agree_before_and_after_compaction(judge, scene)


@pytest.mark.parametrize(
    "combination",
    [COPY_ON_WRITE, *(pytest.param(c, marks=long) for c in (NON_BLOCKING, OPTIMISTIC))],
)
def test_both_columns_are_there_if_each_engine_adds_one_and_pyhudi_completes_last(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene = race(tmp_path, combination)
    mine, other = one_in_each_bucket()
    scene.sample.schema = added(PLAIN, OTHER)
    rows = scene.rows([mine], written=1)
    with held_write(scene, rows, schema_mode="add") as (requested, finish):
        scene.sample.schema = added(PLAIN)
        scene.hudi_write(judge, scene.rows([other], written=2))
        finish()
    scene.expected.upsert(rows)
    scene.sample.schema = added(scene.sample.schema, OTHER)
    assert scene.recorded_columns()[requested][-2:] == ["extra", OTHER]
    agree_before_and_after_compaction(judge, scene)


@pytest.mark.parametrize(
    "combination",
    [NON_BLOCKING, *(pytest.param(c, marks=long) for c in (COPY_ON_WRITE, OPTIMISTIC))],
)
@pytest.mark.parametrize("later", ["Hudi", pytest.param("pyhudi", marks=long)])
def test_a_late_wide_value_is_read_by_all_behind_a_later_request(
    judge: JudgeClient, tmp_path: Path, combination: Combination, later: str
) -> None:
    """A commit that changes the schema alone comes first, with the greatest request."""
    scene = race(tmp_path, combination)
    mine, other = one_in_each_bucket()
    scene.sample.schema = widened(PLAIN)
    rows = scene.rows([mine], written=1)
    with held_write(scene, rows, schema_mode="add") as (requested, finish):
        scene.sample.schema = PLAIN
        write = scene.upsert if later == "pyhudi" else lambda rows: scene.hudi_write(judge, rows)
        write(scene.rows([other], written=2))
        finish()
    scene.expected.upsert(rows)
    scene.sample.schema = widened(PLAIN)
    operations = alterations(scene)
    assert len(operations) == 1
    assert operations[0] > requested
    assert value_of(judge, scene, mine, "size") == WIDE + mine
    agree_before_and_after_compaction(judge, scene)


def alterations(scene: Evolving) -> list[str]:
    """The requested times of the commits that changed the schema alone."""
    done = [i for i in scene.instants() if i.action is scene.action and i.completed]
    found = []
    for instant in done:
        data = (scene.timeline / instant.file_name).read_bytes()
        if decode_commit_metadata(data, instant.file_name).operation_type == ALTER_SCHEMA:
            found.append(str(instant.requested))
    return found


# ---- Hudi is frozen while pyhudi evolves

Deed = Callable[[SchemaUpdate], object]
CHANGES: dict[str, tuple[Deed, Callable[[pa.Schema], pa.Schema]]] = {
    "adds": (lambda change: change.add_column("extra", "string"), added),
    "widens": (lambda change: change.update_column("size", "long"), widened),
    "drops": (lambda change: change.delete_column("gone"), dropped),
}


@pytest.mark.parametrize("combination", [OPTIMISTIC, pytest.param(COPY_ON_WRITE, marks=long)])
def test_a_column_that_pyhudi_adds_while_a_hudi_write_is_frozen_keeps_its_values(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene = race(tmp_path, combination)
    mine, other = one_in_each_bucket()
    theirs = scene.rows([other], written=1)
    with frozen_hudi_write(judge, scene, theirs) as (requested, written):
        scene.sample.schema = added(PLAIN)
        scene.upsert(scene.rows([mine], written=2), schema_mode="add")
    written.result()
    scene.expected.upsert(theirs)
    assert scene.recorded_columns()[requested] == scene.sample.schema.names
    agree_before_and_after_compaction(judge, scene)
    assert value_of(judge, scene, mine, "extra") == f"extra {mine} by 2"
    scene.hudi_write(judge, scene.rows([mine, other], written=3))
    scene.upsert(scene.rows([mine], written=4))
    agree_before_and_after_compaction(judge, scene)


@pytest.mark.parametrize(
    ("combination", "change"),
    [
        (COPY_ON_WRITE, "drops"),
        *(
            pytest.param(combination, change, marks=long)
            for combination in (COPY_ON_WRITE, OPTIMISTIC)
            for change in CHANGES
            if (combination, change) != (COPY_ON_WRITE, "drops")
        ),
    ],
)
def test_an_optimistic_hudi_write_takes_up_what_update_schema_changed_while_it_was_frozen(
    judge: JudgeClient, tmp_path: Path, combination: Combination, change: str
) -> None:
    scene = race(tmp_path, combination)
    deed, changed = CHANGES[change]
    rows = scene.rows([1, 5], written=1)
    with frozen_hudi_write(judge, scene, rows) as (requested, written):
        with scene.shared.open().update_schema() as update:
            deed(update)
        scene.sample.schema = changed(PLAIN)
    written.result()
    scene.expected.upsert(rows)
    assert scene.recorded_columns()[requested] == scene.sample.schema.names
    agree_before_and_after_compaction(judge, scene)
    scene.hudi_write(judge, scene.rows([5, 6], written=2))
    scene.upsert(scene.rows([6, 7], written=3))
    agree_before_and_after_compaction(judge, scene)


@pytest.mark.parametrize("combination", [COPY_ON_WRITE, pytest.param(OPTIMISTIC, marks=long)])
def test_an_optimistic_hudi_write_of_another_column_is_refused_behind_pyhudis_and_can_be_repeated(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    scene = race(tmp_path, combination)
    mine, other = one_in_each_bucket()
    scene.sample.schema = added(PLAIN, OTHER)
    with frozen_hudi_write(judge, scene, scene.rows([other], written=1)) as (_, written):
        scene.sample.schema = added(PLAIN)
        scene.upsert(scene.rows([mine], written=2), schema_mode="add")
    with pytest.raises(JudgeError, match="HoodieSchemaEvolutionConflictException"):
        written.result()
    scene.agree(judge)
    scene.sample.schema = added(scene.sample.schema, OTHER)
    scene.hudi_write(judge, scene.rows([other], written=3))
    agree_before_and_after_compaction(judge, scene)


def test_a_column_that_a_non_blocking_hudi_write_took_away_comes_back_with_its_values(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """Such a write compares no schemas, and records the one that it began with."""
    scene = race(tmp_path, NON_BLOCKING)
    mine, other = one_in_each_bucket()
    theirs, ours = scene.rows([other], written=1), scene.shared.open(schema_mode="add")
    with frozen_hudi_write(judge, scene, theirs) as (requested, written):
        scene.sample.schema = added(PLAIN)
        rows = scene.rows([mine], written=2)
        ours.upsert(scene.sample.table(rows))
    written.result()
    scene.expected.upsert(theirs)
    scene.expected.upsert(rows)
    assert scene.recorded_columns()[requested] == PLAIN.names
    assert judge.hudi_schema(scene.path) == spark_columns(scene.sample.schema)
    with pytest.warns(pyhudi.SchemaWarning, match=f"{requested} took the column 'extra'"):
        ours.delete(pa.table({"id": ["none"]}))
    with pytest.raises(pyhudi.CorruptTableError, match="'extra' would be lost"):
        ours.services.compact()
    with ours.update_schema() as change:
        change.union_by_name(scene.sample.schema)
    scene.agree(judge)
    assert value_of(judge, scene, mine, "extra") == f"extra {mine} by 2"
    ours.services.compact()
    scene.agree(judge)
