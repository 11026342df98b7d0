"""How many buckets a table has, and which columns are hashed: the properties that say so.

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
from typing import Final

from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.properties import TableProperties

INDEX_TYPE: Final = "hoodie.index.type"
BUCKET_ENGINE: Final = "hoodie.index.bucket.engine"
BUCKET_COUNT: Final = "hoodie.bucket.index.num.buckets"
BUCKET_HASH_FIELDS: Final = "hoodie.bucket.index.hash.field"
RECORD_KEY_OPTION: Final = "hoodie.datasource.write.recordkey.field"

BUCKETS_MAX: Final = 10**8 - 1  # a file id begins with the bucket's number, in eight digits

_BUCKET = "BUCKET"
_SIMPLE = "SIMPLE"


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
            raise _refused(
                f"the hash fields {self.hash_fields!r}",
                "hash fields are a tuple of different column names",
                "Name columns of the record key, or leave them out to hash all of it",
            )

    def resolved(self, record_key: Sequence[str]) -> SimpleBuckets:
        """Return these buckets with every hashed column named, in the record key's order."""
        unknown = [name for name in self.hash_fields if name not in record_key]
        if unknown:
            raise _refused(
                f"the hash fields {', '.join(self.hash_fields)}",
                f"{', '.join(unknown)} is not in the record key ({', '.join(record_key)})",
                "Hash columns of the record key only",
            )
        named = tuple(name for name in record_key if name in (self.hash_fields or record_key))
        return replace(self, hash_fields=named)


def bucket_properties(buckets: SimpleBuckets, record_key: Sequence[str]) -> dict[str, str]:
    """Return the properties that record these buckets in a table with this record key."""
    return {
        INDEX_TYPE: _BUCKET,
        BUCKET_ENGINE: _SIMPLE,
        BUCKET_COUNT: str(buckets.count),
        BUCKET_HASH_FIELDS: ",".join(buckets.resolved(record_key).hash_fields),
        RECORD_KEY_OPTION: ",".join(record_key),
    }


def buckets_of(properties: TableProperties, record_key: Sequence[str]) -> SimpleBuckets | None:
    """Return the buckets that the properties record, resolved; None if they record no simple ones.

    Another index, or another kind of buckets, is not an error: it matters to writers alone.
    """
    index = (properties.text(INDEX_TYPE) or "").strip().upper()
    engine = (properties.text(BUCKET_ENGINE) or _SIMPLE).strip().upper()
    count = properties.number(BUCKET_COUNT)
    if (index, engine) != (_BUCKET, _SIMPLE) or count is None:
        return None
    if not _is_count(count):
        raise properties.malformed(BUCKET_COUNT, f"a number from 1 to {BUCKETS_MAX}")
    names = properties.names(BUCKET_HASH_FIELDS)
    if not _are_names(names) or not set(names) <= set(record_key):
        raise properties.malformed(BUCKET_HASH_FIELDS, "a list of record key fields")
    return SimpleBuckets(count, names).resolved(record_key)


def _is_count(count: object) -> bool:
    return isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= BUCKETS_MAX


def _are_names(names: object) -> bool:
    """True if it is a tuple of names.

    A text alone would be taken for a tuple of its letters; a comma would split a name.
    """
    return (
        isinstance(names, tuple)
        and all(isinstance(name, str) and name and "," not in name for name in names)
        and len(set(names)) == len(names)
    )


def _refused(what: str, why: str, next_step: str) -> InvalidRequestError:
    return InvalidRequestError(f"{what} cannot be used", why=why, next_step=next_step)
