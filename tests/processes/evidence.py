"""What is left of a table when all is over, as values to judge."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyhudi
from processes.journal import History
from processes.workload import Kind
from pyhudi.commit.write_ids import WRITE_ID_KEY
from pyhudi.conflict.file_groups import touched_groups
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import decode_commit_metadata
from pyhudi.format.timeline.decision_entry import LOG_FOLDER, Entry, decode_entry
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.format.timeline.plan_files import decode_rollback_plan
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage

TIMELINE_FOLDER = ".hoodie/timeline"
SEED_KEY = "pyhudi.seed"

_ROW = ["_hoodie_commit_time", "id", "day", "ts", "version", "payload"]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Done:
    """A write that completed."""

    requested: str
    completed: str
    write_id: str | None
    has_rows: bool  # not so a write of nothing, nor one that makes a partition's file groups
    paths: frozenset[str]
    groups: frozenset[FileGroupId]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One table, what its writers noted, and what a reader sees."""

    kind: Kind
    history: History
    paths: frozenset[str]  # every file or object of the table
    instants: tuple[Instant, ...]  # every file of the timeline
    done: Mapping[str, Done]  # by requested time
    rolled_back: tuple[tuple[str, str], ...]  # rollback, and what it gave up
    entries: tuple[Entry, ...]  # the decision log
    differing: tuple[str, ...]  # completed files that are not what was decided
    snapshots: Mapping[str | None, list[Row]]  # by completion time; None is now

    @property
    def completed(self) -> list[Instant]:
        return [instant for instant in self.instants if instant.state is State.COMPLETED]


def load_evidence(
    kind: Kind,
    history: History,
    uri: str,
    options: Mapping[str, str] | None,
    folder: Path | None,
    times: int,
    chance: random.Random,
) -> Evidence:
    """Read everything; of the past, as many moments as asked for."""
    storage = open_storage(uri, options)
    listed = {stat.path for stat in storage.list("")}
    if folder is not None:  # storage does not show its own temporary files
        found = (path for path in folder.rglob("*") if path.is_file())
        listed |= {path.relative_to(folder).as_posix() for path in found}
    instants = tuple(
        Instant.parse(path.rpartition("/")[2])
        for path in sorted(listed)
        if path.startswith(TIMELINE_FOLDER) and path.count("/") == TIMELINE_FOLDER.count("/") + 1
    )
    entries = tuple(
        decode_entry(storage.read(path), path)
        for path in sorted(listed)
        if path.startswith(f"{LOG_FOLDER}/")
    )
    written = [
        instant
        for instant in instants
        if instant.state is State.COMPLETED and instant.action is not Action.ROLLBACK
    ]
    done: dict[str, Done] = {instant.requested: done_of(storage, instant) for instant in written}
    moments = sorted(each.completed for each in done.values())
    chosen = chance.sample(moments, min(times, len(moments)))
    return Evidence(
        kind=kind,
        history=history,
        paths=frozenset(listed),
        instants=instants,
        done=done,
        rolled_back=tuple(_rolled_back(storage, instants)),
        entries=entries,
        differing=tuple(_differing(storage, entries, listed)),
        snapshots=_snapshots(uri, options, chosen),
    )


def _path(instant: Instant) -> str:
    return f"{TIMELINE_FOLDER}/{instant.file_name}"


def done_of(storage: Storage, instant: Instant) -> Done:
    path = _path(instant)
    metadata = decode_commit_metadata(storage.read(path), path)
    extra = metadata.extra_metadata or {}
    write_id = extra.get(WRITE_ID_KEY)
    paths = frozenset(s.data_path for stats in metadata.write_stats.values() for s in stats)
    assert instant.completed is not None
    return Done(
        requested=instant.requested,
        completed=instant.completed,
        write_id=write_id,
        has_rows=write_id is not None or (bool(paths) and extra.get(SEED_KEY) != "true"),
        paths=paths,
        groups=touched_groups(metadata),
    )


def _rolled_back(storage: Storage, instants: Iterable[Instant]) -> Iterable[tuple[str, str]]:
    for instant in instants:
        if instant.action is Action.ROLLBACK and instant.state is State.REQUESTED:
            path = _path(instant)
            plan = decode_rollback_plan(storage.read(path), path)
            assert plan.instant_to_rollback is not None
            yield instant.requested, plan.instant_to_rollback.commit_time


def _differing(storage: Storage, entries: Iterable[Entry], listed: set[str]) -> Iterable[str]:
    for entry in entries:
        if entry.creates is None:
            continue
        path = f"{TIMELINE_FOLDER}/{entry.creates.name}"
        if path in listed and not entry.creates.is_of(storage.read(path)):
            yield path


def _snapshots(
    uri: str, options: Mapping[str, str] | None, times: Iterable[str]
) -> dict[str | None, list[Row]]:
    table = pyhudi.open_table(uri, storage_options=options)
    moments: list[str | None] = [None, *times]
    return {time: table.read(as_of=time, columns=_ROW).to_arrow().to_pylist() for time in moments}
