"""Resizes by hand: their plans, closes and completions, without any rows in the children.

For tests of what is decided. Rows are given to children in the tests of `services.resizing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from many_writers.services_by_hand import BegunService, begin_service
from pyhudi.commit.proposals import Close, Complete, Decided, Outcome
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.ring_file import NodeTag, RingNode
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    encode_replace_commit_metadata,
)
from pyhudi.format.timeline.instant import Action
from pyhudi.format.timeline.resize_plan import (
    GroupChange,
    InputSlice,
    ResizePlan,
    encode_resize_plan,
)
from pyhudi.session.session import TableSession

_SYNC = bytes(16)


@dataclass(frozen=True, slots=True)
class HandmadeResize:
    """A resize that is under way: of one file group of a partition each, into several."""

    service: BegunService
    plan: ResizePlan

    @property
    def requested(self) -> str:
        return self.service.requested

    def close(self) -> Outcome:
        return self.service.session.log.append(Close(self.requested))

    def complete(self) -> str:
        """Its completion time. It brings no rings, which only a table with rings has."""
        schema = self.service.session.schema.avro()
        stats = {
            change.partition: tuple(_stat(group, self.requested) for group in change.made)
            for change in self.plan.groups
        }
        replaced = {
            change.partition: tuple(group.file_id for group in change.inputs)
            for change in self.plan.groups
        }
        metadata = CommitMetadata(
            stats,
            extra_metadata={"schema": schema},
            operation_type="CLUSTER",
            partition_to_replace_file_ids=replaced,
        )
        data = encode_replace_commit_metadata(metadata, _SYNC)
        log = self.service.session.log
        outcome = log.append(Complete(self.requested, Action.CLUSTERING, None, data))
        assert isinstance(outcome, Decided), outcome
        assert outcome.entry.time is not None
        return outcome.entry.time


def plan_resize(
    session: TableSession,
    changes: Mapping[FileGroupId, Iterable[FileGroupId]],
    *,
    is_dual: bool = False,
) -> HandmadeResize:
    """Put the plan of a resize on the timeline: each file group into its children.

    `is_dual`: Hudi can execute it, too.
    """
    plan = ResizePlan(
        tuple(
            GroupChange(
                group.partition,
                0,
                (InputSlice(group.file_id, None),),
                tuple(
                    RingNode(100 * n, child.file_id.removesuffix("-0"), NodeTag.REPLACE)
                    for n, child in enumerate(children, 1)
                ),
            )
            for group, children in changes.items()
        ),
        is_dual,
    )
    data = encode_resize_plan(plan, session.storage.uri, _SYNC)
    return HandmadeResize(begin_service(session, Action.CLUSTERING, data), plan)


def _stat(group: FileGroupId, requested: str) -> WriteStat:
    name = f"{group.file_id}_0-0-0_{requested}.parquet"
    return WriteStat(
        file_id=group.file_id,
        path=f"{group.partition}/{name}",
        partition_path=group.partition,
        num_writes=0,
    )
