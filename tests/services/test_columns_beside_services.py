"""Columns that change while a compaction or a resize is pending.

Hudi's readers and hudi-rs take the schema of the commit with the greatest request, be it a write or
a table service. So no service may stand last with columns that the table has no longer, or not yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from many_writers.scene import HeldWrite, Stop
from pyhudi.commit.proposals import Close, Decided
from pyhudi.format.files.file_names import BaseFileName, parse_data_file
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.read.slice import load_base_schema
from pyhudi.services.compaction.run import compactions
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import BaseFile
from resize_tables import ResizeTable
from schema_scenarios import metadata, recorded, requires_one_schema

FIRST = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("v", pa.int32())]
)
WIDE = 1 << 40
DAY_MS = 86_400_000
ARCHIVE = ArchivePolicy(
    keep_min=2, keep_max=3, delta_commits=0, grace_ms=1_000, aborted_grace_ms=1_000
)


class Evolving(ResizeTable):
    """A table of whose two partitions one is compacted or resized."""

    def __init__(self) -> None:
        super().__init__(schema=FIRST)
        self.upsert(("a", "b"), "d", 1)
        self.upsert(("c",), "other", 1)

    def upsert(self, keys: tuple[str, ...], day: str, stamp: int, **more: Any) -> None:
        self.table(f"w{stamp}").upsert(rows(keys, day, stamp, **more), schema_mode="add")

    def begun(self, day: str, stamp: int, **more: Any) -> HeldWrite:
        """A writer that has its files, and has not completed."""
        given, table = rows(("a",), day, stamp, **more), self.table("early")
        return HeldWrite(lambda: table.upsert(given, schema_mode="add")).run_to(Stop.WRITTEN)

    def plan_of(self, service: str) -> str:
        if service == "resize":
            return self.plan(2)
        planned = compactions(self.session("c")).schedule()
        assert planned is not None
        return planned

    def execute(self, service: str, requested: str) -> None:
        if service == "resize":
            self.resizes().execute(requested)
        else:
            compactions(self.session("c")).execute(requested)

    def columns(self, requested: str) -> dict[str, str]:
        """The columns that an instant recorded."""
        [instant] = [i for i, _ in recorded(self.storage) if i.requested == requested]
        fields = json.loads(metadata(self.storage, instant).schema_json or "")["fields"]
        return {field["name"]: field["type"][1] for field in fields}

    def wide_rows(self, **how: Any) -> set[str]:
        read = self.table("r").read(**how).to_arrow().to_pylist()
        return {row["id"] for row in read if row["v"] == WIDE}


def rows(keys: tuple[str, ...], day: str, stamp: int, **more: Any) -> pa.Table:
    schema = FIRST
    if "v" in more:
        schema = schema.set(schema.get_field_index("v"), pa.field("v", pa.int64()))
    for name in more.keys() - {"v"}:
        schema = schema.append(pa.field(name, pa.string()))
    given = [{"id": key, "day": day, "ts": stamp, "v": stamp, **more} for key in keys]
    return pa.Table.from_pylist(given, schema)


def operations(table: Evolving) -> list[str | None]:
    instants = [instant for instant, _ in recorded(table.storage)]
    return [metadata(table.storage, instant).operation_type for instant in instants]


@pytest.mark.parametrize("service", ["compaction", "resize"])
@pytest.mark.parametrize("ends", ["before the service", "after the service"])
def test_a_change_that_began_before_a_service_comes_first_in_a_commit_behind_it(
    service: str, ends: str
) -> None:
    """Hudi would read the wide value as 0, by the schema that the service recorded."""
    table = Evolving()
    early = table.begun("other", 2, v=WIDE, note="n")
    requested = table.plan_of(service)
    if ends == "before the service":
        early.finish()
        requires_one_schema(table.storage)
    table.execute(service, requested)
    if ends == "after the service":
        early.finish()
    assert operations(table).count("ALTER_SCHEMA") == 1
    assert table.wide_rows() == {"a"}
    requires_one_schema(table.storage)


@pytest.mark.parametrize("service", ["compaction", "resize"])
def test_a_change_that_began_behind_a_service_needs_no_commit_of_its_own(service: str) -> None:
    table = Evolving()
    requested = table.plan_of(service)
    table.upsert(("a",), "d", 2, v=WIDE)
    table.execute(service, requested)
    assert "ALTER_SCHEMA" not in operations(table)
    assert table.wide_rows() == {"a"}
    requires_one_schema(table.storage)


@dataclass(frozen=True)
class Change:
    """A change of the columns while a service is pending."""

    act: Callable[[Evolving], object]

    def __str__(self) -> str:
        return self.act.__name__


def a_column_is_added(table: Evolving) -> None:
    table.upsert(("a",), "d", 2, note="n")


def a_type_is_widened(table: Evolving) -> None:
    table.upsert(("a",), "d", 2, v=WIDE)


def a_column_is_dropped(table: Evolving) -> None:
    with table.table("x").update_schema() as change:
        change.delete_column("v")


CHANGES = [Change(a_column_is_added), Change(a_type_is_widened), Change(a_column_is_dropped)]


@pytest.mark.parametrize("service", ["compaction", "resize"])
@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_service_records_and_writes_the_columns_of_its_begin(
    service: str, change: Change
) -> None:
    """So a read as of its request has them, in Hudi too: no type is too wide, no value is gone."""
    table = Evolving()
    before = table.table("r").read().to_arrow().sort_by("id")
    requested = table.plan_of(service)
    columns = {"id": "string", "day": "string", "ts": "long", "v": "int"}
    change.act(table)
    table.execute(service, requested)
    assert table.columns(requested) == columns
    for base in bases(table, requested):
        assert load_base_schema(table.storage, base).field("v").type == pa.int32()
    then = table.table("r").read(as_of=pyhudi.RequestedTime(requested)).to_arrow()
    assert then.sort_by("id").equals(before)
    requires_one_schema(table.storage)


def bases(table: Evolving, requested: str) -> list[BaseFile]:
    found = []
    for stat in table.storage.list("d"):
        name = parse_data_file(stat.path.rpartition("/")[2])
        if isinstance(name, BaseFileName) and name.requested == requested:
            found.append(BaseFile(stat.path, stat.size, name))
    assert found
    return found


class DeadError(Exception):
    """A process has died."""


class Dying:
    """The storage of an executor that dies when it is about to complete."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def create(self, path: str, data: bytes) -> bool:
        if "/.pyhudi/log/" in path and b'"kind":"complete"' in data:
            raise DeadError
        return self._storage.create(path, data)


def test_a_writer_that_finishes_a_closed_resize_records_the_columns_of_its_begin() -> None:
    table = Evolving()
    requested = table.plan()
    with pytest.raises(DeadError):
        table.resizes("dead", Dying(table.storage)).execute(requested)
    outcome = table.session("e").log.append(Close(requested))
    assert isinstance(outcome, Decided)
    a_column_is_added(table)
    assert requested in table.session("e").log.refresh().completed
    assert "note" not in table.columns(requested)
    requires_one_schema(table.storage)


def test_the_columns_of_a_services_begin_are_found_in_the_archive() -> None:
    """Of what was requested before a pending plan one write stays, and it may complete later."""
    table = Evolving()
    early = table.begun("other", 9)
    requested = table.plan_of("resize")
    table.upsert(("a",), "d", 2, note="n")
    early.finish()
    for stamp in range(3, 6):
        table.upsert(("a",), "d", stamp, note="n")
    for _ in range(2):
        table.clock.ms += DAY_MS
        table.table("archiver").services.archive(ARCHIVE)
    assert all((i.completed or "") > requested for i, _ in recorded(table.storage))
    table.execute("resize", requested)
    assert "note" not in table.columns(requested)
    requires_one_schema(table.storage)
