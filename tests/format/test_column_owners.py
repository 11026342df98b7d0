"""Who may own which columns of a joined table, and how that is stored."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.column_owners import (
    OWNERS_MAX,
    RANK_COLUMN,
    ColumnOwners,
    decode_owners,
    encode_owners,
    is_joined,
)
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.merge_rules import MergeMode
from pyhudi.format.table.properties import decode_table_properties, encode_properties
from pyhudi.format.table.table_config import TableConfig, TableType
from pyhudi.plan.new_table import table_properties
from pyhudi.plan.table_definition import TableDefinition

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("day", pa.string()),
        ("customer", pa.string()),
        ("amount", pa.int64()),
        ("method", pa.string()),
        ("note", pa.string()),
    ]
)
OWNERS = {"orders": ["customer", "amount"], "payments": ["method"]}


def definition(**changes: Any) -> TableDefinition:
    asked: dict[str, Any] = {
        "name": "wide",
        "schema": SCHEMA,
        "record_key": "id",
        "partition_by": "day",
        "buckets": SimpleBuckets(2),
        "owners": OWNERS,
    }
    return TableDefinition.of(**(asked | changes))


# ---- declaring


def test_a_column_has_one_owner_and_the_error_names_it() -> None:
    owners = ColumnOwners().with_owner("orders", ["customer", "amount"])
    with pytest.raises(InvalidRequestError, match="'amount': owner 'orders' has it"):
        owners.with_owner("payments", ["method", "amount"])


def test_the_same_declaration_again_changes_nothing_in_whatever_order() -> None:
    owners = ColumnOwners().with_owner("orders", ["customer", "amount"])
    assert owners.with_owner("orders", ["amount", "customer"]) is owners


@pytest.mark.parametrize("columns", [["customer"], ["customer", "amount", "note"], ["note"]])
def test_an_owner_keeps_its_columns_until_it_releases_them(columns: list[str]) -> None:
    owners = ColumnOwners().with_owner("orders", ["customer", "amount"])
    with pytest.raises(InvalidRequestError, match="owner 'orders' is declared already"):
        owners.with_owner("orders", columns)
    assert owners.without("orders").with_owner("orders", columns).columns == {
        "orders": tuple(columns)
    }


def test_releasing_the_columns_of_nobody_changes_nothing() -> None:
    owners = ColumnOwners({"orders": ("amount",)})
    assert owners.without("payments") == owners


def test_there_is_a_limit_to_owners() -> None:
    owners = ColumnOwners({f"o{n}": (f"c{n}",) for n in range(OWNERS_MAX)})
    with pytest.raises(InvalidRequestError, match="limit"):
        owners.with_owner("one more", ["c"])


# ---- tables


def test_a_joined_table_is_merged_by_its_rank_and_never_blocks() -> None:
    made = definition()
    assert made.owners == ColumnOwners({"orders": ("customer", "amount"), "payments": ("method",)})
    assert made.schema == SCHEMA.append(pa.field(RANK_COLUMN, pa.int32()))
    assert made.ordering == (RANK_COLUMN,)
    assert made.merge_mode is MergeMode.EVENT_TIME_ORDERING
    assert made.table_type is TableType.MERGE_ON_READ
    assert made.concurrency is ConcurrencyMode.NON_BLOCKING


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize(("owners", "joined"), [(OWNERS, True), ({}, True), (None, False)])
def test_a_table_knows_that_it_was_made_for_owners(
    owners: dict[str, list[str]] | None, joined: bool, version: int
) -> None:
    data = encode_properties(table_properties(definition(owners=owners, version=version)))
    assert is_joined(TableConfig.of(decode_table_properties(data, "p"))) is joined


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"table_type": TableType.COPY_ON_WRITE}, "cannot be copy on write: owners write parts"),
    ({"ordering": "amount"}, "cannot be merged by event time: .*when compaction ran"),
    ({"merge_mode": MergeMode.EVENT_TIME_ORDERING}, "cannot be merged by event time"),
    ({"merge_mode": MergeMode.COMMIT_TIME_ORDERING}, "cannot be merged by commit time: Hudi"),
    ({"concurrency": ConcurrencyMode.OPTIMISTIC}, "cannot have optimistic concurrency"),
    ({"schema": SCHEMA.append(pa.field(RANK_COLUMN, pa.int64()))}, "of its own: pyhudi adds it"),
    ({"schema": SCHEMA.set(4, pa.field("method", pa.string(), nullable=False))}, "'method' of a"),
    ({"schema": SCHEMA.set(5, pa.field("note", pa.string(), nullable=False))}, "'note' of a"),
    ({"owners": ["orders"]}, "not a dictionary"),
    ({"owners": {"orders": "amount"}}, "'amount' is not a list of names"),
    ({"owners": {"orders": 7}}, "7 is not a list of names"),
    ({"owners": {"orders": []}}, "the list is empty"),
    ({"owners": {"orders": [1]}}, "are not all names"),
    ({"owners": {"orders": ["amount", "amount"]}}, "names the column 'amount' twice"),
    ({"owners": {"orders": ["price"]}}, "cannot have the column 'price': the table has 'id'"),
    ({"owners": {"orders": ["id"]}}, "cannot have the column 'id': it says which row"),
    ({"owners": {"orders": ["day"]}}, "cannot have the column 'day': it says which row"),
    ({"owners": {"orders": [RANK_COLUMN]}}, "pyhudi itself fills it in"),
    ({"owners": {"a": ["amount"], "b": ["amount"]}}, "owner 'b' cannot .* owner 'a' has it"),
    ({"owners": {"": ["amount"]}}, "'' cannot be the name of an owner"),
    ({"owners": {"x" * 129: ["amount"]}}, "cannot be the name of an owner"),
    ({"owners": {"a\nb": ["amount"]}}, "cannot be the name of an owner"),
    ({"owners": {3: ["amount"]}}, "3 cannot be the name of an owner"),
]


@pytest.mark.parametrize(("asked", "why"), REFUSED)
def test_what_no_joined_table_can_have_is_refused_with_the_reason(
    asked: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        definition(**asked)


# ---- as it is stored

names = st.text(min_size=1, max_size=20)


@given(st.dictionaries(names, st.lists(names, min_size=1, max_size=3), max_size=5))
@settings(deadline=None, max_examples=100)
def test_owners_come_back_from_their_bytes(found: dict[str, list[str]]) -> None:
    seen: set[str] = set()
    owners = {}
    for owner, columns in found.items():
        own = tuple(name for name in dict.fromkeys(columns) if name not in seen)
        seen.update(own)
        if own:
            owners[owner] = own
    data = encode_owners(ColumnOwners(owners))
    assert decode_owners(data, "p") == ColumnOwners(owners)
    assert encode_owners(decode_owners(data, "p")) == data


DAMAGED = [
    b"",
    b"{",
    b"[]",
    b"{}",
    b"\xff",
    b'{"owners": []}',
    b'{"owners": {"a": "b"}}',
    b'{"owners": {"a": []}}',
    b'{"owners": {"a": [1]}}',
    b'{"owners": {"a": ["x"], "b": ["x"]}}',
    b"[" * 100_000,
    json.dumps({"owners": {"a": ["x" * (1 << 24)]}}).encode(),
]


@pytest.mark.parametrize("data", DAMAGED, ids=range(len(DAMAGED)))
def test_bytes_that_are_no_owners_are_an_error_that_names_the_object(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match=r"in '7\.json'"):
        decode_owners(data, "7.json")
