"""`append(require_new_keys=True)`: it never writes over a row that another writer put there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from faulty_storage import FaultyStorage
from memory_tables import MemoryTable
from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.table_config import TableType

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("v", pa.string())]
)
KINDS: dict[str, dict[str, Any]] = {
    "nbcc": {"ordering": "ts"},
    "occ": {"ordering": "ts", "concurrency": ConcurrencyMode.OPTIMISTIC},
    "by commit": {},
    "cow": {"table_type": TableType.COPY_ON_WRITE},
}


def rows(v: str, day: str, *ids: str) -> pa.Table:
    given = {"id": list(ids), "day": [day] * len(ids), "ts": [1] * len(ids), "v": [v] * len(ids)}
    return pa.table(given, schema=SCHEMA)


def created(kind: str, **definition: Any) -> MemoryTable:
    given = {"partition_by": "day", "buckets": SimpleBuckets(1), **KINDS[kind], **definition}
    table = MemoryTable(SCHEMA, **given)
    table.table("setup").upsert(rows("old", "d1", "a"))
    return table


def content(table: MemoryTable) -> dict[str, str]:
    found = table.table("reader").read(columns=["id", "v"]).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key is there twice"
    return {row["id"]: row["v"] for row in found}


class Watched(FaultyStorage):
    """Notes what is read, and lets something happen once, before a file is created."""

    def __init__(self, table: MemoryTable) -> None:
        super().__init__(table.storage)
        self.read_paths: list[str] = []
        self.is_before: Callable[[str], bool] = lambda _: False
        self.meanwhile: Callable[[], object] | None = None

    def _before(self, path: str) -> None:
        if self.meanwhile is not None and self.is_before(path):
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()

    def create(self, path: str, data: bytes) -> bool:
        self._before(path)
        return super().create(path, data)

    def create_from(self, path: str, chunks: Any) -> int | None:
        self._before(path)
        return super().create_from(path, chunks)

    def read(self, path: str, *span: Any) -> bytes:
        self.read_paths.append(path)
        return super().read(path, *span)

    def open(self, path: str) -> pa.NativeFile:
        self.read_paths.append(path)
        return super().open(path)


MOMENTS: dict[str, Callable[[str], bool]] = {
    "between the check and the begin": lambda path: path.startswith(".hoodie/.pyhudi/log/"),
    "before the data file": lambda path: path.startswith("d1/") and ".hoodie" not in path,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_key_that_another_writer_adds_meanwhile_is_refused_and_its_row_stays(
    kind: str, moment: str
) -> None:
    table = created(kind)
    storage = Watched(table)
    storage.is_before = MOMENTS[moment]
    storage.meanwhile = lambda: table.table("b").upsert(rows("theirs", "d1", "k"))
    with pytest.raises(InvalidRequestError, match=r"in the table already.*id='k'"):
        table.table("a", storage).append(rows("mine", "d1", "j", "k"), require_new_keys=True)
    assert storage.meanwhile is None
    assert content(table) == {"a": "old", "k": "theirs"}
    assert table.pending() == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_another_key_that_is_added_meanwhile_does_not_stop_the_write(
    kind: str, moment: str
) -> None:
    table = created(kind)
    storage = Watched(table)
    storage.is_before = MOMENTS[moment]
    storage.meanwhile = lambda: table.table("b").upsert(rows("theirs", "d1", "other"))
    result = table.table("a", storage).append(rows("mine", "d1", "k"), require_new_keys=True)
    assert content(table) == {"a": "old", "other": "theirs", "k": "mine"}
    assert result.retries == (moment == "before the data file")
    assert table.pending() == []


@pytest.mark.parametrize("kind", KINDS)
def test_only_buckets_that_the_rows_go_to_are_opened(kind: str) -> None:
    table = created(kind, buckets=SimpleBuckets(4))
    setup = table.table("setup")
    for day in ("d1", "d2"):
        setup.upsert(rows("old", day, *"bcdefgh"))
    storage = Watched(table)
    mine = table.table("a", storage)
    mine.append(rows("mine", "d1", "k"), require_new_keys=True)
    opened = {path for path in storage.read_paths if not path.startswith(".hoodie")}
    assert {path.partition("/")[0] for path in opened} == {"d1"}
    buckets = {path.partition("/")[2].lstrip(".")[:8] for path in opened}
    assert len(buckets) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_leaves_nothing_behind(kind: str) -> None:
    table = created(kind)
    mine = table.table("a")
    mine.append(rows("mine", "d1", "k"), require_new_keys=True)
    before = {stat.path for stat in table.storage.list("")}
    with pytest.raises(InvalidRequestError, match="require_new_keys=True, but these keys exist"):
        mine.append(rows("mine", "d1", "j", "k"), require_new_keys=True)
    assert {stat.path for stat in table.storage.list("")} == before
    mine.append(rows("mine", "d2", "k"), require_new_keys=True)  # a key of that partition


def test_keys_in_two_partitions_are_checked_in_their_own() -> None:
    table = created("nbcc")
    given = pa.concat_tables([rows("mine", "d2", "a"), rows("mine", "d1", "b")])
    table.table("a").append(given, require_new_keys=True)
    with pytest.raises(InvalidRequestError, match=r"row 0 \(id='a'\)"):
        table.table("a").append(rows("mine", "d2", "a"), require_new_keys=True)
