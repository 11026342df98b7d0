"""Paths in a table that lead out of it: a read refuses them or never follows them.

Outside of each table lie canaries: sound files with rows that say so. Whatever a forged name or
path does, no answer holds such a row, and the canaries stay as they are, unread.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi
from fuzz.front_door import ROWS, Answer, answers
from fuzz.subjects import SCHEMA, commit, row
from handmade import SYNC, TIMELINE, HandmadeTable, at
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.format.table.properties import decode_properties, encode_properties
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    encode_replace_commit_metadata,
)
from pyhudi.storage.open import open_storage

CANARY = "canary"
BASE = f"f-1_0-1-0_{at(1)}.parquet"
LOG = f".f-1_{at(1)}.log.1_0-1-0"
AVRO = json.dumps(avro_record_schema(SCHEMA, "handmade"))


class World:
    """A table in a folder, and a whole second table beside it whose rows are canaries."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "lake" / "table"
        self.outside = folder / "lake" / "outside"
        self.made = _table(self.root, "f-0", "base")
        other = _table(self.outside, "f-1", CANARY)
        other.log(1, other.rows_block(1, [row("z", 9, CANARY)]), file_id="f-1")
        for name in (BASE, LOG):
            for place in (folder, folder / "lake"):
                (place / name).write_bytes((self.outside / name).read_bytes())
        self._before = self._canaries()

    def _canaries(self) -> list[tuple[str, bytes, int]]:
        """Every file outside of the table, with the time when it was last read.

        The kernel keeps that time only if the one before is a day old, and not everywhere.
        """
        found = []
        for place in sorted(self.root.parent.parent.rglob("*")):
            if place.is_file() and not place.is_relative_to(self.root):
                content = place.read_bytes()
                os.utime(place, ns=(1, 1_000_000_000))
                found.append((str(place), content, place.stat().st_atime_ns))
        return found

    def assert_untouched(self, found: dict[str, Answer]) -> None:
        times = [Path(path).stat().st_atime_ns for path, _, _ in self._before]
        assert times == [time for _, _, time in self._before], "a canary was read"
        assert self._canaries() == self._before, "a canary was changed"
        for answer in found.values():
            if isinstance(answer, pa.Table):
                assert CANARY not in str(answer.to_pylist())

    def answers(self) -> dict[str, Answer]:
        return answers(str(self.root), at(4))

    def commit_metadata(self, metadata: CommitMetadata) -> None:
        path = f"{TIMELINE}/{at(3)}_{at(4)}.replacecommit"
        self.made.storage.write(path, encode_replace_commit_metadata(metadata, SYNC))

    def set_property(self, key: str, value: str) -> None:
        path = ".hoodie/hoodie.properties"
        pairs = decode_properties(self.made.storage.read(path))
        self.made.storage.write(path, encode_properties({**pairs, key: value}))


def _table(folder: Path, file_id: str, value: str) -> HandmadeTable:
    made = HandmadeTable(open_storage(str(folder)), SCHEMA, ordering="ts")
    commit(made, 1, made.base(1, [row("a", 1, value)], file_id=file_id))
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_canaries_can_be_noticed(world: World) -> None:
    world.assert_untouched({"rows": pa.table({"v": ["base"]})})
    with pytest.raises(AssertionError):
        world.assert_untouched({"rows": pa.table({"v": [CANARY]})})
    (world.outside / BASE).write_bytes(b"changed")
    with pytest.raises(AssertionError):
        world.assert_untouched({})


#: Ways to say the folder beside the table; {there} is its absolute path.
CLIMBS = [
    *["../outside", "x/../../outside", "./../outside", "..", "../..", "{there}", "//{there}"],
    *["file://{there}", "file:{there}", "FILE:/{there}", "..\\outside", "..\0/outside", "x\n/.."],
    *["memory://outside", "s3://bucket/outside", "../outside/", "../outside/.", "%2e%2e/outside"],
    *["..%2Foutside", "%2e%2e%2foutside", "..%252foutside", "~/..", "x//../..", "\u2025/outside"],
]


def climbs(world: World) -> Iterator[str]:
    for climb in CLIMBS:
        yield climb.replace("{there}", str(world.outside))


@pytest.mark.parametrize("number", range(len(CLIMBS)), ids=lambda number: ascii(CLIMBS[number]))
@pytest.mark.parametrize("name", [BASE, LOG])
def test_write_stats_that_lead_outside_are_refused(world: World, number: int, name: str) -> None:
    folder = [*climbs(world)][number]
    for partition in (folder, ""):
        stat = WriteStat(file_id="f-1", path=f"{folder}/{name}", partition_path=partition)
        metadata = CommitMetadata(
            partition_to_write_stats={partition: (stat,)}, extra_metadata={"schema": AVRO}
        )
        world.commit_metadata(metadata)
        found = world.answers()
        world.assert_untouched(found)
        assert isinstance(found["changes"], pyhudi.HudiError)
        assert isinstance(found["read"], pyhudi.CorruptTableError)  # what it names is not there


@pytest.mark.parametrize("number", range(len(CLIMBS)), ids=lambda number: ascii(CLIMBS[number]))
def test_partitions_that_lead_outside_are_refused_or_empty_when_a_table_is_refreshed(
    world: World, number: int
) -> None:
    folder = [*climbs(world)][number]
    table = pyhudi.open_table(str(world.root))
    assert table.read().to_arrow().num_rows == 1
    world.commit_metadata(
        CommitMetadata(
            partition_to_write_stats={folder: ()},
            partition_to_replace_file_ids={folder: ("f-0", "f-1"), "../table": ("f-0",)},
            extra_metadata={"schema": AVRO},
        )
    )
    try:
        refreshed = table.read().to_arrow()
    except pyhudi.HudiError:
        refreshed = pa.table({})
    world.assert_untouched({"refreshed": refreshed})
    found = world.answers()
    world.assert_untouched(found)
    assert isinstance(found["read"], pa.Table)
    assert found["read"].num_rows == 1  # "../table" does not name a partition of this table


@pytest.mark.parametrize("number", range(len(CLIMBS)), ids=lambda number: ascii(CLIMBS[number]))
@pytest.mark.parametrize("key", ["hoodie.timeline.path", "hoodie.timeline.history.path"])
def test_folders_in_properties_that_lead_outside_are_refused_or_empty(
    world: World, number: int, key: str
) -> None:
    for ending in ("", "/.hoodie/timeline"):
        world.set_property(key, [*climbs(world)][number] + ending)
        found = world.answers()
        world.assert_untouched(found)


@pytest.mark.parametrize(
    "name",
    [
        *["../x.parquet", "/etc/passwd", f"../../../../outside/{BASE}", "..", "", "a/b.parquet"],
        *[f"{at(0)}_{at(1)}_../0.parquet", f"../{at(0)}_{at(1)}_0.parquet", "x\0.parquet"],
        *[f"{at(0)}_{at(1)}_0.parquet/../x", f"..\\{at(0)}_{at(1)}_0.parquet", "file:///x.parquet"],
    ],
)
def test_archive_files_that_lead_outside_are_refused(world: World, name: str) -> None:
    manifest = {"files": [{"fileName": name, "fileLen": 1}]}
    world.made.storage.write(f"{TIMELINE}/history/manifest_1", json.dumps(manifest).encode())
    world.made.storage.write(f"{TIMELINE}/history/_version_", b"1")
    found = world.answers()
    world.assert_untouched(found)
    assert isinstance(found["changes"], pyhudi.CorruptTableError)


@pytest.mark.parametrize("version", ["../1", "/1", "1/../../1", "-1", "1\0", "٣"])
def test_archive_versions_that_lead_outside_are_refused(world: World, version: str) -> None:
    world.made.storage.write(f"{TIMELINE}/history/_version_", version.encode())
    found = world.answers()
    world.assert_untouched(found)
    assert isinstance(found["changes"], pyhudi.CorruptTableError)


@pytest.mark.parametrize(
    "folder", ["%2e%2e", "..%2F", "%2e%2e%2foutside", "..%252foutside", "...", "~", "%00", "%"]
)
def test_an_encoded_folder_name_is_a_folder_of_that_name(world: World, folder: str) -> None:
    made = world.made
    world.set_property("hoodie.datasource.write.partitionpath.urlencode", "true")
    world.set_property("hoodie.table.partition.fields", "v")
    world.set_property("hoodie.table.keygenerator.type", "SIMPLE")
    commit(made, 3, made.base(3, [row("b", 1, "here")], partition=folder, file_id="f-2"))
    found = world.answers()
    world.assert_untouched(found)
    for verb in ROWS:
        answer = found[verb]
        assert isinstance(answer, pa.Table)
        assert answer.num_rows == 2


# ---- symbolic links


def _link(world: World, place: str, target: Path) -> None:
    path = world.root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        path.rename(path.with_name(path.name + ".moved"))
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(target)


LINKS = {
    "a partition": ("day", ""),
    "a deep partition": ("year/month/day", ""),
    "a base file": (BASE, BASE),
    "a log file": (LOG, LOG),
    "a base file in a partition": (f"day/{BASE}", BASE),
    "the timeline": (TIMELINE, TIMELINE),
    "the folder of the table's own files": (".hoodie", ".hoodie"),
    "the properties": (".hoodie/hoodie.properties", ".hoodie/hoodie.properties"),
    "a commit": (
        f"{TIMELINE}/{at(3)}_{at(4)}.deltacommit",
        f"{TIMELINE}/{at(1)}_{at(2)}.deltacommit",
    ),
    "a file that nobody reads": ("notes.txt", BASE),
}


@pytest.mark.parametrize(("place", "target"), LINKS.values(), ids=LINKS)
def test_a_symbolic_link_in_a_table_is_refused_and_not_followed(
    world: World, place: str, target: str
) -> None:
    _link(world, place, world.outside / target)
    found = world.answers()
    world.assert_untouched(found)
    assert {type(answer) for answer in found.values()} == {pyhudi.CorruptTableError}
    assert all("symbolic link" in str(answer) for answer in found.values())


def test_a_link_that_leads_back_into_the_table_counts_no_row_twice(world: World) -> None:
    _link(world, "again", world.root)
    assert isinstance(world.answers()["read"], pyhudi.CorruptTableError)


def test_a_table_may_be_opened_by_a_link_to_its_root(world: World, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(world.root)
    assert pyhudi.open_table(tmp_path / "link").read().to_arrow().num_rows == 1
