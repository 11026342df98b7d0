"""Partitions as callers name them: by path or by values, and never outside of the table."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.properties import TableProperties
from pyhudi.format.table.table_config import TableConfig
from pyhudi.table.partitions import DEFAULT_PARTITION
from pyhudi.table.rows.named_partitions import named_partitions

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("day", pa.date32()), ("n", pa.int64())]
)
HIVE = {"hoodie.datasource.write.hive_style_partitioning": "true"}
ENCODED = {"hoodie.datasource.write.partitionpath.urlencode": "true"}
DAY = dt.date(2026, 1, 31)


def config(fields: str, **more: str) -> TableConfig:
    return TableConfig.of(
        TableProperties(
            {
                "hoodie.table.name": "t",
                "hoodie.table.type": "MERGE_ON_READ",
                "hoodie.table.version": "9",
                "hoodie.table.recordkey.fields": "id",
                "hoodie.table.partition.fields": fields,
                **more,
            }
        )
    )


@pytest.mark.parametrize(
    ("fields", "more", "named", "paths"),
    [
        ("region", {}, ["eu", "us", "eu"], {"eu", "us"}),
        ("region", {}, [("eu",), {"region": "us"}], {"eu", "us"}),
        ("region", {}, [None], {DEFAULT_PARTITION}),
        ("region", {}, [{"region": ""}, DEFAULT_PARTITION], {DEFAULT_PARTITION}),
        ("region", {}, iter(["eu"]), {"eu"}),
        ("region", {}, {"eu", "us"}, {"eu", "us"}),
        ("region", HIVE, ["region=eu", ("us",)], {"region=eu", "region=us"}),
        ("region", ENCODED, [("a/b",), "a%2Fb", {"region": "50%"}], {"a%2Fb", "50%25"}),
        ("day", {}, [DAY, "2026-02-01"], {"2026-01-31", "2026-02-01"}),
        ("n", {}, [5, -7, "9"], {"5", "-7", "9"}),
        ("region,day", {}, [("eu", DAY), "us/2026-01-01"], {"eu/2026-01-31", "us/2026-01-01"}),
        ("region,day", {}, [{"day": DAY, "region": None}], {f"{DEFAULT_PARTITION}/2026-01-31"}),
        ("region,n", HIVE, [("eu", 5), "region=us/n=7"], {"region=eu/n=5", "region=us/n=7"}),
    ],
)
def test_partitions_are_named_by_path_or_by_values(
    fields: str, more: dict[str, str], named: Any, paths: set[str]
) -> None:
    assert named_partitions(named, config(fields, **more), SCHEMA) == paths


@pytest.mark.parametrize(
    ("fields", "more", "named", "message"),
    [
        ("region", {}, "eu", "not a list.*Put it in a list"),
        ("region", {}, b"eu", "not a list"),
        ("region", {}, {"region": "eu"}, "not a list"),
        ("region", {}, 5, "not a list"),
        ("region", {}, None, "not a list"),
        ("region", {}, [], "names none"),
        ("region", {}, [5], "names no partition"),
        ("region", {}, [("eu", "us")], "names no partition"),
        ("region", {}, [{"day": DAY}], "the partition columns are region"),
        ("region", {}, [{"region": "eu", "day": DAY}], "the partition columns are region"),
        ("region", {}, ["eu/2026"], "it has 2 parts"),
        ("region", {}, [""], "it is empty"),
        ("region", {}, [".."], "'.' or '..'"),
        ("region", {}, ["a\\b"], "backslash"),
        ("region", {}, ["\ud800"], "UTF-8"),
        ("region", {}, [("../x",)], "cannot be partitions"),
        ("region", {}, [("a/b",)], "cannot be partitions"),
        ("region", {}, [(".hoodie",)], "the table's own folder"),
        ("region", HIVE, ["eu"], "'eu' is not region="),
        ("region", HIVE, ["day=eu"], "is not region="),
        ("day", {}, [{"day": "soon"}], "names no partition"),
        ("n", {}, [{"n": 1 << 70}], "names no partition"),
        ("n", {}, [1.5], "names no partition"),
        ("day", {}, ["day=2026-01-31"], "is not a value of type date32.* for the column 'day'"),
        ("day", {}, ["2026-1-31"], "is not a value of type date32"),
        ("day", {}, ["20260131"], "is not a value of type date32"),
        ("day", HIVE, ["day=2026-13-01"], "'2026-13-01' is not a value of type date32"),
        ("n", {}, ["05"], "is not a value of type int64"),
        ("n", {}, ["five"], "is not a value of type int64"),
        ("n", {}, ["None"], "is not a value of type int64"),
        ("region,day", {}, ["eu/today"], "'today' is not a value of type date32"),
        ("region,day", {}, ["eu"], "it has 1 parts, and the table 2"),
        ("region,day", {}, ["/2026-01-01"], "it is absolute"),
        ("region,day", {}, ["eu/.."], "'.' or '..'"),
        ("region,day", {}, [("eu",)], "the partition columns are region, day"),
        ("region,day", {}, [["eu", DAY]], "the partition columns are region, day"),
        ("", {}, ["eu"], "the table is not partitioned"),
    ],
)
def test_what_names_no_partition_is_refused(
    fields: str, more: dict[str, str], named: Any, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        named_partitions(named, config(fields, **more), SCHEMA)
