"""How many storage requests each verb makes, on tables of every kind in memory.

`tests/api/request_counts.tsv` has the numbers. To record them again:
`.venv/bin/python tests/request_counts.py > tests/api/request_counts.tsv`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

import pyarrow as pa

import pyhudi
from counted_storage import CountedStorage
from many_writers.scene import COW, NBCC, OCC, SHARED, Definition, Scene, rows
from played_spark import spark_frame
from pyhudi.api.table import Table
from pyhudi.format.table.bucket_config import Buckets, ConsistentBuckets, SimpleBuckets
from pyhudi.format.table.column_owners import ColumnOwners
from pyhudi.plan.upkeep import encode_upkeep
from pyhudi.storage.objects.column_owners import declare_owners

OWNERS = {"writer": ("by",), "clock": ("ts",)}
#: All services, each by a trigger that the few writes here do not reach: nothing is due.
NOT_DUE = pyhudi.Upkeep(compaction=pyhudi.CompactionPolicy(trigger_delta_commits=1_000))
TABLES: dict[str, Definition] = {
    "mor nbcc": NBCC,
    "mor upkeep": {**NBCC, "upkeep": encode_upkeep(NOT_DUE)},
    "mor occ": OCC,
    "mor lock": {**NBCC, **SHARED},
    "cow": COW,
    "mor rings": NBCC,
    "joined": {"owners": OWNERS},
}
BUCKETS = (1, 4)  # of each partition
KEYS = tuple(f"k{i}" for i in range(12))  # some in each of four buckets
TURNS = 3
HOUR_MS = 3_600_000

#: A verb, and the number of its call. Each call finds as much work as the one before.
Verb = Callable[[Table, int], object]


class Case(NamedTuple):
    """A call of a verb.

    Cold is the first call of a process, which has the table open and did nothing else; warm is its
    second call of the same verb.
    """

    table: str
    buckets: int
    verb: str
    state: str


def identity(given: pa.Table, *more: str) -> pa.Table:
    return given.select(["id", "day", *more])


def written(by: str, turn: int) -> pa.Table:
    """Return new versions of rows that are there."""
    return rows(by, *KEYS, ts=10 + turn)


def new(turn: int) -> pa.Table:
    return rows("new", *(f"{key}-{turn}" for key in KEYS))


READS: dict[str, Verb] = {
    "read": lambda table, _: table.read().to_arrow(),
    "changes": lambda table, _: table.changes().to_arrow(),
}
LOOKS: dict[str, Verb] = {
    "plan upsert": lambda table, turn: table.plan_upsert(written("u", turn)),
    "plan update": lambda table, turn: table.plan_update(
        identity(written("up", turn), "by"), columns=["by"]
    ),
    "plan overwrite": lambda table, turn: table.plan_overwrite(written("o", turn)),
    "markers": lambda table, _: table.inspect.markers(),
}
WRITES: dict[str, Verb] = {
    "upsert": lambda table, turn: table.upsert(written("u", turn)),
    "upsert with a write id": lambda table, turn: table.upsert(
        written("u", turn), write_id=f"w{turn}"
    ),
    "append": lambda table, turn: table.append(new(turn)),
    "append, new keys": lambda table, turn: table.append(new(turn), require_new_keys=True),
    "update": lambda table, turn: table.update(identity(written("up", turn), "by"), columns=["by"]),
    "delete rows": lambda table, turn: table.delete(identity(rows("", f"old{turn}"), "ts")),
    "delete keys": lambda table, turn: table.delete(rows("", f"old{turn}").select(["id"])),
    "delete where": lambda table, turn: table.delete(f"by = 'old{turn}'"),
    "overwrite": lambda table, turn: table.overwrite(rows(f"o{turn}", *KEYS, day="we")),
    "delete partitions": lambda table, turn: table.delete_partitions([f"gone{turn}"]),
}
SPARK_WRITES: dict[str, Verb] = {
    "spark upsert": lambda table, turn: table.upsert(spark_frame(written("s", turn))),
    "spark append": lambda table, turn: table.append(spark_frame(new(turn))),
    "spark append, new keys": lambda table, turn: table.append(
        spark_frame(new(turn)), require_new_keys=True
    ),
    "spark update": lambda table, turn: table.update(
        spark_frame(identity(written("s", turn), "by")), columns=["by"]
    ),
    "spark delete rows": lambda table, turn: table.delete(
        spark_frame(identity(rows("", f"old{turn}"), "ts"))
    ),
    "spark overwrite": lambda table, turn: table.overwrite(
        spark_frame(rows(f"o{turn}", *KEYS, day="we"))
    ),
}
PARTS: dict[str, Verb] = {
    "part": lambda table, turn: table.upsert(identity(written("p", turn), "by"), owner="writer"),
    "spark part": lambda table, turn: table.upsert(
        spark_frame(identity(written("p", turn), "by")), owner="writer"
    ),
}
ARCHIVING = pyhudi.ArchivePolicy(
    keep_min=1, keep_max=2, delta_commits=0, grace_ms=0, aborted_grace_ms=0
)
SERVICES: dict[str, Verb] = {
    "compact": lambda table, _: table.services.compact(),
    "clean": lambda table, _: table.services.clean(pyhudi.CleanPolicy.versions(1)),
    "archive": lambda table, _: table.services.archive(ARCHIVING),
}
#: What gives a service its work, and is not counted.
BEFORE: dict[str, tuple[Verb, ...]] = {
    "compact": (WRITES["upsert"],),
    "clean": (WRITES["upsert"], SERVICES["compact"]),
    "archive": (WRITES["upsert"], WRITES["upsert"], SERVICES["compact"]),
}


def buckets_of(table: str, count: int) -> Buckets:
    return ConsistentBuckets(count) if table == "mor rings" else SimpleBuckets(count)


def verbs_of(table: str, buckets: int) -> Mapping[str, Verb]:
    """Return the verbs to count; with one bucket, one read and one write for comparison."""
    if table == "joined":
        verbs = {**READS, **PARTS, "delete keys": WRITES["delete keys"]}
    elif table == "mor upkeep":
        verbs = {**WRITES, **SPARK_WRITES}
    else:
        verbs = {**READS, **LOOKS, **WRITES, **SPARK_WRITES, **SERVICES}
    compared = ("read", "upsert", "part") if buckets == 1 else verbs
    return {name: verb for name, verb in verbs.items() if name in compared}


@cache
def prepared(table: str, buckets: int) -> Scene:
    """Return a table with logs, and with rows for each call to delete."""
    definition = TABLES[table]
    scene = Scene(**definition, buckets=buckets_of(table, buckets))
    if owners := definition.get("owners"):
        declare_owners(scene.storage, ColumnOwners(owners))
    olds = [rows(f"old{turn}", f"old{turn}") for turn in range(TURNS)]
    days = [rows("gone", *KEYS, day=f"gone{turn}") for turn in range(TURNS)]
    given = pa.concat_tables([rows("a", *KEYS), *olds, *days])
    writer = scene.table("first")
    if owners:
        for owner, columns in owners.items():
            writer.upsert(identity(given, *columns), owner=owner)
    else:
        writer.upsert(given)
        writer.upsert(rows("b", *KEYS, ts=2))
    return scene


def counted(table: str, buckets: int) -> Iterator[tuple[Case, Counter[str]]]:
    """Count the requests of every verb on one kind of table."""
    for name, verb in verbs_of(table, buckets).items():
        scene = prepared(table, buckets).copy()
        storage = CountedStorage(scene.storage)
        with storage.counting() as requests:
            opened = scene.table("counted", storage.as_storage())
        if name == "read":
            yield Case(table, buckets, "open", "cold"), requests
        for turn, state in enumerate(("cold", "warm")):
            for preparation in BEFORE.get(name, ()):
                scene.clock.sleep(HOUR_MS)  # past the graces of the services
                preparation(scene.table("another"), turn)
            with storage.counting() as requests:
                verb(opened, turn)
            yield Case(table, buckets, name, state), requests
        if name in READS:
            _another_writes(scene, table)
            with storage.counting() as requests:
                verb(opened, 2)
            yield Case(table, buckets, name, "after a write"), requests
    if table != "joined":
        scene = Scene(**TABLES[table], buckets=buckets_of(table, buckets))
        storage = CountedStorage(scene.storage)
        opened = scene.table("counted", storage.as_storage())
        with storage.counting() as requests:
            opened.upsert(rows("a", *KEYS))
        yield Case(table, buckets, "upsert", "first of all"), requests


def _another_writes(scene: Scene, table: str) -> None:
    given = written("another", 9)
    if table == "joined":
        scene.table("another").upsert(identity(given, "by"), owner="writer")
    else:
        scene.table("another").upsert(given)


def line(case: Case, requests: Counter[str]) -> str:
    """Return the case with its total and what the total is made of.

    >>> line(Case("cow", 4, "read", "warm"), Counter(list=1, open=4))
    'cow\\t4\\tread\\twarm\\t5\\tlist=1 open=4'
    """
    by_verb = " ".join(f"{verb}={count}" for verb, count in sorted(requests.items()))
    return "\t".join([*map(str, case), str(requests.total()), by_verb])


def parse_line(text: str) -> tuple[Case, Counter[str]]:
    """Return what `line` was given."""
    table, buckets, verb, state, total, by_verb = text.split("\t")
    counts = {name: int(count) for name, count in (part.split("=") for part in by_verb.split())}
    assert sum(counts.values()) == int(total), text
    return Case(table, int(buckets), verb, state), Counter(counts)


def differences(
    recorded: Mapping[Case, Counter[str]], found: Mapping[Case, Counter[str]]
) -> list[str]:
    """Return a text for each case whose requests are not as recorded."""
    told = []
    for case in {**recorded, **found}:
        if case not in found or case not in recorded:
            told.append(f"{case} is {'recorded' if case in recorded else 'found'} only")
            continue
        before, now = recorded[case], found[case]
        if before != now:
            more = now.total() - before.total()
            word = (
                f"{more} more" if more > 0 else f"{-more} fewer (record it)" if more else "others"
            )
            verbs = [v for v in sorted({*before, *now}) if before[v] != now[v]]
            changes = ", ".join(f"{verb} {before[verb]} → {now[verb]}" for verb in verbs)
            told.append(f"{case} makes {word}: {changes}")
    return told


def main() -> None:
    for table in TABLES:
        for buckets in BUCKETS:
            for case, requests in counted(table, buckets):
                print(line(case, requests))


if __name__ == "__main__":
    main()
