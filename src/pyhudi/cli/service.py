"""The table services as a process of their own: `python -m pyhudi.service TABLE --every 30s`.

Runs beside any number of writers, and of other such processes. A round that fails is reported on
stderr, and the next one tries again. SIGTERM and SIGINT let the current round finish; a second
signal ends the process at once, which does no harm.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from traceback import format_exc
from types import FrameType

from pyhudi.api.open import open_table
from pyhudi.api.table import Table
from pyhudi.cli.policy_options import add_policy_options, named_policy, names_policy
from pyhudi.cli.values import milliseconds_of, option_of, pause_of
from pyhudi.errors import HudiError, InvalidRequestError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.plan.upkeep import Upkeep
from pyhudi.services.archiving.result import ArchiveResult
from pyhudi.settings import WriteSettings
from pyhudi.world import World, real_world

_POLICIES = (
    "The options of compaction, resizing, cleaning and archiving change the policy that the table"
    " records; without a recorded one the values in brackets count. The process is warned if its"
    " policy is not the table's."
)
_FOREIGN = "The lock and buckets of its writers, if the table does not record them (docs/locks.md)."
_STOPPED = (
    "stops at {}, whose instant is on no timeline: put back what is missing there, or let "
    "table.services.repair() remove the file"
)
#: How long a sleeping process may take to notice a request to stop.
NOTICE_MS = 250
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main(arguments: Sequence[str] | None = None, world: World | None = None) -> int:
    """Run the services; return 0 if the last round succeeded.

    1 if it failed, or the table cannot be opened; 2 for arguments that can never work.
    """
    parser = _parser()
    asked = parser.parse_args(arguments)
    try:
        named_policy(asked, Upkeep())  # values that no policy may have
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
        is_named = names_policy(asked)
        upkeep = named_policy(asked, table.upkeep or Upkeep()) if is_named else None
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
        "--every", type=pause_of, default="30s", metavar="TIME",
        help="from the end of a round to the next (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="run one round, then exit")
    parser.add_argument("--dry-run", action="store_true", help="show what one round would do")
    add_policy_options(parser)
    parser.add_argument("--job", default="pyhudi.service", help="the name that other writers see")
    parser.add_argument(
        "--heartbeat-interval", type=milliseconds_of, default="60s", metavar="TIME",
        help="the interval of the table's writers, which are judged by it (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--heartbeat-misses", type=int, default=2, metavar="N",
        help="intervals of silence after which a writer counts as dead (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--storage-option", type=option_of, action="append", default=[], metavar="KEY=VALUE",
        help="secrets belong in the environment, which other users cannot list",
    )  # fmt: skip
    foreign = parser.add_argument_group("a table that another engine made", _FOREIGN)
    foreign.add_argument("--lock", choices=[kind.value for kind in LockKind])
    foreign.add_argument(
        "--lock-option", type=option_of, action="append", default=[], metavar="KEY=VALUE"
    )
    foreign.add_argument("--buckets", type=int, metavar="N")
    return parser
