"""Rows find their buckets in Spark as they do without it, and each bucket's rows find one task."""

from __future__ import annotations

import datetime as dt
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

import pyhudi
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.properties import TableProperties
from pyhudi.format.table.table_config import TableConfig
from pyhudi.index.layout import SimpleRule
from pyhudi.index.routing import Routing
from pyhudi.index.simple_bucket import bucket_ids
from pyhudi.spark import shuffle
from pyhudi.spark.types import spark_schema
from pyhudi.spark.write_task import BUCKET, NO_BUCKET, SORT_KEY
from pyhudi.table.partitions import DEFAULT_PARTITION
from pyhudi.table.rows.input_rows import conformed
from pyhudi.table.rows.record_keys import record_keys
from pyhudi.write.sorted_groups import KEY_BITS

pytestmark = pytest.mark.spark

COUNT = 61
ZONES = ["UTC", "America/New_York"]
COMPLEX = {"hoodie.table.keygenerator.type": "COMPLEX"}


def config(key: str, partition: str = "", **more: str) -> TableConfig:
    return TableConfig.of(
        TableProperties(
            {
                "hoodie.table.name": "t",
                "hoodie.table.type": "MERGE_ON_READ",
                "hoodie.table.version": "9",
                "hoodie.table.recordkey.fields": key,
                "hoodie.table.partition.fields": partition,
                "hoodie.index.type": "BUCKET",
                "hoodie.bucket.index.num.buckets": str(COUNT),
                **more,
            }
        )
    )


def routing(config: TableConfig) -> Routing:
    assert isinstance(config.buckets, SimpleBuckets)
    return Routing(SimpleRule(config.buckets))


# -- awkward values, as many of each type

CHANCE = random.Random(5)
ROWS = 1_000


def filled(first: Sequence[Any], more: Any) -> list[Any]:
    return [*first, *(more() for _ in range(ROWS - len(first)))]


def _text() -> str:
    signs = "ab0,:=/%' \t\n\\_\u00e9\u00df\u4e2d\ud7ff\ue000\uffff\U0001f600\U0010ffff"
    return "x" + "".join(CHANCE.choice(signs) for _ in range(CHANCE.randrange(12)))


def _instant() -> dt.datetime:
    # Around changes of New York's clock too: gaps, overlaps, and the years of local mean time.
    base = CHANCE.choice(["1850-01-01", "1969-12-31", "2026-03-08", "2026-11-01", "2999-12-31"])
    start = dt.datetime.fromisoformat(base)
    return start + dt.timedelta(microseconds=CHANCE.randrange(86_400_000_000))


TEXTS = filled(
    [
        *("a", "A", "ab", "ba", "id", "id:", "id:5", "a:b:c", "p,q", ",", ":", " ", "\x00", "null"),
        *("__null__", "__empty__", "x:1,y:2", "Aa", "BB", "\u00e9", "e\u0301", "\U0001f600" * 9),
    ],
    _text,
)
INTS = filled([0, 1, -1, 2**31 - 1, -(2**31)], lambda: CHANCE.randrange(-(2**31), 2**31))
LONGS = filled([0, 2**63 - 1, -(2**63)], lambda: CHANCE.randrange(-(2**63), 2**63))
BOOLEANS = filled([True, False], lambda: CHANCE.random() < 0.5)
DATES = filled(
    [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1582, 10, 4), dt.date(1970, 1, 1)],
    lambda: dt.date.fromordinal(CHANCE.randrange(1, 3_652_059)),
)
TIMES = filled(
    [dt.datetime(1970, 1, 1), dt.datetime(2026, 3, 8, 2, 30), dt.datetime(2026, 11, 1, 1, 30)],
    _instant,
)
MONEY = filled(
    [Decimal("0.00"), Decimal("-0.01"), Decimal("99999999.99")],
    lambda: Decimal(CHANCE.randrange(-(10**9), 10**9)).scaleb(-2),
)
SMALL = filled(
    [Decimal("0E-9"), Decimal("1E-9"), Decimal("-1E-7"), Decimal("1.000000000")],
    lambda: Decimal(CHANCE.randrange(-(10**6), 10**12)).scaleb(-9),
)
PARTS = filled(
    [None, "", "__nul__", "1,secon:2", "1,c:2", "a:b", ",", "first:1"],
    lambda: CHANCE.choice([None, "", _text()]),
)
NUMBERS = filled([1, 2, 3], lambda: CHANCE.randrange(100))

UTC = dt.UTC
SCHEMA = pa.schema(
    [
        ("row", pa.int32()),
        ("id", pa.string()),
        ("i", pa.int32()),
        ("n", pa.int64()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("money", pa.decimal128(10, 2)),
        ("small", pa.decimal128(20, 9)),
        ("first", pa.string()),
        ("second", pa.int32()),
        ("odd `na'me", pa.string()),
    ]
)
VALUES = {
    "row": list(range(ROWS)),
    "id": TEXTS,
    "i": INTS,
    "n": LONGS,
    "flag": BOOLEANS,
    "day": DATES,
    "at": [time.replace(tzinfo=dt.UTC) for time in TIMES],
    "local": TIMES,
    "money": MONEY,
    "small": SMALL,
    "first": PARTS,
    "second": NUMBERS,
    "odd `na'me": TEXTS,
}
KEYS = {
    "text": config("id"),
    "int": config("i"),
    "long": config("n"),
    "boolean": config("flag"),
    "date": config("day"),
    "timestamp": config("at"),
    "timestamp without a zone": config("local"),
    "decimal": config("money"),
    "small decimal": config("small"),
    "several fields": config("first,second"),
    "fields of many types": config("day,at,local,money,flag,n"),
    "one field of COMPLEX": config("id", **COMPLEX),
    "an odd name": config("odd `na'me"),
}


def rows_of(session: SparkSession) -> DataFrame:
    tuples = list(zip(*VALUES.values(), strict=True))
    return session.createDataFrame(tuples, spark_schema(SCHEMA))


def expected(config: TableConfig) -> list[int]:
    """As the engine that knows no Spark has it."""
    names = config.record_key_fields
    columns = [pa.array(VALUES[name], SCHEMA.field(name).type) for name in names]
    keys = record_keys(pa.RecordBatch.from_arrays(columns, names=list(names)), config)
    assert config.buckets is not None
    found: list[int] = bucket_ids(keys, names, COUNT).to_pylist()
    return found


def found_buckets(frame: DataFrame) -> dict[str, list[int]]:
    """The bucket of every row, for every kind of key, by one job."""
    columns = {
        f"k{number}": shuffle.bucket_column(frame, config, SCHEMA, routing(config))
        for number, config in enumerate(KEYS.values())
    }
    found = frame.select("row", *(column.alias(name) for name, column in columns.items()))
    rows = sorted(found.collect())
    return {what: [row[f"k{n}"] for row in rows] for n, what in enumerate(KEYS)}


@pytest.fixture
def zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.param
    spark.conf.set("spark.sql.session.timeZone", name)
    yield name
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.spark35
@pytest.mark.parametrize("zone", ZONES, indirect=True)
def test_the_jvm_and_the_engine_agree_on_the_bucket_of_every_key(
    spark: SparkSession, zone: str
) -> None:
    assert shuffle._may_reflect(spark)
    for what, found in found_buckets(rows_of(spark)).items():
        wanted = expected(KEYS[what])
        wrong = [n for n in range(ROWS) if found[n] not in (wanted[n], NO_BUCKET)]
        assert not wrong, (what, zone, len(wrong), [VALUES["row"][n] for n in wrong[:3]])
        refused = [TEXTS[n] for n in range(ROWS) if found[n] == NO_BUCKET]
        assert all("," in key and ":" in key for key in refused), what
        assert what == "text" or not refused


@pytest.mark.spark35
@pytest.mark.parametrize("zone", ZONES[1:2], indirect=True)
def test_where_java_may_not_be_called_our_own_function_gives_the_same(
    spark: SparkSession, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle, "_may_reflect", lambda session: False)
    for what, found in found_buckets(rows_of(spark)).items():
        assert found == expected(KEYS[what]), what


LOOK_ALIKES = ["id:1,x", "id:1,x:2", "x:1,id:2", "id:1,id:2", "id:,", "id:a:b,c"]


def test_keys_that_look_like_several_fields_are_not_placed_wrongly(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(key,) for key in LOOK_ALIKES], "id string")
    schema = pa.schema([("id", pa.string())])
    chosen = frame.select(
        "id", shuffle.bucket_column(frame, KEYS["text"], schema, routing(KEYS["text"])).alias("b")
    ).collect()
    assert {row["id"]: row["b"] for row in chosen} == dict.fromkeys(LOOK_ALIKES, NO_BUCKET)


UNCERTAIN = ["1,second:2", "__null__", "__empty__"]


@pytest.mark.spark35
def test_only_rows_without_a_certain_key_have_no_bucket(spark: SparkSession) -> None:
    """The others of their batch must come to the task that writes their bucket."""
    texts = ["a", *UNCERTAIN, "b", None]
    frame = spark.createDataFrame([(text, 1) for text in texts], "first string, second int")
    frame = frame.coalesce(1)
    schema = pa.schema([("first", pa.string()), ("second", pa.int32())])
    config = KEYS["several fields"]
    chosen = frame.select(
        "first", shuffle.bucket_column(frame, config, schema, routing(config)).alias("b")
    ).collect()
    found = {row["first"]: row["b"] for row in chosen}
    assert [text for text in texts if found[text] == NO_BUCKET] == UNCERTAIN
    for text in ("a", "b", None):
        batch = pa.RecordBatch.from_arrays(
            [pa.array([text], pa.string()), pa.array([1], pa.int32())], schema=schema
        )
        ids = bucket_ids(record_keys(batch, config), config.record_key_fields, COUNT)
        assert found[text] == ids[0].as_py()


# -- frames whose types are not the table's own

COERCED = [
    ("decimal(4,1)", pa.decimal128(10, 2), "1.5"),
    ("decimal(10,2)", pa.decimal128(20, 9), "-7.25"),
    ("int", pa.decimal128(10, 2), "7"),
    ("int", pa.int64(), "-5"),
    ("smallint", pa.int32(), "300"),
    ("bigint", pa.int32(), "-5"),
]


@pytest.mark.spark35
@pytest.mark.parametrize("reflects", [True, False])
def test_a_key_of_another_type_is_placed_as_the_table_stores_it(
    spark: SparkSession, reflects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle, "_may_reflect", lambda session: reflects)
    columns = [f"CAST('{text}' AS {kind}) AS c{n}" for n, (kind, _, text) in enumerate(COERCED)]
    frame = spark.sql(f"SELECT {', '.join(columns)}")
    found = frame.select(
        *(
            shuffle.bucket_column(
                frame, config(name), pa.schema([(name, type_)]), routing(config(name))
            ).alias(name)
            for name, (_, type_, _) in ((f"c{n}", case) for n, case in enumerate(COERCED))
        )
    ).collect()[0]
    for number, (kind, type_, text) in enumerate(COERCED):
        name = f"c{number}"
        plain = pa.array([Decimal(text)]).cast(type_)
        batch = conformed(
            pa.RecordBatch.from_arrays([plain], names=[name]), pa.schema([(name, type_)])
        )
        keys = record_keys(batch, config(name))
        assert found[name] == bucket_ids(keys, [name], COUNT)[0].as_py(), (kind, str(type_))


# -- who gets which rows


GROUPED = pa.schema([("id", pa.string()), ("day", pa.string())])
GROUPS = config("id", "day")


def many_rows(session: SparkSession) -> DataFrame:
    """3,000 rows of 40 partitions, keys twice each, in no order."""
    number = (F.col("id") * 7919) % 1_500
    return session.range(3_000, numPartitions=4).select(
        F.concat(F.lit("k"), number).alias("id"),
        F.concat(F.lit("d"), number % 40).alias("day"),
    )


def tasks(frame: DataFrame) -> dict[int, list[Any]]:
    """Task → its rows, in the order it gets them."""
    found: dict[int, list[Any]] = defaultdict(list)
    for row in frame.withColumn("task", F.spark_partition_id()).collect():
        found[row["task"]].append(row)
    return found


@pytest.mark.spark35
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_the_rows_of_a_bucket_come_to_one_task_together_and_sorted(
    spark: SparkSession, conf: Any, adaptive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf("spark.sql.adaptive.enabled", adaptive)
    conf("spark.sql.shuffle.partitions", "8")
    conf("spark.sql.adaptive.coalescePartitions.enabled", "false")
    monkeypatch.setattr(shuffle, "TINY_BYTES", -1)
    made = shuffle.routed(
        many_rows(spark), GROUPS, GROUPED, routing(GROUPS), salt="s", by_partition=True
    )
    found = tasks(made)
    assert len(found) == 8
    assert sum(map(len, found.values())) == 3_000
    homes = defaultdict(set)
    for task, rows in found.items():
        sort_keys = [row[SORT_KEY] for row in rows]
        assert sort_keys == sorted(sort_keys)
        keys: dict[str, list[int]] = defaultdict(list)
        for number, row in enumerate(rows):
            homes[row["day"], row[BUCKET]].add((task, row[SORT_KEY] >> KEY_BITS))
            keys[row["id"]].append(number)
        assert all(len(seen) == 2 for seen in keys.values())
    assert all(len(home) == 1 for home in homes.values())
    codes = [code for home in homes.values() for _, code in home]
    assert len(set(codes)) == len(codes), "44 bits are enough for a few hundred groups"


def test_without_partitions_a_bucket_is_one_group_over_all_of_them(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle, "TINY_BYTES", -1)
    made = shuffle.routed(
        many_rows(spark), GROUPS, GROUPED, routing(GROUPS), salt="s", by_partition=False
    )
    codes = defaultdict(set)
    for row in made.collect():
        codes[row[BUCKET]].add(row[SORT_KEY] >> KEY_BITS)
    assert all(len(found) == 1 for found in codes.values())


def test_another_write_has_other_places(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle, "TINY_BYTES", -1)
    frame = spark.createDataFrame([("a", "d")], GROUPED.names)
    places = {
        shuffle.routed(
            frame, GROUPS, GROUPED, routing(GROUPS), salt=salt, by_partition=True
        ).collect()[0][SORT_KEY]
        for salt in ("20260101000000001", "20260101000000002")
    }
    assert len(places) == 2


def test_null_empty_and_the_default_partition_are_one_group(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle, "TINY_BYTES", -1)
    days = [None, "", DEFAULT_PARTITION, "x"]
    frame = spark.createDataFrame([("a", day) for day in days], "id string, day string")
    made = shuffle.routed(
        frame, GROUPS, GROUPED, routing(GROUPS), salt="s", by_partition=True
    ).collect()
    codes = {row["day"]: row[SORT_KEY] >> KEY_BITS for row in made}
    assert codes[None] == codes[""] == codes[DEFAULT_PARTITION] != codes["x"]


def plan_text(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    frame.explain()
    return capsys.readouterr().out


def test_a_tiny_input_is_one_task_without_a_shuffle(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = spark.range(100, numPartitions=4).select(
        F.col("id").cast("string").alias("id"), F.lit("d").alias("day")
    )
    made = shuffle.routed(frame, GROUPS, GROUPED, routing(GROUPS), salt="s", by_partition=True)
    assert "Exchange" not in plan_text(made, capsys)
    assert len(tasks(made)) == 1


def test_an_input_that_is_not_tiny_is_spread(
    spark: SparkSession, conf: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    conf("spark.sql.shuffle.partitions", "8")
    conf("spark.sql.adaptive.advisoryPartitionSizeInBytes", "200k")
    conf("spark.sql.adaptive.coalescePartitions.minPartitionSize", "1k")
    frame = spark.range(300_000, numPartitions=4).select(
        F.col("id").cast("string").alias("id"), F.lit("d").alias("day")
    )
    made = shuffle.routed(frame, GROUPS, GROUPED, routing(GROUPS), salt="s", by_partition=True)
    assert plan_text(made, capsys).count("Exchange hashpartitioning") == 1
    counted = made.groupBy(F.spark_partition_id()).count().collect()
    assert len(counted) > 1
    assert sum(row["count"] for row in counted) == 300_000


def test_where_spark_does_not_adapt_there_are_not_more_tasks_than_useful(
    spark: SparkSession, conf: Any, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(shuffle, "TINY_BYTES", -1)
    conf("spark.sql.adaptive.enabled", "false")
    for asked, given in (("200", 32), ("3", 3)):
        conf("spark.sql.shuffle.partitions", asked)
        made = shuffle.routed(
            many_rows(spark), GROUPS, GROUPED, routing(GROUPS), salt="s", by_partition=True
        )
        assert made.rdd.getNumPartitions() == given


def test_estimates_are_sparks_own_and_cost_no_evaluation(spark: SparkSession) -> None:
    def fails(batches: Any) -> Any:
        raise AssertionError("evaluated")

    small = spark.range(10)
    assert shuffle.estimated_bytes(small) == 80
    assert shuffle.estimated_bytes(spark.range(1 << 30)) == 8 << 30
    # What Spark knows nothing of counts as large.
    assert shuffle.estimated_bytes(small.mapInArrow(fails, "id long")) > shuffle.TINY_BYTES
    unknown = spark.createDataFrame(spark.sparkContext.parallelize([(1,)]), "id long")
    assert shuffle.estimated_bytes(unknown) > shuffle.TINY_BYTES


# -- through a whole write


def test_a_key_that_looks_like_several_fields_is_refused_by_name(
    spark: SparkSession, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pyhudi.create_table(
        tmp_path / "t",
        GROUPED,
        record_key="id",
        buckets=pyhudi.SimpleBuckets(4),
        upkeep=False,
    )
    frame = spark.createDataFrame([("plain", "d"), ("id:1,x:2", "d")], GROUPED.names)
    monkeypatch.setattr(shuffle, "estimated_bytes", lambda frame: float("inf"))
    with pytest.raises(pyhudi.InvalidRequestError, match="'id:1,x:2' looks like a key of several"):
        table.upsert(frame)
    assert table.read().to_arrow().num_rows == 0
    # A tiny input is placed without the JVM, which then has no say.
    monkeypatch.setattr(shuffle, "estimated_bytes", lambda frame: 0.0)
    table.upsert(frame)
    table.upsert(pa.table({"id": ["plain", "id:1,x:2"], "day": ["e", "e"]}))
    found = table.read(columns=["id", "day"]).to_arrow().to_pylist()
    assert {row["id"]: row["day"] for row in found} == {"plain": "e", "id:1,x:2": "e"}
    assert len(found) == 2, "found again by an engine that knows no Spark"
