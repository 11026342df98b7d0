"""The rows of `table.inspect` that are about writes: writers, history, schemas, conflicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import tzinfo
from typing import Any

import pyarrow as pa

from pyhudi.api.inspected_markers import WRITER
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat
from pyhudi.format.timeline.instant import Instant
from pyhudi.format.timeline.writer_identity import WriterIdentity, parse_writer
from pyhudi.read.schema_history import SchemaChange
from pyhudi.timeline.instant_time import utc_moment
from pyhudi.wording import storable

WRITER_COLUMNS = ("job", "user", "host")
WRITERS = pa.schema(
    [
        ("instant", pa.string()),
        ("completed", pa.string()),
        ("action", pa.string()),
        ("operation", pa.string()),
        *WRITER,
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("last_sign", pa.timestamp("ms", "UTC")),
    ]
)
HISTORY = pa.schema(
    [
        ("completed", pa.timestamp("ms", "UTC")),
        ("operation", pa.string()),
        ("rows", pa.int64()),
        ("deletes", pa.int64()),
        ("files", pa.int64()),
        ("bytes", pa.int64()),
        ("seconds", pa.float64()),
        ("job", pa.string()),
        ("user", pa.string()),
        ("host", pa.string()),
        ("requested", pa.string()),
    ]
)
SCHEMA_HISTORY = pa.schema(
    [
        ("completed", pa.timestamp("ms", "UTC")),
        ("instant", pa.string()),
        ("operation", pa.string()),
        (
            "change",
            pa.list_(pa.struct([(n, pa.string()) for n in ("path", "kind", "before", "after")])),
        ),
        ("job", pa.string()),
        ("host", pa.string()),
        ("user", pa.string()),
        ("schema", pa.string()),
    ]
)
CONFLICTS = pa.schema(
    [
        ("instant", pa.string()),
        ("job", pa.string()),
        ("host", pa.string()),
        ("user", pa.string()),
        ("lost_to", pa.string()),
        ("their_job", pa.string()),
        ("their_host", pa.string()),
        ("their_user", pa.string()),
        ("rule", pa.string()),
        ("retry", pa.string()),
        ("partition", pa.string()),
        ("file_group", pa.string()),
        ("bucket", pa.int64()),
        ("keys", pa.list_(pa.string())),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("seconds", pa.float64()),
        ("found", pa.string()),
        ("strategy", pa.string()),
        ("found_after_ms", pa.int64()),
    ]
)


def history_row(instant: Instant, metadata: CommitMetadata, zone: tzinfo | None) -> dict[str, Any]:
    began = utc_moment(instant.requested, zone)
    ended = None if instant.completed is None else utc_moment(instant.completed, zone)
    stats = metadata.stats
    return {
        "completed": ended,
        "operation": metadata.operation,
        **(_written(stats) if metadata != CommitMetadata() else {}),  # else it cannot be read
        "seconds": (ended - began).total_seconds() if began and ended else None,
        **{name: identity_row(metadata.extra_metadata).get(name) for name in WRITER_COLUMNS},
        "requested": instant.requested,
    }


def schema_row(change: SchemaChange, zone: tzinfo | None) -> dict[str, Any]:
    write, found = change.write, change.changes
    identity = {} if write.writer == WriterIdentity() else asdict(write.writer)
    return {
        "completed": utc_moment(write.completed, zone),
        "instant": write.requested,
        "operation": write.operation,
        "change": None if found is None else [asdict(each) for each in found],
        **{name: identity.get(name) for name in WRITER_COLUMNS},
        "schema": write.avro_json,
    }


def _written(stats: Sequence[WriteStat]) -> dict[str, int]:
    return {
        "rows": sum(stat.rows_written for stat in stats),
        "deletes": sum(stat.num_deletes or 0 for stat in stats),
        "files": len(stats),
        "bytes": sum(stat.total_write_bytes or 0 for stat in stats),
    }


def identity_row(extra: Mapping[str, str] | None) -> dict[str, Any]:
    writer = parse_writer(extra)
    if writer == WriterIdentity():
        return {}
    return asdict(writer)


def conflict_row(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a conflict's facts. A value of an unexpected type counts as missing."""
    ours, theirs, lost = (_part(facts, name) for name in ("ours", "theirs", "lost"))
    keys = facts.get("keys")
    return {
        **{name: _text(ours, name) for name in ("instant", "job", "host", "user")},
        "lost_to": _text(theirs, "instant"),
        **{f"their_{name}": _text(theirs, name) for name in ("job", "host", "user")},
        **{name: _text(facts, name) for name in ("rule", "retry", "partition", "file_group")},
        "bucket": _whole(facts, "bucket"),
        "keys": [storable(str(key)) for key in keys] if isinstance(keys, list) else None,
        "rows": _whole(lost, "rows"),
        "bytes": _whole(lost, "bytes"),
        "seconds": float(lost["seconds"]) if isinstance(lost.get("seconds"), float) else None,
        "found": _text(facts, "found"),
        "strategy": _text(facts, "strategy"),
        "found_after_ms": _whole(facts, "found_after_ms"),
    }


def _part(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = facts.get(name)
    return found if isinstance(found, dict) else {}


def _text(facts: Mapping[str, Any], name: str) -> str | None:
    found = facts.get(name)
    return storable(found) if isinstance(found, str) else None


def _whole(facts: Mapping[str, Any], name: str) -> int | None:
    found = facts.get(name)
    if not isinstance(found, int) or isinstance(found, bool):
        return None
    return found if -(2**63) <= found < 2**63 else None
