"""Tables whose files the task functions wrote, with timeline files made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

import pyhudi
from handmade import SYNC, TIMELINE, HandmadeTable, at
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.format.files.file_names import FileGroupId, parse_data_file
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat, encode_commit_metadata
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.table.file_group import BaseFile
from pyhudi.write.files.spec import DeleteRows, KeyedRows, WriteSpec

GROUP = FileGroupId("", "00000001-0000-0000-0000-000000000000-0")


class WrittenTable(HandmadeTable):
    """The record key is the column `id`, and a row is a dictionary of the schema's columns."""

    @property
    def avro_schema(self) -> str:
        return json.dumps(avro_record_schema(self.schema, "handmade"))

    def spec(self, requested: int, **options: Any) -> WriteSpec:
        return WriteSpec(InstantTime(at(requested)), self.avro_schema, **options)

    def keyed(self, rows: Sequence[Mapping[str, Any]]) -> KeyedRows:
        return keyed(rows, self.schema)

    def commit(
        self, requested: int, stats: Iterable[WriteStat], action: str = "deltacommit"
    ) -> None:
        """Complete the instant one millisecond after it was requested."""
        by_partition: dict[str, tuple[WriteStat, ...]] = {}
        for stat in stats:
            partition = stat.partition_path or ""
            by_partition[partition] = (*by_partition.get(partition, ()), stat)
        metadata = CommitMetadata(
            by_partition, extra_metadata={"schema": self.avro_schema}, operation_type="UPSERT"
        )
        path = f"{TIMELINE}/{at(requested)}_{at(requested + 1)}.{action}"
        self.storage.write(path, encode_commit_metadata(metadata, SYNC))

    def rows(self) -> list[dict[str, Any]]:
        """The rows that a reader sees, without meta columns, by `id`."""
        table = pyhudi.open_table(self.storage.uri).read()
        found: list[dict[str, Any]] = table.to_arrow().to_pylist()
        return sorted(found, key=lambda row: str(row["id"]))

    def meta(self, column: str) -> dict[str, str]:
        """A meta column by record key."""
        table = pyhudi.open_table(self.storage.uri).read(meta=True).to_arrow()
        keys, values = table["_hoodie_record_key"].to_pylist(), table[column].to_pylist()
        return dict(zip(keys, values, strict=True))


def keyed(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> KeyedRows:
    batch = pa.RecordBatch.from_pylist(list(rows), schema)
    return KeyedRows(batch, batch.column("id"))


def deletes(*keys: str, ordering: pa.Array | None = None) -> DeleteRows:
    return DeleteRows(pa.array(keys, pa.string()), ordering)


def base_file(stat: WriteStat) -> BaseFile:
    """The file that a write stat is about, as a listing would give it."""
    name = parse_data_file(stat.data_path.rpartition("/")[2])
    assert name is not None
    return BaseFile(stat.data_path, stat.file_size_in_bytes or 0, name)  # type: ignore[arg-type]
