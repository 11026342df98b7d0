"""What keeps working after a table has evolved: joined tables, updates, and creating it again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from memory_tables import MemoryTable
from pyhudi.format.table.column_owners import ColumnOwners
from pyhudi.format.table.table_config import TableType
from pyhudi.plan.table_definition import TableDefinition
from pyhudi.session.create import create_table_files
from pyhudi.storage.objects.column_owners import declare_owners

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("at", pa.int64(), nullable=False),
        ("amount", pa.int32()),
        ("place", pa.struct([("x", pa.int32())])),
        ("gone", pa.string()),
    ]
)
KINDS: dict[str, dict[str, Any]] = {
    "copy on write": {"ordering": "at", "table_type": TableType.COPY_ON_WRITE},
    "optimistic": {},
    "non-blocking": {"ordering": "at"},
}
every_kind = pytest.mark.parametrize("kind", KINDS)
WIDE = 1 << 40


def made(kind: str) -> MemoryTable:
    return MemoryTable(SCHEMA, buckets=pyhudi.SimpleBuckets(1), **KINDS[kind])


def first_rows() -> pa.Table:
    rows = [
        {"id": id_, "at": 1, "amount": n, "place": {"x": n}, "gone": "g"}
        for n, id_ in enumerate("abc")
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def evolve(memory: MemoryTable) -> list[pa.Schema]:
    """Change the table in three commits; the data columns after each."""
    found = []
    with memory.table("one").update_schema() as change:
        change.add_column("note", pa.string())
    found.append(memory.table("reader").schema.arrow)
    with memory.table("two").update_schema() as change:
        change.update_column("amount", pa.int64())
        change.add_column("place.y", pa.string())
    found.append(memory.table("reader").schema.arrow)
    with memory.table("three").update_schema() as change:
        change.delete_column("gone")
    found.append(memory.table("reader").schema.arrow)
    return found


def content(memory: MemoryTable, **how: Any) -> dict[str, dict[str, Any]]:
    rows = memory.table("reader").read(**how).to_arrow().to_pylist()
    return {row.pop("id"): {n: v for n, v in row.items() if n != "at"} for row in rows}


# ---- update


@every_kind
def test_an_update_sets_added_and_widened_columns_and_keeps_the_others(kind: str) -> None:
    memory = made(kind)
    memory.table().upsert(first_rows())
    evolve(memory)
    place = pa.struct([("x", pa.int32()), ("y", pa.string())])
    schema = pa.schema([("id", pa.string()), ("amount", pa.int64()), ("note", pa.string())])
    given = pa.Table.from_pylist([{"id": "b", "amount": WIDE, "note": "n"}], schema)
    memory.table("own").update(given, columns=["amount", "note"])
    nested = pa.table({"id": ["c"], "place": pa.array([{"x": 9, "y": "y"}], place)})
    memory.table("own").update(nested, columns=["place"])
    expected = {
        "a": {"amount": 0, "place": {"x": 0, "y": None}, "note": None},
        "b": {"amount": WIDE, "place": {"x": 1, "y": None}, "note": "n"},
        "c": {"amount": 2, "place": {"x": 9, "y": "y"}, "note": None},
    }
    assert content(memory) == expected
    memory.table("own").services.compact()
    assert content(memory) == expected


@every_kind
def test_an_update_of_a_dropped_column_is_refused_and_names_it(kind: str) -> None:
    memory = made(kind)
    memory.table().upsert(first_rows())
    evolve(memory)
    given = pa.table({"id": ["b"], "gone": ["x"]})
    with pytest.raises(pyhudi.InvalidRequestError, match="gone"):
        memory.table("own").update(given, columns=["gone"])
    assert memory.pending() == []


@every_kind
def test_a_table_that_was_opened_before_it_evolved_updates_and_reads_it(kind: str) -> None:
    memory = made(kind)
    table = memory.table("old")
    table.upsert(first_rows())
    evolve(memory)
    table.update(pa.table({"id": ["a"], "note": ["n"]}), columns=["note"])
    [found] = table.read(where="note = 'n'").to_arrow().to_pylist()
    assert found == {"id": "a", "at": 1, "amount": 0, "place": {"x": 0, "y": None}, "note": "n"}


# ---- repeated calls


@every_kind
@pytest.mark.parametrize("mode", ["strict", "add"])
def test_a_repeated_call_is_answered_though_its_rows_are_none_of_the_table_by_now(
    kind: str, mode: str
) -> None:
    memory = made(kind)
    first = memory.table().upsert(first_rows(), write_id="w", schema_mode=mode)
    evolve(memory)
    for table in (memory.table(), memory.table("another")):
        again = table.upsert(first_rows(), write_id="w", schema_mode=mode)
        assert (again.instant, again.repeated) == (first.instant, True)
        with pytest.raises(pyhudi.HudiError):
            table.upsert(first_rows(), write_id="v", schema_mode=mode)
    assert memory.pending() == []


# ---- creating it again


@every_kind
def test_a_table_is_opened_by_its_first_its_present_and_any_schema_in_between(kind: str) -> None:
    memory = made(kind)
    memory.table().upsert(first_rows())
    schemas = [SCHEMA, *evolve(memory)]
    names = memory.names()
    for schema in schemas:
        again(memory, kind, schema)
    assert memory.names() == names


@every_kind
def test_a_table_is_not_opened_by_columns_that_it_never_had_together(kind: str) -> None:
    memory = made(kind)
    memory.table().upsert(first_rows())
    evolve(memory)
    never = SCHEMA.remove(SCHEMA.get_field_index("gone"))
    for schema in (never, SCHEMA.append(pa.field("more", pa.string()))):
        with pytest.raises(pyhudi.TableExistsError):
            again(memory, kind, schema)


def again(memory: MemoryTable, kind: str, schema: pa.Schema) -> None:
    buckets = pyhudi.SimpleBuckets(1)
    asked = TableDefinition.of("t", schema, record_key="id", buckets=buckets, **KINDS[kind])
    create_table_files(memory.storage, asked, memory.world("creator"), exist_ok=True)


def test_a_schema_in_between_is_known_when_its_commit_is_archived() -> None:
    memory = made("non-blocking")
    memory.table().upsert(first_rows())
    schemas = evolve(memory)
    for _ in range(6):
        memory.table().upsert(first_rows().drop_columns(["gone"]), schema_mode="merge")
    memory.clock.sleep(1_000_000)
    memory.table().services.archive(pyhudi.ArchivePolicy(keep_min=1, keep_max=2, delta_commits=0))
    for schema in schemas:
        again(memory, "non-blocking", schema)


# ---- changes


@every_kind
def test_changes_have_the_columns_of_their_end(kind: str) -> None:
    memory = made(kind)
    first = memory.table().upsert(first_rows())
    schemas = evolve(memory)
    table = memory.table("reader")
    assert table.changes(until=first.completed).schema.names == SCHEMA.names
    assert table.changes(until=first.completed).to_arrow()["gone"].to_pylist() == ["g"] * 3
    times = memory.table("reader").inspect.schema_history()["instant"].to_pylist()[1:]
    done = {name[:17]: name[18:35] for name in memory.names() if "_" in name}
    for requested, schema in zip(times, schemas, strict=True):
        found = table.changes(until=done[requested])
        assert found.schema.equals(schema)
        assert found.count() == 3
    for now in (table.changes(), table.changes(until="29990101000000000")):
        assert now.schema.equals(schemas[-1])


# ---- joined tables

OWNED = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("amount", pa.int32()),
        ("method", pa.string()),
        ("note", pa.string()),
    ]
)
OWNERS = {"orders": ("amount",), "payments": ("method",)}


def joined(**owners: tuple[str, ...]) -> MemoryTable:
    memory = MemoryTable(OWNED, buckets=pyhudi.SimpleBuckets(1), owners=owners or OWNERS)
    declare_owners(memory.storage, ColumnOwners(owners or OWNERS))
    return memory


def of_owner(schema: pa.Schema, owner: str, **values: Any) -> pa.Table:
    fields = [schema.field(name) for name in ("id", *OWNERS[owner])]
    return pa.Table.from_pylist([values], pa.schema(fields))


def test_owners_write_on_after_their_columns_were_widened_and_others_added_and_dropped() -> None:
    memory = joined()
    table = memory.table("orders")
    table.upsert(of_owner(OWNED, "orders", id="a", amount=1), owner="orders")
    memory.table("payments").upsert(
        of_owner(OWNED, "payments", id="a", method="m"), owner="payments"
    )
    with memory.table("admin").update_schema() as change:
        change.update_column("amount", pa.int64())
        change.add_column("nobodys", pa.string())
        change.delete_column("note")
    expected = {"a": {"amount": 1, "method": "m", "nobodys": None}}
    assert owned(memory) == expected
    now = memory.table("reader").schema.arrow
    table.upsert(of_owner(now, "orders", id="b", amount=WIDE), owner="orders")
    memory.table("payments").upsert(
        of_owner(OWNED, "payments", id="b", method="n"), owner="payments"
    )
    expected["b"] = {"amount": WIDE, "method": "n", "nobodys": None}
    assert owned(memory) == expected
    memory.table("admin").services.compact()
    assert owned(memory) == expected
    table.upsert(of_owner(OWNED, "orders", id="a", amount=7), owner="orders")  # still narrow rows
    expected["a"]["amount"] = 7
    assert owned(memory) == expected


def test_an_owner_that_writes_while_a_column_is_added_does_not_undo_it() -> None:
    memory = joined()
    memory.table().upsert(of_owner(OWNED, "payments", id="a", method="m"), owner="payments")

    def batches() -> Any:
        with memory.table("admin").update_schema() as change:
            change.add_column("nobodys", pa.string())
            change.update_column("amount", pa.int64())
        yield from given.to_batches()

    given = of_owner(OWNED, "orders", id="a", amount=1)
    rows = pa.RecordBatchReader.from_batches(given.schema, batches())
    memory.table("orders").upsert(rows, owner="orders")
    assert owned(memory) == {"a": {"amount": 1, "method": "m", "note": None, "nobodys": None}}


def test_a_column_that_was_added_can_be_owned() -> None:
    memory = joined()
    table = memory.table()
    table.upsert(of_owner(OWNED, "orders", id="a", amount=1), owner="orders")
    with table.update_schema() as change:
        change.add_column("refunded", pa.int64())
    table.alter.own_columns("refunds", ["refunded"])
    rows = pa.table({"id": ["a"], "refunded": pa.array([WIDE], pa.int64())})
    memory.table("refunds").upsert(rows, owner="refunds")
    expected = {"a": {"amount": 1, "method": None, "note": None, "refunded": WIDE}}
    assert owned(memory) == expected
    memory.table("admin").services.compact()
    assert owned(memory) == expected


def test_an_owner_whose_column_was_dropped_is_refused_until_it_owns_the_rest() -> None:
    memory = joined(orders=("amount", "note"), payments=("method",))
    table = memory.table()
    rows = of_owner(OWNED, "orders", id="a", amount=1).append_column("note", pa.array(["n"]))
    table.upsert(rows, owner="orders")
    with memory.table("admin").update_schema() as change:
        change.delete_column("note")
    with pytest.raises(pyhudi.InvalidRequestError, match="'note'"):
        table.upsert(rows, owner="orders")
    assert memory.pending() == []
    table.upsert(of_owner(OWNED, "payments", id="a", method="m"), owner="payments")
    table.alter.release_columns("orders")
    table.alter.own_columns("orders", ["amount"])
    table.upsert(of_owner(OWNED, "orders", id="b", amount=2), owner="orders")
    assert owned(memory) == {"a": {"amount": 1, "method": "m"}, "b": {"amount": 2, "method": None}}


def owned(memory: MemoryTable) -> dict[str, dict[str, Any]]:
    """Rows without the columns in which pyhudi ranks the parts."""
    rows = memory.table("reader").read().to_arrow().to_pylist()
    return {
        row.pop("id"): {n: v for n, v in row.items() if not n.startswith("_pyhudi_")}
        for row in rows
    }
