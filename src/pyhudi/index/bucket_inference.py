"""How many buckets a table has, inferred from where its keys lie.

Hudi records neither the index nor the number of buckets in a table. But a file id begins with its
bucket's number b, and every key there has a hash h with h mod N = b. So N divides each h - b,
hence their greatest common divisor, and N is greater than every b. With a few dozen keys the
divisor is N itself, almost always; where doubt remains, the result is the list of all N that fit.

A hash below its bucket's number, or a divisor that is too small, fits no N at all: then the table
has no simple buckets, or other columns are hashed, or two writers disagreed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, isqrt

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.hashing import java_list_hashes
from pyhudi.format.table.bucket_config import BUCKETS_MAX
from pyhudi.index.hash_values import extracted_key_values
from pyhudi.index.simple_bucket import bucket_number


@dataclass(frozen=True, slots=True)
class PossibleCounts:
    """The numbers of buckets that fit. Without a list, any number from `least` on does."""

    least: int  # one more than the greatest bucket number
    counts: tuple[int, ...] | None  # ascending, never empty; None if no key excludes anything

    @property
    def only(self) -> int | None:
        """The number of buckets, if no other fits."""
        return self.counts[0] if self.counts is not None and len(self.counts) == 1 else None


@dataclass(frozen=True, slots=True)
class NoSimpleBuckets:
    """No number of buckets fits; the reason is a phrase."""

    why: str
    group: FileGroupId | None = None  # the one that shows it, if one does
    is_numbered: bool = True  # the file ids begin with bucket numbers


def possible_counts(
    groups: Iterable[FileGroupId],
    record_keys: Mapping[FileGroupId, pa.Array],
    hash_fields: Sequence[str],
) -> PossibleCounts | NoSimpleBuckets:
    """Return which numbers of buckets fit these file groups, and the known keys of some.

    Names cost nothing, so all file groups should be given; keys cost reading, so few will do.
    """
    numbers = _numbers({*groups, *record_keys})
    if isinstance(numbers, NoSimpleBuckets):
        return numbers
    least = max(numbers.values(), default=0) + 1
    divisor = 0
    for group, keys in record_keys.items():
        excess = _hashes(keys, hash_fields) - numbers[group]
        if excess.size and excess.min() < 0:
            why = f"a key of file group {group.file_id} hashes to another bucket"
            return NoSimpleBuckets(why, group)
        divisor = gcd(divisor, int(np.gcd.reduce(excess)) if excess.size else 0)
    if divisor == 0 and least <= BUCKETS_MAX:
        return PossibleCounts(least, None)
    counts = tuple(count for count in _divisors(divisor) if least <= count <= BUCKETS_MAX)
    if not counts:
        return NoSimpleBuckets("no number of buckets puts its keys where they are")
    return PossibleCounts(least, counts)


def _numbers(groups: set[FileGroupId]) -> dict[FileGroupId, int] | NoSimpleBuckets:
    """Return the bucket of each file group. Every bucket of a partition has one file group only."""
    numbers: dict[FileGroupId, int] = {}
    owners: dict[tuple[str, int], FileGroupId] = {}
    for group in sorted(groups):
        number = bucket_number(group.file_id)
        if number is None:
            why = f"the file id {group.file_id!r} has no bucket number"
            return NoSimpleBuckets(why, group, is_numbered=False)
        owner = owners.setdefault((group.partition, number), group)
        if owner is not group:
            why = (
                f"bucket {number} of partition {group.partition!r} has two file groups,"
                f" {owner.file_id} and {group.file_id}"
            )
            return NoSimpleBuckets(why, group)
        numbers[group] = number
    return numbers


def _hashes(record_keys: pa.Array, hash_fields: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the hashes as `bucket_ids` has them, before the division."""
    values = extracted_key_values(pc.drop_null(record_keys), hash_fields)
    hashes = java_list_hashes(values) & np.int32(0x7FFFFFFF)
    return hashes.astype(np.int64)


def _divisors(number: int) -> list[int]:
    """Return the divisors, ascending.

    A hash has 31 bits, so its root is small enough to try everything below.
    """
    if number == 0:
        return []
    tried = np.arange(1, isqrt(number) + 1)
    low = tried[number % tried == 0]
    return [int(divisor) for divisor in np.union1d(low, number // low)]
