"""A registered consumer as bytes: exactly one, of the name that its path says, or an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.paths import table_path
from pyhudi.format.table.consumer_file import (
    CONSUMER_BYTES_MAX,
    HOURS_MAX,
    Consumer,
    checked_consumer_name,
    checked_hours,
    checked_since,
    consumer_path,
    decode_consumer,
    encode_consumer,
    is_consumer_path,
)

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,99}", fullmatch=True)
TIMES = st.integers(0, 2**53)
CONSUMERS = st.builds(
    Consumer,
    NAMES,
    st.from_regex(r"[0-9]{17}", fullmatch=True),
    TIMES,
    TIMES,
    st.none() | st.integers(1, HOURS_MAX),
)


@settings(deadline=None, max_examples=100)
@given(CONSUMERS)
def test_a_consumer_is_read_back_as_it_was_written(consumer: Consumer) -> None:
    path = table_path(consumer_path(consumer.name))
    data = encode_consumer(consumer)
    assert decode_consumer(data, path) == consumer
    assert len(data) <= CONSUMER_BYTES_MAX
    assert is_consumer_path(path)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".hidden", "-x", "a/b", "a\\b", "a b", "a\n", "é", "a" * 101, 7, None, "a%2F"],
)
def test_a_name_that_is_no_file_name_everywhere_is_refused(name: Any) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be the name of a consumer"):
        checked_consumer_name(name)
    with pytest.raises(InvalidRequestError):
        consumer_path(name)


@pytest.mark.parametrize("hours", [0, -1, 1.5, True, "24", HOURS_MAX + 1])
def test_hours_are_a_whole_number_or_none(hours: Any) -> None:
    with pytest.raises(InvalidRequestError, match="whole number"):
        checked_hours(hours)
    assert checked_hours(None) is None
    assert checked_hours(24) == 24


@pytest.mark.parametrize("since", ["", "20260101", "2026-01-01", None, 20260101000000000, "x" * 17])
def test_a_time_is_seventeen_digits(since: Any) -> None:
    with pytest.raises(InvalidRequestError, match="17 digits"):
        checked_since(since)


GOOD = json.loads(encode_consumer(Consumer("c", "20260101000000000", 1, 2, 24)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"[" * 3_000,
        b" " * (CONSUMER_BYTES_MAX + 1),
        *(
            json.dumps({**GOOD, key: value}).encode()
            for key, value in [
                ("v", 2),
                ("name", "d"),
                ("name", "../c"),
                ("since", "2026"),
                ("since", None),
                ("registered_ms", -1),
                ("registered_ms", True),
                ("updated_ms", 1.5),
                ("updated_ms", 2**60),
                ("expires_after_hours", 0),
                ("expires_after_hours", "24"),
                ("expires_after_hours", False),
            ]
        ),
        *(
            json.dumps({k: v for k, v in GOOD.items() if k != key}).encode()
            for key in ("v", "name", "since", "registered_ms", "updated_ms", "expires_after_hours")
        ),
    ],
)
def test_anything_else_is_an_error_and_no_consumer(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match="consumer cannot be read"):
        decode_consumer(data, consumer_path("c"))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".hoodie/.pyhudi/consumers/c.json", True),
        (".hoodie/.pyhudi/consumers/.c.json.crc", False),
        (".hoodie/.pyhudi/consumers/.c.json", False),
        (".hoodie/.pyhudi/consumers/d/c.json", False),
        (".hoodie/.pyhudi/consumers/notes.txt", False),
    ],
)
def test_other_files_beside_consumers_are_passed_over(path: str, *, expected: bool) -> None:
    assert is_consumer_path(path) is expected


def test_silence_is_forgiven_up_to_the_hours_that_were_given() -> None:
    consumer = Consumer("c", "20260101000000000", 0, 0, 2)
    assert not consumer.is_expired(2 * 3_600_000)
    assert consumer.is_expired(2 * 3_600_000 + 1)
    assert not Consumer("c", "20260101000000000", 0, 0, None).is_expired(10**15)
