"""Tables made by hand, byte for byte, for tests that need a table nobody else would write.

A `HandmadeTable` writes timeline files, base files and log files into any storage, with the
encoders of `pyhudi.format`. It checks nothing and takes no lock: tests use it to put a table into
exactly the state they mean. Times are small numbers; `at(7)` is their instant time.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.format.avro.records import encode_avro_content
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.format.files.delete_records import delete_batch, encode_delete_records
from pyhudi.format.files.log_file import BlockType, HeaderKey, encode_block
from pyhudi.format.table.properties import encode_properties, table_checksum
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    encode_commit_metadata,
    encode_replace_commit_metadata,
)
from pyhudi.format.timeline.service_metadata import (
    CleanedPartition,
    CleanMetadata,
    encode_clean_metadata,
)
from pyhudi.storage.protocol import Storage
from pyhudi.table.schema import META_COLUMNS

SYNC = bytes(range(16))
TIMELINE = ".hoodie/timeline"


def at(number: int) -> str:
    """The instant time that a small number stands for."""
    return f"20260101{number:09d}"


class HandmadeTable:
    """One file group per partition unless told otherwise; the record key is the column `id`."""

    def __init__(
        self,
        storage: Storage,
        schema: pa.Schema,
        *,
        ordering: str = "",
        partition_by: str = "",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.storage = storage
        self.schema = schema
        event_time = bool(ordering)
        keys = {
            "hoodie.table.name": "handmade",
            "hoodie.table.type": "MERGE_ON_READ",
            "hoodie.table.version": "9",
            "hoodie.timeline.layout.version": "2",
            "hoodie.table.recordkey.fields": "id",
            "hoodie.table.partition.fields": partition_by,
            "hoodie.table.keygenerator.type": "SIMPLE" if partition_by else "NON_PARTITION",
            "hoodie.table.timeline.timezone": "UTC",
            "hoodie.record.merge.mode": (
                "EVENT_TIME_ORDERING" if event_time else "COMMIT_TIME_ORDERING"
            ),
            "hoodie.table.checksum": table_checksum("handmade"),
            **({"hoodie.table.ordering.fields": ordering} if event_time else {}),
            **(properties or {}),
        }
        storage.write(".hoodie/hoodie.properties", encode_properties(keys))

    # -- timeline

    def begin(self, requested: int, action: str = "deltacommit") -> None:
        self.storage.write(f"{TIMELINE}/{at(requested)}.{action}.requested", b"")
        inflight = "inflight" if action == "commit" else f"{action}.inflight"
        self.storage.write(f"{TIMELINE}/{at(requested)}.{inflight}", b"")

    def complete(
        self,
        requested: int,
        completed: int,
        files: Sequence[str] = (),
        action: str = "deltacommit",
        replaced: Mapping[str, tuple[str, ...]] | None = None,
        schema: pa.Schema | None = None,
    ) -> None:
        stats: dict[str, list[WriteStat]] = {}
        for path in files:
            partition = path.rpartition("/")[0]
            found = self.storage.stat(path)
            size = 0 if found is None else found.size
            name = path.rpartition("/")[2].lstrip(".")
            stat = WriteStat(
                file_id=name.split("_")[0],
                path=path,
                partition_path=partition,
                file_size_in_bytes=size,
            )
            stats.setdefault(partition, []).append(stat)
        avro = avro_record_schema(schema or self.schema, "handmade")
        metadata = CommitMetadata(
            partition_to_write_stats={key: tuple(value) for key, value in stats.items()},
            extra_metadata={"schema": json.dumps(avro)},
            operation_type="UPSERT",
            partition_to_replace_file_ids=replaced,
        )
        encode = encode_commit_metadata if replaced is None else encode_replace_commit_metadata
        path = f"{TIMELINE}/{at(requested)}_{at(completed)}.{action}"
        self.storage.write(path, encode(metadata, SYNC))

    def clean(
        self, requested: int, completed: int, *, earliest: str, removed: Sequence[str] = ("gone",)
    ) -> None:
        """A completed clean that removed these files; `earliest` is what it kept from, if known."""
        partitions: dict[str, list[str]] = {}
        for path in removed:
            partition, _, name = path.rpartition("/")
            partitions.setdefault(partition, []).append(name)
        metadata = CleanMetadata(
            start_clean_time=at(requested),
            time_taken_in_millis=1,
            total_files_deleted=len(removed),
            earliest_commit_to_retain=earliest,
            last_completed_commit_timestamp=at(requested - 1),
            partition_metadata={
                partition: CleanedPartition(partition, "KEEP_LATEST_COMMITS", (), tuple(names), ())
                for partition, names in partitions.items()
            },
        )
        path = f"{TIMELINE}/{at(requested)}_{at(completed)}.clean"
        self.storage.write(path, encode_clean_metadata(metadata, SYNC))

    # -- files

    def base(
        self,
        requested: int,
        rows: Sequence[Mapping[str, Any]],
        *,
        partition: str = "",
        file_id: str = "f-0",
        schema: pa.Schema | None = None,
        row_group_rows: int | None = None,
    ) -> str:
        name = f"{file_id}_0-1-0_{at(requested)}.parquet"
        path = f"{partition}/{name}" if partition else name
        table = pa.Table.from_batches([self.batch(requested, rows, partition, name, schema)])
        self.storage.write(path, parquet_bytes(table, row_group_rows))
        return path

    def log(
        self,
        requested: int,
        *blocks: bytes,
        partition: str = "",
        file_id: str = "f-0",
        version: int = 1,
        token: str = "0-1-0",
    ) -> str:
        name = f".{file_id}_{at(requested)}.log.{version}_{token}"
        path = f"{partition}/{name}" if partition else name
        self.storage.write(path, b"".join(blocks))
        return path

    # -- blocks

    def rows_block(
        self,
        requested: int,
        rows: Sequence[Mapping[str, Any]],
        *,
        columns: Sequence[str] | None = None,
        avro: bool = False,
        header: Mapping[HeaderKey, str] | None = None,
        schema: pa.Schema | None = None,
    ) -> bytes:
        """A data block; with `columns` a partial one that has only those."""
        batch = self.batch(requested, rows, "", "f-0", schema)
        if columns is not None:
            batch = batch.select([*META_COLUMNS, *columns])
        text = avro_record_schema(batch.schema, "handmade")
        keys = {HeaderKey.INSTANT_TIME: at(requested), HeaderKey.SCHEMA: json.dumps(text)}
        if columns is not None:
            keys[HeaderKey.IS_PARTIAL] = "true"
        keys.update(header or {})
        if avro:
            return encode_block(BlockType.AVRO_DATA, keys, encode_avro_content([batch], text))
        content = parquet_bytes(pa.Table.from_batches([batch]), None)
        return encode_block(BlockType.PARQUET_DATA, keys, content)

    def deletes_block(
        self, requested: int, keys: Sequence[str], ordering: pa.Array | None = None
    ) -> bytes:
        batch = delete_batch(pa.array(keys), pa.array([""] * len(keys)), ordering)
        header = {HeaderKey.INSTANT_TIME: at(requested), HeaderKey.SCHEMA: '"null"'}
        return encode_block(BlockType.DELETE, header, encode_delete_records([batch]))

    @staticmethod
    def rollback_block(requested: int, target: int) -> bytes:
        header = {
            HeaderKey.INSTANT_TIME: at(requested),
            HeaderKey.TARGET_INSTANT_TIME: at(target),
            HeaderKey.COMMAND_BLOCK_TYPE: "0",
        }
        return encode_block(BlockType.COMMAND, header, b"")

    def batch(
        self,
        requested: int,
        rows: Sequence[Mapping[str, Any]],
        partition: str,
        file_name: str,
        schema: pa.Schema | None = None,
    ) -> pa.RecordBatch:
        """Rows with their meta columns."""
        meta = [
            {
                "_hoodie_commit_time": at(requested),
                "_hoodie_commit_seqno": f"{at(requested)}_0_{number}",
                "_hoodie_record_key": row["id"],
                "_hoodie_partition_path": partition,
                "_hoodie_file_name": file_name,
                **row,
            }
            for number, row in enumerate(rows)
        ]
        fields = [*(pa.field(name, pa.string()) for name in META_COLUMNS), *(schema or self.schema)]
        return pa.RecordBatch.from_pylist(meta, pa.schema(fields))


def parquet_bytes(table: pa.Table, row_group_rows: int | None) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=row_group_rows or max(1, table.num_rows))
    return sink.getvalue()
