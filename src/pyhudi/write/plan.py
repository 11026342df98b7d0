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
from pyhudi.index.routing import Place
from pyhudi.index.simple_bucket import bucket_of_file
from pyhudi.read.lookup import Lookup
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
        live = self._lookup([RECORD_KEY, PARTITION_PATH], AtRequest(spec.requested))
        return replace(self.files(spec), live=live)

    def append(self, spec: WriteSpec) -> WritePlan:
        return self._rows(spec, Target.LOAD)

    def append_new(self, spec: WriteSpec) -> WritePlan:
        """As append, but no key may be there already."""
        return self._rows(spec, Target.LOAD, self.known_keys(self._writer.state()))

    def known_keys(self, state: TableState) -> Lookup:
        """Plan a lookup of the keys that the table has in this state."""
        return self._lookup([RECORD_KEY, PARTITION_PATH], state=state)

    def _rows(self, spec: WriteSpec, target: Target, known: Lookup | None = None) -> WritePlan:
        target = target if self._writer.is_mor else Target.MERGED_BASE
        return WritePlan(RowsJob(self.files(spec), target, known=known), self.opened)

    def update(self, spec: WriteSpec, columns: Collection[str]) -> WritePlan:
        job = UpdateJob(self.files(spec), self._lookup(None), tuple(columns))
        return WritePlan(job, self.opened)

    def delete(
        self, spec: WriteSpec, given: Collection[str], *, is_located: bool, unconditional: bool
    ) -> WritePlan:
        """Of these keys; `given` are the columns that come with them."""
        lookup = None if is_located else self._lookup(lookup_columns(self._writer.config))
        job = DeleteJob(self.files(spec), lookup, given, unconditional=unconditional)
        return WritePlan(job, self.opened)

    def overwrite(self, spec: WriteSpec, replaces: PartitionScope) -> WritePlan:
        """Plan to put rows into the place of all that these partitions hold."""
        files = self.files(spec, stood_for=True)
        there = self._writer.current_slices()

        def finish(stats: list[WriteStat]) -> list[WriteStat]:
            written = {_place(stat) for stat in stats}
            is_cleared = replaces.of(stats)
            emptied = [p for p in there if p not in written and is_cleared(p[0])]
            self._refuse_replaced(stats)
            return [*stats, *(files.base(place, ()) for place in sorted(emptied))]

        return WritePlan(RowsJob(files, Target.BASE, partitions=replaces.partitions), finish)

    # -- what they need

    def files(self, spec: WriteSpec, *, stood_for: bool = False) -> Files:
        """How tasks write; with `stood_for` they know the base files that theirs stand for."""
        writer = self._writer
        bases = {}
        if stood_for or not writer.is_mor:
            slices = writer.current_slices(are_rewritten=not stood_for)
            bases = {place: s.base for place, s in slices.items() if s.base is not None}
        return Files(writer.storage, spec, writer.config, writer.file_ids(), bases)

    def _lookup(
        self,
        columns: list[str] | None,
        point: Point | None = None,
        state: TableState | None = None,
    ) -> Lookup:
        reader = Reader(self._writer.loader)
        question = Question(None if columns is None else tuple(columns), meta=True)
        state = state or self._writer.state()
        return Lookup.of(reader.plan_snapshot(state, point or Now(), question))

    def opened(self, stats: list[WriteStat]) -> list[WriteStat]:
        """Seed the buckets that the write would otherwise open with a log."""
        self._refuse_replaced(stats)
        if self._writer.is_mor:
            opened = {_place(stat) for stat in stats if stat.log_files is None}
            logs = {_place(stat): stat for stat in stats if stat.log_files is not None}
            self._writer.prepare({partition for partition, _ in logs}, opened)
            self._refuse_moved(logs.values())
        return stats

    def _refuse_moved(self, stats: Iterable[WriteStat]) -> None:
        """Another engine may have given a bucket its first file, and another id, meanwhile."""
        for stat in stats:
            partition, bucket = _place(stat)
            known = self._writer.groups.known(partition, bucket)
            if known is not None and known != stat.file_id:
                raise ConflictError(
                    f"bucket {bucket} of partition {partition!r} was opened by another writer",
                    why=f"it has the file group {known}, and the rows are in {stat.file_id}",
                    next_step="Write again",
                )

    def _refuse_replaced(self, stats: Iterable[WriteStat]) -> None:
        self._writer.refuse_replaced({FileGroupId(_place(s)[0], s.file_id or "") for s in stats})


def _place(stat: WriteStat) -> Place:
    return stat.partition_path or "", bucket_of_file(stat.file_id or "")
