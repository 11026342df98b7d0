"""The buckets of tables that do not tell them: Hudi's own, and some made by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import count as counting
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from golden_tables import NAMES, GoldenTables, load_description, unpack
from handmade import HandmadeTable
from opened_tables import session_on
from pyhudi.errors import CorruptTableError, InvalidRequestError, UnsupportedTableError
from pyhudi.format.table.bucket_config import ConsistentBuckets, SimpleBuckets
from pyhudi.index.simple_bucket import bucket_ids, file_id
from pyhudi.read.load import TableLoader, load_config
from pyhudi.session import bucket_discovery as module
from pyhudi.session.bucket_discovery import found_buckets
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.world import real_world
from resize_tables import begin_resize, splits

SCHEMA = pa.schema([("id", pa.string())])


def loader(storage: Storage) -> TableLoader:
    return TableLoader(storage, load_config(storage))


def index_of(name: str) -> tuple[str | None, str | None]:
    options = load_description(name)["options"]
    return options.get("hoodie.index.type"), options.get("hoodie.index.bucket.engine")


SIMPLE = [name for name in NAMES if index_of(name) == ("BUCKET", "SIMPLE")]
CONSISTENT = [name for name in NAMES if index_of(name) == ("BUCKET", "CONSISTENT_HASHING")]
OTHERS = sorted({*NAMES}.difference(SIMPLE, CONSISTENT))


@pytest.mark.parametrize("name", SIMPLE)
def test_hudis_tables_tell_their_buckets(golden: GoldenTables, name: str) -> None:
    options = golden.description(name)["options"]
    expected = SimpleBuckets(int(options["hoodie.bucket.index.num.buckets"]), ("id",))
    assert found_buckets(loader(open_storage(str(golden.path(name))))) == expected


@pytest.mark.parametrize("name", CONSISTENT)
def test_hudis_rings_tell_the_first_count_and_keys_what_is_hashed(
    golden: GoldenTables, name: str
) -> None:
    table = loader(open_storage(str(golden.path(name))))
    first = int(golden.description(name)["options"]["hoodie.bucket.index.num.buckets"])
    assert found_buckets(table) == ConsistentBuckets(first, hash_fields=("id",))


def test_writers_go_on_beside_a_resize_of_pyhudi(tmp_path: Path) -> None:
    """The table records no buckets, so each process finds them out while the resize is pending."""
    storage = open_storage(str(unpack("mor_consistent_hash_split", tmp_path)))
    _begun_resize(storage)
    assert found_buckets(loader(storage)) == ConsistentBuckets(2, hash_fields=("id",))


def _begun_resize(storage: Storage) -> str:
    ids = map(str, counting())
    return begin_resize(
        session_on(storage, real_world()), [""], lambda ring: splits(ring, 2, lambda: next(ids))
    )


def test_a_resize_of_an_unknown_planner_is_cancelled_as_the_error_says(tmp_path: Path) -> None:
    uri = str(unpack("mor_consistent_hash_split", tmp_path))
    storage = open_storage(uri)
    requested = _begun_resize(storage)
    plan = f".hoodie/timeline/{requested}.clustering.requested"
    storage.write(plan, storage.read(plan)[:-30])
    with pytest.raises(CorruptTableError, match=rf"cancel_resize\('{requested}'\)") as caught:
        found_buckets(loader(storage))
    assert caught.value.path == plan
    found = ConsistentBuckets(2, hash_fields=("id",))
    pyhudi.open_table(uri, buckets=found).services.cancel_resize(requested)
    assert found_buckets(loader(storage)) == found


@pytest.mark.parametrize("name", OTHERS)
def test_tables_of_other_indexes_are_refused_by_name(golden: GoldenTables, name: str) -> None:
    with pytest.raises(UnsupportedTableError, match="it is not a bucket table"):
        found_buckets(loader(open_storage(str(golden.path(name)))))


# ---- tables made by hand


def laid_out(
    keys: Iterable[str], count: int, fields: tuple[str, ...] = ("id",)
) -> dict[str, list[dict[str, str]]]:
    """File id → rows, as a writer with so many buckets would have them."""
    keys = list(keys)
    groups: dict[str, list[dict[str, str]]] = {}
    buckets = bucket_ids(pa.array(keys, pa.string()), fields, count).to_pylist()
    for key, bucket in zip(keys, buckets, strict=True):
        groups.setdefault(file_id(bucket), []).append({"id": key})
    return groups


def with_bases(
    storage: Storage, groups: Mapping[str, list[dict[str, str]]], **properties: str
) -> HandmadeTable:
    table = HandmadeTable(storage, SCHEMA, properties=properties)
    table.begin(1)
    table.complete(1, 2, [table.base(1, rows, file_id=id_) for id_, rows in groups.items()])
    return table


def some_keys(count: int) -> list[str]:
    return [f"key-{n}" for n in range(count)]


@pytest.mark.parametrize("count", [1, 3, 8, 100])
def test_base_files_tell_the_count(memory: Storage, count: int) -> None:
    with_bases(memory, laid_out(some_keys(20 * count), count))
    assert found_buckets(loader(memory)) == SimpleBuckets(count, ("id",))


@pytest.mark.parametrize("has_seeds", [False, True])
def test_logs_tell_the_count_where_base_files_have_no_rows(
    memory: Storage, has_seeds: bool
) -> None:
    groups = laid_out(some_keys(100), 4)
    table = with_bases(memory, {id_: [] for id_ in groups}) if has_seeds else None
    table = table or HandmadeTable(memory, SCHEMA)
    table.begin(3)
    files = [table.log(3, table.rows_block(3, r), file_id=id_) for id_, r in groups.items()]
    files += [table.log(3, table.deletes_block(3, ["x"]), file_id=id_, version=2) for id_ in groups]
    table.complete(3, 4, files)
    assert found_buckets(loader(memory)) == SimpleBuckets(4, ("id",))


def test_keys_that_were_deleted_tell_the_count_too(memory: Storage) -> None:
    groups = laid_out(some_keys(100), 4)
    table = with_bases(memory, groups)
    table.begin(3)
    files = [
        table.log(3, table.deletes_block(3, [row["id"] for row in rows]), file_id=id_)
        for id_, rows in groups.items()
    ]
    table.complete(3, 4, files)
    assert found_buckets(loader(memory)) == SimpleBuckets(4, ("id",))


def test_what_is_not_visible_counts_for_nothing(memory: Storage) -> None:
    table = with_bases(memory, laid_out(some_keys(100), 4))
    table.begin(3)
    table.base(3, [{"id": "pending"}], file_id="not-a-bucket-0")
    assert found_buckets(loader(memory)) == SimpleBuckets(4, ("id",))


def test_file_groups_that_were_replaced_count_for_nothing(memory: Storage) -> None:
    table = with_bases(memory, {"not-a-bucket-0": [{"id": "old"}]})
    table.begin(3, "replacecommit")
    files = [table.base(3, rows, file_id=i) for i, rows in laid_out(some_keys(100), 4).items()]
    table.complete(3, 4, files, "replacecommit", replaced={"": ("not-a-bucket-0",)})
    assert found_buckets(loader(memory)) == SimpleBuckets(4, ("id",))


def composite(number: int) -> list[str]:
    return [f"id:{n},line:{n * 7 % 13}" for n in range(number)]


COMPOSITE = {"hoodie.table.recordkey.fields": "id,line"}


@pytest.mark.parametrize("fields", [("id", "line"), ("id",), ("line",)])
def test_hash_fields_are_found_too(memory: Storage, fields: tuple[str, ...]) -> None:
    with_bases(memory, laid_out(composite(200), 4, fields), **COMPOSITE)
    assert found_buckets(loader(memory)) == SimpleBuckets(4, fields)


def test_one_bucket_is_one_bucket_whatever_is_hashed(memory: Storage) -> None:
    with_bases(memory, laid_out(composite(50), 1), **COMPOSITE)
    assert found_buckets(loader(memory)) == SimpleBuckets(1, ("id", "line"))


# ---- asking


def test_a_count_that_is_not_unique_is_asked_for(memory: Storage) -> None:
    groups = laid_out(some_keys(500), 8)
    with_bases(memory, {id_: rows for id_, rows in groups.items() if id_ < file_id(4)})
    with pytest.raises(InvalidRequestError) as caught:
        found_buckets(loader(memory))
    assert "fit 4 or 8" in caught.value.why
    assert "buckets=pyhudi.SimpleBuckets(n)" in caught.value.next_step


@pytest.mark.parametrize("is_begun", [False, True])
def test_an_empty_table_asks(memory: Storage, is_begun: bool) -> None:
    if is_begun:
        with_bases(memory, {file_id(0): [], file_id(1): []})
    else:
        HandmadeTable(memory, SCHEMA)
    with pytest.raises(InvalidRequestError, match="no rows from which to infer it"):
        found_buckets(loader(memory))


def test_few_rows_of_several_key_fields_ask_for_the_hash_fields(memory: Storage) -> None:
    with_bases(memory, laid_out(["id:1,line:1"], 3), **COMPOSITE)
    with pytest.raises(InvalidRequestError, match="hash_fields=") as caught:
        found_buckets(loader(memory))
    assert "by id, line" in caught.value.why


def test_an_absurd_count_is_not_taken_for_granted(
    memory: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COUNT_MAX", 99)
    with_bases(memory, laid_out(some_keys(2000), 100))
    with pytest.raises(InvalidRequestError, match="fit 100"):
        found_buckets(loader(memory))


# ---- refusing


def test_keys_that_contradict_each_other_are_refused(memory: Storage) -> None:
    rows = [{"id": key} for key in some_keys(50)]
    with_bases(memory, {file_id(0): rows[:25], file_id(1): rows[25:]})
    with pytest.raises(UnsupportedTableError, match="it has no simple buckets"):
        found_buckets(loader(memory))


def test_two_file_groups_of_one_bucket_are_refused_without_reading(memory: Storage) -> None:
    table = with_bases(memory, {file_id(1): [], "00000001-aaaa-0": []})
    for stat in table.storage.list(""):
        if stat.path.endswith(".parquet"):
            table.storage.write(stat.path, b"unreadable".ljust(stat.size))
    with pytest.raises(UnsupportedTableError, match="bucket 1 of partition '' has two file groups"):
        found_buckets(loader(memory))


def test_partitions_with_bucket_counts_of_their_own_are_refused_by_name(memory: Storage) -> None:
    with_bases(memory, laid_out(some_keys(100), 4))
    folder = ".hoodie/.bucket_index/partition_bucket_index_meta/configs"
    memory.write(f"{folder}/00000000000000.hashing_config", b"{}")
    with pytest.raises(UnsupportedTableError, match="different numbers of buckets"):
        found_buckets(loader(memory))


# ---- cost


def test_no_more_slices_are_read_than_it_takes(
    memory: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_bases(memory, laid_out(some_keys(2000), 100))
    assert reads(monkeypatch, memory) == module.SLICES_FIRST


def test_work_is_bounded_where_keys_do_not_tell(
    memory: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_bases(memory, {file_id(bucket): [] for bucket in range(module.SLICES_MAX + 20)})
    assert reads(monkeypatch, memory) == module.SLICES_MAX


def reads(monkeypatch: pytest.MonkeyPatch, storage: Storage) -> int:
    """How many slices were read to find the buckets, or to give up."""
    numbers = counting()
    true_keys = module._some_keys

    def counted(*arguments: Any) -> pa.Array:
        next(numbers)
        return true_keys(*arguments)

    monkeypatch.setattr(module, "_some_keys", counted)
    with suppress(InvalidRequestError):
        found_buckets(loader(storage))
    return next(numbers)
