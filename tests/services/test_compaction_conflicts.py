"""Writes that open a file group beside plans that are cancelled, or that cannot be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from many_writers.scene import NBCC, Scene, Stop, begun_scene, rows
from memory_tables import TIMELINE
from pyhudi.api.table import Table
from pyhudi.commit.proposals import Begin, Decided
from pyhudi.errors import ConflictError
from pyhudi.format.timeline.instant import Action
from pyhudi.services.compaction.run import compactions
from pyhudi.write.result import WriteResult

ACTS: dict[str, Callable[[Table], WriteResult]] = {
    "overwrite": lambda table: table.overwrite(rows("over", "x")),
    "a new partition": lambda table: table.upsert(rows("over", "x", day="tu")),
}


def scene_with_logs() -> Scene:
    return begun_scene(rows("one", "a", "b"), rows("two", "b", "c", ts=2), **NBCC)


def planned(scene: Scene) -> str:
    requested = compactions(scene.session("planner")).schedule()
    assert requested is not None
    return requested


@pytest.mark.parametrize("comes_back", [True, False])
@pytest.mark.parametrize("stop", [Stop.BEGUN, Stop.WRITTEN])
@pytest.mark.parametrize("act", ACTS)
def test_a_plan_that_is_being_cancelled_blocks_no_write(
    act: str, stop: Stop, comes_back: bool
) -> None:
    """Its abort is in the log and applied, and its files are not deleted yet. A process that slept
    while the plan was begun may even bring its requested file back."""
    scene = scene_with_logs()
    held = scene.hold("one", ACTS[act], stop, conflict_retries=0)
    path = f"{TIMELINE}/{planned(scene)}.compaction.requested"
    data = scene.storage.read(path)
    canceller = compactions(scene.session("canceller"))
    [plan] = canceller.pending()
    canceller._recovery.abort(plan)
    if comes_back:
        scene.storage.write(path, data)
    assert held.finish().instant
    assert scene.writers()["x"] == "over"
    canceller.cancel(plan.requested)
    assert scene.leftovers() == []
    assert scene.writers()["x"] == "over"


@pytest.mark.parametrize("data", [b"garbage", b""])
@pytest.mark.parametrize("act", ACTS)
def test_a_plan_that_cannot_be_read_stops_only_what_is_older(act: str, data: bytes) -> None:
    """The error says how to remove it, because it is not known which file groups it is about."""
    scene = scene_with_logs()
    held = scene.hold("old", ACTS[act], conflict_retries=0)
    forger = scene.session("forger")
    outcome = forger.log.append(Begin(Action.COMPACTION, data))
    assert isinstance(outcome, Decided)
    assert ACTS[act](scene.table("young")).instant
    if act == "overwrite":
        with pytest.raises(ConflictError, match="cancel_compaction"):
            held.finish()
    compactions(scene.session("canceller")).cancel(outcome.entry.instant or "")
    assert ACTS[act](scene.table("later")).instant


@pytest.mark.parametrize("act", ACTS)
def test_an_inflight_file_of_a_plan_that_is_gone_blocks_no_write(act: str) -> None:
    scene = scene_with_logs()
    scene.storage.write(f"{TIMELINE}/20240101000000000.compaction.inflight", b"")
    assert ACTS[act](scene.table("w")).instant
    assert scene.writers()["x"] == "over"
