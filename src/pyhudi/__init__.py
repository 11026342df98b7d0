"""pyhudi: Apache Hudi 1.x tables from Python, with and without Spark.

A public name is loaded when it is first used, so that a program that only prints its help need not
load Arrow. To add a name, add it to the table below and to the imports for type checkers.
"""

import importlib
from typing import TYPE_CHECKING

from pyhudi import errors as errors
from pyhudi.version import __version__ as __version__

#: Where each public name lives.
_HOMES = {
    "ArchivePlan": "pyhudi.plan.archiving.choose",
    "ArchivePolicy": "pyhudi.plan.archiving.policy",
    "ArchiveResult": "pyhudi.services.archiving.result",
    "Changes": "pyhudi.api.scan",
    "CleanPlan": "pyhudi.plan.cleaning",
    "CleanPolicy": "pyhudi.plan.cleaning",
    "CleanResult": "pyhudi.services.cleaning.result",
    "Cleaned": "pyhudi.services.cleaning.result",
    "Compacted": "pyhudi.services.compaction.result",
    "CompactionPolicy": "pyhudi.plan.compaction.policy",
    "CompactionPreview": "pyhudi.plan.compaction.preview",
    "CompactionResult": "pyhudi.services.compaction.result",
    "ConcurrentSchemaEvolutionError": "pyhudi.errors",
    "ConflictError": "pyhudi.errors",
    "ConsistentBuckets": "pyhudi.format.table.bucket_config",
    "Consumer": "pyhudi.format.table.consumer_file",
    "CorruptBlockWarning": "pyhudi.read.slice",
    "CorruptTableError": "pyhudi.errors",
    "EarlyConflictError": "pyhudi.errors",
    "EarlyDetection": "pyhudi.settings",
    "EarlyStrategy": "pyhudi.conflict.early_strategies",
    "FailedWrites": "pyhudi.settings",
    "Finding": "pyhudi.services.verification.result",
    "FindingKind": "pyhudi.services.verification.result",
    "HudiError": "pyhudi.errors",
    "InvalidRequestError": "pyhudi.errors",
    "LogBlockFormat": "pyhudi.settings",
    "MarkerService": "pyhudi.settings",
    "MarkerServiceWarning": "pyhudi.write.markers.kind",
    "Markers": "pyhudi.settings",
    "Migrated": "pyhudi.services.migration.result",
    "OutcomeUnknownError": "pyhudi.errors",
    "Progress": "pyhudi.progress",
    "ReconcileSchemaStrategy": "pyhudi.conflict.schemas",
    "Repaired": "pyhudi.services.repair",
    "RequestedTime": "pyhudi.timeline.instant_time",
    "ResizePolicy": "pyhudi.plan.resizing.policy",
    "ResizePreview": "pyhudi.plan.resizing.changes",
    "ResizeResult": "pyhudi.services.resizing.result",
    "Resized": "pyhudi.services.resizing.result",
    "RingPicture": "pyhudi.api.ring_pictures.picture",
    "Scan": "pyhudi.api.scan",
    "SchemaContradiction": "pyhudi.conflict.schemas",
    "SchemaMode": "pyhudi.settings",
    "SchemaStrategy": "pyhudi.conflict.schemas",
    "SchemaUpdate": "pyhudi.api.schema_update",
    "SchemaUpdateBlock": "pyhudi.api.schema_update",
    "SchemaWarning": "pyhudi.session.write_schema",
    "SimpleBuckets": "pyhudi.format.table.bucket_config",
    "SimpleSchemaStrategy": "pyhudi.conflict.schemas",
    "SplitBucket": "pyhudi.plan.resizing.policy",
    "SplitPolicy": "pyhudi.plan.resizing.policy",
    "Table": "pyhudi.api.table",
    "TableExistsError": "pyhudi.errors",
    "TableNotFoundError": "pyhudi.errors",
    "UnavailableError": "pyhudi.errors",
    "UnsupportedTableError": "pyhudi.errors",
    "Upkeep": "pyhudi.plan.upkeep",
    "UpkeepResult": "pyhudi.services.maintenance",
    "UpkeepWarning": "pyhudi.services.inline",
    "Verified": "pyhudi.services.verification.result",
    "WritePreview": "pyhudi.write.preview.preview",
    "WriteResult": "pyhudi.write.result",
    "WriteSettings": "pyhudi.settings",
    "create_table": "pyhudi.api.open",
    "is_table": "pyhudi.api.open",
    "open_table": "pyhudi.api.open",
}

if TYPE_CHECKING:
    from pyhudi.api.open import create_table as create_table
    from pyhudi.api.open import is_table as is_table
    from pyhudi.api.open import open_table as open_table
    from pyhudi.api.ring_pictures.picture import RingPicture as RingPicture
    from pyhudi.api.scan import Changes as Changes
    from pyhudi.api.scan import Scan as Scan
    from pyhudi.api.schema_update import SchemaUpdate as SchemaUpdate
    from pyhudi.api.schema_update import SchemaUpdateBlock as SchemaUpdateBlock
    from pyhudi.api.table import Table as Table
    from pyhudi.conflict.early_strategies import EarlyStrategy as EarlyStrategy
    from pyhudi.conflict.schemas import ReconcileSchemaStrategy as ReconcileSchemaStrategy
    from pyhudi.conflict.schemas import SchemaContradiction as SchemaContradiction
    from pyhudi.conflict.schemas import SchemaStrategy as SchemaStrategy
    from pyhudi.conflict.schemas import SimpleSchemaStrategy as SimpleSchemaStrategy
    from pyhudi.errors import ConcurrentSchemaEvolutionError as ConcurrentSchemaEvolutionError
    from pyhudi.errors import ConflictError as ConflictError
    from pyhudi.errors import CorruptTableError as CorruptTableError
    from pyhudi.errors import EarlyConflictError as EarlyConflictError
    from pyhudi.errors import HudiError as HudiError
    from pyhudi.errors import InvalidRequestError as InvalidRequestError
    from pyhudi.errors import OutcomeUnknownError as OutcomeUnknownError
    from pyhudi.errors import TableExistsError as TableExistsError
    from pyhudi.errors import TableNotFoundError as TableNotFoundError
    from pyhudi.errors import UnavailableError as UnavailableError
    from pyhudi.errors import UnsupportedTableError as UnsupportedTableError
    from pyhudi.format.table.bucket_config import ConsistentBuckets as ConsistentBuckets
    from pyhudi.format.table.bucket_config import SimpleBuckets as SimpleBuckets
    from pyhudi.format.table.consumer_file import Consumer as Consumer
    from pyhudi.plan.archiving.choose import ArchivePlan as ArchivePlan
    from pyhudi.plan.archiving.policy import ArchivePolicy as ArchivePolicy
    from pyhudi.plan.cleaning import CleanPlan as CleanPlan
    from pyhudi.plan.cleaning import CleanPolicy as CleanPolicy
    from pyhudi.plan.compaction.policy import CompactionPolicy as CompactionPolicy
    from pyhudi.plan.compaction.preview import CompactionPreview as CompactionPreview
    from pyhudi.plan.resizing.changes import ResizePreview as ResizePreview
    from pyhudi.plan.resizing.policy import ResizePolicy as ResizePolicy
    from pyhudi.plan.resizing.policy import SplitBucket as SplitBucket
    from pyhudi.plan.resizing.policy import SplitPolicy as SplitPolicy
    from pyhudi.plan.upkeep import Upkeep as Upkeep
    from pyhudi.progress import Progress as Progress
    from pyhudi.read.slice import CorruptBlockWarning as CorruptBlockWarning
    from pyhudi.services.archiving.result import ArchiveResult as ArchiveResult
    from pyhudi.services.cleaning.result import Cleaned as Cleaned
    from pyhudi.services.cleaning.result import CleanResult as CleanResult
    from pyhudi.services.compaction.result import Compacted as Compacted
    from pyhudi.services.compaction.result import CompactionResult as CompactionResult
    from pyhudi.services.inline import UpkeepWarning as UpkeepWarning
    from pyhudi.services.maintenance import UpkeepResult as UpkeepResult
    from pyhudi.services.migration.result import Migrated as Migrated
    from pyhudi.services.repair import Repaired as Repaired
    from pyhudi.services.resizing.result import Resized as Resized
    from pyhudi.services.resizing.result import ResizeResult as ResizeResult
    from pyhudi.services.verification.result import Finding as Finding
    from pyhudi.services.verification.result import FindingKind as FindingKind
    from pyhudi.services.verification.result import Verified as Verified
    from pyhudi.session.write_schema import SchemaWarning as SchemaWarning
    from pyhudi.settings import EarlyDetection as EarlyDetection
    from pyhudi.settings import FailedWrites as FailedWrites
    from pyhudi.settings import LogBlockFormat as LogBlockFormat
    from pyhudi.settings import Markers as Markers
    from pyhudi.settings import MarkerService as MarkerService
    from pyhudi.settings import SchemaMode as SchemaMode
    from pyhudi.settings import WriteSettings as WriteSettings
    from pyhudi.timeline.instant_time import RequestedTime as RequestedTime
    from pyhudi.write.markers.kind import MarkerServiceWarning as MarkerServiceWarning
    from pyhudi.write.preview.preview import WritePreview as WritePreview
    from pyhudi.write.result import WriteResult as WriteResult

else:  # a type checker that saw this would take any name for a public one
    __all__ = [*_HOMES, "__version__"]

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOMES})
