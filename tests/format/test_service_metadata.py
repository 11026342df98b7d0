from __future__ import annotations

import pytest

from golden_tables import GoldenTables
from pyhudi.errors import CorruptTableError
from pyhudi.format.timeline.plan_files import InstantName
from pyhudi.format.timeline.service_metadata import (
    RESTORE,
    RestoreMetadata,
    RollbackMetadata,
    RolledBackPartition,
    SavepointPartition,
    decode_clean_metadata,
    decode_rollback_metadata,
)
from pyhudi.format.timeline.stored_paths import path_in_partition, relative_to_table

SYNC = b"0123456789abcdef"


def completed(golden: GoldenTables, table: str, action: str) -> list[bytes]:
    files = sorted((golden.path(table) / ".hoodie/timeline").glob(f"*_*.{action}"))
    assert files
    return [file.read_bytes() for file in files]


def test_clean_tells_which_files_are_gone(golden: GoldenTables) -> None:
    table = golden.path("mor_archived")
    (data,) = completed(golden, "mor_archived", "clean")
    clean = decode_clean_metadata(data, "x")
    paths = [
        path_in_partition(part.partition_path, name)
        for part in clean.partition_metadata.values()
        for name in part.success_delete_files
    ]
    assert len(paths) == clean.total_files_deleted == 9
    assert not any((table / path).exists() for path in paths)
    assert all((table / path).parent.is_dir() for path in paths)


def test_rollback_tells_which_files_are_gone(golden: GoldenTables) -> None:
    table = golden.path("mor_with_rollback")
    for data in completed(golden, "mor_with_rollback", "rollback"):
        rollback = decode_rollback_metadata(data, "x")
        assert [i.commit_time for i in rollback.instants_rollback] == [*rollback.commits_rollback]
        for partition, part in rollback.partition_metadata.items():
            base, _, _ = part.success_delete_files[0].partition(f"/{partition}/")
            paths = [relative_to_table(path, base) for path in part.success_delete_files]
            assert all(path.startswith(f"{partition}/") for path in paths)
            assert not any((table / path).exists() for path in paths)


def test_restore_holds_the_rollbacks_it_made() -> None:
    part = RolledBackPartition("p", ("/t/p/a",), (), {"/t/p/a": 5}, None)
    rollback = RollbackMetadata("1", 2, 1, ("3",), {"p": part}, 1, (InstantName("3", "commit"),))
    restore = RestoreMetadata("4", 5, ("3",), {"3": (rollback, None)}, 1, ())
    assert RESTORE.decode(RESTORE.encode(restore, SYNC), "x") == restore


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "", "a\0", "/x"])
def test_bare_name_that_is_a_path_is_refused(name: str) -> None:
    with pytest.raises(CorruptTableError):
        _ = SavepointPartition("p", (name,)).saved_paths


def test_savepoint_keeps_files_by_partition() -> None:
    assert SavepointPartition("", ("a",)).saved_paths == ("a",)
    assert SavepointPartition("x/y", ("a", "b")).saved_paths == ("x/y/a", "x/y/b")
