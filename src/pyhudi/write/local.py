"""Writing in this process: load, decide, act, with plain Arrow and no Spark.

The same task functions (`log_writer`, `base_writer`, `copy_on_write`) run in Spark's executors;
here they run one after the other. Begin, completion and everything else that others can see is the
transaction's, and the decision log's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.index.routing import Place
from pyhudi.index.simple_bucket import file_id
from pyhudi.plan.scan import merge_rule
from pyhudi.write.buffer import GatheredDeletes, GatheredRows
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
from pyhudi.write.rebase import files_by_place, written_rows
from pyhudi.write.result import WriteResult
from pyhudi.write.retry import Work
from pyhudi.write.seeds import replaced_for_good
from pyhudi.write.spill import Logs, streamed_logs
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
        rows = GatheredRows(config, now.layout.data)
        batches = self.board.counting(batches)
        is_whole = rows.fill(batches, self.settings.buffer_bytes_max if self.is_mor else None)

        def write(spec: WriteSpec) -> list[WriteStat]:
            spec = replace(spec, part=part)
            if not self.is_mor:
                return self._rewrite(spec, dict(rows.kept()), {})
            if is_whole and part is not None:
                return self._append_parts(spec, rows)
            if is_whole:
                return self._append_logs(spec, rows.partitions(), rows.kept())
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
            rows = GatheredRows(config, now.layout.data)
            rows.fill(self.board.counting(batches), None)
            keys = NewKeys(self, rows)
            keys.require()

            def write(spec: WriteSpec) -> list[WriteStat]:
                keys.require()
                if not self.is_mor:
                    return self._rewrite(spec, dict(rows.kept()), {})
                return self._append_logs(spec, rows.partitions(), rows.kept())

            partitions = rows.partitions() if self.is_mor else ()
            schema = now.avro_schema
            return self.commit(Work(intent, write, partitions=partitions, schema=schema))

        return self.in_turn(commit)

    def delete(self, find: Callable[[], GatheredDeletes], intent: WriteIntent) -> WriteResult:
        """Delete what `find` finds, once the instant has begun: what changes later is a conflict.

        It is asked again if the write has to be repeated.
        """
        return self.in_turn(lambda: self._delete(find, intent))

    def _delete(self, find: Callable[[], GatheredDeletes], intent: WriteIntent) -> WriteResult:
        self.ready()

        def write(spec: WriteSpec) -> list[WriteStat]:
            deletes = find()
            if not self.is_mor:
                return self._rewrite(spec, {}, deletes.groups)
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
            rows = GatheredRows(config, pa.schema(chosen))
            rows.fill(self.board.counting(batches), None)

            def write(spec: WriteSpec) -> list[WriteStat]:
                plan = make_plan(spec)
                groups = ((place, plan.job.write(place, iter([r]))) for place, r in rows.kept())
                return plan.finish(list(self.noted(s for _, stats in groups for s in stats)))

            return self.commit(Work(intent, write, schema=now.avro_schema))

        return self.in_turn(commit)

    # -- merge on read: logs

    def _append_logs(
        self, spec: WriteSpec, partitions: list[str], groups: Iterator[tuple[Place, KeyedRows]]
    ) -> list[WriteStat]:
        self.prepare(partitions)
        return [stat for place, rows in groups for stat in self._log_files(spec, place, rows)]

    def _log_files(self, spec: WriteSpec, place: Place, rows: KeyedRows) -> tuple[WriteStat, ...]:
        group = FileGroupId(place[0], self.groups(*place))
        return tuple(self.noted(write_log(self.storage, spec, group, rows=rows)))

    def _append_parts(self, spec: WriteSpec, rows: GatheredRows) -> list[WriteStat]:
        plans = WritePlans(self)
        logs = Logs(plans.part_files(spec))
        added = (logs.add(place, rows=parts, more=False) for place, parts in rows.kept())
        return plans.opened(list(self.noted(stat for stats in added for stat in stats)))

    def _stream_logs(
        self, spec: WriteSpec, rows: GatheredRows, batches: Iterator[pa.RecordBatch]
    ) -> list[WriteStat]:
        files = Files(self.storage, spec, self.config, self.file_ids())
        if spec.part is not None:
            files = WritePlans(self).part_files(spec)
        most = self.settings.buffer_bytes_max
        stats = list(self.noted(streamed_logs(files, rows, batches, most)))
        return WritePlans(self).opened(stats)

    def _rewrite_logs(
        self, part: Part | None, spec: WriteSpec, stats: Sequence[WriteStat]
    ) -> list[WriteStat]:
        """Write rows anew that came as a stream and lie in files of the same write."""
        spec = replace(spec, part=part)
        files = files_by_place(stats).values()
        written = (written_rows(self.storage, spec.layout, paths) for paths in files)
        batches = (part.rows for parts in written for part in parts)
        return self._stream_logs(spec, GatheredRows(self.config, spec.layout.data), batches)

    def _append_deletes(self, spec: WriteSpec, deletes: GatheredDeletes) -> list[WriteStat]:
        self.prepare(deletes.partitions())
        stats: list[WriteStat] = []
        for place, keys in sorted(deletes.groups.items(), key=lambda item: item[0]):
            group = FileGroupId(place[0], self.groups(*place))
            stats += self.noted(write_log(self.storage, spec, group, deletes=keys))
        return stats

    # -- copy on write: base files

    def _rewrite(
        self,
        spec: WriteSpec,
        rows: Mapping[Place, KeyedRows],
        deletes: Mapping[Place, DeleteRows],
    ) -> list[WriteStat]:
        slices = self.current_slices(are_rewritten=True)
        bases = {place: s.base for place, s in slices.items() if s.base is not None}
        rule = merge_rule(self.config)
        stats: list[WriteStat] = []
        for place in sorted({*rows, *deletes}):
            previous = bases.get(place)
            if previous is None and place not in rows:
                continue  # nothing there to delete
            partition, bucket = place
            if partition not in self.with_metadata:
                create_partition_metadata(self.storage, partition, spec.requested)
                self.with_metadata.add(partition)
            id_ = previous.name.file_id if previous else file_id(bucket)
            group = FileGroupId(partition, id_)
            if group in self.replaced(self.log.ledger):
                raise replaced_for_good([group])
            stat = rewrite_base(
                self.storage,
                spec,
                group,
                previous,
                rows=rows.get(place),
                deletes=deletes.get(place),
                rule=rule,
            )
            stats += self.noted([stat])
        return stats
