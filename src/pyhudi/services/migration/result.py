"""What a call of `migrate_buckets` did, or would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from pyhudi.errors import HudiError, first_of
from pyhudi.format.table.bucket_config import ConsistentBuckets
from pyhudi.services.resizing.result import ResizeResult
from pyhudi.wording import counted


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a call of `migrate_buckets` did, or would do."""

    buckets: ConsistentBuckets
    is_done: bool  # every partition has a ring, and the table says so
    results: tuple[ResizeResult, ...] = ()  # of the partitions that got a ring
    left: Mapping[str, str] = field(default_factory=dict)  # partition → why it has none yet
    errors: tuple[HudiError, ...] = ()

    @property
    def did_anything(self) -> bool:
        """True if the table changed."""
        return self.is_done or bool(self.results)

    def or_raise(self) -> Self:
        """Return this result, or raise the first error if something failed."""
        if self.errors and not self.is_done:
            raise first_of(self.errors, self.results)
        return self

    def __str__(self) -> str:
        head = "the migration is done" if self.is_done else "the migration is not done"
        lines = [f"{head}: {counted(len(self.results), 'partition')} migrated by this call"]
        lines += [f"  {result}" for result in self.results]
        lines += [f"  partition {partition!r}: {why}" for partition, why in self.left.items()]
        return "\n".join(lines)
