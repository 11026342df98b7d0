from __future__ import annotations

import time

import pytest

from golden_tables import GoldenTables
from pyhudi.errors import CorruptTableError
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    RuntimeStats,
    WriteStat,
    decode_commit_metadata,
    encode_commit_metadata,
    encode_replace_commit_metadata,
)

SYNC = b"0123456789abcdef"
PATH = "1_2.deltacommit"


def completed(golden: GoldenTables, table: str, action: str) -> list[CommitMetadata]:
    files = sorted((golden.path(table) / ".hoodie/timeline").glob(f"*_*.{action}"))
    return [decode_commit_metadata(file.read_bytes(), file.name) for file in files]


def test_commit_tells_what_hudi_wrote(golden: GoldenTables) -> None:
    first = completed(golden, "mor_simple_bucket_v9", "deltacommit")[0]
    assert first.operation == "UPSERT"
    assert first.schema_json is not None
    assert '"mor_simple_bucket_v9_record"' in first.schema_json
    assert first.replaced_file_ids == {}
    for partition, stats in first.write_stats.items():
        for stat in stats:
            assert stat.partition_path == partition
            assert stat.file_id
            assert stat.data_path.startswith(f"{partition}/{stat.file_id}_")
            file = golden.path("mor_simple_bucket_v9") / stat.data_path
            assert file.stat().st_size == stat.file_size_in_bytes


def test_replace_commit_names_the_file_groups_it_hides(golden: GoldenTables) -> None:
    *_, last = completed(golden, "cow_clustered", "replacecommit")
    assert last.operation == "CLUSTER"
    assert all(len(ids) == 3 for ids in last.replaced_file_ids.values())
    assert set(last.replaced_file_ids) == set(last.write_stats)


@pytest.mark.parametrize("path", [None, "", "../x", "/etc/passwd", "p/../../x", "s3://b/x", "a\0"])
def test_stat_that_names_no_file_of_the_table_is_refused(path: str | None) -> None:
    stat = WriteStat(path=path)
    with pytest.raises(CorruptTableError):
        _ = stat.data_path
    data = encode_commit_metadata(CommitMetadata({"p": (stat,)}), SYNC)
    assert decode_commit_metadata(data, PATH).write_stats["p"] == (stat,)  # kept as it is


@pytest.mark.parametrize("extra", [None, {}, {"schema": ""}, {"other": "x"}])
def test_schema_left_out_is_none(extra: dict[str, str] | None) -> None:
    assert CommitMetadata(extra_metadata=extra).schema_json is None


@pytest.mark.parametrize("replaced", [None, {}, {"p": ("a-0", "b-0")}])
def test_replaced_file_ids_round_trip(replaced: dict[str, tuple[str, ...]] | None) -> None:
    metadata = CommitMetadata(partition_to_replace_file_ids=replaced)
    data = encode_replace_commit_metadata(metadata, SYNC)
    assert decode_commit_metadata(data, PATH) == metadata
    assert metadata.replaced_file_ids == (replaced or {})


def test_a_thousand_stats_decode_quickly() -> None:
    stat = WriteStat(
        file_id="00000000-ff91-4d06-a2ad-94982dfe823a-0",
        path="h71/00000000-ff91-4d06-a2ad-94982dfe823a-0_0-207-321_20261115202811850.parquet",
        prev_commit="null",
        num_writes=2,
        total_write_bytes=4894,
        partition_path="h71",
        file_size_in_bytes=4894,
        runtime_stats=RuntimeStats(0, 151, 0),
    )
    metadata = CommitMetadata({f"p{n}": (stat,) * 10 for n in range(100)})
    data = encode_commit_metadata(metadata, SYNC)
    seconds = []
    for _ in range(5):
        begun = time.process_time()
        assert decode_commit_metadata(data, PATH) == metadata
        seconds.append(time.process_time() - begun)
    assert min(seconds) < 0.2  # about 0.02 on an idle machine
