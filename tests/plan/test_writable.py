"""Tables that can be read and must not be written."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from golden_tables import NAMES, GoldenTables
from pyhudi.errors import InvalidRequestError, UnsupportedTableError
from pyhudi.format.lock.lock_address import DynamodbAddress, LockAddress, ZookeeperAddress
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.lock.lock_properties import with_lock
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.properties import TableProperties, decode_table_properties
from pyhudi.format.table.table_config import TableConfig
from pyhudi.plan.writable import refuse_unwritable, with_first_lock, with_overrides

WRITABLE = {
    "hoodie.table.name": "orders",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "9",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "8",
}
_MODEL = "org.apache.hudi.common.model."


def config(**changes: str) -> TableConfig:
    """`__` stands for the dots of a key."""
    values = {key.replace("__", "."): value for key, value in changes.items()}
    return TableConfig.of(TableProperties(WRITABLE | values))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hoodie__table__version": "8"},
        {"hoodie__table__type": "COPY_ON_WRITE"},
        {"hoodie__table__ordering__fields": "ts"},
        {"hoodie__table__ordering__fields": "ts,seq"},
        {"hoodie__table__partition__fields": "a,b"},
        {"hoodie__table__metadata__partitions__inflight": ""},
        {"hoodie__table__legacy__payload__class": f"{_MODEL}OverwriteWithLatestAvroPayload"},
        {
            "hoodie__table__version": "8",
            "hoodie__compaction__payload__class": f"{_MODEL}DefaultHoodieRecordPayload",
            "hoodie__table__ordering__fields": "ts",
        },
    ],
)
def test_a_plain_bucket_table_is_not_refused(changes: dict[str, str]) -> None:
    refuse_unwritable(config(**changes))


@pytest.mark.parametrize(
    ("changes", "reason", "next_step"),
    [
        (
            {"hoodie__table__metadata__partitions": "files,column_stats"},
            "metadata table is live (files, column_stats)",
            "disable_metadata_table()",
        ),
        (
            {"hoodie__table__metadata__partitions__inflight": "record_index"},
            "metadata table is live (record_index)",
            "disable_metadata_table()",
        ),
        ({"hoodie__table__cdc__enabled": "true"}, "CDC", "Apache Hudi"),
        (
            {"hoodie__datasource__write__drop__partition__columns": "true"},
            "leaves partition columns out",
            "Apache Hudi",
        ),
        ({"hoodie__table__keygenerator__type": "TIMESTAMP"}, "the TIMESTAMP key", "Apache Hudi"),
        ({"hoodie__table__keygenerator__type": "CUSTOM"}, "the CUSTOM key", "Apache Hudi"),
        ({"hoodie__table__keygenerator__class": "x.Y"}, "USER_PROVIDED", "Apache Hudi"),
        ({"hoodie__table__recordkey__fields": ""}, "no record key", "Apache Hudi"),
        (
            {"hoodie__table__partial__update__mode": "IGNORE_DEFAULTS"},
            "partial update mode is IGNORE_DEFAULTS",
            "Apache Hudi",
        ),
        ({"hoodie__record__merge__mode": "CUSTOM"}, "merged by Java code", "Apache Hudi"),
        (
            {"hoodie__record__merge__property__hoodie__payload__delete__field": "Op"},
            "merges with hoodie.payload.delete.field",
            "Apache Hudi",
        ),
        (
            {
                "hoodie__table__version": "8",
                "hoodie__compaction__payload__class": f"{_MODEL}AWSDmsAvroPayload",
            },
            "merges with hoodie.payload.delete.field",
            "Apache Hudi",
        ),
        (
            {
                "hoodie__table__legacy__payload__class": "x.Y",
                "hoodie__record__merge__mode": "COMMIT_TIME_ORDERING",
            },
            "payload class x.Y",
            "Apache Hudi",
        ),
        (
            {
                "hoodie__table__type": "COPY_ON_WRITE",
                "hoodie__write__concurrency__mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
            },
            "its concurrency mode is non-blocking",
            "Apache Hudi",
        ),
    ],
)
def test_what_a_writer_cannot_honour_is_named_with_what_helps(
    changes: dict[str, str], reason: str, next_step: str
) -> None:
    with pytest.raises(UnsupportedTableError, match=re.escape(reason)) as caught:
        refuse_unwritable(config(**changes))
    assert next_step in caught.value.next_step


def test_all_reasons_are_given_and_no_remedy_that_would_not_do() -> None:
    table = config(
        hoodie__table__cdc__enabled="true",
        hoodie__table__metadata__partitions="files",
    )
    with pytest.raises(UnsupportedTableError) as caught:
        refuse_unwritable(table)
    assert caught.value.why.count(";") == 1
    assert caught.value.next_step.startswith("Write it with Apache Hudi")


HINDRANCES = {
    "cow_cdc": "CDC",
    "mor_cdc": "CDC",
    "cow_mdt_record_index": "metadata table",
    "mor_mdt": "metadata table",
}


@pytest.mark.parametrize("name", NAMES)
def test_tables_of_hudi_can_be_written_once_their_buckets_are_known(
    golden: GoldenTables, name: str
) -> None:
    data = (golden.path(name) / ".hoodie/hoodie.properties").read_bytes()
    table = TableConfig.of(decode_table_properties(data))
    known = replace(table, buckets=SimpleBuckets(4).resolved(table.record_key_fields))
    if name in HINDRANCES:
        with pytest.raises(UnsupportedTableError, match=HINDRANCES[name]):
            refuse_unwritable(known)
    else:
        refuse_unwritable(known)


# -- the lock that a table keeps

ADDRESSES: dict[LockKind, LockAddress] = {
    LockKind.ZOOKEEPER: ZookeeperAddress(url="zk:2181", base_path="/locks", lock_key="orders"),
    LockKind.DYNAMODB: DynamodbAddress(table="locks", partition_key="orders", region="eu-west-1"),
}
KEPT = {
    LockKind.ZOOKEEPER: {
        "pyhudi.lock": "zookeeper",
        "hoodie.write.lock.provider": (
            "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"
        ),
        "hoodie.write.lock.zookeeper.url": "zk:2181",
        "hoodie.write.lock.zookeeper.base_path": "/locks",
        "hoodie.write.lock.zookeeper.lock_key": "orders",
    },
    LockKind.DYNAMODB: {
        "pyhudi.lock": "dynamodb",
        "hoodie.write.lock.provider": (
            "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider"
        ),
        "hoodie.write.lock.dynamodb.table": "locks",
        "hoodie.write.lock.dynamodb.partition_key": "orders",
        "hoodie.write.lock.dynamodb.region": "eu-west-1",
    },
}


@pytest.mark.parametrize("kind", KEPT)
def test_a_table_keeps_the_address_of_its_first_lock_and_tells_it_the_next_writer(
    kind: LockKind,
) -> None:
    told = with_overrides(config(), None, kind, ADDRESSES[kind])
    kept = with_first_lock(WRITABLE, told)
    assert kept == {**WRITABLE, **KEPT[kind]}
    now = TableConfig.of(TableProperties(kept))
    assert (now.lock, now.lock_address) == (kind, ADDRESSES[kind])
    assert with_first_lock(kept, told) == kept


def test_a_first_lock_in_another_place_than_the_one_kept_by_now_is_refused() -> None:
    told = with_overrides(config(), None, LockKind.ZOOKEEPER, ADDRESSES[LockKind.ZOOKEEPER])
    other = {**KEPT[LockKind.ZOOKEEPER], "hoodie.write.lock.zookeeper.base_path": "/elsewhere"}
    with pytest.raises(InvalidRequestError, match="/elsewhere/orders at zk:2181"):
        with_first_lock({**WRITABLE, **other}, told)


@pytest.mark.parametrize(("kind", "before"), [(kind, other) for kind in KEPT for other in KEPT])
def test_another_lock_leaves_nothing_of_the_one_before(kind: LockKind, before: LockKind) -> None:
    changed = with_lock({**WRITABLE, **KEPT[before]}, kind, ADDRESSES[kind])
    assert changed == {**WRITABLE, **KEPT[kind]}
    none = with_lock(changed, LockKind.NONE, None)
    assert none == {**WRITABLE, "pyhudi.lock": "none"}
