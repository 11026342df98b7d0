"""The ring of a partition as a value that notebooks and terminals can show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyhudi.api.ring_pictures.svg import rings_svg
from pyhudi.api.ring_pictures.views import NAME_CHARACTERS, BucketView, RingView
from pyhudi.wording import counted, readable

LINES_MAX: Final = 24  # of buckets, for each ring in a terminal

_BAR = 20  # characters of the largest bucket


@dataclass(frozen=True, slots=True, repr=False)
class RingPicture:
    """The ring of a partition as it is, or before and after a resize.

    `svg` is the text of a picture that stands alone, and a notebook shows the same picture. A
    terminal shows a line for each bucket.
    """

    partition: str
    subtitle: str
    rings: tuple[RingView, ...]

    @property
    def title(self) -> str:
        return f"Partition {self.partition}" if self.partition else "Table without partitions"

    @property
    def svg(self) -> str:
        return rings_svg(self.title, self.subtitle, self.rings)

    def _repr_html_(self) -> str:
        # The class keeps a notebook from typesetting text between dollar signs.
        svg = rings_svg(self.title, self.subtitle, self.rings, alone=False)
        return f'<div class="tex2jax_ignore">{svg}</div>'

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        sizes = (bucket.bytes or 0 for ring in self.rings for bucket in ring.buckets)
        largest = max(sizes, default=0)
        is_changed = len(self.rings) > 1
        rings = (line for ring in self.rings for line in _ring_lines(ring, largest, is_changed))
        return "\n".join((f"{self.title}: {self.subtitle}", *rings))


def _ring_lines(ring: RingView, largest: int, is_changed: bool) -> Iterator[str]:
    """Yield the ring; of two rings only the buckets that differ."""
    total = "size not known" if ring.bytes is None else readable(ring.bytes, "B")
    title = f"{ring.title}: " if ring.title else ""
    yield f"{title}{counted(len(ring.buckets), 'bucket')}, {total}"
    shown = [b for b in ring.buckets if b.change is not None or not is_changed]
    yield from _bucket_lines(shown, largest)
    if kept := len(ring.buckets) - len(shown):
        yield f"  {counted(kept, 'other bucket')} as before"
    if ring.coming:
        yield f"pending: {counted(len(ring.coming), 'bucket')}"
        yield from _bucket_lines(ring.coming, largest)


def _bucket_lines(buckets: Sequence[BucketView], largest: int) -> Iterator[str]:
    for bucket in buckets[:LINES_MAX]:
        yield f"  {_line(bucket, largest)}"
    if len(buckets) > LINES_MAX:
        yield f"  ... and {len(buckets) - LINES_MAX:,} more"


def _line(bucket: BucketView, largest: int) -> str:
    bar = "█" * round(_BAR * (bucket.bytes or 0) / max(largest, 1))
    words = ", ".join(filter(None, (bucket.keys, bucket.note)))
    return f"{bucket.name:<{NAME_CHARACTERS}}  {bucket.label:>9}  {bar:<{_BAR}}  {words}"
