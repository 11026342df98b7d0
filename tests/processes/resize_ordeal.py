"""Eight processes on one table whose buckets are never at rest; then a repair, and the verdict.

Four writers are killed and frozen (`processes.fleet`), two executors too, and these also stop or
kill themselves just after they closed a resize (`processes.companion`). A janitor compacts and
cleans; a reader reads. An executor that stopped itself at a close is woken only when the resize has
ended and every writer that is at work was answered since: that writers help is not left to timing.

How long a write is held is the part of its call during which a resize was closed, from the note of
the close to the completion on the timeline. It is an upper bound: the write is at work meanwhile.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

import pyhudi
from processes.companion import KEPT_COMMITS, CompanionOrders, Role, Then, load_notes
from processes.evidence import TIMELINE_FOLDER, Done, done_of
from processes.fleet import STOP_S, Fleet, Writer
from processes.journal import Event, History, load_history
from processes.ordeal import await_silence
from processes.stores import Store
from processes.test_services import fold
from processes.worker import Orders
from processes.workload import Kind, create_table, open_table, partition_of, payload_of
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.storage.open import open_storage
from pyhudi.timeline.instant_time import utc_moment

KIND = Kind.NON_BLOCKING
TABLE = "resized"
BUCKETS = pyhudi.ConsistentBuckets(initial=2, min=1, max=4)
WRITERS = 4
ROLES = (Role.EXECUTOR, Role.EXECUTOR, Role.JANITOR, Role.READER)
MOMENTS = 5  # of the past that are read at the end
HELD_S = 2.0  # by a resize, on a machine with as many idle cores as there are processes
_HELP_MAX_S = 120.0  # until a resize that is closed has ended and all writers went on
_HARM_S = (0.5, 2.5)  # from one deed to executors to the next
_BETWEEN_NOTES = 4  # of executors: some resizes should get through between two deeds
_FROZEN_S = (0.5, 4.0)
_FREEZES = 0.4  # of the deeds to executors; the others are kills
_LAST_KILLS = 1
_SHOWN = 3
_ROW = ["id", "day", "ts", "version", "payload"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeGoal:
    """How much has to happen. A machine under load gets more time for it."""

    seconds: float
    seconds_max: float
    resizes: int = 1
    stops: int = 1  # of executors at a close
    deaths: int = 1
    acknowledged: int = 1


@dataclass(frozen=True, slots=True)
class Close:
    """A resize that was closed, by the machine's monotonic clock in seconds."""

    resize: str
    then: Then
    at: float
    wall: float


@dataclass(frozen=True, slots=True)
class ResizeOutcome:
    """What happened, and what was wrong with it."""

    seed: int
    seconds: float
    kills: int  # of writers and executors, at any moment
    freezes: int
    resizes: int
    closes: dict[Then, int]
    acknowledged: int
    held_s: tuple[float, ...]  # of each write that ran while a resize was closed
    broken: list[str]
    missing: list[str]

    @property
    def held_most_s(self) -> float:
        return max(self.held_s, default=0.0)

    @property
    def told(self) -> str:
        closes = ", ".join(f"{count} {then}" for then, count in self.closes.items())
        return (
            f"seed {self.seed}: {self.seconds:.0f} s, {self.kills} kills, {self.freezes} freezes,"
            f" {self.resizes} resizes, closes: {closes or 'none'};"
            f" {self.acknowledged} acknowledged, {len(self.held_s)} beside a closed resize,"
            f" {self.held_most_s:.2f} s at most"
        )


def run_resize_ordeal(store: Store, folder: Path, seed: int, goal: ResizeGoal) -> ResizeOutcome:
    """Everything, from a new table to the verdict on it. Journals stay in the folder."""
    started = time.monotonic()
    create_table(store.uri(TABLE), KIND, store.options, BUCKETS).services.repair()
    orders = [_orders(store, folder, number, seed) for number in range(WRITERS)]
    with Fleet(orders, folder, seed) as fleet:
        beside = _Companions(store, folder, seed, fleet, goal)
        try:
            fleet.trouble(beside.is_enough)
            missing = beside.missing()
            fleet.stop(_LAST_KILLS)
            beside.stop()
        finally:
            beside.end()
    await_silence(store, TABLE)
    table = open_table(store.uri(TABLE), store.options)
    table.services.repair(grace_minutes=0)
    table.services.resize(pyhudi.ResizePolicy(rest_seconds=0))  # what executors have left
    done = list(_completed(store))
    history = _decided(load_history(beside.journals), done)
    broken = [*fleet.complaints, *beside.complaints, *_violations(store, history, done, seed)]
    closes = load_closes(beside.notes)
    return ResizeOutcome(
        seed=seed,
        seconds=time.monotonic() - started,
        kills=fleet.deeds.kills + beside.kills,
        freezes=fleet.deeds.freezes + beside.freezes,
        resizes=sum(instant.action is Action.REPLACECOMMIT for instant, _ in done),
        closes={then: n for then in Then if (n := sum(c.then is then for c in closes))},
        acknowledged=len(history.with_outcome(Event.OK)),
        held_s=tuple(_held(history, closes, done, folder)),
        broken=broken,
        missing=missing,
    )


def _orders(store: Store, folder: Path, number: int, seed: int) -> Orders:
    return Orders(
        uri=store.uri(TABLE),
        options=store.options,
        kind=KIND,
        writer=number,
        seed=seed,
        journal=str(folder / f"writer-{number}.jsonl"),
    )


def load_closes(notes: list[Path]) -> list[Close]:
    return [
        Close(note["closed"], Then(note["then"]), note["at"] / 1e9, note["wall_ms"] / 1e3)
        for path in notes
        for note in load_notes(path)
        if "closed" in note
    ]


class _Companions:
    """The processes beside the writers, and what is done to the executors."""

    def __init__(
        self, store: Store, folder: Path, seed: int, fleet: Fleet, goal: ResizeGoal
    ) -> None:
        self._store, self._fleet, self._goal = store, fleet, goal
        self._chance = random.Random(f"{seed}/companions")
        self._started = time.monotonic()
        self._harm_at = self._started
        self._harmed = 0  # notes of executors when one was last harmed
        self._slept: dict[str, int] = {}  # closes of which an executor that stopped was woken
        self.kills = self.freezes = 0
        self.complaints: list[str] = []
        self.notes = [folder / f"{role}-{n}.notes.jsonl" for n, role in enumerate(ROLES)]
        companions = [folder / f"{role}-{n}.jsonl" for n, role in enumerate(ROLES)]
        self._writers = [folder / f"writer-{number}.jsonl" for number in range(WRITERS)]
        self.journals = [*self._writers, *companions]
        self._companions: list[Writer] = []
        for role, journal, notes in zip(ROLES, companions, self.notes, strict=True):
            orders = CompanionOrders(
                uri=store.uri(TABLE),
                options=store.options,
                role=role,
                seed=seed,
                journal=str(journal),
                notes=str(notes),
            )
            dies = role is Role.EXECUTOR
            self._companions.append(Writer(orders, folder, "processes.companion", dies=dies))

    @property
    def _executors(self) -> list[tuple[Writer, Path]]:
        pairs = zip(self._companions, self.notes, ROLES, strict=True)
        return [(writer, notes) for writer, notes, role in pairs if role is Role.EXECUTOR]

    def is_enough(self) -> bool:
        """Mend and harm the companions; True once enough has happened, or something is wrong."""
        self._mend()
        lasted = time.monotonic() - self._started
        if self.complaints or lasted >= self._goal.seconds_max:
            return True
        return lasted >= self._goal.seconds and not self.missing()

    def _mend(self) -> None:
        now = time.monotonic()
        for companion in self._companions:
            if complaint := companion.complaint():
                self.complaints.append(complaint)
            if not companion.is_up:
                companion.restart()
            elif companion.sleep is not None and now > companion.sleep.timed_out_at:
                companion.thaw()
        for executor, notes in self._executors:
            self._wake(executor, notes)
        if now > self._harm_at:
            self._harm(now)

    def _wake(self, executor: Writer, notes: Path) -> None:
        """Wake an executor that stopped itself, once others have ended its resize and gone on."""
        closes = load_closes([notes])
        if self._slept.get(executor.name) == len(closes) or not closes:
            return
        last = closes[-1]
        if last.then is Then.STOPS and executor.is_up and not self._went_on(last):
            if time.monotonic() > last.at + _HELP_MAX_S:
                self.complaints.append(f"no writer went on after the close of {last.resize}")
            return
        self._slept[executor.name] = len(closes)
        executor.wake()

    def _went_on(self, close: Close) -> bool:
        """Whether the resize has ended, and each writer that is at work was answered since."""
        history = load_history(self._writers)
        writes = history.with_outcome(Event.OK)
        answered = {w.writer for w in writes if (w.answered_at or 0) / 1e9 > close.at}
        at_work = {writer.name for writer in self._fleet.at_work}
        if not answered or at_work - answered:
            return False
        return close.resize not in _pending(self._store)

    def _harm(self, now: float) -> None:
        noted = sum(len(load_notes(path)) for path in self.notes)
        if noted < self._harmed + _BETWEEN_NOTES:
            return  # on a busy machine none would ever come to an end
        self._harm_at = now + self._chance.uniform(*_HARM_S)
        victim, notes = self._chance.choice(self._executors)
        closes = load_closes([notes])
        sleeps = bool(closes) and self._slept.get(victim.name) != len(closes)
        if sleeps or not victim.is_at_work:
            return
        self._harmed = noted
        if self._chance.random() < _FREEZES:
            victim.freeze(self._chance.uniform(*_FROZEN_S))
            self.freezes += 1
        else:
            victim.kill()
            self.kills += 1

    def missing(self) -> list[str]:
        goal, closes = self._goal, load_closes(self.notes)
        resized = sum("resized" in note for path in self.notes for note in load_notes(path))
        writes = load_history(self._writers).with_outcome(Event.OK)
        counts = [
            ("resizes", resized, goal.resizes),
            ("executors stopped at a close", sum(c.then is Then.STOPS for c in closes), goal.stops),
            ("executors died at a close", sum(c.then is Then.DIES for c in closes), goal.deaths),
            ("writes acknowledged", len(writes), goal.acknowledged),
        ]
        return [f"{have} {what} of {want}" for what, have, want in counts if have < want]

    def stop(self) -> None:
        for companion in self._companions:
            companion.thaw()
            companion.ask_to_stop()
        deadline = time.monotonic() + STOP_S
        for companion in self._companions:
            companion.wake()  # it may have stopped itself, or may do so yet
            while companion.is_up and time.monotonic() < deadline:
                companion.wake()
                time.sleep(0.05)
            if complaint := companion.await_end(deadline):
                self.complaints.append(complaint)

    def end(self) -> None:
        for companion in self._companions:
            companion.kill()


# -- afterwards


def _instants(store: Store) -> list[Instant]:
    storage = open_storage(store.uri(TABLE), store.options)
    names = (stat.path.rpartition("/") for stat in storage.list(TIMELINE_FOLDER))
    return [Instant.parse(name) for folder, _, name in names if folder == TIMELINE_FOLDER]


def _pending(store: Store) -> set[str]:
    instants = _instants(store)
    done = {instant.requested for instant in instants if instant.state is State.COMPLETED}
    return {str(instant.requested) for instant in instants} - done


def _completed(store: Store) -> Iterator[tuple[Instant, Done]]:
    """Every completed write and resize: nothing of this table is archived."""
    storage = open_storage(store.uri(TABLE), store.options)
    for instant in _instants(store):
        is_write = instant.action not in (Action.ROLLBACK, Action.CLEAN)
        if instant.state is State.COMPLETED and is_write:
            yield instant, done_of(storage, instant)


def _decided(history: History, done: list[tuple[Instant, Done]]) -> History:
    """The history, with what became of writes whose writers were killed."""
    for _, each in done:
        write = history.writes.get(each.write_id or "")
        if write is not None and write.outcome is Event.UNKNOWN:
            write.outcome, write.completed = Event.OK, each.completed
    return history


def _violations(
    store: Store, history: History, done: list[tuple[Instant, Done]], seed: int
) -> Iterator[str]:
    yield from history.surprises
    by_id: dict[str, list[Done]] = {}
    for _, each in done:
        if each.write_id is not None:
            by_id.setdefault(each.write_id, []).append(each)
    for version, write in history.writes.items():
        completed = [each.completed for each in by_id.get(version, ())]
        expected = [write.completed] if write.outcome is Event.OK else []
        if completed != expected:
            yield f"{version} is {write.outcome} at {write.completed}; it completed at {completed}"
    table = open_table(store.uri(TABLE), store.options)
    yield from map(str, table.services.verify().findings)
    times = sorted(each.completed for _, each in done)[-KEPT_COMMITS // 2 :]
    chance = random.Random(f"{seed}/moments")
    for time_ in [None, *chance.sample(times, min(MOMENTS, len(times)))]:
        rows = table.read(as_of=time_, columns=_ROW).to_arrow().to_pylist()
        yield from _wrong_rows(rows, history, time_)
    for read in history.reads:
        yield from _wrong_versions(read.versions, history, read.as_of)


def _wrong_rows(rows: list[dict[str, Any]], history: History, until: str | None) -> Iterator[str]:
    versions = {row["id"]: row["version"] for row in rows}
    if len(versions) < len(rows):
        yield f"as of {until} a key is there twice"
    batches = {write.batch.version: write.batch for write in history.with_outcome(Event.OK)}
    for row in rows:
        key, version = int(row["id"][1:]), row["version"]
        if version not in batches:
            yield f"as of {until} {row['id']} is of {version}, which did not complete"
            continue
        written = (partition_of(KIND, key), batches[version].times[key], payload_of(version, key))
        if (row["day"], row["ts"], row["payload"]) != written:
            yield f"as of {until} {row['id']} is not as it was written: {row}"
    yield from _wrong_versions(versions, history, until)


def _wrong_versions(found: dict[str, str], history: History, until: str | None) -> Iterator[str]:
    expected, revived = fold(history, until or "9" * 17)
    wrong = [key for key, version in expected.items() if found.get(key) != version]
    for key in sorted(wrong)[:_SHOWN]:
        yield f"as of {until} {key} is {found.get(key)}, not {expected[key]}"
    for key in sorted(found.keys() - expected.keys()):
        if found[key] not in revived.get(key, ()):
            yield f"as of {until} {key} is there as {found[key]}, and was deleted"


def _held(
    history: History, closes: list[Close], done: list[tuple[Instant, Done]], folder: Path
) -> Iterator[float]:
    """How long a resize was closed during each write that was called once and never frozen."""
    ended: dict[str, float] = {}
    for instant, each in done:
        if (moment := utc_moment(each.completed, UTC)) is not None:
            ended[instant.requested] = moment.timestamp()
    spans = [
        (close.at, close.at + max(0.0, ended[close.resize] - close.wall))
        for close in closes
        if close.resize in ended
    ]
    harmed = _harmed(folder)
    for write in history.writes.values():
        if write.invocations > 1 or write.answered_at is None:
            continue
        begin, end = write.invoked_at / 1e9, write.answered_at / 1e9
        if any(begin < at < end for at in harmed.get(write.writer, ())):
            continue
        held = max((min(end, b) - max(begin, a) for a, b in spans), default=0.0)
        if held > 0:
            yield held


def _harmed(folder: Path) -> dict[str, list[float]]:
    """When each writer was frozen or woken."""
    found: dict[str, list[float]] = {}
    for deed in load_notes(folder / "deeds.jsonl"):
        found.setdefault(deed["writer"], []).append(deed["at"] / 1e9)
    return found
