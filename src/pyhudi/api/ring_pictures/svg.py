"""Rings as an SVG: circles of arcs, coloured by size, with a legend.

The text stands on its own: no script, no style sheet, nothing fetched. Lines and words take the
colour of the page, light or dark. The arcs have colours of their own that stand out on both: from
pale blue for the smallest to dark violet for the largest bucket. Every text is escaped, and
characters that XML does not have are replaced.

A ring of thousands of buckets has thin arcs, and labels only where they fit. Neighbours that are
narrower than can be seen are drawn as one arc, in the colour of the largest of them: so the text
has a bounded size, and no large bucket vanishes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Final, NamedTuple

from pyhudi.api.ring_pictures.views import BucketView, RingView
from pyhudi.wording import counted, readable

CHARACTERS_MAX: Final = 100

_SCALE = ("#b3dcee", "#8cc3e6", "#6aa7dc", "#5a88cf", "#5f6cbf", "#7152ad", "#87409a", "#9c2f80")
_OUTER, _INNER, _MARK, _COMING = 108.0, 74.0, 113.0, (113.0, 123.0)  # radii
_PANEL, _BETWEEN, _TOP, _HEIGHT, _FOOT = 372.0, 24.0, 58.0, 306.0, 62.0
_CAPTION = 22.0  # height of the line below a ring
_STEP, _SIGN, _WORD = 19.0, 28.0, 6.0  # widths in the legend: a colour, a sign, a character
_NARROWEST = 0.7  # of an arc, in units of length at its outer edge
_LABELLED = 9.0  # an arc as wide as that has a label, if there is room
_NARROW_LABELS_MAX = 6  # labels of narrower arcs: those of the largest buckets
_GAP = 1.6
_SANS = "system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif"
_MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
_LINE = 'stroke="currentColor" stroke-width="2.5"'
_NO_SIZE = 'fill-opacity=".2"'
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STYLE = (
    "<style>.pyhudi-ring{color:#24292f}"
    "@media(prefers-color-scheme:dark){.pyhudi-ring{color:#d8dee4}}</style>"
)


def rings_svg(title: str, subtitle: str, rings: Sequence[RingView], *, alone: bool = True) -> str:
    """Return the picture of one ring, or of several moments of one, from left to right.

    With `alone` it has colours for a page that is this picture and nothing else. Without, it takes
    those of the page around it.
    """
    width = len(rings) * _PANEL + (len(rings) - 1) * _BETWEEN
    middle, foot = _TOP + _HEIGHT / 2, _TOP + _HEIGHT
    foot += _CAPTION if any(ring.caption for ring in rings) else 0
    sizes = (b.bytes or 0 for ring in rings for b in (*ring.buckets, *ring.coming))
    largest = max(sizes, default=0)
    height = foot + _FOOT
    named = 'class="pyhudi-ring" ' if alone else ""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}"'
        f' width="{_n(width)}" height="{_n(height)}" {named}role="img" aria-label="{_text(title)}"'
        f' fill="currentColor" fill-rule="evenodd" font-family="{_SANS}" font-size="12"'
        ' style="max-width:100%;height:auto">',
        _STYLE if alone else "",
        _words(14, 26, _cut(title, int(width / 9)), size=15, weight=600),
        _words(14, 45, _cut(subtitle, int(width / 6.5)), opacity=0.65),
    ]
    for number, ring in enumerate(rings):
        left = number * (_PANEL + _BETWEEN)
        if number:
            parts.append(_arrow(left - _BETWEEN / 2, middle))
        parts += _Panel(ring, left + _PANEL / 2, middle, largest).drawn()
    parts += _legend(rings, largest, foot + 18)
    return "".join((*parts, "</svg>\n"))


class _Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


class _Label(NamedTuple):
    box: _Box
    drawn: str


@dataclass(frozen=True, slots=True)
class _Panel:
    """One ring around a centre."""

    ring: RingView
    x: float
    y: float
    largest: int

    def drawn(self) -> Iterator[str]:
        outer = _COMING[1] if self.ring.coming else _MARK
        yield from self._arcs(self.ring.buckets, _INNER, _OUTER)
        yield from self._arcs(self.ring.coming, *_COMING)
        yield from self._marks()
        yield from self._centre()
        yield from self._labels(outer + 3)
        if self.ring.caption:
            yield _words(self.x, _TOP + _HEIGHT + 16, self.ring.caption, anchor="middle")

    def _arcs(self, buckets: Sequence[BucketView], inner: float, outer: float) -> Iterator[str]:
        """Yield arcs by colour, so that each colour is named once."""
        runs = list(_runs(buckets, _NARROWEST / (2 * math.pi * outer)))
        runs.sort(key=lambda run: _colour(run, self.largest))  # stable: else by place
        for colour, alike in groupby(runs, key=lambda run: _colour(run, self.largest)):
            yield f"<g {colour}>"
            for run in alike:
                shape = self._arc(run[0].begin, run[-1].end, inner, outer)
                yield f'<path d="{shape}"><title>{_text(_tip(run))}</title></path>'
            yield "</g>"

    def _arc(self, begin: float, end: float, inner: float, outer: float) -> str:
        if end - begin > 0.9999:
            return self._circle(outer) + self._circle(inner)
        gap = min(_GAP, 0.2 * (end - begin) * 2 * math.pi * outer) / (4 * math.pi)
        one = self._at(outer, begin + gap / outer)
        two = self._at(outer, end - gap / outer)
        three = self._at(inner, end - gap / inner)
        four = self._at(inner, begin + gap / inner)
        if end - begin < 0.003:  # too narrow to look round
            return f"M{_point(one)}L{_point(two)} {_point(three)} {_point(four)}z"
        there = self._bow(outer, end - begin, two)
        back = self._bow(inner, end - begin, four, clockwise=0)
        return f"M{_point(one)}{there}L{_point(three)}{back}z"

    def _bow(
        self, radius: float, turns: float, to: tuple[float, float], *, clockwise: int = 1
    ) -> str:
        return f"A{_n(radius)} {_n(radius)} 0 {int(turns > 0.5)} {clockwise} {_point(to)}"

    def _circle(self, radius: float) -> str:
        arc = f"a{_n(radius)} {_n(radius)} 0 1 1"
        top = f"M{_n(self.x)} {_n(self.y - radius)}"
        return f"{top}{arc} 0 {_n(2 * radius)}{arc} 0 {_n(-2 * radius)}z"

    def _marks(self) -> Iterator[str]:
        """Yield a line along the buckets of each change."""
        buckets = () if self.ring.coming else self.ring.buckets
        for change, alike in groupby(buckets, key=lambda bucket: bucket.change):
            if change is None:
                continue
            run = list(alike)
            begin, end = run[0].begin, run[-1].end
            shape = self._circle(_MARK)
            if end - begin < 0.99:
                gap = min(0.002, (end - begin) / 8)
                to = self._at(_MARK, end - gap)
                bow = self._bow(_MARK, end - begin, to)
                shape = f"M{_point(self._at(_MARK, begin + gap))}{bow}"
            yield f'<path d="{shape}" fill="none" {_LINE}/>'

    def _centre(self) -> Iterator[str]:
        total = self.ring.bytes
        size = "size not known" if total is None else readable(total, "B")
        number, noun = counted(len(self.ring.buckets), "bucket").split()
        y = self.y if self.ring.title else self.y - 9
        yield _words(self.x, y - 25, self.ring.title, anchor="middle", opacity=0.65)
        yield _words(self.x, y + 8, number, anchor="middle", size=30, weight=600)
        yield _words(self.x, y + 25, noun, anchor="middle")
        yield _words(self.x, y + 42, size, anchor="middle", opacity=0.65)
        top = f"{_n(self.x)} {_n(self.y - _INNER + 1)}"
        yield f'<path d="M{top}v7" stroke="currentColor" opacity=".5"/>'

    def _labels(self, radius: float) -> Iterator[str]:
        """Yield labels: of what changes, then of the largest, as long as they do not overlap."""
        shown = [bucket for bucket in self.ring.buckets if bucket.change is None]
        shown += self.ring.coming or (b for b in self.ring.buckets if b.change is not None)
        shown.sort(key=lambda bucket: (bucket.change is None, -(bucket.bytes or 0)))
        least, narrow = _LABELLED / (2 * math.pi * radius), 0
        taken: list[_Box] = []
        for bucket in shown:
            is_narrow = bucket.end - bucket.begin < least
            if is_narrow and narrow == _NARROW_LABELS_MAX:
                continue
            label = self._label(bucket, radius)
            is_inside = abs(label.box.left - self.x) < _PANEL / 2 > abs(label.box.right - self.x)
            if is_inside and not any(label.box.meets(other) for other in taken):
                taken.append(label.box)
                narrow += is_narrow
                yield label.drawn

    def _label(self, bucket: BucketView, radius: float) -> _Label:
        turns = (bucket.begin + bucket.end) / 2
        near, far = self._at(radius, turns), self._at(radius + 7, turns)
        sine, cosine = math.sin(2 * math.pi * turns), math.cos(2 * math.pi * turns)
        anchor = "middle" if abs(sine) < 0.3 else "start" if sine > 0 else "end"
        length = max(len(bucket.label) * 6.9, len(bucket.name) * 6.2)
        x = far[0] + {"start": 3, "middle": 0, "end": -3}[anchor]
        y = far[1] - cosine * 13
        left = x - {"start": 0, "middle": length / 2, "end": length}[anchor]
        line = f"M{_point(near)}L{_point(far)}"
        words = (
            f'<path d="{line}" stroke="currentColor" opacity=".4"/>',
            _words(x, y - 1, bucket.label, anchor=anchor, weight=600),
            _words(x, y + 11, bucket.name, anchor=anchor, size=10, opacity=0.65, font=_MONO),
        )
        return _Label(_Box(left - 2, y - 12, left + length + 2, y + 14), "".join(words))

    def _at(self, radius: float, turns: float) -> tuple[float, float]:
        angle = 2 * math.pi * turns
        return self.x + radius * math.sin(angle), self.y - radius * math.cos(angle)


def _runs(buckets: Iterable[BucketView], least: float) -> Iterator[list[BucketView]]:
    """Yield the buckets in runs of neighbours that are wide enough together to be seen."""
    run: list[BucketView] = []
    for bucket in buckets:
        is_next = bool(run) and math.isclose(run[-1].end, bucket.begin, abs_tol=1e-9)
        if run and (run[-1].end - run[0].begin >= least or not is_next):
            yield run
            run = []
        run.append(bucket)
    if run:
        yield run


def _colour(run: Sequence[BucketView], largest: int) -> str:
    size = max((bucket.bytes or 0 for bucket in run), default=0)
    if size == 0:
        return _NO_SIZE
    step = min(size * len(_SCALE) // max(largest, 1), len(_SCALE) - 1)
    return f'fill="{_SCALE[step]}"'


def _tip(run: Sequence[BucketView]) -> str:
    if len(run) == 1:
        return run[0].words
    known = [bucket.bytes for bucket in run if bucket.bytes is not None]
    total, most = readable(sum(known), "B"), readable(max(known, default=0), "B")
    names = f"{len(run)} buckets, {run[0].name} to {run[-1].name}"
    return f"{names} · together {total}, the largest {most}"


def _legend(rings: Sequence[RingView], largest: int, y: float) -> Iterator[str]:
    end = 14 + len(_SCALE) * _STEP
    for step, colour in enumerate(_SCALE):
        x = _n(14 + step * _STEP)
        yield f'<rect x="{x}" y="{_n(y)}" width="{_n(_STEP)}" height="10" fill="{colour}"/>'
    ticks = ((14.0, 0, "start"), ((14 + end) / 2, largest / 2, "middle"), (end, largest, "end"))
    for at, value, anchor in ticks if largest else ticks[:1]:
        yield _words(at, y + 24, readable(value, "B"), anchor=anchor, size=11, opacity=0.65)
    buckets = [bucket for ring in rings for bucket in ring.buckets]
    marked = [b for ring in rings if not ring.coming for b in ring.buckets if b.change is not None]
    signs = (
        (not all(b.bytes for b in buckets), _box(y, 10, _NO_SIZE), "no file, or not known"),
        (bool(marked), f'<path d="M{{}} {_n(y + 5)}h20" fill="none" {_LINE}/>', "replaced, new"),
        (any(ring.coming for ring in rings), _box(y + 3, 5, f'fill="{_SCALE[2]}"'), "being made"),
    )
    at = end + 20
    for is_used, sign, words in signs:
        if is_used:
            yield sign.format(_n(at))
            yield _words(at + _SIGN, y + 9, words, size=11, opacity=0.65)
            at += _SIGN + len(words) * _WORD + 14


def _box(y: float, height: float, fill: str) -> str:
    return f'<rect x="{{}}" y="{_n(y)}" width="20" height="{_n(height)}" {fill}/>'


def _arrow(x: float, y: float) -> str:
    return (
        f'<path d="M{_n(x - 13)} {_n(y)}h24m-7 -6l7 6l-7 6" fill="none" stroke="currentColor"'
        ' stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" opacity=".6"/>'
    )


def _words(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 12,
    weight: int = 400,
    opacity: float = 1,
    font: str = "",
) -> str:
    if not text:
        return ""
    given = [
        f'x="{_n(x)}" y="{_n(y)}"',
        f'text-anchor="{anchor}"' if anchor != "start" else "",
        f'font-size="{size}"' if size != 12 else "",
        f'font-weight="{weight}"' if weight != 400 else "",
        f'opacity="{opacity:g}"' if opacity != 1 else "",
        f'font-family="{font}"' if font else "",
    ]
    return f"<text {' '.join(filter(None, given))}>{_text(text)}</text>"


def _cut(text: str, length: int) -> str:
    length = min(length, CHARACTERS_MAX)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _text(text: str) -> str:
    """Return the text cut, then escaped, so that no escape is cut in two."""
    return escape(_NO_XML.sub("\ufffd", _cut(text, CHARACTERS_MAX)))


def _point(point: tuple[float, float]) -> str:
    return f"{_n(point[0])} {_n(point[1])}"


def _n(value: float) -> str:
    """Return the number with at most one digit behind the point.

    >>> _n(10.04), _n(-0.01), _n(3.26)
    ('10', '0', '3.3')
    """
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")
