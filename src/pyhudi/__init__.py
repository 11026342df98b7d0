"""pyhudi: Apache Hudi 1.x tables from Python, with and without Spark."""

from pyhudi.engine.repair import Repaired
from pyhudi.engine.tasks import CorruptBlockWarning
from pyhudi.engine.write_result import WriteResult
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    HudiError,
    InvalidRequestError,
    OutcomeUnknownError,
    UnavailableError,
    UnsupportedTableError,
)
from pyhudi.format.bucket_config import SimpleBuckets
from pyhudi.progress import Progress
from pyhudi.scan import Changes, Scan
from pyhudi.settings import FailedWrites, LogBlockFormat, WriteSettings
from pyhudi.table_api import Table, create_table, is_table, open_table
from pyhudi.timeline.instant_time import RequestedTime
from pyhudi.version import __version__

__all__ = [
    "Changes",
    "ConflictError",
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
    "UnavailableError",
    "UnsupportedTableError",
    "WriteResult",
    "WriteSettings",
    "__version__",
    "create_table",
    "is_table",
    "open_table",
]
