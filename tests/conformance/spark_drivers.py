"""Spark drivers that commit to one table at the same time, and what a reader beside them may see.

One set of drivers (`spark/committers.py`) serves all scenarios. A scenario gives each a list of
commits. While they are at it, readers poll, and afterwards every poll is judged by a model: which
commits it saw, whether it saw them wholly, and whether the rows are what exactly these commits
make.

A commit can be told from the rows of a poll because some of its rows have keys of its own. They
are spread over all buckets, so a commit of which a part is visible shows some of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyhudi
from conformance.client import JudgeClient
from conformance.rows import assert_same_rows, encoded_rows
from pyhudi.format.table.column_owners import RANK_COLUMN
from pyhudi.table.schema import META_COLUMNS
from spark.committers import Signals, SparkDriver

Row = dict[str, Any]

_TICK_S = 0.01


# -- what is committed


@dataclass(frozen=True, slots=True)
class Commit:
    """One write of one driver. Its `marks` are keys that no other commit writes.

    A delete `undoes` an earlier commit of its driver: its marks are rows of that one, and their
    absence is what shows it.
    """

    name: str
    rows: tuple[Row, ...]
    marks: frozenset[str]
    verb: str = "upsert"
    undoes: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> str:
        return ", ".join(f"{name} {_SPARK[name]}" for name in self.rows[0])


_SPARK = {
    **dict.fromkeys(("id", "day", "batch", "customer", "order_batch"), "string"),
    **dict.fromkeys(("method", "payment_batch"), "string"),
    **dict.fromkeys(("ts", "amount", "paid_at"), "long"),
}


def polled(table: Path, number: int) -> Path:
    """Says that the poll of this number has ended."""
    return Path(f"{table}.polled.{number}")


def together(folder: Path, count: int) -> list[Signals]:
    """No first commit completes before all have begun."""
    begun = [str(folder / f"begun.{number}") for number in range(count)]
    return [{"begun": own, "completes_after": begun} for own in begun]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a driver told of a commit."""

    instant: str
    completed: str
    retries: int  # of pyhudi itself
    conflicts: tuple[Row, ...]  # errors that the driver's program met by writing again


# -- their drivers


def begin(
    driver: SparkDriver,
    table: Path,
    commits: Iterable[Commit],
    signals: Signals,
    retries: int | None,
) -> None:
    """Have the driver make the commits; the first of them gives and heeds the signals.

    Commit n is not completed before poll n has ended, so that drivers do not run away.
    """
    told = [
        {
            "name": commit.name,
            "verb": commit.verb,
            "rows": [list(row.values()) for row in commit.rows],
            "columns": commit.columns,
            "options": commit.options,
            "signals": _signals(driver, table, number, {} if number else signals),
        }
        for number, commit in enumerate(commits)
    ]
    settings: Row = {"job": f"driver {driver.name}"}
    if retries is not None:
        settings["conflict_retries"] = retries
    driver.begin(table, told, settings)


def _signals(driver: SparkDriver, table: Path, number: int, given: Signals) -> Signals:
    begun = f"{table}.{driver.name}.{number}.begun"
    awaited = [*given.get("completes_after", ()), str(polled(table, number))]
    return {"begun": begun, **given, "completes_after": awaited}


def answers_of(driver: SparkDriver) -> Iterator[tuple[str, Answer]]:
    """What it told since the last time, by the name of the commit."""
    for heard in driver.heard():
        name, conflicts = heard.pop("commit"), tuple(heard.pop("conflicts"))
        yield name, Answer(**heard, conflicts=conflicts)


# -- what is seen


@dataclass(frozen=True, slots=True)
class Poll:
    """One read, and the commits that had returned before it began."""

    reader: str
    returned: frozenset[str]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Watched:
    """All that drivers and readers told of a scenario."""

    commits: Mapping[str, Commit]
    answers: Mapping[str, Answer]
    polls: tuple[Poll, ...]

    @property
    def conflicts(self) -> list[Row]:
        return [conflict for answer in self.answers.values() for conflict in answer.conflicts]

    def in_order(self, names: Iterable[str]) -> list[Commit]:
        """Commits in the order in which their log files count: that of their requests."""
        ordered = sorted(names, key=lambda name: self.answers[name].instant)
        return [self.commits[name] for name in ordered]

    def overlapping(self) -> int:
        """Pairs of commits of which each began before the other had completed."""
        spans = [(answer.instant, answer.completed) for answer in self.answers.values()]
        spans.sort()
        return sum(later[0] < first[1] for n, first in enumerate(spans) for later in spans[n + 1 :])


def watch(
    judge: JudgeClient,
    path: Path,
    drivers: Sequence[SparkDriver],
    work: Sequence[Sequence[Commit]],
    signals: Sequence[Signals],
    *,
    retries: int | None = None,
) -> Watched:
    """Have each driver do its work on a table, and read it until all of them are done.

    A poll follows each answer, while other drivers are at work, and the last one follows all.
    `retries` is how often the first driver's writes are repeated by pyhudi after a conflict.
    """
    table = pyhudi.open_table(path)
    for driver, commits, given in zip(drivers, work, signals, strict=True):
        begin(driver, path, commits, given, retries if driver is drivers[0] else None)
    answers: dict[str, Answer] = {}
    polls: list[Poll] = []
    for number in count():
        returned, done = frozenset(answers), all(driver.is_idle for driver in drivers)
        polls.append(Poll("Hudi", returned, _data_rows(judge.hudi_rows(path, meta=False))))
        ours = encoded_rows(table.read(meta=True).to_arrow())
        polls.append(Poll("pyhudi", returned, _data_rows(ours)))
        polled(path, number).touch()
        if done:
            break
        _await_answers(drivers, answers)
    known = {commit.name: commit for commits in work for commit in commits}
    return Watched(known, answers, tuple(polls))


def _await_answers(drivers: Sequence[SparkDriver], answers: dict[str, Answer]) -> None:
    """Hear what drivers say, until one has said something new or all are done."""
    before = len(answers)
    while len(answers) == before and not all(driver.is_idle for driver in drivers):
        time.sleep(_TICK_S)
        for driver in drivers:
            answers.update(answers_of(driver))


def _data_rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Without what Hudi and pyhudi keep beside the columns of the user."""
    dropped = {RANK_COLUMN, *META_COLUMNS}
    return tuple({n: v for n, v in row.items() if n not in dropped} for row in rows)


# -- what should have been seen

Fold = Callable[[Iterable[Commit]], list[Row]]


def by_ordering(commits: Iterable[Commit]) -> list[Row]:
    """The greatest ordering value wins, and of equal ones the later commit; deletes too."""
    best: dict[str, tuple[int, Row | None]] = {}
    for commit in commits:
        for row in commit.rows:
            if row["id"] not in best or row["ts"] >= best[row["id"]][0]:
                best[row["id"]] = (row["ts"], None if commit.verb == "delete" else row)
    return [row for _, row in best.values() if row is not None]


def by_commit(commits: Iterable[Commit]) -> list[Row]:
    """The later commit wins."""
    rows = {row["id"]: row for commit in commits for row in commit.rows}
    return list(rows.values())


def joined(columns: Sequence[str]) -> Fold:
    """Each column by itself: the later commit of its owner wins, and others leave it alone."""

    def fold(commits: Iterable[Commit]) -> list[Row]:
        rows: dict[str, Row] = {}
        for commit in commits:
            for row in commit.rows:
                rows[row["id"]] = rows.get(row["id"], dict.fromkeys(columns)) | row
        return list(rows.values())

    return fold


def check(watched: Watched, fold: Fold) -> None:
    """Judge every poll: nothing missing, nothing in part, nothing taken back, nothing invented."""
    assert watched.answers.keys() == watched.commits.keys(), "all of them commit"
    seen: dict[str, frozenset[str]] = {}
    for number, poll in enumerate(watched.polls):
        what = f"poll {number}, by {poll.reader}"
        visible = frozenset(_visible(poll, watched.commits, what))
        assert poll.returned <= visible, f"{what} misses {sorted(poll.returned - visible)}"
        before = seen.get(poll.reader, frozenset())
        assert before <= visible, f"{what} no longer sees {sorted(before - visible)}"
        seen[poll.reader] = visible
        expected = fold(watched.in_order(visible))
        assert _lines(poll.rows) == _lines(expected), f"{what} sees {sorted(visible)}"


def _visible(poll: Poll, commits: Mapping[str, Commit], what: str) -> Iterator[str]:
    """The names of the commits that the poll saw, none of which may be there in part."""
    ids = {row["id"] for row in poll.rows}
    for commit in commits.values():
        shown = commit.marks & ids
        if commit.undoes is not None:
            is_there = commits[commit.undoes].marks <= ids
            shown = commit.marks - ids if is_there else frozenset()
        assert shown in (frozenset(), commit.marks), f"{what} sees a part of {commit.name}: {shown}"
        if shown:
            yield commit.name


def _lines(rows: Iterable[Row]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def agree(judge: JudgeClient, path: Path, watched: Watched, fold: Fold) -> None:
    """All three readers give the rows of all commits, meta columns and all."""
    ours = pyhudi.open_table(path).read(meta=True).to_arrow()
    assert _lines(_data_rows(encoded_rows(ours))) == _lines(fold(watched.in_order(watched.commits)))
    assert_same_rows(ours, judge.hudi_rows(path))
    assert_same_rows(ours, judge.rs_rows(path))
