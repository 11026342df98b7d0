"""Real processes on one table, killed and frozen: what was acknowledged is there, once, for good.

The writers, the trouble and the checks are in the modules beside this one; `soak.py` runs the same
for as long as one likes. A failure names its seed, which `PYHUDI_SEED` repeats as far as chance is
ours; journals and tables stay in the test's folder.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import pyhudi
from processes.checks import CHECKS, Check, violations
from processes.evidence import Done, Evidence, load_evidence
from processes.freeze_sweep import TABLE
from processes.journal import Event, History, Journal, Read, Write, load_history
from processes.ordeal import Goal, run_ordeal
from processes.stores import STORES, TESTS
from processes.workload import Batch, Kind, create_table, next_batch, open_table, write
from pyhudi.format.timeline.instant import Instant

#: On an idle machine the first figure is the one that counts.
GOAL = Goal(seconds=25, seconds_max=400, kills=6, freezes=3, acknowledged=10)


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("store", ["local", "moto"])
def test_writers_that_are_killed_and_frozen_lose_and_leave_nothing(
    store: str, tmp_path: Path
) -> None:
    seed = int(os.environ.get("PYHUDI_SEED") or random.SystemRandom().randrange(1_000_000))
    tables = tmp_path / "tables"
    tables.mkdir()
    with STORES[store](tables) as place:
        outcome = run_ordeal(place, tmp_path, seed, GOAL)
    print(outcome.told)
    assert not outcome.broken, "\n".join([outcome.told, *outcome.broken])
    assert not outcome.missing, "\n".join([outcome.told, *outcome.missing])


# -- frozen at a chosen moment


def test_a_writer_that_is_frozen_at_any_moment_stops_nobody(tmp_path: Path) -> None:
    kind = Kind.NON_BLOCKING
    command = [sys.executable, "-m", "processes.freeze_sweep", str(tmp_path), kind]
    swept = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert swept.returncode == 0, swept.stderr[-4_000:]
    assert int(swept.stdout) > 20  # the calls after which it was frozen
    table = tmp_path / TABLE
    open_table(str(table), None).services.repair(grace_minutes=0)
    history = load_history(tmp_path.glob("*.jsonl"))
    assert history.conflicts > int(swept.stdout) // 2  # most of the frozen were given up
    evidence = load_evidence(kind, history, str(table), None, table, 3, random.Random(0))
    assert violations(evidence) == []


@pytest.mark.parametrize("kind", Kind)
def test_a_first_write_that_was_given_up_stays_unseen_when_its_writer_wakes(
    kind: Kind, tmp_path: Path
) -> None:
    table = create_table(str(tmp_path / TABLE), kind, None)
    late, other = Batch("0-1", False, {0: 1}), Batch("1-1", False, {1: 1})
    arguments = [table.uri, kind, json.dumps(late.to_json())]
    command = [sys.executable, "-m", "processes.late_writer", *arguments]
    with subprocess.Popen(command, cwd=TESTS) as writer:
        _, status = os.waitpid(writer.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        settings = pyhudi.WriteSettings(failed_writes=pyhudi.FailedWrites.EAGER)
        write(pyhudi.open_table(table.uri, write_settings=settings), kind, other)
        writer.send_signal(signal.SIGCONT)
        assert writer.wait() == -signal.SIGKILL
    assert table.read().to_arrow()["version"].to_pylist() == [other.version]


# -- the checks can fail


def _quiet_evidence(kind: Kind, folder: Path) -> Evidence:
    """A table that one writer wrote in peace."""
    table = create_table(str(folder), kind, None)
    history, chance = History(), random.Random(7)
    for number in range(1, 7):
        batch = next_batch(kind, 0, number, chance)
        result = write(table, kind, batch)
        done = Write(batch, "0", 2 * number, 1, Event.OK, 2 * number + 1)
        done.instant, done.completed = result.instant, result.completed
        history.writes[batch.version] = done
    evidence = load_evidence(kind, history, str(folder), None, folder, 2, chance)
    fold = {row["id"]: row["version"] for row in evidence.snapshots[None]}
    history.reads.append(Read("0", max(d.completed for d in evidence.done.values()), fold))
    return evidence


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, Evidence]:
    folder = tmp_path_factory.mktemp("quiet")
    return {kind: _quiet_evidence(kind, folder / kind) for kind in Kind}


@pytest.mark.parametrize("kind", Kind)
def test_a_table_written_in_peace_keeps_every_promise(
    kind: Kind, quiet: dict[Kind, Evidence]
) -> None:
    assert violations(quiet[kind]) == []


def _last(evidence: Evidence) -> Done:
    return max(evidence.done.values(), key=lambda done: done.completed)


def _told(evidence: Evidence, **changes: object) -> Evidence:
    """With another story of the write that completed last."""
    version = _last(evidence).write_id or ""
    writes = evidence.history.writes
    write = replace(writes[version], **changes)  # type: ignore[arg-type]
    return replace(evidence, history=replace(evidence.history, writes={**writes, version: write}))


def _without_last(evidence: Evidence) -> Evidence:
    gone = _last(evidence).requested
    done = {requested: done for requested, done in evidence.done.items() if requested != gone}
    return replace(evidence, done=done)


def _again(evidence: Evidence) -> Evidence:
    later = replace(_last(evidence), requested="2" * 17)
    return replace(evidence, done={**evidence.done, later.requested: later})


def _with_paths(evidence: Evidence, *paths: str) -> Evidence:
    return replace(evidence, paths=evidence.paths | set(paths))


def _with_instants(evidence: Evidence, *names: str) -> Evidence:
    return replace(evidence, instants=(*evidence.instants, *map(Instant.parse, names)))


def _with_row(evidence: Evidence, **values: str) -> Evidence:
    first, *others = evidence.snapshots[None]
    return replace(evidence, snapshots={None: [{**first, **values}, *others]})


def _with_rows_twice(evidence: Evidence) -> Evidence:
    return replace(evidence, snapshots={None: evidence.snapshots[None] * 2})


def _with_read(evidence: Evidence) -> Evidence:
    read = replace(evidence.history.reads[0], versions={"k1": "9-9"})
    return replace(evidence, history=replace(evidence.history, reads=[read]))


def _with_entries_swapped(evidence: Evidence) -> Evidence:
    *others, one, other = evidence.entries
    return replace(evidence, entries=(*others, other, one))


def _overlapping(evidence: Evidence) -> Evidence:
    """As if the last write had begun before the first completed, and written the same files."""
    last = _last(evidence)
    first = min((d for d in evidence.done.values() if d.groups), key=lambda done: done.completed)
    early = replace(last, requested=first.requested, groups=first.groups)
    return replace(evidence, done={**evidence.done, last.requested: early})


def _rolled_back(evidence: Evidence, *pairs: tuple[str, str]) -> Evidence:
    return replace(evidence, rolled_back=pairs)


PLANTED: list[tuple[str, Callable[[Evidence], Evidence]]] = [
    ("acknowledged_writes_are_visible", _without_last),
    ("acknowledged_writes_are_visible", lambda e: _told(e, completed="2" * 17)),
    ("refused_writes_are_not", lambda e: _told(e, outcome=Event.FAIL)),
    ("refused_writes_are_not", _again),
    ("refused_writes_are_not", lambda e: replace(e, history=History())),
    ("rows_are_the_fold", lambda e: _with_row(e, version="9-9")),
    ("rows_are_the_fold", lambda e: _with_row(e, payload="of another")),
    ("rows_are_the_fold", lambda e: replace(e, snapshots={None: []})),
    ("rows_are_the_fold", _with_rows_twice),
    ("rows_are_the_fold", lambda e: _told(e, batch=Batch("0-6", True, dict.fromkeys(range(8), 1)))),
    ("reads_saw_the_fold", _with_read),
    ("times_increase", _with_entries_swapped),
    ("times_increase", lambda e: _with_instants(e, f"{'2' * 17}_{_last(e).completed}.commit")),
    ("order_is_that_of_real_time", lambda e: _told(e, completed="0" * 17)),
    ("log_and_timeline_agree", _with_entries_swapped),
    ("log_and_timeline_agree", lambda e: replace(e, differing=("a file",))),
    ("log_and_timeline_agree", lambda e: _with_instants(e, f"{'2' * 17}_{'3' * 17}.commit")),
    ("log_and_timeline_agree", lambda e: replace(e, instants=e.instants[:1])),
    ("rollbacks_are_exact", lambda e: _rolled_back(e, ("2" * 17, _last(e).requested))),
    ("rollbacks_are_exact", lambda e: _rolled_back(e, ("2" * 17, "1"), ("3" * 17, "1"))),
    ("rollbacks_are_exact", _without_last),
    ("nothing_is_left", lambda e: _with_instants(e, f"{'2' * 17}.rollback.requested")),
    ("nothing_is_left", lambda e: _with_paths(e, ".hoodie/.heartbeat/" + "2" * 17)),
    ("nothing_is_left", lambda e: _with_paths(e, ".hoodie/.pyhudi/tmp/a")),
    ("nothing_is_left", lambda e: _with_paths(e, ".hoodie/.pyhudi/staged/a")),
    ("nothing_is_left", lambda e: _with_paths(e, f".hoodie/.temp/{'2' * 17}/d0/a")),
    ("nothing_is_left", lambda e: _with_paths(e, f"d0/a_0-0-0_{'2' * 17}.parquet")),
    ("nothing_is_left", lambda e: replace(e, paths=frozenset())),
    ("nobody_was_surprised", lambda e: replace(e, history=replace(e.history, surprises=["!"]))),
]


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize(("check", "spoil"), PLANTED)
def test_a_check_notices_what_it_is_for(
    check: str, spoil: Callable[[Evidence], Evidence], kind: Kind, quiet: dict[Kind, Evidence]
) -> None:
    assert list(_checks()[check](spoil(quiet[kind])))


def test_writes_of_one_file_group_that_overlap_are_noticed(quiet: dict[Kind, Evidence]) -> None:
    check = _checks()["first_committer_wins"]
    assert list(check(_overlapping(quiet[Kind.OPTIMISTIC])))
    assert not list(check(_overlapping(quiet[Kind.NON_BLOCKING])))


def test_every_check_has_been_seen_to_fail() -> None:
    assert {name for name, _ in PLANTED} | {"first_committer_wins"} == set(_checks())


def _checks() -> dict[str, Check]:
    return {check.__name__: check for check in CHECKS}


def test_a_journal_that_a_kill_cut_short_goes_on_after_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "a-0.jsonl"
    batch = Batch("0-1", False, {1: 5})
    journal = Journal(path)
    journal.note(Event.START)
    journal.note(Event.INVOKE, batch=batch.to_json())
    path.write_bytes(path.read_bytes() + b'{"event": "ok", "vers')
    again = Journal(path)
    again.note(Event.STOP)
    assert (again.lives, again.next_number(), again.undecided()) == (1, 2, batch)
    assert load_history([path]).with_outcome(Event.UNKNOWN) == [load_history([path]).writes["0-1"]]
