"""Owners of columns join their rows in one table: what they see, what is refused, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyhudi
from meddled_storage import Meddled
from memory_tables import MemoryTable
from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequestError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.files.log_file import LogBlock, decode_blocks
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.column_owners import RANK_COLUMN, ROW_RANK, ColumnOwners
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.index.simple_bucket import file_id
from pyhudi.settings import LogBlockFormat
from pyhudi.storage.objects.column_owners import declare_owners
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.write.detached import begin
from pyhudi.write.files.log_file import write_log
from pyhudi.write.files.spec import KeyedRows, Part, WriteSpec
from pyhudi.write.intent import WriteIntent
from pyhudi.write.schemas import row_schema

Row = dict[str, Any]
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("day", pa.string()),
        ("customer", pa.string()),
        ("amount", pa.int64()),
        ("method", pa.string()),
        ("rating", pa.float64()),
        ("note", pa.string()),  # nobody's
    ]
)
OWNERS = {"orders": ("customer", "amount"), "payments": ("method",), "reviews": ("rating",)}
IDENTITY = ("id", "day")
DATA = SCHEMA.names


class Joined(MemoryTable):
    """A joined table, and what its rows must be."""

    def __init__(self) -> None:
        super().__init__(SCHEMA, partition_by="day", buckets=SimpleBuckets(2), owners=OWNERS)
        declare_owners(self.storage, ColumnOwners(OWNERS))
        self.rows: dict[str, Row] = {}

    def upsert(self, owner: str, rows: Sequence[Row], label: str = "a", **settings: Any) -> None:
        self.table(label, **settings).upsert(part(owner, rows), owner=owner)
        self.wrote(rows)

    def delete(self, keys: Sequence[str]) -> None:
        self.table("deleter").delete(pa.table({"id": [*keys]}))
        for key in keys:
            self.rows.pop(key, None)

    def wrote(self, rows: Sequence[Row]) -> None:
        """Rows of an owner: what they lack stays."""
        for row in rows:
            known = self.rows.setdefault(row["id"], dict.fromkeys(DATA))
            self.rows[row["id"]] = {**known, **row}

    def read(self, **how: Any) -> dict[str, Row]:
        return by_key(self.table("reader").read(columns=DATA, **how).to_arrow())

    def agree(self) -> None:
        assert self.read() == self.rows


def by_key(table: pa.Table) -> dict[str, Row]:
    rows = {row["id"]: row for row in table.select(DATA).to_pylist()}
    assert len(rows) == table.num_rows, "a key came out twice"
    return rows


def part(owner: str, rows: Sequence[Row]) -> pa.Table:
    names = (*IDENTITY, *OWNERS[owner])
    return pa.Table.from_pylist([*rows], pa.schema([SCHEMA.field(name) for name in names]))


def order(key: str, customer: str | None, amount: int | None, day: str = "d0") -> Row:
    return {"id": key, "day": day, "customer": customer, "amount": amount}


def payment(key: str, method: str | None, day: str = "d0") -> Row:
    return {"id": key, "day": day, "method": method}


def review(key: str, rating: float | None, day: str = "d0") -> Row:
    return {"id": key, "day": day, "rating": rating}


PARTS: dict[str, list[Row]] = {
    "orders": [order("k1", "Ada", 1), order("k2", "Bo", 2, "d1"), order("k3", "Cy", 3)],
    "payments": [payment("k1", "card"), payment("k2", "cash", "d1"), payment("k4", "bill")],
    "reviews": [review("k1", 4.5), review("k3", None), review("k5", 1.0, "d1")],
}


# ---- the join


@pytest.mark.parametrize("block_format", LogBlockFormat)
@pytest.mark.parametrize("turns", list(permutations(OWNERS)))
def test_parts_of_rows_are_joined_in_whatever_order_they_come(
    turns: Sequence[str], block_format: LogBlockFormat
) -> None:
    joined = Joined()
    for owner in turns:
        joined.upsert(owner, PARTS[owner], owner, log_block_format=block_format)
        joined.agree()
    assert joined.rows["k1"] == {
        **order("k1", "Ada", 1),
        **payment("k1", "card"),
        **review("k1", 4.5),
        "note": None,
    }


def test_a_key_that_one_owner_has_written_has_nulls_elsewhere() -> None:
    joined = Joined()
    joined.upsert("payments", [payment("k", "card")])
    assert joined.read() == {"k": {**dict.fromkeys(DATA), **payment("k", "card")}}


def test_an_explicit_null_takes_the_place_of_a_value_and_other_columns_stay() -> None:
    joined = Joined()
    joined.upsert("orders", [order("k", "Ada", 1)])
    joined.upsert("payments", [payment("k", "card")])
    joined.upsert("orders", [order("k", None, 2)])
    assert joined.read()["k"] == {
        **dict.fromkeys(DATA),
        **order("k", None, 2),
        **payment("k", "card"),
    }


@pytest.mark.parametrize("buffer_bytes_max", [1, 1 << 20])
def test_of_rows_with_one_key_the_last_one_is_written(buffer_bytes_max: int) -> None:
    joined = Joined()
    joined.upsert("payments", [payment("k", "card")])
    batches = [part("orders", [order("k", f"c{n}", n), order("k", None, n)]) for n in range(3)]
    table = joined.table(buffer_bytes_max=buffer_bytes_max)
    table.upsert(pa.concat_tables(batches), owner="orders")
    joined.wrote([order("k", None, 2)])
    joined.agree()


def test_predicates_and_single_columns_see_joined_rows() -> None:
    joined = Joined()
    joined.upsert("orders", PARTS["orders"])
    joined.upsert("payments", PARTS["payments"])
    table = joined.table()
    found = table.read(columns=["id"], where="amount = 1 AND method = 'card'").to_arrow()
    assert found.to_pylist() == [{"id": "k1"}]
    assert table.read(columns=["id"], where="method IS NULL").to_arrow().to_pylist() == [
        {"id": "k3"}
    ]
    assert sorted(table.read(columns=["method"]).to_arrow()["method"].to_pylist(), key=str) == [
        None,
        "bill",
        "card",
        "cash",
    ]


owners = st.sampled_from(sorted(OWNERS))
values: dict[str, st.SearchStrategy[Any]] = {
    "customer": st.none() | st.sampled_from("ab"),
    "amount": st.none() | st.integers(0, 3),
    "method": st.none() | st.sampled_from("xy"),
    "rating": st.none() | st.sampled_from([0.5, 1.5]),
}
keys = st.sampled_from(["k1", "k2", "k3", "k4"])


def parts_of(owner: str) -> st.SearchStrategy[tuple[str, list[Row]]]:
    own = st.fixed_dictionaries({name: values[name] for name in OWNERS[owner]})
    rows = st.dictionaries(keys, own, min_size=1).map(
        lambda found: [{"id": key, "day": f"d{key[1]}", **row} for key, row in found.items()]
    )
    return rows.map(lambda found: (owner, found))


whole_rows = st.dictionaries(keys, st.fixed_dictionaries(values), max_size=3).map(
    lambda found: [{"id": k, "day": f"d{k[1]}", **row, "note": "n"} for k, row in found.items()]
)
steps = st.one_of(
    owners.flatmap(parts_of),
    st.tuples(st.just("overwrite"), whole_rows),
    st.tuples(st.just("delete"), st.lists(keys, min_size=1, unique=True)),
    st.tuples(st.just("overlap"), st.tuples(owners.flatmap(parts_of), owners.flatmap(parts_of))),
    st.tuples(
        st.just("overlapped delete"),
        st.tuples(owners.flatmap(parts_of), st.lists(keys, min_size=1, unique=True)),
    ),
)


@given(st.lists(steps, max_size=7))
@settings(deadline=None, max_examples=15)
def test_any_story_of_owners_deletes_and_overwrites_is_what_a_plain_model_says(
    story: list[Any],
) -> None:
    joined = Joined()
    for what, given_rows in story:
        if what == "delete":
            joined.delete(given_rows)
        elif what == "overwrite":
            rows = pa.Table.from_pylist(given_rows, SCHEMA)
            joined.table().overwrite(rows, partitions="all")
            joined.rows = {}
            joined.wrote(given_rows)
        elif what == "overlap":
            (first, outer), (second, inner) = given_rows
            nested(joined, first, outer, partial(joined.upsert, second, inner, "inner"))
            # The one that was requested first comes first, though it completes last.
            joined.wrote([row for row in outer if not same_owner_later(first, second, row, inner)])
        elif what == "overlapped delete":
            (owner, parts), gone = given_rows
            nested(joined, owner, parts, partial(joined.delete, gone))
            joined.wrote(parts)  # behind the delete
        else:
            joined.upsert(what, given_rows)
        joined.agree()


def same_owner_later(first: str, second: str, row: Row, inner: Sequence[Row]) -> bool:
    return first == second and any(row["id"] == other["id"] for other in inner)


def nested(
    joined: Joined, owner: str, rows: Sequence[Row], meanwhile: Callable[[], None]
) -> pyhudi.WriteResult:
    """A write during which something else happens: after its begin, before its completion."""
    whole = part(owner, rows)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from whole.to_batches()
        meanwhile()

    table = joined.table("outer", buffer_bytes_max=1)
    reader = pa.RecordBatchReader.from_batches(whole.schema, batches())
    return table.upsert(reader, owner=owner)


def test_owners_that_overlap_never_conflict_whoever_completes_first() -> None:
    joined = Joined()
    joined.upsert("orders", [order("k0", "Zoe", 0)])  # so that nobody has to open the bucket

    def innermost() -> None:
        joined.upsert("reviews", PARTS["reviews"], "inner")

    def middle() -> None:
        nested_result = nested(joined, "payments", PARTS["payments"], innermost)
        joined.wrote(PARTS["payments"])
        assert nested_result.retries == 0
        joined.agree()

    result = nested(joined, "orders", PARTS["orders"], middle)
    joined.wrote(PARTS["orders"])
    assert result.retries == 0
    joined.agree()


# ---- deletes and overwrites


def test_a_row_that_is_written_after_a_delete_starts_afresh() -> None:
    joined = Joined()
    joined.upsert("orders", PARTS["orders"])
    joined.upsert("payments", PARTS["payments"])
    joined.table().delete(pa.table({"id": ["k1", "k4"]}))
    del joined.rows["k1"], joined.rows["k4"]
    joined.agree()
    joined.upsert("reviews", [review("k1", 5.0)])
    joined.agree()
    assert joined.rows["k1"] == {**dict.fromkeys(DATA), **review("k1", 5.0)}


@pytest.mark.parametrize("given_rank", [None, 1, 99])
def test_overwritten_rows_are_whole_and_parts_go_on_from_there(given_rank: int | None) -> None:
    joined = Joined()
    for owner, rows in PARTS.items():
        joined.upsert(owner, rows)
    row = {**dict.fromkeys(DATA), **order("k1", "New", 9), "note": "fresh"}
    table = pa.Table.from_pylist([row], SCHEMA)
    if given_rank is not None:  # as rows that were read have it
        table = table.append_column(RANK_COLUMN, pa.array([given_rank], pa.int32()))
    joined.table().overwrite(table, partitions=["d0"])
    joined.rows = {key: row for key, row in joined.rows.items() if row["day"] != "d0"}
    joined.wrote([row])
    joined.agree()
    joined.upsert("payments", [payment("k1", "bill")])
    joined.agree()
    joined.table().delete_partitions(["d1"])
    joined.rows = {key: row for key, row in joined.rows.items() if row["day"] != "d1"}
    joined.agree()
    ranks = joined.table().read(columns=[RANK_COLUMN]).to_arrow()[RANK_COLUMN].unique()
    assert ranks.to_pylist() == [ROW_RANK]


@pytest.mark.parametrize("buffer_bytes_max", [1, 1 << 20])
def test_a_part_whose_row_is_deleted_meanwhile_is_written_again_as_a_new_row(
    buffer_bytes_max: int,
) -> None:
    """Whether its rows are at hand, or only in its own files."""
    joined = Joined()
    joined.upsert("orders", PARTS["orders"])
    table = joined.table("outer", buffer_bytes_max=buffer_bytes_max)
    current, done = table._opening.session().current, list[bool]()
    looked_up = current.load

    def state(**_: Any) -> Any:
        found = looked_up()
        if not done:  # the first look of the write, after its begin
            done.append(True)
            joined.delete(["k1"])
        return found

    current.load = state  # type: ignore[method-assign]
    result = table.upsert(part("payments", PARTS["payments"]), owner="payments")
    joined.wrote(PARTS["payments"])
    assert result.retries == 1
    joined.agree()
    assert joined.rows["k1"]["customer"] is None


def test_a_delete_beside_which_a_part_completes_is_repeated() -> None:
    joined = Joined()
    joined.upsert("orders", PARTS["orders"])
    table = joined.table("deleter")
    current, calls = table._opening.session().current, list[int]()
    looked_up = current.load

    def state(**_: Any) -> Any:
        found = looked_up()
        calls.append(1)
        if len(calls) == 1:  # the look of the plan, after its begin
            joined.upsert("payments", PARTS["payments"])
        return found

    current.load = state  # type: ignore[method-assign]
    table.delete(pa.table({"id": ["k1"]}))
    del joined.rows["k1"]
    assert len(calls) == 2
    joined.agree()


def test_a_predicate_deletes_joined_rows() -> None:
    joined = Joined()
    joined.upsert("orders", PARTS["orders"])
    joined.upsert("payments", PARTS["payments"])
    joined.table().delete("method = 'card' OR amount = 3")
    assert sorted(joined.read()) == ["k2", "k4"]


# ---- changes


def test_a_consumer_sees_whole_rows_of_each_write_once_whatever_overlaps() -> None:
    joined = Joined()
    joined.upsert("orders", PARTS["orders"])
    table, seen = joined.table("consumer"), [""]
    polled: list[dict[str, Row]] = []

    def poll() -> None:
        feed = table.changes(since=seen[-1] or None)
        polled.append(by_key(feed.to_arrow()))
        seen.append(feed.until)

    poll()
    assert polled.pop() == joined.rows
    slow = [payment("k1", "card"), payment("k9", "cash")]

    def meanwhile() -> None:
        joined.upsert("reviews", [review("k1", 3.0)], "inner")
        poll()

    nested(joined, "payments", slow, meanwhile)
    joined.wrote(slow)
    poll()
    poll()
    # The payment of k1 is requested before its review and completes after it: the row's commit time
    # is the review's, and still the payment is a change of its own.
    reviewed = {**dict.fromkeys(DATA), **order("k1", "Ada", 1), **review("k1", 3.0)}
    assert polled == [
        {"k1": reviewed},
        {"k1": {**reviewed, **payment("k1", "card")}, "k9": joined.rows["k9"]},
        {},
    ]


def test_changes_of_an_overwrite_are_its_rows() -> None:
    joined = Joined()
    joined.upsert("orders", PARTS["orders"])
    before = joined.table().changes().until
    row = {**dict.fromkeys(DATA), **order("k7", "New", 9)}
    joined.table().overwrite(pa.Table.from_pylist([row], SCHEMA))
    assert by_key(joined.table().changes(since=before).to_arrow()) == {"k7": row}


# ---- what is refused


def whole() -> pa.Table:
    return pa.Table.from_pylist([{**dict.fromkeys(DATA), "id": "k", "day": "d0"}], SCHEMA)


REFUSED: dict[str, tuple[Callable[[Table], object], str]] = {
    "upsert": (lambda t: t.upsert(whole()), "upsert of whole rows is not possible .* owners"),
    "append": (lambda t: t.append(whole()), "append is not possible .* owners"),
    "update": (lambda t: t.update(whole(), columns=["note"]), "update is not possible"),
    "nobody": (
        lambda t: t.upsert(part("orders", PARTS["orders"]), owner="returns"),
        "'returns' owns no columns of .*: its owners are 'orders', 'payments', 'reviews'",
    ),
    "no name": (lambda t: t.upsert(whole(), owner=""), "cannot be the name of an owner"),
    "all columns": (
        lambda t: t.upsert(whole(), owner="orders"),
        "columns of owner 'orders': 'method' belongs to owner 'payments'.*'note' has no owner",
    ),
    "too few": (
        lambda t: t.upsert(part("orders", PARTS["orders"]).drop_columns("amount"), owner="orders"),
        "columns of owner 'orders': missing 'amount'. Give 'id', 'day', 'customer', 'amount', and",
    ),
    "no key": (
        lambda t: t.upsert(part("orders", PARTS["orders"]).drop_columns("id"), owner="orders"),
        "missing 'id'",
    ),
    "another's": (
        lambda t: t.upsert(part("payments", PARTS["payments"]), owner="orders"),
        "missing 'customer', 'amount'; 'method' belongs to owner 'payments'",
    ),
    "rank": (
        lambda t: t.upsert(
            part("orders", PARTS["orders"]).append_column(RANK_COLUMN, pa.array([1, 1, 1])),
            owner="orders",
        ),
        f"'{RANK_COLUMN}' has no owner",
    ),
    "wrong type": (
        lambda t: t.upsert(
            pa.table({"id": ["k"], "day": ["d"], "method": [[1]]}), owner="payments"
        ),
        "types in 'method'",
    ),
    "null key": (
        lambda t: t.upsert(
            pa.table({"id": [None], "day": ["d"], "method": ["x"]}), owner="payments"
        ),
        "'id'",
    ),
    "taken column": (
        lambda t: t.alter.own_columns("returns", ["note", "amount"]),
        "'amount': owner 'orders' has it",
    ),
    "other columns": (
        lambda t: t.alter.own_columns("orders", ["amount"]),
        "owner 'orders' is declared already",
    ),
    "key column": (lambda t: t.alter.own_columns("returns", ["id"]), "says which row"),
    "no column": (lambda t: t.alter.own_columns("returns", ["x"]), "cannot have the column 'x'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_break_the_join_is_refused_before_anything_begins(name: str) -> None:
    joined = Joined()
    joined.upsert("orders", PARTS["orders"])
    before = joined.names()
    refused, why = REFUSED[name]
    with pytest.raises(InvalidRequestError, match=why):
        refused(joined.table())
    assert joined.names() == before
    assert joined.table().owners == OWNERS
    joined.agree()


@pytest.mark.parametrize("operation", ["UPSERT", "INSERT", "DELETE"])
def test_a_save_of_whole_rows_is_refused_too(operation: str) -> None:
    joined = Joined()
    session = joined.session()
    intent = WriteIntent(operation=operation, rows=row_schema(session))
    with pytest.raises(InvalidRequestError, match="a save is not possible"):
        begin(session, intent)
    assert not joined.names()[1:]


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.upsert(whole(), owner="orders"),
        lambda t: t.alter.own_columns("orders", ["amount"]),
        lambda t: t.alter.release_columns("orders"),
    ],
)
def test_a_table_that_was_made_without_owners_has_none(call: Callable[[Table], object]) -> None:
    plain = MemoryTable(SCHEMA, buckets=SimpleBuckets(1))
    with pytest.raises(InvalidRequestError, match="has no owners of columns"):
        call(plain.table())
    assert plain.table().owners == {}


# ---- owners that change


def test_the_columns_of_a_joined_table_are_the_users() -> None:
    table = Joined().table("a")
    assert table.schema.data_columns == DATA
    assert table.schema.arrow.names == [*DATA, RANK_COLUMN]


def test_owners_may_be_declared_later_and_a_column_changes_hands() -> None:
    joined = Joined()
    table = joined.table()
    table.alter.own_columns("notes", ["note"])
    table.alter.own_columns("notes", ["note"])
    rows = pa.table({"id": ["k1"], "day": ["d0"], "note": ["first"]})
    table.upsert(rows, owner="notes")
    table.alter.release_columns("notes")
    table.alter.release_columns("notes")
    with pytest.raises(InvalidRequestError, match="'notes' owns no columns"):
        table.upsert(rows, owner="notes")
    table.alter.own_columns("remarks", ["note"])
    table.upsert(rows.set_column(2, "note", [["second"]]), owner="remarks")
    assert joined.read()["k1"]["note"] == "second"
    assert table.owners == {**OWNERS, "remarks": ("note",)}


def release(table: Table) -> None:
    table.alter.release_columns("payments")


def hand_over(table: Table) -> None:
    table.alter.release_columns("payments")
    table.alter.own_columns("bank", ["method"])


def extend(table: Table) -> None:
    table.alter.release_columns("payments")
    table.alter.own_columns("payments", ["method", "note"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (release, "its columns were released or declared again"),
        (hand_over, "'method' belongs to owner 'bank'"),
        (extend, "its columns were released or declared again"),
    ],
)
def test_who_loses_a_column_while_writing_cannot_complete(
    change: Callable[[Table], None], why: str
) -> None:
    joined = Joined()
    joined.upsert("payments", [payment("k1", "card")])
    with pytest.raises(InvalidRequestError, match=f"'payments' may not complete this write: {why}"):
        nested(joined, "payments", [payment("k1", "stale")], lambda: change(joined.table("b")))
    joined.agree()
    assert not joined.pending(), "the write was rolled back"


def test_a_column_that_was_given_away_and_back_stops_a_write_that_began_before() -> None:
    joined = Joined()

    def meanwhile() -> None:
        alter = joined.table("b").alter
        alter.release_columns("payments")
        alter.own_columns("others", sorted(OWNERS["payments"]))
        alter.release_columns("others")
        alter.own_columns("payments", sorted(OWNERS["payments"]))

    with pytest.raises(InvalidRequestError, match="'payments' may not complete this write"):
        nested(joined, "payments", [payment("k1", "stale")], meanwhile)
    joined.agree()


def test_owners_that_join_or_leave_elsewhere_do_not_matter_to_a_running_write() -> None:
    joined = Joined()

    def meanwhile() -> None:
        joined.table("b").alter.own_columns("notes", ["note"])
        joined.table("b").alter.release_columns("reviews")

    nested(joined, "payments", PARTS["payments"], meanwhile)
    joined.wrote(PARTS["payments"])
    joined.agree()


def test_owners_may_name_their_writes_alike() -> None:
    joined = Joined()
    for owner in ("orders", "payments"):
        joined.table().upsert(part(owner, PARTS[owner]), owner=owner, write_id="run 1")
        joined.wrote(PARTS[owner])
    joined.agree()
    joined.table().alter.release_columns("orders")
    again = joined.table().upsert(part("orders", PARTS["orders"]), owner="orders", write_id="run 1")
    assert again.seconds == 0.0


@pytest.mark.parametrize("name", ["_hoodie_is_deleted", "_hoodie_operation"])
def test_a_column_by_which_a_part_would_delete_the_row_is_refused(name: str) -> None:
    schema = SCHEMA.append(pa.field(name, pa.bool_()))
    with pytest.raises(InvalidRequestError, match=f"cannot have the column '{name}'"):
        MemoryTable(schema, partition_by="day", buckets=SimpleBuckets(2), owners=OWNERS)


def test_a_write_id_makes_it_safe_to_repeat_a_write_of_an_owner() -> None:
    joined = Joined()
    rows = part("payments", PARTS["payments"])
    first = joined.table().upsert(rows, owner="payments", write_id="once")
    again = joined.table("b").upsert(rows, owner="payments", write_id="once")
    assert first.instant == again.instant
    assert first.rows == again.rows == len(PARTS["payments"]), "stand-ins are no rows"


# ---- the bytes


def spec_of(joined: Joined, owner: str, block_format: LogBlockFormat) -> WriteSpec:
    return WriteSpec(
        InstantTime("20260101000000007"),
        joined.session("s").schema.avro(),
        block_format,
        part=Part(IDENTITY, OWNERS[owner]),
    )


def blocks_of(storage: MemoryStorage, path: str) -> list[LogBlock]:
    data = storage.read(path)
    found = [*decode_blocks(lambda start, end: data[start:end], len(data), path)]
    assert all(isinstance(block, LogBlock) for block in found)
    return [block for block in found if isinstance(block, LogBlock)]


@pytest.mark.parametrize("block_format", LogBlockFormat)
@pytest.mark.parametrize(
    ("existing", "inserts", "partial_blocks"),
    [([], 3, [False, True]), (["k2"], 2, [False, True]), (["k1", "k2", "k3", "x"], 0, [True])],
)
def test_stand_ins_of_new_keys_come_before_parts_and_a_second_attempt_accepts_the_file(
    block_format: LogBlockFormat, existing: list[str], inserts: int, partial_blocks: list[bool]
) -> None:
    joined = Joined()
    spec = spec_of(joined, "orders", block_format)
    rows = part("orders", PARTS["orders"]).combine_chunks().to_batches()[0]
    keys, known = rows.column("id"), pa.array(existing, pa.string())
    write = partial(
        write_log, joined.storage, spec, FileGroupId("d0", file_id(0)), existing_keys=known
    )
    [stat] = write(rows=KeyedRows(rows, keys))
    assert (stat.num_writes, stat.num_inserts, stat.num_deletes) == (3, inserts, 0)
    assert stat.num_update_writes == 3 - inserts
    blocks = blocks_of(joined.storage, stat.data_path)
    assert [block.is_partial for block in blocks] == partial_blocks
    assert write(rows=KeyedRows(rows, keys)) == (stat,)
    order = pa.array([2, 0, 1])
    [again] = write(rows=KeyedRows(rows.take(order), keys.take(order)))
    assert (again.path, again.num_writes) == (stat.path, 3)


def test_a_key_that_only_a_later_request_brought_counts_as_new() -> None:
    """Time travel to our request shows our part and not the later one's row."""
    joined = Joined()
    joined.upsert("orders", [order("k0", "Zoe", 0)])
    table = joined.table("outer")
    current, done = table._opening.session().current, list[bool]()
    looked_up = current.load

    def state(**_: Any) -> Any:
        if not done:  # before the first look of the write, after its begin
            done.append(True)
            joined.upsert("orders", [order("k1", "Ada", 1)], "inner")
        return looked_up()

    current.load = state  # type: ignore[method-assign]
    result = table.upsert(part("payments", [payment("k1", "card")]), owner="payments")
    joined.wrote([payment("k1", "card")])
    joined.agree()
    [log] = [s.path for s in joined.storage.list("d0") if f"_{result.instant}.log" in s.path]
    assert [block.is_partial for block in blocks_of(joined.storage, log)] == [False, True]
    then = joined.read(as_of=pyhudi.RequestedTime(result.instant))
    assert then["k1"] == {**dict.fromkeys(DATA), **payment("k1", "card")}


def test_rows_of_many_blocks_and_files_are_joined() -> None:
    joined = Joined()
    count = 400
    rows = [order(f"k{n:03}", "x" * 50, n) for n in range(count)]
    joined.upsert("orders", rows, log_file_bytes_max=10_000)
    logs = [s.path for s in joined.storage.list("d0") if ".log." in s.path]
    assert len(logs) > 2, "several files in each group"
    joined.agree()
    joined.upsert("payments", [payment(f"k{n:03}", "card") for n in range(0, count, 2)])
    joined.agree()


# ---- a column of an owner is dropped

#: Just before which object the column is dropped, while an owner's write runs.
MOMENTS = {
    "before the call": None,
    "before the begin": ".pyhudi/log/",
    "after the begin": ".inflight",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_owner_whose_column_was_dropped_is_refused_and_learns_what_to_do(moment: str) -> None:
    joined = Joined()
    joined.upsert("orders", PARTS["orders"])

    def drop() -> None:
        with joined.table("evolver").update_schema() as change:
            change.delete_column("amount")

    storage = None
    if (mark := MOMENTS[moment]) is None:
        drop()
    else:
        storage = Meddled(joined.storage, mark, drop)
    with pytest.raises(
        InvalidRequestError,
        match="owner 'orders' cannot write its column 'amount': the table has it no longer"
        r".*release_columns\('orders'\).*nothing of this write is visible",
    ):
        joined.table("a", storage).upsert(part("orders", [order("new", "Di", 4)]), owner="orders")
    assert storage is None or storage.is_done
    assert joined.pending() == []

    table = joined.table("b")
    table.alter.release_columns("orders")
    table.alter.own_columns("orders", ["customer"])
    rows = part("orders", [order("new", "Di", 4)]).drop_columns("amount")
    table.upsert(rows, owner="orders")
    read = joined.table("reader").read(columns=["id", "customer"]).to_arrow().to_pylist()
    assert {"id": "new", "customer": "Di"} in read


def test_a_column_that_is_dropped_while_an_owner_writes_its_files_is_just_not_read() -> None:
    joined = Joined()

    def drop() -> None:
        with joined.table("evolver").update_schema() as change:
            change.delete_column("amount")

    storage = Meddled(joined.storage, ".log.", drop)
    joined.table("a", storage).upsert(part("orders", PARTS["orders"]), owner="orders")
    assert storage.is_done
    read = joined.table("reader").read().to_arrow()
    assert "amount" not in read.column_names
    assert sorted(read["customer"].to_pylist()) == ["Ada", "Bo", "Cy"]


# ---- creating


def create(uri: str, owners: Mapping[str, Sequence[str]] | None, **more: Any) -> Table:
    return pyhudi.create_table(
        uri,
        SCHEMA,
        record_key="id",
        partition_by="day",
        buckets=SimpleBuckets(2),
        owners=owners,
        exist_ok=True,
        **more,
    )


def test_a_joined_table_is_created_once_and_opened_by_all_others() -> None:
    uri = "memory://joined-created-once"
    first = create(uri, {"orders": OWNERS["orders"]})
    assert first.owners == {"orders": OWNERS["orders"]}
    assert create(uri, {"orders": OWNERS["orders"]}).owners == first.owners
    more = create(uri, {"payments": OWNERS["payments"]})
    assert more.owners == {"orders": OWNERS["orders"], "payments": OWNERS["payments"]}
    with pytest.raises(InvalidRequestError, match="owner 'orders' has it"):
        create(uri, {"others": ["amount"]})
    with pytest.raises(InvalidRequestError, match="exists and is different"):
        create(uri, None)


def test_a_creator_that_dies_before_it_declares_owners_leaves_a_table_that_nobody_can_write() -> (
    None
):
    joined = MemoryTable(SCHEMA, partition_by="day", buckets=SimpleBuckets(2), owners=OWNERS)
    with pytest.raises(InvalidRequestError, match="owns no columns"):
        joined.table().upsert(part("orders", PARTS["orders"]), owner="orders")
    with pytest.raises(InvalidRequestError, match="not possible"):
        joined.table().upsert(whole())
    declare_owners(joined.storage, ColumnOwners(OWNERS))
    joined.table().upsert(part("orders", PARTS["orders"]), owner="orders")
