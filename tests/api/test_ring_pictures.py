"""`table.inspect.ring()`: what the picture of a ring shows, and that any table can be drawn."""

from __future__ import annotations

import re
import warnings
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyhudi
from counted_storage import CountedStorage
from golden_tables import GoldenTables
from memory_tables import MemoryTable
from pyhudi.api.ring_pictures.picture import LINES_MAX, RingPicture
from pyhudi.api.ring_pictures.views import RingView, change_views, ring_differences, ring_view
from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.files.file_names import parse_data_file
from pyhudi.format.table.bucket_config import ConsistentBuckets, SimpleBuckets
from pyhudi.format.table.ring_file import (
    FIRST_INSTANT,
    RING_MAX,
    Ring,
    RingFileName,
    RingNode,
    initial_ring,
    ring_path,
)
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.index.ring_changes import arc_of, equal_points, merge, ring_after, split
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.plan.resizing.policy import ResizePolicy
from resize_tables import ResizeTable

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # buckets this small are for tests only
    SMALL = ResizePolicy(target_bytes=4096, rest_seconds=0)
ARCHIVE = ArchivePolicy(
    keep_min=2, keep_max=3, delta_commits=0, grace_ms=1_000, aborted_grace_ms=1_000
)
KEYS = [f"k{n}" for n in range(600)]
NASTY = """<script>alert("x")</script>&amp;'"><image href=x onerror=y>\x00\x1b]]>"""
TAGS = {"svg", "style", "g", "path", "rect", "text", "title"}
C = InstantTime("20260102030405678")


class Drawn:
    """The picture as a browser parses it."""

    def __init__(self, svg: str) -> None:
        self.root = ElementTree.fromstring(svg)
        self.all = list(self.root.iter())
        self.tags = {each.tag.removeprefix("{http://www.w3.org/2000/svg}") for each in self.all}
        self.attributes = {name for each in self.all for name in each.attrib}

    def texts(self, tag: str) -> list[str]:
        return [each.text or "" for each in self.all if each.tag.endswith(f"}}{tag}")]

    @property
    def tips(self) -> list[str]:
        return self.texts("title")

    @property
    def words(self) -> list[str]:
        return self.texts("text")


def picture(*rings: RingView, partition: str = "day=1") -> RingPicture:
    return RingPicture(partition, "as of now", rings)


def sized(ring: Ring, size: int = 1_000_000) -> dict[str, int]:
    return {node.file_id: size * (n + 1) for n, node in enumerate(ring.nodes)}


def view_of(count: int) -> RingView:
    ring = initial_ring("day=1", count)
    return ring_view("", ring, sized(ring))


@pytest.fixture
def table() -> ResizeTable:
    found = ResizeTable(initial=2, ordering="ts")
    found.put(KEYS, 1)
    return found


# -- what a table shows


def test_a_ring_is_drawn_with_the_prefix_range_and_bytes_of_each_bucket(table: ResizeTable) -> None:
    drawn = Drawn(table.table().inspect.ring("d").svg)
    for row in table.table().inspect.buckets().to_pylist():
        [(first, last)] = [(r["first"], r["last"]) for r in row["range"]]
        name, size = row["file_id"][:8], f"{row['bytes'] / 1000:.1f} kB"
        assert f"{name} · hash values {first:,} to {last:,} · {size}" in drawn.tips
        assert {name, size} <= set(drawn.words)
    assert {"Partition d", "2", "buckets", "0 B"} <= set(drawn.words)


def test_no_data_file_is_opened_for_a_picture(table: ResizeTable) -> None:
    storage = CountedStorage(table.storage)
    table.table("looker", storage.as_storage()).inspect.ring("d")
    names = [request.path.rpartition("/")[2] for request in storage.requests]
    assert names
    assert not any(map(parse_data_file, names))


def test_a_preview_is_drawn_before_and_after(table: ResizeTable) -> None:
    names = table.names()
    resized = table.table().services.resize(SMALL, dry_run=True)
    for given_ in (resized, resized.preview):
        found = table.table().inspect.ring("d", resize=given_)
        before, after = found.rings
        assert (before.title, after.title) == ("before", "after")
        parts = [change.parts for change in resized.preview.changes]
        assert [b.note for b in before.buckets] == [f"split into {n}" for n in parts[::-1]]
        assert len(after.buckets) == sum(parts)
        assert before.bytes == sum(change.bytes for change in resized.preview.changes)
        assert all(bucket.label.startswith("≈ ") for bucket in after.buckets)
        assert "a resize would turn 2 buckets, " in str(found)
    assert table.names() == names


def test_a_pending_resize_is_drawn_around_the_ring_and_before_and_after(
    table: ResizeTable,
) -> None:
    planned = table.plan(3)
    [now] = table.table().inspect.ring("d").rings
    assert [bucket.note for bucket in now.buckets] == [f"in resize {planned}"] * 2
    assert len(now.coming) == 6
    found = table.table().inspect.ring("d", resize=planned)
    assert [len(ring.buckets) for ring in found.rings] == [2, 6]
    assert f"resize {planned} is pending, and turns 2 buckets, " in str(found)
    assert f"resize {planned} is pending" in Drawn(table.table().inspect.ring("d").svg).words[1]


def test_a_plan_that_is_damaged_does_not_hide_the_ring(table: ResizeTable) -> None:
    planned = table.plan(3)
    table.storage.write(f".hoodie/timeline/{planned}.clustering.requested", b"x")
    [now] = table.table().inspect.ring("d").rings
    assert len(now.buckets) == 2
    assert all(planned in bucket.note for bucket in now.buckets)
    assert not now.coming
    with pytest.raises(CorruptTableError):
        table.table().inspect.ring("d", resize=planned)


@pytest.mark.parametrize("is_ring_gone", [False, True])
def test_a_past_resize_is_drawn_from_its_rings_or_its_plan(
    table: ResizeTable, is_ring_gone: bool
) -> None:
    """Also if others followed, and if a clean removed the ring that it replaced."""
    old = table.table().inspect.buckets(rows=False).to_pylist()
    first = table.plan(3)
    assert table.resizes().execute(first) is not None
    made = table.table().inspect.buckets(rows=False).to_pylist()
    second = table.plan_merge()
    assert table.resizes().execute(second) is not None
    if is_ring_gone:
        table.storage.delete(ring_path("d", RingFileName(FIRST_INSTANT)))
    found = table.table().inspect.ring("d", resize=first)
    before, after = found.rings
    assert [(b.name, b.bytes) for b in before.buckets] == [
        (row["file_id"][:8], row["bytes"]) for row in old
    ]
    assert [(b.name, b.bytes) for b in after.buckets] == [
        (row["file_id"][:8], row["bytes"]) for row in made
    ]
    assert [bucket.note for bucket in before.buckets] == ["split into 3"] * 2
    assert [bucket.note for bucket in after.buckets] == ["new"] * 6
    assert f"resize {first}, completed 2026-01-01 00:00:00." in str(found)
    later, last = table.table().inspect.ring("d", resize=second).rings
    assert later.buckets[0].note == "6 buckets become 1"
    assert len(last.buckets) == 1


def test_an_archived_resize_is_drawn_as_far_as_its_rings_and_plan_tell(table: ResizeTable) -> None:
    """Files of the time are gone, and so are the sizes."""
    first = table.plan(3)
    assert table.resizes().execute(first) is not None
    made = [row["file_id"][:8] for row in table.table().inspect.buckets().to_pylist()]
    second = table.plan_merge()
    assert table.resizes().execute(second) is not None
    for stamp in range(5, 12):
        table.put(KEYS[:3], stamp)
    table.table().services.compact()
    table.clock.ms += 30 * 24 * 3_600_000
    table.put(KEYS[:3], 99)
    table.table().services.clean(pyhudi.CleanPolicy.commits(1))
    table.table().services.archive(ARCHIVE)
    assert not [name for name in table.names() if name.startswith((first, second))]
    before, after = table.table().inspect.ring("d", resize=second).rings
    assert [(b.name, b.bytes) for b in before.buckets] == [(name, None) for name in made]
    assert [b.bytes for b in after.buckets] == [None]
    with pytest.raises(InvalidRequestError, match=f"what resize {first} .*a clean removed its"):
        table.table().inspect.ring("d", resize=first)


@pytest.mark.parametrize(
    ("name", "notes"), [("split", ["split into 2"] * 2), ("merge", ["4 buckets become 1"] * 4)]
)
def test_resizes_of_hudi_are_drawn(golden: GoldenTables, name: str, notes: list[str]) -> None:
    table = pyhudi.open_table(str(golden.path(f"mor_consistent_hash_{name}")))
    timeline = table.inspect.timeline().to_pylist()
    [resize] = {row["requested"] for row in timeline if row["began_as"] == "clustering"}
    [partition] = {row["partition"] for row in table.inspect.buckets(rows=False).to_pylist()}
    found = table.inspect.ring(partition, resize=resize)
    Drawn(found.svg)
    assert [b.note for b in found.rings[0].buckets if b.note] == notes


def test_a_table_without_partitions_has_one_ring() -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64())])
    memory = MemoryTable(schema, ordering="ts", buckets=ConsistentBuckets(4))
    memory.table().upsert(pa.table({"id": ["a", "b"], "ts": [1, 1]}, schema))
    found = memory.table().inspect.ring()
    assert found.title == "Table without partitions"
    assert len(found.rings[0].buckets) == 4
    with pytest.raises(InvalidRequestError, match=r"partition 'x' has no ring: .* 1 partition: ''"):
        memory.table().inspect.ring("x")


def test_what_cannot_be_drawn_is_refused_and_the_error_says_what_can(table: ResizeTable) -> None:
    ring = table.table().inspect.ring
    nothing = table.table().services.resize(ResizePolicy(merge_below=0), dry_run=True)
    refused: list[tuple[dict[str, Any], str]] = [
        ({}, "no partition is named: the table has 1 partition: 'd'"),
        ({"partition": "e"}, "partition 'e' has no ring: the table has 1 partition: 'd'"),
        ({"partition": "../.."}, r"partition '../..' has no ring"),
        (
            {"partition": "d", "resize": "x"},
            "resize='x' cannot be used: .* nor a time of 17 digits",
        ),
        ({"partition": "d", "resize": 7}, "resize='7' cannot be used"),
        ({"partition": "d", "resize": "2" * 17}, "resize 2+ changed in partition 'd' is not known"),
        ({"partition": "d", "resize": "0" * 14}, "resize 0+ changed in partition 'd' is not known"),
        ({"partition": "d", "resize": nothing}, "no bucket of partition 'd': .*nothing to resize"),
    ]
    for asked, what in refused:
        with pytest.raises(InvalidRequestError, match=what):
            ring(**asked)


def test_a_resize_that_was_rolled_back_or_is_elsewhere_is_refused(table: ResizeTable) -> None:
    table.put(["z"], 1, day="e")
    planned = table.plan(2, days=("e",))
    preview = table.table().services.resize(SMALL, dry_run=True)
    with pytest.raises(
        InvalidRequestError, match=r"no bucket of partition 'e': .*1 partition: 'd'"
    ):
        table.table().inspect.ring("e", resize=preview)
    with pytest.raises(InvalidRequestError, match="changed in partition 'd' is not known"):
        table.table().inspect.ring("d", resize=planned)
    table.table("canceller").services.cancel_resize(planned)
    with pytest.raises(InvalidRequestError, match="changed in partition 'e' is not known"):
        table.table().inspect.ring("e", resize=planned)


def test_a_table_of_simple_buckets_has_no_ring() -> None:
    memory = MemoryTable(
        pa.schema([("id", pa.string()), ("ts", pa.int64())]), buckets=SimpleBuckets(2)
    )
    memory.table().upsert(pa.table({"id": ["a"], "ts": [1]}))
    with pytest.raises(
        InvalidRequestError, match=r"has no rings: its buckets are simple.*buckets()"
    ):
        memory.table().inspect.ring()


# -- what is drawn


def test_changes_are_found_by_comparing_rings_also_across_the_end_of_the_ring() -> None:
    nodes = tuple(RingNode(place, f"n{place}") for place in (100, 200, 300, 400))
    ring = Ring("p", InstantTime("0" * 14), 4, 0, nodes)  # the first bucket wraps around
    changes = [
        split(ring, 0, equal_points(arc_of(ring, 0), 2), ["a", "b"]),
        merge(ring, range(1, 3), "m"),
    ]
    after = ring_after(ring, changes, C)
    found = ring_differences(ring, after)
    assert [(each.inputs, sorted(each.made), each.what) for each in found] == [
        (["n100-0"], ["a-0", "b-0"], "split into 2"),
        (["n200-0", "n300-0"], ["m-0"], "2 buckets become 1"),
    ]
    assert ring_differences(ring, ring) == []
    before_view, after_view = change_views(ring, after, sized(ring, 10))
    assert [bucket.change for bucket in before_view.buckets] == [0, 1, 1, None]
    expected = {bucket.name: bucket.bytes for bucket in after_view.buckets}
    assert expected == {"a-0": 5, "b-0": 5, "m-0": 50, "n400-0": 40}


@pytest.mark.parametrize("count", [1, 2, 3, 64, 1000])
def test_arcs_cover_the_circle_once(count: int) -> None:
    buckets = view_of(count).buckets
    assert buckets[0].begin == 0
    assert buckets[-1].end == 1
    assert all(a.end == b.begin for a, b in pairwise(buckets))


@pytest.mark.parametrize(
    ("count", "paths_max"), [(1, 1), (40, 40), (4_096, 1_000), (32_768, 1_000)]
)
def test_a_large_ring_has_thin_arcs_few_labels_and_a_bounded_size(
    count: int, paths_max: int
) -> None:
    ring = initial_ring("day=1", count)
    sizes = dict.fromkeys((node.file_id for node in ring.nodes), 1_000_000)
    hot = ring.nodes[count // 3].file_id
    sizes[hot] = 900_000_000
    svg = picture(ring_view("", ring, sizes)).svg
    drawn = Drawn(svg)
    assert len(drawn.tips) <= paths_max
    assert len(svg) < 200_000
    assert {hot[:8], "900 MB", f"{count:,}"} <= set(drawn.words)
    counted = sum(
        int(found[1]) if (found := re.match(r"(\d+) buckets, ", tip)) else 1 for tip in drawn.tips
    )
    assert counted == count
    assert sum("900 MB" in tip for tip in drawn.tips) == 1


@pytest.mark.parametrize("count", [2, 7, 24, 64, 200])
def test_labels_do_not_overlap_and_stay_in_the_picture(count: int) -> None:
    drawn = Drawn(picture(view_of(count)).svg)
    width, height = (float(drawn.root.attrib[name]) for name in ("width", "height"))
    boxes = []
    for each in drawn.all:
        if each.attrib.get("font-size") == "10":  # the names below the sizes
            x, y, length = (
                float(each.attrib["x"]),
                float(each.attrib["y"]),
                6 * len(each.text or ""),
            )
            shift = {"end": length, "middle": length / 2}.get(each.attrib.get("text-anchor", ""), 0)
            boxes.append((x - shift, y - 21, x - shift + length, y + 2))
    assert len(boxes) >= min(count, 6)
    for left, top, right, bottom in boxes:
        assert 0 <= left < right <= width
        assert 58 <= top < bottom <= height - 50
    for n, one in enumerate(boxes):
        for other in boxes[n + 1 :]:
            is_beside = one[2] <= other[0] or other[2] <= one[0]
            assert is_beside or one[3] <= other[1] or other[3] <= one[1]


def test_colours_go_by_bytes_and_unknown_sizes_have_none() -> None:
    ring = initial_ring("p", 4)
    ids = [node.file_id for node in ring.nodes]
    drawn = Drawn(picture(ring_view("", ring, {ids[0]: 0, ids[1]: 10, ids[2]: 1_000})).svg)
    colours = {
        title.text.split(" ")[0]: group.attrib.get("fill")
        for group in drawn.all
        for title in group.iter()
        if group.tag.endswith("}g") and title.tag.endswith("}title") and title.text
    }
    scale = [each.attrib["fill"] for each in drawn.all if "fill" in each.attrib][1:]
    legend = [e.attrib["fill"] for e in drawn.all if e.tag.endswith("}rect") and "fill" in e.attrib]
    assert [colours[id_[:8]] for id_ in ids] == [None, legend[0], legend[-1], None]
    assert len(set(legend)) == len(legend) > 5
    assert set(scale) >= set(legend)
    assert {"size not known", "no file, or not known", "1 kB"} <= set(drawn.words)
    assert any(tip.endswith("size not known") for tip in drawn.tips)


@given(partition=st.text(), title=st.text(), note=st.text(), name=st.text())
def test_any_text_of_a_table_is_escaped_and_the_picture_is_whole(
    partition: str, title: str, note: str, name: str
) -> None:
    nodes = (RingNode(5, f"{name}a"), RingNode(RING_MAX, f"{name}b"))
    ring = Ring(partition, InstantTime("0" * 14), 2, 0, nodes)
    notes = dict.fromkeys((node.file_id for node in nodes), note)
    found = picture(ring_view(title, ring, sized(ring), notes), partition=partition)
    for svg in (found.svg, found._repr_html_()):
        assert {tag for tag in Drawn(svg).tags if tag != "div"} <= TAGS


def test_a_picture_has_no_script_and_fetches_nothing() -> None:
    ring = initial_ring("p", 3)
    ids = [node.file_id for node in ring.nodes]
    view = ring_view(NASTY, ring, sized(ring), dict.fromkeys(ids, NASTY))
    found = RingPicture(NASTY, NASTY, (view, view))
    for svg in (found.svg, found._repr_html_()):
        drawn = Drawn(svg)
        assert drawn.tags - {"div"} <= TAGS
        assert not [name for name in drawn.attributes if name.startswith("on") or "href" in name]
        assert not re.search(r"url\(|@import|src=|http(?!://www\.w3\.org/2000/svg\")", svg)


def test_a_notebook_gives_the_picture_its_colours_and_a_file_has_its_own() -> None:
    found = picture(view_of(3))
    assert "prefers-color-scheme:dark" in found.svg
    shown = found._repr_html_()
    assert "<style>" not in shown
    assert "pyhudi-ring" not in shown
    assert 'fill="currentColor"' in shown


def test_a_terminal_shows_a_line_for_each_bucket_up_to_a_bound() -> None:
    assert repr(picture(view_of(2))).splitlines() == [
        "Partition day=1: as of now",
        "2 buckets, 3 MB",
        f"  {initial_ring('day=1', 2).nodes[0].file_id[:8]}       1 MB  ██████████"
        "            hash values 0 to 1,073,741,824",
        f"  {initial_ring('day=1', 2).nodes[1].file_id[:8]}       2 MB  {'█' * 20}"
        "  hash values 1,073,741,825 to 2,147,483,647",
    ]
    lines = str(picture(view_of(1_000))).splitlines()
    assert len(lines) == LINES_MAX + 3
    assert lines[-1] == f"  ... and {1_000 - LINES_MAX} more"


def test_before_and_after_a_terminal_shows_what_changes() -> None:
    ring = initial_ring("p", 8)
    after = ring_after(ring, [merge(ring, range(2, 4), "m")], C)
    text = str(picture(*change_views(ring, after, sized(ring))))
    assert [line for line in text.splitlines() if line.startswith("  ")] == [
        *(line for line in text.splitlines() if "2 buckets become 1" in line),
        "  6 other buckets as before",
        *(line for line in text.splitlines() if line.endswith(", new")),
        "  6 other buckets as before",
    ]
    assert text.count("2 buckets become 1") == 2
    assert text.count("≈ 7 MB") == 1
