"""Two and four Spark drivers, each a process of its own, upsert the same keys of one table at once.

All of them commit. While they do, a Hudi reader polls: it sees every commit that had returned
before it began, wholly or not at all, and never goes back. In the end three readers and a model
agree. The model folds commits by the ordering, and on a tie in the order of their requests.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi
from conformance.client import JudgeClient
from conformance.spark_drivers import (
    Commit,
    Row,
    agree,
    by_commit,
    by_ordering,
    check,
    joined,
    together,
    watch,
)
from spark.committers import SparkDriver, overtaken, running_drivers

pytestmark = [pytest.mark.judge, pytest.mark.conformance, pytest.mark.spark]

#: Keys that everybody writes, and keys of each commit alone; all spread over four buckets.
CONTESTED = 8
MARKS = 5

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("batch", pa.string())]
)
WIDE = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.string()),
        ("customer", pa.string()),
        ("amount", pa.int64()),
        ("order_batch", pa.string()),
        ("method", pa.string()),
        ("paid_at", pa.int64()),
        ("payment_batch", pa.string()),
    ]
)
OWNERS = {
    "orders": ["customer", "amount", "order_batch"],
    "payments": ["method", "paid_at", "payment_batch"],
}


@pytest.fixture(scope="module")
def drivers(
    judge: JudgeClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[SparkDriver]]:
    with running_drivers(tmp_path_factory.mktemp("drivers"), "abcd") as running:
        yield running


def create(path: Path, schema: pa.Schema = SCHEMA, **how: object) -> None:
    pyhudi.create_table(
        path,
        schema,
        record_key="id",
        partition_by="day",
        buckets=pyhudi.SimpleBuckets(2),
        **how,  # type: ignore[arg-type]
        upkeep=False,
    )


def row(id_: str, number: int, ts: int, batch: str) -> Row:
    return {"id": id_, "day": f"d{number % 2}", "ts": ts, "batch": batch}


def upserts(driver: str, count: int, *, newest: int) -> list[Commit]:
    """Commits of most of the contested keys, whose ordering values are any from 1 to `newest`."""
    chance = random.Random(driver)
    return [_upsert(f"{driver}{number}", chance, newest) for number in range(count)]


def _upsert(name: str, chance: random.Random, newest: int, victims: int = 0) -> Commit:
    contested = chance.sample(range(CONTESTED), CONTESTED - 2)
    own = {f"{name}.{number}": number for number in range(MARKS)}
    doomed = {f"{name}.x{number}": number for number in range(victims)}
    rows = [
        *(row(f"k{number}", number, chance.randint(1, newest), name) for number in contested),
        *(row(id_, number, 1, name) for id_, number in (own | doomed).items()),
    ]
    return Commit(name, tuple(rows), frozenset(own))


def upserts_and_deletes(driver: str, count: int, *, newest: int) -> list[Commit]:
    """After each upsert a delete, of rows of its own and of contested keys, as new as any."""
    chance = random.Random(driver)
    commits = []
    for number in range(count):
        upsert = _upsert(f"{driver}{number}", chance, newest, victims=MARKS)
        doomed = [r for r in upsert.rows if ".x" in r["id"]]
        contested = [
            row(f"k{n}", n, chance.randint(1, newest), "")
            for n in chance.sample(range(CONTESTED), 3)
        ]
        keys = [{name: r[name] for name in ("id", "day", "ts")} for r in (*doomed, *contested)]
        marks = frozenset(r["id"] for r in doomed)
        name = f"{driver}{number} undone"
        commits += [upsert, Commit(name, tuple(keys), marks, "delete", undoes=upsert.name)]
    return commits


def parts(owner: str, driver: str, count: int) -> list[Commit]:
    """Upserts of one owner's columns, some of them null: that is a value, and not "not mine"."""
    chance = random.Random(driver)
    text, number, batch = OWNERS[owner]
    commits = []
    for turn in range(count):
        name = f"{driver}{turn}"
        keys = [(f"k{n}", n) for n in chance.sample(range(CONTESTED), CONTESTED - 2)]
        own = [(f"{name}.{n}", n) for n in range(MARKS)]
        rows = tuple(
            {
                "id": id_,
                "day": f"d{n % 2}",
                text: None if chance.random() < 0.3 else f"{name} {n}",
                number: chance.randint(1, 99),
                batch: name,
            }
            for id_, n in (*keys, *own)
        )
        marks = frozenset(id_ for id_, _ in own)
        commits.append(Commit(name, rows, marks, options={"owner": owner}))
    return commits


def commits_of_each(quick: int, long: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("count", [quick, pytest.param(long, marks=pytest.mark.long)])


@commits_of_each(3, 6)
def test_two_drivers_upsert_the_same_buckets_without_a_conflict(
    judge: JudgeClient, drivers: list[SparkDriver], tmp_path: Path, count: int
) -> None:
    path = tmp_path / "table"
    create(path, ordering="ts")
    work = [upserts(driver.name, count, newest=50) for driver in drivers[:2]]
    watched = watch(judge, path, drivers[:2], work, together(tmp_path, 2))
    assert watched.conflicts == []
    assert watched.overlapping()
    check(watched, by_ordering)
    agree(judge, path, watched, by_ordering)


@pytest.mark.long
@commits_of_each(1, 3)
def test_four_drivers_upsert_and_delete_with_ties_without_a_conflict(
    judge: JudgeClient, drivers: list[SparkDriver], tmp_path: Path, count: int
) -> None:
    """So many upserts of each, and as many deletes."""
    path = tmp_path / "table"
    create(path, ordering="ts")
    work = [upserts_and_deletes(driver.name, count, newest=3) for driver in drivers]
    watched = watch(judge, path, drivers, work, together(tmp_path, 4))
    assert watched.conflicts == []
    assert watched.overlapping()
    check(watched, by_ordering)
    agree(judge, path, watched, by_ordering)


@commits_of_each(2, 4)
def test_two_drivers_without_an_ordering_conflict_and_all_commit_at_last(
    judge: JudgeClient, drivers: list[SparkDriver], tmp_path: Path, count: int
) -> None:
    """The first driver's program writes again after each error; the other leaves that to pyhudi."""
    path = tmp_path / "table"
    create(path)
    work = [upserts(driver.name, count, newest=1) for driver in drivers[:2]]
    watched = watch(judge, path, drivers[:2], work, overtaken(tmp_path), retries=0)
    lost, won = watched.answers[work[0][0].name], watched.answers[work[1][0].name]
    facts = lost.conflicts[0]["facts"]
    assert (facts["ours"]["job"], facts["theirs"]["job"]) == ("driver a", "driver b")
    assert (facts["rule"], facts["theirs"]["instant"]) == ("same_file_group", won.instant)
    assert won.instant in lost.conflicts[0]["text"]
    check(watched, by_commit)
    agree(judge, path, watched, by_commit)


@commits_of_each(3, 6)
def test_two_drivers_that_own_different_columns_join_their_rows(
    judge: JudgeClient, drivers: list[SparkDriver], tmp_path: Path, count: int
) -> None:
    path = tmp_path / "table"
    create(path, WIDE, owners=OWNERS)
    pairs = zip(OWNERS, drivers[:2], strict=True)
    work = [parts(owner, driver.name, count) for owner, driver in pairs]
    watched = watch(judge, path, drivers[:2], work, together(tmp_path, 2))
    assert watched.conflicts == []
    assert watched.overlapping()
    fold = joined(WIDE.names)
    check(watched, fold)
    agree(judge, path, watched, fold)
