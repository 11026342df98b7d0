"""One of the two Spark jobs that the demo starts: it upserts the columns of one owner.

    python join.py TABLE OWNER

Neither job knows of the other. Between them they make one row of each order.
"""

from __future__ import annotations

import sys

import pyarrow as pa
from pyspark.sql import SparkSession

import pyhudi

SCHEMA = pa.schema(
    [
        ("order_id", pa.string()),
        ("customer", pa.string()),
        ("amount", pa.int64()),
        ("method", pa.string()),
        ("paid_at", pa.string()),
    ]
)
OWNERS = {"orders": ["customer", "amount"], "payments": ["method", "paid_at"]}

#: What each job upserts, one commit after the other: keys, and values of its own columns.
COMMITS = {
    "orders": [
        [("o1", "Ada", 10), ("o2", "Bo", 20), ("o3", "Cy", 30)],
        [("o2", "Bo", 25)],  # a new amount
        [("o4", "Di", 40)],
    ],
    "payments": [
        [("o1", "card", "08:30"), ("o4", "cash", "08:31")],  # o4 is paid before it is ordered
        [("o2", "card", "08:45"), ("o3", "bill", "08:50")],
        [("o3", None, None)],  # the payment was taken back: null is a value too
    ],
}


def session(cores: int) -> SparkSession:
    return (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("pyhudi demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")  # a short life
        .getOrCreate()
    )


def main(uri: str, owner: str) -> None:
    spark, table = session(1), pyhudi.open_table(uri, progress=False)
    columns = ", ".join(f"{name} {kind}" for name, kind in spark_columns(owner).items())
    for rows in COMMITS[owner]:
        result = table.upsert(spark.createDataFrame(rows, columns), owner=owner)
        print(f"  {owner}, at work from {span(result)}: rows written {result.rows}", flush=True)


def spark_columns(owner: str) -> dict[str, str]:
    names = ["order_id", *OWNERS[owner]]
    return {name: "long" if SCHEMA.field(name).type == pa.int64() else "string" for name in names}


def span(result: pyhudi.WriteResult) -> str:
    """Hours, minutes and seconds of an instant's times, which are digits."""
    return " to ".join(
        f"{t[8:10]}:{t[10:12]}:{t[12:14]}.{t[14:]}" for t in (result.instant, result.completed)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
