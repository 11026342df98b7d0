"""A commit without rows that changes the table's schema: `ALTER_SCHEMA`.

It begins and completes in one entry of the decision log, so no instant has a time between its
request and its completion. Its request is the greatest of the table, and so is its completion.
Readers that go by either time see the schema that it brings.

The schema is drafted anew in each round of the append, from what other writes have made of it by
then: the changes since `start` are applied to the schema in force.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyhudi.commit.concurrent import ConcurrentWrites
from pyhudi.commit.proposals import AlreadyDone, Begin, Draft, Facts, Refused, Rule
from pyhudi.commit.validation import (
    Denied,
    DocumentationChange,
    SchemaChange,
    SchemaConflict,
    SchemaUnchanged,
    schema_verdict,
)
from pyhudi.conflict.schema_to_record import WriteSchemas, schema_extra
from pyhudi.format.timeline.commit_metadata import CommitMetadata, encode_commit_metadata
from pyhudi.format.timeline.decision_entry import EntryKind
from pyhudi.format.timeline.instant import Action
from pyhudi.format.timeline.writer_identity import WRITER_KEY, WriterIdentity
from pyhudi.timeline.live import LiveTimeline

#: How Hudi calls a commit that only changes the schema.
ALTER_SCHEMA = "ALTER_SCHEMA"


@dataclass(frozen=True, slots=True)
class SchemaEvolution:
    """The proposal to change the table's schema, without rows."""

    action: Action
    others: ConcurrentWrites
    schemas: WriteSchemas
    writer: WriterIdentity
    sync: bytes

    requested: ClassVar[None] = None
    announce: ClassVar[None] = None

    def draft(self, facts: Facts, live: LiveTimeline) -> Draft | Refused | AlreadyDone:
        if (no := Begin(self.action).refusal(facts, live)) is not None:
            return no
        match schema_verdict(self.schemas, self.others, live):
            case Denied() as denied:
                return Refused(Rule.DENIED, detail=denied.error.why, reason=denied)
            case SchemaConflict(by=by) as conflict:
                other = None if by is None else by.requested
                return Refused(Rule.SCHEMA_EVOLVED, other, reason=conflict)
            case SchemaUnchanged():
                return Refused(Rule.NOTHING_TO_EVOLVE)
            case SchemaChange(schema) | DocumentationChange(schema):
                pass
        extra = {**schema_extra(schema), WRITER_KEY: self.writer.text}
        # Hudi cannot load a table one of whose commits has null for its statistics.
        metadata = CommitMetadata(
            {}, compacted=False, extra_metadata=extra, operation_type=ALTER_SCHEMA
        )
        data = encode_commit_metadata(metadata, self.sync)
        kind, mark = EntryKind.COMPLETE, schema.fingerprint
        return Draft(kind, self.action, data, whole=True, schema=mark, basis=schema)
