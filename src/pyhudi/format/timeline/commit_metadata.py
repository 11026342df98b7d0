"""What a write did: the record in the files of commits, delta commits and replace commits.

Fields hold what the file says, nulls included, so that a file decoded and encoded is the same file.
Properties return an empty mapping where the file has null, and they check paths, which the file's
writer chose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.metadata_schemas import COMMIT_METADATA, REPLACE_COMMIT_METADATA
from pyhudi.format.timeline.stored_paths import required_path
from pyhudi.format.timeline.timeline_record import TimelineRecord

SCHEMA_KEY = "schema"
SCHEMA_HISTORY_KEY = "latest_schema"


@dataclass(frozen=True, slots=True)
class RuntimeStats:
    """Milliseconds that a write spent on one file."""

    total_scan_time: int | None = None
    total_create_time: int | None = None
    total_upsert_time: int | None = None


@dataclass(frozen=True, slots=True)
class WriteStat:
    """One data or log file that a write made."""

    file_id: str | None = None
    path: str | None = None  # relative to the table
    prev_commit: str | None = None  # the text "null" for the first file of a file group
    num_writes: int | None = None
    num_deletes: int | None = None
    num_update_writes: int | None = None
    total_write_bytes: int | None = None
    total_write_errors: int | None = None
    partition_path: str | None = None
    total_log_records: int | None = None
    total_log_files: int | None = None
    total_updated_records_compacted: int | None = None
    num_inserts: int | None = None
    total_log_blocks: int | None = None
    total_corrupt_log_block: int | None = None
    total_rollback_blocks: int | None = None
    file_size_in_bytes: int | None = None
    log_version: int | None = None
    log_offset: int | None = None
    base_file: str | None = None
    log_files: tuple[str, ...] | None = None
    cdc_stats: Mapping[str, int] | None = None
    prev_base_file: str | None = None
    min_event_time: int | None = None
    max_event_time: int | None = None
    runtime_stats: RuntimeStats | None = None
    total_log_files_compacted: int | None = None
    total_log_read_time_ms: int | None = None
    total_log_size_compacted: int | None = None
    temp_path: str | None = None
    num_updates: int | None = None

    @property
    def data_path(self) -> str:
        """The file's path in the table; CorruptTableError if it is missing or leads outside."""
        return required_path(self.path, "a write stat")

    @property
    def rows_written(self) -> int:
        """The rows that the write put into the file, without those that it only carried over."""
        return (self.num_inserts or 0) + (self.num_update_writes or 0)

    @property
    def is_reference(self) -> bool:
        """True if it is of a log that counts no record: one that refers to other logs of its write.

        A stat that does not say how many records there are is none of a reference.
        """
        counts = (self.num_writes, self.num_inserts, self.num_update_writes, self.num_deletes)
        return self.log_files is not None and all(count == 0 for count in counts)


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """What one write did; a replace commit also names the file groups it replaced."""

    partition_to_write_stats: Mapping[str, tuple[WriteStat, ...]] | None = None
    compacted: bool | None = None
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = None  # Hudi itself stores null
    operation_type: str | None = None
    partition_to_replace_file_ids: Mapping[str, tuple[str, ...]] | None = None

    @property
    def write_stats(self) -> Mapping[str, tuple[WriteStat, ...]]:
        """The files written, by partition path."""
        return self.partition_to_write_stats or {}

    @property
    def stats(self) -> tuple[WriteStat, ...]:
        """The files written, of all partitions."""
        return tuple(chain.from_iterable(self.write_stats.values()))

    @property
    def group_stats(self) -> Iterator[tuple[FileGroupId, WriteStat]]:
        """The files written, each with its file group."""
        for partition, stats in self.write_stats.items():
            for stat in stats:
                yield FileGroupId(partition, stat.file_id or ""), stat

    @property
    def replaced_file_ids(self) -> Mapping[str, tuple[str, ...]]:
        """The file groups that readers must hide from this instant on, by partition path."""
        return self.partition_to_replace_file_ids or {}

    @property
    def schema_json(self) -> str | None:
        """The table's schema as Avro JSON, without meta columns; None if the write kept none."""
        return (self.extra_metadata or {}).get(SCHEMA_KEY) or None

    @property
    def schema_history(self) -> bool:
        """True if the schema was changed with schema-on-read, which this schema alone hides."""
        return bool((self.extra_metadata or {}).get(SCHEMA_HISTORY_KEY))

    @property
    def operation(self) -> str | None:
        """Hudi's word for what was done, such as UPSERT or COMPACT."""
        return self.operation_type


def stats_by_partition(stats: Iterable[WriteStat]) -> dict[str, tuple[WriteStat, ...]]:
    """Return the write stats as commit metadata has them."""
    found: dict[str, list[WriteStat]] = {}
    for stat in stats:
        found.setdefault(stat.partition_path or "", []).append(stat)
    return {partition: tuple(group) for partition, group in found.items()}


COMMIT = TimelineRecord(
    COMMIT_METADATA,
    CommitMetadata,
    HoodieWriteStat=WriteStat,
    HoodieRuntimeStats=RuntimeStats,
)
REPLACE_COMMIT = TimelineRecord(
    REPLACE_COMMIT_METADATA,
    CommitMetadata,
    also=[COMMIT_METADATA["name"]],
    HoodieWriteStat=WriteStat,
    HoodieRuntimeStats=RuntimeStats,
)


def decode_commit_metadata(data: bytes, path: str) -> CommitMetadata:
    """Return the metadata in the completed file of a commit, delta commit or replace commit."""
    # A replace commit is a commit with one more field, so its schema reads both.
    return REPLACE_COMMIT.decode(data, path)


def decode_inflight_commit(data: bytes, path: str) -> CommitMetadata | None:
    """Return what an inflight file says the write intends; None if it is empty, as it may be."""
    return REPLACE_COMMIT.decode_or_none(data, path)


def encode_commit_metadata(metadata: CommitMetadata, sync: bytes) -> bytes:
    """Return the completed or inflight file of a commit or delta commit."""
    assert metadata.partition_to_replace_file_ids is None, "only a replace commit can hide files"
    return COMMIT.encode(metadata, sync)


def encode_replace_commit_metadata(metadata: CommitMetadata, sync: bytes) -> bytes:
    """Return the completed file of a replace commit."""
    return REPLACE_COMMIT.encode(metadata, sync)
