"""Planning a clean and archiving, on 100,000 files and 10,000 instants; and what archiving costs.

The table's files are empty and have real names; its timeline and its decision log are whole. A plan
is made as a dry run makes it, by a process that has not seen the table yet, and all it does counts
for the seconds: opening, listing, planning.

*Flat in memory* is said of planning itself, the function that is given a loaded table and returns a
plan. The table has to be held, and a plan has a line for every file or instant, which says why it
goes or stays: both grow with the table, and are shown. What planning holds beside these two at its
peak must not grow: on the whole table it may be 2 MB more than on a quarter of it, where as many
files and instants go. Python and Arrow count it, byte by byte.

Archiving itself, of all these instants at once, is shown beside; `services_archive.py` has what it
costs in the long run.
"""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import pyarrow as pa
from measure import peak_memory_mb, verdict

import pyhudi
from pyhudi.format.timeline.decision_entry import (
    LOG_FOLDER,
    Entry,
    EntryKind,
    creation,
    encode_entry,
    entry_path,
)
from pyhudi.format.timeline.instant import Action
from pyhudi.format.timeline.plan_files import CompactionPlan, encode_compaction_plan
from pyhudi.plan.archiving.choose import ArchivePlan
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.plan.cleaning import CleanPlan, CleanPolicy
from pyhudi.services.archiving import execute as archiving
from pyhudi.services.archiving.result import ArchiveResult
from pyhudi.services.archiving.run import archive
from pyhudi.services.cleaning import schedule as cleaning
from pyhudi.services.cleaning.execute import clean
from pyhudi.session.open import OpenTable, Overrides
from pyhudi.session.session import TableSession
from pyhudi.storage.open import open_storage
from pyhudi.world import real_world

PARTITIONS = 100
FILES_PER_INSTANT = 10
#: Of the five files of a file group the first is a base file, and in some groups the third too, by
#: a compaction: then the two before it go.
VERSIONS, COMPACTED, GOING_PER_GROUP = 5, 2, 2
PLANNING_S_MAX = 5.0
GROWTH_MB_MAX = 2.0
#: In the benchmark all instants are young.
AT_ONCE = ArchivePolicy(grace_ms=0)
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])


FILES, QUICK_FILES, TINY_FILES = 100_000, 20_000, 1_000
SMALLER = 4
_T = TypeVar("_T")


def going_of(files: int) -> tuple[int, int]:
    """Files and instants that go, as many from the whole table as from a quarter of it."""
    groups = files // SMALLER // VERSIONS
    return groups * GOING_PER_GROUP, files // SMALLER // FILES_PER_INSTANT // 2


# -- the table


def build(folder: Path, files: int, going: int) -> None:
    """Every instant wrote ten files; the metadata of all is that of a real one.

    `going` files are of slices that a compaction has superseded, long ago.
    """
    metadata = _real_metadata(folder)
    compacted = going // GOING_PER_GROUP // PARTITIONS  # file groups of each partition
    made = list(_grown(folder, files // FILES_PER_INSTANT, compacted, metadata))
    for number in range(PARTITIONS):
        (folder / f"part{number:03}").mkdir()
    for number in range(files):
        partition = folder / f"part{number % PARTITIONS:03}"
        group, version = divmod(number // PARTITIONS, VERSIONS)
        file_id, requested = f"00000000-{group:04}-0", made[number // FILES_PER_INSTANT]
        base = f"{file_id}_0-1-0_{requested}.parquet"
        is_base = version == 0 or _is_compaction(group, version, compacted)
        name = base if is_base else f".{file_id}_{requested}.log.1_0-1-0"
        (partition / name).touch()


def _real_metadata(folder: Path) -> bytes:
    """Create the table, write it once, and forget that but for its metadata."""
    table = pyhudi.create_table(
        folder,
        SCHEMA,
        record_key="id",
        partition_by="part",
        ordering="ts",
        buckets=pyhudi.SimpleBuckets(1),
        upkeep=False,
    )
    parts = [f"part{n:03}" for n in range(FILES_PER_INSTANT)]
    rows = {"id": parts, "part": parts, "ts": [1] * len(parts)}
    written = table.upsert(pa.table(rows, schema=SCHEMA))
    timeline = folder / ".hoodie/timeline"
    [completed] = timeline.glob(f"{written.instant}_*")
    metadata = completed.read_bytes()
    for file in [path for path in timeline.iterdir() if path.is_file()]:
        file.unlink()
    for left in (folder / LOG_FOLDER, *folder.glob("part*")):
        shutil.rmtree(left)
    return metadata


def moments(instants: int) -> Iterator[tuple[str, str]]:
    """Times at which instants are requested and completed: one a minute, the last hours ago."""
    first = datetime.now(UTC) - timedelta(hours=5, minutes=instants)
    for number in range(instants):
        minute = (first + timedelta(minutes=number)).strftime("%Y%m%d%H%M")
        yield f"{minute}01000", f"{minute}02000"


def _is_compaction(group: int, version: int, compacted: int) -> bool:
    return version == COMPACTED and group < compacted


def _grown(folder: Path, instants: int, compacted: int, metadata: bytes) -> Iterator[str]:
    """What so many writes and compactions leave in log and timeline; their requested times."""
    plan = encode_compaction_plan(CompactionPlan((), {}, missing_schedule_partitions=()), bytes(16))
    timeline, previous = folder / ".hoodie/timeline", None
    for number, (requested, completed) in enumerate(moments(instants)):
        place = divmod(number * FILES_PER_INSTANT // PARTITIONS, VERSIONS)
        is_compaction = _is_compaction(*place, compacted)
        action = Action.COMPACTION if is_compaction else Action.DELTACOMMIT
        asked = plan if is_compaction else b""
        names = (
            f"{requested}.{action}.requested",
            f"{requested}.{action}.inflight",
            f"{requested}_{completed}.{action.completed_as}",
        )
        begin = Entry(
            n=2 * number + 1,
            id=f"entry {2 * number + 1}",
            prev=previous,
            kind=EntryKind.BEGIN,
            time=requested,
            instant=requested,
            action=action,
            creates=creation(names[0], asked),
        )
        end = replace(
            begin,
            n=begin.n + 1,
            id=f"entry {begin.n + 1}",
            prev=begin.id,
            kind=EntryKind.COMPLETE,
            time=completed,
            begin=begin.n,
            creates=creation(names[2], metadata),
        )
        for entry in (begin, end):
            path = folder / entry_path(entry.n)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode_entry(entry))
        for name, data in zip(names, (asked, b"", metadata), strict=True):
            (timeline / name).write_bytes(data)
        previous = end.id
        yield requested


# -- one process plans


@dataclass
class Planned:
    """What planning came to, and what it took a process that did not know the table."""

    loading_s: float
    planning_s: float
    loaded_mb: float
    plan_mb: float
    beside_mb: float  # what planning held at its peak beside the loaded table and its plan
    count: int  # of files, or of instants
    going: int


def opened(folder: str) -> OpenTable:
    return OpenTable(open_storage(folder), real_world(), pyhudi.WriteSettings(), Overrides())


def looking(opening: OpenTable) -> TableSession:
    """Return the table as a dry run has it open."""
    return opening.session(is_read_only=True)


def memory_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this system does not report a process's memory")


def watched(work: Callable[[], _T]) -> tuple[_T, float, float]:
    """What the work gives, its seconds, and the most memory it held beyond what was held before."""
    before, started = memory_mb(), time.perf_counter()
    Path("/proc/self/clear_refs").write_text("5")  # proc(5): the peak is measured from here
    result = work()
    return result, time.perf_counter() - started, peak_memory_mb() - before


_pools: list[pa.MemoryPool] = []  # what is allocated by one outlives the measurement


def measured(module: Any, name: str, work: Callable[[], object]) -> tuple[float, float]:
    """MB of what a function of the module returns in the midst of the work, and the most that it
    held beside that."""
    plan, found = getattr(module, name), []

    def planning(*arguments: Any, **named: Any) -> Any:
        gc.collect()
        arrow, before = pa.proxy_memory_pool(usual), usual.bytes_allocated()
        _pools.append(arrow)
        pa.set_memory_pool(arrow)
        tracemalloc.start()
        result = plan(*arguments, **named)
        peak = tracemalloc.get_traced_memory()[1] + (arrow.max_memory() or 0)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] + usual.bytes_allocated() - before
        tracemalloc.stop()
        pa.set_memory_pool(usual)
        found.append((kept, peak - kept))
        return result

    usual = pa.default_memory_pool()
    with patch.object(module, name, planning):
        work()
    kept, beside = max(found)
    return kept / 2**20, beside / 2**20


def plan_clean(folder: str, _going: int) -> Planned:
    opening = opened(folder)
    _, loading_s, loaded_mb = watched(lambda: looking(opening).current.load())
    plan, planning_s, _ = watched(
        lambda: clean(looking(opening), CleanPolicy.commits(10), dry_run=True)
    )
    assert isinstance(plan, CleanPlan)
    memory = measured(
        cleaning,
        "plan_cleaning",
        lambda: clean(looking(opening), CleanPolicy.commits(10), dry_run=True),
    )
    count, going = plan.files.num_rows, plan.count
    return Planned(loading_s, planning_s, loaded_mb, *memory, count, going)


def plan_archive(folder: str, going: int) -> Planned:
    """It lists the timeline itself, which counts as planning by the clock and not by memory."""
    opening = opened(folder)
    live, loading_s, loaded_mb = watched(lambda: looking(opening).log.refresh())
    active = len(live.completed)
    policy = replace(AT_ONCE, keep_min=active - going, keep_max=active - going + 1)
    plan, planning_s, listed_mb = watched(lambda: archive(looking(opening), policy, dry_run=True))
    assert isinstance(plan, ArchivePlan)
    memory = measured(
        archiving, "plan_archiving", lambda: archive(looking(opening), policy, dry_run=True)
    )
    count = len(plan.verdicts)
    return Planned(loading_s, planning_s, loaded_mb + listed_mb, *memory, count, len(plan.leaving))


def run_archive(folder: str, _going: int) -> Planned:
    opening = opened(folder)
    _, loading_s, loaded_mb = watched(lambda: opening.session().log.refresh())
    result, seconds, extra_mb = watched(lambda: archive(opening.session(), AT_ONCE))
    assert isinstance(result, ArchiveResult)
    count = len(result.archived)
    return Planned(loading_s, seconds, loaded_mb, 0.0, extra_mb, count, count)


ASKED = {"clean": plan_clean, "archive": plan_archive, "run": run_archive}


def in_process(what: str, folder: Path, first: Path, going: int) -> Planned:
    """Asked of a process that has asked the same of a tiny table before, and done nothing else."""
    with tempfile.TemporaryDirectory() as name:
        tiny = shutil.copytree(first, Path(name) / "tiny")
        command = [sys.executable, __file__, what, str(tiny), str(folder), str(going)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Planned(**json.loads(done.stdout))


def main(*, is_quick: bool = False) -> bool:
    count = QUICK_FILES if is_quick else FILES
    going, leaving = going_of(count)
    print(
        f"  planning of services: {count:,} files, {count // FILES_PER_INSTANT:,} instants",
        flush=True,
    )
    found: dict[int, dict[str, Planned]] = {}
    with tempfile.TemporaryDirectory() as name:
        tiny = Path(name) / "tiny"
        build(tiny, TINY_FILES, TINY_FILES // VERSIONS * GOING_PER_GROUP)
        for files in (count // SMALLER, count):
            folder = Path(name) / f"{files}"
            build(folder, files, going)
            found[files] = {what: in_process(what, folder, tiny, leaving) for what in ASKED}
            shutil.rmtree(folder)
    few, many = found.values()
    met = _report("clean", "files", few["clean"], many["clean"])
    met &= _report("archive", "instants", few["archive"], many["archive"])
    ran, part = many["run"], few["run"]
    print(
        f"    archiving {ran.count:,} instants at once: {ran.planning_s:.1f} s, "
        f"{ran.planning_s / ran.count * 1000:.2f} ms each; memory {ran.beside_mb:.0f} MB, "
        f"of {part.count:,} instants {part.beside_mb:.0f} MB"
    )
    return met


def _report(what: str, unit: str, few: Planned, many: Planned) -> bool:
    for planned in (few, many):
        print(
            f"    {what}: {planned.going:,} of {planned.count:,} {unit} go; loading "
            f"{planned.loading_s:.2f} s, planning {planned.planning_s:.2f} s; memory: the loaded "
            f"table {planned.loaded_mb:.1f} MB, the plan {planned.plan_mb:.2f} MB, planning beside "
            f"these {planned.beside_mb:.2f} MB"
        )
    assert few.going == many.going, "memory is compared for plans of one size"
    seconds = many.loading_s + many.planning_s
    met = verdict(f"{what}, loading and planning, s", seconds, PLANNING_S_MAX)
    return met & verdict(
        f"{what}, memory of planning, {many.count:,} {unit} beyond {few.count:,}, MB",
        many.beside_mb - few.beside_mb,
        GROWTH_MB_MAX,
    )


if __name__ == "__main__":
    asked, tiny, folder, leaving = sys.argv[1:]
    ASKED[asked](tiny, 20)
    print(json.dumps(asdict(ASKED[asked](folder, int(leaving)))))
