"""An archive in the long run: looking completion times up, and what archiving adds to a commit.

The old table has an archive of 100,000 instants, made and merged as our archiver does it; the young
one has none. Ten completion times are looked up by a process that knows nothing of the archive yet,
and then ten others. Then both tables are written, and archived whenever that is due, every eleven
commits by Hudi's defaults. All that archiving does is divided by the commits, and the
old table may not pay more for its age.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import commits
from measure import cost_of, verdict

import pyhudi
from pyhudi.format.timeline.archive import ArchivedInstant
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.read.archive import History
from pyhudi.services.archiving.archive_files import ArchiveFiles
from pyhudi.services.archiving.result import ArchiveResult
from pyhudi.services.archiving.run import archive
from pyhudi.session.open import OpenTable, Overrides
from pyhudi.storage.open import open_storage
from pyhudi.world import real_world

HISTORY = ".hoodie/timeline/history"
LOOKUPS = 10
FIRST_LOOKUP_MS_MAX = 250.0
NEXT_LOOKUP_MS_MAX = 50.0
OLD_TO_YOUNG_MAX = 1.25
#: In the benchmark all instants are young.
POLICY = ArchivePolicy(grace_ms=0)
COMMITS = POLICY.keep_max - POLICY.keep_min + 1


@dataclass(frozen=True)
class Size:
    archived: int
    rounds: int  # of commits and archiving


FULL = Size(archived=100_000, rounds=60)
QUICK = Size(archived=10_000, rounds=12)


def moment(number: int, millisecond: int = 0) -> InstantTime:
    """The time of the n-th archived instant: one a minute, long ago."""
    time = datetime(2020, 1, 1) + timedelta(minutes=number)
    return InstantTime(time.strftime("%Y%m%d%H%M%S") + f"{millisecond:03}")


def fill_archive(folder: str, instants: int) -> tuple[float, int]:
    """Archive so many instants of long ago, with a real one's metadata; seconds, and files."""
    timeline = Path(folder) / ".hoodie/timeline"
    real = max(timeline.glob("*.deltacommit"), key=lambda path: path.stat().st_size)
    data, requested = real.read_bytes(), real.name.partition("_")[0].encode()
    files = ArchiveFiles(open_storage(folder), HISTORY, real_world(), POLICY, lambda: True)
    started, snapshot = time.perf_counter(), files.snapshot()
    for first in range(0, instants, POLICY.file_instants):
        some = [
            ArchivedInstant(
                moment(n),
                moment(n, 5),
                "deltacommit",
                data.replace(requested, moment(n).encode()),
            )
            for n in range(first, min(instants, first + POLICY.file_instants))
        ]
        added = files.add(snapshot, some)
        assert added is not None
        snapshot, _ = files.merge(added.snapshot)
    files.tidy(real_world().now_ms() + 1_000)
    return time.perf_counter() - started, len(snapshot.manifest.entries)


def lookup_ms(folder: str, instants: int) -> list[float]:
    """Look up ten completion times, all over the archive, in an empty cache; then ten others."""
    history, step, taken = History(open_storage(folder), HISTORY), instants // LOOKUPS, []
    for turn in range(2):
        wanted = {n * step + step // 2 + turn * step // 3 for n in range(LOOKUPS)}
        started = time.perf_counter()
        found = history.completion_times(frozenset(moment(n) for n in wanted))
        taken.append((time.perf_counter() - started) * 1000)
        assert found == {moment(n): moment(n, 5) for n in wanted}
    return taken


@dataclass
class Archived:
    """A table that is written and archived, and what the latter took."""

    folder: str
    table: pyhudi.Table
    opening: OpenTable
    commits: int = 0
    writing_s: float = 0.0
    seconds: float = 0.0
    instants: int = 0
    merged: int = 0

    def grow(self) -> None:
        for _ in range(COMMITS):
            rows = commits.rows(self.commits)
            self.writing_s += cost_of(partial(self.table.upsert, rows)).wall_s
            self.commits += 1

    def archive(self) -> None:
        results: list[object] = []
        self.seconds += cost_of(
            lambda: results.append(archive(self.opening.session(), POLICY))
        ).wall_s
        [result] = results
        assert isinstance(result, ArchiveResult)
        self.instants += len(result.archived)
        self.merged += result.merged

    @property
    def ms(self) -> float:
        """What archiving added to each commit."""
        return self.seconds * 1000 / self.commits


def made(folder: str) -> Archived:
    """As many commits as stay anyway."""
    table = commits.new_table(folder)
    for turn in range(POLICY.keep_min):
        table.upsert(commits.rows(turn))
    opening = OpenTable(open_storage(folder), real_world(), pyhudi.WriteSettings(), Overrides())
    return Archived(folder, table, opening)


def main(*, is_quick: bool = False) -> bool:
    size = QUICK if is_quick else FULL
    print(f"  archive: {size.archived:,} instants", flush=True)
    with tempfile.TemporaryDirectory() as name:
        young, old = made(f"{name}/young"), made(f"{name}/old")
        seconds, files = fill_archive(old.folder, size.archived)
        print(
            f"    written and merged in {seconds:.1f} s, {seconds * 1000 / size.archived:.2f} ms "
            f"an instant; {files} files hold them"
        )
        turns = [lookup_ms(old.folder, size.archived) for _ in range(3)]
        first, following = (min(taken) for taken in zip(*turns, strict=True))
        for _ in range(size.rounds):
            for table in (young, old):
                table.grow()
                table.archive()
        for name, table in (("no", young), ("an old", old)):
            print(
                f"    with {name} archive, archiving adds {table.ms:.2f} ms to each of "
                f"{table.commits} commits of {table.writing_s * 1000 / table.commits:.2f} ms; "
                f"{table.instants} archived, {table.merged} files merged"
            )
    met = verdict(f"first lookup of {LOOKUPS} completion times, ms", first, FIRST_LOOKUP_MS_MAX)
    met &= verdict(f"next lookup of {LOOKUPS} others, ms", following, NEXT_LOOKUP_MS_MAX)
    return met & verdict(
        "archiving of an old table to a young one", old.ms / young.ms, OLD_TO_YOUNG_MAX
    )
