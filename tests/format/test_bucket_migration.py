"""What a table records while its buckets are migrated."""

from __future__ import annotations

import pytest

from pyhudi.errors import CorruptTableError
from pyhudi.format.table.bucket_config import (
    BUCKET_ENGINE,
    ENGINES,
    ConsistentBuckets,
    SimpleBuckets,
    bucket_properties,
)
from pyhudi.format.table.bucket_migration import (
    MIGRATING,
    MIGRATION,
    OLD_COUNT,
    OLD_HASH_FIELDS,
    MigratingBuckets,
    agrees,
    announced_properties,
    begun_properties,
    is_outdated,
    migrated_properties,
    ring_settings,
    table_buckets,
    target_of,
)
from pyhudi.format.table.properties import TableProperties

KEY = ("id", "line")
BEFORE = SimpleBuckets(3, ("line",)).resolved(KEY)
AFTER = ConsistentBuckets(4, max=64, hash_fields=("id",)).resolved(KEY)
PLAIN = {"hoodie.table.name": "t", **bucket_properties(BEFORE, KEY)}
ANNOUNCED = announced_properties(PLAIN, MigratingBuckets(BEFORE, AFTER), KEY)
BEGUN = begun_properties(ANNOUNCED)
DONE = migrated_properties(BEGUN)


@pytest.mark.parametrize(
    ("values", "buckets"),
    [
        (PLAIN, BEFORE),
        (ANNOUNCED, MigratingBuckets(BEFORE, AFTER, is_announced=True)),
        (BEGUN, MigratingBuckets(BEFORE, AFTER)),
        (DONE, AFTER),
    ],
)
def test_each_step_is_told_by_the_properties(values: dict[str, str], buckets: object) -> None:
    assert table_buckets(TableProperties(values), KEY) == buckets


@pytest.mark.parametrize("after", [ConsistentBuckets(), AFTER, ConsistentBuckets(min=2)])
def test_nothing_is_left_of_a_migration_that_ended(after: ConsistentBuckets) -> None:
    migration = MigratingBuckets(BEFORE, after.resolved(KEY))
    ended = migrated_properties(begun_properties(announced_properties(PLAIN, migration, KEY)))
    assert ended == {"hoodie.table.name": "t", **bucket_properties(after.resolved(KEY), KEY)}


@pytest.mark.parametrize("values", [PLAIN, BEGUN, DONE])
def test_a_begin_that_comes_late_changes_nothing(values: dict[str, str]) -> None:
    assert begun_properties(values) == values


@pytest.mark.parametrize("values", [PLAIN, DONE])
def test_an_end_that_comes_late_changes_nothing(values: dict[str, str]) -> None:
    assert migrated_properties(values) == values


def test_no_other_reader_knows_the_engine() -> None:
    assert ANNOUNCED[BUCKET_ENGINE] == BEGUN[BUCKET_ENGINE] == MIGRATING
    assert MIGRATING not in ENGINES


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (MIGRATION, "later"),
        (OLD_COUNT, "0"),
        (OLD_COUNT, "many"),
        (OLD_COUNT, None),
        (OLD_HASH_FIELDS, "v"),
        ("hoodie.bucket.index.num.buckets", None),
        ("hoodie.bucket.index.num.buckets", "0"),
    ],
)
def test_a_migration_that_is_recorded_wrongly_is_an_error(key: str, value: str | None) -> None:
    values = {**BEGUN, key: value}
    kept = {name: text for name, text in values.items() if text is not None}
    with pytest.raises(CorruptTableError):
        table_buckets(TableProperties(kept), KEY)


MIGRATING_NOW = MigratingBuckets(BEFORE, AFTER)


@pytest.mark.parametrize(
    ("opened", "now", "expected"),
    [
        (BEFORE, BEFORE, False),
        (BEFORE, MIGRATING_NOW, True),
        (BEFORE, AFTER, True),
        (MIGRATING_NOW, MIGRATING_NOW, False),
        (MIGRATING_NOW, AFTER, False),
        (AFTER, AFTER, False),
        (None, AFTER, False),
    ],
)
def test_who_knows_of_no_migration_is_outdated(
    opened: object, now: object, *, expected: bool
) -> None:
    assert is_outdated(opened, now) is expected  # type: ignore[arg-type]


def test_a_caller_may_name_the_buckets_of_before_and_of_afterwards() -> None:
    assert [agrees(MIGRATING_NOW, each) for each in (BEFORE, AFTER, SimpleBuckets(9))] == [
        True,
        True,
        False,
    ]
    assert agrees(BEFORE, BEFORE)
    assert not agrees(AFTER, BEFORE)


def test_partitions_have_rings_or_are_to_have_some_as_soon_as_a_migration_is_announced() -> None:
    assert ring_settings(MIGRATING_NOW) == ring_settings(AFTER) == target_of(MIGRATING_NOW) == AFTER
    assert ring_settings(BEFORE) is None
    assert target_of(BEFORE) == BEFORE
