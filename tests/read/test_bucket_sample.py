"""Samples of the keys in a bucket: where its rows lie, from little that is read."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from golden_tables import GoldenTables
from many_writers.scene import NBCC, begun_scene, rows
from pyhudi.errors import CorruptTableError, UnavailableError
from pyhudi.format.files.file_names import BaseFileName
from pyhudi.format.table.ring_file import decode_ring
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.index.consistent_bucket import bucket_ids
from pyhudi.read import bucket_sample
from pyhudi.read.bucket_sample import sample_keys
from pyhudi.read.load import TableLoader, load_config
from pyhudi.read.plan import Now, Question, Reader
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.table.file_group import BaseFile, FileSlice
from pyhudi.table.schema import RECORD_KEY

C = InstantTime("20260102030405678")


def slices_of(storage: Storage) -> list[FileSlice]:
    loader = TableLoader(storage, load_config(storage))
    plan = Reader(loader).plan_snapshot(loader.load(), Now(), Question((RECORD_KEY,)))
    return [read.slice for read in plan.reads]


def base_of(storage: Storage, keys: list[str], row_group_rows: int) -> FileSlice:
    """A slice of one base file with these keys, in their order."""
    data = io.BytesIO()
    table = pa.table({RECORD_KEY: keys, "other": ["x" * 100] * len(keys)})
    pq.write_table(table, data, row_group_size=row_group_rows)
    name = BaseFileName("f-0", "0-0-0", C)
    storage.write(name.file_name, data.getvalue())
    base = BaseFile(name.file_name, len(data.getvalue()), name)
    return FileSlice("", "f-0", C, base, ())


@pytest.mark.parametrize("name", ["mor_consistent_hash_split", "mor_consistent_hash_merge"])
def test_sampled_keys_of_hudis_tables_lie_in_their_buckets(golden: GoldenTables, name: str) -> None:
    table = golden.path(name)
    ring = decode_ring(max(table.rglob("*.hashing_meta")).read_bytes())
    found = slices_of(open_storage(str(table)))
    assert {bool(slice_.base) for slice_ in found} == {True}
    assert any(slice_.logs for slice_ in found)
    for slice_ in found:
        keys = sample_keys(open_storage(str(table)), slice_)
        assert len(keys)
        owners = {ring.nodes[n].file_id for n in bucket_ids(keys, ["id"], ring).to_pylist()}
        assert owners == {slice_.file_id}


def test_a_small_bucket_is_sampled_whole_with_its_deletes() -> None:
    scene = begun_scene(rows("one", "a", "b"), rows("two", "c"), **NBCC)
    scene.table().delete(pa.table({"id": ["b"], "day": ["mo"], "ts": [9]}))
    (slice_,) = slices_of(scene.storage)
    assert sorted(sample_keys(scene.storage, slice_).to_pylist()) == ["a", "b", "b", "c"]


def test_each_file_gives_keys_in_proportion_to_its_size() -> None:
    scene = begun_scene(
        rows("many", *(f"a{n}" for n in range(3000))), rows("few", *(f"b{n}" for n in range(30))),
        **NBCC,
    )  # fmt: skip
    (slice_,) = slices_of(scene.storage)
    keys = sample_keys(scene.storage, slice_, 300).to_pylist()
    assert 150 <= len(keys) <= 350
    assert sum(key[0] == "a" for key in keys) > 5 * sum(key[0] == "b" for key in keys)


def test_a_file_sorted_by_a_hashed_column_is_sampled_from_end_to_end() -> None:
    storage = MemoryStorage(lambda: 0)
    slice_ = base_of(storage, [f"{n:06}" for n in range(40_000)], 1_000)
    keys = np.array(sample_keys(storage, slice_, 400).to_pylist(), dtype=int)
    assert 300 <= len(keys) <= 500
    shares, _ = np.histogram(keys, bins=[0, 10_000, 20_000, 30_000, 40_000])
    assert shares.min() >= 50
    one_group = base_of(storage, [f"{n:06}" for n in range(40_000)], 40_000)
    keys = np.array(sample_keys(storage, one_group, 400).to_pylist(), dtype=int)
    shares, _ = np.histogram(keys, bins=np.arange(0, 40_001, 2_500))
    assert shares.min() >= 20
    assert shares.max() <= 30


def test_of_a_large_file_one_column_of_a_few_row_groups_is_read() -> None:
    storage = MemoryStorage(lambda: 0)
    slice_ = base_of(storage, [f"{n:06}" for n in range(40_000)], 500)
    assert len(sample_keys(storage, slice_, 10**6)) == bucket_sample.ROW_GROUPS_MAX * 500


def test_a_file_without_rows_gives_no_keys() -> None:
    storage = MemoryStorage(lambda: 0)
    assert len(sample_keys(storage, base_of(storage, [], 10))) == 0


def test_no_further_log_is_read_once_enough_bytes_were(monkeypatch: pytest.MonkeyPatch) -> None:
    written = [rows("w", *(f"k{w}_{n}" for n in range(50))) for w in range(30)]
    scene = begun_scene(*written, **NBCC)
    (slice_,) = slices_of(scene.storage)
    found = {key.partition("_")[0] for key in sample_keys(scene.storage, slice_).to_pylist()}
    assert len(found) == bucket_sample.LOGS_MAX
    monkeypatch.setattr(bucket_sample, "LOG_BYTES_MAX", 1)
    found = {key.partition("_")[0] for key in sample_keys(scene.storage, slice_).to_pylist()}
    assert len(found) == 1


def test_a_damaged_file_and_one_that_is_gone_are_named() -> None:
    storage = MemoryStorage(lambda: 0)
    slice_ = base_of(storage, ["a"], 1)
    assert slice_.base is not None
    storage.write(slice_.base.path, b"PAR1" * 10)
    with pytest.raises(
        CorruptTableError, match=f"a base file cannot be read in '{slice_.base.path}"
    ):
        sample_keys(storage, slice_)
    storage.delete(slice_.base.path)
    with pytest.raises(UnavailableError, match="is gone"):
        sample_keys(storage, slice_)
