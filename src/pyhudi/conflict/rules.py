"""May this write complete, given what others completed since it began or have pending?

First committer wins: two writes whose lifetimes overlap must not both have written one file group
(RFC-22, and Hudi's default strategy). The later to complete is the one that is checked here. Which
one is later follows from completion times, which Hudi's own strategy compares with requested ones.

    other, completed meanwhile        own logs, checked   own logs, NBCC   own base file over logs
    write of the same file group      conflict            -                conflict
    log compaction of the file group  conflict            -                conflict
    compaction planned since, seed    -                   -                conflict
    resize                            -                   -                -
    replace commit, clustering        conflict            conflict         conflict
    any write of a replaced partition conflict, for overwrite and delete of partitions

    other, under way
    clustering of the file group      conflict, of any age, for its rows move elsewhere
    compaction planned since          -                   -                conflict
    log compaction                    -                   -                conflict
    replace commit begun since        conflict, if its inflight file names the file group
    write of higher priority          conflict, if it has announced a file of the file group

    clean and rollback conflict with nothing, and are not among the others; a rollback of this write
    refuses it by itself. What a write does about resizes is in `conflict.resizes`

**A write that reads nothing** (an upsert of rows as they come) means the same wherever it stands in
the order. If the other's requested time is smaller than its own, its logs already lie behind the
other's, and it is enough to commit it again. Otherwise its files must be written again.

**Partial rows**, as owners of a joined table write them, never conflict with each other. But a
partial row alone is not a row, and one that was written with a placeholder for a new key hides the
row that a base file has. So the key must still exist, or still not exist, as the writer found it. A
delete or a new base file that completed meanwhile is a conflict, and for keys that the writer took
for new also a compaction or a resize that was planned meanwhile.

**Strategies.** `bucket` compares buckets, since engines that race for the first file of a bucket
give it different file ids. `simple` compares file ids, and so does every strategy on a table of
consistent buckets, whose file ids have no numbers. `prefer_writer` lets a pending clustering
yield to the write instead of the write to the clustering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.conflict_strategy import Strategy
from pyhudi.index.simple_bucket import bucket_number

#: True for the partitions that an overwrite or a delete of partitions replaces.
PartitionFilter: TypeAlias = Callable[[str], bool]


class WriteKind(StrEnum):
    """What an instant does, as far as conflicts are concerned."""

    WRITE = "write"
    REPLACE = "replace commit"
    COMPACTION = "compaction"
    LOG_COMPACTION = "log compaction"
    CLUSTERING = "clustering"
    RESIZE = "resize"  # a clustering of buckets whose children are named in its plan
    SEED = "seed"


class ConflictRule(StrEnum):
    """Which rule fired, in words for the user. Names stand in `error.facts` and in the table."""

    SAME_FILE_GROUP = "first committer wins: both wrote the file group"
    HIDDEN_ROWS = "its base file would hide what completed meanwhile in the file group"
    REPLACED = "readers hide the file group since another write replaced it"
    CLEARED_PARTITION = "it replaces a partition that was written meanwhile"
    CLUSTERING_PENDING = "a clustering under way moves the rows of the file group elsewhere"
    COMPACTION_PENDING = "a compaction under way would hide its base file"
    LOG_COMPACTION_PENDING = "a log compaction under way would undo its base file"
    REPLACE_PENDING = "a later overwrite under way writes the file group"
    PRIORITY = "a writer of higher priority is writing the file group"
    PARTS_ALONE = "rows that it has new values for may be gone"
    KEYS_TAKEN_FOR_NEW = (
        "keys that it took for new may be in the base file of a compaction or a resize"
    )
    RESIZED = "a resize that was planned after it began gave the rows of the file group to others"
    RESIZE_CANCELLED = "the resize that would have made the file group was cancelled"


class Retry(StrEnum):
    """What helps after a conflict."""

    COMMIT = "committing the same files again may succeed"
    WRITE = "writing again may succeed"
    LATER = "writing again once the other is done may succeed"
    NO = "no retry will succeed, for only the other engine can write there now"


@dataclass(frozen=True, slots=True)
class OwnWrite:
    """What a write must not share with others."""

    requested: str
    touched: frozenset[FileGroupId]  # also where it has moved its rows from
    new_slices: frozenset[FileGroupId] = frozenset()  # where it puts a base file among logs
    appended: frozenset[FileGroupId] = frozenset()  # the others, if it is checked at all
    replaces: PartitionFilter | None = None
    partial: frozenset[FileGroupId] = frozenset()  # where it has partial rows
    new_keys: frozenset[FileGroupId] = frozenset()  # of these, where it took keys for new
    reads_nothing: bool = False  # it read nothing of the table
    priority: int = 0
    is_numbered: bool = True  # file ids begin with the numbers of buckets
    left: frozenset[FileGroupId] = frozenset()  # out of which it has moved
    is_seed: bool = False  # its file groups had no committed file when it began
    twice: frozenset[str] = frozenset()  # resizes in whose children it has its rows, too
    references: frozenset[FileGroupId] = frozenset()  # where it only refers to rows in others

    @property
    def present(self) -> frozenset[FileGroupId]:
        """The file groups in which it has rows or deletes now."""
        return self.touched - self.left - self.references


@dataclass(frozen=True, slots=True)
class OtherWrite:
    """A write that completed while ours was under way, or is under way itself."""

    requested: str
    completed: str | None
    groups: frozenset[FileGroupId] | None  # None: unknown, so it may be any
    kind: WriteKind = WriteKind.WRITE
    priority: int = 0
    damaged_plan: str | None = field(default=None, compare=False)  # the file that cannot be read
    removals: frozenset[FileGroupId] = frozenset()  # where it deleted, or wrote a base file
    files: tuple[str, ...] = field(default=(), compare=False)  # whose keys a report shows
    #: True if it may have deleted rows whose keys are in no file: the next base file just lacks
    #: them.
    has_deletes_without_keys: bool = field(default=False, compare=False)

    @property
    def passes_logs(self) -> bool:
        """True for a seed and a compaction: logs stay visible above them."""
        return self.kind in (WriteKind.SEED, WriteKind.COMPACTION)


@dataclass(frozen=True, slots=True)
class Conflict:
    """The other write in the way, one of the file groups in question, and what helps."""

    rule: ConflictRule
    other: OtherWrite
    group: FileGroupId
    retry: Retry


def first_conflict(
    own: OwnWrite, others: Iterable[OtherWrite], strategy: Strategy = Strategy.BUCKET
) -> Conflict | None:
    """Return the first of the others that our write must yield to.

    The others come by completion time. The caller passes as `completed` only those that completed
    after our requested time.
    """
    found = (_conflict(own, other, strategy) for other in others)
    return next((conflict for conflict in found if conflict is not None), None)


def _conflict(own: OwnWrite, other: OtherWrite, strategy: Strategy) -> Conflict | None:
    if other.requested == own.requested:
        return None
    judge = _completed_conflict if other.completed is not None else _pending_conflict
    return judge(own, other, strategy)


def _completed_conflict(own: OwnWrite, other: OtherWrite, strategy: Strategy) -> Conflict | None:
    if other.kind is WriteKind.COMPACTION and other.requested < own.requested:
        return None  # its base files are older than ours, and than what we found
    if other.kind is WriteKind.RESIZE:
        return _new_keys_conflict(own, other, strategy)
    if other.kind is WriteKind.REPLACE and (
        group := _shared(own, own.touched, other.groups, strategy)
    ):
        return Conflict(ConflictRule.REPLACED, other, group, Retry.WRITE)
    if (group := _shared(own, own.new_slices, other.groups, strategy)) is not None:
        return Conflict(ConflictRule.HIDDEN_ROWS, other, group, Retry.WRITE)
    if (conflict := _new_keys_conflict(own, other, strategy)) is not None:
        return conflict
    if other.passes_logs:
        return None
    if (group := _shared(own, own.partial, other.removals, strategy)) is not None:
        return Conflict(ConflictRule.PARTS_ALONE, other, group, Retry.WRITE)
    if (group := _shared(own, own.appended, other.groups, strategy)) is not None:
        return Conflict(ConflictRule.SAME_FILE_GROUP, other, group, _retry(own, other))
    replaced = own.replaces
    if replaced is None:
        return None
    found = (group for group in sorted(other.groups or ()) if replaced(group.partition))
    if (group := next(found, None)) is not None:
        return Conflict(ConflictRule.CLEARED_PARTITION, other, group, Retry.WRITE)
    return None


def _new_keys_conflict(own: OwnWrite, other: OtherWrite, strategy: Strategy) -> Conflict | None:
    """Return the conflict if keys that we took for new may be in a newer base file.

    It is the base file of a compaction or a resize that was planned since our write began.
    """
    if other.kind not in _MERGING or other.requested < own.requested:
        return None
    if (group := _shared(own, own.new_keys, other.groups, strategy)) is None:
        return None
    return Conflict(ConflictRule.KEYS_TAKEN_FOR_NEW, other, group, Retry.WRITE)


#: What puts rows of logs into a base file.
_MERGING = (WriteKind.COMPACTION, WriteKind.LOG_COMPACTION, WriteKind.RESIZE)


def _retry(own: OwnWrite, other: OtherWrite) -> Retry:
    """Return `Retry.COMMIT` if committing the same files again keeps the order of the logs.

    Readers order logs by requested time, and that is already the order of completion.
    """
    in_order = other.requested < own.requested and other.kind is WriteKind.WRITE
    return Retry.COMMIT if own.reads_nothing and in_order else Retry.WRITE


def _pending_conflict(own: OwnWrite, other: OtherWrite, strategy: Strategy) -> Conflict | None:
    if (conflict := _new_keys_conflict(own, other, strategy)) is not None:
        return conflict
    rule, groups = _pending_rule(own, other, strategy)
    if rule is None or (group := _shared(own, groups, other.groups, strategy)) is None:
        return None
    return Conflict(rule, other, group, Retry.LATER)


def _pending_rule(
    own: OwnWrite, other: OtherWrite, strategy: Strategy
) -> tuple[ConflictRule | None, frozenset[FileGroupId]]:
    """Return the rule that a pending write may break, and which of our file groups to compare."""
    checked = own.new_slices | own.appended
    is_later = other.requested > own.requested
    match other.kind:
        case WriteKind.CLUSTERING if strategy is not Strategy.PREFER_WRITER:
            return ConflictRule.CLUSTERING_PENDING, own.touched
        case WriteKind.COMPACTION if is_later:
            return ConflictRule.COMPACTION_PENDING, own.new_slices
        case WriteKind.LOG_COMPACTION:
            return ConflictRule.LOG_COMPACTION_PENDING, own.new_slices
        case WriteKind.REPLACE if is_later:
            return ConflictRule.REPLACE_PENDING, checked
        case WriteKind.WRITE if other.priority > own.priority:
            return ConflictRule.PRIORITY, checked
    return None, frozenset()


def _shared(
    own: OwnWrite,
    groups: frozenset[FileGroupId],
    theirs: frozenset[FileGroupId] | None,
    strategy: Strategy,
) -> FileGroupId | None:
    """Return one of our write's file groups that the other write has too, or may have."""
    if not groups:
        return None
    if theirs is None:
        return min(groups)
    by_number = own.is_numbered and strategy is not Strategy.SIMPLE
    key = conflict_key if by_number else _file_group
    keys = {key(group): group for group in sorted(groups, reverse=True)}
    found = (keys.get(key(group)) for group in sorted(theirs))
    return next((group for group in found if group is not None), None)


def _file_group(group: FileGroupId) -> tuple[str, str]:
    return group.partition, group.file_id


def conflict_key(group: FileGroupId) -> tuple[str, str]:
    """Return the simple bucket of a file group; the file group itself if it has no number."""
    bucket = bucket_number(group.file_id)
    return group.partition, group.file_id if bucket is None else str(bucket)
