"""How one attempt of a toy write writes, and the intent that production would call it by."""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.commit.ownership import OwnedPart
from pyhudi.simulate.table.actors.overwriter import Overwrite
from pyhudi.write.intent import Reads, WriteIntent


@dataclass(frozen=True, slots=True)
class Way:
    """How one attempt writes."""

    is_base: bool
    is_checked: bool
    reads_nothing: bool
    is_fenced: bool
    keeps_files: bool
    overwrite: Overwrite | None = None  # set if it replaces partitions

    @property
    def operation(self) -> str:
        return "UPSERT" if self.overwrite is None else self.overwrite.operation

    def intent(self, owned: OwnedPart | None) -> WriteIntent:
        """Return its intent; `owned` is set if its rows are partial rows of an owner."""
        reads = Reads.NOTHING
        if not self.reads_nothing:
            reads = Reads.ROWS if self.is_checked else Reads.LOCATIONS
        replaces = None if self.overwrite is None else self.overwrite.scope
        return WriteIntent(operation=self.operation, reads=reads, owned=owned, replaces=replaces)
