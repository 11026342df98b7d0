from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.storage.stores.memory import MemoryStorage

PATHS = st.sampled_from(["a", "b/c", "b/d", "b-c"])


def counted() -> MemoryStorage:
    clock = itertools.count(1_000)
    return MemoryStorage(lambda: next(clock))


def test_same_calls_give_the_same_versions_and_times() -> None:
    def run() -> list[object]:
        storage = counted()
        storage.create("a", b"1")
        etag = storage.write("b", b"22")
        storage.replace("b", b"333", etag=etag)
        return [(s.path, s.size, s.etag, s.modified_ms) for s in storage.list("")]

    assert run() == run() == [("a", 1, "1", 1_000), ("b", 3, "3", 1_002)]


def test_stored_bytes_do_not_follow_a_buffer_that_changes() -> None:
    storage, buffer = counted(), bytearray(b"before")
    storage.create("a", memoryview(buffer))  # type: ignore[arg-type]  # as careless callers do
    buffer[:] = b"after!"
    assert storage.read("a") == b"before"


CALLS = st.lists(
    st.tuples(st.sampled_from(["create", "write", "replace", "delete"]), PATHS, st.binary()),
    max_size=20,
)


@settings(deadline=None, max_examples=200)
@given(CALLS)
def test_memory_behaves_as_a_dictionary(calls: list[tuple[str, str, bytes]]) -> None:
    storage, model, etags = counted(), dict[str, bytes](), dict[str, str]()
    for call, path, data in calls:
        match call:
            case "create":
                assert storage.create(path, data) == (path not in model)
                model.setdefault(path, data)
            case "write":
                etags[path] = storage.write(path, data)
                model[path] = data
            case "replace":
                stat = storage.stat(path)
                is_current = stat is not None and stat.etag == etags.get(path)
                replaced = storage.replace(path, data, etag=etags.get(path, "none"))
                assert (replaced is not None) == is_current
                if replaced is not None:
                    etags[path], model[path] = replaced, data
            case "delete":
                storage.delete(path)
                model.pop(path, None)
    assert {s.path: storage.read(s.path) for s in storage.list("")} == model
