"""What a write leaves in storage beside its markers, for other writes' early detection.

Claims and filters go when their write has completed, or is abandoned by its own process. What a
dead writer leaves does no harm, since a rival counts only as long as it is alive. A repair removes
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyhudi.conflict.announced import place_of
from pyhudi.format.timeline.instant import is_instant_time
from pyhudi.storage.objects.claims import CLAIM_FOLDER, clear_claims, load_claim
from pyhudi.storage.objects.marker_filters import FILTER_FOLDER, clear_filters
from pyhudi.storage.objects.markers import load_markers
from pyhudi.storage.protocol import Storage

EVIDENCE_FOLDER: Final = ".hoodie/.pyhudi/early"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What there may be of one write."""

    claims: bool
    filters: bool
    by_number: bool  # claims are of buckets, and not of file groups

    def clear(self, storage: Storage, requested: str) -> None:
        """Remove it. The markers of the write say where it has claims, and go later."""
        if self.filters:
            clear_filters(storage, requested)
        if self.claims:
            groups = {marker.file_group for marker in load_markers(storage, requested)}
            places = (place_of(group, by_number=self.by_number) for group in groups)
            clear_claims(storage, requested, places)


def owner_of(storage: Storage, path: str) -> str | None:
    """Return the instant that an object of the evidence folder belongs to; None if it has none."""
    if path.startswith(f"{FILTER_FOLDER}/"):
        name = path[len(FILTER_FOLDER) + 1 :].partition("/")[0]
        return name if is_instant_time(name) else None
    if path.startswith(f"{CLAIM_FOLDER}/"):
        claim = load_claim(storage, path)
        return None if claim is None else claim.requested
    return None
