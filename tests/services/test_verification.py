"""`table.services.verify()`: a healthy table has no findings, and each damage is one."""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyhudi
from faulty_storage import Effect, Fault, FaultyStorage
from golden_tables import FOLDER as GOLDEN_FOLDER
from golden_tables import NAMES, GoldenTables
from handmade import HandmadeTable
from many_writers.services_by_hand import archive
from memory_tables import TIMELINE, MemoryTable
from pyhudi.api.table import Table
from pyhudi.format.files.file_names import parse_data_file
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.table_config import TableType
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.services.verification.keys import KeyFault, repeated
from pyhudi.services.verification.result import Finding, FindingKind, Verified
from pyhudi.services.verification.run import verify
from pyhudi.storage.stores.memory import MemoryStorage
from worlds import Clock, still_world

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64())])


def rows(*ids: int, at: int = 1) -> pa.Table:
    return pa.table({"id": ids, "at": [at] * len(ids)}, schema=SCHEMA)


def written(table_type: str = "mor", writes: int = 4, buckets: int = 2) -> MemoryTable:
    kind = TableType.COPY_ON_WRITE if table_type == "cow" else TableType.MERGE_ON_READ
    memory = MemoryTable(SCHEMA, ordering="at", buckets=SimpleBuckets(buckets), table_type=kind)
    for number in range(writes):
        memory.clock.sleep(1000)
        memory.table().upsert(rows(*range(number * 3, number * 3 + 6), at=number))
    return memory


def files(memory: MemoryTable, kind: str) -> list[str]:
    paths = [stat.path for stat in memory.storage.list("") if kind in stat.path]
    return [path for path in paths if not path.startswith(".hoodie/")]


def kinds(result: Verified) -> set[str]:
    return {finding.kind.value for finding in result.findings}


# ---- healthy tables


def everything(memory: MemoryTable) -> dict[str, bytes]:
    return {stat.path: memory.storage.read(stat.path) for stat in memory.storage.list("")}


@pytest.mark.parametrize("table_type", ["mor", "cow"])
def test_a_table_in_its_life_is_whole_and_verifying_it_writes_nothing(table_type: str) -> None:
    memory = written(table_type)
    steps: list[Callable[[Table], object]] = [
        lambda table: table.services.compact(),
        lambda table: table.upsert(rows(1, 2, at=50)),
        lambda table: table.delete(rows(1, at=60)),
        lambda table: table.services.clean(CleanPolicy.commits(2)),
        lambda table: table.overwrite(rows(7, at=70), partitions="all"),
        lambda table: table.services.clean(CleanPolicy.versions(1)),
    ]
    for step in [lambda table: None, *steps]:
        step(memory.table())
        before = everything(memory)
        result = memory.table("v").services.verify()
        assert result, str(result)
        assert result.findings == ()
        assert result.files
        assert everything(memory) == before


@pytest.mark.parametrize("name", NAMES)
def test_tables_that_hudi_wrote_are_whole(golden: GoldenTables, name: str) -> None:
    result = open_quietly(golden.path(name)).services.verify()
    assert result, str(result)
    assert result.commits


def test_of_the_awkward_tables_those_with_duplicates_have_findings(tmp_path: Path) -> None:
    """Hudi's bulk insert writes a key as often as it is given."""
    found: dict[str, set[str]] = {}
    for packed in sorted((GOLDEN_FOLDER.parent / "awkward").glob("*.tar.gz")):
        with tarfile.open(packed) as archived:
            archived.extractall(tmp_path, filter="data")
        name = packed.name.removesuffix(".tar.gz")
        with contextlib.suppress(pyhudi.UnsupportedTableError):
            found[name] = kinds(open_quietly(tmp_path / name).services.verify())
    assert len(found) > 40
    duplicates = {name: {"duplicate"} for name in found if name.startswith("mor_duplicates")}
    assert {name: kinds for name, kinds in found.items() if kinds} == duplicates


def open_quietly(path: Path) -> Table:
    return pyhudi.open_table(str(path), progress=False)


def test_a_table_whose_writes_are_archived_is_whole() -> None:
    memory = written(writes=6)
    times = sorted({name[:17] for name in memory.names() if name[:1].isdigit()})
    archive(memory.storage, TIMELINE, times[-1])
    result = memory.table("v").services.verify()
    assert result, str(result)
    assert result.commits == len(times)


def test_a_new_table_is_whole() -> None:
    result = MemoryTable(SCHEMA, buckets=SimpleBuckets(1)).table().services.verify()
    assert (result.findings, result.files, result.rows) == ((), 0, 0)


def test_it_needs_no_right_to_write() -> None:
    memory = written()

    changing = ("create", "create_from", "replace", "write", "delete", "delete_all")
    plan = [Fault(Effect.FAIL, operation, times=None) for operation in changing]
    assert memory.table("v", FaultyStorage(memory.storage, plan)).services.verify()


# ---- damage


def gone(memory: MemoryTable, path: str) -> None:
    memory.storage.delete(path)


def cut(memory: MemoryTable, path: str) -> None:
    memory.storage.write(path, memory.storage.read(path)[:-9])


def emptied(memory: MemoryTable, path: str) -> None:
    memory.storage.write(path, b"")


def longer(memory: MemoryTable, path: str) -> None:
    memory.storage.write(path, memory.storage.read(path) * 2)


def garbled(memory: MemoryTable, path: str) -> None:
    """The end of a block, or the footer of a base file, holds other bytes."""
    data = memory.storage.read(path)
    memory.storage.write(path, data[:-40] + b"?" * 40)


DAMAGES: dict[str, tuple[Callable[[MemoryTable, str], None], str]] = {
    "gone": (gone, "lost"),
    "cut": (cut, "length"),
    "empty": (emptied, "length"),
    "longer": (longer, "length"),
    "garbled": (garbled, "unreadable"),
}


@pytest.mark.parametrize("kind", [".log.", ".parquet"])
@pytest.mark.parametrize(("damage", "found"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_found_with_its_commit(
    damage: Callable[[MemoryTable, str], None], found: str, kind: str
) -> None:
    memory = written("mor" if kind == ".log." else "cow")
    for path in (files(memory, kind)[0], files(memory, kind)[-1]):
        kept = memory.storage.read(path)
        damage(memory, path)
        result = memory.table("v").services.verify()
        assert not result
        name = parse_data_file(path)
        assert name is not None
        [finding] = [f for f in result.findings if f.path == path]
        assert (finding.kind, finding.commit) == (found, name.requested)
        memory.storage.write(path, kept)
    assert memory.table("v").services.verify()


def test_all_damaged_files_of_a_slice_are_found() -> None:
    memory = written(buckets=1)
    damaged = files(memory, ".log.")[1:3]
    for path in damaged:
        garbled(memory, path)
    result = memory.table("v").services.verify()
    assert [finding.path for finding in result.findings] == damaged


def test_a_lost_file_of_an_archived_write_is_found() -> None:
    memory = written(writes=6)
    times = sorted({name[:17] for name in memory.names() if name[:1].isdigit()})
    archive(memory.storage, TIMELINE, times[-1])
    path = files(memory, ".log.")[0]
    gone(memory, path)
    [finding] = memory.table("v").services.verify().findings
    assert (finding.kind, finding.path) == (FindingKind.LOST, path)


def test_the_files_of_a_file_group_that_is_gone_as_a_whole_are_found() -> None:
    memory = written("cow", writes=1)
    [path, *_] = files(memory, ".parquet")
    gone(memory, path)
    [finding] = memory.table("v").services.verify().findings
    assert (finding.kind, finding.path) == (FindingKind.LOST, path)


def test_a_commit_that_cannot_be_read_is_found() -> None:
    memory = written()
    [*_, name] = [name for name in memory.names() if name.endswith(".deltacommit")]
    memory.storage.write(f"{TIMELINE}/{name}", b"rubbish")
    result = memory.table("v").services.verify()
    assert (FindingKind.UNREADABLE, f"{TIMELINE}/{name}") in {
        (f.kind, f.path) for f in result.findings
    }


def test_keys_of_another_bucket_are_found() -> None:
    memory = written(writes=1)
    one, other = files(memory, ".log.")
    memory.storage.write(one, memory.storage.read(other))
    result = memory.table("v").services.verify()
    assert "bucket" in kinds(result)
    assert "keys of other buckets are in bucket 0: '" in str(result)


def handmade(*groups: tuple[str, list[str]]) -> Verified:
    """A table without buckets, with these keys in the base files of its file groups."""
    made = HandmadeTable(MemoryStorage(Clock()), pa.schema([("id", pa.string())]))
    paths = [
        made.base(1, [{"id": key} for key in keys], file_id=file_id) for file_id, keys in groups
    ]
    made.begin(1)
    made.complete(1, 2, paths)
    return verify(made.storage, still_world(Clock()), None)


def test_a_key_that_is_there_twice_is_found_in_one_file_group_and_in_two() -> None:
    assert handmade(("f-0", ["a", "b"]), ("g-0", ["c"]))
    for twice in ([("f-0", ["a", "b", "a"])], [("f-0", ["a", "b"]), ("g-0", ["c", "a"])]):
        result = handmade(*twice)
        assert kinds(result) == {"duplicate"}
        assert "more than once in partition '': 'a'" in str(result)


# ---- beside others


@pytest.mark.parametrize("table_type", ["mor", "cow"])
def test_files_that_are_cleaned_meanwhile_are_no_findings(table_type: str) -> None:
    memory = written(table_type)
    others = memory.table("other")

    class Meddled(FaultyStorage):
        met = False

        def _meddle(self, path: str) -> None:
            if not self.met and parse_data_file(path.rpartition("/")[2]) is not None:
                self.met = True
                others.services.compact()
                others.upsert(rows(1, at=99))
                others.services.clean(CleanPolicy.versions(1))

        def open(self, path: str) -> pa.NativeFile:
            self._meddle(path)
            return super().open(path)

        def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
            self._meddle(path)
            return super().read(path, start, end)

    storage = Meddled(memory.storage)
    result = memory.table("v", storage).services.verify()
    assert storage.met
    assert result, str(result)


# ---- the result


def test_the_result_says_what_was_looked_at_and_what_is_wrong(tmp_path: Path) -> None:
    seen: list[pyhudi.Progress] = []
    table = pyhudi.create_table(
        str(tmp_path / "t"), SCHEMA, record_key="id", buckets=SimpleBuckets(1), progress=seen.append
    )
    table.upsert(rows(1, 2))
    seen.clear()
    result = table.services.verify()
    assert str(result).startswith("the table is whole: 3 commits, 2 files, 2 rows, ")
    assert "the table is whole" in result._repr_html_()
    assert result.or_raise() is result
    assert (seen[-1].rows, seen[-1].files, seen[-1].last) == (2, 2, True)
    bad = Verified((Finding(FindingKind.LOST, "<a>", "1", "it is gone"),) * 2, 1, 1, 1, 1, 0.1, 40)
    assert "42 findings" in str(bad)
    assert "... and 22 more" in str(bad)
    assert "&lt;a&gt;" in bad._repr_html_()
    with pytest.raises(pyhudi.CorruptTableError, match="it is gone") as caught:
        bad.or_raise()
    assert caught.value.path == "<a>"


# ---- keys


@given(st.lists(st.text("abc", max_size=3), max_size=40), st.integers(1, 200))
def test_repeated_keys_are_found_whatever_fits_into_memory(keys: list[str], held: int) -> None:
    def parts() -> Iterator[pa.Array]:
        for start in range(0, len(keys), 7):
            yield pa.array(keys[start : start + 7], pa.string())

    twice = {key for key in keys if keys.count(key) > 1}
    fault = repeated(parts, held) or KeyFault(0, ())
    assert fault.count == len(twice)
    assert set(fault.sample) <= twice
