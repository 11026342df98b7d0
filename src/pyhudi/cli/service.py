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
from traceback import format_exc
from types import FrameType

from pyhudi.api.open import open_table
from pyhudi.api.table import Table
from pyhudi.errors import HudiError, InvalidRequestError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.plan.archiving import ArchivePolicy
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.plan.compaction import CompactionOrder, CompactionPolicy, CompactionTrigger
from pyhudi.services.archiving.run import ArchiveResult
from pyhudi.services.maintenance import Upkeep
from pyhudi.settings import WriteSettings
from pyhudi.world import World, real_world

_COMPACTION = "When and what (pyhudi.CompactionPolicy, docs/services.md)."
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
        upkeep, settings = _upkeep(asked), _settings(asked)
    except InvalidRequestError as error:
        parser.error(str(error))
    stop = _Stop()
    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        return _rounds(_opened(asked, settings), upkeep, asked, stop, world or real_world())
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


def _rounds(
    table: Table, upkeep: Upkeep, asked: argparse.Namespace, stop: _Stop, world: World
) -> int:
    while True:
        is_well = _round(table, upkeep, is_dry=asked.dry_run)
        if asked.once or asked.dry_run:
            return 0 if is_well else 1
        waited = 0
        while waited < asked.every and not stop.is_asked:
            world.sleep_ms(min(NOTICE_MS, asked.every - waited))
            waited += NOTICE_MS
        if stop.is_asked:
            return 0 if is_well else 1


def _round(table: Table, upkeep: Upkeep, *, is_dry: bool) -> bool:
    try:
        result = table.services.run(upkeep, dry_run=is_dry, keep_going=True)
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
        description="Keep a Hudi table healthy: roll back failed writes, compact, clean, archive.",
    )
    parser.add_argument("table", help="path or URI of the table")
    parser.add_argument(
        "--every", type=_pause, default="30s", metavar="TIME",
        help="from the end of a round to the next (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="run one round, then exit")
    parser.add_argument("--dry-run", action="store_true", help="show what one round would do")
    _add_compaction(parser.add_argument_group("compaction", _COMPACTION))
    cleaning = parser.add_argument_group("cleaning", _CLEANING)
    keep = cleaning.add_mutually_exclusive_group()
    keep.add_argument(
        "--keep-commits", type=int, metavar="N", help="table states after the last N commits (10)"
    )
    keep.add_argument("--keep-versions", type=int, metavar="N", help="of each file group")
    keep.add_argument(
        "--keep-hours", type=int, metavar="N", help="table states of the last N hours"
    )
    _add_archiving(parser.add_argument_group("archiving", _ARCHIVING))
    for name in ("compaction", "clean", "archive"):
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
        default=CompactionTrigger.NUM_COMMITS.value, help="what makes one due (%(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--compact-after", type=int, default=5, metavar="DELTA_COMMITS",
        help="since the last one, for triggers that count (%(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--compact-after-time", type=_seconds, default="1h", metavar="TIME",
        help="since the last one, for triggers by time (%(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--compact-order", choices=[word.value for word in CompactionOrder],
        default=CompactionOrder.LOG_SIZE.value, help="which file groups come first (%(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--compact-min-delta-commits", type=int, default=1, metavar="N",
        help="in a file group, for it to be compacted (%(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--compact-min-log-bytes", type=_bytes, default="0", metavar="BYTES",
        help="in a file group, for it to be compacted (%(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--compact-io-bytes-max", type=_bytes, default="512000MB", metavar="BYTES",
        help="read and written by one plan, approximately (%(default)s)",
    )  # fmt: skip


def _add_archiving(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--archive-keep", type=int, nargs=2, default=(20, 30), metavar=("MIN", "MAX"),
        help="commits that stay active, and how many start it (20 30)",
    )  # fmt: skip
    group.add_argument(
        "--archive-grace", type=_milliseconds, default="10m", metavar="TIME",
        help="instants that are younger stay active (%(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--archive-aborted-grace", type=_milliseconds, default="24h", metavar="TIME",
        help="archiving crosses a failed write only if it is older (%(default)s)",
    )  # fmt: skip


def _upkeep(asked: argparse.Namespace) -> Upkeep:
    return Upkeep(
        compaction=None if asked.no_compaction else _compaction_policy(asked),
        clean=None if asked.no_clean else _clean_policy(asked),
        archive=None if asked.no_archive else _archive_policy(asked),
    )


def _compaction_policy(asked: argparse.Namespace) -> CompactionPolicy:
    return CompactionPolicy(
        order=CompactionOrder(asked.compact_order),
        min_delta_commits=asked.compact_min_delta_commits,
        min_log_bytes=asked.compact_min_log_bytes,
        io_bytes_max=asked.compact_io_bytes_max,
        trigger=CompactionTrigger(asked.compact_trigger),
        trigger_delta_commits=asked.compact_after,
        trigger_seconds=asked.compact_after_time,
    )


def _archive_policy(asked: argparse.Namespace) -> ArchivePolicy:
    low, high = asked.archive_keep
    return ArchivePolicy(
        keep_min=low,
        keep_max=high,
        grace_ms=asked.archive_grace,
        aborted_grace_ms=asked.archive_aborted_grace,
    )


def _clean_policy(asked: argparse.Namespace) -> CleanPolicy:
    if asked.keep_versions is not None:
        return CleanPolicy.versions(asked.keep_versions)
    if asked.keep_hours is not None:
        return CleanPolicy.hours(asked.keep_hours)
    return CleanPolicy() if asked.keep_commits is None else CleanPolicy.commits(asked.keep_commits)


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
