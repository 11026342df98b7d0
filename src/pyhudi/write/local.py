"""Writing in this process: load, decide, act, with plain Arrow and no Spark.

The same task functions (`log_writer`, `base_writer`, `copy_on_write`) run in Spark's executors;
here they run one after the other. Begin, completion and everything else that others can see is the
transaction's, and the decision log's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.plan.scan import merge_rule
from pyhudi.write.buffer import RowBuffer
from pyhudi.write.deletes import LocatedDeletes
from pyhudi.write.files.log_file import write_log
from pyhudi.write.files.merged_base import rewrite_base
from pyhudi.write.files.spec import (
    DeleteRows,
    KeyedRows,
    Part,
    WriteSpec,
    create_partition_metadata,
)
from pyhudi.write.group_files import Files
from pyhudi.write.intent import WriteIntent
from pyhudi.write.new_keys import NewKeys
from pyhudi.write.plan import MakePlan, WritePlans
from pyhudi.write.rebase import files_by_group, written_rows
from pyhudi.write.result import WriteResult
from pyhudi.write.retry import Work
from pyhudi.write.seeds import replaced_for_good
from pyhudi.write.spill import SpillingLogWriter, spilled_logs
from pyhudi.write.writer import TableWriter


class LocalWriter(TableWriter):
    """Writes one table from this process, one write at a time."""

    def write(
        self,
        batches: Iterator[pa.RecordBatch],
        intent: WriteIntent,
        part: Part | None = None,
    ) -> WriteResult:
        """Upsert the rows of a stream, which is read once: whole, or the parts of an owner."""
        return self.in_turn(lambda: self._write(batches, intent, part))

    def _write(
        self,
        batches: Iterator[pa.RecordBatch],
        intent: WriteIntent,
        part: Part | None,
    ) -> WriteResult:
        config = self.ready()
        now = replace(self.spec(""), part=part)
        rows = RowBuffer(config, now.layout.data)
        batches = self.board.counting(batches)
        is_whole = rows.fill(batches, self.settings.buffer_bytes_max if self.is_mor else None)

        def write(spec: WriteSpec) -> list[WriteStat]:
            spec = replace(spec, part=part)
            if not self.is_mor:
                return self._rewrite(spec, rows=rows)
            if is_whole and part is not None:
                return self._append_parts(spec, rows)
            if is_whole:
                return self._append_logs(spec, rows)
            return self._stream_logs(spec, rows, batches)

        partitions = rows.partitions() if is_whole and self.is_mor else ()
        work = Work(
            intent,
            write,
            is_whole,
            partitions=partitions,
            schema=now.avro_schema,
            rewrite=partial(self._rewrite_logs, part) if self.is_mor and not is_whole else None,
        )
        return self.commit(work)

    def append_new(self, batches: Iterator[pa.RecordBatch], intent: WriteIntent) -> WriteResult:
        """Append rows, held in memory, none of whose keys may be in the table."""

        def commit() -> WriteResult:
            config = self.ready()
            if (done := self._finished(intent)) is not None:
                return done  # its keys are in the table by now
            now = self.spec("")
            rows = RowBuffer(config, now.layout.data)
            rows.fill(self.board.counting(batches), None)
            keys = NewKeys(self, rows)
            keys.require()

            def write(spec: WriteSpec) -> list[WriteStat]:
                keys.require()
                if not self.is_mor:
                    return self._rewrite(spec, rows=rows)
                return self._append_logs(spec, rows)

            partitions = rows.partitions() if self.is_mor else ()
            schema = now.avro_schema
            return self.commit(Work(intent, write, partitions=partitions, schema=schema))

        return self.in_turn(commit)

    def delete(self, find: Callable[[], LocatedDeletes], intent: WriteIntent) -> WriteResult:
        """Delete what `find` finds, once the instant has begun: what changes later is a conflict.

        It is asked again if the write has to be repeated.
        """
        return self.in_turn(lambda: self._delete(find, intent))

    def _delete(self, find: Callable[[], LocatedDeletes], intent: WriteIntent) -> WriteResult:
        self.ready()

        def write(spec: WriteSpec) -> list[WriteStat]:
            deletes = find()
            if not self.is_mor:
                return self._rewrite(spec, deletes=deletes)
            return self._append_deletes(spec, deletes)

        return self.commit(Work(intent, write))

    def write_plan(
        self,
        batches: Iterator[pa.RecordBatch],
        columns: Collection[str] | None,
        intent: WriteIntent,
        make_plan: MakePlan,
    ) -> WriteResult:
        """Carry out a plan for rows of these columns, or of all; they are held in memory."""

        def commit() -> WriteResult:
            config, now = self.ready(), self.spec("")
            data = now.layout.data
            chosen = [field for field in data if columns is None or field.name in columns]
            rows = RowBuffer(config, pa.schema(chosen))
            rows.fill(self.board.counting(batches), None)

            def write(spec: WriteSpec) -> list[WriteStat]:
                plan = make_plan(spec)
                rows.route(plan.job.files.routing)
                written = (plan.job.write(group, iter([r])) for group, r in rows.buffered())
                return plan.finish(list(self.noted(s for stats in written for s in stats)))

            return self.commit(Work(intent, write, schema=now.avro_schema))

        return self.in_turn(commit)

    # -- merge on read: logs

    def _append_logs(self, spec: WriteSpec, rows: RowBuffer) -> list[WriteStat]:
        self.prepare(rows.partitions())
        rows.route(self.groups.routing(rows.partitions()))
        stats: list[WriteStat] = []
        for group, keyed in rows.buffered():
            stats += self.noted(write_log(self.storage, spec, group, rows=keyed))
        return stats

    def _append_parts(self, spec: WriteSpec, rows: RowBuffer) -> list[WriteStat]:
        plans = WritePlans(self)
        files = plans.part_files(spec)
        logs = SpillingLogWriter(files)
        rows.route(files.routing)
        added = (logs.add(group, rows=parts, more=False) for group, parts in rows.buffered())
        return plans.opened(list(self.noted(stat for stats in added for stat in stats)))

    def _stream_logs(
        self, spec: WriteSpec, rows: RowBuffer, batches: Iterator[pa.RecordBatch]
    ) -> list[WriteStat]:
        if spec.part is not None:
            files = WritePlans(self).part_files(spec)
        else:
            files = Files(self.storage, spec, self.config, self.routing())
        most = self.settings.buffer_bytes_max
        stats = list(self.noted(spilled_logs(files, rows, batches, most)))
        return WritePlans(self).opened(stats)

    def _rewrite_logs(
        self, part: Part | None, spec: WriteSpec, stats: Sequence[WriteStat]
    ) -> list[WriteStat]:
        """Write rows anew that came as a stream and lie in files of the same write."""
        spec = replace(spec, part=part)
        files = files_by_group(stats).values()
        written = (written_rows(self.storage, spec.layout, paths) for paths in files)
        batches = (part.rows for parts in written for part in parts)
        return self._stream_logs(spec, RowBuffer(self.config, spec.layout.data), batches)

    def _append_deletes(self, spec: WriteSpec, deletes: LocatedDeletes) -> list[WriteStat]:
        self.prepare(deletes.partitions())
        stats: list[WriteStat] = []
        groups = deletes.split(self.config, self.groups.routing(deletes.partitions()))
        for group in sorted(groups):
            stats += self.noted(write_log(self.storage, spec, group, deletes=groups[group]))
        return stats

    # -- copy on write: base files

    def _rewrite(
        self,
        spec: WriteSpec,
        *,
        rows: RowBuffer | None = None,
        deletes: LocatedDeletes | None = None,
    ) -> list[WriteStat]:
        slices = self.current_slices(are_rewritten=True)
        routing = self.routing(slices)
        new: dict[FileGroupId, KeyedRows] = {}
        gone: dict[FileGroupId, DeleteRows] = {}
        if rows is not None:
            rows.route(routing)
            new = dict(rows.buffered())
        if deletes is not None:
            gone = deletes.split(self.config, routing)
        bases = {group: s.base for group, s in slices.items() if s.base is not None}
        rule = merge_rule(self.config)
        stats: list[WriteStat] = []
        for group in sorted({*new, *gone}):
            previous = bases.get(group)
            if previous is None and group not in new:
                continue  # nothing there to delete
            if group.partition not in self.with_metadata:
                create_partition_metadata(self.storage, group.partition, spec.requested)
                self.with_metadata.add(group.partition)
            if group in self.replaced(self.log.live):
                raise replaced_for_good([group])
            stat = rewrite_base(
                self.storage,
                spec,
                group,
                previous,
                rows=new.get(group),
                deletes=gone.get(group),
                rule=rule,
            )
            stats += self.noted([stat])
        return stats
