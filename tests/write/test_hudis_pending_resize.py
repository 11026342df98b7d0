"""A table in which Hudi has planned a resize and written beside it.

pyhudi writes beside it as well, executes it, or cancels it. The table lies elsewhere than where
Hudi made it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pyhudi
from golden_tables import unpack
from opened_tables import session_on
from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import LogFileName, parse_data_file
from pyhudi.format.files.log_file import LogBlock, decode_blocks
from pyhudi.format.paths import file_name
from pyhudi.format.table.ring_file import RingFileName, ring_path
from pyhudi.format.timeline.commit_metadata import CommitMetadata
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.plan_files import (
    decode_requested_replace,
    encode_requested_replace,
)
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.world import real_world

NAME = "mor_consistent_hash_pending"
C = "20261115203141100"  # Hudi's plan
W = "20261115203142317"  # what Hudi wrote beside it
INPUTS = {"7615f770-1c61-323c-bfc4-d5a37c3f2e39-0", "a9ce6eae-46a4-38bf-9258-2a07d0a9b6bb-0"}
CHILDREN = {
    "5868c26e-8d81-4057-87da-1bc1a784ff85-0",
    "cc060322-2df7-40ef-81ba-5dcf21f1f756-0",
    "97fc6f16-da84-4912-88ad-8ef9cea2bb77-0",
    "f7b7d932-f3a2-4771-9bf4-37e80aada98e-0",
}


class Golden:
    """The table, as processes have it open that take this lock."""

    def __init__(self, folder: Path, lock: str | None) -> None:
        self.path = unpack(NAME, folder)
        self._options: dict[str, Any] = {} if lock is None else {"lock": lock}
        self.first = self.rows()

    def table(self, **settings: Any) -> pyhudi.Table:
        asked = pyhudi.WriteSettings(**settings)
        return pyhudi.open_table(self.path, write_settings=asked, **self._options)

    @property
    def storage(self) -> Storage:
        return open_storage(str(self.path))

    def rows(self) -> pa.Table:
        """What readers see; every key once."""
        found = pyhudi.open_table(self.path).read().to_arrow().sort_by("id")
        assert len(set(found["id"].to_pylist())) == found.num_rows
        return found

    def later(self, by: int = 100) -> pa.Table:
        """The first rows with another version and name."""
        ver, name = (self.first.schema.get_field_index(c) for c in ("ver", "name"))
        names = pc.binary_join_element_wise(self.first["name"], pa.scalar(str(by)), "+")
        rows = self.first.set_column(ver, "ver", pc.add(self.first["ver"], by))
        return rows.set_column(name, "name", names)

    def logs(self, requested: str) -> dict[str, tuple[str, list[str]]]:
        """Path → file id and instants of blocks, of the logs that an instant names."""
        found = {}
        for stat in self.storage.list_folder("").objects:
            name = parse_data_file(file_name(stat.path))
            if isinstance(name, LogFileName) and name.requested == requested:
                found[stat.path] = (
                    name.file_id,
                    [b.instant_time or "" for b in self.blocks(stat.path)],
                )
        return found

    def blocks(self, path: str) -> list[LogBlock]:
        data = self.storage.read(path)
        blocks = decode_blocks(lambda start, end: data[start:end], len(data), path)
        return [block for block in blocks if isinstance(block, LogBlock)]

    def metadata(self, requested: str) -> CommitMetadata:
        session = session_on(self.storage, real_world())
        return session.loader.metadata(session.log.refresh().completed[requested])


@pytest.fixture(params=[None, "file"], ids=["no lock", "Hudi's lock"])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return Golden(tmp_path, request.param)


def test_a_write_puts_its_rows_into_inputs_and_children_as_hudi_does(golden: Golden) -> None:
    hudis = golden.logs(C)
    result = golden.table().upsert(golden.later())
    assert golden.rows() == golden.later()
    assert {file_id for file_id, _ in golden.logs(result.instant).values()} == INPUTS
    made = {path: one for path, one in golden.logs(C).items() if path not in hudis}
    assert {file_id for file_id, _ in made.values()} == CHILDREN
    assert {instant for _, blocks in made.values() for instant in blocks} == {result.instant}
    stats = golden.metadata(result.instant).stats
    assert {stat.data_path for stat in stats} == {*golden.logs(result.instant), *made}
    theirs = next(s for s in golden.metadata(W).stats if s.data_path in hudis)
    for stat in stats:
        assert stat.prev_commit == result.instant
        assert (stat.log_files, stat.base_file) == ((file_name(stat.data_path),), "")
        assert (theirs.prev_commit, theirs.base_file) == (W, "")
    rows = Counter(dict.fromkeys((False, True), 0))
    for stat in stats:
        rows[stat.file_id in CHILDREN] += stat.num_writes or 0
    assert rows == {False: golden.first.num_rows, True: golden.first.num_rows}
    assert (result.rows, result.files) == (golden.first.num_rows, 2), "each row counts once"
    assert not list(golden.storage.list(f".hoodie/.temp/{result.instant}"))


def test_changes_and_states_of_the_past_show_each_row_once(golden: Golden) -> None:
    table = golden.table()
    before = table.changes(since="2000-01-01").until
    first = table.upsert(golden.later())
    second = table.upsert(golden.later(200).slice(0, 5))
    states = {done.completed: golden.rows() for done in (second,)}
    ranges = {(before, first.completed): golden.later(), (first.completed, second.completed): 5}

    def check() -> None:
        for (since, until), rows in ranges.items():
            found = pyhudi.open_table(golden.path).changes(since=since, until=until).to_arrow()
            expected = rows if isinstance(rows, int) else rows.num_rows
            assert found.num_rows == len(set(found["id"].to_pylist())) == expected
        for time, state in states.items():
            assert pyhudi.open_table(golden.path).read(as_of=time).to_arrow().sort_by("id") == state

    check()
    table.services.resize()
    check()


def test_deletes_and_updates_are_written_twice_too(golden: Golden) -> None:
    table = golden.table()
    table.update(golden.later(7).select(["id", "name"]).slice(0, 4), columns=["name"])
    table.delete(golden.first.slice(4, 2).select(["id"]))
    expected = golden.rows()
    assert expected.num_rows == golden.first.num_rows - 2
    table.services.resize()
    assert golden.rows() == expected


def test_the_plan_is_executed_and_the_table_goes_on(golden: Golden) -> None:
    table = golden.table()
    table.upsert(golden.later())
    done = table.services.resize()
    [result] = done.results
    assert result.instant == C
    assert golden.rows() == golden.later()
    assert table.services.verify().findings == ()
    table.upsert(golden.later(200).slice(0, 5))
    table.delete(golden.first.slice(9, 2).select(["id"]))
    expected = golden.rows()
    table.services.compact()
    table.services.clean(CleanPolicy.commits(1))
    assert golden.rows() == expected
    assert table.services.verify().findings == ()
    files = [parse_data_file(file_name(s.path)) for s in golden.storage.list_folder("").objects]
    assert not {name.file_id for name in files if name} & INPUTS, "what was replaced is cleaned"


def test_the_plan_is_cancelled_and_nothing_that_it_named_stays(golden: Golden) -> None:
    table = golden.table()
    table.upsert(golden.later())
    # A Hudi that tried to execute it leaves the ring, and a base file of its own.
    ring = ring_path("", RingFileName(InstantTime(C)))
    golden.storage.create(ring, b"{}")
    golden.storage.create(f"{min(CHILDREN)}_1-2-3_{C}.parquet", b"")
    table.services.cancel_resize(C)
    named = {s.path for s in golden.storage.list_folder("").objects if C in s.path}
    assert named == set()
    assert golden.storage.stat(ring) is None
    assert golden.rows() == golden.later()
    table.upsert(golden.later(200))
    table.services.compact()
    table.services.clean(CleanPolicy.commits(1))
    assert golden.rows() == golden.later(200)
    assert table.services.verify().findings == ()


def test_what_a_dead_executor_of_hudi_left_is_replaced(golden: Golden) -> None:
    """It writes the ring first, and a base file has another name on every run."""
    ring = ring_path("", RingFileName(InstantTime(C)))
    stray = f"{min(CHILDREN)}_1-2-3_{C}.parquet"
    golden.storage.create(ring, b"{}")
    golden.storage.create(stray, b"half a file")
    golden.table().services.resize()
    assert golden.storage.stat(stray) is None
    assert b"nodes" in golden.storage.read(ring)
    assert golden.rows() == golden.first
    assert golden.table().services.verify().findings == ()


def test_an_overwrite_cancels_the_plan(golden: Golden) -> None:
    golden.table().overwrite(golden.later(), partitions="all")
    assert golden.rows() == golden.later()
    assert not [s for s in golden.storage.list_folder("").objects if C in s.path]


def test_a_hudi_that_is_at_it_is_left_alone(tmp_path: Path) -> None:
    """It has no heartbeat: its inflight file was made a moment ago."""
    golden = Golden(tmp_path, "file")
    table = golden.table()
    table.upsert(golden.later(1))  # and records the lock
    golden.storage.create(f".hoodie/timeline/{C}.clustering.inflight", b"")
    assert golden.storage.stat(heartbeat_path(C)) is None
    assert table.services.resize().results == ()
    with pytest.raises(pyhudi.ConflictError, match="another process seems to execute it"):
        table.services.cancel_resize(C)
    with pytest.raises(pyhudi.ConflictError, match=C):
        table.overwrite(golden.later(2), partitions="all")
    table.upsert(golden.later(3))
    assert golden.rows() == golden.later(3)


def test_a_plan_whose_children_overlap_is_refused_and_nothing_is_rewritten(golden: Golden) -> None:
    path = f".hoodie/timeline/{C}.clustering.requested"
    request = decode_requested_replace(golden.storage.read(path), path)
    assert request is not None
    assert request.clustering_plan is not None
    groups = request.clustering_plan.input_groups or ()
    second = groups[1].extra_metadata or {}
    children = second["clustering.group.child.node"].replace("536870911", "1610612735")
    second["clustering.group.child.node"] = children  # type: ignore[index]
    golden.storage.write(path, encode_requested_replace(request, bytes(16)))
    before = {s.path: s.size for s in golden.storage.list_folder("").objects}
    table = golden.table()
    for deed in (lambda: table.upsert(golden.later()), table.services.resize):
        with pytest.raises(CorruptTableError, match="overlap") as caught:
            deed()
        assert caught.value.path == path
        assert {s.path: s.size for s in golden.storage.list_folder("").objects} == before
    table.services.cancel_resize(C)
    table.upsert(golden.later())
    assert golden.rows() == golden.later()
