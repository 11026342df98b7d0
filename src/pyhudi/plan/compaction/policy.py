"""The settings of a compaction: which file groups come first, how much, and when."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from pyhudi.plan.policy_checks import require_whole, unusable, word_of

MB = 1 << 20
#: Hudi's bound on the bytes that one compaction reads and writes.
IO_BYTES_MAX = 512_000 * MB


class CompactionOrder(StrEnum):
    """Which file groups come first."""

    LOG_SIZE = "log_size"  # those with most bytes in logs; Hudi's own order
    DELTA_COMMITS = "delta_commits"  # those to which most writes have added logs
    AGE = "age"  # those whose oldest log is the oldest


class CompactionTrigger(StrEnum):
    """What makes a compaction due; the words are Hudi's."""

    NUM_COMMITS = "num_commits"
    NUM_COMMITS_AFTER_LAST_REQUEST = "num_commits_after_last_request"
    TIME_ELAPSED = "time_elapsed"
    NUM_AND_TIME = "num_and_time"
    NUM_OR_TIME = "num_or_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """What to compact, and when; the defaults are Hudi's."""

    order: CompactionOrder = CompactionOrder.LOG_SIZE
    min_delta_commits: int = 1  # writes that added logs to a group before it is worth the work
    min_log_bytes: int = 0  # bytes of logs of a group before it is worth the work
    io_bytes_max: int = IO_BYTES_MAX  # read and written by one run; the group beyond is the last
    #: Exact: what the files of one run have in all. A larger group is left out; without it, any.
    input_bytes_max: int | None = None
    partitions: tuple[str, ...] | None = None  # paths; without them, all
    trigger: CompactionTrigger = CompactionTrigger.NUM_COMMITS
    trigger_delta_commits: int = 5  # completed since the last compaction
    trigger_seconds: int = 3_600  # since the last compaction

    def __post_init__(self) -> None:
        for each in fields(self):
            name, value = each.name, getattr(self, each.name)
            if name in _WORDS:
                object.__setattr__(self, name, word_of(name, value, _WORDS[name], _ADVICE))
            elif name != "partitions" and (value is not None or name not in _MAY_BE_NONE):
                require_whole(name, value, 0 if name in _MAY_BE_ZERO else 1, _ADVICE)
        if self.partitions is not None:
            object.__setattr__(self, "partitions", _paths(self.partitions))


_ADVICE = "Change the compaction policy"
_WORDS: Mapping[str, type[StrEnum]] = {"order": CompactionOrder, "trigger": CompactionTrigger}
_MAY_BE_ZERO = ("min_log_bytes", "trigger_seconds", "input_bytes_max")
_MAY_BE_NONE = ("input_bytes_max",)


def _paths(given: Any) -> tuple[str, ...]:
    is_list = isinstance(given, Collection) and not isinstance(given, str | bytes | Mapping)
    if not is_list or not all(isinstance(path, str) for path in given):
        raise unusable("partitions", given, "it must be a list of partition paths", _ADVICE)
    return tuple(path.strip("/") for path in given)
