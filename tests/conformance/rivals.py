"""Writers of two engines on one table at once, and the promises that must hold when they are done.

Each attempt to write has a tag, which its commit's metadata carries whichever engine made it. So
the timeline says which attempts completed, the journal says what each of them wrote and what its
writer was told, and between the two nothing is left to opinion.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

import pyhudi
from conformance.client import JudgeClient, JudgeError
from conformance.combinations import Combination, MergeMode, TableKind
from conformance.rows import encoded_rows, spark_columns
from conformance.sample_rows import ORDERING, Row, Sample
from conformance.writing import hudi_writer_options
from pyhudi.commit.write_ids import WRITE_ID_KEY
from pyhudi.conflict.file_groups import touched_groups
from pyhudi.conflict.rules import OtherWrite
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import decode_commit_metadata
from pyhudi.format.timeline.decision_entry import EntryKind
from pyhudi.format.timeline.instant import Action, Instant, State, is_timeline_file
from pyhudi.format.timeline.plan_files import decode_rollback_plan
from pyhudi.simulate.table.overlap import first_overlap
from pyhudi.storage.objects.decision_log import entries_after, load_entry
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage

TIMELINE = ".hoodie/timeline"
#: Hudi copies options with an underscore in front into the commit's metadata.
HUDI_TAG = "_tag"
#: Looking for a lock that another holds costs little here, and waiting five seconds much.
EAGER_LOCK = {
    "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
    "hoodie.write.lock.client.num_retries": "1200",
}
HUDI_CONFLICT = "ConcurrentModificationException"
ATTEMPTS_MAX = 25  # of one write, all of them lost to others


class Deed(StrEnum):
    """What a write does; the words are Hudi's too."""

    UPSERT = "upsert"
    DELETE = "delete"
    INSERT = "insert"  # of keys that nobody else writes


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to write, and what its writer was told: None is success."""

    tag: str
    deed: Deed
    rows: tuple[Row, ...]
    is_hudi: bool
    error: str | None


class Journal:
    """What all writers tried; they append to it from their threads."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []

    def lost_by(self, *, hudi: bool) -> int:
        return sum(a.is_hudi is hudi and a.error is not None for a in self.attempts)


@dataclass(frozen=True, slots=True)
class Shared:
    """A table that both engines write."""

    path: str
    combination: Combination
    buckets: int
    storage_options: Mapping[str, str] | None = None
    hudi_options: Mapping[str, str] | None = None  # beside those that every Hudi job needs

    @property
    def sample(self) -> Sample:
        return Sample(self.combination, null_elements=False)

    @property
    def is_non_blocking(self) -> bool:
        by_event = self.combination.merge is MergeMode.EVENT_TIME
        return by_event and self.combination.kind is TableKind.MOR

    def open(self, **settings: Any) -> pyhudi.Table:
        """The table for one more pyhudi writer."""
        return pyhudi.open_table(
            self.path,
            storage_options=self.storage_options,
            write_settings=pyhudi.WriteSettings(**settings),
        )

    @property
    def storage(self) -> Storage:
        return open_storage(self.path, self.storage_options)


# ---- writers


class Writer(Protocol):
    """Somebody who writes the table."""

    is_hudi: bool

    def write(self, deed: Deed, rows: pa.Table, tag: str) -> str | None:
        """Write; why it lost to another write, if it did. Any other failure is raised."""


class PyhudiWriter:
    is_hudi = False

    def __init__(
        self,
        shared: Shared,
        given: Callable[[pa.Table], Any] = lambda rows: rows,
        **settings: Any,
    ) -> None:
        """`given` makes the rows a frame of the engine that is to write them."""
        self._table = shared.open(**settings)
        self._sample = shared.sample
        self._given = given

    def write(self, deed: Deed, rows: pa.Table, tag: str) -> str | None:
        try:
            match deed:
                case Deed.UPSERT:
                    self._table.upsert(self._given(rows), write_id=tag)
                case Deed.INSERT:
                    self._table.append(self._given(rows), write_id=tag)
                case Deed.DELETE:
                    keys = rows.select([*self._sample.identity, ORDERING])
                    self._table.delete(self._given(keys), write_id=tag)
        except pyhudi.ConflictError as error:
            return str(error)
        return None


class HudiWriter:
    is_hudi = True

    def __init__(self, shared: Shared, judge: JudgeClient, options: Mapping[str, str]) -> None:
        self._shared = shared
        self._judge = judge
        self._options = options

    def write(self, deed: Deed, rows: pa.Table, tag: str) -> str | None:
        try:
            hudi_write(self._judge, self._shared, rows, deed, {**self._options, HUDI_TAG: tag})
        except JudgeError as error:
            if HUDI_CONFLICT not in str(error):
                raise
            return str(error)
        return None


def hudi_write(
    judge: JudgeClient,
    shared: Shared,
    rows: pa.Table,
    deed: str = Deed.UPSERT,
    options: Mapping[str, str] | None = None,
) -> None:
    name = shared.path.rpartition("/")[2]
    common = hudi_writer_options(name, shared.combination, buckets=shared.buckets)
    chosen = {**common, **EAGER_LOCK, **(shared.hudi_options or {}), **(options or {})}
    judge.hudi_write(shared.path, encoded_rows(rows), spark_columns(rows.schema), chosen, deed)


# ---- their work

#: Numbers with these rests of a division by six are in partitions of their own, of four.
RESTS = (0, 1, 3, 4)
KEYS_PER_PARTITION = 10
DEEDS = (Deed.UPSERT, Deed.UPSERT, Deed.UPSERT, Deed.DELETE, Deed.INSERT)


@dataclass(frozen=True, slots=True)
class Task:
    deed: Deed
    numbers: tuple[int, ...]


def shared_numbers() -> range:
    """The numbers of the rows that all writers fight for."""
    return range(6 * KEYS_PER_PARTITION)


def tasks(seed: int, writer: int, count: int, deeds: Sequence[Deed] = DEEDS) -> Iterator[Task]:
    """Writes of a few rows in one partition, and now and then in all of them."""
    chance = random.Random(f"{seed} {writer}")
    for place in range(count):
        rest = chance.choice(RESTS)
        deed = chance.choice(deeds)
        if deed is Deed.INSERT:
            start = 1_000 * (writer + 1) + 10 * place
            yield Task(deed, tuple(6 * n + rest for n in range(start, start + 3)))
            continue
        numbers = [6 * n + rest for n in chance.sample(range(KEYS_PER_PARTITION), 4)]
        if chance.random() < 0.2:
            numbers += [6 * n + other for n, other in enumerate(RESTS)]
        yield Task(deed, tuple(sorted(set(numbers))))


@dataclass(frozen=True, slots=True)
class Found:
    """A file of the timeline."""

    instant: Instant
    data: bytes
    changed_ns: int | None  # when it came to be there; an object store tells no more than seconds


class Chronicle:
    """Every file that was ever on the timeline, for Hudi may archive what it finds there."""

    def __init__(self, shared: Shared) -> None:
        self.found: dict[str, Found] = {}
        self._storage = shared.storage
        self._folder = None if "://" in shared.path else Path(shared.path) / TIMELINE

    def look(self) -> None:
        """Once more, when nobody writes, and what was half written by then is whole."""
        for stat in self._storage.list_folder(TIMELINE).objects:
            name = stat.path.rpartition("/")[2]
            if not is_timeline_file(name):
                continue
            try:
                data = self._storage.read(stat.path)
                folder = self._folder
                changed = None if folder is None else (folder / name).stat().st_ctime_ns
            except FileNotFoundError:
                continue
            self.found[name] = Found(Instant.parse(name), data, changed)


class Fray:
    """Writers at work at the same time, each with tasks of its own, and somebody who reads."""

    def __init__(self, shared: Shared) -> None:
        self.journal = Journal()
        self.chronicle = Chronicle(shared)
        self._shared = shared
        self._number = threading.Lock()
        self._attempts = 0
        self._has_hudi_begun = threading.Event()

    def run(self, work: Mapping[Writer, Iterable[Task]]) -> None:
        """Until all of it is done; a write that lost to another is tried again.

        Hudi takes seconds to begin its first write, so the others wait for that.
        """
        table = self._shared.open()
        self._has_hudi_begun.clear()
        self.chronicle.look()
        before = set(self.chronicle.found)
        with ThreadPoolExecutor(len(work)) as pool:
            futures = [pool.submit(self._do, writer, mine) for writer, mine in work.items()]
            while wait(futures, timeout=0.1).not_done:
                self.chronicle.look()
                if self.chronicle.found.keys() - before or any(f.done() for f in futures):
                    self._has_hudi_begun.set()
                self._check_keys(table.read(columns=list(self._shared.sample.identity)).to_arrow())
        self.chronicle.look()
        for future in futures:
            future.result()

    def _check_keys(self, keys: pa.Table) -> None:
        """Whatever a reader sees, it sees each row once."""
        assert keys.num_rows == len(set(map(tuple, (row.values() for row in keys.to_pylist()))))

    def _do(self, writer: Writer, mine: Iterable[Task]) -> None:
        if not writer.is_hudi:
            self._has_hudi_begun.wait()
        for task in mine:
            for _ in range(ATTEMPTS_MAX):
                if self._attempt(writer, task):
                    break
            else:
                raise AssertionError(f"{task} lost {ATTEMPTS_MAX} times")

    def _attempt(self, writer: Writer, task: Task) -> bool:
        with self._number:
            self._attempts += 1
            number = self._attempts
        tag = f"attempt {number}"
        rows = self.rows(task.numbers, number)
        error = writer.write(task.deed, self._shared.sample.table(rows), tag)
        attempt = Attempt(tag, task.deed, tuple(rows), writer.is_hudi, error)
        self.journal.attempts.append(attempt)
        return error is None

    def rows(self, numbers: Iterable[int], attempt: int) -> list[Row]:
        """No two attempts give a row the same ordering value, and the later may have the lesser."""
        seen_at = 1 + attempt * 7_919 % 10_007
        return [self._shared.sample.row(n, written=attempt, seen_at=seen_at) for n in numbers]


# ---- what is left

#: By key, the ordering value and the row; None is a row that was deleted.
Stored: TypeAlias = dict[tuple[Any, ...], tuple[int, Row | None]]


@dataclass(frozen=True, slots=True)
class Done:
    """A write that completed."""

    requested: str
    completed: str
    tag: str | None
    groups: frozenset[FileGroupId]


class Aftermath:
    """The table when all are done."""

    def __init__(self, shared: Shared, fray: Fray) -> None:
        self._shared = shared
        self._journal = fray.journal
        self._storage = shared.storage
        self._found = fray.chronicle.found
        self._instants = [found.instant for found in self._found.values()]
        # Hudi's compactions bear the tag of the write that they come after.
        is_mor = shared.combination.kind is TableKind.MOR
        action = Action.DELTACOMMIT if is_mor else Action.COMMIT
        completed = [f for f in self._found.values() if f.instant.state is State.COMPLETED]
        self._done = [_done(found) for found in completed if found.instant.action is action]
        self._done.sort(key=lambda done: done.completed)

    def check(self) -> None:
        self._check_outcomes()
        self._check_order_of_times()
        self._check_rollbacks()
        if not self._shared.is_non_blocking:
            self._check_overlaps()

    def meetings(self) -> int:
        """How often a write of Hudi and one of pyhudi were under way at once; who lost met one."""
        by_hudi = {attempt.tag for attempt in self._journal.attempts if attempt.is_hudi}
        tagged = [done for done in self._done if done.tag is not None]
        theirs = [done for done in tagged if done.tag in by_hudi]
        ours = [done for done in tagged if done.tag not in by_hudi]
        overlapping = sum(
            one.requested < other.completed and other.requested < one.completed
            for one in theirs
            for other in ours
        )
        return overlapping + self._journal.lost_by(hudi=True)

    def _check_outcomes(self) -> None:
        """What was acknowledged completed once, and nothing else did."""
        told = {a.tag for a in self._journal.attempts if a.error is None}
        completed = Counter(done.tag for done in self._done if done.tag is not None)
        assert completed == Counter(told)

    def _check_order_of_times(self) -> None:
        """Times appear on the timeline in their order: no reader sees one behind a later one."""
        published = [
            (found.changed_ns, found.instant.completed or found.instant.requested, name)
            for name, found in self._found.items()
            if found.instant.state is not State.INFLIGHT
            and found.instant.action is not Action.ROLLBACK
            and found.changed_ns is not None
        ]
        for (_, time, name), (_, later_time, later_name) in pairwise(sorted(published)):
            assert time < later_time, f"{later_name} was published after {name}"

    def _check_rollbacks(self) -> None:
        """No write was rolled back that completed or whose writer was at work."""
        targets = Counter(self._targets())
        assert not [target for target, count in targets.items() if count > 1]
        assert not targets.keys() & {done.requested for done in self._done}
        own = self._begun_by_pyhudi()
        foreign = [target for target in targets if target not in own]
        assert len(foreign) <= self._journal.lost_by(hudi=True)
        finished = {i.requested for i in self._instants if i.state is State.COMPLETED}
        pending = {i.requested for i in self._instants} - finished - targets.keys()
        assert not pending & own, "a pyhudi writer left something behind"
        assert len(pending) + len(foreign) <= self._journal.lost_by(hudi=True)

    def _targets(self) -> Iterator[str]:
        for name, found in self._found.items():
            if found.instant.action is Action.ROLLBACK and found.instant.state is State.REQUESTED:
                named = decode_rollback_plan(found.data, name).instant_to_rollback
                assert named is not None
                yield named.commit_time

    def _begun_by_pyhudi(self) -> set[str]:
        numbers = [number for number, _ in entries_after(self._storage, 0)]
        entries = (load_entry(self._storage, number) for number in numbers)
        return {e.instant or "" for e in entries if e is not None and e.kind is EntryKind.BEGIN}

    def _check_overlaps(self) -> None:
        """Two writes to one file group count in the order in which they completed.

        Logs are merged in the order of requests, and may be committed behind an overlapping write.
        A copy on write builds on what it found: a pyhudi writer looks around when it begins, so
        the other must have completed by then, and a Hudi writer a moment later.
        """
        looks_late = {attempt.tag for attempt in self._journal.attempts if attempt.is_hudi}
        is_cow = self._shared.combination.kind is TableKind.COW
        for place, later in enumerate(self._done):
            is_strict = is_cow and later.tag not in looks_late
            others = [
                OtherWrite(done.requested, done.completed, done.groups)
                for done in self._done[:place]
                if (done.completed if is_strict else done.requested) > later.requested
            ]
            overlap = first_overlap(later.groups, others)
            assert overlap is None, f"{overlap} and {later} both completed"

    # -- the model

    def expected_rows(self, first: Iterable[Row]) -> pa.Table:
        """What the table must hold, by the acknowledged writes in the order in which they count."""
        stored: Stored = {}
        attempts = {attempt.tag: attempt for attempt in self._journal.attempts}
        sample = self._shared.sample
        for row in first:
            stored[_name(sample, row)] = (row[ORDERING], row)
        # Logs are merged in the order of requests, which an unordered delete depends on.
        order = "requested" if self._shared.is_non_blocking else "completed"
        for done in sorted(self._done, key=lambda done: str(getattr(done, order))):
            if done.tag is not None:
                self._fold(attempts[done.tag], stored)
        rows = [row for _, row in stored.values() if row is not None]
        return sample.table(rows)

    def _fold(self, attempt: Attempt, stored: Stored) -> None:
        by_event = self._shared.combination.merge is MergeMode.EVENT_TIME
        for row in attempt.rows:
            name = _name(self._shared.sample, row)
            known, _ = stored.get(name, (0, None))
            if attempt.deed is Deed.DELETE and attempt.is_hudi:
                stored.pop(name, None)  # Hudi's deletes have no ordering value
            elif not by_event or row[ORDERING] >= known:
                is_delete = attempt.deed is Deed.DELETE
                stored[name] = (row[ORDERING], None if is_delete else row)
        if self._shared.combination.kind is TableKind.COW:
            for name in [n for n, (_, row) in stored.items() if row is None]:
                del stored[name]  # no trace of it is kept


def _done(found: Found) -> Done:
    instant = found.instant
    metadata = decode_commit_metadata(found.data, instant.file_name)
    extra = metadata.extra_metadata or {}
    tag = extra.get(WRITE_ID_KEY) or extra.get(HUDI_TAG)
    assert instant.completed is not None
    return Done(instant.requested, instant.completed, tag, touched_groups(metadata))


def _name(sample: Sample, row: Row) -> tuple[Any, ...]:
    return tuple(row[column] for column in sample.identity)
