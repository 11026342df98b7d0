"""Which tables can be migrated: those without partitions, of owners, empty, or made by Hudi."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from golden_tables import unpack
from migrating_tables import RINGS, MigratingTable, settled
from pyhudi.format.table.bucket_config import ConsistentBuckets, SimpleBuckets
from pyhudi.read.load import load_config
from pyhudi.storage.open import open_storage

_ID = pa.field("id", pa.string(), nullable=False)
SCHEMA = pa.schema([_ID, ("ts", pa.int64()), ("n", pa.int64())])


def rows(first: int, last: int, ts: int) -> pa.Table:
    numbers = range(first, last)
    columns = {"id": [f"k{n}" for n in numbers], "ts": [ts] * len(numbers), "n": list(numbers)}
    return pa.table(columns, schema=SCHEMA)


def content(table: pyhudi.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.read().to_arrow().sort_by("id").to_pylist()
    return found


def create(path: Path, **how: Any) -> pyhudi.Table:
    return pyhudi.create_table(path, SCHEMA, record_key="id", buckets=3, upkeep=False, **how)


@pytest.mark.parametrize(
    "how",
    [{"ordering": "ts"}, {}, {"version": 8, "ordering": "ts"}],
    ids=["by event time", "by commit time", "of version 8"],
)
def test_a_table_without_partitions_is_migrated(tmp_path: Path, how: dict[str, Any]) -> None:
    table = create(tmp_path / "t", **how)
    table.upsert(rows(0, 40, 1))
    table.upsert(rows(30, 50, 2))
    table.delete(pa.table({"id": ["k3"]}))
    table.services.compact()
    table.upsert(rows(10, 20, 3))
    before = content(table)
    done = table.services.migrate_buckets(RINGS)
    assert (len(done.results), done.is_done) == (1, True)
    assert "1 partition migrated" in str(done)
    assert content(table) == before
    settled(table)
    table.upsert(rows(0, 60, 4))
    assert content(table) == rows(0, 60, 4).sort_by("id").to_pylist()
    settled(table)


def test_a_table_whose_columns_have_owners_is_migrated(tmp_path: Path) -> None:
    table = create(tmp_path / "t", owners={"a": ["ts"], "b": ["n"]})
    table.upsert(rows(0, 20, 1).select(["id", "ts"]), owner="a")
    table.upsert(rows(10, 30, 1).select(["id", "n"]), owner="b")
    before = content(table)
    assert table.services.migrate_buckets(RINGS).is_done
    assert content(table) == before
    table.upsert(rows(0, 30, 2).select(["id", "n"]), owner="b")
    assert [row["n"] for row in content(table)] == [int(row["id"][1:]) for row in content(table)]
    settled(table)


def test_an_empty_table_is_migrated_at_once(tmp_path: Path) -> None:
    table = create(tmp_path / "t", ordering="ts")
    done = table.services.migrate_buckets(RINGS)
    assert (done.results, done.is_done) == ((), True)
    table.upsert(rows(0, 5, 1))
    settled(table)


@pytest.mark.parametrize("name", ["mor_nbcc", "mor_simple_bucket_v8", "mor_simple_bucket_v9"])
def test_a_table_that_hudi_made_is_migrated(tmp_path: Path, name: str) -> None:
    path = unpack(name, tmp_path)
    table = pyhudi.open_table(path)
    before = table.read().to_arrow()
    fields = (field for field in before.schema if not pa.types.is_nested(field.type))
    order = [(field.name, "ascending") for field in fields]
    assert table.services.migrate_buckets(RINGS).is_done
    assert table.read().to_arrow().sort_by(order).equals(before.sort_by(order))
    settled(table)
    assert isinstance(load_config(open_storage(str(path))).buckets, ConsistentBuckets)


def test_a_migration_may_hash_other_columns_than_before() -> None:
    table = MigratingTable(buckets=SimpleBuckets(3, ("id",)), record_key=("id", "ts"))
    table.put("abcd", 1)
    table.put("abcd", 2)
    table.announce()
    rings = ConsistentBuckets(initial=2, hash_fields=("id",))
    assert table.table("m").services.migrate_buckets(rings).is_done
    table.put("ab", 3)
    settled(table.table("r"))
    other = MigratingTable(buckets=SimpleBuckets(3, ("id",)), record_key=("id", "ts"))
    other.put("abcd", 1)
    rings = ConsistentBuckets(initial=2, hash_fields=("id", "ts"))
    assert other.table("m").services.migrate_buckets(rings).is_done
    assert other.config.buckets == rings
    other.put("ab", 3)
    assert len(other.table("r").read().to_arrow()) == 6
    settled(other.table("r"))


def test_a_partition_that_another_plan_has_is_left_until_that_is_done() -> None:
    table = MigratingTable()
    table.put("abcd", 1, "d")
    table.put("klmn", 1, "e")
    table.put("ab", 2, "d")
    planned = table.table("c").services.compact(plan_only=True).planned
    assert planned is not None
    done = table.migrate()  # which executes it
    assert done.is_done
    assert planned in table.session("look").log.refresh().completed
    settled(table.table("r"))


def test_a_partition_with_more_data_begins_with_more_buckets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyhudi.format.table.bucket_config.TARGET_BYTES", 4_096)
    table = MigratingTable()
    table.put([f"k{n}" for n in range(400)], 1, "large")
    table.put("a", 1, "small")
    assert table.table("m").services.migrate_buckets().is_done
    found = table.table("i").inspect.buckets().to_pylist()
    counts = {day: sum(row["partition"] == day for row in found) for day in ("large", "small")}
    assert counts["large"] > counts["small"]
    assert table.config.buckets == ConsistentBuckets().resolved(("id",))
