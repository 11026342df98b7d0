"""Hudi's options that say when a bucket is split or merged."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import Buckets, ConsistentBuckets, SimpleBuckets
from pyhudi.format.table.properties import TableProperties
from pyhudi.format.table.table_config import TableConfig
from pyhudi.hudi_options.resize_options import new_upkeep, warn_of_other_resizes
from pyhudi.hudi_options.write_options import parse_write_options
from pyhudi.plan.new_table import table_properties
from pyhudi.plan.table_definition import TableDefinition
from pyhudi.plan.upkeep import NO_UPKEEP, decode_upkeep, encode_upkeep

SIZE = "hoodie.parquet.max.file.size"
SPLIT = "hoodie.bucket.index.split.threshold"
MERGE = "hoodie.bucket.index.merge.threshold"
OPTIONS = {SIZE: "67108864", SPLIT: " 1.5", MERGE: "0.1"}
POLICY = pyhudi.ResizePolicy(target_bytes=64 << 20, split_above=1.5, merge_below=0.1)


def test_a_new_table_records_what_the_options_say() -> None:
    settings = parse_write_options(OPTIONS).resizing
    recorded = decode_upkeep(new_upkeep(settings, LockKind.NONE)).policy
    assert recorded == pyhudi.Upkeep(resize=POLICY)
    assert decode_upkeep(new_upkeep({}, LockKind.NONE)).policy == pyhudi.Upkeep()
    assert new_upkeep(settings, LockKind.FILE) == NO_UPKEEP, "Hudi resizes such a table"


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        (SIZE, "100", "at least 4,096"),
        (SIZE, "1e9", "a whole number of bytes"),
        (SIZE, "", "a whole number of bytes"),
        (SPLIT, "0.5", "at least 1"),
        (SPLIT, "inf", "it is a number"),
        (MERGE, "2", "from 0 to 1"),
        (MERGE, "nan", "it is a number"),
    ],
)
def test_a_value_that_no_policy_may_have_is_refused_by_the_name_of_the_option(
    option: str, value: str, why: str
) -> None:
    with pytest.raises(pyhudi.InvalidRequestError, match=re.escape(why)) as refused:
        parse_write_options({option: value})
    assert option in str(refused.value)


def table(buckets: Buckets, upkeep: pyhudi.Upkeep | None) -> TableConfig:
    schema = pa.schema([("id", pa.string())])
    text = encode_upkeep(upkeep)
    asked = TableDefinition.of("t", schema, record_key="id", buckets=buckets, upkeep=text)
    return TableConfig.of(TableProperties(table_properties(asked)))


OTHER: list[tuple[Buckets, pyhudi.Upkeep | None, str]] = [
    (ConsistentBuckets(), pyhudi.Upkeep(), "this table records target_bytes=125829120"),
    (ConsistentBuckets(), pyhudi.Upkeep(resize=None), "records no policy of resizes"),
    (ConsistentBuckets(), None, "records no policy of resizes"),
    (SimpleBuckets(2), pyhudi.Upkeep(), "neither split nor merged"),
]


@pytest.mark.parametrize(("buckets", "upkeep", "why"), OTHER)
def test_an_existing_table_keeps_its_policy_and_a_warning_says_so(
    buckets: Any, upkeep: pyhudi.Upkeep | None, why: str
) -> None:
    settings = parse_write_options({SIZE: OPTIONS[SIZE]}).resizing
    with pytest.warns(UserWarning, match=f"{re.escape(SIZE)} has no effect: .*{why}"):
        warn_of_other_resizes(settings, table(buckets, upkeep))


def test_options_that_agree_with_the_table_pass_without_a_warning() -> None:
    settings = parse_write_options(OPTIONS).resizing
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_other_resizes(settings, table(ConsistentBuckets(), pyhudi.Upkeep(resize=POLICY)))
