"""Is a write that still runs certain to be refused when it asks to complete?

RFC-56 names two kinds of evidence. A rival that has *announced* a file may still fail, so it proves
nothing. One that has *completed* stays completed, and a write only adds to what it has touched. So
a conflict with a completed write that is found while the write runs is there at its end, too, if
it follows from file groups in which the write has files already, or is certain to have them.

    certain                                            not certain, so not asked here
    a conflict with a completed write, by the rules    what is pending: it may fail, or be cancelled
    of `conflict.rules`, for which files have to be    schemas: another write may undo the change
    written again                                      columns of an owner: they may be given back
    a resize that was planned after the write began,   resizes after which logs are moved
    and has completed                                  conflicts behind which the same files may be
    that the write was rolled back                     committed again

What is certain is always right to act upon: it changes no outcome, but what the outcome costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyhudi.conflict.resizes import (
    MustRepeat,
    PlacedWrite,
    Resize,
    other_through,
    own_through,
    repeat_conflict,
    resize_verdict,
)
from pyhudi.conflict.rules import Conflict, OtherWrite, OwnWrite, Retry, first_conflict
from pyhudi.format.table.conflict_strategy import Strategy


def certain_conflict(
    own: OwnWrite,
    completed: Iterable[OtherWrite],
    resizes: Sequence[Resize],
    strategy: Strategy,
) -> Conflict | None:
    """Return a conflict because of which the write cannot complete; None if none is certain.

    `own` has the file groups of the write so far. `completed` are the writes that completed since
    it was requested, and `resizes` those that it may meet.
    """
    done = [resize for resize in resizes if resize.completed is not None]
    placed = PlacedWrite(own.requested, own.present, own.new_slices, own.references)
    met = resize_verdict(placed, done)
    if isinstance(met, MustRepeat):
        return repeat_conflict(met)
    own = own_through(own, done)
    for other in completed:
        conflict = first_conflict(own, [other_through(other, done)], strategy)
        if conflict is not None and conflict.retry is Retry.WRITE:
            return conflict
    return None
