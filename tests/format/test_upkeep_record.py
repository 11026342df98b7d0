"""The record of a table's last maintenance, and how long what ran in vain rests."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.format.table.upkeep_record import (
    RECORD_BYTES_MAX,
    REST_FIRST_MS,
    REST_MS,
    ServiceRun,
    UpkeepRecord,
    decode_upkeep_record,
    encode_upkeep_record,
    next_run,
)

NUMBERS = st.integers(0, 2**53 - 1)
RUNS = st.builds(ServiceRun, NUMBERS, st.text(), st.text(), NUMBERS, NUMBERS, st.text(max_size=50))
RECORDS = st.builds(UpkeepRecord, st.text(), st.dictionaries(st.text(max_size=9), RUNS, max_size=4))


@given(RECORDS)
def test_a_record_is_read_back(record: UpkeepRecord) -> None:
    assert decode_upkeep_record(encode_upkeep_record(record)) == record


@given(st.binary() | st.text().map(str.encode))
def test_any_other_bytes_are_no_record(data: bytes) -> None:
    assert decode_upkeep_record(data) == UpkeepRecord()


RUN = {"ran_ms": 1, "did": "x"}
DAMAGED = [
    {"policy": 1, "services": {}},
    {"policy": "", "services": []},
    {"policy": "", "services": {"clean": 7}},
    {"policy": "", "services": {"clean": {**RUN, "ran_ms": True}}},
    {"policy": "", "services": {"clean": {**RUN, "ran_ms": -1}}},
    {"policy": "", "services": {"clean": {**RUN, "ran_ms": 10**30}}},
    {"policy": "", "services": {"clean": {**RUN, "did": None}}},
]


@pytest.mark.parametrize("values", DAMAGED, ids=range(len(DAMAGED)))
def test_a_run_that_cannot_be_right_counts_as_none(values: object) -> None:
    assert decode_upkeep_record(json.dumps(values).encode()) == UpkeepRecord()


def test_a_later_release_may_record_more() -> None:
    values = {"policy": "p", "services": {"resize": {**RUN, "more": [1]}}, "more": 1}
    found = decode_upkeep_record(json.dumps(values).encode())
    assert found == UpkeepRecord("p", {"resize": ServiceRun(1, "x")})


def test_a_record_is_never_too_large_to_be_read() -> None:
    long = ServiceRun(did="\u4e2d" * 10_000, error="\u4e2d" * 10_000)
    assert len(encode_upkeep_record(UpkeepRecord("", {"a": long}))) < RECORD_BYTES_MAX
    assert decode_upkeep_record(b" " * (RECORD_BYTES_MAX + 1)) == UpkeepRecord()


def test_each_run_in_vain_makes_the_rest_twice_as_long_up_to_an_hour() -> None:
    run, rests = None, []
    for _ in range(9):
        run = next_run(run, 1_000, "", "it rains", "w", is_in_vain=True)
        rests.append(run.rest_ms(1_000))
    assert rests[:3] == [REST_FIRST_MS, 2 * REST_FIRST_MS, 4 * REST_FIRST_MS]
    assert rests[-1] == REST_MS
    assert next_run(run, 2_000, "done", "", "w", is_in_vain=False).rest_ms(2_000) == 0


def test_a_rest_that_a_wrong_clock_recorded_is_over() -> None:
    assert ServiceRun(rests_until_ms=10**15).rest_ms(1_000) == 0
