"""Where a lock is: what a caller may say, what a table keeps, and what neither can be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.lock.lock_address import (
    DynamodbAddress,
    LockAddress,
    ZookeeperAddress,
    address_properties,
    parse_lock_address,
    recorded_lock_address,
    require_fitting_address,
)
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.properties import TableProperties

ZOOKEEPER, DYNAMODB = LockKind.ZOOKEEPER, LockKind.DYNAMODB
URL = {"url": "zk1:2181,zk2:2182"}
PLACE = {**URL, "base_path": "/locks"}
ITEM = {"table": "hudi-locks", "region": "eu-west-1"}


def kept(kind: LockKind, **values: str) -> LockAddress | None:
    prefix = f"hoodie.write.lock.{kind.value}."
    named = {f"{prefix}{name}": text for name, text in values.items()}
    return recorded_lock_address(kind, TableProperties({"hoodie.table.name": "orders", **named}))


def test_lock_is_named_after_the_table_unless_told_otherwise() -> None:
    there = parse_lock_address(ZOOKEEPER, PLACE, "orders")
    assert there == ZookeeperAddress(url=URL["url"], base_path="/locks", lock_key="orders")
    assert isinstance(there, ZookeeperAddress)
    assert there.path == "/locks/orders"
    assert parse_lock_address(DYNAMODB, ITEM, "orders") == DynamodbAddress(
        table="hudi-locks", partition_key="orders", region="eu-west-1"
    )


@pytest.mark.parametrize(
    ("kind", "options", "written"),
    [
        (
            ZOOKEEPER,
            {**PLACE, "lock_key": "a/b", "session_timeout_ms": 4_000},
            {
                "hoodie.write.lock.zookeeper.url": "zk1:2181,zk2:2182",
                "hoodie.write.lock.zookeeper.base_path": "/locks",
                "hoodie.write.lock.zookeeper.lock_key": "a/b",
                "hoodie.write.lock.zookeeper.session_timeout_ms": "4000",
            },
        ),
        (
            DYNAMODB,
            {**ITEM, "endpoint_url": "http://127.0.0.1:8000"},
            {
                "hoodie.write.lock.dynamodb.table": "hudi-locks",
                "hoodie.write.lock.dynamodb.partition_key": "orders",
                "hoodie.write.lock.dynamodb.region": "eu-west-1",
                "hoodie.write.lock.dynamodb.endpoint_url": "http://127.0.0.1:8000",
            },
        ),
    ],
)
def test_table_keeps_the_address_under_hudis_names(
    kind: LockKind, options: dict[str, Any], written: dict[str, str]
) -> None:
    address = parse_lock_address(kind, options, "orders")
    assert address_properties(address) == written
    assert parse_lock_address(kind, written, "other") == address  # the whole names are fine, too
    assert recorded_lock_address(kind, TableProperties(written)) == address


def test_timeouts_are_each_writers_own() -> None:
    quick = {**PLACE, "session_timeout_ms": 4_000, "connection_timeout_ms": "2000"}
    there = parse_lock_address(ZOOKEEPER, quick, "t")
    assert there == parse_lock_address(ZOOKEEPER, PLACE, "t")
    assert isinstance(there, ZookeeperAddress)
    assert (there.session_timeout_ms, there.connection_timeout_ms) == (4_000, 2_000)


@pytest.mark.parametrize("kind", [kind for kind in LockKind if kind not in (ZOOKEEPER, DYNAMODB)])
def test_other_locks_have_no_address(kind: LockKind) -> None:
    assert parse_lock_address(kind, None, "t") is None
    assert parse_lock_address(kind, {}, "t") is None
    assert kept(kind, url="zk:2181") is None
    with pytest.raises(InvalidRequestError, match="takes no lock_options"):
        parse_lock_address(kind, URL, "t")


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        (ZOOKEEPER, {}, "url is missing"),
        (ZOOKEEPER, URL, "base_path is missing"),
        (ZOOKEEPER, {**PLACE, "url": "me:secret@zk:2181"}, "url cannot be"),
        (ZOOKEEPER, {**PLACE, "url": "zk:2181?sig=abc"}, "url cannot be"),
        (ZOOKEEPER, {**PLACE, "url": "zk:99999"}, "65535"),
        (ZOOKEEPER, {**PLACE, "url": "zk:0"}, "65535"),
        (ZOOKEEPER, {**PLACE, "url": "zk:2181,"}, "url cannot be"),
        (ZOOKEEPER, {**PLACE, "url": "zk:2181/"}, "url cannot be"),
        (ZOOKEEPER, {**PLACE, "url": "a" * 1_001}, "url cannot be"),
        (ZOOKEEPER, {**PLACE, "url": ["zk"]}, "neither a text nor a number"),
        (ZOOKEEPER, {**PLACE, "url": "zk", "port": 2281}, "Hudi reads only url"),
        (ZOOKEEPER, {**PLACE, "url": "zk:2281", "port": 2181}, "Hudi reads only url"),
        (ZOOKEEPER, {**PLACE, "port": 2181}, "Hudi reads only url"),
        (ZOOKEEPER, {**PLACE, "base_path": "locks"}, "such as '/locks'"),
        (ZOOKEEPER, {**PLACE, "base_path": "/"}, "without empty parts"),
        (ZOOKEEPER, {**PLACE, "base_path": "/locks/"}, "without empty parts"),
        (ZOOKEEPER, {**PLACE, "base_path": "/a//b"}, "without empty parts"),
        (ZOOKEEPER, {**PLACE, "base_path": "/a/../b"}, "or dots"),
        (ZOOKEEPER, {**PLACE, "base_path": "/a\x00b"}, "such as '/locks'"),
        (ZOOKEEPER, {**PLACE, "lock_key": "/orders"}, "such as 'orders'"),
        (ZOOKEEPER, {**PLACE, "lock_key": ".."}, "or dots"),
        (ZOOKEEPER, {**PLACE, "session_timeout_ms": 0}, "1000 to 600000"),
        (ZOOKEEPER, {**PLACE, "session_timeout_ms": "soon"}, "1000 to 600000"),
        (ZOOKEEPER, {**PLACE, "session_timeout_ms": "٣٠٠٠"}, "1000 to 600000"),
        (ZOOKEEPER, {**PLACE, "session_timeout_ms": True}, "neither a text nor a number"),
        (ZOOKEEPER, {**PLACE, "password": "hunter2"}, "credentials do not belong"),
        (ZOOKEEPER, {**PLACE, "table": "t"}, "says nothing about where the lock is"),
        (DYNAMODB, {"region": "eu-west-1"}, "table is missing"),
        (DYNAMODB, {"table": "locks"}, "region is missing"),
        (DYNAMODB, {**ITEM, "table": "a b"}, "table cannot be 'a b'"),
        (DYNAMODB, {**ITEM, "region": "EU"}, "region cannot be 'EU'"),
        (DYNAMODB, {**ITEM, "partition_key": "k" * 1_001}, "1 to 1000 characters"),
        (DYNAMODB, {**ITEM, "endpoint_url": "host:8000"}, "such as 'https://host:8000'"),
        (DYNAMODB, {**ITEM, "endpoint_url": "http://me:pw@host"}, "endpoint_url cannot be"),
        (DYNAMODB, {**ITEM, "endpoint_url": "http://host/?X-Amz-Signature=1"}, "cannot be"),
        (DYNAMODB, {**ITEM, "secret_access_key": "hunter2"}, "credentials do not belong"),
        (DYNAMODB, [("table", "locks")], "not a mapping"),
    ],
)
def test_what_is_no_address_is_refused_with_the_reason(
    kind: LockKind, options: Any, reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason) as caught:
        parse_lock_address(kind, options, "t")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["zk", "zk:2181", "[::1]:2181", "10.0.0.1:2181,zk-2/hudi/prod"])
def test_hosts_are_as_zookeepers_own_clients_take_them(url: str) -> None:
    there = parse_lock_address(ZOOKEEPER, {**PLACE, "url": url}, "t")
    assert isinstance(there, ZookeeperAddress)
    assert there.url == url


@pytest.mark.parametrize("options", [{"url": "zk", "port": 2181}, {"url": "a:9,b:9", "port": "9"}])
def test_port_is_fine_where_it_says_the_same_as_the_url(options: dict[str, object]) -> None:
    there = parse_lock_address(ZOOKEEPER, {**PLACE, **options}, "t")
    assert isinstance(there, ZookeeperAddress)
    assert there.url == options["url"]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (ZOOKEEPER, {}),
        (ZOOKEEPER, {"url": "zk:2181"}),
        (ZOOKEEPER, {"base_path": "/locks"}),
        (DYNAMODB, {"table": "locks"}),
    ],
)
def test_table_that_keeps_half_an_address_does_not_tell_it(
    kind: LockKind, values: dict[str, str]
) -> None:
    assert kept(kind, **values) is None


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (ZOOKEEPER, {**PLACE, "base_path": "locks"}),
        (ZOOKEEPER, {**PLACE, "url": "me:pw@zk"}),
        (DYNAMODB, {**ITEM, "endpoint_url": "nowhere"}),
    ],
)
def test_garbage_that_a_table_keeps_is_named_with_its_key(
    kind: LockKind, values: dict[str, str]
) -> None:
    with pytest.raises(CorruptTableError, match=rf"hoodie\.write\.lock\.{kind.value}\."):
        kept(kind, **values)


@pytest.mark.parametrize("kind", [ZOOKEEPER, DYNAMODB])
def test_lock_of_a_service_needs_an_address_of_its_own_kind(kind: LockKind) -> None:
    there = parse_lock_address(ZOOKEEPER, PLACE, "t")
    item = parse_lock_address(DYNAMODB, ITEM, "t")
    fitting, other = (there, item) if kind is ZOOKEEPER else (item, there)
    require_fitting_address(kind, fitting)
    for wrong in (None, other):
        with pytest.raises(InvalidRequestError, match=r"no fitting address.*lock_options=\{"):
            require_fitting_address(kind, wrong)
    with pytest.raises(InvalidRequestError, match="Leave lock_options out"):
        require_fitting_address(LockKind.FILE, fitting)


@settings(deadline=None, max_examples=100)
@given(
    hosts=st.lists(
        st.from_regex(r"[a-z0-9]{1,20}(:[1-9][0-9]{3})?", fullmatch=True), min_size=1
    ).map(lambda hosts: hosts[:9]),
    path=st.lists(st.from_regex(r"[A-Za-z0-9]{1,8}", fullmatch=True), min_size=1),
    key=st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True),
)
def test_every_address_is_read_back_as_it_was_given(
    hosts: list[str], path: list[str], key: str
) -> None:
    asked = {"url": ",".join(hosts), "base_path": f"/{'/'.join(path)}"}
    there = parse_lock_address(ZOOKEEPER, {**asked, "lock_key": key}, "t")
    assert recorded_lock_address(ZOOKEEPER, TableProperties(address_properties(there))) == there
