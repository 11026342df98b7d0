"""The table services as a process of their own: `python -m pyhudi.service TABLE --every 30s`.

Runs beside any number of writers, and of others like it. A round that fails is told on stderr, and
the next one tries again. SIGTERM and SIGINT let the round under way come to its end; a second one
ends the process at once, which harms nothing.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Sequence
from traceback import format_exc
from types import FrameType

from pyhudi.engine.upkeep import Upkeep, UpkeepResult
from pyhudi.errors import HudiError
from pyhudi.format.bucket_config import SimpleBuckets
from pyhudi.format.lock_kind import LockKind
from pyhudi.plan.archiving import ArchivePolicy
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.plan.compaction import CompactionPolicy
from pyhudi.settings import WriteSettings
from pyhudi.table_api import Table, open_table
from pyhudi.world import World, real_world

_FOREIGN = "What its writers take and have, where the table does not tell (docs/locks.md)."
#: How long a sleeping process may take until it notices that it is to stop.
NOTICE_MS = 250
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def main(arguments: Sequence[str] | None = None, world: World | None = None) -> int:
    """0 if every round went well; 1 if the last one did not, or the table cannot be opened."""
    asked = _parser().parse_args(arguments)
    stop = _Stop()
    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        return _rounds(_opened(asked), _upkeep(asked), asked, stop, world or real_world())
    except HudiError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _opened(asked: argparse.Namespace) -> Table:
    return open_table(
        asked.table,
        storage_options=dict(asked.storage_option),
        write_settings=WriteSettings(job=asked.job),
        buckets=None if asked.buckets is None else SimpleBuckets(asked.buckets),
        lock=asked.lock,
        lock_options=dict(asked.lock_option) or None,
        progress=False,
    )


class _Stop:
    """Whether somebody asked for the end."""

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
    except HudiError as error:  # the table cannot be opened for writing now
        result = UpkeepResult(errors=(("upkeep", error),))
    except Exception:  # a fault of ours: told in full, and no reason to leave the table alone
        print(f"error: upkeep: {format_exc()}", file=sys.stderr, flush=True)
        return False
    if is_dry or result.did_anything:
        print(result, flush=True)
    for name, found in result.errors:
        print(f"error: {name}: {found}", file=sys.stderr, flush=True)
    return not result.errors


# ---- what may be asked


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pyhudi.service",
        description="Keep a Hudi table healthy: roll back failed writes, compact, clean, archive.",
    )
    parser.add_argument("table", help="path or URI of the table")
    parser.add_argument("--every", type=_milliseconds, default="30s", metavar="TIME")
    parser.add_argument("--once", action="store_true", help="one round, and then the end")
    parser.add_argument("--dry-run", action="store_true", help="tell what one round would do")
    parser.add_argument("--compact-after", type=int, default=5, metavar="DELTA_COMMITS")
    keep = parser.add_mutually_exclusive_group()
    keep.add_argument("--keep-commits", type=int, metavar="N")
    keep.add_argument("--keep-versions", type=int, metavar="N")
    keep.add_argument("--keep-hours", type=int, metavar="N")
    parser.add_argument(
        "--archive-keep", type=int, nargs=2, default=(20, 30), metavar=("MIN", "MAX")
    )
    for name in ("compaction", "clean", "archive"):
        parser.add_argument(f"--no-{name}", action="store_true", help="leave it to somebody else")
    parser.add_argument("--job", default="pyhudi.service", help="what other writers are told")
    parser.add_argument(
        "--storage-option", type=_option, action="append", default=[], metavar="KEY=VALUE",
        help="secrets belong into the environment, which other users cannot list",
    )  # fmt: skip
    foreign = parser.add_argument_group("a table that another engine made", _FOREIGN)
    foreign.add_argument("--lock", choices=[kind.value for kind in LockKind])
    foreign.add_argument(
        "--lock-option", type=_option, action="append", default=[], metavar="KEY=VALUE"
    )
    foreign.add_argument("--buckets", type=int, metavar="N")
    return parser


def _upkeep(asked: argparse.Namespace) -> Upkeep:
    low, high = asked.archive_keep
    compaction = None if asked.no_compaction else CompactionPolicy(
        trigger_delta_commits=asked.compact_after
    )  # fmt: skip
    return Upkeep(
        compaction=compaction,
        clean=None if asked.no_clean else _clean_policy(asked),
        archive=None if asked.no_archive else ArchivePolicy(keep_min=low, keep_max=high),
    )


def _clean_policy(asked: argparse.Namespace) -> CleanPolicy:
    if asked.keep_versions is not None:
        return CleanPolicy.versions(asked.keep_versions)
    if asked.keep_hours is not None:
        return CleanPolicy.hours(asked.keep_hours)
    return CleanPolicy() if asked.keep_commits is None else CleanPolicy.commits(asked.keep_commits)


def _milliseconds(text: str) -> int:
    """A duration.

    >>> _milliseconds("30s"), _milliseconds("1.5m"), _milliseconds("250ms")
    (30000, 90000, 250)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 30s, 5m or 1h")
    return max(1, round(float(found[1]) * _UNITS[found[2]]))


def _option(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError("write KEY=VALUE")
    return key, value


if __name__ == "__main__":
    sys.exit(main())
