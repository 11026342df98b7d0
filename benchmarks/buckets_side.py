"""A process of the parts of `buckets.py` that runs pyhudi: its local engine, or Spark.

What it shares with the processes of `services.py` is in `services_side.py`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
from measure import peak_memory_mb
from services_side import (
    compacted,
    hello,
    newest,
    read_rows,
    take_turns,
    upsert_between,
)
from side import (
    ORDERING,
    PARTITION,
    RECORD_KEY,
    Row,
    own_stdout,
    serve,
    source_frame,
    start_session,
)

import pyhudi

CONSISTENT, SIMPLE = "consistent", "simple"


def create(
    table: str,
    source: str,
    kind: str,
    count: int,
    upserts: list[str],
    *,
    is_partitioned: bool = True,
) -> Row:
    """A table with base files and as many logs in each slice as there are upserts; its bytes."""
    buckets: Any = pyhudi.SimpleBuckets(count)
    if kind == CONSISTENT:
        buckets = pyhudi.ConsistentBuckets(initial=count)
    rows = read_rows(source)
    created = pyhudi.create_table(
        table,
        rows.schema,
        record_key=RECORD_KEY,
        partition_by=PARTITION if is_partitioned else (),
        ordering=ORDERING,
        buckets=buckets,
    )
    created.append(rows)
    compacted(table)
    for each in upserts:
        created.upsert(read_rows(each))
    return sizes(table)


def sizes(table: str) -> Row:
    found = pyhudi.open_table(table).inspect.buckets(rows=False)["bytes"].to_pylist()
    return {"buckets": len(found), "bytes": sum(found), "most": max(found)}


def upsert(table: str, source: str) -> Row:
    pyhudi.open_table(table).upsert(read_rows(source))
    return {}


def load(source: str) -> Row:
    """Have rows in memory before anything is measured."""
    return {"rows": read_rows(source).num_rows}


def compact(table: str) -> Row:
    [result] = compacted(table).results
    return {"rows": result.rows, "memory_mb": peak_memory_mb()}


def resize(table: str, target: int, buckets_max: int = 256) -> Row:
    """Split what is larger than the target."""
    policy = pyhudi.ResizePolicy(
        target_bytes=target,
        split_above=1,
        merge_below=0,
        rest_seconds=0,
        bytes_max=1 << 40,
        buckets_max=buckets_max,
    )
    [result] = pyhudi.open_table(table).services.resize(policy).results
    return {
        "rows": result.rows,
        "inputs": result.inputs,
        "children": result.children,
        "bytes": result.bytes,
        "memory_mb": peak_memory_mb(),
    }


def row_groups(table: str) -> Row:
    """The largest row group of the table's base files, as it is decoded."""
    files = pyhudi.open_table(table).read().plan.reads
    most = 0
    for each in files:
        assert each.slice.base is not None
        footer = pq.read_metadata(f"{table}/{each.slice.base.path}")
        groups = (footer.row_group(n).total_byte_size for n in range(footer.num_row_groups))
        most = max(most, *groups)
    return {"bytes": most}


def rewrite(table: str, into: str, count: int) -> Row:
    """What a table of simple buckets must do to have more of them: read all, write all."""
    scan = pyhudi.open_table(table).read()
    made = pyhudi.create_table(
        into,
        scan.schema,
        record_key=RECORD_KEY,
        ordering=ORDERING,
        buckets=pyhudi.SimpleBuckets(count),
    )
    done = made.append(scan.to_reader())
    return {"rows": done.rows, "bytes": done.bytes}


def spark_commands() -> dict[str, Callable[..., Row]]:
    session = start_session({})

    def spark_upsert(table: str, source: str) -> Row:
        pyhudi.open_table(table).upsert(source_frame(session, source))
        return {}

    return {"upsert": spark_upsert}


def main(engine: str) -> None:
    sink = own_stdout()
    warnings.filterwarnings("ignore", "target_bytes")  # smaller than users should have them
    commands: dict[str, Callable[..., Row]] = {
        "hello": hello,
        "create": create,
        "sizes": sizes,
        "load": load,
        "upsert": upsert,
        "compact": compact,
        "resize": resize,
        "row groups": row_groups,
        "rewrite": rewrite,
        "upsert between": upsert_between,
        "take turns": take_turns,
        "newest": newest,
    }
    serve(sink, commands if engine == "local" else {**commands, **spark_commands()})


if __name__ == "__main__":
    main(*sys.argv[1:])
