"""How does a write complete? Its fence is raised, its checks collected, its metadata published.

A resize of its buckets may be in the way. Then the write does what has to be done about it, and
proposes its completion again (`write.resizing.meet`).
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from pyhudi.commit.pruning import prune
from pyhudi.commit.transaction import Completed, Held, Lost, Transaction
from pyhudi.commit.validation import Checks, KnownLayout
from pyhudi.errors import HudiError
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import Instant, InstantTime, State
from pyhudi.session.session import TableSession
from pyhudi.write.files.spec import refuse_unknown
from pyhudi.write.intent import WriteIntent
from pyhudi.write.plan import WritePlan
from pyhudi.write.resizing.beside import resizes_beside
from pyhudi.write.resizing.meet import ResizesMet, WrittenFiles
from pyhudi.write.result import commit_metadata

#: After each such number of entries, the writer of the last one prunes the decision log.
PRUNE_EVERY = 1_000


@dataclass(frozen=True, slots=True)
class Ended:
    """How the completion ended, and the files that the write has by then."""

    outcome: Completed | Lost
    files: WrittenFiles


def complete(
    session: TableSession,
    transaction: Transaction,
    plan: WritePlan,
    stats: Collection[WriteStat],
    *,
    keeps_files: bool = False,
) -> Ended:
    """Validate a write that created these files, and publish it."""
    spec = plan.spec
    if spec.is_fenced:
        refuse_unknown(transaction.close([stat.data_path for stat in stats]))
    files, resizes = WrittenFiles(tuple(stats), tuple(stats)), ResizesMet(session, spec.requested)
    while True:
        ended = _proposed(session, transaction, plan, files, keeps_files=keeps_files)
        if not isinstance(ended, Held):
            break
        dealt_with = resizes.deal_with(ended, files)
        if isinstance(dealt_with, Lost):
            transaction.abandon()
            return Ended(dealt_with, files)
        files = dealt_with
    if isinstance(ended, Completed):
        files.remove_left(session.storage)
        if session.can_resize:
            session.sizes.wrote(files.stats)
        time = InstantTime(ended.time)
        done = Instant(spec.requested, transaction.action, State.COMPLETED, time)
        if ended.schema is not None:
            session.schema.note(done, ended.schema)
        _prune(session, transaction)
    return Ended(ended, files)


def _proposed(
    session: TableSession,
    transaction: Transaction,
    plan: WritePlan,
    files: WrittenFiles,
    *,
    keeps_files: bool,
) -> Completed | Lost | Held:
    """Propose the completion with the files that the write has now."""
    intent = plan.intent
    metadata = commit_metadata(files.committed, intent.operation, intent.write_id)
    checks = _checks(session, intent, files, keeps_files=keeps_files)
    beside = resizes_beside(plan.files.virtual, files.stats)
    return transaction.complete(metadata, replace(checks, schemas=plan.schemas, beside=beside))


def _checks(
    session: TableSession, intent: WriteIntent, files: WrittenFiles, *, keeps_files: bool
) -> Checks:
    """Return what must hold when the write completes, by its intent and by the table."""
    written = {stat.partition_path or "" for stat in files.stats}
    is_shared = session.config.lock.is_shared
    return replace(
        rules(session, intent, written, keeps_files=keeps_files),
        layout=_layout(session, written) if is_shared else None,
        moved=files.left,
        twice=frozenset(each.resize for each in files.twice),
    )


def rules(
    session: TableSession,
    intent: WriteIntent,
    written: Collection[str],
    *,
    keeps_files: bool = False,
) -> Checks:
    """Return by which rules a write conflicts with others, if it has files in these partitions."""
    config = session.config
    # Logs of a table with non-blocking concurrency control never conflict.
    is_optimistic = config.concurrency is not ConcurrencyMode.NON_BLOCKING
    opens_all = session.is_mor and intent.replaces is None
    return replace(
        intent.checks(written, keeps_files=keeps_files),
        is_checked=is_optimistic or intent.is_checked,
        has_replaced_bucket=partial(session.groups.has_replaced_bucket, opens_all=opens_all),
        strategy=config.conflict_strategy,
        node=session.groups.node,
        is_numbered=session.groups.count is not None,
    )


def _layout(session: TableSession, written: Collection[str]) -> KnownLayout:
    """Return the layout that no write which completed meanwhile may have broken."""
    layouts = session.groups.layouts(written)
    known = {
        partition: tuple(layout.group(n).file_id for n in range(layout.size))
        for partition, layout in layouts.items()
    }
    return KnownLayout(session.groups.count, known)


def _prune(session: TableSession, transaction: Transaction) -> None:
    """Prune the decision log now and then; the write itself has completed."""
    if transaction.number % PRUNE_EVERY < 2:
        with suppress(HudiError):  # a later write prunes it
            prune(session.log)
