"""What does the table hold of the file groups that a write changes?"""

from __future__ import annotations

from collections.abc import Sequence

from pyhudi.read.lookup import GroupView
from pyhudi.read.plan import Point, Question, Reader
from pyhudi.session.session import TableSession
from pyhudi.table.state import TableState


def group_view(
    session: TableSession, state: TableState, columns: Sequence[str] | None, point: Point
) -> GroupView:
    """Return a view of these columns, or of all, in the state as of a point in time."""
    question = Question(None if columns is None else tuple(columns), meta=True)
    return GroupView.of(Reader(session.loader).plan_snapshot(state, point, question))
