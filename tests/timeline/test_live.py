"""The live timeline: a listing and the entries since are the timeline."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.format.timeline.decision_entry import Entry, EntryKind, Target, creation
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.timeline.live import BEFORE_ALL, LiveTimeline


def at(number: int) -> str:
    return f"20260101{number:09d}"


def begin(time: int) -> Entry:
    made = creation(f"{at(time)}.deltacommit.requested", b"")
    return Entry(
        n=time,
        id=str(time),
        prev=None,
        kind=EntryKind.BEGIN,
        time=at(time),
        instant=at(time),
        action=Action.DELTACOMMIT,
        creates=made,
    )


def complete(requested: int, time: int, action: Action = Action.DELTACOMMIT) -> Entry:
    entry = replace(begin(time), kind=EntryKind.COMPLETE, instant=at(requested), action=action)
    name = f"{at(requested)}_{at(time)}.{action.completed_as}"
    return replace(entry, creates=creation(name, b""))


def abort(target: int, time: int) -> Entry:
    entry = replace(begin(time), kind=EntryKind.ABORT, action=Action.ROLLBACK)
    return replace(entry, target=Target(at(target), Action.DELTACOMMIT))


def instants(*names: str) -> list[Instant]:
    return [Instant.parse(name) for name in names]


def test_an_empty_timeline_has_no_time() -> None:
    assert LiveTimeline().highest == BEFORE_ALL
    assert LiveTimeline().completed_after(BEFORE_ALL) == []


def test_a_listing_tells_what_is_pending_and_what_completed() -> None:
    live = LiveTimeline(
        instants(
            f"{at(1)}.deltacommit.requested",
            f"{at(1)}.deltacommit.inflight",
            f"{at(1)}_{at(4)}.deltacommit",
            f"{at(2)}.deltacommit.requested",
            f"{at(3)}.compaction.requested",
            f"{at(3)}_{at(5)}.commit",
        )
    )
    assert list(live.pending) == [at(2)]
    assert [i.requested for i in live.completed_after(at(4))] == [at(3)]
    assert [i.requested for i in live.completed_after(at(3))] == [at(1), at(3)]
    assert live.highest == at(5)


def test_a_savepoint_is_not_taken_for_the_write_it_keeps() -> None:
    live = LiveTimeline(instants(f"{at(1)}.deltacommit.requested", f"{at(1)}_{at(9)}.savepoint"))
    assert at(1) in live.pending
    assert not live.is_completed(at(1))
    assert live.highest == at(9)


def test_a_rollback_that_is_done_leaves_only_ghosts_of_its_target() -> None:
    live = LiveTimeline()
    for entry in (begin(1), abort(1, 2), complete(2, 3, Action.ROLLBACK)):
        live.note(entry)
    assert live.pending == {}
    assert live.rolled_back_by == {at(1): at(2)}
    listed = LiveTimeline(
        instants(f"{at(1)}.deltacommit.inflight", f"{at(2)}_{at(3)}.rollback")
    )  # a zombie brought the inflight file back
    assert listed.rollbacks_to_look_at() == [at(2)]
    listed.add_rollback(at(1), at(2))
    assert listed.pending == {}


def test_a_plan_outlives_rollbacks_of_failed_runs_of_it() -> None:
    plan, rollback = f"{at(1)}.compaction.requested", f"{at(2)}.rollback.inflight"
    under_way = LiveTimeline(instants(plan, rollback))
    under_way.add_rollback(at(1), at(2), is_final=False)
    assert under_way.rolled_back_by == {at(1): at(2)}
    done = LiveTimeline(instants(plan, f"{at(2)}_{at(3)}.rollback"))
    done.add_rollback(at(1), at(2), is_final=False)
    assert (list(done.pending), done.rolled_back_by) == ([at(1)], {})
    done.add_rollback(at(1), at(2))
    assert (done.pending, done.rolled_back_by) == ({}, {at(1): at(2)})


def test_files_older_than_the_active_timeline_count_as_committed() -> None:
    live = LiveTimeline(instants(f"{at(5)}_{at(6)}.deltacommit", f"{at(7)}.deltacommit.inflight"))
    assert live.is_committed(at(4))
    assert live.is_committed(at(5))
    assert not live.is_committed(at(7))
    assert not live.is_committed(at(8))


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """Legal runs of the log: each time is new, and each instant ends at most once."""
    entries: list[Entry] = []
    open_: list[int] = []
    undoing: list[int] = []
    for time in range(1, draw(st.integers(1, 25))):
        moves = ["begin"] + ["complete", "abort"] * bool(open_) + ["undone"] * bool(undoing)
        move = draw(st.sampled_from(moves))
        if move == "begin":
            open_.append(time)
            entries.append(begin(time))
        elif move == "complete":
            entries.append(complete(open_.pop(draw(st.integers(0, len(open_) - 1))), time))
        elif move == "abort":
            entries.append(abort(open_.pop(draw(st.integers(0, len(open_) - 1))), time))
            undoing.append(time)
        else:
            entries.append(complete(undoing.pop(), time, Action.ROLLBACK))
    return entries


def files(entries: list[Entry]) -> list[Instant]:
    """The timeline folder after all these entries were carried out."""
    names: dict[str, None] = {}
    undone = {e.instant for e in entries if e.kind is EntryKind.COMPLETE}
    for entry in entries:
        assert entry.creates is not None
        if entry.kind is EntryKind.ABORT:
            names[f"{entry.instant}.rollback.requested"] = None
            assert entry.target is not None
            if entry.instant in undone:
                names.pop(f"{entry.target.instant}.deltacommit.requested", None)
        else:
            names[entry.creates.name] = None
    return [Instant.parse(name) for name in names]


@given(histories(), st.data())
@settings(deadline=None)
def test_folding_entries_equals_listing_the_timeline(
    history: list[Entry], data: st.DataObject
) -> None:
    listed_after = data.draw(st.integers(0, len(history)))
    folded = LiveTimeline(files(history[:listed_after]))
    # The listing may also be later than the first entries that are folded into it.
    for entry in history[data.draw(st.integers(0, listed_after)) :]:
        folded.note(entry)
    listed = LiveTimeline(files(history))
    for entry in history:
        if entry.target is not None:
            folded.add_rollback(entry.target.instant, entry.instant or "")
            listed.add_rollback(entry.target.instant, entry.instant or "")
    assert {r: i.action for r, i in folded.pending.items()} == {
        r: i.action for r, i in listed.pending.items()
    }
    assert folded.completed == listed.completed
    assert folded.highest == listed.highest
    assert folded.completed_after(BEFORE_ALL) == listed.completed_after(BEFORE_ALL)


def test_an_instant_of_the_log_is_requested_until_it_completes() -> None:
    live = LiveTimeline()
    live.note(begin(1))
    assert live.pending[at(1)] == Instant(InstantTime(at(1)), Action.DELTACOMMIT, State.REQUESTED)
    assert live.pending_of(Action.DELTACOMMIT) == [live.pending[at(1)]]
    assert live.times_after(BEFORE_ALL) == {at(1)}


def test_how_a_service_began_is_known_from_the_listing_and_from_the_log() -> None:
    names = (f"{at(1)}.compaction.requested", f"{at(1)}_{at(2)}.commit", f"{at(3)}_{at(4)}.commit")
    live = LiveTimeline(instants(*names))
    assert live.began_as == {at(1): Action.COMPACTION}
    live.note(complete(5, 6, Action.COMPACTION))
    live.note(complete(7, 8))
    assert live.began_as == {at(1): Action.COMPACTION, at(5): Action.COMPACTION}
