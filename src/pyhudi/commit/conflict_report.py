"""What a losing writer reports to its caller, and what it records of that in the table.

The report says which write won, where, by which rule, what that cost, and whether a retry helps.
The same facts are an error's text, its `facts`, and an object under `.hoodie/.pyhudi/conflicts/`,
where `table.inspect.conflicts()` finds them later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pyhudi.commit.concurrent import has_deletes_without_keys
from pyhudi.commit.conflict_notes import CONFLICT_FOLDER
from pyhudi.commit.key_sample import shared_keys
from pyhudi.commit.proposals import Refused, Rule
from pyhudi.commit.validation import SchemaConflict
from pyhudi.conflict.rules import Conflict, ConflictRule, Retry, WriteKind, conflict_key
from pyhudi.conflict.schema_to_record import TableSchemaText
from pyhudi.errors import (
    ConcurrentSchemaEvolutionError,
    ConflictError,
    EarlyConflictError,
    HudiError,
)
from pyhudi.format.files.file_names import FileGroupId, group_of_path
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.writer_identity import WriterIdentity
from pyhudi.index.simple_bucket import bucket_number
from pyhudi.storage.protocol import Storage
from pyhudi.table.schema_changes import column_changes
from pyhudi.timeline.instant_time import milliseconds_between

_KEYS_SHOWN = 5

_NEXT_STEPS = {
    Retry.COMMIT: "Write again",
    Retry.WRITE: "Read the table as it is now and write again",
    Retry.LATER: "Write again when the other write is done",
    Retry.NO: "Write this partition with the engine that replaced its file groups",
}

#: Pending services that `cancel_resize` cancels; `cancel_compaction` cancels the others.
_RESIZING = (WriteKind.CLUSTERING, WriteKind.RESIZE)

#: The next step for a write whose change of the schema contradicts another write's.
SCHEMA_STEP = (
    "Give the columns other names, or cast them to the types that the table has now, and write"
    " again; nothing of this write is visible"
)
_COLUMNS_SHOWN = 3

#: Refusals of a write that other writers took for dead and rolled back while it slept.
ROLLED_BACK_RULES = frozenset({Rule.ROLLED_BACK, Rule.NOT_INFLIGHT, Rule.LOG_NOT_WHOLE})


class Found(StrEnum):
    """When a conflict was found."""

    EARLY = "early"  # while the write ran
    END = "end"  # when it asked to complete


@dataclass(frozen=True, slots=True)
class Loser:
    """The write that has to yield, and what it had done."""

    requested: str
    writer: WriterIdentity
    stats: Collection[WriteStat]
    seconds: float
    is_numbered: bool = True  # file ids begin with the numbers of buckets
    #: The position of a file group's node, on a table whose buckets have no numbers.
    node: Callable[[FileGroupId], int | None] | None = None
    found: Found = Found.END
    now: str | None = None  # when it was found, as the timeline counts
    strategy: str | None = None  # of early detection, which found a write that is pending
    announced_ago_ms: int | None = None  # how long before that the other had announced its file


def conflict_error(
    storage: Storage, loser: Loser, conflict: Conflict, winner: WriterIdentity
) -> ConflictError:
    """Return the error for a lost conflict, and record it in the table."""
    facts = conflict_facts(storage, loser, conflict, winner)
    _note(storage, loser, facts)
    kind = EarlyConflictError if loser.found is Found.EARLY else ConflictError
    return kind(
        f"the write {loser.requested} lost to another write",
        why=_why(facts, conflict, winner),
        next_step=_next_step(facts, conflict),
        facts=facts,
    )


def rolled_back_error(
    storage: Storage, loser: Loser, refused: Refused, judge: WriterIdentity, completed: str | None
) -> ConflictError:
    """Return the error for a write that was rolled back, and record it as a conflict is recorded.

    The rollback concerns all file groups of the write, so the facts name none.
    """
    theirs = {**_identity(refused.instant, judge), "completed": completed, "kind": "rollback"}
    facts = _facts(loser, theirs, refused.rule, Retry.WRITE)
    _note(storage, loser, facts)
    by = f" ({refused.instant}, by {judge.description})" if refused.instant else ""
    kind = EarlyConflictError if loser.found is Found.EARLY else ConflictError
    return kind(
        f"the write {loser.requested} was not completed",
        why=f"{refused.rule}{by}; {_lost(facts)}",
        next_step="Write again; nothing of this write is visible",
        facts=facts,
    )


def schema_error(
    storage: Storage, loser: Loser, evolved: SchemaConflict, winner: WriterIdentity
) -> ConcurrentSchemaEvolutionError:
    """Return the error for a write whose change of the schema contradicts another write's."""
    other = evolved.by
    theirs: dict[str, Any] = {**_identity(None, winner), "completed": None, "kind": "write"}
    by = "it was so when the write began"
    if other is not None:
        theirs |= {"instant": other.requested, "completed": other.completed}
        by = f"the write {other.requested} completed at {other.completed}, by {winner.description}"
    columns = evolved.contradiction.columns
    schemas = {"start": evolved.start, "now": evolved.now, "own": evolved.own}
    facts = {
        **_facts(loser, theirs, Rule.SCHEMA_EVOLVED, Retry.NO),
        "retry_says": "no retry will succeed while the rows bring these columns as they are",
        "schemas": {name: text and text.avro_json for name, text in schemas.items()},
        "columns": [{"column": path, "why": why} for path, why in columns],
        "changes": {
            "theirs": _changes(evolved.start, evolved.now),
            "ours": _changes(evolved.start, evolved.own),
        },
    }
    _note(storage, loser, facts)
    shown = "; ".join(f"{path}: {why}" for path, why in columns[:_COLUMNS_SHOWN])
    what = f"the write {loser.requested} was" if loser.requested else "the change of the schema was"
    lost = f"; {_lost(facts)}" if loser.requested else ""
    return ConcurrentSchemaEvolutionError(
        f"{what} not completed",
        why=f"{Rule.SCHEMA_EVOLVED} ({shown}): {by}{lost}",
        next_step=SCHEMA_STEP,
        facts=facts,
    )


def _changes(before: TableSchemaText | None, after: TableSchemaText | None) -> list[dict[str, Any]]:
    if after is None:
        return []
    return [
        asdict(change)
        for change in column_changes(None if before is None else before.arrow, after.arrow)
    ]


def _note(storage: Storage, loser: Loser, facts: Mapping[str, Any]) -> None:
    if not loser.requested:
        return  # it never began
    with suppress(HudiError):  # a missing note does no harm
        storage.create(f"{CONFLICT_FOLDER}/{loser.requested}.json", json.dumps(facts).encode())


def conflict_facts(
    storage: Storage, loser: Loser, conflict: Conflict, winner: WriterIdentity
) -> dict[str, Any]:
    """Return the facts of the conflict as plain values, for JSON."""
    group, other = conflict.group, conflict.other
    identity = _identity(other.requested, winner)
    winning = {**identity, "completed": other.completed, "kind": other.kind.value}
    return {
        **_facts(loser, winning, conflict.rule, conflict.retry),
        "partition": group.partition,
        "file_group": group.file_id,
        "bucket": bucket_number(group.file_id) if loser.is_numbered else None,
        "node": None if loser.is_numbered or loser.node is None else loser.node(group),
        "keys": _keys(storage, loser, conflict),
    }


def _keys(storage: Storage, loser: Loser, conflict: Conflict) -> list[str] | None:
    """Return some keys that both wrote in the file group; an empty list only if that is certain."""
    other, group = conflict.other, conflict.group
    key = conflict_key if loser.is_numbered else _itself
    own = [s for s in loser.stats if s.path and _lies_in(s.path, group, key)]
    theirs = [path for path in other.files if _lies_in(path, group, key)]
    is_compaction = other.kind is WriteKind.COMPACTION
    paths = [s.path for s in own if s.path]
    keys = shared_keys(storage, paths, theirs, _KEYS_SHOWN, is_compaction=is_compaction)
    is_doubtful = other.has_deletes_without_keys or any(map(has_deletes_without_keys, own))
    return None if not keys and is_doubtful else keys


def _facts(
    loser: Loser, theirs: Mapping[str, Any], rule: ConflictRule | Rule, retry: Retry
) -> dict[str, Any]:
    """Return the facts, without the file group of the conflict."""
    return {
        "rule": rule.name.lower(),
        "rule_says": rule.value,
        "retry": retry.name.lower(),
        "retry_says": retry.value,
        "ours": _identity(loser.requested, loser.writer),
        "theirs": theirs,
        "partition": None,
        "file_group": None,
        "bucket": None,
        "node": None,
        "keys": None,
        "found": loser.found.value,
        "strategy": loser.strategy,
        "found_after_ms": _found_after_ms(loser, theirs.get("completed")),
        "lost": {
            "rows": sum(s.rows_written + (s.num_deletes or 0) for s in loser.stats),
            "bytes": sum(s.total_write_bytes or 0 for s in loser.stats),
            "files": len(loser.stats),
            "seconds": round(loser.seconds, 3),
        },
    }


def _found_after_ms(loser: Loser, completed: str | None) -> int | None:
    """Return how long after the other's completion, by this clock, the conflict was found.

    If the other is pending, it counts from when it announced its file, by the store's clock.
    """
    if completed is None:
        return loser.announced_ago_ms
    if loser.now is None:
        return None
    return max(0, milliseconds_between(completed, loser.now))


def _lies_in(path: str, group: FileGroupId, key: Callable[[FileGroupId], Hashable]) -> bool:
    """True if the file is of the file group, or of another one with its key."""
    other = group_of_path(path)
    return other is not None and key(other) == key(group)


def _itself(group: FileGroupId) -> FileGroupId:
    return group


def _identity(requested: str | None, writer: WriterIdentity) -> dict[str, Any]:
    return {"instant": requested, **asdict(writer)}


def _why(facts: Mapping[str, Any], conflict: Conflict, winner: WriterIdentity) -> str:
    other, group = conflict.other, conflict.group
    state = f"completed at {other.completed}" if other.completed else "is pending"
    if conflict.rule is ConflictRule.RESIZE_CANCELLED:
        state = "was cancelled"
    bucket = "" if facts["bucket"] is None else f" (bucket {facts['bucket']})"
    if facts["node"] is not None:
        bucket = f" (node {facts['node']})"
    keys = ""
    if facts["keys"]:
        keys = f"; both wrote keys such as {', '.join(map(repr, facts['keys'][:3]))}"
    elif facts["keys"] == []:
        keys = "; they have no key in common"
    return (
        f"{conflict.rule.value}: the {other.kind.value} {other.requested} {state}, by"
        f" {winner.description}, in file group {group.file_id}{bucket} of partition"
        f" {group.partition!r}{keys}; {_lost(facts)}"
    )


def _lost(facts: Mapping[str, Any]) -> str:
    lost = facts["lost"]
    return f"this lost {lost['rows']} rows in {lost['files']} files, {lost['seconds']} s of work"


def _next_step(facts: Mapping[str, Any], conflict: Conflict) -> str:
    step = _NEXT_STEPS[conflict.retry]
    other = conflict.other
    if other.damaged_plan is not None:
        verb = "cancel_resize" if other.kind in _RESIZING else "cancel_compaction"
        return (
            f"Its plan {other.damaged_plan!r} cannot be read, so it may have any file group, and"
            " waiting does not help. If another engine planned it, let that cancel it; otherwise"
            f" cancel it with table.services.{verb}({other.requested!r}). Then write again"
        )
    if conflict.rule is ConflictRule.SAME_FILE_GROUP and facts["keys"] == []:
        return f"{step}; with more buckets, or with an ordering, such writes do not meet"
    return step
