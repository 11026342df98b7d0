"""The decision log of a table: the one place that appends to it.

Every begin, completion and abort is an entry with the next number of the log. Only after the entry
is created, it is published on Hudi's timeline, by its owner or by the next process. No process
creates entry n+1 before entry n is published. The number is the fence: a writer that froze after
its checks finds its number taken and has to check again. `docs/protocol/README.md` has the steps,
which the comments below number, and the reasons; the model beside it was checked.

On a table that only pyhudi writes, no lock is needed. With a Java writer on the table (`shared`)
the table's lock surrounds each append, the timeline is listed each time, and an entry that the
other engine superseded is voided instead of published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from datetime import tzinfo
from functools import partial

from pyhudi.commit.append_rounds import AppendRounds
from pyhudi.commit.clock import TableTimes
from pyhudi.commit.foreign_writers import ForeignWriterDetector
from pyhudi.commit.guard import OtherSettings, TableLease
from pyhudi.commit.proposals import (
    AlreadyDone,
    Decided,
    Draft,
    Facts,
    Outcome,
    Proposal,
    Refused,
    Rule,
    refusal_error,
    restless,
    too_busy,
    undecided,
    unstaged,
)
from pyhudi.commit.publish import has_effect, is_own, publish
from pyhudi.commit.rollback_targets import RollbackTargets
from pyhudi.commit.superseded import has_removed_plan, is_superseded, reissued_abort
from pyhudi.errors import HudiError, UnavailableError
from pyhudi.format.timeline.commit_metadata import CommitMetadata
from pyhudi.format.timeline.decision_entry import (
    Entry,
    EntryKind,
    entry_path,
    staged_path,
)
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.read.log_view import KnownLog
from pyhudi.settings import WriteSettings
from pyhudi.storage.locks.lock import HeldLock, Lock
from pyhudi.storage.objects.decision_log import (
    closed_resizes,
    create_entry,
    entries_after,
    last_entries,
    load_entry,
)
from pyhudi.storage.objects.store_clock import StoreClock
from pyhudi.storage.objects.timeline_listing import list_timeline
from pyhudi.storage.protocol import ObjectStat, Storage
from pyhudi.timeline.instant_time import clock_time
from pyhudi.timeline.live import LiveTimeline, NumberedWrite
from pyhudi.world import World, jittered_ms, new_uuid

#: A process that read the log's end longer ago than this reads it again before it continues.
STALE_MS = 60_000
#: The pause after a first lost race, about as long as an append takes, and the longest one.
BACK_OFF_FIRST_MS, BACK_OFF_MS = 4, 200
#: Entries that are applied before the timeline is listed again: a process may write for months.
NOTED_MAX = 20_000
#: How often an entry may vanish while it is read before that is an error.
READ_ATTEMPTS_MAX = 5


class DecisionLog:
    """One process's access to the decision log of one table, and what it knows from it.

    Not to be shared among threads.
    """

    def __init__(
        self,
        storage: Storage,
        world: World,
        settings: WriteSettings,
        *,
        timeline_folder: str,
        history_folder: str | None = None,
        zone: tzinfo | None,
        lock: Lock | None = None,
        skew_ms: int = 0,
        setting_change: Callable[[], OtherSettings | None] = lambda: None,
    ) -> None:
        """`setting_change` returns how what is recorded differs from what the process opened."""
        self.storage = storage
        self.world = world
        self.clock = StoreClock(storage, world)
        self._settings = settings
        self.folder = timeline_folder
        self.history_folder = history_folder or f"{timeline_folder}/history"
        self._zone = zone
        wait_ms = settings.lock_wait_ms
        self._lease = TableLease(
            lock,
            world,
            wait_ms=wait_ms,
            skew_ms=skew_ms,
            zone=zone,
            now_ms=self.clock.seen_now_ms,
            look_up=setting_change,
        )
        self._times = TableTimes(
            self.clock, zone, timeline_folder, is_shared=self.is_shared, skew_ms=skew_ms
        )
        self._known: KnownLog | None = None
        self._live: LiveTimeline | None = None
        self._rollbacks = RollbackTargets(storage, timeline_folder)
        self._foreign_writers = ForeignWriterDetector(storage, timeline_folder, world)
        self._read_at = 0
        self._is_read_only = False

    def read_only(self) -> DecisionLog:
        """Return a log that knows as much, and neither appends nor publishes.

        It is for dry runs, and for another thread that looks what is decided.
        """
        log = copy(self)
        log._known = None if self._known is None else self._known.copied()
        log._live = None
        log._lease = copy(self._lease)
        log._foreign_writers = ForeignWriterDetector(self.storage, self.folder, self.world)
        log._is_read_only = True
        return log

    @property
    def is_shared(self) -> bool:
        """True if a foreign engine may write the table, so that the lock guards it."""
        return self._lease.is_shared

    # -- what is known

    def refresh(self) -> LiveTimeline:
        """Return the timeline now. The log's last entry is published first, unless this is
        read-only."""
        if self._is_read_only:
            self._catch_up()
            self._live = None
            return self._current(is_guarded=False)
        if self.is_shared and self._is_settled(self._catch_up()):
            self._live = None
            return self._current(is_guarded=False)  # without the lock, which others wait for
        for _ in range(self._settings.commit_rounds):
            with self._locked() as held:
                self._catch_up()
                self._require_same_lock()
                if self._settle_tail(held):
                    return self._current()
        raise too_busy(self.storage.uri, self._settings.commit_rounds)

    def peek(self) -> LiveTimeline:
        """Return the timeline with all that has been decided by now, and publish nothing.

        One request finds the new entries, for a process that looks now and then. On a shared table
        the timeline is listed.
        """
        tail = self._catch_up().tail
        if self.is_shared:  # its last entry may never be published
            self._live = None
            return self._current(is_guarded=False)
        is_listed = self._live is None
        live = self._current(is_guarded=False)
        if is_listed and tail is not None:
            live.note(tail)  # it may have been listed before
        return live

    @contextmanager
    def guarded(self) -> Iterator[tuple[LiveTimeline, Callable[[], bool]]]:
        """Hold the lock, where one guards the table, for work that no entry decides.

        Yield the timeline as it is now, and a function that returns whether the work may continue.
        Without a lock, another engine on the table would do the same work unhindered.
        """
        self.refresh()
        with self._locked() as held:
            self.forget()
            self._catch_up()
            self._require_same_lock()
            self._settle_or_raise(held)  # before the timeline is listed, or that misses the tail
            if not self.is_shared and (refused := self._foreign(self._current(), None)):
                what = f"archiving the table at {self.storage.uri}"
                raise refusal_error(refused, self.storage.uri, what=what)
            self._settle_or_raise(held)
            yield self._current(), partial(self._lease.may_go_on, held)

    def _settle_or_raise(self, held: HeldLock | None) -> None:
        if not self._settle_tail(held):
            raise too_busy(self.storage.uri, 1)

    def _require_same_lock(self) -> None:
        if refused := self._other_lock():
            raise refusal_error(refused, self.storage.uri)

    def _other_lock(self) -> Refused | None:
        if (change := self._lease.change()) is None:
            return None
        self._live = None  # it has the last entry, which may be published under its lock only
        return Refused(Rule.OTHER_LOCK, detail=change)

    @property
    def tail(self) -> Entry | None:
        """The last entry that this process has read."""
        return None if self._known is None else self._known.tail

    def read_from(self, number: int) -> None:
        """Know the log from this entry on, as a process must that completes what the entry
        began."""
        if (entry := load_entry(self.storage, number)) is not None:
            self._known = KnownLog(whole_from=number)
            self._lease.has_new_entries = True
            self._known.note(entry)

    @property
    def live(self) -> LiveTimeline:
        """The timeline as this process last saw it."""
        return self.refresh() if self._live is None else self._live

    def number_of(self, requested: str) -> int | None:
        """Return the number of the entry that began the instant, if this process has read it."""
        return None if self._known is None else self._known.number_of(requested)

    def is_own(self, requested: str) -> bool:
        """True if a pyhudi writer began the write, which is pending."""
        if self.number_of(requested) is not None:
            return True
        instant = self.live.pending.get(requested)
        if instant is None:
            return False
        return is_own(self.storage, self.path(instant.in_state(State.INFLIGHT)))

    def completions_since(self, requested: str) -> list[NumberedWrite]:
        """Return the writes that completed since the instant, which is pending, was requested.

        They are numbered from 1, by completion; all processes number them alike.
        """
        return self.refresh().writes_since(requested)

    def rollback_of(self, requested: str) -> str | None:
        """Return the rollback, of any state, of the instant; for instants that are long gone."""
        return self._rollbacks.naming(requested, self.live)

    def writer_of_rollback(self, requested: str) -> str:
        """Return the writer that rolled the instant back, as the log records it; else "".

        Rollbacks of another engine are not in the log.
        """
        abort = None if self._known is None else self._known.aborts.get(requested)
        return "" if abort is None else abort.writer

    def metadata(self, requested: str) -> CommitMetadata | None:
        """Return the metadata of the write that completed last, if the log has it: without a
        request."""
        return None if self._known is None else self._known.metadata(requested)

    def schema_of(self, requested: str) -> str | None:
        """Return the fingerprint of the schema of the write that completed last, if it is this
        one."""
        return None if self._known is None else self._known.schema_of(requested)

    def latest_entries(self, most: int) -> Iterator[Entry]:
        """Yield the entries at the log's end that were not voided, the last one first.

        Those from before this process are read.
        """
        known = self._known or KnownLog()
        voided, after = set(known.voided), None
        for number in range(known.n, max(known.n - most, 0), -1):
            entry = known.by_number.get(number) or load_entry(self.storage, number)
            if entry is None or (after is not None and after.prev != entry.id):
                return  # pruned
            if entry.voids is not None:
                voided.add(entry.voids)
            if number not in voided:
                yield entry
            after = entry

    def now(self) -> str:
        """Return the time by this process's clock, as the timeline writes times."""
        return clock_time(self.world.now_ms(), self._zone)

    def forget(self) -> None:
        """List the timeline again when it is next needed."""
        self._live = None

    def path(self, instant: Instant) -> str:
        return f"{self.folder}/{instant.file_name}"

    # -- append: the only way to add an entry

    def append(self, proposal: Proposal, *, back_off_ms: int = BACK_OFF_MS) -> Outcome:
        """Append the proposal's entry, and publish it.

        UnavailableError leaves open whether the entry stands: storage failed, or other processes
        won every race. A caller that must know calls again. Between lost races it sleeps for longer
        each time, `back_off_ms` at most.
        """
        assert not self._is_read_only
        tried = AppendRounds()
        pause = BACK_OFF_FIRST_MS
        for _ in range(self._settings.commit_rounds):
            with self._locked() as held:
                outcome = self._attempt(proposal, held, tried)
            if outcome is not None:
                self._remove_staged(tried)
                return outcome
            self.world.sleep_ms(tried.waits_ms or jittered_ms(self.world, pause))
            pause = min(2 * pause, back_off_ms)
        if tried.may_stand is not None:
            raise undecided(self.storage.uri, "it was not published before the last round ended")
        raise too_busy(self.storage.uri, self._settings.commit_rounds)

    def _surely(self, outcome: Outcome, tried: AppendRounds) -> Outcome:
        """Return the outcome, or raise if it may be wrong.

        An earlier round may have appended our entry, and the log has since been pruned past it, so
        whether that entry stands is not known.
        """
        known = self._known or KnownLog()
        is_known = tried.may_stand in {None, *known.by_number, *known.voided}
        if not is_known and isinstance(outcome, Refused):
            raise undecided(
                self.storage.uri, "the log was pruned past it, so its outcome is not known"
            )
        return outcome

    def _staged(self, draft: Draft, tried: AppendRounds) -> dict[bytes, str]:
        """Stage bytes that are too large for an entry, and return where they are.

        A round that drafts the same bytes again uses what an earlier one staged.
        """
        oversized = draft.oversized()
        for data in oversized:
            if data in tried.staged:
                continue
            path = staged_path(draft.label, new_uuid(self.world))
            try:
                self.storage.create(path, data)
            except UnavailableError as error:
                if tried.may_stand is None:
                    raise unstaged(self.storage.uri, error) from error
                raise
            tried.staged[data] = path
        return {data: tried.staged[data] for data in oversized}

    def _remove_staged(self, tried: AppendRounds) -> None:
        """Remove what was staged, once no entry of this append needs it.

        After an error the objects stay: an entry may stand, and the process that publishes it needs
        them.
        """
        for path in tried.staged.values():
            with suppress(HudiError):  # it is removed later
                self.storage.delete(path)

    def _attempt(
        self, proposal: Proposal, held: HeldLock | None, tried: AppendRounds
    ) -> Outcome | None:
        known = self._catch_up()  # 2
        mine = known.standing(tried.drafts)
        if mine is not None:
            _announce(proposal, mine)  # also if another process published it meanwhile
        if (mine is None or mine.n < known.n) and (refused := self._other_lock()):
            if mine is not None:
                return tried.decided(mine)  # else no entry would be behind it
            return self._surely(refused, tried)
        if not self._settle_tail(held):  # 3
            return None
        if mine is not None and mine.n not in known.voided:
            return tried.decided(mine)  # an earlier round appended it, and only the reply was lost
        live, tail = self._current(), known.n
        foreign = self._foreign(live, proposal)
        if self._known is not known or known.n != tail:
            return (
                None  # looking for foreign writers read more of the log: its new end is not settled
            )
        draft = foreign or proposal.draft(self._facts, live)  # 4
        if isinstance(draft, Refused | AlreadyDone):
            return self._surely(draft, tried)
        if self._times.must_wait(live.highest, tried, known.times):
            return None
        staged = self._staged(draft, tried)
        entry = draft.entry(self._blank(), self._next_time(live), staged)  # 5
        if not self._is_safe(held):
            return None
        tried.drafts[entry.id] = draft
        tried.may_stand = None  # the earlier entry has lost: the log went on without it
        started = self.world.elapsed_ms()
        if not self._create(entry):  # 6
            return None
        tried.may_stand = entry.n
        if not self._verify(entry):  # 7
            if self._known is None:
                tried.may_stand = None  # another entry has the number, and ours was removed
            return None
        self._note(entry)
        _announce(proposal, entry)
        if not self._may_publish(entry, held):
            return None  # appended; the next round publishes or voids it
        self._publish(entry)  # 8
        self._lease.took(self.world.elapsed_ms() - started)
        return Decided(entry, draft)

    def _locked(self) -> AbstractContextManager[HeldLock | None]:
        return self._lease.held(lambda: "" if self._known is None else self._known.highest)

    def _is_safe(self, held: HeldLock | None) -> bool:
        """True if the log was read just now, and the lock outlasts the next step.

        A process that sleeps in between might bring back what was archived meanwhile.
        """
        is_fresh = self.world.elapsed_ms() - self._read_at <= STALE_MS
        return is_fresh and self._lease.is_safe(held)

    def _may_publish(self, entry: Entry, held: HeldLock | None) -> bool:
        completes = entry.kind is EntryKind.COMPLETE and not entry.whole  # one that was begun
        is_checked = held is not None and completes
        if is_checked and not self._still_inflight(entry):
            return False  # the one fence that the other engine respects
        return self._is_safe(held)

    def _still_inflight(self, entry: Entry) -> bool:
        assert entry.instant is not None
        assert entry.action is not None
        return self._facts.is_inflight(entry.instant, entry.action)

    @property
    def _facts(self) -> Facts:
        known, is_migrating = self._known or KnownLog(), self._lease.is_migrating
        return Facts(self.storage, self.folder, known, is_migrating)

    # -- step 2: the tail

    def _catch_up(self) -> KnownLog:
        """Read the new entries, each chained to the one before it."""
        self._read_at = self.world.elapsed_ms()
        if self._known is None:
            return self._open()
        found = dict(entries_after(self.storage, self._known.n))
        for number in range(self._known.n + 1, max(found, default=0) + 1):
            # Load each by its number: a folder that changes while it is listed may show an entry
            # and miss the one before it.
            entry = self._load(number, found.get(number))
            if entry is None or not self._known.follows(entry):
                return self._open()  # pruned while this process slept
            self._note(entry)
            self._lease.has_new_entries = True
        return self._known

    def _open(self) -> KnownLog:
        """Begin at the tail, without knowledge of earlier entries."""
        self._live, self._lease.has_new_entries = None, True
        for _ in range(READ_ATTEMPTS_MAX):
            known = KnownLog()
            numbered = last_entries(self.storage)
            if not numbered:
                self._known = known
                known.whole_from = 1
                return known
            number, stat = numbered[-1]
            if (entry := self._load(number, stat)) is not None:
                known.note(entry)
                known.whole_from = number
                self._known = known
                return known
        raise restless(self.storage.uri, READ_ATTEMPTS_MAX)

    def _load(self, number: int, stat: ObjectStat | None) -> Entry | None:
        if stat is not None:
            self.clock.observe(stat.modified_ms)
        return load_entry(self.storage, number)

    def _note(self, entry: Entry) -> None:
        assert self._known is not None
        self._known.note(entry)
        self._known.settled = max(self._known.settled, entry.n - 1)
        if entry.kind is EntryKind.VOID:
            self._live = None
        elif self._live is not None:
            self._live.note(entry)
            if self._live.noted > NOTED_MAX:
                self._live = None  # a new listing has no more than is on the timeline

    # -- step 3: settle the tail, and the timeline

    def _settle_tail(self, held: HeldLock | None) -> bool:
        """Publish the last entry unless that is done, or void it; False if the race is lost."""
        assert self._known is not None
        if self.is_shared:
            self._live = None  # the other engine may have written
        tail = self._known.tail
        if not self._is_settled(self._known):
            assert tail is not None
            if self.is_shared and self._is_superseded(tail, self._current()):
                instead = self._instead_of(tail, self._current())
                if self._is_safe(held) and self._create(instead) and self._verify(instead):
                    self._note(instead)
                return False
            if self.is_shared:
                # The lock is held until this clock is past the entry. Reading the clock may take a
                # while, so that comes before the lock is checked.
                self.clock.shared_now_ms()
            # It is read by its number a while after it was listed: another may have its number now.
            if not self._verify(tail) or not self._is_safe(held):
                return False
            self._publish(tail)
            self._live = None if self.is_shared else self._live
            if self._live is not None:
                self._live.note(tail)  # it may have been listed before
        return True

    def _is_settled(self, known: KnownLog) -> bool:
        """True if the last entry is published, or was voided, or there is none."""
        tail = known.tail
        if tail is None or tail.n <= known.settled or tail.kind is EntryKind.VOID:
            return True
        if has_effect(self.storage, self.folder, tail):
            known.settled = tail.n
        return tail.n <= known.settled

    def _is_superseded(self, entry: Entry, live: LiveTimeline) -> bool:
        return is_superseded(entry, live, partial(self._still_inflight, entry))

    def _instead_of(self, superseded: Entry, live: LiveTimeline) -> Entry:
        """Return the entry that voids a superseded one."""
        void = self._blank(kind=EntryKind.VOID, voids=superseded.n)
        made = superseded.creates
        assert made is not None
        if not has_removed_plan(superseded, live, self._rollbacks):
            return void
        if made.staged is not None and self.storage.stat(made.staged) is None:
            return void  # removed, since it is so old
        return reissued_abort(void, superseded, self._next_time(live))

    def _current(self, *, is_guarded: bool = True) -> LiveTimeline:
        """Return the live timeline; it is listed where the log alone does not suffice.

        A process that archives takes the lock of a shared table, so none does while it is held.
        """
        if self._live is None:
            started = self.world.elapsed_ms()
            self._live = self._listed(is_guarded=is_guarded and self.is_shared)
            self._foreign_writers.listed(started)
        return self._live

    def _listed(self, *, is_guarded: bool) -> LiveTimeline:
        assert self._known is not None
        live = LiveTimeline(list_timeline(self.storage, self.folder, is_guarded=is_guarded))
        for rollback in live.rollbacks_to_look_at():
            if undone := self._rollbacks.undone_by(rollback):
                live.add_rollback(undone.target, rollback, is_final=undone.is_final)
        for target, abort in self._known.aborts.items():
            # What is on the timeline counts: another engine may have planned a rollback since.
            if abort.instant is not None and target not in live.rolled_back_by:
                live.add_rollback(target, abort.instant)
        if live.pending_of(Action.CLUSTERING):
            live.add_closed(closed_resizes(self.storage))
        return live

    def _foreign(self, live: LiveTimeline, proposal: Proposal | None) -> Refused | None:
        """Refuse, on a table without a lock, if another writer does not use the log."""
        assert self._known is not None
        if self.is_shared:
            return None
        found = self._foreign_writers.found(
            self._known, live, None if proposal is None else proposal.requested, self._catch_up
        )
        return None if found is None else Refused(Rule.FOREIGN, found)

    # -- steps 5 to 8

    def _next_time(self, live: LiveTimeline) -> str:
        assert self._known is not None
        return self._times.after(max(live.highest, self._known.highest))

    def _blank(self, kind: EntryKind = EntryKind.BEGIN, voids: int | None = None) -> Entry:
        assert self._known is not None
        tail = self._known.tail
        return Entry(
            n=self._known.n + 1,
            id=new_uuid(self.world),
            prev=None if tail is None else tail.id,
            kind=kind,
            voids=voids,
            guarded=self.is_shared,
            writer=self.world.label,
            wall=self.now(),
        )

    def _create(self, entry: Entry) -> bool:
        return create_entry(self.storage, entry)

    def _verify(self, entry: Entry) -> bool:
        """True if the chain goes through the entry: its number may have been pruned and reused."""
        beyond = entries_after(self.storage, entry.n - 1)
        for number, stat in beyond:
            if number == entry.n:
                self.clock.observe(stat.modified_ms)
        if not beyond or beyond[0][0] != entry.n:
            return False
        if len(beyond) == 1:
            return True
        successor = load_entry(self.storage, entry.n + 1)
        if successor is not None and successor.prev == entry.id:
            return True
        self.storage.delete(entry_path(entry.n))
        self._known = None
        return False

    def _publish(self, entry: Entry) -> None:
        assert self._known is not None
        publish(self.storage, self.folder, entry)
        self._known.settled = max(self._known.settled, entry.n)


def _announce(proposal: Proposal, entry: Entry) -> None:
    if proposal.announce is not None:
        assert entry.time is not None
        proposal.announce(entry.time)
