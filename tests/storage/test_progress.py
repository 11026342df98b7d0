from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faulty_storage import Effect, Fault, FaultyStorage
from pyhudi.errors import UnavailableError
from pyhudi.storage.objects import progress as progress_files
from pyhudi.storage.objects.progress import (
    BYTES_MAX,
    PROGRESS_FOLDER,
    JobProgress,
    TaskProgress,
    Totals,
    clear_progress,
    decode_totals,
    encode_totals,
    progress_path,
)
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage

INSTANT = "20260102030405678"
LATER = "20260102030405679"


class Clock:
    ms = 0

    def __call__(self) -> int:
        return self.ms


def test_driver_adds_up_what_tasks_say(storage: Storage) -> None:
    job, clock = JobProgress(storage, INSTANT), Clock()
    assert job.load() == Totals()
    first, second = (TaskProgress(storage, INSTANT, name, clock) for name in ("0", "1"))
    other = TaskProgress(storage, LATER, "0", clock)
    clock.ms += 1_000
    first.add(rows=1, bytes=10, files=0)
    second.add(rows=2, bytes=20, files=1)
    other.add(rows=1_000)
    assert job.load() == Totals(3, 30, 1)
    first.add(rows=1, bytes=10, files=1)
    first.end()
    assert job.load() == Totals(4, 40, 2)
    clear_progress(storage, INSTANT)
    assert job.load() == Totals()
    assert [stat.path for stat in storage.list(PROGRESS_FOLDER)] == [progress_path(LATER, "0")]
    assert JobProgress(storage, LATER).load() == Totals(rows=1_000)


def writes(memory: MemoryStorage, task: TaskProgress, clock: Clock, steps_ms: list[int]) -> int:
    """How often the task writes while it adds after each of these steps."""
    etags = set()
    for step in steps_ms:
        clock.ms += step
        task.add(rows=1)
        etags |= {stat.etag for stat in memory.list(PROGRESS_FOLDER)}
    return len(etags)


@pytest.mark.parametrize(
    ("steps_ms", "times"),
    [
        ([], 0),
        ([0, 0, 0], 0),
        ([999], 0),
        ([1_000], 1),
        ([500] * 4, 2),
        ([1_000, 999], 1),
        ([1_000, 1_000, 5_000, 0], 3),
    ],
)
def test_task_writes_at_most_once_a_second(
    memory: MemoryStorage, steps_ms: list[int], times: int
) -> None:
    clock = Clock()
    task = TaskProgress(memory, INSTANT, "0", clock)
    assert writes(memory, task, clock, steps_ms) == times


def test_end_tells_what_was_not_told_and_nothing_else(memory: MemoryStorage) -> None:
    clock = Clock()
    task = TaskProgress(memory, INSTANT, "0", clock)
    task.end()
    assert list(memory.list("")) == []
    task.add(rows=1)
    task.end()
    (told,) = memory.list(PROGRESS_FOLDER)
    task.end()
    assert list(memory.list(PROGRESS_FOLDER)) == [told]


def test_attempts_of_one_task_count_once(memory: MemoryStorage) -> None:
    for rows in (5, 3):
        attempt = TaskProgress(memory, INSTANT, "0", Clock())
        attempt.add(rows=rows)
        attempt.end()
    assert JobProgress(memory, INSTANT).load() == Totals(rows=3)


def test_task_whose_progress_cannot_be_written_goes_on_and_tries_no_more(
    memory: MemoryStorage,
) -> None:
    fails_once = FaultyStorage(memory, (Fault(Effect.FAIL, "write"),))
    clock = Clock()
    task = TaskProgress(fails_once, INSTANT, "0", clock)
    for _ in range(3):
        clock.ms += 1_000
        task.add(rows=1)
    task.end()
    assert list(memory.list("")) == []


FOREIGN = [
    b"",
    b"{",
    b'{"rows": 1, "bytes": 2, "fil',
    b"\xff\xfe\x00",
    b"null",
    b"[1, 2, 3]",
    b'{"rows": 1, "bytes": 2}',
    b'{"rows": "1", "bytes": 2, "files": 3}',
    b'{"rows": 1.5, "bytes": 2, "files": 3}',
    b'{"rows": -1, "bytes": 2, "files": 3}',
    b'{"rows": NaN, "bytes": 2, "files": 3}',
    b'{"rows": 9223372036854775808, "bytes": 2, "files": 3}',
    b"[" * BYTES_MAX,
    b'{"rows": 1, "bytes": 2, "files": 3}' + b" " * BYTES_MAX,
    b"9" * 10_000,
]


@pytest.mark.parametrize("data", FOREIGN)
def test_content_that_makes_no_sense_counts_as_nothing(memory: MemoryStorage, data: bytes) -> None:
    good = Totals(1, 2, 3)
    memory.write(progress_path(INSTANT, "good"), encode_totals(good))
    memory.write(progress_path(INSTANT, "bad"), data)
    assert JobProgress(memory, INSTANT).load() == good


@settings(deadline=None, max_examples=100)
@given(st.builds(Totals, *[st.integers(0, 2**63 - 1)] * 3))
def test_totals_survive_the_way_through_storage(totals: Totals) -> None:
    data = encode_totals(totals)
    assert len(data) <= BYTES_MAX
    assert decode_totals(data) == totals


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=400))
def test_any_bytes_decode(data: bytes) -> None:
    assert isinstance(decode_totals(data), Totals)


@pytest.mark.parametrize(
    "name",
    [INSTANT, f"{INSTANT}-x", f"{INSTANT}.a.b", f"{INSTANT}/0", f"{INSTANT}.t/0", "0", "zzz"],
)
def test_foreign_objects_are_neither_counted_nor_removed(memory: MemoryStorage, name: str) -> None:
    foreign = f"{PROGRESS_FOLDER}/{name}"
    memory.write(foreign, encode_totals(Totals(9, 9, 9)))
    memory.write(progress_path(INSTANT, "0"), encode_totals(Totals(1, 1, 1)))
    assert JobProgress(memory, INSTANT).load() == Totals(1, 1, 1)
    clear_progress(memory, INSTANT)
    assert [stat.path for stat in memory.list("")] == [foreign]


class Reads(MemoryStorage):
    """Remembers what was read."""

    def __init__(self) -> None:
        clock = itertools.count(1)
        super().__init__(lambda: next(clock))
        self.paths: list[str] = []

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        self.paths.append(path.rpartition(".")[2])
        return super().read(path, start, end)


def say(storage: Storage, tasks: str, totals: Totals) -> None:
    for task in tasks:
        storage.write(progress_path(INSTANT, task), encode_totals(totals))


def test_load_reads_only_what_changed() -> None:
    storage = Reads()
    job = JobProgress(storage, INSTANT)
    say(storage, "abc", Totals(rows=1))
    assert job.load() == Totals(rows=3)
    say(storage, "b", Totals(rows=5))
    assert job.load() == Totals(rows=7)
    assert storage.paths == ["a", "b", "c", "b"]


def test_many_tasks_are_read_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_files, "READS_MAX", 2)
    storage = Reads()
    job = JobProgress(storage, INSTANT)
    seen = []
    for rows in range(1, 5):
        say(storage, "abcd", Totals(rows=rows))  # all of them change each time
        seen.append(job.load().rows)
    assert "".join(storage.paths) == "abcdabcd"
    assert seen == [1 + 1, 1 + 1 + 2 + 2, 3 + 3 + 2 + 2, 3 + 3 + 4 + 4]


def test_object_that_goes_while_it_is_read_counts_as_nothing(memory: MemoryStorage) -> None:
    class Vanishing(Reads):
        def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
            raise FileNotFoundError(path)

    storage = Vanishing()
    say(storage, "a", Totals(rows=1))
    assert JobProgress(storage, INSTANT).load() == Totals()


def test_driver_is_told_when_storage_does_not_answer(memory: MemoryStorage) -> None:
    down = FaultyStorage(memory, (Fault(Effect.FAIL, "list", times=None),))
    with pytest.raises(UnavailableError):
        JobProgress(down, INSTANT).load()
