"""When instants are archived, how the archive is stored, and when a run is tried again."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from pyhudi.errors import InvalidRequestError
from pyhudi.plan.compaction.policy import CompactionPolicy, CompactionTrigger
from pyhudi.plan.policy_checks import require_whole

#: More delta commits than any table has: then all of them since the last compaction stay.
_ALL_DELTA_COMMITS = 10**9
#: Triggers that only count.
_COUNTING = (CompactionTrigger.NUM_COMMITS, CompactionTrigger.NUM_COMMITS_AFTER_LAST_REQUEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePolicy:
    """When instants are archived, and how the archive is stored; the defaults are Hudi's.

    The two graces are ours. `grace_ms` is how long ago every process must have read past an entry
    of the decision log: a process reads it again after 60 s, and a request ends within 120 s, so
    only a process that is suspended inside of one request can be later. A writer whose instant was
    aborted may still be creating data files, each without looking at the log; so what it wrote is
    waited for longer.
    """

    keep_min: int = 20  # hoodie.keep.min.commits
    keep_max: int = 30  # hoodie.keep.max.commits
    delta_commits: int = 5  # hoodie.compact.inline.max.delta.commits; 0 if no trigger counts them
    file_instants: int = 1_000  # instants in one new archive file
    merge_files: int = 10  # hoodie.timeline.compaction.batch.size
    #: hoodie.timeline.compaction.target.file.max.bytes, of which an eighth: a lock may be held
    #: while files are merged.
    merge_bytes_max: int = 128 << 20
    manifests_kept: int = 3  # the newest; older ones go after the grace
    grace_ms: int = 600_000
    aborted_grace_ms: int = 24 * 3_600_000

    def __post_init__(self) -> None:
        lowest = {"merge_files": 2, "grace_ms": 0, "aborted_grace_ms": 0, "delta_commits": 0}
        for entry in fields(self):
            value, least = getattr(self, entry.name), lowest.get(entry.name, 1)
            require_whole(entry.name, value, least, "Change the policy of archiving")
        if self.keep_max <= self.keep_min:
            raise InvalidRequestError(
                f"keep_max={self.keep_max} cannot be used with keep_min={self.keep_min}",
                why="archiving starts above the one and goes down to the other",
                next_step="Let keep_max be greater",
            )


@dataclass(frozen=True, slots=True)
class Backoff:
    """The backoff after a run that left more than the policy wants.

    What stopped it seldom ends at once, and each further run would list a timeline that grows. So a
    run is tried when it may archive something, or when the timeline has grown in proportion, or a
    while later.
    """

    asked: ArchivePolicy
    writes: int  # that were left
    until_ms: int

    @classmethod
    def after(cls, asked: ArchivePolicy, writes: int, now_ms: int) -> Backoff:
        return cls(asked, writes, now_ms + asked.grace_ms)

    def is_over(self, asked: ArchivePolicy, writes: int, now_ms: int) -> bool:
        more = max(asked.keep_max - asked.keep_min, self.writes // 4)
        is_other = asked != self.asked or writes < self.writes  # or another process has archived
        return is_other or now_ms >= self.until_ms or writes >= self.writes + more


def archiving_beside(policy: ArchivePolicy, compaction: CompactionPolicy) -> ArchivePolicy:
    """Return the policy, raised so that a compaction's trigger still finds what it counts.

    An archived commit is not counted. A compaction that is due by time needs the time of the last
    one.
    """
    is_counting = compaction.trigger in _COUNTING
    needed = compaction.trigger_delta_commits if is_counting else _ALL_DELTA_COMMITS
    return replace(policy, delta_commits=max(policy.delta_commits, needed))
