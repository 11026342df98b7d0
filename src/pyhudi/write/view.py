"""What does the table hold of the file groups that a write changes?"""

from __future__ import annotations

from collections.abc import Sequence

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.instant import Action
from pyhudi.read.lookup import GroupView
from pyhudi.read.lost_files import refuse_known_losses
from pyhudi.read.plan import Point, Question, Reader
from pyhudi.session.session import TableSession
from pyhudi.table.file_group import FileSlice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes


def group_view(
    session: TableSession, state: TableState, columns: Sequence[str] | None, point: Point
) -> GroupView:
    """Return a view of these columns, or of all, in the state as of a point in time."""
    question = Question(None if columns is None else tuple(columns), meta=True)
    return GroupView.of(Reader(session.loader).plan_snapshot(state, point, question))


def state_and_rings(session: TableSession) -> TableState:
    """Return the present state, and let the session place rows by the rings of that state.

    Rows are looked up in the state, in the file groups that a ring gives. If a resize completed
    between the two looks, no row would be found there.
    """
    while True:
        state = session.current.load()
        if session.groups.count is not None:
            return state
        live = session.log.live
        seen = (w.requested for w in state.timeline.writes if w.action is Action.REPLACECOMMIT)
        known = (i.requested for i in live.completed.values() if i.action is Action.REPLACECOMMIT)
        if not all(map(live.is_committed, seen)):
            session.log.refresh()
        elif all(map(state.timeline.is_committed, known)):
            return state


def current_slices(
    session: TableSession, state: TableState | None = None, *, are_rewritten: bool = False
) -> dict[FileGroupId, FileSlice]:
    """Return the slice of each file group, in this state or the present one.

    Called after the instant began: what completes from then on is found by the check for conflicts.
    If the slices are to be rewritten, none may lack a file.
    """
    state = state or state_and_rings(session)
    times = CompletionTimes(state.timeline)
    if are_rewritten:
        refuse_known_losses(session.loader, state, times)
    return session.groups.latest_slices(state, times)
