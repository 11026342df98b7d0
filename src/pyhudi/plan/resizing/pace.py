"""How much does a resize copy before it looks again, when does it close, and when is it cancelled?

Writers go on while a resize copies what they completed. It copies in *rounds*, and looks after each
at what is owed by then.

    catching up   rounds of an eighth of what was owed, as long as that makes it less
    outrun        writers are as fast: short rounds. Each that leaves something owed counts as a
                  refusal, like a completion that is refused
    closing       after three refusals, if what is owed takes the process no more than two seconds
                  at the speed of its own last rounds. Never with more than 256 MiB or 4,096 files;
                  the files of the oldest write alone are never too many
    cancelling    after 33 refusals; after nine if the plan has several splits or merges, because
                  they can be planned again in smaller plans

A process that has copied nothing yet counts on 8 MiB, or 128 files, in a second. Files count beside
bytes because copies of small writes cost a file in each child. Short rounds keep the end near:
while writers are faster, whatever a round copies, more comes to be owed.

It ends. A pass of catching up is a bounded number of rounds and leaves less than the pass before
it, or writers have outrun it. After that every round counts. A resize that is closed copies all
that is owed at once: that is within the limits, and only becomes less.

The speed is measured beside the writers. Those that meet a closed resize write nothing, and help
after a while, so the rest takes no longer. To close beyond the limits would make writers wait for
as long as it takes. A resize that is cancelled costs its own work and no row. In half as many
buckets its base files are made in half of the time, in which half as many writes complete, and of
each it copies half as many files. So a smaller plan can keep up where a larger one cannot, and what
is outrun is planned again in smaller plans, down to one split or merge
(`services.resizing.run`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyhudi.errors import ConflictError
from pyhudi.format.timeline.resize_plan import ResizePlan
from pyhudi.plan.resizing.copies import OwedCopy
from pyhudi.wording import readable

#: Refusals after which a resize is closed.
REFUSALS_MAX: Final = 3
#: Refusals after which one that may not be closed is cancelled.
CANCEL_REFUSALS: Final = 33
#: The same for a plan that can be divided.
DIVIDE_REFUSALS: Final = 9
#: How long a process that closes a resize may need for what is left, beside writers.
CLOSE_MS: Final = 2_000
#: What may be left at most, however fast the process is. It is a rule of the protocol.
CLOSE_BYTES: Final = 256 << 20
CLOSE_FILES: Final = 4_096
#: What counts as a load of 1.
_LOAD_BYTES: Final = 8 << 20
_LOAD_FILES: Final = 128
#: How long that takes before anything was copied.
_LOAD_MS: Final = 1_000.0
#: Rounds in which a pass copies what was owed when it began.
_ROUNDS_A_PASS: Final = 8
#: What the rounds before the last one count for in the speed.
_EARLIER: Final = 0.5


class OutrunError(ConflictError):
    """Writers complete faster than a resize copies what they completed. It carries the plan."""

    def __init__(self, what: str, *, why: str, next_step: str, plan: ResizePlan) -> None:
        super().__init__(what, why=why, next_step=next_step)
        self.plan = plan


def load_of(owed: Sequence[OwedCopy]) -> float:
    """Return how much is owed; 1 is a short round."""
    size, files = _sums(owed)
    return max(size / _LOAD_BYTES, files / _LOAD_FILES)


def _sums(owed: Sequence[OwedCopy]) -> tuple[int, int]:
    return sum(each.bytes for each in owed), sum(each.files for each in owed)


@dataclass(frozen=True, slots=True)
class Pace:
    """How far the end of a resize has come."""

    owed: float  # when this pass began
    left: float  # of that, not copied yet
    is_outrun: bool = False
    refusals: int = 0
    # What was copied so far, and in which time; the last rounds count most.
    copied: float = 0.0
    took_ms: float = 0.0

    @classmethod
    def of(cls, owed: Sequence[OwedCopy]) -> Pace:
        return cls(load_of(owed), load_of(owed))

    def after(self, copied: Sequence[OwedCopy], took_ms: float, owed: Sequence[OwedCopy]) -> Pace:
        """Return the pace after a round that copied this in that time, and left that."""
        pace = self._measured(load_of(copied), took_ms)
        load, left = load_of(owed), self.left - load_of(copied)
        if not owed:
            return pace
        if self.is_outrun or load > self.owed + self.owed / _ROUNDS_A_PASS:
            return pace.refused()
        if left > 0:
            return replace(pace, left=left)
        return replace(pace, owed=load, left=load) if load < self.owed else pace.refused()

    def _measured(self, load: float, took_ms: float) -> Pace:
        copied, took = _EARLIER * self.copied + load, _EARLIER * self.took_ms + took_ms
        return replace(self, copied=copied, took_ms=took)

    def needed_ms(self, owed: Sequence[OwedCopy]) -> float:
        """Return how long it will take to copy this."""
        load_ms = self.took_ms / self.copied if self.copied else _LOAD_MS
        return load_of(owed) * load_ms

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

    def may_close(self, owed: Sequence[OwedCopy]) -> bool:
        """True if the resize is to be closed while this is owed."""
        if self.refusals < REFUSALS_MAX or self.needed_ms(owed) > CLOSE_MS:
            return False
        size, files = _sums(owed)
        files_max = max(CLOSE_FILES, owed[0].files if owed else 0)
        return size <= CLOSE_BYTES and files <= files_max

    def must_cancel(self, changes: int) -> bool:
        """True if a resize of so many splits and merges, which may not be closed, is cancelled."""
        return self.refusals >= (CANCEL_REFUSALS if changes == 1 else DIVIDE_REFUSALS)


def outrun_error(
    requested: str, plan: ResizePlan, pace: Pace, owed: Sequence[OwedCopy]
) -> OutrunError:
    size, files = _sums(owed)
    needed_s = pace.needed_ms(owed) / 1000
    return OutrunError(
        f"the resize {requested} was cancelled",
        why="writes complete in its buckets faster than their logs are copied into the new ones:"
        f" {readable(size, 'B')} in {files:,} files are left to copy, {needed_s:.1f} s of work."
        f" Writers would have to wait for that, and wait for no more than {CLOSE_MS / 1000:g} s",
        next_step="No row is lost, and the next resize makes a new plan. Run it while fewer writes"
        " complete, or let it make fewer buckets at once",
        plan=plan,
    )
