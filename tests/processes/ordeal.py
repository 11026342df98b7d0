"""Eight writer processes on two tables, killed and frozen; then a repair, and the verdict."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from processes.checks import violations
from processes.evidence import Evidence, load_evidence
from processes.fleet import Fleet
from processes.journal import Event, History, load_history
from processes.stores import Store
from processes.worker import Orders
from processes.workload import HEARTBEAT_TIMEOUT_S, Kind, create_table, open_table
from pyhudi.services.repair import Repaired
from pyhudi.storage.objects.heartbeats import HEARTBEAT_FOLDER
from pyhudi.storage.open import open_storage

WRITERS = {Kind.NON_BLOCKING: 4, Kind.OPTIMISTIC: 4}
MOMENTS = 5  # of the past that are read at the end
_LAST_KILLS = 2
_LOOK_S = 1.0  # between looks at the journals
_COARSE_S = 1.5  # a store may cut its times to seconds, and then a heartbeat looks older


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """How much has to happen. A machine under load gets more time for it."""

    seconds: float
    seconds_max: float
    kills: int = 0
    freezes: int = 0
    acknowledged: int = 0  # on each table
    conflicts: int = 1  # on the optimistic table: on the other only the woken meet any


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened, and what was wrong with it."""

    seed: int
    seconds: float
    kills: int
    freezes: int
    stalls: int  # freezes during which the others hardly wrote; on a busy machine they may
    evidence: dict[Kind, Evidence]
    broken: list[str]
    missing: list[str]  # what was to happen and did not

    @property
    def acknowledged(self) -> int:
        return sum(len(e.history.with_outcome(Event.OK)) for e in self.evidence.values())

    @property
    def rollbacks(self) -> int:
        return sum(len(e.rolled_back) for e in self.evidence.values())

    @property
    def told(self) -> str:
        """In one line for each table, for people."""
        lines = [
            f"seed {self.seed}: {self.seconds:.0f} s, {self.kills} kills, {self.freezes} freezes,"
            f" {self.stalls} stalls"
        ]
        for kind, evidence in self.evidence.items():
            history = evidence.history
            lines.append(
                f"  {kind}: {len(history.with_outcome(Event.OK))} acknowledged,"
                f" {len(history.with_outcome(Event.FAIL))} refused,"
                f" {len(history.with_outcome(Event.UNKNOWN))} never answered,"
                f" {history.retries} retries, {history.unknown} times unknown,"
                f" {len(evidence.done)} completed, {len(evidence.rolled_back)} rolled back,"
                f" {len(history.reads)} reads"
            )
        return "\n".join(lines)


def run_ordeal(store: Store, folder: Path, seed: int, goal: Goal) -> Outcome:
    """Everything, from two new tables to the verdict on them. Journals stay in the folder."""
    started = time.monotonic()
    for kind in Kind:
        table = create_table(store.uri(kind), kind, store.options)
        table.services.repair()  # probes the store, so that not all writers do it at once
    orders = [order for kind in Kind for order in _orders(store, folder, kind, seed)]
    with Fleet(orders, folder, seed) as fleet:
        progress = _Progress(folder, fleet, goal)
        fleet.trouble(progress.is_enough)
        fleet.stop(_LAST_KILLS)
    broken = list(fleet.complaints)
    evidence = {}
    for kind in Kind:
        broken += (f"{kind}: {what}" for what in _repaired(store, kind))
        evidence[kind] = _evidence(store, folder, kind, seed)
        broken += (f"{kind}: {what}" for what in violations(evidence[kind]))
    return Outcome(
        seed=seed,
        seconds=time.monotonic() - started,
        kills=fleet.deeds.kills,
        freezes=fleet.deeds.freezes,
        stalls=fleet.deeds.stalls,
        evidence=evidence,
        broken=broken,
        missing=progress.missing(),
    )


def _orders(store: Store, folder: Path, kind: Kind, seed: int) -> list[Orders]:
    return [
        Orders(
            uri=store.uri(kind),
            options=store.options,
            kind=kind,
            writer=writer,
            seed=seed,
            journal=str(_journal(folder, kind, writer)),
        )
        for writer in range(WRITERS[kind])
    ]


def _journal(folder: Path, kind: Kind, writer: int) -> Path:
    return folder / f"{kind}-{writer}.jsonl"


def _history(folder: Path, kind: Kind) -> History:
    return load_history(_journal(folder, kind, writer) for writer in range(WRITERS[kind]))


class _Progress:
    """How far it has come, by what the writers noted and what was done to them."""

    def __init__(self, folder: Path, fleet: Fleet, goal: Goal) -> None:
        self._folder = folder
        self._fleet = fleet
        self._goal = goal
        self._started = time.monotonic()
        self._looks_at = 0.0

    def is_enough(self) -> bool:
        now = time.monotonic()
        lasted = now - self._started
        if lasted >= self._goal.seconds_max:
            return True
        if lasted < self._goal.seconds or now < self._looks_at:
            return False
        self._looks_at = now + _LOOK_S
        return not self.missing()

    def missing(self) -> list[str]:
        goal, deeds = self._goal, self._fleet.deeds
        counts = [("kills", deeds.kills, goal.kills), ("freezes", deeds.freezes, goal.freezes)]
        for kind in Kind:
            history = _history(self._folder, kind)
            acknowledged = len(history.with_outcome(Event.OK))
            counts.append((f"{kind} writes acknowledged", acknowledged, goal.acknowledged))
            if kind is Kind.OPTIMISTIC:
                counts.append((f"{kind} conflicts", history.conflicts, goal.conflicts))
        return [f"{have} {what} of {want}" for what, have, want in counts if have < want]


# -- afterwards


def _repaired(store: Store, kind: Kind) -> list[str]:
    """Repair the table once; that a second time finds nothing to do is part of the promise."""
    uri = store.uri(kind)
    await_silence(store, kind)
    open_table(uri, store.options).services.repair(grace_minutes=0)
    again = open_table(uri, store.options).services.repair(grace_minutes=0)
    return [] if again == Repaired((), ()) else [f"a second repair did {again}"]


def await_silence(store: Store, table: str) -> None:
    """Wait until nobody could take one of the writers for alive."""
    _await(lambda: _is_silent(store, table))


def _is_silent(store: Store, table: str) -> bool:
    storage = open_storage(store.uri(table), store.options)
    folders = (HEARTBEAT_FOLDER, ".hoodie/timeline")
    beats = [stat.modified_ms / 1000 for folder in folders for stat in storage.list(folder)]
    return time.time() - max(beats, default=0) > HEARTBEAT_TIMEOUT_S + _COARSE_S


def _await(is_true: Callable[[], bool], within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < deadline, "somebody still writes, though all have stopped"
        time.sleep(0.2)


def _evidence(store: Store, folder: Path, kind: Kind, seed: int) -> Evidence:
    return load_evidence(
        kind,
        _history(folder, kind),
        store.uri(kind),
        store.options,
        None if store.folder is None else store.folder / kind,
        MOMENTS,
        random.Random(f"{seed}/{kind}/moments"),
    )
