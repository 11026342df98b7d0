"""Simple buckets, held to what Hudi's own class answered and to tables it wrote."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from golden_tables import GoldenTables
from pyhudi.errors import UnsupportedTableError
from pyhudi.format.files.file_names import BaseFileName, parse_data_file
from pyhudi.index.simple_bucket import bucket_ids, bucket_of_file, file_id

BUCKET_TABLES = ["mor_simple_bucket_v8", "mor_simple_bucket_v9", "mor_with_rollback"]


def record_keys(path: Path) -> pa.Array:
    return pq.ParquetFile(path).read(columns=["_hoodie_record_key"]).column(0).combine_chunks()


def recorded(vectors: Path, group: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((vectors / "simple_bucket.json").read_bytes())[group]
    return found


@pytest.mark.parametrize(("group", "count"), [("vectors", 222), ("real_table_vectors", 51)])
def test_recorded_buckets_are_reproduced(vectors: Path, group: str, count: int) -> None:
    cases = recorded(vectors, group)
    assert len(cases) == count
    for case in cases:
        key, fields, buckets = case["record_key"], case["hash_fields"], case["num_buckets"]
        (bucket,) = bucket_ids(pa.array([key]), fields, buckets).to_pylist()
        if "bucket_id" not in case:  # Hudi does not return from these
            assert case["java_hangs"]
            assert 0 <= bucket < buckets
            continue
        assert bucket == case["bucket_id"]
        assert f"{bucket:08d}" == case["bucket_id_str"]
        assert file_id(bucket) == case.get("file_id_nbcc", file_id(bucket))


def test_all_recorded_keys_of_a_kind_are_hashed_at_once(vectors: Path) -> None:
    cases = [case for case in recorded(vectors, "vectors") if "bucket_id" in case]
    kinds = {(tuple(case["hash_fields"]), case["num_buckets"]) for case in cases}
    for fields, buckets in kinds:
        alike = [
            c for c in cases if (tuple(c["hash_fields"]), c["num_buckets"]) == (fields, buckets)
        ]
        keys = pa.array([case["record_key"] for case in alike])
        assert bucket_ids(keys, fields, buckets).to_pylist() == [c["bucket_id"] for c in alike]


@pytest.mark.parametrize("name", BUCKET_TABLES)
def test_golden_rows_lie_in_the_file_group_of_their_bucket(golden: GoldenTables, name: str) -> None:
    buckets = int(golden.description(name)["options"]["hoodie.bucket.index.num.buckets"])
    files = [p for p in golden.path(name).rglob("*.parquet") if ".hoodie" not in p.parts]
    assert files
    for path in files:
        file = parse_data_file(path.name)
        assert isinstance(file, BaseFileName)
        keys = record_keys(path)
        assert set(bucket_ids(keys, ["id"], buckets).to_pylist()) == {bucket_of_file(file.file_id)}


@pytest.mark.parametrize("bucket", [0, 1, 255, 99_999_999])
def test_the_bucket_of_a_fixed_file_id_is_known(bucket: int) -> None:
    assert bucket_of_file(file_id(bucket)) == bucket


def test_the_tail_of_a_file_id_does_not_matter() -> None:
    assert bucket_of_file("00000012-57eb-4a1c-9d38-3c5f0c9d7a11-0") == 12


@pytest.mark.parametrize("other", ["", "1234567", "0000000x-0000", "6b1b8823-089f", "٣" * 8])
def test_a_file_group_without_a_bucket_is_refused(other: str) -> None:
    with pytest.raises(UnsupportedTableError, match="has no bucket"):
        bucket_of_file(other)


def test_no_keys_have_no_buckets() -> None:
    result = bucket_ids(pa.array([], pa.string()), ["id"], 4)
    assert (len(result), result.type) == (0, pa.int32())


@pytest.mark.parametrize("key", ["{i:036d}", "id:{i},name:n{i}"])
def test_many_keys_find_their_buckets_in_a_moment(key: str) -> None:
    keys = pa.array([key.format(i=i) for i in range(100_000)])
    begin = time.process_time()
    bucket_ids(keys, ["id"], 16)
    assert time.process_time() - begin < 1.0  # a fiftieth, or a tenth for composite keys
