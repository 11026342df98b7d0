"""Random schedules: whatever the order and the faults, no promise of the protocol is broken.

`PYHUDI_SCHEDULES` says how many seeds of each mode are tried. A failure names its seed, and
`run_schedule(seed, mode=...)` plays it again.
"""

from __future__ import annotations

import os

import pytest

from light_scenarios import NBCC, judged, stage_of
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.simulate.faults import DrawnFaults, Effect, FaultRates
from pyhudi.simulate.simulation import Simulation
from pyhudi.simulate.table.actors.cleaner import LONG_POLICIES
from pyhudi.simulate.table.actors.writers import Writer, WriterProfile
from pyhudi.simulate.table.history import Operation, Outcome
from pyhudi.simulate.table.schedules import MODES, Mode, Services, run_schedule

SCHEDULES = int(os.environ.get("PYHUDI_SCHEDULES", "800"))
FIRST_SEED = int(os.environ.get("PYHUDI_FIRST_SEED", "0"))
_CHUNK = 20
CHUNKS = range(FIRST_SEED, FIRST_SEED + SCHEDULES, _CHUNK)


def seeds_from(first: int) -> range:
    return range(first, min(first + _CHUNK, FIRST_SEED + SCHEDULES))


@pytest.mark.parametrize("first", CHUNKS)
@pytest.mark.parametrize("mode", MODES)
def test_no_schedule_breaks_a_promise(mode: Mode, first: int) -> None:
    completed = 0
    for seed in seeds_from(first):
        result = run_schedule(seed, mode=mode)
        broken = "\n".join(map(str, result.violations))
        assert not broken, f"run_schedule({seed}, mode={mode!r}):\n{broken}"
        completed += result.completed
    assert completed > 2 * len(seeds_from(first))  # faults must not keep all from writing


#: How many seeds of each mode are tried with every table service at once, and some of them twice.
BUSY = SCHEDULES // 80


@pytest.mark.parametrize("mode", MODES)
def test_no_schedule_full_of_table_services_breaks_a_promise(mode: Mode) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + BUSY):
        services = Services(
            compactors=1 + seed % 2,
            cleaners=1 + seed // 2 % 2,
            archivers=1 + seed // 4 % 2,
            savepointers=1,
            cancellers=seed // 3 % 2,
            late_inflights=seed // 5 % 2,
            maintainers=seed % 3 // 2,
            policy=LONG_POLICIES[seed % len(LONG_POLICIES)],
        )
        result = run_schedule(seed, mode=mode, services=services, closely=True)
        broken = "\n".join(map(str, result.violations))
        assert not broken, f"run_schedule({seed}, mode={mode!r}, services={services}):\n{broken}"


#: How many seeds of each mode are tried with a schema that changes, beside those that draw one.
EVOLVING = SCHEDULES // 40


@pytest.mark.parametrize("mode", MODES)
def test_no_schedule_whose_schema_changes_breaks_a_promise(mode: Mode) -> None:
    evolved = 0
    for seed in range(FIRST_SEED, FIRST_SEED + EVOLVING):
        result = run_schedule(seed, mode=mode, evolves=True)
        broken = "\n".join(map(str, result.violations))
        assert not broken, f"run_schedule({seed}, mode={mode!r}, evolves=True):\n{broken}"
        evolved += sum(change.is_done for change in result.history.proposed)
    assert evolved > EVOLVING


#: How many seeds of each mode are tried with rings of buckets, beside those that draw them. In
#: every other one the schema changes, too.
RESIZING = SCHEDULES // 80


#: Each mode with resizes that copy, and with virtual ones, which a table that Hudi writes has not.
WAYS = [(mode, False) for mode in MODES] + [(mode, True) for mode in MODES if mode != "shared"]


@pytest.mark.parametrize(("mode", "is_virtual"), WAYS)
def test_no_schedule_full_of_resizes_breaks_a_promise(mode: Mode, is_virtual: bool) -> None:
    resized = evolved = 0
    for seed in range(FIRST_SEED, FIRST_SEED + RESIZING):
        evolves = bool(seed % 2) and mode != "shared"  # there rings and changes do not meet
        result = run_schedule(
            seed, mode=mode, resizes=True, is_virtual=is_virtual, evolves=evolves, closely=True
        )
        broken = "\n".join(map(str, result.violations))
        assert not broken, f"seed {seed}, mode {mode!r}, evolves {evolves}:\n{broken}"
        resized += result.resized
        evolved += sum(change.is_done for change in result.history.proposed)
    assert resized >= RESIZING // 2
    assert evolved >= RESIZING // 2 or mode == "shared"


#: How many seeds of each mode are tried with simple buckets that become rings, beside those that
#: draw them.
MIGRATING = SCHEDULES // 80


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "shared"])
def test_no_schedule_in_which_a_table_is_migrated_breaks_a_promise(mode: Mode) -> None:
    resized = 0
    for seed in range(FIRST_SEED, FIRST_SEED + MIGRATING):
        result = run_schedule(seed, mode=mode, resizes=True, migrates=True, closely=True)
        broken = "\n".join(map(str, result.violations))
        how = f"run_schedule({seed}, mode={mode!r}, resizes=True, migrates=True)"
        assert not broken, f"{how}:\n{broken}"
        resized += result.resized
    assert resized >= MIGRATING


#: How many seeds of each mode are tried with writers that look while they write, and yield to those
#: that are ahead of them, beside those that draw them. In every other one buckets split and merge.
LOOKING = SCHEDULES // 80


@pytest.mark.parametrize("mode", MODES)
def test_no_write_stops_early_that_need_not(mode: Mode) -> None:
    stopped: set[tuple[int, str]] = set()
    for seed in range(FIRST_SEED, FIRST_SEED + LOOKING):
        resizes = bool(seed % 2)
        result = run_schedule(seed, mode=mode, looks=True, yields=True, resizes=resizes)
        broken = "\n".join(map(str, result.violations))
        how = f"run_schedule({seed}, mode={mode!r}, looks=True, yields=True, {resizes=})"
        assert not broken, f"{how}:\n{broken}"
        history = result.history
        stopped |= {(seed, each.requested) for each in history.doomed}
        stopped |= {(seed, look.requested) for look in history.looks if look.stops}
    assert len(stopped) >= LOOKING // 4


#: Seeds of each mode in which every listing comes in two pages, and others act in between.
SPLIT = max(1, SCHEDULES // 160)
_READS = {Operation.SNAPSHOT, Operation.CHANGES, Operation.RESTART}


@pytest.mark.parametrize("mode", MODES)
def test_no_reader_fails_or_is_wrong_because_others_act_in_each_of_its_listings(mode: Mode) -> None:
    read = 0
    for seed in range(FIRST_SEED, FIRST_SEED + SPLIT):
        services = Services(compactors=1, cleaners=1, archivers=1, policy=CleanPolicy.hours(1))
        rates = {Effect.SPLIT: 1.0, Effect.CRASH_AFTER: 0.002, Effect.FREEZE: 0.002}
        faults = FaultRates(rates=rates, freeze_ms=(1, 3_000, 70_000), skew_ms_max=25, swarm=False)
        result = run_schedule(
            seed, mode=mode, services=services, faults=DrawnFaults(seed, faults), closely=True
        )
        broken = "\n".join(map(str, result.violations))
        assert not broken, f"seed {seed}, mode {mode!r}:\n{broken}"
        asked = [event for event in result.history.events if event.operation in _READS]
        # What was cleaned since is refused by name, or its file is gone.
        failed = [e for e in asked if e.outcome is Outcome.FAIL and not (e.missing or e.error)]
        assert not failed, f"seed {seed}, mode {mode!r}:\n{failed}"
        read += sum(event.outcome is Outcome.OK for event in asked)
    assert read > 3 * SPLIT


#: Schedules that once broke a promise, and what was wrong. The code has changed since and they no
#: longer do quite the same; they cost little.
ONCE_BROKEN: list[tuple[Mode, int, str]] = [
    ("occ", 132_433, "a heartbeat was missing for a moment, when its begin was announced twice"),
    ("shared", 106_519, "an abort was published beside a rollback that a foreign engine planned"),
    ("occ", 149, "more of the log was read after settling, and its new end was not settled"),
    ("occ", 3937, "a rollback whose plan could not be read was taken for an archived one"),
    ("occ", 23, "a heartbeat was read before the clock, and the reader slept in between"),
    ("nbcc", 83, "a late inflight file of a rolled-back write without markers was never removed"),
    ("nbcc", 270, "a requested file was rolled back between finding it there and reading it"),
    ("partial", 146_446, "an executor removed markers of a later one's base file"),
    ("partial", 100_045, "an entry was published that had taken a pruned number since a listing"),
    ("partial", 685, "a poll of changes met a clean that was executed, and was not refused"),
    ("partial", 106_035, "an inflight file that is not of a pending write counted as one"),
    (
        "shared",
        112_103,
        "a writer slept until it was rolled back, made its inflight file, and completed",
    ),
    ("nbcc", 116_243, "of two deletes that tie, a change feed had to show the other one"),
    ("nbcc", 100_389, "of two rows that tie, a change feed had to show one that may have lost"),
    ("shared", 100_787, "a superseded abort was voided that had removed its plan"),
    ("shared", 113_645, "a writer that froze while it read the store's clock trusted its own"),
    ("shared", 148_535, "the foreign engine made a base file behind a compaction that it had seen"),
    ("shared", 32, "a rollback just appended was not executed by its writer"),
]
#: The same of schedules whose schema changes.
ONCE_BROKEN_EVOLVING: list[tuple[Mode, int, str]] = [
    ("shared", 3, "a change of the schema did not look at the write that had begun last before it"),
    ("shared", 42, "the schema of a compaction counted, where nothing else had completed since"),
]


@pytest.mark.parametrize(("mode", "seed", "what"), ONCE_BROKEN)
def test_what_once_broke_a_promise_no_longer_does(mode: Mode, seed: int, what: str) -> None:
    result = run_schedule(seed, mode=mode, evolves=False, resizes=False, looks=False)
    assert not result.violations, what


@pytest.mark.parametrize(("mode", "seed", "what"), ONCE_BROKEN_EVOLVING)
def test_what_once_broke_a_schema_no_longer_does(mode: Mode, seed: int, what: str) -> None:
    result = run_schedule(seed, mode=mode, evolves=True, looks=False)
    assert not result.violations, what


@pytest.mark.parametrize("seed", [5, 321])
def test_a_lost_reply_does_not_let_a_java_writer_fall_behind(seed: int) -> None:
    """What may have been published is waited out before the lock is released."""
    rates = FaultRates(
        rates={Effect.LOSE_REPLY: 0.04, Effect.FAIL: 0.02}, skew_ms_max=25, swarm=False
    )
    result = run_schedule(seed, mode="shared", faults=DrawnFaults(seed, rates))
    assert not result.violations


@pytest.mark.parametrize("seed", [28, 104])
def test_a_late_beat_does_not_open_the_fence(seed: int) -> None:
    """A beat that arrives after its write completed must not create the heartbeat again.

    A task that counted as lost would find it, and no fence, and leave rows in the write.
    """
    rates = FaultRates(
        rates={Effect.LATE: 0.08, Effect.DELAY: 0.08},
        freeze_ms=(1, 1_500, 3_000),
        late_ms=(5_000, 20_000),
        swarm=False,
    )
    with Simulation(seed, faults=DrawnFaults(seed, rates)) as simulation:
        stage = stage_of(simulation, NBCC)
        for name in ("one", "two"):
            profile = WriterProfile(fenced_rate=1.0, task_rate=0.7)
            writer = Writer(stage, name, profile, writes=3)
            writer.process.start(writer.run)
        simulation.run()
        assert not judged(stage, repaired=False)
