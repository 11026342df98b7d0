"""What a clean retains, by its files: the completed one, and its plan where that is empty.

Hudi may die between creating a file and filling it. A clean whose completed file is empty has
removed what it planned. If its plan is empty, too, it had nothing to remove.
"""

from __future__ import annotations

from pyhudi.errors import UnavailableError
from pyhudi.format.timeline.archive import ArchivedInstant
from pyhudi.format.timeline.instant import Instant, State
from pyhudi.format.timeline.plan_files import CLEANER_PLAN
from pyhudi.format.timeline.service_metadata import CLEAN
from pyhudi.plan.retention import CleanBound, bound_of_clean, bound_of_plan
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.storage.protocol import Storage


def load_clean_bound(storage: Storage, folder: str, clean: Instant) -> CleanBound | None:
    """Return the bound of a clean on the active timeline; None if it records none.

    UnavailableError if its file is gone.
    """
    plan = f"{folder}/{clean.in_state(State.REQUESTED).file_name}"
    if clean.completed is None:
        return _planned(clean.requested, load_timeline_file(storage, plan), plan)
    path = f"{folder}/{clean.file_name}"
    if data := load_timeline_file(storage, path):
        return bound_of_clean(CLEAN.decode(data, path))
    try:
        data = load_timeline_file(storage, plan)
    except UnavailableError:
        return None
    return _planned(clean.requested, data, plan)


def archived_clean_bound(clean: ArchivedInstant, origin: str) -> CleanBound | None:
    """Return the bound of an archived clean; None if it records none."""
    if clean.metadata:
        return bound_of_clean(CLEAN.decode(clean.metadata, origin))
    return _planned(clean.requested, clean.plan or b"", origin)


def _planned(requested: str, data: bytes, origin: str) -> CleanBound | None:
    plan = CLEANER_PLAN.decode_or_none(data, origin)
    return None if plan is None else bound_of_plan(requested, plan)
