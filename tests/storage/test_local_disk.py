"""What only local disk has: other processes, crashes, links, and temporary files."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyhudi
from pyhudi.errors import CorruptTableError, InvalidRequestError, UnavailableError
from pyhudi.format.timeline.markers import MARKER_ROOT as MARKERS
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores import local_files
from pyhudi.storage.stores.local_disk import TEMPORARY_FOLDER, LocalStorage
from pyhudi.storage.stores.local_files import held
from pyhudi.storage.stores.memory import MemoryStorage

PROCESSES = 4


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def storage(root: Path) -> LocalStorage:
    return LocalStorage(str(root))


@pytest.fixture
def named_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system where no file is without a name."""
    monkeypatch.setattr(local_files, "_has_unnamed_files", lambda *_: False)


def temporary_files(root: Path) -> list[Path]:
    return list((root / TEMPORARY_FOLDER).iterdir())


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        list(pool.map(abs, range(PROCESSES), chunksize=1))
        yield pool


def test_exactly_one_process_creates(storage: LocalStorage, processes: ProcessPoolExecutor) -> None:
    for n in range(40):
        data = [f"{n} {me}".encode() for me in range(PROCESSES)]
        won = list(processes.map(storage.create, [f"race/{n}"] * PROCESSES, data))
        assert sum(won) == 1
        assert storage.read(f"race/{n}") == data[won.index(True)]


def test_exactly_one_process_replaces_a_version(
    storage: LocalStorage, processes: ProcessPoolExecutor
) -> None:
    etag = storage.write("race", b"start")
    for n in range(40):
        futures = [
            processes.submit(storage.replace, "race", f"{n} {me}".encode(), etag=etag)
            for me in range(PROCESSES)
        ]
        won = [future.result() for future in futures]
        (winner,) = [me for me, answer in enumerate(won) if answer is not None]
        assert storage.read("race") == f"{n} {winner}".encode()
        etag = str(won[winner])


def test_overwriting_and_deleting_respect_a_replacement_under_way(
    storage: LocalStorage, processes: ProcessPoolExecutor
) -> None:
    """A replacement that reports success was the newest version when it happened."""
    for n in range(20):
        etag = storage.write("race", b"start")
        overwritten = processes.submit(storage.write, "race", b"unconditional")
        replaced = processes.submit(storage.replace, "race", b"conditional", etag=etag)
        assert overwritten.result() != replaced.result()
        assert storage.read("race") == b"unconditional", f"round {n}"


def test_who_waited_for_a_file_that_was_replaced_waits_for_the_new_one(
    storage: LocalStorage, root: Path
) -> None:
    storage.create("a", b"old")
    (root / "other").write_bytes(b"new")
    writer = threading.Thread(target=storage.write, args=("a", b"late"))
    with contextlib.ExitStack() as new:
        with held(str(root / "a")):
            writer.start()
            writer.join(0.2)  # it is waiting by then
            os.rename(root / "other", root / "a")
            new.enter_context(held(str(root / "a")))
        writer.join(0.2)
        assert writer.is_alive()
        assert storage.read("a") == b"new"
    writer.join()
    assert storage.read("a") == b"late"


def test_versions_differ_although_the_clock_stands_still(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    etags = [storage.write("a", b"same size") for _ in range(50)]
    assert len(set(etags)) == 50
    stat = storage.stat("a")
    assert stat is not None
    assert stat.modified_ms == 1_700_000_000_000


def test_reader_sees_one_version_or_the_other(storage: LocalStorage) -> None:
    versions = [bytes([n]) * 10_000 for n in range(2)]
    storage.write("beat", versions[0])
    done = threading.Event()

    def overwrite() -> None:
        for n in range(60):
            storage.write("beat", versions[n % 2])
        done.set()

    writer = threading.Thread(target=overwrite)
    writer.start()
    seen = set()
    while not done.is_set():
        seen.add(storage.read("beat"))
    writer.join()
    assert seen <= set(versions)


# In each, the named call of the system ends the process, before or after it does its work.
CRASHES = [
    ("fsync", "before"),
    ("link", "before"),
    ("link", "after"),
    ("rename", "before"),
    ("rename", "after"),
    ("unlink", "before"),
]
CRASHING = """
import os, sys
from pyhudi.storage.stores.local_disk import LocalStorage
root, name, when = sys.argv[1:]
storage = LocalStorage(root)
stat = storage.stat("old")
real = getattr(os, name)
def ends(*arguments, **keywords):
    if when == "after":
        real(*arguments, **keywords)
    os._exit(9)
setattr(os, name, ends)
if name == "rename":
    storage.replace("old", b"replaced", etag=stat.etag)
else:
    storage.create("new", b"created")
"""


@pytest.mark.parametrize(("name", "when"), CRASHES)
def test_crash_leaves_all_or_nothing(
    storage: LocalStorage, root: Path, name: str, when: str
) -> None:
    storage.create("old", b"original")
    command = [sys.executable, "-c", CRASHING, str(root), name, when]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(command, env=environment, check=False).returncode == 9

    found = {stat.path: storage.read(stat.path) for stat in storage.list("")}
    assert found.pop("old") in (b"original", b"replaced" if name == "rename" else b"original")
    assert found in ({}, {"new": b"created"})

    # Who comes next is not held up, and clears away what was left.
    successor = LocalStorage(str(root))
    assert successor.create("next", b"1")
    assert successor.write("old", b"again")
    assert temporary_files(root) == []


@pytest.mark.usefixtures("named_files")
def test_sweep_spares_the_file_of_a_writer_at_work(storage: LocalStorage, root: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        assert LocalStorage(str(root)).create("other", b"1")  # sweeps
        assert len(temporary_files(root)) == 1
        yield b" and half"

    assert storage.create_from("slow", chunks()) == 13
    assert storage.read("slow") == b"half and half"
    assert temporary_files(root) == []


@pytest.mark.usefixtures("named_files")
def test_file_swept_before_it_was_locked_is_made_again(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.create("first", b"1")
    opened, swept = os.open, list[str]()

    def open_and_lose(place: str, flags: int, *rest: int) -> int:
        descriptor = opened(place, flags, *rest)
        if flags & os.O_EXCL and not swept:
            os.unlink(place)
            swept.append(place)
        return descriptor

    monkeypatch.setattr(os, "open", open_and_lose)
    assert storage.create("second", b"2")
    assert swept
    assert storage.read("second") == b"2"


def test_lock_does_not_outlive_its_call_in_a_forked_child(storage: LocalStorage) -> None:
    """A child forked in the middle of a write holds the same open files until it ends."""
    children = []

    def chunks() -> Iterator[bytes]:
        yield b"1"
        child = subprocess.Popen(["sleep", "20"], pass_fds=locked())
        children.append(child)

    def locked() -> list[int]:
        return [int(name) for name in os.listdir("/proc/self/fd") if is_temporary(name)]

    def is_temporary(name: str) -> bool:
        try:
            return TEMPORARY_FOLDER in os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            return False

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs a system that shows the open files of a process")
    try:
        storage.create_from("beat", chunks())
        assert storage.write("beat", b"2")
        assert storage.read("beat") == b"2"
    finally:
        for child in children:
            child.kill()
            child.wait()


@pytest.mark.usefixtures("named_files")
def test_no_listing_shows_temporary_files(storage: LocalStorage, root: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"1"
        assert len(temporary_files(root)) == 1
        assert [stat.path for stat in storage.list("")] == []
        assert list(storage.list(TEMPORARY_FOLDER)) == []
        assert storage.list_folder(TEMPORARY_FOLDER).objects == ()
        above, _, _ = TEMPORARY_FOLDER.rpartition("/")
        assert storage.list_folder(above).folders == ()

    storage.create_from("a", chunks())
    assert [stat.path for stat in storage.list("")] == ["a"]


@pytest.mark.parametrize("call", ["fsync", "link", "utime"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_disk_that_fails_leaves_nothing(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    storage.create("old", b"1")
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(number))
        with pytest.raises(UnavailableError, match=os.strerror(number)):
            storage.create("new", b"2")
    assert [stat.path for stat in storage.list("")] == ["old"]
    assert temporary_files(root) == []
    assert storage.create("new", b"2")


def failing(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM])
def test_file_system_without_hard_links_is_refused_by_name(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "link", failing(number))
    with pytest.raises(InvalidRequestError, match="hard links"):
        storage.create("a", b"1")


@pytest.mark.parametrize("name", ["open", "link", "rename", "scandir", "unlink"])
def test_missing_permission_is_the_callers_to_mend(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    storage.create("a", b"1")
    calls: dict[str, Callable[[], object]] = {
        "open": lambda: storage.read("a"),
        "link": lambda: storage.create("b", b"1"),
        "rename": lambda: storage.write("a", b"1"),
        "scandir": lambda: list(storage.list("")),
        "unlink": lambda: storage.delete("a"),
    }
    monkeypatch.setattr(os, name, failing(errno.EACCES))
    with pytest.raises(InvalidRequestError, match="Permission denied") as caught:
        calls[name]()
    assert f"in {storage.uri} failed" in caught.value.what


def test_path_through_a_file_cannot_be_created(storage: LocalStorage) -> None:
    storage.create("a", b"1")
    with pytest.raises(InvalidRequestError, match="Not a directory"):
        storage.create("a/b", b"2")
    assert storage.read("a") == b"1"


def test_folder_is_never_overwritten(storage: LocalStorage) -> None:
    storage.create("a/b", b"1")
    assert not storage.create("a", b"2")
    assert storage.replace("a", b"2", etag="x") is None
    with pytest.raises(InvalidRequestError, match="not a file"):
        storage.write("a", b"2")
    assert storage.read("a/b") == b"1"


def test_named_pipe_is_no_object_and_makes_nobody_wait(storage: LocalStorage, root: Path) -> None:
    storage.create("a", b"1")
    os.mkfifo(root / "pipe")
    assert [stat.path for stat in storage.list("")] == ["a"]
    assert storage.stat("pipe") is None
    assert storage.replace("pipe", b"2", etag="x") is None
    storage.delete("pipe")
    for read in (storage.read, storage.open):
        with pytest.raises(FileNotFoundError):
            read("pipe")


def test_tree_may_be_deeper_than_calls_may_nest(storage: LocalStorage, root: Path) -> None:
    deep = ["/".join(["d"] * depth) for depth in range(1, 500)]
    for folder in ("", *deep):
        os.mkdir(root / folder)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        assert storage.create(f"{deep[-1]}/f", b"1")
        assert [stat.path for stat in storage.list("")] == [f"{deep[-1]}/f"]
        assert storage.read(f"{deep[-1]}/f") == b"1"
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("path", ["x" * 300, "y/" * 2_040 + "y"])
def test_name_too_long_for_the_disk_leaves_no_folders(
    storage: LocalStorage, root: Path, path: str
) -> None:
    with pytest.raises(InvalidRequestError, match="too long"):
        storage.create(path, b"1")
    assert storage.list_folder("").folders == (".hoodie",)


def test_missing_root_is_an_empty_table(storage: LocalStorage, root: Path) -> None:
    assert list(storage.list("")) == []
    assert storage.list_folder("").objects == ()
    assert storage.stat("a") is None
    assert not root.exists(), "looking makes nothing"


def test_new_file_is_as_open_to_others_as_the_user_wants(storage: LocalStorage, root: Path) -> None:
    before = os.umask(0o027)
    try:
        storage.create("a", b"1")
    finally:
        os.umask(before)
    assert (root / "a").stat().st_mode & 0o777 == 0o640


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "canary").write_bytes(b"alive")
    return folder


LINKED: list[Callable[[Storage, str], object]] = [
    lambda storage, path: storage.create(path, b"dead"),
    lambda storage, path: storage.create_from(path, [b"dead"]),
    lambda storage, path: storage.replace(path, b"dead", etag="x"),
    lambda storage, path: storage.write(path, b"dead"),
    lambda storage, path: storage.read(path),
    lambda storage, path: storage.read_ranges(path, [(0, 1)]),
    lambda storage, path: storage.stat(path),
    lambda storage, path: storage.open(path),
    lambda storage, path: storage.delete(path),
    lambda storage, path: list(storage.list(path)),
    lambda storage, path: storage.list_folder(path),
]


@pytest.mark.parametrize("operation", LINKED)
@pytest.mark.parametrize("target", ["file outside", "folder outside", "folder inside", "nothing"])
def test_symbolic_link_is_not_followed(
    storage: LocalStorage,
    root: Path,
    outside: Path,
    operation: Callable[[Storage, str], object],
    target: str,
) -> None:
    storage.create("inside/canary", b"alive")
    targets = {
        "file outside": outside / "canary",
        "folder outside": outside,
        "folder inside": root / "inside",
        "nothing": root / "nowhere",
    }
    (root / "link").symlink_to(targets[target])
    for path in ("link", "link/canary"):
        with pytest.raises(CorruptTableError, match="symbolic link"):
            operation(storage, path)
    with pytest.raises(CorruptTableError, match="symbolic link"):
        list(storage.list(""))
    assert (outside / "canary").read_bytes() == b"alive"
    assert (root / "inside/canary").read_bytes() == b"alive"
    assert not (root / "nowhere").exists()


def test_root_itself_may_be_reached_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    storage = LocalStorage(str(tmp_path / "link"))
    assert storage.create("a/b", b"1")
    assert [stat.path for stat in storage.list("")] == ["a/b"]
    assert (tmp_path / "real/a/b").read_bytes() == b"1"
    assert storage.uri == f"file://{tmp_path}/link"


def test_length_is_not_believed_before_it_is_checked(storage: LocalStorage) -> None:
    storage.create("a", b"12345")
    assert storage.read("a", 2, 1 << 62) == b"345"


def test_file_of_another_program_is_read_as_it_is(storage: LocalStorage, root: Path) -> None:
    (root / "day=1").mkdir(parents=True)
    (root / "day=1/back\\slash").write_bytes(b"1")
    (root / "day=1/.f.crc").write_bytes(b"22")
    assert [(stat.path, stat.size) for stat in storage.list("")] == [
        ("day=1/.f.crc", 2),
        ("day=1/back\\slash", 1),
    ]
    with pytest.raises(CorruptTableError, match="backslash"):
        storage.read("day=1/back\\slash")


PATHS = st.sampled_from(["a", "b/c", "b/d", "b-c", "b/e/f"])
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["create", "write", "replace", "delete", "list"]), PATHS, st.binary()
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=40)
@given(calls=CALLS)
def test_local_disk_behaves_as_memory(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[str, str, bytes]]
) -> None:
    clock = itertools.count()
    disk = LocalStorage(str(tmp_path_factory.mktemp("model") / "table"))
    answers = [run(storage, calls) for storage in (disk, MemoryStorage(lambda: next(clock)))]
    assert answers[0] == answers[1]


def run(storage: Storage, calls: list[tuple[str, str, bytes]]) -> list[object]:
    """What each call answers, as far as all storages must agree."""
    answers: list[object] = []
    etags: dict[str, str] = {}
    for call, path, data in calls:
        match call:
            case "create":
                answers.append(storage.create(path, data))
            case "write":
                etags[path] = storage.write(path, data)
            case "replace":
                etag = storage.replace(path, data, etag=etags.get(path, "none"))
                answers.append(etag is not None)
                etags[path] = etag or etags.get(path, "none")
            case "delete":
                storage.delete(path)
            case "list":
                found = storage.list("", after=path)
                answers.append([(stat.path, storage.read(stat.path)) for stat in found])
    return answers


def test_where_files_need_no_name_a_new_one_has_none_until_it_is_whole(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.create("first", b"1")
    folder = str(tmp_path / TEMPORARY_FOLDER)
    if not local_files._has_unnamed_files(os.stat(folder).st_dev, folder):
        pytest.skip("this file system has no files without a name")
    names: list[list[Path]] = []

    def chunks() -> Iterator[bytes]:
        names.append(temporary_files(tmp_path))
        yield b"12"
        names.append(temporary_files(tmp_path))
        yield b"3"

    assert storage.create_from("second", chunks()) == 3
    assert names == [[], []]
    assert storage.read("second") == b"123"
    assert storage.create_from("second", [b"4"]) is None


@pytest.mark.usefixtures("named_files")
def test_where_files_need_a_name_creating_works_the_same(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    assert storage.create_from("file", [b"12", b"3"]) == 3
    assert storage.create_from("file", [b"4"]) is None
    assert (storage.read("file"), temporary_files(tmp_path)) == (b"123", [])


# -- folders


def test_a_folder_of_markers_goes_with_its_last_file_and_all_others_stay(
    storage: LocalStorage, root: Path
) -> None:
    kept = ["p/.hoodie_partition_metadata", ".hoodie/timeline/1.commit", ".hoodie/.heartbeat/1"]
    for path in (f"{MARKERS}/1/p/q/a", f"{MARKERS}/1/p/b", f"{MARKERS}/2/c", *kept):
        storage.create(path, b"")
    storage.delete(f"{MARKERS}/1/p/q/a")
    assert sorted(path.name for path in (root / MARKERS).rglob("*")) == ["1", "2", "b", "c", "p"]
    storage.delete_all([f"{MARKERS}/1/p/b", f"{MARKERS}/2/c", *kept])
    assert list((root / MARKERS).iterdir()) == []
    assert all((root / path).parent.is_dir() for path in kept)


def test_files_are_made_in_folders_that_others_remove_at_that_moment(
    storage: LocalStorage, root: Path
) -> None:
    with ThreadPoolExecutor(PROCESSES) as pool:
        made = pool.map(partial(make_and_delete, storage), range(PROCESSES))
        assert sum(made) == PROCESSES * ROUNDS
    assert list((root / MARKERS).iterdir()) == []


ROUNDS = 300


def make_and_delete(storage: LocalStorage, number: int) -> int:
    """How often a file was made; each time it is the last one in its folders, or nearly."""
    path, created = f"{MARKERS}/1/p/{number}", 0
    for _ in range(ROUNDS):
        created += storage.create(path, b"")
        storage.delete(path)
    return created


def test_a_write_leaves_no_folder_of_markers_behind(tmp_path: Path) -> None:
    rows = pa.table({"id": ["a", "b"], "day": ["mo", "tu"], "ts": [1, 2]})
    table = pyhudi.create_table(
        str(tmp_path / "table"),
        rows.schema,
        record_key="id",
        partition_by="day",
        ordering="ts",
        buckets=pyhudi.SimpleBuckets(2),
    )
    table.upsert(rows)
    table.services.compact()
    assert list((tmp_path / "table" / MARKERS).iterdir()) == []
