"""What a write would do and meet if it began now: a value with two Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.writer_identity import WriterIdentity
from pyhudi.index.simple_bucket import bucket_number
from pyhudi.session.session import TableSession
from pyhudi.wording import counted, storable
from pyhudi.write.intent import WriteIntent
from pyhudi.write.preview.places import Places
from pyhudi.write.preview.rivals import Meeting, Outcome, meetings

_WHERE = [
    ("partition", pa.string()),
    ("bucket", pa.int64()),
    ("node", pa.int64()),
    ("file_id", pa.string()),
]
_PLACES = pa.schema([*_WHERE, ("rows", pa.int64())])
_CONFLICTS = pa.schema(
    [
        ("instant", pa.string()),
        ("kind", pa.string()),
        ("job", pa.string()),
        ("host", pa.string()),
        ("user", pa.string()),
        ("process", pa.int64()),
        ("priority", pa.int64()),
        *_WHERE,
        ("places", pa.int64()),
        ("rule", pa.string()),
        ("rule_says", pa.string()),
        ("outcome", pa.string()),
        ("certain", pa.bool_()),
    ]
)
_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True, repr=False)
class WritePreview:
    """Where a write would have files if it began now, and who works there."""

    _places: pa.Table
    _conflicts: pa.Table

    def places(self) -> pa.Table:
        """Return the file groups that the write would have files in, each with its rows.

        `bucket` is the number of a simple bucket, `node` the position of a consistent one. A
        partition of consistent buckets that the write opens is one row without a `file_id`: it gets
        its ring when the write has begun. `rows` counts rows as they are given, a key that is given
        twice twice; it is 0 for a bucket that an overwrite empties.
        """
        return self._places

    def conflicts(self) -> pa.Table:
        """Return the live writers and pending plans that have one of the places, the oldest first.

        `rule` would apply if the other completed first (docs/concurrency.md), `outcome` is what
        follows, and `certain` is true if the write is then refused, whatever else happens. `rule`
        is null if both complete. `partition` to `file_id` are where the rule applies, and `places`
        is how many both have.
        """
        return self._conflicts

    def __str__(self) -> str:
        places, others = self._places, self._conflicts.to_pylist()
        rows = sum(places["rows"].to_pylist())
        partitions = len(set(places["partition"].to_pylist()))
        where = f"{counted(places.num_rows, 'place')} in {counted(partitions, 'partition')}"
        lines = [f"{counted(rows, 'row')} to {where}"]
        if new := places["file_id"].null_count:
            lines.append(f"  {counted(new, 'new partition')}, which the write gives its first ring")
        against = [other for other in others if other["outcome"] != Outcome.BOTH]
        conflicts = f"{counted(len(against), 'conflict')} if they complete first"
        there = f"{counted(len(others), 'other')} at work there: {conflicts}"
        lines.append(there if others else "no other at work there")
        lines += map(_line, against[:_SHOWN_MAX])
        if len(against) > _SHOWN_MAX:
            lines.append(f"  ... and {len(against) - _SHOWN_MAX} more")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<preview of a write: {str(self).partition(chr(10))[0]}>"


def _line(other: Mapping[str, Any]) -> str:
    names = ("job", "host", "user", "process")
    writer = WriterIdentity(**{name: other[name] for name in names if other[name] is not None})
    sure = "" if other["certain"] else ", perhaps"
    return (
        f"  {other['kind']} {other['instant']} of {writer.description},"
        f" partition {other['partition']!r}: {other['outcome']}{sure}"
    )


def write_preview(session: TableSession, intent: WriteIntent, places: Places) -> WritePreview:
    """Return the preview of a write with these places."""
    met = meetings(session, intent, places)
    found = pa.Table.from_pylist(list(_place_rows(session, places)), _PLACES)
    others = pa.Table.from_pylist([_meeting_row(session, each) for each in met], _CONFLICTS)
    return WritePreview(found, others)


def _place_rows(session: TableSession, places: Places) -> Iterator[dict[str, Any]]:
    rows = [{**_where(session, group), "rows": count} for group, count in places.rows.items()]
    for partition, count in places.new.items():
        rows.append({"partition": storable(partition), "file_id": None, "rows": count})
    yield from sorted(rows, key=lambda row: (row["partition"], row["file_id"] or ""))


def _where(session: TableSession, group: FileGroupId) -> dict[str, Any]:
    has_numbers = session.groups.count is not None
    return {
        "partition": storable(group.partition),
        "bucket": bucket_number(group.file_id) if has_numbers else None,
        "node": session.groups.node(group),
        "file_id": group.file_id,
    }


def _meeting_row(session: TableSession, met: Meeting) -> dict[str, Any]:
    is_known = met.writer != WriterIdentity()
    return {
        "instant": met.other.requested,
        "kind": met.other.kind.value,
        **(asdict(met.writer) if is_known else {}),
        **_where(session, met.group),
        "places": met.shared,
        "rule": met.rule,
        "rule_says": met.rule_says,
        "outcome": met.outcome.value,
        "certain": met.is_certain,
    }
