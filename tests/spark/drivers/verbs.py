"""Writes with every verb, and the rows that each must leave, for whoever runs them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import pyhudi
from pyhudi.format.files.partition_metadata import PARTITION_METADATA_FILE
from pyhudi.format.timeline.commit_metadata import decode_commit_metadata
from pyhudi.format.timeline.instant import Action, Instant, State

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.string()),
        ("ts", pa.int64()),
        ("note", pa.string()),
        ("size", pa.int64()),
    ]
)
_SPARK = {"id": "string", "day": "string", "ts": "long", "note": "string", "size": "long"}

Row = tuple[str, str, int, str, int]


def create(path: str, table_type: str = "mor") -> pyhudi.Table:
    return pyhudi.create_table(
        path,
        SCHEMA,
        record_key="id",
        partition_by="day",
        ordering="ts",
        buckets=pyhudi.SimpleBuckets(3),
        table_type=table_type,
        upkeep=False,
    )


def row(number: int, ts: int = 1, note: str = "a", size: int = 7) -> Row:
    """The row of a key, which lies in the same one of three days always."""
    return (f"k{number}", f"d{number % 3}", ts, note, size)


def frame(rows: list[Any], *columns: str) -> dict[str, Any]:
    """An input of these rows, as a driver understands it."""
    names = columns or tuple(_SPARK)
    return {
        "rows": [r if not columns else [r[list(_SPARK).index(c)] for c in names] for r in rows],
        "columns": ", ".join(f"{name} {_SPARK[name]}" for name in names),
    }


@dataclass(frozen=True, slots=True)
class Step:
    """One write, and what the table holds after it."""

    verb: str
    source: Any  # a frame, or an argument as it is
    rows: frozenset[Row]
    options: dict[str, Any] = field(default_factory=dict)


def steps() -> list[Step]:
    made: list[Step] = []
    rows: dict[str, Row] = {}

    def step(verb: str, source: Any, left: dict[str, Row], **options: Any) -> None:
        rows.clear()
        rows.update(left)
        made.append(Step(verb, source, frozenset(rows.values()), options))

    first = [row(n) for n in range(24)]
    step("append", frame(first), _by_key(first))
    newer = [row(n, 2, "b") for n in (*range(6), 24, 25)]
    step("upsert", frame([*newer, row(6, 0, "late")]), rows | _by_key(newer))
    noted = [row(n, 3, "c", 8) for n in (1, 2, 7, 99)]  # nobody has the last
    kept = {k: (*r[:3], "c", r[4]) for k, r in rows.items() if k in _by_key(noted)}
    step("update", frame(noted, "id", "day", "note"), rows | kept, columns=["note"])
    gone = [row(n) for n in (3, 8, 13)]
    left = {k: r for k, r in rows.items() if k not in _by_key(gone)}
    step("delete", frame(gone, "id"), left)
    left = {k: r for k, r in rows.items() if (r[1], r[3]) != ("d1", "b")}
    step("delete", "day = 'd1' and note = 'b'", left)
    touched = [row(n, 4, "d") for n in (0, 30)]
    left = {k: r for k, r in rows.items() if r[1] != "d0"} | _by_key(touched)
    step("overwrite", frame(touched), left, partitions="touched")
    named = [row(n, 4, "e") for n in (1, 31)]
    left = {k: r for k, r in rows.items() if r[1] not in {"d1", "d2"}} | _by_key(named)
    step("overwrite", frame(named), left, partitions=["d1", "d2"])
    step("delete_partitions", ["d0"], {k: r for k, r in rows.items() if r[1] != "d0"})
    last = [row(n, 5, "f") for n in range(5)]
    step("overwrite", frame(last), _by_key(last), partitions="all")
    return made


def _by_key(rows: list[Row]) -> dict[str, Row]:
    return {r[0]: r for r in rows}


def rows_of(path: str) -> frozenset[Row]:
    """What the local engine reads, each row once."""
    read = pyhudi.open_table(path).read(columns=SCHEMA.names).to_arrow().to_pylist()
    found = [tuple(r.values()) for r in read]
    assert len({r[0] for r in found}) == len(found), f"a key is there twice: {sorted(found)}"
    return frozenset(found)


def unknown_files(path: Path) -> set[str]:
    """Data files that no completed write names, and instants that are still pending."""
    timeline = path / ".hoodie" / "timeline"
    files = [found for found in timeline.iterdir() if found.is_file()]
    instants = [Instant.parse(found.name) for found in files]
    done = {i.requested for i in instants if i.state is State.COMPLETED}
    pending = {i.file_name for i in instants if i.requested not in done}
    named: set[str] = set()
    for found, instant in zip(files, instants, strict=True):
        if instant.state is State.COMPLETED and instant.action is not Action.ROLLBACK:
            metadata = decode_commit_metadata(found.read_bytes(), found.name)
            named |= {s.data_path for stats in metadata.write_stats.values() for s in stats}
    there = {
        found.relative_to(path).as_posix()
        for found in path.rglob("*")
        if found.is_file() and ".hoodie" not in found.relative_to(path).parts
    }
    return pending | {p for p in there - named if not p.endswith(PARTITION_METADATA_FILE)}
