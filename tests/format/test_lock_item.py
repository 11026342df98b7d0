"""A lock's item in DynamoDB, as Amazon's client for Java writes and reads it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptTableError
from pyhudi.format.lock.lock_item import LockItem, decode_lock_item, encode_lock_item

#: What the Java client left in a table, with attributes of its user beside.
JAVA: dict[str, dict[str, Any]] = {
    "key": {"S": "orders"},
    "ownerName": {"S": "host1e8c9a1e-2b1c-4f7e-9d8e-0a1b2c3d4e5f"},
    "leaseDuration": {"S": "60000"},
    "recordVersionNumber": {"S": "0f5a0a8e-6a26-4b5c-9f0b-2c7d1e9a8b7c"},
    "data": {"B": b"bytes of a user"},
}


def test_java_clients_item_is_understood() -> None:
    item = decode_lock_item(JAVA)
    assert (item.lease_ms, item.is_released) == (60_000, False)
    assert item.owner == JAVA["ownerName"]["S"]
    assert decode_lock_item({**JAVA, "isReleased": {"S": "1"}}).is_released


def test_all_attributes_are_texts_for_the_java_client_reads_nothing_else() -> None:
    item = LockItem("us", 60_000, "v1", is_released=True)
    assert encode_lock_item("orders", item) == {
        "key": {"S": "orders"},
        "ownerName": {"S": "us"},
        "leaseDuration": {"S": "60000"},
        "recordVersionNumber": {"S": "v1"},
        "isReleased": {"S": "1"},
    }


@settings(deadline=None, max_examples=100)
@given(st.builds(LockItem, st.text(), st.integers(0, 10**18 - 1), st.text(), st.booleans()))
def test_every_item_is_read_back_as_it_was_written(item: LockItem) -> None:
    assert decode_lock_item(encode_lock_item("a key", item)) == item


@pytest.mark.parametrize(
    "changes",
    [
        {"ownerName": None},
        {"ownerName": {"N": "1"}},
        {"ownerName": "not typed"},
        {"leaseDuration": None},
        {"leaseDuration": {"N": "60000"}},
        {"leaseDuration": {"S": "-1"}},
        {"leaseDuration": {"S": "soon"}},
        {"leaseDuration": {"S": "٦٠"}},
        {"leaseDuration": {"S": "9" * 19}},
        {"recordVersionNumber": None},
        {"recordVersionNumber": {"S": "v" * 10_001}},
    ],
)
def test_what_is_no_lock_is_reported_as_such(changes: dict[str, Any]) -> None:
    changed = {name: value for name, value in {**JAVA, **changes}.items() if value is not None}
    with pytest.raises(CorruptTableError, match=f"is not a lock: its {next(iter(changes))}"):
        decode_lock_item(changed)
