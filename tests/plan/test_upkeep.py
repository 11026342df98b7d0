"""The maintenance policy as the table records it."""

from __future__ import annotations

import json
import warnings
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyhudi
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.properties import decode_properties, encode_properties
from pyhudi.plan.cleaning import CleanBy
from pyhudi.plan.compaction.policy import CompactionOrder, CompactionTrigger
from pyhudi.plan.upkeep import (
    NO_UPKEEP,
    SERVICES,
    UPKEEP,
    UPKEEP_CHARACTERS_MAX,
    RecordedUpkeep,
    decode_upkeep,
    differing_services,
    encode_upkeep,
    first_upkeep,
    upkeep_mark,
    with_upkeep,
)

NUMBERS = st.integers(1, 2**40)
COMPACTIONS = st.builds(
    pyhudi.CompactionPolicy,
    order=st.sampled_from(CompactionOrder),
    trigger=st.sampled_from(CompactionTrigger),
    min_delta_commits=NUMBERS,
    min_log_bytes=st.integers(0, 2**40),
    io_bytes_max=NUMBERS,
    input_bytes_max=st.none() | st.integers(0, 2**40),
    partitions=st.none() | st.lists(st.text(max_size=8), max_size=4),
    trigger_delta_commits=NUMBERS,
    trigger_seconds=st.integers(0, 2**40),
)
RESIZES = st.builds(
    pyhudi.ResizePolicy,
    target_bytes=st.integers(2**20, 2**40),
    split_above=st.floats(1, 100),
    merge_below=st.floats(0, 1),
    split=st.sampled_from(["middle", "even"]),
    bytes_max=NUMBERS,
    rest_seconds=st.integers(0, 2**40) | st.floats(0, 1e9),
    input_bytes_max=st.none() | st.integers(0, 2**40),
)
CLEANS = st.builds(pyhudi.CleanPolicy, by=st.sampled_from(CleanBy), keep=st.integers(1, 10**9))
ARCHIVES = st.builds(
    lambda low, more, **others: pyhudi.ArchivePolicy(keep_min=low, keep_max=low + more, **others),
    NUMBERS,
    NUMBERS,
    grace_ms=st.integers(0, 2**40),
    merge_files=st.integers(2, 100),
)
POLICIES = st.builds(
    pyhudi.Upkeep,
    compaction=st.none() | COMPACTIONS,
    resize=st.none() | RESIZES,
    clean=st.none() | CLEANS,
    archive=st.none() | ARCHIVES,
    inline_bytes=st.integers(0, 2**50),
)


@given(POLICIES)
def test_a_policy_is_read_back_as_it_was_recorded(upkeep: pyhudi.Upkeep) -> None:
    text = encode_upkeep(upkeep)
    stored = decode_properties(encode_properties({UPKEEP: text}))[UPKEEP]
    assert decode_upkeep(stored) == RecordedUpkeep(upkeep)


def test_every_setting_is_recorded_because_later_releases_may_have_other_defaults() -> None:
    recorded = json.loads(encode_upkeep(pyhudi.Upkeep()))
    for name, kind in SERVICES.items():
        assert recorded[name].keys() == kind.__dataclass_fields__.keys()


@given(
    st.text()
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda each: (
            st.lists(each)
            | st.dictionaries(
                st.sampled_from([*SERVICES, "inline_bytes", "by", "keep", "trigger", "split"]), each
            )
        ),
    ).map(json.dumps)
)
def test_any_other_text_is_a_policy_or_a_corrupt_table(text: str) -> None:
    found = RecordedUpkeep()
    with suppress(pyhudi.CorruptTableError):
        found = decode_upkeep(text)
    assert found.policy is None or isinstance(found.policy, pyhudi.Upkeep)


DAMAGED = ["", "{", "[]", "1", "null", "None", '{"clean": ', "[" * 30_000, "{" + " " * 70_000 + "}"]


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_what_is_no_object_is_a_corrupt_table(text: str) -> None:
    with pytest.raises(pyhudi.CorruptTableError, match=r"table\.alter\.upkeep"):
        decode_upkeep(text)


def changed(name: str, **settings: Any) -> str:
    values = json.loads(encode_upkeep(pyhudi.Upkeep()))
    values[name] = {**values[name], **settings}
    return json.dumps(values)


UNKNOWN: list[tuple[str, str, str]] = [
    (changed("compaction", trigger="at_night"), "compaction", "at_night"),
    (changed("compaction", spread=3), "compaction", "no setting 'spread'"),
    (changed("resize", split="by_chance"), "resize", "by_chance"),
    (changed("resize", target_bytes=1), "resize", "target_bytes=1"),
    (changed("resize", rest_seconds=10**400), "resize", "too large"),
    (changed("resize", writes="twice"), "resize", "twice"),
    (changed("clean", by="KEEP_ALL"), "clean", "KEEP_ALL"),
    (changed("clean", keep=True), "clean", "keep=True"),
    (changed("archive", keep_min=0), "archive", "keep_min=0"),
    (changed("archive", keep_min="2"), "archive", "keep_min='2'"),
    ('{"clean": 7}', "clean", "7"),
]


@pytest.mark.parametrize(("text", "service", "why"), UNKNOWN)
def test_a_service_of_which_a_setting_is_unknown_is_left_to_later_releases(
    text: str, service: str, why: str
) -> None:
    found = decode_upkeep(text)
    [(name, reason)] = found.unknown
    assert (name, getattr(found.policy, service)) == (service, None)
    assert why in reason
    others = [n for n in SERVICES if n != service and n in json.loads(text)]
    assert all(getattr(found.policy, n) == getattr(pyhudi.Upkeep(), n) for n in others)


def test_a_setting_that_an_older_release_did_not_record_has_its_default() -> None:
    values = json.loads(encode_upkeep(pyhudi.Upkeep()))
    del values["compaction"]["input_bytes_max"], values["inline_bytes"]
    assert decode_upkeep(json.dumps(values)).policy == pyhudi.Upkeep()


def test_an_unknown_bound_is_none_at_all() -> None:
    found = decode_upkeep('{"inline_bytes": "much"}')
    assert found.policy is not None
    assert found.policy.inline_bytes == 0
    assert [name for name, _ in found.unknown] == ["inline_bytes"]


def test_a_change_keeps_the_services_of_later_releases_and_none_ends_all() -> None:
    before = {UPKEEP: '{"cluster": {"a": [1]}, "clean": {"by": "x"}}', "other": "x"}
    after = with_upkeep(pyhudi.Upkeep(compaction=None), before)
    assert json.loads(after[UPKEEP])["cluster"] == {"a": [1]}
    assert decode_upkeep(after[UPKEEP]).policy == pyhudi.Upkeep(compaction=None)
    assert after["other"] == "x"
    assert with_upkeep(None, after) == {UPKEEP: NO_UPKEEP, "other": "x"}
    assert decode_upkeep(NO_UPKEEP) == RecordedUpkeep()
    assert decode_upkeep(with_upkeep(pyhudi.Upkeep(), {UPKEEP: "{damaged"})[UPKEEP]).policy


def test_a_policy_that_is_too_long_is_refused() -> None:
    partitions = tuple(f"day={n:09d}" for n in range(UPKEEP_CHARACTERS_MAX // 10))
    policy = pyhudi.CompactionPolicy(partitions=partitions)
    with pytest.raises(pyhudi.InvalidRequestError, match="Name fewer partitions"):
        encode_upkeep(pyhudi.Upkeep(compaction=policy))


def test_a_policy_of_a_release_without_resizes_leaves_them_to_others() -> None:
    values = json.loads(encode_upkeep(pyhudi.Upkeep()))
    del values["resize"]
    assert decode_upkeep(json.dumps(values)) == RecordedUpkeep(pyhudi.Upkeep(resize=None))


def test_a_split_policy_of_a_program_is_followed_there_and_not_recorded() -> None:
    class Own:
        def points(self, bucket: pyhudi.SplitBucket) -> list[int]:
            return []

    own = pyhudi.Upkeep(resize=pyhudi.ResizePolicy(split=Own()))
    with pytest.raises(pyhudi.InvalidRequestError, match="its split policy is code"):
        encode_upkeep(own)
    assert upkeep_mark(own) != upkeep_mark(pyhudi.Upkeep())


def test_small_buckets_are_warned_of_when_they_are_chosen_and_not_at_each_look() -> None:
    with pytest.warns(UserWarning, match="smaller than 1 MiB"):
        small = pyhudi.Upkeep(resize=pyhudi.ResizePolicy(target_bytes=4096))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = decode_upkeep(encode_upkeep(small)).policy
        assert found == small
        assert found is not None
        assert found.resize is not None
        assert found.resize.within(10).input_bytes_max == 10
        assert found.resize.within(10).within(20).input_bytes_max == 10


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "64MB", None])
def test_a_bound_that_is_no_number_of_bytes_is_refused(wrong: Any) -> None:
    with pytest.raises(pyhudi.InvalidRequestError, match="inline_bytes"):
        pyhudi.Upkeep(inline_bytes=wrong)


def test_beside_another_engine_a_new_table_has_no_policy_unless_it_is_chosen() -> None:
    assert decode_upkeep(first_upkeep(None, LockKind.NONE)).policy == pyhudi.Upkeep()
    assert first_upkeep(None, LockKind.ZOOKEEPER) == NO_UPKEEP
    assert first_upkeep(False, LockKind.NONE) == NO_UPKEEP
    chosen = pyhudi.Upkeep(compaction=None)
    assert decode_upkeep(first_upkeep(chosen, LockKind.ZOOKEEPER)).policy == chosen


def test_to_leave_a_service_to_another_process_is_no_other_policy() -> None:
    usual = pyhudi.Upkeep()
    assert differing_services(usual, usual) == ()
    assert differing_services(pyhudi.Upkeep(clean=None, archive=None), usual) == ()
    assert differing_services(replace(usual, inline_bytes=1), usual) == ()
    by_commits = replace(usual, clean=pyhudi.CleanPolicy.commits(10))
    assert differing_services(by_commits, usual) == ("clean",)
