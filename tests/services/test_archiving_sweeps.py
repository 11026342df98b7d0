"""Archiving: nothing is lost or doubled, wherever it stops, and whatever else archives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from archived_tables import (
    HISTORY,
    POLICY,
    Bench,
    check_whole,
    content,
    rubbish,
    settled_reads,
    some,
    written,
)
from faulty_storage import Effect, Fault, FaultyStorage
from pyhudi.errors import HudiError
from pyhudi.format.timeline.archive import (
    VERSION_FILE,
)
from pyhudi.storage.protocol import Storage

# ---- a crash anywhere


CHANGES = ("create", "create_from", "replace", "write", "delete")


@cache
def changes() -> tuple[tuple[int, ...], Counter[str], tuple[str, ...]]:
    """Which operations of a run change storage, how many of each kind, and what it archives."""
    bench = Bench.of(written()[0])
    storage = FaultyStorage(bench.storage)
    bench.archive(storage=storage)
    places = [n for n, operation in enumerate(storage.trace, 1) if operation.name in CHANGES]
    kinds = Counter(operation.name for operation in storage.trace)
    return tuple(places), kinds, tuple(sorted(i.requested for i in bench.archived()))


def accidents() -> Iterator[tuple[str, list[Fault]]]:
    """Deaths between any two changes, and failures and lost replies that a run may survive."""
    for nth in changes()[0]:
        yield f"death before {nth}", [Fault(Effect.FAIL, nth=nth, times=None)]
    for name in ("create", "create_from", "replace"):
        for nth in range(1, changes()[1][name] + 1):
            yield f"failure of {name} {nth}", [Fault(Effect.FAIL, operation=name, nth=nth)]
            yield f"lost reply of {name} {nth}", [Fault(Effect.LOSE_REPLY, operation=name, nth=nth)]


def test_a_crash_at_any_point_loses_and_doubles_nothing_and_the_next_run_finishes() -> None:
    objects, reads, times = written()
    asked = [times[1], times[-3]]
    _, _, expected = changes()
    for number, (when, faults) in enumerate(accidents()):
        bench = Bench.of(objects)
        with suppress(HudiError):
            bench.archive(storage=FaultyStorage(bench.storage, faults))
        try:
            assert settled_reads(bench, asked[:1]) == some(reads, asked[:1])
            bench.clock.sleep(10_000)
            bench.archive()
            check_whole(bench)
            found = sorted(i.requested for i in bench.archived())
            assert tuple(found) == expected[: len(found)]
            assert len(bench.completed()) <= POLICY.keep_max + 1  # and perhaps the rollback
            assert settled_reads(bench, asked) == some(reads, asked)
            if number % 10 == 0:
                bench.write(13, 14, 15)
                bench.clock.sleep(10_000)
                bench.archive()
                assert content(bench.table().read())["x"] == 15
                assert rubbish(bench) == []
        except BaseException as error:
            error.add_note(when)
            raise


# ---- two at once


class Interrupted(FaultyStorage):
    """Something happens right before the nth call."""

    def __init__(self, inner: Storage, nth: int, meanwhile: Callable[[], object]) -> None:
        super().__init__(inner)
        self._nth = nth
        self._meanwhile: Callable[[], object] | None = meanwhile

    def _run(self, *arguments: Any, **named: Any) -> Any:
        if len(self.trace) + 1 >= self._nth and (meanwhile := self._meanwhile) is not None:
            self._meanwhile = None
            meanwhile()
        return super()._run(*arguments, **named)


@pytest.mark.parametrize("writes", [0, 3])
def test_of_two_archivers_each_instant_is_archived_once(writes: int) -> None:
    """The second one runs, perhaps with more to do, at each point of the first, which slept."""
    objects, reads, times = written()
    asked = [times[1], times[-3]]
    for nth in range(1, changes()[0][-1] + 1, 2 if not writes else 3):
        bench = Bench.of(objects)

        def meanwhile() -> None:
            bench.write(*range(9, 9 + writes))  # noqa: B023
            bench.clock.sleep(10_000)  # noqa: B023
            bench.archive()  # noqa: B023

        bench.archive(storage=Interrupted(bench.storage, nth, meanwhile))
        try:
            check_whole(bench)
            found = settled_reads(bench, asked)
            assert found["now"]["x"] == 8 + writes
            travel = [f"as of {time}" for time in asked]
            assert {key: found[key] for key in travel} == {key: reads[key] for key in travel}
        except BaseException as error:
            error.add_note(f"before operation {nth}")
            raise


def test_an_archiver_that_slept_does_not_move_the_version_back() -> None:
    bench = Bench.of(written()[0])
    versions: list[int] = []

    def meanwhile() -> None:
        bench.archive()
        versions.append(int(bench.storage.read(f"{HISTORY}/{VERSION_FILE}")))

    class BeforeVersion(FaultyStorage):
        def create(self, path: str, data: bytes) -> bool:
            if path.endswith(VERSION_FILE) and not versions:
                meanwhile()
            return super().create(path, data)

    bench.archive(storage=BeforeVersion(bench.storage))
    assert int(bench.storage.read(f"{HISTORY}/{VERSION_FILE}")) >= versions[0] > 1
