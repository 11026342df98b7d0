"""The markers of an instant that ends while they are read."""

from __future__ import annotations

from collections.abc import Iterator

from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.markers import marker_folder
from pyhudi.storage.objects.markers import load_markers
from pyhudi.storage.protocol import ObjectStat
from pyhudi.storage.stores.memory import MemoryStorage

REQUESTED = InstantTime("20260102030405678")
FILE = f"p/{'0' * 8}-aaaa-0_0-0-0_{REQUESTED}.parquet"


class Vanishing(MemoryStorage):
    """Objects are removed right after they are listed."""

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
        found = list(super().list(prefix, after=after))
        self.delete_all([stat.path for stat in found])
        return iter(found)


def test_a_list_that_is_removed_since_it_was_listed_has_no_markers() -> None:
    storage = Vanishing(lambda: 0)
    folder = marker_folder(REQUESTED)
    storage.write(f"{folder}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    storage.write(f"{folder}/MARKERS0", f"{FILE}.marker.CREATE\n".encode())
    storage.write(f"{folder}/{FILE}.marker.MERGE", b"")
    assert [marker.data_file for marker in load_markers(storage, str(REQUESTED))] == [FILE]
    assert load_markers(storage, str(REQUESTED)) == ()
