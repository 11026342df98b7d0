"""The bytes of the storage lock, as Hudi 1.2.0 writes and reads them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptTableError
from pyhudi.format.lock.lease import LEASE_BYTES_MAX, LEASE_PATH, Lease, decode_lease, encode_lease

UUID = "d0f1c3e8-4a67-4a7e-9d0c-0f8f6f0e2b11"


def test_bytes_are_those_of_hudi() -> None:
    assert (
        encode_lease(Lease(expired=True, valid_until_ms=1_700_000_000_123, owner=UUID))
        == b'{"expired":true,"validUntil":1700000000123,"owner":"' + UUID.encode() + b'"}'
    )


@settings(deadline=None, max_examples=100)
@given(st.booleans(), st.integers(-(2**63) + 1, 2**63 - 1), st.text(max_size=50))
def test_lease_round_trips(expired: bool, valid_until_ms: int, owner: str) -> None:
    lease = Lease(expired, valid_until_ms, owner)
    assert decode_lease(encode_lease(lease)) == lease


@pytest.mark.parametrize(
    "text",
    [
        '{"expired":false,"validUntil":5,"owner":"a","host":"b","nested":{"owner":[1]}}',
        '{"owner":"a","validUntil":5,"expired":false}',
        ' {\n"expired" : false, "validUntil" : 5, "owner" : "a" } ',
    ],
    ids=["unknown fields", "another order", "blanks"],
)
def test_foreign_forms_are_read(text: str) -> None:
    assert decode_lease(text.encode()) == Lease(False, 5, "a")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0\0",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'"owner"',
        b"{}",
        b'{"expired":false,"validUntil":5}',
        b'{"expired":false,"owner":"a"}',
        b'{"validUntil":5,"owner":"a"}',
        b'{"expired":null,"validUntil":5,"owner":"a"}',
        b'{"expired":0,"validUntil":5,"owner":"a"}',
        b'{"expired":false,"validUntil":"5","owner":"a"}',
        b'{"expired":false,"validUntil":5.5,"owner":"a"}',
        b'{"expired":false,"validUntil":true,"owner":"a"}',
        b'{"expired":false,"validUntil":9223372036854775808,"owner":"a"}',
        b'{"expired":false,"validUntil":' + b"9" * 5_000 + b',"owner":"a"}',
        b'{"expired":false,"validUntil":NaN,"owner":"a"}',
        b'{"expired":false,"validUntil":5,"owner":7}',
        b'{"expired":false,"validUntil":5,"owner":"a"',
        b"[" * 60_000,
        json.dumps({"expired": False, "validUntil": 5, "owner": "a" * LEASE_BYTES_MAX}).encode(),
    ],
)
def test_garbage_is_refused_by_the_name_of_the_file_to_delete(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match=r"no writer is at work, then delete") as caught:
        decode_lease(data)
    assert caught.value.path == LEASE_PATH
    assert LEASE_PATH in caught.value.next_step
