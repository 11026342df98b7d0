"""From the settings to the looks of one attempt of a write: who looks, and what is left in storage.

A write looks for no rivals if it began alone, if no strategy is set, if it cannot lose, or if a
conflict costs it little because its rows can be read from its own files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyhudi.commit.early_evidence import Evidence
from pyhudi.commit.transaction import Transaction
from pyhudi.conflict.early_strategies import Looks, looks_of
from pyhudi.conflict.file_groups import Footprint
from pyhudi.format.lock.lock_address import ZookeeperAddress
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.table_config import TableConfig
from pyhudi.session.session import TableSession
from pyhudi.settings import WriteSettings
from pyhudi.world import World, real_world
from pyhudi.write.complete import rules
from pyhudi.write.early.announcing import LookingMarkers
from pyhudi.write.early.check import EarlyCheck, Seen, Stance
from pyhudi.write.early.rivals import rivals_at_begin
from pyhudi.write.files.announcing import Announcing
from pyhudi.write.intent import WholeRows, WriteIntent


def early_check(
    session: TableSession,
    transaction: Transaction,
    intent: WriteIntent,
    *,
    can_rebase: bool,
    are_sent: bool,
    looks_as: Callable[[Looks], Looks] = lambda looks: looks,
) -> EarlyCheck | None:
    """Return how the write looks for rivals; None if it does not.

    Its instant has just begun. With `are_sent` its tasks run in other processes.
    """
    settings = session.settings
    looks = looks_of(settings.early_detection.strategy)
    if looks is None or can_rebase or not _can_yield(session, intent):
        return None
    stance = _stance(session, transaction.requested, intent)
    own = stance.own(Footprint())
    rivals = rivals_at_begin(session, transaction.others, own)
    if not rivals:
        return None
    world = session.log.world
    check = EarlyCheck(
        looks_as(looks),
        stance,
        rivals,
        settings.heartbeat_timeout_ms,
        real_world if are_sent else _always(world),
        Seen(stance),
    )
    transaction.leaves(_evidence(check))
    return check


def _can_yield(session: TableSession, intent: WriteIntent) -> bool:
    """True unless all its files are logs that are committed again, whatever others do."""
    if not _is_blind(session, intent):
        return True
    is_optimistic = session.config.concurrency is not ConcurrencyMode.NON_BLOCKING
    return isinstance(intent.change, WholeRows) and (intent.change.loads or is_optimistic)


def _is_blind(session: TableSession, intent: WriteIntent) -> bool:
    return intent.reads_nothing and session.is_mor


def _stance(session: TableSession, requested: str, intent: WriteIntent) -> Stance:
    settings = session.settings
    checks = replace(
        rules(session, intent, ()), has_replaced_bucket=None, node=None, replaces=None, owned=None
    )
    return Stance(
        requested,
        checks,
        intent.replaces,
        WriteSettings(conflict_retries=settings.conflict_retries, priority=settings.priority),
        is_mor=session.is_mor,
        is_blind=_is_blind(session, intent),
    )


def _evidence(check: EarlyCheck) -> Evidence | None:
    looks = check.looks
    if not looks.claims and not looks.filters_first:
        return None
    return Evidence(looks.claims, looks.filters_first, check.stance.by_number)


def announced_by(check: EarlyCheck | None, inner: Announcing, config: TableConfig) -> Announcing:
    """Return how the write announces its files, whose markers are stored as `inner` does it."""
    if check is None or not (check.looks.by_task or check.looks.filters_first):
        return inner
    address = config.lock_address
    lock = address if check.looks.claims and isinstance(address, ZookeeperAddress) else None
    return LookingMarkers(check, inner, lock)


def watching(check: EarlyCheck | None, session: TableSession) -> EarlyCheck | None:
    """Return how the write's own process looks now and then; None if it does not."""
    if check is None or not check.looks.by_writer:
        return None
    return check.elsewhere(_always(session.log.world))


def _always(world: World) -> Callable[[], World]:
    return lambda: world
