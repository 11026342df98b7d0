"""What each kind of write does, whichever engine runs it: a job for the tasks, and an end.

A plan is made once the instant has begun, so that what it sees of the table is either part of it
or found later by the check for conflicts. Its `finish` runs where the write began, when all tasks
are done: it opens the buckets that are new, and empties those that are overwritten with nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyhudi.errors import ConflictError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.read.lookup import GroupView
from pyhudi.read.plan import AtRequest, Now, Point, Question, Reader
from pyhudi.table.schema import PARTITION_PATH, RECORD_KEY
from pyhudi.table.state import TableState
from pyhudi.write.deletes import lookup_columns
from pyhudi.write.files.spec import Part, WriteSpec
from pyhudi.write.group_files import Files
from pyhudi.write.intent import PartitionScope
from pyhudi.write.tasks import DeleteJob, GroupJob, RowsJob, Target, UpdateJob
from pyhudi.write.writer import TableWriter

Finish: TypeAlias = Callable[[list[WriteStat]], list[WriteStat]]


@dataclass(frozen=True, slots=True)
class WritePlan:
    job: GroupJob
    finish: Finish  # from the stats of the tasks to those of the whole write


MakePlan: TypeAlias = Callable[[WriteSpec], WritePlan]


class WritePlans:
    """Plans for one table. Each method is a `MakePlan` once its other arguments are given."""

    def __init__(self, writer: TableWriter) -> None:
        self._writer = writer

    # -- the kinds of writes

    def upsert(self, spec: WriteSpec) -> WritePlan:
        is_optimistic = self._writer.config.concurrency is not ConcurrencyMode.NON_BLOCKING
        return self._rows(spec, Target.LOAD if is_optimistic else Target.LOG)

    def upsert_part(self, spec: WriteSpec, part: Part) -> WritePlan:
        """Parts of rows, which only logs can hold."""
        return WritePlan(
            RowsJob(self.part_files(replace(spec, part=part)), Target.LOG), self.opened
        )

    def part_files(self, spec: WriteSpec) -> Files:
        """How tasks write parts of rows: knowing which keys are there.

        A key counts as there only by writes that were requested before this one. Readers put logs
        in that order, and a later one's row would stand behind our part of it.
        """
        state = self._writer.state()
        live = self._view(state, [RECORD_KEY, PARTITION_PATH], AtRequest(spec.requested))
        return replace(self.files(spec, state), live=live)

    def append(self, spec: WriteSpec) -> WritePlan:
        return self._rows(spec, Target.LOAD)

    def append_new(self, spec: WriteSpec) -> WritePlan:
        """As append, but no key may be there already."""
        state = self._writer.state()
        job = RowsJob(
            self.files(spec, state), self._target(Target.LOAD), known=self.known_keys(state)
        )
        return WritePlan(job, self.opened)

    def known_keys(self, state: TableState) -> GroupView:
        """Return a view of the keys that the table has in this state."""
        return self._view(state, [RECORD_KEY, PARTITION_PATH])

    def _rows(self, spec: WriteSpec, target: Target) -> WritePlan:
        return WritePlan(RowsJob(self.files(spec), self._target(target)), self.opened)

    def _target(self, target: Target) -> Target:
        return target if self._writer.is_mor else Target.MERGED_BASE

    def update(self, spec: WriteSpec, columns: Collection[str]) -> WritePlan:
        state = self._writer.state()
        job = UpdateJob(self.files(spec, state), self._view(state, None), tuple(columns))
        return WritePlan(job, self.opened)

    def delete(
        self, spec: WriteSpec, given: Collection[str], *, is_located: bool, unconditional: bool
    ) -> WritePlan:
        """Of these keys; `given` are the columns that come with them."""
        state, view = None, None
        if not is_located:
            state = self._writer.state()
            view = self._view(state, lookup_columns(self._writer.config))
        job = DeleteJob(self.files(spec, state), view, given, unconditional=unconditional)
        return WritePlan(job, self.opened)

    def overwrite(self, spec: WriteSpec, replaces: PartitionScope) -> WritePlan:
        """Plan to put rows into the place of all that these partitions hold."""
        state = self._writer.state()
        files = self.files(spec, state, stood_for=True)
        there = self._writer.current_slices(state)

        def finish(stats: list[WriteStat]) -> list[WriteStat]:
            written = {_group(stat) for stat in stats}
            is_cleared = replaces.of(stats)
            emptied = [g for g in there if g not in written and is_cleared(g.partition)]
            self._refuse_replaced(stats)
            return [*stats, *(files.base(group, ()) for group in sorted(emptied))]

        return WritePlan(RowsJob(files, Target.BASE, partitions=replaces.partitions), finish)

    # -- what they need

    def files(
        self, spec: WriteSpec, state: TableState | None = None, *, stood_for: bool = False
    ) -> Files:
        """How tasks write; with `stood_for` they know the base files that theirs stand for.

        Rows go to the file groups of the state, where a plan has looked at one.
        """
        writer = self._writer
        bases, slices = {}, None
        if stood_for or not writer.is_mor:
            slices = writer.current_slices(state, are_rewritten=not stood_for)
            bases = {group: s.base for group, s in slices.items() if s.base is not None}
        elif state is not None:
            slices = writer.current_slices(state)
        return Files(writer.storage, spec, writer.config, writer.routing(slices), bases)

    def _view(
        self, state: TableState, columns: list[str] | None, point: Point | None = None
    ) -> GroupView:
        reader = Reader(self._writer.loader)
        question = Question(None if columns is None else tuple(columns), meta=True)
        return GroupView.of(reader.plan_snapshot(state, point or Now(), question))

    def opened(self, stats: list[WriteStat]) -> list[WriteStat]:
        """Seed the buckets that the write would otherwise open with a log."""
        self._refuse_replaced(stats)
        if self._writer.is_mor:
            opened = {_group(stat) for stat in stats if stat.log_files is None}
            appended = {_group(stat): None for stat in stats if stat.log_files is not None}
            self._writer.prepare(sorted({group.partition for group in appended}), opened)
            self._refuse_moved(appended)
        return stats

    def _refuse_moved(self, groups: Collection[FileGroupId]) -> None:
        """Another engine may have given a bucket its first file, and another id, meanwhile."""
        layouts = self._writer.groups.layouts({group.partition for group in groups})
        for group in groups:
            layout = layouts.get(group.partition)
            if layout is not None and not layout.has(group):
                bucket, partition = layout.ordinal(group.file_id), group.partition
                known = layout.group(bucket).file_id
                raise ConflictError(
                    f"bucket {bucket} of partition {partition!r} was opened by another writer",
                    why=f"it has the file group {known}, and the rows are in {group.file_id}",
                    next_step="Write again",
                )

    def _refuse_replaced(self, stats: Iterable[WriteStat]) -> None:
        self._writer.refuse_replaced({_group(stat) for stat in stats})


def _group(stat: WriteStat) -> FileGroupId:
    return FileGroupId(stat.partition_path or "", stat.file_id or "")
