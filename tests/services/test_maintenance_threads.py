"""Services that come with each write: when they run, on whose account, and what a failure costs."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import pyhudi
from memory_tables import MemoryTable
from opened_tables import table_on
from pyhudi.api.table import Table
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.progress import Listener
from pyhudi.services import maintenance as upkeep_module
from pyhudi.services.archiving.archive_files import ArchiveFiles, Snapshot
from pyhudi.services.compaction import run as table_compaction
from pyhudi.services.compaction.merge_slice import compact_slice
from pyhudi.services.compaction.run import LocalMerge
from pyhudi.session.session import TableSession

SCHEMA = pa.schema([("id", pa.string()), ("at", pa.int64()), ("v", pa.string())])
#: Each commit has a compaction: what it follows, and a log of its own.
EAGER = pyhudi.Upkeep(
    compaction=pyhudi.CompactionPolicy(trigger_delta_commits=1), clean=None, archive=None
)
PATIENCE = 30.0


def rows(at: int) -> pa.Table:
    return pa.table({"id": ["a", f"k{at}"], "at": [at, at], "v": [f"v{at}"] * 2}, schema=SCHEMA)


def opened(upkeep: pyhudi.Upkeep = EAGER) -> Table:
    memory = MemoryTable(SCHEMA, ordering="at", buckets=SimpleBuckets(1))
    return table_on(memory.storage, memory.world("a"), upkeep=upkeep)


class Held:
    """A merge of logs that rests in the middle until it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()

    def __call__(self, *arguments: Any) -> Any:
        self.begun.set()
        assert self.let_go.wait(PATIENCE)
        return compact_slice(*arguments)


WRITES: dict[str, Callable[[Table], object]] = {
    "upsert": lambda table: table.upsert(rows(2)),
    "delete": lambda table: table.delete("id = 'k1'"),
    "update": lambda table: table.update(
        pa.table({"id": ["a"], "v": ["new"]}), columns=["v"]
    ),
}  # fmt: skip


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    with patch.object(table_compaction, "compact_slice", held):
        yield held
        held.let_go.set()


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_another_thread_writes_while_a_compaction_that_follows_a_write_merges(
    held: Held, write: Callable[[Table], object]
) -> None:
    table = opened(pyhudi.Upkeep(compaction=None, clean=None, archive=None))
    table.upsert(rows(1))
    table = Table(table._loader, table._opening, EAGER)
    first = threading.Thread(target=write, args=(table,))
    first.start()
    assert held.begun.wait(PATIENCE)
    second = threading.Thread(target=table.upsert, args=(rows(3),))
    second.start()
    second.join(PATIENCE)
    is_stuck = second.is_alive()
    held.let_go.set()
    first.join(PATIENCE)
    second.join(PATIENCE)
    assert not is_stuck, "it waited for the other thread's compaction"
    found = table.read(columns=["id"]).to_arrow().column("id").to_pylist()
    assert {"a", "k3"} <= set(found)
    actions = table.inspect.timeline().column("began_as").to_pylist()
    assert "compaction" in actions


def test_another_thread_writes_while_archive_files_are_merged() -> None:
    table = opened(pyhudi.Upkeep(compaction=None, clean=None, archive=None))
    for at in range(1, 6):
        table.upsert(rows(at))
    table._opening.world.sleep_ms(60_000)
    begun, let_go, merge = threading.Event(), threading.Event(), ArchiveFiles.merge

    def held(files: ArchiveFiles, snapshot: Snapshot) -> tuple[Snapshot, int]:
        begun.set()
        assert let_go.wait(PATIENCE)
        return merge(files, snapshot)

    policy = pyhudi.ArchivePolicy(
        keep_min=1, keep_max=2, delta_commits=0, grace_ms=0, merge_files=2, file_instants=1
    )
    with patch.object(ArchiveFiles, "merge", held):
        first = threading.Thread(target=table.services.archive, args=(policy,))
        first.start()
        assert begun.wait(PATIENCE)
        second = threading.Thread(target=table.upsert, args=(rows(9),))
        second.start()
        second.join(PATIENCE)
        is_stuck = second.is_alive()
        let_go.set()
        first.join(PATIENCE)
        second.join(PATIENCE)
    assert not is_stuck, "it waited for the other thread's archiving"
    assert {"k1", "k9"} <= set(table.read(columns=["id"]).to_arrow()["id"].to_pylist())


def merged_here(session: TableSession, spark: Any, listener: Listener | None) -> LocalMerge:
    """Whatever the Spark session is."""
    return LocalMerge(session, listener)


def test_after_a_write_of_spark_its_session_compacts() -> None:
    pytest.importorskip("pyspark")
    table = opened()
    session = object()  # nothing is found, so Spark is asked for nothing
    with patch("pyhudi.api.table.merge_in", side_effect=merged_here) as merge:
        table.delete("id = 'nobody'", spark=session)
        table._opening.world.sleep_ms(3_600_000)  # nothing was to be compacted, and that rests
        table.upsert(rows(1))
    assert [call.args[1] for call in merge.call_args_list] == [session, None]


def test_after_a_frame_of_spark_its_session_compacts() -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql import DataFrame
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    from pyhudi.spark.write import SparkExecutor

    class Frame(DataFrame):
        """A frame that has no Spark behind it."""

        sparkSession = object()  # type: ignore[assignment]  # noqa: N815  # as Spark calls it
        columns = SCHEMA.names
        schema = StructType(
            [
                StructField("id", StringType()),
                StructField("at", LongType()),
                StructField("v", StringType()),
            ]
        )

        def __new__(cls) -> Frame:
            return object.__new__(cls)

        def __init__(self) -> None:
            """It holds nothing."""

    table = opened()
    with (
        patch("pyhudi.spark.write.routed"),
        patch.object(SparkExecutor, "_results", return_value=[]) as job,
        patch("pyhudi.api.table.merge_in", side_effect=merged_here) as merge,
    ):
        result = table.upsert(Frame())
    assert job.call_count == 1
    assert result.rows == 0
    assert [call.args[1] for call in merge.call_args_list] == [Frame.sparkSession]


def failing(*_: object, **__: object) -> None:
    raise pyhudi.UnavailableError("no compaction", why="it rains", next_step="Wait")


def test_a_warning_that_is_raised_names_the_write_that_is_complete() -> None:
    table = opened()
    with patch.object(upkeep_module, "compact", failing), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(pyhudi.UpkeepWarning, match="no compaction") as raised:
            table.upsert(rows(1))
    [written] = [w for w in table.inspect.writers().to_pylist() if w["rows"]]
    assert written["instant"] in str(raised.value)
    assert written["completed"] in str(raised.value)


@pytest.mark.parametrize("given", [1, {"clean": None}, pyhudi.CleanPolicy()], ids=repr)
def test_what_is_no_upkeep_is_refused_before_anything_is_opened_or_made(
    given: Any, tmp_path: Path
) -> None:
    make: dict[str, Any] = {"record_key": "id", "buckets": SimpleBuckets(1)}
    with pytest.raises(pyhudi.InvalidRequestError, match=r"upkeep=pyhudi\.Upkeep\(\)"):
        pyhudi.create_table(tmp_path / "t", SCHEMA, upkeep=given, **make)
    assert not (tmp_path / "t").exists()
    table = pyhudi.create_table(tmp_path / "t", SCHEMA, **make)
    with pytest.raises(pyhudi.InvalidRequestError, match=r"upkeep=pyhudi\.Upkeep\(\)"):
        pyhudi.open_table(table.uri, upkeep=given)
    with pytest.raises(pyhudi.InvalidRequestError, match=r"upkeep=pyhudi\.Upkeep\(\)"):
        table.services.run(given)


def test_a_table_may_be_made_with_its_upkeep(tmp_path: Path) -> None:
    for at in (1, 2):
        table = pyhudi.create_table(
            tmp_path / "t",
            SCHEMA,
            record_key="id",
            ordering="at",
            buckets=SimpleBuckets(1),
            upkeep=EAGER,
            exist_ok=True,
        )
        table.upsert(rows(at))
    actions = table.inspect.timeline().column("began_as").to_pylist()
    assert actions.count("compaction") == 2
