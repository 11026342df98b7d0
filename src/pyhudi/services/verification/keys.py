"""Checking in bounded memory that keys are in their bucket, and that each is there once.

Keys come in a stream that can be read repeatedly. They are buffered up to a number of bytes. Where
there are more, the stream is read several times, and each time another share of the keys is
buffered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.hashing import java_string_hashes
from pyhudi.index.layout import BucketLayout

#: Bytes of keys that are buffered at a time.
BUFFERED_BYTES_MAX: Final = 256 << 20
#: How many keys a finding names.
SAMPLE_MAX: Final = 3
_CHARACTERS_MAX = 100

Keys = Callable[[], Iterator[pa.Array]]


@dataclass(frozen=True, slots=True)
class KeyFault:
    """Keys that are not as they should be."""

    count: int
    sample: tuple[str, ...]

    def __str__(self) -> str:
        shown = ", ".join(repr(key[:_CHARACTERS_MAX]) for key in self.sample)
        return f"{shown} and {self.count - len(self.sample)} more" if self.is_cut else shown

    @property
    def is_cut(self) -> bool:
        return self.count > len(self.sample)


def misplaced(keys: pa.Array, layout: BucketLayout, ordinal: int) -> KeyFault | None:
    """Return the keys that belong in another file group of the layout, or None."""
    is_wrong = pa.array(layout.assign(keys) != ordinal)
    wrong = is_wrong.true_count
    if not wrong:
        return None
    return KeyFault(wrong, tuple(keys.filter(is_wrong)[:SAMPLE_MAX].to_pylist()))


def repeated(keys: Keys, buffered_bytes_max: int = BUFFERED_BYTES_MAX) -> KeyFault | None:
    """Return the keys that the stream has more than once, or None."""
    buffered: list[pa.Array] = []
    total = 0
    for part in keys():
        total += part.nbytes
        buffered = [*buffered, part] if total <= buffered_bytes_max else []
    if total <= buffered_bytes_max:
        return _repeated(buffered)
    shares = total // buffered_bytes_max + 1
    found = [_repeated([_share(p, shares, n) for p in keys()]) for n in range(shares)]
    faults = [fault for fault in found if fault is not None]
    if not faults:
        return None
    sample = [key for fault in faults for key in fault.sample]
    return KeyFault(sum(fault.count for fault in faults), tuple(sample[:SAMPLE_MAX]))


def _share(keys: pa.Array, shares: int, number: int) -> pa.Array:
    """Return the keys of one share. Hashes of a bucket's keys are similar, so they are mixed."""
    hashes = java_string_hashes(keys).astype(np.uint32)
    mixed = (hashes.astype(np.uint64) * np.uint64(2_654_435_761) >> np.uint64(16)) % np.uint64(
        1 << 16
    )
    return keys.filter(pa.array(mixed % np.uint64(shares) == number))


def _repeated(parts: Sequence[pa.Array]) -> KeyFault | None:
    keys = pa.chunked_array(parts, pa.string())
    if len(pc.unique(keys)) == len(keys):
        return None
    counts = pc.value_counts(keys)
    several = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    return KeyFault(len(several), tuple(several[:SAMPLE_MAX].to_pylist()))
