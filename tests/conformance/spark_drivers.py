"""Spark drivers that commit to one table at the same time, and what a reader beside them may see.

Each driver is a process of its own with a session of its own (`spark/drivers/committer.py`); one
set of them serves all scenarios. A scenario gives each a list of commits. While they are at it,
readers poll, and afterwards every poll is judged by a model: which commits it saw, whether it saw
them wholly, and whether the rows are what exactly these commits make.

A commit can be told from the rows of a poll because some of its rows have keys of its own. They
are spread over all buckets, so a commit of which a part is visible shows some of them.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import pyhudi
from conformance.client import JudgeClient
from conformance.rows import assert_same_rows, encoded_rows
from pyhudi.format.table.column_owners import RANK_COLUMN
from pyhudi.table.schema import META_COLUMNS
from spark.cluster import DRIVERS, START_S, Process

Row = dict[str, Any]

_TICK_S = 0.01
SESSION_S = 400  # until the last of four drivers that start at once is there
SESSION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    # To compile code for a dozen rows takes longer than everything else.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


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


#: For `committer.py`: files that it makes or waits for at a driver's first commit.
Signals = Mapping[str, Any]


def polled(table: Path, number: int) -> Path:
    """Says that the poll of this number has ended."""
    return Path(f"{table}.polled.{number}")


def together(folder: Path, count: int) -> list[Signals]:
    """No first commit completes before all have begun."""
    begun = [str(folder / f"begun.{number}") for number in range(count)]
    return [{"begun": own, "completes_after": begun} for own in begun]


def overtaken(folder: Path) -> list[Signals]:
    """The first driver begins first, and the second one completes before it."""
    begun, done = str(folder / "begun"), str(folder / "done")
    return [
        {"begun": begun, "completes_after": [done]},
        {"begins_after": [begun], "done": done},
    ]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a driver told of a commit."""

    instant: str
    completed: str
    retries: int  # of pyhudi itself
    conflicts: tuple[Row, ...]  # errors that the driver's program met by writing again


# -- the drivers


class SparkDriver:
    """A driver program that runs, and the thread that listens to it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._heard: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        settings = {**SESSION, "spark.local.dir": str(folder)}  # nothing of a killed one stays
        self._process = Process(
            [sys.executable, str(DRIVERS / "committer.py"), name, json.dumps(settings)],
            folder / f"{name}.log",
            os.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.is_idle = False

    def _listen(self) -> None:
        assert self._process.popen.stdout is not None
        for line in self._process.popen.stdout:
            self._heard.put(json.loads(line))
        self._heard.put(None)

    def await_session(self) -> None:
        self._known(self._heard.get(timeout=SESSION_S))
        self.is_idle = True

    def begin(
        self, table: Path, commits: Iterable[Commit], signals: Signals, retries: int | None
    ) -> None:
        """Have it make the commits; the first of them gives and heeds the signals.

        Commit n is not completed before poll n has ended, so that drivers do not run away.
        """
        told = [
            {
                "name": commit.name,
                "verb": commit.verb,
                "rows": [list(row.values()) for row in commit.rows],
                "columns": commit.columns,
                "options": commit.options,
                "signals": self._signals(table, number, {} if number else signals),
            }
            for number, commit in enumerate(commits)
        ]
        settings: Row = {"job": f"driver {self.name}"}
        if retries is not None:
            settings["conflict_retries"] = retries
        task = {"table": str(table), "settings": settings, "commits": told}
        self.is_idle = False
        assert self._process.popen.stdin is not None
        self._process.popen.stdin.write(json.dumps(task) + "\n")
        self._process.popen.stdin.flush()

    def _signals(self, table: Path, number: int, given: Signals) -> Signals:
        begun = f"{table}.{self.name}.{number}.begun"
        awaited = [*given.get("completes_after", ()), str(polled(table, number))]
        return {"begun": begun, **given, "completes_after": awaited}

    def answers(self) -> Iterator[tuple[str, Answer]]:
        """What it told since the last time, by the name of the commit."""
        while not self._heard.empty():
            heard = self._known(self._heard.get())
            if "done" in heard:
                self.is_idle = True
            else:
                name, conflicts = heard.pop("commit"), tuple(heard.pop("conflicts"))
                yield name, Answer(**heard, conflicts=conflicts)

    def _known(self, heard: Row | None) -> Row:
        if heard is None:
            pytest.fail(f"driver {self.name} ended: {self._process.log}")
        return heard

    def kill(self) -> None:
        """With its JVM, which may be in the midst of something."""
        if self._process.is_running():
            os.killpg(self._process.popen.pid, signal.SIGKILL)
        self._listener.join(START_S)
        self._process.kill()


@contextmanager
def running_drivers(folder: Path, names: Iterable[str]) -> Iterator[list[SparkDriver]]:
    """Drivers of these names, all of which start at once; killed at the end."""
    with ExitStack() as stack:
        drivers = []
        for name in names:
            drivers.append(SparkDriver(name, folder))
            stack.callback(drivers[-1].kill)
        for driver in drivers:
            driver.await_session()
        yield drivers


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
        driver.begin(path, commits, given, retries if driver is drivers[0] else None)
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
            answers.update(driver.answers())


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
