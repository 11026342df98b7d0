#!/usr/bin/env python3
"""Draw the figures of docs/resizing.md: draw_figures.py [FOLDER], or else docs/images.

They are those of RFC-42, drawn by what draws `table.inspect.ring(...)`: basic hashing, consistent
hashing, and a resize with writers beside it. A test compares the files with what this script draws.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pyhudi.api.ring_pictures.svg import rings_svg
from pyhudi.api.ring_pictures.views import BucketView, RingView, change_views, ring_view
from pyhudi.format.table.ring_file import Ring, initial_ring
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.index.ring_changes import arc_of, equal_points, ring_after, split

FOLDER = Path(__file__).parents[1] / "docs/images"

_MB = 1_000_000
_RESIZE = InstantTime("20260101000000000")


def basic_hashing() -> str:
    """Buckets by the remainder of a hash: another number of them moves nearly every key."""
    total = 1_000 * _MB
    few, many = (_by_remainder(number, total // number) for number in (4, 5))
    return rings_svg(
        "Basic hashing: a fixed number of buckets",
        "When the buckets have become too large, another number of them rewrites them all.",
        [
            replace(few, caption="a key with hash h is in bucket h mod 4"),
            replace(many, caption="now in bucket h mod 5: all file groups are new"),
        ],
    )


def _by_remainder(number: int, size: int) -> RingView:
    buckets = (
        BucketView(
            f"bucket {remainder}",
            remainder / number,
            (remainder + 1) / number,
            f"keys whose hash mod {number} is {remainder}",
            size,
            change=0,
        )
        for remainder in range(number)
    )
    return RingView(f"hash mod {number}", tuple(buckets))


def consistent_hashing() -> str:
    """Buckets by ranges of a hash: a bucket is split, and no other bucket changes."""
    before, after = _split_views()
    return rings_svg(
        "Consistent hashing: each bucket has a range of hash values",
        "The bucket that has become too large is split. All others stay as they are.",
        [
            replace(before, caption="FG2 has a quarter of the ring, and too many rows"),
            replace(after, caption="one file group rewritten, three untouched"),
        ],
    )


def resizing() -> str:
    """A split while writers and readers go on."""
    before, after = _split_views()
    made = tuple(bucket for bucket in after.buckets if bucket.change is not None)
    ring, _, sizes = _example()
    return rings_svg(
        "Resizing: writers and readers go on",
        "Rows are written once, and seen once, at every moment of it.",
        [
            replace(
                _named(ring_view("before", ring, sizes)), caption="writers and readers use FG2"
            ),
            replace(
                before,
                title="pending",
                coming=made,
                caption="both still use FG2; what writes add is copied",
            ),
            replace(after, title="completed", caption="both use FG2.1 and FG2.2"),
        ],
    )


def _example() -> tuple[Ring, Ring, dict[str, int]]:
    """A ring of four, the one after its large bucket was split, and sizes."""
    first = initial_ring("", 4)
    named = (replace(n, file_id_prefix=f"FG{k}") for k, n in enumerate(first.nodes, 1))
    before = replace(first, nodes=tuple(named))
    change = split(before, 1, equal_points(arc_of(before, 1), 2), ["FG2.1", "FG2.2"])
    sizes = {"FG1-0": 118 * _MB, "FG2-0": 264 * _MB, "FG3-0": 97 * _MB, "FG4-0": 109 * _MB}
    return before, ring_after(before, [change], _RESIZE), sizes


def _split_views() -> tuple[RingView, RingView]:
    before, after, sizes = _example()
    children = {"FG2.1-0": 127 * _MB, "FG2.2-0": 137 * _MB}
    one, other = change_views(before, after, sizes, {**sizes, **children})
    return _named(one), _named(other)


def _named(view: RingView) -> RingView:
    buckets = (replace(b, name=b.name.removesuffix("-0")) for b in view.buckets)
    return replace(view, buckets=tuple(buckets))


def figures() -> Iterator[tuple[str, str]]:
    """Yield the name of each file with its text."""
    yield "basic_hashing.svg", basic_hashing()
    yield "consistent_hashing.svg", consistent_hashing()
    yield "resizing.svg", resizing()


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in figures():
        (folder / name).write_text(text, "utf-8")
        print(folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
