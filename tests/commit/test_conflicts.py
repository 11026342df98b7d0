"""Writers that meet: who wins, what the loser is told, and what of it stays in the table."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import FaultyStorage
from memory_tables import TIMELINE, MemoryTable
from opened_tables import table_on
from pyhudi.api.table import Table
from pyhudi.commit.conflict_notes import CONFLICT_FOLDER
from pyhudi.commit.transaction import LOOK_AROUND_PAUSE_MS
from pyhudi.commit.validation import LOOK_AROUND_MS
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.commit_metadata import decode_inflight_commit
from pyhudi.format.timeline.writer_identity import WRITER_KEY, WriterIdentity, parse_writer
from pyhudi.settings import WriteSettings
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.instant_time import clock_time
from pyhudi.world import World

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("v", pa.string())])


def rows(v: str, *ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "v": [v] * len(ids)}, schema=SCHEMA)


def made(**definition: Any) -> MemoryTable:
    """No ordering: the last commit wins, and writers of one bucket conflict."""
    return MemoryTable(SCHEMA, **{"buckets": pyhudi.SimpleBuckets(1), **definition})


class Meddled(FaultyStorage):
    """Lets something happen once, before the first data file with this text in its name."""

    def __init__(self, table: MemoryTable, text: str, meddle: Callable[[], object]) -> None:
        super().__init__(table.storage)
        self._text = text
        self._meddle: Callable[[], object] | None = meddle

    def _before(self, path: str) -> None:
        meddle = self._meddle
        if meddle is not None and self._text in path and not path.startswith(".hoodie"):
            self._meddle = None
            meddle()

    def create(self, path: str, data: bytes) -> bool:
        self._before(path)
        return super().create(path, data)

    def create_from(self, path: str, chunks: Any) -> int | None:
        self._before(path)
        return super().create_from(path, chunks)


def meddled(
    table: MemoryTable, meddle: Callable[[], object], *, at: str = ".log.", **settings: Any
) -> Table:
    """A writer beside whose write something else happens: once it has begun."""
    storage = Meddled(table, at, meddle)
    world = replace(table.world("b"), host="etl-2", user="ben", process=8, program="join.py")
    return opened(storage, world, **settings)


def opened(storage: Storage, world: World, **settings: Any) -> Table:
    return table_on(storage, world, WriteSettings(**settings))


def content(table: MemoryTable) -> dict[str, str]:
    found = table.table().read(columns=["id", "v"]).to_arrow().to_pylist()
    return {row["id"]: row["v"] for row in found}


# ---- a commit that is repeated without its files


class Overlapping:
    """A write that began before ours, and completes while ours is under way."""

    def __init__(self, table: MemoryTable, given: pa.Table) -> None:
        self._begun, self._go_on = threading.Event(), threading.Event()
        writer = meddled(table, self._pause, job="early")
        self.result: pyhudi.WriteResult | None = None

        def write() -> None:
            self.result = writer.upsert(given)

        self._thread = threading.Thread(target=write)
        self._thread.start()
        assert self._begun.wait(60)

    def _pause(self) -> None:
        self._begun.set()
        assert self._go_on.wait(60)

    def complete(self) -> None:
        self._go_on.set()
        self._thread.join(60)
        assert self.result is not None


def test_logs_that_lie_behind_the_others_already_are_committed_as_they_are() -> None:
    table = made()
    table.table().upsert(rows("0", "a"))
    early = Overlapping(table, rows("early", "a", "b"))
    late = meddled(table, early.complete)
    result = late.upsert(rows("late", "a"))
    assert early.result is not None
    assert early.result.instant < result.instant
    assert early.result.completed < result.completed
    assert (result.recommits, result.retries) == (1, 0)
    assert content(table) == {"a": "late", "b": "early"}
    assert table.table().inspect.conflicts().num_rows == 0


def test_without_retries_the_same_is_a_conflict() -> None:
    table = made()
    table.table().upsert(rows("0", "a"))
    early = Overlapping(table, rows("early", "a"))
    with pytest.raises(pyhudi.ConflictError) as caught:
        meddled(table, early.complete, conflict_retries=0).upsert(rows("late", "a"))
    assert caught.value.facts["retry"] == "write"
    assert caught.value.facts["theirs"]["job"] == "early"
    assert content(table) == {"a": "early"}


def test_logs_that_readers_would_put_before_the_others_are_written_anew() -> None:
    """The other began after us, so readers put its logs behind ours, whoever completes first."""
    table = made()
    table.table().upsert(rows("0", "a"))
    result = meddled(table, lambda: table.table("c").upsert(rows("c", "a"))).upsert(rows("b", "a"))
    assert (result.recommits, result.retries) == (0, 1)
    assert content(table) == {"a": "b"}


def test_what_depends_on_rows_that_were_read_is_never_just_committed_again() -> None:
    table = made()
    table.table().upsert(rows("0", "a"))
    early = Overlapping(table, rows("early", "a"))
    late = meddled(table, early.complete)
    result = late.delete("v = '0'")
    assert (result.recommits, result.retries, result.deletes) == (0, 1, 0)
    assert content(table) == {"a": "early"}


# ---- what the loser is told


def test_the_loser_is_told_who_won_where_and_what_it_cost() -> None:
    table = made(table_type=TableType.COPY_ON_WRITE)
    world = replace(table.world("a"), host="etl-1", user="ada", process=7)
    winner = opened(table.storage, world, job="nightly load")
    winner.upsert(rows("0", "a"))

    def meanwhile() -> None:
        winner.upsert(rows("1", "a", "c"))
        table.clock.sleep(2_500)

    loser = meddled(table, meanwhile, at=".parquet", conflict_retries=0)
    with pytest.raises(pyhudi.ConflictError) as caught:
        loser.upsert(rows("2", "a", "b"))
    facts = caught.value.facts
    assert facts["rule"] == "same_file_group"
    assert facts["ours"]["job"] == "join.py"
    assert (facts["ours"]["host"], facts["ours"]["user"], facts["ours"]["process"]) == (
        "etl-2",
        "ben",
        8,
    )
    assert facts["theirs"]["job"] == "nightly load"
    assert [facts["theirs"][name] for name in ("host", "user", "process")] == ["etl-1", "ada", 7]
    assert facts["keys"] == ["a"]
    assert (facts["partition"], facts["bucket"]) == ("", 0)
    assert facts["lost"]["rows"] == 2
    assert facts["lost"]["files"] == 1
    assert facts["lost"]["bytes"] > 0
    assert 2.5 <= facts["lost"]["seconds"] < 10
    text = str(caught.value)
    for part in (
        "nightly load",
        facts["theirs"]["instant"],
        facts["file_group"],
        "'a'",
        "bucket 0",
    ):
        assert part in text
    assert json.loads(json.dumps(facts)) == facts
    assert pickle.loads(pickle.dumps(caught.value)).facts == facts
    assert content(table) == {"a": "1", "c": "1"}


def test_who_lost_to_whom_stays_in_the_table() -> None:
    table = made(table_type=TableType.COPY_ON_WRITE)
    winner = table.table("a", job="nightly load")
    winner.upsert(rows("0", "a"))
    loser = meddled(table, lambda: winner.upsert(rows("1", "a")), at=".parquet")
    result = loser.upsert(rows("2", "a"))  # its second attempt
    assert result.retries == 1
    found = table.table().inspect.conflicts().to_pylist()
    assert [(r["job"], r["their_job"], r["rule"], r["keys"]) for r in found] == [
        ("join.py", "nightly load", "same_file_group", ["a"])
    ]
    assert found[0]["instant"] < found[0]["lost_to"] < result.instant


def test_notes_that_make_no_sense_are_passed_over() -> None:
    table = made()
    instant = "20260101000000000"
    for number, data in enumerate([b"", b"[", b"[]", b"7", b"{" * 100_000, b"x" * 70_000]):
        table.storage.create(f"{CONFLICT_FOLDER}/{int(instant) + number}.json", data)
    table.storage.create(f"{CONFLICT_FOLDER}/notes.json", b"{}")
    odd = {
        "ours": {"job": 5},
        "theirs": [],
        "keys": 7,
        "bucket": True,
        "lost": {"rows": "many", "bytes": 2**70},
    }
    table.storage.create(f"{CONFLICT_FOLDER}/{int(instant) + 99}.json", json.dumps(odd).encode())
    found = table.table().inspect.conflicts().to_pylist()
    assert len(found) == 1
    assert set(found[0].values()) == {None}


def test_half_a_character_in_a_note_is_shown_somehow() -> None:
    table = made()
    note = b'{"ours": {"job": "\\ud800"}, "keys": ["\\udfff"]}'
    table.storage.create(f"{CONFLICT_FOLDER}/20260101000000000.json", note)
    assert table.table().inspect.conflicts().to_pylist()[0]["job"] == "?"


# ---- who writes


def test_a_write_tells_who_makes_it_while_it_runs_and_afterwards() -> None:
    table = made()
    seen: list[list[dict[str, Any]]] = []
    other = table.table("other")

    def look() -> None:
        seen.append(other.inspect.writers().to_pylist())

    result = meddled(table, look, job="orders", priority=3).upsert(rows("1", "a"))
    running = seen[0][0]
    assert (running["job"], running["priority"], running["completed"]) == ("orders", 3, None)
    assert running["instant"] == result.instant
    assert running["last_sign"] is not None
    done = other.inspect.writers(limit=1).to_pylist()
    assert [(r["instant"], r["completed"], r["job"], r["rows"]) for r in done] == [
        (result.instant, result.completed, "orders", 1)
    ]
    assert done[0]["last_sign"] is None


def test_an_inflight_file_says_who_writes() -> None:
    table = made()
    seen: list[WriterIdentity] = []

    def look() -> None:
        name = next(n for n in table.pending() if n.endswith(".inflight"))
        data = table.storage.read(f"{TIMELINE}/{name}", 0, None)
        metadata = decode_inflight_commit(data, name)
        assert metadata is not None
        seen.append(parse_writer(metadata.extra_metadata))

    meddled(table, look).upsert(rows("1", "a"))
    assert seen == [WriterIdentity("join.py", "etl-2", "ben", 8, 0)]


@pytest.mark.parametrize(
    "text",
    ["", "[", "[]", "null", '"x"', '{"job": 7}', '{"priority": -1}', '{"priority": true}',
     '{"priority": 101}', '{"process": 1e9}', '{"host": null}', "x" * 5_000, "[" * 3_000],
)  # fmt: skip
def test_an_identity_that_makes_no_sense_is_an_unknown_one(text: str) -> None:
    assert parse_writer({WRITER_KEY: text}) == WriterIdentity()


def test_an_identity_is_one_short_line() -> None:
    found = parse_writer({WRITER_KEY: json.dumps({"job": "a\x1b[2J\nb" + "c" * 500, "host": "h"})})
    assert found.job == "a[2Jb" + "c" * 195
    assert parse_writer({WRITER_KEY: found.text}) == found


# ---- priority


def test_a_write_yields_to_one_of_higher_priority_that_is_under_way() -> None:
    table = made()
    table.table().upsert(rows("0", "a"))
    low = table.table("low", conflict_retries=0)
    told: list[pyhudi.ConflictError] = []

    def meanwhile() -> None:
        with pytest.raises(pyhudi.ConflictError) as caught:
            low.upsert(rows("low", "a"))
        told.append(caught.value)

    # By then it has announced its file with a marker.
    meddled(table, meanwhile, job="urgent", priority=5).upsert(rows("high", "a"))
    assert told[0].facts["rule"] == "priority"
    assert told[0].facts["retry"] == "later"
    assert told[0].facts["theirs"]["job"] == "urgent"
    assert content(table) == {"a": "high"}
    low.upsert(rows("low", "a"))
    assert content(table) == {"a": "low"}


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_write_that_waits_for_another_goes_on_with_the_lock_that_the_table_got_meanwhile(
    nth: int,
) -> None:
    """In one of its naps, or between its looks at the lock and at the log."""
    table = made()
    table.table().upsert(rows("0", "a"))
    waits = Waiting(table, nth)
    low = table_on(waits, waits.world, SETTINGS)
    results: list[pyhudi.WriteResult] = []

    def meanwhile() -> None:
        results.append(low.upsert(rows("low", "b")))

    # It was given up while it stood here.
    with pytest.raises(pyhudi.ConflictError):
        meddled(table, meanwhile, priority=5, conflict_retries=0).upsert(rows("high", "a"))
    assert waits.has_changed
    assert results[0].retries in (1, 2)
    assert content(table) == {"a": "0", "b": "low"}


SETTINGS = WriteSettings()


class Waiting(FaultyStorage):
    """Gives the table a lock before the nth thing that its process does after its first nap."""

    def __init__(self, table: MemoryTable, nth: int) -> None:
        super().__init__(table.storage)
        self._table, self._left = table, nth
        self._naps = self.has_changed = False
        self.world = replace(table.world("low"), sleep_ms=self._nap)

    def _nap(self, ms: int) -> None:
        self._naps = True
        self._step()
        self._table.clock.sleep(ms)

    def _step(self) -> None:
        self._left -= self._naps
        if self._left == 0:
            self._left = -1
            self._table.table("admin").alter.use_lock("file")
            self.has_changed = True

    def _run(self, name: str, path: str, perform: Callable[[Any], Any]) -> Any:
        self._step()
        return super()._run(name, path, perform)


def test_where_writers_do_not_conflict_no_priority_counts() -> None:
    schema = pa.schema([*SCHEMA, ("ts", pa.int64())])
    table = MemoryTable(schema, buckets=pyhudi.SimpleBuckets(1), ordering="ts")

    def timed(v: str, ts: int) -> pa.Table:
        return pa.table({"id": ["a"], "v": [v], "ts": [ts]}, schema=schema)

    table.table().upsert(timed("0", 0))
    low = table.table("low", conflict_retries=0)
    meddled(table, lambda: low.upsert(timed("low", 2)), priority=5).upsert(timed("high", 1))
    assert content(table) == {"a": "low"}


# ---- rows that are only in the write's own files


@pytest.mark.parametrize("write_id", [None, "nightly 1"])
def test_a_stream_that_met_a_conflict_is_written_anew_from_its_own_files(
    write_id: str | None,
) -> None:
    table = made(buckets=pyhudi.SimpleBuckets(2))
    table.table().upsert(rows("0", "a"))
    taken: list[str] = []

    def stream() -> Iterator[pa.RecordBatch]:
        for number in range(20):
            taken.append(str(number))
            yield from rows(f"stream {number}", "a", f"k{number}").to_batches()

    reader = pa.RecordBatchReader.from_batches(SCHEMA, stream())
    other = table.table("other")
    writer = meddled(
        table, lambda: other.upsert(rows("other", "a", "b")), buffer_bytes_max=100, job="stream"
    )
    result = writer.upsert(reader, write_id=write_id)
    assert (result.retries, len(taken)) == (1, 20)
    if write_id is not None:
        assert writer.upsert(rows("again", "a"), write_id=write_id).instant == result.instant
    expected = {f"k{number}": f"stream {number}" for number in range(20)}
    assert content(table) == {**expected, "a": "stream 19", "b": "other"}
    assert table.pending() == []
    assert len(other.inspect.conflicts()) == 1
    assert writer.services.repair().rolled_back == ()


def test_a_stream_that_keeps_losing_leaves_nothing_behind() -> None:
    table = made()
    table.table().upsert(rows("0", "a"))
    other = table.table("other")

    class Always(Meddled):
        def _before(self, path: str) -> None:
            if ".log." in path and not path.startswith(".hoodie"):
                other.upsert(rows("other", "a"))

    storage = Always(table, "", lambda: None)
    settings = WriteSettings(buffer_bytes_max=100, conflict_retries=2)
    loser = table_on(storage, table.world("b"), settings)
    batches = [b for n in range(9) for b in rows(str(n), "a", f"k{n}").to_batches()]
    with pytest.raises(pyhudi.ConflictError):
        loser.upsert(pa.RecordBatchReader.from_batches(SCHEMA, iter(batches)))
    assert content(table) == {"a": "other"}
    assert table.pending() == []
    assert len(other.inspect.conflicts()) == 3


# ---- a writer of Hudi's that has begun and not yet looked around


def shared_table() -> MemoryTable:
    return made(lock=LockKind.FILE)


def java_requested(table: MemoryTable) -> str:
    """Hudi writes this file, then looks at the timeline, and then writes its inflight file."""
    requested = clock_time(table.clock.ms, UTC)
    table.storage.create(f"{TIMELINE}/{requested}.deltacommit.requested", b"")
    table.storage.write(f".hoodie/.heartbeat/{requested}", b"")
    return requested


def test_a_write_waits_for_an_earlier_one_of_hudi_that_would_not_see_it() -> None:
    table = shared_table()
    table.table().upsert(rows("0", "a"))
    requested = java_requested(table)
    inflight = f"{TIMELINE}/{requested}.deltacommit.inflight"
    waits: list[int] = []
    world = table.world("b")

    def sleep_ms(ms: int) -> None:
        world.sleep_ms(ms)
        if ms == LOOK_AROUND_PAUSE_MS:
            waits.append(ms)
        if len(waits) == 5:
            table.storage.create(inflight, b"")

    opened = table_on(table.storage, replace(world, sleep_ms=sleep_ms), WriteSettings())
    assert opened.upsert(rows("1", "a")).retries == 0
    assert len(waits) == 5
    assert content(table) == {"a": "1"}


def test_nobody_waits_for_long_for_a_writer_of_hudi_that_died_at_its_beginning() -> None:
    table = shared_table()
    opened = table.table()
    opened.upsert(rows("0", "a"))
    java_requested(table)
    before = table.clock.ms
    opened.upsert(rows("1", "a"))
    waited = table.clock.ms - before
    assert LOOK_AROUND_MS <= waited < 2 * LOOK_AROUND_MS
    for number, later in enumerate([opened, table.table("another process")], start=2):
        before = table.clock.ms
        later.upsert(rows(str(number), "a"))
        assert table.clock.ms - before < LOOK_AROUND_MS / 2
    assert content(table) == {"a": "3"}


# ---- a check that cannot be made


def test_a_check_that_storage_does_not_answer_leaves_nothing_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyhudi.commit.proposals.INLINE_BYTES_MAX", 0)  # the log has no bytes of it
    table = made()
    table.table().upsert(rows("0", "a"))

    class Silent(Meddled):
        def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
            if path.endswith(".deltacommit") and silent:
                raise pyhudi.UnavailableError("no", why="no answer", next_step="Wait")
            return super().read(path, start, end)

    silent: list[str] = []

    def meanwhile() -> None:
        table.table("other").upsert(rows("other", "a"))
        silent.append("from now on")

    storage = Silent(table, ".log.", meanwhile)
    opened = table_on(storage, table.world("b"), WriteSettings())
    with pytest.raises(pyhudi.UnavailableError, match="could not be completed") as caught:
        opened.upsert(rows("1", "a"))
    assert not isinstance(caught.value, pyhudi.OutcomeUnknownError)
    assert content(table) == {"a": "other"}
    assert table.pending() == []
