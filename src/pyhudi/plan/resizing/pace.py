"""How much does a resize copy before it looks again, when does it close, and when is it cancelled?

Writers go on while a resize copies what they completed. It copies in *rounds*, and looks after each
at what is owed by then.

    catching up   rounds of an eighth of what was owed, as long as that makes it less
    outrun        writers are as fast: short rounds. Each that leaves something owed counts as a
                  refusal, like a completion that is refused
    closing       after three refusals, if what is owed is within the limits. They begin at 8 MiB
                  and 128 files, and double after each five refusals, up to 256 MiB and 4,096
                  files. The files of the oldest write alone are never too many
    cancelling    after five refusals at the highest limits

Files count beside bytes because copies of small writes cost a file in each child. Short rounds keep
the end near: while writers are faster, whatever a round copies, more comes to be owed.

It ends. A pass of catching up is a bounded number of rounds and leaves less than the pass before
it, or writers have outrun it. After that every round counts. A resize that is closed copies all
that is owed at once: that is within the limits, and only becomes less.

To close beyond the limits would make writers wait for as long as it takes. A resize that is
cancelled costs its own work and no row, and the next plan may find a quieter time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyhudi.errors import ConflictError
from pyhudi.plan.resizing.copies import OwedCopy
from pyhudi.wording import readable

#: Refusals after which a resize is closed.
REFUSALS_MAX: Final = 3
#: What may be left to copy when a resize is closed, at first.
CLOSE_BYTES: Final = 8 << 20
CLOSE_FILES: Final = 128
#: Refusals after which it may be twice as much, and how often it doubles.
CLOSE_REFUSALS: Final = 5
CLOSE_DOUBLINGS: Final = 5
#: Rounds in which a pass copies what was owed when it began.
_ROUNDS_A_PASS: Final = 8


class OutrunError(ConflictError):
    """Writers complete faster than a resize copies what they completed."""


def load_of(owed: Sequence[OwedCopy]) -> float:
    """Return how much is owed; 1 is what a resize may be closed with at first."""
    size, files = sum(each.bytes for each in owed), sum(each.files for each in owed)
    return max(size / CLOSE_BYTES, files / CLOSE_FILES)


@dataclass(frozen=True, slots=True)
class Pace:
    """How far the end of a resize has come."""

    owed: float  # when this pass began
    left: float  # of that, not copied yet
    is_outrun: bool = False
    refusals: int = 0

    @classmethod
    def of(cls, owed: Sequence[OwedCopy]) -> Pace:
        return cls(load_of(owed), load_of(owed))

    def after(self, copied: Sequence[OwedCopy], owed: Sequence[OwedCopy]) -> Pace:
        """Return the pace after a round that copied this, and left that."""
        load, left = load_of(owed), self.left - load_of(copied)
        if not owed:
            return self
        if self.is_outrun or load > self.owed + self.owed / _ROUNDS_A_PASS:
            return self.refused()
        if left > 0:
            return replace(self, left=left)
        return Pace(load, load, refusals=self.refusals) if load < self.owed else self.refused()

    def refused(self) -> Pace:
        """Return the pace after a completion that was refused, because a write completed."""
        return replace(self, is_outrun=True, refusals=self.refusals + 1)

    def next_round(self, owed: Sequence[OwedCopy]) -> Sequence[OwedCopy]:
        """Return what to copy now: the oldest of what is owed, and at least one write."""
        amount = 1.0 if self.is_outrun else max(1.0, self.owed / _ROUNDS_A_PASS)
        count, load = 1, load_of(owed[:1])
        while count < len(owed) and (load := load + load_of(owed[count : count + 1])) <= amount:
            count += 1
        return owed[:count]

    # -- closing

    @property
    def _doublings(self) -> int:
        return (self.refusals - REFUSALS_MAX) // CLOSE_REFUSALS

    def may_close(self, owed: Sequence[OwedCopy]) -> bool:
        """True if the resize is to be closed while this is owed."""
        if self.refusals < REFUSALS_MAX:
            return False
        factor = 1 << min(self._doublings, CLOSE_DOUBLINGS)
        files_max = max(CLOSE_FILES * factor, owed[0].files if owed else 0)
        size, files = sum(each.bytes for each in owed), sum(each.files for each in owed)
        return size <= CLOSE_BYTES * factor and files <= files_max

    @property
    def must_cancel(self) -> bool:
        """True if a resize that still may not be closed has to be cancelled."""
        return self._doublings > CLOSE_DOUBLINGS


def outrun_error(requested: str, owed: Sequence[OwedCopy]) -> OutrunError:
    size, files = sum(each.bytes for each in owed), sum(each.files for each in owed)
    most = f"{readable(CLOSE_BYTES << CLOSE_DOUBLINGS, 'B')}, {CLOSE_FILES << CLOSE_DOUBLINGS:,}"
    return OutrunError(
        f"the resize {requested} was cancelled",
        why="writes complete in its buckets faster than their logs are copied into the new ones:"
        f" {readable(size, 'B')} in {files:,} files are left to copy. Writers would have to wait"
        f" for that, and wait for no more than {most} files",
        next_step="No row is lost, and the next resize makes a new plan. Run it while fewer writes"
        " complete, or let it make fewer buckets at once",
    )
