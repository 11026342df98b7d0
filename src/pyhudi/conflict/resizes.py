"""What a write has to do about the resizes that it meets when it completes.

A resize C gives the rows of its *inputs* to its *children*. Writers go on writing to the inputs,
and the process that executes C copies into the children what has completed there. C completes only
if nothing is missing in the children, and from then on readers hide the inputs. So a write may
complete if, of the file groups that it has files in,

    1  none is an input of a pending resize that is closed;
    2  none in which it opened a base file is an input of any pending resize;
    3  none is replaced;
    4  none was made by a resize that was requested later than the write;
    5  none in which it opened a base file was made by a resize that completed since it began.

    rule  the write                          because
    1     helps to finish the resize         its files would not be copied any more
    2     cancels the resize                 what replaces rows wins over a resize
    3     moves its logs into the children   it was requested later than the resizes between the
                                             groups that it wrote to and those that there are now
    3, 4  otherwise is made again            its rows would lie before copies of writes that
                                             completed before it: a copy has the instant of C
    5     is made again                      to readers, copies lie on its base file, since C
                                             completed later than its base file's instant

A pending resize whose plan cannot be read may have any file group as an input. So rule 2 cancels it
for every write that opened a base file, and once it is closed, rule 1 holds every write until it is
cancelled. If it has completed, its commit names all inputs and children, but not which child has
the rows of which input. So a write that has files in one of them is made again.

**A resize that Hudi can execute** is another matter while it is pending, because Hudi copies
nothing. Each write that has files in an input *writes twice* before it completes: its logs also go
into the children, in logs that the resize names.

    the resize                       the write
    is pending, requested earlier    writes twice, and then completes
    is pending, requested later      is made again: no child has the rows in their order
    has completed                    completes as it is if it has written twice, and else moves or
                                     is made again as above
    was cancelled                    leaves out the logs that it wrote twice

A *virtual* resize lets writes that began after its plan put their rows into its children at once,
and into its inputs logs that refer to them. Such a write

    finds the resize    and
    pending             completes, closed or not: its rows need not be copied
    completed           leaves its references behind, which is its whole move
    cancelled           is made again: the children of a cancelled resize are no buckets

Only completed writes keep a virtual resize from being cancelled. So an overwrite that may not
cancel it finishes it, and is made again.

The rules are judged for exactly the number of the decision log that the write takes, so a resize
that is decided in between is seen (`commit.validation`). Whether a write conflicts with others is
another question (`conflict.rules`). But there file groups are compared *through* resizes: a write
that touched an input has touched each child that its rows may be in by now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from pyhudi.conflict.rules import Conflict, ConflictRule, OtherWrite, OwnWrite, Retry, WriteKind
from pyhudi.format.files.file_names import FileGroupId


@dataclass(frozen=True, slots=True)
class BucketChange:
    """One split or merge: the file groups that are replaced, and those that take their rows."""

    inputs: frozenset[FileGroupId]
    children: frozenset[FileGroupId]


@dataclass(frozen=True)
class Resize:
    """A resize that is pending, or completed since the write began."""

    requested: str
    completed: str | None  # None: it is pending
    is_closed: bool
    changes: tuple[BucketChange, ...]
    is_dual: bool = False  # writers write twice while it is pending
    #: False: its plan is damaged. While it is pending, any file group may be an input.
    is_readable: bool = True
    is_cancelled: bool = False

    def may_replace(self, groups: frozenset[FileGroupId]) -> bool:
        """True if one of these file groups is an input, or may be one."""
        return not groups.isdisjoint(self.inputs) if self.is_readable else bool(groups)

    @cached_property
    def inputs(self) -> frozenset[FileGroupId]:
        return frozenset(group for change in self.changes for group in change.inputs)

    @cached_property
    def children(self) -> frozenset[FileGroupId]:
        return frozenset(group for change in self.changes for group in change.children)

    @cached_property
    def groups(self) -> frozenset[FileGroupId]:
        return self.inputs | self.children

    def children_of(self, groups: frozenset[FileGroupId]) -> frozenset[FileGroupId]:
        """Return the children that may have got rows of these groups."""
        found = (c.children for c in self.changes if not groups.isdisjoint(c.inputs))
        return frozenset(group for children in found for group in children)


@dataclass(frozen=True, slots=True)
class BesideResize:
    """A virtual resize in whose children a write has rows. It was pending when the write was
    placed."""

    requested: str
    changes: tuple[BucketChange, ...]


@dataclass(frozen=True, slots=True)
class MeetsClosed:
    """The write completes once this resize has ended, and any process can finish it."""

    resize: str


@dataclass(frozen=True, slots=True)
class MustCancel:
    """The write opened a base file in an input of this resize, which is cancelled for it."""

    resize: str


@dataclass(frozen=True, slots=True)
class MustMove:
    """The write has logs in inputs of resizes, of which this one completed last."""

    resize: str


@dataclass(frozen=True, slots=True)
class MustWriteTwice:
    """The write has logs in inputs of this resize, and none in its children."""

    resize: str


@dataclass(frozen=True, slots=True)
class MustForget:
    """The write has logs in children of this resize, which was cancelled."""

    resize: str


@dataclass(frozen=True, slots=True)
class MustRepeat:
    """The write is made again under a new instant, because of this resize."""

    resize: Resize
    group: FileGroupId


ResizeVerdict: TypeAlias = (
    MeetsClosed | MustCancel | MustMove | MustWriteTwice | MustForget | MustRepeat
)


@dataclass(frozen=True, slots=True)
class PlacedWrite:
    """What resizes have to do with a write: when it was requested, and where it has files."""

    requested: str
    groups: frozenset[FileGroupId]  # that it has files in
    bases: frozenset[FileGroupId] = frozenset()  # of these, those in which it opened a base file
    references: frozenset[FileGroupId] = frozenset()  # with files that only refer to others
    twice: frozenset[str] = frozenset()  # resizes for which it has written twice
    beside: tuple[BesideResize, ...] = ()  # virtual ones in whose children it has rows


def resize_verdict(write: PlacedWrite, resizes: Sequence[Resize]) -> ResizeVerdict | None:
    """Return what a write must do before it may complete; None if no resize is in its way.

    `resizes` are the pending ones, and those that completed since it was requested. A resize may
    stand in the way of a write in two ways. Then what costs the other side nothing comes first: a
    write that has to be made again neither cancels a resize nor waits for one.
    """
    known = {resize.requested for resize in resizes}
    for gone in write.beside:
        if gone.requested not in known:
            cancelled = Resize(gone.requested, None, False, gone.changes, is_cancelled=True)
            return MustRepeat(cancelled, min(cancelled.children))
    if forgotten := write.twice - known:
        return MustForget(min(forgotten))
    done, groups = _by_completion(resizes), write.groups
    moved: Resize | None = None
    for resize in done:
        if not resize.is_readable and (hit := (groups | write.references) & resize.groups):
            return MustRepeat(resize, min(hit))
        if resize.requested > write.requested and (hit := groups & resize.groups):
            return MustRepeat(resize, min(hit))
        if hit := write.bases & resize.groups:
            return MustRepeat(resize, min(hit))
        if not write.references.isdisjoint(resize.inputs):
            moved = resize
        if children := resize.children_of(groups):
            moved = moved if resize.requested in write.twice else resize
            groups = groups - resize.inputs | children
    pending = [resize for resize in resizes if resize.completed is None]
    for resize in pending:
        if (
            resize.is_dual
            and resize.requested > write.requested
            and (hit := groups & resize.inputs)
        ):
            return MustRepeat(resize, min(hit))
    for resize in pending:
        if resize.may_replace(write.bases):
            return MustCancel(resize.requested)
    for resize in pending:  # also if the write would move there
        if resize.is_closed and resize.may_replace(groups):
            return MeetsClosed(resize.requested)
    if moved is not None:
        return MustMove(moved.requested)
    owed = (r for r in pending if r.is_dual and not groups.isdisjoint(r.inputs))
    found = next((r for r in owed if r.requested not in write.twice), None)
    return None if found is None else MustWriteTwice(found.requested)


def repeat_conflict(met: MustRepeat) -> Conflict:
    """Return the conflict of a write that a resize makes begin again."""
    resize = met.resize
    other = OtherWrite(resize.requested, resize.completed, resize.groups, WriteKind.RESIZE)
    rule = ConflictRule.RESIZE_CANCELLED if resize.is_cancelled else ConflictRule.RESIZED
    return Conflict(rule, other, met.group, Retry.WRITE)


def through(groups: frozenset[FileGroupId], resizes: Iterable[Resize]) -> frozenset[FileGroupId]:
    """Return the groups, and all that may have got rows of theirs in a completed resize."""
    for resize in _by_completion(resizes):
        groups |= resize.children_of(groups)
    return groups


def own_through(own: OwnWrite, resizes: Sequence[Resize]) -> OwnWrite:
    """Return our write as a compaction of a child meets it, which may have its new keys."""
    return replace(own, new_keys=through(own.new_keys, resizes))


def other_through(other: OtherWrite, resizes: Sequence[Resize]) -> OtherWrite:
    """Return another write as a write of a child meets it."""
    if other.groups is None:
        return other
    groups, removals = through(other.groups, resizes), through(other.removals, resizes)
    return replace(other, groups=groups, removals=removals)


def _by_completion(resizes: Iterable[Resize]) -> list[Resize]:
    done = ((resize.completed, resize) for resize in resizes if resize.completed is not None)
    return [resize for _, resize in sorted(done, key=lambda found: found[0])]
