"""`append(require_new_keys=True)`: is a key of the rows in the table already?

Tasks check the keys of each file group that they write (`only_new`), as of a state that was loaded
after the write began. A write that completes later is a conflict, so no row is put over another
writer's. Where all rows are buffered in this process, the keys are checked before the write begins
too, so that a refusal leaves nothing behind. Tasks check them again only if another write has
completed since (`has_newer_writes`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.commit.concurrent import is_seed
from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.table_config import TableConfig
from pyhudi.read.lookup import GroupView
from pyhudi.read.plan import Now
from pyhudi.session.session import TableSession
from pyhudi.table.rows.bad_rows import sample, true_rows
from pyhudi.table.schema import PARTITION_PATH, RECORD_KEY
from pyhudi.table.state import TableState
from pyhudi.timeline.timeline import WRITE_ACTIONS
from pyhudi.write.buffer import RowBuffer
from pyhudi.write.files.spec import KeyedRows
from pyhudi.write.view import current_slices, group_view


def only_new(
    rows: Iterator[KeyedRows], existing_keys: pa.Array, config: TableConfig
) -> Iterator[KeyedRows]:
    """Yield the rows; raise InvalidRequestError if one of their keys is in the table."""
    for part in rows:
        refuse_known_keys(part, existing_keys, config)
        yield part


def refuse_known_keys(rows: KeyedRows, existing_keys: pa.Array, config: TableConfig) -> None:
    """Raise InvalidRequestError, with a sample, if a key of the rows is an existing one."""
    mask = pc.is_in(rows.keys, value_set=existing_keys)
    if found := true_rows(mask):
        columns = {name: rows.rows.column(name) for name in config.record_key_fields}
        raise InvalidRequestError(
            "some of the keys are in the table already",
            why=f"require_new_keys=True, but these keys exist: {sample(found, columns)}",
            next_step="Leave these rows out, or write them with upsert if they may replace the"
            " existing ones",
        )


def known_keys(session: TableSession, state: TableState) -> GroupView:
    """Return a view of the keys that the table has in this state."""
    return group_view(session, state, [RECORD_KEY, PARTITION_PATH], Now())


def check_buffered_keys(
    session: TableSession, rows: RowBuffer, checked: TableState | None
) -> TableState:
    """Refuse keys that are in the table; return the state in which none of the rows' keys exists.

    `checked` is what an earlier attempt returned. It is good while no other write has completed.
    """
    if checked is not None and not has_newer_writes(session, checked):
        return checked
    state = session.current.load()
    known, slices = known_keys(session, state), current_slices(session, state)
    rows.route(session.groups.routing_beside(slices, is_sent=False, creates=False))
    for group, part in rows.buffered():
        refuse_known_keys(part, known.keys(session.storage, group), session.config)
    return state


def has_newer_writes(session: TableSession, state: TableState) -> bool:
    """True if a write has completed that is not in the state, and that may have rows.

    The live timeline is as of the instant's begin, so no listing is needed. Seeds have no rows; the
    first write to a partition makes one itself.
    """
    done = session.log.live.completed.values()
    new = (
        instant
        for instant in done
        if instant.action in WRITE_ACTIONS and not state.timeline.is_committed(instant.requested)
    )
    return any(not is_seed(session.loader.metadata(instant)) for instant in new)
