"""The looks of a running toy write, by the classes of production: is it doomed, must it yield?

What a look finds is noted with the moment at which it was found, and judged when all is over
(`checks.early_stops`, `checks.yields`). Most doomed writes stop then. Some go on in spite of it and
ask to complete, which has to be refused.

A write without a fence looks between its files. One with a fence has tasks elsewhere, and its
process looks in the background.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

from pyhudi.commit.concurrent import ConcurrentWrites
from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.ownership import OwnedPart
from pyhudi.commit.proposals import Refused, Rule
from pyhudi.commit.transaction import Lost, Transaction
from pyhudi.conflict.announced import Met
from pyhudi.conflict.file_groups import Footprint
from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import MarkerName
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.conflict_strategy import CONFLICT_STRATEGY, Strategy
from pyhudi.format.table.table_config import TableConfig
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.read.load import TableLoader
from pyhudi.session.session import TableSession
from pyhudi.settings import EarlyDetection, WriteSettings
from pyhudi.simulate.choices import drawn
from pyhudi.simulate.simulation import Process
from pyhudi.simulate.table.actors.way import Way
from pyhudi.simulate.table.history import Doomed, Look
from pyhudi.simulate.table.rows import BUCKETS, TableKind, happens
from pyhudi.simulate.table.stage import Stage
from pyhudi.simulate.table.table import RECORD_KEY, DataFile, table_config
from pyhudi.storage.objects.marker_filters import MarkerFilters
from pyhudi.storage.objects.write_fence import raise_fence
from pyhudi.storage.protocol import Storage
from pyhudi.write.early.announcing import LookingMarkers
from pyhudi.write.early.start import announced_by, early_check
from pyhudi.write.files.announcing import DIRECT, Announcing, MetRivalError, Verdict
from pyhudi.write.markers.lists import ListedMarkers
from pyhudi.write.watch import Watch

#: How many of the doomed writes go on.
_STUBBORN_RATE = 0.4
#: How long a file takes, for a look is due only when time has passed.
_FILES_TAKE_MS = (0, 1, 100, 2_000)
#: Milliseconds between two looks: of a write that looks itself, and of one with tasks elsewhere.
_PERIODS_MS = (1, 1_500)


class ToyWatch(Watch):
    """The looks of one attempt, and what they found."""

    def __init__(
        self,
        stage: Stage,
        process: Process,
        session: TableSession,
        transaction: Transaction,
        way: Way,
        owned: OwnedPart | None,
        chance: random.Random,
        *,
        has_lists: bool,
    ) -> None:
        """`has_lists`: its markers are lines of lists."""
        intent, can_rebase = way.intent(owned), way.keeps_files
        early = early_check(session, transaction, intent, can_rebase=can_rebase, are_sent=False)
        super().__init__(session, transaction, intent, early, can_rebase=can_rebase)
        inner = ListedMarkers() if has_lists else DIRECT
        self._announcing = announced_by(early, inner, session.config)
        self._strategy = "" if early is None else early.looks.name
        self._stage = stage
        self._process = process
        self._chance = chance
        self._way = way
        self._goes_on = happens(chance, _STUBBORN_RATE)
        self._files: list[DataFile] = []

    def announced(self, files: Sequence[DataFile]) -> list[DataFile]:
        """Return the files, to be announced as the strategy says."""
        way = self._announcing
        if isinstance(way, LookingMarkers):
            way = NotingMarkers(way, self._strategy, self._way.is_checked, self._stage)
        self._files = [file._replace(announcing=way) for file in files]
        return self._files

    def ran(self, written: Iterator[WriteStat]) -> list[WriteStat] | Lost:
        """Let the tasks write their files, as the executors of production do."""
        stats: list[WriteStat] = []
        try:
            run = self._ran_elsewhere if self._way.is_fenced else self._ran_here
            return run(written, stats) or stats
        except MetRivalError as error:
            return self.yielded(error.met, stats)

    def _ran_here(self, written: Iterator[WriteStat], stats: list[WriteStat]) -> Lost | None:
        # An overwrite finds only when it writes which file groups there are.
        coming = () if self._way.overwrite is not None else {file.group for file in self._files}
        for stat in written:
            stats.append(stat)
            self._take_time()
            if (lost := self.look(stats, frozenset(coming))) is not None:
                return lost
        return None

    def _ran_elsewhere(self, written: Iterator[WriteStat], stats: list[WriteStat]) -> Lost | None:
        storage, requested = self._process.storage, self._transaction.requested
        stopped: list[bool] = []

        def stop_tasks(met: Met | None = None) -> None:
            stopped.append(True)
            with suppress(HudiError):
                raise_fence(storage, requested)

        with self.beside(stop_tasks) as lost:
            for stat in written:
                stats.append(stat)
                self._take_time()
                if stopped and (found := lost()) is not None:
                    return found
        return None

    def _take_time(self) -> None:
        self._process.world.sleep_ms(_FILES_TAKE_MS[drawn(self._chance, len(_FILES_TAKE_MS))])

    def _found(
        self, log: DecisionLog, others: ConcurrentWrites, made: Footprint
    ) -> Refused | Met | None:
        since = self._stage.place
        found = super()._found(log, others, made)
        if self._early is not None:
            requested, is_checked = self._transaction.requested, self._way.is_checked
            noted = _Noted(requested, self._strategy, is_checked, since, by_task=False)
            noted.ended(self._stage, made, found)
        return found

    def _refusal(
        self, log: DecisionLog, others: ConcurrentWrites, made: Footprint
    ) -> Refused | None:
        refused = super()._refusal(log, others, made)
        if refused is None:
            return None
        self._stage.history.doomed.append(self._doomed(refused))
        return None if self._goes_on else refused

    def _doomed(self, refused: Refused) -> Doomed:
        files = self._files
        return Doomed(
            self._transaction.requested,
            self._stage.place,
            self._process.name,
            refused.instant or "",
            was_rolled_back=refused.rule is Rule.ROLLED_BACK,
            bases=frozenset(f.group for f in files if not _is_log(f)),
            logs=frozenset(f.group for f in files if _is_log(f) and not f.refers),
            references=frozenset(f.group for f in files if f.refers),
            new_keys=frozenset(f.group for f in files if any(row.is_fresh for row in f.rows)),
        )


@dataclass(frozen=True, slots=True)
class _Noted:
    """A look that has begun."""

    requested: str
    strategy: str
    is_checked: bool
    since: int
    by_task: bool

    def ended(self, stage: Stage, made: Footprint, found: object) -> None:
        actor = stage.simulation.scheduler.current
        assert actor is not None
        stage.history.looks.append(
            Look(
                self.requested,
                actor.life.name,
                self.strategy,
                self.by_task,
                self.is_checked,
                self.since,
                stage.place,
                stage.simulation.now_ms,
                bases=made.bases,
                logs=made.groups - made.bases,
                yields_to=found.rival if isinstance(found, Met) else "",
                stops=isinstance(found, Met | Refused),
            )
        )


@dataclass(frozen=True, slots=True)
class NotingMarkers:
    """Announces files as production does, and notes each look."""

    inner: LookingMarkers
    strategy: str
    is_checked: bool
    stage: Stage

    def announce(self, storage: Storage, requested: InstantTime, marker: MarkerName, /) -> Verdict:
        groups = frozenset([marker.file_group])
        made = Footprint(groups, groups if marker.is_of_base else frozenset())
        since = self.stage.place
        noted = _Noted(str(requested), self.strategy, self.is_checked, since, by_task=True)
        verdict = self.inner.announce(storage, requested, marker)
        if self.inner.check.looks.by_task:
            noted.ended(self.stage, made, verdict)
        return verdict

    def again(self) -> NotingMarkers:
        """Return the same for another attempt of the task, in a process of its own."""
        check, inner = self.inner.check, announced_again(self.inner.inner)
        check = check.elsewhere(check.world)
        looking = replace(self.inner, check=check, inner=inner, filters=MarkerFilters())
        return replace(self, inner=looking)


def announced_again(announcing: Announcing) -> Announcing:
    """Return how another attempt of a task announces, which does not reach the writer's lists."""
    if isinstance(announcing, NotingMarkers):
        return announcing.again()
    return DIRECT


def _is_log(file: DataFile) -> bool:
    return file.file_name.startswith(".")


def watching(settings: WriteSettings, strategy: str | None, *, is_fenced: bool) -> WriteSettings:
    """Return the settings of a writer that looks as often as its files come."""
    early = EarlyDetection(strategy=strategy, period_ms=_PERIODS_MS[is_fenced])
    return replace(settings, early_detection=early)


def rules_session(
    log: DecisionLog,
    settings: WriteSettings,
    kind: TableKind,
    strategy: Strategy,
    *,
    is_checked: bool,
    known: TableSession | None,
    own: set[str],
) -> TableSession:
    """Return a session on a table that records the rules by which one attempt is judged.

    On a table of rings it is one with the rings that the process has `known`. It has its `own`
    other instants.
    """
    config = _recording(kind, strategy, is_checked=is_checked)
    if known is not None:
        return replace(known, settings=settings, config=config, own=own)
    return TableSession.of(settings, config, TableLoader(log.storage, config), log, own=own)


@cache
def _recording(kind: TableKind, strategy: Strategy, *, is_checked: bool) -> TableConfig:
    config = table_config(kind)
    values = {**config.properties.values, CONFLICT_STRATEGY: strategy.class_name}
    mode = ConcurrencyMode.OPTIMISTIC if is_checked else ConcurrencyMode.NON_BLOCKING
    buckets = config.buckets if kind.has_rings else SimpleBuckets(BUCKETS).resolved(RECORD_KEY)
    properties = replace(config.properties, values=values)
    return replace(config, properties=properties, concurrency=mode, buckets=buckets)
