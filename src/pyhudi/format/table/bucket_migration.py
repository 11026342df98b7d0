"""How a table records that its simple buckets become consistent ones, partition by partition.

    recorded                    a partition has                       a new partition gets
    simple                      simple buckets                        simple buckets
    migrating, announced        simple buckets                        nothing yet
    migrating                   a ring, if one is in force;           a ring
                                else simple buckets
    consistent                  a ring                                a ring

*Announced* lasts until an entry of the decision log stands behind the change, a write without rows.
A process looks at the properties whenever it finds entries of others, before it appends behind
them. So every process that completes a write behind that entry knows of the migration: a write that
was placed without knowing is refused, and made again (`commit.validation.WriteCompletion`). From
then on no partition gets simple buckets any more, and only then does one get a ring.

At the end an entry comes first, too, and then the properties change. For writers that is no change,
since all partitions have rings by then.

Meanwhile the table's index has an engine that Apache Hudi does not know. So a Hudi writer fails
before it writes. It would put rows by one kind of buckets into partitions of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.bucket_config import (
    BUCKET_ENGINE,
    CONSISTENT,
    Buckets,
    ConsistentBuckets,
    SimpleBuckets,
    bucket_properties,
    buckets_of,
)
from pyhudi.format.table.properties import TableProperties

#: How the engine is called during a migration.
MIGRATING: Final = "PYHUDI_MIGRATING"
MIGRATION: Final = "pyhudi.buckets.migration"
OLD_COUNT: Final = "pyhudi.buckets.migration.from.count"
OLD_HASH_FIELDS: Final = "pyhudi.buckets.migration.from.hash.field"

_ANNOUNCED = "announced"
_BEGUN = "begun"
_OWN = (MIGRATION, OLD_COUNT, OLD_HASH_FIELDS)


@dataclass(frozen=True, slots=True)
class MigratingBuckets:
    """Simple buckets that become consistent ones."""

    before: SimpleBuckets
    after: ConsistentBuckets
    is_announced: bool = False  # no entry of the log stands behind it yet

    @property
    def hash_fields(self) -> tuple[str, ...]:
        return self.after.hash_fields


#: What a table may record. Callers give `Buckets`.
TableBuckets: TypeAlias = Buckets | MigratingBuckets


def table_buckets(properties: TableProperties, record_key: Sequence[str]) -> TableBuckets | None:
    """Return the buckets that the properties record, resolved; None if they record none."""
    if (step := properties.text(MIGRATION)) is None:
        return buckets_of(properties, record_key)
    if step not in (_ANNOUNCED, _BEGUN):
        raise properties.malformed(MIGRATION, f"{_ANNOUNCED!r} or {_BEGUN!r}")
    target = TableProperties({**properties.values, BUCKET_ENGINE: CONSISTENT})
    after, count = buckets_of(target, record_key), properties.number(OLD_COUNT)
    if not isinstance(after, ConsistentBuckets) or count is None:
        raise properties.malformed(MIGRATION, "left out, where the buckets are not recorded")
    try:
        before = SimpleBuckets(count, properties.names(OLD_HASH_FIELDS)).resolved(record_key)
    except InvalidRequestError as error:
        raise properties.malformed(OLD_COUNT, f"the buckets of before ({error.why})") from None
    return MigratingBuckets(before, after, is_announced=step == _ANNOUNCED)


def ring_settings(buckets: TableBuckets | None) -> ConsistentBuckets | None:
    """Return the consistent buckets that partitions have, or are to have; None if none are."""
    match buckets:
        case MigratingBuckets(after=after):
            return after
        case ConsistentBuckets():
            return buckets
    return None


def target_of(buckets: TableBuckets) -> Buckets:
    """Return the buckets, or those that they become."""
    return buckets.after if isinstance(buckets, MigratingBuckets) else buckets


def agrees(buckets: TableBuckets | None, given: Buckets) -> bool:
    """True if the table has the buckets that a caller names, or is being migrated from or to them.

    A job that names the old ones goes on until the migration has ended.
    """
    if isinstance(buckets, MigratingBuckets):
        return given in (buckets.before, buckets.after)
    return buckets == given


def is_outdated(opened: TableBuckets | None, now: TableBuckets | None) -> bool:
    """True if rows that were placed by these buckets may be in the wrong place by now.

    Of a migration that has ended the rules are those of the buckets that it led to, as long as
    every partition has a ring. So only who knows of no migration is outdated.
    """
    return isinstance(opened, SimpleBuckets) and ring_settings(now) is not None


# ---- what is recorded


def announced_properties(
    values: Mapping[str, str], migration: MigratingBuckets, record_key: Sequence[str]
) -> dict[str, str]:
    """Return the properties of a table whose migration is announced."""
    return {
        **values,
        **bucket_properties(migration.after, record_key),
        BUCKET_ENGINE: MIGRATING,
        MIGRATION: _ANNOUNCED,
        OLD_COUNT: str(migration.before.count),
        OLD_HASH_FIELDS: ",".join(migration.before.hash_fields),
    }


def begun_properties(values: dict[str, str]) -> dict[str, str]:
    """Return the properties once the log has the entry; as they are if nothing is announced."""
    return {**values, MIGRATION: _BEGUN} if values.get(MIGRATION) == _ANNOUNCED else values


def migrated_properties(values: dict[str, str]) -> dict[str, str]:
    """Return the properties of a table all of whose partitions have rings."""
    if MIGRATION not in values:
        return values
    kept = {key: value for key, value in values.items() if key not in _OWN}
    return {**kept, BUCKET_ENGINE: CONSISTENT}
