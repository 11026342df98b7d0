"""One schedule: writers, readers, table services and faults that a seed decides, then a verdict.

When all processes have finished or crashed, faults stop. A fresh process repairs the table, which
leaves nothing behind, a fresh writer commits, and consumers poll for the last time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal
from unittest.mock import patch

from pyhudi.commit import proposals, pruning, transaction
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.conflict.early_strategies import STRATEGIES
from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.conflict_strategy import Strategy
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.decision_entry import INLINE_BYTES_MAX
from pyhudi.format.timeline.instant import Action
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.plan.resizing import pace
from pyhudi.services.repair import Repair
from pyhudi.settings import WriteSettings
from pyhudi.simulate.choices import Choices, SeededChoices, drawn, random_stream
from pyhudi.simulate.faults import Effect, FaultPlan, FaultRates
from pyhudi.simulate.lock import LEASE_MS, SharedLock
from pyhudi.simulate.simulation import Process, Simulation
from pyhudi.simulate.table.actors.archiver import (
    HOURS_MS,
    LONG_PAUSE_MS,
    ArchiverActor,
    archive_all,
)
from pyhudi.simulate.table.actors.cleaner import (
    LONG_POLICIES,
    POLICIES,
    Cleaner,
    clean_all,
    cleanings,
)
from pyhudi.simulate.table.actors.compactor import Compactor, compact_all
from pyhudi.simulate.table.actors.evolver import Evolver
from pyhudi.simulate.table.actors.java_writer import JavaWriter
from pyhudi.simulate.table.actors.late_inflight import LateInflightActor
from pyhudi.simulate.table.actors.maintainer import MaintenanceActor
from pyhudi.simulate.table.actors.migrator import Migrator
from pyhudi.simulate.table.actors.overwriter import drawn_seeds
from pyhudi.simulate.table.actors.owner_registrar import HEIRS, OwnerRegistrar
from pyhudi.simulate.table.actors.plan_canceller import PlanCanceller
from pyhudi.simulate.table.actors.readers import Consumer, Reader
from pyhudi.simulate.table.actors.resizer import Resizer, resize_all
from pyhudi.simulate.table.actors.savepointer import SavepointActor
from pyhudi.simulate.table.actors.writers import (
    Pruner,
    Recoverer,
    Writer,
    WriterProfile,
    seed_table,
)
from pyhudi.simulate.table.checks.change_log import with_change_log
from pyhudi.simulate.table.checks.evidence import Evidence, Violation
from pyhudi.simulate.table.checks.invariants import Case, violations
from pyhudi.simulate.table.history import History, Outcome
from pyhudi.simulate.table.rows import FOUNDERS, TableKind, happens
from pyhudi.simulate.table.stage import Stage
from pyhudi.simulate.table.table import create_toy_table
from pyhudi.simulate.table.toy_rings import rows_are_toys
from pyhudi.simulate.trace import Trace

#: Writers that yield, writers that do not, owners of columns that do not, and a foreign engine.
Mode = Literal["occ", "nbcc", "partial", "shared"]
MODES: tuple[Mode, ...] = ("occ", "nbcc", "partial", "shared")

#: Short in virtual time, so that expired heartbeats are common.
SETTINGS = WriteSettings(heartbeat_interval_ms=2_000, lock_wait_ms=30_000)
#: Longer than any freeze, delay or late arrival: the protocol's one timing assumption.
GRACE_MS = 4 * 3_600_000
STEPS_MAX = 20_000
SHARED_SKEW_MS = 50
#: How many of the schedules have a schema that changes.
EVOLVING_RATE = 0.12
#: How many of the schedules on logs have buckets that split and merge.
RESIZING_RATE = 0.35
#: How many of those begin with simple buckets, and are migrated.
MIGRATING_RATE = 0.3
#: How many of the schedules have writers that look while they write whether they are doomed.
LOOKING_RATE = 0.2
#: In how many of those they have strategies by which they yield to others.
YIELDING_RATE = 0.5
#: How many of the writes replace partitions, where some do.
REPLACING_RATE = 0.25


@dataclass(frozen=True, slots=True)
class Services:
    """Which table services run beside the writers."""

    compactors: int = 0
    cleaners: int = 0
    archivers: int = 0
    savepointers: int = 0  # save a state of the table, on one that a foreign engine writes
    cancellers: int = 0  # cancel plans
    late_inflights: int = 0  # create an inflight file of an archived instant
    maintainers: int = 0  # do whatever is due
    policy: CleanPolicy = POLICIES[0]

    @property
    def cleans(self) -> bool:
        return self.cleaners + self.maintainers > 0

    @classmethod
    def drawn(cls, seed: int, mode: Mode, *, may_archive: bool) -> Services:
        """Draw services from a stream of their own, so that the other actors are as without
        them."""
        chance = random_stream(seed, f"services of {mode}")
        archivers = _count(chance, 0.08)
        services = cls(
            compactors=_count(chance, 0.3),
            cleaners=_count(chance, 0.15),
            archivers=archivers if may_archive else 0,
            savepointers=int(happens(chance, 0.5)),
            policy=POLICIES[drawn(chance, len(POLICIES))],
        )
        rare = random_stream(seed, f"rare services of {mode}")
        cancels, is_late, keeps = happens(rare, 0.15), happens(rare, 0.3), happens(rare, 0.03)
        long = LONG_POLICIES[drawn(rare, len(LONG_POLICIES))]
        return replace(
            services,
            policy=long if services.archivers else services.policy,
            cancellers=int(cancels and services.compactors + services.cleaners > 0),
            late_inflights=int(is_late and services.archivers > 0),
            maintainers=int(keeps),
        )


def _count(chance: random.Random, rate: float) -> int:
    """Return none, or one, or sometimes two."""
    first, second = happens(chance, rate), happens(chance, 0.25)
    return first + (first and second)


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    violations: tuple[Violation, ...]
    steps: int
    completed: int  # writes that became visible
    trace: Trace
    history: History
    resized: int = 0  # resizes that completed

    @property
    def digest(self) -> str:
        """Equal exactly when the runs were."""
        return self.trace.digest()


def run_schedule(
    seed: int,
    *,
    mode: Mode,
    archives: bool = False,
    faults: FaultPlan | None = None,
    choices: Choices | None = None,
    services: Services | None = None,
    evolves: bool | None = None,
    resizes: bool | None = None,
    migrates: bool | None = None,
    is_virtual: bool = False,
    looks: bool | None = None,
    yields: bool | str | None = None,
    closely: bool = False,
) -> ScheduleResult:
    """Play the seed's schedule and judge it. Arguments replace the seed's own.

    If it `evolves`, writers add and widen columns, and processes without rows drop them, too.

    If it `resizes`, its buckets are nodes of rings, which split and merge; with `is_virtual`, by
    virtual resizes. If it `migrates`, too, they are simple buckets at first.

    If it `looks`, its writers look while they write whether they are certain to lose. If it
    `yields`, too, they have strategies by which they yield to writes that are ahead of them, or all
    have the one that is named.

    With `closely`, all states of the table are read after each step of a table service.

    With `archives`, a process prunes the log and archives rollbacks at once, although zombies are
    about. That is more than the protocol promises to stand; not every seed passes.
    """
    chance = random_stream(seed, f"cast of {mode}")
    services = services or Services.drawn(seed, mode, may_archive=not archives)
    is_frail = mode == "shared" and happens(random_stream(seed, "lock"), 0.3)
    plan = faults or _rates(chance, mode, services, is_frail=is_frail)
    if services.archivers:  # no process may be later than archiving allows for
        choices = choices or SeededChoices(seed, may_pass_time=False)
    with (
        _figures(chance),
        _resize_figures(random_stream(seed, f"figures of resizes of {mode}")),
        rows_are_toys(),
        Simulation(seed, faults=plan, choices=choices) as simulation,
    ):
        schedule = _Schedule(
            simulation,
            mode,
            chance,
            services,
            archives=archives,
            is_frail=is_frail,
            evolves=evolves,
            resizes=resizes,
            migrates=migrates,
            is_virtual=is_virtual,
            looks=looks,
            yields=yields,
        )
        schedule.play()
        return schedule.result(closely=closely)


def _rates(
    chance: random.Random, mode: Mode, services: Services, *, is_frail: bool = False
) -> FaultRates:
    """Return few faults or many, by seed; beside a lock, only those that Hudi's guarantee
    covers."""
    factor = (0.1, 0.3, 1.0)[drawn(chance, 3)]
    rates = {effect: rate * factor for effect, rate in FaultRates().rates.items()}
    short, long = (1, 3_000, 10_000, 70_000), (600_000,)
    if mode != "shared":  # a process that sleeps longer than archiving allows for is not simulated
        return FaultRates(rates=rates, freeze_ms=short if services.archivers else short + long)
    # A request that is in transit while its sender releases the lock, or dies, escapes any lock.
    for effect in (Effect.LATE, Effect.CRASH_DURING, Effect.CLOCK_STEP):
        rates[effect] = 0.0
    if is_frail:  # longer than a lease, and yet so short that what was read counts as recent
        short = (1, 3_000, LEASE_MS + 10_000, 70_000)
    return FaultRates(rates=rates, freeze_ms=short)


@contextmanager
def _figures(chance: random.Random) -> Iterator[None]:
    """Set small limits for some seeds, so that staging and pruning happen in a short schedule.

    A writer that waits until another has read the timeline checks seldom, because each check is
    many steps.
    """
    inline = 64 if happens(chance, 0.25) else INLINE_BYTES_MAX
    kept, kept_ms = (2, 0) if happens(chance, 0.25) else (100, pruning.ENTRIES_KEPT_MS)
    with (
        patch.object(proposals, "INLINE_BYTES_MAX", inline),
        patch.object(transaction, "LOOK_AROUND_PAUSE_MS", 1_000),
        patch.object(pruning, "ENTRIES_KEPT", kept),
        patch.object(pruning, "ENTRIES_KEPT_MS", kept_ms),
    ):
        yield


@contextmanager
def _resize_figures(chance: random.Random) -> Iterator[None]:
    """Let resizes be closed soon, in some seeds, and little be left to copy when they are."""
    refusals, files = (1, 1, 3)[drawn(chance, 3)], (1, 64)[drawn(chance, 2)]
    with (
        patch.object(pace, "REFUSALS_MAX", refusals),
        patch.object(pace, "CLOSE_FILES", files),
        patch.object(pace, "CANCEL_REFUSALS", refusals + 5),
    ):
        yield


def table_kind(mode: Mode, chance: random.Random) -> TableKind:
    if mode == "partial":
        return TableKind(TableType.MERGE_ON_READ, by_event_time=False, has_owners=True)
    if mode == "nbcc":
        return TableKind(TableType.MERGE_ON_READ, by_event_time=happens(chance, 0.7))
    copies = happens(chance, 0.5)
    kind = TableType.COPY_ON_WRITE if copies else TableType.MERGE_ON_READ
    return TableKind(kind, by_event_time=happens(chance, 0.3))


def _with_rings(
    kind: TableKind, mode: Mode, chance: random.Random, resizes: bool | None
) -> TableKind:
    """Return the table with rings of buckets, if it may have them and is drawn or asked to."""
    is_drawn, nodes = happens(chance, RESIZING_RATE), 1 + drawn(chance, 2)
    if resizes:
        kind = replace(kind, table_type=TableType.MERGE_ON_READ)
        kind = replace(kind, evolves=kind.evolves and mode != "shared")
    is_shared_and_evolves = mode == "shared" and kind.evolves
    if is_shared_and_evolves or not (is_drawn if resizes is None else resizes):
        return kind
    if kind.table_type is not TableType.MERGE_ON_READ:
        return kind
    # Logs that writers of two engines put into children lie in no order of theirs.
    return replace(kind, nodes=nodes, by_event_time=kind.by_event_time or mode == "shared")


class _Schedule:
    def __init__(
        self,
        simulation: Simulation,
        mode: Mode,
        chance: random.Random,
        services: Services,
        *,
        archives: bool,
        is_frail: bool,
        evolves: bool | None,
        resizes: bool | None,
        migrates: bool | None,
        is_virtual: bool,
        looks: bool | None,
        yields: bool | str | None,
    ) -> None:
        self._services = services
        self._simulation = simulation
        self._mode = mode
        self._chance = chance
        is_pruned = mode != "shared" and happens(chance, 0.35) and not services.archivers
        self._pruned = archives or is_pruned
        self._archived = archives
        lock = SharedLock(is_frail=is_frail) if mode == "shared" else None
        replacing = random_stream(simulation.seed, f"clearing of {mode}")
        self._replacing_rate = REPLACING_RATE if happens(replacing, 0.25) else 0.0
        self._evolving = random_stream(simulation.seed, f"evolving of {mode}")
        drawn_to_evolve = happens(self._evolving, EVOLVING_RATE)
        kind = table_kind(mode, chance)
        kind = replace(kind, evolves=drawn_to_evolve if evolves is None else evolves)
        self._resizing = random_stream(simulation.seed, f"resizing of {mode}")
        kind = _with_rings(kind, mode, self._resizing, resizes)
        self._migrating = random_stream(simulation.seed, f"migrating of {mode}")
        is_drawn = happens(self._migrating, MIGRATING_RATE) and resizes is None
        is_migrating = is_drawn if migrates is None else migrates
        # No table that Hudi writes, too, is migrated, and none has virtual resizes.
        kind = replace(kind, is_migrating=is_migrating and kind.has_rings and lock is None)
        kind = replace(kind, is_virtual=is_virtual and kind.has_rings and lock is None)
        self._looking = random_stream(simulation.seed, f"looking of {mode}")
        is_drawn, is_yielding = (happens(self._looking, r) for r in (LOOKING_RATE, YIELDING_RATE))
        self._looks = is_drawn if looks is None else looks
        self._yields = is_yielding if yields is None else yields
        copies = kind.table_type is TableType.COPY_ON_WRITE
        seeds = drawn_seeds(replacing) if self._replacing_rate and copies else None
        self._stage = new_stage(simulation, kind, lock, seeds)
        self._fresh_write: str | None = None
        self._consumers: list[Consumer] = []
        self._onlookers: list[Reader | Cleaner] = []  # actors that read once more at the end

    def play(self) -> None:
        history = self._stage.history
        self._cast()
        try:
            self._simulation.run(STEPS_MAX)
            self._simulation.faults_strike = False
            repair_first = happens(self._chance, 0.5)
            self._fresh_write = finish(
                self._stage,
                repair_first=repair_first,
                consumers=self._consumers,
                archives=self._services.archivers > 0,
                cleans=self._services.policy if self._services.cleans else None,
            )
            self._simulation.scheduler.now_ms += 60_000  # the last outage is over
            for actor in self._onlookers:
                actor.finish()
        except Exception as error:
            history.unexpected.append(f"{type(error).__name__}: {error}")

    def result(self, *, closely: bool) -> ScheduleResult:
        trace, history = self._simulation.trace, self._stage.history
        case = Case(
            Evidence(self._stage.storage, self._stage.kind),
            history,
            SETTINGS.heartbeat_timeout_ms,
            clean_policy=self._services.policy,
            pruned=self._pruned or pruning.ENTRIES_KEPT < 100,
            archived=self._archived,
            fresh_write=self._fresh_write,
            struck=frozenset(fault.process for fault in self._simulation.faults.struck),
            closely=closely,
        )
        return ScheduleResult(
            violations=tuple(violations(case)),
            steps=self._simulation.scheduler.step,
            completed=sum(not write.is_resize for write in case.evidence.writes.values()),
            resized=sum(write.is_resize for write in case.evidence.writes.values()),
            trace=trace,
            history=history,
        )

    def _cast(self) -> None:
        stage, chance = self._stage, self._chance
        for number, profile in enumerate(self._profiles()):
            self._add_writer(f"writer{number}", 1 + drawn(chance, 3), profile)
        if self._mode == "shared":
            base_rate = 0.0 if stage.kind.has_rings else self._base_rate  # Hudi's begin with logs
            java = JavaWriter(stage, "java", writes=3, base_rate=base_rate)
            java.process.start(java.run)
        self._start_services()
        for number in range(1 + drawn(self._evolving, 2) if stage.kind.evolves else 0):
            Evolver(stage, f"evolver{number}", rounds=2 + drawn(self._evolving, 6)).start()
        for number in range(1 + drawn(self._resizing, 2) if stage.kind.has_rings else 0):
            rounds = 3 + drawn(self._resizing, 5)
            Resizer(stage, f"resizer{number}", rounds=rounds, rests=self._rests).start()
        for number in range(1 + drawn(self._migrating, 2) if stage.kind.is_migrating else 0):
            rounds = 3 + drawn(self._migrating, 5)
            Migrator(stage, f"migrator{number}", rounds=rounds, rests=self._rests).start()
        reader = Reader(stage, "reader", reads=1 + drawn(chance, 4), rests=self._rests)
        reader.process.start(reader.run)
        self._onlookers.append(reader)
        for number in range(1 + drawn(chance, 2)):
            cleaners = self._services.cleaners + self._services.maintainers
            polls, registers = 2 + drawn(chance, 5), cleaners > number
            consumer = Consumer(
                stage, f"consumer{number}", polls=polls, registers=registers, rests=self._rests
            )
            self._consumers.append(consumer)
            consumer.start()
        recoverer = Recoverer(stage, "recoverer", rounds=1 + drawn(chance, 4), grace_ms=GRACE_MS)
        recoverer.process.start(recoverer.run)
        if self._pruned:
            rounds = 1 + drawn(chance, 10)
            pruner = Pruner(stage, "pruner", rounds=rounds, archives=self._archived)
            pruner.process.start(pruner.run)

    @property
    def _rests(self) -> tuple[int, ...]:
        """Return pauses of an actor that is to act before and after instants were archived."""
        return (5_000, LONG_PAUSE_MS, HOURS_MS) if self._services.archivers else ()

    def _start_services(self) -> None:
        stage, services, chance = self._stage, self._services, self._stage.chance("services")
        for number in range(services.compactors if self._has_logs else 0):
            rounds = 3 + drawn(chance, 6)
            Compactor(stage, f"compactor{number}", rounds=rounds, rests=self._rests).start()
        for number in range(services.cleaners):
            rounds = 2 + drawn(chance, 4)
            name = f"cleaner{number}"
            cleaner = Cleaner(stage, name, services.policy, rounds=rounds, rests=self._rests)
            cleaner.start()
            self._onlookers.append(cleaner)
        if services.cleaners and services.savepointers and self._mode == "shared":
            saver = SavepointActor(stage, "saver")
            saver.process.start(saver.run)
        for number in range(services.archivers):
            ArchiverActor(stage, f"archivist{number}", rounds=1 + drawn(chance, 3)).start()
        for number in range(services.cancellers):
            rounds = 4 + drawn(chance, 8)
            cleans = services.policy if services.cleaners else None
            name = f"canceller{number}"
            PlanCanceller(stage, name, rounds=rounds, cleans=cleans, rests=self._rests).start()
        for number in range(services.late_inflights):
            LateInflightActor(stage, f"latecomer{number}").start()
        for number in range(services.maintainers):
            archives, rounds = services.archivers > 0, 2 + drawn(chance, 5)
            MaintenanceActor(
                stage, f"keeper{number}", services.policy,
                rounds=rounds, archives=archives, rests=self._rests,
            ).start()  # fmt: skip

    @property
    def _has_logs(self) -> bool:
        return self._stage.kind.table_type is TableType.MERGE_ON_READ

    @property
    def _base_rate(self) -> float:
        if self._mode == "partial":
            return 0.0
        if self._stage.kind.has_rings and self._simulation.seed % 3:
            return 0.0  # a base file cancels the resizes of its bucket
        return 0.3 if self._has_logs else 1.0

    def _profiles(self) -> list[WriterProfile]:
        """Return the writers' profiles, each with its own way to write."""
        profiles = self._usual_profiles()
        if not self._looks or not self._yields:
            return profiles
        names, looking = (*STRATEGIES, None), self._looking
        are_alike, first = happens(looking, 0.5), names[drawn(looking, len(STRATEGIES))]
        if isinstance(self._yields, str):
            are_alike, first = True, self._yields
        by = [first if are_alike else names[drawn(looking, len(names))] for _ in profiles]
        return [
            replace(profile, yields_by=name, has_lists=happens(looking, 0.4))
            for profile, name in zip(profiles, by, strict=True)
        ]

    def _usual_profiles(self) -> list[WriterProfile]:
        chance = self._chance
        fenced_rate = 0.0 if self._mode == "shared" or happens(chance, 0.6) else 0.5
        usual = WriterProfile(
            base_rate=self._base_rate,
            checked_rate=0.0 if self._mode in ("nbcc", "partial") else 1.0,
            reads_nothing_rate=0.7 if self._has_logs else 0.0,
            fenced_rate=fenced_rate,
            keeping_rate=0.3,
            replacing_rate=self._replacing_rate,
            strategy=self._strategy,
            evolves=self._stage.kind.evolves,
            looks=self._looks,
        )
        if self._stage.kind.has_rings:
            late, free = (0.2, 0.8)[drawn(self._resizing, 2)], (0.7, 0.2)[drawn(self._resizing, 2)]
            usual = replace(usual, late_rate=late, reads_nothing_rate=free)
        if self._services.archivers:
            usual = replace(usual, pauses_ms=(0, 200, *self._rests))
        if self._mode == "partial":
            return [replace(usual, owner=owner) for owner in self._owners()]
        ranked = self._mode == "occ" and happens(chance, 0.4)
        return [
            replace(usual, priority=drawn(chance, 3) if ranked else 0)
            for _ in range(2 + drawn(chance, 3))
        ]

    @property
    def _strategy(self) -> Strategy:
        """Return one strategy for all writers, as the table records it."""
        usual = Strategy.SIMPLE if self._stage.kind.has_rings else Strategy.BUCKET
        if self._mode != "occ":
            return usual
        found = tuple(Strategy)[drawn(self._stage.chance("strategy"), len(Strategy))]
        return usual if found is Strategy.BUCKET else found

    def _owners(self) -> list[str]:
        """Return two or three owners, perhaps one of them twice; or two, and others that take
        over."""
        chance = self._chance
        if happens(chance, 0.35):
            registrar = OwnerRegistrar(self._stage, "registrar")
            registrar.process.start(registrar.run)
            return [*HEIRS, *HEIRS.values()]
        owners = list(FOUNDERS[: 2 + drawn(chance, 2)])
        again = [owners[drawn(chance, len(owners))]] if happens(chance, 0.4) else []
        return [*owners, *again]

    def _add_writer(self, name: str, writes: int, profile: WriterProfile) -> None:
        """Add a writer, and another one that continues its work if it crashes."""
        writer = Writer(self._stage, name, profile, writes=writes)
        writer.process.start(writer.run)
        writer.process.on_crash = lambda: self._add_writer(
            f"{name}+", max(1, writer.writes), profile
        )


def new_stage(
    simulation: Simulation,
    kind: TableKind,
    lock: SharedLock | None = None,
    seeds: Sequence[FileGroupId] | None = None,
) -> Stage:
    """Return a table with its seeds, and no process on it. With a lock, a foreign engine may
    come."""
    storage = with_change_log(simulation)
    skew_ms = 0 if lock is None else SHARED_SKEW_MS
    stage = Stage(simulation, storage, kind, SETTINGS, History(), lock, skew_ms)
    create_toy_table(storage, kind)
    seed_table(stage, seeds)
    return stage


def finish(
    stage: Stage,
    *,
    repair_first: bool = True,
    consumers: Sequence[Consumer] = (),
    archives: bool = False,
    cleans: CleanPolicy | None = None,
) -> str | None:
    """Let a fresh process repair, a fresh writer commit, and consumers poll once more.

    Return how the writer failed, if it did.
    """
    # A process with a slow clock may take as much longer to find a dead writer; these do not.
    repairer = stage.simulation.process("repairer", faulty=False, clock_skew_ms=0)
    fresh = stage.simulation.process("fresh", faulty=False, clock_skew_ms=0)
    owner = FOUNDERS[0] if stage.kind.has_owners else None
    profile = WriterProfile(checked_rate=1.0, task_rate=0.0, owner=owner)
    writer = Writer(stage, "fresh", profile, process=fresh)
    outcomes: list[Outcome] = []

    def end() -> None:
        # An instant whose begin was only appended begins to age when it is published. A process
        # that has a heartbeat without a pending write is found by the wait.
        stage.decision_log(repairer).refresh()
        repairer.world.sleep_ms(3 * stage.settings.heartbeat_timeout_ms)
        if repair_first:
            repair_all(stage, repairer, archives=archives, cleans=cleans)
        writer.process.start(lambda: outcomes.append(writer.run_once()))

    repairer.start(end)
    stage.simulation.run(STEPS_MAX)
    if not repair_first:
        repairer.start(lambda: repair_all(stage, repairer, archives=archives, cleans=cleans))
        stage.simulation.run(STEPS_MAX)
    for consumer in consumers:
        consumer.finish(fresh)
    return None if outcomes == [Outcome.OK] else f"it ended with {outcomes}"


def repair_all(
    stage: Stage,
    process: Process,
    *,
    archives: bool = False,
    cleans: CleanPolicy | None = None,
) -> None:
    """Finish what services left, roll back what writers left, and remove the rest.

    Where cleaners were at work, one more comes while plans of others are still pending.
    """
    log = stage.decision_log(process)
    recovery = FailedWriteRecovery(log, stage.settings)
    try:
        if cleans is not None:
            cleanings(stage, process).run(cleans, take_over=True)
        left = {instant.action for instant in log.refresh().pending.values()}
        if Action.COMPACTION in left:
            compact_all(stage, process)
        if Action.CLUSTERING in left:
            resize_all(stage, process)
        if Action.CLEAN in left:
            clean_all(stage, process)
        Repair(log, recovery, grace_ms=0).run()
        if archives:
            archive_all(stage, process)
    except HudiError as error:
        stage.history.unexpected.append(f"the last repair got the error: {error}")
