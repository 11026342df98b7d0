"""What a write does when the lock that guards its table fails it: it ends clearly, or begins again.

The lock service is played, and time with it. At each moment of a write, one by one, the service
dies, or the writer stands still until another has taken its lock and committed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any

import pyarrow as pa
import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from locking_world import Universe
from opened_tables import table_on
from played_zookeeper import ADDRESS, PlayedSession, PlayedZookeeper
from pyhudi.api.table import Table
from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.proposals import Begin, Complete, Decided
from pyhudi.errors import InvalidRequestError, UnavailableError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.plan.table_definition import TableDefinition
from pyhudi.session import lock_setting as kept_lock_module
from pyhudi.session.create import create_table_files
from pyhudi.settings import WriteSettings
from pyhudi.storage.locks.lock import Lock
from pyhudi.storage.locks.zookeeper_lock import ZookeeperLock
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.instant_time import clock_time
from pyhudi.world import World

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
TIMELINE = ".hoodie/timeline"
KINDS: dict[str, dict[str, Any]] = {
    "non-blocking": {"ordering": "ts"},
    "optimistic": {},
}


def rows(*ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "ts": [1] * len(ids)}, schema=SCHEMA)


@dataclass
class FailingZookeeper(PlayedZookeeper):
    """Dies for good at the nth request from now on."""

    dies_at: int | None = None
    requests: int = 0

    def note(self) -> None:
        self.requests += 1
        if self.requests == self.dies_at:
            self.is_down = True


class _NotedSession(PlayedSession):
    def _answer(self, deed: Callable[[], object]) -> None:
        zookeeper = self._zookeeper
        assert isinstance(zookeeper, FailingZookeeper)
        zookeeper.note()
        super()._answer(deed)


@dataclass
class Bench:
    """A table in memory whose lock a played ZooKeeper keeps."""

    kind: str
    universe: Universe = field(default_factory=Universe)

    def __post_init__(self) -> None:
        self.zookeeper = FailingZookeeper(self.universe)
        self.storage = self.universe.memory()
        asked = TableDefinition.of(
            "orders",
            SCHEMA,
            record_key="id",
            buckets=SimpleBuckets(1),
            lock=LockKind.ZOOKEEPER,
            lock_address=ADDRESS,
            **KINDS[self.kind],
        )
        create_table_files(self.storage, asked, self.universe.world(), exist_ok=False)

    def lock(self, kind: LockKind, storage: Storage, world: World, **how: Any) -> Lock:
        assert (kind, how["address"]) == (LockKind.ZOOKEEPER, ADDRESS)

        def connect(_: object) -> PlayedSession:
            session = _NotedSession(self.zookeeper, world.label, ADDRESS.session_timeout_ms)
            self.zookeeper.sessions.append(session)
            return session

        return ZookeeperLock(storage, world, ADDRESS, connect=connect)

    def table(self, label: str, storage: Storage | None = None) -> Table:
        storage = storage or self.storage
        return table_on(storage, self.universe.world(label), WriteSettings(lock_wait_ms=5_000))

    def ids(self) -> set[str]:
        return set(self.table("a reader").read().to_arrow()["id"].to_pylist())

    def completions(self) -> list[str]:
        """The requested time of each instant that completed, as often as it did."""
        names = (stat.path.rpartition("/")[2] for stat in self.storage.list(TIMELINE))
        return [name[:17] for name in names if name[17:18] == "_"]


@pytest.fixture
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(request.param)
    monkeypatch.setattr(kept_lock_module, "open_lock", bench.lock)
    return bench


each_kind = pytest.mark.parametrize("bench", KINDS, indirect=True)


def requests_of_a_write(kind: str, monkeypatch: pytest.MonkeyPatch) -> int:
    bench = Bench(kind)
    monkeypatch.setattr(kept_lock_module, "open_lock", bench.lock)
    bench.table("alice").upsert(rows("a"))
    return bench.zookeeper.requests


@pytest.mark.parametrize("kind", KINDS)
def test_lock_service_may_die_at_any_moment_of_a_write(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = requests_of_a_write(kind, monkeypatch)
    assert moments > 10
    for moment in range(1, moments + 1):
        bench = Bench(kind)
        monkeypatch.setattr(kept_lock_module, "open_lock", bench.lock)
        bench.zookeeper.dies_at = moment
        with contextlib.suppress(UnavailableError):
            bench.table("alice").upsert(rows("a"), write_id="once")
        bench.zookeeper.is_down = False
        bench.universe.pass_ms(ADDRESS.session_timeout_ms + 1)
        bench.table("bob").upsert(rows("b"))
        bench.table("carol").upsert(rows("a"), write_id="once")  # the same write, once more
        assert bench.ids() == {"a", "b"}, f"moment {moment}"
        completed = bench.completions()
        assert len(completed) == len(set(completed))
        assert not bench.zookeeper.names()


@each_kind
def test_service_that_is_gone_is_a_clear_error_and_nothing_is_written(bench: Bench) -> None:
    bench.zookeeper.is_down = True
    before = {stat.path for stat in bench.storage.list("")}
    with pytest.raises(UnavailableError, match="no answer"):
        bench.table("alice").upsert(rows("a"))
    after = {stat.path for stat in bench.storage.list("")}
    assert not [path for path in after - before if path.startswith(TIMELINE)]


def moments_of_a_write(kind: str, monkeypatch: pytest.MonkeyPatch) -> int:
    bench = Bench(kind)
    monkeypatch.setattr(kept_lock_module, "open_lock", bench.lock)
    storage = FaultyStorage(bench.storage)
    bench.table("alice", storage).upsert(rows("a"))
    return len(storage.trace)


@pytest.mark.parametrize("kind", KINDS)
def test_writer_whose_lock_is_stolen_at_any_moment_publishes_once_and_loses_nothing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = moments_of_a_write(kind, monkeypatch)
    stolen = 0
    for moment in range(1, moments + 1):
        bench = Bench(kind)
        monkeypatch.setattr(kept_lock_module, "open_lock", bench.lock)

        def freeze(_: int, bench: Bench = bench) -> None:
            """Alice stands still, her session ends, and bob writes meanwhile."""
            nonlocal stolen
            stolen += bool(bench.zookeeper.names())
            bench.universe.frozen.add("alice")
            bench.universe.pass_ms(ADDRESS.session_timeout_ms + 1)
            bench.table("bob").upsert(rows("b"))
            bench.universe.frozen.discard("alice")

        fault = Fault(Effect.DELAY, nth=moment)
        storage = FaultyStorage(bench.storage, [fault], sleep_ms=freeze)
        bench.table("alice", storage).upsert(rows("a"), write_id="once")
        assert bench.ids() == {"a", "b"}, f"moment {moment}"
        completed = bench.completions()
        assert len(completed) == len(set(completed))
        again = bench.table("carol").upsert(rows("a"), write_id="once")
        assert again.instant in completed
        assert bench.completions() == completed
    assert stolen > 10  # at many of the moments she had the lock


@each_kind
def test_node_that_an_operator_deletes_is_taken_anew(bench: Bench) -> None:
    alice = bench.table("alice")
    alice.upsert(rows("a"))
    bench.universe.at(1, bench.zookeeper.nodes.clear)
    alice.upsert(rows("b"))
    assert bench.ids() == {"a", "b"}


@each_kind
@pytest.mark.parametrize("told", [kind for kind in LockKind if kind is not LockKind.ZOOKEEPER])
def test_writer_with_another_lock_is_refused_before_it_writes(bench: Bench, told: LockKind) -> None:
    before = {stat.path for stat in bench.storage.list("")}
    table = table_on(bench.storage, bench.universe.world(), WriteSettings(), lock=told)
    with pytest.raises(InvalidRequestError, match="the table itself says 'zookeeper'"):
        table.upsert(rows("a"))
    assert {stat.path for stat in bench.storage.list("")} == before


# -- a Java writer, which knows nothing but the lock


class SharedLog:
    """The decision log of a table, of which alice completes a write while Java may commit."""

    def __init__(self) -> None:
        self.universe = Universe()
        self.zookeeper = PlayedZookeeper(self.universe)
        self.storage = self.universe.memory()
        self.java = ""  # the completion time of Java's commit

    def log(self, storage: Storage) -> DecisionLog:
        return DecisionLog(
            storage,
            self.universe.world("alice"),
            WriteSettings(lock_wait_ms=5_000),
            timeline_folder=TIMELINE,
            zone=UTC,
            lock=self.zookeeper.lock("alice"),
            skew_ms=200,
        )

    def begun(self) -> Complete:
        log = self.log(self.storage)
        outcome = log.append(Begin(Action.DELTACOMMIT))
        assert isinstance(outcome, Decided)
        requested = outcome.entry.instant or ""
        inflight = Instant(InstantTime(requested), Action.DELTACOMMIT, State.INFLIGHT)
        self.storage.create(log.path(inflight), b"")
        return Complete(requested, Action.DELTACOMMIT, outcome.entry.n, b"done")

    def freeze(self, _: int = 0) -> None:
        """Alice stands still until her session is over, and Java commits with the lock in hand."""
        self.universe.frozen.add("alice")
        self.universe.pass_ms(ADDRESS.session_timeout_ms + 1)
        assert not self.zookeeper.names()
        requested = clock_time(self.universe.now_ms, UTC)
        self.universe.pass_ms(5)
        self.java = clock_time(self.universe.now_ms, UTC)
        for name in (
            ".deltacommit.requested",
            ".deltacommit.inflight",
            f"_{self.java}.deltacommit",
        ):
            self.storage.create(f"{TIMELINE}/{requested}{name}", b"")
        self.universe.pass_ms(500)
        self.universe.frozen.clear()

    def completions(self, requested: str) -> list[str]:
        """The completion times under which the instant was published."""
        names = (stat.path.rpartition("/")[2] for stat in self.storage.list(TIMELINE))
        return [name[18:35] for name in names if name.startswith(f"{requested}_")]


def test_stolen_lock_costs_a_completion_its_time_and_never_publishes_it_twice() -> None:
    counted = SharedLog()
    job = counted.begun()
    storage = FaultyStorage(counted.storage)
    counted.log(storage).append(job)
    moments = len(storage.trace)
    behind, gaps = 0, 0
    for moment in range(1, moments + 1):
        bench = SharedLog()
        job = bench.begun()
        fault = Fault(Effect.DELAY, nth=moment)
        storage = FaultyStorage(bench.storage, [fault], sleep_ms=bench.freeze)
        assert isinstance(bench.log(storage).append(job), Decided)
        (completed,) = bench.completions(job.requested)
        published = next(
            place
            for place, operation in enumerate(storage.trace, 1)
            if operation.name == "create"
            and operation.path.startswith(f"{TIMELINE}/{job.requested}_")
        )
        gaps += published == moment
        if moment < published:
            assert completed > bench.java, f"moment {moment} of {moments}: {storage.trace}"
            behind += 1
    assert behind > 5
    assert gaps <= 1  # between the last look at the lock and the publish nothing can be seen
