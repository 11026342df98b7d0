"""One writer and one resize, in every order of their steps: each row is there once, at every time.

The write stops when it has begun, and when its files are there. The resize is planned; its base
files are made; it is closed; it completes. Between its plan and its end another write completes in
the bucket, which has to be copied. Whatever the write meets, it completes by its own steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from many_writers.scene import HeldWrite, Stop
from pyhudi.api.table import Table
from pyhudi.commit.proposals import Close
from pyhudi.errors import HudiError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.column_owners import ColumnOwners
from pyhudi.format.timeline.instant import Action
from pyhudi.storage.objects.column_owners import declare_owners
from pyhudi.storage.protocol import Storage
from pyhudi.write.begin import commit_nothing
from pyhudi.write.resizing import copies
from pyhudi.write.result import WriteResult
from resize_tables import MODES, SCHEMA, ResizeTable

OWNERS = {"own": ("v",), "other": ("ts",)}
JOINED = "joined"
Values = dict[str, str | None]


def _rows(keys: str, stamp: int) -> pa.Table:
    rows = [{"id": key, "day": "d", "ts": stamp, "v": f"{key}{stamp}"} for key in keys]
    return pa.Table.from_pylist(rows, SCHEMA)


def _keys(keys: str, *columns: str) -> pa.Table:
    return _rows(keys, 9).select(["id", "day", *columns])


def _put(values: Values, keys: str, stamp: int) -> Values:
    return {**values, **{key: f"{key}{stamp}" for key in keys}}


def _without(values: Values, keys: str) -> Values:
    return {key: value for key, value in values.items() if key not in keys}


@dataclass(frozen=True)
class Verb:
    run: Callable[[Table], WriteResult]
    effect: Callable[[Values], Values]


def _streamed(table: Table) -> WriteResult:
    rows = _rows("klu", 9)
    reader = pa.RecordBatchReader.from_batches(SCHEMA, iter(rows.to_batches(max_chunksize=1)))
    return table.upsert(reader)


VERBS: dict[str, Verb] = {
    "upsert": Verb(lambda t: t.upsert(_rows("klu", 9)), lambda v: _put(v, "klu", 9)),
    "upsert of a stream": Verb(_streamed, lambda v: _put(v, "klu", 9)),
    "append": Verb(lambda t: t.append(_rows("uvw", 9)), lambda v: _put(v, "uvw", 9)),
    "append of new keys": Verb(
        lambda t: t.append(_rows("uvw", 9), require_new_keys=True), lambda v: _put(v, "uvw", 9)
    ),
    "update": Verb(
        lambda t: t.update(_keys("kl?", "v"), columns=["v"]), lambda v: _put(v, "kl", 9)
    ),
    "delete by keys": Verb(lambda t: t.delete(_keys("kl?", "ts")), lambda v: _without(v, "kl")),
    "delete of keys to look up": Verb(
        lambda t: t.delete(_keys("kl?").select(["id"])), lambda v: _without(v, "kl")
    ),
    "delete by predicate": Verb(lambda t: t.delete("v >= 'n'"), lambda v: _without(v, "nopqz")),
    "overwrite": Verb(
        lambda t: t.overwrite(_rows("ku", 9), partitions=["d"]), lambda _: _put({}, "ku", 9)
    ),
    "delete_partitions": Verb(lambda t: t.delete_partitions(["d"]), lambda _: {}),
}

PARTS: dict[str, Verb] = {
    "upsert of a part": Verb(
        lambda t: t.upsert(_keys("klu", "v"), owner="own"), lambda v: _put(v, "klu", 9)
    ),
    "delete by keys": Verb(
        lambda t: t.delete(_keys("kl?").select(["id", "day"])), lambda v: _without(v, "kl")
    ),
}

#: The write's steps in capitals, those of the resize in small letters.
WRITE = {"B": Stop.BEGUN, "W": Stop.WRITTEN, "C": Stop.NEVER}
STEPS = {"p": "_plan", "k": "_close", "c": "_end", "h": "_end_as_hudi", "x": "_cancel"}
#: What other processes do to the buckets that the resize has made.
STEPS |= {"m": "_compact", "o": "_overwrite"}


def orders(resize: str) -> Iterator[str]:
    """Every order of the three steps of the write and these of the resize."""
    count = len(resize) + 3
    for places in combinations(range(count), 3):
        steps, mine = iter(resize), iter("BWC")
        yield "".join(next(mine) if n in places else next(steps) for n in range(count))


@dataclass
class Bench:
    """A table, the write and the resize."""

    verb: Verb
    mode: str
    is_dual: bool = False  # Hudi can execute the resize
    is_shared: bool = False  # the table has its lock
    is_virtual: bool = False
    resize: str = ""
    held: HeldWrite | None = None
    result: WriteResult | None = None

    def __post_init__(self) -> None:
        is_joined = self.mode == JOINED
        lock: dict[str, Any] = {"lock": LockKind.FILE} if self.is_shared else {}
        kind: dict[str, Any] = {"owners": OWNERS} if is_joined else MODES[self.mode]
        self.table = ResizeTable(is_virtual=self.is_virtual, **kind, **lock)
        if is_joined:
            declare_owners(self.table.storage, ColumnOwners(OWNERS))
        self.effects: dict[str, Callable[[Values], Values]] = {}
        self.other, self.own = self.table.table("other"), self.table.table("own")
        self._put("klmnopq", 1)
        self._put("kl", 2)
        # The writer knows the ring by now, and has to find out that it is an old one.
        if is_joined:
            done = self.own.upsert(_keys("q", "v"), owner="own")
            self.effects[done.completed] = lambda values: _put(values, "q", 9)
        else:
            self.own.update(_keys("?", "v"), columns=["v"])

    def _put(self, keys: str, stamp: int) -> None:
        table, rows = self.other, _rows(keys, stamp)
        if self.mode == JOINED:
            done = table.upsert(rows.drop_columns(["v"]), owner="other")
            self.effects[done.completed] = lambda values: {**dict.fromkeys(keys), **values}
        else:
            done = table.upsert(rows)
            self.effects[done.completed] = lambda values: _put(values, keys, stamp)

    def play(self, order: str) -> None:
        for step in order:
            if step in WRITE:
                self._go_on(WRITE[step])
            else:
                getattr(self, STEPS[step])()

    def meet(self, steps: str) -> None:
        """Play steps of the resize. What is decided is applied first: a plan by hand lists files,
        and is not adjusted when it begins."""
        commit_nothing(self.table.session("applying"), "the plan")
        self.play(steps)

    def _go_on(self, stop: Stop) -> None:
        if self.held is None:
            self.held = HeldWrite(lambda: self.verb.run(self.own))
        if stop is Stop.NEVER:
            self.result = self.held.finish()
            self.effects[self.result.completed] = self.verb.effect
        else:
            self.held.run_to(stop)

    def _plan(self) -> None:
        self.resize = self.table.plan(3, is_dual=self.is_dual)
        self._put("mz", 3)

    def _close(self) -> None:
        """Make base files and copies, close the resize, and die before the completion."""

        class Dying:
            def __init__(self, storage: Any) -> None:
                self._storage = storage

            def __getattr__(self, name: str) -> Any:
                return getattr(self._storage, name)

            def create(self, path: str, data: bytes) -> bool:
                if "/.pyhudi/log/" in path and b'"kind":"complete"' in data:
                    raise KeyboardInterrupt
                created: bool = self._storage.create(path, data)
                return created

        if self._is_pending():
            with pytest.raises(KeyboardInterrupt):
                self.table.resizes("dying", Dying(self.table.storage)).execute(self.resize)
            self.table.session("closing").log.append(Close(self.resize, lambda live: None))

    def _is_pending(self) -> bool:
        return self.resize in self.table.session("look").log.refresh().pending

    def _end(self) -> None:
        if self._is_pending():
            self.table.resizes("end").execute(self.resize, is_forced=True)

    def _end_as_hudi(self) -> None:
        """Complete it as Hudi does, which copies nothing."""
        if self._is_pending():
            with patch.object(copies, "owed_copy", lambda *of: None):
                self.table.resizes("hudi").execute(self.resize, is_forced=True)

    def _compact(self) -> None:
        self.table.table("compactor").services.compact()

    def _overwrite(self) -> None:
        done = self.table.table("overwriter").overwrite(_rows("kt", 8), partitions=["d"])
        self.effects[done.completed] = lambda _: _put({}, "kt", 8)

    def _cancel(self) -> None:
        if self._is_pending():
            self.table.resizes("end").cancel(self.resize, is_forced=True)

    # -- what must be

    def check(self) -> None:
        """Each completed write is visible once, now and as of every completion."""
        expected: Values = {}
        for instant in self.table.session("check").log.refresh().completed_after("0"):
            assert instant.completed is not None
            if (effect := self.effects.get(instant.completed)) is not None:
                expected = effect(expected)
            assert self._now(as_of=instant.completed) == expected, instant
        assert self._now() == expected
        if self.resize and self._is_pending():
            self._end()
            assert self._now() == expected
        assert not self.table.pending()
        if self.is_dual:
            self._check_changes()

    def _check_changes(self) -> None:
        """Each range of changes that begins with the last completions has a key once, also one
        that is written again behind them."""
        self._put("kl", 10)
        live = self.table.session("check").log.refresh()
        times = [instant.completed or "" for instant in live.completed_after("0")]
        for since in times[-4:-1]:
            changes = self.table.table("r").changes(since=since, until=times[-1])
            keys = changes.to_arrow().column("id").to_pylist()
            assert len(set(keys)) == len(keys), f"changes since {since}"

    def _now(self, **point: Any) -> Values:
        found = self.table.table("r").read(columns=["id", "v"], **point).to_arrow()
        values = dict(zip(*(found.column(name).to_pylist() for name in ("id", "v")), strict=True))
        assert len(values) == found.num_rows, "a row is there twice"
        return values


def _played(
    verb: str,
    mode: str,
    order: str,
    *,
    is_dual: bool = False,
    is_shared: bool = False,
    is_virtual: bool = False,
) -> Bench:
    kind = (PARTS if mode == JOINED else VERBS)[verb]
    bench = Bench(kind, mode, is_dual, is_shared, is_virtual)
    try:
        bench.play(order)
        bench.check()
    except (AssertionError, HudiError) as error:
        raise AssertionError(f"{order}: {error}") from error
    return bench


def mode_of(verb: str, number: int) -> str:
    """Return the mode in which a verb meets an order: each verb and each order meets both."""
    return list(MODES)[(list(VERBS).index(verb) + number) % len(MODES)]


in_both_ways = pytest.mark.parametrize("is_virtual", [False, True], ids=["copied", "virtual"])


@in_both_ways
@pytest.mark.parametrize("verb", VERBS)
def test_a_write_and_a_resize_in_every_order(verb: str, is_virtual: bool) -> None:
    for number, order in enumerate(orders("pc")):
        _played(verb, mode_of(verb, number), order, is_virtual=is_virtual)


@in_both_ways
@pytest.mark.parametrize("verb", ["upsert", "update", "overwrite"])
def test_a_write_and_a_resize_that_is_closed_in_every_order(verb: str, is_virtual: bool) -> None:
    for number, order in enumerate(orders("pkc")):
        _played(verb, mode_of(verb, number), order, is_virtual=is_virtual)


@in_both_ways
@pytest.mark.parametrize("verb", PARTS)
def test_the_write_of_an_owner_and_a_resize_in_every_order(verb: str, is_virtual: bool) -> None:
    for order in orders("pkc" if verb == "upsert of a part" else "pc"):
        _played(verb, JOINED, order, is_virtual=is_virtual)


@pytest.mark.parametrize("end", ["c", "h", "x"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_write_beside_a_resize_that_hudi_can_execute_in_every_order(verb: str, end: str) -> None:
    """Nothing is lost although Hudi copies nothing; every other order is on a shared table."""
    for number, order in enumerate(orders(f"p{end}")):
        _played(verb, mode_of(verb, number), order, is_dual=True, is_shared=bool(number // 2 % 2))


@pytest.mark.parametrize("verb", PARTS)
def test_the_write_of_an_owner_beside_a_resize_that_hudi_can_execute(verb: str) -> None:
    for order in orders("ph"):
        _played(verb, JOINED, order, is_dual=True)


# -- at each storage operation


class AtOperation:
    """A storage that does something before the given change of the writer, counted from 0."""

    def __init__(self, storage: Storage, number: int, deed: Callable[[], None]) -> None:
        self._storage = storage
        self.left = number
        self._deed = deed

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if name not in ("create", "create_from", "write", "replace", "delete", "delete_all"):
            return found

        def changed(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left == -1:
                self._deed()
            return found(*args, **kwargs)

        return changed


#: What has happened before the write begins, and what happens in its midst.
MOMENTS = {"a whole resize": ("", "pc"), "its end": ("p", "c"), "its close": ("p", "k")}
#: The same of a resize that Hudi can execute.
DUAL_MOMENTS = {
    "a whole resize of Hudi's": ("", "ph"),
    "its plan by Hudi": ("", "p"),
    "its end by Hudi": ("p", "h"),
    "its end by pyhudi": ("p", "c"),
    "its cancelling": ("p", "x"),
    "its end, and a compaction": ("p", "cm"),
    "its end by Hudi, and an overwrite": ("p", "ho"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_resize_at_each_change_that_a_write_makes(moment: str) -> None:
    _at_each_change(*MOMENTS[moment], lambda number: mode_of("upsert", number))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("moment", DUAL_MOMENTS)
def test_a_resize_that_hudi_can_execute_at_each_change_that_a_write_makes(
    moment: str, mode: str
) -> None:
    _at_each_change(*DUAL_MOMENTS[moment], lambda number: mode, is_dual=True)


def _at_each_change(
    before: str, meanwhile: str, mode: Callable[[int], str], *, is_dual: bool = False
) -> None:
    for number in range(1, 100):
        bench = Bench(VERBS["upsert"], mode(number), is_dual)
        bench.play(before)
        deed = partial(bench.meet, meanwhile)
        storage = AtOperation(bench.table.storage, number, deed)
        result = VERBS["upsert"].run(bench.table.table("at", storage))
        bench.effects[result.completed] = VERBS["upsert"].effect
        if storage.left >= 0:
            break
        bench.check()
    assert number > 5


class DiesAt:
    """A storage whose process is dead from the given change on, counted from 0."""

    def __init__(self, storage: Storage, number: int) -> None:
        self._storage = storage
        self.left = number

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if name not in ("create", "create_from", "write", "replace", "delete", "delete_all"):
            return found

        def changed(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            return found(*args, **kwargs)

        return changed


@pytest.mark.parametrize("end", ["c", "h", "x"])
def test_a_write_that_writes_twice_dies_at_each_change(end: str) -> None:
    """Its rollback removes its files from inputs and children, and no others."""
    for number in range(1, 100):
        bench = Bench(VERBS["upsert"], mode_of("upsert", number), is_dual=True)
        bench.play("p")
        files, before = _data_files(bench), _completed(bench)
        storage = DiesAt(bench.table.storage, number)
        dead = bench.table.table("at", storage)
        with suppress(KeyboardInterrupt):
            result = VERBS["upsert"].run(dead)
            bench.effects[result.completed] = VERBS["upsert"].effect
        bench.table.clock.ms += 3_600_000
        bench.table.session("look").recover()
        if done := _completed(bench) - before:  # perhaps another process published it
            [completed] = done
            bench.effects[completed] = VERBS["upsert"].effect
        else:
            assert _data_files(bench) == files
        bench.play(end)
        bench.table.clock.ms += 3_600_000
        bench.table.session("look").recover()
        bench.check()
        if storage.left >= 0:
            break
    assert number > 8


def _completed(bench: Bench) -> set[str]:
    live = bench.table.session("look").log.refresh()
    done = (i for i in live.completed_after("0") if i.action is Action.DELTACOMMIT)
    return {instant.completed or "" for instant in done}


def _data_files(bench: Bench) -> set[str]:
    return {stat.path for stat in bench.table.storage.list("d")}
