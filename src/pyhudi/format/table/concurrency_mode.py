"""What happens when two writers meet in one file group. It is recorded in the table.

The key and its values are those of Hudi's writer option; a Spark writer follows the table's.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pyhudi.format.table.properties import TableProperties

CONCURRENCY_MODE: Final = "hoodie.write.concurrency.mode"

_SINGLE_WRITER = "SINGLE_WRITER"  # Hudi's word for leaving it open


class ConcurrencyMode(StrEnum):
    OPTIMISTIC = "OPTIMISTIC_CONCURRENCY_CONTROL"  # the second to complete is refused
    NON_BLOCKING = "NON_BLOCKING_CONCURRENCY_CONTROL"  # both complete, readers merge (RFC-66)


def concurrency_of(properties: TableProperties) -> ConcurrencyMode | None:
    """Return the mode that the properties record; None if they leave it to the writers."""
    if properties.values.get(CONCURRENCY_MODE, "").strip().upper() == _SINGLE_WRITER:
        return None
    return properties.choice(CONCURRENCY_MODE, ConcurrencyMode)
