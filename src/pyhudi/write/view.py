"""What does the table hold of the file groups that a write changes?"""

from __future__ import annotations

from collections.abc import Sequence

from pyhudi.format.files.file_names import FileGroupId
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


def current_slices(
    session: TableSession, state: TableState | None = None, *, are_rewritten: bool = False
) -> dict[FileGroupId, FileSlice]:
    """Return the slice of each file group, in this state or the present one.

    Called after the instant began: what completes from then on is found by the check for conflicts.
    If the slices are to be rewritten, none may lack a file.
    """
    state = state or session.current.load()
    times = CompletionTimes(state.timeline)
    if are_rewritten:
        refuse_known_losses(session.loader, state, times)
    return session.groups.latest_slices(state, times)
