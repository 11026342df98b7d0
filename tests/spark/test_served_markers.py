"""Writes of Spark whose tasks announce their files to the marker service of the driver."""

from __future__ import annotations

import asyncio
import socket
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import pyhudi
from many_writers.scene import HeldWrite, Stop
from pyhudi.commit.transaction import Transaction
from pyhudi.errors import ConflictError, EarlyConflictError
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.marker_requests import STORED
from pyhudi.format.timeline.markers import is_marker_list
from pyhudi.settings import EarlyDetection
from pyhudi.storage.objects.markers import load_markers
from pyhudi.write.markers import batches
from pyhudi.write.markers.kind import MarkerServiceWarning
from pyhudi.write.markers.server import MarkerServer

pytestmark = [pytest.mark.spark, pytest.mark.spark35]

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.string())])
COLUMNS = "id string, day string, v string"
KEYS = [f"k{n}" for n in range(40)]
SERVED: dict[str, Any] = {"markers": "server"}

Between = Callable[[Callable[[], object]], None]


def rows(v: str) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": key, "day": f"d{int(key[1:]) % 2}", "v": v} for key in KEYS], SCHEMA
    )


def frame(spark: SparkSession, v: str) -> DataFrame:
    return spark.createDataFrame(rows(v).to_pandas(), COLUMNS)


@pytest.fixture(params=["cow", "mor"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return created(tmp_path / "t", request.param)


@pytest.fixture
def cow(tmp_path: Path) -> Path:
    return created(tmp_path / "t", "cow")


def created(path: Path, table_type: Any) -> Path:
    made = pyhudi.create_table(
        path,
        SCHEMA,
        record_key="id",
        partition_by="day",
        buckets=pyhudi.SimpleBuckets(4),
        table_type=table_type,
    )
    made.upsert(rows("0"))
    return path


def opened(path: Path, **settings: Any) -> pyhudi.Table:
    given = pyhudi.WriteSettings(heartbeat_interval_ms=1_000, **{**SERVED, **settings})
    return pyhudi.open_table(path, write_settings=given)


def values(path: Path) -> set[str]:
    return set(pyhudi.open_table(path).read(columns=["v"]).to_arrow()["v"].to_pylist())


class MarkerFolder:
    """What the marker folder of the write under way has, kind by kind."""

    def __init__(self, path: Path) -> None:
        self._root = path / ".hoodie" / ".temp"
        self.path, self.instant = path, ""
        self.lists, self.direct, self.files = set[str](), set[str](), set[str]()

    def look(self) -> None:
        (folder,) = (each for each in self._root.iterdir() if each.is_dir())
        found = [each.relative_to(folder).as_posix() for each in folder.rglob("*")]
        self.instant = folder.name
        self.lists = {name for name in found if name.startswith("MARKERS")}
        self.direct = {name for name in found if ".marker." in name and not name.startswith(".")}
        storage = pyhudi.open_table(self.path)._opening.storage
        self.files = {marker.data_file for marker in load_markers(storage, self.instant)}


def test_the_tasks_of_a_write_leave_lists_and_no_marker_of_their_own(
    spark: SparkSession, path: Path, between: Between
) -> None:
    seen = MarkerFolder(path)
    between(seen.look)
    opened(path).upsert(frame(spark, "1"))
    assert values(path) == {"1"}
    assert "MARKERS.type" in seen.lists
    assert any(map(is_marker_list, seen.lists))
    assert not seen.direct
    assert seen.files == {each.relative_to(path).as_posix() for each in left_of(path, seen.instant)}
    assert not list((path / ".hoodie" / ".temp").glob("*/*"))
    assert not threads_of_services()


def threads_of_services() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("pyhudi-loop")]


class GoneError(Exception):
    """The driver is gone, without a chance to tidy up."""


def test_a_write_that_dies_midway_is_rolled_back_by_its_lists(
    spark: SparkSession, path: Path, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = MarkerFolder(path)

    def die() -> None:
        seen.look()
        raise GoneError

    between(die)
    with monkeypatch.context() as dead:
        dead.setattr(Transaction, "abandon", lambda self: self.leave())
        with pytest.raises(GoneError):
            opened(path).upsert(frame(spark, "dead"))
    assert seen.lists
    assert left_of(path, seen.instant)
    eager = opened(path, failed_writes="eager", markers="direct")
    eager.upsert(rows("next"))
    assert values(path) == {"next"}
    assert not left_of(path, seen.instant)


def left_of(path: Path, instant: str) -> list[Path]:
    """The data files of a write."""
    found = (each for each in path.rglob(f"*{instant}*") if not each.name.endswith(".crc"))
    return [each for each in found if ".hoodie" not in each.relative_to(path).parts]


def test_when_the_service_dies_midway_tasks_go_on_with_direct_markers(
    spark: SparkSession, path: Path, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = batches.MarkerBatches.announce
    replies = 0

    async def two_replies(self: batches.MarkerBatches, markers: Any) -> Any:
        nonlocal replies
        replies += 1
        if replies > 2:
            raise asyncio.CancelledError  # the connection ends without a reply
        return await served(self, markers)

    monkeypatch.setattr(batches.MarkerBatches, "announce", two_replies)
    seen = MarkerFolder(path)
    between(seen.look)
    opened(path).upsert(frame(spark, "1"))
    assert values(path) == {"1"}
    assert seen.lists
    assert seen.direct
    assert seen.files == {each.relative_to(path).as_posix() for each in left_of(path, seen.instant)}


def test_a_service_that_executors_cannot_reach_costs_no_row(
    spark: SparkSession, path: Path, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = MarkerServer.start

    def elsewhere(self: MarkerServer, bind: str, port: int, host: str) -> Any:
        start(self, bind, port, host)
        return start(other, bind, port, host)

    storage = pyhudi.open_table(path)._opening.storage
    settings = pyhudi.MarkerService()
    world = pyhudi.open_table(path)._opening.world
    other = MarkerServer(storage, InstantTime("2" * 17), world, settings)
    monkeypatch.setattr(MarkerServer, "start", elsewhere)
    seen = MarkerFolder(path)
    between(seen.look)
    try:
        opened(path).upsert(frame(spark, "1"))
    finally:
        other.close()
    assert values(path) == {"1"}
    assert not seen.lists
    assert seen.direct


def test_a_write_that_loses_midway_stops_all_tasks_through_the_service(
    spark: SparkSession, cow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    announce = batches.MarkerBatches.announce
    rival = pyhudi.open_table(cow, write_settings=pyhudi.WriteSettings(job="rival"))

    async def slow(self: batches.MarkerBatches, markers: Any) -> Any:
        verdict = await announce(self, markers)
        if not told:
            told.append(verdict)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, rival.upsert, rows("rival"))
            while await announce(self, markers) == verdict:
                await asyncio.sleep(0.05)
        told.append(await announce(self, markers))
        return told[-1]

    monkeypatch.setattr(batches.MarkerBatches, "announce", slow)
    early = EarlyDetection(period_ms=200)
    table = opened(cow, early_detection=early, conflict_retries=0)
    with pytest.raises(ConflictError) as caught:
        table.upsert(frame(spark, "ours"))
    assert caught.value.facts["found"] == "early"
    assert told[-1].answer == "closed"
    assert values(cow) == {"rival"}
    assert not left_of(cow, caught.value.facts["ours"]["instant"])


@pytest.mark.parametrize("theirs", ["direct", "server"])
def test_the_reply_to_a_task_carries_the_conflict_that_the_driver_found(
    spark: SparkSession, cow: Path, monkeypatch: pytest.MonkeyPatch, theirs: str
) -> None:
    told: list[Any] = []
    announce = batches.MarkerBatches.announce

    async def once_it_is_found(self: batches.MarkerBatches, markers: Any) -> Any:
        while (verdict := await announce(self, markers)) == STORED:
            await asyncio.sleep(0.05)
        told.append(verdict)
        return verdict

    monkeypatch.setattr(batches.MarkerBatches, "announce", once_it_is_found)
    ahead = opened(cow, markers=theirs)
    rival = HeldWrite(lambda: ahead.upsert(rows("theirs"))).run_to(Stop.WRITTEN)
    early = EarlyDetection(strategy="async_server", period_ms=200)
    with pytest.raises(EarlyConflictError) as caught:
        opened(cow, early_detection=early).upsert(frame(spark, "ours"))
    facts = caught.value.facts
    assert (facts["strategy"], facts["theirs"]["instant"]) == ("async_server", rival.requested)
    assert told[0].answer == "conflict"
    assert not left_of(cow, facts["ours"]["instant"])
    rival.finish()
    assert values(cow) == {"theirs"}


def test_tasks_may_look_for_rivals_before_they_ask_the_service(
    spark: SparkSession, cow: Path
) -> None:
    ahead = opened(cow)
    rival = HeldWrite(lambda: ahead.upsert(rows("theirs"))).run_to(Stop.WRITTEN)
    with pytest.raises(EarlyConflictError) as caught:
        opened(cow, early_detection=EarlyDetection(strategy="simple_direct")).upsert(
            frame(spark, "ours")
        )
    ours = caught.value.facts["ours"]["instant"]
    assert not list((cow / ".hoodie" / ".temp" / ours).glob("*"))
    rival.finish()
    assert values(cow) == {"theirs"}


def test_a_port_that_is_taken_leaves_direct_markers_and_a_warning(
    spark: SparkSession, path: Path, between: Between
) -> None:
    seen = MarkerFolder(path)
    between(seen.look)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        service = pyhudi.MarkerService(port=taken.getsockname()[1])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", MarkerServiceWarning)
            opened(path, marker_service=service).upsert(frame(spark, "1"))
    assert [each.category for each in caught] == [MarkerServiceWarning]
    assert "cannot listen" in str(caught[0].message)
    assert values(path) == {"1"}
    assert not seen.lists
    assert seen.direct
