"""Changing a table's properties: atomically, past what a Hudi that died left behind."""

from __future__ import annotations

import itertools
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pyhudi
from faulty_storage import Effect, Fault, FaultyStorage
from golden_tables import GoldenTables
from pyhudi.errors import CorruptTableError, InvalidRequestError, UnavailableError
from pyhudi.format.table.properties import (
    decode_properties,
    encode_properties,
    table_checksum,
)
from pyhudi.read.load import load_config
from pyhudi.session.properties import (
    METADATA_TABLE,
    UPDATE_ATTEMPTS_MAX,
    switch_off_metadata_table,
    update_properties,
)
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.local_disk import LocalStorage
from pyhudi.storage.stores.memory import MemoryStorage
from seeded_world import seeded_world

PROPERTIES = ".hoodie/hoodie.properties"
BACKUP = ".hoodie/hoodie.properties.backup"
CHECKSUM = ".hoodie/.hoodie.properties.crc"
VALUES = {
    "hoodie.table.name": "orders",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "9",
    "hoodie.table.checksum": table_checksum("orders"),
    "somebody.elses": "key",
}
OLD = encode_properties(VALUES)


def stored(storage: Storage) -> dict[str, str]:
    return decode_properties(storage.read(PROPERTIES))


def with_mark(values: dict[str, str]) -> dict[str, str]:
    return {**values, "mark": "set"}


def marked(storage: Storage, seed: int = 0) -> None:
    update_properties(storage, with_mark, seeded_world(seed))


@pytest.fixture(params=["memory", "local"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    made: Storage = MemoryStorage(lambda: 0)
    if request.param == "local":
        made = LocalStorage(str(tmp_path / "table"))
    made.create(PROPERTIES, OLD)
    return made


def test_a_change_keeps_what_it_does_not_touch(storage: Storage) -> None:
    config = update_properties(storage, with_mark, seeded_world())
    assert stored(storage) == {**VALUES, "mark": "set"}
    assert config == load_config(storage)


def test_a_change_that_changes_nothing_writes_nothing(storage: Storage) -> None:
    counted = FaultyStorage(storage)
    update_properties(counted, lambda values: values, seeded_world())
    assert storage.read(PROPERTIES) == OLD
    assert {operation.name for operation in counted.trace} == {"read", "stat"}


def test_a_new_name_brings_a_new_checksum(storage: Storage) -> None:
    renamed = update_properties(
        storage, lambda values: {**values, "hoodie.table.name": "sales"}, seeded_world()
    )
    assert stored(storage)["hoodie.table.checksum"] == table_checksum("sales")
    assert renamed.name == load_config(storage).name == "sales"


def test_what_would_be_no_table_is_not_written(storage: Storage) -> None:
    with pytest.raises(CorruptTableError, match=r"hoodie\.table\.type"):
        update_properties(
            storage, lambda values: {**values, "hoodie.table.type": "NEITHER"}, seeded_world()
        )
    assert storage.read(PROPERTIES) == OLD


def test_where_there_is_no_table_there_is_nothing_to_change() -> None:
    with pytest.raises(InvalidRequestError, match="there is no Hudi table"):
        marked(MemoryStorage(lambda: 0))


def test_hadoops_checksum_is_gone_before_the_file_changes(storage: Storage) -> None:
    storage.create(CHECKSUM, b"crc\0, and sums")
    counted = FaultyStorage(storage)
    update_properties(counted, with_mark, seeded_world())
    assert storage.stat(CHECKSUM) is None
    changes = [o for o in counted.trace if o.name in ("delete", "replace")]
    assert [(o.name, o.path) for o in changes] == [("delete", CHECKSUM), ("replace", PROPERTIES)]


def test_changes_at_the_same_time_all_count(storage: Storage) -> None:
    def add(number: int) -> None:
        update_properties(storage, lambda v: {**v, f"key{number}": "x"}, seeded_world(number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
    assert {key for key in stored(storage) if key.startswith("key")} == {
        f"key{number}" for number in range(4)
    }


def test_a_change_that_others_overtake_for_ever_is_given_up(storage: Storage) -> None:
    turns = itertools.count()

    def overtaken(values: dict[str, str]) -> dict[str, str]:
        storage.write(PROPERTIES, encode_properties({**VALUES, "turn": str(next(turns))}))
        return {**values, "mark": "set"}

    with pytest.raises(UnavailableError, match=f"{UPDATE_ATTEMPTS_MAX} attempts"):
        update_properties(storage, overtaken, seeded_world())
    assert "mark" not in stored(storage)


def test_a_lost_reply_is_found_out_by_reading(storage: Storage) -> None:
    marked(FaultyStorage(storage, [Fault(Effect.LOSE_REPLY, "replace")]))
    assert stored(storage)["mark"] == "set"


def test_a_client_that_repeats_its_own_request_counts_once(storage: Storage) -> None:
    class Repeating(FaultyStorage):
        def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
            super().replace(path, data, etag=etag)
            return super().replace(path, data, etag=etag)

    counted = Repeating(storage)
    update_properties(counted, lambda v: {**v, "n": v.get("n", "") + "1"}, seeded_world())
    assert stored(storage)["n"] == "1"


# -- what Hudi leaves when it dies during a change of its own

# Name → the file and its backup as they were left; None is absent.
LEFT_BEHIND: dict[str, tuple[bytes | None, bytes | None]] = {
    "nothing": (OLD, None),
    "a backup": (OLD, OLD),
    "half a backup": (OLD, OLD[:40]),
    "a backup and no file": (None, OLD),
    "a backup and half a file": (OLD[:40], OLD),
    "a backup and an empty file": (b"", OLD),
}


def leave(storage: Storage, what: str) -> None:
    for path, data in zip((PROPERTIES, BACKUP), LEFT_BEHIND[what], strict=True):
        storage.delete(path)
        if data is not None:
            storage.create(path, data)


@pytest.mark.parametrize("left", LEFT_BEHIND)
def test_what_a_dead_hudi_left_is_put_right_first(storage: Storage, left: str) -> None:
    leave(storage, left)
    marked(storage)
    assert stored(storage) == {**VALUES, "mark": "set"}
    assert storage.stat(BACKUP) is None


def test_a_table_whose_properties_are_lost_is_not_made_up(storage: Storage) -> None:
    storage.write(PROPERTIES, b"")
    storage.write(BACKUP, b"")
    with pytest.raises(CorruptTableError):
        marked(storage)
    assert storage.read(PROPERTIES) == b""


@pytest.mark.parametrize("left", LEFT_BEHIND)
@pytest.mark.parametrize("lost_reply", [False, True])
def test_whoever_changes_properties_may_die_anywhere(left: str, lost_reply: bool) -> None:
    operations = 0
    while True:
        operations += 1
        storage = MemoryStorage(lambda: 0)
        leave(storage, left)
        plan = [Fault(Effect.FAIL, nth=operations + lost_reply, times=None)]
        if lost_reply:
            plan.append(Fault(Effect.LOSE_REPLY, nth=operations))
        try:
            marked(FaultyStorage(storage, plan))
        except UnavailableError:
            now = load_config(storage).properties.values  # readers always have the one or the other
            assert now in (VALUES, {**VALUES, "mark": "set"})
            marked(storage, seed=1)
            assert stored(storage) == {**VALUES, "mark": "set"}
            assert storage.stat(BACKUP) is None
        else:
            break
    assert operations > 4


# -- the metadata table


@pytest.fixture
def with_metadata_table(golden: GoldenTables, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden.path("mor_mdt"), tmp_path / "table"))


def test_switching_the_metadata_table_off_leaves_none_and_all_rows(
    with_metadata_table: Path,
) -> None:
    rows = pyhudi.open_table(with_metadata_table).read().to_arrow()
    storage = LocalStorage(str(with_metadata_table))
    config = switch_off_metadata_table(storage, seeded_world())
    assert (config.metadata_partitions, config.metadata_partitions_inflight) == ((), ())
    assert config == load_config(storage)
    assert list(storage.list(METADATA_TABLE)) == []
    assert stored(storage)["hoodie.metadata.enable"] == "false"
    assert pyhudi.open_table(with_metadata_table).read().to_arrow().equals(rows)


def test_the_property_goes_before_the_files(with_metadata_table: Path) -> None:
    counted = FaultyStorage(LocalStorage(str(with_metadata_table)))
    switch_off_metadata_table(counted, seeded_world())
    names = [operation.name for operation in counted.trace]
    inside = [o.name == "delete" and METADATA_TABLE in o.path for o in counted.trace]
    assert names.index("replace") < inside.index(True)


@pytest.mark.parametrize("deleted", [0, 1, 5])
def test_whoever_dies_while_deleting_is_followed_up(
    with_metadata_table: Path, deleted: int
) -> None:
    storage = LocalStorage(str(with_metadata_table))
    plan = [Fault(Effect.FAIL, "delete", f"{METADATA_TABLE}/*", nth=deleted + 1, times=None)]
    with pytest.raises(UnavailableError):
        switch_off_metadata_table(FaultyStorage(storage, plan), seeded_world())
    assert load_config(storage).metadata_partitions == ()
    switch_off_metadata_table(storage, seeded_world(1))
    assert list(storage.list(METADATA_TABLE)) == []
