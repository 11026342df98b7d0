"""The table services as a process of their own: `python -m pyhudi.service TABLE --every 30s`.

Runs beside any number of writers, and of other such processes. A round that fails is reported on
stderr, and the next one tries again. SIGTERM and SIGINT let the current round finish; a second
signal ends the process at once, which does no harm.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from traceback import format_exc
from types import FrameType
from typing import Any

from pyhudi.api.open import open_table
from pyhudi.api.table import Table
from pyhudi.errors import HudiError, InvalidRequestError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.plan.archiving import ArchivePolicy
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.plan.compaction import CompactionOrder, CompactionPolicy, CompactionTrigger
from pyhudi.plan.resizing.policy import ResizePolicy, SplitAt
from pyhudi.plan.upkeep import Upkeep
from pyhudi.services.archiving.run import ArchiveResult
from pyhudi.settings import WriteSettings
from pyhudi.world import World, real_world

_POLICIES = (
    "The options of compaction, resizing, cleaning and archiving change the policy that the table"
    " records; without a recorded one the values in brackets count. The process is warned if its"
    " policy is not the table's."
)
_COMPACTION = "When and what (pyhudi.CompactionPolicy, docs/services.md)."
_RESIZING = (
    "Which buckets are split and merged, on tables with consistent ones (pyhudi.ResizePolicy,"
    " docs/resizing.md)."
)
_CLEANING = "What is retained (pyhudi.CleanPolicy, docs/services.md); one of these."
_ARCHIVING = "When, and what stays active (pyhudi.ArchivePolicy, docs/services.md)."
_FOREIGN = "The lock and buckets of its writers, if the table does not record them (docs/locks.md)."
_STOPPED = (
    "stops at {}, whose instant is on no timeline: put back what is missing there, or let "
    "table.services.repair() remove the file"
)
#: How long a sleeping process may take to notice a request to stop.
NOTICE_MS = 250
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_SIZES = {None: 0, "KB": 10, "MB": 20, "GB": 30, "TB": 40}  # shift in bits


def main(arguments: Sequence[str] | None = None, world: World | None = None) -> int:
    """Run the services; return 0 if the last round succeeded.

    1 if it failed, or the table cannot be opened; 2 for arguments that can never work.
    """
    parser = _parser()
    asked = parser.parse_args(arguments)
    try:
        _named_policy(asked, None)  # values that no policy may have
        settings = _settings(asked)
    except InvalidRequestError as error:
        parser.error(str(error))
    stop = _Stop()
    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        return _rounds(_opened(asked, settings), asked, stop, world or real_world())
    except HudiError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _settings(asked: argparse.Namespace) -> WriteSettings:
    return WriteSettings(
        job=asked.job,
        heartbeat_interval_ms=asked.heartbeat_interval,
        heartbeat_misses=asked.heartbeat_misses,
    )


def _opened(asked: argparse.Namespace, settings: WriteSettings) -> Table:
    return open_table(
        asked.table,
        storage_options=dict(asked.storage_option),
        write_settings=settings,
        buckets=None if asked.buckets is None else SimpleBuckets(asked.buckets),
        lock=asked.lock,
        lock_options=dict(asked.lock_option) or None,
        upkeep=False,  # it writes no rows
        progress=False,
    )


class _Stop:
    """Records that a signal requested the process to stop."""

    def __init__(self) -> None:
        self.is_asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.is_asked = True
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)


def _rounds(table: Table, asked: argparse.Namespace, stop: _Stop, world: World) -> int:
    while True:
        is_well = _round(table, asked)
        if asked.once or asked.dry_run:
            return 0 if is_well else 1
        waited = 0
        while waited < asked.every and not stop.is_asked:
            world.sleep_ms(min(NOTICE_MS, asked.every - waited))
            waited += NOTICE_MS
        if stop.is_asked:
            return 0 if is_well else 1


def _round(table: Table, asked: argparse.Namespace) -> bool:
    is_dry = asked.dry_run
    try:
        upkeep = _named_policy(asked, table) if _names_policy(asked) else None
        result = table.services.run(upkeep, dry_run=is_dry, keep_going=True)
    except HudiError as error:  # the recorded policy cannot be read
        print(f"error: upkeep: {error}", file=sys.stderr, flush=True)
        return False
    except Exception:  # a fault of pyhudi: printed in full; the next round runs nevertheless
        print(f"error: upkeep: {format_exc()}", file=sys.stderr, flush=True)
        return False
    if is_dry or result.did_anything:
        print(result, flush=True)
    if isinstance(result.archive, ArchiveResult) and (file := result.archive.stopped_at):
        print(f"warning: archiving {_STOPPED.format(file)}", file=sys.stderr, flush=True)
    names_of: dict[str, list[str]] = {}
    for name, found in result.errors:
        names_of.setdefault(str(found), []).append(name)
    for text, names in names_of.items():  # once, if the table cannot be opened for any of them
        print(f"error: {', '.join(names)}: {text}", file=sys.stderr, flush=True)
    return not result.errors


# ---- arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pyhudi.service",
        allow_abbrev=False,
        description="Keep a Hudi table healthy: roll back failed writes, compact, resize, clean,"
        " archive. " + _POLICIES,
    )
    parser.add_argument("table", help="path or URI of the table")
    parser.add_argument(
        "--every", type=_pause, default="30s", metavar="TIME",
        help="from the end of a round to the next (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="run one round, then exit")
    parser.add_argument("--dry-run", action="store_true", help="show what one round would do")
    _add_compaction(parser.add_argument_group("compaction", _COMPACTION))
    _add_resizing(parser.add_argument_group("resizing", _RESIZING))
    cleaning = parser.add_argument_group("cleaning", _CLEANING)
    keep = cleaning.add_mutually_exclusive_group()
    keep.add_argument("--keep-commits", type=int, metavar="N", help="states that N commits left")
    keep.add_argument("--keep-versions", type=int, metavar="N", help="of each file group")
    keep.add_argument(
        "--keep-hours", type=int, metavar="N", help="table states of the last N hours (24)"
    )
    _add_archiving(parser.add_argument_group("archiving", _ARCHIVING))
    for name in ("compaction", "resize", "clean", "archive"):
        parser.add_argument(f"--no-{name}", action="store_true", help="leave it to another process")
    parser.add_argument("--job", default="pyhudi.service", help="the name that other writers see")
    parser.add_argument(
        "--heartbeat-interval", type=_milliseconds, default="60s", metavar="TIME",
        help="the interval of the table's writers, which are judged by it (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--heartbeat-misses", type=int, default=2, metavar="N",
        help="intervals of silence after which a writer counts as dead (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--storage-option", type=_option, action="append", default=[], metavar="KEY=VALUE",
        help="secrets belong in the environment, which other users cannot list",
    )  # fmt: skip
    foreign = parser.add_argument_group("a table that another engine made", _FOREIGN)
    foreign.add_argument("--lock", choices=[kind.value for kind in LockKind])
    foreign.add_argument(
        "--lock-option", type=_option, action="append", default=[], metavar="KEY=VALUE"
    )
    foreign.add_argument("--buckets", type=int, metavar="N")
    return parser


def _add_compaction(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--compact-trigger", choices=[word.value for word in CompactionTrigger],
        help="what makes one due (num_commits)",
    )  # fmt: skip
    group.add_argument(
        "--compact-after", type=int, metavar="DELTA_COMMITS",
        help="since the last one, for triggers that count (5)",
    )  # fmt: skip
    group.add_argument(
        "--compact-after-time", type=_seconds, metavar="TIME",
        help="since the last one, for triggers by time (1h)",
    )  # fmt: skip
    group.add_argument(
        "--compact-order", choices=[word.value for word in CompactionOrder],
        help="which file groups come first (log_size)",
    )  # fmt: skip
    group.add_argument(
        "--compact-min-delta-commits", type=int, metavar="N",
        help="in a file group, for it to be compacted (1)",
    )  # fmt: skip
    group.add_argument(
        "--compact-min-log-bytes", type=_bytes, metavar="BYTES",
        help="in a file group, for it to be compacted (0)",
    )  # fmt: skip
    group.add_argument(
        "--compact-io-bytes-max", type=_bytes, metavar="BYTES",
        help="read and written by one plan, approximately (512000MB)",
    )  # fmt: skip


def _add_resizing(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--resize-target", type=_bytes, metavar="BYTES",
        help="how large a bucket should be (120MB)",
    )  # fmt: skip
    group.add_argument(
        "--resize-split-above", type=float, metavar="FACTOR",
        help="times the target: a larger bucket is split (2.0)",
    )  # fmt: skip
    group.add_argument(
        "--resize-merge-below", type=float, metavar="FACTOR",
        help="times the target: smaller neighbours are merged (0.2)",
    )  # fmt: skip
    group.add_argument(
        "--resize-split", choices=[word.value for word in SplitAt],
        help="where a bucket is cut (middle)",
    )  # fmt: skip
    group.add_argument(
        "--resize-bytes-max", type=_bytes, metavar="BYTES",
        help="of the buckets that one plan replaces (2GB)",
    )  # fmt: skip
    group.add_argument(
        "--resize-rest", type=_seconds, metavar="TIME",
        help="between two resizes of a partition (10m)",
    )  # fmt: skip


def _add_archiving(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--archive-keep", type=int, nargs=2, metavar=("MIN", "MAX"),
        help="commits that stay active, and how many start it (20 30)",
    )  # fmt: skip
    group.add_argument(
        "--archive-grace", type=_milliseconds, metavar="TIME",
        help="instants that are younger stay active (10m)",
    )  # fmt: skip
    group.add_argument(
        "--archive-aborted-grace", type=_milliseconds, metavar="TIME",
        help="archiving crosses a failed write only if it is older (24h)",
    )  # fmt: skip


# ---- the policy


def _names_policy(asked: argparse.Namespace) -> bool:
    """True if an option concerns the policy."""
    is_left = asked.no_compaction or asked.no_resize or asked.no_clean or asked.no_archive
    changed = _compaction(asked) or _resizing(asked) or _clean_policy(asked) or _archiving(asked)
    return bool(is_left or changed)


def _named_policy(asked: argparse.Namespace, table: Table | None) -> Upkeep:
    """Return the policy of the table, or the usual one, with what the options change of it."""
    base = (None if table is None else table.upkeep) or Upkeep()
    compaction, clean, archive = base.compaction, base.clean, base.archive
    if changes := _compaction(asked):
        compaction = replace(compaction or CompactionPolicy(), **changes)
    resize = base.resize
    if changes := _resizing(asked):
        resize = replace(resize or ResizePolicy(), **changes)
    if changes := _archiving(asked):
        archive = replace(archive or ArchivePolicy(), **changes)
    return replace(
        base,
        compaction=None if asked.no_compaction else compaction,
        resize=None if asked.no_resize else resize,
        clean=None if asked.no_clean else _clean_policy(asked) or clean,
        archive=None if asked.no_archive else archive,
    )


def _given(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _compaction(asked: argparse.Namespace) -> dict[str, Any]:
    return _given(
        order=asked.compact_order,
        min_delta_commits=asked.compact_min_delta_commits,
        min_log_bytes=asked.compact_min_log_bytes,
        io_bytes_max=asked.compact_io_bytes_max,
        trigger=asked.compact_trigger,
        trigger_delta_commits=asked.compact_after,
        trigger_seconds=asked.compact_after_time,
    )


def _resizing(asked: argparse.Namespace) -> dict[str, Any]:
    return _given(
        target_bytes=asked.resize_target,
        split_above=asked.resize_split_above,
        merge_below=asked.resize_merge_below,
        split=asked.resize_split,
        bytes_max=asked.resize_bytes_max,
        rest_seconds=asked.resize_rest,
    )


def _archiving(asked: argparse.Namespace) -> dict[str, Any]:
    low, high = asked.archive_keep or (None, None)
    return _given(
        keep_min=low,
        keep_max=high,
        grace_ms=asked.archive_grace,
        aborted_grace_ms=asked.archive_aborted_grace,
    )


def _clean_policy(asked: argparse.Namespace) -> CleanPolicy | None:
    if asked.keep_versions is not None:
        return CleanPolicy.versions(asked.keep_versions)
    if asked.keep_hours is not None:
        return CleanPolicy.hours(asked.keep_hours)
    return None if asked.keep_commits is None else CleanPolicy.commits(asked.keep_commits)


# ---- values


def _milliseconds(text: str) -> int:
    """Parse a duration.

    >>> _milliseconds("30s"), _milliseconds("1.5m"), _milliseconds("250ms")
    (30000, 90000, 250)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write 30s, 5m or 1h")
    return round(float(found[1]) * _UNITS[found[2]])


def _pause(text: str) -> int:
    """Parse a duration that is not zero.

    >>> _pause("250ms")
    250
    """
    if not (milliseconds := _milliseconds(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a pause; write 1s or longer")
    return milliseconds


def _seconds(text: str) -> int:
    """Parse a duration of whole seconds.

    >>> _seconds("90s"), _seconds("1.5h")
    (90, 5400)
    """
    seconds, rest = divmod(_milliseconds(text), 1_000)
    if rest:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of seconds")
    return seconds


def _bytes(text: str) -> int:
    """Parse a size; 1 KB is 1,024 bytes.

    >>> _bytes("4096"), _bytes("64MB"), _bytes("50GB")
    (4096, 67108864, 53687091200)
    """
    found = re.fullmatch(r"(\d+)(KB|MB|GB|TB)?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write 4096, 64MB or 50GB")
    return int(found[1]) << _SIZES[found[2]]


def _option(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError("write KEY=VALUE")
    return key, value
