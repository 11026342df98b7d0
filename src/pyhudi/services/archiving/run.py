"""Archiving an open table: when a run is due, and what its services call."""

from __future__ import annotations

from pyhudi.plan.archiving.choose import ArchivePlan
from pyhudi.plan.archiving.policy import ArchivePolicy, Backoff
from pyhudi.services.archiving.execute import Archiver
from pyhudi.services.archiving.facts import ServiceMemory
from pyhudi.services.archiving.result import ArchiveResult
from pyhudi.session.session import TableSession
from pyhudi.timeline.timeline import WRITE_ACTIONS


def is_archiving_due(
    session: TableSession,
    memory: ServiceMemory,
    policy: ArchivePolicy,
    configured: ArchivePolicy | None = None,
) -> bool:
    """True if a run could archive anything, by what this process knows; it rarely asks storage.

    What an interrupted run left is finished by the next one that is due. `configured` is the policy
    before the policies of other services raised what it leaves.
    """
    with session.exclusive:
        writes, backoff = _writes(session), memory.backoff
        if writes <= policy.keep_max:
            return False
        return backoff is None or backoff.is_over(
            configured or policy, writes, session.world.elapsed_ms()
        )


def back_off_archiving(
    session: TableSession, memory: ServiceMemory, policy: ArchivePolicy, configured: ArchivePolicy
) -> None:
    """Back off after a run that had to leave more instants than the policy does."""
    with session.exclusive:
        writes, now_ms = _writes(session), session.world.elapsed_ms()
        is_stopped = writes > policy.keep_max
        memory.back_off(Backoff.after(configured, writes, now_ms) if is_stopped else None)


def _writes(session: TableSession) -> int:
    done = session.log.live.completed.values()
    return sum(instant.action in WRITE_ACTIONS for instant in done)


def archive(
    session: TableSession,
    policy: ArchivePolicy | None = None,
    *,
    consumers_since: str | None = None,
    retained_from: str | None = None,
    dry_run: bool = False,
    memory: ServiceMemory | None = None,
) -> ArchiveResult | ArchivePlan:
    """Archive what is due, or with `dry_run` return what would be archived.

    `retained_from` is for a caller that knows that a clean would find nothing: it is the write from
    which on that clean would retain.
    """
    with session.exclusive:
        archiver = Archiver(
            session.log,
            session.loader.load,
            policy or ArchivePolicy(),
            is_mor=session.is_mor,
            consumers_since=consumers_since,
            retained_from=retained_from,
            known=memory,
            exclusive=session.exclusive,
        )
        if dry_run:
            return archiver.plan()
    return archiver.run()
