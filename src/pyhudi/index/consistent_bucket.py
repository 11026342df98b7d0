"""The consistent bucket index: buckets as nodes on a ring, which can split and merge.

A record key has a position on the ring, the xxHash32 of its values to hash joined without a
separator, made positive. The first node at or above the position owns it. Positions above the
last node wrap round to the first: after a merge across the end of the ring, no node may sit there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.hashing import xxhash32s
from pyhudi.format.table.ring_file import RING_MAX, Ring
from pyhudi.index.hash_values import extracted_key_values


def ring_positions(record_keys: pa.Array, hash_fields: Sequence[str]) -> pa.Int32Array:
    """Return the position of each record key, from 0 to 2^31 - 1."""
    values = extracted_key_values(record_keys, hash_fields)
    hashes = xxhash32s(_joined(values)) & np.uint32(RING_MAX)
    return pa.array(hashes.view(np.int32))


def _joined(values: pa.ListArray) -> pa.Array:
    """Return each list as one text. Java's join writes a null as the text `null`."""
    texts = values.flatten()
    if len(texts) == len(values):  # no list is empty, so each holds one value
        return pc.fill_null(texts, "null")
    lists = pa.ListArray.from_arrays(values.offsets, pc.fill_null(texts, "null"))
    return pc.binary_join(lists, pa.scalar("", texts.type))


def ring_ends(ring: Ring) -> npt.NDArray[np.int32]:
    """Return the last position of each node, ascending."""
    return np.fromiter((node.position for node in ring.nodes), np.int32, len(ring.nodes))


def owners(positions: npt.NDArray[np.int32], ends: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return the owner of each position, as its number among the nodes that end there."""
    found = np.searchsorted(ends, positions, side="left").astype(np.int32)
    found[found == len(ends)] = 0
    return found


def bucket_of(positions: pa.Int32Array, ring: Ring) -> pa.Int32Array:
    """Return the owner of each position, as its number among the ring's nodes."""
    return pa.array(owners(positions.to_numpy(), ring_ends(ring)), pa.int32())


def bucket_ids(record_keys: pa.Array, hash_fields: Sequence[str], ring: Ring) -> pa.Int32Array:
    """Return the node that owns each record key; its file group is `ring.nodes[i].file_id`."""
    return bucket_of(ring_positions(record_keys, hash_fields), ring)
