"""Tables of simple buckets that are migrated to consistent ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyhudi.api.table import Table
from pyhudi.format.table.bucket_config import ConsistentBuckets, SimpleBuckets
from pyhudi.format.table.table_config import TableConfig
from pyhudi.format.timeline.decision_entry import Entry
from pyhudi.index.simple_bucket import bucket_number
from pyhudi.read.load import load_config
from pyhudi.services.migration.result import Migrated
from pyhudi.services.migration.run import migrate_buckets
from pyhudi.storage.objects.rings import load_all_ring_files
from pyhudi.storage.protocol import Storage
from pyhudi.table.schema import FILE_NAME
from resize_tables import ResizeTable

RINGS = ConsistentBuckets(initial=2)


class MigratingTable(ResizeTable):
    """A table partitioned by `day`, with three simple buckets in each partition."""

    def __init__(self, *, count: int = 3, **definition: Any) -> None:
        super().__init__(**{"buckets": SimpleBuckets(count), **definition})

    @property
    def config(self) -> TableConfig:
        return load_config(self.storage)

    def migrate(
        self, label: str = "m", storage: Storage | None = None, **settings: Any
    ) -> Migrated:
        return migrate_buckets(self.opening(label, storage, **settings), RINGS)

    def announce(self, label: str = "m") -> None:
        """Leave the table as a migrating process does that dies when it has announced."""
        from pyhudi.services.migration import run

        opening = self.opening(label)
        session = opening.session()
        run._announce(opening, session, run._target(session.config, RINGS))

    def contents(self) -> dict[str, bytes]:
        """All objects of the table but those that a process leaves which looks at the clock."""
        return {s.path: self.storage.read(s.path) for s in self.storage.list("")}

    def rings(self) -> dict[str, tuple[str, ...]]:
        """Partition → the instants of its rings."""
        return {p: files.instants for p, files in load_all_ring_files(self.storage).items()}

    def numbered(self, day: str) -> bool:
        """True if the newest rows of the partition are in simple buckets."""
        found = self.table("r").read(meta=True, where=f"day = '{day}'").to_arrow()
        names = found[FILE_NAME].to_pylist()
        groups = {bucket_number(name.lstrip(".")) is not None for name in names}
        assert len(groups) == 1, names
        return groups.pop()

    def entries(self) -> Iterable[Entry]:
        return self.session("look").log.latest_entries(1_000)


def settled(table: Table) -> None:
    """Assert that every key is in its bucket, once."""
    assert not table.services.verify().findings
