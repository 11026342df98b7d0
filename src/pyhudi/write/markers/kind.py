"""Which kind of markers has a write? Direct ones, unless lists were asked for and can be had.

A task that cannot reach the marker service stores its markers directly, beside the lists. A
rollback by pyhudi reads both. One by Apache Hudi reads either the one kind or the other, so a table
that Hudi writes, too, gets direct markers alone.
"""

from __future__ import annotations

import warnings

from pyhudi.format.table.table_config import TableConfig
from pyhudi.settings import Markers, WriteSettings


class MarkerServiceWarning(RuntimeWarning):
    """Markers are stored one by one, although they were to be stored in lists."""


def are_listed(settings: WriteSettings, config: TableConfig) -> bool:
    """True if the markers of a write go into lists. Warn if they cannot, and were to."""
    if settings.markers is Markers.DIRECT:
        return False
    if config.lock.is_shared:
        return warn_of_direct("Apache Hudi writes the table, too, and does not read both kinds")
    return True


def warn_of_direct(why: str) -> bool:
    """Warn that markers are direct; return False."""
    warnings.warn(f"markers are stored one by one: {why}", MarkerServiceWarning, stacklevel=3)
    return False
