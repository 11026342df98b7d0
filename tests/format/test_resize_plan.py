"""Resizes as clustering plans: Hudi's own are read, and ours are the same record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_tables import GoldenTables
from pyhudi.errors import CorruptTableError
from pyhudi.format.table.ring_file import RING_MAX, NodeTag, RingNode, decode_ring
from pyhudi.format.timeline import resize_plan
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.plan_files import (
    ClusteringGroup,
    ClusteringSlice,
    RequestedReplaceMetadata,
    decode_requested_replace,
    encode_requested_replace,
)
from pyhudi.format.timeline.resize_plan import (
    CHILDREN_KEY,
    GroupChange,
    InputSlice,
    ResizePlan,
    decode_resize_plan,
    encode_resize_plan,
    resize_of,
    resize_request,
)
from pyhudi.index.ring_changes import RingChange, ring_after

SYNC = b"0123456789abcdef"
C = "20260102030405678"
BASE = "s3://lake/orders"
TABLES = ("mor_consistent_hash_split", "mor_consistent_hash_merge", "mor_consistent_hash_pending")


def requested(table: Path) -> list[Path]:
    return sorted((table / ".hoodie/timeline").glob("*.clustering.requested"))


def base(file_id: str) -> str:
    return f"{file_id}_0-0-0_{C}.parquet"


def log(file_id: str, version: int = 1) -> str:
    return f".{file_id}_{C}.log.{version}_0-0-0"


def a_split(partition: str = "day=1", number: int = 3) -> GroupChange:
    part = InputSlice("n9-0", base("n9-0"), (log("n9-0"), log("n9-0", 2)))
    children = (RingNode(4, "a", NodeTag.REPLACE), RingNode(9, "b", NodeTag.REPLACE))
    return GroupChange(partition, number, (part,), children, {"TOTAL_LOG_FILES": 2.0})


def a_merge(partition: str = "day=1", number: int = 3) -> GroupChange:
    parts = (InputSlice("n20-0", None, (log("n20-0"),)), InputSlice("n30-0", None))
    children = (RingNode(20, None, NodeTag.DELETE), RingNode(30, "m", NodeTag.REPLACE))
    return GroupChange(partition, number, parts, children, {})


# ---- Hudi's plans


@pytest.mark.parametrize("name", TABLES)
def test_a_plan_of_hudi_is_read_and_written_as_the_same_record(
    golden: GoldenTables, name: str
) -> None:
    """Also its execution strategy: Hudi may execute the plan."""
    table = golden.path(name)
    files = requested(table)
    assert files
    for file in files:
        request = decode_requested_replace(file.read_bytes(), file.name)
        assert request is not None
        found = decode_resize_plan(file.read_bytes(), file.name)
        assert found is not None
        assert all((table / path).is_file() for change in found.groups for path in change.paths)
        assert found.is_dual
        assert resize_request(found, f"file:/tmp/golden/{name}") == request
        data = encode_resize_plan(found, "s3://elsewhere/t", SYNC)
        assert decode_resize_plan(data, file.name) == found


@pytest.mark.parametrize("name", ["mor_consistent_hash_split", "mor_consistent_hash_merge"])
def test_the_children_of_a_plan_of_hudi_make_the_ring_that_hudi_wrote(
    golden: GoldenTables, name: str
) -> None:
    table = golden.path(name)
    rings = sorted(table.rglob("*.hashing_meta"))
    before, after = (decode_ring(path.read_bytes()) for path in rings)
    (file,) = requested(table)
    plan = decode_resize_plan(file.read_bytes(), file.name)
    assert plan is not None
    assert {change.sequence_number for change in plan.groups} == {before.sequence_number}
    changes = [
        RingChange(
            tuple(part.file_id.removesuffix("-0") for part in change.slices), change.children
        )
        for change in plan.groups
    ]
    assert ring_after(before, changes, InstantTime(file.name.split(".")[0])) == after


def test_a_clustering_by_sort_columns_and_an_overwrite_are_no_resizes(
    golden: GoldenTables,
) -> None:
    (file,) = requested(golden.path("cow_clustered"))
    assert decode_resize_plan(file.read_bytes(), file.name) is None
    assert decode_resize_plan(b"", "x") is None
    assert resize_of(RequestedReplaceMetadata("INSERT_OVERWRITE"), "x") is None


# ---- ours


def test_a_plan_says_what_it_replaces_and_makes() -> None:
    plan = ResizePlan((a_split(), a_merge(), a_split("", 0)))
    names = {(group.partition, group.file_id) for group in plan.inputs}
    assert names == {("day=1", "n9-0"), ("day=1", "n20-0"), ("day=1", "n30-0"), ("", "n9-0")}
    assert sorted(group.file_id for group in plan.made) == ["a-0", "a-0", "b-0", "b-0", "m-0"]
    assert [*plan.by_partition] == ["day=1", ""]
    assert plan.groups[0].paths[0] == f"day=1/{base('n9-0')}"
    assert plan.groups[2].paths[0] == base("n9-0")


@st.composite
def plans(draw: st.DrawFn) -> ResizePlan:
    ids = iter(range(10_000))
    groups = []
    for partition in draw(st.sets(st.sampled_from(["", "p", "day=1/h=%2F 2", "Ä"]), min_size=1)):
        number = draw(st.integers(0, RING_MAX))
        for _ in range(draw(st.integers(1, 3))):
            slices = []
            for _ in range(draw(st.integers(1, 3))):
                id_ = f"n{next(ids)}-0"
                logs = tuple(log(id_, n) for n in range(draw(st.integers(0, 3))))
                slices.append(InputSlice(id_, draw(st.sampled_from([None, base(id_)])), logs))
            made = draw(st.lists(st.integers(0, RING_MAX), min_size=1, max_size=4, unique=True))
            nodes = [
                RingNode(at, None, NodeTag.DELETE)
                if draw(st.booleans())
                else RingNode(at, f"c{next(ids)}", NodeTag.REPLACE)
                for at in made
            ]
            metrics = {"TOTAL_IO_MB": draw(st.floats(0, 1e9))}
            groups.append(GroupChange(partition, number, tuple(slices), tuple(nodes), metrics))
    return ResizePlan(tuple(groups))


@given(plans())
def test_every_plan_is_read_as_it_was_written_also_from_another_place(plan: ResizePlan) -> None:
    for uri in (BASE, "file:///tmp/some where/t/", "s3a://x"):
        assert decode_resize_plan(encode_resize_plan(plan, uri, SYNC), "x") == plan


# ---- bad input


def stored(group: ClusteringGroup) -> bytes:
    request = resize_request(ResizePlan((a_split(),)), BASE)
    plan = request.clustering_plan
    assert plan is not None
    changed = replace(plan, input_groups=(*(plan.input_groups or ()), group))
    return encode_requested_replace(replace(request, clustering_plan=changed), SYNC)


def other_group(**changes: Any) -> ClusteringGroup:
    """The group of another change, with other fields, slice fields, or extra metadata."""
    request = resize_request(ResizePlan((a_merge(),)), BASE)
    assert request.clustering_plan is not None
    (group,) = request.clustering_plan.input_groups or ()
    extra: Mapping[str, str] = {**(group.extra_metadata or {}), **changes.pop("extra", {})}
    extra = {key: value for key, value in extra.items() if value is not None}
    if part := changes.pop("part", None):
        first, *others = group.slices or ()
        changes["slices"] = (replace(first, **part), *others)
    return replace(group, extra_metadata=extra, **changes)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"extra": {"clustering.group.sequence.no": "x"}}, "sequence number 'x' is no number"),
        ({"extra": {"clustering.group.sequence.no": "9" * 5000}}, "is no number"),
        ({"extra": {"clustering.group.sequence.no": "-1"}}, "is no number"),
        ({"extra": {"clustering.group.sequence.no": None}}, "lacks clustering.group.sequence.no"),
        ({"extra": {"clustering.group.sequence.no": "4"}}, "planned on different rings"),
        ({"extra": {CHILDREN_KEY: None}}, "lacks clustering.group.child.node"),
        ({"extra": {CHILDREN_KEY: "[{"}}, "its children are not nodes"),
        ({"extra": {CHILDREN_KEY: '[{"value":9,"fileIdPrefix":"../x","tag":"REPLACE"}]'}}, "begin"),
        (
            {"extra": {CHILDREN_KEY: '[{"value":9,"fileIdPrefix":"a","tag":"REPLACE"}]'}},
            "a-0 twice",
        ),
        ({"extra": {CHILDREN_KEY: '[{"value":9,"fileIdPrefix":null,"tag":"REPLACE"}]'}}, "no file"),
        ({"extra": {"clustering.group.partition": "day=2"}}, "reaches outside"),
        ({"extra": {"clustering.group.partition": "../x"}}, "not a path inside a table"),
        ({"part": {"partition_path": "day=2"}}, "reaches outside"),
        ({"part": {"file_id": None}}, "reaches outside"),
        ({"part": {"file_id": "n9-0", "delta_file_paths": ()}}, "the file group n9-0 twice"),
        ({"part": {"delta_file_paths": (f"{BASE}/day=2/{log('n20-0')}",)}}, "reaches outside"),
        ({"part": {"delta_file_paths": (f"{BASE}/day=1/../{log('n20-0')}",)}}, "reaches outside"),
        ({"part": {"delta_file_paths": (f"{BASE}/day=1/{log('n9-0')}",)}}, "no file of file group"),
        ({"part": {"delta_file_paths": (f"{BASE}/day=1/{base('n20-0')}",)}}, "no file of"),
        ({"part": {"data_file_path": f"{BASE}/day=1/{log('n20-0')}"}}, "no file of file group"),
        ({"part": {"data_file_path": f"{BASE}/day=1/hoodie.properties"}}, "no file of file group"),
        ({"slices": ()}, "names no file group"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused_by_file_and_reason(
    change: dict[str, Any], why: str
) -> None:
    data = stored(other_group(**change))
    with pytest.raises(CorruptTableError, match=why):
        decode_resize_plan(data, ".hoodie/timeline/x.clustering.requested")


@settings(deadline=None)
@given(st.data())
def test_a_damaged_file_is_a_plan_or_an_error_that_names_it(data: st.DataObject) -> None:
    whole = bytearray(encode_resize_plan(ResizePlan((a_split(), a_merge())), BASE, SYNC))
    body = len(whole) - 900  # behind the schema, which takes most of the file
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(body, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(body, len(whole)))
    error = refusal(bytes(whole[:cut]))
    assert error is None or error.path == "the file"


def refusal(data: bytes) -> CorruptTableError | None:
    try:
        decode_resize_plan(data, "the file")
    except CorruptTableError as error:
        return error
    return None


def test_children_that_are_too_many_are_refused_before_they_are_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreached(*_: object) -> None:
        raise AssertionError("it was parsed")

    data = stored(other_group(extra={CHILDREN_KEY: "[" * (8 * 1024 * 1024 + 1)}))
    assert len(data) < 16 * 1024 * 1024
    monkeypatch.setattr(resize_plan, "decode_nodes", lambda text, path: _small(text, unreached))
    with pytest.raises(CorruptTableError, match=r"day=1.*take 8388609 characters"):
        decode_resize_plan(data, "x")


def _small(text: str, otherwise: Callable[[], None]) -> tuple[RingNode, ...]:
    if len(text) > 10_000:
        otherwise()
    return a_split().children


def test_a_slice_without_files_is_a_bucket_that_was_never_written() -> None:
    absent = ClusteringSlice("", (), "n20-0", "day=1")
    found = decode_resize_plan(stored(other_group(slices=(absent,))), "x")
    assert found is not None
    assert found.groups[1].slices == (InputSlice("n20-0", None),)
    assert found.groups[1].paths == ()
