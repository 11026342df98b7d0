"""pyhudi: Apache Hudi 1.x tables from Python, with and without Spark."""

from pyhudi.engine.archiving import ArchiveResult
from pyhudi.engine.clean_result import Cleaned, CleanResult
from pyhudi.engine.compaction_result import Compacted, CompactionResult
from pyhudi.engine.repair import Repaired
from pyhudi.engine.tasks import CorruptBlockWarning
from pyhudi.engine.upkeep import Upkeep, UpkeepResult
from pyhudi.engine.write_result import WriteResult
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    HudiError,
    InvalidRequestError,
    OutcomeUnknownError,
    TableExistsError,
    TableNotFoundError,
    UnavailableError,
    UnsupportedTableError,
)
from pyhudi.format.bucket_config import SimpleBuckets
from pyhudi.format.consumer_file import Consumer
from pyhudi.plan.archiving import ArchivePlan, ArchivePolicy
from pyhudi.plan.cleaning import CleanPlan, CleanPolicy
from pyhudi.plan.compaction import CompactionPolicy, CompactionPreview
from pyhudi.progress import Progress
from pyhudi.scan import Changes, Scan
from pyhudi.services import UpkeepWarning
from pyhudi.settings import FailedWrites, LogBlockFormat, WriteSettings
from pyhudi.table_api import Table, create_table, is_table, open_table
from pyhudi.timeline.instant_time import RequestedTime
from pyhudi.version import __version__

__all__ = [
    "ArchivePlan",
    "ArchivePolicy",
    "ArchiveResult",
    "Changes",
    "CleanPlan",
    "CleanPolicy",
    "CleanResult",
    "Cleaned",
    "Compacted",
    "CompactionPolicy",
    "CompactionPreview",
    "CompactionResult",
    "ConflictError",
    "Consumer",
    "CorruptBlockWarning",
    "CorruptTableError",
    "FailedWrites",
    "HudiError",
    "InvalidRequestError",
    "LogBlockFormat",
    "OutcomeUnknownError",
    "Progress",
    "Repaired",
    "RequestedTime",
    "Scan",
    "SimpleBuckets",
    "Table",
    "TableExistsError",
    "TableNotFoundError",
    "UnavailableError",
    "UnsupportedTableError",
    "Upkeep",
    "UpkeepResult",
    "UpkeepWarning",
    "WriteResult",
    "WriteSettings",
    "__version__",
    "create_table",
    "is_table",
    "open_table",
]
