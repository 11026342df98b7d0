"""Hudi's DynamoDB lock: leases that are watched, renewals, lost replies, thieves and garbage.

The service is moto's, behind boto3; time is played. A Java writer is played by the items that
Amazon's lock client writes.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError

from lock_racer import Racer
from locking_world import START_MS, Universe
from opened_tables import table_on
from pyhudi.errors import CorruptTableError, InvalidRequestError, UnavailableError
from pyhudi.format.lock.lock_address import DynamodbAddress
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.plan.table_definition import TableDefinition
from pyhudi.session.create import create_table_files
from pyhudi.settings import WriteSettings
from pyhudi.storage.locks.dynamodb_items import DynamodbItems
from pyhudi.storage.locks.dynamodb_lock import (
    LEASE_MS,
    PATIENCE_MAX_MS,
    RENEWALS_PER_LEASE,
    DynamodbLock,
)
from pyhudi.storage.locks.lock import MARGIN_MS, POLL_MS, HeldLock
from pyhudi.storage.locks.open_lock import is_same_lock

SAFE_MS = LEASE_MS - MARGIN_MS
KEY = "orders"
JAVA = "host18f14e45f-ceea-467f-a8d3-1b6f4c2d9e10"
NOBODY = {"aws_access_key_id": "nobody", "aws_secret_access_key": "nothing"}
VERBS = ["put_item", "update_item", "delete_item", "get_item"]


class Service:
    """DynamoDB with one lock table, and a client that may not hear of what it did."""

    def __init__(self, endpoint: str, universe: Universe) -> None:
        self.universe = universe
        self.address = DynamodbAddress(
            table=f"locks-{uuid.uuid4().hex}",
            partition_key=KEY,
            region="us-east-1",
            endpoint_url=endpoint,
        )
        self.plain: Any = boto3.client(
            "dynamodb",
            region_name="us-east-1",
            endpoint_url=endpoint,
            config=Config(retries={"total_max_attempts": 1}),
            **NOBODY,
        )
        self.exceptions = self.plain.exceptions
        self.fails: Counter[str] = Counter()  # how many requests are not made, by verb
        self.loses: Counter[str] = Counter()  # ... are made, without a reply
        self.make_table()

    def make_table(self, key: str = "key") -> None:
        self.plain.create_table(
            TableName=self.address.table,
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )

    def __getattr__(self, verb: str) -> Any:
        def sent(**arguments: Any) -> Any:
            lost = EndpointConnectionError(endpoint_url=self.address.endpoint_url)
            if self.fails[verb]:
                self.fails[verb] -= 1
                raise lost
            answer = getattr(self.plain, verb)(**arguments)
            if self.loses[verb]:
                self.loses[verb] -= 1
                raise lost
            return answer

        return sent

    def lock(self, label: str = "a writer", lease_ms: int = LEASE_MS) -> DynamodbLock:
        world = self.universe.world(label, skew_ms=self.universe.skew_ms.get(label, 0))
        storage = self.universe.memory()
        return DynamodbLock(storage, world, self.address, client=self, lease_ms=lease_ms)

    def item(self) -> dict[str, Any] | None:
        answer = self.plain.get_item(TableName=self.address.table, Key={"key": {"S": KEY}})
        found: dict[str, Any] | None = answer.get("Item")
        return found

    def put(self, **attributes: Any) -> dict[str, Any]:
        """The item as Amazon's client writes it, with these attributes changed."""
        texts = {
            "key": KEY,
            "ownerName": JAVA,
            "leaseDuration": "60000",
            "recordVersionNumber": uuid.uuid4().hex,
            **attributes,
        }
        item = {
            name: {"S": value} if isinstance(value, str) else value
            for name, value in texts.items()
            if value is not None
        }
        self.plain.put_item(TableName=self.address.table, Item=item)
        return item


@pytest.fixture
def universe() -> Universe:
    return Universe()


@pytest.fixture
def service(s3_options: dict[str, str], universe: Universe) -> Service:
    return Service(s3_options["aws_endpoint"], universe)


def is_free(service: Service) -> bool:
    try:
        service.lock("anybody").acquire(0).release()
    except UnavailableError:
        return False
    return True


def test_item_is_what_the_java_client_writes_and_gone_after_release(service: Service) -> None:
    held = service.lock("alice").acquire(0)
    item = service.item()
    assert item is not None
    assert item.keys() == {"key", "ownerName", "leaseDuration", "recordVersionNumber"}
    assert all(value.keys() == {"S"} for value in item.values())
    assert item["leaseDuration"]["S"] == "60000"
    assert item["ownerName"]["S"].startswith("alice, ")
    held.release()
    assert service.item() is None


def test_lock_that_java_released_without_deleting_it_is_free(service: Service) -> None:
    service.put(isReleased="1")
    held = service.lock().acquire(0)
    item = service.item()
    assert item is not None
    assert "isReleased" not in item
    held.release()


def test_time_out_names_the_owner_and_its_lease(service: Service, universe: Universe) -> None:
    service.put()
    with pytest.raises(UnavailableError) as caught:
        service.lock().acquire(20_000)
    assert caught.value.why == (
        f"the owner '{JAVA}' has it since 2023-11-14T22:13:20.000+00:00 or earlier, and renewed it"
        " last 20000 ms ago or earlier; it may keep it for 60000 ms from then"
    )
    assert "its lease ends by itself" in caught.value.next_step


@pytest.mark.parametrize("skew_ms", [-600_000, 0, 600_000])
def test_lease_is_over_when_its_version_was_watched_for_longer(
    service: Service, universe: Universe, skew_ms: int
) -> None:
    universe.skew_ms["alice"] = skew_ms
    service.put(leaseDuration="10000")
    lock = service.lock("alice")
    for waited_ms in (0, 4_000, 5_999, 1):
        universe.pass_ms(waited_ms)
        with pytest.raises(UnavailableError):
            lock.acquire(0)
    universe.pass_ms(1)
    assert lock.acquire(0).is_held()


def test_version_that_changes_begins_a_new_watch(service: Service, universe: Universe) -> None:
    service.put(leaseDuration="10000")
    lock = service.lock()
    for _ in range(5):
        with pytest.raises(UnavailableError):
            lock.acquire(0)
        universe.pass_ms(8_000)
        service.put(leaseDuration="10000")
    with pytest.raises(UnavailableError):
        lock.acquire(0)


def test_dead_owners_lock_is_had_even_by_one_who_waits_no_longer_than_its_lease(
    service: Service, universe: Universe
) -> None:
    service.put()
    began_ms = universe.now_ms
    held = service.lock().acquire(LEASE_MS)
    assert LEASE_MS < universe.now_ms - began_ms <= LEASE_MS + 2 * POLL_MS
    assert held.is_held()


def test_living_owner_is_waited_for_as_long_as_asked(service: Service, universe: Universe) -> None:
    service.lock("alice").acquire(0)
    began_ms = universe.now_ms
    with pytest.raises(UnavailableError):
        service.lock("bob").acquire(LEASE_MS + 12_345)
    assert universe.now_ms - began_ms == LEASE_MS + 12_345


@pytest.mark.parametrize("lease_ms", [4 * PATIENCE_MAX_MS, 10**18 - 1])
def test_forged_lease_is_waited_for_no_longer_than_asked(
    service: Service, universe: Universe, lease_ms: int
) -> None:
    service.put(leaseDuration=str(lease_ms), ownerName="\x1b[2J" + "x" * 9_000)
    began_ms = universe.now_ms
    with pytest.raises(UnavailableError) as caught:
        service.lock().acquire(5_000)
    assert universe.now_ms - began_ms == 5_000
    assert len(str(caught.value)) < 1_000
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "garbage",
    [
        {"leaseDuration": None},
        {"leaseDuration": "soon"},
        {"leaseDuration": {"N": "60000"}},
        {"ownerName": None},
        {"recordVersionNumber": {"N": "1"}},
        {"recordVersionNumber": None},
    ],
)
def test_garbage_is_reported_at_once_and_left_alone(
    service: Service, universe: Universe, garbage: dict[str, Any]
) -> None:
    item = service.put(**garbage)
    with pytest.raises(CorruptTableError, match="is not a lock"):
        service.lock().acquire(60_000)
    assert service.item() == item
    assert universe.naps_ms == []


def test_lease_is_renewed_for_as_long_as_it_is_held(service: Service, universe: Universe) -> None:
    held = service.lock("alice").acquire(0)
    versions = set()
    for _ in range(12):
        universe.pass_ms(LEASE_MS // RENEWALS_PER_LEASE)
        assert held.remaining_ms() == SAFE_MS
        versions.add(str(service.item()))
    assert len(versions) == 12
    held.release()
    assert universe.background == []


def stolen(service: Service, universe: Universe) -> tuple[HeldLock, HeldLock]:
    """The lock of alice, who stood still for too long, and of bob, who has it now."""
    alices = service.lock("alice").acquire(0)
    universe.frozen.add("alice")
    bobs = service.lock("bob").acquire(LEASE_MS + 2 * POLL_MS)
    universe.frozen.clear()
    return alices, bobs


def test_frozen_writer_that_wakes_up_knows_that_it_lost_the_lock(
    service: Service, universe: Universe
) -> None:
    alices, bobs = stolen(service, universe)
    assert alices.remaining_ms() == 0  # by its clock alone, before anybody is asked
    assert not alices.is_held()
    universe.pass_ms(LEASE_MS)
    assert bobs.is_held()


def test_late_release_does_not_free_the_next_owner(service: Service, universe: Universe) -> None:
    alices, bobs = stolen(service, universe)
    alices.release()
    assert bobs.is_held()
    assert not is_free(service)


def test_owner_gives_up_before_anybody_can_take_over(service: Service, universe: Universe) -> None:
    held = service.lock("alice").acquire(0)
    universe.frozen.add("alice")
    bob = service.lock("bob")
    while True:  # bob looks all the time
        try:
            bob.acquire(0)
            break
        except UnavailableError:
            universe.pass_ms(2_000)
    assert held.remaining_ms() == 0
    assert universe.now_ms - START_MS >= LEASE_MS


@pytest.mark.parametrize("how", ["another owner", "deleted", "garbage", "no table"])
def test_lock_that_is_taken_away_is_lost_for_good(
    service: Service, universe: Universe, how: str
) -> None:
    held = service.lock("alice").acquire(0)
    mine = service.item()
    if how == "no table":
        service.plain.delete_table(TableName=service.address.table)
    elif how == "deleted":
        service.plain.delete_item(TableName=service.address.table, Key={"key": {"S": KEY}})
    else:
        service.put(leaseDuration="60000" if how == "another owner" else "garbage")
    assert not held.is_held()
    if how == "another owner":
        service.plain.put_item(TableName=service.address.table, Item=mine)
    assert not held.is_held()
    held.release()


@pytest.mark.parametrize("how", ["another owner", "deleted", "garbage"])
def test_renewal_finds_out_that_the_lock_is_lost(
    service: Service, universe: Universe, how: str
) -> None:
    held = service.lock("alice").acquire(0)
    if how == "deleted":
        service.plain.delete_item(TableName=service.address.table, Key={"key": {"S": KEY}})
    else:
        service.put(leaseDuration="60000" if how == "another owner" else "garbage")
    universe.pass_ms(LEASE_MS // RENEWALS_PER_LEASE)
    assert held.remaining_ms() == 0


@pytest.mark.parametrize("lost", range(1, 4))
@pytest.mark.parametrize("what", ["fails", "loses"])
def test_unanswered_requests_cost_time_and_nothing_else(
    service: Service, universe: Universe, what: str, lost: int
) -> None:
    faults: Counter[str] = getattr(service, what)
    for verb in VERBS:
        faults[verb] = lost
    held = service.lock("alice").acquire(60_000)
    assert held.is_held()
    assert not is_free(service)
    universe.pass_ms(3 * LEASE_MS)
    assert held.is_held()
    faults.clear()
    faults.update(dict.fromkeys(VERBS, 1))
    held.release()
    assert service.item() is None


def test_write_that_was_made_after_all_is_withdrawn_by_whoever_gave_up(service: Service) -> None:
    service.loses["put_item"] = 1
    service.fails["get_item"] = 0
    lock = service.lock("alice")

    def unheard(**_: Any) -> Any:
        raise EndpointConnectionError(endpoint_url="x")

    before = service.plain.get_item
    replies = iter([before, unheard])
    service.get_item = lambda **how: next(replies, before)(**how)  # type: ignore[attr-defined]
    with pytest.raises(UnavailableError):
        lock.acquire(0)
    assert service.item() is None


def test_service_that_dies_leaves_an_owner_the_time_it_was_sure_of(
    service: Service, universe: Universe
) -> None:
    held = service.lock("alice").acquire(0)
    service.fails.update(dict.fromkeys(VERBS, 1 << 30))
    with pytest.raises(UnavailableError, match="does not answer about the lock"):
        held.is_held()
    universe.pass_ms(SAFE_MS - 1)
    assert held.remaining_ms() == 1
    universe.pass_ms(1)
    assert not held.is_held()
    held.release()  # raises nothing: the lease ends by itself
    service.fails.clear()
    assert not held.is_held()


def test_missing_table_is_made_as_hudi_makes_it(service: Service) -> None:
    service.plain.delete_table(TableName=service.address.table)
    held = service.lock("alice").acquire(10_000)
    described = service.plain.describe_table(TableName=service.address.table)["Table"]
    assert described["KeySchema"] == [{"AttributeName": "key", "KeyType": "HASH"}]
    assert described["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert held.is_held()


def test_table_of_something_else_is_refused(service: Service, universe: Universe) -> None:
    service.plain.delete_table(TableName=service.address.table)
    service.make_table(key="id")
    with pytest.raises(InvalidRequestError, match="key is the text 'key' alone"):
        service.lock().acquire(60_000)
    assert universe.naps_ms == []


def test_client_sends_each_request_once_and_takes_no_secrets_from_the_table(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in NOBODY.items():
        monkeypatch.setenv(name.upper(), value)
    items = DynamodbItems(service.address)
    assert items.load() is None
    sent: Any = items._client.meta.config
    assert sent.retries["total_max_attempts"] == 1


def test_missing_credentials_are_an_error_of_the_call(
    service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InvalidRequestError, match="Check the credentials of this process"):
        DynamodbItems(service.address).load()


def test_missing_library_is_named_with_what_to_install(
    service: Service, universe: Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(InvalidRequestError, match=r"pip install 'pyhudi\[dynamodb\]'"):
        DynamodbLock(universe.memory(), universe.world(), service.address)


def test_the_item_that_is_held_is_known_by_another_endpoint(
    service: Service, universe: Universe
) -> None:
    held, other = service.lock("a").acquire(0), service.lock("a")
    assert is_same_lock(held, other, 0)
    service.fails["get_item"] = 2
    assert is_same_lock(held, other, 5_000)
    held.release()
    assert not is_same_lock(held, other, 0), "there is none"
    rival = service.lock("a").acquire(0)
    assert not is_same_lock(held, other, 0), "it is a rival's"
    service.fails["get_item"] = 1
    with pytest.raises(UnavailableError, match="does not answer"):
        is_same_lock(rival, other, 0)


def test_a_table_can_name_its_dynamodb_otherwise(
    service: Service, universe: Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "nobody")
    memory, world, address = universe.memory(), universe.world(), service.address
    schema = pa.schema([("id", pa.string())])
    asked = TableDefinition.of("t", schema, record_key="id", buckets=SimpleBuckets(1))
    create_table_files(memory, asked, world, exist_ok=False)
    table = table_on(memory, world, WriteSettings(lock_wait_ms=60_000))
    endpoint = address.endpoint_url or ""
    by_name = endpoint.replace("127.0.0.1", "localhost")
    assert by_name != endpoint
    for url in (endpoint, by_name):
        began_ms = universe.now_ms
        given = {"table": address.table, "region": address.region, "endpoint_url": url}
        table.alter.use_lock("dynamodb", lock_options=given)
        table.upsert(pa.table({"id": ["a"]}))
        assert universe.now_ms - began_ms < 10_000


def test_processes_are_never_inside_together(service: Service, tmp_path: Path) -> None:
    there = service.address
    options = {
        "table": there.table,
        "partition_key": "raced",
        "region": there.region,
        "endpoint_url": there.endpoint_url,
    }
    orders = {"deed": "race", "kind": "dynamodb", "options": options, "hold_ms": 1}
    racers = [Racer(**orders, witness=tmp_path / "inside", rounds=2) for _ in range(4)]
    try:
        assert [racer.line() for racer in racers] == [{"entered": 2}] * 4
    finally:
        for racer in racers:
            racer.kill()


def test_who_asks_in_the_middle_of_a_renewal_still_has_the_lock(
    service: Service, universe: Universe
) -> None:
    """The renewal runs in a thread of its own, and may have come to any line."""
    held: Any = service.lock().acquire(0)
    before = held._mine
    universe.pass_ms(1)
    held._adopt(renewed := held._new_item())
    assert held._left_ms(before) > 0, "as who read `_mine` a moment before"
    assert held._left_ms(renewed) > 0
    for _ in range(5):
        universe.pass_ms(1)
        held._adopt(held._new_item())
    assert len(held._sent_ms) <= 3, "what is long over is forgotten"
