"""Merging archive files: every instant once, in order, however the files overlap."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import UnavailableError
from pyhudi.format.timeline.archive import (
    ArchivedInstant,
    ArchiveFileName,
    Manifest,
    ManifestEntry,
    decode_archived_instants,
    encode_archive_file,
    encoded_archive_file,
    instants_table,
)
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.services.archiving.archive_files import merge_candidates
from pyhudi.services.archiving.archive_merge import MergedRows, load_times
from pyhudi.storage.stores.memory import MemoryStorage
from worlds import Clock


def at(n: int) -> InstantTime:
    return InstantTime(f"{n:017}")


def instant(n: int, action: str = "deltacommit") -> ArchivedInstant:
    return ArchivedInstant(at(n), at(n + 1), action, f"of {n}".encode(), b"plan" if n % 2 else None)


def merged(files: list[list[int]]) -> tuple[ArchivedInstant, ...]:
    storage = MemoryStorage(Clock())
    paths = []
    for number, times in enumerate(files):
        path = f"history/{number}.parquet"
        storage.write(path, encode_archive_file([instant(n) for n in times]))
        paths.append(path)
    rows = MergedRows(storage, paths)
    data = b"".join(encoded_archive_file(rows.tables()))
    found = decode_archived_instants(data, "")
    assert rows.times()["instantTime"].to_pylist() == [i.requested for i in found]
    return found


SORTED = st.lists(st.integers(0, 300), min_size=1, max_size=120, unique=True).map(sorted)


@given(st.lists(SORTED, min_size=1, max_size=4))
@settings(deadline=None, max_examples=40)
def test_every_instant_comes_out_once_and_in_order(files: list[list[int]]) -> None:
    expected = sorted({n for times in files for n in times})
    assert merged(files) == tuple(instant(n) for n in expected)


def test_a_file_that_is_not_sorted_is_merged_all_the_same() -> None:
    """Hudi puts files one behind the other, and they may overlap."""
    storage = MemoryStorage(Clock())
    mixed = [instant(n) for n in (*range(200, 400), *range(100, 300))]
    storage.write("a", b"".join(encoded_archive_file([instants_table(mixed)])))
    storage.write("b", encode_archive_file([instant(n) for n in range(50, 150)]))
    data = b"".join(encoded_archive_file(MergedRows(storage, ["a", "b"]).tables()))
    assert decode_archived_instants(data, "") == tuple(instant(n) for n in range(50, 400))


def test_two_actions_of_one_time_are_two_instants() -> None:
    storage = MemoryStorage(Clock())
    storage.write("a", encode_archive_file([instant(1)]))
    storage.write("b", encode_archive_file([instant(1, "savepoint")]))
    assert MergedRows(storage, ["a", "b"]).times().num_rows == 2


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(UnavailableError, match="gone"):
        load_times(MemoryStorage(Clock()), "history/x.parquet")


def entry(n: int, level: int = 0, size: int = 10) -> ManifestEntry:
    return ManifestEntry(ArchiveFileName(at(n), at(n + 9), level), size)


@pytest.mark.parametrize(
    ("entries", "level", "expected"),
    [
        ([entry(n) for n in (30, 10, 20)], 0, [10, 20, 30]),
        ([entry(n) for n in (40, 10, 30, 20)], 0, [10, 20, 30]),
        ([entry(n) for n in (10, 20)], 0, []),
        ([entry(n, level=n % 2) for n in range(6)], 1, [1, 3, 5]),
        ([entry(10, size=101), entry(20), entry(30)], 0, [20, 30]),
        ([entry(10, size=60), entry(20, size=60), entry(30)], 0, [20, 30]),
        ([entry(10, size=40), entry(20, size=40), entry(30, size=40)], 0, [10, 20]),
        ([entry(10, size=60), entry(20, size=200), entry(30)], 0, []),
        ([entry(n, size=200) for n in (10, 20, 30)], 0, []),
        ([], 0, []),
    ],
)
def test_the_oldest_files_of_a_level_are_merged_unless_they_are_large(
    entries: list[ManifestEntry], level: int, expected: list[int]
) -> None:
    policy = ArchivePolicy(merge_files=3, merge_bytes_max=100)
    chosen = merge_candidates(Manifest(tuple(entries)), level, policy)
    assert [int(e.file.least) for e in chosen] == expected
