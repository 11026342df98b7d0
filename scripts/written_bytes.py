"""Print a digest of every object that a fixed set of writes leaves: written_bytes.py [CHECKOUT].

    scripts/written_bytes.py > new; scripts/written_bytes.py ../other > other; diff other new

shows what a change of the code changes in the bytes of tables. Each line is a path, a length and a
SHA-256; a path has a line for each content that it had after one of the steps. Tables of every kind
go through all verbs and table services, with writers that meet, die and are rolled back.

The script takes the package and the worlds of the tests (`worlds`, `many_writers.scene`) from the
checkout, and of these only what the public API and a scene have. What differs between any two runs
of the same code is kept out, and so is what says nothing of the bytes: the clock stands still but
for the steps and for sleeps, and a process always draws the same random bytes. So it does not
matter how often a write looks at the clock or makes an id.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

OWN = Path(__file__).parents[1]

SECONDS = 600  # from one step to the next: a write that died counts as dead
OWNERS = {"writer": ("by",), "clock": ("ts",)}
KEYS = [f"k{i}" for i in range(12)]


class SameBytes:
    """Chance that gives a process the same bytes however often it draws.

    An id distinguishes processes; the number or time beside it, the attempts of one process.
    """

    def __init__(self, label: str) -> None:
        self._label = label

    def randbytes(self, count: int) -> bytes:
        return hashlib.shake_128(self._label.encode()).digest(count)


class Dying:
    """A storage whose process dies when it would make its second data file."""

    def __init__(self, inner: Any, error: Exception) -> None:
        self._inner, self._error, self._left = inner, error, 2

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(path: Any, *args: Any, **named: Any) -> Any:
            is_data = name.startswith("create") and not path.startswith(".hoodie")
            self._left -= is_data and "partition_metadata" not in path
            if self._left <= 0:
                raise self._error
            return found(path, *args, **named)

        return call


class Story:
    """What becomes of one table, step by step."""

    def __init__(self, definition: dict[str, Any]) -> None:
        scene = self._module("many_writers.scene")
        self.pyhudi = self._module("pyhudi")
        self.rows, self.stop = scene.rows, scene.Stop
        self.spark_frame = self._module("played_spark").spark_frame
        self.scene = scene.Scene(buckets=self.pyhudi.SimpleBuckets(2), **definition)
        self.table = self.scene.table("a")
        self.is_joined = "owners" in definition

    @staticmethod
    def _module(name: str) -> Any:
        return __import__(name, fromlist=["*"])

    def given(self, by: str, *columns: str, ts: int = 5, day: str = "mo", new: str = "") -> Any:
        """Return rows of all keys, or of new ones; some columns of them, or all."""
        made = self.rows(by, *(key + new for key in KEYS), ts=ts, day=day)
        return made.select(["id", "day", *columns]) if columns else made

    def steps(self) -> Iterator[tuple[str, Callable[[], object]]]:
        yield from self.parts() if self.is_joined else self.writes()
        yield from self.services()
        yield from self.overlaps()
        yield from self.endings()

    def writes(self) -> Iterator[tuple[str, Callable[[], object]]]:
        table, given, frame = self.table, self.given, self.spark_frame
        yield "first upsert", lambda: table.upsert(given("a", ts=1))
        yield "other partitions", lambda: table.upsert(given("a", day="tu"))
        yield "upsert", lambda: table.upsert(given("b", ts=2))
        yield "older upsert", lambda: table.upsert(given("old", ts=0))
        yield "append", lambda: table.append(given("c", new="-c"))
        yield "append, new keys", lambda: table.append(given("d", new="-d"), require_new_keys=True)
        yield "known keys", lambda: table.append(given("d"), require_new_keys=True)
        yield "update", lambda: table.update(given("e", "by"), columns=["by"])
        yield "delete rows", lambda: table.delete(given("", "ts", new="-c").slice(0, 3))
        yield "delete keys", lambda: table.delete(given("", new="-c").select(["id"]).slice(3, 3))
        yield "delete where", lambda: table.delete("by = 'd' and id < 'k3'")
        yield (
            "delete unconditionally",
            lambda: table.delete(given("").slice(0, 2).select(["id"]), unconditional=True),
        )
        yield "write id", lambda: table.upsert(given("f", ts=6), write_id="once")
        yield "write id again", lambda: table.upsert(given("f", ts=6), write_id="once")
        small = self.scene.table("small", buffer_bytes_max=1, log_file_bytes_max=1)
        yield "upsert in pieces", lambda: small.upsert(given("g", ts=7))
        avro = self.scene.table("avro", log_block_format="avro")
        yield "upsert as Avro", lambda: avro.upsert(given("h", ts=8))
        yield "delete as Avro", lambda: avro.delete(given("", "ts", ts=9).slice(4, 1))
        yield "overwrite", lambda: table.overwrite(given("i", day="we"))
        yield "spark upsert", lambda: table.upsert(frame(given("j", ts=10)))
        yield "spark append", lambda: table.append(frame(given("k", new="-k")))
        yield (
            "spark append, new keys",
            lambda: table.append(frame(given("k", new="-n")), require_new_keys=True),
        )
        yield "spark update", lambda: table.update(frame(given("l", "by")), columns=["by"])
        yield "spark delete", lambda: table.delete(frame(given("", "ts", new="-k").slice(0, 2)))
        yield "spark overwrite", lambda: table.overwrite(frame(given("m", day="th")))

    def parts(self) -> Iterator[tuple[str, Callable[[], object]]]:
        table, given, frame = self.table, self.given, self.spark_frame
        own = moved(table, "alter.own_columns", "services.own_columns")
        for owner, columns in OWNERS.items():
            yield f"own {owner}", partial(own, owner, columns)
        yield "part", lambda: table.upsert(given("a", "by"), owner="writer")
        yield "other part", lambda: table.upsert(given("a", "ts", new=""), owner="clock")
        yield "part of new rows", lambda: table.upsert(given("b", "by", new="-b"), owner="writer")
        yield "spark part", lambda: table.upsert(frame(given("c", "by")), owner="writer")
        yield "delete keys", lambda: table.delete(given("").select(["id"]).slice(0, 2))
        yield "overwrite", lambda: table.overwrite(given("d", day="tu"))

    def services(self) -> Iterator[tuple[str, Callable[[], object]]]:
        table = self.table
        register = moved(table, "consumers.register", "services.register_consumer")
        yield "consumer", lambda: register("reader")
        yield "plan a compaction", lambda: table.services.compact(plan_only=True)
        yield "cancel it", self.cancel_compaction
        yield "compact", lambda: table.services.compact()
        yield "upsert after compaction", self.again("n", 11)
        yield "compact again", lambda: table.services.compact()
        release = moved(table, "consumers.release", "services.release_consumer")
        yield "no consumer", lambda: release("reader")
        yield "clean", lambda: table.services.clean(self.pyhudi.CleanPolicy.versions(1))

    def again(self, by: str, ts: int) -> Callable[[], object]:
        """Return an upsert that every kind of table takes."""
        if self.is_joined:
            return lambda: self.table.upsert(self.given(by, "by"), owner="writer")
        return lambda: self.table.upsert(self.given(by, ts=ts))

    def cancel_compaction(self) -> object:
        pending = [name for name in self.scene.names() if name.endswith("compaction.requested")]
        cancel = moved(self.table, "services.cancel_compaction", "services.undo_compaction")
        return cancel(pending[0][:17]) if pending else None

    def overlaps(self) -> Iterator[tuple[str, Callable[[], object]]]:
        if self.is_joined:
            return
        held = partial(self.scene.hold, "held", stop=self.stop.WRITTEN)
        yield "overlapping upserts", lambda: self.overlap(held, lambda t: t.upsert(self.given("o")))
        yield (
            "an update that is repeated",
            lambda: self.overlap(held, lambda t: t.update(self.given("p", "by"), columns=["by"])),
        )
        dead = Dying(self.scene.storage, self.pyhudi.UnavailableError("died", why="", next_step=""))
        yield "a death", lambda: self.scene.table("dead", dead).upsert(self.given("q", ts=12))
        yield "a write after it", self.again("r", 13)

    def overlap(self, held: Callable[..., Any], act: Callable[[Any], object]) -> object:
        first = held(act)
        self.again("meanwhile", 12)()
        return first.finish()

    def endings(self) -> Iterator[tuple[str, Callable[[], object]]]:
        table = self.table
        yield "repair", lambda: table.services.repair()
        yield "delete partitions", lambda: table.delete_partitions(["tu"])
        if not self.is_joined:
            yield "overwrite all", lambda: table.overwrite(self.given("s"), partitions="all")
        by_commits = self.pyhudi.CleanPolicy.commits(1)
        yield "clean by commits", lambda: table.services.clean(by_commits)
        policy = self.pyhudi.ArchivePolicy(
            keep_min=2, keep_max=3, delta_commits=0, grace_ms=0, aborted_grace_ms=0
        )
        yield "archive", lambda: table.services.archive(policy)
        yield "a last upsert", self.again("t", 20)
        yield "archive again", lambda: table.services.archive(policy)

    def run(self) -> Iterator[tuple[str, bytes]]:
        """Run the steps; yield every object after each of them, and the errors, by name."""
        for number, (name, step) in enumerate(self.steps(), start=1):
            self.scene.at(number * SECONDS)
            try:
                step()
            except self.pyhudi.HudiError as error:
                yield f"! {name}", type(error).__name__.encode()
            for stat in self.scene.storage.list(""):
                yield stat.path, self.scene.storage.read(stat.path)


def moved(table: Any, *names: str) -> Callable[..., object]:
    """Return the first of these methods that the table has."""
    for name in names:
        part, _, method = name.partition(".")
        if (found := getattr(getattr(table, part, None), method, None)) is not None:
            return found  # type: ignore[no-any-return]
    raise AttributeError(names)


def stories() -> dict[str, dict[str, Any]]:
    scene = Story._module("many_writers.scene")
    return {
        "nbcc": scene.NBCC,
        "occ": scene.OCC,
        "cow": scene.COW,
        "lock": {**scene.NBCC, **scene.SHARED},
        "commit_time": {},
        "no_partitions": {**scene.NBCC, "partition_by": ()},
        "version_8": {**scene.NBCC, "version": 8},
        "joined": {"owners": OWNERS},
    }


def stand_still() -> None:
    """Let the worlds of the tests be the same however often they are asked."""
    worlds = Story._module("worlds")
    worlds.Clock.__call__ = lambda clock: clock.ms
    worlds.random = SimpleNamespace(Random=SameBytes)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("checkout", nargs="?", type=Path, default=OWN)
    parser.add_argument("--only", metavar="TABLE", help="one of the tables, by its name")
    parser.add_argument("--keep", type=Path, help="a folder that takes the objects")
    asked = parser.parse_args(arguments)
    # Last comes what only this checkout has.
    sys.path[:0] = [str(asked.checkout / folder) for folder in ("src", "tests")]
    sys.path.append(str(OWN / "tests"))
    warnings.simplefilter("ignore")
    stand_still()
    for name, definition in sorted(stories().items()):
        if asked.only not in (None, name):
            continue
        for path, data in sorted(set(Story(definition).run())):
            digest = hashlib.sha256(data).hexdigest()
            print(name, path, len(data), digest, sep="\t")
            if asked.keep is not None:
                kept = asked.keep / name / f"{path}@{digest[:8]}"
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(data)


if __name__ == "__main__":
    main()
