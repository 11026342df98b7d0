"""Who was pending when a write began? Only these can be ahead of it, as times come from the log.

What is known of them then is sent to the tasks. A write that began alone has no rivals, and looks
for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyhudi.commit.concurrent import SERVICES, ConcurrentWrites
from pyhudi.commit.rollback import ROLLED_BACK_ACTIONS
from pyhudi.conflict.file_groups import touched_groups
from pyhudi.conflict.rules import OwnWrite, WriteKind
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.session.session import TableSession


@dataclass(frozen=True, slots=True)
class Rival:
    """A write, or the plan of a table service, that was pending when ours began."""

    requested: str
    kind: WriteKind
    #: The file of the timeline that says who writes, or that is there as long as the plan is.
    path: str
    #: File groups that it has announced without markers; None if they are unknown.
    groups: frozenset[FileGroupId] | None = frozenset()
    is_plan: bool = False


def rivals_at_begin(
    session: TableSession, others: ConcurrentWrites, own: OwnWrite
) -> tuple[Rival, ...]:
    """Return what was pending when our write began, as the session's log shows it."""
    found = sorted(session.log.live.pending.values(), key=lambda each: each.requested)
    ahead = [i for i in found if i.requested < own.requested and i.requested not in session.own]
    return tuple(rival for i in ahead for rival in _rivals(session, others, own, i))


def _rivals(
    session: TableSession, others: ConcurrentWrites, own: OwnWrite, instant: Instant
) -> Iterator[Rival]:
    log, live = session.log, session.log.live
    if live.rolled_back_by.get(instant.requested) is not None:
        return
    inflight = log.path(instant.in_state(State.INFLIGHT))
    if instant.action is Action.REPLACECOMMIT:
        named = others.inflight(instant)
        groups = frozenset[FileGroupId]() if named is None else touched_groups(named)
        yield Rival(instant.requested, WriteKind.REPLACE, inflight, groups)
    elif instant.action in ROLLED_BACK_ACTIONS:
        yield Rival(instant.requested, WriteKind.WRITE, inflight)
    elif instant.action in SERVICES and instant.action is not Action.COMPACTION:
        # A compaction that was planned before us is in no write's way.
        plan = others.service(instant, own, live)
        if plan is not None and plan.kind is not WriteKind.RESIZE:
            path = log.path(instant.in_state(State.REQUESTED))
            yield Rival(instant.requested, plan.kind, path, plan.groups, is_plan=True)
