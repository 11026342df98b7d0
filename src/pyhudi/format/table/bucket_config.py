"""How rows are put into buckets, and which columns are hashed: the properties that say so.

*Simple* buckets are a fixed number in each partition. *Consistent* buckets are nodes of a ring, one
ring for each partition, whose number changes with the partition's size (RFC-42).

Hudi leaves this to each writer's options, and two writers that disagree put one key into two file
groups. So the table records it, under Hudi's own option names: a Spark writer takes an option that
its caller leaves out from the table's properties, and refuses one that differs from them.

Hudi hashes by names, which it looks for in the text of the record key. That the names are those of
the whole key is not the same as naming none: a value that looks like `,x:` is cut in two, and then
the names decide whether the piece counts. Writers name the columns, and so does the table.

Spark's SQL procedures (compaction, clustering) take the index from the table and then look among
their options for the record key, and nowhere else. So that option is recorded beside the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.properties import TableProperties

INDEX_TYPE: Final = "hoodie.index.type"
BUCKET_ENGINE: Final = "hoodie.index.bucket.engine"
BUCKET_COUNT: Final = "hoodie.bucket.index.num.buckets"
BUCKET_COUNT_MIN: Final = "hoodie.bucket.index.min.num.buckets"
BUCKET_COUNT_MAX: Final = "hoodie.bucket.index.max.num.buckets"
BUCKET_HASH_FIELDS: Final = "hoodie.bucket.index.hash.field"
INITIAL_BUCKETS: Final = "pyhudi.buckets.initial"  # ours: Hudi keeps keys that it does not know
RECORD_KEY_OPTION: Final = "hoodie.datasource.write.recordkey.field"

BUCKETS_MAX: Final = 10**8 - 1  # a file id begins with the bucket's number, in eight digits
NODES_MAX: Final = 1 << 18  # so that a ring's file stays well below what a reader accepts
FIRST_NODES_MAX: Final = 32768  # of a first ring: from 46,410 on, rounding may leave one node none

AUTO: Final = "auto"
#: The size that a bucket should have, in bytes; a first ring has one node for each.
TARGET_BYTES: Final = 120 << 20
#: The greatest number of nodes of a ring that is sized by what the first write brings.
AUTO_NODES_MAX: Final = 64
#: With how many buckets Hudi's writers begin a partition of a table whose rings size themselves.
_HUDI_INITIAL = 4

_BUCKET = "BUCKET"
SIMPLE: Final = "SIMPLE"
CONSISTENT: Final = "CONSISTENT_HASHING"
_EXTENDIBLE = "EXTENDIBLE_HASHING"
#: What a table may call its engine; RFC-42 says SIMPLE_HASHING where Hudi says SIMPLE.
ENGINES: Final = {SIMPLE: SIMPLE, "SIMPLE_HASHING": SIMPLE, CONSISTENT: CONSISTENT}


@dataclass(frozen=True, slots=True)
class SimpleBuckets:
    """A fixed number of buckets in each partition; a record key's hash chooses one of them.

    The number cannot be changed later. Without hash fields the whole record key is hashed.

    >>> SimpleBuckets(8).resolved(("order_id", "line"))
    SimpleBuckets(count=8, hash_fields=('order_id', 'line'))
    """

    count: int
    hash_fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _is_count(self.count):
            raise _refused(
                f"{self.count!r} buckets",
                f"the number of buckets is a whole number from 1 to {BUCKETS_MAX}",
                "Give each bucket some hundred megabytes of the largest partition",
            )
        if not _are_names(self.hash_fields):
            raise _bad_hash_fields(self.hash_fields)

    def resolved(self, record_key: Sequence[str]) -> SimpleBuckets:
        """Return these buckets with every hashed column named, in the record key's order."""
        return replace(self, hash_fields=_resolved(self.hash_fields, record_key))


@dataclass(frozen=True, slots=True)
class ConsistentBuckets:
    """Buckets that split and merge with the size of their partition; for merge-on-read tables.

    A partition begins with `initial` buckets. "auto" means as many as its first write fills, a
    power of two up to 64. Without hash fields the whole record key is hashed.

    >>> ConsistentBuckets(4, max=64).resolved(("order_id", "line")).hash_fields
    ('order_id', 'line')
    >>> ConsistentBuckets().first_count(1 << 30)
    16
    """

    initial: int | Literal["auto"] = AUTO
    min: int = 1
    max: int = 4096
    hash_fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, limit in (("min", self.min), ("max", self.max)):
            if not _is_count(limit, NODES_MAX):
                raise _refused(
                    f"{name}={limit!r}",
                    f"the number of buckets of a partition is a whole number from 1 to {NODES_MAX}",
                    "Leave it out, or give a whole number",
                )
        if self.initial != AUTO and not _is_count(self.initial, FIRST_NODES_MAX):
            raise _refused(
                f"initial={self.initial!r}",
                f'it is neither "auto" nor a whole number from 1 to {FIRST_NODES_MAX}',
                "Leave it out, and the first write into a partition sizes it",
            )
        first = self.min if self.initial == AUTO else self.initial
        if not self.min <= first <= self.max:
            shown = ", ".join(
                f"{name}={value!r}"
                for name, value in (("initial", self.initial), ("min", self.min), ("max", self.max))
            )
            raise _refused(
                shown, "min <= initial <= max must hold", "Correct them, or leave two of them out"
            )
        if not _are_names(self.hash_fields):
            raise _bad_hash_fields(self.hash_fields)

    def resolved(self, record_key: Sequence[str]) -> ConsistentBuckets:
        """Return these buckets with every hashed column named, in the record key's order."""
        return replace(self, hash_fields=_resolved(self.hash_fields, record_key))

    def first_count(self, size: float) -> int:
        """Return how many buckets a partition begins with whose first write brings `size` bytes."""
        if self.initial != AUTO:
            return self.initial
        targets = -(-min(size, TARGET_BYTES * AUTO_NODES_MAX) // TARGET_BYTES)
        count = 1 << max(int(targets) - 1, 0).bit_length()
        return max(self.min, min(count, self.max, FIRST_NODES_MAX))


Buckets: TypeAlias = SimpleBuckets | ConsistentBuckets


def _resolved(hash_fields: tuple[str, ...], record_key: Sequence[str]) -> tuple[str, ...]:
    unknown = [name for name in hash_fields if name not in record_key]
    if unknown:
        raise _refused(
            f"the hash fields {', '.join(hash_fields)}",
            f"{', '.join(unknown)} is not in the record key ({', '.join(record_key)})",
            "Hash columns of the record key only",
        )
    return tuple(name for name in record_key if name in (hash_fields or record_key))


def bucket_properties(buckets: Buckets, record_key: Sequence[str]) -> dict[str, str]:
    """Return the properties that record these buckets in a table with this record key."""
    return {
        INDEX_TYPE: _BUCKET,
        **_counts(buckets),
        BUCKET_HASH_FIELDS: ",".join(buckets.resolved(record_key).hash_fields),
        RECORD_KEY_OPTION: ",".join(record_key),
    }


def _counts(buckets: Buckets) -> dict[str, str]:
    if isinstance(buckets, SimpleBuckets):
        return {BUCKET_ENGINE: SIMPLE, BUCKET_COUNT: str(buckets.count)}
    is_auto = buckets.initial == AUTO
    known = max(buckets.min, min(_HUDI_INITIAL, buckets.max)) if is_auto else buckets.initial
    return {
        BUCKET_ENGINE: CONSISTENT,
        BUCKET_COUNT: str(known),
        BUCKET_COUNT_MIN: str(buckets.min),
        BUCKET_COUNT_MAX: str(buckets.max),
        **({INITIAL_BUCKETS: AUTO} if is_auto else {}),
    }


def buckets_of(properties: TableProperties, record_key: Sequence[str]) -> Buckets | None:
    """Return the buckets that the properties record, resolved; None if they record none.

    Another index, or another kind of buckets, is not an error: it matters to writers alone.
    """
    index = (properties.text(INDEX_TYPE) or "").strip().upper()
    engine = ENGINES.get((properties.text(BUCKET_ENGINE) or SIMPLE).strip().upper())
    count = properties.number(BUCKET_COUNT)
    if index != _BUCKET or engine is None or count is None:
        return None
    names = properties.names(BUCKET_HASH_FIELDS)
    if not _are_names(names) or not set(names) <= set(record_key):
        raise properties.malformed(BUCKET_HASH_FIELDS, "a list of record key fields")
    if engine == SIMPLE:
        if not _is_count(count):
            raise properties.malformed(BUCKET_COUNT, f"a number from 1 to {BUCKETS_MAX}")
        return SimpleBuckets(count, names).resolved(record_key)
    return _consistent_buckets(properties, count, names).resolved(record_key)


def _consistent_buckets(
    properties: TableProperties, count: int, names: tuple[str, ...]
) -> ConsistentBuckets:
    least, most = properties.number(BUCKET_COUNT_MIN), properties.number(BUCKET_COUNT_MAX)
    initial = properties.text(INITIAL_BUCKETS)
    if initial not in (None, AUTO):
        raise properties.malformed(INITIAL_BUCKETS, f"{AUTO!r}, or left out")
    try:
        return ConsistentBuckets(
            count if initial is None else AUTO,
            1 if least is None else least,
            max(4096, count) if most is None else most,
            names,
        )
    except InvalidRequestError as error:
        expected = f"a number within the limits ({error.why})"
        raise properties.malformed(BUCKET_COUNT, expected) from None


def is_extendible(properties: TableProperties) -> bool:
    """True if the table has extendible buckets, which no engine can split yet."""
    return (properties.text(BUCKET_ENGINE) or "").strip().upper() == _EXTENDIBLE


def _is_count(count: object, most: int = BUCKETS_MAX) -> bool:
    return isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= most


def _are_names(names: object) -> bool:
    """True if it is a tuple of names.

    A text alone would be taken for a tuple of its letters; a comma would split a name.
    """
    return (
        isinstance(names, tuple)
        and all(isinstance(name, str) and name and "," not in name for name in names)
        and len(set(names)) == len(names)
    )


def _bad_hash_fields(given: object) -> InvalidRequestError:
    return _refused(
        f"the hash fields {given!r}",
        "hash fields are a tuple of different column names",
        "Name columns of the record key, or leave them out to hash all of it",
    )


def _refused(what: str, why: str, next_step: str) -> InvalidRequestError:
    return InvalidRequestError(f"{what} cannot be used", why=why, next_step=next_step)
