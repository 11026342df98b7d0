"""The options of a service process that change the policy of the table.

Each line of the table is an option and the setting that it changes. An option that is left out
leaves its setting as the table records it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pyhudi.cli.values import bytes_of, milliseconds_of, seconds_of
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.plan.compaction.policy import CompactionOrder, CompactionTrigger
from pyhudi.plan.resizing.policy import SplitAt
from pyhudi.plan.upkeep import ARCHIVE, CLEAN, COMPACTION, RESIZE, SERVICES, Upkeep


class _Option(NamedTuple):
    """An option, and the setting of the policy that it changes; or two, if it has two values."""

    name: str
    setting: str
    kind: Callable[[str], Any] | type[StrEnum]
    metavar: str
    help: str  # the default of a table without a policy stands in brackets


_OPTIONS: Final[Mapping[str, tuple[_Option, ...]]] = {
    COMPACTION: (
        _Option("--compact-trigger", "trigger", CompactionTrigger, "",
            "what makes one due (num_commits)"),
        _Option("--compact-after", "trigger_delta_commits", int, "DELTA_COMMITS",
            "since the last one, for triggers that count (5)"),
        _Option("--compact-after-time", "trigger_seconds", seconds_of, "TIME",
            "since the last one, for triggers by time (1h)"),
        _Option("--compact-order", "order", CompactionOrder, "",
            "which file groups come first (log_size)"),
        _Option("--compact-min-delta-commits", "min_delta_commits", int, "N",
            "in a file group, for it to be compacted (1)"),
        _Option("--compact-min-log-bytes", "min_log_bytes", bytes_of, "BYTES",
            "in a file group, for it to be compacted (0)"),
        _Option("--compact-io-bytes-max", "io_bytes_max", bytes_of, "BYTES",
            "read and written by one plan, approximately (512000MB)"),
    ),
    RESIZE: (
        _Option("--resize-target", "target_bytes", bytes_of, "BYTES",
            "how large a bucket should be (120MB)"),
        _Option("--resize-split-above", "split_above", float, "FACTOR",
            "times the target: a larger bucket is split (2.0)"),
        _Option("--resize-merge-below", "merge_below", float, "FACTOR",
            "times the target: smaller neighbours are merged (0.2)"),
        _Option("--resize-split", "split", SplitAt, "",
            "where a bucket is cut (middle)"),
        _Option("--resize-bytes-max", "bytes_max", bytes_of, "BYTES",
            "of the buckets that one plan replaces (2GB)"),
        _Option("--resize-rest", "rest_seconds", seconds_of, "TIME",
            "between two resizes of a partition (10m)"),
    ),
    CLEAN: (),
    ARCHIVE: (
        _Option("--archive-keep", "keep_min keep_max", int, "MIN MAX",
            "commits that stay active, and how many start it (20 30)"),
        _Option("--archive-grace", "grace_ms", milliseconds_of, "TIME",
            "instants that are younger stay active (10m)"),
        _Option("--archive-aborted-grace", "aborted_grace_ms", milliseconds_of, "TIME",
            "archiving crosses a failed write only if it is older (24h)"),
    ),
}  # fmt: skip

#: A policy of cleaning is one of these, and no more than one can be named.
_RETENTIONS: Final = {
    "--keep-commits": (CleanPolicy.commits, "states that N commits left"),
    "--keep-versions": (CleanPolicy.versions, "of each file group"),
    "--keep-hours": (CleanPolicy.hours, "table states of the last N hours (24)"),
}

_GROUPS: Final = {
    COMPACTION: ("compaction", "When and what (pyhudi.CompactionPolicy, docs/services.md)."),
    RESIZE: (
        "resizing",
        "Which buckets are split and merged, on tables with consistent ones (pyhudi.ResizePolicy,"
        " docs/resizing.md).",
    ),
    CLEAN: (
        "cleaning",
        "What is retained (pyhudi.CleanPolicy, docs/services.md); one of these.",
    ),
    ARCHIVE: (
        "archiving",
        "When, and what stays active (pyhudi.ArchivePolicy, docs/services.md).",
    ),
}


def add_policy_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of each service, and one that leaves it to another process."""
    for service, (title, about) in _GROUPS.items():
        group = parser.add_argument_group(title, about)
        for option in _OPTIONS[service]:
            _add(group, service, option)
        if service == CLEAN:
            only_one = group.add_mutually_exclusive_group()
            for name, (_, words) in _RETENTIONS.items():
                only_one.add_argument(name, dest=name, type=int, metavar="N", help=words)
    for service in SERVICES:
        parser.add_argument(
            f"--no-{service}", action="store_true", help="leave it to another process"
        )


def _add(group: argparse._ArgumentGroup, service: str, option: _Option) -> None:
    how: dict[str, Any] = {"type": option.kind}
    if isinstance(option.kind, type) and issubclass(option.kind, StrEnum):
        how = {"choices": [word.value for word in option.kind]}
    elif " " in option.metavar:
        names = tuple(option.metavar.split())
        how |= {"nargs": len(names), "metavar": names}
    else:
        how["metavar"] = option.metavar
    group.add_argument(option.name, dest=_place(service, option), help=option.help, **how)


def names_policy(asked: argparse.Namespace) -> bool:
    """True if an option concerns the policy."""
    concerned = (_is_left(asked, name) or bool(_changes(asked, name)) for name in SERVICES)
    return _retention(asked) is not None or any(concerned)


def named_policy(asked: argparse.Namespace, base: Upkeep) -> Upkeep:
    """Return the policy, with what the options change of it."""
    policies: dict[str, Any] = {name: getattr(base, name) for name in SERVICES}
    policies[CLEAN] = _retention(asked) or policies[CLEAN]
    for service, kind in SERVICES.items():
        if changes := _changes(asked, service):
            policies[service] = replace(policies[service] or kind(), **changes)
        if _is_left(asked, service):
            policies[service] = None
    return replace(base, **policies)


def _changes(asked: argparse.Namespace, service: str) -> dict[str, Any]:
    """Return the settings of a service that options change."""
    found: dict[str, Any] = {}
    for option in _OPTIONS[service]:
        value = getattr(asked, _place(service, option))
        if value is not None:
            names = option.setting.split()
            found.update(zip(names, value if len(names) > 1 else [value], strict=True))
    return found


def _retention(asked: argparse.Namespace) -> CleanPolicy | None:
    named = ((make, getattr(asked, name)) for name, (make, _) in _RETENTIONS.items())
    return next((make(keep) for make, keep in named if keep is not None), None)


def _is_left(asked: argparse.Namespace, service: str) -> bool:
    return bool(getattr(asked, f"no_{service}"))


def _place(service: str, option: _Option) -> str:
    """Return where the parser keeps the option's value."""
    return f"{service} {option.setting}"
