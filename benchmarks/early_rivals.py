"""What early detection costs a writer that meets no conflict.

- Alone: its storage requests are counted, with and without looks. Only the looks may be more.
- Beside three writes that are pending, and have announced files in other buckets of the same
  partitions: its requests again, and its CPU seconds, with each strategy and without early
  detection. All of them take turns on one table, a round after the other; the medians of all rounds
  are compared.

The writer rewrites base files of a copy-on-write table, 31,250 rows in each, and looks after each
of them: more than thirty times in seconds, as a write of minutes does by default. What that adds
is the same for each file, whatever its size, so it is printed by file, too. The rivals live in a
process of their own, which holds them where they ask to be completed.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from early_side import OFF, create, opened_on, settings_of
from early_started import started
from measure import Cost, cost_of, verdict
from services_started import progress
from side import RECORD_KEY
from writes import PARTITIONS, Inputs, rows_of

import pyhudi
from pyhudi.conflict.early_strategies import STRATEGIES
from pyhudi.format.timeline.decision_entry import LOG_FOLDER
from pyhudi.storage.open import open_storage

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from counted_storage import CountedStorage, Request

FILE_NAME, HEARTBEATS, TIMELINE = "_hoodie_file_name", ".heartbeat", ".hoodie/timeline"
BUCKETS = 16
#: The first buckets of each partition are the writer's; each rival has some of the others.
OWN_BUCKETS, RIVALS_BUCKETS = range(8), (range(8, 10), range(10, 13), range(13, 16))
FILES = PARTITIONS * len(OWN_BUCKETS)
MORE_CPU_MAX = 1.05
LOOKS_MIN = 30
WITHOUT, COMMITS = "without", "looks at commits"
CONTESTANTS: dict[str, dict[str, Any]] = {
    WITHOUT: OFF,
    COMMITS: {},
    **{name: {"strategy": name} for name in STRATEGIES},
}


@dataclass(frozen=True)
class Size:
    rows: int
    rounds: int
    period_ms: int


FULL = Size(rows=2_000_000, rounds=5, period_ms=25)
QUICK = Size(rows=50_000, rounds=1, period_ms=5)


def _told_apart(requests: Iterable[Request]) -> tuple[int, Counter[str]]:
    """Return how many list the decision log, which a look does, and the others by verb.

    Those of a heartbeat depend on how long a write takes, and whether it lists the timeline once
    more on the clock, with or without looks. Both are left out.
    """
    verbs: Counter[str] = Counter()
    looks = 0
    for verb, path in requests:
        if verb.startswith("list") and path.startswith(LOG_FOLDER):
            looks += 1
        elif HEARTBEATS not in path and path != TIMELINE:
            verbs[verb] += 1
    return looks, verbs


@dataclass
class Contest:
    """One writer of some buckets, with the settings of each contestant."""

    size: Size
    table: str
    rows: pa.Table
    costs: dict[str, list[Cost]] = field(default_factory=dict)

    def upsert(self, name: str, storage: Any) -> None:
        settings = settings_of({**CONTESTANTS[name], "period_ms": self.size.period_ms})
        opened_on(storage, settings).upsert(self.rows)

    def _counted(self) -> dict[str, tuple[int, Counter[str]]]:
        """Return by contestant how many looks it made more than one without, and its requests."""
        counted = {}
        for name in CONTESTANTS:
            storage = CountedStorage(open_storage(self.table))
            self.upsert(name, storage)
            counted[name] = _told_apart(storage.requests)
        lists = counted[WITHOUT][0]
        return {name: (looks - lists, verbs) for name, (looks, verbs) in counted.items()}

    def count(self) -> bool:
        """Count the requests of a writer that is alone."""
        counted = self._counted()
        _, without = counted.pop(WITHOUT)
        shown = sum(without.values())
        print(f"  a writer alone: {shown} requests without early detection", flush=True)
        met = True
        for name, (looks, verbs) in counted.items():
            more = sum((verbs - without).values())
            what = f"  {name}: {looks} looks, and of other requests more"
            met = verdict(what, more, 0) and looks >= LOOKS_MIN and met
        return met

    def count_beside(self) -> None:
        """Count those that it makes more beside rivals."""
        counted = self._counted()
        _, without = counted.pop(WITHOUT)
        print(f"  beside {len(RIVALS_BUCKETS)} rivals: {FILES} files", flush=True)
        for name, (looks, verbs) in counted.items():
            more = verbs - without
            shown = ", ".join(f"{verb} {count / FILES:.1f}" for verb, count in more.items())
            all_more = looks + sum(more.values())
            print(
                f"    {name}: {all_more / FILES:.1f} requests a file more, of them"
                f" {looks / FILES:.1f} for the end of the log{shown and ', ' + shown}",
                flush=True,
            )

    def take_turns(self) -> None:
        names = list(CONTESTANTS)
        for number in range(self.size.rounds):
            first = number % len(names)
            for name in [*names[first:], *names[:first]]:
                cost = cost_of(partial(self.upsert, name, open_storage(self.table)))
                self.costs.setdefault(name, []).append(cost)
                progress(f"{name}: {cost}")

    def report(self) -> bool:
        without = statistics.median(cost.cpu_s for cost in self.costs[WITHOUT])
        print(
            f"  beside {len(RIVALS_BUCKETS)} rivals: {without:.2f} CPU seconds without early"
            f" detection, medians of {self.size.rounds} rounds",
            flush=True,
        )
        met = True
        for name in CONTESTANTS:
            if name != WITHOUT:
                cpu_s = statistics.median(cost.cpu_s for cost in self.costs[name])
                more_ms = (cpu_s - without) / FILES * 1000
                what = f"  {name}, {more_ms:.1f} ms a file; CPU seconds to those without"
                met = verdict(what, cpu_s / without, MORE_CPU_MAX) and met
        return met


def _by_bucket(table: str, rows: pa.Table, buckets: Iterable[int]) -> pa.Table:
    """Return those of the rows whose keys are in these buckets of the table."""
    found = pyhudi.open_table(table).read(columns=[RECORD_KEY, FILE_NAME]).to_arrow()
    number = pc.cast(pc.utf8_slice_codeunits(found[FILE_NAME], 0, 8), pa.int64())
    keys = found.filter(pc.is_in(number, pa.array(buckets)))[RECORD_KEY]
    return rows.filter(pc.is_in(rows[RECORD_KEY], keys))


def main(*, is_quick: bool = False) -> bool:
    size = QUICK if is_quick else FULL
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table, load = str(folder / "table"), Inputs(folder, size.rows).load()
        create(table, BUCKETS, [load])
        upserts = rows_of(np.arange(0, size.rows, 51), 2)  # odd: all partitions
        contest = Contest(size, table, _by_bucket(table, upserts, OWN_BUCKETS))
        contest.upsert(WITHOUT, open_storage(table))  # unmeasured
        met = contest.count()
        with started(folder) as rivals:
            for number, buckets in enumerate(RIVALS_BUCKETS):
                source = str(folder / f"rival-{number}.parquet")
                pq.write_table(_by_bucket(table, upserts, buckets), source)
                held = rivals.ask("hold", table=table, source=source)
                assert held["files"] == PARTITIONS * len(buckets), held
            contest.count_beside()
            contest.take_turns()
            assert rivals.ask("release")["completed"] == len(RIVALS_BUCKETS)
    return contest.report() and met


if __name__ == "__main__":
    sys.exit(0 if main(is_quick="--quick" in sys.argv) else 1)
