from __future__ import annotations

from collections.abc import Callable

import pytest

from golden_tables import GoldenTables
from pyhudi.errors import CorruptTableError
from pyhudi.format.timeline.plan_files import (
    CleanerPlan,
    CleanFile,
    ClusteringSlice,
    CompactionOperation,
    decode_cleaner_plan,
    decode_compaction_plan,
    decode_requested_replace,
    decode_rollback_plan,
)
from pyhudi.plan.clean_records import planned_paths
from pyhudi.plan.rollback import files_to_delete

BASE = "s3://lake/orders"


def requested(golden: GoldenTables, table: str, action: str) -> list[bytes]:
    files = sorted((golden.path(table) / ".hoodie/timeline").glob(f"*.{action}.requested"))
    assert files
    return [file.read_bytes() for file in files]


def origin(path: str, table: str) -> str:
    """Where the golden table stood when Hudi wrote it, from a whole path in one of its plans."""
    return path[: path.index(f"/{table}/") + len(table) + 1]


def test_compaction_plan_names_files_that_are_there(golden: GoldenTables) -> None:
    table = golden.path("mor_compacted")
    for data in requested(golden, "mor_compacted", "compaction"):
        operations = decode_compaction_plan(data, "x").operations
        assert operations
        for operation in operations:
            assert operation.base_file_path is not None
            assert (table / operation.base_file_path).is_file()
            assert operation.log_file_paths
            assert all((table / path).is_file() for path in operation.log_file_paths)


def test_clustering_plan_names_files_that_are_there(golden: GoldenTables) -> None:
    table = golden.path("cow_clustered")
    (data,) = requested(golden, "cow_clustered", "clustering")
    request = decode_requested_replace(data, "x")
    assert request is not None
    assert request.operation_type == "CLUSTER"
    plan = request.clustering_plan
    assert plan is not None
    slices = [part for group in plan.input_groups or () for part in group.slices or ()]
    assert not (slices[0].data_file_path or "").startswith(str(table))  # it was moved since
    paths = [part.base_file_path for part in slices]
    assert all(path and (table / path).is_file() for path in paths)
    assert {partition: len(ids) for partition, ids in plan.file_ids.items()} == {
        "b71": 3,
        "r32": 3,
        "t22": 3,
    }


def test_overwrite_has_a_request_without_a_plan(golden: GoldenTables) -> None:
    for data in requested(golden, "cow_insert_overwrite", "replacecommit"):
        request = decode_requested_replace(data, "x")
        assert request is not None
        assert request.clustering_plan is None


def test_cleaner_plan_gives_paths_in_the_table(golden: GoldenTables) -> None:
    (data,) = requested(golden, "mor_archived", "clean")
    plan = decode_cleaner_plan(data, "x")
    assert plan.file_paths_to_be_deleted_per_partition is not None
    first = plan.file_paths_to_be_deleted_per_partition["b14"][0].file_path
    paths = planned_paths(plan, origin(first or "", "mor_archived"), "x")
    assert sum(map(len, paths.values())) == 9
    assert set(paths) == {"b14", "u94", "x71"}


def test_rollback_plan_gives_paths_in_the_table(golden: GoldenTables) -> None:
    for data in requested(golden, "mor_with_rollback", "rollback"):
        plan = decode_rollback_plan(data, "x")
        assert plan.instant_to_rollback is not None
        paths = files_to_delete(plan, [], plan.instant_to_rollback.commit_time)
        partitions = [request.partition_path for request in plan.rollback_requests or ()]
        assert [path.split("/")[0] for path in paths] == sorted(partitions)


@pytest.mark.parametrize(
    "path", ["s3://lake/other/x", "/etc/passwd", "../x", "s3://lake/orders/../x"]
)
def test_path_outside_the_table_is_refused_in_every_plan(path: str) -> None:
    answers: list[Callable[[], object]] = [
        lambda: planned_paths(
            CleanerPlan(
                None, "", "", file_paths_to_be_deleted_per_partition={"p": (CleanFile(path),)}
            ),
            BASE,
            "x",
        ),
        lambda: planned_paths(
            CleanerPlan(None, "", "", files_to_be_deleted_per_partition={"p": (path,)}), BASE, "x"
        ),
        lambda: CompactionOperation("1", None, path, "f", "p").base_file_path,
        lambda: CompactionOperation("1", (path,), None, "f", "p").log_file_paths,
    ]
    for answer in answers:
        with pytest.raises(CorruptTableError):
            answer()


@pytest.mark.parametrize(
    ("stored", "partition", "path"),
    [
        ("s3://lake/orders/p/x", "p", "p/x"),
        ("s3://elsewhere/before/p/x", "p", "p/x"),
        ("file:/old/x", "", "x"),
        ("s3://lake/orders/other/x", "p", "p/x"),
        ("../../x", "p", "p/x"),
    ],
)
def test_clustering_plan_names_files_of_its_partition_wherever_the_table_is_now(
    stored: str, partition: str, path: str
) -> None:
    part = ClusteringSlice(stored, (stored,), "f", partition)
    assert part.base_file_path == path
    assert part.log_file_paths == (path,)


@pytest.mark.parametrize(
    ("stored", "partition"), [("s3://a/..", "p"), ("s3://a/x", "../q"), ("a/", "p")]
)
def test_clustering_plan_cannot_leave_its_partition(stored: str, partition: str) -> None:
    part = ClusteringSlice(stored, (stored,), "f", partition)
    for paths in (lambda: part.base_file_path, lambda: part.log_file_paths):
        with pytest.raises(CorruptTableError):
            paths()


def test_slice_of_logs_alone_has_no_base_file() -> None:
    for absent in (None, ""):
        assert CompactionOperation("1", ("a",), absent, "f", "").base_file_path is None
        assert ClusteringSlice(absent, ("a",), "f").base_file_path is None
    assert CompactionOperation("1", ("a",), None, "f", None).log_file_paths == ("a",)
