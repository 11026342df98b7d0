"""Plans: what a table service or a replace commit records before it begins.

Fields hold what the file says, so that a plan decoded and encoded is the same file. The methods
that return paths check them: the process that executes a plan reads its paths, and deletes files by
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.paths import file_name
from pyhudi.format.timeline import metadata_schemas
from pyhudi.format.timeline.stored_paths import path_in_partition
from pyhudi.format.timeline.timeline_record import TimelineRecord


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """One file slice to compact; its files are bare names in the partition."""

    base_instant_time: str | None
    delta_file_paths: tuple[str, ...] | None
    data_file_path: str | None
    file_id: str | None
    partition_path: str | None = None
    metrics: Mapping[str, float] | None = None
    bootstrap_file_path: str | None = None

    @property
    def file_group(self) -> FileGroupId:
        return FileGroupId(self.partition_path or "", self.file_id or "")

    @property
    def base_file_path(self) -> str | None:
        """The path in the table of the base file; None for a slice of logs alone."""
        if not self.data_file_path:
            return None
        return path_in_partition(self.partition_path, self.data_file_path)

    @property
    def log_file_paths(self) -> tuple[str, ...]:
        names = self.delta_file_paths or ()
        return tuple(path_in_partition(self.partition_path, name) for name in names)


@dataclass(frozen=True, slots=True)
class CompactionStrategy:
    compactor_class_name: str | None = None
    strategy_params: Mapping[str, str] | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The requested file of a compaction or log compaction."""

    operations: tuple[CompactionOperation, ...] | None = None
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = 2  # what Hudi writes; the schema's own default is 1
    strategy: CompactionStrategy | None = None
    preserve_hoodie_metadata: bool | None = False
    missing_schedule_partitions: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ClusteringSlice:
    """One file slice to rewrite.

    Its files are stored as whole URIs, by the table's address where the plan was made. The table
    may have been moved since, so only their names count, in the partition of the slice.
    """

    data_file_path: str | None
    delta_file_paths: tuple[str, ...] | None
    file_id: str | None
    partition_path: str | None = None
    bootstrap_file_path: str | None = None
    version: int | None = 1

    @property
    def base_file_path(self) -> str | None:
        """The path in the table of the base file; None for a slice of logs alone."""
        return self._path(self.data_file_path) if self.data_file_path else None

    @property
    def log_file_paths(self) -> tuple[str, ...]:
        return tuple(map(self._path, self.delta_file_paths or ()))

    def _path(self, stored: str) -> str:
        return path_in_partition(self.partition_path, file_name(stored))


@dataclass(frozen=True, slots=True)
class ClusteringGroup:
    """File slices that are rewritten together."""

    slices: tuple[ClusteringSlice, ...] | None = None
    metrics: Mapping[str, float] | None = None
    num_output_file_groups: int | None = 1
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True)
class ClusteringStrategy:
    strategy_class_name: str | None = None
    strategy_params: Mapping[str, str] | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    input_groups: tuple[ClusteringGroup, ...] | None = None
    strategy: ClusteringStrategy | None = None
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = 1
    preserve_hoodie_metadata: bool | None = None
    missing_schedule_partitions: tuple[str, ...] | None = None

    @property
    def file_ids(self) -> Mapping[str, frozenset[str]]:
        """The file groups under clustering, by partition path."""
        found: dict[str, set[str]] = {}
        for group in self.input_groups or ():
            for part in group.slices or ():
                if part.file_id is not None:
                    found.setdefault(part.partition_path or "", set()).add(part.file_id)
        return {partition: frozenset(ids) for partition, ids in found.items()}


@dataclass(frozen=True, slots=True)
class RequestedReplaceMetadata:
    """The requested file of a clustering, with its plan, or of an overwrite, all null."""

    operation_type: str | None = None
    clustering_plan: ClusteringPlan | None = None
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True)
class RetainedInstant:
    """The oldest instant whose files a clean retains."""

    timestamp: str
    action: str
    state: str


@dataclass(frozen=True, slots=True)
class CleanFile:
    file_path: str | None = None
    is_bootstrap_base_file: bool | None = None


@dataclass(frozen=True, slots=True)
class CleanerPlan:
    """The requested file of a clean."""

    earliest_instant_to_retain: RetainedInstant | None
    last_completed_commit_timestamp: str
    policy: str
    files_to_be_deleted_per_partition: Mapping[str, tuple[str, ...]] | None = None
    version: int | None = 2  # what Hudi writes; the schema's own default is 1
    file_paths_to_be_deleted_per_partition: Mapping[str, tuple[CleanFile, ...]] | None = None
    partitions_to_be_deleted: tuple[str, ...] | None = None
    extra_metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class InstantName:
    """An instant as plans name it."""

    commit_time: str  # its requested time
    action: str


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """Files of one file group, or of one partition, that a rollback deletes."""

    partition_path: str
    file_id: str | None = None
    latest_base_instant: str | None = None
    files_to_be_deleted: tuple[str, ...] = ()  # whole paths
    log_blocks_to_be_deleted: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """The requested file of a rollback."""

    instant_to_rollback: InstantName | None = None
    rollback_requests: tuple[RollbackRequest, ...] | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The requested file of a restore."""

    instants_to_rollback: tuple[InstantName, ...] = ()
    version: int | None = 2
    savepoint_to_restore_timestamp: str | None = None


COMPACTION_PLAN = TimelineRecord(
    metadata_schemas.COMPACTION_PLAN,
    CompactionPlan,
    HoodieCompactionOperation=CompactionOperation,
    HoodieCompactionStrategy=CompactionStrategy,
)
REQUESTED_REPLACE = TimelineRecord(
    metadata_schemas.REQUESTED_REPLACE_METADATA,
    RequestedReplaceMetadata,
    HoodieClusteringPlan=ClusteringPlan,
    HoodieClusteringGroup=ClusteringGroup,
    HoodieClusteringStrategy=ClusteringStrategy,
    HoodieSliceInfo=ClusteringSlice,
)
CLEANER_PLAN = TimelineRecord(
    metadata_schemas.CLEANER_PLAN,
    CleanerPlan,
    HoodieActionInstant=RetainedInstant,
    HoodieCleanFileInfo=CleanFile,
)
ROLLBACK_PLAN = TimelineRecord(
    metadata_schemas.ROLLBACK_PLAN,
    RollbackPlan,
    HoodieInstantInfo=InstantName,
    HoodieRollbackRequest=RollbackRequest,
)
RESTORE_PLAN = TimelineRecord(
    metadata_schemas.RESTORE_PLAN, RestorePlan, HoodieInstantInfo=InstantName
)

decode_compaction_plan = COMPACTION_PLAN.decode
encode_compaction_plan = COMPACTION_PLAN.encode
#: None for an empty file: an overwrite may leave its requested file so.
decode_requested_replace = REQUESTED_REPLACE.decode_or_none
encode_requested_replace = REQUESTED_REPLACE.encode
decode_cleaner_plan = CLEANER_PLAN.decode
encode_cleaner_plan = CLEANER_PLAN.encode
decode_rollback_plan = ROLLBACK_PLAN.decode
encode_rollback_plan = ROLLBACK_PLAN.encode
