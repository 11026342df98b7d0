"""Damaged copies of a file, each with a name that says what was done to it.

A mutation is *structural* when it moves or forges the framing of a log file (magic, lengths, counts
and order of blocks, where the file ends) and leaves the bytes of every record alone. Whatever a
reader makes of such a file, it may lose rows but never make one up. Bits flipped inside values are
another matter: the format has no checksum, so nobody can tell a flipped value from a written one.

The same seed gives the same mutations of the same bytes.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

MAGIC = b"#HUDI#"
FORGED_LONGS = (0, 1, -1, 2**31 - 1, 2**31, 2**63 - 1, -(2**63))
FORGED_INTS = (0, 1, -1, 65, 2**31 - 1, -(2**31))
BLOCK_TYPES = (-1, 0, 1, 2, 3, 4, 5, 6, 7, 2**31 - 1)
_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Mutation:
    name: str
    data: bytes
    is_structural: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A field of a log file's framing."""

    name: str
    start: int
    size: int


def log_parts(data: bytes) -> list[list[Part]]:
    """The framing of each block of a sound log file, told by a reading of its own."""
    blocks = []
    start = 0
    while start < len(data):
        parts = _block_parts(data, start)
        blocks.append(parts)
        start = parts[-1].start + parts[-1].size
    return blocks


def _block_parts(data: bytes, start: int) -> list[Part]:
    parts: list[Part] = []

    def add(name: str, size: int) -> int:
        at = parts[-1].start + parts[-1].size if parts else start
        parts.append(Part(name, at, size))
        return at

    def add_map(name: str) -> None:
        count = _INT.unpack_from(data, add(f"{name} count", 4))[0]
        for number in range(count):
            add(f"{name} key {number}", 4)
            length = _INT.unpack_from(data, add(f"{name} length {number}", 4))[0]
            add(f"{name} value {number}", length)

    add("magic", 6)
    add("H", 8)
    add("version", 4)
    add("type", 4)
    add_map("header")
    size = _LONG.unpack_from(data, add("content length", 8))[0]
    head = min(12, size) // 4 * 4  # version, count and the first record's length, or their like
    for number in range(head // 4):
        add(f"content int {number}", 4)
    add("content", size - head)
    add_map("footer")
    add("T", 8)
    return parts


# ---- log files


def log_mutations(data: bytes, seed: str) -> Iterator[Mutation]:
    """Structural damage of every kind at every place that has a meaning, then flipped bits."""
    blocks = log_parts(data)
    for number, parts in enumerate(blocks):
        for part in parts:
            yield from _cuts(data, number, part)
            yield from _forgeries(data, number, part)
    yield from _shuffles(data, blocks, random.Random(f"{seed} shuffles"))
    yield from _flips(data, 40, random.Random(f"{seed} flips"))


def _cuts(data: bytes, block: int, part: Part) -> Iterator[Mutation]:
    for place in sorted({part.start, part.start + part.size // 2, part.start + part.size - 1}):
        yield Mutation(f"cut at {place}, in {part.name} of block {block}", data[:place], True)


def _forgeries(data: bytes, block: int, part: Part) -> Iterator[Mutation]:
    for name, forged in _forged_values(part, data[part.start : part.start + part.size]):
        end = part.start + part.size
        changed = data[: part.start] + forged + data[end:]
        if changed != data:
            yield Mutation(f"{part.name} of block {block} is {name}", changed, True)


def _forged_values(part: Part, old: bytes) -> Iterator[tuple[str, bytes]]:
    if part.name == "magic":
        for forged in (b"#HUDX#", b"\0" * 6, b"#HUDI", b"##HUDI#", b"#hudi#"):
            yield repr(forged), forged
    elif part.name == "type":
        yield from ((str(number), _INT.pack(number)) for number in BLOCK_TYPES)
    elif part.size == 8 and part.name in ("H", "T", "content length"):
        near = [_LONG.unpack(old)[0] + step for step in (-8, -1, 1, 8)]
        yield from ((str(number), _LONG.pack(number)) for number in (*FORGED_LONGS, *near))
    elif part.size == 4 and " key " not in part.name:
        near = [_INT.unpack(old)[0] + step for step in (-1, 1)]
        yield from ((str(number), _INT.pack(number)) for number in (*FORGED_INTS, *near))


def _shuffles(data: bytes, blocks: list[list[Part]], rng: random.Random) -> Iterator[Mutation]:
    """Blocks twice, gone, in another order, and rubbish around them."""
    edges = [parts[0].start for parts in blocks] + [len(data)]
    pieces = [data[a:b] for a, b in pairwise(edges)]
    rubbish = {
        "noise": rng.randbytes(100),
        "zeros": b"\0" * 64,
        "a magic": MAGIC,
        "many magics": MAGIC * 50,
        "half a block": pieces[0][: len(pieces[0]) // 2],
        "a huge block": MAGIC + _LONG.pack(2**62),
    }
    for number in range(len(pieces) + 1):
        for name, bytes_ in rubbish.items():
            changed = b"".join((*pieces[:number], bytes_, *pieces[number:]))
            yield Mutation(f"{name} before block {number}", changed, True)
    for number, piece in enumerate(pieces):
        twice = b"".join((*pieces[:number], piece, *pieces[number:]))
        yield Mutation(f"block {number} twice", twice, True)
        gone = b"".join((*pieces[:number], *pieces[number + 1 :]))
        yield Mutation(f"block {number} gone", gone, True)
    yield Mutation("blocks in reverse", b"".join(reversed(pieces)), True)
    yield Mutation("whole file twice", data + data, True)


# ---- any file


def byte_mutations(data: bytes, count: int, seed: str) -> Iterator[Mutation]:
    """Damage that knows nothing of the format: cuts, flips, noise, forged numbers, moved bytes."""
    rng = random.Random(f"{seed} bytes")
    yield Mutation("empty", b"")
    if not data:
        yield from (Mutation(f"noise of {n} bytes", rng.randbytes(n)) for n in (1, 8, 100))
        return
    yield Mutation("noise of the same size", rng.randbytes(len(data)))
    yield Mutation("twice", data + data)
    yield Mutation("a byte behind", data + b"\0")
    damages = (_cut, _flipped_bits, _noise, _forged_number, _moved, _removed)
    for number in range(count):
        yield damages[number % len(damages)](data, rng)


def _flips(data: bytes, count: int, rng: random.Random) -> Iterator[Mutation]:
    for _ in range(count):
        yield _flipped_bits(data, rng)


def _cut(data: bytes, rng: random.Random) -> Mutation:
    place = rng.randrange(len(data))
    return Mutation(f"cut at {place}", data[:place])


def _flipped_bits(data: bytes, rng: random.Random) -> Mutation:
    changed = bytearray(data)
    bits = sorted(rng.randrange(len(data) * 8) for _ in range(rng.choice((1, 1, 1, 3, 10))))
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    return Mutation(f"bits {bits} flipped", bytes(changed))


def _noise(data: bytes, rng: random.Random) -> Mutation:
    start = rng.randrange(len(data))
    size = min(rng.choice((1, 4, 8, 32)), len(data) - start)
    fill = rng.choice((rng.randbytes(size), b"\0" * size, b"\xff" * size))
    changed = data[:start] + fill + data[start + size :]
    return Mutation(f"bytes {start} to {start + size} are {fill.hex()}", changed)


def _forged_number(data: bytes, rng: random.Random) -> Mutation:
    number = rng.choice((0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1))
    fill = number.to_bytes(8, rng.choice(("big", "little")))[-rng.choice((4, 8)) :]
    start = rng.choice((rng.randrange(len(data)), max(0, len(data) - 8)))  # parquet's footer length
    changed = data[:start] + fill + data[start + len(fill) :]
    return Mutation(f"number {fill.hex()} at {start}", changed)


def _moved(data: bytes, rng: random.Random) -> Mutation:
    start, to = rng.randrange(len(data)), rng.randrange(len(data))
    size = rng.randrange(1, 64)
    piece = data[start : start + size]
    changed = data[:to] + piece + data[to:]
    return Mutation(f"bytes {start} to {start + len(piece)} again at {to}", changed)


def _removed(data: bytes, rng: random.Random) -> Mutation:
    start = rng.randrange(len(data))
    size = rng.randrange(1, 64)
    return Mutation(f"bytes {start} to {start + size} gone", data[:start] + data[start + size :])
