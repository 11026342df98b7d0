"""What every storage promises, asked of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.errors import CorruptTableError
from pyhudi.storage.protocol import Folder, Storage

THREADS = 8

T = TypeVar("T")


def paths(storage: Storage, prefix: str = "", after: str | None = None) -> list[str]:
    return [stat.path for stat in storage.list(prefix, after=after)]


def test_created_object_is_read_back(storage: Storage) -> None:
    assert storage.create("a/b", b"12345")
    assert storage.read("a/b") == b"12345"


def test_create_leaves_a_taken_path_alone(storage: Storage) -> None:
    storage.create("a/b", b"first")
    before = storage.stat("a/b")
    assert not storage.create("a/b", b"second")
    assert storage.read("a/b") == b"first"
    assert storage.stat("a/b") == before


@pytest.mark.parametrize(
    "chunks",
    [[], [b""], [b"ab", b"", b"c"], [bytes([n]) * (3 << 20) for n in range(4)]],
    ids=["nothing", "empty", "short", "longer than memory may hold"],
)
def test_stream_is_created_whole(storage: Storage, chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    assert storage.create_from("a/b", iter(chunks)) == len(whole)
    assert storage.read("a/b") == whole
    assert storage.create_from("a/b", iter([b"again"])) is None
    assert storage.read("a/b") == whole


@pytest.mark.parametrize("error", [ValueError("bad row"), OSError(5, "source is gone")])
def test_stream_that_raises_leaves_nothing(storage: Storage, error: Exception) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"x" * 100_000
        raise error

    with pytest.raises(type(error)) as caught:
        storage.create_from("a/b", chunks())
    assert caught.value is error
    assert storage.stat("a/b") is None
    assert paths(storage) == []
    assert storage.create("a/b", b"free")


def test_replace_needs_the_version_that_is_there(storage: Storage) -> None:
    first = storage.write("lock", b"1")
    second = storage.replace("lock", b"2", etag=first)
    assert second is not None
    assert second != first
    assert storage.replace("lock", b"3", etag=first) is None
    assert storage.read("lock") == b"2"
    assert storage.replace("lock", b"4", etag=second) is not None
    assert storage.read("lock") == b"4"


def test_replace_of_what_is_gone_changes_nothing(storage: Storage) -> None:
    etag = storage.write("lock", b"1")
    storage.delete("lock")
    assert storage.replace("lock", b"2", etag=etag) is None
    assert storage.stat("lock") is None


def test_created_object_can_be_replaced_by_its_stat(storage: Storage) -> None:
    storage.create("a/b", b"1")
    stat = storage.stat("a/b")
    assert stat is not None
    assert stat.etag is not None
    assert storage.replace("a/b", b"2", etag=stat.etag) is not None


def test_every_write_has_an_etag_of_its_own(storage: Storage) -> None:
    etags = [storage.write("beat", f"{n:04}".encode()) for n in range(40)]
    for n in range(40, 80):
        etags.append(storage.replace("beat", f"{n:04}".encode(), etag=etags[-1]) or "lost")
    assert len(set(etags)) == 80
    stat = storage.stat("beat")
    assert stat is not None
    assert stat.etag == etags[-1]


def test_object_created_anew_is_another_version(storage: Storage) -> None:
    seen = set()
    for n in range(20):
        storage.create("again", f"{n:04}".encode())
        stat = storage.stat("again")
        assert stat is not None
        seen.add(stat.etag)
        storage.delete("again")
    assert len(seen) == 20


@pytest.mark.parametrize(
    ("start", "end"),
    [
        *[(0, None), (3, None), (5, None), (9, None)],
        *[(0, 0), (0, 5), (1, 3), (3, 3), (3, 100), (5, 5), (5, 6), (6, 6), (100, 200)],
    ],
)
def test_read_gives_what_there_is_of_a_range(storage: Storage, start: int, end: int | None) -> None:
    storage.create("a", b"12345")
    assert storage.read("a", start, end) == b"12345"[start:end]


@pytest.mark.parametrize(
    "ranges",
    [
        [],
        [(0, 3)],
        [(4, 9), (0, 3), (2, 6), (0, 3)],
        [(0, 0), (7, 7)],
        [(0, 10), (3 << 20, (3 << 20) + 10), (1 << 19, (1 << 19) + 5)],
        [(0, 10), (1 << 40, 1 << 41)],
        [((4 << 20) - 5, (4 << 20) + 5), (4 << 20, 5 << 20), (9 << 20, 10 << 20)],
    ],
)
def test_ranges_are_read_as_one_by_one(storage: Storage, ranges: list[tuple[int, int]]) -> None:
    data = bytes(range(256)) * (1 << 14)
    storage.create("a", data)
    assert list(storage.read_ranges("a", ranges)) == [data[start:end] for start, end in ranges]


def test_empty_object_has_no_bytes_to_read(storage: Storage) -> None:
    storage.create("empty", b"")
    assert storage.read("empty") == b""
    assert storage.read("empty", 0, 10) == b""
    assert list(storage.read_ranges("empty", [(0, 4), (2, 2)])) == [b"", b""]
    with storage.open("empty") as file:
        assert file.read() == b""


@pytest.mark.parametrize(
    "read",
    [
        lambda storage: storage.read("none"),
        lambda storage: storage.read("none", 3),
        lambda storage: storage.read("none", 1, 2),
        lambda storage: storage.read("none", 2, 2),
        lambda storage: storage.read_ranges("none", [(0, 1), (5, 9)]),
        lambda storage: storage.read("folder"),
        lambda storage: storage.read("folder/object/deeper"),
        lambda storage: storage.open("none"),
        lambda storage: storage.open("folder"),
    ],
)
def test_reading_what_is_not_there_finds_no_file(
    storage: Storage, read: Callable[[Storage], object]
) -> None:
    storage.create("folder/object", b"1")
    with pytest.raises(FileNotFoundError):
        read(storage)


def test_stat_tells_size_and_time(storage: Storage) -> None:
    storage.create("a/b", b"12345")
    stat = storage.stat("a/b")
    assert stat is not None
    assert (stat.path, stat.size) == ("a/b", 5)
    if not storage.uri.startswith("memory"):
        assert abs(stat.modified_ms - time.time() * 1000) < 60_000
    assert storage.stat("a") is None
    assert storage.stat("a/b/c") is None
    assert storage.stat("none") is None


NAMES = [
    *["a", "a-b/c", "a.b", "ab", "d/a/b", "d/a-b", "d/a.b", "d/b", "e/\uffff", "e/\U0001f600"],
    *["e/é", "e/z", "e/e\u0301"],
]


def test_listing_is_in_byte_order_of_whole_paths(storage: Storage) -> None:
    for name in NAMES:
        storage.create(name, name.encode())
    found = list(storage.list(""))
    assert [stat.path for stat in found] == sorted(NAMES, key=str.encode)
    for stat in found:
        assert stat == storage.stat(stat.path)
        assert stat.size == len(stat.path.encode())


@pytest.mark.parametrize(
    ("prefix", "after", "expected"),
    [
        ("d", None, ["d/a-b", "d/a.b", "d/a/b", "d/b"]),
        ("d/a", None, ["d/a/b"]),
        ("a", None, []),  # an object, and a beginning of other names, but no folder
        ("nowhere", None, []),
        ("d", "d/a.b", ["d/a/b", "d/b"]),
        ("d", "d/a", ["d/a-b", "d/a.b", "d/a/b", "d/b"]),
        ("d", "d/a/a", ["d/a/b", "d/b"]),
        ("d", "d/a/b", ["d/b"]),
        ("d", "d/a/c", ["d/b"]),
        ("d", "d/zzz", []),
        ("d", "c", ["d/a-b", "d/a.b", "d/a/b", "d/b"]),
        ("d", "e", []),
        ("", "d/a/b", ["d/b", "e/e\u0301", "e/z", "e/é", "e/\uffff", "e/\U0001f600"]),
        ("", "e/é", ["e/\uffff", "e/\U0001f600"]),
    ],
)
def test_listing_begins_after_a_path(
    storage: Storage, prefix: str, after: str | None, expected: list[str]
) -> None:
    for name in NAMES:
        storage.create(name, b"")
    assert paths(storage, prefix, after) == expected


def test_listing_follows_every_page(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "7")
    names = [f"p/{n:05}" for n in range(30)]
    for name in names:
        storage.create(name, b"1")
    assert paths(storage, "p") == names
    assert paths(storage, "p", after=names[-3]) == names[-2:]
    assert [stat.path for stat in storage.list_folder("p").objects] == names


def test_folder_lists_one_level(storage: Storage) -> None:
    for name in NAMES:
        storage.create(name, b"1")
    level = storage.list_folder("d")
    assert level.folders == ("d/a",)
    assert [stat.path for stat in level.objects] == ["d/a-b", "d/a.b", "d/b"]
    assert list(level.objects) == [storage.stat(stat.path) for stat in level.objects]
    assert storage.list_folder("nowhere") == Folder((), ())


def test_root_lists_one_level(storage: Storage) -> None:
    for name in NAMES:
        storage.create(name, b"1")
    level = storage.list_folder("")
    # Local disk may keep folders of its own; they lie under .hoodie.
    assert [name for name in level.folders if name != ".hoodie"] == ["a-b", "d", "e"]
    assert [stat.path for stat in level.objects] == ["a", "a.b", "ab"]


def test_deleting_twice_is_no_error(storage: Storage) -> None:
    storage.create("a/b", b"1")
    storage.delete("a/b")
    storage.delete("a/b")
    storage.delete("never/was")
    assert storage.stat("a/b") is None
    assert paths(storage) == []
    assert storage.create("a/b", b"2")


def test_many_are_deleted_at_once_and_those_that_are_gone_are_no_error(storage: Storage) -> None:
    made = [f"many/{number:04}" for number in range(1_003)]
    for path in (made[0], made[1], made[-1], "many-more/0"):
        storage.create(path, b"1")
    storage.delete_all(made)
    assert paths(storage) == ["many-more/0"]
    storage.delete_all(made[:2])
    storage.delete_all([])
    assert paths(storage) == ["many-more/0"]


def test_many_are_looked_for_at_once_and_told_in_the_order_asked(storage: Storage) -> None:
    asked = [f"many/{number:03}" for number in range(100)]
    there = asked[::7]
    for path in there:
        storage.create(path, path.encode() * 2)
    found = storage.stat_all(asked[::-1])
    assert [stat.path for stat in found if stat is not None] == there[::-1]
    assert [stat is not None for stat in found] == [path in there for path in asked[::-1]]
    assert found[-1] == storage.stat(asked[0])
    assert list(storage.stat_all([])) == []


def test_one_bad_path_among_many_is_refused(storage: Storage) -> None:
    with pytest.raises(CorruptTableError):
        storage.delete_all(["fine", "../elsewhere"])
    with pytest.raises(CorruptTableError):
        storage.stat_all(["fine", "../elsewhere"])


def test_deleting_a_folder_keeps_what_is_in_it(storage: Storage) -> None:
    storage.create("a/b", b"1")
    storage.delete("a")
    assert storage.read("a/b") == b"1"


@pytest.mark.parametrize(
    "name",
    [
        *["sp ace", "p=..%2F..%2Fx", "a%2e%2e", "q?x#y", "plus+", "k=v", "c:d", "it's", '"', "*"],
        *["tilde~", "{}", "x|y", "<>", "^`", "ünï", "e\u0301", "\U0001f600", "...", "..x", "%"],
    ],
)
def test_odd_name_is_taken_literally(storage: Storage, name: str) -> None:
    path = f"f/{name}/{name}"
    assert storage.create(path, b"1")
    assert paths(storage, "f") == [path]
    assert paths(storage, f"f/{name}") == [path]
    assert storage.read(path) == b"1"
    assert storage.list_folder("f").folders == (f"f/{name}",)
    storage.delete(path)
    assert paths(storage, "f") == []
    assert storage.create(path, b"2")
    storage.delete_all([path, f"{path}2"])
    assert paths(storage, "f") == []


def test_parquet_is_read_from_an_open_file(storage: Storage) -> None:
    table = pa.table({"a": list(range(10_000)), "b": [f"row {n}" for n in range(10_000)]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=1_000)
    storage.create("d/f.parquet", sink.getvalue().to_pybytes())
    with storage.open("d/f.parquet") as file, pq.ParquetFile(file) as parquet:
        assert parquet.num_row_groups == 10
        assert parquet.read_row_group(7, columns=["b"])["b"][0].as_py() == "row 7000"
        assert parquet.read().equals(table)


def test_open_file_is_read_at_any_place(storage: Storage) -> None:
    storage.create("a", b"0123456789")
    with storage.open("a") as file:
        assert file.size() == 10
        assert file.read(3) == b"012"
        file.seek(8)
        assert (file.read(5), file.tell(), file.read(1)) == (b"89", 10, b"")
        assert file.read_at(4, 2) == b"2345"


def at_once(action: Callable[[int], T]) -> list[T]:
    """What each of several threads gets from the action, all started together."""
    barrier = threading.Barrier(THREADS)

    def act(n: int) -> T:
        barrier.wait()
        return action(n)

    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(act, range(THREADS)))


def test_exactly_one_thread_creates(storage: Storage) -> None:
    def create(me: int) -> bool:
        return storage.create(path, str(me).encode())

    for path in ("race/1", "race/2", "race/3", "race/4", "race/5"):
        won = at_once(create)
        assert sorted(won) == [False] * (THREADS - 1) + [True]
        assert storage.read(path) == str(won.index(True)).encode()


def test_exactly_one_thread_creates_from_a_stream(storage: Storage) -> None:
    won = at_once(lambda me: storage.create_from("race", [str(me).encode()] * 3))
    assert sorted(size is None for size in won) == [False] + [True] * (THREADS - 1)
    assert storage.read("race") == str(won.index(3)).encode() * 3


def test_exactly_one_thread_replaces_a_version(storage: Storage) -> None:
    etag = storage.write("race", b"start")

    def replace(me: int) -> str | None:
        # Bytes that were never there before: to S3 the same bytes are the same version.
        return storage.replace("race", f"{etag} {me}".encode(), etag=etag)

    for _ in range(5):
        won = at_once(replace)
        (winner,) = [me for me, answer in enumerate(won) if answer is not None]
        assert storage.read("race") == f"{etag} {winner}".encode()
        etag = str(won[winner])


def test_counter_kept_by_replacing_loses_no_count(storage: Storage) -> None:
    storage.write("count", b"0")

    def count(_: int) -> None:
        for _ in range(3):
            while True:
                stat = storage.stat("count")
                value = int(storage.read("count"))
                assert stat is not None
                assert stat.etag is not None
                if storage.replace("count", str(value + 1).encode(), etag=stat.etag):
                    break

    at_once(count)
    assert int(storage.read("count")) == THREADS * 3
