"""Opening a table and planning a snapshot: 100,000 files, 10,000 instants, half of them archived.

Compared with listing those files and nothing else. A second read that finds one new commit must
cost what changed.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
from measure import best_of, verdict

import pyhudi
from pyhudi.format.timeline.archive import (
    VERSION_FILE,
    ArchivedInstant,
    Manifest,
    ManifestEntry,
    archive_file_name,
    encode_archive_file,
    encode_archive_version,
    encode_manifest,
    manifest_name,
)
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from handmade import HandmadeTable, at

FILES = 100_000
PARTITIONS = 100
ACTIVE = ARCHIVED = 5_000
RATIO_MAX = 3.0

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.string())])


def moment(number: int, millisecond: int = 0) -> str:
    """The time of the n-th instant: one a minute, the last on New Year's Eve."""
    time = datetime(2026, 1, 1) - timedelta(minutes=ARCHIVED + ACTIVE - number)
    return time.strftime("%Y%m%d%H%M%S") + f"{millisecond:03}"


def build(folder: Path) -> HandmadeTable:
    """Empty files with real names: planning opens none of them.

    Every instant wrote ten files; groups have a base file, and most of them logs.
    """
    made = HandmadeTable(open_storage(str(folder)), SCHEMA, partition_by="part", ordering="v")
    for number in range(PARTITIONS):
        (folder / f"part{number:03}").mkdir()
    timeline = folder / ".hoodie" / "timeline"
    timeline.mkdir(parents=True)
    made.begin(1_000_000)
    made.complete(1_000_000, 1_000_001)
    metadata = next(timeline.glob(f"{at(1_000_000)}_*")).read_bytes()
    for number in range(ARCHIVED + ACTIVE):
        requested, completed = moment(number), moment(number, 5)
        if number >= ARCHIVED:
            (timeline / f"{requested}.deltacommit.requested").touch()
            (timeline / f"{requested}.deltacommit.inflight").touch()
            (timeline / f"{requested}_{completed}.deltacommit").write_bytes(metadata)
    _archive(made.storage, metadata)
    for number in range(FILES):
        partition = folder / f"part{number % PARTITIONS:03}"
        group, version = divmod(number // PARTITIONS, 5)
        file_id, requested = f"{group:08}-0", moment(number // 10)
        base = f"{file_id}_0-1-0_{requested}.parquet"
        (partition / (base if version == 0 else f".{file_id}_{requested}.log.1_0-1-0")).touch()
    return made


def _archive(storage: Storage, metadata: bytes) -> None:
    instants = [
        ArchivedInstant(InstantTime(moment(n)), InstantTime(moment(n, 5)), "deltacommit", metadata)
        for n in range(ARCHIVED)
    ]
    data, name = encode_archive_file(instants), archive_file_name(instants)
    folder = ".hoodie/timeline/history"
    storage.write(f"{folder}/{name.file_name}", data)
    manifest = Manifest((ManifestEntry(name, len(data)),))
    storage.write(f"{folder}/{manifest_name(1)}", encode_manifest(manifest))
    storage.write(f"{folder}/{VERSION_FILE}", encode_archive_version(1))


def listed(storage: Storage) -> int:
    return sum(1 for _ in storage.list(""))


def main() -> bool:
    print(f"planning: {FILES:,} files, {ACTIVE:,} active and {ARCHIVED:,} archived instants")
    with tempfile.TemporaryDirectory() as folder:
        made = build(Path(folder))
        uri, storage = made.storage.uri, made.storage
        table = pyhudi.open_table(uri)
        assert len(table.read().plan.reads) == FILES // 5
        best = best_of(
            5,
            {
                "list the files": lambda: listed(storage),
                "open and plan a snapshot": lambda: pyhudi.open_table(uri).read().plan,
                "refresh, nothing new": lambda: table._refreshed(),
            },
        )
        for name, cost in best.items():
            print(f"  {name}: {cost.cpu_s:.2f} CPU s, {cost.wall_s:.2f} s")
        listing, planning, unchanged = best.values()
        made.begin(2_000_000)
        row = {"id": "a", "part": "part007", "v": "1"}
        path = made.log(2_000_000, made.rows_block(2_000_000, [row]), partition="part007")
        made.complete(2_000_000, 2_000_001, [path])
        changed = best_of(1, {"refresh": lambda: table._refreshed()})["refresh"]
        print(f"  refresh after one commit: {changed.cpu_s:.3f} CPU s, {changed.wall_s:.3f} s")
    met = verdict("open and plan / list", planning.wall_s / listing.wall_s, RATIO_MAX)
    met &= verdict("refresh of one commit / list", changed.wall_s / listing.wall_s, 0.5)
    return met & verdict("refresh of nothing / list", unchanged.wall_s / listing.wall_s, 0.5)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
