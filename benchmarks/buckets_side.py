"""A process of the parts of `buckets.py` that runs pyhudi: its local engine, or Spark.

What it shares with the processes of `services.py` is in `services_side.py`.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from buckets_turns import Equally, burn_beside, split_beside, upsert_beside
from measure import peak_memory_mb
from services_side import (
    compacted,
    hello,
    newest,
    read_rows,
    sleep_until,
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
from pyhudi.format.timeline.decision_entry import LOG_FOLDER

CONSISTENT, SIMPLE = "consistent", "simple"


def create(
    table: str,
    source: str,
    kind: str,
    count: int,
    upserts: list[str],
    *,
    is_partitioned: bool = True,
    is_kept_up: bool = True,
    lock: str = "none",
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
        lock=lock,
        **({} if is_kept_up else {"upkeep": False}),
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


def resize_beside(table: str, children: int, begin: float) -> Row:
    """Split the only bucket into about so many, beside writers: what became of it, and when."""
    opened = pyhudi.open_table(table)
    sleep_until(begin + 2.0)
    size = opened.inspect.buckets(rows=False)["bytes"].to_pylist()[0]
    policy = pyhudi.ResizePolicy(
        target_bytes=max(4096, size // children),
        split=Equally(children),
        split_above=1,
        merge_below=0,
        rest_seconds=0,
    )
    started = time.monotonic()
    try:
        [done] = opened.services.resize(policy).results
        what = f"{done.children} buckets, {done.copies:,} logs copied,"
    except pyhudi.ConflictError as error:
        what = f"cancelled ({error.why}),"
    return {"begin": started, "end": time.monotonic(), "what": what}


def closed_spans(table: str) -> Row:
    """From when to when resizes were closed, by the machine's monotonic clock."""
    wall, spans, closed = time.time() - time.monotonic(), [], {}
    for path in sorted(Path(table, LOG_FOLDER).rglob("*.json")):
        entry, at = json.loads(path.read_bytes()), path.stat().st_mtime - wall
        if entry["kind"] == "close":
            closed[entry["instant"]] = at
        ends = entry["target"]["instant"] if entry["kind"] == "abort" else entry.get("instant")
        if entry["kind"] in ("complete", "abort") and ends in closed:
            spans.append((closed[ends], at))
    return {"spans": spans}


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
        "resize beside": resize_beside,
        "closed spans": closed_spans,
        "rewrite": rewrite,
        "upsert between": upsert_between,
        "upsert beside": upsert_beside,
        "split beside": split_beside,
        "burn beside": burn_beside,
        "newest": newest,
    }
    serve(sink, commands if engine == "local" else {**commands, **spark_commands()})


if __name__ == "__main__":
    main(*sys.argv[1:])
