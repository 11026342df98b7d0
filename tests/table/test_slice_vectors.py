"""File slicing against Hudi's own file-system view: `vectors/file_slices.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyhudi.format.timeline.instant import Action, Instant, State, instant_time
from pyhudi.table.file_group import FileGroupFiles, FileSlice
from pyhudi.table.file_slices import file_slices, grouped_files, latest_slice, slice_at_request
from pyhudi.timeline.completion import CompletionTimes, visible_at_request, visible_now
from pyhudi.timeline.timeline import Timeline

_FILE = Path(__file__).parents[1] / "vectors" / "file_slices.json"
SCENARIOS: dict[str, dict[str, Any]] = json.loads(_FILE.read_bytes())["scenarios"]

#: Hudi opens a slice under a pending log's time and hides committed rows behind it; we do not.
HUDI_HIDES_COMMITTED_ROWS = "nbcc_first_log_pending_other_commit_before"

FILE_ID = "00000001-0000-0000-0000-000000000000-0"


def time(number: int) -> str:
    return f"202601010000{number:05d}"


def instant(action: Action, requested: int, completed: int | None) -> Instant:
    done = None if completed is None else instant_time(time(completed))
    state = State.INFLIGHT if completed is None else State.COMPLETED
    return Instant(instant_time(time(requested)), action, state, done)


class Scenario:
    """One file group's files and the timeline around them."""

    def __init__(self, given: dict[str, Any]) -> None:
        instants = [
            instant(Action.DELTACOMMIT, *pair) for pair in given.get("other_instants") or ()
        ]
        names = {}
        for number, base in enumerate(given["bases"]):
            action = Action.COMMIT if number or len(base) > 2 else Action.DELTACOMMIT
            instants.append(instant(action, base[0], base[1]))
            names[f"{FILE_ID}_0-1-0_{time(base[0])}.parquet"] = f"base@{base[0]}"
        for label, requested, completed, *rest in given["logs"]:
            version, token = rest or (1, "0-1-0")
            names[f".{FILE_ID}_{time(requested)}.log.{version}_{token}"] = label
            if completed != "orphan":
                instants.append(instant(Action.DELTACOMMIT, requested, completed))
        if compaction := given.get("pending_compaction"):
            requested = instant_time(time(compaction[0]))
            instants.append(Instant(requested, Action.COMPACTION, State.REQUESTED))
        if (written := given.get("uncommitted_base")) is not None:
            names[f"{FILE_ID}_0-2-0_{time(written)}.parquet"] = f"base@{written}"
        self.names = names
        self.pending = time(compaction[0]) if compaction else None
        self.timeline = Timeline.of(instants)
        self.times = CompletionTimes(self.timeline)

    @property
    def group(self) -> FileGroupFiles:
        (group,) = grouped_files("", [(name, 1) for name in self.names])
        return group

    def labels(self, slice_: FileSlice | None) -> tuple[str | None, list[str]] | None:
        if slice_ is None:
            return None
        base = self.names[slice_.base.path] if slice_.base else None
        return base, sorted(self.names[log.path] for log in slice_.logs)


def expected(slices: list[Any]) -> tuple[str | None, list[str]] | None:
    """Base file and logs; the recording does not keep the logs' order."""
    return (slices[0][1], sorted(slices[0][2])) if slices else None


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_snapshot_reads_the_files_that_hudi_reads(name: str) -> None:
    given = SCENARIOS[name]
    scenario = Scenario(given)
    latest = latest_slice(scenario.group, scenario.times, visible_now(scenario.timeline))
    if name == HUDI_HIDES_COMMITTED_ROWS:
        assert expected(given["latest_merged_now"]) is None
        assert scenario.labels(latest) == (None, ["b"])
    else:
        assert scenario.labels(latest) == expected(given["latest_merged_now"])


@pytest.mark.parametrize(
    ("name", "as_of"), [(n, t) for n, s in SCENARIOS.items() for t in s.get("as_of", ())]
)
def test_time_travel_by_request_reads_the_slice_that_hudi_reads(name: str, as_of: str) -> None:
    given = SCENARIOS[name]
    scenario = Scenario(given)
    at = time(int(as_of))
    found = slice_at_request(
        scenario.group,
        scenario.times,
        visible_now(scenario.timeline),
        visible_at_request(scenario.timeline, at),
        at,
    )
    base, logs = expected(given["as_of"][as_of]) or (None, [])
    # The recording names files of the slice; Hudi leaves out later blocks while it reads them.
    requested = {label: number for label, number, *_ in given["logs"]}
    assert scenario.labels(found) == (base, [log for log in logs if requested[log] <= int(as_of)])


#: Scenarios in which an uncommitted file opens no slice of Hudi's, so all slices must agree.
COMMITTED = [
    name
    for name, s in SCENARIOS.items()
    if all(isinstance(log[2], int) for log in s["logs"]) and s.get("uncommitted_base") is None
]


@pytest.mark.parametrize("name", COMMITTED)
def test_all_slices_agree_where_every_file_is_committed(name: str) -> None:
    given = SCENARIOS[name]
    scenario = Scenario(given)
    visible = visible_now(scenario.timeline)
    slices = file_slices(
        scenario.group, scenario.times, visible, pending_compaction=scenario.pending
    )
    ours = [(slice_.base_instant, *(scenario.labels(slice_) or ())) for slice_ in slices]
    assert ours == [(time(key), base, sorted(logs)) for key, base, logs in given["all_slices"]]


def test_the_vectors_cover_twenty_scenarios() -> None:
    assert len(SCENARIOS) == 20
    assert len(COMMITTED) >= 12
