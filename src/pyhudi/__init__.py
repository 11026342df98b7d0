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
    "ArchivePlan": "pyhudi.plan.archiving",
    "ArchivePolicy": "pyhudi.plan.archiving",
    "ArchiveResult": "pyhudi.engine.archiving",
    "Changes": "pyhudi.scan",
    "CleanPlan": "pyhudi.plan.cleaning",
    "CleanPolicy": "pyhudi.plan.cleaning",
    "CleanResult": "pyhudi.engine.clean_result",
    "Cleaned": "pyhudi.engine.clean_result",
    "Compacted": "pyhudi.engine.compaction_result",
    "CompactionPolicy": "pyhudi.plan.compaction",
    "CompactionPreview": "pyhudi.plan.compaction",
    "CompactionResult": "pyhudi.engine.compaction_result",
    "ConflictError": "pyhudi.errors",
    "Consumer": "pyhudi.format.consumer_file",
    "CorruptBlockWarning": "pyhudi.engine.tasks",
    "CorruptTableError": "pyhudi.errors",
    "FailedWrites": "pyhudi.settings",
    "Finding": "pyhudi.engine.verified",
    "FindingKind": "pyhudi.engine.verified",
    "HudiError": "pyhudi.errors",
    "InvalidRequestError": "pyhudi.errors",
    "LogBlockFormat": "pyhudi.settings",
    "OutcomeUnknownError": "pyhudi.errors",
    "Progress": "pyhudi.progress",
    "Repaired": "pyhudi.engine.repair",
    "RequestedTime": "pyhudi.timeline.instant_time",
    "Scan": "pyhudi.scan",
    "SimpleBuckets": "pyhudi.format.bucket_config",
    "Table": "pyhudi.table_api",
    "TableExistsError": "pyhudi.errors",
    "TableNotFoundError": "pyhudi.errors",
    "UnavailableError": "pyhudi.errors",
    "UnsupportedTableError": "pyhudi.errors",
    "Upkeep": "pyhudi.engine.upkeep",
    "UpkeepResult": "pyhudi.engine.upkeep",
    "UpkeepWarning": "pyhudi.services",
    "Verified": "pyhudi.engine.verified",
    "WriteResult": "pyhudi.engine.write_result",
    "WriteSettings": "pyhudi.settings",
    "create_table": "pyhudi.table_api",
    "is_table": "pyhudi.table_api",
    "open_table": "pyhudi.table_api",
}

if TYPE_CHECKING:
    from pyhudi.engine.archiving import ArchiveResult as ArchiveResult
    from pyhudi.engine.clean_result import Cleaned as Cleaned
    from pyhudi.engine.clean_result import CleanResult as CleanResult
    from pyhudi.engine.compaction_result import Compacted as Compacted
    from pyhudi.engine.compaction_result import CompactionResult as CompactionResult
    from pyhudi.engine.repair import Repaired as Repaired
    from pyhudi.engine.tasks import CorruptBlockWarning as CorruptBlockWarning
    from pyhudi.engine.upkeep import Upkeep as Upkeep
    from pyhudi.engine.upkeep import UpkeepResult as UpkeepResult
    from pyhudi.engine.verified import Finding as Finding
    from pyhudi.engine.verified import FindingKind as FindingKind
    from pyhudi.engine.verified import Verified as Verified
    from pyhudi.engine.write_result import WriteResult as WriteResult
    from pyhudi.errors import ConflictError as ConflictError
    from pyhudi.errors import CorruptTableError as CorruptTableError
    from pyhudi.errors import HudiError as HudiError
    from pyhudi.errors import InvalidRequestError as InvalidRequestError
    from pyhudi.errors import OutcomeUnknownError as OutcomeUnknownError
    from pyhudi.errors import TableExistsError as TableExistsError
    from pyhudi.errors import TableNotFoundError as TableNotFoundError
    from pyhudi.errors import UnavailableError as UnavailableError
    from pyhudi.errors import UnsupportedTableError as UnsupportedTableError
    from pyhudi.format.bucket_config import SimpleBuckets as SimpleBuckets
    from pyhudi.format.consumer_file import Consumer as Consumer
    from pyhudi.plan.archiving import ArchivePlan as ArchivePlan
    from pyhudi.plan.archiving import ArchivePolicy as ArchivePolicy
    from pyhudi.plan.cleaning import CleanPlan as CleanPlan
    from pyhudi.plan.cleaning import CleanPolicy as CleanPolicy
    from pyhudi.plan.compaction import CompactionPolicy as CompactionPolicy
    from pyhudi.plan.compaction import CompactionPreview as CompactionPreview
    from pyhudi.progress import Progress as Progress
    from pyhudi.scan import Changes as Changes
    from pyhudi.scan import Scan as Scan
    from pyhudi.services import UpkeepWarning as UpkeepWarning
    from pyhudi.settings import FailedWrites as FailedWrites
    from pyhudi.settings import LogBlockFormat as LogBlockFormat
    from pyhudi.settings import WriteSettings as WriteSettings
    from pyhudi.table_api import Table as Table
    from pyhudi.table_api import create_table as create_table
    from pyhudi.table_api import is_table as is_table
    from pyhudi.table_api import open_table as open_table
    from pyhudi.timeline.instant_time import RequestedTime as RequestedTime

else:  # a type checker that saw this would take any name for a public one
    __all__ = [*_HOMES, "__version__"]

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOMES})
