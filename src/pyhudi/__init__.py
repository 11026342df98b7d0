"""pyhudi: Apache Hudi 1.x tables from Python, with and without Spark."""

from pyhudi.engine.tasks import CorruptBlockWarning
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    HudiError,
    InvalidRequestError,
    UnavailableError,
    UnsupportedTableError,
)
from pyhudi.scan import Changes, Scan
from pyhudi.table_api import Table, is_table, open_table
from pyhudi.timeline.instant_time import RequestedTime
from pyhudi.version import __version__

__all__ = [
    "Changes",
    "ConflictError",
    "CorruptBlockWarning",
    "CorruptTableError",
    "HudiError",
    "InvalidRequestError",
    "RequestedTime",
    "Scan",
    "Table",
    "UnavailableError",
    "UnsupportedTableError",
    "__version__",
    "is_table",
    "open_table",
]
