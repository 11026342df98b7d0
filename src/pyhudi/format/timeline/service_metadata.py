"""Results: what a table service did, as its completed file records.

Commit-like services (compaction, clustering) complete with commit metadata; the others have the
records below. Fields hold what the file says; methods that return paths check them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyhudi.format.timeline import metadata_schemas
from pyhudi.format.timeline.plan_files import InstantName
from pyhudi.format.timeline.stored_paths import path_in_partition
from pyhudi.format.timeline.timeline_record import TimelineRecord


@dataclass(frozen=True, slots=True)
class CleanedPartition:
    """What a clean did in one partition; files are bare names."""

    partition_path: str
    policy: str
    delete_path_patterns: tuple[str, ...] = ()
    success_delete_files: tuple[str, ...] = ()
    failed_delete_files: tuple[str, ...] = ()
    is_partition_deleted: bool | None = None


@dataclass(frozen=True, slots=True)
class CleanMetadata:
    """The completed file of a clean."""

    start_clean_time: str
    time_taken_in_millis: int
    total_files_deleted: int
    earliest_commit_to_retain: str
    last_completed_commit_timestamp: str
    partition_metadata: Mapping[str, CleanedPartition]
    version: int | None = 2  # what Hudi writes; the schema's own default is 1
    bootstrap_partition_metadata: Mapping[str, CleanedPartition] | None = None
    extra_metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class RolledBackPartition:
    """What a rollback did in one partition; files are whole paths."""

    partition_path: str
    success_delete_files: tuple[str, ...] = ()
    failed_delete_files: tuple[str, ...] = ()
    rollback_log_files: Mapping[str, int] | None = None
    log_files_from_failed_commit: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class RollbackMetadata:
    """The completed file of a rollback."""

    start_rollback_time: str
    time_taken_in_millis: int
    total_files_deleted: int
    commits_rollback: tuple[str, ...]
    partition_metadata: Mapping[str, RolledBackPartition]
    version: int | None = 1
    instants_rollback: tuple[InstantName, ...] = ()


@dataclass(frozen=True, slots=True)
class SavepointPartition:
    """The files of one partition that a savepoint keeps, as bare names."""

    partition_path: str
    savepoint_data_file: tuple[str, ...] = ()

    @property
    def saved_paths(self) -> tuple[str, ...]:
        names = self.savepoint_data_file
        return tuple(path_in_partition(self.partition_path, name) for name in names)


@dataclass(frozen=True, slots=True)
class SavepointMetadata:
    """The completed file of a savepoint."""

    savepointed_by: str
    savepointed_at: int  # milliseconds since 1970
    comments: str
    partition_metadata: Mapping[str, SavepointPartition]
    version: int | None = 1


@dataclass(frozen=True, slots=True)
class RestoreMetadata:
    """The completed file of a restore: the results of its rollbacks, by instant."""

    start_restore_time: str
    time_taken_in_millis: int
    instants_to_rollback: tuple[str, ...]
    rollbacks: Mapping[str, tuple[RollbackMetadata | None, ...]]
    version: int | None = 1
    restored_instants: tuple[InstantName, ...] = ()


CLEAN = TimelineRecord(
    metadata_schemas.CLEAN_METADATA,
    CleanMetadata,
    HoodieCleanPartitionMetadata=CleanedPartition,
)
ROLLBACK = TimelineRecord(
    metadata_schemas.ROLLBACK_METADATA,
    RollbackMetadata,
    HoodieRollbackPartitionMetadata=RolledBackPartition,
    HoodieInstantInfo=InstantName,
)
SAVEPOINT = TimelineRecord(
    metadata_schemas.SAVEPOINT_METADATA,
    SavepointMetadata,
    HoodieSavepointPartitionMetadata=SavepointPartition,
)
RESTORE = TimelineRecord(
    metadata_schemas.RESTORE_METADATA,
    RestoreMetadata,
    HoodieRollbackMetadata=RollbackMetadata,
    HoodieRollbackPartitionMetadata=RolledBackPartition,
    HoodieInstantInfo=InstantName,
)

decode_clean_metadata = CLEAN.decode
encode_clean_metadata = CLEAN.encode
decode_rollback_metadata = ROLLBACK.decode
encode_rollback_metadata = ROLLBACK.encode
decode_savepoint_metadata = SAVEPOINT.decode
encode_savepoint_metadata = SAVEPOINT.encode
