"""The services that a writer runs after its commit, by the policy that the table records.

    due     by the timeline that the commit knew, without a request (`plan.due`)
    rest    what ran in vain rests, also for other processes: the record of the last run says so
    claim   one process at a time, by a heartbeat; the others go on writing
    run     what is due, bounded: a compaction or a resize reads at most `inline_bytes`
    record  what it did, or why it failed

The claim only saves double work. Each service is safe beside any other process, as its plan is an
entry of the decision log. A process that dies with the claim is succeeded when its heartbeat is
old.

**Sizes of buckets** are known from the listing of the last run, and from the commits of this
process since. A resize is tried when one of them is too large, and after each compaction, whose
listing shows what other processes have added. To find that all fit is no run in vain.

The write has completed before, so nothing here may fail it: errors become warnings. A service that
fails, or finds nothing to do, rests for a minute, then for twice as long each time, up to an hour,
or until the table records another policy.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from pyhudi.commit.transaction import writer_identity
from pyhudi.errors import CorruptTableError, HudiError, fault
from pyhudi.format.table.upkeep_record import ServiceRun, UpkeepRecord, next_run
from pyhudi.plan.compaction.choose import overdue_slices
from pyhudi.plan.due import DueFacts, due_services
from pyhudi.plan.resizing.changes import LeftAlone
from pyhudi.plan.resizing.policy import ResizePolicy
from pyhudi.plan.upkeep import (
    ARCHIVE,
    CLEAN,
    COMPACTION,
    RESIZE,
    RecordedUpkeep,
    Upkeep,
    differing_services,
    recorded_upkeep,
    upkeep_mark,
)
from pyhudi.read.plan import Reader
from pyhudi.services.archiving.facts import ServiceMemory
from pyhudi.services.archiving.result import ArchiveResult
from pyhudi.services.cleaning.result import CleanResult
from pyhudi.services.compaction.execute import Merge
from pyhudi.services.maintenance import UpkeepResult, run_services
from pyhudi.services.resizing.execute import Merge as MergeChildren
from pyhudi.services.resizing.result import Resized
from pyhudi.session.open import OpenTable
from pyhudi.session.session import TableSession
from pyhudi.storage.objects.heartbeats import Heartbeat
from pyhudi.storage.objects.upkeep_record import load_upkeep_record, store_upkeep_record
from pyhudi.timeline.instant_time import clock_time
from pyhudi.wording import readable
from pyhudi.write.result import WriteResult

_Errors: TypeAlias = Collection[tuple[str, HudiError]]

CLAIM: Final = ".hoodie/.pyhudi/upkeep_claim"
#: How long a process does not ask again after it found the claim taken, or could not run at all.
PAUSE_MS: Final = 10_000


#: A look at what is due reads every instant of the active timeline. On a timeline of some thousand
#: it is taken once in so many instants per look, so that a commit does not pay for them each time.
LOOK_SHARE: Final = 500

#: A bucket that writers cannot split is overdue when it is so many times what makes a split due.
OVERDUE_SPLIT: Final = 2


class UpkeepWarning(UserWarning):
    """What a table's maintenance needs attention for. The write that it followed did not fail."""


@dataclass(slots=True)
class UpkeepMemory:
    """What one handle of a table knows between commits. Times are of the steady clock."""

    services: ServiceMemory = field(default_factory=ServiceMemory)
    rests_until_ms: dict[str, int] = field(default_factory=dict)
    pauses_until_ms: int = 0
    looked_at: int = 0  # completed instants of the timeline at the last look
    policy: str = ""  # its mark, for which services rest
    warned: set[str] = field(default_factory=set)

    def pause(self, now_ms: int) -> None:
        """Look for nothing to do for a moment."""
        self.pauses_until_ms = now_ms + PAUSE_MS

    def may_look(self, instants: int) -> bool:
        """True if enough has happened since the last look; then this is the last one."""
        if abs(instants - self.looked_at) < instants // LOOK_SHARE:
            return False
        self.looked_at = instants
        return True

    def rest(self, policy: str, until_ms: dict[str, int]) -> None:
        """Remember the services that rest under this policy."""
        self.policy = policy
        self.rests_until_ms.update(until_ms)

    def warn_once(self, text: str) -> None:
        """Warn, unless this handle has. Python's own filter shows a text once in a process."""
        if text not in self.warned:
            self.warned.add(text)
            warnings.warn(text, UpkeepWarning, stacklevel=2)


def policy_in_force(
    session: TableSession, named: Upkeep | None, memory: UpkeepMemory
) -> Upkeep | None:
    """Return the policy to follow: the one that the caller names, or that the table records.

    None if there is neither. Warn of a named policy that is not the table's, and of services that
    only later releases can run.
    """
    uri = session.storage.uri
    try:
        recorded = recorded_upkeep(session.config)
    except CorruptTableError:
        if named is None:
            raise
        recorded = RecordedUpkeep()
    if named is None:
        for name, why in recorded.unknown:
            memory.warn_once(f"{name} of the table at {uri} is left to others: {why}")
        return recorded.policy
    others = () if recorded.policy is None else differing_services(named, recorded.policy)
    if others:
        memory.warn_once(
            f"this process maintains the table at {uri} by another policy of {', '.join(others)}"
            " than the table records, and the two work against each other; leave the policy out"
            " here, or change the table's with table.alter.upkeep(...)"
        )
    return named


def due_now(session: TableSession, upkeep: Upkeep) -> frozenset[str]:
    """Return what is due by the timeline as this process knows it, mostly without a request."""
    world, zone = session.world, session.config.zone
    now_ms = world.now_ms()
    timeout_ms = session.settings.heartbeat_timeout_ms
    with session.exclusive:
        facts = DueFacts(
            session.log.live,
            session.is_mor,
            clock_time(now_ms, zone),
            clock_time(max(0, now_ms - timeout_ms), zone),
            session.sizes.largest if session.can_resize else None,
        )
        return due_services(upkeep, facts)


class InlineUpkeep:
    """Runs what is due after the writes of one handle of a table."""

    def __init__(
        self,
        table: OpenTable,
        named: Upkeep | None = None,
        memory: UpkeepMemory | None = None,
        *,
        left: frozenset[str] = frozenset(),
    ) -> None:
        """`named` is a policy in place of the one that the table records. The services that are
        `left` to other processes count, and are not run."""
        self._table = table
        self._left = left
        self._named = named
        self._memory = UpkeepMemory() if memory is None else memory

    def follow(
        self,
        written: WriteResult,
        merge: Callable[[TableSession], Merge],
        children: Callable[[TableSession], MergeChildren] | None = None,
    ) -> None:
        """Run the services that are due after this write.

        `merge` makes the base files of compactions, `children` those of resizes.

        Their errors are warnings, because the write has succeeded. A caller that has warnings
        raised gets one instead of the write's result, so each warning names the write.
        """
        try:
            errors = self._followed(merge, children)
        except UpkeepWarning:
            raise  # the caller has warnings raised
        except Exception as error:  # of storage, or a bug: reported in full
            self._memory.pause(self._table.world.elapsed_ms())
            found = error if isinstance(error, HudiError) else fault("upkeep", error)
            errors = [("upkeep", found)]
        after = f"after the write {written.instant}, which completed at {written.completed}"
        for name, found in errors:
            warnings.warn(f"{name} failed {after}: {found}", UpkeepWarning, stacklevel=3)

    def _followed(
        self,
        merge: Callable[[TableSession], Merge],
        children: Callable[[TableSession], MergeChildren] | None,
    ) -> _Errors:
        session = self._table.known()
        try:
            upkeep = policy_in_force(session, self._named, self._memory)
        except CorruptTableError as error:
            self._memory.warn_once(str(error))
            return ()
        if upkeep is None or not (due := self._due(session, upkeep)):
            return ()
        mark = upkeep_mark(upkeep)
        due = self._rested(session, due, load_upkeep_record(session.storage), mark)
        if not due:
            return ()
        heartbeat = Heartbeat(session.storage, "upkeep", _writer(session), path=CLAIM)
        if not self._claimed(session, heartbeat):
            self._memory.pause(session.world.elapsed_ms())
            return ()
        try:
            return self._run(session, upkeep, mark, due, merge, children)
        finally:
            with suppress(HudiError):  # a claim that stays expires
                heartbeat.end()

    def _due(self, session: TableSession, upkeep: Upkeep) -> frozenset[str]:
        memory, now_ms = self._memory, session.world.elapsed_ms()
        with session.exclusive:
            instants = len(session.log.live.completed)
        if now_ms < memory.pauses_until_ms or not memory.may_look(instants):
            return frozenset()
        if memory.rests_until_ms and memory.policy != upkeep_mark(upkeep):
            memory.rests_until_ms.clear()
        rest, due = memory.rests_until_ms, due_now(session, upkeep) - self._left
        return frozenset(name for name in due if rest.get(name, now_ms) <= now_ms)

    def _rested(
        self, session: TableSession, due: frozenset[str], record: UpkeepRecord, mark: str
    ) -> frozenset[str]:
        """Return the services that do not rest by the record, and remember those that do."""
        if record.policy != mark:
            return due
        store_ms, now_ms = session.log.clock.estimate_ms(), session.world.elapsed_ms()
        named = due | {RESIZE}  # which a compaction that is due brings along
        rests = {name: record.services.get(name, ServiceRun()).rest_ms(store_ms) for name in named}
        self._memory.rest(mark, {name: now_ms + ms for name, ms in rests.items() if ms})
        return frozenset(name for name in due if not rests[name])

    def _claimed(self, session: TableSession, heartbeat: Heartbeat) -> bool:
        settings = session.settings
        with session.exclusive:
            return heartbeat.claim(
                session.log.clock,
                session.world,
                settings.heartbeat_interval_ms,
                settings.heartbeat_timeout_ms,
            )

    def _run(
        self,
        session: TableSession,
        upkeep: Upkeep,
        mark: str,
        due: frozenset[str],
        merge: Callable[[TableSession], Merge],
        children: Callable[[TableSession], MergeChildren] | None,
    ) -> _Errors:
        with session.exclusive:
            session.log.refresh()
        due &= due_now(session, upkeep)  # another process may just have done it
        if not due:
            return ()
        bounded, only = _bounded(upkeep), set(due)
        if ARCHIVE in due and CLEAN not in self._left:
            only.add(CLEAN)  # it says from where on the files of the table are retained
        if COMPACTION in due and self._may_follow(session, RESIZE):
            only.add(RESIZE)  # what others added to the buckets shows in the same listing
        result = run_services(
            session,
            bounded,
            self._memory.services,
            merge=merge(session),
            children=None if children is None else children(session),
            only=only,
        )
        self._warn_of_overdue(session, bounded, result)
        self._warn_of_large_buckets(session, bounded, result)
        record = record_run(session, mark, result, tried=_tried(session, due, result, bounded))
        with suppress(HudiError):  # they are a hint
            _note_sizes(session, result)
        self._rested(session, due, record, mark)
        return result.errors

    def _may_follow(self, session: TableSession, name: str) -> bool:
        """True if the service is neither left to others nor resting."""
        until_ms = self._memory.rests_until_ms.get(name, 0)
        return name not in self._left and until_ms <= session.world.elapsed_ms()

    def _warn_of_large_buckets(
        self, session: TableSession, upkeep: Upkeep, result: UpkeepResult
    ) -> None:
        policy, bound = upkeep.resize, upkeep.inline_bytes
        if policy is None or result.resize is None:
            return
        overdue = OVERDUE_SPLIT * policy.split_bytes
        too_large = _too_large(result.resize, policy)
        if any(each.is_too_much and each.bytes > overdue for each in too_large):
            self._memory.warn_once(
                f"a resize of the table at {session.storage.uri} is overdue: some buckets are more"
                f" than {readable(round(overdue), 'B')}, a writer splits buckets of at most"
                f" {readable(bound, 'B')} (inline_bytes) after its commit, and no service process"
                " splits them; run python -m pyhudi.service, or call table.services.run() now and"
                " then"
            )

    def _warn_of_overdue(self, session: TableSession, upkeep: Upkeep, result: UpkeepResult) -> None:
        done, policy = result.compaction, upkeep.compaction
        if done is None or policy is None:
            return
        now = clock_time(session.world.now_ms(), session.config.zone)
        if overdue_slices(done.preview, policy, now):
            self._memory.warn_once(
                f"compaction of the table at {session.storage.uri} is overdue: some file groups"
                f" have more than the {readable(upkeep.inline_bytes, 'B')} (inline_bytes) that a"
                " writer merges after its commit, and no service process merges them; run"
                " python -m pyhudi.service, or call table.services.run() now and then"
            )


def _bounded(upkeep: Upkeep) -> Upkeep:
    policy, sizing = upkeep.compaction, upkeep.resize
    if policy is not None:
        least = (n for n in (policy.input_bytes_max, upkeep.inline_bytes) if n is not None)
        policy = replace(policy, input_bytes_max=min(least))
    if sizing is not None:
        sizing = sizing.within(upkeep.inline_bytes)
    return replace(upkeep, compaction=policy, resize=sizing)


# ---- the sizes of buckets


def _too_large(resized: Resized, policy: ResizePolicy) -> list[LeftAlone]:
    """Return the buckets that are too large and stay as they are."""
    return [each for each in resized.preview.left if each.bytes > policy.split_bytes]


def _tried(
    session: TableSession, due: frozenset[str], result: UpkeepResult, upkeep: Upkeep
) -> frozenset[str]:
    """Return the services that rest if they did nothing.

    A resize does not if all buckets are of the right size: that this process took one for larger
    cost a listing, and the sizes are known now.
    """
    resized, policy = result.resize, upkeep.resize
    if resized is None or policy is None:
        return due
    if _too_large(resized, policy):
        return due | {RESIZE}
    return due - {RESIZE} if session.sizes.largest > policy.split_bytes else due


def _note_sizes(session: TableSession, result: UpkeepResult) -> None:
    """Note the sizes of all buckets, if the run has listed them."""
    if not session.can_resize or (result.compaction is None and result.resize is None):
        return
    is_changed = result.compaction is not None and bool(result.compaction.results)
    is_changed |= result.resize is not None and bool(result.resize.results)
    with session.exclusive:
        state = session.current.load() if is_changed else session.current.known
        if state is not None:
            times = Reader(session.loader).completion_times(state)
            slices = session.groups.latest_slices(state, times)
            session.sizes.listed({group: slice_.bytes for group, slice_ in slices.items()})


def _writer(session: TableSession) -> str:
    return writer_identity(session.world, session.settings).text


# ---- the record of a run


def record_run(
    session: TableSession, policy: str, result: UpkeepResult, *, tried: Iterable[str] = ()
) -> UpkeepRecord:
    """Record what a run did; services that were `tried` and did nothing rest for a while."""
    outcomes = _outcomes(result)
    errors = {name: str(error) for name, error in reversed(result.errors)}
    named = {*tried, *errors, *(name for name, did in outcomes.items() if did)} & outcomes.keys()
    before = load_upkeep_record(session.storage)
    known = before.services if before.policy == policy else {}
    now_ms, writer = session.log.clock.estimate_ms(), _writer(session)
    runs = {
        name: next_run(
            known.get(name),
            now_ms,
            outcomes[name],
            errors.get(name, ""),
            writer,
            is_in_vain=name in errors or not outcomes[name],
        )
        for name in named
    }
    record = UpkeepRecord(policy, {**before.services, **runs})
    if runs:
        with suppress(HudiError):  # it is a hint
            store_upkeep_record(session.storage, record)
    return record


def _outcomes(result: UpkeepResult) -> dict[str, str]:
    """Return what each service did, in words; "" for nothing."""
    compacted, cleaned, archived = result.compaction, result.clean, result.archive
    made = [*(result.migration.results if result.migration is not None else ())]
    made += result.resize.results if result.resize is not None else ()
    resized = "; ".join(map(str, made))
    done = "; ".join(map(str, compacted.results)) if compacted is not None else ""
    cleans = "; ".join(map(str, cleaned.cleans)) if isinstance(cleaned, CleanResult) else ""
    is_archived = isinstance(archived, ArchiveResult) and archived.did_anything
    archives = str(archived) if is_archived else ""
    return {COMPACTION: done, RESIZE: resized, CLEAN: cleans, ARCHIVE: archives}
