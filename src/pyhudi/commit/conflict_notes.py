"""The notes that losers of conflicts left in the table, read back with care.

A note is only shown to users. Any program may have written one, so a note is skipped unless it is a
small piece of JSON in the shape that `conflict_report` gives it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from pyhudi.format.paths import file_name
from pyhudi.format.timeline.instant import is_instant_time
from pyhudi.storage.protocol import Storage

CONFLICT_FOLDER: Final = ".hoodie/.pyhudi/conflicts"
_NOTE_BYTES_MAX = 1 << 16


def load_conflicts(storage: Storage, limit: int) -> Iterator[dict[str, Any]]:
    """Yield the facts of the latest conflicts, the latest first."""
    names = [file_name(stat.path) for stat in storage.list(CONFLICT_FOLDER)]
    instants = [
        name[:-5] for name in names if name.endswith(".json") and is_instant_time(name[:-5])
    ]
    for instant in sorted(instants, reverse=True)[:limit]:
        try:
            data = storage.read(f"{CONFLICT_FOLDER}/{instant}.json", 0, _NOTE_BYTES_MAX + 1)
            facts = json.loads(data) if len(data) <= _NOTE_BYTES_MAX else None
        except (FileNotFoundError, ValueError, RecursionError):
            continue  # removed meanwhile, or not a note of pyhudi
        if isinstance(facts, dict):
            yield facts
