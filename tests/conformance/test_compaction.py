"""Compaction by two engines: either plans, either carries out, and all readers agree throughout."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pyhudi
from conformance.client import JudgeClient, JudgeError
from conformance.combinations import Combination
from conformance.rivals import EAGER_LOCK
from conformance.sample_rows import Row
from conformance.scenes import (
    IMPATIENT_CLEANER,
    NON_BLOCKING,
    OPTIMISTIC,
    Scene,
    grown_silent,
    held_lock,
    held_write,
    until,
)
from conformance.writing import QUIET, hudi_writer_options
from opened_tables import session_on
from pyhudi.format.timeline.instant import Action, State
from pyhudi.services.compaction.run import compact, compactions
from pyhudi.session.session import TableSession
from pyhudi.spark.compact import SparkMerge
from pyhudi.storage.open import open_storage
from pyhudi.world import real_world

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

#: Carries a plan out, and dies when its files are there.
DYING = """
import os, sys
from pyhudi.services.compaction.execute import Compactions
from pyhudi.services.compaction.run import compactions
from pyhudi.session.open import OpenTable, Overrides
from pyhudi.settings import WriteSettings
from pyhudi.storage.open import open_storage
from pyhudi.world import real_world
path, requested = sys.argv[1:]
Compactions._complete = lambda *_, **__: os._exit(9)
opening = OpenTable(open_storage(path, None), real_world(), WriteSettings(), Overrides())
compactions(opening.session()).execute(requested)
"""


def session(scene: Scene) -> TableSession:
    return session_on(open_storage(str(scene.path), None), real_world())


def hudi(judge: JudgeClient, scene: Scene, op: str, **options: str) -> None:
    """As a compaction job beside other writers runs."""
    job = hudi_writer_options("table", scene.shared.combination, buckets=scene.shared.buckets)
    shared = {key: job[key] for key in job if key.startswith(("hoodie.write.", "hoodie.clean."))}
    given = {
        **QUIET,
        **shared,
        **EAGER_LOCK,
        "hoodie.metadata.enable": "false",
        "hoodie.compact.inline.max.delta.commits": "1",
        **options,
    }
    text = ",".join(f"{key}={value}" for key, value in given.items())
    judge.hudi_call("compaction", scene.path, op=op, options=text)


def plan(judge: JudgeClient, scene: Scene, engine: str) -> str:
    if engine == "pyhudi":
        planned = compactions(session(scene)).schedule()
        assert planned is not None
        return planned
    hudi(judge, scene, "schedule")
    plans = {i.requested for i in scene.instants() if i.action is Action.COMPACTION}
    [found] = [requested for requested in plans if not is_done(scene, requested)]
    return found


def carry_out(judge: JudgeClient, scene: Scene, engine: str, requested: str) -> None:
    if engine == "pyhudi":
        result = compactions(session(scene)).execute(requested)
        assert result is not None
        assert result.is_ours
    else:
        hudi(judge, scene, "execute")
    assert is_done(scene, requested)


def is_done(scene: Scene, requested: str) -> bool:
    found = [i for i in scene.instants() if i.requested == requested]
    return any(i.state is State.COMPLETED and i.action is Action.COMMIT for i in found)


def delete(scene: Scene, rows: list[Row]) -> None:
    scene.shared.open().delete(scene.sample.keys(rows))
    scene.expected.delete(rows)


#: Who plans and who carries out, by which merge; every two meet in those that are not long.
STORIES = [
    ("pyhudi", "hudi", NON_BLOCKING, False),
    ("hudi", "pyhudi", OPTIMISTIC, False),
    ("pyhudi", "pyhudi", OPTIMISTIC, False),
    ("pyhudi", "hudi", OPTIMISTIC, True),
    ("hudi", "pyhudi", NON_BLOCKING, True),
    ("pyhudi", "pyhudi", NON_BLOCKING, True),
]


@pytest.mark.parametrize(
    ("planner", "executor", "combination"),
    [
        pytest.param(planner, executor, how, marks=[pytest.mark.long] if is_long else [])
        for planner, executor, how, is_long in STORIES
    ],
)
def test_either_engine_carries_out_what_the_other_planned(
    judge: JudgeClient, tmp_path: Path, planner: str, executor: str, combination: Combination
) -> None:
    """Around a writer that began before the plan and completes after it was carried out."""
    scene = Scene(tmp_path / "table", combination)
    scene.upsert(scene.rows(range(24), written=1))
    delete(scene, scene.rows(range(6, 12), written=1))
    early = scene.rows(range(18, 42), written=3)
    with held_write(scene, early) as (requested, finish):
        planned = plan(judge, scene, planner)
        assert planned > requested
        scene.agree(judge)
        carry_out(judge, scene, executor, planned)
        scene.agree(judge)
        finish()
    scene.expected.upsert(early)
    scene.agree(judge)
    scene.hudi_write(judge, scene.rows(range(12), written=4))
    scene.upsert(scene.rows(range(36, 48), written=5))
    again = plan(judge, scene, executor)
    carry_out(judge, scene, planner, again)
    scene.agree(judge)


def test_spark_carries_out_what_hudi_planned(
    judge: JudgeClient, spark: SparkSession, tmp_path: Path
) -> None:
    scene = Scene(tmp_path / "table", NON_BLOCKING, buckets=3)
    scene.upsert(scene.rows(range(24), written=1))
    delete(scene, scene.rows(range(6, 12), written=1))
    planned = plan(judge, scene, "hudi")
    scene.upsert(scene.rows(range(18, 42), written=2))
    mine = session(scene)
    result = compactions(mine, SparkMerge(mine, spark)).execute(planned)
    assert result is not None
    assert (result.file_groups, result.is_ours) == (3, True)
    assert is_done(scene, planned)
    scene.agree(judge)
    scene.hudi_write(judge, scene.rows(range(12), written=3))
    scene.shared.open().services.compact(spark=spark)
    scene.agree(judge)


def test_what_pyhudi_left_half_done_is_carried_out_by_hudi(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """Hudi rolls back what is there, with an instant of its own, and begins the plan anew."""
    scene = Scene(tmp_path / "table", NON_BLOCKING)
    scene.upsert(scene.rows(range(24), written=1))
    planned = plan(judge, scene, "pyhudi")
    command = [sys.executable, "-c", DYING, str(scene.path), planned]
    assert subprocess.run(command, check=False, env=dict(os.environ)).returncode == 9
    assert scene.is_inflight(planned)
    assert scene.files_of(planned)
    scene.agree(judge)
    with pytest.raises(JudgeError, match="heartbeat by concurrent writer"):
        hudi(judge, scene, "execute")  # as long as it may be alive
    grown_silent(scene, planned)
    hudi(judge, scene, "execute", **IMPATIENT_CLEANER)
    assert is_done(scene, planned)
    assert scene.rollbacks_of(planned) == 1
    assert len(scene.files_of(planned)) == 1
    scene.agree(judge)
    scene.upsert(scene.rows(range(12, 36), written=2))
    scene.shared.open().services.repair()
    assert len(scene.files_of(planned)) == 1
    compact(session(scene))
    scene.agree(judge)


def test_a_plan_that_hudi_is_carrying_out_is_left_alone(judge: JudgeClient, tmp_path: Path) -> None:
    """Hudi beats for it, too; and if it dies, pyhudi carries the plan out."""
    scene = Scene(tmp_path / "table", NON_BLOCKING)
    scene.upsert(scene.rows(range(24), written=1))
    planned = plan(judge, scene, "hudi")
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        done = pool.submit(hudi, judge, scene, "execute")
        until(lambda: scene.is_inflight(planned), "Hudi has begun")
        with held_lock(scene.path):
            until(lambda: scene.files_of(planned), "Hudi has written")
            stack.enter_context(judge.frozen())
        assert scene.is_inflight(planned)
        assert compactions(session(scene)).is_being_executed(planned)
        assert compactions(session(scene)).execute(planned) is None
        with pytest.raises(pyhudi.ConflictError, match="once it has been silent"):
            compactions(session(scene)).cancel(planned)
        stack.close()
        done.result()
    assert is_done(scene, planned)
    scene.agree(judge)


def test_hudi_goes_on_when_pyhudi_has_given_a_plan_up(judge: JudgeClient, tmp_path: Path) -> None:
    scene = Scene(tmp_path / "table", NON_BLOCKING)
    scene.upsert(scene.rows(range(24), written=1))
    for planner in ("pyhudi", "hudi"):
        planned = plan(judge, scene, planner)
        compactions(session(scene)).cancel(planned)
        assert scene.rollbacks_of(planned) == 1
        scene.agree(judge)
        scene.hudi_write(judge, scene.rows(range(6, 18), written=2))
    hudi(judge, scene, "scheduleAndExecute")
    scene.upsert(scene.rows(range(12), written=3))
    scene.agree(judge)
