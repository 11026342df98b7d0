"""The lock that a table keeps: written down by its first writer, changed while others write.

A process stands still before each of its storage operations, one by one, while another gives the
table a lock; from there on it may decide nothing, and carry nothing out, without that lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC
from typing import Any

import pyarrow as pa
import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from memory_tables import TIMELINE, MemoryTable
from opened_tables import table_on
from pyhudi.api.table import Table
from pyhudi.commit import pruning
from pyhudi.commit.decision_log import STALE_MS
from pyhudi.errors import ConflictError, HudiError, InvalidRequestError, UnavailableError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.properties import decode_properties, encode_properties
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.read.load import PROPERTIES
from pyhudi.session.properties import load_properties_file
from pyhudi.settings import WriteSettings
from pyhudi.storage.locks.file_lock import LOCK_PATH
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.instant_time import clock_time
from pyhudi.write import complete as completing

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
LOG = ".hoodie/.pyhudi/log"
TIMEOUT_MS = WriteSettings().heartbeat_timeout_ms


def rows(*ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "ts": [1] * len(ids)}, schema=SCHEMA)


class Bench(MemoryTable):
    """A table with a row in it. Without a lock of its own it is as Hudi would have made it."""

    def __init__(self, lock: LockKind | None = LockKind.NONE) -> None:
        kept = LockKind.NONE if lock is None else lock
        super().__init__(SCHEMA, buckets=SimpleBuckets(1), ordering="ts", lock=kept)
        self.table("first").upsert(rows("k"))
        if lock is None:
            self.keep({k: v for k, v in self.kept().items() if ".lock" not in k})

    def kept(self) -> dict[str, str]:
        return decode_properties(self.storage.read(PROPERTIES))

    def keep(self, values: dict[str, str]) -> None:
        self.storage.write(PROPERTIES, encode_properties(values))

    def lock(self) -> str | None:
        return self.kept().get("pyhudi.lock")

    def told(
        self, lock: LockKind, label: str = "told", storage: Storage | None = None, **settings: Any
    ) -> Table:
        storage = storage or self.storage
        given = WriteSettings(**{"lock_wait_ms": 1_000, **settings})
        return table_on(storage, self.world(label), given, lock=lock)

    def ids(self) -> list[str]:
        return sorted(self.table("a reader").read().to_arrow()["id"].to_pylist())

    def entries(self) -> int:
        return len(list(self.storage.list(LOG)))


class Frozen(FaultyStorage):
    """Stands still before its nth operation while something else happens.

    Afterwards it notes what is decided or carried out without the file lock.
    """

    def __init__(self, inner: Storage, nth: int, meanwhile: Callable[[], None]) -> None:
        super().__init__(inner)
        self._nth = nth
        self._meanwhile = meanwhile
        self.has_woken = False
        self.unguarded: list[str] = []

    def _run(self, name: str, path: str, perform: Callable[[Any], Any]) -> Any:
        if len(self.trace) + 1 == self._nth:
            self._meanwhile()
            self.has_woken = True
        return super()._run(name, path, perform)

    def create(self, path: str, data: bytes) -> bool:
        is_new = super().create(path, data)
        is_decisive = path.startswith((LOG, TIMELINE)) and not path.endswith(".inflight")
        if is_new and is_decisive and self.has_woken and self._inner.stat(LOCK_PATH) is None:
            self.unguarded.append(path)
        return is_new


def freezes(
    lock: LockKind | None, act: Callable[[Table], object], meanwhile: Callable[[Bench], None]
) -> Iterator[tuple[Bench, Frozen, HudiError | None]]:
    """The same deed, frozen before its first operation, its second, and so on to its last."""
    for nth in range(1, 1_000):
        bench = Bench(lock)
        frozen = Frozen(bench.storage, nth, lambda bench=bench: meanwhile(bench))  # type: ignore[misc]
        error = None
        try:
            act(bench.table("frozen", frozen))
        except HudiError as caught:
            error = caught
        if not frozen.has_woken:
            return
        yield bench, frozen, error


# -- use_lock


@pytest.mark.parametrize("kind", ["file", "storage", "in_process", "none"])
@pytest.mark.parametrize("before", [None, LockKind.NONE, LockKind.FILE, LockKind.STORAGE])
def test_a_table_is_given_any_lock_and_all_its_writers_take_it(
    before: LockKind | None, kind: str
) -> None:
    bench = Bench(before)
    bench.table("a").alter.use_lock(kind)
    assert bench.lock() == kind
    bench.table("b").upsert(rows("of b"))
    bench.told(LockKind(kind)).upsert(rows("of told"))
    assert bench.ids() == ["k", "of b", "of told"]
    for other in {LockKind.NONE, LockKind.FILE, LockKind.STORAGE} - {LockKind(kind)}:
        with pytest.raises(InvalidRequestError, match=f"the table itself says '{kind}'"):
            bench.told(other).upsert(rows("other"))


def test_nothing_is_left_of_the_lock_before() -> None:
    bench = Bench(LockKind.FILE)
    before = bench.kept()
    bench.keep({**before, "hoodie.write.lock.zookeeper.url": "gone:2181", "somebody.elses": "key"})
    bench.table().alter.use_lock("none")
    after = bench.kept()
    assert {key for key in after if ".lock" in key} == {"pyhudi.lock"}
    assert after["somebody.elses"] == "key"
    bench.table().alter.use_lock("file")
    assert {key: value for key, value in bench.kept().items() if key != "somebody.elses"} == before


def test_the_properties_change_under_the_old_lock_and_the_new_one() -> None:
    bench = Bench(LockKind.STORAGE)
    held: list[bool] = []

    class Watched(FaultyStorage):
        def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
            if path == PROPERTIES:
                lease = bench.storage.read(".hoodie/.locks/table_lock.json")
                held.append(b'"expired":false' in lease.replace(b" ", b""))
                held.append(bench.storage.stat(LOCK_PATH) is not None)
            return super().replace(path, data, etag=etag)

    bench.table(storage=Watched(bench.storage)).alter.use_lock("file")
    assert held == [True, True]
    assert bench.storage.stat(LOCK_PATH) is None, "it is given back"


def test_a_lock_that_somebody_holds_is_not_changed() -> None:
    bench = Bench(LockKind.FILE)
    bench.storage.create(LOCK_PATH, b"")
    with pytest.raises(UnavailableError, match="could not be taken"):
        bench.table(lock_wait_ms=1_000).alter.use_lock("none")
    assert bench.lock() == "file"


def test_a_process_that_was_told_another_lock_gives_the_table_its_own() -> None:
    bench = Bench(LockKind.NONE)
    table = bench.told(LockKind.FILE)
    with pytest.raises(InvalidRequestError, match=r"table\.alter\.use_lock"):
        table.upsert(rows("a"))
    bench.storage.create(LOCK_PATH, b"")
    with pytest.raises(UnavailableError):
        table.alter.use_lock("file")
    bench.storage.delete(LOCK_PATH)
    with pytest.raises(InvalidRequestError, match="'none'"):
        table.upsert(rows("a"))  # what failed has not changed what it was told
    table.alter.use_lock("file")
    table.upsert(rows("a"))
    assert bench.ids() == ["a", "k"]


def test_of_two_that_give_a_table_different_locks_one_is_refused() -> None:
    outcomes = set()

    def rival(bench: Bench) -> None:
        bench.table("rival").alter.use_lock("storage")

    def ask(table: Table) -> None:
        table.alter.use_lock("file")

    for bench, frozen, error in freezes(LockKind.NONE, ask, rival):
        # Whoever asks behind the other changes the lock once more; at the same time, one loses.
        if isinstance(error, ConflictError):
            assert "storage" in str(error)
            assert bench.lock() == "storage"
        bench.table("after").upsert(rows("after"))
        assert bench.ids() == ["after", "k"]
        outcomes.add((type(error), bench.lock()))
        assert frozen.has_woken
    assert (ConflictError, "storage") in outcomes
    assert (type(None), "file") in outcomes


def test_a_write_decides_nothing_without_the_lock_that_the_table_got_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completing, "PRUNE_EVERY", 1)  # it tidies up when it has completed
    monkeypatch.setattr(pruning, "ENTRIES_KEPT", 1)
    once, repeated = (list(failures_of_a_frozen_write(retries, 0)) for retries in (0, 5))
    long_ago = list(failures_of_a_frozen_write(0, STALE_MS + 1_000))
    assert all("'file', and not 'none'" in text for text in once + repeated + long_ago)
    assert 0 < len(repeated) < len(once) // 2, "most of them are done again, with the lock"


def failures_of_a_frozen_write(retries: int, sleep_ms: int) -> Iterator[str]:
    """What it told, each time when it failed; when it did not, its row is there, and only then."""

    def upsert(table: Table) -> None:
        table._opening.settings = WriteSettings(conflict_retries=retries)
        table.upsert(rows("frozen"))

    def meanwhile(bench: Bench) -> None:
        bench.table("b").alter.use_lock("file")
        bench.clock.sleep(sleep_ms)

    for bench, frozen, error in freezes(LockKind.NONE, upsert, meanwhile):
        assert frozen.unguarded == []
        assert isinstance(error, ConflictError | None)
        assert bench.ids() == (["frozen", "k"] if error is None else ["k"])
        bench.clock.sleep(TIMEOUT_MS + 1_000)
        bench.table("after").upsert(rows("after"))
        assert "after" in bench.ids()
        assert bench.pending() == []
        if error is not None:
            yield str(error)


def test_what_is_decided_under_the_new_lock_is_not_carried_out_without_it() -> None:
    """A writer died behind its decision, and another engine has gone past it: it is void."""

    def meanwhile(bench: Bench) -> None:
        bench.table("b").alter.use_lock("file")
        crash = Fault(Effect.FAIL, "create", path=f"{TIMELINE}/*_*", times=None)
        with pytest.raises(UnavailableError):
            bench.table("dying", FaultyStorage(bench.storage, [crash])).upsert(rows("dying"))
        with suppress(UnavailableError):
            bench.storage.delete(LOCK_PATH)  # an operator
        bench.clock.sleep(60_000)
        requested = clock_time(bench.clock.ms, UTC)
        for suffix in (".deltacommit.requested", ".deltacommit.inflight"):
            bench.storage.write(f"{TIMELINE}/{requested}{suffix}", b"")

    for bench, frozen, error in freezes(
        LockKind.NONE, lambda table: table.upsert(rows("frozen")), meanwhile
    ):
        assert frozen.unguarded == []
        assert isinstance(error, ConflictError | None)
        assert "dying" not in bench.ids()


@pytest.mark.parametrize("effect", [Effect.FAIL, Effect.LOSE_REPLY])
def test_whoever_dies_while_changing_the_lock_leaves_a_table_that_is_written_on(
    effect: Effect,
) -> None:
    kept = set()
    for nth in range(1, 1_000):
        bench = Bench(LockKind.NONE)
        first = Fault(effect, nth=nth)
        dying = FaultyStorage(bench.storage, [first, Fault(Effect.FAIL, nth=nth + 1, times=None)])
        try:
            bench.table("dying", dying).alter.use_lock("file")
        except HudiError:
            pass
        else:
            if len(dying.trace) < nth:
                break
        kept.add(bench.lock())
        bench.storage.delete(LOCK_PATH)  # an operator: the file lock does not expire
        bench.clock.sleep(TIMEOUT_MS + 1_000)
        bench.table("b").upsert(rows("b"))
        bench.table("again").alter.use_lock("file")
        bench.clock.sleep(TIMEOUT_MS + 1_000)
        bench.table("c").upsert(rows("c"))
        assert bench.lock() == "file"
        assert bench.ids() == ["b", "c", "k"]
        assert bench.pending() == []
    assert kept == {"none", "file"}


def test_asking_again_for_the_lock_that_the_table_has_still_stops_who_has_not_noticed() -> None:
    """The first who asked may have died before anybody was stopped."""
    bench = Bench(LockKind.NONE)
    before = bench.entries()
    bench.table("a").alter.use_lock("none")
    assert bench.lock() == "none"
    assert bench.entries() > before


def test_an_archiver_without_the_lock_stops_when_the_table_gets_one() -> None:
    changed: list[str] = []

    class Changing(FaultyStorage):
        def create(self, path: str, data: bytes) -> bool:
            if path.startswith(f"{TIMELINE}/history") and not changed:
                bench.table("b").alter.use_lock("file")
                changed.extend(bench.names())
            return super().create(path, data)

    bench = Bench(LockKind.NONE)
    for turn in range(8):
        bench.table().upsert(rows(f"k{turn}"))
    bench.clock.sleep(3_600_000)
    archiver = bench.table("archiver", Changing(bench.storage))
    policy = ArchivePolicy(keep_min=2, keep_max=3)
    with pytest.raises(UnavailableError, match="has been changed"):
        archiver.services.archive(policy)
    assert completed(changed) == completed(bench.names())
    archiver.services.archive(policy)
    assert len(completed(bench.names())) < len(completed(changed))


def completed(names: list[str]) -> list[str]:
    return [name for name in names if "_" in name and name.endswith("commit")]


@pytest.mark.parametrize("service", ["clean", "archive", "compact", "cancel"])
def test_services_beside_another_engine_say_what_helps(service: str) -> None:
    bench = Bench(LockKind.NONE)
    for turn in range(4):
        bench.table().upsert(rows("k", f"k{turn}"))
    table = bench.table("ours")
    planned = table.services.compact(plan_only=True).planned if service == "cancel" else None
    if service == "clean":
        table.services.compact()
    bench.storage.write(f"{TIMELINE}/20260101010000000.deltacommit.requested", b"")
    deeds: dict[str, Callable[[], object]] = {
        "clean": lambda: table.services.clean(CleanPolicy.versions(1)),
        "archive": lambda: table.services.archive(ArchivePolicy(keep_min=2, keep_max=3)),
        "compact": table.services.compact,
        "cancel": lambda: table.services.cancel_compaction(planned or ""),
    }
    bench.clock.sleep(3_600_000)
    with pytest.raises(InvalidRequestError, match="20260101010000000") as error:
        deeds[service]()
    assert "table.alter.use_lock" in error.value.next_step


# -- the first lock of a table that does not tell


KINDS = (LockKind.NONE, LockKind.FILE, LockKind.STORAGE)
PROVIDERS = {
    LockKind.FILE: "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    LockKind.STORAGE: "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider",
}


@pytest.mark.parametrize("kind", PROVIDERS)
def test_the_first_lock_is_kept_as_a_new_table_keeps_its_own(kind: LockKind) -> None:
    bench = Bench(None)
    before = bench.kept()
    bench.told(kind).upsert(rows("a"))
    provider = {"hoodie.write.lock.provider": PROVIDERS[kind]}
    assert bench.kept() == {**before, "pyhudi.lock": kind.value, **provider}
    assert bench.kept() == Bench(kind).kept()


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS[1:])
def test_behind_the_first_lock_a_writer_with_another_is_refused(
    first: LockKind, second: LockKind
) -> None:
    bench = Bench(None)
    bench.told(first).upsert(rows("first"))
    bench.table("untold").upsert(rows("untold"))
    if second is first:
        bench.told(second).upsert(rows("second"))
        assert bench.ids() == ["first", "k", "second", "untold"]
        return
    with pytest.raises(InvalidRequestError, match=f"the table itself says '{first.value}'"):
        bench.told(second).upsert(rows("second"))
    assert bench.ids() == ["first", "k", "untold"]


def test_writers_without_a_lock_leave_nothing_for_others_to_agree_with() -> None:
    bench = Bench(None)
    before = bench.storage.read(PROPERTIES)
    bench.table("untold").upsert(rows("a"))
    bench.told(LockKind.NONE).upsert(rows("b"))
    bench.told(LockKind.IN_PROCESS).upsert(rows("c"))
    assert load_properties_file(bench.storage) == before
    bench.told(LockKind.FILE).upsert(rows("d"))
    assert bench.lock() == "file"
    assert bench.ids() == ["a", "b", "c", "d", "k"]


def test_the_first_lock_is_written_down_while_it_is_held() -> None:
    bench = Bench(None)
    held = []

    class Watched(FaultyStorage):
        def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
            held.append((path, bench.storage.stat(LOCK_PATH) is not None))
            return super().replace(path, data, etag=etag)

    bench.told(LockKind.FILE, storage=Watched(bench.storage)).upsert(rows("a"))
    assert [found for found in held if found[0] == PROPERTIES] == [(PROPERTIES, True)]


def test_a_dry_run_and_a_reader_write_no_lock_down() -> None:
    bench = Bench(None)
    table = bench.told(LockKind.FILE)
    table.services.run(dry_run=True)
    table.read().to_arrow()
    assert bench.lock() is None
    table.services.run()
    assert bench.lock() == "file"


def test_a_lock_that_is_not_the_one_hudi_keeps_in_the_table_is_refused() -> None:
    bench = Bench(None)
    bench.keep({**bench.kept(), "hoodie.write.lock.provider": PROVIDERS[LockKind.STORAGE]})
    with pytest.raises(InvalidRequestError, match="StorageBasedLockProvider") as error:
        bench.told(LockKind.FILE).upsert(rows("a"))
    assert "use_lock" in error.value.next_step
    assert bench.lock() is None
    bench.told(LockKind.STORAGE).upsert(rows("a"))
    assert bench.lock() == "storage"


def test_of_two_first_writers_with_different_locks_exactly_one_writes() -> None:
    winners = set()
    refusals: list[str] = []
    for nth in range(1, 1_000):
        bench = Bench(None)
        written: list[str] = []

        def rival(bench: Bench = bench, written: list[str] = written) -> None:
            with suppress(InvalidRequestError):
                bench.told(LockKind.STORAGE, "rival").upsert(rows("storage"))
                written.append("storage")

        frozen = Frozen(bench.storage, nth, rival)
        try:
            bench.told(LockKind.FILE, "frozen", frozen).upsert(rows("file"))
            written.append("file")
        except InvalidRequestError as error:
            refusals.append(error.why)
        if not frozen.has_woken:
            break
        assert written == [bench.lock()]
        assert bench.ids() == sorted(["k", *written])
        winners.update(written)
    assert winners == {"file", "storage"}
    assert all("the table itself says 'storage'" in why for why in refusals)


def test_a_write_without_a_lock_decides_nothing_behind_the_first_with_one() -> None:
    def meanwhile(bench: Bench) -> None:
        bench.told(LockKind.FILE).upsert(rows("told"))

    for bench, frozen, error in freezes(
        None, lambda table: table.upsert(rows("frozen")), meanwhile
    ):
        assert frozen.unguarded == []
        assert isinstance(error, ConflictError | None)
        assert bench.ids() == sorted(["k", "told", *(["frozen"] if error is None else [])])


def test_whoever_dies_at_the_first_write_with_a_lock_leaves_it_kept_or_not_at_all() -> None:
    kept = set()
    for nth in range(1, 1_000):
        bench = Bench(None)
        dying = FaultyStorage(bench.storage, [Fault(Effect.FAIL, nth=nth, times=None)])
        with suppress(HudiError):
            bench.told(LockKind.FILE, "dying", dying).upsert(rows("dying"))
        if len(dying.trace) < nth:
            break
        kept.add(bench.lock())
        bench.storage.delete(LOCK_PATH)  # an operator
        bench.clock.sleep(TIMEOUT_MS + 1_000)
        other = bench.told(LockKind.STORAGE, "other")
        if bench.lock() is None:
            other.upsert(rows("other"))
            continue
        with pytest.raises(InvalidRequestError, match="'file'"):
            other.upsert(rows("other"))
        bench.table("untold").upsert(rows("untold"))
        assert "untold" in bench.ids()
    assert kept == {None, "file"}


# -- what looking costs


def test_a_writer_alone_looks_at_the_properties_when_it_opens_the_table_and_not_again() -> None:
    bench = Bench(LockKind.NONE)
    counted = FaultyStorage(bench.storage)
    table = bench.table("a", counted)
    table.upsert(rows("a"))
    before = len(counted.trace)
    table.upsert(rows("b"))
    assert [o.name for o in counted.trace[before:] if o.path == PROPERTIES] == ["read"]
    bench.table("another").upsert(rows("c"))
    before = len(counted.trace)
    table.upsert(rows("d"))
    assert [o.name for o in counted.trace[before:] if o.path == PROPERTIES] == ["read", "read"]
