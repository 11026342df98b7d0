"""Cleaning: planned on what was loaded, decided if that still holds, carried out by whoever comes.

*Why a plan stays right.* It removes files that no kept state needs, as of one load. Writes that
complete later do not change that: a later state is made of the latest slices of that load and of
newer files, and the plan has none of either. Neither does a compaction or clustering that is
planned later, for it reads latest slices; but another engine may see slices otherwise (Hudi
#19290), so one that appeared since the load has the table loaded again. What can make an old file
needed again is a savepoint, a restore, a rollback of a write that had completed, and a consumer
that registers with an older time. The check at the plan's own decision looks for all of these, and
whatever is decided later finds the plan on the timeline. Without a lock the decision log tells of
all that pyhudi does. What another engine does there is looked for before that, and once more before
the first file goes.

*Consumers* are no instants. Whoever registers one creates its object first and looks for planned
cleans then; whoever carries a plan out looks for consumers before the first file goes. So either
the consumer is told that it is too late, or its files are spared.

*Carrying out* only deletes files that the plan names, each as often as it takes, so it may be
interrupted and repeated, and two may do it at once. The plan is believed no more than that. A file
that something needs by now, such as a savepoint, is spared. A path outside the table, a file of a
latest slice or of a pending write were never to be planned: that is an error, nothing is deleted,
and the plan stays pending until a process cancels it (`cancel`), which completes it as a clean of
nothing. From the moment a plan is on the timeline, reads of what it removes are refused
(`plan.retention`), and they stay refused if it is cancelled: the process that cancels it cannot
know whether another one is removing its files at that moment. A scan that was made before meets a
missing file, which is an error as well.

Files are deleted outside of `turn`, so that other threads that share the table can write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Any, NamedTuple

from pyhudi.commit.log import DecisionLog
from pyhudi.commit.proposals import (
    LOCK_RULES,
    AlreadyDone,
    Begin,
    Check,
    Complete,
    Decided,
    Refused,
    Rule,
    refusal_error,
)
from pyhudi.commit.transaction import writer_identity
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    HudiError,
    InvalidRequestError,
    UnavailableError,
    UnsupportedTableError,
)
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import CLEANER_PLAN, CleanerPlan, encode_cleaner_plan
from pyhudi.format.timeline.service_metadata import CleanMetadata, encode_clean_metadata
from pyhudi.plan.clean_recheck import clean_changes_since, logged_changes_since, weighty_instants
from pyhudi.plan.clean_records import (
    believed_plan,
    clean_metadata,
    group_of,
    planned_paths,
    refuse_needed,
    skipped_files,
)
from pyhudi.plan.clean_verdicts import Pins
from pyhudi.plan.cleaning import CleanPlan, CleanPolicy, plan_cleaning
from pyhudi.plan.retention import RETAINED_SINCE_KEY, Retention
from pyhudi.read.lost_files import CommitRecords
from pyhudi.read.plan import AtCompletion, Reader
from pyhudi.services.cleaning.holds import live_consumers, load_holds
from pyhudi.services.cleaning.result import Cleaned, CleanResult
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import Heartbeat, heartbeat_path
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.storage.objects.timeline_listing import list_timeline
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes
from pyhudi.timeline.live import LiveTimeline
from pyhudi.timeline.timeline import WRITE_ACTIONS, Timeline
from pyhudi.write.local import LocalWriter

#: Plans that others overtook, before we say so.
PLAN_ATTEMPTS_MAX = 5
#: What an empty plan asks for; Hudi leaves one if it dies between making the file and filling it.
_NO_PLAN = CleanerPlan(None, "", CleanPolicy().by.value)
_NOTHING: AbstractContextManager[Any] = nullcontext()


def clean(
    writer: LocalWriter, policy: CleanPolicy | None = None, *, dry_run: bool = False
) -> CleanResult | CleanPlan:
    """Remove what the policy does not keep; with `dry_run` only tell, for every file, why.

    What failed writers left is rolled back first, and cleans that are pending are finished.
    """
    policy = policy or CleanPolicy()
    with writer.turn:
        if dry_run:
            writer.open()
        else:
            writer.ready()
        cleanings = writer_cleanings(writer)
    return cleanings.preview(policy) if dry_run else cleanings.run(policy)


def cancel_clean(writer: LocalWriter, instant: str) -> Cleaned:
    """Cancel a clean that is pending."""
    with writer.turn:
        writer.open()
        return writer_cleanings(writer).cancel(instant)


def writer_cleanings(writer: LocalWriter) -> Cleanings:
    """The cleans of a table that is open for writing."""
    reader = Reader(writer.loader)

    def load() -> TableState:
        # A savepoint is as old as what it saves: it does not show at the timeline's end.
        return writer.loader.refresh(writer.state(), is_whole=True)

    def times(state: TableState) -> CompletionTimes:
        return reader.completion_times(state, AtCompletion(""))

    records = CommitRecords(writer.loader)
    return Cleanings(writer.log, load, times, reader.kept, records, writer.settings, writer.turn)


class _Facts(NamedTuple):
    """What a plan is made of."""

    state: TableState
    times: CompletionTimes
    holds: Pins
    now_ms: int  # by the store's clock


class Cleanings:
    """What one process does for the cleans of one table."""

    def __init__(
        self,
        log: DecisionLog,
        load: Callable[[], TableState],
        times: Callable[[TableState], CompletionTimes],
        kept: Callable[[TableState], Retention],
        records: CommitRecords,
        settings: WriteSettings,
        turn: AbstractContextManager[Any] = _NOTHING,
    ) -> None:
        """`load` must know the whole active timeline as it is now, and `times` every archived
        write whose files are there. `turn` is held for everything but the deletes."""
        self._log = log
        self._storage = log.storage
        self._load = load
        self._times = times
        self._kept = kept
        self._records = records
        self._settings = settings
        self._turn = turn

    def run(self, policy: CleanPolicy, *, take_over: bool = False) -> CleanResult:
        """Finish what is pending, then clean. With `take_over` also what another is at.

        A plan that cannot be carried out stays, and keeps no other from it; its error is in the
        result.
        """
        done: list[Cleaned] = []
        errors: list[HudiError] = []
        for instant in self.pending():
            try:
                if not take_over and self.is_attended(instant.requested):
                    return CleanResult(tuple(done), instant.requested, tuple(errors))
                done.append(self.execute(instant.requested))
            except HudiError as error:
                errors.append(error)
        kept_from = None
        try:
            with self._turn:
                requested, kept_from = self._scheduled(policy)
            if requested is not None:
                done.append(self.execute(requested))
        except HudiError as error:
            errors.append(error)
        return CleanResult(tuple(done), None, tuple(errors), kept_from)

    def pending(self) -> list[Instant]:
        with self._turn:
            return self._planned(self._log.refresh().pending_of(Action.CLEAN))

    def _planned(self, pending: Iterable[Instant]) -> list[Instant]:
        """Without what is no plan: an inflight file that came after its clean was archived."""
        return [instant for instant in pending if self._has_plan(instant.requested)]

    def _has_plan(self, requested: str) -> bool:
        return self._storage.stat(self._path(requested, State.REQUESTED)) is not None

    # -- planning

    def preview(self, policy: CleanPolicy) -> CleanPlan:
        """What a clean would do now."""
        with self._turn:
            facts = self._facts(self._log.clock.estimate_ms())
            cleans = (i for i in facts.state.timeline.pending if i.action is Action.CLEAN)
            pending = tuple(instant.requested for instant in self._planned(cleans))
            return replace(self._plan(facts, policy), pending=pending)

    def schedule(self, policy: CleanPolicy) -> str | None:
        """Put a plan on the timeline; its requested time, or None if no file goes.

        None as well while another clean is pending, whose files are still there and would be
        planned once more.
        """
        with self._turn:
            return self._scheduled(policy)[0]

    def _scheduled(self, policy: CleanPolicy) -> tuple[str | None, str | None]:
        """What `schedule` gives; and if there is nothing to remove, from which write on is kept."""
        for _ in range(PLAN_ATTEMPTS_MAX):
            decided = set() if self._log.is_shared else weighty_instants(self._log.refresh())
            facts = self._facts(self._log.clock.read_ms())
            pending = facts.state.timeline.pending
            _refuse_beside_restore(f"cleaning the table at {self._storage.uri}", pending)
            if self._planned(i for i in pending if i.action is Action.CLEAN):
                return None, None
            plan = self._plan(facts, policy)
            if not plan.count:
                return None, None if plan.earliest is None else plan.earliest.requested
            going = plan.going.select(["partition", "file_group"]).to_pydict()
            groups = set(zip(*going.values(), strict=True))
            self._refuse_losses(facts, groups)
            data = encode_cleaner_plan(
                plan.cleaner_plan(self._storage.uri), self._log.world.random_bytes(16)
            )
            # Listing takes longer than a small write: who has no lock would lose the race for the
            # decision each time. A savepoint that comes now is seen when the plan is carried out.
            early = None if self._log.is_shared else self._listed_news(facts)
            outcome = early or self._begin(data, self._unchanged(facts, decided))
            if isinstance(outcome, Decided):
                return outcome.entry.instant, None
            assert isinstance(outcome, Refused)
            if outcome.rule is not Rule.CONFLICT:
                raise _refused(outcome, f"cleaning the table at {self._storage.uri}")
        raise UnavailableError(
            f"the table at {self._storage.uri} could not be cleaned",
            why=f"other table services came between in each of {PLAN_ATTEMPTS_MAX} attempts",
            next_step="Repeat the call",
        )

    def _facts(self, now_ms: int) -> _Facts:
        state = self._load()
        holds = load_holds(self._storage, self._log.folder, state.timeline, now_ms)
        return _Facts(state, self._times(state), holds, now_ms)

    def _plan(self, facts: _Facts, policy: CleanPolicy) -> CleanPlan:
        state = facts.state
        return plan_cleaning(
            state,
            facts.times,
            policy,
            now_ms=facts.now_ms,
            holds=facts.holds,
            kept=self._kept(state),
        )

    def _refuse_losses(self, facts: _Facts, groups: Collection[tuple[str, str]]) -> None:
        """CorruptTableError if a file group is to lose files whose latest slice is not whole."""
        what = f"the table at {self._storage.uri} cannot be cleaned"
        self._records.refuse_lost(facts.state, facts.times, groups, what)

    def _begin(self, data: bytes, check: Check) -> Decided | AlreadyDone | Refused:
        return self._log.append(Begin(Action.CLEAN, data, check=check))

    def _unchanged(self, facts: _Facts, decided: set[tuple[str, Action]]) -> Check:
        """Return a check for when the plan is decided: does something now need what it removes?

        `decided` is what the log told of before the facts were loaded.
        """
        known = dict(facts.holds.consumers)

        def check(live: LiveTimeline) -> Refused | None:
            if self._log.is_shared:
                news = self._listed_news(facts)
            else:
                news = _outdated(logged_changes_since(decided, facts.state.timeline, live))
            if news is not None:
                return news
            for name, since in live_consumers(self._storage, facts.now_ms):
                if since < known.get(name, "9" * 17):
                    return Refused(Rule.CONFLICT, detail=f"consumer {name!r} has registered")
            return None

        return check

    def _listed_news(self, facts: _Facts) -> Refused | None:
        """What the timeline itself tells of, savepoints too."""
        listed = list_timeline(self._storage, self._log.folder, is_guarded=self._log.is_shared)
        return _outdated(clean_changes_since(facts.state.timeline, Timeline.of(listed)))

    # -- carrying out

    def is_attended(self, requested: str) -> bool:
        """Whether another process seems to be carrying the clean out.

        Ours beat. Of other engines we only know when they planned it.
        """
        with self._turn:
            now = self._log.clock.read_ms()  # before the look, as for every heartbeat
        paths = [heartbeat_path(requested)]
        plan = self._load_plan(requested)
        if RETAINED_SINCE_KEY not in (plan.extra_metadata or {}):
            paths += [self._path(requested, State.REQUESTED), self._path(requested, State.INFLIGHT)]
        signs = (self._storage.stat(path) for path in paths)
        last = max((stat.modified_ms for stat in signs if stat is not None), default=None)
        return last is not None and now - last <= self._settings.heartbeat_timeout_ms

    def execute(self, requested: str) -> Cleaned:
        """Carry a plan out, and complete it, unless another process has."""
        started = self._log.world.elapsed_ms()
        with self._turn:
            pending = self._log.refresh().pending.values()
            _refuse_beside_restore(f"the clean {requested}", pending)
            plan = self._load_plan(requested)
        planned = planned_paths(plan, self._storage.uri, self._path(requested, State.REQUESTED))
        who = writer_identity(self._log.world, self._settings).text
        heartbeat = Heartbeat(self._storage, requested, who)
        heartbeat.start(self._log.world, self._settings.heartbeat_interval_ms)
        try:
            with self._turn:
                sizes, spared = self._examined(requested, planned)
                if (done := self._make_inflight(requested)) is not None:
                    return done
            paths = (path for paths in planned.values() for path in paths)
            self._storage.delete_all([path for path in paths if path not in spared])
            took = self._log.world.elapsed_ms() - started
            with self._turn:
                plan = self._believed(plan)
                metadata = clean_metadata(requested, plan, planned, spared, took)
                completed = self._complete(requested, metadata)
        finally:
            with suppress(HudiError):
                heartbeat.end()  # the next one may go on at once
        gone = metadata.total_files_deleted
        return Cleaned(requested, completed, gone, sizes, tuple(sorted(spared)))

    def cancel(self, requested: str) -> Cleaned:
        """Cancel a clean that is pending: complete it, and remove nothing more.

        Reads of the states that it was to remove stay refused. Its files may be there, or another
        process removed them a while ago, or just now: no look can tell.
        """
        if requested not in {instant.requested for instant in self.pending()}:
            raise InvalidRequestError(
                f"there is no pending clean {requested!r:.100}",
                why="no plan has that time, or it is complete",
                next_step="Look at table.inspect.timeline()",
            )
        if self._seems_attended(requested):
            raise ConflictError(
                f"the clean {requested} cannot be cancelled now",
                why="another process seems to be carrying it out",
                next_step="Let it end, or repeat the call once it has been silent for"
                f" {self._settings.heartbeat_timeout_ms / 1000:g} s",
            )
        plan, planned = self._readable_plan(requested)
        if (done := self._make_inflight(requested)) is not None:
            return done
        spared = frozenset(path for paths in planned.values() for path in paths)
        metadata = clean_metadata(requested, self._believed(plan), planned, spared, 0)
        return Cleaned(requested, self._complete(requested, metadata), 0, 0, tuple(sorted(spared)))

    def _readable_plan(self, requested: str) -> tuple[CleanerPlan, dict[str, tuple[str, ...]]]:
        """The plan and its files; none of what nobody carries out, since it cannot be read."""
        with suppress(CorruptTableError, UnsupportedTableError):
            plan = self._load_plan(requested)
            return plan, planned_paths(plan, self._storage.uri, "")
        return _NO_PLAN, {}

    def _believed(self, plan: CleanerPlan) -> CleanerPlan:
        done = self._log.refresh().completed.values()
        writes = [instant for instant in done if instant.action in WRITE_ACTIONS]
        return believed_plan(
            plan,
            newest=max((write.requested for write in writes), default=""),
            completed=max((write.completed or "" for write in writes), default=""),
        )

    def _seems_attended(self, requested: str) -> bool:
        try:
            return self.is_attended(requested)
        except CorruptTableError:
            return False  # nobody carries out what nobody can read

    def _make_inflight(self, requested: str) -> Cleaned | None:
        """What another process has done meanwhile, if it has.

        A look right before: an inflight file of a clean that was archived would stand for a plan
        that nobody can read.
        """
        live = self._log.refresh()
        if requested in live.pending and self._has_plan(requested):
            self._storage.create(self._path(requested, State.INFLIGHT), b"")
            return None
        done = live.completed.get(requested)
        return Cleaned(requested, "" if done is None else done.completed or "", 0, 0)

    def _path(self, requested: str, state: State) -> str:
        return self._log.path(Instant(InstantTime(requested), Action.CLEAN, state))

    def _load_plan(self, requested: str) -> CleanerPlan:
        path = self._path(requested, State.REQUESTED)
        plan = CLEANER_PLAN.decode_or_none(load_timeline_file(self._storage, path), path)
        return _NO_PLAN if plan is None else plan

    def _examined(
        self, requested: str, planned: Mapping[str, tuple[str, ...]]
    ) -> tuple[int, frozenset[str]]:
        """Bytes that go, and files to spare, which something needs by now.

        CorruptTableError if one should never have been planned; another error beside a restore.
        """
        facts = self._facts(self._log.clock.read_ms())
        _refuse_beside_restore(f"the clean {requested}", facts.state.timeline.pending)
        # First: where the latest slice is lost, one that is planned takes its place.
        groups = {group_of(path) for paths in planned.values() for path in paths}
        self._refuse_losses(facts, groups)
        now = self._plan(facts, CleanPolicy.versions(1)).files
        # A process that has known the table for long may not know files of writes under way.
        under_way = facts.state.timeline.pending_writes
        place = self._path(requested, State.REQUESTED)
        refuse_needed(requested, planned, now, under_way, place)
        return skipped_files(planned, now)

    def _complete(self, requested: str, metadata: CleanMetadata) -> str:
        data = encode_clean_metadata(metadata, self._log.world.random_bytes(16))
        # No process aborts a clean, so it does not matter what the log says since its begin.
        proposal = Complete(requested, Action.CLEAN, None, data, self._has_its_plan(requested))
        outcome = self._log.append(proposal)
        if isinstance(outcome, Refused):
            raise _refused(outcome, f"the clean {requested}")
        done = outcome.instant.completed if isinstance(outcome, AlreadyDone) else outcome.entry.time
        assert done is not None
        return done

    def _has_its_plan(self, requested: str) -> Check:
        """Asked when it completes: one that was archived meanwhile is not completed once more."""

        def check(_: LiveTimeline) -> Refused | None:
            return None if self._has_plan(requested) else Refused(Rule.NOT_PENDING, requested)

        return check


def _outdated(news: Sequence[str]) -> Refused | None:
    return Refused(Rule.CONFLICT, news[0]) if news else None


def _refuse_beside_restore(what: str, pending: Iterable[Instant]) -> None:
    """While a restore is under way old slices come back; another engine's is on no decision log."""
    for instant in pending:
        if instant.action is Action.RESTORE:
            raise _refused(Refused(Rule.RESTORE_PENDING, instant.requested), what)


def _refused(refused: Refused, what: str) -> HudiError:
    if refused.rule in LOCK_RULES:
        return refusal_error(refused, "", what=what)
    by = f" ({refused.instant})" if refused.instant else ""
    return ConflictError(
        f"{what} was not completed",
        why=f"{refused.rule}{by}",
        next_step="Clean again when that is over: what is planned is finished then. Nothing that is"
        " needed was removed",
    )
