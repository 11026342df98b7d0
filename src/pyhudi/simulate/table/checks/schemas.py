"""Whether schemas that change while others write keep every column and every value.

Commits record a schema each. RFC-82 and pyhudi's readers go by the greatest completion of a write,
Hudi's readers by the greatest request of a write or a table service, and both must find the same
one: after every change of the store, for no reader waits until the table is at rest. From commit
to commit columns come, widen and go, and each of them because some process wanted it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import pyarrow as pa

from pyhudi.conflict.schema_to_record import TableSchemaText
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.instant import Instant, State
from pyhudi.simulate.table.actors.evolver import ADDED, INT_MAX
from pyhudi.simulate.table.checks.change_log import Change
from pyhudi.simulate.table.checks.evidence import TIMELINE_FOLDER, Evidence, Published
from pyhudi.simulate.table.history import History
from pyhudi.simulate.table.table import ToyReader

Columns = Mapping[str, pa.DataType]


@cache
def _columns(text: str) -> Columns:
    return {field.name: field.type for field in TableSchemaText(text).arrow}


def _recorded(write: Published) -> Columns:
    return _columns(write.metadata.schema_json or "")


def _bringing(evidence: Evidence) -> dict[str, Published]:
    """Return the writes, without those of table services, which bring no schema."""
    return {r: write for r, write in evidence.writes.items() if not write.is_service}


def two_orders_one_schema(evidence: Evidence) -> Iterator[str]:
    """After every change the greatest request and the greatest completion record one schema.

    Of requests those of table services count, too.
    """
    if not evidence.kind.evolves:
        return
    there: dict[str, Published] = {}
    for change in evidence.changes:
        write = evidence.writes.get(_completed_by(change) or "")
        if write is None:
            continue
        if change.data is None:
            there.pop(write.requested, None)  # archived
        else:
            there[write.requested] = write
        brought = [each for each in there.values() if not each.is_service]
        if not brought:
            continue
        newest = max(brought, key=lambda each: each.completed)
        latest = there[max(there)]
        if _recorded(newest) != _recorded(latest):
            yield (
                f"when {change.actor} had changed {change.path}, {newest.requested} was the last to"
                f" complete, {latest.requested} the last to begin, and their schemas differ"
            )


def _completed_by(change: Change) -> str | None:
    """Return the instant whose completed file changed."""
    folder, _, name = change.path.rpartition("/")
    if folder != TIMELINE_FOLDER:
        return None
    instant = Instant.parse(file_name(name))
    return instant.requested if instant.state is State.COMPLETED else None


def columns_change_on_purpose(evidence: Evidence, history: History) -> Iterator[str]:
    """Each commit's columns are those of the one before, but for what some process wanted."""
    if not evidence.kind.evolves:
        return
    gone: set[str] = set()
    again: set[str] = set()  # came back, and were judged then
    before: Columns = {}
    for write in sorted(_bringing(evidence).values(), key=lambda each: each.completed):
        now, place = _recorded(write), write.change.place
        asked = [change for change in history.proposed if change.place <= place]
        dropped = {name for change in asked for name in change.dropped}
        open_ = (c for c in asked if c.answered is None or c.answered >= place)
        added = {name for change in open_ for name in change.added}
        for name, type_ in before.items():
            if name not in now and name not in dropped:
                yield f"{write.requested} dropped {name}, which no process wanted"
            elif name in now and type_ == pa.int64() and now[name] == pa.int32():
                yield f"{write.requested} made {name} narrower"
        for name in now.keys() - before.keys() if before else ():
            if name not in added:
                how = "back" if name in gone else "up"
                yield f"{write.requested} brought {name} {how}, which no process wanted"
        for change in (c for c in asked if c.is_done and (c.answered or 0) <= place):
            if kept := change.dropped & now.keys() - added - again:
                yield f"{write.requested} has {sorted(kept)}, whose drop was acknowledged"
            if lost := (change.added | change.widened) - now.keys() - dropped:
                yield f"{write.requested} lacks {sorted(lost)}, whose addition was acknowledged"
        gone |= before.keys() - now.keys()
        again |= gone & now.keys()
        before = now


def no_value_is_lost(evidence: Evidence, history: History) -> Iterator[str]:
    """I15. No value of a live column is ever lost or unreadable, as of any retained time."""
    if not evidence.kind.evolves:
        return
    reader = ToyReader(evidence.storage, evidence.kind)
    state = reader.load()
    since = reader.retention(state).since
    columns: Columns = {}
    dropped = {name for change in history.proposed for name in change.dropped}
    for write in sorted(evidence.writes.values(), key=lambda each: each.completed):
        columns = columns if write.is_service else _recorded(write)
        time = write.completed
        if time < since:
            continue
        read = reader.schema_as_of(state, time)
        if {name for name in read.names if not name.startswith("_hoodie_")} != columns.keys():
            yield f"as of {time} the columns are {sorted(columns)}, and a reader sees {read.names}"
        for key, row in reader.as_of(state, time).items():
            written = history.numbers.get((key, row.version), {})
            for name in ADDED:
                if name not in columns:
                    if name in written and name not in dropped:
                        yield f"{name} of {key} is written, and no column as of {time}"
                    continue
                value = (row.more or {}).get(name)
                if value != written.get(name):
                    yield f"{name} of {key} is {value}, not {written.get(name)}, as of {time}"
                elif value is not None and value > INT_MAX and columns[name] == pa.int32():
                    yield f"{name} of {key} cannot hold {value}, as of {time}"
