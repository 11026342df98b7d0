"""A table of simple buckets becomes one of consistent buckets while it is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from faulty_storage import Effect, Fault, FaultyStorage, Operation
from memory_tables import TIMELINE
from migrating_tables import RINGS, MigratingTable, settled
from pyhudi.api.table import Table
from pyhudi.errors import (
    ConflictError,
    HudiError,
    InvalidRequestError,
    UnsupportedTableError,
)
from pyhudi.format.files.log_reference import is_virtual_child
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import Buckets, ConsistentBuckets, SimpleBuckets
from pyhudi.format.table.bucket_migration import MigratingBuckets
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.table_config import LOCK_KIND, TableType
from pyhudi.format.timeline.commit_metadata import decode_commit_metadata
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.plan.resizing.policy import ResizePolicy
from pyhudi.plan.upkeep import Upkeep
from pyhudi.plan.writable import with_first_lock
from pyhudi.read.load import TableLoader, load_config
from pyhudi.session.open import OpenTable, Overrides
from pyhudi.settings import WriteSettings
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.write.begin import MIGRATION_KEY, ready
from resize_tables import SCHEMA

#: The services without those that other tests are about.
RESIZING = Upkeep(compaction=None, clean=None, archive=None)
_CHANGES = {"create", "create_from", "write", "replace", "delete"}


def test_every_partition_gets_a_ring_and_the_table_says_so() -> None:
    table = MigratingTable()
    table.put("abcdefgh", 1, "d")
    table.put("klmnopqr", 2, "e")
    table.put("am", 3, "d")
    before = table.rows()
    assert table.numbered("d")
    done = table.migrate()
    assert done.is_done, done
    assert len(done.results) == 2
    assert table.rows() == before
    assert table.config.buckets == RINGS.resolved(("id",))
    assert {len(instants) for instants in table.rings().values()} == {1}
    assert not table.numbered("d")
    table.put("az", 4, "d")
    table.put("az", 5, "f")
    table.remove("ab")
    settled(table.table("r"))
    assert not table.pending()
    table.table("s").services.resize()


# ---- a write beside a whole migration


class Pausing:
    """A storage that, before one of the operations that change something, lets another act."""

    def __init__(self, inner: Storage, nth: int, meanwhile: Callable[[], object]) -> None:
        self._inner = inner
        self._left = nth
        self._meanwhile = meanwhile
        self.has_paused = False

    def __getattr__(self, name: str) -> Any:
        if name not in _CHANGES:
            return getattr(self._inner, name)

        def paused(*given: Any, **named: Any) -> Any:
            self._left -= 1
            if not self._left:
                self._meanwhile()
                self.has_paused = True
            return getattr(self._inner, name)(*given, **named)

        return paused


class Scene:
    """A table with rows in two partitions, and a copy of it for each case."""

    def __init__(self, **definition: Any) -> None:
        self._definition = definition
        self.table = MigratingTable(**definition)
        self.table.put("abcd", 1, "d")
        self.table.put("klmn", 1, "e")
        self.table.put("a", 2, "d")

    def begin(self) -> None:
        """Leave the table as a process does that dies when it has begun to migrate."""
        self.table.announce("begins")
        ready(self.table.opening("begins"))

    def copied(self) -> MigratingTable:
        table = MigratingTable(**self._definition)
        table.clock.ms = self.table.clock.ms
        storage = MemoryStorage(lambda: table.clock.ms)
        for stat in self.table.storage.list(""):
            storage.write(stat.path, self.table.storage.read(stat.path))
        table.storage = storage
        return table


def upsert(table: MigratingTable, storage: Storage) -> dict[str, str | None]:
    rows = pa.concat_tables([table.made("ab", 9, "d"), table.made("x", 9, "new")])
    table.table("verb", storage).upsert(rows)
    return {"a": "a9", "b": "b9", "x": "x9"}


def upsert_of_a_stream(table: MigratingTable, storage: Storage) -> dict[str, str | None]:
    rows = pa.concat_tables([table.made("ab", 9, "d"), table.made("x", 9, "new")])
    reader = pa.RecordBatchReader.from_batches(SCHEMA, rows.to_batches())
    table.table("verb", storage, buffer_bytes_max=1).upsert(reader)
    return {"a": "a9", "b": "b9", "x": "x9"}


def delete(table: MigratingTable, storage: Storage) -> dict[str, str | None]:
    table.table("verb", storage).delete(pa.table({"id": ["a", "k"]}))
    return {"a": None, "k": None}


def delete_by_predicate(table: MigratingTable, storage: Storage) -> dict[str, str | None]:
    table.table("verb", storage).delete("id = 'b'")
    return {"b": None}


def update(table: MigratingTable, storage: Storage) -> dict[str, str | None]:
    rows = pa.table({"id": ["a"], "day": ["d"], "v": ["new"]})
    table.table("verb", storage).update(rows, columns=["v"])
    return {"a": "new"}


def overwrite(table: MigratingTable, storage: Storage) -> dict[str, str | None]:
    table.table("verb", storage).overwrite(table.made("az", 9, "d"), partitions=["d"])
    return {"a": "a9", "z": "z9", "b": None, "c": None, "d": None}


def values_after(changes: dict[str, str | None]) -> dict[str, str]:
    before = {key: f"{key}1" for key in "abcdklmn"} | {"a": "a2"}
    return {key: value for key, value in (before | changes).items() if value is not None}


Verb = Callable[[MigratingTable, Storage], dict[str, str | None]]
CASES: list[tuple[Verb, ConcurrencyMode]] = [
    (upsert, ConcurrencyMode.NON_BLOCKING),
    (upsert, ConcurrencyMode.OPTIMISTIC),
    (upsert_of_a_stream, ConcurrencyMode.NON_BLOCKING),
    (delete, ConcurrencyMode.OPTIMISTIC),
    (delete_by_predicate, ConcurrencyMode.NON_BLOCKING),
    (update, ConcurrencyMode.OPTIMISTIC),
    (overwrite, ConcurrencyMode.NON_BLOCKING),
]
NAMES = [f"{verb.__name__} {mode.name.lower()}" for verb, mode in CASES]


def moments() -> Iterator[int]:
    """Every storage operation, or in a short run every third."""
    return count(1) if "PYHUDI_LONG" in os.environ else count(1, 3)


@pytest.mark.parametrize(("verb", "mode"), CASES, ids=NAMES)
@pytest.mark.parametrize("begins", [True, False], ids=["all of it", "its partitions"])
def test_a_write_may_sleep_at_any_operation_while_the_table_is_migrated(
    verb: Verb, mode: ConcurrencyMode, *, begins: bool
) -> None:
    origin = Scene(concurrency=mode)
    if not begins:
        origin.begin()
    for nth in moments():
        table = origin.copied()
        pausing = Pausing(table.storage, nth, table.migrate)
        changes = verb(table, pausing)
        if not pausing.has_paused:
            break
        assert table.config.buckets == RINGS.resolved(("id",)), nth
        assert table.values() == values_after(changes), nth
        settled(table.table("r"))
    assert nth > 8


@pytest.mark.parametrize(("verb", "mode"), CASES, ids=NAMES)
def test_a_migration_may_sleep_at_any_operation_while_the_table_is_written(
    verb: Verb, mode: ConcurrencyMode
) -> None:
    origin = Scene(concurrency=mode)
    for nth in moments():
        table = origin.copied()
        changes: dict[str, str | None] = {}

        def meanwhile(table: MigratingTable = table, known: dict[str, Any] = changes) -> None:
            known.update(verb(table, table.storage))
            settled(table.table("r"))

        done = table.migrate(storage=Pausing(table.storage, nth, meanwhile))
        if not changes:
            break
        assert done.is_done, (nth, done)
        assert table.values() == values_after(changes), nth
        settled(table.table("r"))
    assert nth > 40


def migrated_and_forgotten(table: MigratingTable) -> None:
    """Migrate the table, and remove all that tells of its simple buckets."""
    assert table.migrate("m").is_done
    services = table.table("services").services
    for stamp in range(20, 24):
        table.put("d", stamp, "d", label=f"later {stamp}")
    services.compact()
    services.clean(CleanPolicy.commits(1))
    table.clock.ms += 10 * 24 * 3_600_000
    services.archive(ArchivePolicy(keep_min=2, keep_max=3, delta_commits=0))


def test_simple_buckets_are_cleaned_and_archived_like_any_that_were_replaced() -> None:
    table = Scene().table
    migrated_and_forgotten(table)
    assert not [name for name in table.names() if ".replacecommit" in name]
    assert table.values() == values_after({"d": "d23"})
    files = [stat.path for day in ("d", "e") for stat in table.storage.list(day)]
    bare = [path.rpartition("/")[2].lstrip(".") for path in files]
    assert not [name for name in bare if name.startswith("0000000")]
    settled(table.table("r"))
    table.put("dq", 30, "d")
    settled(table.table("r"))


def test_a_write_may_sleep_until_nothing_tells_of_the_migration_any_more() -> None:
    origin = Scene()
    origin.begin()
    for nth in moments():
        table = origin.copied()
        pausing = Pausing(table.storage, nth, partial(migrated_and_forgotten, table))
        changes = upsert(table, pausing)
        if not pausing.has_paused:
            break
        assert table.values() == values_after({"d": "d23", **changes}), nth
        settled(table.table("r"))
    assert nth > 8


# ---- crashes


def crashes(trace: Sequence[Operation]) -> Iterator[tuple[Fault, ...]]:
    """The process dies right after an operation that changes storage."""
    for nth, operation in enumerate(trace, 1):
        if operation.name in _CHANGES:
            yield Fault(Effect.LOSE_REPLY, nth=nth), Fault(Effect.FAIL, nth=nth + 1, times=None)


def by_another_call(table: MigratingTable) -> None:
    assert table.migrate("next").is_done


def by_the_services(table: MigratingTable) -> None:
    if stage_of(table) == "simple":  # it was not announced
        return by_another_call(table)
    done = table.table("next").services.run(RESIZING)
    assert done.migration is not None
    assert done.migration.is_done


@pytest.mark.parametrize("go_on", [by_another_call, by_the_services])
def test_a_migration_that_died_at_any_operation_is_continued(
    go_on: Callable[[MigratingTable], None],
) -> None:
    origin = Scene()
    trial = origin.copied()
    trace = FaultyStorage(trial.storage)
    trial.migrate(storage=trace)
    seen: set[str] = set()
    for faults in crashes(trace.trace):
        table = origin.copied()
        with suppress(HudiError):
            table.migrate("dying", FaultyStorage(table.storage, faults))
        seen.add(stage_of(table))
        assert table.values() == values_after({}), faults
        changes = upsert(table, table.storage)
        assert table.values() == values_after(changes), faults
        settled(table.table("r"))
        table.clock.ms += 10 * WriteSettings().heartbeat_timeout_ms
        if stage_of(table) != "done":
            go_on(table)
        assert stage_of(table) == "done"
        assert table.values() == values_after(changes), faults
        assert not table.pending(), faults
        table.put("q", 20, "d")
        settled(table.table("r"))
    assert seen == {"simple", "announced", "begun", "done"}


def begun(*days: str) -> MigratingTable:
    """A table as a migration leaves it whose process died when it had begun."""
    table = MigratingTable()
    for day in days:
        table.put("abcdefgh", 1, day)
    table.announce()
    ready(table.opening())
    return table


def test_a_run_of_the_services_rewrites_no_more_of_a_migration_than_its_policy_allows() -> None:
    table = begun("d", "e", "f")
    before = table.rows()
    services = table.table("s").services
    for bytes_max in (0, 100):
        bound = ResizePolicy(input_bytes_max=bytes_max)
        done = services.run(Upkeep(resize=bound)).migration
        assert done is not None
        assert not done.results
        assert set(done.left.values()) == {"it is larger than what one plan may read"}
    assert services.run(Upkeep(resize=None)).migration is None
    one = ResizePolicy(partitions_max=1)
    for limits in (one, ResizePolicy(bytes_max=1)):
        done = services.run(Upkeep(resize=limits)).migration
        assert done is not None
        assert [result.partitions for result in done.results] == [1]
        assert not done.is_done
    assert len(table.rings()) == 2
    last = services.run(Upkeep(resize=one))
    assert last.migration is not None
    assert last.migration.is_done
    assert last.did_anything
    assert "the migration is done" in str(last)
    assert table.config.buckets == RINGS.resolved(("id",))
    assert table.rows() == before
    assert services.run().migration is None


def test_a_dry_run_of_the_services_names_what_is_left_of_a_migration_and_changes_nothing() -> None:
    table = begun("d", "e")
    looker = table.table("s")
    before = table.contents()
    done = looker.services.run(dry_run=True).migration
    assert done is not None
    assert sorted(done.left) == ["d", "e"]
    assert table.contents() == before


def test_the_first_ring_is_no_virtual_resize_whatever_the_policy_of_others() -> None:
    table = begun("d")
    table.table("s").services.run(Upkeep(resize=ResizePolicy(writes="virtual")))
    assert stage_of(table) == "done"
    assert not any(is_virtual_child(row["file_id"]) for row in slices_of(table))


def slices_of(table: MigratingTable) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.table("look").inspect.file_slices().to_pylist()
    return found


def stage_of(table: MigratingTable) -> str:
    match table.config.buckets:
        case MigratingBuckets(is_announced=is_announced):
            return "announced" if is_announced else "begun"
        case ConsistentBuckets():
            return "done"
    return "simple"


# ---- what is refused


def on_copy_on_write() -> MigratingTable:
    return MigratingTable(
        table_type=TableType.COPY_ON_WRITE, concurrency=ConcurrencyMode.OPTIMISTIC
    )


def beside_a_lock_of_hudi() -> MigratingTable:
    return MigratingTable(lock=LockKind.STORAGE, concurrency=ConcurrencyMode.OPTIMISTIC)


def consistent_already() -> MigratingTable:
    return MigratingTable(buckets=ConsistentBuckets())


def migrating_to_others() -> MigratingTable:
    table = MigratingTable()
    table.announce()
    ready(table.opening("begins"))
    return table


REFUSED: list[tuple[Callable[[], MigratingTable], object, type[HudiError], str]] = [
    (on_copy_on_write, RINGS, InvalidRequestError, "copy on write"),
    (beside_a_lock_of_hudi, RINGS, UnsupportedTableError, "which Apache Hudi takes"),
    (consistent_already, RINGS, InvalidRequestError, "consistent buckets already"),
    (MigratingTable, SimpleBuckets(8), InvalidRequestError, "no ConsistentBuckets"),
    (MigratingTable, 8, InvalidRequestError, "no ConsistentBuckets"),
    (MigratingTable, ConsistentBuckets(hash_fields=("v",)), InvalidRequestError, "record key"),
    (migrating_to_others, ConsistentBuckets(7), InvalidRequestError, "being migrated to"),
]


@pytest.mark.parametrize(("made", "buckets", "kind", "why"), REFUSED)
def test_a_migration_that_cannot_be_made_is_refused_by_name_and_changes_nothing(
    made: Callable[[], MigratingTable], buckets: Any, kind: type[HudiError], why: str
) -> None:
    table = made()
    table.put("ab", 1)
    before = table.contents()
    with pytest.raises(kind, match=why):
        table.table("m").services.migrate_buckets(buckets)
    assert table.contents() == before


@pytest.mark.parametrize("given", [{"initial": 0}, {"min": 0}, {"max": 0}])
def test_there_are_no_rings_of_fewer_than_one_bucket(given: dict[str, int]) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be used"):
        ConsistentBuckets(**given)  # type: ignore[arg-type]


def test_of_two_processes_that_migrate_at_once_one_is_refused() -> None:
    table = Scene().table
    met: list[str] = []

    def second() -> None:
        before = table.contents()
        with pytest.raises(ConflictError, match="another process is migrating") as refused:
            table.migrate("second")
        met.append(refused.value.next_step)
        assert table.contents() == before

    assert table.migrate(storage=Pausing(table.storage, 12, second)).is_done
    assert met


def test_the_services_leave_a_migration_to_the_process_that_makes_it() -> None:
    table = Scene().table
    met: list[object] = []

    def beside() -> None:
        met.append(table.table("second").services.run(RESIZING).migration)
        assert stage_of(table) == "begun"

    assert table.migrate(storage=Pausing(table.storage, 24, beside)).is_done
    assert met == [None]


def test_a_table_that_is_being_migrated_gets_no_lock_of_hudis() -> None:
    table = migrating_to_others()
    table.put("ab", 1)
    with pytest.raises(InvalidRequestError, match="being migrated"):
        table.table("l").alter.use_lock("storage")
    assert table.config.lock is LockKind.NONE
    values = {k: v for k, v in table.config.properties.values.items() if k != LOCK_KIND}
    with pytest.raises(InvalidRequestError, match="being migrated"):
        with_first_lock(values, replace(table.config, lock=LockKind.STORAGE))


# ---- what jobs say of the buckets


def opened_with(table: MigratingTable, buckets: Buckets) -> Table:
    label = f"a job with {buckets}"
    opening = OpenTable(table.storage, table.world(label), WriteSettings(), Overrides(buckets))
    return Table(TableLoader(table.storage, load_config(table.storage)), opening)


def test_a_job_may_name_the_old_or_the_new_buckets_until_the_migration_ends() -> None:
    table = migrating_to_others()
    for buckets in (SimpleBuckets(3), RINGS):
        opened_with(table, buckets).upsert(table.made("a", 1, "d"))
    with pytest.raises(InvalidRequestError, match="must agree"):
        opened_with(table, SimpleBuckets(4)).upsert(table.made("a", 2, "d"))
    assert table.migrate().is_done
    opened_with(table, RINGS).upsert(table.made("a", 1, "d"))
    with pytest.raises(InvalidRequestError, match="must agree"):
        opened_with(table, SimpleBuckets(3)).upsert(table.made("a", 3, "d"))


def test_a_migration_hashes_the_columns_that_were_hashed_unless_others_are_named() -> None:
    table = MigratingTable(buckets=SimpleBuckets(3, ("id",)), record_key=("id", "ts"))
    table.put("abcd", 1)
    assert table.migrate().is_done
    assert table.config.buckets == RINGS.resolved(("id",))


# ---- what is shown meanwhile


def test_the_table_shows_which_partitions_have_rings() -> None:
    table = migrating_to_others()
    table.put("ab", 1, "new")
    rows = table.table("i").inspect.buckets().to_pylist()
    assert {row["partition"]: row["range"] is not None for row in rows} == {"new": True}
    assert "being migrated" in table.table("i")._repr_html_()
    assert "2 buckets" in str(table.table("i").inspect.ring("new"))


def test_a_partition_that_is_not_migrated_yet_has_no_ring_to_show() -> None:
    scene = Scene()
    scene.begin()
    with pytest.raises(InvalidRequestError, match=r"'d' has no ring.* still simple"):
        scene.table.table("i").inspect.ring("d")


def test_the_log_has_an_entry_of_the_begin_and_one_of_the_end() -> None:
    table = Scene().table
    table.migrate()
    commits = (path for path in table.names() if path.endswith(".deltacommit") and "_" in path)
    found = (
        decode_commit_metadata(table.storage.read(f"{TIMELINE}/{name}"), name) for name in commits
    )
    extras = (each.extra_metadata or {} for each in found)
    marks = [extra[MIGRATION_KEY] for extra in extras if MIGRATION_KEY in extra]
    assert [mark[:4] for mark in marks] == ["to C", "done"]


def test_a_process_that_opened_the_table_before_shows_the_rings() -> None:
    table = MigratingTable()
    table.put("abcdefgh", 1, "d")
    earlier = table.table("earlier")
    table.migrate()
    shown = earlier.inspect.buckets(rows=False).to_pylist()
    assert shown
    assert all(row["range"] for row in shown)
    for partition in {row["partition"] for row in shown}:
        own = [row for row in shown if row["partition"] == partition]
        assert f"{len(own)} buckets" in str(earlier.inspect.ring(partition))
