"""Timeline file names."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_tables import NAMES, GoldenTables
from pyhudi.errors import CorruptTableError
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State, instant_time

T1 = InstantTime("20260102030405678")
T2 = InstantTime("20260102030406789")
OLD = InstantTime("20260102030405")
ZERO = InstantTime("0" * 17)


@pytest.mark.parametrize(
    ("file_name", "instant"),
    [
        (f"{T1}.commit.requested", Instant(T1, Action.COMMIT, State.REQUESTED)),
        (f"{T1}.inflight", Instant(T1, Action.COMMIT, State.INFLIGHT)),  # the odd one
        (f"{T1}_{T2}.commit", Instant(T1, Action.COMMIT, State.COMPLETED, T2)),
        (f"{T1}.deltacommit.requested", Instant(T1, Action.DELTACOMMIT, State.REQUESTED)),
        (f"{T1}.deltacommit.inflight", Instant(T1, Action.DELTACOMMIT, State.INFLIGHT)),
        (f"{T1}_{T2}.deltacommit", Instant(T1, Action.DELTACOMMIT, State.COMPLETED, T2)),
        (f"{T1}.compaction.requested", Instant(T1, Action.COMPACTION, State.REQUESTED)),
        (f"{T1}.compaction.inflight", Instant(T1, Action.COMPACTION, State.INFLIGHT)),
        (f"{T1}.logcompaction.inflight", Instant(T1, Action.LOGCOMPACTION, State.INFLIGHT)),
        (f"{T1}.clustering.requested", Instant(T1, Action.CLUSTERING, State.REQUESTED)),
        (f"{T1}_{T2}.replacecommit", Instant(T1, Action.REPLACECOMMIT, State.COMPLETED, T2)),
        (f"{T1}.savepoint.inflight", Instant(T1, Action.SAVEPOINT, State.INFLIGHT)),
        (f"{T1}_{T2}.savepoint", Instant(T1, Action.SAVEPOINT, State.COMPLETED, T2)),
        (f"{T1}_{T2}.clean", Instant(T1, Action.CLEAN, State.COMPLETED, T2)),
        (f"{T1}_{T2}.rollback", Instant(T1, Action.ROLLBACK, State.COMPLETED, T2)),
        (f"{T1}.restore.requested", Instant(T1, Action.RESTORE, State.REQUESTED)),
        (f"{T1}.indexing.inflight", Instant(T1, Action.INDEXING, State.INFLIGHT)),
        (f"{T1}_{T2}.schemacommit", Instant(T1, Action.SCHEMACOMMIT, State.COMPLETED, T2)),
        (f"{OLD}.clean.inflight", Instant(OLD, Action.CLEAN, State.INFLIGHT)),  # whole seconds
        (f"{ZERO}_{T2}.deltacommit", Instant(ZERO, Action.DELTACOMMIT, State.COMPLETED, T2)),
    ],
)
def test_timeline_file_name_round_trips(file_name: str, instant: Instant) -> None:
    assert Instant.parse(file_name) == instant
    assert instant.file_name == file_name


@pytest.mark.parametrize(
    "file_name",
    [
        "",
        "history",
        f".{T1}.inflight.crc",
        f"{T1}",
        f"{T1}.",
        f"{T1}.commit",  # completed in layout 1: no completion time
        f"{T1}.commit.inflight",  # Hudi leaves out the action here
        f"{T1}.savepoint.requested",  # a savepoint has no requested state
        f"{T1}_{T2}.compaction",  # completes as a commit
        f"{T1}_{T2}.clustering",
        f"{T1}_{T2}.logcompaction",
        f"{T1}_{T2}.commit.requested",
        f"{T1}_{T2}.inflight",
        f"{T1}_.commit",
        f"_{T2}.commit",
        f"{T1}_{T2}_{T2}.commit",
        f"{T1}.commit.completed",
        f"{T1}.commit.requested.tmp",
        f"{T1}.merge.requested",
        f"{T1}.COMMIT.requested",
        f"{T1[:-1]}.commit.requested",  # 16 digits
        f"{T1}0.commit.requested",
        f"{T1[:-1]}x.commit.requested",
        f"{T1[:-1]}٣.commit.requested",
        f" {T1[1:]}.commit.requested",
    ],
)
def test_other_names_in_the_timeline_folder_are_refused(file_name: str) -> None:
    with pytest.raises(CorruptTableError, match="is not a timeline file name"):
        Instant.parse(file_name)


@pytest.mark.parametrize("text", ["", "1", "2026010203040", T1 + "0", "2026-01-02T03:04"])
def test_instant_times_have_17_or_14_digits(text: str) -> None:
    with pytest.raises(ValueError, match="an instant time is 17 digits"):
        instant_time(text)


def test_table_services_complete_under_another_name() -> None:
    renamed = {action: action.completed_as for action in Action if action.completed_as != action}
    assert renamed == {
        Action.COMPACTION: Action.COMMIT,
        Action.LOGCOMPACTION: Action.DELTACOMMIT,
        Action.CLUSTERING: Action.REPLACECOMMIT,
    }


@pytest.mark.parametrize(("state", "completed"), [(State.COMPLETED, None), (State.INFLIGHT, T2)])
def test_an_instant_has_a_completion_time_exactly_when_completed(
    state: State, completed: InstantTime | None
) -> None:
    with pytest.raises(AssertionError):
        Instant(T1, Action.CLEAN, state, completed)


@pytest.mark.parametrize("name", NAMES)
def test_every_golden_timeline_file_name_round_trips(golden: GoldenTables, name: str) -> None:
    folder = golden.path(name) / ".hoodie"
    files = [p.name for p in folder.rglob("timeline/*") if p.is_file()]
    assert files
    assert [Instant.parse(file).file_name for file in files] == files


@settings(deadline=None)
@given(st.text(alphabet="0123456789_.abcdeghilmnopqrstuv", max_size=60))
def test_a_name_that_parses_is_written_back_as_it_was(text: str) -> None:
    for file_name in (text, f"{T1}.{text}", f"{T1}_{T2}.{text}"):
        try:
            instant = Instant.parse(file_name)
        except CorruptTableError:
            continue
        assert instant.file_name == file_name


def test_a_long_timeline_parses_in_a_moment() -> None:
    names = [f"{int(T1) + i}_{int(T2) + i}.deltacommit" for i in range(30_000)]
    begin = time.process_time()
    for name in names:
        Instant.parse(name)
    assert time.process_time() - begin < 1.0  # a tenth of a second on an idle machine
