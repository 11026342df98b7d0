"""The simple bucket index: a fixed number of buckets in each partition, one file group in each.

The bucket of a key is the Java list hash of its values to hash, made positive, modulo the number
of buckets. The file id begins with the bucket's number. Writers that do not wait for each other
must agree on the rest of it too, so for them it is all zeros (RFC-66's non-blocking mode).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.errors import UnsupportedTableError
from pyhudi.format.hashing import java_list_hashes
from pyhudi.format.table.bucket_config import BUCKETS_MAX
from pyhudi.index.hash_values import extracted_key_values

_NUMBER_LENGTH = 8
_FIXED_TAIL = "-0000-0000-0000-000000000000-0"


def bucket_ids(record_keys: pa.Array, hash_fields: Sequence[str], count: int) -> pa.Int32Array:
    """Return the bucket of each record key, from 0 to count - 1."""
    assert 0 < count <= BUCKETS_MAX, count
    return pa.array(key_hashes(record_keys, hash_fields) % np.int32(count), pa.int32())


def key_hashes(record_keys: pa.Array, hash_fields: Sequence[str]) -> npt.NDArray[np.int32]:
    """Return the hash of each record key, made positive; modulo the count it is the bucket."""
    hashes = java_list_hashes(extracted_key_values(record_keys, hash_fields))
    return hashes & np.int32(0x7FFFFFFF)


def file_id(bucket: int) -> str:
    """Return the file id that every writer gives a bucket's first file.

    >>> file_id(3)
    '00000003-0000-0000-0000-000000000000-0'
    """
    return f"{bucket:08d}{_FIXED_TAIL}"


def bucket_number(file_id: str) -> int | None:
    """Return the bucket that a file id begins with; None if it begins with none.

    >>> bucket_number("00000012-57eb-4d0f-a1b2-6b1f3c1d2e3f-0"), bucket_number("f3a0-0")
    (12, None)
    """
    number = file_id[:_NUMBER_LENGTH]
    is_number = len(number) == _NUMBER_LENGTH and number.isascii() and number.isdigit()
    return int(number) if is_number else None


def bucket_of_file(file_id: str) -> int:
    """Return the bucket whose rows a file group holds; the id's tail may be fixed or random."""
    bucket = bucket_number(file_id)
    if bucket is None:
        raise UnsupportedTableError(
            f"the file group {file_id!r} has no bucket",
            why="the file id of a bucket begins with eight digits; the engine that wrote or"
            " clustered the table has another index",
            next_step="Write the table with that engine; reading it works as before",
        )
    return bucket
