"""Hashing metadata: the ring of buckets of one partition under consistent hashing, as JSON.

    .hoodie/.bucket_index/consistent_hashing_metadata/<partition>/<instant>.hashing_meta
    .hoodie/.bucket_index/consistent_hashing_metadata/<partition>/<instant>.commit

The first ring of a partition is computed, not chosen: any two writers make the same bytes, so
losing the race to create it does no harm. Each resize adds a file under its clustering instant; the
empty `.commit` file beside it says that the resize is known to have completed.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, Self

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.table.bucket_config import FIRST_NODES_MAX
from pyhudi.format.timeline.instant import InstantTime, instant_time, is_instant_time

RING_ROOT: Final = ".hoodie/.bucket_index/consistent_hashing_metadata"
RING_MAX: Final = 0x7FFFFFFF  # the greatest position
FIRST_INSTANT: Final = InstantTime("00000000000000")
RING_BYTES_MAX: Final = 64 * 1024 * 1024

_RING_SUFFIX = ".hashing_meta"
_COMMIT_SUFFIX = ".commit"


class NodeTag(StrEnum):
    """What a resize does with a node. Stored rings hold NORMAL nodes only."""

    NORMAL = "NORMAL"
    REPLACE = "REPLACE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class RingNode:
    """A bucket: it owns the positions above the previous node's, up to and including its own."""

    position: int
    file_id_prefix: str | None  # None for DELETE
    tag: NodeTag = NodeTag.NORMAL

    @property
    def file_id(self) -> str:
        assert self.file_id_prefix is not None, "a deleted node has no file group"
        return f"{self.file_id_prefix}-0"


@dataclass(frozen=True, slots=True)
class Ring:
    """The buckets of a partition, by position."""

    partition: str
    instant: InstantTime
    first_bucket_count: int  # of the first ring, for ever; the nodes say how many there are now
    sequence_number: int  # of resizes so far
    nodes: tuple[RingNode, ...]
    version: int = 0

    @property
    def file_name(self) -> str:
        return RingFileName(self.instant).file_name


@dataclass(frozen=True, slots=True)
class RingFileName:
    """The name of a ring's file, or of the empty file that marks it committed."""

    instant: InstantTime
    is_commit_mark: bool = False

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Parse the name; None for any other file."""
        for suffix, is_commit_mark in ((_RING_SUFFIX, False), (_COMMIT_SUFFIX, True)):
            instant = name.removesuffix(suffix)
            if instant != name and is_instant_time(instant):
                return cls(InstantTime(instant), is_commit_mark)
        return None

    @property
    def file_name(self) -> str:
        return self.instant + (_COMMIT_SUFFIX if self.is_commit_mark else _RING_SUFFIX)

    @property
    def commit_mark(self) -> RingFileName:
        return replace(self, is_commit_mark=True)


@dataclass(frozen=True, slots=True)
class RingFiles:
    """The rings of a partition that are on storage."""

    partition: str
    instants: tuple[InstantTime, ...] = ()  # of the files, ascending
    marks: frozenset[InstantTime] = frozenset()
    #: Marks that also say that every node has a committed file group.
    complete: frozenset[InstantTime] = frozenset()


def ring_folder(partition: str) -> str:
    """Return the folder of a partition's rings; a table without partitions uses the root itself."""
    return f"{RING_ROOT}/{partition}" if partition else RING_ROOT


def ring_partition(path: str) -> str | None:
    """Return the partition whose folder of rings the file lies in; None if it lies elsewhere.

    >>> ring_partition(f"{RING_ROOT}/a/b/00000000000000.hashing_meta")
    'a/b'
    """
    folder = path.rpartition("/")[0]
    if folder != RING_ROOT and not folder.startswith(f"{RING_ROOT}/"):
        return None
    return folder[len(RING_ROOT) + 1 :]


def ring_path(partition: str, name: RingFileName) -> str:
    return f"{ring_folder(partition)}/{name.file_name}"


def initial_ring(partition: str, bucket_count: int) -> Ring:
    """Return the first ring of a partition.

    Equal ranges, file ids derived from range and partition.
    """
    if not 1 <= bucket_count <= FIRST_NODES_MAX:
        raise InvalidRequestError(
            f"a ring cannot begin with {bucket_count} buckets",
            why=f"the count goes from 1 to {FIRST_NODES_MAX}",
            next_step="Choose another count; a ring can grow later",
        )
    step = -(-RING_MAX // bucket_count)
    positions = [min(step * i, RING_MAX) for i in range(bucket_count + 1)]
    nodes = tuple(
        RingNode(end, _name_based_uuid(struct.pack(">qq", begin, end) + partition.encode()))
        for begin, end in pairwise(positions)
    )
    return Ring(partition, FIRST_INSTANT, bucket_count, 0, nodes)


def _name_based_uuid(name: bytes) -> str:
    """Return Java's `UUID.nameUUIDFromBytes`: version 3, without a namespace."""
    digest = bytearray(hashlib.md5(name, usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x30
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


# Hudi's JSON has a fixed layout, and equal rings must be equal bytes; so the layout is ours too.

_QUOTED = {
    **{code: f"\\u{code:04X}" for code in range(0x20)},
    **{ord(char): f"\\{letter}" for char, letter in zip('\b\t\n\f\r"\\', 'btnfr"\\', strict=True)},
}


def encode_ring(ring: Ring) -> bytes:
    """Return exactly the bytes that Hudi writes for this ring."""
    text = (
        "{\n"
        f'  "version" : {ring.version},\n'
        f'  "partitionPath" : {_quoted(ring.partition)},\n'
        f'  "instant" : {_quoted(ring.instant)},\n'
        f'  "numBuckets" : {ring.first_bucket_count},\n'
        f'  "seqNo" : {ring.sequence_number},\n'
        f'  "nodes" : {_encoded_nodes(ring.nodes, "  ")}\n'
        "}"
    )
    return text.encode()


def encode_nodes(nodes: Iterable[RingNode]) -> str:
    """Return the children of a resize, as a clustering plan's group carries them."""
    return _encoded_nodes(nodes, "")


def _encoded_nodes(nodes: Iterable[RingNode], indent: str) -> str:
    objects = [
        "{\n"
        f'{indent}  "value" : {node.position},\n'
        f'{indent}  "fileIdPrefix" : {_quoted(node.file_id_prefix)},\n'
        f'{indent}  "tag" : {_quoted(node.tag)}\n'
        f"{indent}}}"
        for node in nodes
    ]
    return f"[ {', '.join(objects)} ]" if objects else "[ ]"


def _quoted(text: str | None) -> str:
    return "null" if text is None else f'"{text.translate(_QUOTED)}"'


def decode_ring(data: bytes, path: str | None = None) -> Ring:
    """Return the ring that the file holds, its nodes by position."""
    if len(data) > RING_BYTES_MAX:
        raise _damaged(f"{len(data)} bytes are more than {RING_BYTES_MAX}", path)
    try:
        ring = json.loads(data)
        nodes = sorted(map(_decoded_node, ring["nodes"]), key=lambda node: node.position)
        decoded = Ring(
            _text(ring["partitionPath"]),
            instant_time(_text(ring["instant"])),
            _count(ring["numBuckets"]),
            _count(ring["seqNo"]),
            tuple(nodes),
            _count(ring["version"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(f"it is not hashing metadata ({str(error)[:80]})", path) from error
    if not nodes or any(node.file_id_prefix is None for node in nodes):
        raise _damaged("a node, or its file id, is missing", path)
    if len({node.position for node in nodes}) < len(nodes):
        raise _damaged("two nodes have the same position", path)
    return decoded


def decode_own_ring(data: bytes, partition: str, instant: InstantTime) -> Ring:
    """Return the ring that the partition's file of this instant holds.

    CorruptTableError, which names both, if it is damaged or belongs elsewhere.
    """
    path = ring_path(partition, RingFileName(instant))
    ring = decode_ring(data, path)
    if ring.partition != partition:
        raise _damaged(f"it is the ring of partition {ring.partition!r}", path)
    if ring.instant != instant:
        raise _damaged(f"it is the ring of instant {ring.instant}", path)
    return ring


def decode_nodes(text: str, path: str | None = None) -> tuple[RingNode, ...]:
    """Return the children of a resize from a clustering plan, in the order in which they apply."""
    try:
        return tuple(map(_decoded_node, json.loads(text)))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(f"its children are not nodes ({str(error)[:80]})", path) from error


def _decoded_node(node: Any) -> RingNode:
    return RingNode(
        _count(node["value"]), _file_id_prefix(node["fileIdPrefix"]), NodeTag(node["tag"])
    )


def _file_id_prefix(value: object) -> str | None:
    """Return the prefix.

    It becomes part of a file name, so it must not reach into another folder.
    """
    if value is None:
        return None
    prefix = _text(value)
    if not (prefix.isascii() and prefix.replace("-", "").isalnum()):
        raise ValueError(f"{prefix!r} cannot begin a file id")
    return prefix


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= RING_MAX:
        raise ValueError(f"{value!r} is not a number from 0 to {RING_MAX}")
    return value


def _damaged(why: str, path: str | None) -> CorruptTableError:
    partition = None if path is None else ring_partition(path)
    named = "a partition" if partition is None else f"partition {partition!r}"
    return CorruptTableError(
        f"the ring of {named} cannot be read",
        why=why,
        next_step="Restore the file; without it no record of the partition can be found",
        path=path,
    )
